// Rows whose labels only the points as given decide: blocks list them, and other blocks decide them. Faults in the list and in the
// decisions, and more rows than the list holds.
// Layer: backend tests, on the emulator.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"
#include "kmeans/sites.hpp"
#include "support/struck_device.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_open_rows : public testing::Test {
 protected:
  // Three groups; two lie so far from the origin that all of their rows are open.
  static data_set<T> far_points(std::int64_t m, std::int64_t n, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    data_set<T> made{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
    for (std::int64_t e = 0; e < m * n; ++e)
      made.values[static_cast<std::size_t>(e)] =
          static_cast<T>(5e6 * static_cast<double>(e / n % 3 - 1) + (sizeof(T) == 4 ? 10 : 1e-7) * normal(random));
    return made;
  }
  static run::settings how(protection level, const inject::plan* faults = nullptr) {
    return {.backend = backend::cuda, .threads = 1, .protection = level, .throw_on_uncorrectable = false, .faults = faults};
  }
  static std::pair<report, std::vector<double>> call(const data_set<T>& points, const data_set<T>& centroids, const run::settings& with) {
    // f32: points with weights are prepared (serve.cuh labels others as they are given).
    const std::vector<T> weights(sizeof(T) == 4 ? static_cast<std::size_t>(points.m) : 0, T(1));
    const auto made = predict(points.view(), centroids.view(), std::span<const T>(weights), with);
    std::vector<double> all(made.labels.begin(), made.labels.end());
    all.push_back(made.inertia);
    return {made.report, all};
  }
  static void expect_nearest(const data_set<T>& points, const data_set<T>& centroids, const std::vector<double>& labels) {
    for (std::int64_t i = 0; i < points.m; ++i) {
      std::int64_t nearest = -1;
      long double least = std::numeric_limits<long double>::infinity();
      for (std::int64_t j = 0; j < centroids.m; ++j) {
        long double sum = 0;
        for (std::int64_t f = 0; f < points.n; ++f)
          sum += std::pow(static_cast<long double>(points.values[static_cast<std::size_t>(i * points.n + f)]) -
                              static_cast<long double>(centroids.values[static_cast<std::size_t>(j * points.n + f)]),
                          2.0L);
        if (sum < least) least = sum, nearest = j;
      }
      ASSERT_EQ(labels[static_cast<std::size_t>(i)], static_cast<double>(nearest)) << "row " << i;
    }
  }
};
TYPED_SUITE(kmeans_open_rows, reals, test::number_names);

TYPED_TEST(kmeans_open_rows, faults_in_the_list_and_the_decisions) {
  using T = TypeParam;
  const auto device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard here(device);
  const auto points = this->far_points(600, 6, 1), centroids = this->far_points(5, 6, 2);
  const auto [clean, expected] = this->call(points, centroids, this->how(protection::correct));
  ASSERT_EQ(clean.verdict, verdict::clean);
  this->expect_nearest(points, centroids, expected);
  const auto list = [](const void* of) { return static_cast<const cuda::exact_arguments<T>*>(of)->open; };
  struct change {
    const char* what;
    const char* kernel;
    std::function<void(const void*)> make;
    bool seen_without;  // without protection it reaches the labels
  };
  const std::vector<change> changes = {
      {"fewer rows", "exact_kernel", [&](const void* a) { device->alter(list(a).count, -100); }, false},
      {"another row", "exact_kernel", [&](const void* a) { device->alter(&list(a).rows[7].row, 3); }, false},
      {"a row outside", "exact_kernel", [&](const void* a) { device->set(&list(a).rows[7].row, std::int64_t{1} << 40); }, false},
      {"no distance", "exact_kernel", [&](const void* a) { device->set(&list(a).rows[7].distance, 0.0); }, false},
      {"a block without rows", "exact_kernel", [&](const void* a) { device->set(&list(a).blocks[1].count, 0); }, true},
      {"a block with fewer rows", "exact_kernel", [&](const void* a) { device->alter(&list(a).blocks[1].count, -1); }, false},
      {"a block with too many rows", "exact_kernel", [&](const void* a) { device->set(&list(a).blocks[1].count, 1 << 20); }, false},
      {"the rows of another block", "exact_kernel", [&](const void* a) { device->alter(&list(a).blocks[1].first, 1); }, false},
      {"a label", "settle_kernel", [&](const void* a) { device->set(&list(a).chosen[7].label, std::int64_t{1}); }, true},
      {"a second label", "settle_kernel",
       [&](const void* a) { device->set(&list(a).chosen[cuda::k_open_rows + 7].label, std::int64_t{1}); }, false},
      {"no label", "settle_kernel", [&](const void* a) { device->set(&list(a).chosen[7].label, std::int64_t{-1}); }, false},
      {"the row of a label", "settle_kernel", [&](const void* a) { device->alter(&list(a).chosen[7].row, 1); }, false},
      {"both labels", "settle_kernel",
       [&](const void* a) {
         for (const int twin : {0, cuda::k_open_rows}) device->set(&list(a).chosen[twin + 7].label, std::int64_t{1});
       },
       true},
  };
  for (const change& each : changes) {
    SCOPED_TRACE(each.what);
    device->strikes = {{each.kernel, 0, each.make}};
    const auto [seen, found] = this->call(points, centroids, this->how(protection::correct));
    EXPECT_TRUE(device->strikes[0].met());
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(found, expected) << to_json(seen);
    device->strikes = {{each.kernel, 0, each.make}};
    const auto [unseen, bare] = this->call(points, centroids, this->how(protection::off));
    EXPECT_EQ(unseen.detected, 0u);
    if (each.seen_without) {
      EXPECT_NE(std::vector<double>(bare), expected);
    }
  }
}

// The nearest centroid as the decision leaves it.
TYPED_TEST(kmeans_open_rows, faults_in_the_search) {
  const test::current_device_guard here(std::make_shared<simt::emulated_device>());
  const auto points = this->far_points(200, 6, 3), centroids = this->far_points(5, 6, 4);
  const auto [clean, expected] = this->call(points, centroids, this->how(protection::correct));
  ASSERT_EQ(clean.verdict, verdict::clean);
  int decisions = 0, changed = 0;
  for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
    for (std::int64_t visit = 0; visit < 3; ++visit) {
      for (std::uint64_t seed = 0; seed < (test::sampled() ? 3u : 12u); ++seed) {
        inject::request fault = fault_at(kmeans::site::index, static_cast<inject::model>(model), seed, visit);
        fault.bit = static_cast<int>(seed % 3);
        const inject::plan faults({fault});
        SCOPED_TRACE(std::string(inject::k_model_names[model]) + ", visit " + std::to_string(visit) + ", seed " + std::to_string(seed));
        const auto [seen, found] = this->call(points, centroids, this->how(protection::correct, &faults));
        for (const event& each : seen.events) decisions += std::string(each.site) == "kmeans.inertia";
        if (seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(fault.model, inject::model::stuck_at);
        } else {
          EXPECT_EQ(found, expected) << to_json(seen);
        }
        const auto [unseen, bare] = this->call(points, centroids, this->how(protection::off, &faults));
        changed += bare != expected;
      }
    }
  }
  EXPECT_GT(decisions, 0) << "no fault struck a decision";
  EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
}

// Blocks that find no room in the list decide their rows themselves.
TYPED_TEST(kmeans_open_rows, more_rows_than_the_list_holds) {
  const test::current_device_guard here(std::make_shared<simt::emulated_device>());
  const auto points = this->far_points(cuda::k_open_rows / 2 * 3 + 1200, 1, 5), centroids = this->far_points(4, 1, 6);
  const auto [seen, found] = this->call(points, centroids, this->how(protection::correct));
  EXPECT_EQ(seen.verdict, verdict::clean);
  this->expect_nearest(points, centroids, found);
}

}  // namespace
}  // namespace ballast::kmeans
