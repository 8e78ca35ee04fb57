// The arguments of the kernels in checks.cuh.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

namespace ballast::arch::checks {

// `in` and `out` point to numbers of the kernel's type.
struct copy_argument {
  const void* in;
  void* out;
  std::int32_t missing = 0;  // async_copy_kernel: the number of threads at the end whose element is replaced by zero
  std::int32_t tiles = 0;    // bulk_kernel
};

// twice_kernel: its pairs of loads, the last one of shared memory, which one load more fills.
inline constexpr int k_twice = 3;
inline constexpr int k_twice_loads = 2 * (k_twice - 1) + 1;

struct thread_argument {
  std::uint32_t* warps;  // one per block
  std::uint64_t* times;  // three per block: elapsed cycles of the block, global time, multiprocessor
};

struct chain_argument {
  std::uint32_t* tickets;  // all numbers are 0 at the launch
  std::uint32_t* done;
  std::uint32_t* started;  // one per block
  void* sum;
};

// Row-major matrices. `d` is read only if the kernel adds to it.
struct product_argument {
  const void* a;
  const void* b;
  void* d;
};

}  // namespace ballast::arch::checks
