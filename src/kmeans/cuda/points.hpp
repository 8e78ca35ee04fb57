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

// Device memory. Made by prepare (prepare.cuh) and constant over all iterations.
// x and the facts come from two separate loads of the given points, in different threads: a fault in one shows against the other.
template <class T>
struct placed_points {
  const T* x;           // m × stride, row-major, in the frame (contract.hpp), 0 behind feature n
  const T* weight;      // m, in the frame; null: all 1
  const T* norm;        // m: ‖x‖², rounded once
  const T* projection;  // m: Σ_f chopped(x_f) · direction_f, rounded once; chopped(): what a tensor core sees of x, x itself in f64
  const std::uint64_t* signature;  // m: Σ_c Σ_w signature_weight(c, w) · word w of column c, modulo 2^64 (fixed.hpp)
  const T* unit;                   // columns: powers of two
  const T* direction;              // stride: random ±[1, 2) with 8 bits behind the point, 0 behind feature n
  std::int64_t m;
  int n;
  int stride;   // padded_features(n)
  int columns;  // of the sums: n; n + 1 with weights: the products w · x, then w
  int words;    // of a sum: 1 or 2
  int bits;     // limb_bits(m)
};

}  // namespace ballast::kmeans::cuda
