// K-Means on every backend, in one program on those of the host, in the other (BALLAST_TEST_KMEANS_ON_CUDA) on cuda by the emulator:
// against a brute-force Lloyd in double, and against what must hold for any clustering.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

struct truth {
  std::vector<double> centroids;
  std::vector<std::int64_t> labels;
  double inertia = 0;
  int iterations = 0;
  bool converged = false;
  bool relocated = false;
  double closest_call = std::numeric_limits<double>::infinity();  // the smallest relative gap between the best two distances of any point
};

// Lloyd in double with scikit-learn's conventions. All of it by the definition.
template <class T>
truth brute_force(matrix_view<const T> points, const std::vector<double>& first, std::int64_t k, int max_iter, double tol,
                  const std::vector<T>& weights = {}) {
  const std::int64_t m = points.rows, n = points.columns;
  truth made;
  made.centroids = first;
  double variance = 0;
  for (std::int64_t f = 0; f < n; ++f) {
    double mean = 0, square = 0;
    for (std::int64_t i = 0; i < m; ++i) mean += static_cast<double>(points(i, f));
    mean /= static_cast<double>(m);
    for (std::int64_t i = 0; i < m; ++i) square += std::pow(static_cast<double>(points(i, f)) - mean, 2);
    variance += square / static_cast<double>(m);
  }
  const double tolerance = tol * variance / static_cast<double>(n);
  const auto weight = [&](std::int64_t i) { return weights.empty() ? 1.0 : static_cast<double>(weights[static_cast<std::size_t>(i)]); };
  const auto assign = [&] {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; ++i) {
      double best = std::numeric_limits<double>::infinity(), second = best, size = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const double d = square_distance(points, i, [&](std::int64_t f) { return made.centroids[static_cast<std::size_t>(j * n + f)]; });
        size = std::max(size, d);
        if (d < best) {
          second = best;
          best = d;
          labels[static_cast<std::size_t>(i)] = j;
        } else {
          second = std::min(second, d);
        }
      }
      if (k > 1 && size > 0) made.closest_call = std::min(made.closest_call, (second - best) / size);
    }
    return labels;
  };
  std::vector<std::int64_t> old;
  for (int it = 0; it < max_iter; ++it) {
    made.labels = assign();
    std::vector<double> sums(static_cast<std::size_t>(k * n)), mass(static_cast<std::size_t>(k));
    std::vector<std::int64_t> members(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < m; ++i) {
      const auto j = static_cast<std::size_t>(made.labels[static_cast<std::size_t>(i)]);
      mass[j] += weight(i);
      members[j] += weight(i) > 0;
      for (std::int64_t f = 0; f < n; ++f)
        sums[j * static_cast<std::size_t>(n) + static_cast<std::size_t>(f)] += weight(i) * static_cast<double>(points(i, f));
    }
    std::vector<std::pair<double, std::int64_t>> far;
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t j = made.labels[static_cast<std::size_t>(i)];
      if (!(weight(i) > 0)) continue;
      far.emplace_back(-square_distance(points, i, [&](std::int64_t f) { return made.centroids[static_cast<std::size_t>(j * n + f)]; }), i);
    }
    std::ranges::sort(far);
    std::size_t next = 0;
    for (std::int64_t e = 0; e < k; ++e) {
      if (std::count(made.labels.begin(), made.labels.end(), e) > 0 &&
          members[static_cast<std::size_t>(e)] + static_cast<std::int64_t>(next) > 0 && mass[static_cast<std::size_t>(e)] > 0)
        continue;
      if (next >= far.size()) break;
      made.relocated = true;
      const std::int64_t i = far[next++].second;
      const auto from = static_cast<std::size_t>(made.labels[static_cast<std::size_t>(i)]);
      for (std::int64_t f = 0; f < n; ++f) {
        sums[from * static_cast<std::size_t>(n) + static_cast<std::size_t>(f)] -= weight(i) * static_cast<double>(points(i, f));
        sums[static_cast<std::size_t>(e * n + f)] = weight(i) * static_cast<double>(points(i, f));
      }
      mass[from] -= weight(i);
      mass[static_cast<std::size_t>(e)] = weight(i);
    }
    double shift = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      for (std::int64_t f = 0; f < n; ++f) {
        const auto e = static_cast<std::size_t>(j * n + f);
        const double c = sums[e] / mass[static_cast<std::size_t>(j)];
        shift += std::pow(c - made.centroids[e], 2);
        made.centroids[e] = c;
      }
    }
    made.iterations = it + 1;
    if (made.labels == old || shift <= tolerance) {
      made.converged = true;
      break;
    }
    old = made.labels;
  }
  made.labels = assign();
  for (std::int64_t i = 0; i < m; ++i)
    made.inertia += weight(i) * square_distance(points, i, [&](std::int64_t f) {
                      return made.centroids[static_cast<std::size_t>(made.labels[static_cast<std::size_t>(i)] * n + f)];
                    });
  return made;
}

TYPED_SUITE(kmeans_backend, configurations, test::setting_names);

TYPED_TEST(kmeans_backend, follows_brute_force_from_given_centroids) {
  using T = typename TestFixture::real;
  int compared = 0, tried = 0;
  for (const auto [m, n, k] : {std::array{1, 1, 1},
                               {5, 2, 5},
                               {63, 3, 4},
                               {64, 8, 8},
                               {200, 1, 3},
                               {257, 5, 9},
                               {700, 17, 12},
                               {513, 33, 20},
                               {1500, 8, 70},
                               {900, 130, 16}}) {
    for (const double tol : {0.0, 1e-4, 1e-1}) {
      if (this->on_cuda && test::sampled() && tol != 1e-4) continue;
      const auto points = clouds<T>(m, n, k, static_cast<unsigned>(m + k));
      const std::vector<double> first(points.values.begin(), points.values.begin() + k * n);
      const truth expected = brute_force(points.view(), first, k, 30, tol);
      const auto found =
          fit(points.view(), {.clusters = k, .init = init::given, .centroids = points.rows(k), .max_iter = 30, .tol = tol}, this->how());
      SCOPED_TRACE(found.report.problem.view());
      EXPECT_EQ(found.report.verdict, verdict::clean);
      EXPECT_EQ(found.report.backend, TestFixture::k_backend);
      EXPECT_GT(found.report.checks, 0u);
      expect_nearest(points.view(), found.centroids.view(), found.labels, found.inertia);
      // A near-tie may go either way by rounding: such a case is not compared further.
      ++tried;
      if (expected.closest_call < 1e3 * k_u<T>) continue;
      ++compared;
      EXPECT_EQ(found.iterations, expected.iterations);
      EXPECT_EQ(found.converged(), expected.converged);
      EXPECT_TRUE(std::equal(found.labels.begin(), found.labels.end(), expected.labels.begin()));
      EXPECT_NEAR(found.inertia, expected.inertia, 1e3 * k_u<T> * expected.inertia);
      for (std::size_t e = 0; e < expected.centroids.size(); ++e)
        EXPECT_NEAR(found.centroids.data()[e], expected.centroids[e], 16 * k_u<T> * 8);
    }
  }
  EXPECT_GE(2 * compared, tried) << "too many near-ties to compare anything";
}

// On hosts without weights, to the bit; elsewhere to rounding. The inertia has the weight.
TYPED_TEST(kmeans_backend, equal_weights_are_no_weights) {
  using T = typename TestFixture::real;
  const T three[] = {0, 1, 1000};
  const matrix_view<const T> points{three, 3, 1, 1, 1};
  const T first[] = {0, 1000};
  const matrix_view<const T> centroids{first, 2, 1, 1, 1};
  for (const T weight : {T(0.3), std::numeric_limits<T>::max() / 8, std::numeric_limits<T>::min()}) {
    const std::vector<T> weights(3, weight);
    const auto found = fit(points, {.clusters = 2, .init = init::given, .centroids = centroids, .weights = weights}, this->how());
    EXPECT_EQ(found.labels, (std::vector<std::int32_t>{0, 0, 1}));
    EXPECT_NEAR(found.inertia / static_cast<double>(weight), 0.5, 1e-5);
    if (TestFixture::on_cuda) {
      EXPECT_NEAR(found.centroids.data()[0], 0.5, 1e-3);
    } else {
      EXPECT_EQ(found.centroids.data()[0], T(0.5));
    }
    EXPECT_EQ(found.centroids.data()[1], T(1000));
  }
}

TYPED_TEST(kmeans_backend, weights_count_as_repetitions) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(300, 6, 5, 3);
  std::mt19937 random(5);
  std::vector<T> weights(300);
  data_set<T> repeated{0, 6, {}};
  for (std::size_t i = 0; i < 300; ++i) {
    weights[i] = static_cast<T>(random() % 4);
    for (int r = 0; r < static_cast<int>(weights[i]); ++r) {
      repeated.values.insert(repeated.values.end(), points.values.begin() + static_cast<std::ptrdiff_t>(6 * i),
                             points.values.begin() + static_cast<std::ptrdiff_t>(6 * i + 6));
      ++repeated.m;
    }
  }
  const auto weighted =
      fit(points.view(), {.clusters = 5, .init = init::given, .centroids = points.rows(5), .weights = weights}, this->how());
  const auto plain = fit(repeated.view(), {.clusters = 5, .init = init::given, .centroids = points.rows(5)}, this->how());
  EXPECT_EQ(weighted.report.verdict, verdict::clean);
  EXPECT_NEAR(weighted.inertia, plain.inertia, 1e3 * k_u<T> * plain.inertia);
  for (std::size_t e = 0; e < plain.centroids.size(); ++e)
    EXPECT_NEAR(weighted.centroids.data()[e], plain.centroids.data()[e], 64 * k_u<T>);
  expect_nearest(points.view(), weighted.centroids.view(), weighted.labels, weighted.inertia, weights);
  // Only the ratios of weights matter for the centroids.
  std::vector<T> large(weights);
  for (T& each : large) each *= static_cast<T>(0x1p90);
  const auto scaled = fit(points.view(), {.clusters = 5, .init = init::given, .centroids = points.rows(5), .weights = large}, this->how());
  EXPECT_TRUE(std::equal(scaled.centroids.data(), scaled.centroids.data() + scaled.centroids.size(), weighted.centroids.data()));
  EXPECT_DOUBLE_EQ(scaled.inertia, weighted.inertia * 0x1p90);
}

TYPED_TEST(kmeans_backend, empty_clusters_get_the_farthest_points) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(400, 4, 6, 11);
  for (const int lost : {1, 3}) {
    data_set<T> first{6, 4, std::vector<T>(points.values.begin(), points.values.begin() + 24)};
    for (int j = 0; j < lost; ++j)
      for (int f = 0; f < 4; ++f) first.values[static_cast<std::size_t>((5 - j) * 4 + f)] = static_cast<T>(1000 + 10 * j + f);
    const truth expected = brute_force(points.view(), std::vector<double>(first.values.begin(), first.values.end()), 6, 20, 1e-4);
    ASSERT_TRUE(expected.relocated);
    const auto found = fit(points.view(), {.clusters = 6, .init = init::given, .centroids = first.view(), .max_iter = 20}, this->how());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(found.iterations, expected.iterations);
    EXPECT_TRUE(std::equal(found.labels.begin(), found.labels.end(), expected.labels.begin()));
    EXPECT_NEAR(found.inertia, expected.inertia, 1e3 * k_u<T> * expected.inertia);
  }
}

TYPED_TEST(kmeans_backend, same_seed_same_bits_for_any_number_of_threads) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(!this->on_cuda ? 9001 : test::sampled() ? 401 : 1101, 7, 30, 17);
  for (const init way : {init::kmeans_plus_plus, init::random}) {
    const request<T> wanted{.clusters = 23, .init = way, .n_init = 2, .max_iter = 12, .seed = 99};
    const auto one = fit(points.view(), wanted, this->how(1));
    EXPECT_EQ(one.report.verdict, verdict::clean);
    // On cuda they gather pieces of the points; two numbers of them are enough.
    for (const int threads : this->on_cuda ? std::vector{3} : std::vector{2, 3}) {
      const auto more = fit(points.view(), wanted, this->how(threads));
      EXPECT_EQ(more.labels, one.labels);
      EXPECT_EQ(more.inertia, one.inertia);
      EXPECT_EQ(more.iterations, one.iterations);
      EXPECT_TRUE(std::equal(one.centroids.data(), one.centroids.data() + one.centroids.size(), more.centroids.data()));
    }
    const auto bare = fit(points.view(), wanted, this->how(2, protection::off));
    EXPECT_EQ(bare.labels, one.labels) << "protection must not change the result";
    EXPECT_EQ(bare.inertia, one.inertia);
    EXPECT_EQ(bare.report.checks, 0u);
    auto other = wanted;
    other.seed = 100;
    EXPECT_NE(fit(points.view(), other, this->how()).labels, one.labels);
  }
}

TYPED_TEST(kmeans_backend, any_strides) {
  using T = typename TestFixture::real;
  const std::int64_t m = 333, n = 9, k = 6;
  const auto points = clouds<T>(m, n, k, 23);
  const request<T> wanted{.clusters = k, .max_iter = 9, .seed = 4};
  const auto expected = fit(points.view(), wanted, this->how());
  std::vector<T> columns(static_cast<std::size_t>(m * n)), sparse(static_cast<std::size_t>(m * n * 6)),
      reversed(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t f = 0; f < n; ++f) {
      const T x = points.values[static_cast<std::size_t>(i * n + f)];
      columns[static_cast<std::size_t>(f * m + i)] = x;
      sparse[static_cast<std::size_t>(i * n * 6 + f * 3 + 1)] = x;
      reversed[static_cast<std::size_t>((m - 1 - i) * n + n - 1 - f)] = x;
    }
  }
  const matrix_view<const T> views[] = {
      column_major<const T>(columns.data(), m, n), {sparse.data() + 1, m, n, n * 6, 3}, {reversed.data() + m * n - 1, m, n, -n, -1}};
  for (const auto& view : views) {
    const auto found = fit(view, wanted, this->how());
    EXPECT_EQ(found.labels, expected.labels);
    EXPECT_EQ(found.inertia, expected.inertia);
    const auto again = predict(view, expected.centroids.view(), this->how());
    EXPECT_EQ(again.labels, expected.labels);
  }
}

TYPED_TEST(kmeans_backend, operands_in_device_memory) {
  using T = typename TestFixture::real;
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t m = 300, n = 5, k = 4;
  const auto points = clouds<T>(m, n, k, 113);
  std::vector<T> weights(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(1 + i % 3);
  const request<T> wanted{.clusters = k, .init = init::given, .centroids = points.rows(k), .weights = weights};
  const auto expected = fit(points.view(), wanted, this->how());
  const auto expected_distances = transform(points.view(), points.rows(k), this->how());

  const auto device = std::make_shared<test::counting_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard current(device);
  const auto there = [&](const std::vector<T>& values) {
    ballast::cuda::device_buffer made(device, static_cast<std::int64_t>(values.size()) * size);
    device->copy(made.data(), values.data(), made.bytes(), nullptr);
    return made;
  };
  const ballast::cuda::device_buffer x = there(points.values);
  const ballast::cuda::device_buffer w = there(weights);
  const auto rows = [&](std::int64_t count) { return row_major(static_cast<const T*>(x.data()), count, n); };
  request<T> on_device = wanted;
  on_device.centroids = rows(k);
  on_device.weights = {static_cast<const T*>(w.data()), weights.size()};
  const auto found = fit(rows(m), on_device, this->how());
  if (!this->on_cuda) {
    EXPECT_EQ(device->bytes_read, (m * n + k * n + m) * size) << "each operand once";
  }
  EXPECT_EQ(found.labels, expected.labels);
  EXPECT_EQ(found.inertia, expected.inertia);
  EXPECT_TRUE(std::equal(found.centroids.data(), found.centroids.data() + found.centroids.size(), expected.centroids.data()));
  EXPECT_EQ(predict(rows(m), found.centroids.view(), this->how()).labels, expected.labels);
  const auto distances = transform(rows(m), rows(k), this->how());
  EXPECT_TRUE(std::equal(distances.values.data(), distances.values.data() + distances.values.size(), expected_distances.values.data()));
}

TYPED_TEST(kmeans_backend, a_run_says_what_ended_it) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(1000, 3, 8, 101, 1.0);
  const auto run = [&](int max_iter, double tol) {
    return fit(points.view(), {.clusters = 8, .init = init::given, .centroids = points.rows(8), .max_iter = max_iter, .tol = tol},
               this->how());
  };
  EXPECT_EQ(run(300, 0).stopped, stop_reason::labels_unchanged);
  EXPECT_EQ(run(300, 0.05).stopped, stop_reason::tolerance);
  EXPECT_EQ(run(2, 0).stopped, stop_reason::max_iter);
  EXPECT_FALSE(run(2, 0).converged());
}

TYPED_TEST(kmeans_backend, progress_tells_the_inertia_of_each_iteration) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(1200, 5, 9, 131, 0.7, 30);
  std::vector<T> weights(1200);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(0.25 + static_cast<double>(i % 7));
  for (const bool weighted : {false, true}) {
    request<T> wanted{.clusters = 9, .init = init::given, .centroids = points.rows(9), .max_iter = 6, .tol = 0};
    if (weighted) wanted.weights = weights;
    std::vector<progress> seen;
    run::settings how = this->how();
    how.on_progress = [&](const progress& now) { seen.push_back(now); };
    const auto found = fit(points.view(), wanted, how);
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(found.iterations));
    const std::span<const T> used = wanted.weights;
    const auto start = predict(points.view(), points.rows(9), used, this->how());
    // From sums: the points' own squares cancel, so it has the rounding of centred coordinates.
    const double slack = 1e3 * k_u<T>;
    EXPECT_NEAR(seen[0].value, start.inertia, slack * start.inertia);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].done, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(seen[i].total, 6);
      EXPECT_EQ(seen[i].run, 0);
      if (i == 0) continue;
      wanted.max_iter = static_cast<int>(i);
      const auto before = fit(points.view(), wanted, this->how());
      EXPECT_NEAR(seen[i].value, before.inertia, slack * before.inertia);
      wanted.max_iter = 6;
    }
  }
  std::vector<std::int64_t> runs;
  run::settings how = this->how();
  how.on_progress = [&](const progress& now) { runs.push_back(now.run); };
  (void)fit(points.view(), {.clusters = 9, .n_init = 3, .max_iter = 2, .tol = 0}, how);
  EXPECT_EQ(runs, (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
}

TYPED_TEST(kmeans_backend, weights_count_in_the_inertia_of_predict) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(700, 4, 5, 137);
  std::vector<T> weights(700);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(static_cast<double>(i % 5) * 1.5);
  const auto plain = predict(points.view(), points.rows(6), this->how());
  const auto found = predict(points.view(), points.rows(6), std::span<const T>(weights), this->how());
  EXPECT_EQ(found.report.verdict, verdict::clean);
  EXPECT_EQ(found.labels, plain.labels);
  expect_nearest<T>(points.view(), points.rows(6), found.labels, found.inertia, weights);
  weights.pop_back();
  EXPECT_THROW((void)predict(points.view(), points.rows(6), std::span<const T>(weights), this->how()), invalid_argument_error);
}

TYPED_TEST(kmeans_backend, seeding_takes_different_points_and_is_better_than_chance) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 1000 : 3000;
  const auto points = clouds<T>(m, 3, 40, 43, 0.02);
  double plus_plus = 0, chance = 0;
  for (std::uint64_t seed = 0; seed < (this->on_cuda ? 4 : 8); ++seed) {
    plus_plus += fit(points.view(), {.clusters = 40, .max_iter = 1, .seed = seed}, this->how()).inertia;
    chance += fit(points.view(), {.clusters = 40, .init = init::random, .max_iter = 1, .seed = seed}, this->how()).inertia;
  }
  EXPECT_LT(plus_plus, chance / 3);
  // k = m: every point must become a centroid, for a centroid has no probability to be drawn again.
  const auto all = clouds<T>(60, 2, 60, 47);
  for (const init way : {init::kmeans_plus_plus, init::random}) {
    const auto found = fit(all.view(), {.clusters = 60, .init = way, .seed = 3}, this->how());
    EXPECT_EQ(std::set<std::int32_t>(found.labels.begin(), found.labels.end()).size(), 60u);
    EXPECT_LE(found.inertia, 60 * 2 * std::pow(4 * k_u<T>, 2));
  }
  // Points without weight are not chosen.
  std::vector<T> weights(static_cast<std::size_t>(m), T(0));
  for (std::size_t i = 0; i < 50; ++i) weights[i * 20] = 1;
  const auto found = fit(points.view(), {.clusters = 50, .weights = weights, .max_iter = 1, .seed = 3}, this->how());
  EXPECT_LE(found.inertia, 1e-9);
}

TYPED_TEST(kmeans_backend, more_runs_are_not_worse) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(this->on_cuda ? 500 : 1500, 2, 15, 53, 0.1);
  double last = std::numeric_limits<double>::infinity();
  for (const int runs : {1, 3, 6}) {
    const auto found = fit(points.view(), {.clusters = 15, .init = init::random, .n_init = runs, .seed = 12}, this->how());
    EXPECT_LE(found.inertia, last);
    last = found.inertia;
  }
}

TYPED_TEST(kmeans_backend, inertia_never_grows) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(this->on_cuda ? 600 : 2500, 6, 12, 59, 1.5);
  double last = std::numeric_limits<double>::infinity();
  for (int iterations = 1; iterations <= 12; ++iterations) {
    const auto found = fit(
        points.view(), {.clusters = 12, .init = init::given, .centroids = points.rows(12), .max_iter = iterations, .tol = 0}, this->how());
    EXPECT_LE(found.inertia, last * (1 + 1e2 * k_u<T>));
    last = found.inertia;
  }
}

TYPED_TEST(kmeans_backend, ties_go_to_the_lowest_index) {
  using T = typename TestFixture::real;
  const std::vector<T> points = {0, 1, 2, -1, -2, 3};
  const std::vector<T> centroids = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1};
  const auto found = predict(row_major<const T>(points.data(), 6, 1), row_major<const T>(centroids.data(), 10, 1), this->how());
  EXPECT_EQ(found.labels, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(found.inertia, 1 + 0 + 1 + 0 + 1 + 4);
}

TYPED_TEST(kmeans_backend, transform_gives_distances) {
  using T = typename TestFixture::real;
  for (const auto [m, n, k] : {std::array{1, 1, 1}, {100, 3, 7}, {70, 20, 64}, {130, 9, 65}, {65, 33, 150}}) {
    const auto points = clouds<T>(m, n, 5, 61, 0.5, 10);
    const auto centroids = clouds<T>(k, n, 5, 61, 0.5, 10);
    const auto found = transform(points.view(), centroids.view(), this->how());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    ASSERT_EQ(found.values.rows(), m);
    ASSERT_EQ(found.values.columns(), k);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < k; ++j) {
        const double exact = std::sqrt(
            square_distance(points.view(), i, [&](std::int64_t f) { return centroids.values[static_cast<std::size_t>(j * n + f)]; }));
        ASSERT_NEAR(found.values(i, j), exact, k_u<T> * (8 * std::sqrt(n) * exact + 40 * std::sqrt(n)));
      }
    }
    const auto same = transform(points.view(), points.view(), this->how());
    for (std::int64_t i = 0; i < m; ++i) ASSERT_EQ(same.values(i, i), 0);
  }
}

TYPED_TEST(kmeans_backend, refuses_what_has_no_meaning) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(20, 3, 2, 67);
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& e) {
      return e.what();
    }
    return "no invalid_argument_error";
  };
  const auto refused = [&](request<T> wanted, matrix_view<const T> view) { return message([&] { (void)fit(view, wanted, this->how()); }); };
  const std::string token = std::string("kmeans_") + (sizeof(T) == 4 ? "f32" : "f64") + "_m20_n3_k";
  EXPECT_EQ(refused({.clusters = 0}, points.view()), token + "0: clusters: expected at least 1, got 0");
  EXPECT_EQ(refused({.clusters = 21}, points.view()), token + "21: clusters: expected at most the number of points, 20, got 21");
  EXPECT_NE(refused({.clusters = std::int64_t{1} << 40}, points.view()).find("expected at most"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2}, {points.values.data(), 0, 3, 3, 1}).find("expected at least one row"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2}, {points.values.data(), 20, 0, 3, 1}).find("expected at least one row"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2}, {nullptr, 20, 3, 3, 1}).find("got null"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2}, {points.values.data(), std::int64_t{1} << 62, 3, 3, 1}).find("below 2^63"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .n_init = 0}, points.view()).find("n_init: expected at least 1, got 0"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .max_iter = 0}, points.view()).find("max_iter: expected at least 1, got 0"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .tol = -1}, points.view()).find("tol: expected a number"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .tol = std::nan("")}, points.view()).find("tol: expected a number"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .init = init::given}, points.view()).find("centroids: expected"), std::string::npos);
  EXPECT_NE(refused({.clusters = 2, .init = init::given, .centroids = points.rows(3)}, points.view())
                .find("centroids: expected 2 × 3, got 3 × 3"),
            std::string::npos);
  std::vector<T> weights(19, T(1));
  EXPECT_NE(refused({.clusters = 2, .weights = weights}, points.view()).find("weights: expected 20, got 19"), std::string::npos);
  weights.assign(20, T(0));
  EXPECT_NE(refused({.clusters = 2, .weights = weights}, points.view()).find("got only zeros"), std::string::npos);
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    weights.assign(20, T(1));
    weights[7] = static_cast<T>(bad);
    EXPECT_NE(refused({.clusters = 2, .weights = weights}, points.view()).find("at 7"), std::string::npos);
    if (bad < 0) continue;
    auto poisoned = points;
    poisoned.values[16] = static_cast<T>(-bad);
    EXPECT_NE(refused({.clusters = 2}, poisoned.view()).find("row 5, column 1"), std::string::npos);
    EXPECT_NE(message([&] { (void)predict(points.view(), poisoned.rows(6), this->how()); }).find("centroids: expected finite"),
              std::string::npos);
    EXPECT_NE(message([&] { (void)predict(poisoned.view(), points.rows(6), this->how()); }).find("points: expected finite"),
              std::string::npos);
    EXPECT_NE(message([&] { (void)transform(poisoned.view(), points.rows(6), this->how()); }).find("points: expected finite"),
              std::string::npos);
  }
  const auto narrow = row_major<const T>(points.values.data(), 4, 2);
  EXPECT_NE(message([&] { (void)predict(points.view(), narrow, this->how()); }).find("expected 4 × 3, got 4 × 2"), std::string::npos);
  if (!this->on_cuda) {
    run::settings cuda = this->how();
    cuda.backend = backend::cuda;
    EXPECT_THROW((void)fit(points.view(), {.clusters = 2}, cuda), unsupported_error);
  }
  run::settings scheme = this->how();
  scheme.scheme = "magic";
  EXPECT_THROW((void)fit(points.view(), {.clusters = 2}, scheme), unsupported_error);
}

#if !defined(BALLAST_TEST_KMEANS_ON_CUDA)  // tests of no backend, or of two of them
TEST(kmeans_token, goes_both_ways) {
  const problem made = parse_token("kmeans_f64_m131072_n128_k9");
  EXPECT_EQ(made.points, 131072);
  EXPECT_EQ(made.features, 128);
  EXPECT_EQ(made.clusters, 9);
  EXPECT_EQ(made.precision, precision::f64);
  EXPECT_EQ(to_token(made), "kmeans_f64_m131072_n128_k9");
  for (const char* bad : {"", "kmeans", "kmeans_f32_m1_n1", "kmeans_f32_m1_n1_k1x", "kmeans_f8_m1_n1_k1", "kmeans_f32_m-1_n1_k1",
                          "kmeans_f32_m1_n0_k1", "kmeans_f32_m072_n2_k3", "kmeans_f32_m72_n02_k3", "kmeans_f32_m1_n1_k2",
                          "kmeans_f32_m99999999999999999999_n1_k1", "fft_f32_m1_n1_k1"})
    EXPECT_THROW(parse_token(bad), invalid_argument_error) << bad;
}

TEST(kmeans_backends, agree_with_each_other) {
  const auto points = clouds<float>(5000, 12, 10, 71);
  const request<float> wanted{.clusters = 10, .init = init::given, .centroids = points.rows(10), .max_iter = 10};
  const auto a = fit(points.view(), wanted, {.backend = backend::reference});
  const auto b = fit(points.view(), wanted, {.backend = backend::cpu});
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_NEAR(a.inertia, b.inertia, 1e-4 * a.inertia);
}
#endif

}  // namespace
}  // namespace ballast::kmeans
