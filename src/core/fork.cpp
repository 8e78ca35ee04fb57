// Counts the calls under way. The child's pthread_atfork handler reads the counters.
#include "core/fork.hpp"

#include <atomic>

#include <pthread.h>

#include <ballast/error.hpp>

namespace ballast::core {

namespace {

std::atomic<int> all_calls{0};
thread_local int calls_of_this_thread = 0;
std::atomic<bool> workers{false}, workers_are_lost{false}, locks_are_lost{false};

// Runs in the child, on its only thread: the copy of the one that called fork.
void in_child() {
  if (all_calls != calls_of_this_thread) locks_are_lost = true;
  all_calls = calls_of_this_thread;
  if (workers) workers_are_lost = true;
}

}  // namespace

active_call::active_call() {
  static const bool watched = pthread_atfork(nullptr, nullptr, in_child) == 0;
  (void)watched;  // false: no memory for the handler; then a fork is not detected
  if (locks_are_lost)
    throw unsupported_error(
        "this process was forked while another thread was inside Ballast, and cannot use it: fork while no call is running, or exec");
  ++calls_of_this_thread;
  all_calls.fetch_add(1, std::memory_order_relaxed);
}

active_call::~active_call() {
  --calls_of_this_thread;
  all_calls.fetch_sub(1, std::memory_order_relaxed);
}

void workers_exist() noexcept { workers = true; }

bool without_workers() noexcept { return workers_are_lost; }

}  // namespace ballast::core
