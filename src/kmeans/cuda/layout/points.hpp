// The points of a call as the kernels read them: brought into the frame once, with facts about each row that were computed on another way.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::kmeans::cuda {

// Numbers in one load of 16 bytes; features in a slab, which is what four lanes load together and what rows are padded to.
template <class T>
inline constexpr int k_vector = static_cast<int>(16 / sizeof(T));
template <class T>
inline constexpr int k_slab = 4 * k_vector<T>;

template <class T>
BALLAST_HD constexpr std::int64_t padded_features(std::int64_t n) {
  return (n + k_slab<T> - 1) / k_slab<T> * k_slab<T>;
}

// A number as tensor cores take it: the bits of a half for f32 (operand.cuh).
template <class T>
struct operand_number {
  using type = T;
};
template <>
struct operand_number<float> {
  using type = std::uint16_t;
};
template <class T>
using operand_of = typename operand_number<T>::type;

// Where feature f of row i lies in placed_points::operand: by blocks of 128 rows, in these slab by slab, in a slab tile by tile of 16 rows.
// So the same slabs of all rows of a block are together, for one bulk copy. In a slab of a tile, lane 4g + t has 16 bytes, the features 4t
// … 4t + 3 of rows g and g + 8 in the order of the instruction's registers, so a warp loads a slab of its rows at once.
inline constexpr int k_operand_rows = 16;     // of a tile
inline constexpr int k_operand_block = 128;   // rows
inline constexpr int k_operand_numbers = 16;  // of a row in a slab: f32's
BALLAST_HD constexpr std::int64_t operand_place(std::int64_t i, int f, int stride) {
  const auto r = static_cast<int>(i % k_operand_rows), c = f % k_operand_numbers;
  const auto tile = static_cast<int>(i % k_operand_block / k_operand_rows);
  const int lane = r % 8 * 4 + c / 4, word = r / 8 + c % 4 / 2 * 2;
  const int slab = f / k_operand_numbers * k_operand_block + tile * k_operand_rows;  // in front of this one, in rows of it
  return i / k_operand_block * k_operand_block * stride + slab * k_operand_numbers + lane * 8 + word * 2 + c % 2;
}
// Bytes of a number there: none in f64.
template <class T>
inline constexpr std::int64_t operand_bytes = sizeof(T) == 4 ? sizeof(operand_of<T>) : 0;
// Rows of whole blocks: behind them, memory of rows in the frame is set to 0 before it is filled.
BALLAST_HD constexpr std::int64_t whole_block_rows(std::int64_t m) { return m / k_operand_block * k_operand_block; }

// Rows that are allocated and 0 behind the last point, so that kernels need not look where the points end before they load.
inline constexpr std::int64_t k_row_block = 3072;  // a multiple of what blocks of 4, 8, 12 and 16 warps work on, and of k_operand_block
// Kernels number rows, also those behind the last one, in 32 bits. 2^31 rows are 128 GiB in the frame alone.
inline constexpr std::int64_t k_most_rows = 0x7fffffff - 2 * k_row_block;
BALLAST_HD constexpr std::int64_t padded_rows(std::int64_t m) { return (m + k_row_block - 1) / k_row_block * k_row_block; }

// Device memory. Made by prepare (prepare.cuh) and constant over all iterations. Arrays of m have padded_rows(m) elements.
// x and the facts come from two separate loads of the given points, in different threads: a fault in one shows against the other.
template <class T>
struct placed_points {
  const T* x;                      // m × stride, row-major, in the frame (contract.hpp), 0 behind feature n
  const operand_of<T>* operand;    // f32: x as tensor cores take it, m × stride in the order of operand_place. f64: null
  const T* weight;                 // m, in the frame; null: all 1
  const T* norm;                   // m: ‖x‖², rounded once
  const T* rounding;               // m: ‖x − multiplied(x)‖ (operand.cuh), or a little more
  const T* projection;             // m: Σ_f multiplied(x_f) · direction_f, rounded once
  const std::uint64_t* signature;  // m: Σ_c Σ_w signature_weight(c, w) · word w of column c, modulo 2^64 (fixed.hpp)
  const T* unit;                   // stride + 1: powers of two for the columns; 1 for the rest
  const T* direction;              // stride: random ±[1, 2) with 8 bits behind the point, 0 behind feature n
  std::int64_t m;
  std::int64_t first = 0;  // number of row 0 among all points of the call
  int n;
  int stride;   // padded_features(n)
  int columns;  // of the sums: n; n + 1 with weights: the products w · x, then w
  int words;    // of a sum: 1 or 2
};

}  // namespace ballast::kmeans::cuda
