// The state of the search for the largest score of a row, and the codes that identify columns.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
#pragma once

#include "cuda/arch/wgmma.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/assign/centroid_stage.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/layout/operand.cuh"

namespace ballast::kmeans::cuda {

using ballast::cuda::index;

// In f32 the four lanes of a row share its largest score so far. Each lane identifies those of its columns whose scores are near it by one
// sum per group of tiles, to which each near column adds its number: k_factor · (k_first + 4i + 2v) for column v of tile i. So the sum of
// one column identifies it, and is smaller than the sum of any two. k_factor is prime, and the number it is multiplied by is odd. So a sum
// with a flipped bit, or to which a column was added with a corrupted factor instead of 1, is not a multiple of k_factor, and identifies no
// column.
// The code of a column is that sum plus k_factor · 4 · (number of tiles before its group), modulo 2^32; 0: no column.
inline constexpr int k_most_group_tiles = 16;
inline constexpr std::uint32_t k_factor = 2729, k_first = 65;
static_assert(2 * k_first > k_first + 4 * (k_most_group_tiles - 1) + 2);
static_assert(k_factor * (2 * k_most_group_tiles * k_first + 2 * k_most_group_tiles * (2 * k_most_group_tiles - 1)) < 1u << 23);
BALLAST_HD constexpr std::uint32_t near_number(int i, int v) {
  return k_factor * (k_first + 4 * static_cast<std::uint32_t>(i) + 2 * static_cast<std::uint32_t>(v));
}
// Returns 1 / k_factor modulo 2^32: each step doubles the number of correct bits.
BALLAST_HD constexpr std::uint32_t inverse_factor() {
  std::uint32_t made = k_factor;
  for (int step = 0; step < 5; ++step) made *= 2 - k_factor * made;
  return made;
}
static_assert(inverse_factor() * k_factor == 1);
// Returns the column of lane t that a code identifies; negative or after the last column if `code` is not a code.
BALLAST_HD constexpr int column_of_code(std::uint32_t code, int t) {
  const std::uint32_t number = code * inverse_factor() - k_first;
  const std::uint32_t column = number / 4 * k_tile_columns + number / 2 % 2 + 2 * static_cast<std::uint32_t>(t);
  return number % 2 == 0 && number < 0x20000000u ? static_cast<int>(column) : -1;
}

// Scores are compared by min(1, max(0, k_steep · (a − b))), which is 1 if a > b, else 0: one multiply-add with saturation. Multipliers have
// twice the throughput of the units that compare. The result is exact if |a − b| is 0 or at least 1 / k_steep, which always holds if one of
// the two is at least k_comparable.
inline constexpr float k_steep = 0x1p90f;
inline constexpr float k_comparable = 0x1p-60f;

// Bounds the error of the score of a centroid c that can be the nearest of a row: slope · ‖c‖, with ‖c‖ ≤ `reach`.
template <class T>
struct score_error {
  T slope, reach;

  __device__ __forceinline__ score_error(const score_bound<T>& bound, T square, T rounding) {
    const T norm = norm_above(square);
    reach = min(bound.largest, 2 * norm + bound.smallest);
    slope = fma(bound.product, norm + rounding, rounding) + bound.sum * (norm + reach);
  }
  __device__ __forceinline__ T most() const { return slope * reach; }
};

// f32: error bounds of the scores of a lane's rows.
template <class T, int Rows>
struct row_errors {
  T spread[Rows];  // a score lower than the best by more than this cannot belong to the nearest centroid
  T slope[Rows];   // score_error
  T reach;         // the larger score_error::reach of both rows
};

// The search state of a lane for one of its rows. The four lanes of a row see different columns.
template <class T>
struct row_search;
template <>
struct row_search<float> {
  float best;                         // over all four lanes: the largest score so far (with own errors, the largest lower end)
  float twin;                         // the same from an independent chain of comparisons
  float upper;                        // upper bound of the scores of the lane's near columns, including their errors
  float since;                        // the value of `best` when the oldest of the lane's near columns was recorded
  std::uint32_t named[k_most_named];  // codes of the lane's near columns, the newest first
  std::uint32_t more;                 // not 0: there are more near columns than `named` holds
  std::uint32_t wrong;                // not 0: the two chains, or the thresholds of two lanes, differed in some group
  float sum;                          // Σ w · score of the section
};
template <>
struct row_search<double> {
  double first, twin;  // the largest score and its column, from two chains of comparisons
  int first_index, twin_index;
  double sum;  // Σ w · score of the section
};

template <class T>
BALLAST_HD constexpr T lowest_score() {
  return sizeof(T) == 4 ? static_cast<T>(-3e38) : static_cast<T>(-1e308);
}

}  // namespace ballast::kmeans::cuda
