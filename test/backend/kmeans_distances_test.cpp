// Distances of one block: errors that cancel in one weighted sum, and faults between the check of distances and their store.
// Layer: backend tests, of the kernels of the host backends by themselves.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "backend/kmeans_cases.hpp"
#include "inject/injector.hpp"
#include "kmeans/block.hpp"
#include "kmeans/host/packed_centroids.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans {
namespace {

constexpr std::int64_t k_rows = 64, k_features = 6, k_columns = 37;

// A block of points and a section of centroids, normally distributed.
template <class T>
struct block_of_distances {
  const kernels<T>& use;
  std::vector<T> points, centroids;
  packed_centroids<T> packed;
  source<T> from;
  point_block<T> block;
  std::vector<T> row = std::vector<T>(k_features);

  explicit block_of_distances(const kernels<T>& of, std::uint64_t seed) : use(of) {
    std::mt19937_64 random(seed);
    std::normal_distribution<T> normal;
    for (std::int64_t e = 0; e < k_rows * k_features; ++e) points.push_back(normal(random));
    for (std::int64_t e = 0; e < k_columns * k_features; ++e) centroids.push_back(normal(random));
    host::pack_centroids(centroids.data(), k_columns, k_features, true, packed);
    from.points = row_major<const T>(points.data(), k_rows, k_features);
    from.shift.assign(k_features, T(0));
    block.n = k_features;
    block.capacity = block.count = k_rows;
    block.width = use.width;
    block.x = core::aligned_buffer<T>(k_rows * k_features);
    for (auto* each : {&block.weight, &block.norm, &block.residual[0], &block.residual[1]}) *each = core::aligned_buffer<T>(k_rows);
    block.distance = core::aligned_buffer<T>(k_section * k_rows);
    block.bounds = packed.bounds;
    block.row = row.data();
    use.load(from, block);
  }

  T& coordinate(core::aligned_buffer<T>& x, std::int64_t p, std::int64_t f) const {
    return x[(p / block.width * k_features + f) * block.width + p % block.width];
  }
  // Computes the distances from these points and the centroids.
  void compute(const core::aligned_buffer<T>& x) {
    inject::active_injector none(nullptr, site::table());
    use.distances(packed, {x.data(), packed.packed.data()}, 0, true, {&none, {}}, block);
  }
  std::int64_t failed() const {
    return std::count_if(block.residual[0].data(), block.residual[0].data() + k_rows, [](T each) { return each != 0; });
  }
  bool store(inject::active_injector& injector, bool protect, std::vector<T>& to) {
    to.assign(k_rows * k_columns, T(-1));
    return use.store_distances(packed, 0, 0.5, protect, {&injector, {0, 1, 0, 1}}, block, row_major(to.data(), k_rows, k_columns));
  }
};

template <class T>
void fill(core::aligned_buffer<T>& buffer) {
  std::fill_n(buffer.data(), buffer.size(), T(0));
}

template <class T>
void find_errors_that_cancel(const kernels<T>& use) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    block_of_distances<T> now(use, seed);
    const auto p = static_cast<std::int64_t>(seed * 7 % k_rows), f = static_cast<std::int64_t>(seed % k_features);
    core::aligned_buffer<T> x(k_rows * k_features);
    std::copy_n(now.block.x.data(), x.size(), x.data());
    now.compute(x);
    EXPECT_EQ(now.failed(), 0);
    // (x + δ − c)² − (x − c)² = 2 δ (x − c) + δ²; this δ makes the sum with the weights w zero.
    double sum = 0, weights = 0;
    for (std::int64_t column = 0; column < now.packed.tiles * k_tile; ++column) {
      const std::int64_t j = now.packed.names[0][column];
      if (j < 0) continue;
      const double w = static_cast<double>(now.packed.weights[column]);
      sum += w * static_cast<double>(now.points[static_cast<std::size_t>(p * k_features + f)] -
                                     now.centroids[static_cast<std::size_t>(j * k_features + f)]);
      weights += w;
    }
    const double change = -2 * sum / weights;
    if (std::abs(change) < 0.5) continue;
    now.coordinate(x, p, f) += static_cast<T>(change);
    now.compute(x);
    EXPECT_EQ(now.failed(), 1) << seed;
    EXPECT_NE(now.block.residual[0][p], 0) << seed;
    // Without the second sum nothing is seen, at more than a thousand floors.
    for (auto* each : {&now.packed.second.weights, &now.packed.second.checksum, &now.packed.second.start, &now.packed.second.rest,
                       &now.packed.second.sum})
      fill(*each);
    now.compute(x);
    EXPECT_EQ(now.failed(), 0) << seed;
  }
}

TEST(kmeans_distances, errors_that_cancel_in_one_sum_are_found) {
  find_errors_that_cancel(reference_kernels<float>());
  find_errors_that_cancel(reference_kernels<double>());
  find_errors_that_cancel(cpu_kernels<float>());
  find_errors_that_cancel(cpu_kernels<double>());
}

// A struck factor of a vector changes the sign of every number of some points, an even number in each lane of the signature.
template <class T>
void find_changed_signs(const kernels<T>& use) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    block_of_distances<T> now(use, seed);
    block_signature right, expected;
    use.sign(now.block, right.lanes);
    use.sign_source(now.from, now.block, expected.lanes);
    EXPECT_EQ(right, expected);
    for (std::int64_t lanes = 1; lanes <= 16; lanes *= 2) {
      block_of_distances<T> struck(use, seed);
      for (std::int64_t p = lanes - 1; p < k_rows; p += lanes)
        for (std::int64_t f = 0; f < k_features; ++f) struck.coordinate(struck.block.x, p, f) *= -1;
      block_signature found;
      use.sign(struck.block, found.lanes);
      EXPECT_FALSE(found == right) << seed << ' ' << lanes;
    }
  }
}

TEST(kmeans_signature, sees_the_signs_of_whole_points_change) {
  find_changed_signs(reference_kernels<float>());
  find_changed_signs(reference_kernels<double>());
  find_changed_signs(cpu_kernels<float>());
  find_changed_signs(cpu_kernels<double>());
}

template <class T>
void find_faults_at_the_store(const kernels<T>& use) {
  block_of_distances<T> now(use, 3);
  now.compute(now.block.x);
  inject::active_injector none(nullptr, site::table());
  std::vector<T> clean, found;
  EXPECT_TRUE(now.store(none, true, clean));
  for (std::int64_t p = 0; p < k_rows; ++p)
    for (std::int64_t j = 0; j < k_columns; ++j) {
      const double right = 2 * std::sqrt(static_cast<double>(now.block.distance[j * k_rows + p]));
      EXPECT_NEAR(static_cast<double>(clean[static_cast<std::size_t>(p * k_columns + j)]), right, 2 * k_u<T> * right);
    }
  for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const auto what = static_cast<inject::model>(model);
      const inject::plan faults({fault_at(site::product, what, seed)});
      inject::active_injector injector(&faults, site::table()), again(&faults, site::table());
      EXPECT_FALSE(now.store(injector, true, found)) << inject::k_model_names[model] << seed;
      if (what != inject::model::stuck_at) {
        EXPECT_TRUE(now.store(injector, true, found)) << inject::k_model_names[model] << seed;
        EXPECT_EQ(found, clean);
      }
      EXPECT_TRUE(now.store(again, false, found));
      EXPECT_NE(found, clean) << inject::k_model_names[model] << seed;
    }
  }
}

TEST(kmeans_distances, faults_at_the_store_are_found) {
  find_faults_at_the_store(reference_kernels<float>());
  find_faults_at_the_store(reference_kernels<double>());
  find_faults_at_the_store(cpu_kernels<float>());
  find_faults_at_the_store(cpu_kernels<double>());
}

// Roots that overflow or are subnormal, columns of any stride, and fewer points than a vector has.
template <class T>
void store_at_the_ends_of_the_range(const kernels<T>& use) {
  block_of_distances<T> now(use, 5);
  inject::active_injector none(nullptr, site::table());
  for (const double scale : {static_cast<double>(std::numeric_limits<T>::min()), 1.0, 0x1p100}) {
    for (std::int64_t count : {std::int64_t{1}, std::int64_t{7}, k_rows}) {
      now.block.count = count;
      use.load(now.from, now.block);
      now.compute(now.block.x);
      std::vector<T> to(3 * k_rows * k_columns, T(-1));
      const matrix_view<T> values{.data = to.data(), .rows = k_rows, .columns = k_columns, .row_stride = 3 * k_columns, .column_stride = 3};
      EXPECT_TRUE(use.store_distances(now.packed, 0, scale, true, {&none, {0, 1, 0, 1}}, now.block, values)) << scale << " " << count;
      for (std::int64_t p = 0; p < k_rows; ++p)
        for (std::int64_t j = 0; j < k_columns; ++j)
          EXPECT_EQ(values(p, j),
                    p < count ? static_cast<T>(std::sqrt(static_cast<double>(now.block.distance[j * k_rows + p])) * (1 / scale)) : T(-1));
    }
  }
}

TEST(kmeans_distances, are_stored_at_the_ends_of_the_range) {
  store_at_the_ends_of_the_range(reference_kernels<float>());
  store_at_the_ends_of_the_range(reference_kernels<double>());
  store_at_the_ends_of_the_range(cpu_kernels<float>());
  store_at_the_ends_of_the_range(cpu_kernels<double>());
}

}  // namespace
}  // namespace ballast::kmeans
