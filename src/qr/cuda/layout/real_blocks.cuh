// Complex matrices as real ones: x + iy is the block [x −y; y x], rows and columns 2 i, 2 i + 1 of the real matrix for row and column i of
// the complex one. Sums, products, inverses, Cholesky factors and conjugate transposes (then transposes) of these are what they are of the
// complex matrices, so that kernels for real numbers compute them. Row 2 i has all of row i: x, −y for each number. Real numbers are their
// own blocks. Layer: backend "cuda" of QR, device code.
#pragma once

#include <cstdint>

#include "qr/cuda/layout/number_types.hpp"
#include "qr/cuda/layout/shapes.hpp"

namespace ballast::qr::cuda {

// Element (i, l) of the real matrix, where the number of its block is stored at `number` by components.
template <int Reals, class R>
__device__ __forceinline__ R of_block(const R* number, int i, int l) {
  if constexpr (Reals == 1) {
    return *number;
  } else {
    const R part = number[(i ^ l) & 1];
    return (~i & l & 1) != 0 ? -part : part;
  }
}

// A matrix of numbers by columns as a real one. Complex: its column 2 l is the column of numbers l as it is stored.
template <class S>
struct matrix_of_blocks {
  const real_of<S>* data;
  std::int64_t ld;  // reals of a column of numbers
  __device__ __forceinline__ matrix_of_blocks(const S* numbers, std::int64_t ld_of_numbers)
      : data(reinterpret_cast<const real_of<S>*>(numbers)), ld(k_reals<S> * ld_of_numbers) {}
  __device__ __forceinline__ real_of<S> operator()(std::int64_t i, std::int64_t l) const {
    if constexpr (is_complex<S>) {
      const real_of<S> part = data[(i ^ (l & 1)) + l / 2 * ld];
      return (~i & l & 1) != 0 ? -part : part;
    } else {
      return data[i + l * ld];
    }
  }
};

// An upper triangle of numbers in double, packed by columns, as a real matrix of twice as many rows and columns where numbers are complex.
template <int Reals>
struct packed_blocks {
  const double* data;
  // Returns whether a block on or above the diagonal has element (i, l).
  __device__ __forceinline__ static bool has(int i, int l) { return i / Reals <= l / Reals; }
  __device__ __forceinline__ static bool on_diagonal(int i, int l) { return i / Reals == l / Reals; }
  // Returns an element of a block on or above the diagonal.
  __device__ __forceinline__ double operator()(int i, int l) const {
    return of_block<Reals>(data + Reals * packed(i / Reals, l / Reals), i, l);
  }
};

// Stores element (i, l), i ≤ l, of the real matrix to the packed triangle, whose diagonal is real. Row 2 i alone is stored: it has the
// whole complex row.
template <int Reals>
__device__ __forceinline__ void store_block_row(double* triangle, int i, int l, double x) {
  if constexpr (Reals == 1) {
    triangle[packed(i, l)] = x;
  } else {
    if (i % 2 != 0) return;
    triangle[2 * packed(i / 2, l / 2) + l % 2] = l % 2 == 0 ? x : l == i + 1 ? 0 : -x;
  }
}

}  // namespace ballast::qr::cuda
