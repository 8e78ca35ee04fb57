// Thresholds of QR: bounds of the residual that rounding alone can cause. Each names its derivation; docs/protection.md has the
// measurements.
// Layer: QR. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "abft/threshold.hpp"
#include "core/macros.hpp"

namespace ballast::qr::thresholds {

// Thresholds of ‖residual‖₂ of a block [X, Xd] after orthogonal transformations of vectors of m elements; also of a panel and of the
// final certificate. `norm`: ‖X diag(d)‖_F + ‖Xd‖₂; `columns`: those of X. Each transformation consists of inner products of length m,
// whose rounding is √m·u in the probabilistic bound (Higham, Mary, 2019), relative to the size of the result. Later transformations keep
// its norm. So the residual of random data is a few u·norm, regardless of their size: 1.3 at 40 × 24, 5.2 at 2048 × 2048, and 6.3 for the
// worst of 15 kinds of data that are not equal numbers. Equal numbers come near √m·u·norm. Every update by a panel rounds each element once
// more: that grows with the root of the number of `reflectors` (0: there are no updates). On a GPU, with long sums on tensor cores: 11.4 at
// 4096², 16.8 at 16384², 21 at 32768². All measurements: docs/design/qr.md.
template <class T>
BALLAST_HD inline abft::tiers residual(double norm, std::int64_t m, std::int64_t columns, std::int64_t reflectors = 0) {
  const double unit = abft::unit_roundoff<T> * norm;
  return {(6 + std::log2(static_cast<double>(m)) + std::sqrt(static_cast<double>(reflectors)) / 16) * unit,
          (16 + 8 * std::sqrt(static_cast<double>(m)) + std::sqrt(static_cast<double>(columns))) * unit};
}

// Thresholds of |aᵀ(op(Q) x) − (op(Q)ᵀa)ᵀx| for a column x of m elements with 2-norm `norm`, Q of `reflectors` reflectors, and a with
// random elements in ±[1, 2). The rounding error of op(Q) x is a vector as long as the residual above, here for one column. Its product
// with a is a random number of 1.5 times that length. The products vᵀx are sums of numbers of one sign if x is near the range of Q; their
// rounding grows with the root of their length: 90 u·norm was measured for 10⁶ × 32 in double
// precision on an H200.
template <class T>
BALLAST_HD inline abft::tiers application(double norm, std::int64_t m, std::int64_t reflectors) {
  const double unit = abft::unit_roundoff<T> * norm;
  return {(24 + 4 * std::sqrt(static_cast<double>(reflectors)) + 2 * std::log2(static_cast<double>(m)) +
           std::sqrt(static_cast<double>(m)) / 16) *
              unit,
          (128 + 64 * std::sqrt(static_cast<double>(m))) * unit};
}

// Threshold of the difference between ‖R e_j‖ and ‖A e_j‖ = `norm`.
template <class T>
BALLAST_HD inline double column_norm(double norm, std::int64_t m) {
  return (16 + 8 * std::sqrt(static_cast<double>(m))) * abft::unit_roundoff<T> * norm;
}

// Threshold of |τ‖v‖² − 2|. Both factors carry a few roundings; reconstructed reflectors inherit the loss of orthogonality of their
// columns.
template <class T>
BALLAST_HD inline double reflector(std::int64_t m) {
  return (32 + 4 * std::sqrt(static_cast<double>(m))) * abft::unit_roundoff<T>;
}

// Two tiers for the check of a reflector, or of orthogonality, with this threshold. Sums of equal numbers err alike in each step, and the
// error depends on the BLAS. OpenBLAS's Prescott kernels have the longest chains: constant columns of 9000 floats reached 1.5 times the
// threshold before products were split into runs of 32 rows.
BALLAST_HD inline abft::tiers reflector_tiers(double threshold) { return {threshold, 4 * threshold}; }

// Threshold of one element of TᵀVᵀV T x − (T + Tᵀ)x, with `size` = |T|ᵀ·(|VᵀVTx| + ‖VTx‖) + (|T| + |T|ᵀ)|x| for that element: T carries
// the roundings of VᵀV and of a product with |T|.
template <class T>
BALLAST_HD inline double orthogonality(double size, std::int64_t m) {
  return (16 + 4 * std::sqrt(static_cast<double>(m))) * abft::unit_roundoff<T> * size;
}

// Triangular solve: threshold of one element of U x − c, with `size` = (|U||x| + |c|) for that element. The computed x solves a system
// whose elements differ by at most n·u (Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5).
template <class T>
BALLAST_HD inline double solve(double size, std::int64_t n) {
  return 4 * (static_cast<double>(n) + 8) * abft::unit_roundoff<T> * size;
}

// QR with column pivoting: the choice of the pivots from AᵀA ends where the square of the largest remaining norm is this share of the
// largest square that a remaining column began with. Such a square then errs by at most the rounding of its sums over this share.
inline constexpr double k_least_rest = 0x1p-24;

// Threshold of the excess of a column's norm below row k over the pivot |R_kk|, with `norms`: those of the two columns. The squares that
// decided err by the rounding of sums of m products in double, over k_least_rest; R errs by its own rounding, as in column_norm.
template <class T>
BALLAST_HD inline double pivot(double pivot, double norms, std::int64_t m) {
  const double sum = 16 + 8 * std::sqrt(static_cast<double>(m));
  return sum * (abft::unit_roundoff<double> / k_least_rest * pivot + abft::unit_roundoff<T> * norms);
}

// Batches look at R's diagonal alone: a column depends on those before it to rounding if |r_jj| is at most this share of the largest number
// in column j of R. A dependence that no single column shows (Kahan's matrices) stays unseen.
template <class T>
BALLAST_HD inline double least_pivot(std::int64_t n) {
  return 4 * abft::unit_roundoff<T> * std::sqrt(static_cast<double>(n));
}

// The largest condition number of a matrix of n columns, scaled to norms near 1, that has full rank: above it the smallest singular value
// may be rounding alone. A column of R errs by a few u of its norm, as above; errors of n columns add up like a random walk in the product
// with a unit vector, u √n. NumPy's limit is 1 / (2 u max(m, n)), which refuses more.
template <class T>
BALLAST_HD inline double most_condition(std::int64_t n) {
  return 1 / least_pivot<T>(n);
}

}  // namespace ballast::qr::thresholds
