// Counter-based random numbers: number i of a stream is a pure function of (seed, stream, i), so that results do not depend on the order in
// which threads draw. Also the terms of a hash over many words.
// Layer: foundation. Host/device-neutral.
// Source: the 64-bit finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::core {

BALLAST_HD constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Returns the term of word number `place` in a hash over many words. The hash is the sum of the terms, in any order. The word is mixed,
// because one fault may change the same high bits of many words: in a sum of multiples of the words such changes cancel (2⁶³ times an even
// number of odd factors is 0).
BALLAST_HD constexpr std::uint64_t hash_term(std::uint64_t word, std::uint64_t place) {
  return mix64(word ^ (place + 1) * 0x9e3779b97f4a7c15u);
}

// Returns a cheaper term, an odd multiple of the word, for kernels in which the mixed term causes register spills. Equal changes of the top
// bit cancel only among four or more places whose numbers, with signs, add up to 0. In 64-bit words two such changes would cancel: their
// top bit is folded down first.
BALLAST_HD constexpr std::uint64_t light_term(std::uint64_t word, std::uint64_t place) {
  return word * (0x9e3779b97f4a7c15u * (2 * place + 1));
}

// The word that represents every NaN in such a hash.
inline constexpr std::uint64_t k_nan_word = 0x7ff8000000000001u;

// Returns 64 random bits.
BALLAST_HD constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  return mix64(mix64(mix64(seed + golden) ^ (stream * golden + 0x632be59bd9b4e019u)) + (i + 1) * golden);
}

// Returns a number uniform in [0, 1), with 53 random bits.
BALLAST_HD constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  return static_cast<double>(random_bits(seed, stream, i) >> 11) * 0x1p-53;
}

}  // namespace ballast::core
