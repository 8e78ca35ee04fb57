// Weights of the checksums of a line, for its whole transform and for its first butterflies.
// Layer: fft/cuda; device and host.
// A line of N points has the first radix r and the last radix R. First butterfly j < N/r has the inputs x_{j + mN/r}, m < r, and the
// results z_k(j), k < r. Last butterfly j < N/R has the outputs y_{j + kN/R}, k < R. Outputs: the weight of output k of last butterfly j is
// a(o) = α_j i^e(k), with α_j = s_{j mod r} β_{⌊j/r⌋}. s and i^e are powers of i, known when a kernel is compiled. The β are random phases;
// tables.cpp chooses them so that A below is flat. The second vector has β′ for β, and the other sign in the upper half of the k. So aᵀy is
// additions and one product for each butterfly. Results of the first butterflies: R and r are the outermost digits of an output's number,
// at its two ends. So a is a function of o mod r times a function of ⌊o/r⌋, and the weight that the rest of the transform gives to result k
// of first butterfly j is
//   Σ_{o ≡ k mod r} a(o) w_N^{jo} = s_k w_N^{jk} A(j),  A = the transform of a(0), a(r), a(2r), … over N/r points.
// This is one power series in w_N^j for both vectors, then a product with A(j) and one with A′(j). No table has the length of the line.
// First butterflies: Σ_k s′_k z_k(j) = Σ_m ŝ_m x_{j + mN/r}, ŝ the transform of s′; all of these are constants. The residual of this
// equation is added to the line's checksum with the factor A(j), so one comparison covers both. A line of one stage has bᵀx with constant
// weights. Blind spots: weights that are powers of i alone have some (docs/protection.md). Here only a fault within one butterfly sees such
// weights alone. It changes either every d-th result by powers of a root of unity, d a divisor of their number, or the results of one
// number of the butterfly's computation: a sum, a difference, a cosine or sine term of a prime, in a prime or a composite radix. A unit
// test makes all of these from the way butterfly.cuh splits. e and s′ were searched for them. At the outputs the larger response of the two
// vectors is at least 0.35 of the average for independent phases, at least 0.47 for radices up to 16. For s′ alone, with sizes from 1/2 to
// 2, it is at least 0.37 for the radices that lines have (2 to 16, 32, primes).
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fft/cuda/roots.hpp"

namespace ballast::fft::cuda {

// Two bits, e, for each result of a last butterfly of 1, 2, … 32.
inline constexpr int k_weight_patterns = 32;
// clang-format off
inline constexpr std::uint64_t k_weight_pattern[k_weight_patterns] = {
    0x0, 0x4, 0x30, 0x20, 0x200, 0x34c, 0x19a0, 0x2fd0, 0x8530, 0xb7854, 0x19e180, 0x34ccd8, 0x2880080, 0x7b53810, 0x333307d0,
    0xd0704a40, 0xecc8dc58, 0x1c9697078, 0x1491fd0dbc, 0x35e43b1508, 0xdd541be1a4, 0xd46b694d870, 0x1ece7b2cbc50, 0x579708eb33ec,
    0x33009f5cb3fa4, 0x45f2dbf780a8, 0x26f38e42c92ffc, 0x5b5e7a0e8a2120, 0xd3ae5a822e6f28, 0xc8eaf1e5d2abf4, 0xacf39460efbb79c,
    0xdb7864cebfcca124,
};
// Four bits for each result of a first butterfly: the exponent of i, and twice the size, less 1.
inline constexpr std::uint64_t k_butterfly_pattern[k_weight_patterns][2] = {
    {0x0, 0x0}, {0x65, 0x0}, {0xcbb, 0x0}, {0x312a, 0x0}, {0xa8dd8, 0x0}, {0xf9cc8d, 0x0}, {0xaab8dfe, 0x0}, {0x2b0010b3, 0x0},
    {0xb7f644af4, 0x0}, {0x3115022063, 0x0}, {0x14061631120, 0x0}, {0x621353188aa2, 0x0}, {0x5cb6565ade745, 0x0},
    {0x33607a022112b7, 0x0}, {0x6723180a71587a6, 0x0}, {0x32abba0243301131, 0x0}, {0x307aa00713005034, 0x4}, {0x7144023212031880, 0x7d},
    {0xb138643120410b32, 0x267}, {0x582082390aa18105, 0x190}, {0x3303142164600ab3, 0x23a51}, {0x112130f322724120, 0x3e0312},
    {0x4b15261111561b03, 0x8121609}, {0x3602425177570378, 0x24473292}, {0x730802a101152341, 0x743460721},
    {0x112b257313088067, 0x11028b0123}, {0x57f40122523320, 0x34656130778}, {0x104811dc92781f6a, 0xb224001303a4},
    {0x9062a0992c32a031, 0x212703301b531}, {0x66473f134620a11, 0x3102022077b78}, {0x4c305721201c3193, 0x8b0093b4322321f},
    {0x3919136640223332, 0x6341445304414504},
};
// clang-format on

// The first result that has the other sign in the second vector.
BALLAST_HD constexpr int weight_half(int count) { return (count + 1) / 2; }

// e(k) for k < count: the exponents of i^e and of s. e(0) = 0.
BALLAST_HD constexpr int weight_quarters(int count, int k) { return static_cast<int>(k_weight_pattern[count - 1] >> 2 * k & 3); }

// s′_k = size · i^quarters.
BALLAST_HD constexpr int butterfly_weight_bits(int count, int k) {
  return static_cast<int>(k_butterfly_pattern[count - 1][k / 16] >> 4 * (k % 16) & 15);
}
BALLAST_HD constexpr int butterfly_weight_quarters(int count, int k) { return butterfly_weight_bits(count, k) % 4; }
BALLAST_HD constexpr double butterfly_weight_size(int count, int k) {
  const int halves = butterfly_weight_bits(count, k) / 4 + 1;
  return halves / 2.0;
}

// The power series in w_N^j is summed from its middle outwards; the table's A(j) includes that power as a factor.
BALLAST_HD constexpr int weight_centre(int radix) { return radix / 2; }

// The weights of the inputs of a first butterfly: transforms of the constant weights of its results.
template <int Radix>
struct input_weights {
  unit_root butterfly[Radix];  // ŝ
  unit_root line[2][Radix];    // of a line of one stage: b over α and over α′

  BALLAST_HD constexpr input_weights() : butterfly{}, line{} {
    unit_root roots[Radix];
    for (int i = 0; i < Radix; ++i) roots[i] = root_of_unity(i, Radix);
    for (int m = 0; m < Radix; ++m) {
      butterfly[m] = line[0][m] = line[1][m] = {0, 0};
      for (int k = 0; k < Radix; ++k) {
        const unit_root w = roots[m * k % Radix];
        const unit_root turned = turn(w, weight_quarters(Radix, k));
        add(butterfly[m], turn(w, butterfly_weight_quarters(Radix, k)), butterfly_weight_size(Radix, k));
        add(line[0][m], turned, 1);
        add(line[1][m], turned, k < weight_half(Radix) ? 1 : -1);
      }
    }
  }

 private:
  static BALLAST_HD constexpr unit_root turn(const unit_root& z, int quarters) {
    return quarters == 0 ? z : quarters == 1 ? unit_root{-z.im, z.re} : quarters == 2 ? unit_root{-z.re, -z.im} : unit_root{z.im, -z.re};
  }
  static BALLAST_HD constexpr void add(unit_root& sum, const unit_root& z, double size) {
    sum.re += size * z.re;
    sum.im += size * z.im;
  }
};

}  // namespace ballast::fft::cuda
