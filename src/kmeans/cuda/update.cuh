// From the sums of a pass, or from given centroids, to the panel of the next pass; and the decision whether there is one.
// Layer: backend "cuda" of K-Means, device code. One block for each section; the last block to end decides for all.
// Contract: new rows are the rounded quotients of sums and weights, in two copies, or the given centroids. A cluster without members keeps
// its old row and is reported, for the host to relocate. All invariants of the sums hold exactly or the iterations stop with `failure`.
// Every number of the panel that serves a check is computed from another copy, or in another order, than what it checks.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/fixed.cuh"
#include "kmeans/cuda/tensor.cuh"
#include "kmeans/cuda/update.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// Factors of the limits of the row check: docs/design/kmeans-cuda.md, "Thresholds".
template <class T>
inline constexpr double k_row_factor = sizeof(T) == 4 ? 4 : 2;

template <class T, update_policy P, class Injector>
struct update {
  using launch = ballast::cuda::kernel_launch<update_arguments<T>, Injector>;
  static constexpr int k_threads = P.threads;
  static constexpr int k_warps = P.threads / 32;
  static constexpr int k_most_columns = k_most_data_tiles * k_tile_columns;

  struct memory {
    double norms[k_most_columns];    // ‖c‖² of the section's centroids
    double weights[k_most_columns];  // w
    double partial[8 * k_warps];
    double totals[8];
    unsigned long long words[4 * k_warps];
    std::uint32_t failed, empty, last;
  };

  const launch& given;
  const update_arguments<T>& a;
  memory& shared;
  const panel_shape& shape;
  int section, first, count;  // centroids of this block: first … first + count − 1
  int n, stride, lane, warp;

  __device__ __forceinline__ explicit update(const launch& from)
      : given(from),
        a(from.arguments),
        shared(arch::shared_object<memory, struct update_memory>()),
        shape(from.arguments.centroids.shape),
        section(static_cast<int>(blockIdx.x)),
        first(section * shape.section_columns()),
        count(min(shape.section_columns(), shape.k - first)),
        n(a.points.n),
        stride(a.points.stride),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)) {}

  __device__ __forceinline__ double warp_sum(double value) const {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  }

  // The sum of one column of cluster j, as a number. Read anew in each call.
  __device__ __forceinline__ double sum_of(int j, int column) const {
    double value = 0;
    const double unit = 1 / static_cast<double>(a.points.unit[column]);
    for (int w = P.words - 1; w >= 0; --w) {
      const volatile unsigned long long* const at = a.sums + (static_cast<std::int64_t>(j) * P.words + w) * a.points.columns + column;
      value += static_cast<double>(static_cast<long long>(*at)) * word_value(a.points.bits, w);
    }
    return value * unit;
  }
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

  // Element f of new centroid j.
  __device__ __forceinline__ T divide(int j, int f) {
    if (f >= n) return 0;
    if (a.given != nullptr) {
      T value = a.given[static_cast<std::int64_t>(j) * n + f];
      return value;
    }
    const std::int64_t at = static_cast<std::int64_t>(j) * stride + f;
    T value = 0;
    for (int number = 0;; ++number) {
      const double weight = weight_of(j);
      value = weight > 0 ? static_cast<T>(sum_of(j, f) / weight) : a.old_rows[at];
      given.strike(index<1>{}, inject::site::kmeans_centroid, inject::device_place{static_cast<std::int64_t>(j), shape.k, 0, 1, f, n},
                   &value);
      if constexpr (!P.check) break;
      // The quotient is right if its product with the weight differs from the sum by less than half a unit in its last place. Both are read
      // again: what the quotient was made of is not what judges it.
      const double again = weight_of(j), sum = sum_of(j, f);
      const double limit =
          (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>)*fabs(sum) + again * static_cast<double>(smallest()) + 1e-300;
      const bool fits = again > 0 ? fabs(static_cast<double>(value) * again - sum) <= limit : value == a.old_twin[at];
      if (fits) {
        if (number > 0) report(check::centroid, j, true);
        break;
      }
      if (number >= a.repeats) {
        report(check::centroid, j, false);
        break;
      }
    }
    return value;
  }
  __device__ static constexpr T smallest() { return sizeof(T) == 4 ? static_cast<T>(0x1p-149) : static_cast<T>(0x1p-1074); }

  // New rows, in two copies, and their norms. A warp takes a centroid.
  __device__ __forceinline__ void make_rows() {
    for (int c = warp; c < count; c += k_warps) {
      const int j = first + c;
      double square = 0;
      for (int f = lane; f < stride; f += 32) {
        const std::int64_t at = static_cast<std::int64_t>(j) * stride + f;
        const T value = divide(j, f);
        a.centroids.rows[at] = value;
        a.twin[at] = a.given != nullptr && f < n ? a.given_twin[static_cast<std::int64_t>(j) * n + f] : value;
        square = fma(static_cast<double>(value), static_cast<double>(value), square);
      }
      square = warp_sum(square);
      if (lane == 0) {
        shared.norms[c] = square;
        shared.weights[c] = check_weight(j, square);
        const volatile unsigned long long* const members = a.members;
        if (a.given == nullptr && members[j] == 0) atomicAdd(&shared.empty, 1u);
      }
    }
  }

  // w_j: random, and smaller the larger the scores of c_j can be, so that their rounding drowns no fault in the scores of others.
  __device__ __forceinline__ double check_weight(int j, double square) const {
    const double norm = max(sqrt(square), a.spread / 16), size = (a.spread * norm + norm * norm / 2) / (a.spread * a.spread + 1e-300);
    double scale = 1;
    for (int i = 0; i < 64 && size * scale > 2; ++i) scale /= 2;
    for (int i = 0; i < 8 && size * scale < 0.5; ++i) scale *= 2;
    // Few bits, so that the product with a coordinate has few more.
    const auto random = static_cast<double>(core::random_bits(0x6b6d63756461, 0, static_cast<std::uint64_t>(j)) >> 56);
    return scale * (1 + random / 256);
  }

  // The place of feature f of column `column` of a tile in `packed`.
  __device__ __forceinline__ std::int64_t packed_at(int tile, int column, int f) const {
    const int slab = f / k_slab<T>, rest = f % k_slab<T>;
    return ((static_cast<std::int64_t>(tile) * shape.slabs + slab) * 32 + column * 4 + rest / k_vector<T>)*k_vector<T> + rest % k_vector<T>;
  }

  // The section's tiles of centroids.
  __device__ __forceinline__ void pack() const {
    const int tile = section * shape.section_tiles;
    const int columns = shape.section_columns();
    const T never = sizeof(T) == 4 ? static_cast<T>(-7e37) : static_cast<T>(-1e307);
    for (int e = static_cast<int>(threadIdx.x); e < columns * stride; e += k_threads) {
      const int c = e / stride, f = e % stride;
      const T value = c < count ? a.centroids.rows[static_cast<std::int64_t>(first + c) * stride + f] : T(0);
      a.centroids.packed[packed_at(tile + c / k_tile_columns, c % k_tile_columns, f)] = tensor_rounded(value);
    }
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += k_threads) {
      T* const at = a.centroids.columns + (static_cast<std::int64_t>(tile) * k_tile_columns + c) * 2;
      at[0] = c < count ? static_cast<T>(-0.5 * shared.norms[c]) : never;
      at[1] = c < count ? static_cast<T>(shared.weights[c]) : T(0);
    }
  }

  // The check tile, from the second copy of the rows; and the limits.
  __device__ __forceinline__ void make_checks(double& shift, double& shift_twin) {
    const int tile = section * shape.section_tiles + shape.data_tiles;
    double half_norms = 0;  // Σ_j w_j ‖c_j‖² / 2, by features
    double checksum_square = 0;
    for (int f = static_cast<int>(threadIdx.x); f < stride; f += k_threads) {
      double sum = 0;
      for (int c = 0; c < count; ++c) {
        const std::int64_t at = static_cast<std::int64_t>(first + c) * stride + f;
        const T value = a.twin[at];
        const double exact = static_cast<double>(value), weight = shared.weights[c];
        sum = fma(weight, static_cast<double>(tensor_rounded(value)), sum);
        half_norms = fma(0.5 * weight * exact, exact, half_norms);
        if (a.old_rows != nullptr) {
          const double d = exact - static_cast<double>(a.old_twin[at]);
          const double e = static_cast<double>(a.old_rows[at]) - static_cast<double>(a.centroids.rows[at]);
          shift = fma(d, d, shift);
          shift_twin = fma(e, e, shift_twin);
        }
      }
      if constexpr (P.check) {
        checksum_square = fma(sum, sum, checksum_square);
        double rest = sum;
        for (int part = 0; part < 3; ++part) {
          T value = tensor_rounded(static_cast<T>(rest));
          rest -= static_cast<double>(value);
          a.centroids.packed[packed_at(tile, part, f)] = value;
        }
        a.centroids.packed[packed_at(tile, 3, f)] = a.points.direction[f];
        for (int column = k_check_columns; column < k_tile_columns; ++column) a.centroids.packed[packed_at(tile, column, f)] = 0;
      }
    }
    if constexpr (P.check) {
      double root = 0, root_square = 0;  // Σ (w ‖c‖)², Σ (w ‖c‖² / 2)²
      for (int c = static_cast<int>(threadIdx.x); c < count; c += k_threads) {
        const double w = shared.weights[c], square = shared.norms[c];
        root = fma(w * w, square, root);
        root_square = fma(w * square / 2, w * square / 2, root_square);
      }
      double sums[4] = {half_norms, checksum_square, root, root_square};
      const double total = ballast::cuda::add_block<k_threads>(sums, shared.partial);
      if (threadIdx.x < 4) shared.totals[threadIdx.x] = total;
      __syncthreads();
      if (threadIdx.x == 0) {
        T* const at = a.centroids.columns + (static_cast<std::int64_t>(tile) * k_tile_columns) * 2;
        for (int e = 0; e < 2 * k_tile_columns; ++e) at[e] = 0;
        at[0] = static_cast<T>(-shared.totals[0]);
        at[2] = static_cast<T>(-shared.totals[0] - static_cast<double>(at[0]));
        double direction = 0;
        for (int f = 0; f < n; ++f) direction += static_cast<double>(a.points.direction[f]) * static_cast<double>(a.points.direction[f]);
        const double u = abft::unit_roundoff<T>,
                     walk = k_row_factor<T> * u * (4 + sqrt(static_cast<double>(n)) + static_cast<double>(n) / 8);
        const double slope = walk * (sqrt(shared.totals[2]) + sqrt(shared.totals[1])), offset = walk * 4 * sqrt(shared.totals[3]);
        section_limits<T> limits;
        limits.row_slope = static_cast<T>(2 * slope * slope);
        limits.row_offset = static_cast<T>(2 * offset * offset) + (sizeof(T) == 4 ? T(1e-37) : T(1e-300));
        limits.projection_slope = static_cast<T>(walk * walk * direction);
        a.centroids.limits[2 * section] = limits;
        a.centroids.limits[2 * section + 1] = limits;
      }
      __syncthreads();
    }
  }

  // Adds this section's share to the sums over all clusters, from a second reading; and clears the sums of the next pass.
  __device__ __forceinline__ void add_totals() const {
    const int columns = a.points.columns;
    unsigned long long mine[3] = {};  // Σ j · signature of the sums; members; Σ j · members
    for (int e = static_cast<int>(threadIdx.x); e < P.words * columns; e += k_threads) {
      const int w = e / columns, f = e % columns;
      const unsigned long long factor = signature_weight(f, w);
      unsigned long long sum = 0;
      for (int c = 0; c < count; ++c) {
        const unsigned long long word = a.sums[(static_cast<std::int64_t>(first + c) * P.words + w) * columns + f];
        sum += word;
        mine[0] += static_cast<unsigned long long>(first + c) * (word * factor);
      }
      arch::add_global(a.column_sums + e, sum);
    }
    for (int c = static_cast<int>(threadIdx.x); c < count; c += k_threads) {
      mine[1] += a.members[first + c];
      mine[2] += static_cast<unsigned long long>(first + c) * a.members[first + c];
    }
    for (int v = 0; v < 3; ++v) {
      if (mine[v] != 0) arch::add_global(a.column_sums + P.words * columns + v, mine[v]);
    }
    for (std::int64_t e = threadIdx.x; e < static_cast<std::int64_t>(count) * P.words * columns; e += k_threads)
      a.next_sums[static_cast<std::int64_t>(first) * P.words * columns + e] = 0;
    for (int c = static_cast<int>(threadIdx.x); c < count; c += k_threads) a.next_members[first + c] = 0;
    if (section == 0 && threadIdx.x < sizeof(pass_totals) / 8) reinterpret_cast<unsigned long long*>(a.next_totals)[threadIdx.x] = 0;
  }

  // By the block that ends last: what follows from all sections.
  __device__ __forceinline__ void decide() {
    const int columns = a.points.columns;
    bool fits = true;
    if (P.check && a.given == nullptr) {
      for (int e = static_cast<int>(threadIdx.x); e < P.words * columns; e += k_threads)
        fits = fits && arch::load_keep(a.column_sums + e) == a.expected[e];
      if (threadIdx.x == 0) {
        const unsigned long long* const sums = a.column_sums + P.words * columns;
        const pass_totals& t = *a.totals;
        const unsigned long long members = arch::load_keep(sums + 1), labelled = arch::load_keep(sums + 2);
        fits = fits && arch::load_keep(sums) == t.quantities[1] && members == a.expected_members &&
               members + (labelled << 32) == t.quantities[2] && t.changed() + t.same() == static_cast<unsigned long long>(a.points.m);
      }
    }
    const bool wrong = __syncthreads_or(fits ? 0 : 1) != 0;
    for (int e = static_cast<int>(threadIdx.x); e < P.words * columns + 4; e += k_threads) a.column_sums[e] = 0;
    double inertia = 0;
    if (a.inertia != nullptr) {
      for (std::int64_t b = threadIdx.x; b < a.inertia_count; b += k_threads) inertia += a.inertia[b];
    }
    double sums[1] = {inertia};
    inertia = ballast::cuda::add_block<k_threads>(sums, shared.partial);
    if (threadIdx.x != 0) return;
    double shift = 0, twin = 0, largest = 0, smallest_norm = 1e300;
    std::uint32_t empty = 0, failed = wrong ? 1u : 0u;
    for (int s = 0; s < shape.sections; ++s) {
      const volatile section_result& each = a.sections[s];
      shift += each.shift;
      twin += each.shift_twin;
      largest = max(largest, each.largest);
      smallest_norm = min(smallest_norm, each.smallest);
      empty += each.empty;
      failed += each.failed;
    }
    const double u = abft::unit_roundoff<T>;
    score_bound<T> bound;
    // Points and centroids are rounded to 11 bits, and their errors multiply.
    bound.product = sizeof(T) == 4 ? static_cast<T>(0x1p-10 + 0x1p-20) : T(0);
    bound.sum = static_cast<T>(u * (8 + static_cast<double>(n)));
    bound.largest = static_cast<T>(largest * (1 + 4 * u));
    bound.smallest = static_cast<T>(smallest_norm * (1 + 4 * u));
    a.centroids.bound[0] = bound;
    a.centroids.bound[1] = bound;
    *a.ticket = 0;
    given.strike(index<1>{}, inject::site::kmeans_shift, inject::device_place{0, 1, 0, 1, 0, 1}, &shift);
    const bool shift_fits = fabs(shift - twin) <= 1e-12 * twin;
    if (a.state == nullptr) {
      if (wrong) report(check::totals, -1, false);
      return;
    }
    loop_state& state = *a.state;
    state.inertia = inertia;
    stop_reason reason = stop_reason::none;
    if (failed != 0 || (P.check && !shift_fits)) {
      reason = stop_reason::failure;
    } else if (a.given == nullptr) {
      if (empty != 0) {
        reason = stop_reason::empty_cluster;
      } else {
        state.shift = shift;
        state.changed = a.totals->changed();
        ++state.iterations;
        reason = a.totals->changed() == 0 ? stop_reason::labels_unchanged
                 : shift <= a.tolerance   ? stop_reason::tolerance
                                          : stop_reason::none;
      }
    }
    state.reason = static_cast<std::uint32_t>(reason);
  }

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) shared.failed = shared.empty = 0;
    __syncthreads();
    make_rows();
    __syncthreads();  // rows, norms and weights are there
    pack();
    double moved[2] = {};
    make_checks(moved[0], moved[1]);
    const double sum = ballast::cuda::add_block<k_threads>(moved, shared.partial);
    if (threadIdx.x < 2) shared.totals[threadIdx.x] = sum;
    if (a.given == nullptr) add_totals();
    __syncthreads();
    if (threadIdx.x == 0) {
      section_result found{shared.totals[0], shared.totals[1], 0, 1e300, shared.empty, shared.failed};
      for (int c = 0; c < count; ++c) {
        const double norm = sqrt(shared.norms[c]);
        found.largest = max(found.largest, norm);
        found.smallest = min(found.smallest, norm);
      }
      a.sections[section] = found;
    }
    arch::fence_gpu();
    __syncthreads();
    if (threadIdx.x == 0) shared.last = arch::atomic_add_acq_rel(a.ticket, 1) + 1 == gridDim.x ? 1 : 0;
    __syncthreads();
    if (shared.last == 0) return;
    arch::fence_gpu();
    decide();
  }
};

template <class T, update_policy P, class Injector>
__global__ void __launch_bounds__(P.threads)
    update_kernel(const __grid_constant__ ballast::cuda::kernel_launch<update_arguments<T>, Injector> given) {
  arch::wait_for_previous_grid();
  if (given.arguments.state != nullptr && given.arguments.state->reason != 0) return;
  update<T, P, Injector>(given).run();
}

}  // namespace ballast::kmeans::cuda
