// The only way that Ballast's CPU code runs on several threads.
// Layer: foundation, over oneTBB. Why oneTBB and not OpenMP: docs/design/threads.md.
#pragma once

#include <cstdint>

#include "core/function_ref.hpp"

namespace ballast::core {

// How many threads `requested` means: itself, at most 256 or as many as there are cores, or with 0 the cores this process may use. Throws
// invalid_argument_error if negative.
int thread_count(int requested);

// Calls body(task, slot) for every task in [0, tasks), on at most `threads` threads, and returns when all are done. No two calls that
// run at the same time share a slot in [0, threads): use it to index scratch memory. Which thread runs which task is not determined, so
// sums must be kept by task, not by slot, where a result must not depend on the number of threads.
// Fewer threads run where the process cannot have so many (limits of processes or memory), and only the calling one in a process that was
// forked from one with workers. The first exception that a body throws is thrown here. May be nested; the inner loop then shares the same
// threads and the slots of the inner and outer loops are unrelated.
void parallel_for(int threads, std::int64_t tasks, function_ref<void(std::int64_t task, int slot)> body);

}  // namespace ballast::core
