// One pass over the points: labels, and the sums of the points of each cluster. docs/design/kmeans-cuda.md has the derivations.
// Layer: backend "cuda" of K-Means, device code.
// Contract: labels[i] is the nearest of the given centroids, the lowest among equals: in f64 by arithmetic in f64; in f32 by f32
// coordinates and distances in double, whatever the tensor cores' rounding. A row whose checks fail is decided anew from other copies of
// its operands. Effects below section_limits on a score can pass its check; they decide nothing where two centroids are farther apart than
// that. Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, for checksums in a fused product; the exact labels, the fixed-point sums
// and the checks per row are ours.
//
// A warp owns 8, 16 or more rows at a time and needs no other warp; a block meets only to empty its sums.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/fixed.cuh"
#include "kmeans/cuda/nearest.cuh"
#include "kmeans/cuda/pass.hpp"
#include "kmeans/cuda/tensor.cuh"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// What a lane knows of one of its rows. The four lanes of a row see different columns.
template <class T>
struct row_search {
  T first;   // the largest score of these columns, in f32 with an ordinal in its last bits
  T second;  // the next, where it is known by its column
  T guard;   // no column that is not listed has a larger score
  T twin;    // the largest score by a chain of its own
  T sum;     // Σ w · score of the section
  int first_index;
  int second_index;
};

// The scores of f32 carry the ordinal of their column within the section: 2 · tile + column % 2.
inline constexpr std::uint32_t k_ordinal_mask = 0x7f;
inline constexpr float k_ordinal_error = 0x1p-16f;  // of a score that carries one, relatively

template <class T>
__device__ __forceinline__ T lowest_score() {
  return sizeof(T) == 4 ? static_cast<T>(-3e38) : static_cast<T>(-1e308);
}

// Keeps the two largest of a lane's sections.
__device__ __forceinline__ void enter(row_search<float>& row, float key, float section_guard, int column) {
  row.guard = fmaxf(row.guard, section_guard);
  if (key > row.first) {
    row.guard = fmaxf(row.guard, row.second);
    row.second = row.first;
    row.second_index = row.first_index;
    row.first = key;
    row.first_index = column;
  } else if (key > row.second) {
    row.guard = fmaxf(row.guard, row.second);
    row.second = key;
    row.second_index = column;
  } else {
    row.guard = fmaxf(row.guard, key);
  }
}

// √square, or a little more.
__device__ __forceinline__ float norm_above(float square) { return arch::sqrt_fast(square) * (1 + 0x1p-20f); }
__device__ __forceinline__ double norm_above(double square) {
  return static_cast<double>(norm_above(static_cast<float>(square)) * (1 + 0x1p-20f)) + 1e-30;
}

template <class T>
__device__ __forceinline__ T score_error(const score_bound<T>& bound, T square) {
  const T norm = norm_above(square), reach = min(bound.largest, 2 * norm + bound.smallest);
  return fma(bound.product * norm, reach, bound.sum * (norm + reach) * reach);
}

// What the threads add up over rows. The four lanes of a row share the work: lane t adds up quantity t.
enum class quantity : int {
  signature,           // Σ signature
  labelled_signature,  // Σ label · signature
  members,             // points of positive weight, and Σ label over them, modulo 2^32, in the upper half
  changes,             // labels that are as before, and in the upper half those that differ
};
inline constexpr int k_quantities = 4;

struct tally {
  unsigned long long sum;  // of the lane's quantity
  double inertia;
};

// A row whose label needs more than the scores of the tensor cores. It waits in shared memory until its warp has enough of them or ends, so
// that the loop over tiles stays short. Until then its label is k, a cluster of which nobody asks.
struct postponed {
  std::int64_t row;
  double most;  // no candidate has a larger distance
  std::int32_t candidate[3];
  std::uint32_t what;
};
static_assert(sizeof(postponed) == k_postponed_bytes);
// postponed::what
inline constexpr std::uint32_t k_candidates = 3;  // mask: how many there are
inline constexpr std::uint32_t k_failed = 4;      // a check failed: all centroids are looked at
inline constexpr std::uint32_t k_added = 8;       // the row has been added to cluster candidate[0], and was judged wrong
inline constexpr int k_check_shift = 8;           // which check failed
inline constexpr int k_lanes_shift = 16;          // lanes whose columns are looked at, all of them

template <class T, pass_policy P, class Injector>
struct pass {
  using fragment = tensor<T>;
  using vector = typename fragment::vector;
  using operand = typename fragment::rows;
  using launch = ballast::cuda::kernel_launch<pass_arguments<T>, Injector>;

  static constexpr int k_groups = P.fragments * fragment::k_halves;  // of 8 rows
  static constexpr int k_rows = 8 * k_groups;                        // of a warp
  static constexpr int k_queued_rows = 2 * k_rows;                   // that a tile may add to the queue: looks, and distances that fail
  static constexpr int k_threads = 32 * P.warps;
  static constexpr int k_rows_of_block = k_rows * P.warps;
  static constexpr bool k_checks = P.check;
  static constexpr int k_slabs = P.slabs > 0 ? P.slabs : 1;  // in registers
  // Where rows are added up: lanes for a row, and rows that a lane sees of 8.
  static constexpr int k_stride = P.slabs > 0 ? P.slabs* k_slab<T> : 32;
  static constexpr int k_width = k_stride % 32 == 0 ? 32 : k_stride % 16 == 0 ? 16 : 8;
  static constexpr int k_steps = 8 * k_width / 32;

  // Shared memory.
  struct memory {
    unsigned long long* block;  // k_block_words
    std::int32_t* limbs;        // (word, limb) × k × pitch
    std::uint32_t* members;     // k + 1
    postponed* queue;           // of this warp
  };

  const launch& given;
  const pass_arguments<T>& a;
  memory shared;
  int lane, g, t;
  int warp;  // by a shuffle, which tells the compiler that it is the same in all lanes
  tally counted{};
  int waiting = 0;  // rows in the queue of this warp

  __device__ __forceinline__ explicit pass(const launch& from)
      : given(from),
        a(from.arguments),
        lane(static_cast<int>(threadIdx.x % 32)),
        g(lane / 4),
        t(lane % 4),
        warp(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)) {
    unsigned char* const at = arch::shared_memory();
    shared.block = reinterpret_cast<unsigned long long*>(at);
    shared.queue = reinterpret_cast<postponed*>(at + k_block_words * 8) + warp * pass_queue_rows<T>(P);
    shared.limbs = reinterpret_cast<std::int32_t*>(at + k_block_words * 8 + P.warps * pass_queue_rows<T>(P) * k_postponed_bytes);
    shared.members = reinterpret_cast<std::uint32_t*>(shared.limbs + 2 * P.words * entries());
  }

  __device__ __forceinline__ inject::device_place here(std::int64_t tile, std::int64_t tiles, int step = 0, int steps = 1) const {
    return {tile, tiles, step, steps, static_cast<int>(threadIdx.x), k_threads};
  }

  // Rows behind the last point are there, and 0.
  __device__ __forceinline__ int stride() const { return P.slabs > 0 ? P.slabs * k_slab<T> : a.points.stride; }
  __device__ __forceinline__ const T* row(std::int64_t i) const { return a.points.x + i * stride(); }

  // One slab of the rows from `from` on.
  __device__ __forceinline__ void load_slab(const T* from, int slab, operand (&to)[P.fragments]) const {
#pragma unroll
    for (int r = 0; r < P.fragments; ++r) {
      vector own[fragment::k_halves];
#pragma unroll
      for (int h = 0; h < fragment::k_halves; ++h)
        own[h] = arch::load_table(
            reinterpret_cast<const vector*>(from + (8 * (r * fragment::k_halves + h) + g) * stride() + slab * k_slab<T>) + t);
      to[r] = fragment::rounded(own);
    }
  }

  // The scores of one group of tiles for all rows of the warp, from where they start. `in_registers`: the slabs of the rows.
  template <int Tiles>
  __device__ __forceinline__ void multiply(const T* from, int first_tile, const operand (&in_registers)[k_slabs][P.fragments],
                                           T (&scores)[Tiles][P.fragments][fragment::k_scores], T (&weights)[Tiles][2]) const {
    const panel<T>& c = a.centroids;
    for (int i = 0; i < Tiles; ++i) {
      const T* const at = c.columns + (static_cast<std::int64_t>(first_tile + i) * k_tile_columns + 2 * t) * 2;
      T start[2];
      if constexpr (sizeof(T) == 4) {
        const float4 both = arch::load_table(reinterpret_cast<const float4*>(at));
        start[0] = both.x, weights[i][0] = both.y, start[1] = both.z, weights[i][1] = both.w;
      } else {
        const double2 one = arch::load_table(reinterpret_cast<const double2*>(at));
        const double2 two = arch::load_table(reinterpret_cast<const double2*>(at) + 1);
        start[0] = one.x, weights[i][0] = one.y, start[1] = two.x, weights[i][1] = two.y;
      }
      for (int r = 0; r < P.fragments; ++r) {
        for (int v = 0; v < fragment::k_scores; ++v) scores[i][r][v] = start[v % 2];
      }
    }
    const vector* const packed =
        reinterpret_cast<const vector*>(c.packed) + static_cast<std::int64_t>(first_tile) * c.shape.slabs * 32 + lane;
    const auto step = [&](int slab, const operand(&rows)[P.fragments]) {
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const vector column = arch::load_table(packed + (i * c.shape.slabs + slab) * 32);
#pragma unroll
        for (int r = 0; r < P.fragments; ++r) fragment::multiply_add(scores[i][r], rows[r], column);
      }
    };
    if constexpr (P.slabs > 0) {
#pragma unroll
      for (int slab = 0; slab < P.slabs; ++slab) step(slab, in_registers[slab]);
    } else {
      for (int slab = 0; slab < c.shape.slabs; ++slab) {
        operand rows[P.fragments];
        load_slab(from, slab, rows);
        step(slab, rows);
      }
    }
  }

  static constexpr int k_operand_words = sizeof(T) == 4 ? 8 : 2;
  __device__ static __forceinline__ auto words_of(operand& of) {
    if constexpr (sizeof(T) == 4) {
      return &of.at[0][0];
    } else {
      return of.at;
    }
  }

  // Takes the scores of one tile of centroids into account. key, next: the two largest of the section.
  __device__ __forceinline__ void search(row_search<T> (&rows)[k_groups], T (&key)[k_groups], T (&next)[k_groups],
                                         const T (&scores)[P.fragments][fragment::k_scores], const T (&weights)[2], int column,
                                         std::uint32_t ordinal) const {
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const T score = scores[q / fragment::k_halves][q % fragment::k_halves * 2 + v];
        if constexpr (k_checks) {
          rows[q].sum = fma(weights[v], score, rows[q].sum);
          rows[q].twin = max(rows[q].twin, score);
        }
        if constexpr (sizeof(T) == 4) {
          const float carrying =
              ballast::cuda::from_bits<float>((ballast::cuda::bits(score) & ~k_ordinal_mask) | (ordinal + static_cast<std::uint32_t>(v)));
          next[q] = fmaxf(next[q], fminf(key[q], carrying));
          key[q] = fmaxf(key[q], carrying);
        } else if (score > rows[q].first) {
          rows[q].first = score;
          rows[q].first_index = column + v;
        }
      }
    }
  }

  // A check of a row failed. The lanes of other rows may be elsewhere: no warp-wide operations.
  __device__ __forceinline__ bool passes(T residual, T limit) const { return residual * residual <= limit; }

  // Labels the rows from `first` on. Returns bit q of `bad` for a group of 8 rows in which this lane's row failed a check.
  __device__ __forceinline__ void find(std::int64_t first, std::int64_t tile, std::int64_t tiles, row_search<T> (&rows)[k_groups],
                                       const T (&norm)[k_groups], const T (&projection)[k_groups], check (&failed)[k_groups],
                                       unsigned& bad) {
    const T* const from = row(first);
    operand in_registers[k_slabs][P.fragments];
    if constexpr (P.slabs > 0) {
#pragma unroll
      for (int slab = 0; slab < P.slabs; ++slab) load_slab(from, slab, in_registers[slab]);
      if constexpr (Injector::enabled) {
        for (int slab = 0; slab < P.slabs; ++slab) {
          for (int r = 0; r < P.fragments; ++r)
            given.strike(index<k_operand_words>{}, inject::site::kmeans_points,
                         here(tile, tiles, slab * P.fragments + r, P.slabs * P.fragments), words_of(in_registers[slab][r]));
        }
      }
    }
    for (row_search<T>& each : rows) each = {lowest_score<T>(), lowest_score<T>(), lowest_score<T>(), lowest_score<T>(), 0, 0, 0};
    const panel_shape& shape = a.centroids.shape;
    for (int section = 0; section < shape.sections; ++section) {
      T key[k_groups], next[k_groups];
      for (int q = 0; q < k_groups; ++q) {
        key[q] = next[q] = lowest_score<T>();
        rows[q].sum = 0;
      }
      T scores[P.tiles][P.fragments][fragment::k_scores], weights[P.tiles][2];
      for (int group = 0; group < shape.section_tiles; group += P.tiles) {
        multiply<P.tiles>(from, section * shape.section_tiles + group, in_registers, scores, weights);
        if constexpr (Injector::enabled) {
          for (int i = 0; i < P.tiles; ++i) {
            for (int r = 0; r < P.fragments; ++r)
              given.strike(index<fragment::k_scores>{},
                           k_checks && group + i == shape.data_tiles ? inject::site::kmeans_checksum : inject::site::kmeans_product,
                           here(tile, tiles, section * shape.section_tiles + group + i, shape.tiles()), scores[i][r]);
          }
        }
        const bool last = k_checks && group + P.tiles == shape.section_tiles;
#pragma unroll
        for (int i = 0; i < P.tiles; ++i) {
          if (i == P.tiles - 1 && last) break;
          const int in_section = group + i;
          search(rows, key, next, scores[i], weights[i], (section * shape.data_tiles + in_section) * k_tile_columns + 2 * t,
                 static_cast<std::uint32_t>(2 * in_section));
        }
        if (Injector::enabled && group == 0) {
          for (int q = 0; q < k_groups; ++q)
            given.strike(index<1>{}, inject::site::kmeans_minimum, here(tile, tiles, section, shape.sections),
                         sizeof(T) == 4 ? &key[q] : &rows[q].first);
        }
      }
      if constexpr (sizeof(T) == 4) {
        for (int q = 0; q < k_groups; ++q) {
          const int ordinal = static_cast<int>(ballast::cuda::bits(key[q]) & k_ordinal_mask);
          enter(rows[q], key[q], next[q], (section * shape.data_tiles + ordinal / 2) * k_tile_columns + 2 * t + ordinal % 2);
        }
      }
      if constexpr (k_checks) verify_section(section, tile, tiles, scores[P.tiles - 1], rows, norm, projection, failed, bad);
    }
    if constexpr (Injector::enabled) {
      for (int q = 0; q < k_groups; ++q)
        given.strike(index<1>{}, inject::site::kmeans_index, here(tile, tiles, q, k_groups),
                     reinterpret_cast<std::uint32_t*>(&rows[q].first_index));
    }
  }

  // Compares the weighted sum of a section's scores with the columns of its check tile, and the points' projection with what was computed
  // from other loads.
  __device__ __forceinline__ void verify_section(int section, std::int64_t tile, std::int64_t tiles,
                                                 const T (&columns)[P.fragments][fragment::k_scores], row_search<T> (&rows)[k_groups],
                                                 const T (&norm)[k_groups], const T (&projection)[k_groups], check (&failed)[k_groups],
                                                 unsigned& bad) const {
    section_limits<T> limits = a.centroids.limits[2 * section];
    const section_limits<T> twin = a.centroids.limits[2 * section + 1];
    given.strike(index<1>{}, inject::site::kmeans_threshold, here(tile, tiles, section, a.centroids.shape.sections), &limits.row_offset);
    const bool agree = limits == twin;
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const T c0 = columns[q / fragment::k_halves][q % fragment::k_halves * 2];
      const T c1 = columns[q / fragment::k_halves][q % fragment::k_halves * 2 + 1];
      T residual = (t == 0 ? c0 + c1 : t == 1 ? c0 : T(0)) - rows[q].sum;
      residual += __shfl_xor_sync(0xffffffffu, residual, 1);
      residual += __shfl_xor_sync(0xffffffffu, residual, 2);
      const T off = __shfl_sync(0xffffffffu, c1, 4 * g + 1) - projection[q];
      T word = passes(residual, fma(limits.row_slope, norm[q], limits.row_offset)) && agree ? T(1) : T(0);
      given.strike(index<1>{}, inject::site::kmeans_comparison,
                   here(tile, tiles, section * k_groups + q, a.centroids.shape.sections * k_groups), &word);
      // The four lanes of a row have compared the same numbers, and must agree: one that was struck counts as a failure.
      const unsigned together = __ballot_sync(0xffffffffu, word == T(1)) >> (4 * g) & 15u;
      const bool row_passes = together == 15u;
      const bool projection_passes = passes(off, limits.projection_slope * norm[q] + T(1e-37));
      if (!row_passes || !projection_passes) {
        if ((bad >> q & 1u) == 0) failed[q] = row_passes ? check::projection : check::row;
        bad |= 1u << q;
      }
    }
  }

  // The labels of the rows; `bad`: rows that failed a check. Rows that need a second look go into the queue and get the label k. On return
  // the four lanes of a row have the same label, score and error.
  __device__ __forceinline__ void decide(std::int64_t first, std::int64_t tile, std::int64_t tiles, const row_search<T> (&rows)[k_groups],
                                         const T (&norm)[k_groups], const check (&failed)[k_groups], unsigned bad, int (&label)[k_groups],
                                         T (&score)[k_groups], T (&runner_up)[k_groups], T (&error)[k_groups]) {
    const score_bound<T> bound = a.centroids.bound[0];
    const bool agree = bound == a.centroids.bound[1];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      T best = rows[q].first, twin = k_checks ? rows[q].twin : rows[q].first;
      for (int distance = 1; distance <= 2; distance *= 2) {
        best = max(best, __shfl_xor_sync(0xffffffffu, best, distance));
        if (k_checks) twin = max(twin, __shfl_xor_sync(0xffffffffu, twin, distance));
      }
      error[q] = score_error(bound, norm[q]);
      // A score of exactly 0 becomes a number below all normal ones.
      const T carried = sizeof(T) == 4 ? static_cast<T>(k_ordinal_error) * abs(best) + smallest_normal<T>() : T(0);
      unsigned listed, also = 0, hidden = 0;
      if constexpr (sizeof(T) == 4) {
        const float least = best - 2 * (error[q] + carried);
        listed = __ballot_sync(0xffffffffu, rows[q].first >= least) >> (4 * g) & 15u;
        also = __ballot_sync(0xffffffffu, rows[q].second >= least) >> (4 * g) & 15u;
        hidden = __ballot_sync(0xffffffffu, rows[q].guard >= least) >> (4 * g) & 15u;
      } else {
        listed = __ballot_sync(0xffffffffu, rows[q].first == best) >> (4 * g) & 15u;
      }
      int index = rows[q].first_index;
      if constexpr (sizeof(T) == 4) {
        // If several are listed the row gets a second look.
        index = __shfl_sync(0xffffffffu, index, __ffs(static_cast<int>(listed)) - 1, 4);
      } else {
        // Equal scores: the lowest index.
        if ((listed >> t & 1u) == 0) index = 0x7fffffff;
        index = min(index, __shfl_xor_sync(0xffffffffu, index, 1));
        index = min(index, __shfl_xor_sync(0xffffffffu, index, 2));
      }
      given.strike(ballast::cuda::index<1>{}, inject::site::kmeans_label, here(tile, tiles, q, k_groups),
                   reinterpret_cast<std::uint32_t*>(&index));
      // A label that was struck must not reach beyond the centroids; the distance tells.
      label[q] = static_cast<unsigned>(index) < static_cast<unsigned>(a.centroids.shape.k) ? index : a.centroids.shape.k - 1;
      score[q] = best;
      if constexpr (sizeof(T) == 4 && k_checks) {
        const bool leads = rows[q].first == best;
        runner_up[q] = leads ? max(rows[q].second, rows[q].guard) : rows[q].first;
        for (int distance = 1; distance <= 2; distance *= 2)
          runner_up[q] = max(runner_up[q], __shfl_xor_sync(0xffffffffu, runner_up[q], distance));
      } else {
        runner_up[q] = lowest_score<T>();
      }

      check why = failed[q];
      bool wrong = (bad >> q & 1u) != 0;
      if (!wrong && (listed == 0 || (k_checks && !(abs(best - twin) <= carried && agree)))) {
        wrong = true;
        why = check::minimum;
      }
      // All lanes of a row know the same of it but for `wrong`.
      wrong = (__ballot_sync(0xffffffffu, wrong) >> (4 * g) & 15u) != 0;
      const bool several = sizeof(T) == 4 && __popc(listed) + __popc(also) != 1;
      const bool look = (wrong || several || hidden != 0) && first + 8 * q + g < a.points.m;
      if (__any_sync(0xffffffffu, look)) {
        // A candidate's score is at most 2 (error + carried) below the best one; its distance tells whether it is the column of that score.
        postponed entry{first + 8 * q + g, 0, {}, 0};
        entry.most = static_cast<double>(norm[q] - 2 * best + 6 * (error[q] + carried) + distance_room(norm[q], best));
        unsigned count = 0;
        for (int l = 0; l < 8; ++l) {
          const int j = __shfl_sync(0xffffffffu, l < 4 ? rows[q].first_index : rows[q].second_index, l & 3, 4);
          if (((l < 4 ? listed : also) >> (l & 3) & 1u) == 0) continue;
          if (count == 0) entry.candidate[0] = j;
          if (count == 1) entry.candidate[1] = j;
          if (count == 2) entry.candidate[2] = j;
          ++count;
        }
        entry.what = wrong       ? k_failed | static_cast<std::uint32_t>(why) << k_check_shift
                     : count > 3 ? 15u << k_lanes_shift
                                 : count | hidden << k_lanes_shift;
        postpone(look, entry);
        if (look) label[q] = a.centroids.shape.k;
      }
    }
  }

  // Puts a row into the queue of the warp: by the first lane of each row with `put`. Called by the whole warp.
  __device__ __forceinline__ void postpone(bool put, const postponed& entry) {
    const unsigned all = __ballot_sync(0xffffffffu, put && t == 0);
    if (put && t == 0) shared.queue[waiting + __popc(all & ((1u << lane) - 1))] = entry;
    waiting += __popc(all);
  }

  // What rounding may add to a distance in working precision, of a point with this square and a centroid with this score.
  __device__ __forceinline__ T distance_room(T square, T score) const {
    return static_cast<T>(abft::kmeans_distance_limit(abft::unit_roundoff<T>, a.points.n)) * (square + abs(score)) + static_cast<T>(1e-37);
  }

  // The exact label of a row of the queue. By a whole warp. `fits`: all candidates are as near as their scores say.
  __device__ __forceinline__ static nearest choose(const pass_arguments<T>& a, const T* x, const postponed& entry, bool& fits) {
    const unsigned lanes = (entry.what & k_failed) != 0 ? 15u : entry.what >> k_lanes_shift;
    nearest found{1e308, 0};
    if (lanes != 0) found = scan(x, a.centroids.rows, a.points.n, a.points.stride, a.centroids.shape.k, lanes);
    const int count = (entry.what & k_failed) != 0 ? 0 : static_cast<int>(entry.what & k_candidates);
    for (int l = 0; l < count; ++l) {
      const int j = l == 0 ? entry.candidate[0] : l == 1 ? entry.candidate[1] : entry.candidate[2];
      if (static_cast<unsigned>(j) >= static_cast<unsigned>(a.centroids.shape.k)) {
        fits = false;
        continue;
      }
      const double d = exact_distance(x, a.centroids.rows + static_cast<std::int64_t>(j) * a.points.stride, a.points.n);
      fits = fits && d <= entry.most;
      if (d < found.distance || (d == found.distance && j < found.index)) found = {d, j};
    }
    return found;
  }

  // Decides the rows of this warp's queue, adds them and stores their labels. What is decided must come out twice.
  __device__ __noinline__ static tally decide_queue(const launch& given, int waiting) {
    pass self(given);
    const pass_arguments<T>& a = given.arguments;
    __syncwarp();  // the queue is there
    for (int e = 0; e < waiting; ++e) {
      postponed entry = self.shared.queue[e];
      const T* const x = self.row(entry.row);
      bool fits = true;
      nearest found = choose(a, x, entry, fits);
      if constexpr (k_checks) {
        bool stands = false;
        const auto fail = [&] { entry.what |= k_failed | static_cast<std::uint32_t>(check::distance) << k_check_shift; };
        if (!fits && (entry.what & k_failed) == 0) fail();
        for (int number = 0; number <= a.repeats && !stands; ++number) {
          const nearest again = choose(a, x, entry, fits);
          stands = again.index == found.index && again.distance == found.distance;
          if (!stands && (entry.what & k_failed) == 0) fail();
          found = again;
        }
        if ((entry.what & k_failed) != 0 && self.lane == 0)
          report(given, static_cast<check>(entry.what >> k_check_shift & 0xff), entry.row, stands && a.repeats > 0);
      }
      if (self.lane == 0)
        arch::add_global((entry.what & k_failed) != 0 || entry.what >> k_lanes_shift != 0 ? &a.totals->scans : &a.totals->looks, 1);
      if (P.sums != sum_memory::none) {
        if ((entry.what & k_added) != 0) self.add_row(entry.row, entry.candidate[0], true);
        self.add_row(entry.row, found.index, false);
      }
      if (self.lane < 4) self.commit(entry.row, found.index, found.distance);
    }
    __syncwarp();  // the queue has been read
    return self.counted;
  }
  __device__ __forceinline__ void empty_queue() {
    const tally made = decide_queue(given, waiting);
    waiting = 0;
    counted.sum += made.sum;
    counted.inertia += made.inertia;
  }

  __device__ __noinline__ static void report(const launch& given, check which, std::int64_t i, bool repaired) {
    ballast::cuda::write_outcome(given, *given.arguments.events, repaired ? abft::outcome::recomputed : abft::outcome::uncorrectable,
                                 abft::finding{}, i, 0, static_cast<std::uint32_t>(which));
  }

  // Where sums lie in shared memory: in planes (word, limb) of k rows, padded like the points, so that one offset serves both.
  __device__ __forceinline__ int pitch() const { return stride() + (P.weighted ? 1 : 0); }
  __device__ __forceinline__ int entries() const { return (a.centroids.shape.k + 1) * pitch(); }

  // Adds a number to the sum of column f of cluster j, or takes it away again; `at` = j · pitch + f.
  __device__ __forceinline__ void add(int j, int f, int at, T value, T rest, T unit, bool away = false) const {
    std::int32_t hi[P.words], lo[P.words];
    const T step = step_of<T>(a.points.bits);
    if constexpr (P.weighted) {
      split<P.words>(value, rest, unit, step, hi, lo);
    } else {
      split<P.words>(value, unit, step, hi, lo);
    }
#pragma unroll
    for (int w = 0; w < P.words; ++w) {
      if constexpr (P.sums == sum_memory::shared) {
        atomicAdd(shared.limbs + 2 * w * entries() + at, away ? -hi[w] : hi[w]);
        atomicAdd(shared.limbs + (2 * w + 1) * entries() + at, away ? -lo[w] : lo[w]);
      } else if constexpr (P.sums == sum_memory::global) {
        const std::int64_t word = word_of(hi[w], lo[w], a.points.bits);
        arch::add_global(a.sums + (static_cast<std::int64_t>(j) * P.words + w) * a.points.columns + f,
                         static_cast<unsigned long long>(away ? -word : word));
      }
    }
  }
  __device__ __forceinline__ void add_feature(int j, int f, int at, T x, T weight, T unit, bool away = false) const {
    if constexpr (P.weighted) {
      const T product = rounded_product(weight, x);
      add(j, f, at, product, product_rest(weight, x, product), unit, away);
    } else {
      add(j, f, at, x, T(0), unit, away);
    }
  }
  // Counts a point, by one lane. Points of weight 0 are not counted.
  __device__ __forceinline__ void add_member(int j, T weight, bool away = false) const {
    if (!(weight > 0)) return;
    if constexpr (P.sums == sum_memory::shared) {
      atomicAdd(shared.members + j, away ? 0xffffffffu : 1u);
    } else if constexpr (P.sums == sum_memory::global) {
      arch::add_global(a.members + j, away ? ~0ull : 1ull);
    }
    if constexpr (P.weighted) add(j, a.points.n, j * pitch() + pitch() - 1, weight, T(0), a.points.unit[a.points.n], away);
  }
  __device__ __forceinline__ T weight_of(std::int64_t i) const {
    if constexpr (P.weighted) return arch::load_table(a.points.weight + i);
    return T(1);
  }

  // Adds 8 rows to the sums of their labels, and returns ‖x − c‖² of row g. Lanes side by side take features side by side.
  __device__ __forceinline__ T add_rows(std::int64_t first, int label) const {
    // The rows of a lane are such that reduce_rows leaves row g in the lanes of row g.
    const int line = lane / k_width, column = lane % k_width;
    const T* const x = row(first + line * k_steps) + column;
    const T* const c = a.centroids.rows + column;
    int own[k_steps];
    T part[k_steps], weight[k_steps];
#pragma unroll
    for (int r = 0; r < k_steps; ++r) {
      own[r] = __shfl_sync(0xffffffffu, label, 4 * (line * k_steps + r));
      weight[r] = weight_of(first + line * k_steps + r);
      part[r] = 0;
    }
    const auto each = [&](int offset) {
      const int f = column + offset;
      if (P.slabs == 0 && f >= a.points.n) return;
      const T unit = P.sums != sum_memory::none ? arch::load_table(a.points.unit + f) : T(0);
      T value[k_steps], near[k_steps];
#pragma unroll
      for (int r = 0; r < k_steps; ++r) value[r] = arch::load_table(x + r * stride() + offset);
      if constexpr (k_checks) {
#pragma unroll
        for (int r = 0; r < k_steps; ++r) near[r] = arch::load_table(c + own[r] * stride() + offset);
      }
#pragma unroll
      for (int r = 0; r < k_steps; ++r) {
        if constexpr (k_checks) {
          const T d = value[r] - near[r];
          part[r] = fma(d, d, part[r]);
        }
        if constexpr (P.sums != sum_memory::none) {
          if (f < a.points.n) add_feature(own[r], f, own[r] * pitch() + f, value[r], weight[r], unit);
        }
      }
    };
    if constexpr (P.slabs > 0) {
#pragma unroll
      for (int offset = 0; offset < k_stride; offset += k_width) each(offset);
    } else {
#pragma unroll 1
      for (int offset = 0; offset < a.points.n; offset += k_width) each(offset);
    }
    return k_checks ? reduce_rows(part) : T(0);
  }

  // Adds one row to the sums of cluster j, or takes it away. By a whole warp.
  __device__ __forceinline__ void add_row(std::int64_t i, int j, bool away) const {
    const T* const x = row(i);
    const T weight = weight_of(i);
    for (int f = lane; f < a.points.n; f += 32) add_feature(j, f, j * pitch() + f, x[f], weight, a.points.unit[f], away);
    if (lane == 0) add_member(j, weight, away);
  }

  // One tile of the warp: labels, sums, and what is counted.
  __device__ __forceinline__ void work(std::int64_t first, std::int64_t tile, std::int64_t tiles) {
    if (first >= a.points.m) return;
    T norm[k_groups], projection[k_groups];
    for (int q = 0; q < k_groups; ++q) {
      const std::int64_t i = first + 8 * q + g;
      norm[q] = arch::load_table(a.points.norm + i);
      projection[q] = k_checks ? arch::load_table(a.points.projection + i) : T(0);
    }
    row_search<T> rows[k_groups];
    check failed[k_groups] = {};
    unsigned bad = 0;
    find(first, tile, tiles, rows, norm, projection, failed, bad);
    int label[k_groups];
    T score[k_groups], runner_up[k_groups], error[k_groups];
    decide(first, tile, tiles, rows, norm, failed, bad, label, score, runner_up, error);
#pragma unroll 1
    for (int q = 0; q < k_groups; ++q) {
      const std::int64_t begin = first + 8 * q;
      if (begin >= a.points.m) break;
      // Registers cannot be indexed by q.
      int own_label = label[0];
      T own_score = score[0], own_runner_up = runner_up[0], own_error = error[0], own_norm = norm[0];
#pragma unroll
      for (int p = 1; p < k_groups; ++p) {
        if (p == q) own_label = label[p], own_score = score[p], own_runner_up = runner_up[p], own_error = error[p], own_norm = norm[p];
      }
      // The label that add_rows takes is the one that its distance judges, so it is the one that is stored.
      own_label = __shfl_sync(0xffffffffu, own_label, 4 * g);
      bool decided = begin + g < a.points.m && own_label < a.centroids.shape.k;
      T distance = 0;
      if constexpr (k_checks || P.sums != sum_memory::none) {
        distance = add_rows(begin, own_label);
        if constexpr (P.sums != sum_memory::none) {
          if (t == 0 && decided) add_member(own_label, weight_of(begin + g));
        }
        if constexpr (k_checks) {
          const T expected = own_norm - 2 * own_score;
          const T carried = sizeof(T) == 4 ? 4 * static_cast<T>(k_ordinal_error) * abs(own_score) : T(0);
          const T room = distance_room(own_norm, own_score);
          const T limit = 2 * own_error + carried + room;
          // The distance is that of the score; and nearer than any other centroid can be, so no other label has it.
          const bool nearest = sizeof(T) == 8 || distance <= own_norm - 2 * (own_runner_up + own_error) + room;
          const bool fails = decided && !(abs(distance - expected) <= limit && nearest);
          if (__any_sync(0xffffffffu, fails)) {
            // The four lanes of a row must agree.
            const bool row_fails = (__ballot_sync(0xffffffffu, fails) >> (4 * g) & 15u) != 0;
            postpone(row_fails,
                     {begin + g, 0, {own_label}, k_failed | k_added | static_cast<std::uint32_t>(check::distance) << k_check_shift});
            if (row_fails) decided = false;
          }
        }
      }
      if (decided) commit(begin + g, own_label, static_cast<double>(distance));
    }
  }

  // What lane t adds up for row i with this label.
  __device__ __forceinline__ unsigned long long quantity_of(std::int64_t i, int label, T weight) const {
    if (t <= static_cast<int>(quantity::labelled_signature)) {
      if constexpr (!k_checks || P.sums == sum_memory::none) return 0;
      const unsigned long long signature = arch::load_table(a.points.signature + i);
      return t == 0 ? signature : static_cast<unsigned long long>(label) * signature;
    }
    if (t == static_cast<int>(quantity::members)) return weight > 0 ? 1ull + (static_cast<unsigned long long>(label) << 32) : 0;
    const int before = a.previous != nullptr ? arch::load_table(a.previous + i) : -1;
    return before == label ? 1ull : 1ull << 32;
  }

  // Stores the label of row i; by the four lanes of a row.
  __device__ __forceinline__ void commit(std::int64_t i, int label, double distance) {
    const T weight = weight_of(i);
    counted.sum += quantity_of(i, label, weight);
    if (t == 0) counted.inertia += static_cast<double>(weight) * distance;
    if (t == 1) a.labels[i] = label;
  }

  // ---- Sums in shared memory ----

  __device__ __forceinline__ void clear_sums() const {
    for (int e = static_cast<int>(threadIdx.x); e < 2 * P.words * entries(); e += k_threads) shared.limbs[e] = 0;
    for (int j = static_cast<int>(threadIdx.x); j <= a.centroids.shape.k; j += k_threads) shared.members[j] = 0;
  }
  __device__ __forceinline__ std::int64_t word(int e, int w) const {
    return word_of(shared.limbs[2 * w * entries() + e], shared.limbs[(2 * w + 1) * entries() + e], a.points.bits);
  }

  // Whether the block's sums have the signature of the rows that were added to them: `expected` is this thread's part of quantity t. All
  // threads get the answer. Called by all.
  __device__ __forceinline__ bool sums_fit(unsigned long long expected) const {
    unsigned long long off[3] = {};
    for (int e = static_cast<int>(threadIdx.x); e < a.centroids.shape.k * pitch(); e += k_threads) {
      const int j = e / pitch(), at = e % pitch();
      const int f = P.weighted && at == pitch() - 1 ? a.points.n : at;
      if (f >= a.points.columns) continue;
      unsigned long long sum = 0;
      for (int w = 0; w < P.words; ++w)
        sum += arch::load_table(a.factors + w * a.points.columns + f) * static_cast<unsigned long long>(word(e, w));
      off[0] += sum;
      off[1] += static_cast<unsigned long long>(j) * sum;
    }
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads)
      off[2] += shared.members[j] + (static_cast<unsigned long long>(j) * shared.members[j] << 32);
    // In the upper half of the members only the sum modulo 2^32 has a meaning.
    for (int v = 0; v < 3; ++v) off[v] -= t == v ? expected : 0;
    const unsigned long long total = ballast::cuda::add_block<k_threads>(off, shared.block);
    return __syncthreads_or(threadIdx.x < 3 && total != 0) == 0;
  }

  // Adds the block's sums to those of all blocks and clears them.
  __device__ __forceinline__ void flush() const {
    for (int e = static_cast<int>(threadIdx.x); e < entries(); e += k_threads) {
      const int j = e / pitch(), at = e % pitch();
      const int f = P.weighted && at == pitch() - 1 ? a.points.n : at;
      if (f >= a.points.columns || j == a.centroids.shape.k) continue;
      for (int w = 0; w < P.words; ++w) {
        const std::int64_t value = word(e, w);
        if (value != 0)
          arch::add_global(a.sums + (static_cast<std::int64_t>(j) * P.words + w) * a.points.columns + f,
                           static_cast<unsigned long long>(value));
      }
    }
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads) {
      if (shared.members[j] != 0) arch::add_global(a.members + j, static_cast<unsigned long long>(shared.members[j]));
    }
    __syncthreads();
    clear_sums();
    __syncthreads();
  }

  // Decides and adds the rows of the tiles [from, to) of this block again: the sums, or a label on its way to memory, may have been struck.
  // Returns this thread's part of quantity t over these rows, for t = changes the difference that new labels make.
  __device__ __noinline__ static unsigned long long add_again(const launch& given, std::int64_t from, std::int64_t to) {
    return pass(given).add_interval(from, to);
  }
  __device__ __forceinline__ unsigned long long add_interval(std::int64_t from, std::int64_t to) const {
    clear_sums();
    __syncthreads();
    unsigned long long sum = 0;
    for (std::int64_t tile = from; tile < to; tile += gridDim.x) {
      const std::int64_t first = tile * k_rows_of_block + static_cast<std::int64_t>(warp) * k_rows;
#pragma unroll 1
      for (std::int64_t begin = first; begin < min(first + k_rows, a.points.m); begin += 8) {
        int label = 0;
#pragma unroll 1
        for (int r = 0; r < 8; ++r) {
          const auto search_all = [&] {
            return scan(row(begin + r), a.centroids.rows, a.points.n, a.points.stride, a.centroids.shape.k, 15u);
          };
          nearest found = search_all();
          for (int number = 0; number < a.repeats; ++number) {
            const nearest again = search_all();
            const bool same = again.index == found.index && again.distance == found.distance;
            found = again;
            if (same) break;
          }
          if (g == r) label = found.index;
        }
        static_cast<void>(add_rows(begin, label));
        const std::int64_t i = begin + g;
        const bool there = i < a.points.m;
        const T weight = weight_of(i);
        const std::int32_t old = there ? a.labels[i] : label;
        __syncwarp();  // all lanes of a row have read its old label
        if (!there) continue;
        if (t == 0) add_member(label, weight);
        if (t == static_cast<int>(quantity::changes)) {
          sum += quantity_of(i, label, weight) - quantity_of(i, old, weight);
          a.labels[i] = label;
        } else {
          sum += quantity_of(i, label, weight);
        }
      }
    }
    __syncthreads();
    return sum;
  }

  // Verifies the sums of the tiles [from, to) and empties them. Called by all threads.
  __device__ __forceinline__ void close_interval(std::int64_t from, std::int64_t to, unsigned long long& mark) {
    __syncthreads();  // all rows have been added
    if constexpr (Injector::enabled) {
      const std::int64_t tiles = (a.points.m + k_rows_of_block - 1) / k_rows_of_block;
      if (static_cast<int>(threadIdx.x) < entries())
        given.strike(index<1>{}, inject::site::kmeans_sum, here(from, tiles), reinterpret_cast<std::uint32_t*>(shared.limbs + threadIdx.x));
      if (static_cast<int>(threadIdx.x) < a.centroids.shape.k)
        given.strike(index<1>{}, inject::site::kmeans_count, here(from, tiles), shared.members + threadIdx.x);
      __syncthreads();
    }
    if constexpr (k_checks) {
      bool fits = sums_fit(counted.sum - mark);
      if (!fits) {
        for (int number = 0; number < a.repeats && !fits; ++number) {
          const unsigned long long made = add_again(given, from, to);
          // What was counted for these rows may be what was wrong.
          counted.sum = (t == static_cast<int>(quantity::changes) ? counted.sum : mark) + made;
          fits = sums_fit(counted.sum - mark);
        }
        if (threadIdx.x == 0) report(given, check::sums, from * k_rows_of_block, fits);
      }
      mark = counted.sum;
    }
    flush();
  }

  // Asks for the rows of the warp's next tile.
  __device__ __forceinline__ void prefetch(std::int64_t first) const {
    const T* const begin = a.points.x + first * a.points.stride;
    const T* const end = a.points.x + min(first + k_rows, a.points.m) * a.points.stride;
    constexpr int line = 128 / sizeof(T);
    for (const T* at = begin + lane * line; at < end; at += 32 * line) arch::prefetch_l2(at);
  }

  __device__ __forceinline__ void run() {
    const std::int64_t tiles = (a.points.m + k_rows_of_block - 1) / k_rows_of_block;
    constexpr int most = k_flush_rows / k_rows_of_block > 0 ? k_flush_rows / k_rows_of_block : 1;
    static_assert(k_rows_of_block <= k_flush_rows);
    unsigned long long mark = 0;
    if constexpr (P.sums == sum_memory::shared) {
      clear_sums();
      __syncthreads();
    }
    std::int64_t from = blockIdx.x;
    int since = 0;
    for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const std::int64_t first = tile * k_rows_of_block + static_cast<std::int64_t>(warp) * k_rows;
      prefetch(first + static_cast<std::int64_t>(gridDim.x) * k_rows_of_block);
      work(first, tile, tiles);
      if (waiting + k_queued_rows > pass_queue_rows<T>(P)) empty_queue();
      if constexpr (P.sums == sum_memory::shared) {
        if (++since == most) {
          empty_queue();
          close_interval(from, tile + 1, mark);
          from = tile + gridDim.x;
          since = 0;
        }
      }
    }
    empty_queue();
    if constexpr (P.sums == sum_memory::shared) {
      if (since > 0) close_interval(from, tiles, mark);
    }
    finish();
  }

  // Adds what the threads have counted to the totals.
  __device__ __forceinline__ void finish() {
    unsigned long long sums[k_quantities];
    for (int v = 0; v < k_quantities; ++v) sums[v] = t == v ? counted.sum : 0;
    __syncthreads();
    const unsigned long long total = ballast::cuda::add_block<k_threads>(sums, shared.block);
    if (threadIdx.x < k_quantities && total != 0) arch::add_global(a.totals->quantities + threadIdx.x, total);
    __syncthreads();
    double spent[1] = {counted.inertia};
    const double sum = ballast::cuda::add_block<k_threads>(spent, reinterpret_cast<double*>(shared.block));
    if (threadIdx.x == 0) a.inertia[blockIdx.x] = sum;
  }
};

template <class T, pass_policy P, class Injector>
__global__ void __launch_bounds__(32 * P.warps, P.blocks)
    pass_kernel(const __grid_constant__ ballast::cuda::kernel_launch<pass_arguments<T>, Injector> given) {
  arch::wait_for_previous_grid();
  if (given.arguments.state != nullptr && given.arguments.state->reason != 0) return;
  pass<T, P, Injector>(given).run();
}

}  // namespace ballast::kmeans::cuda
