// Mini-batch K-Means on every backend: beside its definition in higher precision; under faults; and what is refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/mini_batch.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/counter_rng.hpp"
#include "inject/sites.hpp"
#include "kmeans/sites.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_mini_batch : public kmeans_backend<T> {};
TYPED_SUITE(kmeans_mini_batch, configurations, test::setting_names);

using vectors = std::vector<std::vector<long double>>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
vectors wide(matrix_view<const T> from) {
  vectors made(at(from.rows));
  for (std::int64_t i = 0; i < from.rows; ++i)
    for (std::int64_t f = 0; f < from.columns; ++f) made[at(i)].push_back(from(i, f));
  return made;
}

long double square_distance(const std::vector<long double>& a, const std::vector<long double>& b) {
  long double sum = 0;
  for (std::size_t f = 0; f < a.size(); ++f) sum += (a[f] - b[f]) * (a[f] - b[f]);
  return sum;
}

std::size_t nearest(const std::vector<long double>& x, const vectors& centroids) {
  std::size_t made = 0;
  for (std::size_t j = 1; j < centroids.size(); ++j)
    if (square_distance(x, centroids[j]) < square_distance(x, centroids[made])) made = j;
  return made;
}

// Sculley's algorithm with scikit-learn's rules, in the widest precision, from the definition. The random numbers are the library's.
struct definition {
  vectors centroids;
  std::vector<long double> weights;
  double since = 0;

  // Returns the inertia of the batch before the step.
  long double step(const vectors& batch, const std::vector<long double>& counts, const mini_batch_options& how, std::int64_t number) {
    const auto k = centroids.size();
    since += static_cast<double>(std::min<std::int64_t>(how.batch_size, static_cast<std::int64_t>(batch.size())));
    const bool due = std::ranges::count(weights, 0) > 0 || since >= 10 * static_cast<double>(k);
    vectors sums(k, std::vector<long double>(batch[0].size()));
    std::vector<long double> added(k);
    long double inertia = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::size_t own = nearest(batch[i], centroids);
      inertia += counts[i] * square_distance(batch[i], centroids[own]);
      added[own] += counts[i];
      for (std::size_t f = 0; f < batch[i].size(); ++f) sums[own][f] += counts[i] * batch[i][f];
    }
    for (std::size_t j = 0; j < k; ++j) {
      if (!(added[j] > 0)) continue;
      for (std::size_t f = 0; f < sums[j].size(); ++f)
        centroids[j][f] = (weights[j] * centroids[j][f] + sums[j][f]) / (weights[j] + added[j]);
      weights[j] += added[j];
    }
    if (due && how.reassignment_ratio > 0) {
      since = 0;
      reassign(batch, how, number);
    }
    return inertia;
  }

  void reassign(const vectors& batch, const mini_batch_options& how, std::int64_t number) {
    std::vector<std::size_t> few;
    const long double limit = how.reassignment_ratio * *std::ranges::max_element(weights);
    for (std::size_t j = 0; j < weights.size(); ++j)
      if (weights[j] < limit) few.push_back(j);
    std::ranges::stable_sort(few, [&](std::size_t a, std::size_t b) { return weights[a] < weights[b]; });
    few.resize(std::min(few.size(), batch.size() / 2));
    std::vector<std::size_t> rows;
    const auto stream = (std::uint64_t{1} << 43) + static_cast<std::uint64_t>(number);
    for (std::uint64_t e = 0; rows.size() < few.size(); ++e) {
      const auto row = static_cast<std::size_t>(core::random_uniform(how.seed, stream, e) * static_cast<double>(batch.size()));
      if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
    }
    long double least = std::numeric_limits<long double>::infinity();
    for (std::size_t j = 0; j < weights.size(); ++j)
      if (std::ranges::find(few, j) == few.end()) least = std::min(least, weights[j]);
    for (std::size_t e = 0; e < few.size(); ++e) {
      centroids[few[e]] = batch[rows[e]];
      weights[few[e]] = least;
    }
  }

  struct end {
    int steps = 0;
    stop_reason reason = stop_reason::max_iter;
  };
  end fit(const vectors& points, const std::vector<double>& point_weights, const mini_batch_options& how) {
    const auto m = static_cast<std::int64_t>(points.size()), size = std::min(m, how.batch_size);
    std::vector<double> sums;
    double sum = 0;
    for (const double each : point_weights) sums.push_back(sum += each / *std::ranges::max_element(point_weights));
    long double variance = 0;
    for (std::size_t f = 0; f < points[0].size(); ++f) {
      long double mean = 0, own = 0;
      for (const auto& x : points) mean += x[f] / static_cast<long double>(m);
      for (const auto& x : points) own += (x[f] - mean) * (x[f] - mean) / static_cast<long double>(m);
      variance += own / static_cast<long double>(points[0].size());
    }
    long double smoothed = -1, least = std::numeric_limits<long double>::infinity();
    const long double share = std::min(1.0L, 2.0L * static_cast<long double>(size) / static_cast<long double>(m + 1));
    int without = 0;
    const std::int64_t most = std::max<std::int64_t>(1, how.max_iter * m / size);
    for (std::int64_t i = 0; i < most; ++i) {
      vectors batch;
      for (std::int64_t e = 0; e < size; ++e) {
        const double u =
            core::random_uniform(how.seed, (std::uint64_t{1} << 42) + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(e));
        const auto row = sums.empty() ? static_cast<std::int64_t>(u * static_cast<double>(m))
                                      : std::ranges::upper_bound(sums, u * sums.back()) - sums.begin();
        batch.push_back(points[at(row)]);
      }
      const vectors before = centroids;
      const long double mean = step(batch, std::vector<long double>(at(size), 1), how, i) / static_cast<long double>(size);
      if (i == 0) continue;
      smoothed = smoothed < 0 ? mean : smoothed * (1 - share) + mean * share;
      long double shift = 0;
      for (std::size_t j = 0; j < centroids.size(); ++j) shift += square_distance(before[j], centroids[j]);
      if (how.tol > 0 && shift <= how.tol * variance) return {static_cast<int>(i + 1), stop_reason::tolerance};
      without = smoothed < least ? 0 : without + 1;
      least = std::min(least, smoothed);
      if (how.max_no_improvement && without >= *how.max_no_improvement) return {static_cast<int>(i + 1), stop_reason::no_improvement};
    }
    return {static_cast<int>(most), stop_reason::max_iter};
  }
};

template <class T>
void expect_near(const matrix<T>& centroids, const vectors& expected, double limit) {
  ASSERT_EQ(centroids.rows(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t j = 0; j < centroids.rows(); ++j)
    for (std::int64_t f = 0; f < centroids.columns(); ++f)
      EXPECT_NEAR(centroids(j, f), static_cast<double>(expected[at(j)][at(f)]), limit) << j << ", " << f;
}

template <class T>
double largest(const data_set<T>& points) {
  double made = 0;
  for (const T each : points.values) made = std::max(made, static_cast<double>(std::abs(each)));
  return made;
}

TYPED_TEST(kmeans_mini_batch, a_step_is_the_weighted_mean) {
  using T = typename TestFixture::real;
  constexpr std::int64_t n = 6, k = 5;
  for (const double offset : {0.0, 100.0}) {
    const auto points = clouds<T>(700, n, k, 11, 0.5, offset);
    std::vector<T> weights;
    for (std::int64_t i = 0; i < points.m; ++i) weights.push_back(static_cast<T>(i % 7) / 4);
    for (const protection level : {protection::off, protection::correct}) {
      for (const bool weighted : {false, true}) {
        const mini_batch_options wanted{.init = init::given, .reassignment_ratio = 0};
        const run::settings how = this->how(2, level);
        mini_batch<T> made(k, n, wanted, how.where());
        definition expected{wide(points.rows(k)), std::vector<long double>(at(k)), 0};
        std::int64_t first = 0, steps = 0;
        for (const std::int64_t count : {300, 1, 80, 250}) {
          const matrix_view<const T> batch = points.view().block(first, 0, count, n);
          const std::span<const T> own = weighted ? std::span<const T>(weights).subspan(at(first), at(count)) : std::span<const T>{};
          if (count == 1 && weighted && own[0] == 0) {
            EXPECT_THROW((void)made.partial_fit({.points = batch, .weights = own}, how.now()), invalid_argument_error);
            continue;
          }
          const report seen = made.partial_fit({.points = batch, .weights = own, .centroids = points.rows(k)}, how.now());
          EXPECT_EQ(seen.detected, 0u) << to_json(seen);
          EXPECT_EQ(seen.checks > 0, level == protection::correct);
          (void)expected.step(wide(batch),
                              weighted ? std::vector<long double>(own.begin(), own.end()) : std::vector<long double>(at(count), 1), wanted,
                              steps);
          ++steps;
          expect_near(made.centroids(), expected.centroids, 4 * static_cast<double>(steps) * k_u<T> * largest(points));
          for (std::int64_t j = 0; j < k; ++j) EXPECT_EQ(made.weights()[at(j)], static_cast<double>(expected.weights[at(j)]));
          first += count;
        }
        EXPECT_EQ(made.steps(), steps);
      }
    }
  }
}

TYPED_TEST(kmeans_mini_batch, a_fit_is_what_the_definition_says) {
  using T = typename TestFixture::real;
  constexpr std::int64_t n = 6, k = 5;
  const std::int64_t m = this->on_cuda ? 400 : 1500;
  const auto points = clouds<T>(m, n, k, 4, 0.8);
  std::vector<T> weights;
  for (std::int64_t i = 0; i < m; ++i) weights.push_back(static_cast<T>(i % 5));
  // Two first centroids are far from all points: they have none, and are reassigned.
  auto first = data_set<T>{k, n, std::vector<T>(points.values.begin(), points.values.begin() + k * n)};
  std::fill_n(first.values.begin() + n, 2 * n, T(40));
  std::vector<mini_batch_options> all = {
      {.batch_size = 100, .max_iter = 3, .max_no_improvement = std::nullopt},
      {.batch_size = 50, .max_iter = 20, .max_no_improvement = 4},
      {.batch_size = 100, .max_iter = 50, .tol = 1e-3, .max_no_improvement = std::nullopt},
      {.batch_size = 5000, .max_iter = 2, .reassignment_ratio = 0.5},
  };
  std::vector<stop_reason> reasons;
  for (mini_batch_options& wanted : all) {
    wanted.init = init::given;
    wanted.seed = 3;
    for (const bool weighted : {false, true}) {
      definition expected{wide(first.view()), std::vector<long double>(at(k)), 0};
      const auto end =
          expected.fit(wide(points.view()), weighted ? std::vector<double>(weights.begin(), weights.end()) : std::vector<double>{}, wanted);
      const run::settings how = this->how();
      mini_batch<T> made(k, n, wanted, how.where());
      matrix<T> centroids(k, n);
      std::vector<std::int32_t> labels(at(m));
      double inertia = 0;
      int steps = 0;
      stop_reason stopped{};
      const report seen = made.fit(
          {.points = points.view(), .weights = weighted ? std::span<const T>(weights) : std::span<const T>{}, .centroids = first.view()},
          {centroids, labels, &inertia, &steps, &stopped}, how.now());
      EXPECT_EQ(seen.detected, 0u) << to_json(seen);
      EXPECT_GT(seen.checks, static_cast<std::uint64_t>(steps));
      EXPECT_EQ(steps, end.steps);
      EXPECT_EQ(stopped, end.reason);
      reasons.push_back(stopped);
      expect_near(centroids, expected.centroids, 4 * (steps + 1.0) * k_u<T> * largest(points));
      for (std::int64_t j = 0; j < k; ++j) EXPECT_EQ(made.weights()[at(j)], static_cast<double>(expected.weights[at(j)]));
      expect_nearest(points.view(), std::as_const(centroids).view(), labels, inertia, weighted ? weights : std::vector<T>{});
    }
  }
  for (const stop_reason each : {stop_reason::max_iter, stop_reason::no_improvement, stop_reason::tolerance})
    EXPECT_GT(std::ranges::count(reasons, each), 0) << to_string(each);
}

template <class T>
struct fitted {
  matrix<T> centroids;
  std::vector<double> weights;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int steps = 0;
  ballast::report report;
  bool same(const fitted& other) const {
    return std::equal(centroids.data(), centroids.data() + centroids.size(), other.centroids.data()) && weights == other.weights &&
           labels == other.labels && inertia == other.inertia && steps == other.steps;
  }
};

template <class T>
fitted<T> fit_by_batches(const data_set<T>& points, std::int64_t k, const mini_batch_options& wanted, const run::settings& how,
                         matrix_view<const T> first = {}) {
  fitted<T> made{matrix<T>(k, points.n), {}, std::vector<std::int32_t>(at(points.m)), 0, 0, {}};
  made.report = test_calls::with(how, [&](const auto& where, const auto& now) {
    mini_batch<T> by(k, points.n, wanted, where);
    report seen =
        by.fit({.points = points.view(), .centroids = first}, {made.centroids, made.labels, &made.inertia, &made.steps, nullptr}, now);
    made.weights = by.weights();
    return seen;
  });
  return made;
}

TYPED_TEST(kmeans_mini_batch, starts_threads_and_copies) {
  using T = typename TestFixture::real;
  constexpr std::int64_t n = 6, k = 5;
  const auto points = clouds<T>(this->on_cuda ? 500 : 4000, n, k, 21, 0.1);
  mini_batch_options wanted{.batch_size = 200, .max_iter = 4, .n_init = 3, .seed = 8};
  const auto one = fit_by_batches(points, k, wanted, this->how(1));
  EXPECT_TRUE(fit_by_batches(points, k, wanted, this->how(3)).same(one));
  EXPECT_TRUE(fit_by_batches(points, k, wanted, this->how(2, protection::off)).same(one));
  EXPECT_EQ(one.report.detected, 0u);
  // The clouds are narrow: the fit is as good as Lloyd's.
  const auto best = fit(points.view(), request<T>{.clusters = k, .n_init = 10}, this->how());
  EXPECT_LT(one.inertia, 1.2 * best.inertia);
  if (this->on_cuda) return;
  for (const init start : {init::random, init::kmeans_parallel}) {
    wanted.init = start;
    wanted.init_size = 50;
    EXPECT_EQ(fit_by_batches(points, k, wanted, this->how()).report.verdict, verdict::clean);
  }
  // A copy, and an object with the same state, go on alike.
  mini_batch<T> by(k, n, {.seed = 2}, this->how().where());
  for (std::int64_t i = 0; i < 3; ++i) (void)by.partial_fit({.points = points.view().block(i * 300, 0, 300, n)}, this->how().now());
  mini_batch<T> copy = by, resumed(k, n, {.reassignment_ratio = 0, .seed = 2}, this->how().where());
  resumed.resume(by.centroids().view(), by.weights());
  for (mini_batch<T>* const each : {&by, &copy, &resumed})
    (void)each->partial_fit({.points = points.view().block(900, 0, 100, n)}, this->how().now());
  const auto same = [](const matrix<T>& a, const matrix<T>& b) { return std::equal(a.data(), a.data() + a.size(), b.data()); };
  EXPECT_TRUE(same(by.centroids(), copy.centroids()) && same(by.centroids(), resumed.centroids()));
  EXPECT_EQ(by.weights(), resumed.weights());
  EXPECT_EQ(by.steps(), 4);
}

TYPED_TEST(kmeans_mini_batch, faults_at_every_site_are_repaired) {
  using T = typename TestFixture::real;
  constexpr std::int64_t n = 10, k = 12;
  const auto points = clouds<T>(this->on_cuda ? 300 : 900, n, k, 5, 0.8);
  const mini_batch_options wanted{.init = init::given, .batch_size = 150, .max_iter = 2, .tol = 1e-9, .reassignment_ratio = 0.9};
  const auto clean = fit_by_batches(points, k, wanted, this->how(), points.rows(k));
  for (const inject::site_row& row : inject::sites()) {
    const bool own = row.operation() == "mini_batch";
    // On cuda the kernels of a pass have tests of their own (cuda_kmeans_pass_test.cpp).
    if (!own && (row.operation() != "kmeans" || row.site == site::shift || (this->on_cuda && row.site != site::centroid))) continue;
    int detected = 0, matter = 0;
    for (std::uint64_t seed = 0; seed < (this->on_cuda ? 4 : 12); ++seed) {
      inject::request fault = fault_at(row.site, inject::model::bit_flip, seed);
      fault.visit = static_cast<std::int64_t>(seed % (row.site == site::centroid ? 5 : 2));
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = fit_by_batches(points, k, wanted, how, points.rows(k));
      detected += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable) << row.name << " " << seed;
      EXPECT_TRUE(found.same(clean)) << row.name << " " << seed << to_json(found.report);
      how.protection = protection::off;
      if (own || row.site == site::centroid || row.site == site::total) {
        try {
          matter += !fit_by_batches(points, k, wanted, how, points.rows(k)).same(clean);
        } catch (const invalid_argument_error&) {  // the fault has made NaN or Inf of a centroid, or of a point
          ++matter;
        }
      }
      if (own || row.site == site::centroid) {
        how.protection = protection::detect;
        const auto seen = fit_by_batches(points, k, wanted, how, points.rows(k)).report;
        EXPECT_TRUE(seen.detected == 0 || seen.verdict == verdict::uncorrectable) << row.name << " " << seed;
      }
    }
    EXPECT_GT(detected, 0) << row.name;
    if (own || row.site == site::centroid || row.site == site::total) {
      EXPECT_GT(matter, 0) << row.name;
    }
  }
}

// A fault that strikes every attempt: the call says so, and the object is as before.
TYPED_TEST(kmeans_mini_batch, a_fault_that_stays) {
  using T = typename TestFixture::real;
  constexpr std::int64_t n = 10, k = 12;
  const auto points = clouds<T>(300, n, k, 5, 0.8);
  mini_batch<T> by(k, n, {.init = init::given}, this->how().where());
  (void)by.partial_fit({.points = points.view(), .centroids = points.rows(k)}, this->how().now());
  const matrix<T> before = by.centroids();
  const inject::plan faults({fault_at(site::mini_batch::points, inject::model::stuck_at, 3)});
  const inject::scope here(&faults);
  EXPECT_THROW((void)by.fit({.points = points.view(), .centroids = points.rows(k)}), uncorrectable_error);
  EXPECT_EQ(by.steps(), 1);
  EXPECT_TRUE(std::equal(before.data(), before.data() + before.size(), by.centroids().data()));
}

TEST(kmeans_mini_batch_token, and_refusals) {
  const auto points = clouds<float>(60, 4, 3, 1);
  const problem size{.points = 20000, .features = 16, .clusters = 10, .mini_batch = 1000};
  EXPECT_EQ(to_token(size), "kmeans_f32_m20000_n16_k10_mini1000");
  EXPECT_EQ(parse_token("kmeans_f64_m20000_n16_k10_mini1000").mini_batch, 1000);
  EXPECT_THROW((void)parse_token("kmeans_f64_m20000_n16_k10_csr_mini1000"), invalid_argument_error);
  EXPECT_THROW(plan<float>(size, {}), unsupported_error);
  EXPECT_THROW(mini_batch<float>(0, 4), invalid_argument_error);
  for (const mini_batch_options& wrong :
       {mini_batch_options{.batch_size = 0}, mini_batch_options{.max_iter = 0}, mini_batch_options{.tol = -1},
        mini_batch_options{.max_no_improvement = -1}, mini_batch_options{.init_size = -1}, mini_batch_options{.n_init = 0},
        mini_batch_options{.reassignment_ratio = -1}})
    EXPECT_THROW(mini_batch<float>(3, 4, wrong), invalid_argument_error);
  EXPECT_THROW(mini_batch<float>(3, 4, {}, {.scheme = "dmr"}), unsupported_error);
  mini_batch<float> by(3, 4);
  EXPECT_EQ(by.centroids().rows(), 0);
  EXPECT_THROW((void)by.fit({}), invalid_argument_error);
  EXPECT_THROW((void)by.fit({.points = points.view().block(0, 0, 2, 4)}), invalid_argument_error);
  EXPECT_THROW((void)by.partial_fit({.points = points.view().block(0, 0, 20, 3)}), invalid_argument_error);
  std::vector<float> weights(60, 0.0F);
  EXPECT_THROW((void)by.fit({.points = points.view(), .weights = weights}), invalid_argument_error);
  weights[3] = -1;
  EXPECT_THROW((void)by.fit({.points = points.view(), .weights = weights}), invalid_argument_error);
  auto wrong = points;
  std::ranges::fill(wrong.values, std::numeric_limits<float>::infinity());
  EXPECT_THROW((void)by.fit({.points = wrong.view()}), invalid_argument_error);
  data<float> sparse;
  const std::vector<std::int32_t> offsets = {0, 1}, indices = {0};
  const std::vector<float> values = {1};
  sparse.sparse = csr_view<const float, std::int32_t>{1, 4, offsets, indices, values};
  EXPECT_THROW((void)by.fit(sparse), unsupported_error);
  EXPECT_THROW(by.resume(points.rows(2), std::vector<double>(2)), invalid_argument_error);
  EXPECT_THROW(by.resume(points.rows(3), std::vector<double>(3, -1)), invalid_argument_error);
  EXPECT_EQ(by.centroids().rows(), 0);
}

}  // namespace
}  // namespace ballast::kmeans
