// k-means‖: the nearest candidate of each point and its distance, the draws of a round, and the check of the stored distances.
// Layer: backend "cuda" of K-Means, device code.
// Source: B. Bahmani, B. Moseley, A. Vattani, R. Kumar, S. Vassilvitskii, Scalable K-Means++, VLDB 2012.
#pragma once

#include "core/counter_rng.hpp"
#include "cuda/arch/arch.cuh"
#include "kmeans/cuda/assign/distances.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T>
__device__ __forceinline__ T weight_again(const normalized_points<T>& p, std::int64_t row) {
  return p.weight == nullptr ? T(1) : load_again(p.weight + row);
}

// Each thread computes the distances of one row to all candidates of a group, and the smallest of them; another thread verifies their
// weighted sum, and the smallest distance by computing it again. A second chain of minima detects wrong comparisons. Two warps sum the
// potential in the same order. A block stores its results only if everything agrees, so a launch can be repeated. Shared memory: two pairs
// of sums, and per row the weighted sum, the distance, and the index.
template <class T, class Injector>
__global__ void __launch_bounds__(k_seed_threads)
    cover_kernel(const __grid_constant__ ballast::cuda::kernel_launch<cover_arguments<T>, Injector> given) {
  const cover_arguments<T>& a = given.arguments;
  auto* const sums = reinterpret_cast<double*>(arch::shared_memory());  // potential, again; stored potential, again
  double* const weighted = sums + 4;
  T* const squares = reinterpret_cast<T*>(weighted + k_seed_threads);
  auto* const numbers = reinterpret_cast<std::int32_t*>(squares + k_seed_threads);
  const int count = a.candidates.count, thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_seed_threads;
  const int rows = static_cast<int>(min(a.normalized.m - first, static_cast<std::int64_t>(k_seed_threads)));
  bool right = true;
  if (thread < rows) {
    const T* const x = a.normalized.x + (first + thread) * a.normalized.stride;
    T nearest = std::numeric_limits<T>::max(), least = nearest;
    std::int32_t number = 0;
    double sum = 0;
    for (int j = 0; j < count; j += k_group) {
      T made[k_group];
      group_distances(x, a.candidates, a.normalized.stride, j, made);
      for (int i = 0; i < k_group && j + i < count; ++i) {
        given.strike(ballast::cuda::index<1>{}, site::product, {blockIdx.x, gridDim.x, j + i, count, thread, rows}, made + i);
        sum = __fma_rn(static_cast<double>(load_again(a.candidates.weight + j + i)), static_cast<double>(made[i]), sum);
        number = made[i] < nearest ? j + i : number;
        nearest = made[i] < nearest ? made[i] : nearest;
        least = made[i] < least ? made[i] : least;
      }
    }
    given.strike(ballast::cuda::index<1>{}, site::minimum, {blockIdx.x, gridDim.x, 0, 1, thread, rows}, &nearest);
    given.strike(ballast::cuda::index<1>{}, site::index, {blockIdx.x, gridDim.x, 0, 1, thread, rows},
                 reinterpret_cast<std::uint32_t*>(&number));
    weighted[thread] = sum;
    squares[thread] = nearest;
    numbers[thread] = number;
    if (a.check && !(nearest == least)) {
      right = false;
      flag(a.flags[0], a.normalized.first + first + thread);
    }
  }
  __syncthreads();  // the distances are stored
  const int other = k_seed_threads - 1 - thread;
  if (a.check && other < rows) {
    const int number = numbers[other];
    bool fits = number >= 0 && number < count && sum_is_right(a.normalized, a.candidates, first + other, 0, weighted[other]);
    if (fits) {
      T again[k_group];
      group_distances(a.normalized.x + (first + other) * a.normalized.stride, a.candidates, a.normalized.stride, number, again);
      fits = again[0] == squares[other];
    }
    if (!fits) {
      right = false;
      flag(a.flags[0], a.normalized.first + first + other);
    }
  }
  // Tasks 0 and 1 sum the potential with these candidates, 2 and 3 without them.
  const int task = arch::warp();
  if (task < 4 && (a.check || task == 0) && !(task >= 2 && a.fresh)) {
    const double sum = sum_by_warp(rows, [&](int i) {
      const T kept = a.fresh ? std::numeric_limits<T>::max() : load_again(a.closest + first + i);
      const T square = task < 2 && squares[i] < kept ? squares[i] : kept;
      return static_cast<double>(weight_again(a.normalized, first + i)) * static_cast<double>(square);
    });
    if (arch::lane() == 0) sums[task] = sum;
  }
  right = __syncthreads_and(right ? 1 : 0) != 0;  // the sums are stored
  if (a.check) {
    const bool same = sums[0] == sums[1];
    const bool kept = a.fresh || (sums[2] == sums[3] && sums[2] == load_again(a.potentials + blockIdx.x));
    __syncthreads();  // all have read the potential
    if (!same && thread == 0) flag(a.flags[1], a.normalized.first + first);
    if (!kept && thread == 0) flag(a.flags[2], a.normalized.first + first);
    if (!right || !same || !kept) return;
  }
  if (thread < rows) {
    T* const closest = a.closest + first + thread;
    if (a.fresh || squares[thread] < *closest) {
      *closest = squares[thread];
      a.nearest[first + thread] = a.first + numbers[thread];
    }
  }
  if (thread == 0) a.potentials[blockIdx.x] = sums[0];
}

// Returns whether a row is drawn: core::random_uniform · Σ weight · closest < expected · weight · closest.
template <class T>
__device__ __forceinline__ bool is_drawn(const draw_arguments<T>& a, std::int64_t row) {
  const double part = __dmul_rn(static_cast<double>(weight_again(a.normalized, row)), static_cast<double>(load_again(a.closest + row)));
  const std::int64_t number = a.normalized.first + row;
  return __dmul_rn(core::random_uniform(a.seed, a.stream, static_cast<std::uint64_t>(number)), a.potential) < __dmul_rn(a.expected, part);
}

// Thread t draws row t of its block, and another thread draws it again; the bits of a warp form one word. One warp verifies the potential.
template <class T, class Injector>
__global__ void __launch_bounds__(k_seed_threads)
    draw_kernel(const __grid_constant__ ballast::cuda::kernel_launch<draw_arguments<T>, Injector> given) {
  const draw_arguments<T>& a = given.arguments;
  constexpr int warps = k_seed_threads / 32;
  const std::int64_t first = std::int64_t{blockIdx.x} * k_seed_threads;
  const int rows = static_cast<int>(min(a.normalized.m - first, static_cast<std::int64_t>(k_seed_threads)));
  const auto draw = [&](int warp) {
    const int row = warp * 32 + arch::lane();
    return __ballot_sync(0xffffffffu, row < rows && is_drawn(a, first + row));
  };
  std::uint32_t bits = draw(arch::warp());
  if (arch::lane() == 0) {
    given.strike(ballast::cuda::index<1>{}, site::label, {blockIdx.x, gridDim.x, 0, 1, arch::warp(), warps}, &bits);
    a.drawn[std::int64_t{blockIdx.x} * warps + arch::warp()] = bits;
  }
  if (!a.check) return;
  const int other = warps - 1 - arch::warp();
  const std::uint32_t again = draw(other);
  if (arch::lane() == 0) a.again[std::int64_t{blockIdx.x} * warps + other] = again;
  if (arch::warp() != 0) return;
  const double sum = sum_by_warp(rows, [&](int i) {
    return static_cast<double>(weight_again(a.normalized, first + i)) * static_cast<double>(load_again(a.closest + first + i));
  });
  if (arch::lane() == 0 && !(sum == load_again(a.potentials + blockIdx.x))) flag(a.flags[2], a.normalized.first + first);
}

// Verifies the stored distance of each row to its candidate. Shared memory: two numbers per row.
template <class T>
__global__ void __launch_bounds__(k_row_threads) nearest_kernel(const __grid_constant__ nearest_arguments<T> a) {
  auto* const squares = reinterpret_cast<double*>(arch::shared_memory());
  double* const sizes = squares + k_row_threads;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_row_threads, row = first + thread;
  const int rows = static_cast<int>(min(a.exact.normalized.m - first, static_cast<std::int64_t>(k_row_threads)));
  normalized_distances(a.exact, first, rows, false, squares, sizes);
  __syncthreads();  // the distances are stored
  if (thread < rows && !agrees_normalized(a.exact, row, static_cast<double>(load_again(a.closest + row)), squares[thread], sizes[thread]))
    flag(*a.exact.flags, a.exact.normalized.first + row);
}

}  // namespace ballast::kmeans::cuda
