// Implements parallel_for on the calling thread, for builds without oneTBB (BALLAST_GPU_CHECK), which run the reference backend and
// kernels.
#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"

namespace ballast::core {

int thread_count(int requested) {
  if (requested < 0) throw invalid_argument_error(fmt::format("threads: expected 0 (all cores) or more, got {}", requested));
  return 1;
}

int worthwhile_threads(int requested, double) { return thread_count(requested); }

void parallel_for(int, std::int64_t tasks, function_ref<void(std::int64_t, int)> body) {
  for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace ballast::core
