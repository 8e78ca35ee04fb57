// Thresholds: bounds of the residual that rounding alone can cause. Each names its derivation; docs/protection.md has the measurements.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// Unit roundoff: half the distance from 1 to the next larger number.
template <class T>
inline constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Returns the bound of |Re ρ| + |Im ρ|, where ρ = aᵀy − bᵀx, y = DFT of x with `points` points, |a_k| = 1 with random phases, b = DFT of a,
// and ‖x‖₂ = `norm`.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u, independently. The errors of one stage reach
// y with 2-norm c·u·√N·‖x‖, and a vector a of random phases projects that norm: their part of ρ has the RMS c'·u·√(N log₂N)·‖x‖. The two
// sums are computed in working precision in blocks of 16 terms. A block whose first term dominates rounds 30 times at the size of
// |b_j||x_j| ≤ 2√N‖x‖, as much as 6 further stages. kappa = worst/RMS with a margin: docs/design/fft.md has the measurements.
// The second term is the contribution of gradual underflow: half the smallest number at each of N·log₂N operations.
template <class T>
BALLAST_HD inline double fft_residual(double points, double norm, double kappa) {
  const double stages = std::log2(points) + 1 + 6;
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return kappa * (unit_roundoff<T> * std::sqrt(points * stages) * norm + smallest * points * std::sqrt(stages));
}

// Returns the growth, beyond √G, of the residual of a composite of G signals over the residual of one signal. Derivation: each thread adds
// the scalars of G signals in working precision, a random walk of G steps at the size of its part of √g‖x‖√N, g ≤ G. With uniform roundings
// each of the two sums has a variance of u²G²/24, relative to N‖x‖² in all: as much as G/8 further stages. Sums with complex weights are
// rounded twice in each step. Equal signals round alike and add up to as much as 1.42 √G instead of √G
// (src/fft/cuda/schemes/composite.cuh). The largest residual of a signal is 0.67 of its threshold, so a factor of 1.25 suffices.
BALLAST_HD inline double fft_group_growth(double points, int signals) {
  return signals == 1 ? 1 : 1.25 * std::sqrt(1 + signals / (4 * (std::log2(points) + 1 + 6)));
}

// Returns the contribution of gradual underflow to ρ after the output was scaled, which the scale of y does not reduce. A scaled element
// errs by half the smallest number in each part: at most 1 smallest number in |Re ρ| + |Im ρ|. Each of the 4 multiply-adds of an element of
// aᵀy in working precision errs by half of one: 2 in all. This is a bound and needs no factor. In signals of few points it is the only
// term.
template <class T>
BALLAST_HD inline double fft_output_underflow(double points) {
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
inline constexpr double k_fft_factor_stages = 4;
BALLAST_HD inline double fft_reals_stages(int last) { return 3 + last / 4.0; }
BALLAST_HD inline double fft_line_growth(double points, int first, int levels, double more) {
  const double stages = std::log2(points) + 1 + 6;
  const double here = std::log2(points) / 2 + 1.5 * first + 0.5 * levels;
  return std::sqrt(((here > stages ? here : stages) + more) / stages);
}

// Returns the contribution of gradual underflow to ρ from factors of size 1. Each of the two roundings of a part of z_o = f_o y_o errs by
// half the smallest number, and so does each of the 4 roundings of a part in Horner's scheme and the product with the middle factor:
// at most 2 + 4 smallest numbers in |Re| + |Im|. A bound, so it needs no factor.
template <class T>
BALLAST_HD inline double fft_factor_underflow(double points) {
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return 6 * smallest * points;
}

// K-Means, row check: the residual of Σ_j w_j (‖c_j‖² − 2 x·c_j) over one section of centroids, with every operation in working precision.
// Derivation: a chain of n multiply-adds that starts with ‖c_j‖² errs by a random walk of at most about u √n (‖c_j‖² + 2‖x‖‖c_j‖). The
// errors of the columns are independent: their squares, with their weights, add up. The product with the checksum centroid C errs by
// u √n ‖x‖‖C‖. The sums over the 8 columns of a tile add the same errors with a factor below 8 instead of √n. If all terms of a chain are
// equal (duplicated features of few bits), its steps err alike, and alike in all columns. That error is half the length of a chain, at most
// k_kmeans_run, and half the length of the sum of spans of k_kmeans_run chains, with sums instead of roots of sums of squares. This second
// part is a bound and needs no factor. κ of the first part: docs/design/kmeans.md, "Calibration".
// The lower tier: `doubt` times the limit is a tenth of the random walk alone. A residual is in doubt if it is above that and also above
// k_kmeans_doubt times the root mean square of the other residuals of its block and section, each in units of its limit. That is no
// failure, but its block is computed twice, and both computations must give the same labels. The root mean square measures the rounding of
// these data; the tenth of the walk is for data with few residuals other than 0. Residuals are not quite normal, because rounding follows
// each point's own partial sums: 0 to 0.5 % of the blocks of random data are computed twice, and 1.6 % of those of twelve hostile kinds.
struct row_limits {
  double slope;  // factor of ‖x‖: the limit is slope · ‖x‖ + offset
  double offset;
  double doubt;
};
inline constexpr double k_kmeans_row = 2;
inline constexpr double k_kmeans_doubt = 7;
inline constexpr std::int64_t k_kmeans_run = 32;  // number of features in one chain of additions, and of chains in one span
BALLAST_HD inline row_limits kmeans_row_limits(double u, std::int64_t n, double sum_norm, double sum_square, double root_norm,
                                               double root_square, double checksum_norm) {
  // sum_norm = Σ w‖c‖, sum_square = Σ w‖c‖², root_norm = √Σ w²‖c‖², root_square = √Σ w²‖c‖⁴, checksum_norm = ‖C‖.
  const double walk = k_kmeans_row * u * (std::sqrt(static_cast<double>(n)) + 8);
  const std::int64_t steps = (n < k_kmeans_run ? n : k_kmeans_run) + n / (k_kmeans_run * k_kmeans_run);
  const double alike = 0.5 * u * static_cast<double>(steps);
  const row_limits random = {walk * (2 * root_norm + checksum_norm), walk * root_square, 0.1};
  const double slope = random.slope + alike * (2 * sum_norm + checksum_norm), offset = random.offset + alike * sum_square;
  // The limits are 0 for a centroid at the origin.
  const double share =
      slope > 0 && offset > 0 ? (random.slope / slope < random.offset / offset ? random.slope / slope : random.offset / offset) : 1;
  return {slope, offset, random.doubt * share};
}

// K-Means, distance: bounds the difference of two evaluations of ‖x − c‖² in working precision, one of them as ‖c‖² − 2 x·c + ‖x‖², in
// units of ‖x‖² + ‖c‖²; and of two weighted sums of such distances, in units of the sum. Random walks as above.
inline constexpr double k_kmeans_distance = 2;
BALLAST_HD inline double kmeans_distance_limit(double u, std::int64_t n) {
  return k_kmeans_distance * u * (std::sqrt(static_cast<double>(n)) + 4 + static_cast<double>(n) / 8);
}

// K-Means, sums: bounds the difference of two sums of the same `count` numbers in double, in different orders. `root`: the root of the sum
// of their squares; `chain`: the longest run of additions into one accumulator. For random numbers rounding is a random walk of √chain
// steps. For equal numbers each step errs alike, which gives chain · Σ|x| ≤ chain · √count · root. A quarter of that suffices, because an
// error is at most half a unit, and partial sums are half of the whole on average.
inline constexpr double k_kmeans_sum = 8;
BALLAST_HD inline double kmeans_sum_limit(double chain, double count, double root) {
  return unit_roundoff<double> * (k_kmeans_sum * (std::sqrt(chain) + 8) + 0.25 * chain * std::sqrt(count)) * root;
}

// Two sums in double of the same non-negative numbers in two orders: bounds their difference, relative to either. `depth`: the most
// roundings that a term of either sum passes through: additions, and one more if the terms are products that are rounded. Derivation: a
// computed sum is the sum of x (1 + δ₁)…(1 + δ_h) with h ≤ depth and |δ| ≤ u (Higham, Accuracy and Stability of Numerical Algorithms,
// section 4.2). All terms have the same sign, so its relative error is at most (1 + u)^h − 1, which is below 1.01 h u for h u ≤ 0.01, or h
// ≤ 9·10¹³. Two such sums differ by at most 2.02 h u of the exact sum, which is below 2.1 h u of either computed one. This is a bound and
// needs no factor.
BALLAST_HD constexpr double reordered_sum_limit(double depth) { return 2.1 * unit_roundoff<double> * depth; }

// K-Means, sums of squares: the same for the squares of m × n numbers, summed by columns and by rows. A square passes through the additions
// of its row and of its column, in any order, and may be rounded itself.
BALLAST_HD constexpr double kmeans_square_limit(double m, double n) { return reordered_sum_limit(m + n + 1); }

// Two thresholds of one residual. Up to `clean` it is rounding; above `wrong` it is a fault. Between them it may be either, because the
// roundings of some data all have the same sign. Such data are computed again, and accepted if the result has the same bits.
struct tiers {
  double clean = 0;
  double wrong = 0;
};

// QR: thresholds of ‖residual‖₂ of a block [X, Xd] after orthogonal transformations of vectors of m elements; also of a panel and of the
// final certificate. `norm`: ‖X diag(d)‖_F + ‖Xd‖₂; `columns`: those of X. Each transformation consists of inner products of length m,
// whose rounding is √m·u in the probabilistic bound (Higham, Mary, 2019), relative to the size of the result. Later transformations keep
// its norm. So the residual of random data is a few u·norm, regardless of their size: 1.3 at 40 × 24, 5.2 at 2048 × 2048, and 6.3 for the
// worst of 15 kinds of data that are not equal numbers. Equal numbers come near √m·u·norm. Every update by a panel rounds each element once
// more: that grows with the root of the number of `reflectors` (0: there are no updates). On a GPU, with long sums on tensor cores: 11.4 at
// 4096², 16.8 at 16384², 21 at 32768². All measurements: docs/design/qr.md.
template <class T>
BALLAST_HD inline tiers qr_residual_thresholds(double norm, std::int64_t m, std::int64_t columns, std::int64_t reflectors = 0) {
  const double unit = unit_roundoff<T> * norm;
  return {(6 + std::log2(static_cast<double>(m)) + std::sqrt(static_cast<double>(reflectors)) / 16) * unit,
          (16 + 8 * std::sqrt(static_cast<double>(m)) + std::sqrt(static_cast<double>(columns))) * unit};
}

// QR: thresholds of |aᵀ(op(Q) x) − (op(Q)ᵀa)ᵀx| for a column x of m elements with 2-norm `norm`, Q of `reflectors` reflectors, and a with
// random elements in ±[1, 2). The rounding error of op(Q) x is a vector as long as the residual above, here for one column. Its product
// with a is a random number of 1.5 times that length.
template <class T>
BALLAST_HD inline tiers qr_application_thresholds(double norm, std::int64_t m, std::int64_t reflectors) {
  const double unit = unit_roundoff<T> * norm;
  return {(24 + 4 * std::sqrt(static_cast<double>(reflectors)) + 2 * std::log2(static_cast<double>(m))) * unit,
          (128 + 64 * std::sqrt(static_cast<double>(m))) * unit};
}

// QR: threshold of the difference between ‖R e_j‖ and ‖A e_j‖ = `norm`.
template <class T>
BALLAST_HD inline double qr_norm_threshold(double norm, std::int64_t m) {
  return (16 + 8 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * norm;
}

// QR: threshold of |τ‖v‖² − 2|. Both factors carry a few roundings; reconstructed reflectors inherit the loss of orthogonality of their
// columns.
template <class T>
BALLAST_HD inline double qr_reflector_threshold(std::int64_t m) {
  return (32 + 4 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T>;
}

// QR: two tiers for the check of a reflector, or of orthogonality, with this threshold. Sums of equal numbers err alike in each step, and
// the error depends on the BLAS. OpenBLAS's Prescott kernels have the longest chains: constant columns of 9000 floats reached 1.5 times the
// threshold before products were split into runs of 32 rows.
BALLAST_HD inline tiers qr_reflector_tiers(double threshold) { return {threshold, 4 * threshold}; }

// QR: threshold of one element of TᵀVᵀV T x − (T + Tᵀ)x, with `size` = |T|ᵀ·(|VᵀVTx| + ‖VTx‖) + (|T| + |T|ᵀ)|x| for that element: T carries
// the roundings of VᵀV and of a product with |T|.
template <class T>
BALLAST_HD inline double qr_orthogonality_threshold(double size, std::int64_t m) {
  return (16 + 4 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * size;
}

// Triangular solve: threshold of one element of U x − c, with `size` = (|U||x| + |c|) for that element. The computed x solves a system
// whose elements differ by at most n·u (Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5).
template <class T>
BALLAST_HD inline double qr_solve_threshold(double size, std::int64_t n) {
  return 4 * (static_cast<double>(n) + 8) * unit_roundoff<T> * size;
}

}  // namespace ballast::abft
