// Data and backends that the tests of K-Means on every backend share.
// Layer: backend tests. With BALLAST_TEST_KMEANS_ON_CUDA the backend is cuda, on the emulator; else those of the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "inject/plan.hpp"
#include "kmeans/driver/driver.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/kmeans_calls.hpp"
#include "support/reals.hpp"

namespace ballast::kmeans {

template <class T>
inline constexpr double k_u = std::numeric_limits<T>::epsilon() / 2;

template <class T>
struct data_set {
  std::int64_t m = 0, n = 0;
  std::vector<T> values;
  matrix_view<const T> view() const { return row_major(values.data(), m, n); }
  matrix_view<const T> rows(std::int64_t count) const { return row_major(values.data(), count, n); }
};

// `clusters` normal clouds around normal centres, in no order.
template <class T>
data_set<T> clouds(std::int64_t m, std::int64_t n, std::int64_t clusters, unsigned seed, double spread = 0.4, double offset = 0,
                   double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> centres(static_cast<std::size_t>(clusters * n));
  for (double& each : centres) each = normal(random);
  data_set<T> made{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
  for (std::int64_t i = 0; i < m; ++i) {
    const auto c = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(clusters));
    for (std::int64_t f = 0; f < n; ++f)
      made.values[static_cast<std::size_t>(i * n + f)] =
          static_cast<T>(scale * (offset + centres[static_cast<std::size_t>(c * n + f)] + spread * normal(random)));
  }
  return made;
}

template <class T>
class kmeans_backend : public testing::Test {
 protected:
  static constexpr backend k_backend = T::which;
  static constexpr bool on_cuda = k_backend == backend::cuda;  // on the emulator: problems are smaller there, and there are fewer of them
  using real = typename T::real;

  kmeans_backend() {
    if (on_cuda) guard_.emplace(std::make_shared<simt::emulated_device>());
  }
  // Verdicts are compared, not thrown.
  run::settings how(int threads = 2, protection level = protection::correct) const {
    return {.backend = k_backend, .threads = threads, .protection = level, .throw_on_uncorrectable = false};
  }
  // How many faults of a kind are tried.
  static std::uint64_t fault_seeds() {
    if (on_cuda) return test::sampled() ? 6 : 40;
    return !test::sampled() ? 400 : k_backend == backend::cpu ? 40 : 10;
  }

 private:
  std::optional<test::current_device_guard> guard_;
};

template <class Real, backend Which>
struct configuration {
  using real = Real;
  static constexpr backend which = Which;
};
#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
using configurations = testing::Types<configuration<float, backend::cuda>, configuration<double, backend::cuda>>;
#else
using configurations = testing::Types<configuration<float, backend::reference>, configuration<double, backend::reference>,
                                      configuration<float, backend::cpu>, configuration<double, backend::cpu>>;
#endif

// One fit by the driver of this backend; faults also strike the choice of first centroids.
template <class T>
model<T> fit_with_struck_seeding(const data_set<T>& points, const request<T>& wanted, const run::settings& how,
                                 const sparse_rows<T>& sparse = {}) {
  model<T> made;
  made.centroids = matrix<T>(wanted.clusters, points.n);
  made.labels.resize(static_cast<std::size_t>(points.m));
  driver_args<T> args{points.view(), wanted.weights, wanted.clusters, how, "seeding", how.backend, "row_checksum", nullptr, true};
  args.sparse = sparse;
  driver<T> by(args);
  made.report = by.fit(wanted.how(), {}, {made.centroids, made.labels, &made.inertia, &made.iterations, &made.stopped});
  return made;
}

// For tests that only one backend has.
using test::reals;

template <class T, class C>
double square_distance(matrix_view<const T> points, std::int64_t i, const C& centroid) {
  double sum = 0;
  for (std::int64_t f = 0; f < points.columns; ++f) {
    const double d = static_cast<double>(points(i, f)) - static_cast<double>(centroid(f));
    sum += d * d;
  }
  return sum;
}

// Expects that each label is the nearest centroid, except near-ties within the rounding of ‖x‖² − 2 x·c + ‖c‖², and that the inertia is
// that of the labels.
template <class T>
void expect_nearest(matrix_view<const T> points, matrix_view<const T> centroids, const std::vector<std::int32_t>& labels, double inertia,
                    const std::vector<T>& weights = {}) {
  ASSERT_EQ(static_cast<std::int64_t>(labels.size()), points.rows);
  const double n = static_cast<double>(points.columns);
  std::vector<double> mean(static_cast<std::size_t>(points.columns));
  for (std::int64_t i = 0; i < points.rows; ++i)
    for (std::int64_t f = 0; f < points.columns; ++f)
      mean[static_cast<std::size_t>(f)] += static_cast<double>(points(i, f)) / static_cast<double>(points.rows);
  const auto origin = [&](std::int64_t f) { return mean[static_cast<std::size_t>(f)]; };
  double sum = 0;
  for (std::int64_t i = 0; i < points.rows; ++i) {
    const std::int64_t own = labels[static_cast<std::size_t>(i)];
    ASSERT_GE(own, 0);
    ASSERT_LT(own, centroids.rows);
    const double mine = square_distance(points, i, [&](std::int64_t f) { return centroids(own, f); });
    sum += mine * (weights.empty() ? 1.0 : static_cast<double>(weights[static_cast<std::size_t>(i)]));
    const double size = square_distance(points, i, origin) + square_distance(centroids, own, origin);
    for (std::int64_t j = 0; j < centroids.rows; ++j) {
      const double other = square_distance(points, i, [&](std::int64_t f) { return centroids(j, f); });
      const double slack = 4 * k_u<T> * (std::sqrt(n) + 4) * (size + square_distance(centroids, j, origin));
      ASSERT_LE(mine, other + slack) << "point " << i << " has label " << own << ", but centroid " << j << " is nearer";
    }
  }
  // From differences in double: only the rounding of a sum of m · n squares.
  EXPECT_NEAR(inertia, sum, 1e-10 * sum + std::numeric_limits<double>::denorm_min());
}

// One fault of a model at a site; where the model has a bit, the top one of the exponent, far above the floor; in 32-bit integers it is
// bit 30.
inline inject::request fault_at(inject::site site, inject::model model, std::uint64_t seed, std::int64_t visit = 0) {
  inject::request made;
  made.site = site;
  made.model = model;
  made.seed = seed;
  made.visit = visit;
  if (model == inject::model::bit_flip || model == inject::model::two_bits || model == inject::model::vector_mask) made.bit = 62;
  return made;
}

}  // namespace ballast::kmeans
