// parallel_for over oneTBB task arenas.
#include "core/parallel.hpp"

#include <map>
#include <memory>
#include <mutex>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::core {

int thread_count(int requested) {
  if (requested < 0) throw invalid_argument_error(fmt::format("threads: expected 0 (all cores) or more, got {}", requested));
  return requested > 0 ? requested : oneapi::tbb::info::default_concurrency();
}

namespace {

// Arenas are costly to make and cheap to keep: one for each number of threads that was ever asked for.
oneapi::tbb::task_arena& arena(int threads) {
  static std::mutex mutex;
  static auto& arenas =
      *new std::map<int, std::unique_ptr<oneapi::tbb::task_arena>>;  // never destroyed: workers may outlive static objects
  const std::lock_guard lock(mutex);
  // A caller may ask for more threads than there are cores; oneTBB would run fewer, with a warning on stderr.
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
  return *found;
}

}  // namespace

void parallel_for(int threads, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
  if (threads <= 1 || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  arena(threads).execute([&] {
    oneapi::tbb::parallel_for(
        oneapi::tbb::blocked_range<std::int64_t>(0, tasks, 1),
        [&](const oneapi::tbb::blocked_range<std::int64_t>& range) {
          const int slot = oneapi::tbb::this_task_arena::current_thread_index();
          // isolate: a body that runs an inner loop must not start another outer task on the same slot while it waits.
          for (std::int64_t task = range.begin(); task < range.end(); ++task)
            oneapi::tbb::this_task_arena::isolate([&] { body(task, slot); });
        },
        oneapi::tbb::simple_partitioner());
  });
}

}  // namespace ballast::core
