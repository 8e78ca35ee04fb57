// The products with roots of unity between the two steps of a transform of one dimension, and their check.
// Layer: fft/cuda kernels; product.cpp launches them.
//
// A block takes tiles of 1024 neighbouring elements of a row; thread t has the elements t, t + 256, … of a tile. The factors come from two
// small tables, with twice the precision of double, so that the product errs as one with a rounded factor. The check is the same
// computation from other tables and other loads.
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/complex.cuh"
#include "fft/cuda/group/product_arguments.hpp"

namespace ballast::fft::cuda {

// a b + c d, of numbers with rests: the products and their sum without error (Dekker, 1971; Knuth, 1969), the rests added.
__device__ __forceinline__ double sum_of_products(double a, double a_rest, double b, double b_rest, double c, double c_rest, double d,
                                                  double d_rest) {
  // + 0.0: the compiler would join a product and the sum below to one multiply-add.
  const double p = fma(a, b, 0.0), p_rest = fma(a, b, -p), q = fma(c, d, 0.0), q_rest = fma(c, d, -q);
  const double s = p + q, of_q = s - p, s_rest = (p - (s - of_q)) + (q - of_q);
  const double cross = fma(a, b_rest, fma(a_rest, b, fma(c, d_rest, c_rest * d)));
  return s + ((s_rest + p_rest) + (q_rest + cross));
}

__device__ __forceinline__ ballast::cuda::complex<double> product_of(const split_root& x, const split_root& y) {
  return {sum_of_products(x.re, x.re_rest, y.re, y.re_rest, -x.im, -x.im_rest, y.im, y.im_rest),
          sum_of_products(x.re, x.re_rest, y.im, y.im_rest, x.im, x.im_rest, y.re, y.re_rest)};
}

// Check: compares instead of storing.
template <class T, bool Check>
__global__ void __launch_bounds__(k_product_threads) product_kernel(const __grid_constant__ product_arguments a) {
  using complex = ballast::cuda::complex<T>;
  const auto* const from = static_cast<const complex*>(a.from);
  auto* const to = static_cast<complex*>(a.to);
  const std::int64_t across = (a.columns + k_product_tile - 1) / k_product_tile, tiles = across * a.rows;
  const auto mask = (std::uint64_t{1} << a.shift) - 1;
  unsigned long long wrong = 0;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const auto row = static_cast<std::int64_t>(static_cast<std::uint32_t>(tile) / static_cast<std::uint32_t>(across));
    const std::int64_t begin = (tile - row * across) * k_product_tile;
#pragma unroll
    for (int part = 0; part < k_product_tile / k_product_threads; ++part) {
      const std::int64_t column = begin + part * k_product_threads + threadIdx.x;
      if (column >= a.columns) continue;
      const auto k = static_cast<std::uint64_t>((a.first_row + row) * (a.first_column + column));
      const ballast::cuda::complex<double> root = product_of(a.coarse[k >> a.shift], a.fine[k & mask]);
      const complex w{static_cast<T>(root.re), static_cast<T>(a.conjugate != 0 ? -root.im : root.im)};
      const std::int64_t place = row * a.columns + column;
      const complex y = from[place] * w;
      if constexpr (Check) {
        const complex stored = to[place];
        if (abft::hashed_word(stored.re) != abft::hashed_word(y.re) || abft::hashed_word(stored.im) != abft::hashed_word(y.im)) ++wrong;
      } else {
        to[place] = y;
      }
    }
  }
  if constexpr (Check) {
    if (wrong != 0) atomicAdd(a.wrong, wrong);
  }
}

}  // namespace ballast::fft::cuda
