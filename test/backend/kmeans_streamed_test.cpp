// K-Means on cuda where the device has too little memory: points of the host pass in pieces. Results are those of resident points bit for
// bit, and what a copy delivers is verified.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "backend/kmeans_streamed.hpp"
#include "support/effort.hpp"
#include "support/late_device.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

constexpr std::int64_t k_streamed_points = 7000;  // three pieces of the least size

template <class T>
class kmeans_streamed : public testing::Test {
 protected:
  static run::settings how(protection level = protection::correct) {
    return {.backend = backend::cuda, .threads = 2, .protection = level, .throw_on_uncorrectable = false};
  }
};
TYPED_SUITE(kmeans_streamed, reals, test::number_names);

TYPED_TEST(kmeans_streamed, what_stays_is_chosen_by_the_memory) {
  cuda::kept_points_problem what{
      .m = 10000, .given_bytes = 10000 * 80, .given_row = 80, .normalized_row = 128, .resident_row = 40, .working = 1000, .unit = 3072};
  const std::int64_t rows = cuda::padded_rows(what.m), beside = rows * 40 + 1000;
  const auto kept = [&](std::int64_t available) { return cuda::choose_kept_points(what, available).kept; };
  EXPECT_EQ(kept(beside + 10000 * 80 + rows * 128), cuda::kept_points::all);
  EXPECT_EQ(kept(beside + 10000 * 80 + rows * 128 - 1), cuda::kept_points::normalized);
  EXPECT_EQ(kept(beside + rows * 128 + 2 * 3072 * 80), cuda::kept_points::normalized);
  EXPECT_EQ(kept(beside + rows * 128 + 2 * 3072 * 80 - 1), cuda::kept_points::none);
  EXPECT_EQ(kept(beside + 2 * 3072 * 208), cuda::kept_points::none);
  EXPECT_EQ(cuda::choose_kept_points(what, beside + 2 * 3072 * 208).rows, 3072);
  EXPECT_THROW((void)kept(beside + 2 * 3072 * 208 - 1), std::bad_alloc);
  what.given_bytes = 0;  // on the device already
  EXPECT_EQ(kept(0), cuda::kept_points::all);
}

TYPED_TEST(kmeans_streamed, results_are_those_of_resident_points_bit_for_bit) {
  using T = TypeParam;
  const std::int64_t n = 20, k = 3;
  const auto points = clouds<T>(k_streamed_points, n, k, 5, 0.8);
  std::vector<T> weights(static_cast<std::size_t>(k_streamed_points)), transposed(points.values.size());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(0.5 * static_cast<double>(i % 5));
  for (std::int64_t i = 0; i < k_streamed_points; ++i)
    for (std::int64_t f = 0; f < n; ++f)
      transposed[static_cast<std::size_t>(f * k_streamed_points + i)] = points.values[static_cast<std::size_t>(i * n + f)];
  const matrix_view<const T> by_columns = column_major<const T>(transposed.data(), k_streamed_points, n);
  struct outcome {
    model<T> fitted;
    prediction predicted;
    distances<T> transformed;
    std::int64_t copies;
  };
  const auto all = [&](std::int64_t memory, bool weighted, init way, protection level, const matrix_view<const T>& view) {
    const auto device = std::make_shared<observed_device>(std::make_shared<simt::emulated_device>(with_memory(memory)));
    const test::current_device_guard current(device);
    request<T> wanted{.clusters = k, .init = way, .max_iter = 2, .tol = 0, .seed = 3, .rounds = 1};
    if (way == init::given) wanted.centroids = points.rows(k);
    if (weighted) wanted.weights = weights;
    outcome made{fit(view, wanted, this->how(level)), {}, {}, 0};
    made.predicted = predict(view, points.rows(k), std::span<const T>(wanted.weights), this->how(level));
    made.transformed = transform(view, points.rows(k), this->how(level));
    made.copies = device->large_copies;
    return made;
  };
  for (const init way : {init::given, init::kmeans_plus_plus, init::kmeans_parallel, init::random}) {
    if (test::sampled() && way != (sizeof(T) == 8 ? init::kmeans_plus_plus : init::kmeans_parallel)) continue;
    const bool weighted = way == init::kmeans_parallel || way == init::kmeans_plus_plus;
    const auto expected = all(std::int64_t{1} << 30, weighted, way, protection::correct, points.view());
    ASSERT_EQ(expected.fitted.report.verdict, verdict::clean);
    for (const auto kept : {cuda::kept_points::normalized, cuda::kept_points::none}) {
      SCOPED_TRACE(std::string(to_string(way)) + (kept == cuda::kept_points::none ? " none" : " normalized"));
      const bool off = way == init::random;
      const auto found = all(memory_for<T>(kept, points.view(), weighted, k), weighted, way, off ? protection::off : protection::correct,
                             way == init::kmeans_plus_plus ? by_columns : points.view());
      EXPECT_EQ(found.fitted.report.verdict, verdict::clean) << to_json(found.fitted.report);
      EXPECT_EQ(found.fitted.labels, expected.fitted.labels);
      EXPECT_EQ(found.fitted.inertia, expected.fitted.inertia);
      EXPECT_TRUE(std::equal(found.fitted.centroids.data(), found.fitted.centroids.data() + k * n, expected.fitted.centroids.data()));
      EXPECT_EQ(found.predicted.labels, expected.predicted.labels);
      EXPECT_EQ(found.predicted.inertia, expected.predicted.inertia);
      EXPECT_TRUE(std::equal(found.transformed.values.data(), found.transformed.values.data() + k_streamed_points * k,
                             expected.transformed.values.data()));
      EXPECT_GT(found.copies, expected.copies + 3 * 3) << "the points should have come in pieces";
    }
  }
  EXPECT_THROW((void)all(std::int64_t{1} << 18, false, init::given, protection::correct, points.view()), out_of_memory_error);
}

// Copies and kernels of two streams, as late and as early as their order allows.
TYPED_TEST(kmeans_streamed, copies_and_kernels_wait_for_each_other) {
  using T = TypeParam;
  const std::int64_t n = 20, k = 3;
  const auto points = clouds<T>(k_streamed_points, n, k, 5, 0.8);
  const auto run = [&](cuda::kept_points kept, test::late_device::manner how, std::int64_t left_out, std::int64_t* waits) {
    const auto below = std::make_shared<observed_device>(std::make_shared<simt::emulated_device>());
    below->available = memory_for<T>(kept, points.view(), false, k) - ballast::cuda::k_ring_bytes;
    const auto device = std::make_shared<test::late_device>(below, how, 1);
    device->left_out = left_out;
    const test::current_device_guard current(device);
    model<T> made;
    try {
      made = fit(points.view(), {.clusters = k, .init = init::given, .centroids = points.rows(k), .max_iter = 2, .tol = 0}, this->how());
    } catch (const error&) {  // numbers without a meaning, where a wait is left out
    }
    device->synchronize(nullptr);
    if (waits != nullptr) *waits = device->waits();
    return made;
  };
  using manner = test::late_device::manner;
  for (const auto kept : {cuda::kept_points::normalized, cuda::kept_points::none}) {
    std::int64_t waits = 0;
    const auto clean = run(kept, manner::awaited_first, -1, &waits);
    EXPECT_EQ(clean.report.verdict, verdict::clean);
    EXPECT_GT(waits, 20);
    const auto same = [&](const model<T>& a) {
      return a.report.verdict == verdict::clean && a.labels == clean.labels && a.inertia == clean.inertia;
    };
    for (const manner how : {manner::others_first, manner::any}) EXPECT_TRUE(same(run(kept, how, -1, nullptr)));
    if (sizeof(T) == 8 && test::sampled()) continue;
    int noticed = 0;
    for (std::int64_t left_out = 0; left_out < waits; left_out += test::sampled() ? 5 : 1) {
      for (const manner how : {manner::awaited_first, manner::others_first})
        if (test::taken(static_cast<std::uint64_t>(left_out + (how == manner::others_first ? 1 : 0)), 2))
          noticed += !same(run(kept, how, left_out, nullptr));
    }
    EXPECT_GT(noticed, 0) << "no wait matters";
  }
}

// One element of one copy: of any piece, for any purpose.
TYPED_TEST(kmeans_streamed, what_a_copy_delivers_is_verified) {
  using T = TypeParam;
  const std::int64_t n = 20, k = 3;
  const auto points = clouds<T>(k_streamed_points, n, k, 5, 0.8);
  const auto run = [&](cuda::kept_points kept, std::int64_t struck, bool every, protection level, std::int64_t* copies) {
    const auto device = std::make_shared<observed_device>(
        std::make_shared<simt::emulated_device>(with_memory(memory_for<T>(kept, points.view(), false, k))));
    const test::current_device_guard current(device);
    device->struck_copy = struck;
    device->every = every;
    // The upper half of an element of row 11.
    device->struck_byte = (11 * n + 7) * static_cast<std::int64_t>(sizeof(T)) + static_cast<std::int64_t>(sizeof(T)) - 2;
    const auto made =
        fit(points.view(), {.clusters = k, .init = init::given, .centroids = points.rows(k), .max_iter = 2, .tol = 0}, this->how(level));
    if (copies != nullptr) *copies = device->large_copies;
    return made;
  };
  for (const auto kept : {cuda::kept_points::normalized, cuda::kept_points::none}) {
    std::int64_t copies = 0;
    const auto clean = run(kept, -1, false, protection::correct, &copies);
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    const auto same = [&](const model<T>& a) {
      return a.labels == clean.labels && a.inertia == clean.inertia &&
             std::equal(a.centroids.data(), a.centroids.data() + k * n, clean.centroids.data());
    };
    int detected = 0, changed = 0;
    for (std::int64_t struck = 0; struck < copies; struck += !test::sampled() ? 1 : sizeof(T) == 4 ? 8 : 16) {
      SCOPED_TRACE(std::string(kept == cuda::kept_points::none ? "none" : "normalized") + " copy " + std::to_string(struck) + " of " +
                   std::to_string(copies));
      const auto found = run(kept, struck, false, protection::correct, nullptr);
      detected += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable) << to_json(found.report);
      EXPECT_TRUE(same(found)) << to_json(found.report);
      if (struck % 2 == 0) changed += !same(run(kept, struck, false, protection::off, nullptr));
    }
    EXPECT_GT(detected, 0);
    EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
  }
  // A piece that never comes right is said to be wrong: the second one of the first iteration, after three readings of three pieces.
  EXPECT_EQ(run(cuda::kept_points::none, 10, true, protection::correct, nullptr).report.verdict, verdict::uncorrectable);
}

}  // namespace
}  // namespace ballast::kmeans
