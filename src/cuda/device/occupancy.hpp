// Computes the resident blocks of a kernel per multiprocessor from the numbers that a policy knows before the kernel is compiled.
// Layer: foundation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Bytes of shared memory that the device reserves for each block, in addition to the block's own.
inline constexpr std::int64_t k_reserved_shared = 1024;
inline constexpr int k_most_resident_blocks = 16;  // the most resident blocks that policies request

// Returns the registers that each thread can have if `blocks` blocks of `threads` threads share a multiprocessor. A multiprocessor
// distributes its warps over four schedulers. Each scheduler has a quarter of the registers, and allocates them to threads in units of
// eight.
inline int registers_of_thread(int threads, int blocks, const capabilities& on) {
  const int warps = (threads + 31) / 32 * blocks;
  const int quarter = static_cast<int>(on.registers_per_multiprocessor) / 4 / 32;
  return quarter / ((warps + 3) / 4) / 8 * 8;
}

// Returns the number of blocks of `threads` threads, with this many registers per thread, that share a multiprocessor; at least 1.
inline int blocks_by_registers(int registers, int threads, const capabilities& on) {
  int blocks = std::min(k_most_resident_blocks, on.threads_per_multiprocessor / ((threads + 31) / 32 * 32));
  while (blocks > 1 && registers_of_thread(threads, blocks, on) < registers) --blocks;
  return std::max(blocks, 1);
}

// Returns the number of blocks with this many bytes of shared memory that share a multiprocessor; 0 if not even one fits.
inline int blocks_by_shared(std::int64_t shared, const capabilities& on) {
  return static_cast<int>(on.shared_per_multiprocessor / (shared + k_reserved_shared));
}

}  // namespace ballast::cuda
