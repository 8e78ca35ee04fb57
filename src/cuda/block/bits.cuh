// Bit patterns of scalars, and hashes of them.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "core/counter_rng.hpp"
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

// Returns the bits of a number for hashing. All NaNs give the same word, because the compiler may order the operands of two computations
// differently, which changes the payload.
__device__ __forceinline__ std::uint32_t hashed_word(float x) { return x == x ? bits(x) : 0x7fc00001u; }
__device__ __forceinline__ std::uint64_t hashed_word(double x) { return x == x ? bits(x) : core::k_nan_word; }

// Returns the term of a number in a hash over many. The hash is the sum of the terms, in any order.
template <class T>
__device__ __forceinline__ std::uint64_t value_hash(T x, std::uint64_t place) {
  return core::hash_term(hashed_word(x), place);
}

// A cheaper term; see core::light_term.
template <class T>
__device__ __forceinline__ std::uint64_t light_hash(T x, std::uint64_t place) {
  std::uint64_t word = x == x ? static_cast<std::uint64_t>(bits(x)) + 1 : 0;
  if constexpr (sizeof(T) == 8) word ^= word >> 31;
  return core::light_term(word, place);
}

// Costs more than light_hash and less than value_hash. Changes of the same bit in many places do not cancel, as they may in the light hash
// of floats.
template <class T>
__device__ __forceinline__ std::uint64_t spread_hash(T x, std::uint64_t place) {
  std::uint64_t word = (x == x ? static_cast<std::uint64_t>(bits(x)) + 1 : 0) * 0x9e3779b97f4a7c15u;
  word ^= word >> 32;
  return core::light_term(word, place);
}

}  // namespace ballast::cuda
