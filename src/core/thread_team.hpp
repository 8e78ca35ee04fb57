// Threads that wait for loops: parallel_for without oneTBB.
// Layer: foundation, of parallel_threads.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/function_ref.hpp"
#include "core/memory.hpp"

namespace ballast::core {

// Runs one loop at a time on the calling thread and helpers, which sleep in between. A loop that begins while another one runs, in its body
// or on another thread, runs on its calling thread alone. Helpers are created by the first loop and never end: a team must not be
// destroyed.
class thread_team {
 public:
  explicit thread_team(int helpers) : most_(helpers) {}
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;

  // As parallel_for.
  void run(int threads, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
    const std::int64_t useful = tasks < threads ? tasks : threads;
    if (useful <= 1 || busy_.test_and_set(std::memory_order_acquire)) {
      for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
      return;
    }
    arena* const memory = arena::current();
    std::atomic<std::int64_t> next{0};
    std::exception_ptr thrown;
    std::mutex guards_thrown;
    const auto work = [&](int slot) {
      const arena_scope here(memory, threads);
      try {
        for (std::int64_t task = next++; task < tasks; task = next++) body(task, slot);
      } catch (...) {
        next = tasks;  // the others end soon
        const std::lock_guard lock(guards_thrown);
        if (!thrown) thrown = std::current_exception();
      }
    };
    const function_ref<void(int)> shared(work);
    begin(static_cast<int>(useful) - 1, shared);
    work(0);
    end();
    busy_.clear(std::memory_order_release);
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  // `work` must live until end().
  void begin(int helpers, const function_ref<void(int)>& work) {
    create(helpers);
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
      wanted_ = helpers < there_ ? helpers : there_;
      came_ = left_ = 0;
      ++turn_;
      helpers = wanted_;
    }
    for (int i = 0; i < helpers; ++i) called_.notify_one();
  }
  // Returns when every helper that came has left. Later ones find nothing.
  void end() {
    std::unique_lock lock(mutex_);
    wanted_ = came_;
    done_.wait(lock, [&] { return left_ == came_; });
    work_ = nullptr;
  }
  // Only the thread whose loop runs calls it.
  void create(int helpers) {
    for (; there_ < helpers && there_ < most_; ++there_) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error&) {
        most_ = there_;
      }
    }
  }
  void serve() {
    std::uint64_t served = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      called_.wait(lock, [&] { return work_ != nullptr && turn_ != served && came_ < wanted_; });
      served = turn_;
      const int slot = ++came_;
      const function_ref<void(int)> work = *work_;
      lock.unlock();
      work(slot);
      lock.lock();
      if (++left_ == came_) done_.notify_one();
    }
  }

  std::atomic_flag busy_;
  int most_, there_ = 0;  // helpers: at most, and created
  std::mutex mutex_;      // guards what follows
  std::condition_variable called_, done_;
  const function_ref<void(int)>* work_ = nullptr;  // the body of the loop that runs
  int wanted_ = 0, came_ = 0, left_ = 0;           // helpers of that loop
  std::uint64_t turn_ = 0;
};

}  // namespace ballast::core
