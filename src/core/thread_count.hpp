// How many threads a loop gets, whatever runs them.
// Layer: foundation, of parallel.hpp.
#pragma once

namespace ballast::core {

// thread_count() on a machine where this process may use `cores` cores.
int thread_count_of(int requested, int cores);

}  // namespace ballast::core
