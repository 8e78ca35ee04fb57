// Finds the nearest centroid of each point in compressed rows.
// Layer: backend "cuda" of K-Means, device code.
// A warp computes a row. A lane holds two centroids of a section, so that the centroid entries of one feature are read side by side; if a
// section has few columns, parts of the warp compute different elements of the row. The bytes of an element are its value, its index, and
// the centroid entries of its feature, which come from L2.
#pragma once

#include <limits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/injector.cuh"
#include "cuda/block/launch.cuh"
#include "kmeans/cuda/sparse/points.cuh"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

template <class T>
struct pair_of;
template <>
struct pair_of<float> {
  using type = float2;
};
template <>
struct pair_of<double> {
  using type = double2;
};

template <class T>
__device__ __forceinline__ T sum_of_warp(T value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The smallest score of some columns, with the lowest name, and the second smallest.
template <class T>
struct sparse_least {
  T score = std::numeric_limits<T>::infinity(), second = std::numeric_limits<T>::infinity();
  std::int32_t name = -1;

  __device__ __forceinline__ void join(T other, T other_second, std::int32_t other_name) {
    const T larger = score < other ? other : score;
    second = second < other_second ? second : other_second;
    second = second < larger ? second : larger;
    if (other < score || (other == score && other_name < name)) score = other, name = other_name;
  }
  __device__ __forceinline__ void join_lane(int distance) {
    join(__shfl_xor_sync(0xffffffffu, score, distance), __shfl_xor_sync(0xffffffffu, second, distance),
         __shfl_xor_sync(0xffffffffu, name, distance));
  }
};

// The products of a row with the columns of one section: of each lane those of its two columns, and its part of the product with the
// checksum centroid, from loads of its own.
template <class T>
struct sparse_products {
  T score[2] = {};
  T checksum = 0;
  T square = 0;  // part of ‖x‖²
};

// How the lanes of a warp share a section.
struct sparse_lanes {
  int width, parts, part, own;  // lanes for the columns; parts of the warp; number of the part; lane within it
  __device__ __forceinline__ explicit sparse_lanes(int columns) : width(columns <= 8 ? 4 : columns <= 16 ? 8 : columns <= 32 ? 16 : 32) {
    parts = 32 / width;
    part = arch::lane() / width;
    own = arch::lane() % width;
  }
};

// `strike` shows the first elements of the row to the injector. Terms are added in runs and spans of thresholds::k_run, as on the host.
template <class T, class Strike>
__device__ __forceinline__ sparse_products<T> multiply_row(const sparse_search_arguments<T>& a, std::int64_t begin, std::int64_t end,
                                                           const sparse_lanes& lanes, std::int64_t first, int columns, const T* checksum,
                                                           const Strike& strike) {
  static_assert(thresholds::k_run == 32, "a run is what a warp loads at a time");
  using pair = typename pair_of<T>::type;
  const bool active = 2 * lanes.own < columns;
  const T* const entries = a.centroids.packed + first * a.points.n + (active ? 2 * lanes.own : 0);
  sparse_products<T> made;
  T span[2] = {};
  int runs = 0;
  for (std::int64_t at = begin; at < end; at += 32) {
    const bool there = at + arch::lane() < end;
    sparse_element<T> mine{T(0), 0};
    if (there) mine = load_element(a.points, at + arch::lane());
    made.square += mine.x * mine.x;
    if (a.check && there) {
      const sparse_element<T> again = load_element_again(a.points, at + arch::lane());
      made.checksum += again.x * checksum[again.feature];
    }
    const int count = static_cast<int>(end - at < 32 ? end - at : 32);
    if (at == begin) strike(mine.x, count);
    T run[2] = {};
#pragma unroll 4
    for (int e = 0; e < count; e += lanes.parts) {
      const T x = __shfl_sync(0xffffffffu, mine.x, e + lanes.part);
      const std::int32_t feature = __shfl_sync(0xffffffffu, mine.feature, e + lanes.part);
      const pair c = arch::load_table(reinterpret_cast<const pair*>(entries + std::int64_t{feature} * columns));
      run[0] += x * c.x;
      run[1] += x * c.y;
    }
    span[0] += run[0];
    span[1] += run[1];
    if (++runs % 32 != 0) continue;
    made.score[0] += span[0];
    made.score[1] += span[1];
    span[0] = span[1] = 0;
  }
  made.score[0] += span[0];
  made.score[1] += span[1];
  for (int distance = lanes.width; distance < 32; distance *= 2) {
    made.score[0] += __shfl_xor_sync(0xffffffffu, made.score[0], distance);
    made.score[1] += __shfl_xor_sync(0xffffffffu, made.score[1], distance);
  }
  return made;
}

// Checks: the weighted sum of the scores of a section against the product with its checksum centroid; a second search, which joins the
// lanes in another order; and residuals that stand out among those of the other rows of the warp (kmeans/block.hpp, stands_out). Lane g mod
// 32 keeps the residuals of section g.
template <class T, class Injector>
__global__ void __launch_bounds__(k_sparse_threads)
    sparse_search_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sparse_search_arguments<T>, Injector> given) {
  const sparse_search_arguments<T>& a = given.arguments;
  const sparse_centroids<T>& c = a.centroids;
  using pair = typename pair_of<T>::type;
  const std::int64_t groups = (a.points.m + a.rows - 1) / a.rows;
  const std::int64_t group = std::int64_t{blockIdx.x} * (k_sparse_threads / 32) + arch::warp();
  if (group >= groups) return;
  const std::int64_t first_row = group * a.rows;
  const int rows = static_cast<int>(a.points.m - first_row < a.rows ? a.points.m - first_row : a.rows);
  const int steps = rows * c.sections;
  T largest = 0, sum = 0;
  unsigned char state_of_first = 0;
  for (int r = 0; r < rows; ++r) {
    // Lanes that disagreed about the ends of a row, after a fault, would wait for each other forever.
    const std::int64_t row = first_row + r, own_begin = first_of(a.points, row), own_end = first_of(a.points, row + 1);
    const std::int64_t begin = __shfl_sync(0xffffffffu, own_begin, 0), end = __shfl_sync(0xffffffffu, own_end, 0);
    sparse_least<T> best, twin;
    bool failed = a.check && __any_sync(0xffffffffu, own_begin != begin || own_end != end ? 1 : 0) != 0;
    T square = a.check ? a.squares[row] : T(0);
    for (int g = 0; g < c.sections; ++g) {
      const std::int64_t first = c.first_column[g];
      const int columns = static_cast<int>(c.first_column[g + 1] - first), step = r * c.sections + g;
      const sparse_lanes lanes(columns);
      const T* const checksum = a.check ? c.checksum + g * a.points.n : nullptr;
      sparse_products<T> made = multiply_row(a, begin, end, lanes, first, columns, checksum, [&](T& x, int count) {
        given.strike(ballast::cuda::index<1>{}, site::points, {group, groups, step, steps, arch::lane(), count}, &x);
      });
      if (!a.check && g == 0) square = sum_of_warp(made.square);
      sparse_least<T> here, again;
      T residual = -made.checksum;
      const bool owns = lanes.part == 0 && 2 * lanes.own < columns;
      if (owns) {
        const std::int64_t column = first + 2 * lanes.own;
        const pair norm = arch::load_table(reinterpret_cast<const pair*>(c.norms + column));
        made.score[0] += norm.x;
        made.score[1] += norm.y;
        given.strike(ballast::cuda::index<2>{}, site::product, {group, groups, step, steps, lanes.own, columns / 2}, made.score);
        here.join(made.score[0], here.second, c.names[0][column]);
        here.join(made.score[1], std::numeric_limits<T>::infinity(), c.names[0][column + 1]);
        if (a.check) {
          again.join(made.score[1], again.second, c.names[1][column + 1]);
          again.join(made.score[0], std::numeric_limits<T>::infinity(), c.names[1][column]);
          const pair weight = arch::load_table(reinterpret_cast<const pair*>(c.weights + column)),
                     start = arch::load_table(reinterpret_cast<const pair*>(c.start + column));
          residual += (weight.x * made.score[0] + start.x) + (weight.y * made.score[1] + start.y);
        }
      }
      for (int distance = 16; distance > 1; distance /= 2) here.join_lane(distance);
      // Lane 0, whose result counts, has the even lanes; the odd ones follow.
      given.strike(ballast::cuda::index<1>{}, site::minimum, {group, groups, step, steps, arch::lane(), 1}, &here.score);
      here.join_lane(1);
      best.join(here.score, here.second, here.name);
      if (!a.check) continue;
      for (int distance = 1; distance < 32; distance *= 2) again.join_lane(distance);
      twin.join(again.score, again.second, again.name);
      residual = sum_of_warp(residual) - c.rest[g];
      const T* const limits = c.limits + 3 * g;
      const T limit = limits[0] * square + limits[1], found = residual * residual;
      failed = failed || !(found <= limit);
      if (g % 32 != arch::lane()) continue;
      const T doubt = limit * limits[2], smallest = std::numeric_limits<T>::min();
      const T ratio = found / (doubt < smallest ? smallest : doubt);
      largest = largest < ratio ? ratio : largest;
      sum += ratio;
    }
    failed = a.check && (failed || !(best.score == twin.score));
    if (arch::lane() != 0) continue;
    const T limit = a.square * square + a.least * best.score + a.offset;
    // A second score below the smallest one comes from a fault.
    const bool undecided = best.second >= best.score && best.second - best.score <= limit;
    const auto state = static_cast<unsigned char>((undecided ? k_undecided : 0) | (failed ? k_failed : 0));
    a.label[row] = best.name;
    if (a.check) a.twin[row] = twin.name;
    a.minimum[row] = best.score;
    if (r == 0) state_of_first = state;
    a.state[row] = state;
  }
  if (!a.check) return;
  // As stands_out() of the host.
  constexpr T ratio = static_cast<T>(thresholds::k_doubt * thresholds::k_doubt);
  const T residuals = static_cast<T>(rows * ((c.sections + 31 - arch::lane()) / 32));
  const bool out = largest > 1 && (residuals <= 1 || largest * (residuals - 1) > ratio * (sum - largest));
  const bool any = __any_sync(0xffffffffu, out ? 1 : 0) != 0;
  if (any && arch::lane() == 0) a.state[first_row] = static_cast<unsigned char>(state_of_first | k_doubtful);
}

}  // namespace ballast::kmeans::cuda
