// Integrity words: exact sums and hashes of data, compared bit by bit. Unlike a checksum of the mathematics they know no
// rounding: a difference is a fault. This file has the arithmetic of all of them; the data that a word covers are declared where it is
// computed.
//
// Each kind except the short chain sees every change of one word. They differ in changes of several words by one fault:
//
//   chain         result_hash             escapes once in 2⁶⁴. Results that are computed twice; entries and sums that wait
//   fast chain    seal_of                 escapes once in 2⁶⁴. Arrays of the host that wait between two uses
//   short chain   short_seal              escapes once in 2³², one word, too. Events in the log of a kernel
//   mixed sum     hash_term, value_hash   escapes once in 2⁶⁴. Matrices and results that many threads store
//   spread sum    spread_hash             equal changes do not cancel. Small matrices, in kernels where the mixed term takes too long
//   light sum     light_hash, short_term  equal changes may cancel: see light_term. Registers of hot kernels; short entries that wait
//
// A chain depends on the order of the words. A sum does not: threads and layouts may order them differently. A light sum takes
// one multiplication a word. Seals of whole blocks and rows of SIMD registers, which rotate their words, are in fft/cpu/seals-inl.hpp;
// parities of data between the caller's memory and a tile, which rotate them by their places, in fft/cpu/parity.hpp.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/counter_rng.hpp"
#include "core/macros.hpp"

namespace ballast::abft {

// ---- The words of numbers ----

// Returns the bits of a number.
BALLAST_HD constexpr std::uint32_t word_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
BALLAST_HD constexpr std::uint64_t word_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
BALLAST_HD constexpr std::uint32_t word_of(std::uint32_t x) { return x; }
BALLAST_HD constexpr std::uint64_t word_of(std::uint64_t x) { return x; }
BALLAST_HD constexpr std::uint32_t word_of(std::int32_t x) { return static_cast<std::uint32_t>(x); }
BALLAST_HD constexpr std::uint64_t word_of(std::int64_t x) { return static_cast<std::uint64_t>(x); }

// Returns the bits of a number for a hash over results. All NaNs give the same word: the compiler may order the operands of two
// computations differently, which changes the payload.
inline constexpr std::uint64_t k_nan_word = 0x7ff8000000000001u;
BALLAST_HD constexpr std::uint32_t hashed_word(float x) { return x == x ? word_of(x) : 0x7fc00001u; }
BALLAST_HD constexpr std::uint64_t hashed_word(double x) { return x == x ? word_of(x) : k_nan_word; }
template <class Integer>
BALLAST_HD constexpr auto hashed_word(Integer x) {
  return word_of(x);
}

// ---- Chains: words in a fixed order ----

// Returns the hash that continues `made` by a word. Each step is a permutation of the hash, and of the word.
BALLAST_HD constexpr std::uint64_t chained(std::uint64_t made, std::uint64_t word) { return core::mix64(made ^ word); }

// The hash for finding::bits, over numbers in a fixed order. It is never 0.
class result_hash {
 public:
  template <class T>
  BALLAST_HD constexpr void add(T value) {
    made_ = chained(made_, hashed_word(value));
  }
  BALLAST_HD constexpr std::uint64_t bits() const { return made_ == 0 ? 1 : made_; }

 private:
  std::uint64_t made_ = 0x9e3779b97f4a7c15u;
};

// Computes a hash of `count` numbers of 4 or 8 bytes that continues the hash `made`: a chain with a cheaper step, a permutation, too. A
// plain sum would be weaker: an even number of flips of the top bit cancels in it.
inline constexpr std::uint64_t k_seal_of_nothing = 0x9e3779b97f4a7c15u;
template <class T>
std::uint64_t seal_of(const T* numbers, std::int64_t count, std::uint64_t made = k_seal_of_nothing) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, numbers + i, sizeof(T));
    made = ((made << 23 | made >> 41) ^ word) * 0xbf58476d1ce4e5b9u;
  }
  return made;
}

// The chain of a few words in 32 bits.
template <int Count>
BALLAST_HD constexpr std::uint32_t short_seal(const std::uint32_t* words) {
  std::uint32_t made = 0x9e3779b9u;
  for (int i = 0; i < Count; ++i) made = (made ^ words[i]) * 0x85ebca6bu + (made >> 15);
  return made;
}

// ---- Sums: words in any order ----

// Returns the term of word number `place` in a hash over many words. The hash is the sum of the terms, in any order. The word is mixed,
// because one fault may change the same high bits of many words: in a sum of multiples of the words such changes cancel (2⁶³ times an even
// number of odd factors is 0).
BALLAST_HD constexpr std::uint64_t hash_term(std::uint64_t word, std::uint64_t place) {
  return core::mix64(word ^ (place + 1) * 0x9e3779b97f4a7c15u);
}
template <class T>
BALLAST_HD constexpr std::uint64_t value_hash(T x, std::uint64_t place) {
  return hash_term(hashed_word(x), place);
}

// Returns a cheaper term, an odd multiple of the word, for kernels in which the mixed term causes register spills. Equal changes of the top
// bit cancel only among four or more places whose numbers, with signs, add up to 0. In 64-bit words two such changes would cancel: their
// top bit is folded down first.
BALLAST_HD constexpr std::uint64_t light_term(std::uint64_t word, std::uint64_t place) {
  return word * (0x9e3779b97f4a7c15u * (2 * place + 1));
}
template <class T>
BALLAST_HD constexpr std::uint64_t light_hash(T x, std::uint64_t place) {
  std::uint64_t word = x == x ? static_cast<std::uint64_t>(word_of(x)) + 1 : 0;
  if constexpr (sizeof(T) == 8) word ^= word >> 31;
  return light_term(word, place);
}
// The light term of 32-bit words in a sum of 32 bits.
BALLAST_HD constexpr std::uint32_t short_term(std::uint32_t word, int place) {
  return word * (0x9e3779b1u * static_cast<std::uint32_t>(2 * place + 1));
}

// Costs more than light_hash and less than value_hash. Changes of the same bit in many places do not cancel, as they may in the light hash
// of floats.
template <class T>
BALLAST_HD constexpr std::uint64_t spread_hash(T x, std::uint64_t place) {
  std::uint64_t word = (x == x ? static_cast<std::uint64_t>(word_of(x)) + 1 : 0) * 0x9e3779b97f4a7c15u;
  word ^= word >> 32;
  return light_term(word, place);
}

}  // namespace ballast::abft
