// K-Means of points in compressed rows on cuda: rows on the device, parts of arrays, sums in several words, protection of a part of the
// work.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "backend/kmeans_sparse.hpp"
#include "kmeans/sites.hpp"
#include "support/kmeans_calls.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_cuda_sparse : public testing::Test {
 protected:
  run::settings how(protection level = protection::correct) const {
    return {.backend = backend::cuda, .threads = 2, .protection = level, .throw_on_uncorrectable = false};
  }
  std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();
  test::current_device_guard guard_{device_};
};
TYPED_SUITE(kmeans_cuda_sparse, reals, test::number_names);

template <class T>
model<T> fit_data(const data<T>& from, const request<T>& wanted, const run::settings& how) {
  return test_calls::with(how, [&](const auto& where, const auto& now) { return fit(from, wanted.clusters, wanted.how(), where, now); });
}

// An array in the memory of the device.
template <class Value>
class on_device {
 public:
  on_device(const std::shared_ptr<ballast::cuda::device>& device, const std::vector<Value>& from)
      : memory_(device, static_cast<std::int64_t>(from.size() * sizeof(Value))), count_(from.size()) {
    device->copy(memory_.data(), from.data(), memory_.bytes(), nullptr);
    device->synchronize(nullptr);
  }
  std::span<const Value> all() const { return {static_cast<const Value*>(memory_.data()), count_}; }

 private:
  ballast::cuda::device_buffer memory_;
  std::size_t count_;
};

template <class T>
void expect_same(const model<T>& a, const model<T>& b) {
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(std::memcmp(a.centroids.data(), b.centroids.data(), a.centroids.size() * sizeof(T)), 0);
  EXPECT_EQ(a.inertia, b.inertia);
  EXPECT_EQ(a.report.verdict, verdict::clean);
}

TYPED_TEST(kmeans_cuda_sparse, rows_on_the_device_are_used_as_they_lie) {
  using T = TypeParam;
  const auto points = texts<T>(130, 50, 5, 7, 3);
  const request<T> wanted{.clusters = 5, .init = init::given, .centroids = points.dense.rows(5), .max_iter = 4};
  const auto expected = fit_data(operands(points, wanted), wanted, this->how());
  EXPECT_EQ(expected.report.backend, backend::cuda);
  const on_device<std::int32_t> offsets(this->device_, points.offsets), columns(this->device_, points.indices);
  const on_device<std::int64_t> wide_offsets(this->device_, points.wide_offsets), wide_columns(this->device_, points.wide_indices);
  const on_device<T> values(this->device_, points.values);
  data<T> from = operands(points, wanted);
  from.sparse = csr_view<const T, std::int32_t>{130, 50, offsets.all(), columns.all(), values.all()};
  expect_same(fit_data(from, wanted, this->how()), expected);
  // Values alone; and other backends, which copy them.
  from.sparse = csr_view<const T, std::int32_t>{130, 50, points.offsets, points.indices, values.all()};
  expect_same(fit_data(from, wanted, this->how()), expected);
  from.sparse = csr_view<const T, std::int64_t>{130, 50, wide_offsets.all(), wide_columns.all(), values.all()};
  expect_same(fit_data(from, wanted, this->how()), expected);
  const auto labels = test_calls::predict_any(from, this->how());
  const auto distances = test_calls::transform_any(from, this->how());
  run::settings host = this->how();
  host.backend = backend::reference;
  const auto expected_labels = test_calls::predict_any(operands(points, wanted), host);
  EXPECT_EQ(labels.labels, expected_labels.labels);
  EXPECT_EQ(labels.inertia, expected_labels.inertia);
  EXPECT_EQ(test_calls::predict_any(from, host).labels, expected_labels.labels);
  EXPECT_EQ(distances.report.verdict, verdict::clean);
  // Arrays on the device are checked, too.
  std::vector<std::int32_t> wrong = points.indices;
  wrong[0] = 50;
  const on_device<std::int32_t> wrong_columns(this->device_, wrong);
  from.sparse = csr_view<const T, std::int32_t>{130, 50, offsets.all(), wrong_columns.all(), values.all()};
  EXPECT_THROW((void)fit_data(from, wanted, this->how()), invalid_argument_error);
}

// Some rows of longer arrays, as of a part of a matrix.
TYPED_TEST(kmeans_cuda_sparse, takes_some_rows_of_a_matrix) {
  using T = TypeParam;
  const auto points = texts<T>(120, 40, 5, 7, 9);
  const request<T> wanted{.clusters = 4, .init = init::given, .centroids = points.dense.rows(4), .max_iter = 4};
  data<T> from = operands(points, wanted);
  const std::span<const std::int32_t> offsets(points.offsets.data() + 30, 71);
  from.sparse = csr_view<const T, std::int32_t>{70, 40, offsets, points.indices, points.values};
  run::settings host = this->how();
  host.backend = backend::reference;
  const auto made = fit_data(from, wanted, this->how()), expected = fit_data(from, wanted, host);
  EXPECT_EQ(made.labels, expected.labels);
  EXPECT_EQ(made.report.verdict, verdict::clean);
}

// A feature whose elements differ by far more than the bits of a double: the sum of each cluster has all of its own.
TYPED_TEST(kmeans_cuda_sparse, sums_keep_small_elements_beside_large_ones) {
  using T = TypeParam;
  constexpr std::int64_t m = 90, n = 6;
  const double large = sizeof(T) == 4 ? 0x1p40 : 0x1p120;
  sparse_set<T> points(m, n);
  for (std::int64_t i = 0; i < m; ++i) {
    points.at(i, 0) = static_cast<T>(i % 3 == 0   ? large
                                     : i % 3 == 1 ? 1.0 + static_cast<double>(i) / 64
                                                  : -3.0 - static_cast<double>(i) / 32);
    points.at(i, 1 + i % 3) = static_cast<T>(large / 8);
  }
  points.compress([] { return false; });
  std::vector<T> weights(m);
  for (std::int64_t i = 0; i < m; ++i) weights[static_cast<std::size_t>(i)] = static_cast<T>(1 + i % 5);
  for (const bool weighted : {false, true}) {
    request<T> wanted{.clusters = 3, .init = init::given, .centroids = points.dense.rows(3), .max_iter = 3};
    if (weighted) wanted.weights = weights;
    const auto made = fit_data(operands(points, wanted), wanted, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
    EXPECT_EQ(made.report.false_alarms, 0u);
    for (std::int64_t c = 0; c < 3; ++c) {
      long double sum = 0, all = 0;
      for (std::int64_t i = c; i < m; i += 3) {
        const long double w = weighted ? weights[static_cast<std::size_t>(i)] : T(1);
        sum += w * points.at(i, 0);
        all += w;
      }
      const auto mean = static_cast<double>(sum / all);
      EXPECT_NEAR(static_cast<double>(made.centroids(c, 0)), mean, 2 * k_u<T> * std::abs(mean)) << c << weighted;
    }
  }
}

TYPED_TEST(kmeans_cuda_sparse, final_only_and_off_have_the_same_results) {
  using T = TypeParam;
  const auto points = texts<T>(150, 60, 6, 8, 21);
  const request<T> wanted{.clusters = 6, .init = init::kmeans_plus_plus, .n_init = 2, .max_iter = 5, .seed = 4};
  const auto expected = fit_data(operands(points, wanted), wanted, this->how());
  for (const auto level : {protection::final_only, protection::off, protection::detect})
    expect_same(fit_data(operands(points, wanted), wanted, this->how(level)), expected);
  // Seeding and each decision are those of the host.
  run::settings host = this->how();
  host.backend = backend::reference;
  EXPECT_EQ(fit_data(operands(points, wanted), wanted, host).labels, expected.labels);
}

// Each site in a kernel, one flipped bit at a time.
TYPED_TEST(kmeans_cuda_sparse, strikes_of_kernels_are_repaired_and_reach_the_output_without_protection) {
  using T = TypeParam;
  const auto points = texts<T>(100, 40, 5, 7, 31);
  const request<T> wanted{.clusters = 20, .init = init::given, .centroids = points.dense.rows(20), .max_iter = 2, .tol = 0};
  const auto clean = fit_data(operands(points, wanted), wanted, this->how());
  for (const inject::site where : {site::points, site::product, site::minimum, site::sum}) {
    int detected = 0, changed = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      inject::request fault = fault_at(where, inject::model::bit_flip, seed, 1);
      if (where == site::product) fault.bit = 63;  // the sign: a larger score of a far centroid changes no label
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = fit_data(operands(points, wanted), wanted, how);
      detected += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable);
      EXPECT_EQ(found.labels, clean.labels);
      how.protection = protection::off;
      const auto bare = fit_data(operands(points, wanted), wanted, how);
      changed +=
          bare.labels != clean.labels || std::memcmp(bare.centroids.data(), clean.centroids.data(), bare.centroids.size() * sizeof(T)) != 0;
    }
    EXPECT_GT(detected, 0) << static_cast<std::uint32_t>(where);
    EXPECT_GT(changed, 0) << static_cast<std::uint32_t>(where);
  }
}

}  // namespace
}  // namespace ballast::kmeans
