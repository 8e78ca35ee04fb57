// Counter-based random numbers: the i-th number of a stream is a pure function of (seed, stream, i), so that results do not depend
// on the order in which threads ask. And the term of a hash of many words.
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

// The term of word number `place` in a hash of many: the hash is the sum of the terms, in any order. Mixed, as one fault may change the
// same high bits of many words: in a sum of multiples of the words such changes cancel (2⁶³ times an even number of odd factors is 0).
BALLAST_HD constexpr std::uint64_t hash_term(std::uint64_t word, std::uint64_t place) {
  return mix64(word ^ (place + 1) * 0x9e3779b97f4a7c15u);
}

// A cheaper term, for kernels that spill with mixed ones: an odd multiple of the word. Equal changes of the top bit cancel only among four
// places or more whose numbers, taken with signs, add up to nothing; two would do among words of 64 bits, whose top bit is folded
// down first.
BALLAST_HD constexpr std::uint64_t light_term(std::uint64_t word, std::uint64_t place) {
  return word * (0x9e3779b97f4a7c15u * (2 * place + 1));
}

// Stands for every NaN in such a hash.
inline constexpr std::uint64_t k_nan_word = 0x7ff8000000000001u;

// 64 random bits.
BALLAST_HD constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  return mix64(mix64(mix64(seed + golden) ^ (stream * golden + 0x632be59bd9b4e019u)) + (i + 1) * golden);
}

// Uniform in [0, 1), 53 bits.
BALLAST_HD constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  return static_cast<double>(random_bits(seed, stream, i) >> 11) * 0x1p-53;
}

}  // namespace ballast::core
