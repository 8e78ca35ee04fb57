// A protected sum, the worked example of CONTRIBUTING.md for an algorithm with a CUDA backend: y_r = Σ_i x_ri for rows r of n doubles.
// Contract: x is dense. A row is verified from two loads of every number before its sum is stored; a row that stays wrong is not stored.
// Effects below 8u√(2n)·Σ|x_ri| can pass: the two sums differ by a random walk of 2n roundings of at most u·Σ|x_ri| each; 8 is the margin.
#pragma once

#include "abft/threshold.hpp"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"

namespace ballast::sum {

struct policy {
  int threads = 256;  // threads per block; each block sums one row
  bool check = true;
};
struct arguments {
  const double* x;
  double* y;
  cuda::event_ring* events;
  std::int64_t n;
  int repeats;
};

// Thread t adds x_t, x_{t+T}, … and, for the check, x_{n−1−t}, x_{n−1−t−T}, …: two threads load each number.
// Shared memory: three numbers for each warp, three totals, the outcome.
template <policy P, class Injector>
__global__ void __launch_bounds__(P.threads) sum_kernel(const __grid_constant__ cuda::kernel_launch<arguments, Injector> given) {
  const arguments& a = given.arguments;
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const double* const x = a.x + row * a.n;
  auto* const partial = reinterpret_cast<double*>(arch::shared_memory());
  double* const total = partial + 3 * P.threads / 32;
  auto& how = *reinterpret_cast<abft::outcome*>(total + 3);
  abft::attempts state(a.repeats);
  do {
    double part[3] = {};  // the sum, the same sum from the other loads, Σ|x|
    for (std::int64_t i = threadIdx.x; i < a.n; i += P.threads) {
      part[0] += x[i];
      part[1] += x[a.n - 1 - i];
      part[2] += fabs(x[a.n - 1 - i]);
    }
    given.strike(cuda::index<1>{}, inject::site::kmeans_sum, {row, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), P.threads}, part);
    const double sum = cuda::add_block<P.threads>(part, partial);
    if (threadIdx.x < 3) total[threadIdx.x] = sum;
    __syncthreads();  // the totals must be written before thread 0 reads them
    if (threadIdx.x == 0) {
      abft::finding now;
      now.residual = total[0] - total[1];
      now.threshold = 8 * abft::unit_roundoff<double> * sqrt(2.0 * static_cast<double>(a.n)) * total[2];
      if (P.check) now.word = abft::verify(now.residual, abft::guarded_threshold(now.threshold));
      how = state.judge(now);
      if (abft::stands(how)) a.y[row] = total[0];
      cuda::write_outcome(given, *a.events, how, state.first(), row);
    }
    __syncthreads();  // the outcome must be written before all threads read it, and the totals be read before they are overwritten
  } while (how == abft::outcome::open);
}

}  // namespace ballast::sum
