// Sums of integrity words over long stretches of memory, at the speed of the cache: the seals of messages, and the sums that follow the
// elements of an array from one place to another.
// Layer: foundation. Host only; compiled for each instruction set where Highway is used.
//
// Both sums weight a word by an odd number that grows with its place. No product is made for that: of vectors v_0 … v_(K−1),
// Σ k v_k = (K − 1) Σ v_k − Σ_k (v_0 + … + v_(k−1)), so two additions a vector are enough, and two products for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ballast::abft {

// Stores two sums over the 64-bit words w_0, w_1, … of some bytes, modulo 2⁶⁴, the last word filled up with zeros:
//   sums[0] = 0x9e3779b97f4a7c15 Σ (2 i + 1) w_i,   sums[1] = 0xd6e8feb86659fd93 Σ (2 i + 1) (w_i ^ w_i >> 31).
// Every change of one word changes both. The second sum folds the top bit of a word down first: else two changes of top bits would cancel
// in both.
void weighted_sums(std::span<const std::byte> bytes, std::uint64_t (&sums)[2]);

// Words in loops, the last of them the innermost: so many of them, with so many words of memory and places between two.
struct word_loops {
  std::array<std::int64_t, 4> count = {1, 1, 1, 1}, stride = {}, place = {};
  std::int64_t first = 0;  // the place of the first word
};

// Returns the sum of spread_hash(word, place) over words of Bytes = 8 bytes, or 4, which are the low half of a word of the hash. `words` is
// the first one.
template <int Bytes>
std::uint64_t spread_sum(const std::byte* words, const word_loops& over);

}  // namespace ballast::abft
