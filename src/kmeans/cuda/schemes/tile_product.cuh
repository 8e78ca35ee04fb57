// A block's tile of the products x·c: copies, products, and the elements that each lane holds. See tile.hpp.
// Layer: backend "cuda" of K-Means, device code.
// With g = lane / 4 and t = lane % 4, a lane holds rows g and g + 8 and columns 2t and 2t + 1 of each fragment of its warp's tile, with
// either unit. A stage contains, k-slice by k-slice, the rows of points and then those of centroids, four 16-byte vectors each; vector q of
// row r is stored at position q ^ (r / 2 % 4), so that neither access pattern has bank conflicts.
#pragma once

#include <cstdint>
#include <limits>

#include "core/counter_rng.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/layout/tensor.cuh"
#include "kmeans/cuda/schemes/tile.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

__device__ __forceinline__ float4 packed(const features<float>& v) { return make_float4(v.at[0], v.at[1], v.at[2], v.at[3]); }
__device__ __forceinline__ double2 packed(const features<double>& v) { return make_double2(v.at[0], v.at[1]); }
template <class T>
__device__ __forceinline__ features<T> rounded(features<T> v) {
#pragma unroll
  for (int e = 0; e < k_vector<T>; ++e) v.at[e] = tensor_rounded(v.at[e]);
  return v;
}

// The product of a thread block: a tile of the scores. It has many members because the constants of the policy are among them.
template <class T, tile_policy P, class Injector>
struct tile_product {
  using launch = ballast::cuda::kernel_launch<tile_arguments<T>, Injector>;
  using fragment = tensor<T>;
  using vector = typename fragment::vector;
  static_assert(P.unit == tile_unit::lanes || obeys_rules<T>(P));
  static constexpr int k_halves = fragment::k_halves, k_scores = fragment::k_scores;
  static constexpr int k_down = P.warp_rows / k_fragment_rows;  // fragments per warp
  static constexpr int k_across = P.warp_columns / 8;
  static constexpr int k_warps_across = P.columns / P.warp_columns;
  static constexpr int k_threads = P.threads();
  static constexpr int k_slices = P.depth / k_slice<T>;
  static constexpr int k_lines = P.rows + P.columns;  // per k-slice of a stage
  static constexpr int k_stage_vectors = k_slices * k_lines * 4;
  static constexpr int k_held = (k_stage_vectors + k_threads - 1) / k_threads;  // vectors of a stage that a thread copies

  const launch& given;
  const tile_arguments<T>& a;
  vector* const stages;
  const int lane, warp, g, t;
  const int row, column;         // position of the warp's tile in the block's tile
  const std::int64_t first_row;  // first row of the block's tile
  const int first_column;
  const int chunks;  // stages for all features
  T sums[k_down][k_across][k_scores];

  __device__ __forceinline__ explicit tile_product(const launch& from)
      : given(from),
        a(from.arguments),
        stages(reinterpret_cast<vector*>(arch::shared_memory())),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        g(lane / 4),
        t(lane % 4),
        row(warp / k_warps_across * P.warp_rows),
        column(warp % k_warps_across * P.warp_columns),
        first_row(static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(tiles_across())) * P.rows),
        first_column(static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles_across())) * P.columns),
        chunks((from.arguments.points.stride + P.depth - 1) / P.depth) {}

  __device__ __forceinline__ int tiles_across() const { return (given.arguments.k + P.columns - 1) / P.columns; }
  // row_of: row in the block's tile of element s of fragment i. column_of: column of element s of fragment j.
  __device__ __forceinline__ int row_of(int i, int s) const { return row + i * k_fragment_rows + s / 2 * 8 + g; }
  __device__ __forceinline__ int column_of(int j, int s) const { return column + 8 * j + 2 * t + s % 2; }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int j = 0; j < k_across; ++j)
#pragma unroll
        for (int s = 0; s < k_scores; ++s) sums[i][j][s] = 0;
  }

  // ---- Stages ----

  __device__ static __forceinline__ int stage_index(int slice, int line, int q) {
    return (slice * k_lines + line) * 4 + (q ^ (line >> 1 & 3));
  }
  __device__ __forceinline__ features<T> point(const vector* stage, int slice, int line, int q) const {
    return unpacked(stage[stage_index(slice, line, q)]);
  }
  __device__ __forceinline__ features<T> centroid(const vector* stage, int slice, int line, int q) const {
    return unpacked(stage[stage_index(slice, P.rows + line, q)]);
  }
  __device__ __forceinline__ vector* stage(int number) const { return stages + number * k_stage_vectors; }

  // Returns the source of vector `number` of chunk `chunk`, or null if there is none; sets `to` to its position in the stage.
  __device__ __forceinline__ const T* source(int chunk, int number, int& to) const {
    const int slice = number / (k_lines * 4), line = number / 4 % k_lines, q = number % 4;
    const int f = chunk * P.depth + slice * k_slice<T> + q * k_vector<T>;
    to = stage_index(slice, line, q);
    if (f >= a.points.stride) return nullptr;
    if (line < P.rows) return a.points.x + (first_row + line) * a.points.stride + f;
    const int j = first_column + line - P.rows;
    return j < a.k ? a.centroids + static_cast<std::int64_t>(j) * a.points.stride + f : nullptr;
  }
  __device__ __forceinline__ void copy(int chunk, vector* to_stage) const {
    if (chunk < chunks) {
#pragma unroll
      for (int e = 0; e < k_held; ++e) {
        const int number = static_cast<int>(threadIdx.x) + e * k_threads;
        if (k_stage_vectors % k_threads != 0 && number >= k_stage_vectors) break;
        int to = 0;
        const T* const from = source(chunk, number, to);
        arch::copy_async<16>(to_stage + to, from != nullptr ? from : a.points.x, from != nullptr);
      }
    }
    arch::commit_async();
  }

  // ---- Products ----

  // Multiplies one stage. Calls see(points of fragments, centroids of fragments) with the operands of each k-slice (tensor unit only).
  template <class See>
  __device__ __forceinline__ void multiply(const vector* from, See&& see) {
#pragma unroll
    for (int slice = 0; slice < k_slices; ++slice) {
      if constexpr (P.unit == tile_unit::tensor) {
        features<T> x[k_down][k_halves], c[k_across];
#pragma unroll
        for (int i = 0; i < k_down; ++i)
#pragma unroll
          for (int h = 0; h < k_halves; ++h) x[i][h] = rounded(point(from, slice, row + i * k_fragment_rows + 8 * h + g, t));
#pragma unroll
        for (int j = 0; j < k_across; ++j) c[j] = rounded(centroid(from, slice, column + 8 * j + g, t));
        see(x, c);
#pragma unroll
        for (int i = 0; i < k_down; ++i) {
          const typename fragment::rows operand = as_rows(x[i]);
#pragma unroll
          for (int j = 0; j < k_across; ++j) fragment::multiply_add(sums[i][j], operand, packed(c[j]));
        }
      } else {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          features<T> x[k_down * k_halves], c[k_across * 2];
#pragma unroll
          for (int i = 0; i < k_down * k_halves; ++i) x[i] = point(from, slice, row + 8 * i + g, q);
#pragma unroll
          for (int j = 0; j < k_across * 2; ++j) c[j] = centroid(from, slice, column + j / 2 * 8 + 2 * t + j % 2, q);
#pragma unroll
          for (int v = 0; v < k_vector<T>; ++v)
#pragma unroll
            for (int i = 0; i < k_down; ++i)
#pragma unroll
              for (int j = 0; j < k_across; ++j)
#pragma unroll
                for (int s = 0; s < k_scores; ++s)
                  sums[i][j][s] = fma(x[i * k_halves + s / 2].at[v], c[j * 2 + s % 2].at[v], sums[i][j][s]);
        }
      }
    }
  }

  // Converts rounded rows to an operand.
  __device__ static __forceinline__ typename fragment::rows as_rows(const features<T> (&x)[k_halves]) {
    if constexpr (sizeof(T) == 4) {
      using ballast::cuda::bits;
      return {{{bits(x[0].at[0]), bits(x[1].at[0]), bits(x[0].at[1]), bits(x[1].at[1])},
               {bits(x[0].at[2]), bits(x[1].at[2]), bits(x[0].at[3]), bits(x[1].at[3])}}};
    } else {
      return {{x[0].at[0], x[1].at[0], x[0].at[1], x[1].at[1]}};
    }
  }

  // ---- Faults ----

  __device__ __forceinline__ int intervals() const { return (a.points.stride + k_tile_interval - 1) / k_tile_interval; }
  // Returns whether an interval ends after this chunk. here() contains the index of the interval.
  __device__ __forceinline__ bool ends_interval(int chunk) const {
    return chunk + 1 == chunks || (chunk + 1) * P.depth % k_tile_interval == 0;
  }
  __device__ __forceinline__ inject::device_position here(int chunk) const {
    return {blockIdx.x, gridDim.x, chunk * P.depth / k_tile_interval, intervals(), static_cast<int>(threadIdx.x), k_threads};
  }
  // Shows the products at the end of an interval to the injector.
  __device__ __forceinline__ void strike_products(int chunk, int number) {
    if constexpr (Injector::enabled) {
      constexpr int count = k_down * k_across * k_scores;
      given.strike(index<count>{}, site::product, here(chunk), &sums[0][0][0]);
      if (a.flips == 0 || number > 0) return;
      // The paper's injection: one bit of one product per block.
      const std::uint64_t bits = core::random_bits(a.flips, 1, blockIdx.x);
      if (static_cast<int>(bits % k_threads) != static_cast<int>(threadIdx.x)) return;
      if (static_cast<int>(bits >> 16 & 0xff) % intervals() != chunk * P.depth / k_tile_interval) return;
      const int which = static_cast<int>(bits >> 24 & 0xffff) % count,
                bit = static_cast<int>(bits >> 40 & 0xff) % (8 * static_cast<int>(sizeof(T)));
      for (int e = 0; e < count; ++e) {
        if (e != which) continue;
        T& value = (&sums[0][0][0])[e];
        if constexpr (sizeof(T) == 4) {
          value = ballast::cuda::from_bits<T>(ballast::cuda::bits(value) ^ 1u << bit);
        } else {
          value = ballast::cuda::from_bits<T>(ballast::cuda::bits(value) ^ std::uint64_t{1} << bit);
        }
      }
    }
  }

  __device__ __noinline__ static void report(const launch& given, abft::outcome how, double residual, double threshold, std::int64_t i,
                                             check which) {
    abft::finding found;
    found.residual = residual;
    found.threshold = threshold;
    ballast::cuda::write_outcome(given, *given.arguments.events, how, found, i, 0, static_cast<std::uint32_t>(which));
  }
};

}  // namespace ballast::kmeans::cuda
