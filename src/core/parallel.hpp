// The parallel loop. All of Ballast's CPU code that runs on several threads uses it.
// Layer: foundation, over oneTBB. docs/design/threads.md says why oneTBB and not OpenMP.
#pragma once

#include <cstdint>

#include "core/function_ref.hpp"

namespace ballast::core {

// Returns the number of threads for a request: 0 means all cores that this process may use; other values are limited to 256 or the number
// of cores, the larger of both. Throws invalid_argument_error if `requested` is negative.
int thread_count(int requested);

// Returns the number of threads for a call whose work takes one thread about `seconds`: `requested` unless that is 0, else a power of two
// or all cores, so that each thread has work for longer than it takes to wake it.
int worthwhile_threads(int requested, double seconds);

// Calls body(task, slot) for every task in [0, tasks), on at most `threads` threads, and returns when all are done. No two calls that run
// at the same time share a slot in [0, threads): use it to index scratch memory. The assignment of tasks to threads is not determined. If a
// result must not depend on the number of threads, keep sums by task, not by slot.
// Fewer threads run if the process cannot have so many (limits of processes or memory). A process that was forked from one with workers
// uses the calling thread only. The first exception that a body throws is rethrown here. Calls may be nested: the inner loop then shares
// the same threads, and the slots of the inner and outer loops are unrelated.
void parallel_for(int threads, std::int64_t tasks, function_ref<void(std::int64_t task, int slot)> body);

}  // namespace ballast::core
