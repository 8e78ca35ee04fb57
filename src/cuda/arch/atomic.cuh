// Ordering among thread blocks: counters and flags that one block publishes and another reads. Scope: the whole GPU.
// Layer: foundation, device. A thread that acquires a value sees all that the releasing thread wrote before the release.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Returns the old value.
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

// Adds to a number in global memory, without ordering of other accesses. If the compiler does not know that an address is global, atomicAdd
// gets code for shared memory, too; this function does not.
__device__ __forceinline__ void add_global(unsigned long long* at, unsigned long long value) {
#if BALLAST_DEVICE_CODE
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#else
  atomicAdd(at, value);
#endif
}

// Increments a number in global memory if `does` is true, and returns its old value, without ordering of other accesses. Called by lane 0
// of a warp only. The instruction is predicated instead of branched around, so that the thread waits for the number at its first use and
// not after a branch. The increment is computed as laneid + 1, so that the assembler does not know that it is 1: otherwise it would first
// add up the increments of the warp's lanes, and wait for that sum.
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

// Loads with acquire order. In the emulator other threads run first, because loops poll with this function.
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
