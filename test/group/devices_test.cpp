// K-Means on several devices of one process, on the emulator: the same bits for any number of devices, faults of the messages between
// their threads, injected faults, and what is refused.
// Layer: backend tests.
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "core/counter_rng.hpp"
#include "group/devices_shape.hpp"
#include "group/state.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/several_devices.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

using test::k_clusters;
using test::k_features;

template <class T>
struct scene {
  std::int64_t m = 2700;  // three segments
  std::vector<T> points, weights, given;
  options wanted{.max_iter = 12, .seed = 3};
  protection level = protection::correct;
  bool weighted = false, progress = false;

  scene() {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t f = 0; f < k_features; ++f) {
        const auto index = static_cast<std::uint64_t>(i * k_features + f);
        const double noise = core::random_uniform(1, 0, index) + core::random_uniform(1, 1, index) - 1;
        points.push_back(static_cast<T>((f == 2 ? 1000 : 0) + 3.0 * static_cast<double>((i * 7 + f * 3) % 5) + 4 * noise));
      }
      weights.push_back(static_cast<T>(i % 11 == 0 ? 0 : 0.25 + core::random_uniform(1, 2, static_cast<std::uint64_t>(i))));
    }
    // One of the given centroids is far from all points: its cluster is empty at first.
    given.assign(points.begin(), points.begin() + std::ptrdiff_t{k_clusters} * k_features);
    for (int f = 0; f < k_features; ++f) given[static_cast<std::size_t>(f)] += 500;
  }
  data<T> operands() const {
    data<T> made{.points = row_major<const T>(points.data(), m, k_features)};
    if (weighted) made.weights = weights;
    if (wanted.init == init::given) made.centroids = row_major<const T>(given.data(), k_clusters, k_features);
    return made;
  }
};

template <class T>
struct outcome {
  std::vector<T> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int iterations = 0;
  stop_reason stopped{};
  ballast::report report;

  bool operator==(const outcome& other) const {
    return centroids == other.centroids && labels == other.labels && iterations == other.iterations && stopped == other.stopped &&
           std::bit_cast<std::uint64_t>(inertia) == std::bit_cast<std::uint64_t>(other.inertia);
  }
};

// `devices` empty: a call without a group.
template <class T>
outcome<T> fit_on(const std::vector<int>& devices, const scene<T>& what, const std::vector<wire::wire_fault>& faults = {}) {
  execution where{.backend = backend::cuda, .threads = 2, .protection = what.level};
  if (!devices.empty()) {
    where.group = group::devices(devices, {.resend_after = 0.01});
    where.group.internal()->faults = faults;
  }
  call now{.throw_on_uncorrectable = false};
  int seen = 0;
  if (what.progress) now.on_progress = [&](const progress&) { ++seen; };
  model<T> found = fit(what.operands(), k_clusters, what.wanted, where, now);
  EXPECT_EQ(seen > 0, what.progress);
  outcome<T> made{{found.centroids.data(), found.centroids.data() + found.centroids.size()},
                  std::move(found.labels),
                  found.inertia,
                  found.iterations,
                  found.stopped,
                  std::move(found.report)};
  return made;
}

const std::vector<int> k_lists[] = {{0}, {0, 1}, {2, 0, 1}, {1, 1}};

template <class T>
class devices : public testing::Test {
 protected:
  // With different numbers of multiprocessors, so that their blocks have other shares.
  test::several_devices three_{4, 2, 3};
};
using reals = testing::Types<float, double>;
TYPED_SUITE(devices, reals, test::number_names);

template <class T>
void expect_same_bits(const scene<T>& what) {
  const outcome<T> alone = fit_on<T>({}, what);
  EXPECT_EQ(alone.report.verdict, what.level == protection::off ? alone.report.verdict : verdict::clean);
  for (const std::vector<int>& each : k_lists) {
    const outcome<T> made = fit_on<T>(each, what);
    EXPECT_TRUE(made == alone) << each.size() << " devices: inertia " << made.inertia << " instead of " << alone.inertia << ", "
                               << made.iterations << " iterations instead of " << alone.iterations;
    EXPECT_EQ(made.report.detected, 0u);
    EXPECT_EQ(made.report.backend, backend::cuda);
  }
}

TYPED_TEST(devices, have_the_bits_of_one) { expect_same_bits(scene<TypeParam>()); }

TYPED_TEST(devices, have_the_bits_of_one_with_weights_and_several_runs) {
  scene<TypeParam> what;
  what.weighted = true;
  what.wanted.n_init = 2;
  expect_same_bits(what);
}

// The driver runs the iterations: a cluster is empty, or the call has a callback.
TYPED_TEST(devices, have_the_bits_of_one_when_the_host_iterates) {
  scene<TypeParam> what;
  what.wanted.init = init::given;
  what.weighted = true;
  expect_same_bits(what);
  what.progress = true;
  what.weighted = false;
  what.wanted.max_iter = 4;
  expect_same_bits(what);
}

TYPED_TEST(devices, have_the_bits_of_one_from_random_points_and_without_protection) {
  scene<TypeParam> what;
  what.wanted.init = init::random;
  what.weighted = true;
  expect_same_bits(what);
  what.level = protection::off;
  expect_same_bits(what);
}

TYPED_TEST(devices, have_the_bits_of_one_from_candidates) {
  scene<TypeParam> what;
  what.wanted.init = init::kmeans_parallel;
  expect_same_bits(what);
  what.weighted = true;
  expect_same_bits(what);
}

// Features with a few large values, for which the host adds in double.
TYPED_TEST(devices, have_the_bits_of_one_with_outlying_values) {
  scene<TypeParam> what;
  what.points[7 * k_features] = static_cast<TypeParam>(1e30);
  what.points[2650 * k_features + 3] = static_cast<TypeParam>(-1e29);
  what.wanted.max_iter = 3;
  expect_same_bits(what);
}

TYPED_TEST(devices, predict_and_transform_as_one) {
  using T = TypeParam;
  const scene<T> what;
  data<T> from = what.operands();
  from.centroids = row_major<const T>(what.points.data(), k_clusters, k_features);
  const execution one{.backend = backend::cuda};
  const prediction alone = predict(from, one);
  const distances<T> values = transform(from, one);
  for (const std::vector<int>& each : k_lists) {
    const execution where{.group = group::devices(each)};
    const prediction made = predict(from, where);
    EXPECT_EQ(made.labels, alone.labels);
    EXPECT_EQ(made.inertia, alone.inertia);
    const distances<T> far = transform(from, where);
    EXPECT_TRUE(std::equal(far.values.data(), far.values.data() + far.values.size(), values.values.data()));
    EXPECT_EQ(made.report.verdict, verdict::clean);
  }
}

// Faults of the messages between the threads, at messages all over a fit.
TYPED_TEST(devices, survive_faults_of_messages) {
  scene<TypeParam> what;
  what.wanted.max_iter = 3;
  const outcome<TypeParam> clean = fit_on<TypeParam>({0, 1}, what);
  int repaired = 0;
  std::uint64_t message = 0;
  for (const wire::fault each : wire::k_faults) {
    if (each == wire::fault::lost_rank) continue;
    for (int number = 0; number < (test::sampled() ? 3 : 12); ++number, message += 7) {
      const wire::wire_fault one{each, number % 2, message % 60, 1, message};
      const outcome<TypeParam> made = fit_on<TypeParam>({0, 1}, what, {one});
      EXPECT_TRUE(made == clean) << "fault " << static_cast<int>(each) << " at message " << one.message;
      EXPECT_EQ(made.report.uncorrectable, 0u);
      repaired += made.report.detected > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(repaired, 0);
}

TYPED_TEST(devices, end_with_an_error_when_a_thread_is_lost) {
  scene<TypeParam> what;
  what.wanted.max_iter = 3;
  EXPECT_THROW((void)fit_on<TypeParam>({0, 1}, what, {{wire::fault::lost_rank, 1, 20}}), rank_lost_error);
}

// Every site of K-Means on one of three devices: the fault is repaired, or it is reported; and without protection it reaches the output.
TYPED_TEST(devices, repair_faults_of_one_device) {
  scene<TypeParam> what;
  what.wanted.max_iter = 4;
  const outcome<TypeParam> clean = fit_on<TypeParam>({0, 1, 2}, what);
  const inject::site sites[] = {site::points, site::product, site::label, site::sum, site::norm, site::centroid, site::total, site::shift};
  int struck = 0, reached = 0;
  for (const inject::site each : sites) {
    for (std::uint64_t seed = 0; seed < (test::sampled() ? 3u : 9u); ++seed) {
      const inject::plan faults({{.site = each, .seed = seed, .bit = sizeof(TypeParam) == 4 ? 29 : 61}});
      const inject::scope inside(&faults);
      outcome<TypeParam> made;
      ASSERT_NO_THROW(made = fit_on<TypeParam>({0, 1, 2}, what)) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      EXPECT_EQ(made.report.uncorrectable, 0u) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      EXPECT_EQ(made.labels, clean.labels) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      EXPECT_EQ(made.centroids, clean.centroids) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      struck += made.report.detected > 0 ? 1 : 0;
      scene<TypeParam> unprotected = what;
      unprotected.level = protection::off;
      try {
        reached += fit_on<TypeParam>({0, 1, 2}, unprotected) == clean ? 0 : 1;
      } catch (const invalid_argument_error&) {
        ++reached;  // the devices hold different centroids, which they see without protection, too
      }
    }
  }
  EXPECT_GT(struck, 4);
  EXPECT_GT(reached, 3);
}

// The totals of the driver are struck on one device while a cluster is empty: all devices look for its point again.
TYPED_TEST(devices, repair_totals_while_a_cluster_is_empty) {
  scene<TypeParam> what;
  what.wanted.init = init::given;
  what.wanted.max_iter = 3;
  const outcome<TypeParam> clean = fit_on<TypeParam>({0, 1, 2}, what);
  int struck = 0;
  for (std::uint64_t seed = 0; seed < (test::sampled() ? 4u : 12u); ++seed) {
    const inject::plan faults({{.site = site::total, .seed = seed, .bit = 61}});
    const inject::scope inside(&faults);
    outcome<TypeParam> made;
    ASSERT_NO_THROW(made = fit_on<TypeParam>({0, 1, 2}, what)) << "seed " << seed;
    EXPECT_TRUE(made == clean) << "seed " << seed;
    struck += made.report.detected > 0 ? 1 : 0;
  }
  EXPECT_GT(struck, 0);
}

TYPED_TEST(devices, refuse_what_they_cannot) {
  using T = TypeParam;
  scene<T> what;
  EXPECT_THROW((void)group::devices({}), invalid_argument_error);
  EXPECT_THROW((void)group::devices({0, -1}), invalid_argument_error);
  EXPECT_THROW((void)fit_on<T>({0, 3}, what), invalid_argument_error);
  const execution two{.group = group::devices({0, 1})};
  execution on_host = two;
  on_host.backend = backend::cpu;
  EXPECT_THROW((void)fit(what.operands(), k_clusters, {}, on_host), unsupported_error);
  execution other_scheme = two;
  other_scheme.scheme = "dmr";
  EXPECT_THROW((void)fit(what.operands(), k_clusters, {}, other_scheme), unsupported_error);
  int stream = 0;
  EXPECT_THROW((void)fit(what.operands(), k_clusters, {}, two, {.stream = &stream}), invalid_argument_error);
  // The row of a value that a device other than the first has.
  what.points[2600 * k_features + 1] = std::numeric_limits<T>::quiet_NaN();
  try {
    (void)fit(what.operands(), k_clusters, {}, two);
    ADD_FAILURE() << "a NaN was taken";
  } catch (const invalid_argument_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("row 2600, column 1"), std::string::npos) << refused.what();
  }
  // A callback's exception leaves the call, and the other threads end.
  call now;
  now.on_progress = [](const progress&) { throw std::length_error("enough"); };
  EXPECT_THROW((void)fit(data<T>{.points = row_major<const T>(scene<T>().points.data(), 2700, k_features)}, k_clusters, {}, two, now),
               std::length_error);
}

}  // namespace
}  // namespace ballast::kmeans
