// The kernels of FT K-Means before and after the tiles: norms, the naive search, the search over the results that tiles stored, and the
// update.
// Layer: backend "cuda" of K-Means, device code.
// Source: FT K-Means, section III A (steps 1 to 3) and IV (the update is computed twice).
#pragma once

#include <cstdint>
#include <limits>

#include "core/counter_rng.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/cuda/schemes/tile.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

template <class Arguments>
__device__ __forceinline__ bool stopped(const Arguments& a) {
  return a.state != nullptr && a.state->reason != 0;
}

// Computes ‖c‖², one warp per centroid. With a.check from two loads, until they agree.
template <class T, class Injector>
__global__ void __launch_bounds__(k_tile_threads)
    tile_norm_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_norm_arguments<T>, Injector> given) {
  const tile_norm_arguments<T>& a = given.arguments;
  if (stopped(a)) return;
  const int lane = static_cast<int>(threadIdx.x % 32), j = static_cast<int>(blockIdx.x * (k_tile_threads / 32) + threadIdx.x / 32);
  if (j >= a.k) return;
  const auto compute = [&] {
    double sum = 0;
    for (int f = lane; f < a.stride; f += 32) {
      const double c = static_cast<double>(*static_cast<const volatile T*>(a.centroids + static_cast<std::int64_t>(j) * a.stride + f));
      sum = __fma_rn(c, c, sum);
    }
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return static_cast<T>(sum);
  };
  T value = compute();
  constexpr int warps = k_tile_threads / 32;
  if (lane == 0) given.strike(index<1>{}, site::norm, {blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x / 32), warps}, &value);
  abft::outcome how = abft::outcome::clean;
  for (int number = 0; a.check; ++number) {
    const T twin = compute();
    const bool same = __shfl_sync(0xffffffffu, twin == value ? 1 : 0, 0) != 0;
    value = twin;
    if (same) break;
    how = number < a.repeats ? abft::outcome::recomputed : abft::outcome::uncorrectable;
    if (number >= a.repeats) break;
  }
  if (lane != 0) return;
  a.norms[j] = value;
  if (a.check) ballast::cuda::write_outcome(given, *a.events, how, abft::finding{}, j, 0, static_cast<std::uint32_t>(check::row));
}

// Step 1: one thread per point computes all distances from differences.
template <class T, class Injector>
__global__ void __launch_bounds__(k_tile_threads)
    tile_naive_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_search_arguments<T>, Injector> given) {
  const tile_search_arguments<T>& a = given.arguments;
  if (stopped(a)) return;
  const std::int64_t i = std::int64_t{blockIdx.x} * k_tile_threads + threadIdx.x;
  if (i >= a.points.m) return;
  const T* const x = a.points.x + i * a.points.stride;
  T best = 0;
  int label = 0;
  for (int j = 0; j < a.k; ++j) {
    const T* const c = a.centroids + static_cast<std::int64_t>(j) * a.points.stride;
    T distance = 0;
    for (int f = 0; f < a.points.n; ++f) {
      const T d = x[f] - c[f];
      distance = fma(d, d, distance);
    }
    given.strike(index<1>{}, site::product, {blockIdx.x, gridDim.x, j, a.k, static_cast<int>(threadIdx.x), k_tile_threads}, &distance);
    if (j == 0 || distance < best) best = distance, label = j;
  }
  a.labels[i] = label;
}

// After step 2: finds the nearest of all stored distances; one warp per point.
template <class T, class Injector>
__global__ void __launch_bounds__(k_tile_threads)
    tile_distances_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_search_arguments<T>, Injector> given) {
  const tile_search_arguments<T>& a = given.arguments;
  if (stopped(a)) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t i = std::int64_t{blockIdx.x} * (k_tile_threads / 32) + threadIdx.x / 32;
  if (i >= a.points.m) return;
  T best = std::numeric_limits<T>::infinity();
  int label = 0x7fffffff;
  for (int j = lane; j < a.k; j += 32) {
    const T distance = a.distances[i * a.k + j];
    if (distance < best || label == 0x7fffffff) best = distance, label = j;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const T value = __shfl_xor_sync(0xffffffffu, best, distance);
    const int other = __shfl_xor_sync(0xffffffffu, label, distance);
    if (value < best || (value == best && other < label)) best = value, label = other;
  }
  if (lane == 0) a.labels[i] = label < a.k ? label : 0;
}

// After step 3: finds the nearest of the tiles' minima; one thread per point.
template <class T, class Injector>
__global__ void __launch_bounds__(k_tile_threads)
    tile_minima_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_search_arguments<T>, Injector> given) {
  const tile_search_arguments<T>& a = given.arguments;
  if (stopped(a)) return;
  const std::int64_t i = std::int64_t{blockIdx.x} * k_tile_threads + threadIdx.x;
  if (i >= a.points.m) return;
  tile_minimum<T> best = a.minima[i * a.across];
  for (int tile = 1; tile < a.across; ++tile) {
    const tile_minimum<T> other = a.minima[i * a.across + tile];
    if (other.value < best.value) best = other;
  }
  a.labels[i] = best.centroid;
}

// Adds the points to the sums of their labels, eight lanes per point, in fixed point: integers, so the order of additions does not matter.
// With sums_twin it also adds them to the second sums, from separate loads, and the last block compares the two. If they differ, it changes
// the totals, so that the checks of the update fail. All sums are 0 on entry.
template <class T, int Words, bool Weighted, class Injector>
__global__ void __launch_bounds__(k_tile_threads)
    tile_update_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_update_arguments<T>, Injector> given) {
  const tile_update_arguments<T>& a = given.arguments;
  if (stopped(a)) return;
  constexpr int k_lanes = 8, k_rows = k_tile_threads / k_lanes;
  const int stride = a.points.stride, pitch = sum_pitch(stride), lane = static_cast<int>(threadIdx.x % k_lanes);
  const std::int64_t i = std::int64_t{blockIdx.x} * k_rows + threadIdx.x / k_lanes;
  const bool there = i < a.points.m, check = a.sums_twin != nullptr;
  unsigned long long quantities[k_quantities] = {};
  const inject::device_position position{blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), k_tile_threads};
  if (there) {
    const volatile T* const x = a.points.x + i * stride;
    const auto label = static_cast<int>(*static_cast<const volatile std::int32_t*>(a.labels + i));
    const auto again = static_cast<int>(*static_cast<const volatile std::int32_t*>(a.labels + i));
    const auto weight = [&] { return Weighted ? *static_cast<const volatile T*>(a.points.weight + i) : T(1); };
    // Adds the words of one column to the sums of cluster j.
    const auto add = [&](unsigned long long* sums, int j, int column, bool strikes) {
      std::int32_t word[Words];
      const T unit = a.points.unit[column];
      if constexpr (Weighted) {
        const T w = weight(), value = column == a.points.n ? T(1) : static_cast<T>(x[column]), product = rounded_product(w, value);
        split<Words>(product, product_rest(w, value, product), unit, word);
      } else {
        split<Words>(static_cast<T>(x[column]), unit, word);
      }
      for (int w = 0; w < Words; ++w) {
        auto value = static_cast<std::uint64_t>(std::int64_t{word[w]});
        if (strikes) given.strike(index<1>{}, site::sum, position, &value);
        arch::add_global(sums + (static_cast<std::int64_t>(j) * Words + w) * pitch + sum_index<T>(column, a.points.n, stride), value);
      }
    };
    for (int column = lane; column < a.points.columns; column += k_lanes) {
      add(a.sums, label, column, true);
      if (check) add(a.sums_twin, again, column, false);
    }
    if (lane == 0) {
      const bool counts = weight() > 0;
      if (counts) {
        std::uint64_t one = 1;
        given.strike(index<1>{}, site::count, {blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x / k_lanes), k_rows}, &one);
        arch::add_global(a.members + label, one);
        if (check) arch::add_global(a.members_twin + again, 1);
      }
      const unsigned long long signature = check ? a.points.signature[i] : 0;
      const bool same = a.previous != nullptr && a.previous[i] == again;
      quantities[0] = signature;
      quantities[1] = static_cast<unsigned>(again) * signature;
      quantities[2] = counts ? static_cast<unsigned long long>(static_cast<unsigned>(again)) << 32 | 1 : 0;
      quantities[3] = same ? 1 : 0;
      quantities[4] = a.previous == nullptr || a.previous[i] != label ? 1 : 0;
    }
  }
  auto& partial = arch::shared_object<unsigned long long[k_quantities * (k_tile_threads / 32)], struct tile_update_partial>();
  const unsigned long long total = ballast::cuda::add_block<k_tile_threads>(quantities, partial);
  if (threadIdx.x < k_quantities && total != 0) arch::add_global(a.totals->quantities + threadIdx.x, total);
  if (!check) return;
  auto& last = arch::shared_object<std::uint32_t, struct tile_update_last>();
  arch::fence_gpu();
  __syncthreads();  // all sums of this block have been added
  if (threadIdx.x == 0) last = ballast::cuda::arrives_last(a.ticket, gridDim.x) ? 1 : 0;
  __syncthreads();  // `last` is stored
  if (last == 0) return;
  arch::fence_gpu();
  bool same = true;
  const std::int64_t words = static_cast<std::int64_t>(a.k) * Words * pitch;
  for (std::int64_t e = threadIdx.x; e < words; e += k_tile_threads)
    same = same && arch::load_keep(a.sums + e) == arch::load_keep(a.sums_twin + e);
  for (int j = static_cast<int>(threadIdx.x); j < a.k; j += k_tile_threads)
    same = same && arch::load_keep(a.members + j) == arch::load_keep(a.members_twin + j);
  if (__syncthreads_or(same ? 0 : 1) != 0 && threadIdx.x == 0) arch::add_global(a.totals->quantities + 1, 1);
}

}  // namespace ballast::kmeans::cuda
