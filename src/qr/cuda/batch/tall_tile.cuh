// The tile of a thread block (tall_policy): a matrix of any number of rows, or columns of one, column by column in shared memory or in a
// slab of device memory; and the sums of its check. Products and sums are in double.
// Layer: backend "cuda" of QR, device code. docs/design/qr-cuda-batches.md, describes the checks.
#pragma once

#include <cmath>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "qr/arithmetic/random.hpp"
#include "qr/cuda/batch/batch_tile.cuh"
#include "qr/cuda/batch/batch_verdict.cuh"
#include "qr/cuda/batch/tall_args.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::cuda {

// An operand in memory: rows after `given` count as zero; `identity`: columns `first`, first + 1, … of the identity instead.
template <class S>
struct tall_source {
  const S* data;
  std::int64_t down, across;
  int given, first;
  bool identity;

  __device__ __forceinline__ S operator()(int row, int column) const {
    if (identity) return S(row == first + column);
    return row < given ? data[row * down + column * across] : S(0);
  }
};

template <class S, tall_policy P, class Launch>
struct tall_tile {
  static constexpr int threads = P.threads;
  static constexpr int warps = threads / 32;
  static constexpr bool struck = requires(const Launch& launch) { launch.injector; };
  static_assert(threads % 32 == 0 && warps >= 2 && warps <= tall_memory<S>::most_warps);

  const Launch& given;
  const std::int64_t item, items;  // the block's problem, and all of the launch
  const int m, columns;
  tall_memory<S>& own;
  double* const sum;  // k_certificates × m: Σ_j w_qj 2^−e_j x_j; the reflectors are applied to it
  S* const x;         // m × columns

  __device__ __forceinline__ tall_tile(const Launch& launch, const tall_slabs& slabs, std::int64_t which, std::int64_t count, int rows,
                                       int width)
      : given(launch),
        item(which),
        items(count),
        m(rows),
        columns(width),
        own(*reinterpret_cast<tall_memory<S>*>(arch::shared_memory())),
        sum(reinterpret_cast<double*>(slabs.data == nullptr ? arch::shared_memory() + k_tall_front<S>
                                                            : slabs.data + blockIdx.x * slabs.pitch)),
        x(reinterpret_cast<S*>(sum + k_certificates * static_cast<std::int64_t>(rows))) {}

  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int warp() { return static_cast<int>(arch::opaque(threadIdx.x)) / 32; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // The warp that applies the reflectors to the sums. With checks it does nothing else meanwhile.
  static __device__ __forceinline__ bool follows() { return warp() == warps - 1; }
  static __device__ __forceinline__ int workers(bool checks) { return checks ? warps - 1 : warps; }

  __device__ __forceinline__ S* column(int j) const { return x + static_cast<std::int64_t>(j) * m; }
  // Returns the first row of this lane from row `from` on: lane l has rows l, l + 32, …
  static __device__ __forceinline__ int first_row(int from) { return from + ((lane() - from) & 31); }

  // Strikes a number that one thread has, as word `word` of `words`.
  template <class T>
  __device__ __forceinline__ void strike(inject::site where, int step, int steps, int word, int words, T* data) const {
    given.strike(ballast::cuda::index<1>{}, where, {item, items, step, steps, word, words}, data);
  }
  // Strikes the tile. All threads call it.
  __device__ __forceinline__ void strike_tile(inject::site where, int step, int steps) const {
    if constexpr (struck) {
      __syncthreads();
      for (int e = thread(); e < m * columns; e += threads) strike(where, step, steps, e, m * columns, x + e);
      __syncthreads();
    }
  }

  // Draws the weights. A barrier must follow.
  __device__ __forceinline__ void draw() const {
    for (int e = thread(); e < k_certificates * columns; e += threads) {
      const int q = e / columns, j = e % columns;
      own.weight[q][j] = random_signed(k_batch_stream + static_cast<std::uint64_t>(q), static_cast<std::uint64_t>(j));
    }
  }

  static __device__ __forceinline__ double largest_of_warp(double most) {
    for (int distance = 1; distance < 32; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
    return most;
  }
  static __device__ __forceinline__ bool is_finite(double most) { return most <= abft::k_largest<double>; }
  static __device__ __forceinline__ int exponent_or_0(double most) { return most > 0 && is_finite(most) ? exponent_of(most) : 0; }

  // sum_q ← Σ_j w_qj 2^−e_j x_j over all columns, from a reading of the input that the tile does not share, with e_j the exponent of column
  // j. Begins after a barrier that follows draw(), and ends with one.
  __device__ __forceinline__ void encode(const tall_source<S>& from) const {
    int odd = 0;
    for (int j = warp(); j < columns; j += warps) {
      double most = 0;
      for (int i = lane(); i < m; i += 32) most = larger_of(most, fabs(static_cast<double>(from(i, j))));
      most = largest_of_warp(most);
      odd |= is_finite(most) ? 0 : 1;
      if (lane() == 0) own.exponent[j] = exponent_or_0(most);
    }
    if (lane() == 0) own.odd[warp()] = odd;
    __syncthreads();  // the exponents are stored
    double squares[2 * k_certificates] = {};
    for (int i = thread(); i < m; i += threads) {
      double sums[k_certificates] = {};
      for (int j = 0; j < columns; ++j) {
        const double value = binary_scale(-own.exponent[j])(static_cast<double>(from(i, j)));
        for (int q = 0; q < k_certificates; ++q) {
          const double term = own.weight[q][j] * value;
          sums[q] += term;
          squares[q] += term * term;
        }
      }
      for (int q = 0; q < k_certificates; ++q) {
        sum[q * static_cast<std::int64_t>(m) + i] = sums[q];
        squares[k_certificates + q] += sums[q] * sums[q];
      }
      strike(site::checksum, 0, 1, i, m, sum + i);
    }
    const double all = ballast::cuda::add_block<threads>(squares, own.partial);
    if (thread() < 2 * k_certificates) own.norm[thread()] = all;
    __syncthreads();  // sums and norms are stored
  }

  // Loads the tile, and scales columns of extreme size as batch_tile::moderate_columns does. A barrier must follow.
  template <bool Factors>
  __device__ __forceinline__ void load(const tall_source<S>& from) const {
    for (int j = warp(); j < columns; j += warps) {
      S* const to = column(j);
      double most = 0;
      for (int i = lane(); i < m; i += 32) {
        const S value = from(i, j);
        to[i] = value;
        most = larger_of(most, fabs(static_cast<double>(value)));
      }
      const int exponent = exponent_or_0(largest_of_warp(most));
      const int shift = Factors ? abft::moderating_shift<S>(exponent) : abft::product_shift<S>(exponent);
      if (lane() == 0) own.shift[j] = shift;
      const binary_scale scale(shift);
      for (int i = lane(); shift != 0 && i < m; i += 32) to[i] = static_cast<S>(scale(static_cast<double>(to[i])));
    }
  }

  __device__ __forceinline__ std::uint64_t hash_of(S value, int row, int j) const {
    return abft::spread_hash(value, static_cast<std::uint64_t>(row + static_cast<std::int64_t>(j) * m));
  }

  // sum_q ← H sum_q by one warp. v(row) returns an element of v below row j, where v is 1. Returns ‖v‖², in all lanes.
  template <class Elements>
  __device__ __forceinline__ double reflect_sums(int j, double tau, Elements&& v) const {
    double dot[k_certificates + 1] = {};
    for (int i = first_row(j); i < m; i += 32) {
      const double here = i == j ? 1.0 : static_cast<double>(v(i));
      for (int q = 0; q < k_certificates; ++q) dot[q] += here * sum[q * static_cast<std::int64_t>(m) + i];
      dot[k_certificates] += here * here;
    }
    ballast::cuda::add_lanes<32, 32, 1>(dot);
    for (int i = first_row(j); tau != 0 && i < m; i += 32) {
      const double here = i == j ? 1.0 : static_cast<double>(v(i));
      for (int q = 0; q < k_certificates; ++q) sum[q * static_cast<std::int64_t>(m) + i] -= tau * dot[q] * here;
    }
    return dot[k_certificates];
  }

  // The factors of add_weighted(). A barrier must follow.
  __device__ __forceinline__ void convert_weights() const {
    for (int e = thread(); e < k_certificates * columns; e += threads) {
      const int q = e / columns, j = e % columns;
      own.factor[q][j] = own.weight[q][j] * power_of_two(-own.exponent[j] - own.shift[j]);
    }
  }
  // sum_q ← sum_q − Σ_j w_qj 2^−e_j x_j over the elements with `taken(row, column)`, in rows before `rows`; adds the hash of these elements
  // to `hash`, and the squares of what is left of the sums to own.rest. Ends with a barrier.
  template <class Taken>
  __device__ __forceinline__ void subtract_weighted(int rows, std::uint64_t& hash, Taken&& taken) const {
    double squares[k_certificates] = {};
    for (int i = thread(); i < m; i += threads) {
      double left[k_certificates];
      for (int q = 0; q < k_certificates; ++q) left[q] = sum[q * static_cast<std::int64_t>(m) + i];
      for (int j = 0; i < rows && j < columns; ++j) {
        if (!taken(i, j)) continue;
        const S value = column(j)[i];
        hash += hash_of(value, i, j);
        for (int q = 0; q < k_certificates; ++q) left[q] -= own.factor[q][j] * static_cast<double>(value);
      }
      for (int q = 0; q < k_certificates; ++q) squares[q] += left[q] * left[q];
    }
    const double all = ballast::cuda::add_block<threads>(squares, own.partial);
    if (thread() < k_certificates) own.rest[thread()] = all;
    __syncthreads();  // the squares are stored, and own.partial has been read
  }

  // Returns this thread's part of the hash of the whole tile.
  __device__ __forceinline__ std::uint64_t hash_tile() const {
    std::uint64_t made = 0;
    for (int j = warp(); j < columns; j += warps) {
      for (int i = lane(); i < m; i += 32) made += hash_of(column(j)[i], i, j);
    }
    return made;
  }
  // Adds both hashes over the block. Ends with a barrier, after which hash_at() returns them.
  __device__ __forceinline__ void leave_hashes(std::uint64_t verified, std::uint64_t stored) const {
    for (int distance = 1; distance < 32; distance *= 2) {
      verified += __shfl_xor_sync(0xffffffffu, verified, distance);
      stored += __shfl_xor_sync(0xffffffffu, stored, distance);
    }
    if (lane() == 0) {
      own.hash[0][warp()] = verified;
      own.hash[1][warp()] = stored;
    }
    __syncthreads();  // the hashes are stored
  }
  __device__ __forceinline__ std::uint64_t hash_at(int which) const {
    std::uint64_t made = 0;
    for (int w = 0; w < warps; ++w) made += own.hash[which][w];
    return made;
  }

  // The verdict of one thread on the sums and the hashes; `odd`, `reflectors`: of the warp that follows.
  __device__ __forceinline__ abft::finding judge(const abft::tiers& limits, bool odd, int repeats) const {
    for (int w = 0; w < warps; ++w) odd |= own.odd[w] != 0;
    const auto norm_of = [&](int q) { return sqrt(own.norm[q]) + sqrt(own.norm[k_certificates + q]); };
    abft::worst_comparison worst{0, norm_of(0)};
    for (int q = 0; q < k_certificates; ++q) worst.take(sqrt(own.rest[q]), norm_of(q));
    return batch_verdict<Launch>{given, item, items}.judge(worst.residual, {limits.clean * worst.limit, limits.wrong * worst.limit},
                                                           hash_at(0), odd, repeats, true);
  }

  // Stores the tile; elements with `scaled(row, column)` get their original units back. `checked`: as in batch_tile::shift_to_store.
  // Nothing checks what is computed here, so it is computed twice.
  template <bool Factors, class Scaled>
  __device__ __forceinline__ void store(S* to, std::int64_t down, std::int64_t across, bool checked, Scaled&& scaled) const {
    for (int j = warp(); j < columns; j += warps) {
      const int shift = checked_shift<S, Factors>(own.shift[j], own.exponent[j], checked);
      S* const at = to + j * across;
      if (shift == 0) {
        for (int i = lane(); i < m; i += 32) at[i * down] = ballast::cuda::loaded_twice(column(j)[i]);
      } else {
        for (int i = lane(); i < m; i += 32)
          at[i * down] = ballast::cuda::made_twice([&] { return in_unit(column(j)[i], scaled(i, j), shift); });
      }
    }
  }

 private:
  // x · 2^−shift, or x unless `scaled`; loaded and computed anew in each call, the choice of the factor included.
  static __device__ __forceinline__ S in_unit(const volatile S& x, bool scaled, int shift) {
    const binary_scale back(scaled ? -static_cast<int>(arch::opaque(static_cast<unsigned>(shift))) : 0);
    return static_cast<S>(back(static_cast<double>(x)));
  }
};

}  // namespace ballast::qr::cuda
