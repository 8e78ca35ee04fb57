// Fixed-point numbers: converts a coordinate, or its product with a weight, to the words and limbs of fixed.hpp.
// Layer: backend "cuda" of K-Means, device code. Pure functions: the same operands give the same bits in every kernel, so two sums over
// separate loads of the same numbers agree exactly.
#pragma once

#include <cstdint>

#include "cuda/block/bits.cuh"
#include "kmeans/cuda/layout/fixed.hpp"

namespace ballast::kmeans::cuda {

// Returns the normalized coordinate point · scale − shift, rounded like on the host.
__device__ __forceinline__ float normalized(float point, float scale, float shift) { return __fsub_rn(__fmul_rn(point, scale), shift); }
__device__ __forceinline__ double normalized(double point, double scale, double shift) { return __dsub_rn(__dmul_rn(point, scale), shift); }

// w · x = product + rest; both are exact unless the product is near the smallest numbers.
__device__ __forceinline__ float product_rest(float w, float x, float product) { return __fmaf_rn(w, x, -product); }
__device__ __forceinline__ double product_rest(double w, double x, double product) { return __fma_rn(w, x, -product); }
__device__ __forceinline__ float rounded_product(float w, float x) { return __fmul_rn(w, x); }
__device__ __forceinline__ double rounded_product(double w, double x) { return __dmul_rn(w, x); }

// Returns the integer nearest to y, |y| ≤ 2^30, with ties to even, and replaces y by the exact remainder. If the integer has more bits than
// y, y is itself an integer.
__device__ __forceinline__ std::int32_t take_integer(float& y) {
  const std::int32_t integer = __float2int_rn(y);
  y = __fsub_rn(y, __int2float_rn(integer));
  return integer;
}
__device__ __forceinline__ std::int32_t take_integer(double& y) {
  constexpr double magic = 0x1.8p52;
  const double sum = __dadd_rn(y, magic);
  y = __dsub_rn(y, __dsub_rn(sum, magic));
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(ballast::cuda::bits(sum)));
}

// Splits `value` into words. |value · unit| ≤ 2^30; `unit` is a power of two.
template <int Words, class T>
__device__ __forceinline__ void split(T value, T unit, std::int32_t (&word)[Words]) {
  T y = value * unit;
  word[0] = take_integer(y);
  if constexpr (Words == 2) {
    y *= static_cast<T>(1 << k_word_bits);
    word[1] = take_integer(y);
  }
}

// Splits value + rest into words: a product and its rounding error, |rest| at most half a unit in the last place of `value`. Words are
// added modulo 2^32, because a value beyond the unit, which only a fault can produce, must have words as well.
template <int Words, class T>
__device__ __forceinline__ void split(T value, T rest, T unit, std::int32_t (&word)[Words]) {
  std::int32_t more[Words];
  split<Words>(value, unit, word);
  split<Words>(rest, unit, more);
#pragma unroll
  for (int w = 0; w < Words; ++w)
    word[w] = static_cast<std::int32_t>(static_cast<std::uint32_t>(word[w]) + static_cast<std::uint32_t>(more[w]));
}

__device__ __forceinline__ std::int32_t upper_limb(std::int32_t word) { return word >> k_limb_bits; }
__device__ __forceinline__ std::uint32_t lower_limb(std::int32_t word) {
  return static_cast<std::uint32_t>(word) & ((1u << k_limb_bits) - 1);
}

// Returns the sum of words, given the sums of their limbs.
__device__ __forceinline__ std::int64_t word_of(std::int32_t upper, std::uint32_t lower) {
  return static_cast<std::int64_t>(upper) * (std::int64_t{1} << k_limb_bits) + lower;
}

}  // namespace ballast::kmeans::cuda
