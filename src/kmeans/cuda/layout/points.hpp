// The points of a call in the layout that kernels read: normalized once, with row statistics that were computed from a separate load.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::kmeans::cuda {

// k_vector: numbers per 16-byte load. k_slice: features per k-slice, which four lanes load together; rows are padded to whole k-slices.
template <class T>
inline constexpr int k_vector = static_cast<int>(16 / sizeof(T));
template <class T>
inline constexpr int k_slice = 4 * k_vector<T>;

template <class T>
BALLAST_HD constexpr std::int64_t padded_features(std::int64_t n) {
  return (n + k_slice<T> - 1) / k_slice<T> * k_slice<T>;
}

// The number format of tensor-core operands: for f32 the bits of a half (operand.cuh).
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

// Returns the position of feature f of row i in normalized_points::operand: blocks of 128 rows; in these k-slice by k-slice; in a k-slice
// tile by tile of 16 rows. So the k-slices of all rows of a block are contiguous, for one bulk copy. In a k-slice of a tile, lane 4g + t
// has 16 bytes: the features 4t … 4t + 3 of rows g and g + 8 in the order of the instruction's registers. So a warp loads a k-slice of its
// rows in one load.
inline constexpr int k_operand_rows = 16;     // per tile
inline constexpr int k_operand_block = 128;   // rows
inline constexpr int k_operand_numbers = 16;  // features per row and k-slice of f32
BALLAST_HD constexpr std::int64_t operand_index(std::int64_t i, int f, int stride) {
  // Without signs these divisions are shifts; and there are fewer than 2^32 rows (k_most_rows).
  const auto row = static_cast<std::uint32_t>(i), column = static_cast<std::uint32_t>(f);
  const std::uint32_t r = row % k_operand_rows, c = column % k_operand_numbers, tile = row % k_operand_block / k_operand_rows;
  const std::uint32_t lane = r % 8 * 4 + c / 4, word = r / 8 + c % 4 / 2 * 2;
  // Before this k-slice of this tile, in rows of a k-slice.
  const std::uint32_t slice = column / k_operand_numbers * k_operand_block + tile * k_operand_rows;
  return std::int64_t{row / k_operand_block * k_operand_block} * stride + slice * k_operand_numbers + lane * 8 + word * 2 + c % 2;
}

// The place of number `e` of the tiles of 16 rows in a slab of 2^row_bits rows, 16 or more, in the order of operand_index: k-slice by
// k-slice. `feature`: from the first of the slab on.
struct operand_place {
  int row, feature;
};
BALLAST_HD constexpr operand_place operand_place_of(int e, int row_bits) {
  constexpr std::uint32_t in_all = k_operand_rows * k_operand_numbers;  // numbers of a k-slice of a tile
  const auto number = static_cast<std::uint32_t>(e), in_slab = std::uint32_t{k_operand_numbers} << row_bits;
  const std::uint32_t slice = number / k_operand_numbers >> row_bits, in_slice = number & (in_slab - 1);
  const std::uint32_t tile = in_slice / in_all, in_tile = in_slice % in_all;
  const std::uint32_t lane = in_tile / 8, word = in_tile % 8 / 2;
  return {static_cast<int>(tile * k_operand_rows + lane / 4 + word % 2 * 8),
          static_cast<int>(slice * k_operand_numbers + lane % 4 * 4 + word / 2 * 2 + in_tile % 2)};
}
// Bytes per number in normalized_points::operand: none in f64.
template <class T>
inline constexpr std::int64_t operand_bytes = sizeof(T) == 4 ? sizeof(operand_of<T>) : 0;
// Returns the number of rows in whole blocks. Memory for normalized rows after these is set to 0 before it is filled.
BALLAST_HD constexpr std::int64_t whole_block_rows(std::int64_t m) { return m / k_operand_block * k_operand_block; }

// Rows are allocated in multiples of k_row_block and are 0 after the last point, so that kernels need no bounds checks before loads.
inline constexpr std::int64_t k_row_block = 3072;  // a multiple of k_operand_block and of the rows of blocks of 4, 8, 12 and 16 warps
// Kernels index rows, including the padding rows, with 32 bits. 2^31 rows are 128 GiB of normalized points alone.
inline constexpr std::int64_t k_most_rows = 0x7fffffff - 2 * k_row_block;
BALLAST_HD constexpr std::int64_t padded_rows(std::int64_t m) { return (m + k_row_block - 1) / k_row_block * k_row_block; }

// The normalized points, in device memory: computed by prepare (engine/prepare.cpp), constant over all iterations. Arrays of m have
// padded_rows(m) elements. x and the row statistics are computed from two separate loads of the given points in different threads, so a
// fault in one load shows as a difference from the other.
template <class T>
struct normalized_points {
  const T* x;                      // m × stride, row-major, normalized (contract.hpp), 0 from feature n on
  const operand_of<T>* operand;    // f32: x in operand format, m × stride, in the order of operand_index. f64: null
  const T* weight;                 // m, normalized; null: all 1
  const T* norm;                   // m: ‖x‖², rounded once
  const T* rounding;               // m: ‖x − multiplied(x)‖ (operand.cuh), or slightly more
  const T* projection;             // m: Σ_f multiplied(x_f) · direction_f, rounded once
  const std::uint64_t* signature;  // m: Σ_c Σ_w signature_weight(c, w) · word w of column c, modulo 2^64 (fixed.hpp)
  const T* unit;                   // stride + 1: powers of two for the columns; 1 in the unused elements
  const T* direction;              // stride: random ±[1, 2) with 8 bits after the binary point, 0 from feature n on
  std::int64_t m;
  std::int64_t first = 0;  // index of row 0 among all points of the call
  int n;
  int stride;   // padded_features(n)
  int columns;  // columns of the sums: n; with weights n + 1: the products w · x, then w
  int words;    // words per sum: 1 or 2
};

}  // namespace ballast::kmeans::cuda
