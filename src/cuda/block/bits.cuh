// Bit patterns of scalars, and a hash of them.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"

namespace ballast::cuda {

__device__ __forceinline__ std::uint32_t bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ std::uint64_t bits(double x) { return static_cast<std::uint64_t>(__double_as_longlong(x)); }
__device__ __forceinline__ std::uint32_t bits(std::uint32_t x) { return x; }
__device__ __forceinline__ std::uint64_t bits(std::uint64_t x) { return x; }

template <class T>
__device__ T from_bits(std::uint64_t word);
template <>
__device__ __forceinline__ float from_bits<float>(std::uint64_t word) {
  return __uint_as_float(static_cast<std::uint32_t>(word));
}
template <>
__device__ __forceinline__ double from_bits<double>(std::uint64_t word) {
  return __longlong_as_double(static_cast<long long>(word));
}
template <>
__device__ __forceinline__ std::uint32_t from_bits<std::uint32_t>(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
template <>
__device__ __forceinline__ std::uint64_t from_bits<std::uint64_t>(std::uint64_t word) {
  return word;
}

// A term of a hash of many values that is the same for every NaN: an odd multiple of the bits, another one at each place, so that a change
// of one value always changes the sum of the terms.
template <class T>
__device__ __forceinline__ std::uint64_t value_hash(T x, std::uint64_t place) {
  return (x == x ? static_cast<std::uint64_t>(bits(x)) + 1 : 0) * (0x9e3779b97f4a7c15u * (2 * place + 1));
}

}  // namespace ballast::cuda
