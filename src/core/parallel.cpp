// Implements parallel_for with oneTBB task arenas.
#include "core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <pthread.h>
#include <sys/stat.h>

#include "core/fork.hpp"
#include "core/memory.hpp"
#include "core/thread_count.hpp"

namespace ballast::core {

namespace {

// Threads wait here until as many threads as possible have been created.
struct gate {
  std::mutex mutex;
  std::condition_variable came, opened;
  std::size_t arrived = 0;
  bool open = false;
};

void* wait_at(void* at) {
  auto& here = *static_cast<gate*>(at);
  // The allocator maps an arena for each thread that allocates, and keeps it. Volatile, or the compiler removes both calls.
  void* volatile some = std::malloc(1024);
  std::free(some);
  std::unique_lock lock(here.mutex);
  ++here.arrived;
  here.came.notify_one();
  here.opened.wait(lock, [&] { return here.open; });
  return nullptr;
}

// Returns the number of threads of this process; 0 if the system does not report it.
std::int64_t living_threads() {
  struct stat about {};
  return stat("/proc/self/task", &about) == 0 ? static_cast<std::int64_t>(about.st_nlink) - 2 : 0;
}

// Returns the number of threads that this process can have, at most `wanted`, with the calling one. oneTBB ends the process if it cannot
// create a worker. So this function first creates as many threads, all at the same time. If fewer are possible, it returns only half of
// them: their memory stays free for the data and for others.
int possible_threads(int wanted) {
  gate here;
  std::vector<pthread_t> made;
  made.reserve(static_cast<std::size_t>(wanted));
  const std::int64_t before = living_threads();
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 1;
  pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);  // twice the stack of oneTBB's workers: a margin for their allocations
  pthread_t one{};
  while (static_cast<int>(made.size()) < wanted - 1 && pthread_create(&one, &attributes, wait_at, &here) == 0) {
    made.push_back(one);
    std::unique_lock lock(here.mutex);
    here.came.wait(lock, [&] { return here.arrived == made.size(); });
  }
  pthread_attr_destroy(&attributes);
  {
    const std::lock_guard lock(here.mutex);
    here.open = true;
  }
  here.opened.notify_all();
  for (const pthread_t each : made) pthread_join(each, nullptr);
  // A joined thread counts against the limits until the kernel has released it.
  for (int tries = 0; living_threads() > before && tries < 100; ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int count = static_cast<int>(made.size());
  return count == wanted - 1 ? wanted : 1 + count / 2;
}

// Makes oneTBB start its workers now, while memory for their stacks is available, instead of later, when data may fill it. Each task waits
// for the others, so that each runs on a worker of its own.
void start_workers(oneapi::tbb::task_arena& arena, int threads) {
  using control = oneapi::tbb::global_control;
  const int there_can_be = std::min(threads, static_cast<int>(control::active_value(control::max_allowed_parallelism)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);  // other arenas may keep the workers busy
  std::atomic<int> there{0};
  arena.execute([&] {
    oneapi::tbb::parallel_for(
        oneapi::tbb::blocked_range<int>(0, there_can_be, 1),
        [&](const oneapi::tbb::blocked_range<int>&) {
          there.fetch_add(1);
          while (there < there_can_be && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        },
        oneapi::tbb::simple_partitioner());
  });
  workers_exist();
}

// Returns the arena for this number of threads; null: use the calling thread only. Arenas are slow to create and cheap to keep, so one is
// kept for each number of threads that was ever requested.
oneapi::tbb::task_arena* task_arena_of(int threads) {
  static std::mutex mutex;
  static auto& arenas =
      *new std::map<int, std::unique_ptr<oneapi::tbb::task_arena>>;  // never destroyed: workers may outlive static objects
  const std::lock_guard lock(mutex);
  static int there = 1, possible = std::numeric_limits<int>::max();
  threads = std::min(threads, possible);
  if (threads > there) {
    const int found = possible_threads(threads);
    if (found < threads) possible = std::max(found, there);
    threads = std::min(threads, possible);
  }
  if (threads <= 1) return nullptr;
  // A caller may request more threads than there are cores. Without this control oneTBB would run fewer, with a warning on stderr.
  static int allowed = oneapi::tbb::info::default_concurrency();
  static std::unique_ptr<oneapi::tbb::global_control> more;
  if (threads > allowed) {
    allowed = threads;
    more.reset();
    more = std::make_unique<oneapi::tbb::global_control>(oneapi::tbb::global_control::max_allowed_parallelism,
                                                         static_cast<std::size_t>(threads));
  }
  auto& found = arenas[threads];
  if (!found) found = std::make_unique<oneapi::tbb::task_arena>(threads);
  if (threads > there) {
    there = threads;
    start_workers(*found, threads);
  }
  return found.get();
}

}  // namespace

int thread_count(int requested) { return thread_count_of(requested, oneapi::tbb::info::default_concurrency()); }

void parallel_for(int threads, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
  oneapi::tbb::task_arena* const on = threads <= 1 || tasks <= 1 || without_workers() ? nullptr : task_arena_of(threads);
  if (on == nullptr) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  arena* const memory = arena::current();
  // isolate: a thread that waits for this loop, within a body of an outer loop, must not start another task of the outer loop meanwhile: it
  // would have the slot of that body. It stands inside of execute(), which ends an isolation around it.
  on->execute([&] {
    oneapi::tbb::this_task_arena::isolate([&] {
      oneapi::tbb::parallel_for(
          oneapi::tbb::blocked_range<std::int64_t>(0, tasks, 1),
          [&](const oneapi::tbb::blocked_range<std::int64_t>& range) {
            const arena_scope here(memory, threads);
            const int slot = oneapi::tbb::this_task_arena::current_thread_index();
            for (std::int64_t task = range.begin(); task < range.end(); ++task) body(task, slot);
          },
          oneapi::tbb::simple_partitioner());
    });
  });
}

}  // namespace ballast::core
