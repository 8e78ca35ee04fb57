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
// written as (row e / lanes, column e % lanes). With rows_first another thread reads it, and it passes through shared memory. So do the
// elements in operand format: words of two adjacent ones are written in the order of memory. Shared memory: the tile, with one padding
// element per row or column.
template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    normalize_kernel(const __grid_constant__ ballast::cuda::kernel_launch<normalize_arguments<T>, Injector> given) {
  const normalize_arguments<T>& a = given.arguments;
  T* const tile = reinterpret_cast<T*>(arch::shared_memory());
  const int thread = static_cast<int>(threadIdx.x);
  static_assert(k_row_threads * k_normalize_elements == 1 << k_normalize_bits);
  // Shifts: a division by a number that the compiler does not know takes more instructions than all else for an element.
  const int lane_bits = __ffs(a.lanes) - 1, row_bits = k_normalize_bits - lane_bits, rows = 1 << row_bits;
  const auto row_of = [&](int e) { return e >> lane_bits; };
  const auto column_of = [&](int e) { return e & (a.lanes - 1); };
  const auto tiles = static_cast<unsigned>(a.stride / a.lanes);
  const std::int64_t first = std::int64_t{blockIdx.x / tiles} * rows;
  const int column = static_cast<int>(blockIdx.x % tiles) * a.lanes;
  T x[k_normalize_elements];
#pragma unroll
  for (int i = 0; i < k_normalize_elements; ++i) {
    const int e = i * k_row_threads + thread;
    const int r = a.rows_first ? e & (rows - 1) : row_of(e);
    const int c = a.rows_first ? e >> row_bits : column_of(e);
    const bool there = first + r < a.given.m && column + c < a.given.n;
    x[i] = there ? compute_x<Half>(a.given, first + r, column + c) : T(0);
  }
  if (a.rows_first) {
    for (int i = 0; i < k_normalize_elements; ++i) {
      const int e = i * k_row_threads + thread;
      tile[(e >> row_bits) * (rows + 1) + (e & (rows - 1))] = x[i];
    }
    __syncthreads();  // the tile is stored
    for (int i = 0; i < k_normalize_elements; ++i) {
      const int e = i * k_row_threads + thread;
      x[i] = tile[column_of(e) * (rows + 1) + row_of(e)];
    }
    __syncthreads();  // the tile is read
  }
  given.strike(ballast::cuda::index<k_normalize_elements>{}, site::points,
               {std::int64_t{blockIdx.x}, std::int64_t{gridDim.x}, 1, 2, thread, k_row_threads}, x);
  for (int i = 0; i < k_normalize_elements; ++i) {
    const int e = i * k_row_threads + thread;
    const std::int64_t row = first + row_of(e);
    if constexpr (sizeof(T) == 4) tile[row_of(e) * (a.lanes + 1) + column_of(e)] = x[i];
    if (row < a.given.m) a.x[row * a.stride + column + column_of(e)] = x[i];
  }
  if constexpr (sizeof(T) == 4) {
    __syncthreads();  // the tile is stored
    auto* const words = reinterpret_cast<std::uint32_t*>(a.operand);
    for (int w = thread; w < k_row_threads * k_normalize_elements / 2; w += k_row_threads) {
      const operand_place at = operand_place_of(2 * w, row_bits);
      if (first + at.row >= a.given.m) continue;
      const T* const pair = tile + at.row * (a.lanes + 1) + at.feature;
      words[operand_index(first + at.row, column + at.feature, a.stride) / 2] = as_operand(pair[0]) | std::uint32_t{as_operand(pair[1])}
                                                                                                          << 16;
    }
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

// Returns Σ_w multiplier(w) · word w of a column; multiplier(w): signature_weight.
template <int Words, class T, class Multiplier>
__device__ __forceinline__ std::uint64_t word_signature(const normalized_points<T>& p, int column, T product, T rest,
                                                        Multiplier&& multiplier) {
  std::int32_t word[Words];
  const T unit = p.unit[column];
  if (p.columns == p.n) {
    split<Words>(product, unit, word);
  } else {
    split<Words>(product, rest, unit, word);
  }
  std::uint64_t sum = 0;
  for (int w = 0; w < Words; ++w) sum += multiplier(w) * static_cast<std::uint64_t>(std::int64_t{word[w]});
  return sum;
}

// Accumulates the statistics of a row, feature by feature.
template <int Words, class T>
class row_accumulator {
 public:
  __device__ __forceinline__ row_accumulator(const normalized_points<T>& p, T weight)
      : points_(p), weight_(weight), weighted_(p.columns > p.n) {}
  // `multipliers`: signature_weight of the words of feature f.
  __device__ __forceinline__ void add(int f, T value, const std::uint64_t* multipliers) {
    const T product = weighted_ ? rounded_product(weight_, value) : value;
    signature_ += word_signature<Words>(points_, f, product, weighted_ ? product_rest(weight_, value, product) : T(0),
                                        [&](int w) { return multipliers[w]; });
    norm_.add(value);
    const T rounded = multiplied(value);
    projection_.add_product(rounded, points_.direction[f]);
    const double off = static_cast<double>(value) - static_cast<double>(rounded);
    cut_ = __fma_rn(off, off, cut_);
  }
  __device__ __forceinline__ row_statistics<T> made() {
    if (weighted_)
      signature_ += word_signature<Words>(points_, points_.n, weight_, T(0), [&](int w) { return signature_weight(points_.n, w); });
    const double square = norm_.value();
    return {signature_, square, static_cast<T>(square), static_cast<T>(sqrt(cut_) * (1 + 0x1p-20)), static_cast<T>(projection_.value())};
  }

 private:
  const normalized_points<T>& points_;
  T weight_;
  bool weighted_;
  std::uint64_t signature_ = 0;
  square_sum<T> norm_, projection_;
  double cut_ = 0;
};

// The rows of a block pass through shared memory, k_tile_features features at a time: a warp loads 128 bytes of a row, and a thread reads
// its row from there. One padding element per row keeps 32 rows in different banks.
template <class T>
inline constexpr int k_tile_features = static_cast<int>(128 / sizeof(T));
template <class T>
inline constexpr int k_tile_stride = k_tile_features<T> + 1;

// A column_sums as words.
struct sum_words {
  std::uint64_t at[sizeof(column_sums) / sizeof(std::uint64_t)];
};
// Adds word number `word` of a column_sums.
__device__ __forceinline__ std::uint64_t add_word(int word, std::uint64_t to, std::uint64_t more) {
  if (word >= 4) return to + more;
  const double a = ballast::cuda::from_bits<double>(to), b = ballast::cuda::from_bits<double>(more);
  return ballast::cuda::bits(word == 0 ? (b > a ? b : a) : a + b);
}

// Stores value(r, f) for r < rows and f < features at tile[r · k_tile_stride + f]. `rows_first`: neighbouring threads load neighbouring
// rows. `mirrored`: other threads load the same elements. Called by the block.
template <class T, class Value>
__device__ __forceinline__ void load_tile(T* tile, int rows, int features, bool rows_first, bool mirrored, Value&& value) {
  constexpr int together = 8;
  const int thread = static_cast<int>(mirrored ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  // place(step, r, f): the row and the feature of the element that this thread loads in one of 2^bits steps. all: every feature is there.
  const auto load = [&](int bits, bool all, auto&& place) {
#pragma unroll 1
    for (int begin = 0; begin < 1 << bits; begin += together) {
      T own[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        int r = 0, f = 0;
        place(begin + i, r, f);
        if (r < rows && (all || f < features)) own[i] = value(r, f);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        int r = 0, f = 0;
        place(begin + i, r, f);
        if (r < rows && (all || f < features)) tile[r * k_tile_stride<T> + f] = own[i];
      }
    }
  };
  if (features == k_tile_features<T> && !rows_first) {
    // Each thread has one feature of rows at a constant distance: addresses are sums.
    constexpr int bits = sizeof(T) == 4 ? 5 : 4, apart = k_row_threads >> bits;
    static_assert(1 << bits == k_tile_features<T>);
    const int own_row = thread >> bits, own_feature = thread & (k_tile_features<T> - 1);
    return load(bits, true, [&](int step, int& r, int& f) { r = own_row + step * apart, f = own_feature; });
  }
  int bits = 0;  // 2^bits: threads that load neighbouring features
  while (1 << bits < features) ++bits;
  load(bits, false, [&](int step, int& r, int& f) {
    const int e = step * k_row_threads + thread;
    r = rows_first ? e & (k_row_threads - 1) : e >> bits;
    f = rows_first ? e / k_row_threads : e & ((1 << bits) - 1);
  });
}

// Calls use(begin, count) for each tile of a block's rows, as load_tile stores it: features `begin` to begin + count − 1 of `features`.
// `multipliers` then has their signature_weight, Words for each. Called by the block.
template <int Words, class T, class Value, class Use>
__device__ __forceinline__ void each_tile(T* tile, std::uint64_t* multipliers, int rows, int features, bool rows_first, bool mirrored,
                                          Value&& value, Use&& use) {
  static_assert(k_tile_features<T> * Words <= k_row_threads);
  const int thread = static_cast<int>(mirrored ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
#pragma unroll 1
  for (int begin = 0; begin < features; begin += k_tile_features<T>) {
    const int count = min(k_tile_features<T>, features - begin);
    load_tile(tile, rows, count, rows_first, mirrored, [&](int r, int f) { return value(r, begin + f); });
    if (thread < k_tile_features<T> * Words) multipliers[thread] = signature_weight(begin + thread / Words, thread % Words);
    __syncthreads();  // the tile is stored
    use(begin, count);
    __syncthreads();  // the tile is read
  }
}

// Adds the columns of a tile up, whose first is `column`, and calls use(column, word, sum) for each 64-bit word of their column_sums. A
// group of threads adds some rows of a column; another thread adds the groups in order, for each word. `weights`: of the rows, in shared
// memory; null: all 1. `of_weights`: the tile has the weights of the rows themselves, in its first column. strike(thread, sums): on the
// sums of a thread. Called by the block; the tile is overwritten.
template <int Words, class T, class Strike, class Use>
__device__ __forceinline__ void add_columns(const normalized_points<T>& p, T* tile, const T* weights, bool of_weights, int rows, int column,
                                            int count, bool mirrored, Strike&& strike, Use&& use) {
  constexpr int lanes = k_tile_features<T>, groups = k_row_threads / lanes, each = k_row_threads / groups;
  constexpr int words = sizeof(column_sums) / sizeof(std::uint64_t);
  static_assert(groups >= words && groups * lanes * sizeof(column_sums) <= sizeof(T) * k_row_threads * k_tile_stride<T>);
  const int thread = static_cast<int>(mirrored ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  const int c = thread % lanes, g = thread / lanes;
  column_sums own = sums_work::none();
  if (c < count) {
    const T unit = load_again(p.unit + column + c);
    for (int r = g * each; r < min(rows, (g + 1) * each); ++r) {
      const T value = tile[r * k_tile_stride<T> + c];
      const T x = of_weights ? T(0) : value;
      const T product = weights == nullptr || of_weights ? value : rounded_product(weights[r], x);
      const T rest = weights == nullptr || of_weights ? T(0) : product_rest(weights[r], x, product);
      sums_work::visit<Words>(x, product, rest, p.columns > p.n, unit, own);
    }
  }
  strike(thread, own);
  __syncthreads();                                             // the tile is read
  auto* const parts = reinterpret_cast<std::uint64_t*>(tile);  // [word][group][column]
  const auto all = __builtin_bit_cast(sum_words, own);
#pragma unroll
  for (int w = 0; w < words; ++w) parts[(w * groups + g) * lanes + c] = all.at[w];
  __syncthreads();  // the sums are stored
  if (g >= words || c >= count) return;
  const std::uint64_t* const mine = parts + g * groups * lanes + c;
  std::uint64_t sum = mine[0];
  for (int i = 1; i < groups; ++i) sum = add_word(g, sum, mine[i * lanes]);
  use(column + c, g, sum);
}

inline constexpr int k_row_bits = 8;
static_assert(k_row_threads == 1 << k_row_bits);
// Flags the rows whose numbers in operand format are not those of the tile, features `begin` and later. Called by the block.
__device__ __forceinline__ void compare_operands(const normalized_points<float>& p, std::int64_t first, int rows, const float* tile,
                                                 int begin, int count, row_flags& flags) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(p.operand);
  for (int w = static_cast<int>(threadIdx.x); w < k_row_threads * count / 2; w += k_row_threads) {
    const operand_place at = operand_place_of(2 * w, k_row_bits);
    if (at.row >= rows) continue;
    const float* const pair = tile + at.row * k_tile_stride<float> + at.feature;
    const std::uint32_t expected = as_operand(pair[0]) | std::uint32_t{as_operand(pair[1])} << 16;
    if (load_again(words + operand_index(first + at.row, begin + at.feature, p.stride) / 2) != expected)
      flag(flags, p.first + first + at.row);
  }
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

// Computes the row statistics, and the sums of the columns over the rows of the block. Thread t computes the statistics of row t of its
// block from the given points, unless they are known. With `check`, thread T − 1 − t computes them again from the stored x; they must be
// equal bit for bit, and the padding must be 0. So must the sums, which are kept twice and compared after they were folded. Shared memory:
// the statistics of each thread's row, their squares again, and the sums over them; signature_weight of the features of a tile; the weights
// of the rows; a tile of the rows.
template <class T, int Words, bool Half, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    row_stats_kernel(const __grid_constant__ ballast::cuda::kernel_launch<row_stats_arguments<T>, Injector> given) {
  const row_stats_arguments<T>& a = given.arguments;
  const normalized_points<T>& p = a.normalized;
  auto* const made = reinterpret_cast<row_statistics<T>*>(arch::shared_memory());
  auto* const sums = reinterpret_cast<block_squares*>(made + k_row_threads);
  auto* const squares = reinterpret_cast<double*>(sums + 2);  // computed from x
  auto* const multipliers = reinterpret_cast<std::uint64_t*>(squares + k_row_threads);
  T* const weights = reinterpret_cast<T*>(multipliers + 2 * k_tile_features<T>);
  T* const tile = weights + k_row_threads;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_row_threads;
  const int rows = static_cast<int>(min(a.given.m - first, static_cast<std::int64_t>(k_row_threads)));
  const bool weighted = a.given.weights != nullptr;
  const T* const row_weights = weighted ? weights : nullptr;
  // Adds the columns of the tile, and those of the weights after the last feature.
  const auto add = [&](int begin, int count, bool again) {
    const auto strike = [&](int by, column_sums& own) {
      if (!again && begin == 0)
        given.strike(ballast::cuda::index<1>{}, site::points, {blockIdx.x, gridDim.x, 1, 2, by, k_row_threads}, &own.squares);
    };
    const auto use = [&](int column, int word, std::uint64_t sum) {
      column_sums* const to = (again ? a.columns_again : a.columns) + (blockIdx.x * std::int64_t{p.columns} + column);
      reinterpret_cast<std::uint64_t*>(to)[word] = sum;
    };
    const int features = min(count, p.n - begin);
    add_columns<Words>(p, tile, row_weights, false, rows, begin, features, again, strike, use);
    if (!weighted || begin + count < (again ? p.stride : p.n)) return;
    __syncthreads();  // the sums are read
    if (thread < rows) tile[thread * k_tile_stride<T>] = weights[thread];
    __syncthreads();  // the weights are stored
    add_columns<Words>(
        p, tile, row_weights, true, rows, p.n, 1, again, [](int, column_sums&) {}, use);
  };
  if (!a.known) {
    const T weight = weighted && thread < rows ? compute_weight(a.given, first + thread) : T(1);
    weights[thread] = weight;
    row_accumulator<Words, T> own(p, weight);
    each_tile<Words>(
        tile, multipliers, rows, p.n, a.rows_first, false, [&](int r, int f) { return compute_x<Half>(a.given, first + r, f); },
        [&](int begin, int count) {
          for (int f = 0; thread < rows && f < count; ++f) own.add(begin + f, tile[thread * k_tile_stride<T> + f], multipliers + f * Words);
          add(begin, count, false);
        });
    if (thread < rows) {
      row_statistics<T> row_stats = own.made();
      given.strike(ballast::cuda::index<1>{}, site::points, {blockIdx.x, gridDim.x, 1, 2, thread, rows}, &row_stats.norm);
      made[thread] = row_stats;
      a.signature[first + thread] = row_stats.signature;
      a.norm[first + thread] = row_stats.norm;
      a.rounding[first + thread] = row_stats.rounding;
      a.projection[first + thread] = row_stats.projection;
    }
  }
  __syncthreads();  // the row statistics are stored
  const int other = k_row_threads - 1 - thread;
  if (a.check) {
    const std::int64_t row = first + other;
    const T weight = weighted && other < rows ? load_again(p.weight + row) : T(1);
    weights[other] = weight;
    row_accumulator<Words, T> own(p, weight);
    bool right = true;
    each_tile<Words>(
        tile, multipliers, rows, p.stride, false, true, [&](int r, int f) { return load_again(p.x + (first + r) * p.stride + f); },
        [&](int begin, int count) {
          const T* const x = tile + other * k_tile_stride<T>;
          for (int f = 0; other < rows && f < count; ++f) {
            if (begin + f < p.n) {
              own.add(begin + f, x[f], multipliers + f * Words);
            } else {
              right = right && x[f] == 0;
            }
          }
          if constexpr (sizeof(T) == 4) compare_operands(p, first, rows, tile, begin, count, *a.flags);
          if (!a.known) add(begin, count, true);
        });
    if (other < rows) {
      const row_statistics<T> again = own.made();
      right = right && again.signature == load_again(a.signature + row) && alike(again.norm, load_again(a.norm + row)) &&
              alike(again.rounding, load_again(a.rounding + row)) && alike(again.projection, load_again(a.projection + row));
      if (!right) flag(*a.flags, p.first + row);
      squares[other] = again.square;
    }
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
        [&](int i) { return weighted ? static_cast<double>(load_again(p.weight + first + i)) : 1.0; });
    if (thread == 32) sums[1] = sum;
  }
  __syncthreads();  // the sums are stored
  if (thread == 64 && a.check &&
      !(alike(sums[0].square, sums[1].square) && alike(sums[0].weighted, sums[1].weighted) && alike(sums[0].largest, sums[1].largest)))
    flag(*a.flags, p.first + first);
}

// Reads single rows, one element per thread: the first half of the blocks from the normalized points, the second half from the given
// points.
template <class T, bool Half>
__global__ void __launch_bounds__(k_row_threads) gather_kernel(const __grid_constant__ gather_arguments<T> a) {
  const std::int64_t blocks = (a.count * a.given.n + k_row_threads - 1) / k_row_threads;
  const bool again = static_cast<std::int64_t>(blockIdx.x) >= blocks;
  const std::int64_t block = again ? 2 * blocks - 1 - static_cast<std::int64_t>(blockIdx.x) : static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t e = block * k_row_threads + (again ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  if (e >= a.count * a.given.n) return;
  const std::int64_t row = a.rows[e / a.given.n];
  const int f = static_cast<int>(e % a.given.n);
  if (again) {
    a.again[e] = compute_x<Half>(a.given, row, f);
  } else {
    a.to[e] = a.x[row * a.stride + f];
  }
}

}  // namespace ballast::kmeans::cuda
