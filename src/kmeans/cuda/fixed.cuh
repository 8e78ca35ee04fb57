// Numbers in fixed point: a coordinate, or its product with a weight, as the limbs and words of fixed.hpp.
// Layer: backend "cuda" of K-Means, device code. Pure functions: the same operands give the same bits in every kernel, so sums that are
// made from two loads of the same number agree exactly. Roundings are additions of 1.5 · 2^(bits of the fraction): the sum's last bits are
// the integer, in two's complement. No conversion instruction is needed, of which a multiprocessor does 16 in a cycle where it does 128
// additions.
#pragma once

#include <cstdint>

#include "cuda/block/bits.cuh"
#include "kmeans/cuda/fixed.hpp"

namespace ballast::kmeans::cuda {

// point · scale − shift, as the host rounds it.
__device__ __forceinline__ float placed(float point, float scale, float shift) { return __fsub_rn(__fmul_rn(point, scale), shift); }
__device__ __forceinline__ double placed(double point, double scale, double shift) { return __dsub_rn(__dmul_rn(point, scale), shift); }

// w · x = product + rest, both exactly unless the product is near the smallest numbers.
__device__ __forceinline__ float product_rest(float w, float x, float product) { return __fmaf_rn(w, x, -product); }
__device__ __forceinline__ double product_rest(double w, double x, double product) { return __fma_rn(w, x, -product); }
__device__ __forceinline__ float rounded_product(float w, float x) { return __fmul_rn(w, x); }
__device__ __forceinline__ double rounded_product(double w, double x) { return __dmul_rn(w, x); }

// The integer nearest to y, |y| ≤ 2^20, even ones at ties; y becomes what is left of it, exactly.
__device__ __forceinline__ std::int32_t take_integer(float& y) {
  constexpr float magic = 0x1.8p23f;
  const float sum = __fadd_rn(y, magic);
  y = __fsub_rn(y, __fsub_rn(sum, magic));
  return static_cast<std::int32_t>(ballast::cuda::bits(sum) - ballast::cuda::bits(magic));
}
__device__ __forceinline__ std::int32_t take_integer(double& y) {
  constexpr double magic = 0x1.8p52;
  const double sum = __dadd_rn(y, magic);
  y = __dsub_rn(y, __dsub_rn(sum, magic));
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(ballast::cuda::bits(sum)));
}

// The limbs of `value`: |value · unit| ≤ 2^B, `unit` a power of two, step = 2^B. Word w is hi[w] · 2^B + lo[w].
// |hi[0]| ≤ 2^B, all other limbs are at most 2^(B−1).
template <int Words, class T>
__device__ __forceinline__ void split(T value, T unit, T step, std::int32_t (&hi)[Words], std::int32_t (&lo)[Words]) {
  T y = value * unit;
#pragma unroll
  for (int w = 0; w < Words; ++w) {
    if (w > 0) y *= step;
    hi[w] = take_integer(y);
    y *= step;
    lo[w] = take_integer(y);
  }
}

// The limbs of value + rest, |rest| at most half a unit in the last place of `value`: of a product with its rest, to the last limb's unit.
// |hi[0]| ≤ 2^B, the others are at most 2^B, too.
template <int Words, class T>
__device__ __forceinline__ void split(T value, T rest, T unit, T step, std::int32_t (&hi)[Words], std::int32_t (&lo)[Words]) {
  split<Words>(value, unit, step, hi, lo);
  std::int32_t rest_hi[Words], rest_lo[Words];
  split<Words>(rest, unit, step, rest_hi, rest_lo);
#pragma unroll
  for (int w = 0; w < Words; ++w) {
    hi[w] += rest_hi[w];
    lo[w] += rest_lo[w];
  }
}

// hi · 2^bits + lo.
__device__ __forceinline__ std::int64_t word_of(std::int32_t hi, std::int32_t lo, int bits) {
  return static_cast<std::int64_t>(hi) * (std::int64_t{1} << bits) + lo;
}

// 2^bits as T: `step` of split.
template <class T>
__device__ __forceinline__ T step_of(int bits) {
  return static_cast<T>(1 << bits);
}

}  // namespace ballast::kmeans::cuda
