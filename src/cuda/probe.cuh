// The smallest real kernel: copies a buffer and sums it. With it tests show that compiling, loading, launching and copying work.
// Layer: foundation. One thread takes elements of a grid-wide stride; a block adds what its threads summed in static shared memory.
#pragma once

#include <cstdint>

#include "cuda/arch/shared.cuh"

namespace ballast::cuda {

struct probe_policy {
  int threads = 256;     // of a block, a power of two
  bool doubled = false;  // copies twice each element
};

struct probe_argument {
  const float* in;
  float* out;         // `count` elements
  double* block_sum;  // one for each block: Σ of what it copied
  std::int64_t count;
};

template <probe_policy Policy>
__global__ void __launch_bounds__(Policy.threads) probe_kernel(const probe_argument arg) {
  auto& partial = arch::shared_object<double[Policy.threads], struct probe_sums>();
  double sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * Policy.threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * Policy.threads + threadIdx.x; i < arg.count; i += stride) {
    const float value = Policy.doubled ? 2 * arg.in[i] : arg.in[i];
    arg.out[i] = value;
    sum += value;
  }
  partial[threadIdx.x] = sum;
  for (unsigned half = Policy.threads / 2; half > 0; half /= 2) {
    __syncthreads();  // the upper half is written before it is read
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) arg.block_sum[blockIdx.x] = partial[0];
}

}  // namespace ballast::cuda
