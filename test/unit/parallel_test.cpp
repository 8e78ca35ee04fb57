// parallel_for: every task once, slots exclusive, exceptions and nesting.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "core/parallel.hpp"
#include "core/thread_team.hpp"

namespace ballast::core {
namespace {

// parallel_for, and the team that computes it in builds without oneTBB.
void by_team(int threads, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
  static thread_team& team = *new thread_team(4);
  team.run(threads, tasks, body);
}
struct parallel_loop : testing::TestWithParam<void (*)(int, std::int64_t, function_ref<void(std::int64_t, int)>)> {};
INSTANTIATE_TEST_SUITE_P(all, parallel_loop, testing::Values(&parallel_for, &by_team),
                         [](const auto& about) { return about.index == 0 ? "parallel_for" : "thread_team"; });

TEST_P(parallel_loop, runs_every_task_once_with_exclusive_slots) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> ran(1000);
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    std::atomic<bool> shared_slot{false};
    GetParam()(threads, 1000, [&](std::int64_t task, int slot) {
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, threads);
      if (busy[static_cast<std::size_t>(slot)].fetch_add(1) != 0) shared_slot = true;
      ran[static_cast<std::size_t>(task)].fetch_add(1);
      std::atomic<int> inner{0};
      GetParam()(threads, 3, [&](std::int64_t, int) { inner.fetch_add(1); });
      EXPECT_EQ(inner, 3);
      busy[static_cast<std::size_t>(slot)].fetch_sub(1);
    });
    for (const auto& count : ran) EXPECT_EQ(count, 1);
    EXPECT_FALSE(shared_slot);
  }
}

// A body that waits for an inner loop whose last task another thread runs must not take another task of the outer loop meanwhile.
TEST_P(parallel_loop, slots_stay_exclusive_while_a_body_waits) {
  for (const int threads : {2, 5}) {
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    std::atomic<bool> shared_slot{false};
    GetParam()(threads, 40, [&](std::int64_t, int slot) {
      if (busy[static_cast<std::size_t>(slot)].fetch_add(1) != 0) shared_slot = true;
      GetParam()(threads, 3, [&](std::int64_t inner, int) { std::this_thread::sleep_for(std::chrono::microseconds(100 + 400 * inner)); });
      busy[static_cast<std::size_t>(slot)].fetch_sub(1);
    });
    EXPECT_FALSE(shared_slot) << threads << " threads";
  }
}

TEST_P(parallel_loop, passes_on_an_exception_and_works_afterwards) {
  for (const int threads : {1, 3}) {
    EXPECT_THROW(GetParam()(threads, 100,
                            [](std::int64_t task, int) {
                              if (task == 57) throw std::runtime_error("57");
                            }),
                 std::runtime_error);
    std::atomic<int> ran{0};
    GetParam()(threads, 10, [&](std::int64_t, int) { ran.fetch_add(1); });
    EXPECT_EQ(ran, 10);
  }
}

TEST_P(parallel_loop, nothing_to_do) {
  GetParam()(4, 0, [](std::int64_t, int) { FAIL(); });
}

// Loops on several threads at the same time.
TEST_P(parallel_loop, several_callers) {
  std::vector<std::thread> callers;
  std::atomic<int> ran{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, loop = GetParam()] {
      for (int i = 0; i < 200; ++i) loop(3, 7, [&](std::int64_t, int) { ran.fetch_add(1); });
    });
  }
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(ran, 4 * 200 * 7);
}

// Two tasks that wait for each other need two threads.
TEST_P(parallel_loop, tasks_run_at_the_same_time) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::atomic<int> there{0};
  GetParam()(2, 2, [&](std::int64_t, int) {
    there.fetch_add(1);
    while (there < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  EXPECT_LT(std::chrono::steady_clock::now(), end);
}

TEST(thread_count, zero_means_all_and_negative_is_an_error) {
  EXPECT_GE(thread_count(0), 1);
  EXPECT_EQ(thread_count(3), 3);
  EXPECT_LE(thread_count(1000000), std::max(256, thread_count(0)));
  EXPECT_THROW(thread_count(-1), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::core
