// Sums of points in fixed point. They are integers, so the order of additions does not matter, results have the same bits in every run, and
// the invariants of the sums hold exactly, without a threshold.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
//
// A coordinate x of feature f is stored as one or two words. With y = x · unit[f], |y| ≤ 2^30:
//   word 0 = round(y), word 1 = round((y − word 0) · 2^30)
// unit[f] is a power of two, so x has a resolution of 2^−31, or 2^−61, of the largest |x| of its feature. A sum over 2^32 points fits into
// 64 bits. In shared memory kernels add 16-bit limbs into 32-bit sums, of up to k_flush_rows rows and as many negated ones; in global
// memory they add words.
// Precision: f32 has one word; f64, and f32 with features whose largest value is 2^k_wide_ratio times the mean magnitude, have two.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_word_bits = 30;
inline constexpr int k_limb_bits = 16;
inline constexpr int k_flush_rows = 1 << 15;  // |upper limb| ≤ 2^14, 0 ≤ lower limb < 2^16
inline constexpr int k_wide_ratio = 5;        // leaves 25 bits for numbers of mean magnitude, more than f32 has
// If the largest value of a feature is 2^k_host_ratio times a typical one, by the mean of the exponents, two words leave it fewer than 40
// bits, in f32 26. Then the host sums, in double.
template <class T>
inline constexpr int k_host_ratio = 2 * k_word_bits + 1 - (sizeof(T) == 4 ? 26 : 40);

// Returns the value of one unit of word w, as a multiple of 1 / unit[f].
BALLAST_HD constexpr double word_value(int word) { return word == 0 ? 1 : 1.0 / (1 << k_word_bits); }

// Returns the multiplier of word `w` of column `c` in the signature of a row. It is odd, so that a change of a single bit is always
// visible.
BALLAST_HD constexpr std::uint64_t signature_weight(std::int64_t c, int w) {
  std::uint64_t z = static_cast<std::uint64_t>(2 * c + w + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

}  // namespace ballast::kmeans::cuda
