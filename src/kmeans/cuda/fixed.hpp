// Sums of points in fixed point: integers, so the order of additions does not matter, results are the same bits in every run, and the
// invariants of the sums hold exactly: no threshold.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
//
// A coordinate x of feature f is written as Words words, each of two limbs of B bits: with y = x · unit[f], |y| ≤ 2^B,
//   hi = round(y), lo = round((y − hi) · 2^B), word = hi · 2^B + lo
// and the next word from what is left, · 2^B again. unit[f] is a power of two. So x is kept to 2^(−2B·Words − 1) of its feature's largest
// |x|. A sum over m points stays below 2^63: 2B + ⌈log2 m⌉ ≤ 62. Kernels add limbs in shared memory, up to k_flush_rows of them in 32 bits,
// and words in global memory.
// Precision: f32 has one word (40 bits for up to 2^22 points); f64, and f32 whose features have values 2^k_wide_ratio times their mean
// size, have two.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_flush_rows = 1024;  // |hi| ≤ 2^20, so as many fit into 31 bits
inline constexpr int k_wide_ratio = 10;

// B for m points.
BALLAST_HD constexpr int limb_bits(std::int64_t m) {
  int log = 0;
  while (log < 62 && (std::int64_t{1} << log) < m) ++log;
  const int bits = (62 - log) / 2;
  return bits < 20 ? bits : 20;
}

// 2^−(B(2w + 1)): what one unit of word w is worth, times 1 / unit[f].
BALLAST_HD constexpr double word_value(int bits, int word) {
  double value = 1;
  for (int i = 0; i < bits * (2 * word + 1); ++i) value *= 0.5;
  return value;
}

// The multiplier of word `w` of column `c` in the signature of a row: odd, so that a change of a single bit always shows.
BALLAST_HD constexpr std::uint64_t signature_weight(std::int64_t c, int w) {
  std::uint64_t z = static_cast<std::uint64_t>(2 * c + w + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

}  // namespace ballast::kmeans::cuda
