// Statistics over the rows of each column: ranges of the given points; and the sums of parts of columns, of ranges and of column_sums.
// Layer: backend "cuda" of K-Means, device code.
//
// A block processes one strip of rows of one tile of columns (column_shape). Thread (c, r) adds rows r, r + R, … of column c into one
// accumulator; the R accumulators of a column are added in order, then fold_kernel adds the strips. The mapping of threads to (c, r)
// depends on the layout of the points.
// Shared memory: one Work::sums per thread.
#pragma once

#include <limits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/launch.cuh"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/cuda/layout/setup_args.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Loads a number; the compiler cannot merge this load with another load of the same number.
template <class T>
__device__ __forceinline__ T load_again(const T* from) {
  return *static_cast<const volatile T*>(from);
}

// Returns the number whose bits these are, of bfloat16 if `brain`, else of float16. Exact.
__device__ __forceinline__ float from_16_bits(std::uint16_t bits, bool brain) {
  return brain ? ballast::cuda::from_bits<float>(std::uint32_t{bits} << 16) : arch::from_half(bits);
}

// Returns feature f of a row of the given points. `Half`: they have 16 bits.
template <bool Half, class T>
__device__ __forceinline__ T given_value(const given_points<T>& from, std::int64_t row, int f) {
  const std::int64_t at = row * from.row_stride + f * from.column_stride;
  if constexpr (Half) {
    return from_16_bits(load_again(static_cast<const std::uint16_t*>(from.points) + at), from.brain);
  } else {
    return load_again(static_cast<const T*>(from.points) + at);
  }
}

// Computes x of a row from the given points.
template <bool Half, class T>
__device__ __forceinline__ T compute_x(const given_points<T>& from, std::int64_t row, int f) {
  return normalized(given_value<Half>(from, row, f), from.scale, load_again(from.shift + f));
}
template <class T>
__device__ __forceinline__ T compute_weight(const given_points<T>& from, std::int64_t row) {
  return rounded_product(load_again(from.weights + row), from.weight_scale);
}

template <class T>
struct ranges_work {
  using sums = column_ranges<T>;
  static __device__ sums none() {
    return {0, std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), T(0), T(0), 0, 0, 0, 0};
  }
  static __device__ void visit(T x, sums& to) {
    to.low = x < to.low ? x : to.low;
    to.high = x > to.high ? x : to.high;
    to.poison += x * 0;
    to.sum = __fma_rn(static_cast<double>(x), 0x1p-64, to.sum);
    constexpr int mantissa = std::numeric_limits<T>::digits;
    to.exponents += static_cast<std::int64_t>((ballast::cuda::bits(x) << 1) >> mantissa);
    to.below += static_cast<std::int64_t>((~ballast::cuda::bits(arch::opaque(x)) << 1) >> mantissa);
    to.others += x != 0 ? 1 : 0;
    to.zeros += arch::opaque(x) == 0 ? 1 : 0;
  }
  static __device__ void add(sums& to, const sums& more) {
    to.low = more.low < to.low ? more.low : to.low;
    to.high = more.high > to.high ? more.high : to.high;
    to.poison += more.poison;
    to.sum += more.sum;
    to.exponents += more.exponents;
    to.others += more.others;
    to.below += more.below;
    to.zeros += more.zeros;
  }
};

// The sums of column_sums. visit() has the numbers of one element: x, 0 in the column of weights; y = product + rest; the column's unit.
struct sums_work {
  using sums = column_sums;
  static __device__ sums none() { return {0, 0, 0, 0, {0, 0}, 0, 0}; }
  template <int Words, class T>
  static __device__ __forceinline__ void visit(T x, T product, T rest, bool weighted, T unit, sums& to) {
    const double size = fabs(static_cast<double>(product)), value = static_cast<double>(x);
    to.largest = size > to.largest ? size : to.largest;
    to.size += size;
    to.squares = __fma_rn(value, value, to.squares);
    to.plain += value;
    std::int32_t word[Words];
    if (weighted) {
      split<Words>(product, rest, unit, word);
    } else {
      split<Words>(product, unit, word);
    }
    for (int w = 0; w < Words; ++w) to.word[w] += static_cast<std::uint64_t>(std::int64_t{word[w]});
    to.positive += product > 0 ? 1 : 0;
  }
  static __device__ void add(sums& to, const sums& more) {
    to.largest = more.largest > to.largest ? more.largest : to.largest;
    to.size += more.size;
    to.squares += more.squares;
    to.plain += more.plain;
    for (int w = 0; w < 2; ++w) to.word[w] += more.word[w];
    to.positive += more.positive;
  }
};

template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_column_threads)
    ranges_kernel(const __grid_constant__ ballast::cuda::kernel_launch<range_arguments<T>, Injector> given) {
  using work = ranges_work<T>;
  constexpr int together = 8;  // loads of a thread that are in flight
  const range_arguments<T>& a = given.arguments;
  auto* const chains = reinterpret_cast<column_ranges<T>*>(arch::shared_memory());
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = a.shape.column_lanes;
  const int rows = k_column_threads / lanes;
  const int c = a.rows_first ? thread / rows : thread % lanes;
  const int r = a.rows_first ? thread % rows : thread / lanes;
  const auto tiles = static_cast<unsigned>(a.shape.tiles());
  const std::int64_t strip = blockIdx.x / tiles;
  const int column = static_cast<int>(blockIdx.x % tiles) * lanes + c;
  const std::int64_t begin = strip * a.shape.strip_rows;
  const std::int64_t end = min(begin + a.shape.strip_rows, a.shape.m);
  column_ranges<T> own = work::none();
  if (column < a.shape.columns) {
#pragma unroll 1
    for (std::int64_t row = begin + r; row < end; row += together * rows) {
      T x[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (row + i * rows < end) x[i] = given_value<Half>(a.given, row + i * rows, column);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (row + i * rows < end) work::visit(x[i], own);
      }
    }
  }
  given.strike(ballast::cuda::index<1>{}, site::points, {strip, a.shape.strips, 1, 2, thread, k_column_threads}, &own.sum);
  chains[c * rows + r] = own;
  __syncthreads();  // the accumulators are stored
  if (r != 0 || column >= a.shape.columns) return;
  column_ranges<T> all = chains[c * rows];
  for (int i = 1; i < rows; ++i) work::add(all, chains[c * rows + i]);
  a.parts[strip * a.shape.columns + column] = all;
}

// Adds the strips of each column, one block per column: thread t adds strips t, t + T, …, then the accumulators are added in order. Shared
// memory: one Work::sums per thread.
template <class Work>
__global__ void __launch_bounds__(k_column_threads) fold_kernel(const __grid_constant__ fold_arguments a) {
  using sums = typename Work::sums;
  auto* const chains = reinterpret_cast<sums*>(arch::shared_memory());
  const int thread = static_cast<int>(a.mirrored ? k_column_threads - 1 - threadIdx.x : threadIdx.x);
  const int column = static_cast<int>(a.mirrored ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  const auto* const parts = static_cast<const sums*>(a.parts);
  sums own = Work::none();
  for (int strip = thread; strip < a.strips; strip += k_column_threads) Work::add(own, parts[std::int64_t{strip} * a.columns + column]);
  chains[thread] = own;
  __syncthreads();  // the accumulators are stored
  if (thread != 0) return;
  const int used = a.strips < k_column_threads ? a.strips : k_column_threads;
  for (int i = 1; i < used; ++i) Work::add(own, chains[i]);
  static_cast<sums*>(a.sums)[column] = own;
}

// Finds the lowest row of one column whose value is invalid.
template <class T, bool Half>
__global__ void __launch_bounds__(k_column_threads) find_kernel(const __grid_constant__ find_arguments<T> a) {
  for (std::int64_t row = std::int64_t{blockIdx.x} * k_column_threads + threadIdx.x; row < a.given.m;
       row += std::int64_t{gridDim.x} * k_column_threads) {
    const T x = given_value<Half>(a.given, row, a.column);
    if (x - x == 0 && !(a.weights && x < 0)) continue;
    atomicAdd(&a.found->failures, 1ull);
    atomicMax(&a.found->first_inverse, ~static_cast<unsigned long long>(row));
    return;
  }
}

}  // namespace ballast::kmeans::cuda
