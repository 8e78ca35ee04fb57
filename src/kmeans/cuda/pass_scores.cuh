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

// In f32 a lane finds the largest score of its columns in a group of tiles, and then which columns are near it, as two sums over these
// columns. Each near column adds k_one_column plus its ordinal in the group, 2 · tile + column % 2, so a sum of one column names it:
//   near   columns whose score is above the largest less what it takes to be certain (spread)
//   top    columns whose score is not below the largest; by comparisons and weights of its own
// A code is both: near in the lower half, top in the upper. Where both name the same one column, it is the only candidate of the lane.
inline constexpr int k_most_group_tiles = 16;
inline constexpr unsigned k_one_column = 512;
static_assert(2 * k_most_group_tiles * (2 * k_most_group_tiles - 1) / 2 < k_one_column);
BALLAST_HD constexpr unsigned near_of(std::uint32_t code) { return code & 0xffffu; }
BALLAST_HD constexpr unsigned top_of(std::uint32_t code) { return code >> 16; }
BALLAST_HD constexpr unsigned count_of(unsigned half) { return half / k_one_column; }
BALLAST_HD constexpr bool is_one(unsigned half) { return count_of(half) == 1; }
BALLAST_HD constexpr bool is_certain(std::uint32_t code) { return near_of(code) == top_of(code) && is_one(near_of(code)); }

// Scores are compared by min(1, max(0, k_steep · (a − b))): 1 if a > b, else 0, by one instruction of the multipliers, of which there are
// twice as many as of the units that compare. Exact if |a − b| is 0 or at least 1 / k_steep: always, if one of
// the two is at least k_comparable.
inline constexpr float k_steep = 0x1p90f;
inline constexpr float k_comparable = 0x1p-60f;

// The columns of a lane in one group of tiles.
struct group_search {
  float score;         // the largest
  std::uint32_t code;  // who has it
  int column;          // the first one of the group
};

// What a lane knows of one of its rows. The four lanes of a row see different columns.
template <class T>
struct row_search;
template <>
struct row_search<float> {
  group_search first, second;  // the groups with the largest scores
  float guard;                 // the next largest score of a group,
  int guard_column;            // which begins here
  float beyond;                // no column of another group has a larger score
  float twin;                  // the largest score, and its column, by comparisons of their own
  int twin_index;
  float sum;  // Σ w · score of the section
};
template <>
struct row_search<double> {
  double first, twin;  // the largest score, by two chains, which also have its column
  int first_index, twin_index;
  double sum;  // Σ w · score of the section
};

template <class T>
BALLAST_HD constexpr T lowest_score() {
  return sizeof(T) == 4 ? static_cast<T>(-3e38) : static_cast<T>(-1e308);
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

  // What is loaded of a tile of rows before its products: the first k_slabs slabs, and in f32 what the spread of the own row is made of.
  struct rows_ahead {
    operand rows[k_slabs];
    T norm;
    T rounding;
  };
  __device__ __forceinline__ void load_ahead(int first, rows_ahead& to) const {
#pragma unroll
    for (int slab = 0; slab < k_slabs; ++slab) to.rows[slab] = fragment::load(a.points, first, slab, stride());
    load_spread(first, to);
  }
  __device__ __forceinline__ void load_spread(int first, rows_ahead& to) const {
    if constexpr (sizeof(T) == 4) {
      to.norm = arch::load_table_late(a.points.norm + own_row(first));
      to.rounding = arch::load_table_late(a.points.rounding + own_row(first));
    }
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

  // The lane's column of this ordinal, of a group that begins with column `first`.
  __device__ __forceinline__ int column_of(unsigned half, int first, int of_lane) const {
    const auto ordinal = static_cast<int>(half % k_one_column);
    return first + ordinal / 2 * k_tile_columns + ordinal % 2 + 2 * of_lane;
  }

  // Calls f(score, q, i, v) for the scores of a group: of row q of the lane, in tile i, of column v.
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

  // f64: takes the scores of a group into account, and adds them to those sums. `last`: the last tile is the check tile. Tile by tile:
  // weights of several tiles at a time take registers.
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

  // f32: the columns that are near `found.score` or have it. Weights are constants of the code.
  __device__ __forceinline__ void name_columns(const float (&scores)[k_group_scores], const float (&spread)[k_groups],
                                               const row_search<float> (&rows)[k_groups], group_search (&found)[k_groups]) const {
    constexpr int count = 2 * P.tiles;
    constexpr float integers = 0x1p23f;  // numbers from here on have whole ulps, and these are their last bits
    constexpr float all = integers + static_cast<float>(count * static_cast<int>(k_one_column) + count * (count - 1) / 2);
    const auto weight = [](int i, int v) { return static_cast<float>(static_cast<int>(k_one_column) + 2 * i + v); };
    float near[k_groups], near_from[k_groups], top[k_groups], top_from[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      near[q] = integers, near_from[q] = fma(spread[q], k_steep, -found[q].score * k_steep);
      top[q] = all, top_from[q] = found[q].score * k_steep;
    }
    const auto add_near = [&](float score, int q, int i, int v) {
      near[q] = fma(arch::multiply_add_saturated(score, k_steep, near_from[q]), weight(i, v), near[q]);
    };
    // Columns below the largest are taken from the sum of all.
    const auto add_top = [&](float score, int q, int i, int v) {
      top[q] = fma(arch::multiply_add_saturated(score, -k_steep, top_from[q]), -weight(i, v), top[q]);
    };
    const auto half = [](float sum) { return ballast::cuda::bits(sum) & 0xffffu; };
    each_score(scores, [&](float score, int q, int i, int v) {
      add_near(score, q, i, v);
      if (k_checks) add_top(score, q, i, v);
    });
    if constexpr (!k_checks) {
      // One column near the largest is the one that has it. Of several, the second chain tells, where they may matter.
      const auto several = [&](int q) { return !is_one(half(near[q])) && found[q].score >= rows[q].first.score - spread[q]; };
      if (__any_sync(0xffffffffu, several(0) || several(1))) {
        each_score(scores, add_top);
      } else {
        top[0] = near[0], top[1] = near[1];
      }
    }
#pragma unroll
    for (int q = 0; q < k_groups; ++q) found[q].code = half(near[q]) | half(top[q]) << 16;
  }

  // f32: takes one more group into account, of several.
  __device__ __forceinline__ void enter(row_search<float>& row, const group_search& found, float twin) const {
    // Where not one column has the largest score, there is a tie, or the score is wrong: somebody looks at all columns of the lane.
    const bool odd = k_checks && !is_one(top_of(found.code)) && found.score != k_no_score<float>;
    const float displaced = fminf(row.second.score, found.score);
    const int displaced_column = row.second.score > found.score ? found.column : row.second.column;
    row.beyond = fmaxf(row.beyond, odd ? -lowest_score<float>() : fminf(row.guard, displaced));
    if (displaced > row.guard) row.guard = displaced, row.guard_column = displaced_column;
    if (found.score > row.second.score) {
      const bool leads = found.score > row.first.score;
      row.second = leads ? row.first : found;
      if (leads) row.first = found;
    }
    if constexpr (k_checks) {
      if (twin > row.twin) row.twin = twin, row.twin_index = column_of(top_of(found.code), found.column, t);
    }
  }

  // ---- Four lanes and their two rows: what all four have found comes together in the two lanes that own a row ----

  __device__ __forceinline__ int own_q() const { return upper ? 1 : 0; }
  __device__ __forceinline__ int own_row(int first) const { return first + 8 * own_q() + g; }
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
    T error;  // of a score of a centroid that can be the nearest
    T projection;
    unsigned long long signature;
    int before;         // its label of the pass before
    bool bad = false;   // a check failed
    check failed = {};  // which
  };

  // Finds the largest scores of the rows from `first` on. `ahead`: what has been loaded of them; with k_prefetches it is then that of the
  // rows from `next` on. `spread`: f32, how much lower than the best a score is that cannot be that of the nearest, by rows of the lane.
  // load_facts() is called where what it loads is under way during a search.
  template <class LoadFacts>
  __device__ __forceinline__ void find(stage& panel, int first, int next, int tile, int tiles, rows_ahead& ahead,
                                       const T (&spread)[k_groups], row_search<T> (&rows)[k_groups], row_facts& facts,
                                       LoadFacts&& load_facts) const {
    if constexpr (k_in_registers && Injector::enabled) {
      for (int slab = 0; slab < P.slabs; ++slab)
        given.strike(index<fragment::k_words>{}, inject::site::kmeans_points, here(tile, tiles, slab, P.slabs), ahead.rows[slab].at);
    }
    constexpr T lowest = lowest_score<T>();
    for (row_search<T>& each : rows) {
      if constexpr (sizeof(T) == 4) {
        each = {{lowest, 0, 0}, {lowest, 0, 0}, lowest, 0, lowest, arch::opaque(lowest), 0, 0};
      } else {
        each = {lowest, arch::opaque(lowest), 0, 0, 0};
      }
    }
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
        compute_scores(panel, first, ends ? next : first, section * groups + group, columns, ahead.rows, scores);
        // What is loaded here is under way while these scores are searched, and not put off until they are.
        if (begins) load_facts();
        if (ends) {
          if constexpr (k_in_registers) {
            load_ahead(next, ahead);
          } else {
            load_spread(next, ahead);  // compute_scores has asked for the rows
          }
        }
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
        const int column = (section * shape.data_tiles + group * P.tiles) * k_tile_columns;
        T projections[k_groups];  // column 3 of the check tile: of lane 1
#pragma unroll
        for (int q = 0; q < k_groups; ++q) projections[q] = scores[(P.tiles - 1) * k_scores + 2 * q + 1];
        if constexpr (sizeof(T) == 4) {
          if constexpr (k_checks) {
            add_weighted(rows, scores, columns);
            if (last) {  // the check tile has no centroids
#pragma unroll
              for (int v = 0; v < k_scores; ++v) scores[(P.tiles - 1) * k_scores + v] = k_no_score<T>;
            }
          }
          group_search found[k_groups];
#pragma unroll
          for (group_search& each : found) each = {k_no_score<float>, 0, column};
          // By two chains: a largest score that is too low would hide its lane.
          T twins[k_groups] = {arch::opaque(k_no_score<float>), arch::opaque(k_no_score<float>)};
          each_score(scores, [&](T score, int q, int, int) {
            found[q].score = fmaxf(found[q].score, score);
            if (k_checks) twins[q] = fmaxf(twins[q], score);
          });
          if (Injector::enabled && group == 0) {
            for (int q = 0; q < k_groups; ++q)
              given.strike(index<1>{}, inject::site::kmeans_minimum, here(tile, tiles, section, shape.sections), &found[q].score);
          }
          name_columns(scores, spread, rows, found);
#pragma unroll
          for (int q = 0; q < k_groups; ++q) {
            if constexpr (P.single) {
              rows[q].first = found[q], rows[q].twin = twins[q];
            } else {
              enter(rows[q], found[q], twins[q]);
            }
          }
        } else {
          search(rows, scores, columns, column, last);
          if (Injector::enabled && group == 0) {
            for (int q = 0; q < k_groups; ++q)
              given.strike(index<1>{}, inject::site::kmeans_minimum, here(tile, tiles, section, shape.sections), &rows[q].first);
          }
        }
        if constexpr (k_checks) {
          if (last) verify_section(section, tile, tiles, projections, rows, facts);
        }
      }
    }
    if constexpr (Injector::enabled && sizeof(T) == 4) {
      for (int q = 0; q < k_groups; ++q) given.strike(index<1>{}, inject::site::kmeans_index, here(tile, tiles, q, 3), &rows[q].first.code);
    }
  }

  // ρ passes if ρ² ≤ limit.
  __device__ static __forceinline__ bool passes(T residual, T limit) { return residual * residual <= limit; }

  // Compares the weighted sum of a section's scores, with those of its check tile, with 0, and the points' projection in column 3 of that
  // tile with what was computed from other loads. The two owners of a row have the limits from two copies, and must agree.
  __device__ __forceinline__ void verify_section(int section, std::int64_t tile, std::int64_t tiles, const T (&projections)[k_groups],
                                                 const row_search<T> (&rows)[k_groups], row_facts& facts) const {
    section_limits<T> limits = a.centroids.limits[2 * section + t % 2];
    given.strike(index<1>{}, inject::site::kmeans_threshold, here(tile, tiles, section, a.centroids.shape.sections + 1),
                 &limits.row_offset);
    T sums[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) sums[q] = rows[q].sum;
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
