// Copies, norms and shapes of matrices, random weights, and the strikes of tests.
// Layer: backend "cuda" of QR, device code.
#pragma once

#include <cmath>
#include <limits>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/arithmetic/random.hpp"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"

namespace ballast::qr::cuda {

inline constexpr int k_tile = 32;  // rows and columns of the tile that a thread block copies

__device__ __forceinline__ std::int64_t size_of_stride(std::int64_t stride) { return stride < 0 ? -stride : stride; }

// Neighbouring threads access neighbouring elements on both sides, since the tile passes through shared memory.
template <class S>
__global__ void __launch_bounds__(k_threads) copy_kernel(const __grid_constant__ copy_arguments<S> a) {
  S* const tile = reinterpret_cast<S*>(arch::shared_memory());  // k_tile rows of k_tile + 1
  const std::int64_t down = (a.rows + k_tile - 1) / k_tile;
  const std::int64_t top = blockIdx.x % down * k_tile, left = blockIdx.x / down * k_tile;
  const bool by_rows = a.from != nullptr && size_of_stride(a.from_row) > size_of_stride(a.from_column);
  for (int e = static_cast<int>(threadIdx.x); e < k_tile * k_tile; e += k_threads) {
    const int r = by_rows ? e / k_tile : e % k_tile, c = by_rows ? e % k_tile : e / k_tile;
    const std::int64_t i = top + r, j = left + c;
    if (i >= a.rows || j >= a.columns || (a.upper && i > j)) continue;
    S x = S(0);
    if (a.from == nullptr) {
      x = i == a.first + j ? S(1) : S(0);
    } else if (i < a.there && !(a.triangle && i > j)) {
      x = a.from[i * a.from_row + (a.order != nullptr ? a.order[j] : j) * a.from_column];
      const int shift = a.sign * ((a.row_shifts != nullptr ? a.row_shifts[i] : 0) + (a.column_shifts != nullptr ? a.column_shifts[j] : 0));
      if (shift != 0) x = shifted_number(x, shift);
      x = conjugated_if(a.conjugated, x);
    }
    tile[r * (k_tile + 1) + c] = x;
  }
  __syncthreads();  // the tile is complete
  const bool to_rows = size_of_stride(a.to_row) > size_of_stride(a.to_column);
  for (int e = static_cast<int>(threadIdx.x); e < k_tile * k_tile; e += k_threads) {
    const int r = to_rows ? e / k_tile : e % k_tile, c = to_rows ? e % k_tile : e / k_tile;
    const std::int64_t i = top + r, j = left + c;
    if (i >= a.rows || j >= a.columns || (a.upper && i > j)) continue;
    a.to[i * a.to_row + j * a.to_column] = tile[r * (k_tile + 1) + c];
  }
}

// One thread block for each tile, as copy_kernel.
template <class S>
__global__ void __launch_bounds__(k_threads) compare_kernel(const __grid_constant__ compare_arguments<S> given) {
  const copy_arguments<S>& a = given.copy;
  const std::int64_t down = (a.rows + k_tile - 1) / k_tile;
  const std::int64_t top = blockIdx.x % down * k_tile, left = blockIdx.x / down * k_tile;
  const bool by_rows = size_of_stride(a.to_row) > size_of_stride(a.to_column);
  for (int e = static_cast<int>(threadIdx.x); e < k_tile * k_tile; e += k_threads) {
    const std::int64_t i = top + (by_rows ? e / k_tile : e % k_tile), j = left + (by_rows ? e % k_tile : e / k_tile);
    if (i >= a.rows || j >= a.columns) continue;
    S expected = a.from[i * a.from_row + (a.order != nullptr ? a.order[j] : j) * a.from_column];
    const int shift = a.sign * ((a.row_shifts != nullptr ? a.row_shifts[i] : 0) + (a.column_shifts != nullptr ? a.column_shifts[j] : 0));
    if (shift != 0) expected = shifted_number(expected, shift);
    expected = a.triangle && i > j ? S(0) : conjugated_if(a.conjugated, expected);
    const S seen = a.to[i * a.to_row + j * a.to_column];
    if (!same_bits_of(expected, seen)) atomicMin(reinterpret_cast<unsigned long long*>(given.differs), static_cast<unsigned long long>(j));
  }
}

// Returns the sum over the block, or the largest value; NaN is kept. All threads get the result. `several`: shared memory for one number
// for each warp; the caller may reuse it at once.
template <bool Largest>
__device__ __forceinline__ double over_block(double value, double* several) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = Largest ? (value != value || value > other ? value : other) : value + other;
  }
  if (arch::lane() == 0) several[arch::warp()] = value;
  __syncthreads();  // `several` is complete
  double all = several[0];
  for (int w = 1; w < k_threads / 32; ++w) all = Largest ? (all != all || all > several[w] ? all : several[w]) : all + several[w];
  __syncthreads();  // all threads have read it
  return all;
}

// Returns whether this is the last of `blocks` thread blocks to arrive; it then sees everything that the others wrote before. `arrived` is
// 0 before and after the launch.
__device__ __forceinline__ bool is_last_block(std::uint32_t* arrived, std::uint32_t blocks) {
  auto& last = arch::shared_object<int, struct last_of_blocks>();
  __syncthreads();  // the block has written its results
  if (threadIdx.x == 0) last = ballast::cuda::arrives_last(arrived, blocks) ? 1 : 0;
  __syncthreads();  // `last` is set
  return last != 0;
}
__device__ __forceinline__ bool is_last_block(std::uint32_t* arrived) { return is_last_block(arrived, gridDim.x); }

// As abft::k_squares: a sum of squares outside this range is unreliable.
__device__ __forceinline__ bool says_norm(double square) { return square >= 1e-280 && square <= 1e300; }

// One thread block for each column and chunk of its rows. The last block of a column adds up the partial sums. If the squares leave the
// range of doubles, that block reads the whole column again.
template <class S>
__global__ void __launch_bounds__(k_threads) scan_kernel(const __grid_constant__ scan_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct scan_sums>();
  const std::int64_t j = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  const std::int64_t begin = a.lower ? a.first + j : 0;
  const std::int64_t end = a.upper && a.first + j + 1 < a.rows ? a.first + j + 1 : a.rows;
  const S* const x = a.X + j * a.ld;
  const std::int64_t rows = (a.rows + a.chunks - 1) / a.chunks;
  const std::int64_t top = chunk * rows > begin ? chunk * rows : begin, bottom = (chunk + 1) * rows < end ? (chunk + 1) * rows : end;
  constexpr int together = 8;  // loads in flight at the same time
  double sum = a.gram != nullptr ? a.gram[k_reals<S> * packed(static_cast<int>(j), static_cast<int>(j))] : 0;
  const bool known = says_norm(sum);
  if (known && chunk > 0) return;
  if (!known) sum = 0;
  for (std::int64_t i = top + threadIdx.x; i < bottom && !known; i += together * k_threads) {
    S read[together];
    ballast::cuda::unrolled<together>([&](auto q) {
      const std::int64_t at = i + decltype(q)::value * k_threads;
      read[decltype(q)::value] = at < bottom ? x[at] : S(0);
    });
    ballast::cuda::unrolled<together>([&](auto q) { sum += square_of(widened(read[decltype(q)::value])); });
  }
  if (!known) sum = over_block<false>(sum, several);
  if (a.chunks > 1 && !known) {
    if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
    if (!is_last_block(a.arrived + j, static_cast<std::uint32_t>(a.chunks))) return;
    sum = 0;
    for (std::int64_t c = threadIdx.x; c < a.chunks; c += k_threads) sum += a.partial[j * a.chunks + c];
    sum = over_block<false>(sum, several);
  }
  column_result made{0, 0, 1};
  if (says_norm(sum)) {
    const double norm = sqrt(sum);
    made.exponent = std::ilogb(norm);
    made.norm = std::ldexp(norm, -made.exponent);
  } else {
    double most = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += k_threads) {
      const double size = largest_component(x[i]);
      if (most == most && !(size <= most)) most = size;
    }
    most = over_block<true>(most, several);
    made.finite = most <= std::numeric_limits<double>::max() ? 1 : 0;
    if (made.finite != 0 && most > 0) {
      made.exponent = std::ilogb(most);
      sum = 0;
      for (std::int64_t i = begin + threadIdx.x; i < end; i += k_threads) {
        sum += square_of(shifted_number(widened(x[i]), -made.exponent));
      }
      made.norm = sqrt(over_block<false>(sum, several));
    }
  }
  if (threadIdx.x == 0) a.to[j] = made;
}

// One thread block for each chunk of rows of a column: engine::exponents.
template <class S>
__global__ void __launch_bounds__(k_threads) exponents_kernel(const __grid_constant__ exponents_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct exponent_sums>();
  const std::int64_t j = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  const std::int64_t of_column = a.upper && j + 1 < a.rows ? j + 1 : a.rows, each = (of_column + a.chunks - 1) / a.chunks;
  const std::int64_t begin = chunk * each, end = begin + each < of_column ? begin + each : of_column;
  constexpr double none = abft::k_zero_column;
  double most = none;
#pragma unroll 8
  for (std::int64_t i = begin + threadIdx.x; i < end; i += k_threads) {
    const double x = largest_component(a.X[i * a.row_stride + j * a.column_stride]);
    const double e = !(x <= std::numeric_limits<double>::max()) ? std::numeric_limits<double>::quiet_NaN()
                     : x == 0                                   ? none
                                                                : std::ilogb(x) + (a.row_shifts != nullptr ? a.row_shifts[i] : 0);
    if (most == most && !(e <= most)) most = e;
  }
  most = over_block<true>(most, several);
  if (threadIdx.x == 0) a.to[blockIdx.x] = most == most ? static_cast<int>(most) : abft::k_odd_column;
}

// One thread block.
template <class S>
__global__ void __launch_bounds__(k_threads) diagonal_kernel(const __grid_constant__ diagonal_arguments<S> a) {
  auto& first = arch::shared_object<unsigned long long, struct first_zero>();
  auto& small = arch::shared_object<unsigned long long, struct small_ones>();
  if (threadIdx.x == 0) {
    first = static_cast<unsigned long long>(a.n);
    small = 0;
  }
  __syncthreads();  // both are set
  for (std::int64_t i = threadIdx.x; i < a.n; i += k_threads) {
    const double x = largest_component(a.R[i + i * a.ld]);
    if (x == 0) atomicMin(&first, static_cast<unsigned long long>(i));
    if (x < a.small) atomicAdd(&small, 1ull);
  }
  __syncthreads();  // all elements have been compared
  if (threadIdx.x != 0) return;
  a.to[0] = first == static_cast<unsigned long long>(a.n) ? -1 : static_cast<long long>(first);
  a.to[1] = small != 0 ? 1 : 0;
}

// One thread block for k_threads rows of a column.
template <class S>
__global__ void __launch_bounds__(k_threads) form_v_kernel(const __grid_constant__ form_v_arguments<S> a) {
  const std::int64_t slabs = (a.rows + k_threads - 1) / k_threads, j = blockIdx.x / slabs;
  const std::int64_t i = blockIdx.x % slabs * k_threads + threadIdx.x;
  if (i >= a.rows) return;
  const bool none = a.state != nullptr && a.state->stage < k_cholesky_qr_orthonormal;
  const auto make = [&] { return none || i < j ? S(0) : i == j ? S(1) : loaded_again(a.from + i + j * a.ld); };
  if (a.checked) {
    store_number_compared(a.to + i + j * a.rows, make);
  } else {
    a.to[i + j * a.rows] = make();
  }
}

// Any number of thread blocks.
template <class S>
__global__ void __launch_bounds__(k_threads) hold_kernel(const __grid_constant__ hold_arguments<S> a) {
  const bool closed = is_closed(a.gate);
  const std::int64_t thread = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  if (thread == 0) {
    a.record->passed = closed ? 0 : 1;
    a.record->held = closed ? 1 : 0;
  }
  if (!closed) return;
  for (const auto& each : a.zero) {
    for (std::int64_t i = thread; i < each.count; i += std::int64_t{gridDim.x} * k_threads) each.data[i] = S(0);
  }
}

// Number i of a stream; column q uses stream + q. One thread block for k_threads numbers of a column.
template <int Threads>
__global__ void __launch_bounds__(Threads) random_kernel(const __grid_constant__ random_arguments a) {
  const std::int64_t blocks = (a.count + k_threads - 1) / k_threads, q = blockIdx.x / blocks;
  const std::int64_t i = blockIdx.x % blocks * k_threads + threadIdx.x;
  if (i >= a.count) return;
  const std::uint64_t stream = a.stream + static_cast<std::uint64_t>(q);
  const auto draw = [&] {
    const auto number = static_cast<std::uint64_t>(arch::opaque(i));
    return a.with_sign ? random_signed(stream, number) : abft::random_weight(k_weight_seed, stream, number);
  };
  // All computations of a call use the same weights: after a fault in one, each recomputation would fail like the first.
  ballast::cuda::store_compared(a.to + (i + q * a.count) * a.stride, draw);
}

// Strikes the words that a fault of the call selects: the device's counterpart of inject::fault_injector::strike, for tests. One thread
// block.
template <class S>
__global__ void __launch_bounds__(32)
    strike_kernel(const __grid_constant__ ballast::cuda::kernel_launch<strike_arguments<S>, inject::device_injector> given) {
  const strike_arguments<S>& a = given.arguments;
  for (std::int64_t i = threadIdx.x; i < a.count; i += 32)
    given.strike(ballast::cuda::index<1>{}, static_cast<inject::site>(a.where),
                 {a.interval, a.intervals, a.step, a.steps, static_cast<int>(i), static_cast<int>(a.count)}, a.data + i);
}

}  // namespace ballast::qr::cuda
