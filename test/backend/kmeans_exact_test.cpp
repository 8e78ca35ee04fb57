// Labels, distances and inertia of data that scores ‖c‖² − 2 x·c cannot decide: far from the origin, large beside small, extreme weights.
// Layer: backend tests, of the host backends, or with BALLAST_TEST_KMEANS_ON_CUDA of cuda on the emulator. Expected values are computed in
// long double from the coordinates as given.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#endif

namespace ballast::kmeans {
namespace {

template <class T>
long double rows_distance(const T* x, const T* c, std::int64_t n) {
  long double sum = 0;
  for (std::int64_t f = 0; f < n; ++f) sum += std::pow(static_cast<long double>(x[f]) - static_cast<long double>(c[f]), 2.0L);
  return sum;
}

class kmeans_exact : public testing::TestWithParam<std::tuple<backend, protection>> {
 protected:
#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
  const test::current_device_guard guard_{std::make_shared<simt::emulated_device>()};
#endif
  execution where() const { return {.backend = std::get<0>(GetParam()), .threads = 2, .protection = std::get<1>(GetParam())}; }

  // Compares predict and transform with the nearest centroid.
  template <class T>
  void expect_nearest(const std::vector<T>& points, const std::vector<T>& centroids, std::int64_t n) const {
    const auto m = static_cast<std::int64_t>(points.size()) / n, k = static_cast<std::int64_t>(centroids.size()) / n;
    const data<T> from = {.points = row_major(points.data(), m, n), .weights = {}, .centroids = row_major(centroids.data(), k, n)};
    const prediction found = predict(from, where());
    const distances<T> far = transform(from, where());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(far.report.verdict, verdict::clean);
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::int64_t i = 0; i < m; ++i) {
      std::int64_t nearest = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const long double right = rows_distance(&points[at(i * n)], &centroids[at(j * n)], n);
        if (right < rows_distance(&points[at(i * n)], &centroids[at(nearest * n)], n)) nearest = j;
        const double limit = static_cast<double>(n + 8) / 2 * static_cast<double>(std::numeric_limits<T>::epsilon());
        EXPECT_NEAR(static_cast<double>(far.values(i, j)), static_cast<double>(std::sqrt(right)),
                    limit * static_cast<double>(std::sqrt(right)))
            << "row " << i << ", centroid " << j;
      }
      EXPECT_EQ(found.labels[at(i)], nearest) << "row " << i;
    }
  }
};

TEST_P(kmeans_exact, two_groups_far_from_the_origin) {
  std::vector<float> points;
  for (const float sign : {1.f, -1.f})
    for (const float d : {0.f, 1.f, 20.f, 21.f}) points.push_back(sign * (1e5f + d));
  const std::vector<float> first = {1e5f, 100020.f, -1e5f, -100020.f};
  expect_nearest(points, first, 1);
  const auto found = fit({.points = row_major(points.data(), 8, 1), .weights = {}, .centroids = row_major(first.data(), 4, 1)}, 4,
                         {.init = init::given}, where());
  EXPECT_EQ(found.labels, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(found.inertia, 2);
}

TEST_P(kmeans_exact, points_nearer_than_the_rounding_of_the_range) {
  expect_nearest<float>({0, .001f, .002f, 1e4f}, {0, .001f, .002f, 1e4f}, 1);
  expect_nearest<double>({0, 1e-9, 2e-9, 1e9}, {0, 1e-9, 2e-9, 1e9}, 1);
  expect_nearest<double>({0.1, 0.1 + 1e-16, 1e8}, {0.1 + 3e-17, 0.1 - 1e-16, 1e8}, 1);
}

// Towns in metres of a map grid, with centroids a few metres apart; times in seconds since 1970.
TEST_P(kmeans_exact, random_points_with_offsets) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const auto run = [&]<class T>(T, std::int64_t n, double offset, double spread) {
    std::vector<T> points, centroids;
    for (int i = 0; i < 400 * static_cast<int>(n); ++i) points.push_back(static_cast<T>(offset * (i % 3 - 1) + spread * normal(random)));
    for (int i = 0; i < 20 * static_cast<int>(n); ++i) centroids.push_back(static_cast<T>(offset * (i % 3 - 1) + spread * normal(random)));
    expect_nearest(points, centroids, n);
  };
  run(0.f, 3, 5e6, 10);
  run(0.f, 2, 1.7e9, 500);
  run(0.0, 3, 5e6, 1e-7);
  run(0.0, 70, 1e3, 1e-9);
}

TEST_P(kmeans_exact, fill_values_beside_data) {
  const auto run = [&]<class T>(T fill) {
    const std::vector<T> points = {10, 11, 12, fill};
    const std::vector<T> first = {10, fill};
    const auto found = fit({.points = row_major(points.data(), 4, 1), .weights = {}, .centroids = row_major(first.data(), 2, 1)}, 2,
                           {.init = init::given}, where());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(found.centroids(0, 0), 11);
    EXPECT_EQ(found.centroids(1, 0), fill);
    EXPECT_EQ(found.inertia, 2);
  };
  run(1e20);
  run(1e30);
  run(1e20f);
  run(9.96921e36f);
}

// The inertia of the rest does not vanish beside numbers whose squares are beyond the range of doubles.
TEST_P(kmeans_exact, inertia_beside_large_numbers) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> points;
  double sum = 0, squares = 0;
  for (int i = 0; i < 2000; ++i) points.push_back(normal(random));
  for (const double x : points) sum += x;
  for (const double x : points) squares += std::pow(x - sum / 2000, 2);
  points.push_back(1e165);
  points.push_back(-1e165);
  const std::vector<double> first = {0, 1e165, -1e165};
  const auto found = fit({.points = row_major(points.data(), 2002, 1), .weights = {}, .centroids = row_major(first.data(), 3, 1)}, 3,
                         {.init = init::given}, where());
  EXPECT_NEAR(found.inertia, squares, 1e-9 * squares);
}

TEST_P(kmeans_exact, centroids_far_from_the_points) {
  const std::vector<double> points = {0, 1, 1000};
  const std::vector<double> first = {1e200, -1e200};
  const auto found = fit({.points = row_major(points.data(), 3, 1), .weights = {}, .centroids = row_major(first.data(), 2, 1)}, 2,
                         {.init = init::given}, where());
  double inertia = 0;
  for (std::size_t i = 0; i < 3; ++i) inertia += std::pow(points[i] - found.centroids(found.labels[i], 0), 2);
  EXPECT_NEAR(found.inertia, inertia, 1e-9 * inertia);
  expect_nearest<double>({0, 1, 1000}, {2, 1e12, -1e200, 1e308}, 1);
  expect_nearest<float>({0, 1, 1000}, {2, 1e12f, -1e30f, 3e38f}, 1);
}

TEST_P(kmeans_exact, weights_of_any_size) {
  const auto run = [&]<class T>(T weight) {
    const std::vector<T> points = {0, 1, 1000}, weights(3, weight);
    const auto found = fit({.points = row_major(points.data(), 3, 1), .weights = weights, .centroids = {}}, 2, {}, where());
    EXPECT_EQ(found.report.verdict, verdict::clean) << weight;
    EXPECT_NEAR(static_cast<double>(std::min(found.centroids(0, 0), found.centroids(1, 0))), 0.5, 2000 * std::numeric_limits<T>::epsilon())
        << weight;
    EXPECT_EQ(std::max(found.centroids(0, 0), found.centroids(1, 0)), 1000) << weight;
  };
  for (const double weight : {5e-324, 1e-310, 1e-300, 1e300, 1e308}) run(weight);
  for (const float weight : {1e-45f, 1e-40f, 1e-37f, 1e37f, 3e38f}) run(weight);
}

TEST_P(kmeans_exact, an_infinite_tolerance_stops_after_one_iteration) {
  const std::vector<double> points = {0, 1, 1000, 7};
  const auto found = fit(row_major(points.data(), 4, 1), 2, {.tol = std::numeric_limits<double>::infinity()}, where());
  EXPECT_EQ(found.report.verdict, verdict::clean);
  EXPECT_EQ(found.iterations, 1);
}

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
const backend k_backends[] = {backend::cuda};
#else
const backend k_backends[] = {backend::reference, backend::cpu};
#endif
INSTANTIATE_TEST_SUITE_P(backends, kmeans_exact,
                         testing::Combine(testing::ValuesIn(k_backends), testing::Values(protection::off, protection::correct)),
                         [](const auto& each) {
                           return std::string(to_string(std::get<0>(each.param))) + '_' + std::string(to_string(std::get<1>(each.param)));
                         });

}  // namespace
}  // namespace ballast::kmeans
