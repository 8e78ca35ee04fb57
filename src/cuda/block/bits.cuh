// Bit patterns of scalars. Hashes of them: abft/seal.hpp.
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

}  // namespace ballast::cuda
