// Position and clocks of a thread, barriers and waits other than __syncthreads, and values that the compiler cannot analyse.
// Layer: foundation, device.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Return the lane in the warp, and the warp in the block (thread x varies fastest).
__device__ __forceinline__ int lane() {
#if BALLAST_DEVICE_CODE
  unsigned id;
  asm("mov.u32 %0, %%laneid;" : "=r"(id));
  return static_cast<int>(id);
#else
  return simt::lane();
#endif
}

__device__ __forceinline__ int warp() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32);
}

// Returns the same value. The compiler cannot see that it is the same, so it does not precompute expressions that depend on it.
__device__ __forceinline__ unsigned opaque(unsigned value) {
#if BALLAST_DEVICE_CODE
  asm volatile("" : "+r"(value));
#endif
  return value;
}
__device__ __forceinline__ std::int64_t opaque(std::int64_t value) {
#if BALLAST_DEVICE_CODE
  asm volatile("" : "+l"(value));
#endif
  return value;
}

__device__ __forceinline__ float opaque(float value) {
#if BALLAST_DEVICE_CODE
  asm volatile("" : "+f"(value));
#endif
  return value;
}
__device__ __forceinline__ double opaque(double value) {
#if BALLAST_DEVICE_CODE
  asm volatile("" : "+d"(value));
#endif
  return value;
}

// Returns a copy in registers of its own. The compiler cannot see that it is a copy, so it keeps both. Only for one-dimensional launches:
// it uses that blockIdx.y is 0.
__device__ __forceinline__ double apart(double value) {
#if BALLAST_DEVICE_CODE
  unsigned zero;
  asm("mov.u32 %0, %%ctaid.y;" : "=r"(zero));
  return __hiloint2double(__double2hiint(value) ^ static_cast<int>(zero), __double2loint(value) ^ static_cast<int>(zero));
#else
  return value;
#endif
}

// Returns min(1, max(0, a · b + c)), rounded once; 0 if that is NaN.
__device__ __forceinline__ float multiply_add_saturated(float a, float b, float c) {
#if BALLAST_DEVICE_CODE
  float made;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(made) : "f"(a), "f"(b), "f"(c));
  return made;
#else
  const float made = fmaf(a, b, c);
  return made > 0 ? fminf(made, 1.0f) : 0.0f;
#endif
}

// Computes everything that `never` depends on before any code that follows starts. `never` is a condition that is always false, which the
// compiler cannot know, and this is a branch on it. Without it assemblers interleave independent computations, even if the registers do not
// suffice for both.
__device__ __forceinline__ void finish_first(bool never) {
#if BALLAST_DEVICE_CODE
  if (never) __nanosleep(0);
#else
  static_cast<void>(never);
#endif
}

// Returns 0, by way of a branch on `never`, a condition like that of finish_first. Numbers that depend on this zero are computed after
// the branch, and loads before it are issued first. Otherwise an assembler delays a load until numbers that it has computed from earlier
// loads have left their registers, so the two loads wait for memory one after the other.
template <class T>
__device__ __forceinline__ T zero_after_loads(bool never) {
  T zero = 0;
#if BALLAST_DEVICE_CODE
  if (never) {
    __nanosleep(0);
    zero = 1;
  }
#else
  static_cast<void>(never);
#endif
  return zero;
}

__device__ __forceinline__ int multiprocessor_id() {
#if BALLAST_DEVICE_CODE
  unsigned id;
  asm("mov.u32 %0, %%smid;" : "=r"(id));
  return static_cast<int>(id);
#else
  return simt::multiprocessor();
#endif
}

// Returns the cycle counter of this multiprocessor; in the emulator, the number of fiber switches.
__device__ __forceinline__ std::uint64_t clock() {
#if BALLAST_DEVICE_CODE
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
#else
  return simt::ticks();
#endif
}

// Returns the nanoseconds since a fixed moment, which is the same for all multiprocessors; in the emulator, the number of fiber switches.
__device__ __forceinline__ std::uint64_t global_timer() {
#if BALLAST_DEVICE_CODE
  std::uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
  return nanoseconds;
#else
  return simt::ticks();
#endif
}

// Waits at a barrier for `threads` threads of the block, in whole warps that all arrive. `number`, 1 to 15, identifies concurrent barriers.
__device__ __forceinline__ void group_barrier(int number, int threads, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#else
  simt::group_barrier(number, threads, where);
#endif
}

// Reduces the registers of each thread of a warpgroup to this number, and gives the rest to the other warpgroups of the block. All warps of
// the warpgroup call it. Registers: a multiple of 8, 24 to 240. The kernel must have launch bounds.
template <int Registers>
__device__ __forceinline__ void give_registers() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 240);
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}
// Raises the registers of each thread of a warpgroup to this number; waits until as many are free.
template <int Registers>
__device__ __forceinline__ void take_registers() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 240);
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}

// Pauses the thread in a loop that polls memory.
__device__ __forceinline__ void spin_wait() {
#if BALLAST_DEVICE_CODE
  __nanosleep(20);
#else
  simt::give_way(true);
#endif
}

// Programmatic dependent launch: a grid that was launched with overlap (launch in cuda/runtime/driver_device.cpp) may start while the
// previous grid of its stream still runs. This waits until that grid has ended and its writes are visible.
__device__ __forceinline__ void wait_for_previous_grid() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next grid to start: it may start when every block has called this or has ended.
__device__ __forceinline__ void let_next_grid_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace ballast::arch
