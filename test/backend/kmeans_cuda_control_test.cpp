// Faults in single numbers that decide much on cuda: the state of the iterations, norms of centroids, and the bound of the scores. Each is
// computed twice, and what is handed out is right or a report says why not.
// Layer: backend tests, on the emulator.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
class kmeans_control : public testing::Test {
 protected:
  const test::current_device_guard guard_{std::make_shared<simt::emulated_device>()};

  static run::settings how(protection level, const inject::plan* faults = nullptr) {
    return {.backend = backend::cuda, .threads = 1, .protection = level, .throw_on_uncorrectable = false, .faults = faults};
  }

  // Strikes `where` with every model and several seeds; `call(settings)` returns a report and the numbers of its result.
  template <class Call>
  static void expect_repaired(inject::site where, std::int64_t visits, const Call& call) {
    const auto [clean, expected] = call(how(protection::correct));
    ASSERT_EQ(clean.verdict, verdict::clean);
    int detected = 0, changed = 0;
    for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
      for (std::uint64_t seed = 0; seed < (test::sampled() ? 6u : 24u); ++seed) {
        inject::request fault = fault_at(where, static_cast<inject::model>(model), seed, static_cast<std::int64_t>(seed) % visits);
        if (seed % 2 == 1) fault.bit = -1;
        const inject::plan faults({fault});
        SCOPED_TRACE(std::string(inject::k_model_names[model]) + " seed " + std::to_string(seed));
        const auto [seen, found] = call(how(protection::correct, &faults));
        detected += seen.detected > 0;
        if (seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(fault.model, inject::model::stuck_at);
        } else {
          EXPECT_EQ(found, expected) << to_json(seen);
        }
        const auto [unseen, bare] = call(how(protection::off, &faults));
        EXPECT_EQ(unseen.detected, 0u);
        changed += bare != expected;
      }
    }
    EXPECT_GT(detected, 0);
    EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
  }
};
TYPED_SUITE(kmeans_control, reals, test::number_names);

template <class T>
auto numbers_of(const model<T>& made) {
  std::vector<double> all(made.labels.begin(), made.labels.end());
  all.insert(all.end(), made.centroids.data(), made.centroids.data() + made.centroids.size());
  all.push_back(made.inertia);
  all.push_back(made.iterations);
  all.push_back(static_cast<double>(made.stopped));
  return all;
}

// Returns the report and the numbers of a fit from given centroids.
template <class T, class Points>
std::pair<report, std::vector<double>> few_iterations(const Points& points, int most, const run::settings& how) {
  const auto made =
      fit(points.view(), request<T>{.clusters = 5, .init = init::given, .centroids = points.rows(5), .max_iter = most, .tol = 0}, how);
  return {made.report, numbers_of(made)};
}

// Columns after the last centroid fill the last tile. Their scores never lead; the sign of one that is struck makes it lead. It must not
// hide the nearest centroid.
TYPED_TEST(kmeans_control, a_column_after_the_last_centroid) {
  using T = TypeParam;
  const auto points = clouds<T>(256, 6, 5, 21, 0.9);  // three such columns
  const auto call = [&](const run::settings& with) { return few_iterations<T>(points, 1, with); };
  const auto [clean, expected] = call(this->how(protection::correct));
  ASSERT_EQ(clean.verdict, verdict::clean);
  int changed = 0;
  for (std::uint64_t seed = 0; seed < (test::sampled() ? 96u : 256u); ++seed) {
    inject::request fault = fault_at(kmeans::site::product, inject::model::bit_flip, seed, static_cast<std::int64_t>(seed % 16));
    fault.bit = 8 * sizeof(T) - 1;
    const inject::plan faults({fault});
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [seen, found] = call(this->how(protection::correct, &faults));
    EXPECT_EQ(found, expected) << to_json(seen);
    const auto [unseen, bare] = call(this->how(protection::off, &faults));
    changed += bare != expected;
  }
  EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
}

// The number of iterations and the reason to stop, which the host takes from the device.
TYPED_TEST(kmeans_control, the_state_of_the_iterations) {
  using T = TypeParam;
  const auto points = clouds<T>(256, 6, 5, 21, 0.9);
  for (const int most : {3, 7}) {
    this->expect_repaired(kmeans::site::shift, 3, [&](const run::settings& how) { return few_iterations<T>(points, most, how); });
  }
}

// Labels wait on the device while the other runs of n_init follow.
TYPED_TEST(kmeans_control, labels_that_wait) {
  using T = TypeParam;
  const auto points = clouds<T>(200, 6, 5, 21, 0.9);
  std::uint64_t seed = 0;  // in the end that of a fit whose first run is the best
  const auto call = [&](const run::settings& how) {
    return fit(points.view(), request<T>{.clusters = 5, .init = init::random, .n_init = 2, .max_iter = 2, .tol = 0, .seed = seed}, how);
  };
  const auto first = [&] {
    return fit(points.view(), request<T>{.clusters = 5, .init = init::random, .max_iter = 2, .tol = 0, .seed = seed},
               this->how(protection::correct));
  };
  while (first().inertia != call(this->how(protection::correct)).inertia) ++seed;
  const auto clean = call(this->how(protection::correct));
  int changed = 0, detected = 0;
  for (std::uint64_t number = 0; number < 40; ++number) {
    inject::request fault = fault_at(kmeans::site::label, inject::model::bit_flip, number, static_cast<std::int64_t>(number) % 4);
    fault.bit = 0;
    const inject::plan faults({fault});
    const auto seen = call(this->how(protection::correct, &faults));
    EXPECT_EQ(seen.labels, clean.labels) << number;
    EXPECT_EQ(seen.inertia, clean.inertia) << number;
    detected += seen.report.detected > 0;
    changed += call(this->how(protection::off, &faults)).labels != clean.labels;
  }
  EXPECT_GT(detected, 0);
  EXPECT_GT(changed, 0);
}

// A norm starts the scores of a centroid and takes part in the limits of the row checks. Near ties: half-way between two centroids only an
// exact recheck tells which is nearer, and the bound of the scores decides which rows have one.
TYPED_TEST(kmeans_control, norms_and_the_bound_of_the_scores) {
  using T = TypeParam;
  for (const std::int64_t k : {5, 150}) {
    if (k == 150 && (sizeof(T) == 8 || test::sampled())) continue;
    const std::int64_t m = 128, n = 6;
    const auto centroids = clouds<T>(k, n, k, 3, 0.0);
    data_set<T> points{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t f = 0; f < n; ++f) {
        const auto at = [&](std::int64_t j) { return static_cast<double>(centroids.values[static_cast<std::size_t>(j * n + f)]); };
        const std::int64_t a = i % k, b = (i + 1 + i / k % (k - 1)) % k;
        points.values[static_cast<std::size_t>(i * n + f)] =
            static_cast<T>(at(a) + (at(b) - at(a)) * (0.5 + 1e-5 * (static_cast<double>(i % 6) - 2.5)));
      }
    }
    this->expect_repaired(kmeans::site::norm, 1, [&](const run::settings& how) {
      const auto made = predict(points.view(), centroids.view(), how);
      return std::pair(made.report, std::vector<double>(made.labels.begin(), made.labels.end()));
    });
  }
}

// The distances to the candidates of k-means++, which wait until one of them is taken: their potential must have the same bits again.
TYPED_TEST(kmeans_control, the_distances_to_the_candidates) {
  using T = TypeParam;
  const auto device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard here(device);
  const auto points = clouds<T>(700, 6, 5, 21, 0.9);
  const auto call = [&](protection level) {
    const auto made = fit(points.view(), request<T>{.clusters = 5, .max_iter = 2, .tol = 0, .seed = 3}, this->how(level));
    return std::pair(made.report, numbers_of(made));
  };
  const auto [clean, expected] = call(protection::correct);
  ASSERT_EQ(clean.verdict, verdict::clean);
  // Launch 0 takes the first centroid, the next one tries candidates.
  const auto change = [&](const void* of) {
    const auto& a = *static_cast<const cuda::seeding_arguments<T>*>(of);
    for (int j = 0; j < a.candidates.count; ++j)
      for (const std::int64_t row : {5, 6, 600}) device->set(a.distances + j * a.apart + row, T(0));
  };
  device->strikes = {{"seeding_kernel", 1, change}};
  const auto [seen, found] = call(protection::correct);
  EXPECT_TRUE(device->strikes[0].met());
  EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
  EXPECT_EQ(found, expected) << to_json(seen);
  device->strikes = {{"seeding_kernel", 1, [&](const void* of) {
                        const auto& a = *static_cast<const cuda::seeding_arguments<T>*>(of);
                        for (int j = 0; j < a.candidates.count; ++j)
                          for (std::int64_t row = 0; row < 650; ++row) device->set(a.distances + j * a.apart + row, T(0));
                      }}};
  const auto [unseen, bare] = call(protection::off);
  EXPECT_EQ(unseen.detected, 0u);
  EXPECT_NE(bare, expected);
}

// The counts and exponents of the columns, from which the frame of the points follows: without an alarm a wrong one would only be found
// where computing again cannot help.
TYPED_TEST(kmeans_control, the_statistics_of_the_columns) {
  using T = TypeParam;
  const auto device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard here(device);
  const auto points = clouds<T>(256, 6, 5, 21, 0.9);
  const auto call = [&](protection level) { return few_iterations<T>(points, 3, this->how(level)); };
  const auto [clean, expected] = call(protection::correct);
  ASSERT_EQ(clean.verdict, verdict::clean);
  const auto column = [](const void* of) {
    return static_cast<cuda::column_ranges<T>*>(static_cast<const cuda::fold_arguments*>(of)->sums) + 3;
  };
  const std::vector<std::function<void(const void*)>> changes = {
      [&](const void* a) { device->alter(&column(a)->others, 1 << 20); },
      [&](const void* a) { device->alter(&column(a)->exponents, -(1 << 30)); },
      [&](const void* a) { device->alter(&column(a)->zeros, 1); },
      [&](const void* a) { device->alter(&column(a)->below, 1); },
      // As where the one 0 that both begin with has a wrong bit 63.
      [&](const void* a) {
        device->flip(&column(a)->exponents, 63);
        device->flip(&column(a)->below, 63);
      },
  };
  for (std::size_t which = 0; which < changes.size(); ++which) {
    SCOPED_TRACE(which);
    device->strikes = {{"fold_kernel", 0, changes[which]}};
    const auto [seen, found] = call(protection::correct);
    EXPECT_TRUE(device->strikes[0].met());
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(found, expected) << to_json(seen);
  }
}

// The sums of the columns wait twice for their folds. The units of fixed point come from the ranges, and the largest values that are found
// later must have the same ones: a column whose range is too large, but not larger than that of others, would else lose bits unseen.
TYPED_TEST(kmeans_control, the_sums_of_the_columns_and_their_units) {
  using T = TypeParam;
  const auto device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard here(device);
  auto points = clouds<T>(600, 6, 5, 21, 0.9);
  for (std::size_t e = 3; e < points.values.size(); e += 6) points.values[e] /= 64;
  const auto call = [&](protection level) { return few_iterations<T>(points, 3, this->how(level)); };
  const auto [clean, expected] = call(protection::correct);
  ASSERT_EQ(clean.verdict, verdict::clean);
  using statistics = cuda::row_stats_arguments<T>;
  const auto folded = [](const void* of) {
    return static_cast<cuda::column_sums*>(static_cast<const cuda::fold_arguments*>(of)->sums) + 3;
  };
  const auto ranges = [](const void* of) {
    return static_cast<cuda::column_ranges<T>*>(static_cast<const cuda::fold_arguments*>(of)->sums) + 3;
  };
  struct change {
    const char* kernel;
    std::int64_t launch;
    std::function<void(const void*)> make;
  };
  const change changes[] = {
      {"row_stats_kernel", 0, [&](const void* a) { device->alter(&static_cast<const statistics*>(a)->columns[7].word[0], 1 << 24); }},
      {"row_stats_kernel", 0, [&](const void* a) { device->alter(&static_cast<const statistics*>(a)->columns_again[7].squares, 1); }},
      {"fold_kernel", 1, [&](const void* a) { device->alter(&folded(a)->plain, 1); }},
      {"fold_kernel", 1, [&](const void* a) { device->alter(&folded(a)->squares, 1000); }},
      {"fold_kernel", 2, [&](const void* a) { device->alter(&folded(a)->positive, 1); }},
      {"fold_kernel", 0, [&](const void* a) { device->alter(&ranges(a)->high, 0.25); }},
      {"fold_kernel", 0, [&](const void* a) { device->alter(&ranges(a)->low, -0.25); }},
  };
  for (const change& each : changes) {
    SCOPED_TRACE(each.kernel + std::to_string(&each - changes));
    device->strikes = {{each.kernel, each.launch, each.make}, {"row_stats_kernel", 1, [](const void*) {}}};
    const auto [seen, found] = call(protection::correct);
    EXPECT_TRUE(device->strikes[0].met());
    EXPECT_TRUE(device->strikes[1].met()) << "the statistics were not computed again";
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(found, expected) << to_json(seen);
  }
}

}  // namespace
}  // namespace ballast::kmeans
