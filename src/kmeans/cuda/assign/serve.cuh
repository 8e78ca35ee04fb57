// Labels of points as they are given, without a prepared copy: each block normalizes its rows while it reads them, finds the nearest
// centroids by products on tensor cores, and sums the inertia.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md, "Points as they are given".
// Contract: the labels and sums of pass_kernel and exact_kernel, bit for bit. A label is certain if its score leads by more than the bound
// of both errors (row_search.cuh). A row whose third best score is lower by more than that bound is decided between its two best centroids,
// by distances in double; other rows are compared with all centroids, in double where working precision does not decide; rows that the
// rounding of normalized coordinates leaves open (exact.cuh) by the coordinates as given.
// With checks everything is computed again by another warp, from loads of its own and the second copy of the centroids. Both computations
// are the same operations in the same order, so a fault shows as a difference of a bit: in the hash of all scores, in the label, in the
// label as it is stored, or in the distance.
#pragma once

#include <type_traits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/assign/exact.cuh"
#include "kmeans/cuda/assign/feature_rows.cuh"
#include "kmeans/cuda/assign/pass.hpp"
#include "kmeans/cuda/assign/row_search.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "kmeans/cuda/layout/serve_args.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Packs a tile of one copy of the centroids, a column by each warp. Shared memory: the norms of a tile.
template <class T, class Injector>
__global__ void __launch_bounds__(k_serve_pack_threads)
    serve_pack_kernel(const __grid_constant__ ballast::cuda::kernel_launch<serve_arguments<T>, Injector> given) {
  const serve_arguments<T>& a = given.arguments;
  auto* const norms = reinterpret_cast<serve_norms<T>*>(arch::shared_memory());
  const int tiles = a.shape.tiles(), tile = static_cast<int>(blockIdx.x) % tiles, copy = static_cast<int>(blockIdx.x) / tiles;
  const serve_centroids<T>& to = a.centroids[copy];
  const int c = arch::warp(), lane = arch::lane(), j = tile * k_tile_columns + c, n = a.given.n;
  const int stride = a.shape.slices * k_slice<T>;
  const bool there = j < a.k;
  double sums[2] = {};  // ‖c‖², ‖c − c̃‖²
  for (int f = lane; f < stride; f += 32) {
    const T value = there && f < n ? load_again(to.values + std::int64_t{j} * n + f) : T(0);
    if (there) to.rows[std::int64_t{j} * stride + f] = value;
    to.packed[packed_index<T>(a.shape, tile, c, f)] = as_operand(value);
    const double off = static_cast<double>(value) - static_cast<double>(multiplied(value));
    sums[0] = __fma_rn(static_cast<double>(value), static_cast<double>(value), sums[0]);
    sums[1] = __fma_rn(off, off, sums[1]);
  }
  ballast::cuda::add_lanes<k_serve_pack_threads, 32, 1>(sums);
  if (lane == 0) {
    T start = there ? static_cast<T>(-sums[0] / 2) : k_no_score<T>;
    if (copy == 0) given.strike(index<1>{}, site::norm, {tile, tiles, 0, 1, c, k_tile_columns}, &start);
    to.starts[j] = start;
    const T norm = norm_above(static_cast<T>(sums[0])) * (1 + 4 * abft::unit_roundoff<T>);
    const bool rounded = there && sums[1] > 0;
    norms[c] = {there ? norm : T(0), there ? norm : static_cast<T>(3e38),
                rounded ? norm_above(static_cast<T>(sums[1] / sums[0])) * T(1 + 0x1p-9) : T(0)};
  }
  __syncthreads();  // the norms are stored
  if (threadIdx.x != 0) return;
  serve_norms<T> all = norms[0];
  for (int i = 1; i < k_tile_columns; ++i) {
    all.largest = max(all.largest, norms[i].largest);
    all.smallest = min(all.smallest, norms[i].smallest);
    all.ratio = max(all.ratio, norms[i].ratio);
  }
  to.bounds[tile] = all;
}

// The state of a thread. It has many members because places in shared memory are among them. With g = lane / 4 and t = lane % 4, the four
// lanes of a group have rows g and g + 8 of 16; lane t has columns 2t and 2t + 1 of each tile. q numbers the rows of a lane.
template <class T, bool Half, int Warps, int Tiles, class Injector>
struct serving {
  using fragment = operands<T>;
  using operand = typename fragment::rows;
  using launch = ballast::cuda::kernel_launch<serve_arguments<T>, Injector>;
  static_assert(sizeof(operand) == sizeof(uint4));
  static constexpr int k_threads = 32 * Warps, k_rows = k_pass_rows, k_halves = 2, k_scores = fragment::k_scores;
  static constexpr unsigned k_all = 0xffffffffu;
  // Steps of site kmeans.index: the best and the second-best column of either row of a lane; a label by the coordinates as given; one by
  // distances.
  static constexpr int k_step_settled = 2 * k_halves, k_step_decided = k_step_settled + 1, k_index_steps = k_step_decided + 1;

  const launch& given;
  const serve_arguments<T>& a;
  const int lane, g, t, warp, n, slices, stride;
  std::int64_t first;  // the first row of the block
  int rows;            // its rows
  std::conditional_t<Half, half_rows, feature_rows<T>> points;
  // Shared memory, in the order of serve_shared_bytes.
  uint4* packed_rows;     // this warp's operands: k-slice by k-slice, each lane its own
  T* x;                   // this warp's: a row
  double *made, *sums;    // made: 2 × k_serve_rows, by either computation
  std::int32_t* labels;   // the same
  std::uint32_t* hashes;  // by the first computation

  __device__ __forceinline__ explicit serving(const launch& from)
      : given(from),
        a(from.arguments),
        lane(arch::lane()),
        g(lane / 4),
        t(lane % 4),
        warp(__shfl_sync(k_all, arch::warp(), 0)),
        n(a.given.n),
        slices(a.shape.slices),
        stride(slices * k_slice<T>),
        first(std::int64_t{blockIdx.x} * k_serve_rows),
        rows(static_cast<int>(min(a.given.m - first, static_cast<std::int64_t>(k_serve_rows)))),
        points(given_rows_of<Half>(a.given)) {
    unsigned char* at = arch::shared_memory();
    packed_rows = reinterpret_cast<uint4*>(at) + warp * slices * 32 + lane;
    at += Warps * slices * 32 * static_cast<int>(sizeof(uint4));
    x = reinterpret_cast<T*>(at) + warp * stride;
    made = reinterpret_cast<double*>(at + Warps * stride * static_cast<int>(sizeof(T)));
    sums = made + 2 * k_serve_rows;
    labels = reinterpret_cast<std::int32_t*>(sums + 2);
    hashes = reinterpret_cast<std::uint32_t*>(labels + 2 * k_serve_rows);
  }

  __device__ __forceinline__ inject::device_position here(int step, int steps) const {
    return {blockIdx.x, gridDim.x, step, steps, static_cast<int>(threadIdx.x), k_threads};
  }
  // Shows the injector a label that the warp decided by distances, and returns it as lane 0 has it.
  __device__ __forceinline__ int struck_label(int time, int step, int label) const {
    if constexpr (!Injector::enabled) return label;
    auto own = static_cast<std::uint32_t>(label);
    if (lane == 0 && time == 0) given.strike(index<1>{}, site::index, {blockIdx.x, gridDim.x, step, k_index_steps, warp, Warps}, &own);
    return static_cast<int>(__shfl_sync(k_all, own, 0));
  }
  // Rows after the last one repeat it.
  __device__ __forceinline__ std::int64_t row_of(int r) const { return first + min(r, rows - 1); }

  // Normalizes loaded features of a row. Those from n on are 0, and so is their shift.
  __device__ __forceinline__ void normalize(vector<T>& of, const features<T>& shift) const {
#pragma unroll
    for (int i = 0; i < k_vector<T>; ++i) of.at[i] = normalized(of.at[i], a.given.scale, shift.at[i]);
  }
  static __device__ __forceinline__ operand operand_of_rows(const vector<float>& low, const vector<float>& high) {
    const auto pair = [](float even, float odd) { return as_operand(even) | std::uint32_t{as_operand(odd)} << 16; };
    return {{pair(low.at[0], low.at[1]), pair(high.at[0], high.at[1]), pair(low.at[2], low.at[3]), pair(high.at[2], high.at[3])}};
  }

  // Loads the 16 rows from `own` on as operands; returns ‖x‖² and ‖x − x̃‖² of the lane's rows.
  __device__ __forceinline__ void load_rows(const serve_centroids<T>& from, int own, int time, T (&norm)[k_halves],
                                            T (&cut)[k_halves]) const {
    constexpr int together = 2;  // k-slices whose loads are in flight
#pragma unroll
    for (int q = 0; q < k_halves; ++q) norm[q] = cut[q] = 0;
#pragma unroll 1
    for (int begin = 0; begin < slices; begin += together) {
      vector<T> own_rows[together][k_halves];
#pragma unroll
      for (int s = 0; s < together; ++s) {
        if (begin + s >= slices) break;
#pragma unroll
        for (int q = 0; q < k_halves; ++q)
          own_rows[s][q] = load_features(points, row_of(own + 8 * q + g), (begin + s) * k_slice<T> + t * k_vector<T>, n);
      }
#pragma unroll
      for (int s = 0; s < together; ++s) {
        if (begin + s >= slices) break;
        const features<T> shift = load_features(from.shift + (begin + s) * k_slice<T> + t * k_vector<T>);
#pragma unroll
        for (int q = 0; q < k_halves; ++q) {
          normalize(own_rows[s][q], shift);
#pragma unroll
          for (int i = 0; i < k_vector<T>; ++i) {
            const T value = own_rows[s][q].at[i], off = value - multiplied(value);
            norm[q] = multiply_add(value, value, norm[q]);
            cut[q] = multiply_add(off, off, cut[q]);
          }
        }
        operand made_of = operand_of_rows(own_rows[s][0], own_rows[s][1]);
        if (time == 0) given.strike(index<fragment::k_words>{}, site::points, here(begin + s, slices), made_of.at);
        packed_rows[(begin + s) * 32] = __builtin_bit_cast(uint4, made_of);
      }
    }
#pragma unroll
    for (int q = 0; q < k_halves; ++q) norm[q] = add_quad(norm[q]), cut[q] = add_quad(cut[q]);
  }

  // Returns the bound of the errors of two scores, for each of the lane's rows: a centroid whose score is lower than the best by more is
  // not the nearest. Sums in working precision are taken as slightly larger than they are.
  __device__ __forceinline__ void bound_errors(const serve_centroids<T>& from, const T (&norm)[k_halves], const T (&cut)[k_halves],
                                               T (&spread)[k_halves]) const {
    score_bound<T> bound;
    bound.smallest = static_cast<T>(3e38);
    for (int tile = lane; tile < a.shape.tiles(); tile += 32) {
      const serve_norms<T> each = from.bounds[tile];
      bound.largest = max(bound.largest, each.largest);
      bound.smallest = min(bound.smallest, each.smallest);
      bound.product = max(bound.product, each.ratio);
    }
#pragma unroll 1
    for (int apart = 1; apart < 32; apart *= 2) {
      bound.largest = max(bound.largest, __shfl_xor_sync(k_all, bound.largest, apart));
      bound.smallest = min(bound.smallest, __shfl_xor_sync(k_all, bound.smallest, apart));
      bound.product = max(bound.product, __shfl_xor_sync(k_all, bound.product, apart));
    }
    bound.sum = static_cast<T>(abft::unit_roundoff<T> * (12 + static_cast<double>(n)));
    constexpr T above = static_cast<T>(1 + 0x1p-10);
#pragma unroll
    for (int q = 0; q < k_halves; ++q)
      spread[q] = max(2 * score_error<T>(bound, norm[q] * above, norm_above(cut[q]) * above).most(), static_cast<T>(k_comparable));
  }

  // The search of a row: the three largest scores, the columns of the first two, and the sum of the bits of all scores.
  struct found {
    T best, second, third;
    int column, next;
    std::uint32_t hash;

    // Takes the score of a column; among equals the one that came first stays ahead.
    __device__ __forceinline__ void take(T score, int of) {
      hash += static_cast<std::uint32_t>(ballast::cuda::bits(score));
      const bool first = score > best;
      place(min(best, score), first ? column : of);
      column = first ? of : column;
      best = max(best, score);
    }
    // Takes what other columns gave.
    __device__ __forceinline__ void join(const found& other) {
      hash += other.hash;
      // The lower one of the seconds is below three other scores.
      const bool behind = other.second > second;
      next = behind ? other.next : next;
      second = max(second, other.second);
      third = max(third, other.third);
      const bool first = other.best > best;
      place(min(best, other.best), first ? column : other.column);
      column = first ? other.column : column;
      best = max(best, other.best);
    }

   private:
    // Takes a score that is not the best.
    __device__ __forceinline__ void place(T score, int of) {
      third = max(third, min(second, score));
      next = score > second ? of : next;
      second = max(second, score);
    }
  };
  __device__ __forceinline__ void find(const serve_centroids<T>& from, int time, found (&of)[k_halves]) const {
    using column = typename fragment::column;
#pragma unroll
    for (found& each : of) {
      each.best = each.second = each.third = lowest_score<T>();
      each.column = each.next = a.k;
      each.hash = 0;
    }
    const int groups = a.shape.tiles() / Tiles;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      T scores[Tiles * k_scores];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const T* const starts = from.starts + (group * Tiles + i) * k_tile_columns + 2 * t;
        const T start[2] = {arch::load_table(starts), arch::load_table(starts + 1)};
#pragma unroll
        for (int v = 0; v < k_scores; ++v) scores[i * k_scores + v] = start[v % 2];
      }
      const auto* const packed = reinterpret_cast<const column*>(from.packed) + std::int64_t{group} * slices * Tiles * 32 + lane;
#pragma unroll 2
      for (int slice = 0; slice < slices; ++slice) {
        const operand own = __builtin_bit_cast(operand, packed_rows[slice * 32]);
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          fragment::multiply_add(&scores[i * k_scores], own, arch::load_table(packed + (slice * Tiles + i) * 32));
      }
      if constexpr (Injector::enabled) {
        for (int i = 0; i < Tiles && time == 0; ++i)
          given.strike(index<k_scores>{}, site::product, here(group * Tiles + i, groups * Tiles), &scores[i * k_scores]);
      }
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
#pragma unroll
        for (int v = 0; v < k_scores; ++v) {
          of[v / 2].take(scores[i * k_scores + v], (group * Tiles + i) * k_tile_columns + 2 * t + v % 2);
        }
      }
    }
#pragma unroll
    for (found& each : of) {
#pragma unroll
      for (int apart = 1; apart < 4; apart *= 2) {
        found other;
        other.best = __shfl_xor_sync(k_all, each.best, apart), other.second = __shfl_xor_sync(k_all, each.second, apart);
        other.third = __shfl_xor_sync(k_all, each.third, apart), other.column = __shfl_xor_sync(k_all, each.column, apart);
        other.next = __shfl_xor_sync(k_all, each.next, apart), other.hash = __shfl_xor_sync(k_all, each.hash, apart);
        each.join(other);
      }
    }
  }

  // Stores x of a row in shared memory. Called by the warp, as are those below.
  __device__ __forceinline__ void store_row(const serve_centroids<T>& from, std::int64_t row) const {
    __syncwarp();  // the row before is read
    for (int f = lane * k_vector<T>; f < stride; f += 32 * k_vector<T>) {
      vector<T> own = load_features(points, row, f, n);
      normalize(own, load_features(from.shift + f));
      *reinterpret_cast<vector<T>*>(x + f) = own;
    }
    __syncwarp();  // the row is stored
  }

  // Returns the nearest centroid of the stored row, the lowest index among equals: as scan() does.
  __device__ __forceinline__ int search_all(const T* from) const {
    constexpr int lanes = 8, groups = 32 / lanes, together = 2;
    const auto measure = [&](int first_column, T(&distance)[together]) {
      const T* c[together];
#pragma unroll
      for (int e = 0; e < together; ++e) c[e] = from + std::int64_t{min(first_column + e * groups + lane / lanes, a.k - 1)} * stride;
#pragma unroll
      for (T& each : distance) each = 0;
      for (int f = lane % lanes * k_vector<T>; f < stride; f += lanes * k_vector<T>) {
        const auto own = *reinterpret_cast<const vector<T>*>(x + f);
#pragma unroll
        for (int e = 0; e < together; ++e) {
          const auto other = arch::load_itself(reinterpret_cast<const vector<T>*>(c[e] + f));
#pragma unroll
          for (int i = 0; i < k_vector<T>; ++i) {
            const T d = own.at[i] - other.at[i];
            distance[e] = multiply_add(d, d, distance[e]);
          }
        }
      }
      ballast::cuda::add_lanes<k_threads, lanes, 1>(distance);
    };
    T least = static_cast<T>(3e38);
    const auto most = [&] { return least + 2 * distance_error<T>(least, stride); };
    unsigned again = 0;  // steps with a near centroid, as bits modulo 32
    int step = 0;
#pragma unroll 1
    for (int begin = 0; begin < a.k; begin += together * groups, ++step) {
      T distance[together];
      measure(begin, distance);
      T own = min(distance[0], distance[1]);
      own = min(own, __shfl_xor_sync(k_all, own, 8));
      own = min(own, __shfl_xor_sync(k_all, own, 16));
      if (own <= most()) again |= 1u << step % 32;
      least = min(least, own);
    }
    nearest best;
    best.index = a.k;
    step = 0;
#pragma unroll 1
    for (int begin = 0; begin < a.k; begin += together * groups, ++step) {
      if ((again >> step % 32 & 1u) == 0) continue;
      T distance[together];
      measure(begin, distance);
#pragma unroll 1
      for (int e = 0; e < together; ++e) {
        const int mine = begin + e * groups + lane / lanes;
        const bool close = mine < a.k && (e == 0 ? distance[0] : distance[1]) <= most();
        unsigned left = __ballot_sync(k_all, close && lane % lanes == 0);
#pragma unroll 1
        for (; left != 0; left &= left - 1) {
          const int which = __shfl_sync(k_all, mine, __ffs(static_cast<int>(left)) - 1);
          const T* const c[1] = {from + std::int64_t{which} * stride};
          double square[1];
          exact_squares(c, square);
          best.consider(square[0], which);
        }
      }
    }
    return best.index;
  }
  // Returns the nearer one of two centroids, the lower index if they are equally far away.
  __device__ __forceinline__ int search_two(const T* from, int one, int other) const {
    const T* const c[2] = {from + std::int64_t{one} * stride, from + std::int64_t{other} * stride};
    double square[2];
    exact_squares(c, square);
    nearest best;
    best.index = a.k;
    best.consider(square[0], one);
    best.consider(square[1], other);
    return best.index;
  }
  // Decides the stored row: between two centroids, or if `other` is none among all. Apart from the main loop, which needs the registers. It
  // takes no reference to this: all addresses would lie in memory then.
  static __device__ __noinline__ int nearest_of(const launch& given, const T* from, int one, int other) {
    const serving by(given);
    return static_cast<unsigned>(other) < static_cast<unsigned>(by.a.k) ? by.search_two(from, one, other) : by.search_all(from);
  }
  // Computes ‖x − c‖² of the stored row in double, with the bits of exact_distance().
  template <int Count>
  __device__ __forceinline__ void exact_squares(const T* const (&c)[Count], double (&to)[Count]) const {
#pragma unroll
    for (double& each : to) each = 0;
    for (int f = lane * k_vector<T>; f < stride; f += 32 * k_vector<T>) {
      const auto own = *reinterpret_cast<const vector<T>*>(x + f);
      vector<T> other[Count];
#pragma unroll
      for (int e = 0; e < Count; ++e) other[e] = arch::load_itself(reinterpret_cast<const vector<T>*>(c[e] + f));
#pragma unroll
      for (int e = 0; e < Count; ++e) {
#pragma unroll
        for (int i = 0; i < k_vector<T>; ++i) {
          const double d = static_cast<double>(own.at[i]) - static_cast<double>(other[e].at[i]);
          to[e] = fma(d, d, to[e]);
        }
      }
    }
    ballast::cuda::add_lanes<k_threads, 32, 1>(to);
  }

  // Computes to[r] = k_lift² ‖point · scale − plain‖² for the 16 rows from `own` on and their labels, in double, with the bits of
  // exact_distances().
  __device__ __forceinline__ void measure_labels(const serve_centroids<T>& from, int own, int time, const std::int32_t* of,
                                                 double* to) const {
    constexpr int groups = 32 / k_distance_lanes;
    const int part = time == 0 ? lane % k_distance_lanes : k_distance_lanes - 1 - lane % k_distance_lanes;
    const feature_rows<T> centroids = feature_rows_of(from.plain, std::int64_t{n}, 1);
    const double scale = static_cast<double>(a.given.scale);
#pragma unroll 1
    for (int begin = 0; begin < k_rows; begin += groups) {
      const int r = own + begin + lane / k_distance_lanes;
      const std::int32_t label = of[r];
      const bool valid = static_cast<unsigned>(label) < static_cast<unsigned>(a.k);
      double sum[1] = {};
#pragma unroll 2
      for (int f = part * k_vector<T>; f < n; f += k_distance_lanes * k_vector<T>) {
        const vector<T> p = load_features(points, row_of(r), f, n), c = load_features(centroids, valid ? label : 0, f, n);
#pragma unroll
        for (int i = 0; i < k_vector<T>; ++i) {
          const double d = __dsub_rn(__dmul_rn(static_cast<double>(p.at[i]), scale), static_cast<double>(c.at[i]));
          sum[0] = __fma_rn(d, d, sum[0]);
        }
      }
      ballast::cuda::add_lanes<k_threads, k_distance_lanes, 1>(sum);
      if (lane % k_distance_lanes == 0) to[r] = valid ? sum[0] : std::numeric_limits<double>::quiet_NaN();
    }
    __syncwarp();  // the distances are stored
  }

  // Decides the labels of open rows by the coordinates as given. norm: ‖x‖² of the lane's rows, about.
  __device__ __forceinline__ bool settle_rows(const serve_centroids<T>& from, int own, int time, const T (&norm)[k_halves],
                                              std::int32_t* of, const double* distances) const {
    bool changed = false;
    // A row may be open only if it is so near to its centroid.
    constexpr T slack = static_cast<T>(1 + 0x1p-6);
    unsigned possible[k_halves];
#pragma unroll
    for (int q = 0; q < k_halves; ++q)
      possible[q] = __ballot_sync(k_all, t == 0 && is_open_at<T>(static_cast<double>(norm[q] * slack), distances[own + 8 * q + g]));
#pragma unroll 1
    for (int q = 0; q < k_halves; ++q) {
#pragma unroll 1
      for (unsigned left = q == 0 ? possible[0] : possible[1]; left != 0; left &= left - 1) {
        const int r = own + 8 * q + (__ffs(static_cast<int>(left)) - 1) / 4;
        if (r >= rows) continue;
        store_row(from, first + r);
        double square = 0;  // with the bits of normalized_points::norm
        for (int f = 0; f < n; ++f) square = __fma_rn(static_cast<double>(x[f]), static_cast<double>(x[f]), square);
        if (!is_open_at<T>(static_cast<double>(static_cast<T>(square)), distances[r])) continue;
        const exact_arguments<T>& exact = a.exact[time];
        const int label =
            struck_label(time, k_step_settled, nearest_given<Half>(exact, first + r, 0, 1, bound_of(exact, distances[r])).index);
        if (static_cast<unsigned>(label) >= static_cast<unsigned>(a.k) || label == of[r]) continue;
        changed = true;
        __syncwarp();  // the label is read
        if (lane == 0) of[r] = label;
        __syncwarp();  // the label is stored
      }
    }
    return changed;
  }

  // Computes the labels of the 16 rows from `own` on, for the first or the second time. Called by the warp.
  __device__ __forceinline__ void serve_rows(int own, int time) const {
    const serve_centroids<T>& from = a.centroids[time];
    std::int32_t* const own_labels = labels + time * k_serve_rows;
    double* const own_made = made + time * k_serve_rows;
    T norm[k_halves], cut[k_halves], spread[k_halves];
    load_rows(from, own, time, norm, cut);
    bound_errors(from, norm, cut, spread);
    found seen[k_halves];
    find(from, time, seen);
    unsigned unsure[k_halves];
#pragma unroll
    for (int q = 0; q < k_halves; ++q) {
      found& each = seen[q];
      if (Injector::enabled && time == 0 && t == 0) {  // the lane that decides
        const auto of_row = [&](int step, int steps) {
          return inject::device_position{blockIdx.x, gridDim.x, k_halves * step + q, steps, 8 * warp + g, 8 * Warps};
        };
        given.strike(index<1>{}, site::threshold, of_row(0, k_halves), &spread[q]);
        given.strike(index<1>{}, site::minimum, of_row(0, 2 * k_halves), &each.best);
        given.strike(index<1>{}, site::minimum, of_row(1, 2 * k_halves), &each.third);
        given.strike(index<1>{}, site::index, of_row(0, k_index_steps), reinterpret_cast<std::uint32_t*>(&each.column));
        given.strike(index<1>{}, site::index, of_row(1, k_index_steps), reinterpret_cast<std::uint32_t*>(&each.next));
      }
      const auto is_centroid = [&](int column) { return static_cast<unsigned>(column) < static_cast<unsigned>(a.k); };
      const bool certain = each.best - each.second > spread[q] && is_centroid(each.column);
      // No third centroid can be the nearest.
      if (!(each.best - each.third > spread[q] && is_centroid(each.column))) each.next = a.k;
      const int r = own + 8 * q + g;
      unsure[q] = __ballot_sync(k_all, t == 0 && !certain && r < rows);
      if (t == 0) own_labels[r] = certain ? each.column : 0;
      if (t == 0 && time == 0) hashes[r] = each.hash;
      if (t == 0 && time != 0 && r < rows && load_again(hashes + r) != each.hash) flag(*a.flags, first + r);
    }
#pragma unroll 1
    for (int q = 0; q < k_halves; ++q) {
#pragma unroll 1
      for (unsigned left = q == 0 ? unsure[0] : unsure[1]; left != 0; left &= left - 1) {
        const int by = __ffs(static_cast<int>(left)) - 1, r = own + 8 * q + by / 4;
        const int one = __shfl_sync(k_all, q == 0 ? seen[0].column : seen[1].column, by);
        const int other = __shfl_sync(k_all, q == 0 ? seen[0].next : seen[1].next, by);
        store_row(from, first + r);
        const int label = struck_label(time, k_step_decided, nearest_of(given, from.rows, one, other));
        if (lane == 0) own_labels[r] = label;
      }
    }
    __syncwarp();  // the labels are stored
    measure_labels(from, own, time, own_labels, own_made);
    if (settle_rows(from, own, time, norm, own_labels, own_made)) measure_labels(from, own, time, own_labels, own_made);
    const int r = own + lane;
    if (lane >= k_rows || r >= rows) return;
    const std::int32_t label = own_labels[r];
    if (time == 0) {
      auto stored = static_cast<std::uint32_t>(label);
      given.strike(index<1>{}, site::label, here(0, 1), &stored);
      a.labels[first + r] = static_cast<std::int32_t>(stored);
    } else if (!(load_again(labels + r) == label && load_again(a.labels + first + r) == label &&
                 static_cast<unsigned>(label) < static_cast<unsigned>(a.k) && load_again(made + r) == own_made[r])) {
      flag(*a.flags, first + r);
    }
  }

  __device__ __forceinline__ void run() const {
#pragma unroll 1
    for (int begin = 0; begin < k_serve_rows; begin += Warps * k_rows) {
#pragma unroll 1
      for (int time = 0; time < (a.check ? 2 : 1); ++time) {
        const int own = begin + (warp + time) % Warps * k_rows;
        if (own < rows) serve_rows(own, time);
        if (time == 0) __syncthreads();  // the results of the first computation are stored
      }
    }
    __syncthreads();  // all distances are stored
    if (warp == 0) {
      double sum = sum_by_warp(rows, [&](int i) { return made[i]; });
      if (lane == 0) {
        given.strike(index<1>{}, site::inertia, {blockIdx.x, gridDim.x, 0, 1, 0, 1}, &sum);
        a.sums[2 * blockIdx.x] = sums[0] = sum;
      }
    } else if (warp == 1 && a.check) {
      const double sum = sum_by_warp(rows, [&](int i) { return made[k_serve_rows + i]; });
      if (lane == 0) a.sums[2 * blockIdx.x + 1] = sums[1] = sum;
    }
    __syncthreads();  // the sums are stored
    if (threadIdx.x == 64 && a.check && !(sums[0] == sums[1])) flag(*a.flags, first);
  }
};

// Blocks of a multiprocessor. With two of 8 warps code for sm_80 spills 140 bytes and more, code for sm_90 two registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int k_serve_blocks = 1;
#else
inline constexpr int k_serve_blocks = 2;
#endif

// One block labels k_serve_rows rows, 16 for each warp at a time.
template <class T, bool Half, int Warps, int Tiles, class Injector>
__global__ void __launch_bounds__(32 * Warps, k_serve_blocks)
    serve_kernel(const __grid_constant__ ballast::cuda::kernel_launch<serve_arguments<T>, Injector> given) {
  const serving<T, Half, Warps, Tiles, Injector> all(given);
  all.run();
}

}  // namespace ballast::kmeans::cuda
