// How long a compiler would keep a call waiting.
// Layer: foundation.
#pragma once

#include <algorithm>
#include <span>
#include <thread>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Predicts the seconds until all of `wanted` are ready on this device; 0 if they are. Kernels that are neither in the bundle nor in a cache
// are compiled, on all processors: 1.5 s for a kernel and 2 s for the longest, by docs/notebook/cuda.md, "Processor time of kernels".
// Compiles nothing.
inline double seconds_to_compile(device& on, std::span<const kernel_request> wanted) {
  constexpr double k_kernel = 1.5, k_longest = 2;
  const auto missing = std::ranges::count_if(wanted, [&](const kernel_request& each) {
    return !on.why_not_ready({&each, 1}, false).empty();
  });
  if (missing == 0) return 0;
  return std::max(k_longest, k_kernel * static_cast<double>(missing) / std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace ballast::cuda
