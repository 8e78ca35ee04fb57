// The number of threads of a loop, for every implementation of parallel_for.
// Layer: foundation, of parallel.hpp.
#pragma once

namespace ballast::core {

// thread_count() on a machine where this process may use `cores` cores.
int thread_count_of(int requested, int cores);

}  // namespace ballast::core
