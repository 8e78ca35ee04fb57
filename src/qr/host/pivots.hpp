// QR with column pivoting in host memory: the choice of the columns, its check on the finished R, and the numerical rank of R.
// Layer: backend (host), over the kernels of double and std::complex<double>. docs/design/qr-pivoting.md.
// Source: P. Businger, G. Golub, Linear least squares solutions by Householder transformations, 1965 (the rule of the pivots);
//         C. Bischof, Incremental condition estimation, 1990 (the rank).
#pragma once

#include <span>

#include "qr/contract.hpp"

namespace ballast::qr::host {

// Chooses the order of the columns of A (m × n, finite, any strides): order[k] is the column whose part orthogonal to the columns
// order[0 … k − 1] is longest, for k < min(m, n); the other columns follow. Computed in double. The result is not verified: the caller
// factors A in this order and calls measure_pivots().
// reference: the norms of all columns are computed anew at each step. cpu: Cholesky with pivoting of AᴴA, in blocks, as long as its
// rounding does not reach the pivots; then the remaining columns are projected and begin again. 4/3 n³ flops for m = n. plainly: as
// reference on every backend, for matrices like Kahan's, whose columns after the first are nearly dependent though no pivot is small: there
// AᴴA has lost the norms.
template <class S>
void choose_pivots(const context& run, const matrix_view<const S>& A, std::span<index> order, bool plainly = false);

// Verifies the choice on R (steps × n on and above the diagonal, steps = min(m, n)): for all j > k, Σ_{i ≥ k} |R_ij|² ≤ |R_kk|².
template <class S>
pivot_sums measure_pivots(const context& run, const matrix_view<const S>& R, index m);

// Returns the first k for which order[k] is no column, or one that stands in the order before; −1 if `order` is a permutation.
index first_repeated(std::span<const index> order);

// Returns the first column j in which P differs in any bit from column order[j] of A; −1 if there is none.
template <class S>
index first_moved(const context& run, const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P);

// to(:, j) ← A(:, order[j]), or with `back` to(:, order[j]) ← A(:, j).
template <class S>
void copy_columns(const context& run, const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& to, bool back);

// The rank of a triangle, decided by estimates of the largest and smallest singular value of its leading blocks.
struct triangle_rank {
  index rank = 0;
  double condition = 1;  // σ_max / σ_min of the leading block of that size, estimated from below
};

// Returns the largest r for which the leading r × r block of R has an estimated condition number below 1 / rcond, as LAPACK's xGELSY.
// O(r²).
template <class S>
triangle_rank rank_of(const matrix_view<const S>& R, double rcond);

}  // namespace ballast::qr::host
