// What the kernels of checks.cuh take, for the host.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

namespace ballast::arch::checks {

// From `in` to `out`, which both hold numbers of the kernel's type.
struct copy_argument {
  const void* in;
  void* out;
  std::int32_t missing = 0;  // async_copy_kernel: threads at the end whose number counts as zero
  std::int32_t tiles = 0;    // bulk_kernel
};

struct thread_argument {
  std::uint32_t* warps;  // one per block
  std::uint64_t* times;  // three per block: cycles that the block took, global time, multiprocessor
};

struct chain_argument {
  std::uint32_t* tickets;  // 0 at first, as the others
  std::uint32_t* done;
  std::uint32_t* started;  // one per block
  void* sum;
};

// Row-major; d is read where the kernel adds to it.
struct product_argument {
  const void* a;
  const void* b;
  void* d;
};

}  // namespace ballast::arch::checks
