// Implements parallel_for with threads of its own, for builds without oneTBB (BALLAST_GPU_CHECK): host code between kernels runs there on
// as many threads as in the library that users have.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <thread>

#include "core/fork.hpp"
#include "core/parallel.hpp"
#include "core/thread_count.hpp"
#include "core/thread_team.hpp"

namespace ballast::core {

namespace {

int cores() {
  static const int found = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return found;
}

}  // namespace

int thread_count(int requested) { return thread_count_of(requested, cores()); }

void parallel_for(int threads, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
  if (threads <= 1 || tasks <= 1 || without_workers()) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  constexpr int all = std::numeric_limits<int>::max();
  static thread_team& team = *new thread_team(thread_count_of(all, cores()) - 1);  // its threads outlive static objects
  workers_exist();
  team.run(threads, tasks, body);
}

}  // namespace ballast::core
