// The search of a pass: the scores of a warp's rows, and the largest ones of each row with what verifies them.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
// With g = lane / 4 and t = lane % 4, the four lanes of a group have rows g and g + 8 of the warp, and of each tile the columns 2t and
// 2t + 1. q numbers the rows of a lane.
#pragma once

#include "cuda/arch/wgmma.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/operand.cuh"
#include "kmeans/cuda/panel_stage.cuh"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// What a lane knows of one of its rows. The four lanes of a row see different columns.
template <class T>
struct row_search {
  T first;   // the largest score of these columns, in f32 with an ordinal in its last bits
  T second;  // the next, where it is known by its column
  T guard;   // no column that is not listed has a larger score; where there are several groups, the last bits say in which group it is
  T beyond;  // no column of another group that is not listed has a larger score
  T twin;    // the largest score by a chain of its own, which also has its column
  T sum;     // Σ w · score of the section
  int first_index;
  int second_index;
  int twin_index;
};

// The scores of f32 carry the ordinal of their column within the group, 2 · tile + column % 2; the scores of a row_search the number of
// their group, modulo as many.
inline constexpr int k_most_group_tiles = 16;
inline constexpr std::uint32_t k_ordinal_mask = 2 * k_most_group_tiles - 1;
inline constexpr float k_ordinal_error = 0x1p-18f;  // of a score that carries one, relatively

template <class T>
__device__ __forceinline__ T lowest_score() {
  return sizeof(T) == 4 ? static_cast<T>(-3e38) : static_cast<T>(-1e308);
}

// The column of a score that carries its ordinal. `first_column`: of the group, for this lane.
__device__ __forceinline__ int column_of(float carrying, int first_column) {
  const auto ordinal = static_cast<int>(ballast::cuda::bits(carrying) & k_ordinal_mask);
  return first_column + ordinal / 2 * k_tile_columns + ordinal % 2;
}

// The same for a score of the second chain: its ordinals run downwards, so that no word that carries one serves both chains.
__device__ __forceinline__ int twin_column_of(float carrying, int first_column) {
  return column_of(ballast::cuda::from_bits<float>(~ballast::cuda::bits(carrying)), first_column);
}

// The number of the group that a score carries, modulo k_ordinal_mask + 1.
__device__ __forceinline__ unsigned group_of(float carrying) { return ballast::cuda::bits(carrying) & k_ordinal_mask; }
__device__ __forceinline__ unsigned group_of(double) { return 0; }

// Takes the two largest scores of one more group of columns into account.
__device__ __forceinline__ void enter(row_search<float>& row, float key, float next, int first_column, int group) {
  const auto marked = [&](float score) {
    return ballast::cuda::from_bits<float>(
        arch::merge_bits(ballast::cuda::bits(score), ~k_ordinal_mask, static_cast<std::uint32_t>(group) & k_ordinal_mask));
  };
  const auto hide = [&](float score) {
    row.beyond = fmaxf(row.beyond, fminf(row.guard, score));
    row.guard = fmaxf(row.guard, score);
  };
  const float score = marked(key);
  hide(marked(next));
  hide(fminf(row.second, score));  // one of them is not listed any more
  if (score > row.second) {
    const bool leads = score > row.first;
    row.second = leads ? row.first : score;
    row.second_index = leads ? row.first_index : column_of(key, first_column);
    if (leads) row.first = score, row.first_index = column_of(key, first_column);
  }
}

// What a thread has of one launch: its place, and its arguments.
template <class T, pass_policy P, class Injector>
struct pass_scores {
  using fragment = operands<T>;
  using vector = typename fragment::vector;
  using operand = typename fragment::rows;
  using launch = ballast::cuda::kernel_launch<pass_arguments<T>, Injector>;
  using stage = panel_stage<T, P>;

  static constexpr int k_groups = fragment::k_halves;  // of 8 rows, one of a lane each
  static constexpr int k_rows = k_pass_rows;           // of a warp
  static constexpr int k_threads = 32 * P.warps;
  static constexpr int k_rows_of_block = k_rows * P.warps;
  static constexpr bool k_checks = P.check;
  static constexpr bool k_in_registers = P.slabs > 0;
  // Whether a tile's rows are loaded while the one before it is searched. Elsewhere registers are dearer.
  static constexpr bool k_prefetches =
      P.unit == product_unit::warpgroup && (P.slabs == 0 || (P.panel == panel_memory::shared && (P.single || P.warps < 16)));
  static constexpr int k_slabs = k_in_registers ? P.slabs : P.depth;  // of x, in registers at a time
  static constexpr int k_scores = fragment::k_scores;                 // of a lane, of a tile
  static_assert(k_rows == k_operand_rows);
  static_assert(P.tiles <= k_most_group_tiles && (!k_in_registers || P.slabs % P.depth == 0));
  static_assert(P.unit == product_unit::warp || (sizeof(T) == 4 && P.warps % 4 == 0 && P.panel != panel_memory::global));

  const launch& given;
  const pass_arguments<T>& a;
  int lane, g, t;
  bool upper;  // t ≥ 2: the lane owns the second one of its two rows
  int warp;    // by a shuffle, which tells the compiler that it is the same in all lanes

  __device__ __forceinline__ explicit pass_scores(const launch& from)
      : given(from),
        a(from.arguments),
        lane(static_cast<int>(threadIdx.x % 32)),
        g(lane / 4),
        t(lane % 4),
        upper(t >= 2),
        warp(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)) {}

  __device__ __forceinline__ inject::device_place here(std::int64_t tile, std::int64_t tiles, int step = 0, int steps = 1) const {
    return {tile, tiles, step, steps, static_cast<int>(threadIdx.x), k_threads};
  }

  // Rows are numbered in 32 bits (k_most_rows).
  __device__ __forceinline__ int points() const { return static_cast<int>(a.points.m); }
  // Rows behind the last point are there, and 0.
  __device__ __forceinline__ int stride() const { return k_in_registers ? P.slabs * k_slab<T> : a.points.stride; }
  __device__ __forceinline__ const T* row(int i) const { return a.points.x + static_cast<std::int64_t>(i) * stride(); }

  // The first k_slabs slabs of the tile of rows from `first` on.
  __device__ __forceinline__ void load_rows(int first, operand (&rows)[k_slabs]) const {
#pragma unroll
    for (int slab = 0; slab < k_slabs; ++slab) rows[slab] = fragment::load(a.points, first, slab, stride());
  }

  static constexpr int k_group_scores = P.tiles * k_scores;  // tile by tile

  // Where the scores of a tile start, or their weights in the row check: those of this lane's two columns.
  __device__ __forceinline__ void load_columns(const T* columns, int i, int which, T (&to)[2]) const {
    using pair = typename fragment::pair;
    const auto* const at = reinterpret_cast<const pair*>(columns + (2 * i + which) * k_tile_columns);
    const pair both = P.columns ? *at : arch::load_table(at);
    to[0] = both.x, to[1] = both.y;
  }
  // What load_columns takes: the columns of a group, from this lane's on.
  __device__ __forceinline__ const T* columns_of(const stage& panel, int group) const {
    constexpr int size = P.tiles * 2 * k_tile_columns;
    return panel.columns + (P.columns ? group * size : std::int64_t{group} * size) + 2 * t;
  }

  // scores += rows · columns over `depth` slabs of a group.
  __device__ __forceinline__ void multiply(const unsigned char* panel, const operand (&rows)[P.depth], T (&scores)[k_group_scores]) const {
    if constexpr (P.unit == product_unit::warpgroup) {
      const arch::matrix_descriptor columns = arch::describe(panel, k_slab_bytes<T>, arch::swizzle::none, k_slab_bytes<T> / 2);
      arch::fence_wgmma(scores);
#pragma unroll
      for (int slab = 0; slab < P.depth; ++slab)
        arch::wgmma_m64k16_f16<8 * P.tiles>(scores, rows[slab].at, arch::advanced(columns, slab * P.tiles * k_slab_bytes<T>));
      arch::commit_wgmma();
      arch::wait_wgmma<0>(scores);
    } else {
      using column = typename fragment::column;
      const auto* const packed = reinterpret_cast<const column*>(panel) + lane;
#pragma unroll
      for (int slab = 0; slab < P.depth; ++slab) {
#pragma unroll
        for (int i = 0; i < P.tiles; ++i) {
          const column* const at = packed + (slab * P.tiles + i) * 32;
          const column own = P.panel == panel_memory::global ? arch::load_table(at) : *at;
          fragment::multiply_add(&scores[i * k_scores], rows[slab], own);
        }
      }
    }
  }

  // The scores of one group of tiles, from where they start, for the rows from `first` on. `rows`: their first k_slabs slabs; then, where
  // rows do not stay in registers, those of the rows from `next` on, whose loads are under way while these are multiplied.
  __device__ __forceinline__ void compute_scores(stage& panel, int first, int next, int group, const T* columns, operand (&rows)[k_slabs],
                                                 T (&scores)[k_group_scores]) const {
    const panel_shape& shape = a.centroids.shape;
#pragma unroll
    for (int i = 0; i < P.tiles; ++i) {
      T start[2];
      load_columns(columns, i, 0, start);
#pragma unroll
      for (int v = 0; v < k_scores; ++v) scores[i * k_scores + v] = start[v % 2];
    }
    operand now[P.depth];
    if constexpr (k_in_registers) {
#pragma unroll
      for (int slab = 0; slab < P.slabs; slab += P.depth) {
#pragma unroll
        for (int d = 0; d < P.depth; ++d) now[d] = rows[slab + d];
        multiply(panel.acquire(shape, group, slab), now, scores);
        panel.release();
      }
    } else {
#pragma unroll 1
      for (int slab = 0; slab < shape.slabs; slab += P.depth) {
        const bool last = slab + P.depth >= shape.slabs;
        const int from = last ? next : first, begin = last ? 0 : slab + P.depth;
#pragma unroll
        for (int d = 0; d < P.depth; ++d) now[d] = rows[d];
#pragma unroll
        for (int d = 0; d < P.depth; ++d) rows[d] = fragment::load(a.points, from, begin + d, stride());
        multiply(panel.acquire(shape, group, slab), now, scores);
        panel.release();
      }
    }
  }

  // What a lane has found in a group of f32 scores, which carry their ordinals: the two largest, and the largest by the second chain.
  struct group_search {
    T key, next, twin;
  };

  // Takes the scores of one tile of centroids into account.
  __device__ __forceinline__ void search(row_search<T> (&rows)[k_groups], group_search (&found)[k_groups],
                                         const T (&scores)[k_group_scores], int i, const T (&weights)[2], int column) const {
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const T score = scores[i * k_scores + 2 * q + v];
        if constexpr (k_checks) rows[q].sum = fma(weights[v], score, rows[q].sum);
        if constexpr (sizeof(T) == 4) {
          const auto carrying = [&](std::uint32_t ordinal) {
            return ballast::cuda::from_bits<float>(arch::merge_bits(ballast::cuda::bits(score), ~k_ordinal_mask, ordinal));
          };
          const auto ordinal = static_cast<std::uint32_t>(2 * i + v);
          const float own = carrying(ordinal);
          found[q].next = fmaxf(found[q].next, fminf(found[q].key, own));
          found[q].key = fmaxf(found[q].key, own);
          if constexpr (k_checks) found[q].twin = fmaxf(found[q].twin, carrying(k_ordinal_mask - ordinal));
        } else {
          if (score > rows[q].first) rows[q].first = score, rows[q].first_index = column + v;
          if (k_checks && score > rows[q].twin) rows[q].twin = score, rows[q].twin_index = column + v;
        }
      }
    }
  }

  // ---- Four lanes and their two rows: what all four have found comes together in the two lanes that own a row ----

  __device__ __forceinline__ int own_q() const { return upper ? 1 : 0; }
  template <class V>
  __device__ __forceinline__ V own(const V (&of)[k_groups]) const {
    return of[upper ? 1 : 0];
  }
  // For the lane two further, the one of the row that it owns.
  template <class V>
  __device__ __forceinline__ V given_away(const V (&of)[k_groups]) const {
    return of[upper ? 0 : 1];
  }
  // op over the four lanes, for the own row.
  template <class Op>
  __device__ __forceinline__ T fold(const T (&of)[k_groups], Op&& op) const {
    T mine = own(of);
    mine = op(mine, __shfl_xor_sync(0xffffffffu, given_away(of), 2));
    return op(mine, __shfl_xor_sync(0xffffffffu, mine, 1));
  }
  // What the owner of row q has.
  template <class V>
  __device__ __forceinline__ V from_owner(V value, int q) const {
    return __shfl_sync(0xffffffffu, value, 2 * q, 4);
  }
  // Whether something holds in one lane that owns the own row.
  __device__ __forceinline__ bool any_owner(bool holds) const { return (__ballot_sync(0xffffffffu, holds) & 3u << (lane & ~1)) != 0; }

  // What is known of the own row.
  struct row_facts {
    int i;
    T norm;
    T rounding;
    T projection;
    unsigned long long signature;
    int before;         // its label of the pass before
    bool bad = false;   // a check failed
    check failed = {};  // which
  };

  // Finds the largest scores of the rows from `first` on. With k_prefetches `operands` are the first slabs of these rows (load_rows), and
  // then those of the rows from `next` on. load_facts() is called where what it loads is under way during a search.
  template <class LoadFacts>
  __device__ __forceinline__ void find(stage& panel, int first, int next, int tile, int tiles, operand (&operands)[k_slabs],
                                       row_search<T> (&rows)[k_groups], row_facts& facts, LoadFacts&& load_facts) const {
    if constexpr (!k_prefetches) load_rows(first, operands);
    if constexpr (k_in_registers && Injector::enabled) {
      for (int slab = 0; slab < P.slabs; ++slab)
        given.strike(index<fragment::k_words>{}, inject::site::kmeans_points, here(tile, tiles, slab, P.slabs), operands[slab].at);
    }
    for (row_search<T>& each : rows)
      each = {lowest_score<T>(), lowest_score<T>(), lowest_score<T>(), lowest_score<T>(), arch::opaque(lowest_score<T>()), 0, 0, 0, 0};
    const panel_shape& shape = a.centroids.shape;
    const int sections = P.single ? 1 : shape.sections, groups = P.single ? 1 : shape.section_tiles / P.tiles;
#pragma unroll 1
    for (int section = 0; section < sections; ++section) {
#pragma unroll
      for (int q = 0; q < k_groups; ++q) rows[q].sum = 0;
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        T scores[k_group_scores];
        const T* const columns = columns_of(panel, section * groups + group);
        const bool begins = section == 0 && group == 0, ends = k_prefetches && section == sections - 1 && group == groups - 1;
        compute_scores(panel, first, ends ? next : first, section * groups + group, columns, operands, scores);
        // What is loaded here is under way while these scores are searched, and not put off until they are.
        if (begins) load_facts();
        if (k_in_registers && ends) load_rows(next, operands);
        if (begins || ends) __syncwarp();
        if constexpr (Injector::enabled) {
          for (int i = 0; i < P.tiles; ++i) {
            const bool checks = k_checks && group * P.tiles + i == shape.data_tiles;
            const int data_tile = section * shape.data_tiles + group * P.tiles + i;
            given.strike(
                index<k_scores>{}, checks ? inject::site::kmeans_checksum : inject::site::kmeans_product,
                checks ? here(tile, tiles, section, shape.sections) : here(tile, tiles, data_tile, shape.sections * shape.data_tiles),
                &scores[i * k_scores]);
          }
        }
        const bool last = k_checks && group == groups - 1;
        const int column = (section * shape.data_tiles + group * P.tiles) * k_tile_columns + 2 * t;
        group_search found[k_groups];
#pragma unroll
        for (group_search& each : found) each = {lowest_score<T>(), lowest_score<T>(), lowest_score<T>()};
#pragma unroll
        for (int i = 0; i < P.tiles; ++i) {
          if (i == P.tiles - 1 && last) break;
          T weights[2] = {};
          if constexpr (k_checks) load_columns(columns, i, 1, weights);
          search(rows, found, scores, i, weights, column + i * k_tile_columns);
        }
        if (Injector::enabled && group == 0) {
          for (int q = 0; q < k_groups; ++q)
            given.strike(index<1>{}, inject::site::kmeans_minimum, here(tile, tiles, section, shape.sections),
                         sizeof(T) == 4 ? &found[q].key : &rows[q].first);
        }
        if constexpr (sizeof(T) == 4) {
#pragma unroll
          for (int q = 0; q < k_groups; ++q) {
            const group_search& of = found[q];
            if constexpr (P.single) {
              rows[q].first = of.key, rows[q].first_index = column_of(of.key, column);
              rows[q].guard = of.next;
            } else {
              enter(rows[q], of.key, of.next, column, section * groups + group);
            }
            if constexpr (k_checks) {
              if (P.single || of.twin > rows[q].twin) rows[q].twin = of.twin, rows[q].twin_index = twin_column_of(of.twin, column);
            }
          }
        }
        if constexpr (k_checks) {
          if (last) verify_section(section, tile, tiles, scores, columns, rows, facts);
        }
      }
    }
    if constexpr (Injector::enabled) {
      for (int q = 0; q < k_groups; ++q)
        given.strike(index<1>{}, inject::site::kmeans_index, here(tile, tiles, q, k_groups),
                     reinterpret_cast<std::uint32_t*>(&rows[q].first_index));
    }
  }

  // ρ passes if ρ² ≤ limit.
  __device__ static __forceinline__ bool passes(T residual, T limit) { return residual * residual <= limit; }

  // Compares the weighted sum of a section's scores with the columns of its check tile, the last of `scores`, and the points' projection
  // with what was computed from other loads. The two owners of a row have the limits from two copies, and must agree.
  __device__ __forceinline__ void verify_section(int section, std::int64_t tile, std::int64_t tiles, const T (&scores)[k_group_scores],
                                                 const T* columns, row_search<T> (&rows)[k_groups], row_facts& facts) const {
    section_limits<T> limits = a.centroids.limits[2 * section + t % 2];
    given.strike(index<1>{}, inject::site::kmeans_threshold, here(tile, tiles, section, a.centroids.shape.sections), &limits.row_offset);
    T weights[2], sums[k_groups], projections[k_groups];
    load_columns(columns, P.tiles - 1, 1, weights);
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const T* const own = &scores[(P.tiles - 1) * k_scores + 2 * q];
      sums[q] = fma(weights[1], own[1], fma(weights[0], own[0], rows[q].sum));
      projections[q] = own[1];  // column 3: of lane 1
    }
    const T residual = fold(sums, [](T x, T y) { return x + y; });
    const T other = __shfl_xor_sync(0xffffffffu, projections[1], 2), projection = t == 3 ? other : projections[0];
    T word = passes(residual, fma(limits.row_slope, facts.norm, limits.row_offset)) ? T(1) : T(0);
    given.strike(index<1>{}, inject::site::kmeans_comparison, here(tile, tiles, section, a.centroids.shape.sections), &word);
    const bool judges = t % 2 == 1;
    const bool projects = !judges || passes(projection - facts.projection, fma(limits.projection_slope, facts.norm, T(1e-37)));
    const bool fits = word == T(1) && projects;
    if (!__all_sync(0xffffffffu, fits)) {
      const bool sum_fails = any_owner(word != T(1)), fails = any_owner(!fits);
      if (fails && !facts.bad) facts.failed = sum_fails ? check::row : check::projection;
      facts.bad = facts.bad || fails;
    }
  }
};

}  // namespace ballast::kmeans::cuda
