// Numbers that nothing later would show to be wrong are loaded twice, or read back when they are stored. The last thread block to arrive
// at a counter.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"

namespace ballast::cuda {

// Returns a number that was loaded from `from`, after another load has given the same bits.
template <class T>
__device__ __forceinline__ T agreed(T loaded, const T* from) {
  const volatile T* const at = from;
  for (int trial = 0; trial < 4; ++trial) {
    const T again = *at;
    if (bits(again) == bits(loaded)) break;
    loaded = *at;
  }
  return loaded;
}
template <class T>
__device__ __forceinline__ T loaded_twice(const T& from) {
  return agreed<T>(*static_cast<const volatile T*>(&from), &from);
}

// Returns the number that make() loads or computes anew in each call, after another call has given the same bits.
template <class Make>
__device__ __forceinline__ auto made_twice(Make&& make) {
  auto made = make();
  for (int trial = 0; trial < 4; ++trial) {
    const auto again = make();
    if (bits(again) == bits(made)) break;
    made = make();
  }
  return made;
}

// Reads a stored number back and compares it with a second one, which make() loads or computes anew in each call; stores that otherwise.
template <class T, class Make>
__device__ __forceinline__ void confirm_stored(T* to, Make&& make) {
  volatile T* const at = to;
  for (int trial = 0; trial < 4; ++trial) {
    const T again = make();
    const T stored = *at;
    if (bits(stored) == bits(again)) break;
    *at = again;
  }
}

// Stores a number that a computation and its check, or later computations, use alike, so that no comparison of results shows that it is
// wrong: it is read back.
template <class T, class Make>
__device__ __forceinline__ void store_compared(T* to, Make&& make) {
  *static_cast<volatile T*>(to) = make();
  confirm_stored(to, make);
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
