// From the sums of a pass, or from given centroids, to the panel of the next pass; and the decision whether there is one.
// Layer: backend "cuda" of K-Means, device code. One block for each tile of centroids, a warp for each centroid, while other warps add up
// what the sums must agree with; the last block of a section makes its check tile, the last of all decides. Contract: new rows are the
// rounded quotients of sums and weights, in two copies, or the given centroids. A cluster without members keeps its old row and is
// reported, for the host to relocate. All invariants of the sums hold exactly or the iterations stop with `failure`. Every number of the
// panel that serves a check is computed from another copy, or in another order, than what it checks.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/fixed.cuh"
#include "kmeans/cuda/operand.cuh"
#include "kmeans/cuda/update.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// Factor of the limits of the row check: docs/design/kmeans-cuda.md, "Thresholds".
inline constexpr double k_row_factor = 4;

template <class T, update_policy P, class Injector>
struct update {
  using launch = ballast::cuda::kernel_launch<update_arguments<T>, Injector>;
  static constexpr int k_threads = P.threads;
  static constexpr int k_warps = k_threads / 32;
  static constexpr int k_makers = 32 * k_tile_columns;  // threads that make the tile; the others add up the sums
  static_assert(k_threads > k_makers && k_threads % 32 == 0);
  static constexpr int k_together = P.words == 1 ? 4 : 2;  // features of a lane whose loads are under way at a time

  struct memory {
    double norms[k_tile_columns];                      // ‖c‖² of the tile's centroids
    double lengths[k_tile_columns];                    // ‖c‖
    double weights[k_tile_columns];                    // w
    double cuts[k_tile_columns];                       // ‖c − c̃‖²
    double ratios[k_tile_columns];                     // ‖c − c̃‖² / ‖c‖²
    double members[k_tile_columns];                    // their weights as the quotients are judged with them
    double products[k_tile_columns][32 * k_together];  // of weights and centroids, some features at a time
    double partial[8 * k_warps];
    double totals[8];
    tile_result section;  // of the section whose last block this is
    std::uint32_t failed, empty;
    int wrong;  // the last centroid whose row is not what it should be; −1: none
  };

  const launch& given;
  const update_arguments<T>& a;
  memory& shared;
  const panel_shape& shape;
  int section, tile, in_panel;  // of this block: `tile` among all tiles of centroids, `in_panel` among all tiles
  int first, count;             // centroids of this block: first … first + count − 1
  int n, stride, lane, warp;

  __device__ __forceinline__ explicit update(const launch& from)
      : given(from),
        a(from.arguments),
        shared(arch::shared_object<memory, struct update_memory>()),
        shape(from.arguments.centroids.shape),
        section(static_cast<int>(blockIdx.x) / shape.data_tiles),
        tile(static_cast<int>(blockIdx.x)),
        in_panel(tile + section * (shape.section_tiles - shape.data_tiles)),
        first(tile * k_tile_columns),
        count(max(0, min(k_tile_columns, shape.k - first))),
        n(a.points.n),
        stride(a.points.stride),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)) {}

  __device__ __forceinline__ double warp_sum(double value) const {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  }

  __device__ static __forceinline__ double from_lane(double value, int of) { return __shfl_sync(0xffffffffu, value, of); }
  __device__ static __forceinline__ void meet_makers() { arch::group_barrier(1, k_makers); }

  __device__ __forceinline__ std::int64_t sum_at(int j, int w, int column) const {
    return (static_cast<std::int64_t>(j) * P.words + w) * sum_pitch(stride) + sum_place<T>(column, n, stride);
  }

  // The sum of one column of a cluster, in words, and as a number in units of the column. What is read is read anew in each call.
  struct words_of_sum {
    unsigned long long at[P.words];
  };
  __device__ __forceinline__ words_of_sum read_sum(int j, int column) const {
    words_of_sum made;
#pragma unroll
    for (int w = 0; w < P.words; ++w) {
      const volatile unsigned long long* const at = a.sums + sum_at(j, w, column);
      made.at[w] = *at;
    }
    return made;
  }
  __device__ __forceinline__ double read_unit(int column) const {
    const volatile T* const at = a.points.unit + column;
    return static_cast<double>(*at);
  }
  __device__ static __forceinline__ double number_of(const words_of_sum& sum, double unit) {
    double value = 0;
#pragma unroll
    for (int w = P.words - 1; w >= 0; --w) value += static_cast<double>(static_cast<long long>(sum.at[w])) * word_value(w);
    // A unit is a power of two, whose inverse has the other exponent.
    return value * ballast::cuda::from_bits<double>((std::uint64_t{2046} << 52) - ballast::cuda::bits(unit));
  }
  __device__ __forceinline__ double sum_of(int j, int column) const { return number_of(read_sum(j, column), read_unit(column)); }
  __device__ __forceinline__ double weight_of(int j) const {
    if constexpr (P.weighted) return sum_of(j, n);
    const volatile unsigned long long* const at = a.members + j;
    return static_cast<double>(*at);
  }

  __device__ __noinline__ void report(check which, std::int64_t where, bool repaired) {
    ballast::cuda::write_outcome(given, *a.events, repaired ? abft::outcome::recomputed : abft::outcome::uncorrectable, abft::finding{},
                                 where, 1, static_cast<std::uint32_t>(which));
    if (!repaired) atomicAdd(&shared.failed, 1u);
  }

  // What element f of new centroid j is made of. Loads only: those of several elements are under way together.
  struct dividend {
    words_of_sum words;
    double unit;
    T other;  // the element that is given, or the old one
  };
  __device__ __forceinline__ dividend load_dividend(int j, int f) const {
    dividend made{};
    if (f >= n) return made;
    if (a.given != nullptr) {
      made.other = a.given[static_cast<std::int64_t>(j) * n + f];
    } else {
      made.words = read_sum(j, f);
      made.unit = read_unit(f);
      made.other = a.old_rows[static_cast<std::int64_t>(j) * stride + f];
    }
    return made;
  }
  // Of the chunk of features that a row begins with: those of all lanes of a warp, k_together of each.
  struct first_dividends {
    dividend of[k_together];
    double weight;
  };
  __device__ __forceinline__ first_dividends load_dividends() const {
    first_dividends made{};
    if (warp >= count) return made;
#pragma unroll
    for (int e = 0; e < k_together; ++e) made.of[e] = load_dividend(first + warp, lane + 32 * e);
    if (a.given == nullptr) made.weight = weight_of(first + warp);
    return made;
  }
  // Element f of new centroid j. `weight`: of the cluster.
  __device__ __forceinline__ T divide(const dividend& from, int j, int f, double weight) {
    if (f >= n) return 0;
    if (a.given != nullptr) return from.other;
    T value = weight > 0 ? static_cast<T>(number_of(from.words, from.unit) / weight) : from.other;
    given.strike(index<1>{}, inject::site::kmeans_centroid, inject::device_place{static_cast<std::int64_t>(j), shape.k, 0, 1, f, n},
                 &value);
    return value;
  }

  // Whether an element of a new centroid, as both copies have it in memory, is the quotient: its product with the weight differs from the
  // sum by less than half a unit in its last place. Another thread made it, from other loads.
  __device__ static __forceinline__ bool is_quotient(T row, T twin, T old_twin, double sum, double weight) {
    if (row != twin) return false;
    if (!(weight > 0)) return twin == old_twin;
    const double limit =
        (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>)*fabs(sum) + weight * static_cast<double>(smallest()) + 1e-300;
    return fabs(static_cast<double>(twin) * weight - sum) <= limit;
  }
  __device__ static constexpr T smallest() { return sizeof(T) == 4 ? static_cast<T>(0x1p-149) : static_cast<T>(0x1p-1074); }

  // The new row of this warp's centroid, in two copies and as tensor cores read it, and its norm. `before`: what has been loaded of it.
  __device__ __forceinline__ void make_row(const first_dividends& before) {
    const int j = first + warp;
    const bool there = warp < count, divides = a.given == nullptr;
    // Few bits, so that the product with a coordinate has few more.
    const auto random = static_cast<double>(core::random_bits(0x6b6d63756461, 0, static_cast<std::uint64_t>(j)) >> 56);
    double square = 0, cut = 0;
#pragma unroll 1
    for (int begin = lane; begin < stride; begin += 32 * k_together) {
      dividend from[k_together];
#pragma unroll
      for (int e = 0; e < k_together; ++e) {
        from[e] = before.of[e];
        if (begin != lane && there) from[e] = load_dividend(j, begin + 32 * e);
      }
#pragma unroll
      for (int e = 0; e < k_together; ++e) {
        const int f = begin + 32 * e;
        if (f >= stride) continue;
        T value = 0;
        if (there) {
          const std::int64_t at = static_cast<std::int64_t>(j) * stride + f;
          value = divide(from[e], j, f, before.weight);
          a.centroids.rows[at] = value;
          a.twin[at] = !divides && f < n ? a.given_twin[static_cast<std::int64_t>(j) * n + f] : value;
          square = fma(static_cast<double>(value), static_cast<double>(value), square);
          const double off = static_cast<double>(value) - static_cast<double>(multiplied(value));
          cut = fma(off, off, cut);
        }
        a.centroids.packed[packed_place<T>(shape, in_panel, warp, f)] = as_operand(value);
      }
    }
    square = warp_sum(square);
    cut = warp_sum(cut);
    if (lane == 0) {
      const double weight = check_weight(square, random);
      T* const at = column_at(in_panel, warp);
      T start = there ? static_cast<T>(-0.5 * square) : k_no_score<T>;
      if (there) given.strike(index<1>{}, inject::site::kmeans_norm, inject::device_place{j, shape.k, 0, 1, 0, 1}, &start);
      at[0] = start;
      at[k_tile_columns] = there ? static_cast<T>(weight) : T(0);
      shared.norms[warp] = square;
      shared.cuts[warp] = cut;
      shared.weights[warp] = weight;
    } else if (lane == 1 && there && divides) {
      shared.members[warp] = weight_of(j);
      const volatile unsigned long long* const members = a.members;
      if (members[j] == 0) atomicAdd(&shared.empty, 1u);
    }
  }

  // w_j: random, and smaller the larger the scores of c_j can be, so that their rounding drowns no fault in the scores of others. The power
  // of two is the inverse of (s‖c‖ + ‖c‖²/2) / s², or half or twice that: s is the spread of the points, and ‖c‖ not below s / 16.
  __device__ __forceinline__ double check_weight(double square, double random) const {
    const auto exponent = [](double value) { return static_cast<int>(ballast::cuda::bits(value) >> 52); };
    const double norm = max(static_cast<double>(arch::sqrt_fast(static_cast<float>(square))), a.spread / 16);
    const int size = exponent(a.spread * norm + norm * norm / 2) - exponent(a.spread * a.spread + 1e-300);
    const int shift = min(max(-size, -64), 8);
    return ballast::cuda::from_bits<double>(static_cast<std::uint64_t>(1023 + shift) << 52) * (1 + random / 256);
  }

  // Where column c of a tile starts its scores; their weight follows k_tile_columns behind.
  __device__ __forceinline__ T* column_at(int tile, int c) const {
    return a.centroids.columns + static_cast<std::int64_t>(tile) * 2 * k_tile_columns + c;
  }

  // What the first `lanes` lanes have, for each of them: in an order that depends on `lanes` only.
  __device__ static __forceinline__ tile_result combined(tile_result made, int lanes) {
    int distance = 1;
    while (distance < lanes) distance *= 2;
      // Not unrolled: what one block does once, it also fetches as instructions once.
#pragma unroll 1
    for (distance /= 2; distance > 0; distance /= 2) {
      const auto partner = [&](auto value) { return __shfl_xor_sync(0xffffffffu, value, distance); };
      made.half_norms += partner(made.half_norms);
      made.root += partner(made.root);
      made.root_square += partner(made.root_square);
      made.shift += partner(made.shift);
      made.shift_twin += partner(made.shift_twin);
      made.largest = max(made.largest, partner(made.largest));
      made.smallest = min(made.smallest, partner(made.smallest));
      made.ratio = max(made.ratio, partner(made.ratio));
      made.empty += partner(made.empty);
      made.failed += partner(made.failed);
    }
    return made;
  }
  // `count` results of other blocks by one warp; lane 0 gets them.
  __device__ __forceinline__ tile_result gather(const volatile tile_result* from, int count) const {
    tile_result made{0, 0, 0, 0, 0, 0, 1e300, 0, 0, 0};
#pragma unroll 1
    for (int i = lane; i < count; i += 32) {
      const volatile tile_result& each = from[i];
      made.half_norms += each.half_norms;
      made.root += each.root;
      made.root_square += each.root_square;
      made.shift += each.shift;
      made.shift_twin += each.shift_twin;
      made.largest = max(made.largest, each.largest);
      made.smallest = min(made.smallest, each.smallest);
      made.ratio = max(made.ratio, each.ratio);
      made.empty += each.empty;
      made.failed += each.failed;
    }
    return combined(made, min(count, 32));
  }

  // What a row is verified with: other loads than those that it was made of.
  struct judgement {
    T old_row, old_twin;
    words_of_sum words;
    double unit;
  };
  __device__ __forceinline__ void load_judgements(int begin, judgement (&made)[k_together]) const {
    const int c = judged_column(), j = first + c;
#pragma unroll
    for (int e = 0; e < k_together; ++e) {
      const int f = begin + 32 * e + lane;
      made[e] = {};
      if (a.given != nullptr || c >= count || f >= stride) continue;
      const std::int64_t at = static_cast<std::int64_t>(j) * stride + f;
      made[e].old_row = a.old_rows[at], made[e].old_twin = a.old_twin[at];
      if (P.check && f < n) made[e].words = read_sum(j, f), made[e].unit = read_unit(f);
    }
  }
  // Each row is verified by another warp than the one that made it.
  __device__ __forceinline__ int judged_column() const { return (warp + 1) % k_tile_columns; }

  // What the section's check tile needs of this tile, from the second copy of the rows, and what the decision needs. Verifies the rows.
  // Some features at a time, so that a thread has few loads under way, and all threads some. `before`: what has been loaded for the first.
  __device__ __forceinline__ void add_tile(const judgement (&before)[k_together]) {
    const bool divides = a.given == nullptr;
    const int c = judged_column(), j = first + c;
    const double weight = c < count ? shared.weights[c] : 0, members = P.check && divides && c < count ? shared.members[c] : 0;
    bool fits = true;
    double half_norms = 0, shift = 0, shift_twin = 0;
#pragma unroll 1
    for (int begin = 0; begin < stride; begin += 32 * k_together) {
      judgement of[k_together];
      if (begin == 0) {
#pragma unroll
        for (int e = 0; e < k_together; ++e) of[e] = before[e];
      } else {
        load_judgements(begin, of);
      }
      T rows[k_together] = {}, twins[k_together] = {};
#pragma unroll
      for (int e = 0; e < k_together; ++e) {
        const int f = begin + 32 * e + lane;
        if (c >= count || f >= stride) continue;
        const std::int64_t at = static_cast<std::int64_t>(j) * stride + f;
        rows[e] = a.centroids.rows[at], twins[e] = a.twin[at];
      }
      if (begin == 0 && lane == 0 && c < count) {  // while these loads are under way
        shared.lengths[c] = sqrt(shared.norms[c]);
        shared.ratios[c] = shared.norms[c] > 0 ? shared.cuts[c] / shared.norms[c] : 0;
      }
#pragma unroll
      for (int e = 0; e < k_together; ++e) {
        const int f = begin + 32 * e + lane;
        if (c < count && f < stride) {
          if constexpr (P.check)
            fits = fits && (divides && f < n ? is_quotient(rows[e], twins[e], of[e].old_twin, number_of(of[e].words, of[e].unit), members)
                                             : rows[e] == twins[e]);
          const double exact = static_cast<double>(twins[e]);
          half_norms = fma(0.5 * weight * exact, exact, half_norms);
          if (divides) {
            const double d = exact - static_cast<double>(of[e].old_twin),
                         o = static_cast<double>(of[e].old_row) - static_cast<double>(rows[e]);
            shift = fma(d, d, shift);
            shift_twin = fma(o, o, shift_twin);
          }
        }
        shared.products[c][32 * e + lane] = weight * static_cast<double>(multiplied(twins[e]));
      }
      meet_makers();  // the products are there
      const int f = begin + static_cast<int>(threadIdx.x);
      if (threadIdx.x < 32 * k_together && f < stride) {
        double sum = 0;
#pragma unroll
        for (int of_tile = 0; of_tile < k_tile_columns; ++of_tile) sum += shared.products[of_tile][threadIdx.x];
        a.checksums[static_cast<std::int64_t>(tile) * stride + f] = sum;
      }
      meet_makers();  // and have been read
    }
    if (!fits) shared.wrong = j;
    double sums[3] = {half_norms, shift, shift_twin};
    const double total = ballast::cuda::add_block<k_makers>(sums, shared.partial, [this] { meet_makers(); });
    if (threadIdx.x < 3) shared.totals[threadIdx.x] = total;
    meet_makers();
  }

  // By one warp, a lane for each centroid.
  __device__ __forceinline__ void store_tile() const {
    tile_result made{0, 0, 0, 0, 0, 0, 1e300, 0, 0, 0};
    if (lane == 0) {
      made.half_norms = shared.totals[0], made.shift = shared.totals[1], made.shift_twin = shared.totals[2];
      made.empty = shared.empty, made.failed = shared.failed;
    }
    if (lane < count) {
      const double w = shared.weights[lane], square = shared.norms[lane];
      made.root = w * w * square;
      made.root_square = w * square / 2 * (w * square / 2);
      made.largest = made.smallest = shared.lengths[lane];
      made.ratio = shared.ratios[lane];
    }
    made = combined(made, k_tile_columns);
    if (lane == 0) a.tiles[tile] = made;
  }

  // Whether this block is the last of `blocks` that come here: it then sees what the others have written. Called by all threads.
  __device__ __forceinline__ bool is_last(std::uint32_t* ticket, int blocks) {
    __syncthreads();
    if (blocks == 1) return true;
    bool last = false;
    if (threadIdx.x == 0) {  // for all threads of the block, whose barriers are in front of this and behind it
      last = arch::atomic_add_acq_rel(ticket, 1) + 1 == static_cast<unsigned>(blocks);
      if (last) *ticket = 0;
    }
    return __syncthreads_or(last ? 1 : 0) != 0;
  }

  // The section's check tile with its limits, and its sums; by the last of its blocks.
  __device__ __forceinline__ void close_section() {
    const int begin = section * shape.data_tiles, check_tile = section * shape.section_tiles + shape.data_tiles;
    double checksum_square = 0;
    if constexpr (P.check) {
      for (int f = static_cast<int>(threadIdx.x); f < stride; f += k_threads) {
        double rest = 0;
#pragma unroll 8
        for (int i = 0; i < shape.data_tiles; ++i) rest += arch::load_keep(a.checksums + static_cast<std::int64_t>(begin + i) * stride + f);
        checksum_square = fma(rest, rest, checksum_square);
        // Three parts of the checksum, the direction, and zeros. Scales are powers of two.
#pragma unroll
        for (int column = 0; column < k_tile_columns; ++column) {
          T value = 0;
          if (column < 3) {
            value = static_cast<T>(rest * check_scale<T>(column));
            rest -= static_cast<double>(multiplied(value)) * (1 / check_scale<T>(column));
          } else if (column == 3) {
            value = a.points.direction[f];
          }
          a.centroids.packed[packed_place<T>(shape, check_tile, column, f)] = as_operand(value);
        }
      }
    }
    if (warp == k_warps - 1) {
      const tile_result made = gather(a.tiles + begin, shape.data_tiles);
      if (lane == 0) shared.section = made;
    }
    double direction = 0;
    for (int f = static_cast<int>(threadIdx.x); f < n; f += k_threads)
      direction = fma(static_cast<double>(a.points.direction[f]), static_cast<double>(a.points.direction[f]), direction);
    double sums[2] = {checksum_square, direction};
    const double total = ballast::cuda::add_block<k_threads>(sums, shared.partial);
    if (threadIdx.x < 2) shared.totals[threadIdx.x] = total;
    __syncthreads();  // the totals are there, and what the tiles have told
    // Threads of different warps share what is left.
    const tile_result& all = shared.section;
    if (threadIdx.x == 32) a.tiles[shape.sections * shape.data_tiles + section] = all;
    if constexpr (P.check) {
      if (warp != 0) return;
      const double squares[] = {all.root, shared.totals[0], all.root_square, static_cast<double>(n)};
      const double root = sqrt(squares[lane % 4]);  // of each in its lane
      const double of_centroids = from_lane(root, 0), of_checksum = from_lane(root, 1), of_norms = from_lane(root, 2);
      const double u = abft::unit_roundoff<T>, walk = k_row_factor * u * (4 + from_lane(root, 3) + static_cast<double>(n) / 8);
      if (lane != 0) return;
      T* const at = column_at(check_tile, 0);
      for (int c = 0; c < k_tile_columns; ++c) at[c] = 0, at[k_tile_columns + c] = c < 3 ? static_cast<T>(-1 / check_scale<T>(c)) : T(0);
      at[0] = static_cast<T>(-all.half_norms * check_scale<T>(0));
      at[1] = static_cast<T>((-all.half_norms - static_cast<double>(at[0]) * (1 / check_scale<T>(0))) * check_scale<T>(1));
      const double slope = walk * (of_centroids + of_checksum), offset = walk * 4 * of_norms;
      section_limits<T> limits;
      limits.row_slope = static_cast<T>(2 * slope * slope);
      limits.row_offset = static_cast<T>(2 * offset * offset) + (sizeof(T) == 4 ? T(1e-37) : T(1e-300));
      limits.projection_slope = static_cast<T>(walk * walk * shared.totals[1]);
      a.centroids.limits[2 * section] = limits;
      a.centroids.limits[2 * section + 1] = limits;
    }
  }

  // Adds this tile's share to the sums over all clusters, from a second reading; and clears what the next pass begins with. By the threads
  // that do not make the tile.
  __device__ __forceinline__ void add_totals() const {
    constexpr int threads = k_threads - k_makers;
    const int columns = a.points.columns, thread = static_cast<int>(threadIdx.x) - k_makers;
    unsigned long long mine[3] = {};  // Σ j · signature of the sums; members; Σ j · members
    for (int e = thread; e < P.words * columns; e += threads) {
      const int w = e / columns, f = e % columns;
      const unsigned long long factor = signature_weight(f, w);
      unsigned long long sum = 0, words[k_tile_columns];
#pragma unroll
      for (int c = 0; c < k_tile_columns; ++c) words[c] = c < count ? a.sums[sum_at(first + c, w, f)] : 0;
#pragma unroll
      for (int c = 0; c < k_tile_columns; ++c) {
        sum += words[c];
        mine[0] += static_cast<unsigned long long>(first + c) * (words[c] * factor);
      }
      arch::add_global(a.column_sums + e, sum);
    }
    for (int c = thread; c < count; c += threads) {
      mine[1] += a.members[first + c];
      mine[2] += static_cast<unsigned long long>(first + c) * a.members[first + c];
    }
    for (int v = 0; v < 3; ++v) {
      if (mine[v] != 0) arch::add_global(a.column_sums + P.words * columns + v, mine[v]);
    }
    if (a.next_sums != nullptr) {
      const std::int64_t size = P.words * sum_pitch(stride);
      for (std::int64_t e = thread; e < count * size; e += threads) a.next_sums[first * size + e] = 0;
      for (int c = thread; c < count; c += threads) a.next_members[first + c] = 0;
    }
    constexpr int words = sizeof(pass_totals) / 8;
    static_assert(words <= threads);
    if (tile == 0 && thread < words) reinterpret_cast<unsigned long long*>(a.next_totals)[thread] = 0;
  }

  // By the block that ends last: what follows from all sections.
  __device__ __forceinline__ void decide() {
    const int columns = a.points.columns;
    bool fits = true;
    if (P.check && a.given == nullptr) {
      for (int e = static_cast<int>(threadIdx.x); e < P.words * columns; e += k_threads)
        fits = fits && arch::load_keep(a.column_sums + e) == a.expected[e];
      if (threadIdx.x == k_threads - 1) {
        const unsigned long long* const sums = a.column_sums + P.words * columns;
        const pass_totals t = *a.totals;
        const unsigned long long signature = arch::load_keep(sums), members = arch::load_keep(sums + 1),
                                 labelled = arch::load_keep(sums + 2);
        // All loads, then all comparisons.
        fits = fits & (signature == t.quantities[1]) & (members == a.expected_members) & (members + (labelled << 32) == t.quantities[2]) &
               (t.changed() + t.same() == static_cast<unsigned long long>(a.points.m));
      }
    }
    std::uint32_t iterations = 0;
    unsigned long long changed = 0;
    if (a.state != nullptr && threadIdx.x == 32) iterations = a.state->iterations, changed = a.totals->changed();
    const bool wrong = __syncthreads_or(fits ? 0 : 1) != 0;
    for (int e = static_cast<int>(threadIdx.x); e < P.words * columns + 4; e += k_threads) a.column_sums[e] = 0;
    if (warp != 1) return;
    const tile_result all = shape.sections == 1 ? shared.section : gather(a.tiles + shape.sections * shape.data_tiles, shape.sections);
    if (lane != 0) return;
    double shift = all.shift;
    const double u = abft::unit_roundoff<T>;
    score_bound<T> bound;
    bound.product = static_cast<T>(sqrt(all.ratio) * (1 + 0x1p-9));
    bound.sum = static_cast<T>(u * (12 + static_cast<double>(n)));  // 4 for what is rounded where scores are compared
    bound.largest = static_cast<T>(all.largest * (1 + 4 * u));
    bound.smallest = static_cast<T>(all.smallest * (1 + 4 * u));
    bound.distance = static_cast<T>(abft::kmeans_distance_limit(u, n));
    a.centroids.bound[0] = bound;
    a.centroids.bound[1] = bound;
    double tolerance = a.tolerance;
    if (a.given == nullptr) {
      given.strike(index<1>{}, inject::site::kmeans_shift, inject::device_place{0, 1, 0, 1, 0, 1}, &shift);
      given.strike(index<1>{}, inject::site::kmeans_tolerance, inject::device_place{0, 1, 1, 2, 0, 1}, &tolerance);
    }
    const bool shift_fits = fabs(shift - all.shift_twin) <= 1e-12 * all.shift_twin;
    const bool tolerance_fits = ballast::cuda::bits(tolerance) == ballast::cuda::bits(a.tolerance_twin);
    if (a.state == nullptr) return;
    loop_state& state = *a.state;
    stop_reason reason = stop_reason::none;
    if (wrong || all.failed != 0 || (P.check && !(shift_fits && tolerance_fits))) {
      reason = stop_reason::failure;
      state.failed = static_cast<std::uint32_t>(wrong ? check::totals : all.failed != 0 ? check::centroid : check::shift);
    } else if (a.given == nullptr) {
      if (all.empty != 0) {
        reason = stop_reason::empty_cluster;
      } else {
        state.iterations = iterations + 1;
        reason = changed == 0 ? stop_reason::labels_unchanged : shift <= tolerance ? stop_reason::tolerance : stop_reason::none;
      }
    }
    state.reason = static_cast<std::uint32_t>(reason);
  }

  // What the tile is made of and verified with, as far as its first features go.
  struct first_loads {
    first_dividends dividends;
    judgement judgements[k_together];
  };
  __device__ __forceinline__ void load_first(first_loads& made) const {
    made.dividends = load_dividends();
    load_judgements(0, made.judgements);
  }
  // The tile of this block, by the threads that make it.
  __device__ __forceinline__ void make_tile(first_loads& from) {
    if (threadIdx.x == 0) shared.failed = 0;
    for (int number = 0;; ++number) {
      if (threadIdx.x == 0) shared.empty = 0, shared.wrong = -1;
      meet_makers();
      make_row(from.dividends);
      meet_makers();  // rows, norms and weights are there
      add_tile(from.judgements);
      const int wrong = shared.wrong;
      if (wrong < 0 && number == 0) break;
      if (threadIdx.x == 0 && (wrong < 0 || number >= a.repeats)) report(check::centroid, wrong < 0 ? first : wrong, wrong < 0);
      if (wrong < 0 || number >= a.repeats) break;
      load_first(from);
      meet_makers();  // all have read what was wrong
    }
    if (warp == 0) store_tile();
  }

  __device__ __forceinline__ void run() {
    const bool makes = threadIdx.x < k_makers;
    first_loads loads{};
    if (makes) load_first(loads);  // under way while the state of the iterations is
    if (a.state != nullptr && a.state->reason != 0) return;
    if (makes) {
      make_tile(loads);
    } else if (a.given == nullptr) {
      add_totals();
    }
    if (!is_last(a.tickets + section, shape.data_tiles)) return;
    close_section();
    if (shape.sections > 1 && !is_last(a.tickets + shape.sections, shape.sections)) return;
    decide();
  }
};

template <class T, update_policy P, class Injector>
__global__ void __launch_bounds__(P.threads)
    update_kernel(const __grid_constant__ ballast::cuda::kernel_launch<update_arguments<T>, Injector> given) {
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  update<T, P, Injector>(given).run();
}

}  // namespace ballast::kmeans::cuda
