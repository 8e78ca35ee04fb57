// Groups of ranks in C: an engine that is a table of functions, with faults, and NCCL.
// The ranks are threads. test/group tests what a group computes. These tests ask whether the calls reach it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "c/post_office.hpp"
#include "c/support.hpp"
#include "core/counter_rng.hpp"
#include "group/fake_nccl.hpp"

namespace ballast::test {
namespace {

class c_groups : public c_interface {
 protected:
  static constexpr std::int64_t k_rows = 900, k_features = 3, k_clusters = 4;
  c_groups() {
    for (std::uint64_t i = 0; i < k_rows * k_features; ++i)
      points_.push_back(static_cast<float>(10 * (i / k_features % 4) + core::random_uniform(5, 0, i)));
  }
  static std::int64_t first_row(int rank, int ranks) { return k_rows * rank / ranks; }

  struct outcome {
    std::vector<float> centroids = std::vector<float>(k_clusters * k_features);
    std::vector<std::int32_t> labels = std::vector<std::int32_t>(k_rows);
    double inertia = 0;
    std::uint64_t detected = 0, uncorrectable = 0;
  };
  // One fit on ranks that are threads.
  outcome fit_on(int ranks, const std::function<void(int, post_office::desk&)>& prepare = {}, const char* level = "correct") {
    outcome all;
    on_threads(
        ranks,
        [&](int r, ballast_group* group) {
          error failed;
          report found;
          options with;
          kmeans_plan plan;
          const std::int64_t first = first_row(r, ranks), count = first_row(r + 1, ranks) - first;
          std::vector<float> centroids(k_clusters * k_features);
          double inertia = 0;
          tensor points(points_.data() + first * k_features, {count, k_features});
          tensor middles(centroids, {k_clusters, k_features}), labels(all.labels.data() + first, {count});
          ASSERT_EQ(ballast_error_create(&failed), BALLAST_OK);
          const auto right = [&](std::int32_t status) { EXPECT_EQ(status, BALLAST_OK) << ballast_error_message(failed); };
          right(ballast_report_create(&found, failed));
          right(ballast_options_create("kmeans", &with, failed));
          right(ballast_options_set_integer(with, "points", count, failed));
          right(ballast_options_set_integer(with, "features", k_features, failed));
          right(ballast_options_set_integer(with, "clusters", k_clusters, failed));
          right(ballast_options_set_integer(with, "seed", 3, failed));
          right(ballast_options_set_integer(with, "threads", 1, failed));
          right(ballast_options_set_text(with, "protection", level, failed));
          right(ballast_options_set_group(with, group, failed));
          right(ballast_kmeans_plan_create(with, &plan, failed));
          const ballast_kmeans_data data = {sizeof data, points, nullptr, nullptr, nullptr, nullptr};
          const ballast_kmeans_results results = {sizeof results, middles, labels, &inertia, nullptr, nullptr};
          right(ballast_kmeans_fit(plan, &data, &results, nullptr, found, failed));
          ballast_summary seen{};
          seen.size = sizeof seen;
          right(ballast_report_summary(found, &seen, failed));
          if (r != 0) return;
          all.centroids = centroids;
          all.inertia = inertia;
          all.detected = seen.detected;
          all.uncorrectable = seen.uncorrectable;
        },
        prepare);
    return all;
  }
  std::vector<float> points_;
};

TEST_F(c_groups, a_fit_has_the_same_bits_for_any_number_of_ranks) {
  const outcome one = fit_on(1), three = fit_on(3);
  EXPECT_EQ(one.centroids, three.centroids);
  EXPECT_EQ(one.labels, three.labels);
  EXPECT_EQ(one.inertia, three.inertia);
  for (std::int64_t i = 4; i < k_rows; ++i) EXPECT_EQ(one.labels[static_cast<std::size_t>(i)], one.labels[static_cast<std::size_t>(i % 4)]);
}

TEST_F(c_groups, a_damaged_message_is_sent_again) {
  const outcome clean = fit_on(2);
  EXPECT_EQ(clean.detected, 0U);
  std::uint64_t detected = 0;
  for (const int number : {0, 2, 5, 9}) {
    const auto damage = [&](int rank, post_office::desk& own) { own.damaged = rank == 1 ? number : -1; };
    const outcome made = fit_on(2, damage);
    EXPECT_EQ(made.centroids, clean.centroids) << number;
    EXPECT_EQ(made.labels, clean.labels) << number;
    EXPECT_EQ(made.uncorrectable, 0U);
    detected += made.detected;
  }
  EXPECT_GT(detected, 0U);
}

TEST_F(c_groups, factors_of_rows_solve_least_squares) {
  // b = A x for a known x: so is the solution. The first rank has fewer rows than A has columns.
  constexpr std::int64_t n = 3, begins[] = {0, 2, 21, 40};
  on_threads(3, [&](int r, ballast_group* group) {
    const std::int64_t first = begins[r], count = begins[r + 1] - first;
    std::vector<double> a(static_cast<std::size_t>(count * n)), b(static_cast<std::size_t>(count)), x(n), q(a.size()), triangle(n * n);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const double value = core::random_uniform(2, 0, static_cast<std::uint64_t>((first + i) * n + j)) - 0.5;
        a[static_cast<std::size_t>(i * n + j)] = value;
        b[static_cast<std::size_t>(i)] += value * static_cast<double>(j + 1);
      }
    error failed;
    options with;
    factors made;
    tensor A(a, {count, n}), B(b, {count}), X(x, {n}), Q(q, {count, n}), R(triangle, {n, n});
    ASSERT_EQ(ballast_error_create(&failed), BALLAST_OK);
    const auto right = [&](std::int32_t status) { EXPECT_EQ(status, BALLAST_OK) << ballast_error_message(failed); };
    right(ballast_options_create("qr", &with, failed));
    right(ballast_options_set_integer(with, "threads", 1, failed));
    right(ballast_options_set_group(with, group, failed));
    right(ballast_qr_factor(A, with, nullptr, &made, nullptr, failed));
    right(ballast_factors_solve(made, B, X, nullptr, nullptr, failed));
    for (std::int64_t j = 0; j < n; ++j) EXPECT_NEAR(x[static_cast<std::size_t>(j)], static_cast<double>(j + 1), 1e-12);
    right(ballast_factors_q(made, Q, nullptr, nullptr, failed));
    right(ballast_factors_r(made, R, failed));
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double value = 0;
        for (std::int64_t k = 0; k < n; ++k)
          value += q[static_cast<std::size_t>(i * n + k)] * triangle[static_cast<std::size_t>(k * n + j)];
        EXPECT_NEAR(value, a[static_cast<std::size_t>(i * n + j)], 1e-13);
      }
    EXPECT_EQ(ballast_factors_storage(made, A, nullptr, failed), BALLAST_UNSUPPORTED);
  });
}

TEST_F(c_groups, a_lost_rank_has_a_status) {
  on_threads(
      2,
      [&](int r, ballast_group* group) {
        if (r == 1) return;  // it makes no call
        error failed;
        ASSERT_EQ(ballast_error_create(&failed), BALLAST_OK);
        EXPECT_EQ(ballast_group_barrier(group, failed), BALLAST_RANK_LOST);
        EXPECT_NE(std::string(ballast_error_message(failed)).find("lost 1"), std::string::npos) << ballast_error_message(failed);
      },
      [](int rank, post_office::desk& own) { own.says_lost = rank == 0 ? 1 : -1; });
  EXPECT_STREQ(ballast_status_name(BALLAST_RANK_LOST), "rank_lost");
}

TEST_F(c_groups, an_engine_that_fails_ends_the_call) {
  on_threads(
      2,
      [&](int r, ballast_group* group) {
        if (r == 1) return;
        error failed;
        ASSERT_EQ(ballast_error_create(&failed), BALLAST_OK);
        EXPECT_EQ(ballast_group_barrier(group, failed), BALLAST_DEVICE_ERROR);
        EXPECT_STREQ(ballast_error_message(failed), "group: transport: send to rank 1: expected 0, got 7");
      },
      [](int rank, post_office::desk& own) { own.answer_of_send = rank == 0 ? 7 : 0; });
}

TEST_F(c_groups, refuses_what_has_no_meaning) {
  post_office office(2);
  post_office::desk own;
  ballast_transport table = office.table(own, 0);
  c_group_handle group;
  const auto refused = [&](const char* words) {
    EXPECT_EQ(ballast_group_create(&table, nullptr, &group, wrong), BALLAST_INVALID_ARGUMENT);
    EXPECT_NE(message().find(words), std::string::npos) << message();
    EXPECT_EQ(group.value, nullptr);
    EXPECT_EQ(own.destroyed, 0);
  };
  table.rank = 2;
  refused("expected a rank below the size, got 2 of 2");
  table.rank = 0;
  table.receive = nullptr;
  refused("transport: receive: expected the address of a function, got null");
  table = office.table(own, 0);
  const ballast_group_settings none = {sizeof none, -1, 0, 0};
  EXPECT_EQ(ballast_group_create(&table, &none, &group, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("tries: expected at least 1, got -1"), std::string::npos) << message();
  EXPECT_EQ(ballast_group_nccl(nullptr, nullptr, &group, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("expected a communicator, got null"), std::string::npos) << message();
  EXPECT_EQ(ballast_group_barrier(nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  ASSERT_EQ(ballast_group_create(&table, nullptr, &group, wrong), BALLAST_OK) << message();
  options with;
  make("kmeans", with);
  set(with, "points", 5);
  set(with, "features", 1);
  set(with, "devices", std::vector<std::int64_t>{0});
  ASSERT_EQ(ballast_options_set_group(with, group, wrong), BALLAST_OK) << message();
  kmeans_plan plan;
  EXPECT_EQ(ballast_kmeans_plan_create(with, &plan, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("devices: expected none beside a group of ranks"), std::string::npos) << message();
}

TEST_F(c_groups, ranks_of_nccl) {
  const nccl_devices devices(2);
  begin_fake_nccl();
  std::atomic<bool> passed = false;
  std::vector<std::thread> all;
  for (int r = 0; r < 2; ++r)
    all.emplace_back([r, &passed] {
      error failed;
      ASSERT_EQ(ballast_error_create(&failed), BALLAST_OK);
      c_group_handle group;
      const ballast_group_settings quick = {sizeof quick, 0, 0.01, 5};
      ASSERT_EQ(ballast_group_nccl(make_fake_communicator(r, 2, r), &quick, &group, failed), BALLAST_OK) << ballast_error_message(failed);
      std::int32_t place = -1, ranks = -1;
      EXPECT_EQ(ballast_group_place(group, &place, &ranks, failed), BALLAST_OK);
      EXPECT_EQ(place, r);
      EXPECT_EQ(ranks, 2);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(ballast_group_barrier(group, failed), BALLAST_OK) << ballast_error_message(failed);
      // Rank 1 ends. Rank 0 finds that by its patience, and names it.
      if (r == 1) {
        while (!passed) std::this_thread::yield();
        return end_fake_rank(1);
      }
      passed = true;
      EXPECT_EQ(ballast_group_barrier(group, failed), BALLAST_RANK_LOST);
      EXPECT_NE(std::string(ballast_error_message(failed)).find("lost 1"), std::string::npos) << ballast_error_message(failed);
    });
  for (std::thread& each : all) each.join();
}

}  // namespace
}  // namespace ballast::test
