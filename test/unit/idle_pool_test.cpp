// The pool of idle objects: reuse, the bound, several threads, and objects in an unknown state.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/idle_pool.hpp"

namespace ballast::core {
namespace {

// Counts the living objects.
struct counted {
  explicit counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~counted() { --alive_; }
  std::atomic<int>& alive_;
};
using pool = idle_pool<std::unique_ptr<counted>>;

TEST(idle_pool, gives_out_what_came_back_last) {
  idle_pool<int> idle;
  EXPECT_FALSE(idle.take().has_value());
  idle.give_back(1);
  idle.give_back(2);
  EXPECT_EQ(idle.take_or([] { return 7; }), 2);
  EXPECT_EQ(*idle.take(), 1);
  EXPECT_EQ(idle.take_or([] { return 7; }), 7);
}

TEST(idle_pool, destroys_what_exceeds_its_bound) {
  std::atomic<int> alive = 0;
  {
    pool idle(2);
    for (int i = 0; i < 5; ++i) idle.give_back(std::make_unique<counted>(alive));
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(idle_pool, lends_objects_that_come_back_unless_they_are_spoiled) {
  std::atomic<int> alive = 0;
  const auto idle = std::make_shared<pool>(1);
  const auto make = [&] { return std::make_unique<counted>(alive); };
  const counted* first = nullptr;
  {
    const lent<std::unique_ptr<counted>> one(idle, make);
    first = one.get().get();
  }
  EXPECT_EQ(alive, 1);
  {
    lent<std::unique_ptr<counted>> again(idle, make);
    EXPECT_EQ(again.get().get(), first);
    again.spoil();
  }
  EXPECT_EQ(alive, 0);
}

TEST(idle_pool, gives_each_thread_its_own_object) {
  const auto idle = std::make_shared<idle_pool<std::unique_ptr<int>>>(3);
  std::vector<std::thread> threads;
  std::atomic<int> shared = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 1000; ++round) {
        lent<std::unique_ptr<int>> mine(idle, [] { return std::make_unique<int>(-1); });
        *mine.get() = t;
        std::this_thread::yield();
        shared += *mine.get() == t ? 0 : 1;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(shared, 0);
}

}  // namespace
}  // namespace ballast::core
