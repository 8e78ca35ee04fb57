// K-Means of points in compressed rows, on every backend: beside the same points in a matrix and beside distances in higher
// precision; under faults; on clean data; and what is refused.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "backend/kmeans_parallel.hpp"
#include "backend/kmeans_sparse.hpp"
#include "inject/sites.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_sparse : public kmeans_backend<T> {
 protected:
  // The settings for the same points in a matrix: for cuda the reference backend.
  run::settings how_dense() const {
    run::settings made = this->how();
    if (this->on_cuda) made.backend = backend::reference;
    return made;
  }
  // The emulator has fewer points.
  static std::int64_t rows(std::int64_t count) { return kmeans_backend<T>::on_cuda ? std::max<std::int64_t>(count / 5, 90) : count; }
};
TYPED_SUITE(kmeans_sparse, configurations, test::setting_names);

template <class T>
model<T> fit_sparse(const sparse_set<T>& points, const request<T>& wanted, const run::settings& how, bool wide = false) {
  return test_calls::with(how, [&](const auto& where, const auto& now) {
    return fit(operands(points, wanted, wide), wanted.clusters, wanted.how(), where, now);
  });
}

template <class T>
std::vector<T> flat(const matrix<T>& of) {
  return {of.data(), of.data() + of.size()};
}

template <class T>
bool near(const matrix<T>& a, const matrix<T>& b, double limit) {
  for (std::size_t e = 0; e < a.size(); ++e)
    if (!(std::abs(static_cast<double>(a.data()[e]) - static_cast<double>(b.data()[e])) <= limit)) return false;
  return true;
}

// k-means‖ draws the points that it draws from a matrix: a draw depends on the row's number and on its distance, which agree up to
// rounding.
TYPED_TEST(kmeans_sparse, kmeans_parallel_draws_the_same_points) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 500 : 1700;
  const auto points = texts<T>(m, 60, 9, 8, 23);
  std::vector<T> weights(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(i % 4) / 2;
  for (const bool weighted : {false, true}) {
    request<T> wanted{.clusters = 11, .init = init::kmeans_parallel, .n_init = 2, .max_iter = 1, .seed = 7, .oversampling = 3, .rounds = 3};
    if (weighted) wanted.weights = weights;
    const auto expected = fit(points.dense.view(), wanted, this->how_dense());
    const auto one = fit_sparse(points, wanted, this->how(1));
    EXPECT_EQ(one.report.verdict, verdict::clean) << to_json(one.report);
    EXPECT_EQ(one.labels, expected.labels);
    EXPECT_NEAR(one.inertia, expected.inertia, 1e3 * k_u<T> * expected.inertia);
    const auto three = fit_sparse(points, wanted, this->how(3), true);
    EXPECT_EQ(three.labels, one.labels);
    EXPECT_EQ(flat(three.centroids), flat(one.centroids));
    EXPECT_EQ(three.inertia, one.inertia);
    EXPECT_EQ(fit_sparse(points, wanted, this->how(2, protection::off)).labels, one.labels);
  }
}

TYPED_TEST(kmeans_sparse, every_step_of_kmeans_parallel_is_protected_and_matters) {
  using T = typename TestFixture::real;
  const auto points = texts<T>(this->on_cuda ? 400 : 1300, 40, 12, 6, 97);
  const request<T> wanted{.clusters = 12, .init = init::kmeans_parallel, .max_iter = 1, .seed = 5, .oversampling = 4, .rounds = 3};
  const auto run = [&](const inject::plan* faults, protection level) {
    run::settings how = this->how(2, level);
    how.faults = faults;
    return fit_with_struck_seeding(points.dense, wanted, how, sparse_rows<T>(points.view()));
  };
  expect_steps_protected<T>(run, !test::sampled() ? 6 : 1);
}

// The fit of the same points in a matrix: the same labels and iterations, and centroids and inertia up to rounding.
TYPED_TEST(kmeans_sparse, is_the_fit_of_the_same_points_in_a_matrix) {
  using T = typename TestFixture::real;
  for (const auto& [most, n, k, stored] :
       {std::array<std::int64_t, 4>{700, 60, 5, 6}, {1500, 300, 20, 25}, {400, 40, 70, 8}, {90, 7, 3, 3}, {60, 3000, 4, 1500}}) {
    const std::int64_t m = std::min(most, this->rows(most));
    const auto points = texts<T>(m, n, std::min<std::int64_t>(k, 12), static_cast<double>(stored), static_cast<unsigned>(m));
    std::vector<T> weights(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; ++i) weights[static_cast<std::size_t>(i)] = static_cast<T>(i % 5) / 2;
    for (const bool weighted : {false, true}) {
      request<T> wanted{.clusters = k, .init = init::given, .centroids = points.dense.rows(k), .max_iter = 20};
      if (weighted) wanted.weights = weights;
      SCOPED_TRACE(std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k) + (weighted ? " weighted" : ""));
      const auto dense = fit(points.dense.view(), wanted, this->how_dense());
      const auto made = fit_sparse(points, wanted, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean);
      EXPECT_EQ(made.report.false_alarms, 0u);
      EXPECT_EQ(made.labels, dense.labels);
      EXPECT_EQ(made.iterations, dense.iterations);
      EXPECT_EQ(made.stopped, dense.stopped);
      EXPECT_TRUE(near(made.centroids, dense.centroids, 8 * k_u<T>));  // the matrix is shifted and rounded for it
      EXPECT_NEAR(made.inertia, dense.inertia, 64 * k_u<T> * dense.inertia);
      expect_nearest(points.dense.view(), made.centroids.view(), made.labels, made.inertia, weighted ? weights : std::vector<T>{});
      for (const int threads : {1, 3}) {
        const auto again = fit_sparse(points, wanted, this->how(threads), threads == 3);
        EXPECT_EQ(flat(again.centroids), flat(made.centroids));
        EXPECT_EQ(again.labels, made.labels);
        EXPECT_EQ(again.inertia, made.inertia);
      }
      const auto bare = fit_sparse(points, wanted, this->how(2, protection::off));
      EXPECT_EQ(flat(bare.centroids), flat(made.centroids));
      EXPECT_EQ(bare.labels, made.labels);
    }
  }
}

TYPED_TEST(kmeans_sparse, chooses_first_centroids) {
  using T = typename TestFixture::real;
  const auto points = texts<T>(this->rows(900), 80, 6, 10, 5);
  for (const init how : {init::kmeans_plus_plus, init::random}) {
    const request<T> wanted{.clusters = 6, .init = how, .n_init = 3, .seed = 17};
    const auto dense = fit(points.dense.view(), wanted, this->how_dense());
    const auto made = fit_sparse(points, wanted, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    EXPECT_EQ(made.labels, dense.labels) << to_string(how);
    EXPECT_NEAR(made.inertia, dense.inertia, 64 * k_u<T> * dense.inertia);
    EXPECT_EQ(fit_sparse(points, wanted, this->how(1, protection::off)).labels, made.labels);
  }
}

// Fewer different points than clusters, rows without elements, stored zeros, and clusters that lose their points.
TYPED_TEST(kmeans_sparse, empty_rows_equal_points_and_empty_clusters) {
  using T = typename TestFixture::real;
  sparse_set<T> points(300, 9);
  for (std::int64_t i = 0; i < 300; ++i)
    if (i % 4 != 0) points.at(i, i % 4 * 2) = static_cast<T>(1 + i % 3);
  int toggle = 0;
  points.compress([&] { return toggle++ % 3 == 0; });
  // 10 different points, with the origin.
  const auto many = fit_sparse(points, {.clusters = 14, .seed = 3}, this->how());
  EXPECT_EQ(many.report.verdict, verdict::clean);
  EXPECT_LE(many.inertia, 1e-20);
  EXPECT_EQ(std::set<std::int32_t>(many.labels.begin(), many.labels.end()).size(), 10u);
  // Two of three centroids are far away: they take the farthest points.
  std::vector<T> first(27, T(100));
  std::fill_n(first.begin(), 9, T(0));
  const request<T> wanted{.clusters = 3, .init = init::given, .centroids = row_major<const T>(first.data(), 3, 9)};
  const auto dense = fit(points.dense.view(), wanted, this->how_dense());
  const auto made = fit_sparse(points, wanted, this->how());
  EXPECT_EQ(made.labels, dense.labels);
  EXPECT_EQ(made.iterations, dense.iterations);
  EXPECT_TRUE(near(made.centroids, dense.centroids, 32 * k_u<T>));
  // No element at all.
  sparse_set<T> nothing(20, 5);
  nothing.compress([] { return false; });
  const auto origin = fit_sparse(nothing, {.clusters = 2}, this->how());
  EXPECT_EQ(origin.report.verdict, verdict::clean);
  EXPECT_EQ(origin.inertia, 0);
}

#if LDBL_MANT_DIG == 113
using quadruple = long double;
#else
using quadruple = __float128;
#endif

// ‖x − c‖² with about 113 bits.
template <class T>
quadruple precise_distance(const data_set<T>& points, std::int64_t i, const T* c) {
  quadruple sum = 0;
  for (std::int64_t f = 0; f < points.n; ++f) {
    const quadruple d = static_cast<quadruple>(points.values[static_cast<std::size_t>(i * points.n + f)]) - c[f];
    sum += d * d;
  }
  return sum;
}

// Centroids that differ in the last place, points between two of them, and centroids that are points: labels are those of exact distances.
TYPED_TEST(kmeans_sparse, labels_and_distances_are_those_of_exact_arithmetic) {
  using T = typename TestFixture::real;
  for (const std::int64_t n : {6, 40, 400}) {
    const std::int64_t m = 500, k = 24;
    const auto points = texts<T>(m, n, 4, std::min(30.0, 0.5 * static_cast<double>(n)), static_cast<unsigned>(n), 3);
    std::vector<T> centroids(points.dense.values.begin(), points.dense.values.begin() + k * n);
    const auto c = [&](std::int64_t j, std::int64_t f) -> T& { return centroids[static_cast<std::size_t>(j * n + f)]; };
    for (std::int64_t j = k / 2; j < k; ++j)
      for (std::int64_t f = 0; f < n; ++f)
        c(j, f) = j % 2 == 0 ? (c(j - 1, f) + c(j, f)) / 2 : std::nextafter(c(j - k / 2, f), static_cast<T>(f % 3 == 0 ? 4 : 0));
    data<T> from = operands(points, request<T>{.centroids = row_major<const T>(centroids.data(), k, n)});
    const auto found = test_calls::predict_any(from, this->how());
    const auto values = test_calls::transform_any(from, this->how());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(values.report.verdict, verdict::clean);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i + 1 < points.offsets.size(); ++i)
      longest = std::max<std::int64_t>(longest, points.offsets[i + 1] - points.offsets[i]);
    quadruple inertia = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      std::int64_t best = 0;
      quadruple least = precise_distance(points.dense, i, centroids.data());
      for (std::int64_t j = 0; j < k; ++j) {
        const quadruple distance = precise_distance(points.dense, i, centroids.data() + j * n);
        const double root = std::sqrt(static_cast<double>(distance));
        // include/ballast/kmeans.hpp: of floats as of points in a matrix; of doubles by the stored elements.
        const double limit = sizeof(T) == 4 ? 0.5 * static_cast<double>(n) + 4 : 8 * static_cast<double>(longest + 4);
        ASSERT_NEAR(static_cast<double>(values.values(i, j)), root, limit * k_u<T> * root) << i << " " << j;
        if (distance < least) least = distance, best = j;
      }
      inertia += least;
      const std::int32_t own = found.labels[static_cast<std::size_t>(i)];
      const quadruple mine = precise_distance(points.dense, i, centroids.data() + own * n);
      // For floats differences in double decide, and leave open what is below their rounding.
      if (mine != least) {
        ASSERT_LE(static_cast<double>((mine - least) / least), static_cast<double>(n + 4) * 0x1p-52) << i;
      }
      if (sizeof(T) == 8) {
        ASSERT_EQ(own, best) << i;
      }
    }
    EXPECT_NEAR(found.inertia, static_cast<double>(inertia), 1e-13 * static_cast<double>(inertia));
  }
}

struct scene {
  std::int64_t m, n, k;
  double stored;
};

bool visited_once(inject::site where) {
  return where == kmeans::site::shift || where == kmeans::site::tolerance || where == kmeans::site::range ||
         where == kmeans::site::normalization || where == kmeans::site::inertia;
}

TYPED_TEST(kmeans_sparse, every_site_and_model_is_repaired_and_matters) {
  using T = typename TestFixture::real;
  constexpr int iterations = 3;
  const std::uint64_t seeds = test::sampled() ? 2 : 6;
  std::vector<scene> scenes = {{1500, 60, 12, 8}, {500, 50, 70, 6}};
  if (this->on_cuda) scenes = {{100, 60, 12, 8}};
  if (this->on_cuda && !test::sampled()) scenes.push_back({100, 50, 70, 6});
  for (const scene& what : scenes) {
    const auto points = texts<T>(what.m, what.n, 6, what.stored, 73);
    const request<T> wanted{
        .clusters = what.k, .init = init::given, .centroids = points.dense.rows(what.k), .max_iter = iterations, .tol = 0};
    const auto run_with = [&](const inject::plan* faults, protection level) {
      run::settings how = this->how(2, level);
      how.faults = faults;
      return fit_sparse(points, wanted, how);
    };
    const auto clean = run_with(nullptr, protection::correct);
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    const auto close = [&](const model<T>& made) {
      return made.labels == clean.labels && made.iterations == clean.iterations &&
             std::abs(made.inertia - clean.inertia) <= 64 * k_u<T> * clean.inertia && near(made.centroids, clean.centroids, 16 * k_u<T>);
    };
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "kmeans") continue;
      int detected = 0, changed = 0;
      const std::uint64_t tries = row.site == kmeans::site::points && !this->on_cuda ? 6 : seeds;
      for (std::size_t model_index = 0; model_index < inject::k_model_names.size(); ++model_index) {
        for (std::uint64_t seed = 0; seed < tries; ++seed) {
          inject::request fault = fault_at(row.site, static_cast<inject::model>(model_index), seed);
          fault.visit = visited_once(row.site) ? 0 : iterations - 1;
          const inject::plan faults({fault});
          SCOPED_TRACE(std::string(row.name) + " " + std::string(inject::k_model_names[model_index]) + " seed " + std::to_string(seed) +
                       " m " + std::to_string(what.m));
          const auto found = run_with(&faults, protection::correct);
          detected += found.report.detected > 0;
          if (found.report.verdict == verdict::uncorrectable) {
            EXPECT_EQ(fault.model, inject::model::stuck_at);
          } else {
            EXPECT_TRUE(close(found)) << to_json(found.report);
          }
          if (row.role != inject::site_role::data) continue;
          const auto bare = run_with(&faults, protection::off);
          EXPECT_EQ(bare.report.detected, 0u);
          changed += flat(bare.centroids) != flat(clean.centroids) || bare.labels != clean.labels || bare.inertia != clean.inertia ||
                     bare.iterations != clean.iterations;
          // A fault that protection did not see is below the floor: no more than rounding.
          if (found.report.detected == 0) {
            EXPECT_TRUE(close(bare));
          }
        }
      }
      EXPECT_GT(detected, 0) << row.name;
      if (row.role == inject::site_role::data) {
        EXPECT_GT(changed, 0) << row.name;
      }
    }
  }
}

// Distances of transform under faults: of the points as they are loaded, which both the distances and their check read, and of products.
TYPED_TEST(kmeans_sparse, faults_in_distances_are_repaired) {
  using T = typename TestFixture::real;
  const auto points = texts<T>(300, 40, 5, 7, 11);
  const data<T> from = operands(points, request<T>{.centroids = points.dense.rows(9)});
  const auto clean = test_calls::transform_any(from, this->how());
  for (const auto site : {kmeans::site::product, kmeans::site::points}) {
    int changed = 0;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const inject::plan faults({fault_at(site, inject::model::bit_flip, seed)});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = test_calls::transform_any(from, how);
      EXPECT_GT(found.report.detected, 0u) << seed;
      EXPECT_EQ(found.report.verdict, verdict::recomputed) << seed;
      EXPECT_EQ(flat(found.values), flat(clean.values)) << seed;
      how.protection = protection::off;
      changed += flat(test_calls::transform_any(from, how).values) != flat(clean.values);
    }
    EXPECT_EQ(changed, 30);
  }
}

// Random bits of scores: a wrong label is at most the floor of protection.md away.
TYPED_TEST(kmeans_sparse, random_flips_leave_no_label_above_the_floor) {
  using T = typename TestFixture::real;
  const auto points = texts<T>(600, 100, 8, 12, 29);
  const request<T> wanted{.clusters = 20, .init = init::given, .centroids = points.dense.rows(20), .max_iter = 1, .tol = 0};
  const data<T> from = operands(points, wanted);
  for (std::uint64_t seed = 0; seed < this->fault_seeds(); ++seed) {
    inject::request fault = fault_at(kmeans::site::product, inject::model::bit_flip, seed);
    fault.bit = -1;  // any
    const inject::plan faults({fault});
    run::settings how = this->how();
    how.faults = &faults;
    const auto found = test_calls::predict_any(from, how);
    for (std::int64_t i = 0; i < 600; ++i) {
      const auto square = [&](std::int64_t j) {
        return square_distance(points.dense.view(), i, [&](std::int64_t f) { return wanted.centroids(j, f); });
      };
      double least = square(0), reach = 0;
      for (std::int64_t j = 0; j < 20; ++j) {
        least = std::min(least, square(j));
        reach = std::max(reach, square_distance(wanted.centroids, j, [](std::int64_t) { return 0.0; }));
      }
      const double size = std::sqrt(square_distance(points.dense.view(), i, [](std::int64_t) { return 0.0; })) + std::sqrt(reach);
      ASSERT_LE(square(found.labels[static_cast<std::size_t>(i)]) - least, 100 * k_u<T> * size * size) << "seed " << seed << " point " << i;
    }
  }
}

TYPED_TEST(kmeans_sparse, clean_data_raise_no_alarm) {
  using T = typename TestFixture::real;
  const double huge = sizeof(T) == 4 ? 1e30 : 1e150;
  std::uint64_t checks = 0;
  const int rounds = test::sampled() ? (this->on_cuda ? 1 : 3) : 20;
  for (int round = 0; round < rounds; ++round) {
    const auto seed = static_cast<unsigned>(round);
    std::vector<sparse_set<T>> sets;
    sets.push_back(texts<T>(this->rows(800), 200, 8, 20, seed));
    sets.push_back(texts<T>(this->rows(800), 50, 8, 20, seed, huge));
    sets.push_back(texts<T>(this->rows(800), 50, 8, 5, seed, 1 / huge));
    sets.push_back(texts<T>(60, 4000, 3, 2000, seed));
    std::mt19937_64 random(seed);
    std::cauchy_distribution<double> heavy;
    const std::int64_t many = this->rows(900);
    sparse_set<T> equal(many, 64), tailed(many, 64), signs(this->rows(500), 90);
    for (std::int64_t i = 0; i < many; ++i) {
      for (std::int64_t f = 0; f < 64; ++f) {
        if (random() % 3 == 0) equal.at(i, f) = T(1.1);
        if (random() % 8 == 0) tailed.at(i, f) = static_cast<T>(heavy(random));
      }
    }
    for (std::int64_t i = 0; i < this->rows(500); ++i)
      for (std::int64_t f = 0; f < 90; ++f)
        if (random() % 9 == 0) signs.at(i, f) = random() % 2 == 0 ? T(1) : T(-1);
    for (sparse_set<T>* each : {&equal, &tailed, &signs}) {
      each->compress([] { return false; });
      sets.push_back(std::move(*each));
    }
    for (std::size_t s = 0; s < sets.size(); ++s) {
      for (const std::int64_t k : {3, 20, 60}) {
        SCOPED_TRACE("round " + std::to_string(round) + " set " + std::to_string(s) + " k " + std::to_string(k));
        const auto made = fit_sparse(sets[s], {.clusters = k, .max_iter = 5, .seed = seed}, this->how());
        EXPECT_EQ(made.report.detected, 0u) << to_json(made.report);
        EXPECT_EQ(made.report.false_alarms, 0u);
        checks += made.report.checks;
        const auto values = test_calls::transform_any(operands(sets[s], request<T>{.centroids = made.centroids.view()}), this->how());
        EXPECT_EQ(values.report.detected, 0u) << to_json(values.report);
      }
    }
  }
  EXPECT_GT(checks, this->on_cuda ? 10'000u : 100'000u);
}

TEST(kmeans_sparse_refusals, operands_and_plans) {
  const auto points = texts<float>(40, 12, 3, 4, 1);
  const options wanted{};
  const auto expect_refused = [&](auto change, const char* text) {
    auto from = points;
    change(from);
    data<float> given;
    given.sparse = from.view();
    try {
      (void)fit(given, 3, wanted);
      ADD_FAILURE() << "expected a refusal: " << text;
    } catch (const invalid_argument_error& refused) {
      EXPECT_NE(std::string(refused.what()).find(text), std::string::npos) << refused.what();
      EXPECT_NE(std::string(refused.what()).find("kmeans_f32_m40_n12_k3_csr"), std::string::npos) << refused.what();
    }
  };
  using set = sparse_set<float>;
  expect_refused([](set& of) { of.offsets.pop_back(); }, "41 offsets");
  expect_refused([](set& of) { of.offsets[4] = of.offsets[3] - 1; }, "do not fall");
  expect_refused([](set& of) { of.offsets.back() += 1; }, "do not fall");
  expect_refused([](set& of) { of.offsets[0] = -1; }, "for row 0");
  expect_refused([](set& of) { of.indices.pop_back(); }, "as many columns");
  expect_refused([](set& of) { of.indices[0] = 12; }, "ascending columns");
  expect_refused([](set& of) { of.indices[0] = -1; }, "ascending columns");
  expect_refused(
      [](set& of) {
        std::int64_t i = 0;
        while (of.offsets[static_cast<std::size_t>(i + 1)] - of.offsets[static_cast<std::size_t>(i)] < 2) ++i;
        const auto e = static_cast<std::size_t>(of.offsets[static_cast<std::size_t>(i)]);
        of.indices[e + 1] = of.indices[e];
      },
      "ascending columns");
  expect_refused([](set& of) { of.values[5] = std::numeric_limits<float>::quiet_NaN(); }, "expected finite numbers");
  const problem size{.points = 40, .features = 12, .clusters = 3, .storage = storage::csr};
  problem many = size;
  many.batch = 2;
  EXPECT_THROW(plan<float>(many, {}), unsupported_error);
  EXPECT_THROW(plan<float>(size, {}, {.backend = backend::cuda}), unsupported_error);
  EXPECT_NE(plan<float>(size, {}).backend(), backend::cuda);
  EXPECT_EQ(to_token(size), "kmeans_f32_m40_n12_k3_csr");
  EXPECT_EQ(to_token(parse_token("kmeans_f64_m40_n12_k3_csr")), "kmeans_f64_m40_n12_k3_csr");
  EXPECT_EQ(parse_token("kmeans_f64_m40_n12_k3_csr").storage, storage::csr);
  EXPECT_THROW(parse_token("kmeans_f64_m40_n12_k3_csc"), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::kmeans
