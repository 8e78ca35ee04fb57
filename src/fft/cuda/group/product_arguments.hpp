// The arguments of product.cuh's kernel, for host and device compilers.
// Layer: backend "cuda".
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_product_threads = 256;
inline constexpr int k_product_tile = 1024;  // elements of a row that a block takes at once

// A root of unity as the sum of two numbers, whose second one is below the rounding of the first.
struct split_root {
  double re, im, re_rest, im_rest;
};

// to[r][c] = from[r][c] · w^{± (first_row + r) (first_column + c)} for rows × columns elements without gaps, where w = e^{−2πi / N} and
// w^k = coarse[⌊k / 2^shift⌋] · fine[k mod 2^shift]. The check counts the elements of `to` that have other bits in *wrong.
struct product_arguments {
  const void* from;
  void* to;
  unsigned long long* wrong;
  const split_root* coarse;
  const split_root* fine;
  std::int64_t rows, columns, first_row, first_column;
  std::int32_t shift, conjugate;
};

}  // namespace ballast::fft::cuda
