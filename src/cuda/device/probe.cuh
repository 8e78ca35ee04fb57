// Minimal kernels for tests. probe_kernel copies a buffer and sums it, which shows that compiling, loading, launching and copying work.
// abft_kernel calls the functions of src/abft, which shows that the headers compile for devices and give the same results as on the host.
// Layer: foundation.
// probe_kernel: each thread takes elements with a grid-wide stride; each block reduces the sums of its threads in static shared memory.
// abft_kernel: thread i computes case i.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "abft/correct.hpp"
#include "abft/locate.hpp"
#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "abft/weights.hpp"
#include "core/macros.hpp"
#include "cuda/arch/shared.cuh"

namespace ballast::cuda {

struct probe_policy {
  int threads = 256;     // threads per block, a power of two
  bool doubled = false;  // true: out = 2 · in
};

struct probe_argument {
  const float* in;
  float* out;         // `count` elements
  double* block_sum;  // one for each block: the sum of the elements of `out` that it wrote
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
    __syncthreads();  // the upper half must be written before it is read
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) arg.block_sum[blockIdx.x] = partial[0];
}

// The results of the functions of src/abft for case i. random_phase is omitted: sine and cosine of arbitrary angles need a stack on the
// device, and the host computes all phases.
struct abft_case {
  double values[9];
};

BALLAST_HD inline abft_case abft_case_of(std::int64_t i) {
  const double size = 1 + abft::random_weight(7, 0, static_cast<std::uint64_t>(i));
  const auto weight = [](std::int64_t j) { return abft::equispaced_weight(j, 8); };
  // A fault of `size` in column i % 8, in both residuals.
  const double seen = size * weight(i % 8);
  const abft::location located = abft::locate_column(size * size, size * seen, seen * seen, 8, weight);
  // A tile that fails at first, and passes when it is computed again.
  abft::attempts tile(abft::k_repeats);
  const abft::guarded_threshold tau(size);
  const abft::outcome first = tile.judge({.word = abft::verify(2 * size, tau), .residual = 2 * size});
  const abft::outcome second = tile.judge({.word = abft::verify(0.5 * size, 0.5 * size, tau)});
  return {{weight(i % 8), abft::equilibrating(size), abft::reordered_sum_limit(static_cast<double>(i + 1)),
           abft::rebuild(8 * size, i % 8, 8, [&](std::int64_t j) { return j == i % 8 ? -1 : size; }), static_cast<double>(located.index),
           located.ratio, static_cast<double>(static_cast<int>(first)), static_cast<double>(static_cast<int>(second)),
           tile.first().residual}};
}

struct abft_argument {
  abft_case* out;  // `count` cases
  std::int64_t count;
};

template <int Threads>
__global__ void __launch_bounds__(Threads) abft_kernel(const abft_argument arg) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * Threads + threadIdx.x;
  if (i < arg.count) arg.out[i] = abft_case_of(i);
}

}  // namespace ballast::cuda
