// The shared memory of a thread block, and its address for instructions.
// Layer: foundation, device.
#pragma once

#include "cuda/arch/target.cuh"

#if BALLAST_DEVICE_CODE
extern __shared__ __align__(1024) unsigned char ballast_dynamic_shared[];
#endif

namespace ballast::arch {

// Returns the dynamic shared memory of the block, aligned to 1024 bytes.
__device__ __forceinline__ unsigned char* shared_memory() {
#if BALLAST_DEVICE_CODE
  return ballast_dynamic_shared;
#else
  return simt::dynamic_shared();
#endif
}

// Returns a static __shared__ object of the block, one for each pair of types; Tag distinguishes objects of the same T. T must have no
// constructor. The static objects of a kernel together take a multiple of 1024 bytes of the block's shared memory, because the aligned
// dynamic memory follows them. A kernel that needs the last kilobyte uses a part of its dynamic memory instead.
// Use this function instead of __shared__, which g++ would treat as a variable of the thread:
//   auto& partial = arch::shared_object<float[32], struct partial_sums>();
template <class T, class Tag>
__device__ __forceinline__ T& shared_object() {
#if BALLAST_DEVICE_CODE
  __shared__ T object;
  return object;
#else
  static constexpr char key = 0;
  return *static_cast<T*>(simt::static_shared(&key, sizeof(T), alignof(T)));
#endif
}

#if BALLAST_DEVICE_CODE
__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
#endif

}  // namespace ballast::arch
