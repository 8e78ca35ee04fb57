// Thresholds of K-Means: bounds of the residual that rounding alone can cause. Each names its derivation; docs/protection.md has the
// measurements.
// Layer: K-Means. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "abft/threshold.hpp"
#include "core/macros.hpp"

namespace ballast::kmeans::thresholds {

// Row check: the residual of Σ_j w_j (‖c_j‖² − 2 x·c_j) over one section of centroids, with every operation in working precision.
// Derivation: a chain of n multiply-adds that starts with ‖c_j‖² errs by a random walk of at most about u √n (‖c_j‖² + 2‖x‖‖c_j‖). The
// errors of the columns are independent: their squares, with their weights, add up. The product with the checksum centroid C errs by
// u √n ‖x‖‖C‖. The sums over the 8 columns of a tile add the same errors with a factor below 8 instead of √n. If all terms of a chain are
// equal (duplicated features of few bits), its steps err alike, and alike in all columns. That error is half the length of a chain, at most
// k_run, and half the length of the sum of spans of k_run chains, with sums instead of roots of sums of squares. This second part is a
// bound and needs no factor. κ of the first part: docs/design/kmeans.md, "Calibration". The lower tier: `doubt` times the limit is a tenth
// of the random walk alone. A residual is in doubt if it is above that and also above k_doubt times the root mean square of the other
// residuals of its block and section, each in units of its limit. That is no failure, but its block is computed twice, and both
// computations must give the same labels. The root mean square measures the rounding of these data; the tenth of the walk is for data with
// few residuals other than 0. Residuals are not quite normal, because rounding follows each point's own partial sums: 0 to 0.5 % of the
// blocks of random data are computed twice, and 1.6 % of those of twelve hostile kinds.
struct row_limits {
  double slope;  // factor of ‖x‖: the limit is slope · ‖x‖ + offset
  double offset;
  double doubt;
};
inline constexpr double k_row = 2;
inline constexpr double k_doubt = 7;
inline constexpr std::int64_t k_run = 32;  // number of features in one chain of additions, and of chains in one span
BALLAST_HD inline row_limits row(double u, std::int64_t n, double sum_norm, double sum_square, double root_norm, double root_square,
                                 double checksum_norm) {
  // sum_norm = Σ w‖c‖, sum_square = Σ w‖c‖², root_norm = √Σ w²‖c‖², root_square = √Σ w²‖c‖⁴, checksum_norm = ‖C‖.
  const double walk = k_row * u * (std::sqrt(static_cast<double>(n)) + 8);
  const std::int64_t steps = (n < k_run ? n : k_run) + n / (k_run * k_run);
  const double alike = 0.5 * u * static_cast<double>(steps);
  const row_limits random = {walk * (2 * root_norm + checksum_norm), walk * root_square, 0.1};
  const double slope = random.slope + alike * (2 * sum_norm + checksum_norm), offset = random.offset + alike * sum_square;
  // The limits are 0 for a centroid at the origin.
  const double share =
      slope > 0 && offset > 0 ? (random.slope / slope < random.offset / offset ? random.slope / slope : random.offset / offset) : 1;
  return {slope, offset, random.doubt * share};
}

// Distance: bounds the difference of two evaluations of ‖x − c‖² in working precision, one of them as ‖c‖² − 2 x·c + ‖x‖², in units of
// ‖x‖² + ‖c‖²; and of two weighted sums of such distances, in units of the sum. Random walks as above.
inline constexpr double k_distance = 2;
BALLAST_HD inline double distance(double u, std::int64_t n) {
  return k_distance * u * (std::sqrt(static_cast<double>(n)) + 4 + static_cast<double>(n) / 8);
}

// Row check of distances from differences: bounds the residual of Σ_j w_j ‖x − c_j‖² over `count` centroids against Σ w ‖x‖² + Σ w ‖c‖² −
// 2 x·Σ w c, in units of s = Σ w (‖x‖² + ‖c‖²). Distances and ‖x‖² have the precision of u, all sums over centroids are in double.
// Derivation. A distance errs by `distance`. A sum of `count` terms, one after the other, rounds partial sums that grow evenly: errors of
// at most u each, rms u / √3, add up to √(count / 3) u / √3 = √count u / 3 of the sum. Four sums are made so: of the distances, at most 2
// s; of the checksum centroid, which takes part with 2 ‖x‖ Σ w ‖c‖ ≤ s; of w and of w ‖c‖², together s. The last three are the same for all
// rows. Together √6 √count u / 3 = 0.82 √count u; k_columns is six times that. The notebook has the clean maxima.
inline constexpr double k_columns = 5;
BALLAST_HD inline double distance_sum(double u, std::int64_t n, std::int64_t count) {
  return distance(u, n) + k_columns * abft::unit_roundoff<double> * std::sqrt(static_cast<double>(count));
}

// Row check of scores by a running sum over columns: the square of the factor by which rounding may exceed a limit that is computed from
// root-sums of squares. The limit is walk · (√Σ(w‖c‖)² ‖x‖ + 4 √Σ(w‖c‖²/2)²) or more, and a residual above it is not yet a fault: it makes
// the row doubtful, and its label is decided by distances. Derivation. The sum over `columns` weighted scores, in four lanes, rounds
// partial sums of up to P = Σ w (‖x‖ ‖c‖ + ‖c‖²/2); as above that is rms √(columns / 4) u P / 3 at most, and six times that is u √columns
// P. By Cauchy–Schwarz Σ w‖c‖ ≤ √columns √Σ(w‖c‖)², and the same holds for the squares. So the rounding is at most the limit plus columns ·
// u / walk times the limit, and (a + b)² ≤ 2 (a² + b²).
BALLAST_HD inline double row_excess(double u, double walk, std::int64_t columns) {
  const double ratio = static_cast<double>(columns) * u / walk;
  return 2 + 2 * ratio * ratio;
}

// Sums: bounds the difference of two sums of the same `count` numbers in double, in different orders. `root`: the root of the sum of their
// squares; `chain`: the longest run of additions into one accumulator. For random numbers rounding is a random walk of √chain
// steps. For equal numbers each step errs alike, which gives chain · Σ|x| ≤ chain · √count · root. A quarter of that suffices, because an
// error is at most half a unit, and partial sums are half of the whole on average.
inline constexpr double k_sum = 8;
BALLAST_HD inline double sum(double chain, double count, double root) {
  return abft::unit_roundoff<double> * (k_sum * (std::sqrt(chain) + 8) + 0.25 * chain * std::sqrt(count)) * root;
}

// Sums of squares: bounds the difference of two sums of the squares of m × n numbers, by columns and by rows, relative to either. A square
// passes through the additions of its row and of its column, in any order, and may be rounded itself.
BALLAST_HD constexpr double square(double m, double n) { return abft::reordered_sum_limit(m + n + 1); }

// Order of scores. Two scores of a point x, the smaller one `minimum`, may be in the wrong order if they differ by no more than
// square · ‖x‖² + least_score · minimum + places · |minimum| + offset.
template <class T>
struct score_margin {
  T square = 0, least_score = 0, offset = 0;
  T places = 0;  // 0 if scores have all their bits
};

// Derivation. A score is ‖c‖² − 2 x·c with rounded coordinates. Let u be the unit roundoff, a = ‖x‖, D = ‖x − c‖, R = ‖c‖ ≤ a + D.
//   · A term of the product passes `steps` additions: of its run, its span, and the sum of the spans; ‖c‖² passes as many and was rounded
//     itself. With Σ|2 x_f c_f| ≤ 2aR the error is at most u (steps + 1) (R² + 2aR) (Higham, Accuracy and Stability, section 3.1).
//   · x and c were rounded when they were shifted: ‖δx‖ ≤ ua and ‖δc‖ ≤ uR change D² by at most 2uD (a + R).
//   · R² + 2aR ≤ 3a² + 4aD + D² ≤ 5a² + 3D², and 2D (a + R) ≤ 2D (2a + D) ≤ 2a² + 4D².
// So E ≤ u ((5s + 2) a² + (3s + 4) D²) with s = steps + 1. The nearest centroid and the one of the smallest score err by E each, and both
// have D² ≤ minimum + a² + 2E; 1.01 covers terms of order u² s². Each operation may also lose half of the smallest number by underflow.
template <class T>
BALLAST_HD inline score_margin<T> margin_of(std::int64_t n) {
  const std::int64_t run = k_run, runs = (n + run - 1) / run, spans = (runs + run - 1) / run;
  const double steps = static_cast<double>((n < run ? n : run) + (runs - 1 < run ? runs - 1 : run) + (spans - 1));
  const double s = steps + 1, unit = 1.01 * 2 * abft::unit_roundoff<T>;
  return {static_cast<T>(unit * (8 * s + 6)), static_cast<T>(unit * (3 * s + 4)),
          static_cast<T>(4 * static_cast<double>(n + 2)) * static_cast<T>(sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074)};
}

// The margin of scores whose `bits` low bits hold the place of their column instead. Derivation. Such a score p differs from the score s by
// less than 2^bits units in the last place: |p − s| ≤ δ |s|, δ = 2^(bits + 1) u, or 2^bits times the smallest number. Let M bound what
// s* may exceed the smallest score by, as above; then p* may exceed the smallest p by L = M + δ (|s*| + |s|). Both are at most
// (|p| + L) / (1 − δ), so L ≤ (M + 2 δ |p|) / (1 − 2 δ). In M the smallest score is at most p + δ |s|, and least_score is far below 1. All
// terms of order δ² are below 2⁻¹⁵ of the others (bits ≤ 6), which 1.01 covers.
template <class T>
inline score_margin<T> margin_with_places(std::int64_t n, int bits) {
  score_margin<T> made = margin_of<T>(n);
  const double unit = std::ldexp(2 * abft::unit_roundoff<T>, bits);
  made.places = static_cast<T>(1.01 * 2 * unit);
  made.offset += static_cast<T>(std::ldexp(2.0, bits)) * static_cast<T>(sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074);
  return made;
}

}  // namespace ballast::kmeans::thresholds
