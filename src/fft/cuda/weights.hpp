// Weights of the checksums of a line: what its transform must keep, and what its first butterflies must.
// Layer: fft/cuda; device and host.
// A line of N points, first radix r, last radix R; its first butterflies j < N/r have the inputs x_{j + mN/r}, m < r, and the results
// z_k(j), k < r; its last ones j < N/R have the outputs y_{j + kN/R}, k < R.
// Outputs: a(o) = α_j i^e(k) for output k of last butterfly j, α_j = s_{j mod r} β_{⌊j/r⌋}; s and i^e powers of i, known when a kernel is
// compiled; β phases, random but for what tables.cpp does to keep A, below, flat. The second vector has β′ and the other sign in the upper
// half of the k. So aᵀy is additions, and one product a butterfly. Since R and r are the outermost digits of an output's number from both
// ends, a is a product of a function of o mod r and one of ⌊o/r⌋, and the weight that the rest of the transform gives to a result of a
// first butterfly is
//   Σ_{o ≡ k mod r} a(o) w_N^{jo} = s_k w_N^{jk} A(j),  A = the transform of a(0), a(r), a(2r), … over N/r points:
// one power series in w_N^j, the same for both vectors, and A(j) and A′(j) once a butterfly. No table has the length of the line.
// First butterflies: Σ_k s′_k z_k(j) = Σ_m ŝ_m x_{j + mN/r}, ŝ the transform of s′, all constants. What is missing in that goes into the
// line's checksum with the factor A(j), so one comparison covers both. A line of one stage is its first butterfly: bᵀx with constants.
// Powers of i alone have blind spots (docs/protection.md), but here they are seen through alone only by a fault within one butterfly. What
// such a fault changes is every d-th result, d a divisor of their number, by powers of a root of unity, or what one number of the
// butterfly's computation enters: sums, differences, cosines and sines of primes, alone or within a composite radix (a unit test makes all
// of them from how butterfly.cuh splits). e and s′ are what a search found for just these: the larger response of both vectors to any of
// them at the outputs is at least 0.35 of what independent phases give on the average, 0.47 up to 16; that of s′, alone, with sizes of 1/2
// to 2, is at least 0.37 for the radices that lines have (2 to 16, 32, primes).
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

// Where the second vector changes its sign.
BALLAST_HD constexpr int weight_half(int count) { return (count + 1) / 2; }

// e(k), and of s: both have e(0) = 0.
BALLAST_HD constexpr int weight_quarters(int count, int k) { return static_cast<int>(k_weight_pattern[count - 1] >> 2 * k & 3); }

// s′.
BALLAST_HD constexpr int butterfly_weight_bits(int count, int k) {
  return static_cast<int>(k_butterfly_pattern[count - 1][k / 16] >> 4 * (k % 16) & 15);
}
BALLAST_HD constexpr int butterfly_weight_quarters(int count, int k) { return butterfly_weight_bits(count, k) % 4; }
BALLAST_HD constexpr double butterfly_weight_size(int count, int k) { return (butterfly_weight_bits(count, k) / 4 + 1) / 2.0; }

// The power series in w_N^j is summed from its middle, whose power A(j) has as a factor.
BALLAST_HD constexpr int weight_centre(int radix) { return radix / 2; }

// Transforms of the constant weights: what inputs are summed with.
template <int Radix>
struct input_weights {
  unit_root butterfly[Radix];  // ŝ
  unit_root line[2][Radix];    // of a line of one stage: b over α and over α′

  BALLAST_HD constexpr input_weights() : butterfly{}, line{} {
    unit_root roots[Radix];
    for (int i = 0; i < Radix; ++i) roots[i] = root_of_unity(i, Radix);
    for (int m = 0; m < Radix; ++m) {
      for (unit_root* const sum : {&butterfly[m], &line[0][m], &line[1][m]}) *sum = {0, 0};
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
