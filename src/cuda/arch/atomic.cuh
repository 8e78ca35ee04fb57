// Order among blocks: counters and flags that one block publishes and another reads. Scope: the whole GPU.
// Layer: foundation, device. What a block wrote before a release is seen by whoever acquires the value.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Returns the value before.
__device__ __forceinline__ std::uint32_t atomic_add_release(std::uint32_t* at, std::uint32_t value) {
#if BALLAST_DEVICE_CODE
  std::uint32_t old;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
  return old;
#else
  return atomicAdd(at, value);
#endif
}

__device__ __forceinline__ std::uint32_t atomic_add_acq_rel(std::uint32_t* at, std::uint32_t value) {
#if BALLAST_DEVICE_CODE
  std::uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
  return old;
#else
  return atomicAdd(at, value);
#endif
}

// Adds to a number in global memory; no order with other accesses. Where the compiler cannot see that an address is global, atomicAdd has
// code for shared memory, too.
__device__ __forceinline__ void add_global(unsigned long long* at, unsigned long long value) {
#if BALLAST_DEVICE_CODE
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#else
  atomicAdd(at, value);
#endif
}

// Counts up a number in global memory, where `does` is true, and returns what it was; no order with other accesses. By one lane of a warp,
// the first one. The number is waited for where it is used: not behind a branch around this; and the assembler cannot tell that a lane adds
// 1, else it would add up what the lanes of a warp do, and wait for that.
__device__ __forceinline__ std::uint32_t draw_global(std::uint32_t* at, bool does) {
#if BALLAST_DEVICE_CODE
  std::uint32_t old;
  asm volatile(
      "{\n\t.reg .pred p;\n\t.reg .u32 one;\n\tsetp.ne.u32 p, %2, 0;\n\tmov.u32 one, %%laneid;\n\tadd.u32 one, one, 1;\n\t"
      "@p atom.relaxed.gpu.global.add.u32 %0, [%1], one;\n\t}"
      : "=r"(old)
      : "l"(at), "r"(does ? 1 : 0)
      : "memory");
  return old;
#else
  return does ? atomicAdd(at, 1u) : 0;
#endif
}

// Lets other threads of the emulator run first: it is what loops poll.
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
#if BALLAST_DEVICE_CODE
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
#else
  simt::require_aligned(from, sizeof(*from));
  simt::give_way(true);
  return *from;
#endif
}

__device__ __forceinline__ void store_release(std::uint32_t* to, std::uint32_t value) {
#if BALLAST_DEVICE_CODE
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
#else
  simt::require_aligned(to, sizeof(*to));
  simt::maybe_give_way();
  *to = value;
#endif
}

__device__ __forceinline__ void fence_gpu() {
#if BALLAST_DEVICE_CODE
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

}  // namespace ballast::arch
