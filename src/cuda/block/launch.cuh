// The parameter of a kernel: its arguments and, if it is instrumented, the faults.
// Layer: foundation, device code. The kernel is `template <…, class Injector> __global__ void k(const __grid_constant__
// kernel_launch<arguments, Injector> given)`. The host passes the bytes of the arguments, followed by the bytes of the faults if there are
// any.
#pragma once

#include "cuda/block/injector.cuh"
#include "cuda/block/unroll.cuh"

namespace ballast::cuda {

template <class Arguments, class Injector>
struct kernel_launch {
  Arguments arguments;
  Injector injector;

  // Strikes `Count` words of this thread at `data`; see inject::device_injector. It adds no code to production kernels.
  template <int Count, class T>
  __device__ __forceinline__ void strike(index<Count>, inject::site where, const inject::device_position& here, T* data) const {
    injector.template strike<Count>(where, here, data);
  }
};

template <class Arguments>
struct kernel_launch<Arguments, inject::no_device_injector> {
  Arguments arguments;

  template <int Count, class T>
  __device__ __forceinline__ void strike(index<Count>, inject::site, const inject::device_position&, T*) const {}
};

}  // namespace ballast::cuda
