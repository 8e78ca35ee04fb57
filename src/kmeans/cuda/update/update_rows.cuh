// Computes the packed centroids of the next pass, from the sums of a pass or from given centroids, and decides whether there is a next
// pass.
// Layer: backend "cuda" of K-Means, device code.
// A block processes a tile of centroids and a part of their features. One warp per centroid computes its row, and another of these warps
// verifies it; meanwhile the remaining warps sum what the totals are compared with. The last block of a section computes its check tile;
// the last block of all decides. Contract: new rows are the rounded quotients of sums and weights, in two copies, or the given
// centroids. A cluster without members keeps its old row and is reported, so that the host relocates it. All invariants of the sums hold
// exactly, or the iterations stop with `failure`. Each packed number that serves a check is computed from another copy, or in another
// order, than what it checks. A block executes each instruction about once, so latency of instructions and memory dominates: loops are
// unrolled only where loads can be in flight together.
#pragma once

#include <type_traits>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/arch/divide.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "kmeans/cuda/update/update.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/stop.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// The state of a thread of the update kernel. It has many members because the constants of the policy are among them.
template <class T, update_policy P, class Injector>
struct update {
  using launch = ballast::cuda::kernel_launch<update_arguments<T>, Injector>;
  static constexpr int k_threads = P.threads;
  static constexpr int k_warps = k_threads / 32;
  static constexpr int k_makers = 32 * k_tile_columns;  // threads that compute the rows; the others sum the totals
  static constexpr int k_lane = k_vector<T>;            // features per lane
  static constexpr int k_part = k_part_features<T>;     // features per block
  static_assert(k_threads > k_makers && k_threads % 32 == 0 && k_part <= k_makers);

  struct memory {
    double products[k_tile_columns][k_part];  // products of weights and centroids; when a section is closed, partial sums
    double partial[3 * k_tile_columns];
    section_result results[k_warps];
    double squares[k_tile_columns];  // ‖c‖² of the new rows, over this block's features
    double cuts[k_tile_columns];     // ‖c − c̃‖²
    std::uint32_t failed;
    int wrong;  // the last centroid whose row failed its check; −1: none
  };

  const launch& given;
  const update_arguments<T>& a;
  memory& shared;
  const packed_shape& shape;
  int parts, section, tile, in_packed;  // indexes of this block: `tile` among all tiles of centroids, `in_packed` among all tiles
  int first, count;                     // this block has centroids first … first + count − 1
  int begin;                            // its first feature
  int n, stride, lane, warp;
  double random;  // random factor of the weight of the row that this thread verifies

  __device__ __forceinline__ explicit update(const launch& from)
      : given(from),
        a(from.arguments),
        shared(arch::shared_object<memory, struct update_memory>()),
        shape(from.arguments.centroids.shape),
        parts(update_parts<T>(from.arguments.points.stride)),
        section(static_cast<int>(blockIdx.x) / (shape.data_tiles * parts)),
        tile(static_cast<int>(blockIdx.x) / parts),
        in_packed(tile + section * (shape.section_tiles - shape.data_tiles)),
        first(tile * k_tile_columns),
        count(max(0, min(k_tile_columns, shape.k - first))),
        begin(static_cast<int>(blockIdx.x) % parts * k_part),
        n(a.points.n),
        stride(a.points.stride),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        // Few bits, so that the product with a coordinate has only a few more.
        random(static_cast<double>(core::random_bits(0x6b6d63756461, 0, static_cast<std::uint64_t>(first + judged())) >> 56)) {}

  // Each row is verified by another warp than the one that computed it.
  __device__ __forceinline__ int judged() const { return (warp + 1) % k_tile_columns; }
  // Returns the first of this lane's features.
  __device__ __forceinline__ int feature() const { return begin + lane * k_lane; }

  __device__ static __forceinline__ void meet_makers() { arch::group_barrier(1, k_makers); }

  // ---- Sums ----

  __device__ __forceinline__ const unsigned long long* sums_at(int j, int column) const {
    return a.sums + static_cast<std::int64_t>(j) * P.words * sum_pitch(stride) + sum_index<T>(column, n, stride);
  }
  // read_sum: loads the sum of one column of a cluster, in words, from memory in each call. number_of: converts it to a number in units of
  // the column.
  struct words_of_sum {
    unsigned long long at[P.words];
  };
  __device__ __forceinline__ words_of_sum read_sum(int j, int column) const {
    const volatile unsigned long long* const from = sums_at(j, column);
    words_of_sum made;
#pragma unroll
    for (int w = 0; w < P.words; ++w) made.at[w] = from[w * sum_pitch(stride)];
    return made;
  }
  __device__ static __forceinline__ double number_of(const words_of_sum& sum, double unit) {
    double value = 0;
#pragma unroll
    for (int w = P.words - 1; w >= 0; --w) value += static_cast<double>(static_cast<long long>(sum.at[w])) * word_value(w);
    // A unit is a power of two; its inverse has the negated exponent.
    return value * ballast::cuda::from_bits<double>((std::uint64_t{2046} << 52) - ballast::cuda::bits(unit));
  }
  __device__ __forceinline__ double weight_of(int j) const {
    if constexpr (P.weighted) {
      const volatile T* const unit = a.points.unit + n;
      return number_of(read_sum(j, n), static_cast<double>(*unit));
    }
    const volatile unsigned long long* const at = a.members + j;
    return static_cast<double>(*at);
  }

  // Static: a call of a member function would put this thread's object into local memory.
  __device__ __noinline__ static void report(const launch& given, std::uint32_t& failed, check which, std::int64_t where, bool repaired) {
    ballast::cuda::write_outcome(given, *given.arguments.events, repaired ? abft::outcome::recomputed : abft::outcome::uncorrectable,
                                 abft::finding{}, where, 1, static_cast<std::uint32_t>(which));
    if (!repaired) atomicAdd(&failed, 1u);
  }

  // ---- Rows ----

  __device__ __forceinline__ std::int64_t row_at(int j) const { return static_cast<std::int64_t>(j) * stride + feature(); }
  // Loads 16 bytes of a row, from memory in each call.
  __device__ static __forceinline__ features<T> read(const T* from) {
    using four = std::conditional_t<sizeof(T) == 4, float4, double2>;
    return unpacked(arch::load_keep(reinterpret_cast<const four*>(from)));
  }
  __device__ static __forceinline__ void store(T* to, const features<T>& value) {
#pragma unroll
    for (int v = 0; v < k_lane; ++v) to[v] = value.at[v];
  }

  // The data from which this lane computes or verifies its elements of one row. The load functions only load, so that all loads are in
  // flight together.
  struct dividends {
    words_of_sum sums[k_lane];
    features<T> units;
    features<T> base;  // a copy of the old row, or of the given one
    double weight;     // weight of the cluster
    bool empty;        // in the first warp of the block with the first part: true if cluster number `lane` has no members
  };
  // Loads the data of one column of the tile. `old_rows`: one of the two copies.
  __device__ __forceinline__ void load_quotients(int column, const T* old_rows, bool sums, dividends& made) const {
    const int j = first + column, f = feature();
    if (column >= count || f >= stride) return;
    made.base = read(old_rows + row_at(j));
    if (!sums) return;
#pragma unroll
    for (int v = 0; v < k_lane; ++v) made.sums[v] = read_sum(j, f + v);
    made.units = read(a.points.unit + f);
    made.weight = weight_of(j);
  }
  __device__ __forceinline__ void load_given(int column, dividends& made) const {
    const int j = first + column, f = feature();
    if (column >= count) return;
#pragma unroll
    for (int v = 0; v < k_lane; ++v) made.base.at[v] = f + v < n ? a.given[static_cast<std::int64_t>(j) * n + f + v] : T(0);
  }

  // operand_at: returns the position of feature f of column c of a tile in `packed`, for the first number of a vector; the second number
  // follows. pair_step: the distance from one pair of numbers to the next.
  __device__ __forceinline__ operand_of<T>* operand_at(int in_tile, int c, int f) const {
    return a.centroids.packed + packed_index<T>(shape, in_tile, c, f);
  }
  __device__ __forceinline__ int pair_step() const { return shape.unit == product_unit::warp ? 2 : 2 * 4 * k_tile_columns; }

  // Computes the new row of this warp's centroid: two copies, and the operand format.
  __device__ __forceinline__ void make_row(const dividends& from) {
    const int j = first + warp, f = feature();
    const bool there = warp < count, divides = a.given == nullptr;
    double sums[2] = {};  // ‖c‖², ‖c − c̃‖²
    if (f < stride) {
      features<T> value{};
      if (there) {
        const double inverse = 1 / from.weight;
#pragma unroll
        for (int v = 0; v < k_lane; ++v) {
          value.at[v] = f + v < n ? from.base.at[v] : T(0);
          if (divides && f + v < n && from.weight > 0) {
            // One Newton step brings the error well below the limit of is_quotient.
            const double sum = number_of(from.sums[v], static_cast<double>(from.units.at[v])), quotient = sum * inverse;
            value.at[v] = static_cast<T>(fma(fma(-quotient, from.weight, sum), inverse, quotient));
          }
          if (divides)
            given.strike(index<1>{}, site::centroid, inject::device_position{static_cast<std::int64_t>(j), shape.k, 0, 1, f + v, stride},
                         &value.at[v]);
        }
        store(a.centroids.rows + row_at(j), value);
        features<T> twin = value;
        if (!divides) {
#pragma unroll
          for (int v = 0; v < k_lane; ++v) twin.at[v] = f + v < n ? a.given_twin[static_cast<std::int64_t>(j) * n + f + v] : T(0);
        }
        store(a.twin + row_at(j), twin);
      }
      operand_of<T>* const to = operand_at(in_packed, warp, f);
#pragma unroll
      for (int v = 0; v < k_lane; ++v) {
        const T each = value.at[v];
        to[v / 2 * pair_step() + v % 2] = as_operand(each);
        const double off = static_cast<double>(each) - static_cast<double>(multiplied(each));
        sums[0] = fma(static_cast<double>(each), static_cast<double>(each), sums[0]);
        sums[1] = fma(off, off, sums[1]);
      }
    }
    ballast::cuda::add_lanes_in_loop(sums, 32);
    if (lane == 0) {
      part_result& to = a.results[blockIdx.x];
      if (there) given.strike(index<1>{}, site::norm, inject::device_position{j, shape.k, 1, 3, 0, 1}, sums);
      to.squares[warp] = shared.squares[warp] = sums[0];
      to.cuts[warp] = shared.cuts[warp] = sums[1];
    }
  }

  // Returns whether an element of a new centroid, as stored in both copies, is the quotient: its product with the weight differs from the
  // sum by less than half a unit in its last place. Another thread computed the element, from other loads.
  __device__ static __forceinline__ bool is_quotient(T row, T twin, T old_twin, double sum, double weight) {
    const double limit =
        (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>)*fabs(sum) + weight * static_cast<double>(smallest()) + 1e-300;
    const bool is = weight > 0 ? fabs(static_cast<double>(twin) * weight - sum) <= limit : twin == old_twin;
    return row == twin && is;
  }
  __device__ static constexpr T smallest() { return sizeof(T) == 4 ? static_cast<T>(0x1p-149) : static_cast<T>(0x1p-1074); }

  // Returns w_j: random, and smaller the larger the scores of c_j can be, so that their rounding does not hide a fault in the scores of
  // others. Its power of two is the inverse of (s‖c‖ + ‖c‖²/2) / s², within a factor of two: s is the spread of the points, and ‖c‖ is at
  // least s / 16. `square`: ‖c‖². Blocks that have parts of a row need the same weight before they know each other's parts, so they use the
  // old row's ‖c‖².
  __device__ __forceinline__ double check_weight(double square) const {
    const auto exponent = [](double value) { return static_cast<int>(ballast::cuda::bits(value) >> 52); };
    const double norm = max(static_cast<double>(arch::sqrt_fast(static_cast<float>(square))), a.spread / 16);
    const int size = exponent(a.spread * norm + norm * norm / 2) - exponent(a.spread * a.spread + 1e-300);
    const int shift = min(max(-size, -64), 8);
    return ballast::cuda::from_bits<double>(static_cast<std::uint64_t>(1023 + shift) << 52) * (1 + random / 256);
  }
  // Returns ‖c‖² of the old or given row whose new row this warp verifies; used only if blocks have parts of rows.
  __device__ __forceinline__ double old_square() const {
    const int j = first + judged();
    if (!P.check || parts == 1 || judged() >= count) return 0;
    if (a.given == nullptr) return arch::load_keep(a.squares + j);
    double sum[1] = {};
#pragma unroll 4
    for (int f = lane; f < n; f += 32) {
      const auto each = static_cast<double>(a.given[static_cast<std::int64_t>(j) * n + f]);
      sum[0] = fma(each, each, sum[0]);
    }
    ballast::cuda::add_lanes_in_loop(sum, 32);
    return sum[0];
  }

  // Verifies a row that another warp computed, and sums what the section's check tile and the decision need, from the second copy.
  // `old_row` is the first copy of the old row; `from` contains the second. `square`: old_square(). Called by all threads below k_makers.
  __device__ __forceinline__ void judge_row(const dividends& from, const features<T>& old_row, double square) {
    const bool divides = a.given == nullptr;
    const int c = judged(), j = first + c, f = feature();
    bool fits = true;
    double sums[P.check ? 5 : 3] = {};  // Σ w‖c‖²/2; Σ‖c − old‖² from either copy; ‖c‖², ‖c − c̃‖²
    const bool there = c < count && f < stride;
    features<T> row{}, twin{};
    if (there) row = read(a.centroids.rows + row_at(j)), twin = read(a.twin + row_at(j));
    const double weight = check_weight(parts == 1 ? shared.squares[c] : square);
#pragma unroll
    for (int v = 0; v < k_lane; ++v) {
      const double exact = static_cast<double>(twin.at[v]);
      if (P.check && there) {
        if (f + v >= n) {
          fits = fits && row.at[v] == 0 && twin.at[v] == 0;
        } else {
          fits = fits && (divides ? is_quotient(row.at[v], twin.at[v], from.base.at[v],
                                                number_of(from.sums[v], static_cast<double>(from.units.at[v])), from.weight)
                                  : row.at[v] == twin.at[v]);
        }
      }
      if constexpr (P.check) {
        const double rounded = static_cast<double>(multiplied(twin.at[v])), off = exact - rounded;
        shared.products[c][lane * k_lane + v] = weight * rounded;
        sums[0] = fma(0.5 * weight * exact, exact, sums[0]);
        sums[3] = fma(exact, exact, sums[3]);
        sums[4] = fma(off, off, sums[4]);
      }
      if (divides) {
        const double d = exact - static_cast<double>(from.base.at[v]),
                     o = static_cast<double>(old_row.at[v]) - static_cast<double>(row.at[v]);
        sums[1] = fma(d, d, sums[1]);
        sums[2] = fma(o, o, sums[2]);
      }
    }
    if (!fits) shared.wrong = j;
    ballast::cuda::add_lanes_in_loop(sums, 32);
    if (lane == 0) {
      part_result& to = a.results[blockIdx.x];
#pragma unroll
      for (int v = 0; v < 3; ++v) shared.partial[3 * warp + v] = sums[v];
      to.weights[c] = weight;
      if constexpr (P.check) {
        to.squares_twin[c] = sums[3], to.cuts_twin[c] = sums[4];
        // The sums take the same steps on the same numbers, so they have the same bits.
        if (c < count && !(shared.squares[c] == sums[3] && shared.cuts[c] == sums[4])) shared.wrong = j;
      }
    }
    meet_makers();  // the products are stored
    const int each = static_cast<int>(threadIdx.x);
    if (P.check && each < k_part && begin + each < stride) {
      double sum = 0;
#pragma unroll
      for (int of_tile = 0; of_tile < k_tile_columns; ++of_tile) sum += shared.products[of_tile][each];
      a.checksums[static_cast<std::int64_t>(tile) * stride + begin + each] = sum;
    }
  }

  // Computes and verifies this block's part of the tile. Called by all threads below k_makers.
  __device__ __forceinline__ void make_part(dividends& makes, dividends& judges, features<T>& old_row, double square) {
    if (threadIdx.x == 0) shared.failed = 0;
    for (int number = 0;; ++number) {
      if (threadIdx.x == 0) shared.wrong = -1;
      make_row(makes);
      meet_makers();  // the rows are stored
      judge_row(judges, old_row, square);
      const int wrong = shared.wrong;
      if (wrong < 0 && number == 0) break;
      if (threadIdx.x == 0 && (wrong < 0 || number >= a.repeats))
        report(given, shared.failed, check::centroid, wrong < 0 ? first : wrong, wrong < 0);
      if (wrong < 0 || number >= a.repeats) break;
      load(makes, judges, old_row);
      meet_makers();  // all have read `wrong`
    }
    if (warp == 0) {
      double sums[3];
#pragma unroll
      for (int v = 0; v < 3; ++v) sums[v] = shared.partial[3 * (lane % k_tile_columns) + v];
      ballast::cuda::add_lanes_in_loop(sums, k_tile_columns);
      const unsigned empty = __ballot_sync(0xffffffffu, makes.empty);
      if (lane == 0) {
        part_result& to = a.results[blockIdx.x];
        to.half_norms = sums[0], to.shift = sums[1], to.shift_twin = sums[2];
        to.empty = static_cast<std::uint32_t>(__popc(empty)), to.failed = shared.failed;
      }
    }
  }
  __device__ __forceinline__ void load(dividends& makes, dividends& judges, features<T>& old_row) const {
    makes = {}, judges = {}, old_row = {};
    if (a.given != nullptr) return load_given(warp, makes);
    if (warp == 0 && begin == 0 && lane < count) {
      const volatile unsigned long long* const members = a.members;
      makes.empty = members[first + lane] == 0;
    }
    load_quotients(warp, a.old_rows, true, makes);
    load_quotients(judged(), a.old_twin, P.check, judges);
    if (judged() < count && feature() < stride) old_row = read(a.old_rows + row_at(first + judged()));
  }

  // Returns whether this block is the last of `blocks` blocks that call it. If so, it sees the writes of the others. Called by all threads.
  __device__ __forceinline__ bool is_last(std::uint32_t* ticket, int blocks) {
    __syncthreads();
    if (blocks == 1) return true;
    // One thread on behalf of all: there is a barrier before and after.
    const bool last = threadIdx.x == 0 && ballast::cuda::arrives_last(ticket, static_cast<unsigned>(blocks));
    return __syncthreads_or(last ? 1 : 0) != 0;
  }

  // ---- A section ----

  __device__ static __forceinline__ section_result nothing() {
    section_result made{};
    made.smallest[0] = made.smallest[1] = 1e300;
    return made;
  }
  // Reduces over all 32 lanes, in a fixed order; all lanes get the result.
  __device__ static __forceinline__ void join(section_result& made);
  // Reduces over all threads of the block; warp 0 gets the result. `has`: this thread has a contribution.
  __device__ __forceinline__ void join_block(section_result& made, bool has);

  // Combines the results of the section's blocks, and stores the start values and weights of its columns: this thread's share among
  // `threads` threads.
  __device__ __forceinline__ void close_columns(int thread, int threads, section_result& made) const;
  // Computes the operands of the section's check tile for the features of this block. Called by the first k_closers threads: k_shares
  // threads per feature share the section's tiles.
  static constexpr int k_closers = P.check ? k_makers : 0;
  static constexpr int k_shares = k_makers / k_part;
  __device__ __forceinline__ void close_features(section_result& made) const;

  // Returns the position of the start value of column c's scores in a tile; its weight follows k_tile_columns later.
  __device__ __forceinline__ T* column_at(int in_tile, int c) const {
    return a.centroids.columns + static_cast<std::int64_t>(in_tile) * 2 * k_tile_columns + c;
  }

  // Completes the section. The last block that has this block's features computes these features of the check tile; the last of these
  // blocks does the rest of the section. Warp 0 gets the section's sums. If it is the only section, `fits` says whether this thread's share
  // of the totals is right. Returns false if another block comes later.
  __device__ __forceinline__ bool close_section(section_result& all, bool& fits);

  // Stores the start values of the section's check tile, their weights, and the thresholds of the section. Called by one warp.
  __device__ __forceinline__ void store_limits(const section_result& all) const;

  // ---- All sections ----

  // Adds this block's share of the sums to the sums over all clusters, from a second read, and clears the data that the next pass starts
  // from. Called by the threads that compute no rows.
  __device__ __forceinline__ void add_totals() const {
    constexpr int threads = k_threads - k_makers;
    const int thread = static_cast<int>(threadIdx.x) - k_makers, columns = a.points.columns;
    // The last part includes the column of the weights.
    const int end = begin + k_part < stride ? begin + k_part : columns;
    unsigned long long labelled = 0;  // Σ j · signature of the sums
#pragma unroll 1
    for (int f = begin + thread; f < end; f += threads) {
#pragma unroll
      for (int w = 0; w < P.words; ++w) {
        const unsigned long long* const from = sums_at(first, f) + w * sum_pitch(stride);
        unsigned long long sum = 0, by_label = 0, words[k_tile_columns];
#pragma unroll
        for (int c = 0; c < k_tile_columns; ++c)
          words[c] = c < count ? from[static_cast<std::int64_t>(c) * P.words * sum_pitch(stride)] : 0;
#pragma unroll
        for (int c = 0; c < k_tile_columns; ++c) sum += words[c], by_label += static_cast<unsigned>(c) * words[c];
        labelled += signature_weight(f, w) * (static_cast<unsigned long long>(first) * sum + by_label);
        arch::add_global(a.column_sums + w * columns + f, sum);
      }
    }
    // The block with the first part also sums members, and Σ j · members.
    unsigned long long sums[3] = {labelled, 0, 0};
    if (begin == 0 && thread < count) sums[1] = a.members[first + thread], sums[2] = static_cast<unsigned>(first + thread) * sums[1];
    ballast::cuda::add_lanes_in_loop(sums);
    // Lanes 0 to 2 of each warp add one value each.
    const unsigned long long mine = lane == 0 ? sums[0] : lane == 1 ? sums[1] : sums[2];
    if (lane < 3 && mine != 0) arch::add_global(a.column_sums + P.words * columns + lane, mine);
    if (a.next_sums != nullptr && begin == 0) {
      const std::int64_t size = P.words * sum_pitch(stride);
#pragma unroll 1
      for (std::int64_t e = thread; e < count * size; e += threads) a.next_sums[first * size + e] = 0;
      if (thread < count) a.next_members[first + thread] = 0;
    }
    constexpr int words = sizeof(pass_totals) / 8;
    static_assert(words <= threads);
    if (blockIdx.x == 0 && thread < words) reinterpret_cast<unsigned long long*>(a.next_totals)[thread] = 0;
  }

  // The sums over all clusters and their expected values: this thread's first columns. load_totals() only loads.
  struct totals_share {
    unsigned long long is, must_be;
  };
  __device__ __forceinline__ bool compares_totals() const { return P.check && a.given == nullptr; }
  __device__ __forceinline__ void load_totals(totals_share& made) const {
    const auto e = static_cast<int>(threadIdx.x);
    if (!compares_totals() || e >= P.words * a.points.columns) return;
    made = {arch::load_keep(a.column_sums + e), arch::load_keep(a.expected + e)};
  }
  __device__ __forceinline__ bool totals_fit(const totals_share& first) const {
    const int columns = a.points.columns, thread = static_cast<int>(threadIdx.x);
    if (!compares_totals()) return true;
    bool fits = first.is == first.must_be;
#pragma unroll 1
    for (int e = thread + k_threads; e < P.words * columns; e += k_threads)
      fits = fits && arch::load_keep(a.column_sums + e) == arch::load_keep(a.expected + e);
    if (thread == k_threads - 1) {
      const unsigned long long* const sums = a.column_sums + P.words * columns;
      const pass_totals t = *a.totals;
      const unsigned long long signature = arch::load_keep(sums), members = arch::load_keep(sums + 1), labelled = arch::load_keep(sums + 2);
      // No short-circuit evaluation: all loads come first, then all comparisons.
      fits = fits & (signature == t.quantities[1]) & (members == a.expected_members) & (members + (labelled << 32) == t.quantities[2]) &
             (t.changed() + t.same() == static_cast<unsigned long long>(a.points.m));
    }
    return fits;
  }

  // Draws the conclusions from all sections; called by the last block. `all`: the result of the only section, if there is one only, in warp
  // 0. `fits`: result of totals_fit(). `iterations`, `changed`, in threads 0 and 1, each from its own load: number of iterations so far,
  // and labels that changed in this one. These two threads compute the two copies of the bound and of the state.
  __device__ __forceinline__ void decide(section_result all, bool fits, std::uint32_t iterations, unsigned long long changed) {
    const int columns = a.points.columns, thread = static_cast<int>(threadIdx.x);
    const bool wrong = __syncthreads_or(fits ? 0 : 1) != 0;
#pragma unroll 1
    for (int e = thread; e < P.words * columns + 4; e += k_threads) a.column_sums[e] = 0;
    if (warp != 0) return;
    if (shape.sections > 1) {
      all = nothing();
#pragma unroll 1
      for (int i = lane; i < shape.sections; i += 32) {
        const section_result& each = a.sections[i];
#pragma unroll
        for (int v = 0; v < section_result::k_sums; ++v) all.sums[v] += arch::load_keep(&each.sums[v]);
#pragma unroll
        for (int twin = 0; twin < (P.check ? 2 : 1); ++twin) {
          all.largest[twin] = max(all.largest[twin], arch::load_keep(&each.largest[twin]));
          all.smallest[twin] = min(all.smallest[twin], arch::load_keep(&each.smallest[twin]));
          all.ratio[twin] = max(all.ratio[twin], arch::load_keep(&each.ratio[twin]));
        }
        all.empty += arch::load_keep(&each.empty);
        all.failed += arch::load_keep(&each.failed);
      }
      join(all);
    }
    const bool first = lane == 0;
    const auto own = [&](double one, double other) { return first || !P.check ? one : other; };
    if (lane < 2) {
      const double u = abft::unit_roundoff<T>;
      double largest = own(all.largest[0], all.largest[1]);
      if (first) given.strike(index<1>{}, site::norm, inject::device_position{0, 1, 2, 3, 0, 1}, &largest);
      score_bound<T> bound;
      bound.product = static_cast<T>(norm_above(own(all.ratio[0], all.ratio[1])) * (1 + 0x1p-9));
      bound.sum = static_cast<T>(u * (12 + static_cast<double>(n)));  // 4 for the roundings in the comparison of scores
      bound.largest = static_cast<T>(largest * (1 + 4 * u));
      bound.smallest = static_cast<T>(own(all.smallest[0], all.smallest[1]) * (1 + 4 * u));
      bound.distance = static_cast<T>(a.distance_limit);
      a.centroids.bound[lane] = bound;
    }
    if (a.state == nullptr) return;
    // The twin takes the same steps on the other copies, with the opposite sign of each difference: without a fault it has the same bits.
    double shift = own(all.sums[section_result::shift], all.sums[section_result::shift_twin]);
    double tolerance = own(a.tolerance, a.tolerance_twin);
    if (first) {
      given.strike(index<1>{}, site::shift, inject::device_position{0, 1, 0, 2, 0, 1}, &shift);
      given.strike(index<1>{}, site::tolerance, inject::device_position{0, 1, 1, 2, 0, 1}, &tolerance);
    }
    // Both threads know of a difference, so that the iterations continue from the last good centroids.
    const double other_shift = __shfl_xor_sync(0xffffffffu, shift, 1), other_tolerance = __shfl_xor_sync(0xffffffffu, tolerance, 1);
    const bool differs = P.check && (ballast::cuda::bits(shift) != ballast::cuda::bits(other_shift) ||
                                     ballast::cuda::bits(tolerance) != ballast::cuda::bits(other_tolerance));
    if (lane >= 2) return;
    device_stop reason = device_stop::none;
    check failed = check::row;
    if (wrong || all.failed != 0 || differs) {
      reason = device_stop::failure;
      failed = wrong ? check::totals : all.failed != 0 ? check::centroid : check::shift;
    } else if (all.empty != 0) {
      reason = device_stop::empty_cluster;
    } else {
      ++iterations;
      const stop_rule rule = stop_after(changed == 0, shift, tolerance);
      reason = rule == stop_rule::labels_unchanged ? device_stop::labels_unchanged
               : rule == stop_rule::tolerance      ? device_stop::tolerance
                                                   : device_stop::none;
    }
    std::uint32_t words[2] = {static_cast<std::uint32_t>(reason), iterations};
    if (first) given.strike(index<2>{}, site::shift, inject::device_position{0, 1, 1, 2, 0, 1}, words);
    a.state[lane] = {words[0], words[1], static_cast<std::uint32_t>(failed), changed != 0 ? 1u : 0u, shift};
  }

  __device__ __forceinline__ void run() {
    const bool makes = threadIdx.x < k_makers;
    dividends rows{}, judged_rows{};
    features<T> old_row{};
    double square = 0;
    if (makes) load(rows, judged_rows, old_row), square = old_square();  // in flight while the state of the iterations is loaded
    if (a.state != nullptr && a.state->reason != 0) return;
    std::uint32_t iterations = 0;
    unsigned long long changed = 0;
    if (a.state != nullptr && threadIdx.x < 2) {
      iterations = arch::load_keep(&a.state[threadIdx.x].iterations);
      changed = threadIdx.x == 0 ? a.totals->changed() : static_cast<unsigned long long>(a.points.m) - a.totals->same();
    }
    if (makes) {
      make_part(rows, judged_rows, old_row, square);
    } else if (a.given == nullptr) {
      add_totals();
    }
    section_result all = nothing();
    bool fits = true;
    if (!close_section(all, fits)) return;
    if (shape.sections > 1) {
      if (!is_last(a.tickets + shape.sections * (parts + 1), shape.sections)) return;
      totals_share share{};
      load_totals(share);
      fits = totals_fit(share);
    }
    decide(all, fits, iterations, changed);
  }
};

}  // namespace ballast::kmeans::cuda
