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
#include <ballast/pending_report.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {

enum class side : std::uint8_t { left, right };
enum class transpose : std::uint8_t { no, yes };

// All functions take float and double. A view may have any strides that keep its elements apart. Column-major views (row_stride 1) are used
// in place, others are copied. Every operand may lie in host memory or in device memory of the current CUDA device. A backend copies what
// lies in the other memory, in the order of execution::stream, and copies results back when all is verified, before it returns.
// On cuda, matrices of the host that do not fit into the device's memory pass through it in pieces of columns; the host solves with R. With
// protection::correct, and in gels, that takes host memory for one more such matrix.
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

// The same for many matrices of one shape at once, A_b = Q_b R_b for b = 0 … count − 1, with the formulas, storage and errors of the
// functions above. tau: `count` times as many elements, those of a matrix one behind the other, matrix by matrix. Operands do not overlap,
// nor do the matrices of one; they may interleave (any strides that keep their elements apart within a matrix).
// Every matrix is verified by itself before it is stored, and computed again from its input if it fails, at most twice. An event's index is
// the matrix. One that stays wrong (uncorrectable) is not stored under protection::correct, the others are; but orgqr and ormqr on cuda
// store what they make in parts of 8 to 128 columns, each verified by itself. Covered, up to about the floor of a column of the functions
// above, for the whole matrix: everything between two readings of the input and the stores, and V, tau and R as they wait for these.
// Matrices of up to 256 rows and columns are computed side by side, on the host one by each thread, on cuda one by a warp, a block or a
// cluster of blocks (the latter from compute capability 9.0 on; docs/design/qr-cuda.md). Others go one after the other through the
// functions above, whose events then have the number of the matrix as index. gels: as its single form, but A holds factors that are not
// scaled back, and each of its three steps (factor, apply Q, solve) is stored by itself: after an uncorrectable fault A_b and B_b may hold
// anything. Throws invalid_argument_error, which names the first matrix, if an R has an exact zero on its diagonal; the other matrices are
// solved, and the X of these hold Inf or NaN.
BALLAST_API report geqrf(matrix_batch_view<float> A, std::span<float> tau, const execution& how = {});
BALLAST_API report geqrf(matrix_batch_view<double> A, std::span<double> tau, const execution& how = {});
BALLAST_API report ormqr(side where, transpose op, matrix_batch_view<const float> A, std::span<const float> tau, matrix_batch_view<float> C,
                         const execution& how = {});
BALLAST_API report ormqr(side where, transpose op, matrix_batch_view<const double> A, std::span<const double> tau,
                         matrix_batch_view<double> C, const execution& how = {});
BALLAST_API report orgqr(matrix_batch_view<float> A, std::span<const float> tau, const execution& how = {});
BALLAST_API report orgqr(matrix_batch_view<double> A, std::span<const double> tau, const execution& how = {});
BALLAST_API report gels(matrix_batch_view<float> A, matrix_batch_view<float> B, const execution& how = {});
BALLAST_API report gels(matrix_batch_view<double> A, matrix_batch_view<double> B, const execution& how = {});

// The same on the stream of the execution, without waiting: for the cuda backend, matrices of up to 256 rows and columns that its kernels
// take, and operands in device memory. Can be captured in a CUDA graph once it has run outside of one. Faults, and matrices without full
// rank, are known when the report is asked for. Throws unsupported_error for other backends and sizes.
[[nodiscard]] BALLAST_API pending_report enqueue_geqrf(matrix_batch_view<float> A, std::span<float> tau, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_geqrf(matrix_batch_view<double> A, std::span<double> tau, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_ormqr(side where, transpose op, matrix_batch_view<const float> A,
                                                       std::span<const float> tau, matrix_batch_view<float> C, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_ormqr(side where, transpose op, matrix_batch_view<const double> A,
                                                       std::span<const double> tau, matrix_batch_view<double> C, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_orgqr(matrix_batch_view<float> A, std::span<const float> tau, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_orgqr(matrix_batch_view<double> A, std::span<const double> tau, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_gels(matrix_batch_view<float> A, matrix_batch_view<float> B, const execution& how);
[[nodiscard]] BALLAST_API pending_report enqueue_gels(matrix_batch_view<double> A, matrix_batch_view<double> B, const execution& how);

// The one-line name of a problem: qr_f64_m4096_n4096, qr_f64_m64_n64_b1000.
struct problem {
  ballast::precision precision = ballast::precision::f64;
  std::int64_t m = 0, n = 0;
  std::int64_t batch = 0;  // how many matrices, for the functions that take many; 0: one, for the others
};
BALLAST_API std::string to_token(const problem& value);
BALLAST_API problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

enum class operation : std::uint8_t { geqrf, ormqr, orgqr, gels };

// Bytes of device memory that such a call on the cuda backend takes from execution::workspace; without a workspace, or with none that is
// large enough for what it says here, it allocates. `value`: of A. 0 for other backends, and for a problem without a batch: those calls
// allocate what they need as they go, in stream order. A workspace that is too small is an invalid_argument_error.
BALLAST_API std::int64_t workspace_bytes(operation what, const problem& value);

}  // namespace ballast::qr
