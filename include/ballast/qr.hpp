// Protected Householder QR factorization and least squares.
// Layer: interface; implemented in src/qr.
// Source: P. Du, P. Luszczek, S. Tomov, J. Dongarra, Soft Error Resilient QR Factorization for Hybrid System, 2011;
//         E. Elmroth, F. Gustavson, Applying recursion to serial and parallel QR factorization, 2000; docs/protection.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {

enum class side : std::uint8_t { left, right };
enum class transpose : std::uint8_t { no, yes };

// All functions take float and double. A view may have any strides that keep its elements apart. Column-major views (row_stride 1) are used
// in place, others are copied. Every operand may lie in host memory or in device memory of the current CUDA device. A backend copies what
// lies in the other memory, in the order of execution::stream, and copies results back when all is verified, before it returns.
// Inf and NaN in the data pass through as the mathematics says and are no fault; such data are not verified.
// Schemes: "block_checksum" (default): each column block has two checksum columns and is verified when it becomes a panel; panels, V, tau,
// T and R have checks of their own. "qr_update" (the paper's): two checksum columns for the whole matrix, verified at the end; a struck
// column is repaired by Givens rotations. "hybrid" (the paper whole, backend cuda): the same with the matrix and its updates on the device
// and the panels on the host's cores; what travels is compared to the bit. It keeps a copy of the input, and one panel, in pinned host
// memory, which stays for the next call.
// Errors: invalid_argument_error (shapes, overlap, memory of another device), unsupported_error, uncorrectable_error, std::bad_alloc.
// After an uncorrectable fault under protection::correct, arguments hold what they held before the call.

// A = Q R in LAPACK's storage. On exit R is on and above the diagonal of A (m × n), the vectors v of the reflectors
// H_j = I − tau_j v_j v_jᵀ below it (v_j(j) = 1 is not stored), Q = H_1 … H_min(m,n). tau: min(m, n) elements.
// 2n²(m − n/3) flops for m ≥ n; memory for one copy of A with protection::correct (unless A had to be copied anyway). Covered: panel, tau,
// T, V, trailing updates, R. With qr_update and hybrid, Q after Givens rotations is turned back into reflectors, so that the storage is
// always this.
BALLAST_API report geqrf(matrix_view<float> A, std::span<float> tau, const execution& how = {});
BALLAST_API report geqrf(matrix_view<double> A, std::span<double> tau, const execution& how = {});

// C ← op(Q) C (left) or C op(Q) (right), Q from geqrf's `A` and `tau` (k = tau.size() reflectors).
BALLAST_API report ormqr(side where, transpose op, matrix_view<const float> A, std::span<const float> tau, matrix_view<float> C,
                         const execution& how = {});
BALLAST_API report ormqr(side where, transpose op, matrix_view<const double> A, std::span<const double> tau, matrix_view<double> C,
                         const execution& how = {});

// Overwrites A (m × n, n ≤ m, k = tau.size() ≤ n reflectors from geqrf) with the first n columns of Q.
BALLAST_API report orgqr(matrix_view<float> A, std::span<const float> tau, const execution& how = {});
BALLAST_API report orgqr(matrix_view<double> A, std::span<const double> tau, const execution& how = {});

// Solves min ‖B − A X‖₂ by columns (m ≥ n), or the X of least norm with A X = B (m < n). A (m × n, full rank) is overwritten by
// its factors (of Aᵀ for m < n). B has max(m, n) rows: on entry its first m are B, on exit its first n are X, and for m ≥ n
// the rows n … m − 1 hold the residual in Q's basis (their norm is the residual norm), as in LAPACK's xGELS.
// Throws invalid_argument_error if R has an exact zero on its diagonal.
BALLAST_API report gels(matrix_view<float> A, matrix_view<float> B, const execution& how = {});
BALLAST_API report gels(matrix_view<double> A, matrix_view<double> B, const execution& how = {});

// A factorization that owns its storage. r(), q() and solve() throw invalid_argument_error if storage and tau do not belong together any
// more (changed or moved from).
template <class T>
class factors {
 public:
  matrix<T> storage;  // geqrf's A, column-major
  std::vector<T> tau;
  ballast::report report;

  BALLAST_API matrix<T> r() const;  // min(m, n) × n, upper trapezoidal
  // `seen`, if not null, gets the call's own report.
  BALLAST_API matrix<T> q(const execution& how = {}, ballast::report* seen = nullptr) const;  // m × min(m, n), orthonormal columns
  BALLAST_API matrix<T> solve(matrix_view<const T> B, const execution& how = {},
                              ballast::report* seen = nullptr) const;  // least squares, m ≥ n
};

extern template class factors<float>;
extern template class factors<double>;

BALLAST_API factors<float> factor(matrix_view<const float> A, const execution& how = {});
BALLAST_API factors<double> factor(matrix_view<const double> A, const execution& how = {});

// The one-line name of a problem: qr_f64_m4096_n4096.
struct problem {
  ballast::precision precision = ballast::precision::f64;
  std::int64_t m = 0, n = 0;
};
BALLAST_API std::string to_token(const problem& value);
BALLAST_API problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

}  // namespace ballast::qr
