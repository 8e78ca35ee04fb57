// Weights of the checksums of a line, for its whole transform and for its first butterflies.
// Layer: fft/cuda; device and host.
//
// A line of N points has the first radix r and the last radix R. First butterfly j < N/r has the inputs x_{j + mN/r}, m < r, and the
// results z_k(j), k < r. Last butterfly j < N/R has the outputs y_{j + kN/R}, k < R.
// Outputs: the weight of output k of last butterfly j is a(o) = α_j i^e(k), with α_j = s_{j mod r} ω^{j mod r} β_{⌊j/r⌋}. s and i^e are
// powers of i, known when a kernel is compiled. ω is a phase that belongs to r (k_series_turns). The β are random phases; plan/tables.cpp
// chooses them such that A below is flat. The second vector has β′ instead of β, and the opposite sign in the upper half of the k. So aᵀy
// needs additions and one product per butterfly. Results of the first butterflies: R and r are the outermost digits of the index of an
// output, at its two ends. So a is a function of o mod r times a function of ⌊o/r⌋, and the weight that the rest of the transform gives to
// result k of first butterfly j is
//   Σ_{o ≡ k mod r} a(o) w_N^{jo} = s_k (ω w_N^j)^k A(j),  A = the transform of a(0), a(r), a(2r), … over N/r points.
// This is one power series in ω w_N^j for both vectors, then a product with A(j) and one with A′(j). No table has the length of the line.
// First butterflies: Σ_k s′_k z_k(j) = Σ_m ŝ_m x_{j + mN/r}, where ŝ is the transform of s′; all of these are constants. The residual of
// this equation is added to the line's checksum with the factor A(j), so one comparison covers both. A line of one stage has bᵀx with
// constant weights.
// Blind spots: weights that are only powers of i have some (docs/protection.md). Neighbouring threads have neighbouring j. If one mask
// changes the same bit in all of them, the changes are equal up to signs, or are powers of two of each other, and without ω the sum of
// these times powers of i is often exactly zero: four zeros of a line of 16 points became 2, −2, 2 and 2. Now only a fault within one
// butterfly meets powers of i alone. Such a fault changes either every d-th result by powers of a root of unity, where d divides their
// number, or the results that depend on one number in the butterfly's computation: a sum, a difference, a cosine or sine term of a prime,
// in a prime or a composite radix. A unit test derives all these changes from the splits of butterfly.cuh. A search chose e and s′ for
// them. At the outputs the larger response of the two vectors is at least 0.35 of the average of independent phases, and at least 0.47 for
// radices up to 16. For s′ alone it is at least 0.37 for the radices of lines (2 to 16, 32, primes). Both vectors see the results of a
// first butterfly through s′ only, so the sizes of s′ all differ: equal or opposite changes of two results have a response of at least 0.09
// up to 16 results, and of 0.02 beyond.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fft/cuda/policy/roots.hpp"

namespace ballast::fft::cuda {

// Two bits, e, for each result of a last butterfly of 1, 2, … 32 points.
inline constexpr int k_weight_patterns = 32;
// clang-format off
inline constexpr std::uint64_t k_weight_pattern[k_weight_patterns] = {
    0x0, 0x4, 0x30, 0x20, 0x200, 0x34c, 0x19a0, 0x2fd0, 0x8530, 0xb7854, 0x19e180, 0x34ccd8, 0x2880080, 0x7b53810, 0x333307d0,
    0xd0704a40, 0xecc8dc58, 0x1c9697078, 0x1491fd0dbc, 0x35e43b1508, 0xdd541be1a4, 0xd46b694d870, 0x1ece7b2cbc50, 0x579708eb33ec,
    0x33009f5cb3fa4, 0x45f2dbf780a8, 0x26f38e42c92ffc, 0x5b5e7a0e8a2120, 0xd3ae5a822e6f28, 0xc8eaf1e5d2abf4, 0xacf39460efbb79c,
    0xdb7864cebfcca124,
};
// The same for lines whose outputs become the spectrum of reals: i^e(R − 1 − k) is the conjugate of i^e(k), up to a rotation that is the
// same for all k, because results k and R − 1 − k of two last butterflies are mirror images (line_sums.cuh, sum_spectrum).
inline constexpr std::uint64_t k_mirrored_pattern[k_weight_patterns] = {
    0x0, 0x0, 0x0, 0x1c, 0x2dc, 0x444, 0x26c4, 0x134c, 0x4e4c, 0x75408, 0x8080, 0x14823c, 0x2b79370, 0x45ce604, 0xec39064, 0x33282844,
    0x220539688, 0x548540740, 0x2051e4d968, 0x319b9e6ec4, 0x2da9efcd01c, 0x936002aa1e4, 0x23d96e4c51f8, 0x326dc1db840, 0x8967c4c5ef88,
    0xe037e636423f4, 0xe6cece24646e4, 0x9b1939944e46c4, 0x2930711dd9b6b90, 0xeedb346c6e31844, 0x22bac4b46726c308, 0x605a720395d8f05c,
};
// For each result of a first butterfly: the exponent of i, plus 4 times the size in units of 1/32.
inline constexpr std::uint8_t k_butterfly_pattern[k_weight_patterns][k_weight_patterns] = {
    {128},
    {222, 49},
    {49, 134, 239},
    {108, 228, 51, 171},
    {193, 240, 144, 97, 50},
    {157, 120, 194, 48, 85, 229},
    {145, 50, 209, 112, 83, 178, 240},
    {227, 169, 73, 121, 96, 198, 146, 50},
    {128, 50, 189, 149, 71, 88, 231, 168, 109},
    {216, 176, 94, 138, 199, 239, 48, 159, 113, 71},
    {161, 146, 97, 114, 176, 195, 50, 225, 129, 82, 65},
    {209, 171, 180, 115, 141, 85, 158, 63, 48, 74, 96, 124},
    {176, 72, 120, 191, 204, 111, 63, 50, 146, 165, 96, 135, 87},
    {100, 48, 125, 73, 59, 181, 116, 141, 91, 152, 66, 134, 80, 111},
    {98, 57, 184, 107, 48, 75, 128, 123, 80, 64, 91, 112, 171, 160, 137},
    {51, 162, 235, 254, 220, 192, 110, 147, 132, 207, 75, 99, 121, 62, 177, 86},
    {102, 50, 111, 143, 127, 154, 84, 191, 132, 165, 79, 57, 95, 176, 66, 116, 205},
    {90, 213, 234, 204, 48, 81, 152, 102, 116, 169, 125, 60, 72, 147, 220, 197, 109, 185},
    {77, 93, 137, 53, 48, 98, 71, 88, 66, 82, 85, 130, 109, 119, 63, 127, 101, 74, 56},
    {88, 61, 96, 95, 87, 141, 157, 166, 132, 146, 53, 72, 69, 56, 122, 104, 48, 82, 149, 64},
    {73, 136, 110, 68, 60, 91, 148, 130, 59, 103, 81, 52, 94, 127, 145, 51, 120, 164, 115, 67, 153},
    {59, 95, 125, 101, 85, 142, 80, 49, 137, 52, 148, 114, 90, 122, 60, 130, 77, 119, 106, 70, 67, 157},
    {69, 85, 111, 130, 94, 82, 58, 97, 145, 112, 106, 120, 66, 55, 48, 74, 163, 63, 125, 79, 119, 154, 136},
    {178, 57, 181, 161, 89, 137, 111, 49, 121, 211, 75, 152, 173, 142, 170, 102, 94, 52, 84, 204, 64, 134, 229, 189},
    {70, 51, 119, 137, 83, 67, 218, 147, 89, 152, 111, 159, 103, 162, 112, 76, 104, 52, 92, 167, 174, 62, 126, 198, 129},
    {84, 65, 165, 148, 57, 216, 189, 227, 79, 91, 172, 60, 133, 141, 92, 156, 155, 116, 126, 49, 101, 52, 106, 70, 180, 238},
    {110, 82, 59, 136, 113, 75, 55, 49, 181, 119, 64, 172, 144, 185, 68, 76, 96, 90, 122, 176, 63, 107, 103, 125, 158, 213, 95},
    {83, 157, 185, 222, 93, 193, 97, 88, 55, 150, 51, 60, 191, 64, 56, 86, 112, 146, 72, 166, 179, 201, 152, 71, 142, 198, 79, 171},
    {62, 57, 186, 76, 86, 140, 97, 105, 128, 73, 49, 92, 127, 83, 55, 149, 90, 188, 115, 146, 118, 135, 68, 64, 121, 156, 103, 109, 192},
    {104, 75, 106, 115, 53, 91, 82, 229, 204, 94, 94, 245, 230, 72, 135, 65, 211, 246, 50, 122, 194, 206, 53, 71, 181, 137, 49, 52, 172, 52},
    {121, 96, 201, 81, 150, 77, 61, 49, 72, 208, 67, 142, 88, 55, 86, 223, 58, 185, 100, 109, 119, 213, 136, 166, 155, 204, 171, 70, 157, 115, 93},
    {102, 81, 116, 153, 207, 148, 54, 70, 76, 167, 254, 87, 104, 128, 64, 188, 180, 185, 49, 58, 72, 95, 177, 135, 161, 142, 121, 211, 91, 203, 113, 171},
};
// ω = e^{−2πi turn / k_series_circle} for a first radix of 1, 2, … 32. A sum of numbers ±2ⁿ times s_k ω^k, k < 512, is never zero, since ω
// is a root of unity of such an order; the entry of 2 is 0 because 1 and i need no ω. A search chose the turns such that the sums over the
// first 16 k (and over the second 16) with all signs are at least 0.024 of the root of the number of terms.
inline constexpr int k_series_circle = 4096;
inline constexpr int k_series_turns[k_weight_patterns] = {0,    0,    761,  943,  497,  487,  1733, 2191, 3497, 3029, 2481,
                                                          2555, 3437, 2389, 1433, 1193, 3657, 2733, 1701, 4081, 1593, 3413,
                                                          3753, 2733, 3589, 1377, 685,  2457, 3417, 4073, 3585, 4077};
// clang-format on

// Returns the first result with the opposite sign in the second vector.
BALLAST_HD constexpr int weight_half(int count) { return (count + 1) / 2; }
// Returns whether result k has the opposite sign in the second vector. One of results k and count − 1 − k has it, except for the middle
// one. If the signs changed by halves, no mirrored pattern of 4, 12, 20 or 28 results would see every fault.
BALLAST_HD constexpr bool weight_negative(int count, int k, bool mirrored) {
  const int chosen = !mirrored || count % 8 != 4 ? 0 : count == 12 ? 0xe58 : 0xaaaaaaa;
  return chosen == 0 ? k >= weight_half(count) : (chosen >> k & 1) != 0;
}

// Returns e(k) for k < count: the exponents of i^e and of s. e(0) = 0.
BALLAST_HD constexpr int weight_quarters(int count, int k, bool mirrored = false) {
  return static_cast<int>((mirrored ? k_mirrored_pattern : k_weight_pattern)[count - 1] >> 2 * k & 3);
}
// Returns e(k) + e(count − 1 − k) of a mirrored pattern, modulo 4.
BALLAST_HD constexpr int mirrored_quarters(int count) {
  return (weight_quarters(count, 0, true) + weight_quarters(count, count - 1, true)) % 4;
}

// s′_k = size · i^quarters.
BALLAST_HD constexpr int butterfly_weight_quarters(int count, int k) { return k_butterfly_pattern[count - 1][k] % 4; }
BALLAST_HD constexpr double butterfly_weight_size(int count, int k) {
  const int units = k_butterfly_pattern[count - 1][k] / 4;
  return units / 32.0;
}

// Returns the power at which the power series in w_N^j starts: it is summed from its middle outwards, and A(j) in the table includes this
// power as a factor.
BALLAST_HD constexpr int weight_centre(int radix) { return radix / 2; }

// The weights of the inputs of a first butterfly: transforms of the constant weights of its results.
template <int Radix>
struct input_weights {
  unit_root butterfly[Radix];  // ŝ
  unit_root line[2][Radix];    // for a line of one stage: b divided by α, and by α′

  // `mirrored`: for a line whose outputs become the spectrum of reals.
  BALLAST_HD constexpr explicit input_weights(bool mirrored) : butterfly{}, line{} {
    unit_root roots[Radix];
    for (int i = 0; i < Radix; ++i) roots[i] = root_of_unity(i, Radix);
    for (int m = 0; m < Radix; ++m) {
      butterfly[m] = line[0][m] = line[1][m] = {0, 0};
      for (int k = 0; k < Radix; ++k) {
        const unit_root w = roots[m * k % Radix];
        const unit_root turned = turn(w, weight_quarters(Radix, k, mirrored));
        add(butterfly[m], turn(w, butterfly_weight_quarters(Radix, k)), butterfly_weight_size(Radix, k));
        add(line[0][m], turned, 1);
        add(line[1][m], turned, weight_negative(Radix, k, mirrored) ? -1 : 1);
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
