// Normalizes points and computes the row statistics (points.hpp).
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "kmeans/cuda/normalize/columns.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

__device__ __forceinline__ void flag(row_flags& at, std::int64_t row) {
  atomicAdd(&at.failures, 1ull);
  atomicMax(&at.first_inverse, ~static_cast<unsigned long long>(row));
}

// Returns Σ value(i) for i < count, computed by one warp in an order that depends on count only. All lanes call it; all get the sum.
template <class Value>
__device__ __forceinline__ double sum_by_warp(int count, Value&& value) {
  double sum[1] = {0};
  for (int i = arch::lane(); i < count; i += 32) sum[0] += value(i);
  ballast::cuda::add_lanes<32, 32, 1>(sum);
  return sum[0];
}

// Returns whether a and b are equal or both NaN.
template <class T>
__device__ __forceinline__ bool alike(T a, T b) {
  return a == b || (a != a && b != b);
}

// Computes x = point · scale − shift for a tile of k_row_threads · k_normalize_elements elements, `lanes` columns wide. Element e is
// written as (row e / lanes, column e % lanes). With rows_first another thread reads it, and it passes through shared memory. Shared
// memory: the tile, with one padding element per column.
template <class T, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    normalize_kernel(const __grid_constant__ ballast::cuda::kernel_launch<normalize_arguments<T>, Injector> given) {
  const normalize_arguments<T>& a = given.arguments;
  T* const transposed = reinterpret_cast<T*>(arch::shared_memory());
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = k_row_threads * k_normalize_elements / a.lanes;
  const auto tiles = static_cast<unsigned>(a.stride / a.lanes);
  const std::int64_t first = std::int64_t{blockIdx.x / tiles} * rows;
  const int column = static_cast<int>(blockIdx.x % tiles) * a.lanes;
  T x[k_normalize_elements];
  for (int i = 0; i < k_normalize_elements; ++i) {
    const int e = i * k_row_threads + thread;
    const int r = a.rows_first ? e % rows : e / a.lanes;
    const int c = a.rows_first ? e / rows : e % a.lanes;
    const bool there = first + r < a.given.m && column + c < a.given.n;
    x[i] = there ? compute_x(a.given, first + r, column + c) : T(0);
    if (a.rows_first) transposed[c * (rows + 1) + r] = x[i];
  }
  if (a.rows_first) {
    __syncthreads();  // the tile is stored
    for (int i = 0; i < k_normalize_elements; ++i) {
      const int e = i * k_row_threads + thread;
      x[i] = transposed[e % a.lanes * (rows + 1) + e / a.lanes];
    }
  }
  given.strike(ballast::cuda::index<k_normalize_elements>{}, site::points,
               {std::int64_t{blockIdx.x}, std::int64_t{gridDim.x}, 1, 2, thread, k_row_threads}, x);
  for (int i = 0; i < k_normalize_elements; ++i) {
    const int e = i * k_row_threads + thread;
    const std::int64_t row = first + e / a.lanes;
    if (row >= a.given.m) continue;
    a.x[row * a.stride + column + e % a.lanes] = x[i];
    if constexpr (sizeof(T) == 4) a.operand[operand_index(row, column + e % a.lanes, a.stride)] = as_operand(x[i]);
  }
  if (a.weight == nullptr || column != 0) return;
  for (int r = thread; r < rows && first + r < a.given.m; r += k_row_threads) a.weight[first + r] = compute_weight(a.given, first + r);
}

// Accumulates Σ x² in double; for doubles it also accumulates the rounding errors of the sum.
template <class T>
struct square_sum {
  double sum = 0, rest = 0;
  __device__ __forceinline__ void add(float x) { sum = __fma_rn(static_cast<double>(x), static_cast<double>(x), sum); }
  __device__ __forceinline__ void add(double x) { add_product(x, x); }
  __device__ __forceinline__ void add_product(float x, float y) { sum = __fma_rn(static_cast<double>(x), static_cast<double>(y), sum); }
  __device__ __forceinline__ void add_product(double x, double y) {
    const double product = __dmul_rn(x, y);
    const double next = __dadd_rn(sum, product);
    const double part = __dsub_rn(next, sum);
    rest += __dadd_rn(__dsub_rn(sum, __dsub_rn(next, part)), __dsub_rn(product, part)) + __fma_rn(x, y, -product);
    sum = next;
  }
  __device__ __forceinline__ double value() const { return sum + rest; }
};

template <int Words, class T>
__device__ __forceinline__ std::uint64_t word_signature(const normalized_points<T>& p, int column, T product, T rest) {
  std::int32_t word[Words];
  const T unit = p.unit[column];
  if (p.columns == p.n) {
    split<Words>(product, unit, word);
  } else {
    split<Words>(product, rest, unit, word);
  }
  std::uint64_t sum = 0;
  for (int w = 0; w < Words; ++w) sum += signature_weight(column, w) * static_cast<std::uint64_t>(std::int64_t{word[w]});
  return sum;
}

// Computes the statistics of a row whose feature f is x(f).
template <int Words, class T, class Feature>
__device__ __forceinline__ row_statistics<T> row_stats_of(const normalized_points<T>& p, T weight, Feature&& x) {
  const bool weighted = p.columns > p.n;
  row_statistics<T> made{0, 0, T(0), T(0), T(0)};
  square_sum<T> norm, projection;
  double cut = 0;
  for (int f = 0; f < p.n; ++f) {
    const T value = x(f);
    const T product = weighted ? rounded_product(weight, value) : value;
    made.signature += word_signature<Words>(p, f, product, weighted ? product_rest(weight, value, product) : T(0));
    norm.add(value);
    const T rounded = multiplied(value);
    projection.add_product(rounded, p.direction[f]);
    const double off = static_cast<double>(value) - static_cast<double>(rounded);
    cut = __fma_rn(off, off, cut);
  }
  if (weighted) made.signature += word_signature<Words>(p, p.n, weight, T(0));
  made.square = norm.value();
  made.norm = static_cast<T>(made.square);
  made.rounding = static_cast<T>(sqrt(cut) * (1 + 0x1p-20));
  made.projection = static_cast<T>(projection.value());
  return made;
}

// Computes the sums over the rows of a block by one warp: square(i) and weight(i) of row i.
template <class Square, class Weight>
__device__ __forceinline__ block_squares add_squares(int rows, Square&& square, Weight&& weight) {
  block_squares made{sum_by_warp(rows, square), sum_by_warp(rows, [&](int i) { return weight(i) * square(i); }), 0};
  for (int i = arch::lane(); i < rows; i += 32) {
    if (made.largest == made.largest && !(square(i) <= made.largest)) made.largest = square(i);
  }
  for (int distance = 1; distance < 32; distance *= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, made.largest, distance);
    if (made.largest == made.largest && !(other <= made.largest)) made.largest = other;
  }
  return made;
}

// Computes the row statistics. Thread t computes those of row t of its block from the given points, unless they are known. With `check`,
// thread T − 1 − t computes them again from the stored x; they must be equal bit for bit, and the padding must be 0. Shared memory: the
// statistics of each thread's row, twice, and the sums over them.
template <class T, int Words, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    row_stats_kernel(const __grid_constant__ ballast::cuda::kernel_launch<row_stats_arguments<T>, Injector> given) {
  const row_stats_arguments<T>& a = given.arguments;
  auto* const made = reinterpret_cast<row_statistics<T>*>(arch::shared_memory());
  auto* const sums = reinterpret_cast<block_squares*>(made + k_row_threads);
  auto* const squares = reinterpret_cast<double*>(sums + 2);  // computed from x
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_row_threads;
  const int rows = static_cast<int>(min(a.given.m - first, static_cast<std::int64_t>(k_row_threads)));
  const bool weighted = a.given.weights != nullptr;
  if (!a.known && thread < rows) {
    const std::int64_t row = first + thread;
    row_statistics<T> row_stats = row_stats_of<Words>(a.normalized, weighted ? compute_weight(a.given, row) : T(1),
                                                      [&](int f) { return compute_x(a.given, row, f); });
    given.strike(ballast::cuda::index<1>{}, site::points, {blockIdx.x, gridDim.x, 1, 2, thread, rows}, &row_stats.norm);
    made[thread] = row_stats;
    a.signature[row] = row_stats.signature;
    a.norm[row] = row_stats.norm;
    a.rounding[row] = row_stats.rounding;
    a.projection[row] = row_stats.projection;
  }
  __syncthreads();  // the row statistics are stored
  const int other = k_row_threads - 1 - thread;
  if (a.check && other < rows) {
    const std::int64_t row = first + other;
    const T* const x = a.normalized.x + row * a.normalized.stride;
    const row_statistics<T> again = row_stats_of<Words>(a.normalized, weighted ? load_again(a.normalized.weight + row) : T(1),
                                                        [&](int f) { return load_again(x + f); });
    bool right = again.signature == load_again(a.signature + row) && alike(again.norm, load_again(a.norm + row)) &&
                 alike(again.rounding, load_again(a.rounding + row)) && alike(again.projection, load_again(a.projection + row));
    for (int f = a.normalized.n; f < a.normalized.stride; ++f) right = right && load_again(x + f) == 0;
    if constexpr (sizeof(T) == 4) {
      for (int f = 0; f < a.normalized.stride; ++f)
        right = right && load_again(a.normalized.operand + operand_index(row, f, a.normalized.stride)) == as_operand(load_again(x + f));
    }
    if (!right) flag(*a.flags, a.normalized.first + row);
    squares[other] = again.square;
  }
  if (a.known) return;
  __syncthreads();  // the squares are stored
  if (thread < 32) {
    const block_squares sum = add_squares(
        rows, [&](int i) { return made[i].square; },
        [&](int i) { return weighted ? static_cast<double>(compute_weight(a.given, first + i)) : 1.0; });
    if (thread == 0) a.squares[blockIdx.x] = sums[0] = sum;
  } else if (thread < 64 && a.check) {
    const block_squares sum = add_squares(
        rows, [&](int i) { return squares[i]; },
        [&](int i) { return weighted ? static_cast<double>(load_again(a.normalized.weight + first + i)) : 1.0; });
    if (thread == 32) sums[1] = sum;
  }
  __syncthreads();  // the sums are stored
  if (thread == 64 && a.check &&
      !(alike(sums[0].square, sums[1].square) && alike(sums[0].weighted, sums[1].weighted) && alike(sums[0].largest, sums[1].largest)))
    flag(*a.flags, a.normalized.first + first);
}

// Reads single rows, one element per thread: the first half of the blocks from the normalized points, the second half from the given
// points.
template <class T>
__global__ void __launch_bounds__(k_row_threads) gather_kernel(const __grid_constant__ gather_arguments<T> a) {
  const std::int64_t blocks = (a.count * a.given.n + k_row_threads - 1) / k_row_threads;
  const bool again = static_cast<std::int64_t>(blockIdx.x) >= blocks;
  const std::int64_t block = again ? 2 * blocks - 1 - static_cast<std::int64_t>(blockIdx.x) : static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t e = block * k_row_threads + (again ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  if (e >= a.count * a.given.n) return;
  const std::int64_t row = a.rows[e / a.given.n];
  const int f = static_cast<int>(e % a.given.n);
  if (again) {
    a.again[e] = compute_x(a.given, row, f);
  } else {
    a.to[e] = a.x[row * a.stride + f];
  }
}

}  // namespace ballast::kmeans::cuda
