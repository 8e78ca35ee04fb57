// The sum as a CUDA kernel: one block for each row.
// Layer: algorithm, device code.
#pragma once

#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "skeleton/check.hpp"
#include "skeleton/policy.hpp"
#include "skeleton/sites.hpp"

namespace ballast::skeleton {

// Thread t adds x_t, x_{t+T}, … and, for the check, x_{n−1−t}, x_{n−1−t−T}, …: two threads load each number.
template <policy P, class Injector>
__global__ void __launch_bounds__(P.threads) sum_kernel(const __grid_constant__ cuda::kernel_launch<arguments, Injector> given) {
  const arguments& a = given.arguments;
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const double* const x = a.x + row * a.n;
  auto* const partial = reinterpret_cast<double*>(arch::shared_memory());
  double* const total = partial + 3 * P.threads / 32;
  auto& how = *reinterpret_cast<abft::outcome*>(total + 3);
  const inject::device_position here = {row, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), P.threads};
  abft::attempts state(a.repeats);
  do {
    double part[3] = {};  // the sum, the same sum from the other loads, Σ|x|
    for (std::int64_t i = threadIdx.x; i < a.n; i += P.threads) {
      part[0] += x[i];
      part[1] += x[a.n - 1 - i];
      part[2] += fabs(x[a.n - 1 - i]);
    }
    given.strike(cuda::index<1>{}, site::partial, here, part);
    given.strike(cuda::index<2>{}, site::checksum, here, part + 1);
    const double sum = cuda::add_block<P.threads>(part, partial);
    if (threadIdx.x < 3) total[threadIdx.x] = sum;
    __syncthreads();  // the totals must be written before thread 0 reads them
    if (threadIdx.x == 0) {
      abft::finding now = compare(total[0], total[1], total[2], a.n, row, P.check);
      if (P.check) given.strike(cuda::index<1>{}, site::comparison, {row, gridDim.x, 0, 1, 0, 1}, &now.word);
      how = state.judge(now);
      if (abft::stands(how)) a.y[row] = total[0];
      cuda::write_outcome(given, *a.events, how, state.first(), row);
    }
    __syncthreads();  // the outcome must be written before all threads read it, and the totals be read before they are overwritten
  } while (how == abft::outcome::open);
}

}  // namespace ballast::skeleton
