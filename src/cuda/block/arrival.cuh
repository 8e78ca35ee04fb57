// Numbers that nothing later would show to be wrong: they are read back when they are stored. The last thread block to arrive at a counter.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"

namespace ballast::cuda {

// Stores a number that a computation and its check, or later computations, use alike, so that no comparison of results shows that it is
// wrong: the number is read back and compared with a second one. make() loads or computes it anew in each call.
template <class T, class Make>
__device__ __forceinline__ void store_compared(T* to, Make&& make) {
  volatile T* const at = to;
  *at = make();
  for (int trial = 0; trial < 4; ++trial) {
    const T again = make();
    const T stored = *at;
    if (bits(stored) == bits(again)) break;
    *at = again;
  }
}

// Sets a counter that later launches expect to be 0.
__device__ __forceinline__ void reset_counter(std::uint32_t* counter) {
  store_compared(counter, [] { return static_cast<std::uint32_t>(arch::opaque(0u)); });
}

// Counts the arrival of a thread block at a counter, which is 0 before and after the launch. Called by one thread of each of `blocks`
// blocks, after a barrier. Returns whether this block is the last; it then sees everything that the others wrote before they arrived.
__device__ __forceinline__ bool arrives_last(std::uint32_t* counter, std::uint32_t blocks) {
  const bool last = arch::atomic_add_acq_rel(counter, 1) + 1 == blocks;
  if (last) reset_counter(counter);
  return last;
}

}  // namespace ballast::cuda
