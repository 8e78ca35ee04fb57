// The main loop of a pass: computes the scores of a warp's rows, and finds the largest scores of each row, with checks.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
// With g = lane / 4 and t = lane % 4, the four lanes of a group have rows g and g + 8 of the warp; lane t has columns 2t and 2t + 1 of each
// tile. q numbers the rows of a lane.
#pragma once

#include "cuda/arch/wgmma.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/assign/centroid_stage.cuh"
#include "kmeans/cuda/assign/row_search.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// The state of a thread during one launch: its position and its arguments. It has many members because the constants of the policy are
// among them.
template <class T, pass_policy P, class Injector>
struct pass_scores {
  using fragment = operands<T>;
  using vector = typename fragment::vector;
  using operand = typename fragment::rows;
  using launch = ballast::cuda::kernel_launch<pass_arguments<T>, Injector>;
  using stage = centroid_stage<T, P>;

  static constexpr int k_groups = fragment::k_halves;  // groups of 8 rows; a lane has one row of each
  static constexpr int k_rows = k_pass_rows;           // rows per warp
  static constexpr int k_threads = 32 * P.warps;
  static constexpr int k_tile_threads = 32 * pass_rows_of_tile(P) / k_pass_rows;  // threads that work on a tile of rows
  static constexpr bool k_checks = P.check;
  static constexpr bool k_warpgroup = P.unit == product_unit::warpgroup;
  static constexpr bool k_in_registers = P.slices > 0;
  // true if a tile's rows are loaded during the search of the tile before. Otherwise registers are too scarce.
  static constexpr bool k_prefetches =
      sizeof(T) == 4 && (P.slices == 0 ? P.unit == product_unit::warpgroup
                                       : P.centroids == centroid_memory::shared &&
                                             (P.single || (P.unit == product_unit::warpgroup && P.warps * P.blocks < 16)));
  static constexpr bool k_rows_in_ring = P.rows;
  static constexpr int k_slices = k_in_registers ? P.slices : k_rows_in_ring ? 0 : P.depth;  // k-slices of x loaded ahead
  static constexpr int k_scores = fragment::k_scores;                                        // scores per lane and tile
  static_assert(k_rows == k_operand_rows);
  static_assert(P.tiles <= k_most_group_tiles && (!k_in_registers || P.slices % P.depth == 0));
  static_assert(P.unit == product_unit::warp || (sizeof(T) == 4 && P.warps % 4 == 0 && P.centroids != centroid_memory::global));

  const launch& given;
  const pass_arguments<T>& a;
  int lane, g, t;
  bool upper;  // t ≥ 2: the lane owns the second of its two rows
  int warp;    // from a shuffle, so that the compiler knows it is uniform over the warp

  __device__ __forceinline__ explicit pass_scores(const launch& from)
      : given(from),
        a(from.arguments),
        lane(static_cast<int>(threadIdx.x % 32)),
        g(lane / 4),
        t(lane % 4),
        upper(t >= 2),
        warp(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)) {}

  __device__ __forceinline__ inject::device_position here(std::int64_t tile, std::int64_t tiles, int step = 0, int steps = 1) const {
    return {tile, tiles, step, steps, static_cast<int>(threadIdx.x) % k_tile_threads, k_tile_threads};
  }

  // Rows are indexed with 32 bits (k_most_rows).
  __device__ __forceinline__ int points() const { return static_cast<int>(a.points.m); }
  // Rows after the last point are allocated, and are 0.
  __device__ __forceinline__ int stride() const { return k_in_registers ? P.slices * k_slice<T> : a.points.stride; }
  __device__ __forceinline__ const T* row(int i) const { return a.points.x + static_cast<std::int64_t>(i) * stride(); }

  // Data of the row that this lane owns (the own row).
  struct row_statistics {
    int i;
    T norm;
    T error;  // error bound of the score of a centroid that can be the nearest
    T projection;
    unsigned long long signature;
    int before;          // its label in the previous pass
    bool bad = false;    // true if a check failed
    bool doubt = false;  // true if the residual of a section is possible, but large
    check failed = {};   // the check that failed
  };
  static constexpr bool k_counts = P.sums != sum_memory::none;  // true if the pass has sums, which the labels must agree with
  __device__ __forceinline__ unsigned long long signature_of(int i) const {
    if constexpr (!k_checks || !k_counts) return 0;
    return arch::load_table_late(reinterpret_cast<const unsigned long long*>(a.points.signature) + i);
  }
  __device__ __forceinline__ int label_before(int i) const { return a.previous != nullptr ? arch::load_table_late(a.previous + i) : -1; }
  // Loads the data by which the label of row i is verified and counted.
  __device__ __forceinline__ void load_row_stats(int i, row_statistics& to) const {
    to.i = i;
    if constexpr (sizeof(T) == 8) to.norm = arch::load_table_late(a.points.norm + i);
    to.projection = k_checks ? arch::load_table_late(a.points.projection + i) : T(0);
    to.signature = signature_of(i);
    to.before = i < points() ? label_before(i) : -1;
  }

  // Data of a tile of rows that is loaded before its products: the first k_slices k-slices; in f32 the norm and rounding that determine the
  // spread of the own row; with k_row_stats_ahead also the statistics that verify labels.
  struct rows_ahead {
    operand rows[k_slices > 0 ? k_slices : 1];
    T norm;
    T rounding;
    row_statistics row_stats;
  };
  static constexpr bool k_row_stats_ahead = k_prefetches && (k_in_registers || k_rows_in_ring);
  __device__ __forceinline__ void load_ahead(int first, rows_ahead& to) const {
#pragma unroll
    for (int slice = 0; slice < k_slices; ++slice) to.rows[slice] = fragment::load(a.points, first, slice, stride());
    load_spread(first, to);
    if constexpr (k_row_stats_ahead) load_row_stats(own_row(first), to.row_stats);
  }
  __device__ __forceinline__ void load_spread(int first, rows_ahead& to) const {
    if constexpr (sizeof(T) == 4) {
      to.norm = arch::load_table_late(a.points.norm + own_row(first));
      to.rounding = arch::load_table_late(a.points.rounding + own_row(first));
    }
  }

  static constexpr int k_group_scores = P.tiles * k_scores;  // tile by tile
  static constexpr int k_named = named_columns(P);
  // f32: true if each centroid's own norm bounds the error of its scores; false: the largest norm does. With many features this error is a
  // large part of the difference of two scores, and there are more products per score, which hide the additional work.
  static constexpr bool k_own_errors = sizeof(T) == 4 && !k_in_registers;
  static constexpr int k_other_thresholds = sizeof(T) == 4 && !k_own_errors ? 3 : 2;  // sites of thresholds beside those of sections
  using errors = row_errors<T, k_groups>;
  static constexpr bool k_follows = k_checks && !P.single;  // f32: a largest score affects which columns later groups keep

  // Loads the start values of the scores of a tile, or their weights in the row check, for this lane's two columns.
  __device__ __forceinline__ void load_columns(const T* columns, int i, int which, T (&to)[2]) const {
    using pair = typename fragment::pair;
    const auto* const at = reinterpret_cast<const pair*>(columns + (2 * i + which) * k_tile_columns);
    const pair both = P.columns ? *at : arch::load_table(at);
    to[0] = both.x, to[1] = both.y;
  }
  // Returns the argument of load_columns: the columns of a group, beginning with this lane's.
  __device__ __forceinline__ const T* columns_of(const stage& centroids, int group) const {
    constexpr int size = P.tiles * 2 * k_tile_columns;
    return centroids.columns + (P.columns ? group * size : std::int64_t{group} * size) + 2 * t;
  }

  // Computes scores += rows · columns over `depth` k-slices of a group. A warpgroup only starts the product: call between fence_wgmma and
  // wait_wgmma.
  __device__ __forceinline__ void multiply(const unsigned char* centroids, const operand (&rows)[P.depth],
                                           T (&scores)[k_group_scores]) const {
    if constexpr (k_warpgroup) {
      const arch::matrix_descriptor columns = arch::describe(centroids, k_slice_bytes<T>, arch::swizzle::none, k_slice_bytes<T> / 2);
#pragma unroll
      for (int slice = 0; slice < P.depth; ++slice)
        arch::wgmma_m64k16_f16<8 * P.tiles>(scores, rows[slice].at, arch::advanced(columns, slice * P.tiles * k_slice_bytes<T>));
      arch::commit_wgmma();
    } else {
      using column = typename fragment::column;
      const auto* const packed = reinterpret_cast<const column*>(centroids) + lane;
#pragma unroll
      for (int slice = 0; slice < P.depth; ++slice) {
#pragma unroll
        for (int i = 0; i < P.tiles; ++i) {
          const column* const at = packed + (slice * P.tiles + i) * 32;
          const column own = P.centroids == centroid_memory::global ? arch::load_table(at) : *at;
          fragment::multiply_add(&scores[i * k_scores], rows[slice], own);
        }
      }
    }
  }

  // Computes the scores of one group of tiles, from their start values, for the rows from `first` on. On entry `rows` holds the first
  // k_slices k-slices of these rows. If rows do not stay in registers, on return it holds those of the rows from `next` on, whose loads are
  // in flight during the products. If rows pass through the ring, it is unused. meanwhile() is called once: after the first products have
  // started; or before them, if rows do not stay in registers.
  template <class Meanwhile>
  __device__ __forceinline__ void compute_scores(stage& centroids, int first, int next, int group, const T* columns,
                                                 operand (&rows)[k_slices > 0 ? k_slices : 1], T (&scores)[k_group_scores],
                                                 Meanwhile&& meanwhile) const {
    const packed_shape& shape = a.centroids.shape;
#pragma unroll
    for (int i = 0; i < P.tiles; ++i) {
      T start[2];
      load_columns(columns, i, 0, start);
#pragma unroll
      for (int v = 0; v < k_scores; ++v) scores[i * k_scores + v] = start[v % 2];
    }
    const auto begin_products = [&] {
      if constexpr (k_warpgroup) arch::fence_wgmma(scores);
    };
    const auto end_products = [&] {
      if constexpr (k_warpgroup) arch::wait_wgmma<0>(scores);
    };
    if constexpr (k_in_registers) {
      // All chunks of the group are multiplied before the first wait, if the ring has room for them.
      constexpr bool together = k_warpgroup && stage::k_loader && P.slices / P.depth < P.slots;
      begin_products();
#pragma unroll
      for (int slice = 0; slice < P.slices; slice += P.depth) {
        multiply(centroids.acquire(shape, group, slice), reinterpret_cast<const operand(&)[P.depth]>(rows[slice]), scores);
        if (slice == 0) meanwhile();
        if constexpr (together) {
          centroids.pass();
        } else {
          end_products();
          centroids.release();
          if (slice + P.depth < P.slices) begin_products();
        }
      }
      if constexpr (together) {
        end_products();
        centroids.template release_passed<P.slices / P.depth>(P.slices / P.depth);
      }
    } else if constexpr (k_rows_in_ring) {
      meanwhile();
      constexpr int together = 2;  // chunks: the rows of the second one are read while the first is multiplied
#pragma unroll 1
      for (int slice = 0; slice < shape.slices; slice += together * P.depth) {
        operand now[together][P.depth];
        begin_products();
#pragma unroll
        for (int c = 0; c < together; ++c) {
          if (c > 0 && slice + c * P.depth >= shape.slices) break;
          const unsigned char* const chunk = centroids.acquire(shape, group, slice + c * P.depth);
#pragma unroll
          for (int d = 0; d < P.depth; ++d) now[c][d] = fragment::read(chunk + stage::k_chunk_bytes, warp, d);
          arch::fence_wgmma();
          multiply(chunk, now[c], scores);
          centroids.pass();
        }
        end_products();
        centroids.template release_passed<together>(min(together, (shape.slices - slice) / P.depth));
      }
    } else {
      meanwhile();
#pragma unroll 1
      for (int slice = 0; slice < shape.slices; slice += P.depth) {
        operand now[P.depth];
        const bool last = slice + P.depth >= shape.slices;
        const int from = last ? next : first, begin = last ? 0 : slice + P.depth;
#pragma unroll
        for (int d = 0; d < P.depth; ++d) now[d] = rows[d];
#pragma unroll
        for (int d = 0; d < P.depth; ++d) rows[d] = fragment::load(a.points, from, begin + d, stride());
        begin_products();
        multiply(centroids.acquire(shape, group, slice), now, scores);
        end_products();
        centroids.release();
      }
    }
  }

  // Calls f(score, q, i, v) for each score of a group: row q of the lane, tile i, column v.
  template <class F>
  static __device__ __forceinline__ void each_score(const T (&scores)[k_group_scores], F&& f) {
#pragma unroll
    for (int i = 0; i < P.tiles; ++i) {
#pragma unroll
      for (int q = 0; q < k_groups; ++q) {
#pragma unroll
        for (int v = 0; v < 2; ++v) f(scores[i * k_scores + 2 * q + v], q, i, v);
      }
    }
  }

  // f32: adds the scores of a group to the sums of the row check.
  __device__ __forceinline__ void add_weighted(row_search<float> (&rows)[k_groups], const float (&scores)[k_group_scores],
                                               const float* columns) const {
    float weights[2];
    each_score(scores, [&](float score, int q, int i, int v) {
      if (q == 0 && v == 0) load_columns(columns, i, 1, weights);
      rows[q].sum = fma(weights[v], score, rows[q].sum);
    });
  }

  // f64: updates the search with the scores of a group, and adds them to the sums of the row check. `last`: the last tile is the check
  // tile. Works tile by tile: weights of several tiles at a time would take too many registers.
  __device__ __forceinline__ void search(row_search<double> (&rows)[k_groups], const double (&scores)[k_group_scores],
                                         const double* columns, int column, bool last) const {
#pragma unroll
    for (int i = 0; i < P.tiles; ++i) {
      const bool data = i < P.tiles - 1 || !last;
      double weights[2] = {};
      if constexpr (k_checks) load_columns(columns, i, 1, weights);
#pragma unroll
      for (int q = 0; q < k_groups; ++q) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const double score = scores[i * k_scores + 2 * q + v];
          const int j = column + i * k_tile_columns + v + 2 * t;
          if constexpr (k_checks) rows[q].sum = fma(weights[v], score, rows[q].sum);
          if (!data) continue;
          if (score > rows[q].first) rows[q].first = score, rows[q].first_index = j;
          if (k_checks && score > rows[q].twin) rows[q].twin = score, rows[q].twin_index = j;
        }
      }
    }
  }

  // f32: computes ‖c‖ or slightly more for this lane's two columns of a tile, from the start values of their scores; at most errors::reach.
  __device__ __forceinline__ void load_norms(const float* columns, int i, float reach, float (&to)[2]) const {
    load_columns(columns, i, 0, to);
#pragma unroll
    for (float& each : to) each = fminf(norm_above(fabsf(2 * each)), reach);
  }
  // f32: calls f(score, norm, q, i, v) for each score; `norm` is 0 if the spread of the row covers all errors.
  template <class F>
  __device__ __forceinline__ void each_with_norm(const float (&scores)[k_group_scores], const float* columns, float reach, F&& f) const {
    float norms[2] = {};
    each_score(scores, [&](float score, int q, int i, int v) {
      if (k_own_errors && q == 0 && v == 0) load_norms(columns, i, reach, norms);
      f(score, norms[v], q, i, v);
    });
  }
  // f32: finds the largest score of the lane's columns (with own errors, the largest lower end); if groups follow, by a second chain, too.
  __device__ __forceinline__ void find_largest(const float (&scores)[k_group_scores], const float* columns, const errors& of,
                                               float (&largest)[k_groups], float (&twins)[k_groups]) const {
    const float again[k_groups] = {arch::opaque(of.slope[0]), arch::opaque(of.slope[1])};
    each_with_norm(scores, columns, of.reach, [&](float score, float norm, int q, int i, int v) {
      const auto end = [&](float slope) { return k_own_errors ? fma(-slope, norm, score) : score; };
      const bool first = i == 0 && v == 0;
      const float one = end(of.slope[q]);
      largest[q] = first ? one : fmaxf(largest[q], one);
      if constexpr (k_follows) {
        const float other = end(again[q]);
        twins[q] = first ? arch::opaque(other) : fmaxf(twins[q], other);
      }
    });
  }

  // f32: updates the search with the scores of a group. `largest`: the largest of the lane's columns; `twins`: the same from a second
  // chain, if groups follow. `before`: the code of the tiles before the group. If `largest` is too high, no column is near. If it is too
  // low, another column is near as well, but a later group may make the lane forget the right one. `strike` receives the threshold of a
  // row.
  template <class Strike>
  __device__ __forceinline__ void search(row_search<float> (&rows)[k_groups], const float (&scores)[k_group_scores], const float* columns,
                                         const float (&largest)[k_groups], const float (&twins)[k_groups], const errors& of,
                                         std::uint32_t before, Strike&& strike) const {
    constexpr float integers = 0x1p23f;  // from here on floats have an ulp of 1: their last bits are an integer
    constexpr std::uint32_t two = 2 * near_number(0, 0);
    float near[k_groups], from[k_groups], slope[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const auto of_lanes = [](float own) {
        const float pair = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 1));
        return fmaxf(pair, __shfl_xor_sync(0xffffffffu, pair, 2));
      };
      const float best = of_lanes(largest[q]);
      row_search<float>& row = rows[q];
      if constexpr (k_follows) {
        const float twin = of_lanes(twins[q]);
        row.wrong |= ballast::cuda::bits(best) ^ ballast::cuda::bits(twin);
        row.twin = fmaxf(row.twin, twin);
      }
      const bool stays = row.upper >= best;
      row.best = fmaxf(row.best, best);
      if (!stays) {
        for (std::uint32_t& code : row.named) code = 0;
        row.more = 0, row.since = row.best;
      }
      if (!stays || !k_own_errors) row.upper = k_own_errors ? lowest_score<float>() : row.best + of.spread[q];
      near[q] = integers, from[q] = fma(k_own_errors ? k_comparable : of.spread[q], k_steep, -row.best * k_steep);
      slope[q] = k_own_errors ? of.slope[q] * k_steep : 0;
      strike(from[q]);
    }
    const auto is_near = [&](float score, float norm, int q) {
      return arch::multiply_add_saturated(score, k_steep, k_own_errors ? fma(slope[q], norm, from[q]) : from[q]);
    };
    each_with_norm(scores, columns, of.reach, [&](float score, float norm, int q, int i, int v) {
      near[q] = fma(is_near(score, norm, q), static_cast<float>(near_number(i, v)), near[q]);
    });
    // The lanes of a row search with the same threshold. A lane whose own is higher would hide its columns, and the label would be certain
    // from those of the other lanes. Each lane compares with the next: they are equal only if all four are.
    if constexpr (k_checks) {
#pragma unroll
      for (int q = 0; q < k_groups; ++q) {
        std::uint32_t word = ballast::cuda::bits(from[q]);
        // Rotated: the threshold is -steep (best - spread), a power of two times; of a spread with the wrong sign both exchange their bits.
        const std::uint32_t upper = ballast::cuda::bits(rows[q].upper);
        word ^= k_own_errors ? ballast::cuda::bits(slope[q]) + ballast::cuda::bits(of.reach) : upper << 1 | upper >> 31;
        rows[q].wrong |= word ^ __shfl_sync(0xffffffffu, word, t + 1, 4);
      }
    }
    const auto add = [](row_search<float>& to, std::uint32_t code) {
      to.more |= to.named[k_named - 1];
#pragma unroll
      for (int e = k_named - 1; e > 0; --e) to.named[e] = to.named[e - 1];
      to.named[0] = code;
    };
    std::uint32_t found[k_groups];
    bool several = false;
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      found[q] = ballast::cuda::bits(near[q]) - ballast::cuda::bits(integers);
      several = several || found[q] >= two;
    }
    if (__any_sync(0xffffffffu, several)) {
      std::uint32_t which[k_groups] = {};  // bit 2i + v
      each_with_norm(scores, columns, of.reach, [&](float score, float norm, int q, int i, int v) {
        which[q] |= is_near(score, norm, q) > 0 ? 1u << (2 * i + v) : 0u;
      });
#pragma unroll
      for (int q = 0; q < k_groups; ++q) {
        if (found[q] < two) continue;
        found[q] = 0;
        rows[q].more |= which[q] == 0 ? 1u : 0u;
        if constexpr (k_own_errors) rows[q].upper = fmaxf(rows[q].upper, fma(2 * of.slope[q], of.reach, rows[q].best));
#pragma unroll 1
        for (std::uint32_t left = which[q]; left != 0; left &= left - 1)
          add(rows[q], near_number(0, 0) + 2 * k_factor * static_cast<std::uint32_t>(__ffs(static_cast<int>(left)) - 1) + before);
      }
    }
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      if (found[q] == 0) continue;
      add(rows[q], found[q] + before);
      if constexpr (k_own_errors) {
        const unsigned ordinal = min((found[q] * inverse_factor() - k_first) / 2, 2u * P.tiles - 1);
        float norms[2];
        load_norms(columns, static_cast<int>(ordinal / 2), of.reach, norms);
        rows[q].upper = fmaxf(rows[q].upper, fma(2 * of.slope[q], norms[ordinal % 2], rows[q].best));
      }
    }
  }

  // ---- Four lanes and their two rows: the two lanes that own a row combine the results of all four ----

  __device__ __forceinline__ int own_q() const { return upper ? 1 : 0; }
  __device__ __forceinline__ int own_row(int first) const { return first + 8 * own_q() + g; }
  // Selects between registers: a computed index would put the array into local memory.
  template <class V>
  __device__ __forceinline__ V own(const V (&of)[k_groups]) const {
    const V low = of[0], high = of[1];
    return upper ? high : low;
  }
  // Returns the element for the lane two further: that of the row which it owns.
  template <class V>
  __device__ __forceinline__ V given_away(const V (&of)[k_groups]) const {
    const V low = of[0], high = of[1];
    return upper ? low : high;
  }
  // Reduces over the four lanes by op, for the own row.
  template <class Op>
  __device__ __forceinline__ T fold(const T (&of)[k_groups], Op&& op) const {
    T mine = own(of);
    mine = op(mine, __shfl_xor_sync(0xffffffffu, given_away(of), 2));
    return op(mine, __shfl_xor_sync(0xffffffffu, mine, 1));
  }
  // Returns the value of the owner of row q.
  template <class V>
  __device__ __forceinline__ V from_owner(V value, int q) const {
    return __shfl_sync(0xffffffffu, value, 2 * q, 4);
  }
  // Returns whether `holds` is true in one of the lanes that own the own row.
  __device__ __forceinline__ bool any_owner(bool holds) const { return (__ballot_sync(0xffffffffu, holds) & 3u << (lane & ~1)) != 0; }

  // Finds the largest scores of the rows from `first` on. `ahead`: the data loaded ahead for them; with k_prefetches replaced by those of
  // the rows from `next` on. bound_errors() sets `of` and the part of `row_stats` that was loaded ahead. It is called during the products
  // if there is one group, else before everything. The remaining statistics are loaded during the first search.
  template <class BoundErrors>
  __device__ __forceinline__ void find(stage& centroids, int first, int next, int tile, int tiles, rows_ahead& ahead, const errors& of,
                                       row_search<T> (&rows)[k_groups], row_statistics& row_stats, BoundErrors&& bound_errors) const {
    if constexpr (!P.single) bound_errors();
    if constexpr (k_in_registers && Injector::enabled) {
      for (int slice = 0; slice < P.slices; ++slice)
        given.strike(index<fragment::k_words>{}, site::points, here(tile, tiles, slice, P.slices), ahead.rows[slice].at);
    }
    // The chains begin with different constants: one register with one constant would serve both, in all tiles of the thread.
    constexpr T lowest = lowest_score<T>(), lowest_twin = lowest_score<T>() / 2;
    static_assert(lowest_twin < k_no_score<T>);
    for (row_search<T>& each : rows) {
      if constexpr (sizeof(T) == 4) {
        each = {lowest, arch::opaque(lowest_twin), lowest, lowest, {}, 0, 0, 0};
      } else {
        each = {lowest, arch::opaque(lowest_twin), 0, 0, 0};
      }
    }
    const packed_shape& shape = a.centroids.shape;
    std::uint32_t before = 0;  // f32: 4 k_factor · data_tile, as a sum: so a flipped bit leaves no multiple of k_factor
    const int sections = P.single ? 1 : shape.sections, groups = P.single ? 1 : shape.section_tiles / P.tiles;
#pragma unroll 1
    for (int section = 0; section < sections; ++section) {
#pragma unroll
      for (int q = 0; q < k_groups; ++q) rows[q].sum = 0;
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        T scores[k_group_scores];
        const T* const columns = columns_of(centroids, section * groups + group);
        const bool begins = section == 0 && group == 0, ends = k_prefetches && section == sections - 1 && group == groups - 1;
        compute_scores(centroids, first, ends ? next : first, section * groups + group, columns, ahead.rows, scores, [&] {
          if constexpr (P.single) bound_errors();
        });
        // The loads below are in flight while these scores are searched; __syncwarp keeps the compiler from delaying them until after the
        // search.
        if (!k_row_stats_ahead && begins) load_row_stats(own_row(first), row_stats);
        if (ends) {
          if constexpr (k_in_registers || k_rows_in_ring) {
            load_ahead(next, ahead);
          } else {
            load_spread(next, ahead);  // compute_scores has already started to load the rows
          }
        }
        if (begins || ends) __syncwarp();
        const int data_tile = section * shape.data_tiles + group * P.tiles;  // the first data tile of the group
        if constexpr (Injector::enabled) {
          for (int i = 0; i < P.tiles; ++i) {
            const bool checks = k_checks && group * P.tiles + i == shape.data_tiles;
            given.strike(
                index<k_scores>{}, checks ? site::checksum : site::product,
                checks ? here(tile, tiles, section, shape.sections) : here(tile, tiles, data_tile + i, shape.sections * shape.data_tiles),
                &scores[i * k_scores]);
          }
        }
        const bool last = k_checks && group == groups - 1;  // the last tile is the check tile
        T projections[k_groups];                            // column 3 of the check tile, held by lane 1
#pragma unroll
        for (int q = 0; q < k_groups; ++q) projections[q] = scores[(P.tiles - 1) * k_scores + 2 * q + 1];
        if constexpr (sizeof(T) == 4) {
          if constexpr (k_checks) {
            // The check tile has no centroids. The row check adds the numbers that the search will see: a select between them would be
            // covered by neither.
            float summed[k_group_scores];
#pragma unroll
            for (int n = 0; n < k_group_scores; ++n) summed[n] = scores[n];
#pragma unroll
            for (int v = 0; v < k_scores; ++v) {
              float& seen = scores[(P.tiles - 1) * k_scores + v];
              const float kept = seen;
              seen = arch::opaque(last ? k_no_score<T> : kept);
              summed[(P.tiles - 1) * k_scores + v] = last ? kept : seen;
            }
            add_weighted(rows, summed, columns);
          }
          T largest[k_groups], twins[k_groups] = {};
          find_largest(scores, columns, of, largest, twins);
          const auto strike_minimum = [&](int step, float& score) {
            if (Injector::enabled && group == 0)
              given.strike(index<1>{}, site::minimum, here(tile, tiles, 2 * section + step, 2 * shape.sections), &score);
          };
          for (float& each : largest) strike_minimum(0, each);
          search(rows, scores, columns, largest, twins, of, before, [&](float& threshold) {
            if (Injector::enabled && begins)
              given.strike(index<1>{}, site::threshold, here(tile, tiles, shape.sections + 1, shape.sections + k_other_thresholds),
                           &threshold);
          });
          for (row_search<T>& each : rows) strike_minimum(1, each.best);
          before += 4 * k_factor * static_cast<std::uint32_t>(P.tiles - (last ? 1 : 0));  // the check tile has no codes
        } else {
          search(rows, scores, columns, data_tile * k_tile_columns, last);
          if (Injector::enabled && group == 0) {
            for (int q = 0; q < k_groups; ++q)
              given.strike(index<1>{}, site::minimum, here(tile, tiles, section, shape.sections), &rows[q].first);
          }
        }
        if constexpr (k_checks) {
          if (last) verify_section(section, tile, tiles, projections, rows, row_stats);
        }
      }
    }
    if constexpr (k_own_errors) {  // a slope that is NaN would hide all columns of its lane
#pragma unroll
      for (int q = 0; q < k_groups; ++q) rows[q].more |= of.slope[q] >= 0 ? 0u : 1u;
    }
    if constexpr (Injector::enabled && sizeof(T) == 4) {
      for (int q = 0; q < k_groups; ++q) given.strike(index<1>{}, site::index, here(tile, tiles, q, 3), &rows[q].named[0]);
    }
  }

  // Returns whether ρ² ≤ limit.
  __device__ static __forceinline__ bool passes(T residual, T limit) { return residual * residual <= limit; }

  // Verifies a section: the weighted sum of its scores, including those of its check tile, must be 0; and the points' projection in column
  // 3 of that tile must equal the one computed from other loads. The two owners of a row read two copies of the limits, and must agree.
  __device__ __forceinline__ void verify_section(int section, std::int64_t tile, std::int64_t tiles, const T (&projections)[k_groups],
                                                 const row_search<T> (&rows)[k_groups], row_statistics& row_stats) const {
    section_limits<T> limits = a.centroids.limits[2 * section + t % 2];
    given.strike(index<1>{}, site::threshold, here(tile, tiles, section, a.centroids.shape.sections + k_other_thresholds),
                 &limits.row_offset);
    T sums[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) sums[q] = rows[q].sum;
    const T residual = fold(sums, [](T x, T y) { return x + y; });
    const T other = __shfl_xor_sync(0xffffffffu, projections[1], 2), projection = t == 3 ? other : projections[0];
    T word = passes(residual, fma(limits.row_slope, row_stats.norm, limits.row_offset)) ? T(1) : T(0);
    given.strike(index<1>{}, site::comparison, here(tile, tiles, section, a.centroids.shape.sections), &word);
    const bool judges = t % 2 == 1;
    const bool projects = !judges || passes(projection - row_stats.projection, fma(limits.projection_slope, row_stats.norm, T(1e-37)));
    if (!__all_sync(0xffffffffu, word == T(1) && projects)) {
      const T limit = fma(limits.row_slope, arch::opaque(row_stats.norm), limits.row_offset);
      // A comparison that comes out otherwise when it is made again was struck.
      const bool doubts = word != T(1) && !passes(residual, limit) && passes(residual, limits.excess * limit);
      // All lanes take part in each vote.
      const bool sum_fails = any_owner(word != T(1) && !doubts), other_fails = any_owner(!projects), in_doubt = any_owner(doubts);
      const bool fails = sum_fails || other_fails;
      if (fails && !row_stats.bad) row_stats.failed = sum_fails ? check::row : check::projection;
      row_stats.bad = row_stats.bad || fails;
      row_stats.doubt = row_stats.doubt || in_doubt;
    }
  }
};

}  // namespace ballast::kmeans::cuda
