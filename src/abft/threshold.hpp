// Thresholds: the size that rounding alone can give a residual. Each names its derivation; docs/protection.md has the measurements.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// Unit roundoff: half the distance from 1 to the next larger number.
template <class T>
inline constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Bound of |Re ρ| + |Im ρ|, ρ = aᵀy − bᵀx for y = DFT of x with `points` points, |a_k| = 1 with random phases, b = DFT of a,
// ‖x‖₂ = `norm`.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u, independently; the errors of one stage
// reach y with 2-norm c·u·√N·‖x‖, and a random-phase a projects that norm, so their part of ρ has the RMS c'·u·√(N log₂N)·‖x‖. The
// two sums are made in working precision in blocks of 16 terms; a block whose first term is dominant rounds 30 times at the size of
// |b_j||x_j| ≤ 2√N‖x‖, which is what 6 further stages would do. kappa = worst/RMS with room: docs/design/fft.md has the measurements.
// The second term is what gradual underflow adds: half the smallest number at each of N·log₂N operations.
template <class T>
BALLAST_HD inline double fft_residual(double points, double norm, double kappa) {
  const double stages = std::log2(points) + 1 + 6;
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return kappa * (unit_roundoff<T> * std::sqrt(points * stages) * norm + smallest * points * std::sqrt(stages));
}

// How much more than √G times as large the residual of a composite of G signals may be than one signal's. Derivation: the scalars of G
// signals are added up in working precision, in each thread a random walk of G steps at the size of its part of √g‖x‖√N, g ≤ G: with
// uniform roundings a variance of u²G²/24 for each of the two sums, of N‖x‖² in all, which is what G/8 further stages would do. Sums with
// complex weights are rounded twice in each step. Equal signals round alike, and add up to as much as 1.42 √G instead of √G
// (src/fft/cuda/schemes/composite.cuh); the largest residual of a line is 0.67 of its threshold, so a quarter more suffices.
BALLAST_HD inline double fft_group_growth(double points, int signals) {
  return signals == 1 ? 1 : 1.25 * std::sqrt(1 + signals / (4 * (std::log2(points) + 1 + 6)));
}

// What gradual underflow adds to ρ after the output was scaled, where the scale of y does not reduce it: half the smallest number in each
// part of a scaled element, at most 1 of them in |Re ρ| + |Im ρ|, and half of one in each of the 4 multiply-adds of an element of aᵀy in
// working precision, 2 of them in all. A bound, so it needs no factor; in lines of few points it is all there is.
template <class T>
BALLAST_HD inline double fft_output_underflow(double points) {
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return 3 * smallest * points;
}

// How much more the residual of a line may be on a GPU, where the checksum begins behind the first butterflies, of radix `first`, which
// have constant weights of their own (src/fft/cuda/policy/weights.hpp), and the line may be multiplied by factors of its next pass.
// Derivation, in stages of a transform, each of which rounds every number once, by about u: a chain of n terms, two multiply-adds in each
// part of each, rounds at the size of half of itself on the average, as much as n stages; so do half as many with real weights. Inputs with
// constant weights are two chains of half the radix, results with real weights one, and the power series is two of half the radix: first /
// 2 each, with what the rounded step of the series adds in the room that they leave. Stages themselves round random data by less than
// assumed, by half. Measured in units of the bound with κ = 1 without growth, random data: RMS 0.87 (radices 8.8), 1.00 (16.8.8), 1.00
// (16.16.16), 1.51 (31.4); with it 0.77 to 0.81. Constant data and impulses: 0.43 to 1.22 with it; the largest of 6·10⁶ sums was 5.0
// (impulses, 10.10.10). The sums of threads are added up pairwise, `levels` times. Each time two numbers whose squares add up to a share of
// what the line has in both sums, 2N‖x‖², are rounded once in each part; all shares together are that, so a level has the variance
// 2u²N‖x‖²/3 at most and about half as much where mantissas are spread: half a stage. Factors f, |f| = 1: y is multiplied by f, and summed
// with a / f, both rounded, the latter as powers of a rounded step up to the fourth (src/fft/cuda/kernel/line_sums.cuh). A factor is a
// product of two rounded ones, its relative error has an RMS of about 0.8u; f and the product with it round each number by 1u, the middle
// of eight powers and the step add 0.8u (1 + Σ_{i = −4…3} i²/8)^½ = 2.1u, Horner's scheme less than 1u, independently: seven stages, of
// which four are granted, as half of the others are room. Factors of a table have inverses of their own, which are rounded once: less. The
// step from a line to the spectrum of the reals in pairs, and the checksum of what that makes, with the last radix R: a sum, a difference,
// a rounded factor and a product round each number as two stages do; the sums are two chains of R / 2 terms each, seen at half of their
// size on two sides, as R / 4 stages do; products with the rounded factor and with two weights as one more. `more`: stages for these.
inline constexpr double k_fft_factor_stages = 4;
BALLAST_HD inline double fft_reals_stages(int last) { return 3 + last / 4.0; }
BALLAST_HD inline double fft_line_growth(double points, int first, int levels, double more) {
  const double stages = std::log2(points) + 1 + 6;
  const double here = std::log2(points) / 2 + 1.5 * first + 0.5 * levels;
  return std::sqrt(((here > stages ? here : stages) + more) / stages);
}

// What gradual underflow adds to ρ by factors of size 1: half the smallest number in each of the two roundings of a part of z_o = f_o y_o,
// and in each of the 4 of a part in Horner's scheme and the product with the middle factor: of |Re| + |Im| at most 2 + 4 of them. A bound.
template <class T>
BALLAST_HD inline double fft_factor_underflow(double points) {
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return 6 * smallest * points;
}

// K-Means, row check: the residual of Σ_j w_j (‖c_j‖² − 2 x·c_j) over one section of centroids, every operation in working precision.
// Derivation: a chain of n multiply-adds from ‖c_j‖² errs by a random walk of about u √n (‖c_j‖² + 2‖x‖‖c_j‖) at most; the errors of the
// columns are independent, so they add up in squares with their weights; the product with the checksum centroid C errs by u √n ‖x‖‖C‖; the
// sums over 8 columns of a tile add the same with √n replaced by less than 8. But where all terms of a chain are equal (duplicated features
// of few bits) its steps err alike, and alike in all columns: half the length of a chain, at most k_kmeans_run, and of the sum of spans of
// k_kmeans_run chains, with sums instead of roots of sums of squares. That part is a bound and needs no factor; κ of the other:
// docs/design/kmeans.md, "Calibration".
// The lower tier: `doubt` times the limit is a tenth of the walk alone. A residual above it, and above k_kmeans_doubt times the root mean
// square of the other residuals of its block and section, each in units of its limit, is no failure, but its block is computed twice and
// the labels must be the same. The root mean square stands for what rounding does to these data, the tenth of the walk for residuals that
// are 0 but for a few. Residuals are not quite normal, as rounding follows each point's own partial sums: of blocks of random data 0 to
// 0.5 % are computed twice, of twelve hostile kinds 1.6 %.
struct row_limits {
  double slope;  // times ‖x‖
  double offset;
  double doubt;
};
inline constexpr double k_kmeans_row = 2;
inline constexpr double k_kmeans_doubt = 7;
inline constexpr std::int64_t k_kmeans_run = 32;  // features that are summed in one chain, and chains in one span
BALLAST_HD inline row_limits kmeans_row_limits(double u, std::int64_t n, double sum_norm, double sum_square, double root_norm,
                                               double root_square, double checksum_norm) {
  // sum_norm = Σ w‖c‖, sum_square = Σ w‖c‖², root_norm = √Σ w²‖c‖², root_square = √Σ w²‖c‖⁴, checksum_norm = ‖C‖.
  const double walk = k_kmeans_row * u * (std::sqrt(static_cast<double>(n)) + 8);
  const std::int64_t steps = (n < k_kmeans_run ? n : k_kmeans_run) + n / (k_kmeans_run * k_kmeans_run);
  const double alike = 0.5 * u * static_cast<double>(steps);
  const row_limits random = {walk * (2 * root_norm + checksum_norm), walk * root_square, 0.1};
  const double slope = random.slope + alike * (2 * sum_norm + checksum_norm), offset = random.offset + alike * sum_square;
  // A centroid at the origin has limits of 0.
  const double share =
      slope > 0 && offset > 0 ? (random.slope / slope < random.offset / offset ? random.slope / slope : random.offset / offset) : 1;
  return {slope, offset, random.doubt * share};
}

// K-Means, distance: two evaluations of ‖x − c‖² in working precision, one of them as ‖c‖² − 2 x·c + ‖x‖², in units of ‖x‖² + ‖c‖²; a
// weighted sum of such distances in units of the sum. Random walks as above.
inline constexpr double k_kmeans_distance = 2;
BALLAST_HD inline double kmeans_distance_limit(double u, std::int64_t n) {
  return k_kmeans_distance * u * (std::sqrt(static_cast<double>(n)) + 4 + static_cast<double>(n) / 8);
}

// K-Means, sums: Σ over `count` numbers in double, one of them against another order of summation, `root` being the root of the sum of
// their squares and `chain` the longest run of additions into one accumulator. Rounding is a random walk of √chain steps for numbers at
// random, but for equal numbers each step errs alike, so that chain · Σ|x| ≤ chain · √count · root counts: a quarter of it, because an
// error is at most half a unit and partial sums are half the whole on the average.
inline constexpr double k_kmeans_sum = 8;
BALLAST_HD inline double kmeans_sum_limit(double chain, double count, double root) {
  return unit_roundoff<double> * (k_kmeans_sum * (std::sqrt(chain) + 8) + 0.25 * chain * std::sqrt(count)) * root;
}

// K-Means, sums of the squares of m × n numbers in double, by columns and by rows, in units of the sum. Rounding of rows is a random walk,
// within parts of 64 of them and over these; of one row's n numbers it may be that of equal terms.
BALLAST_HD inline double kmeans_square_limit(double m, double n) { return 1e-12 * std::sqrt(m) + unit_roundoff<double> * n; }

// Two thresholds of one residual. Up to `clean` it is rounding. Above `wrong` it is a fault. Between them nobody can tell: the data may be
// of a kind whose roundings all go one way. They are computed again, and accepted if they come out the same to the bit.
struct tiers {
  double clean = 0;
  double wrong = 0;
};

// QR: ‖residual‖₂ of a block [X, Xd] that orthogonal transformations of vectors of m elements have passed over; of a panel and of the final
// certificate likewise. `norm`: ‖X diag(d)‖_F + ‖Xd‖₂; `columns` of X. Each transformation is inner products of length m, whose rounding is
// √m·u in the probabilistic bound (Higham, Mary, 2019) and turns to that of its result's size; the next transformations keep its norm. So
// the residual of data at random is a few u·norm, whatever their size: 1.3 at 40 × 24, 5.2 at 2048 × 2048, 6.3 for the worst of 15 kinds of
// data that are not equal numbers. Equal ones come near √m·u·norm. Every update by a panel rounds each element once more: that grows
// with the root of the number of `reflectors` (0: there are no updates). On a GPU, with long sums on tensor cores, 11.4 at 4096², 16.8 at
// 16384², 21 at 32768². All measurements: docs/design/qr.md.
template <class T>
BALLAST_HD inline tiers qr_residual_thresholds(double norm, std::int64_t m, std::int64_t columns, std::int64_t reflectors = 0) {
  const double unit = unit_roundoff<T> * norm;
  return {(6 + std::log2(static_cast<double>(m)) + std::sqrt(static_cast<double>(reflectors)) / 16) * unit,
          (16 + 8 * std::sqrt(static_cast<double>(m)) + std::sqrt(static_cast<double>(columns))) * unit};
}

// QR: |aᵀ(op(Q) x) − (op(Q)ᵀa)ᵀx| for a column x of m elements with this norm, Q of `reflectors` reflectors, and a with random elements in
// ±[1, 2). The rounding of op(Q) x is a vector of the length that the residual above has, here of one column and seen through a: a number
// at random of 1.5 times its size.
template <class T>
BALLAST_HD inline tiers qr_application_thresholds(double norm, std::int64_t m, std::int64_t reflectors) {
  const double unit = unit_roundoff<T> * norm;
  return {(24 + 4 * std::sqrt(static_cast<double>(reflectors)) + 2 * std::log2(static_cast<double>(m))) * unit,
          (128 + 64 * std::sqrt(static_cast<double>(m))) * unit};
}

// QR: ‖R e_j‖ against ‖A e_j‖ = `norm`.
template <class T>
BALLAST_HD inline double qr_norm_threshold(double norm, std::int64_t m) {
  return (16 + 8 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * norm;
}

// QR: |τ‖v‖² − 2|. Both factors carry a few roundings; reconstructed reflectors inherit the loss of orthogonality of their columns.
template <class T>
BALLAST_HD inline double qr_reflector_threshold(std::int64_t m) {
  return (32 + 4 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T>;
}

// QR: the same two limits for a reflector's check, or for one of orthogonality, with this threshold: sums of equal numbers err alike in
// each step, by how much depends on the BLAS. With OpenBLAS's kernels of a Prescott, which have the longest chains, constant columns of
// 9000 floats came to 1.5 of the threshold before products were cut into runs of 32 rows.
BALLAST_HD inline tiers qr_reflector_tiers(double threshold) { return {threshold, 4 * threshold}; }

// QR: one element of TᵀVᵀV T x − (T + Tᵀ)x, with `size` = |T|ᵀ·(|VᵀVTx| + ‖VTx‖) + (|T| + |T|ᵀ)|x| for that element: T carries the
// roundings of VᵀV and of a product with |T|.
template <class T>
BALLAST_HD inline double qr_orthogonality_threshold(double size, std::int64_t m) {
  return (16 + 4 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * size;
}

// Triangular solve: one element of U x − c with `size` = (|U||x| + |c|) for that element: the computed x solves a system whose elements
// are off by n·u at most (Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5).
template <class T>
BALLAST_HD inline double qr_solve_threshold(double size, std::int64_t n) {
  return 4 * (static_cast<double>(n) + 8) * unit_roundoff<T> * size;
}

}  // namespace ballast::abft
