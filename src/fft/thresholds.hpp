// Thresholds of the FFT: bounds of the residual that rounding alone can cause. Each names its derivation; docs/protection.md has the
// measurements.
// Layer: FFT. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "abft/threshold.hpp"
#include "core/macros.hpp"

namespace ballast::fft::thresholds {

// Returns the bound of |Re ρ| + |Im ρ|, where ρ = aᵀy − bᵀx, y = DFT of x with `points` points, |a_k| = 1 with random phases, b = DFT of a,
// and ‖x‖₂ = `norm`.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u, independently. The errors of one stage reach
// y with 2-norm c·u·√N·‖x‖, and a vector a of random phases projects that norm: their part of ρ has the RMS c'·u·√(N log₂N)·‖x‖. The two
// sums are computed in working precision in blocks of 16 terms. A block whose first term dominates rounds 30 times at the size of
// |b_j||x_j| ≤ 2√N‖x‖, as much as 6 further stages. kappa = worst/RMS with a margin: docs/design/fft.md has the measurements.
// The second term is the contribution of gradual underflow: half the smallest number at each of N·log₂N operations.
template <class T>
BALLAST_HD inline double residual(double points, double norm, double kappa) {
  const double stages = std::log2(points) + 1 + 6;
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return kappa * (abft::unit_roundoff<T> * std::sqrt(points * stages) * norm + smallest * points * std::sqrt(stages));
}

// Returns the growth, beyond √G, of the residual of a composite of G signals over the residual of one signal. Derivation: each thread adds
// the scalars of G signals in working precision, a random walk of G steps at the size of its part of √g‖x‖√N, g ≤ G. With uniform roundings
// each of the two sums has a variance of u²G²/24, relative to N‖x‖² in all: as much as G/8 further stages. Sums with complex weights are
// rounded twice in each step. Equal signals round alike and add up to as much as 1.42 √G instead of √G
// (src/fft/cuda/schemes/composite.cuh). The largest residual of a signal is 0.67 of its threshold, so a factor of 1.25 suffices.
BALLAST_HD inline double group_growth(double points, int signals) {
  return signals == 1 ? 1 : 1.25 * std::sqrt(1 + signals / (4 * (std::log2(points) + 1 + 6)));
}

// Returns the contribution of gradual underflow to ρ after the output was scaled, which the scale of y does not reduce. A scaled element
// errs by half the smallest number in each part: at most 1 smallest number in |Re ρ| + |Im ρ|. Each of the 4 multiply-adds of an element of
// aᵀy in working precision errs by half of one: 2 in all. This is a bound and needs no factor. In signals of few points it is the only
// term.
template <class T>
BALLAST_HD inline double output_underflow(double points) {
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return 3 * smallest * points;
}

// Returns the growth of the residual of one signal on a GPU. There the checksum begins after the first butterflies, of radix `first`, which
// have constant weights of their own (src/fft/cuda/policy/weights.hpp), and the signal may be multiplied by the factors of its next pass.
// Derivation, in units of one stage of the transform, which rounds every number once, by about u:
//   · Chains. A chain of n terms with two multiply-adds in each part of each term rounds, on average, at half of its own size: as much as n
//     stages. A chain with real weights rounds as much as n/2 stages. Inputs with constant weights are two chains of half the radix,
//     results with real weights one chain, and the power series two chains of half the radix: `first`/2 stages each. They leave a margin
//     that covers the rounded step of the series. The stages themselves round random data by half of what is assumed.
//   · Measured in units of the bound with κ = 1. Random data without growth: RMS 0.87 (radices 8.8), 1.00 (16.8.8), 1.00 (16.16.16), 1.51
//     (31.4); with growth 0.77 to 0.81. Constant data and impulses with growth: 0.43 to 1.22. The largest of 6·10⁶ sums was 5.0 (impulses,
//     10.10.10).
//   · Levels. The sums of the threads are added pairwise, in `levels` levels. Each addition rounds each part once, at the size of two
//     numbers whose squares are a share of 2N‖x‖², which the signal has in both sums. The shares of one level add up to 2N‖x‖²: a level has
//     a variance of at most 2u²N‖x‖²/3, and about half of it for spread mantissas: half a stage.
//   · Factors f, |f| = 1. y is multiplied by f, and summed with a / f. Both are rounded; a / f as powers, up to the fourth, of a
//     rounded step (src/fft/cuda/kernel/line_sums.cuh). A factor is a product of two rounded numbers, and the RMS of its relative error
//     is about 0.8u. f and the product with it round each number by 1u; the middle of eight powers and the step add
//     0.8u (1 + Σ_{i = −4…3} i²/8)^½ = 2.1u; Horner's scheme adds less than 1u. These are independent: seven stages. Four are granted,
//     since half of the other stages are margin. Factors from a table have inverses of their own, which are rounded once: less.
//   · The step from a signal to the spectrum of reals in pairs, and the checksum of its results, with the last radix R. A sum, a
//     difference, a rounded factor and a product round each number as much as two stages. The sums are two chains of R/2 terms each, at
//     half of their size on two sides: R/4 stages. Products with the rounded factor and with two weights add one more stage.
// `more`: the stages for the last two items.
inline constexpr double k_factor_stages = 4;
BALLAST_HD inline double reals_stages(int last) { return 3 + last / 4.0; }
BALLAST_HD inline double line_growth(double points, int first, int levels, double more) {
  const double stages = std::log2(points) + 1 + 6;
  const double here = std::log2(points) / 2 + 1.5 * first + 0.5 * levels;
  return std::sqrt(((here > stages ? here : stages) + more) / stages);
}

// The same for a real-to-real transform of reals in one pass (src/fft/cuda/kernel/real_line.cuh), ‖L‖² = `points`. Derivation, in stages as
// above:
//   · Chains. A thread adds `held` reals with complex weights on both sides, one multiply-add in each part of a term: held/2 stages each.
//   · The steps before and after the transform: each result is a sum of up to four products with rounded factors, two stages each. They
//     leave room for the rounded weights b.
BALLAST_HD inline double real_line_growth(double points, int held, int levels) {
  const double stages = std::log2(points) + 1 + 6;
  const double here = std::log2(points) / 2 + held + 4 + 0.5 * levels;
  return std::sqrt((here > stages ? here : stages) / stages);
}

// Returns the stages, for line_growth, that a check from end to end of a line of `passes` passes adds (src/fft/cuda/kernel/line_ends.cuh):
//   · Each factor between two passes and the product with it round a number by 1u each: two stages.
//   · The sums of the last pass are multiplied by rounded weights, in three passes by rounded products of weights: two stages.
// The sums of tiles are added in double, which rounds by nothing that counts. An impulse at the largest weight, at most 4.2 times their
// root mean square √N, rounds the series of r terms, r = 16, by about 7u at 1/√r of that size: 7u√N. That is a seventh of the threshold, as
// the measurements in docs/notebook/fft-cuda.md show.
BALLAST_HD inline double end_to_end_stages(int passes) { return 2.0 * (passes - 1) + 2; }

// Returns the contribution of gradual underflow to ρ from factors of size 1. Each of the two roundings of a part of z_o = f_o y_o errs by
// half the smallest number, and so does each of the 4 roundings of a part in Horner's scheme and the product with the middle factor:
// at most 2 + 4 smallest numbers in |Re| + |Im|. A bound, so it needs no factor.
template <class T>
BALLAST_HD inline double factor_underflow(double points) {
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return 6 * smallest * points;
}

}  // namespace ballast::fft::thresholds
