// parallel_for: every task once, slots exclusive, exceptions and nesting.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "core/parallel.hpp"

namespace ballast::core {
namespace {

TEST(parallel_for, runs_every_task_once_with_exclusive_slots) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> ran(1000);
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    std::atomic<bool> shared_slot{false};
    parallel_for(threads, 1000, [&](std::int64_t task, int slot) {
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, threads);
      if (busy[static_cast<std::size_t>(slot)].fetch_add(1) != 0) shared_slot = true;
      ran[static_cast<std::size_t>(task)].fetch_add(1);
      std::atomic<int> inner{0};
      parallel_for(threads, 3, [&](std::int64_t, int) { inner.fetch_add(1); });
      EXPECT_EQ(inner, 3);
      busy[static_cast<std::size_t>(slot)].fetch_sub(1);
    });
    for (const auto& count : ran) EXPECT_EQ(count, 1);
    EXPECT_FALSE(shared_slot);
  }
}

// A body that waits for an inner loop whose last task another thread runs must not take another task of the outer loop meanwhile.
TEST(parallel_for, slots_stay_exclusive_while_a_body_waits) {
  for (const int threads : {2, 5}) {
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    std::atomic<bool> shared_slot{false};
    parallel_for(threads, 40, [&](std::int64_t, int slot) {
      if (busy[static_cast<std::size_t>(slot)].fetch_add(1) != 0) shared_slot = true;
      parallel_for(threads, 3, [&](std::int64_t inner, int) { std::this_thread::sleep_for(std::chrono::microseconds(100 + 400 * inner)); });
      busy[static_cast<std::size_t>(slot)].fetch_sub(1);
    });
    EXPECT_FALSE(shared_slot) << threads << " threads";
  }
}

TEST(parallel_for, passes_on_an_exception_and_works_afterwards) {
  for (const int threads : {1, 3}) {
    EXPECT_THROW(parallel_for(threads, 100,
                              [](std::int64_t task, int) {
                                if (task == 57) throw std::runtime_error("57");
                              }),
                 std::runtime_error);
    std::atomic<int> ran{0};
    parallel_for(threads, 10, [&](std::int64_t, int) { ran.fetch_add(1); });
    EXPECT_EQ(ran, 10);
  }
}

TEST(parallel_for, nothing_to_do) {
  parallel_for(4, 0, [](std::int64_t, int) { FAIL(); });
}

TEST(thread_count, zero_means_all_and_negative_is_an_error) {
  EXPECT_GE(thread_count(0), 1);
  EXPECT_EQ(thread_count(3), 3);
  EXPECT_LE(thread_count(1000000), std::max(256, thread_count(0)));
  EXPECT_THROW(thread_count(-1), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::core
