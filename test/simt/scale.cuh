// A kernel for testing the steps from a request to a launch: multiplies numbers by a factor, and counts the finished blocks.
// Layer: test emulator.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"

namespace simt_test {

struct scale_policy {
  int threads = 0;
  int per_thread = 1;
};

struct scale_argument {
  const float* in;
  float* out;
  std::uint32_t* blocks;  // the number of finished blocks
  std::int64_t count;
  float factor;
};

// Block b processes Policy.threads · Policy.per_thread contiguous numbers; each thread takes every Policy.threads-th of them.
template <scale_policy Policy>
__global__ void __launch_bounds__(Policy.threads) scale_kernel(const __grid_constant__ scale_argument of) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * Policy.threads * Policy.per_thread + threadIdx.x;
  for (int i = 0; i < Policy.per_thread; ++i) {
    const std::int64_t at = first + static_cast<std::int64_t>(i) * Policy.threads;
    if (at < of.count) ballast::arch::store_streaming(of.out + at, of.factor * ballast::arch::load_streaming(of.in + at));
  }
  __syncthreads();
  if (threadIdx.x == 0) ballast::arch::atomic_add_release(of.blocks, 1);
}

}  // namespace simt_test
