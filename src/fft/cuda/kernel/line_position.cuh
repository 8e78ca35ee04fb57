// The state of a block for its current tile: its registers, and the mapping of lines and elements to its threads.
// Layer: fft/cuda kernels; a part of line.cuh.
//
// A tile is either P.lines lines in one block, or one line in a cluster of blocks. Thread t of a line holds butterflies t, t + P.threads, …
// of each stage. Neighbouring threads have either neighbouring elements of a line or neighbouring lines (`columns`). Load and store choose
// independently, so that both coalesce.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/arch/shared.cuh"
#include "cuda/arch/thread.cuh"
#include "fft/cuda/kernel/butterfly.cuh"
#include "fft/cuda/kernel/line_report.cuh"
#include "fft/cuda/policy/policy.hpp"
#include "fft/cuda/policy/roots.hpp"

namespace ballast::fft::cuda {

// The lowest layer of line_tile. Each layer is a file of its own and has the layer below as its base class: position, factors, real,
// memory, exchange, sums, transform, tile. In nested generic lambdas GCC 12 finds a member of a base only after `this->` or `below::`. It
// has many members because the state of a thread that several layers share is here, with the constants of the policy.
template <line_policy P, class Injector>
struct line_position {
  using real = std::conditional_t<P.wide, double, float>;
  using number = complex<real>;
  static constexpr int k_last = P.stages - 1;
  static constexpr bool k_summed = P.sums();
  static constexpr bool k_encoded = P.encodes();
  static constexpr bool k_verified = P.verifies();
  // True if blocks process several tiles, or repeat one.
  static constexpr bool k_repeats = P.check != check_form::none || P.shared_source || P.shared_target;
  // True if the addresses of a thread differ by constants that can be added without carries.
  static constexpr bool k_linear = P.power_of_two(P.length) && P.power_of_two(P.lines) && P.power_of_two(P.threads) &&
                                   P.power_of_two(P.cluster) && (P.cluster == 1 || !P.mirrors() || P.threads % P.target_run() == 0);

  number x[P.held()];              // the elements of the line that this thread holds
  real encoded[4] = {};            // this thread's part of the expected aᵀy, for both vectors
  real square = 0;                 // this thread's part of ‖x‖²
  number given[P.butterflies(0)];  // encoded inputs of each first butterfly

  const line_arguments& a;
  const line_launch<Injector>& launch;
  unsigned char* const shared = arch::shared_memory();
  std::uint32_t tile = 0;  // no device has room for 2^32 tiles
  std::uint32_t batch = 0, middle = 0;
  std::int64_t first_column = 0;
  unsigned thread_now = 0;
  // Offset in elements of data that other blocks of this launch write or read, relative to the regular addresses.
  std::int64_t shared_shift = 0;
  bool refills = false;         // the first exchange of this tile requests the next tile
  unsigned ahead_parity = 0;    // parity of the prefetch buffer's barrier
  bool from_buffer = false;     // this computation reads the prefetch buffer; a repeated one reads memory
  bool changed = false;         // repair_form::last: a result differs from that in memory
  unsigned arrival_parity = 0;  // parity of the barrier for results that arrive from the other blocks of the cluster

  __device__ explicit line_position(const line_launch<Injector>& given) : a(given.arguments), launch(given) {}

  __device__ __forceinline__ int line_of(bool columns) const {
    return static_cast<int>(columns ? thread() % P.lines : thread() / P.threads);
  }
  __device__ __forceinline__ int position_of(bool columns) const {
    return static_cast<int>(columns ? thread() / P.lines : thread() % P.threads);
  }
  // Blocks that process several tiles, or repeat one, recompute addresses for each tile: keeping them would spill registers.
  __device__ __forceinline__ void forget() {
    if constexpr (k_repeats) thread_now = arch::opaque(threadIdx.x);
  }
  __device__ __forceinline__ unsigned thread() const { return k_repeats ? thread_now : threadIdx.x; }

  // Return the number of the block in its cluster, and of the thread in its tile.
  __device__ __forceinline__ int rank() const { return P.cluster == 1 ? 0 : static_cast<int>(blockIdx.x % P.cluster); }
  __device__ __forceinline__ int lane() const { return rank() * P.block() + static_cast<int>(threadIdx.x); }

  // Return the element of the line at position t + Ahead of this block's share, at load and at store. If k_separable, `Ahead` only adds a
  // constant.
  static constexpr bool k_separable = P.cluster == 1 || k_linear;
  template <int Ahead>
  __device__ __forceinline__ int source_element(int t, index<Ahead>) const {
    if constexpr (P.cluster > 1 && k_linear) return P.source_element(t, rank()) + P.source_element(Ahead, 0);
    return P.source_element(t + Ahead, rank());
  }
  template <int Ahead>
  __device__ __forceinline__ int target_element(int t, index<Ahead>) const {
    if constexpr (P.cluster > 1 && k_linear) return P.target_element(t, rank()) + P.target_element(Ahead, 0);
    return P.target_element(t + Ahead, rank());
  }

  // Starts a tile.
  __device__ __forceinline__ void select(std::int64_t wanted) {
    tile = static_cast<std::uint32_t>(wanted);
    forget();
    if constexpr (P.flat) {
      first_column = wanted * P.lines;
    } else {
      // A 32-bit division is several times cheaper than a 64-bit one.
      const auto number = tile;
      const auto row = number / static_cast<std::uint32_t>(a.column_tiles);
      const auto outer = row / static_cast<std::uint32_t>(a.middles);
      first_column = static_cast<std::int64_t>(number - row * static_cast<std::uint32_t>(a.column_tiles)) * P.lines;
      batch = outer;
      middle = row - outer * static_cast<std::uint32_t>(a.middles);
    }
  }
  // Returns the number that a line of the tile has in its pass.
  __device__ __forceinline__ std::int64_t number_of(int line) const {
    return (batch * a.middles + middle) * a.columns + first_column + line;
  }
  // The last tile of a row may have fewer lines.
  __device__ __forceinline__ bool valid(int line) const { return first_column + line < a.columns; }

  static __device__ __forceinline__ void barrier() {
    if constexpr (P.block() <= 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  template <int Count, class T>
  __device__ __forceinline__ void strike(index<Count> count, inject::site where, int step, int steps, T* data, int thread,
                                         int threads) const {
    launch.strike(count, where, inject::device_position{a.first_tile + tile, a.all_tiles, step, steps, thread, threads}, data);
  }

  // Returns whether the argument of a fallback kernel (plan/fallback.hpp) has a form.
  __device__ __forceinline__ bool has(argument_form form) const {
    static_assert(P.fallback);
    return (a.forms & form) != 0;
  }

  // Exchanges real and imaginary parts for an inverse transform: it is a forward one with this exchange at load and at store.
  __device__ __forceinline__ number swapped(const number& z) const {
    if constexpr (P.fallback) {
      const bool inverse = has(k_form_inverse);
      return {inverse ? z.im : z.re, inverse ? z.re : z.im};
    } else if constexpr (P.inverse) {
      return {z.im, z.re};
    } else {
      return z;
    }
  }

  static __device__ __forceinline__ number constant(const unit_root& w) { return {static_cast<real>(w.re), static_cast<real>(w.im)}; }

  // Calls body(register, output, butterfly, element) for every output that this thread holds.
  template <class Body>
  __device__ __forceinline__ void outputs(Body&& body) const {
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    const int t = position_of(P.out_columns);
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(k_last) || t + q * P.threads < P.share() / r) {
        const int j = target_element(t, index<q * P.threads>{});
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          body(index<q * r + k>{}, j + k * stride, index<q>{}, index<k>{});
        });
      }
    });
  }
};

}  // namespace ballast::fft::cuda
