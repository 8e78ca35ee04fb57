// K-Means on a group: the same bits for any number of ranks and any division of the rows, with faults of the wire, with faults inside a
// rank, and after ranks were lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "core/counter_rng.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

using test::quick;
using wire::fault;
using wire::switchboard;
using wire::wire_fault;

// Points around centres of different sizes, far from the origin in one feature, with weights.
template <class T>
struct point_set {
  std::int64_t m, n;
  std::vector<T> points, weights;
  point_set(std::int64_t rows, std::int64_t columns) : m(rows), n(columns) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t f = 0; f < n; ++f) {
        const auto index = static_cast<std::uint64_t>(i * n + f);
        const double noise = core::random_uniform(1, 0, index) + core::random_uniform(1, 1, index) - 1;
        const double centre = 3.0 * static_cast<double>((i * 7 + f * 3) % 5);
        points.push_back(static_cast<T>((f == 2 ? 1000 : 0) + (f == 3 ? 1e-3 : 1) * (centre + 2 * noise)));
      }
      weights.push_back(static_cast<T>(i % 11 == 0 ? 0 : 0.25 + core::random_uniform(1, 2, static_cast<std::uint64_t>(i))));
    }
  }
  data<T> rows(std::int64_t first, std::int64_t count, bool weighted) const {
    data<T> made;
    made.points = row_major<const T>(points.data() + first * n, count, n);
    if (weighted && count > 0) made.weights = {weights.data() + first, static_cast<std::size_t>(count)};
    return made;
  }
};

// The rows of a rank: uneven blocks, an empty one among them from four ranks on.
std::int64_t first_row(std::int64_t m, int ranks, int rank) {
  if (rank >= ranks) return m;
  if (ranks >= 4 && rank == 2) return first_row(m, ranks, 1) + 1;  // rank 1 has one row
  if (ranks >= 4 && rank == 3) return first_row(m, ranks, 2);      // rank 2 has none
  return m * rank * rank / (ranks * ranks);
}

struct scene {
  bool weighted = false;
  kmeans::init init = kmeans::init::kmeans_plus_plus;
  int n_init = 1;
  int clusters = 6;
  protection level = protection::correct;
  bool reload = true;
  double tol = 1e-4;
};

// The results that the ranks have stored together.
template <class T>
struct outcome {
  std::vector<T> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int iterations = 0;
  stop_reason stopped{};
  int ended = 0, lost = 0, errors = 0;
  std::vector<report> reports;
  std::string message;
  std::vector<std::uint64_t> messages;
  bool alike = true;  // all ranks that ended stored the same centroids, inertia and iterations

  bool same_numbers(const outcome& other) const {
    return centroids == other.centroids && std::bit_cast<std::uint64_t>(inertia) == std::bit_cast<std::uint64_t>(other.inertia) &&
           iterations == other.iterations && stopped == other.stopped;
  }
};

// The first centroids of init::given: one far from all points, so that a cluster is empty at first.
template <class T>
std::vector<T> given_centroids(const point_set<T>& set, int clusters) {
  std::vector<T> made(set.points.begin(), set.points.begin() + clusters * set.n);
  for (std::int64_t f = 0; f < set.n; ++f) made[static_cast<std::size_t>(f)] += 500;
  return made;
}

template <class T>
outcome<T> fit_on(int ranks, const point_set<T>& set, const scene& what, const std::vector<wire_fault>& faults = {},
                  const inject::plan* inside = nullptr, double patience = 60) {
  const auto board = std::make_shared<switchboard>(ranks, faults);
  outcome<T> made;
  made.labels.assign(static_cast<std::size_t>(set.m), -1);
  const std::vector<T> given = given_centroids(set, what.clusters);
  std::mutex mutex;
  const auto endings = test::run_ranks(board, quick(patience), [&](int rank, const group& own) {
    const std::int64_t first = first_row(set.m, ranks, rank), count = first_row(set.m, ranks, rank + 1) - first;
    data<T> rows = set.rows(first, count, what.weighted);
    if (what.init == init::given) rows.centroids = row_major<const T>(given.data(), what.clusters, set.n);
    if (what.reload) rows.reload = [&](std::int64_t from, std::int64_t some) { return set.rows(from, some, what.weighted); };
    const inject::scope struck(rank == ranks - 1 ? inside : nullptr);
    const model<T> found =
        fit(rows, what.clusters, {.init = what.init, .n_init = what.n_init, .max_iter = 40, .tol = what.tol, .seed = 3},
            {.backend = backend::cpu, .threads = 2, .protection = what.level, .group = own}, {.throw_on_uncorrectable = false});
    const std::lock_guard lock(mutex);
    outcome<T> mine;
    mine.centroids.assign(found.centroids.data(), found.centroids.data() + what.clusters * set.n);
    mine.inertia = found.inertia;
    mine.iterations = found.iterations;
    mine.stopped = found.stopped;
    if (made.ended++ > 0) made.alike = made.alike && made.same_numbers(mine);
    made.centroids = mine.centroids;
    made.inertia = mine.inertia;
    made.iterations = mine.iterations;
    made.stopped = mine.stopped;
    std::ranges::copy(found.labels, made.labels.begin() + first);
    made.reports.push_back(found.report);
  });
  test::add_endings(endings, made);
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
class kmeans_group : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(kmeans_group, precisions, test::number_names);

std::vector<scene> scenes() {
  return {{.init = init::given},
          {.weighted = true, .init = init::given},
          {},
          {.weighted = true},
          {.weighted = true, .init = init::random, .n_init = 3}};
}

TYPED_TEST(kmeans_group, same_bits_for_any_ranks) {
  const point_set<TypeParam> set(1531, 7);
  for (const scene& what : scenes()) {
    const auto one = fit_on(1, set, what);
    ASSERT_EQ(one.errors, 0) << one.message;
    EXPECT_EQ(one.reports[0].verdict, verdict::clean);
    EXPECT_GT(one.iterations, 2);
    for (const int ranks : {2, 3, 4, 7, 12}) {
      const auto some = fit_on(ranks, set, what);
      ASSERT_EQ(some.errors, 0) << some.message;
      EXPECT_EQ(some.ended, ranks);
      EXPECT_TRUE(some.alike);
      EXPECT_TRUE(some.same_numbers(one)) << ranks << " ranks: " << some.inertia << ", " << one.inertia << "; " << some.iterations << ", "
                                          << one.iterations;
      EXPECT_EQ(some.labels, one.labels);
      for (const report& each : some.reports) EXPECT_EQ(each.verdict, verdict::clean) << to_json(each);
    }
  }
}

// Alone and on a group the sums are rounded differently; results agree to the rounding of the data.
TYPED_TEST(kmeans_group, agrees_with_a_call_without_group) {
  const point_set<TypeParam> set(1531, 7);
  for (const bool weighted : {false, true}) {
    const auto found = fit_on(3, set, {.weighted = weighted, .init = init::given});
    const std::vector<TypeParam> given = given_centroids(set, 6);
    data<TypeParam> all = set.rows(0, set.m, weighted);
    all.centroids = row_major<const TypeParam>(given.data(), 6, set.n);
    const model<TypeParam> alone = fit(all, 6, {.init = init::given, .max_iter = 40}, {.backend = backend::cpu});
    EXPECT_EQ(found.labels, alone.labels);
    EXPECT_EQ(found.iterations, alone.iterations);
    EXPECT_NEAR(found.inertia, alone.inertia, 1e-6 * alone.inertia);
    const double u = sizeof(TypeParam) == 4 ? 0x1p-24 : 0x1p-53;
    for (std::size_t e = 0; e < found.centroids.size(); ++e)
      EXPECT_NEAR(found.centroids[e], alone.centroids.data()[e], 4 * u * (std::abs(found.centroids[e]) + 16));
  }
}

// The centroids are those of sums in extended precision, rounded.
TYPED_TEST(kmeans_group, centroids_are_means) {
  const point_set<TypeParam> set(997, 5);
  const auto found = fit_on(3, set, {.weighted = true, .tol = 0});
  ASSERT_EQ(found.stopped, stop_reason::labels_unchanged);
  for (int j = 0; j < 6; ++j) {
    for (std::int64_t f = 0; f < set.n; ++f) {
      long double sum = 0, weight = 0;
      for (std::int64_t i = 0; i < set.m; ++i) {
        if (found.labels[static_cast<std::size_t>(i)] != j) continue;
        const long double w = set.weights[static_cast<std::size_t>(i)];
        sum += w * static_cast<long double>(set.points[static_cast<std::size_t>(i * set.n + f)]);
        weight += w;
      }
      // Points and centroids are rounded once each in normalized coordinates, whose size is that of the data around their mean, at most 16.
      const double u = sizeof(TypeParam) == 4 ? 0x1p-24 : 0x1p-53, mean = static_cast<double>(sum / weight);
      EXPECT_NEAR(found.centroids[static_cast<std::size_t>(j * set.n + f)], mean, 4 * u * (std::abs(mean) + 16));
    }
  }
}

TYPED_TEST(kmeans_group, predict_and_transform) {
  using T = TypeParam;
  const point_set<T> set(700, 6);
  const std::vector<T> given(set.points.begin(), set.points.begin() + 5 * set.n);
  const auto centroids = row_major<const T>(given.data(), 5, set.n);
  data<T> all = set.rows(0, set.m, true);
  all.centroids = centroids;
  const prediction alone = predict(all, {.backend = backend::cpu});
  const distances<T> far = transform(all, {.backend = backend::cpu});
  double first = std::numeric_limits<double>::quiet_NaN();
  for (const int ranks : {1, 3, 4}) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(set.m));
    std::vector<T> values(static_cast<std::size_t>(set.m * 5));
    std::mutex mutex;
    test::run_ranks(ranks, [&](int rank, const group& own) {
      const std::int64_t begin = first_row(set.m, ranks, rank), count = first_row(set.m, ranks, rank + 1) - begin;
      data<T> rows = set.rows(begin, count, true);
      rows.centroids = centroids;
      const execution where = {.backend = backend::cpu, .threads = 1, .group = own};
      const prediction found = predict(rows, where);
      const distances<T> mine = transform(rows, where);
      const std::lock_guard lock(mutex);
      std::ranges::copy(found.labels, labels.begin() + begin);
      std::copy_n(mine.values.data(), count * 5, values.begin() + begin * 5);
      if (std::isnan(first)) first = found.inertia;
      EXPECT_EQ(found.inertia, first);
      EXPECT_NEAR(found.inertia, alone.inertia, 1e-12 * alone.inertia);
    });
    EXPECT_EQ(labels, alone.labels);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), far.values.data()));
  }
}

class kmeans_group_faults : public testing::TestWithParam<fault> {};

// One fault at one message, at messages all over the call: the same bits, and a report on every rank.
TEST_P(kmeans_group_faults, wire) {
  const point_set<float> set(400, 4);
  const scene what{.weighted = true, .clusters = 4};
  const auto clean = fit_on(3, set, what);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  std::uint64_t detected = 0, tried = 0, lost = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::uint64_t all = clean.messages[static_cast<std::size_t>(rank)];
    for (std::uint64_t number = static_cast<std::uint64_t>(rank); number < all; number += all / (test::sampled() ? 10 : 40) + 1) {
      const auto found = fit_on(3, set, what, {{GetParam(), rank, number, 1, number}});
      ++tried;
      lost += static_cast<std::uint64_t>(found.lost);
      if (GetParam() == fault::lost_rank && found.errors == 2 && found.message.find("before all ranks knew") != std::string::npos) continue;
      ASSERT_EQ(found.errors, 0) << "rank " << rank << ", message " << number << " of " << all << ": " << found.message;
      ASSERT_EQ(found.ended + found.lost, 3);
      ASSERT_TRUE(found.alike && found.same_numbers(clean)) << "rank " << rank << ", message " << number << " of " << all;
      for (std::int64_t i = 0; i < set.m; ++i) {
        // The labels of a lost rank are stored by no one else.
        const bool stored = found.labels[static_cast<std::size_t>(i)] >= 0;
        ASSERT_TRUE(stored || found.lost > 0);
        ASSERT_TRUE(!stored || found.labels[static_cast<std::size_t>(i)] == clean.labels[static_cast<std::size_t>(i)])
            << "rank " << rank << ", message " << number << " of " << all << ", row " << i;
      }
      for (const report& each : found.reports) {
        EXPECT_NE(each.verdict, verdict::uncorrectable);
        // A rank that has ended before another was lost does not report that.
        EXPECT_TRUE(GetParam() == fault::lost_rank || each.detected == found.reports[0].detected)
            << number << to_json(each) << to_json(found.reports[0]);
        detected += each.detected;
      }
    }
  }
  EXPECT_GT(tried, 20U);
  const bool harmless = GetParam() == fault::repeated || GetParam() == fault::late;
  EXPECT_TRUE(harmless || detected > 0);
  EXPECT_TRUE(GetParam() != fault::lost_rank || lost > tried * 3 / 4) << lost << " of " << tried;
}

INSTANTIATE_TEST_SUITE_P(all, kmeans_group_faults, testing::ValuesIn(wire::k_faults));

// Two ranks lost, one after the other; runs of n_init before and after.
TEST(kmeans_group_lost, two_ranks) {
  const point_set<double> set(600, 5);
  const scene what{.n_init = 2, .clusters = 4};
  const auto clean = fit_on(5, set, what);
  for (std::uint64_t step = 0; step < 6; ++step) {
    const std::uint64_t first = clean.messages[1] * (step + 1) / 8, second = clean.messages[3] * (step + 2) / 8;
    const auto found = fit_on(5, set, what, {{fault::lost_rank, 1, first, 1, 0}, {fault::lost_rank, 3, second, 1, 0}});
    ASSERT_EQ(found.errors, 0) << found.message;
    EXPECT_EQ(found.lost, 2);
    EXPECT_EQ(found.ended, 3);
    EXPECT_TRUE(found.alike && found.same_numbers(clean)) << step;
  }
}

TEST(kmeans_group_lost, without_rows_to_load_the_call_ends) {
  const point_set<float> set(300, 3);
  const auto found = fit_on(3, set, {.clusters = 3, .reload = false}, {{fault::lost_rank, 1, 40, 1, 0}});
  EXPECT_EQ(found.errors, 2);
  EXPECT_NE(found.message.find("lost 1"), std::string::npos) << found.message;
}

// A wire that stays damaged ends the call on all ranks; nothing is stored as if it were right.
TEST(kmeans_group_lost, damaged_for_good) {
  const point_set<float> set(300, 3);
  const auto found = fit_on(3, set, {.clusters = 3}, {{fault::bit, 1, 60, 1000000, 9}}, nullptr, 0.3);
  EXPECT_EQ(found.lost, 0);
  int right = 0;
  for (const report& each : found.reports) right += each.verdict != verdict::uncorrectable ? 1 : 0;
  EXPECT_EQ(right, 0);
}

// Without protection a bit of the wire goes into the result.
TEST(kmeans_group_protection, off) {
  const point_set<float> set(300, 3);
  const scene what{.clusters = 3, .level = protection::off};
  const auto clean = fit_on(3, set, what);
  int different = 0;
  for (std::uint64_t number = 0; number < clean.messages[1]; number += 3)
    different += fit_on(3, set, what, {{fault::bit, 1, number, 1, number}}, nullptr, 1).same_numbers(clean) ? 0 : 1;
  EXPECT_GT(different, 0);
}

// Faults inside a rank are repaired there; every rank reports them.
TEST(kmeans_group_protection, faults_inside_a_rank) {
  const point_set<float> set(900, 6);
  const scene what{.weighted = true, .clusters = 5};
  const auto clean = fit_on(3, set, what);
  // The top bit of the exponent, or of a label.
  const std::pair<const char*, int> strikes[] = {
      {"kmeans.range", 62},    {"kmeans.normalization", 30}, {"kmeans.points", 30},    {"kmeans.product", 30}, {"kmeans.minimum", 30},
      {"kmeans.index", 30},    {"kmeans.label", 30},         {"kmeans.sum", 62},       {"kmeans.count", 62},   {"kmeans.total", 62},
      {"kmeans.centroid", 30}, {"kmeans.shift", 62},         {"kmeans.tolerance", 62}, {"kmeans.inertia", 62}};
  for (const auto& [site, bit] : strikes) {
    // The vectors of the processor decide which number a seed strikes. One that is overwritten later reaches nothing: then the next seed.
    bool seen = false;
    for (int seed = 5; seed < 15 && !seen; ++seed) {
      const inject::plan faults({inject::parse_request(std::string("site=") + site + ",model=bit_flip,bit=" + std::to_string(bit) +
                                                       ",count=1,seed=" + std::to_string(seed))});
      const auto found = fit_on(3, set, what, {}, &faults);
      ASSERT_EQ(found.errors, 0) << site << ": " << found.message;
      EXPECT_TRUE(found.alike && found.same_numbers(clean)) << site;
      EXPECT_EQ(found.labels, clean.labels) << site;
      seen = found.reports.front().detected > 0;
      for (const report& each : found.reports) {
        EXPECT_EQ(each.detected > 0, seen) << site << ": every rank reports it";
        EXPECT_NE(each.verdict, verdict::uncorrectable) << site;
        EXPECT_EQ(std::ranges::any_of(each.events, [](const event& one) { return one.rank == 2; }), seen) << site;
      }
    }
    EXPECT_TRUE(seen) << site;
  }
}

TEST(kmeans_group_errors, refused_on_all_ranks) {
  point_set<float> set(300, 3);
  set.points[250 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();
  const auto found = fit_on(3, set, {.clusters = 3});
  EXPECT_EQ(found.errors, 3);
  EXPECT_NE(found.message.find("row 250, column 1"), std::string::npos) << found.message;

  std::atomic<int> refused{0};
  test::run_ranks(3, [&](int rank, const group& own) {
    const point_set<float> here(30, 3);
    try {
      (void)fit(here.points.empty() ? matrix_view<const float>{} : row_major<const float>(here.points.data(), 10, 3), rank == 1 ? 4 : 3, {},
                {.backend = backend::cpu, .group = own});
    } catch (const invalid_argument_error&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

// A callback for progress on some ranks only: all take the same path, with the bits of a fit without any.
TEST(kmeans_group_progress, on_some_ranks) {
  const point_set<double> set(801, 5);
  const auto clean = fit_on(3, set, {});
  ASSERT_EQ(clean.errors, 0) << clean.message;
  for (const int with : {0b001, 0b100, 0b011, 0b111}) {
    std::atomic<int> right{0};
    const auto endings = test::run_ranks(std::make_shared<switchboard>(3), quick(5), [&](int rank, const group& own) {
      const std::int64_t first = first_row(set.m, 3, rank), count = first_row(set.m, 3, rank + 1) - first;
      std::vector<double> told;
      call now;
      if ((with >> rank & 1) != 0) now.on_progress = [&](const progress& seen) { told.push_back(seen.value); };
      const model<double> found =
          fit(set.rows(first, count, false), 6, {.max_iter = 40, .seed = 3}, {.backend = backend::cpu, .threads = 1, .group = own}, now);
      EXPECT_EQ(found.report.verdict, verdict::clean);
      EXPECT_EQ(static_cast<int>(told.size()), (with >> rank & 1) != 0 ? found.iterations : 0);
      for (std::size_t i = 1; i < told.size(); ++i) EXPECT_LE(told[i], told[i - 1]) << "inertia after iteration " << i;
      EXPECT_TRUE(std::equal(clean.centroids.begin(), clean.centroids.end(), found.centroids.data()));
      right += std::bit_cast<std::uint64_t>(found.inertia) == std::bit_cast<std::uint64_t>(clean.inertia) ? 1 : 0;
    });
    for (const auto& each : endings) EXPECT_FALSE(each.error) << "callbacks " << with;
    EXPECT_EQ(right, 3) << "callbacks " << with;
  }
}

// One rank's options, or its protection, are refused, or are others than those of the rest.
TEST(kmeans_group_errors, refused_on_one_rank) {
  const point_set<double> set(90, 4);
  std::atomic<int> named{0}, own_error{0}, unlike{0};
  const auto start = std::chrono::steady_clock::now();
  const auto endings = test::run_ranks(std::make_shared<switchboard>(3), quick(60), [&](int rank, const group& own) {
    for (int i = 0; i < 3; ++i) {
      execution where{.backend = backend::cpu, .threads = 1, .group = own};
      if (rank == 1 && i == 1) where.backend = backend::cuda;
      if (rank == 1 && i == 2) where.protection = protection::off;
      try {
        (void)fit(set.rows(30 * rank, 30, false), rank == 1 && i == 0 ? 0 : 4, {.max_iter = 4, .seed = 3}, where);
        ADD_FAILURE() << "rank " << rank << ", call " << i;
      } catch (const std::exception& seen) {
        const std::string text = seen.what();
        named += text.find("rank 1 of the group left the call") != std::string::npos ? 1 : 0;
        own_error +=
            dynamic_cast<const invalid_argument_error*>(&seen) != nullptr || dynamic_cast<const unsupported_error*>(&seen) != nullptr;
        unlike += text.find("expected the same call") != std::string::npos ? 1 : 0;
      }
      EXPECT_EQ(fit(set.rows(30 * rank, 30, false), 4, {.max_iter = 4, .seed = 3}, {.backend = backend::cpu, .threads = 1, .group = own})
                    .report.verdict,
                verdict::clean);
    }
  });
  for (const auto& each : endings) EXPECT_FALSE(each.error);
  EXPECT_EQ(named, 4);
  EXPECT_EQ(own_error, 5);
  EXPECT_EQ(unlike, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(kmeans_group_errors, not_on_a_group) {
  const std::vector<group> ranks = group::threads(1);
  const problem size{precision::f32, 100, 3, 4};
  EXPECT_THROW((plan<float>(size, {.init = init::kmeans_parallel}, {.group = ranks[0]})), unsupported_error);
  EXPECT_THROW((plan<float>({precision::f32, 100, 3, 4, 2}, {}, {.group = ranks[0]})), unsupported_error);
}

}  // namespace
}  // namespace ballast::kmeans
