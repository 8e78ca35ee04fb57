// Greedy k-means++: computes the potential with each candidate, and takes one of them.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "cuda/arch/arch.cuh"
#include "kmeans/cuda/assign/distances.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Each thread computes the distances of one row to all candidates; another thread verifies them. Two warps sum each potential in the same
// order. Taking a candidate commits the block's `closest` and potential only if everything agrees. A candidate that was tried is taken by
// its stored distances: another thread loads each again, and their potential must have the bits of the one that was found when the
// distances were verified. Shared memory: the squares, trials × rows; two sums for each candidate and for the stored distances.
template <class T, class Injector>
__global__ void __launch_bounds__(k_seed_threads)
    seeding_kernel(const __grid_constant__ ballast::cuda::kernel_launch<seeding_arguments<T>, Injector> given) {
  const seeding_arguments<T>& a = given.arguments;
  const int trials = a.known ? 1 : a.candidates.count;
  auto* const sums = reinterpret_cast<double*>(arch::shared_memory());  // potential j, again j, …
  T* const squares = reinterpret_cast<T*>(sums + 2 * (k_most_trials + 1));
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_seed_threads;
  const int rows = static_cast<int>(min(a.normalized.m - first, static_cast<std::int64_t>(k_seed_threads)));
  if (a.known) {
    if (thread < rows) {
      T made = load_again(a.distances + a.candidate * a.apart + first + thread);
      given.strike(ballast::cuda::index<1>{}, site::product, {blockIdx.x, gridDim.x, 0, 1, thread, rows}, &made);
      squares[thread] = made;
    }
  } else if (thread < rows) {
    const T* const x = a.normalized.x + (first + thread) * a.normalized.stride;
    for (int j = 0; j < trials; j += k_group) {
      T made[k_group];
      group_distances(x, a.candidates, a.normalized.stride, j, made);
      for (int i = 0; i < k_group && j + i < trials; ++i) {
        given.strike(ballast::cuda::index<1>{}, site::product, {blockIdx.x, gridDim.x, j + i, trials, thread, rows}, made + i);
        squares[(j + i) * k_seed_threads + thread] = made[i];
        if (a.distances != nullptr && !a.take) a.distances[(j + i) * a.apart + first + thread] = made[i];
      }
    }
  }
  __syncthreads();  // the squares are stored
  const int other = k_seed_threads - 1 - thread;
  bool right = true;
  if (a.check && other < rows) {
    if (a.known) {
      const T again = load_again(a.distances + a.candidate * a.apart + first + other);
      right = ballast::cuda::bits(again) == ballast::cuda::bits(squares[other]);
    } else {
      right = row_is_right(a.normalized, a.candidates, first + other, 0, [&](int j) { return squares[j * k_seed_threads + other]; });
    }
    if (!right) flag(a.flags[0], a.normalized.first + first + other);
  }
  // Tasks 2j and 2j + 1 sum the potential with candidate j, the last two without any.
  const int potentials = a.take ? 1 : trials + 1;
  for (int task = arch::warp(); task < 2 * potentials; task += k_seed_threads / 32) {
    if (!a.check && task % 2 != 0) continue;
    const int j = task / 2;
    const double sum = sum_by_warp(rows, [&](int i) {
      const T kept = a.fresh ? std::numeric_limits<T>::max() : load_again(a.closest + first + i);
      const T square = j < trials ? squares[j * k_seed_threads + i] : kept;
      const T weight = a.normalized.weight == nullptr ? T(1) : load_again(a.normalized.weight + first + i);
      return static_cast<double>(weight) * static_cast<double>(square < kept ? square : kept);
    });
    if (arch::lane() == 0) sums[task] = sum;
  }
  right = __syncthreads_and(right ? 1 : 0) != 0;  // the sums are stored
  const std::int64_t at = std::int64_t{blockIdx.x} * a.trials;
  if (!a.take) {
    if (thread < trials) {
      a.tried[at + thread] = sums[2 * thread];
      if (a.check && !(sums[2 * thread] == sums[2 * thread + 1])) flag(a.flags[1], a.normalized.first + first);
    } else if (thread == trials && a.check) {
      if (!(sums[2 * thread] == sums[2 * thread + 1] && sums[2 * thread] == load_again(a.potentials + blockIdx.x)))
        flag(a.flags[2], a.normalized.first + first);
    }
    return;
  }
  bool same = true;
  if (a.check) same = sums[0] == sums[1] && (a.candidate < 0 || sums[0] == load_again(a.tried + at + a.candidate));
  if (!same && thread == 0) flag(a.flags[1], a.normalized.first + first);
  if (!right || !same) return;
  if (thread < rows) {
    const T square = squares[thread];
    T* const closest = a.closest + first + thread;
    const T kept = a.fresh ? std::numeric_limits<T>::max() : *closest;
    *closest = square < kept ? square : kept;
  }
  if (thread == 0) a.potentials[blockIdx.x] = sums[0];
}

}  // namespace ballast::kmeans::cuda
