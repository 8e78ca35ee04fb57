// Checksums of whole signals in memory, for a transform by another library.
// Layer: fft/cuda kernels; offline.cpp launches them before and after cuFFT.
#pragma once

#include <cstdint>
#include <type_traits>

#include "abft/seal.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "fft/cuda/kernel/butterfly.cuh"
#include "fft/cuda/schemes/offline.hpp"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

template <class Injector>
using offline_launch = ballast::cuda::kernel_launch<offline_arguments, Injector>;

// A block sums k_offline_part elements of one signal with their weights, in double also for float data. Thread t has elements t, t +
// k_offline_threads, … of the part. Shared memory: partial sums of the warps. Two barriers, each before their addition.
template <bool Wide, class Injector>
__global__ void __launch_bounds__(k_offline_threads) offline_kernel(const __grid_constant__ offline_launch<Injector> given) {
  using real = std::conditional_t<Wide, double, float>;
  using number = complex<real>;
  using abft::value_hash;
  constexpr int warps = k_offline_threads / 32;
  const offline_arguments& a = given.arguments;
  const std::int64_t signal = blockIdx.x / a.parts;
  const std::int64_t first = (blockIdx.x - signal * a.parts) * k_offline_part;
  number* const data = static_cast<number*>(a.data) + signal * a.points;
  const real scale = static_cast<real>(a.scale);
  double sum[5] = {};
  std::uint64_t hash = 0;
  for (int i = 0; i < k_offline_part / k_offline_threads; ++i) {
    const std::int64_t at = first + i * k_offline_threads + threadIdx.x;
    number z = at < a.points ? data[at] : number{real(0), real(0)};
    if (a.output != 0) {
      if (a.scale != 1) z = {z.re * scale, z.im * scale};
      if (i == 0) {
        const inject::device_position here{a.first_block + blockIdx.x,    a.all_blocks,     0, 1,
                                           static_cast<int>(threadIdx.x), k_offline_threads};
        given.strike(index<2>{}, site::output, here, &z.re);
      }
      if ((Injector::enabled || a.scale != 1) && at < a.points) data[at] = z;
      hash += value_hash(z.re, 2 * static_cast<std::uint64_t>(at)) + value_hash(z.im, 2 * static_cast<std::uint64_t>(at) + 1);
    }
    if (at >= a.points) continue;
    complex<double> w[2] = {{1, 0}, {1, 0}};
    std::int64_t rest = at;
    for (int axis = 2; axis >= 0; --axis) {
      if (a.n[axis] == 1) continue;
      const std::int64_t above = rest / a.n[axis];
      const double* const entry = a.weights[axis] + 4 * (rest - above * a.n[axis]);
      rest = above;
      w[0] = w[0] * complex<double>{entry[0], entry[1]};
      w[1] = w[1] * complex<double>{entry[2], entry[3]};
    }
    const double re = static_cast<double>(z.re);
    const double im = static_cast<double>(z.im);
    for (int v = 0; v < 2; ++v) {
      sum[2 * v] += w[v].re * re - w[v].im * im;
      sum[2 * v + 1] += w[v].re * im + w[v].im * re;
    }
    sum[4] += re * re + im * im;
  }
  // Now thread v has sum v, and thread 0 has the hash.
  double* const partial = reinterpret_cast<double*>(arch::shared_memory());
  const double all = ballast::cuda::add_block<k_offline_threads>(sum, partial);
  std::uint64_t hashes[1] = {hash};
  const std::uint64_t all_hashes =
      ballast::cuda::add_block<k_offline_threads>(hashes, reinterpret_cast<std::uint64_t*>(partial + 5 * warps));
  if (threadIdx.x >= 5) return;
  offline_sums& to = a.sums[signal];
  if (threadIdx.x == 0 && a.output != 0) atomicAdd(&to.hash, static_cast<unsigned long long>(all_hashes));
  if (threadIdx.x < 4) {
    atomicAdd((a.output != 0 ? to.output : to.input) + threadIdx.x, all);
  } else if (a.output == 0) {
    atomicAdd(&to.square, all);
  }
}

}  // namespace ballast::fft::cuda
