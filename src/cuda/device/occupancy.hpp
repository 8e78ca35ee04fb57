// How many blocks of a kernel a multiprocessor can hold, from what a policy knows before anything is compiled.
// Layer: foundation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Shared memory that the device takes for each block beside the block's own.
inline constexpr std::int64_t k_reserved_shared = 1024;
inline constexpr int k_most_resident_blocks = 16;  // that policies ask for

// Registers that each thread can have if `blocks` blocks of `threads` threads share a multiprocessor. The multiprocessor deals its warps to
// four schedulers, each of which has a quarter of the registers and gives them out by eights.
inline int registers_of_thread(int threads, int blocks, const capabilities& on) {
  const int warps = (threads + 31) / 32 * blocks;
  const int quarter = static_cast<int>(on.registers_per_multiprocessor) / 4 / 32;
  return quarter / ((warps + 3) / 4) / 8 * 8;
}

// How many blocks of `threads` threads with that many registers each share a multiprocessor; at least 1.
inline int blocks_by_registers(int registers, int threads, const capabilities& on) {
  int blocks = std::min(k_most_resident_blocks, on.threads_per_multiprocessor / ((threads + 31) / 32 * 32));
  while (blocks > 1 && registers_of_thread(threads, blocks, on) < registers) --blocks;
  return std::max(blocks, 1);
}

// How many blocks with so many bytes of shared memory each share a multiprocessor; 0 if not even one does.
inline int blocks_by_shared(std::int64_t shared, const capabilities& on) {
  return static_cast<int>(on.shared_per_multiprocessor / (shared + k_reserved_shared));
}

}  // namespace ballast::cuda
