// Spherical K-Means on every backend: beside its definition in higher precision; under faults; and what is refused.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/sites.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_spherical : public kmeans_backend<T> {};
TYPED_SUITE(kmeans_spherical, configurations, test::setting_names);

using vectors = std::vector<std::vector<long double>>;

template <class T>
vectors unit_vectors(matrix_view<const T> from) {
  vectors made(static_cast<std::size_t>(from.rows));
  for (std::int64_t i = 0; i < from.rows; ++i) {
    auto& row = made[static_cast<std::size_t>(i)];
    long double square = 0;
    for (std::int64_t f = 0; f < from.columns; ++f) {
      row.push_back(from(i, f));
      square += row.back() * row.back();
    }
    for (auto& each : row) each /= std::sqrt(square);
  }
  return made;
}

struct outcome {
  vectors centroids;
  std::vector<std::int32_t> labels;
  long double objective = 0;
};

// Iterations of the definition: labels by the largest cosine, centroids in the direction of the sum. Then labels for the last centroids.
outcome by_definition(const vectors& points, vectors centroids, const std::vector<double>& weights, int iterations) {
  outcome made{std::move(centroids), std::vector<std::int32_t>(points.size())};
  for (int pass = 0; pass <= iterations; ++pass) {
    vectors sums(made.centroids.size(), std::vector<long double>(points[0].size()));
    made.objective = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      long double most = -2;
      for (std::size_t j = 0; j < made.centroids.size(); ++j) {
        long double cosine = 0;
        for (std::size_t f = 0; f < points[i].size(); ++f) cosine += points[i][f] * made.centroids[j][f];
        if (cosine > most) most = cosine, made.labels[i] = static_cast<std::int32_t>(j);
      }
      made.objective += weights[i] * (1 - most);
      auto& sum = sums[static_cast<std::size_t>(made.labels[i])];
      for (std::size_t f = 0; f < sum.size(); ++f) sum[f] += weights[i] * points[i][f];
    }
    if (pass == iterations) break;
    for (std::size_t j = 0; j < sums.size(); ++j) {
      long double square = 0;
      for (const long double each : sums[j]) square += each * each;
      for (std::size_t f = 0; f < sums[j].size(); ++f) made.centroids[j][f] = sums[j][f] / std::sqrt(square);
    }
  }
  return made;
}

template <class T>
struct fitted {
  matrix<T> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  ballast::report report;
  bool same(const fitted& other) const {
    return std::equal(centroids.data(), centroids.data() + centroids.size(), other.centroids.data()) && labels == other.labels &&
           inertia == other.inertia;
  }
};

template <class T>
fitted<T> fit_directions(const problem& size, const data<T>& from, const options& wanted, const run::settings& how) {
  fitted<T> made{matrix<T>(size.clusters, size.features), std::vector<std::int32_t>(static_cast<std::size_t>(size.points)), 0, {}};
  made.report = test_calls::with(how, [&](const auto& where, const auto& now) {
    return plan<T>(size, wanted, where).fit(from, {made.centroids, made.labels, &made.inertia}, now);
  });
  return made;
}

// Clouds in the directions of some vectors, of lengths from 1 to 2^20, without small numbers: one in three is 0.
template <class T>
data_set<T> directions(std::int64_t m, std::int64_t n, std::int64_t clusters, unsigned seed) {
  auto made = clouds<T>(m, n, clusters, seed, 0.3);
  std::mt19937_64 random(seed);
  for (std::int64_t i = 0; i < m; ++i) {
    const double length = std::ldexp(1.0, static_cast<int>(random() % 20));
    for (std::int64_t f = 0; f < n; ++f) {
      T& x = made.values[static_cast<std::size_t>(i * n + f)];
      x = f % 3 == i % 3 && n > 3 ? T(0) : static_cast<T>(static_cast<double>(x) * length);
    }
  }
  return made;
}

template <class T>
struct rows {
  std::vector<std::int32_t> offsets = {0}, indices;
  std::vector<T> values;
  explicit rows(const data_set<T>& from) {
    for (std::int64_t i = 0; i < from.m; ++i) {
      for (std::int64_t f = 0; f < from.n; ++f) {
        if (from.view()(i, f) == 0) continue;
        indices.push_back(static_cast<std::int32_t>(f));
        values.push_back(from.view()(i, f));
      }
      offsets.push_back(static_cast<std::int32_t>(indices.size()));
    }
  }
};

TYPED_TEST(kmeans_spherical, is_what_the_definition_says) {
  using T = typename TestFixture::real;
  constexpr int iterations = 4;
  using shape = std::array<std::int64_t, 3>;
  const std::vector<shape> shapes =
      this->on_cuda ? std::vector<shape>{{300, 5, 4}} : std::vector<shape>{{900, 12, 5}, {400, 40, 9}, {70, 3, 3}};
  for (const auto& [m, n, k] : shapes) {
    const auto points = directions<T>(m, n, k, static_cast<unsigned>(m));
    const rows<T> sparse(points);
    std::vector<T> weights(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; ++i) weights[static_cast<std::size_t>(i)] = static_cast<T>(1 + i % 4) / 4;
    const auto expected = by_definition(unit_vectors(points.view()), unit_vectors(points.rows(k)),
                                        std::vector<double>(weights.begin(), weights.end()), iterations);
    for (const storage kind : {storage::dense, storage::csr}) {
      for (const protection level : {protection::off, protection::correct}) {
        if (this->on_cuda && (kind == storage::csr || level == protection::off)) continue;
        SCOPED_TRACE(std::to_string(m) + (kind == storage::csr ? " csr" : " dense"));
        const problem size{.precision = precision_of<T>, .points = m, .features = n, .clusters = k, .storage = kind, .spherical = true};
        data<T> from{.weights = weights, .centroids = points.rows(k)};
        if (kind == storage::csr) {
          from.sparse = csr_view<const T, std::int32_t>{m, n, sparse.offsets, sparse.indices, sparse.values};
        } else {
          from.points = points.view();
        }
        const auto made = fit_directions(size, from, {.init = init::given, .max_iter = iterations, .tol = 0}, this->how(2, level));
        EXPECT_EQ(made.report.detected, 0u) << to_json(made.report);
        EXPECT_EQ(made.labels, expected.labels);
        EXPECT_NEAR(made.inertia, static_cast<double>(expected.objective), 64 * k_u<T> * static_cast<double>(m));
        for (std::int64_t j = 0; j < k; ++j) {
          double square = 0;
          for (std::int64_t f = 0; f < n; ++f) {
            const double c = static_cast<double>(made.centroids(j, f));
            square += c * c;
            EXPECT_NEAR(c, static_cast<double>(expected.centroids[static_cast<std::size_t>(j)][static_cast<std::size_t>(f)]), 8 * k_u<T>);
          }
          EXPECT_NEAR(square, 1, 4 * k_u<T>);
        }
        // predict has the labels of fit.
        std::vector<std::int32_t> labels(static_cast<std::size_t>(m));
        double inertia = 0;
        from.centroids = std::as_const(made.centroids).view();
        (void)test_calls::with(this->how(), [&](const auto& where, const auto& now) {
          return plan<T>(size, {}, where).predict(from, {labels, &inertia}, now);
        });
        EXPECT_EQ(labels, made.labels);
        EXPECT_NEAR(inertia, made.inertia, 64 * k_u<T> * static_cast<double>(m));
        // transform has 1 − cos from differences. Its error is that of distances, and that of the unit vectors, whose roundings move a
        // difference d by 2u at most.
        matrix<T> values(m, k);
        (void)test_calls::with(this->how(2, level),
                               [&](const auto& where, const auto& now) { return plan<T>(size, {}, where).transform(from, values, now); });
        const auto directions_of = unit_vectors(points.view()), centres = unit_vectors(std::as_const(made.centroids).view());
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < k; ++j) {
            long double square = 0;
            for (std::int64_t f = 0; f < n; ++f) {
              const long double d = directions_of[static_cast<std::size_t>(i)][static_cast<std::size_t>(f)] -
                                    centres[static_cast<std::size_t>(j)][static_cast<std::size_t>(f)];
              square += d * d;
            }
            const double exact = static_cast<double>(square / 2), moved = 4 * k_u<T>;
            ASSERT_NEAR(values(i, j), exact, static_cast<double>(n + 16) * k_u<T> * exact + moved * std::sqrt(2 * exact) + moved * moved);
          }
      }
    }
  }
}

// The lengths of points do not matter: powers of two change no bit.
TYPED_TEST(kmeans_spherical, lengths_do_not_matter) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 200 : 500;
  auto points = directions<T>(m, 10, 8, 7);
  const problem size{.precision = precision_of<T>, .points = m, .features = 10, .clusters = 8, .spherical = true};
  const options wanted{.n_init = 2, .seed = 3};
  const auto first = fit_directions(size, data<T>{.points = points.view()}, wanted, this->how());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t f = 0; f < 10; ++f) {
      T& x = points.values[static_cast<std::size_t>(i * 10 + f)];
      x = std::ldexp(x, static_cast<int>(i % 60) - 30);
    }
  EXPECT_TRUE(fit_directions(size, data<T>{.points = points.view()}, wanted, this->how()).same(first));
}

TYPED_TEST(kmeans_spherical, faults_at_every_site_are_repaired) {
  using T = typename TestFixture::real;
  constexpr int iterations = 3;
  const std::int64_t m = this->on_cuda ? 400 : 1500;
  const auto points = directions<T>(m, 10, 12, 5);
  const problem size{.precision = precision_of<T>, .points = m, .features = 10, .clusters = 12, .spherical = true};
  const data<T> from{.points = points.view(), .centroids = points.rows(12)};
  const options wanted{.init = init::given, .max_iter = iterations, .tol = 0};
  const auto clean = fit_directions(size, from, wanted, this->how());
  for (const inject::site_row& row : inject::sites()) {
    if (row.operation() != "kmeans") continue;
    // On cuda the iterations are those of fits with on_progress; the copies and the division by the norm are the driver's.
    if (this->on_cuda && row.site != kmeans::site::points && row.site != kmeans::site::centroid) continue;
    int detected = 0, matter = 0;
    for (std::uint64_t seed = 0; seed < (this->on_cuda ? 6 : 16); ++seed) {
      inject::request fault = fault_at(row.site, inject::model::bit_flip, seed);
      fault.visit = static_cast<std::int64_t>(seed % 2);  // the first visits of the points are those of the copies
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = fit_directions(size, from, wanted, how);
      detected += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable) << row.name << " " << seed;
      EXPECT_EQ(found.labels, clean.labels) << row.name << " " << seed;
      EXPECT_NEAR(found.inertia, clean.inertia, 64 * k_u<T> * static_cast<double>(m)) << row.name << " " << seed;
      how.protection = protection::off;
      if (row.site == kmeans::site::points) matter += !fit_directions(size, from, wanted, how).same(clean);
    }
    EXPECT_GT(detected, 0) << row.name;
    if (row.site == kmeans::site::points) {
      EXPECT_GT(matter, 0);
    }
  }
}

TEST(kmeans_spherical_refusals, rows_and_plans) {
  auto points = directions<float>(50, 4, 3, 1);
  const problem size{.points = 50, .features = 4, .clusters = 3, .spherical = true};
  EXPECT_EQ(to_token(size), "kmeans_f32_m50_n4_k3_spherical");
  EXPECT_TRUE(parse_token("kmeans_f64_m50_n4_k3_csr_spherical").spherical);
  EXPECT_EQ(to_token(parse_token("kmeans_bf16_m50_n4_k3_spherical")), "kmeans_bf16_m50_n4_k3_spherical");
  std::fill_n(points.values.begin() + 28, 4, 0.0F);
  try {
    (void)plan<float>(size, {}).fit({.points = points.view()}, {});
    ADD_FAILURE() << "expected a refusal";
  } catch (const invalid_argument_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("zeros in row 7"), std::string::npos) << refused.what();
  }
  points.values[28] = std::numeric_limits<float>::infinity();
  EXPECT_THROW((void)plan<float>(size, {}).fit({.points = points.view()}, {}), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::kmeans
