// Protected Householder QR factorization and least squares.
// Layer: interface; implemented in src/qr.
// Source: P. Du, P. Luszczek, S. Tomov, J. Dongarra, Soft Error Resilient QR Factorization for Hybrid System, 2011;
//         E. Elmroth, F. Gustavson, Applying recursion to serial and parallel QR factorization, 2000; docs/protection.md.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
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
inline namespace abi_1 {

enum class side : std::uint8_t { left, right };
enum class transpose : std::uint8_t { no, yes };  // yes: the conjugate transpose of complex matrices
enum class operation : std::uint8_t { geqrf, ormqr, orgqr, gels };

// The size of a problem: `batch` matrices of rows × columns elements (m × n).
struct problem {
  ballast::precision precision = ballast::precision::f64;
  std::int64_t rows = 0;     // m
  std::int64_t columns = 0;  // n
  std::int64_t batch = 1;    // matrices, factored independently
  bool complex = false;      // complex numbers, of two components of that precision
};

// The one-line name of a problem: qr_f64_m4096_n4096, qr_f64_m64_n64_b1000; of complex numbers qr_c64_m4096_n4096 (f32) and
// qr_c128_m4096_n4096 (f64).
BALLAST_API std::string to_token(const problem& value);
BALLAST_API problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

// Options of a plan.
struct options {
  // Floats on cuda, compute capability 9.0: multiply large matrices on tensor cores as three products of TF32 (3xTF32), as accurate as
  // FP32, with other rounding. False: in FP32.
  bool tf32x3 = true;
  // gels and solve refuse columns that depend on each other to rounding (rank_deficient_error). False: only an exact zero on the diagonal
  // of R, as LAPACK's xGELS does.
  bool full_rank = true;
};

// All functions take float, double, std::complex<float> and std::complex<double>. For complex numbers ᵀ below means the conjugate
// transpose, as in LAPACK's complex routines: Q is unitary, tau is complex, the diagonal of R is real, and a norm is that of the absolute
// values. Every backend computes them, with all of its schemes; a plan of one complex matrix whose execution names neither the backend cuda
// nor the scheme hybrid takes a backend of the host.
//
// A view may have any strides that keep its elements apart. Column-major views (row_stride 1) are used in place, others are copied. Every
// operand may lie in host memory or in device memory of the plan's CUDA device. A backend copies the operands of the other memory, in the
// order of call::stream, and copies results back after they are verified, before it returns.
//
// On cuda, matrices of the host that exceed the device's memory pass through it in blocks of columns; the host solves with R. With
// protection::correct, and in gels, that takes host memory for one more such matrix.
//
// Inf and NaN in the data pass through as the mathematics says and are no fault; such data are not verified.
//
// Schemes: "block_checksum" (default): each column block has two checksum columns and is verified when it becomes a panel; panels, V,
// tau, T and R have checks of their own. "qr_update" (the paper's): two checksum columns for the whole matrix, verified at the end; a
// struck column is repaired by Givens rotations. "hybrid" (the paper whole, backend cuda): the same with the matrix and its updates on
// the device and the panels on the host's cores; the transfers are compared bit for bit. It keeps a copy of the input, and one panel, in
// pinned host memory, which stays for the next call.
//
// Errors: invalid_argument_error (shapes, overlap, memory of another device), rank_deficient_error (gels, solve), unsupported_error,
// device_error, out_of_memory_error, uncorrectable_error. After an uncorrectable fault under protection::correct, arguments hold what
// they held before the call; except where the copy of a verified result to its argument stays wrong: then this argument may hold
// anything.

// A prepared problem: where and how it is computed. Immutable and thread-safe; copies share it. It keeps the memory of its calls: after the
// first call of an operation, a call of the same operation allocates no memory on the host (docs/design/memory.md says what a device
// allocates). The matrices of a call have the plan's shape. ormqr and orgqr also take the first columns of such an A: Q with more columns
// than A needs a plan of its own.
template <class T>
class plan {
 public:
  // `size.precision` and `size.complex` are ignored: they are T's. Throws invalid_argument_error, unsupported_error (backend, scheme).
  BALLAST_API explicit plan(const qr::problem& size, const execution& where = {}, const options& wanted = {});
  BALLAST_API ~plan();
  BALLAST_API plan(const plan&);
  BALLAST_API plan(plan&&) noexcept;
  BALLAST_API plan& operator=(const plan&);
  BALLAST_API plan& operator=(plan&&) noexcept;

  // geqrf, ormqr, orgqr and gels of a matrix of up to 256 rows and columns on cuda are computed by the kernels for batches, in one launch
  // (gels: three) and with the bits that the matrix has in a batch, unless execution::scheme names a scheme, call::on_progress is set, Q is
  // applied to more columns than a team of threads holds, or numbers of gels are so near the ends of the range that they must be scaled.
  // They have the protection of batches (docs/protection.md), and take the plan's own memory.
  //
  // A = Q R in LAPACK's storage. On exit R is on and above the diagonal of A (m × n), the vectors v of the reflectors
  // H_j = I − tau_j v_j v_jᵀ below it (v_j(j) = 1 is not stored), Q = H_1 … H_min(m,n). tau: min(m, n) elements.
  // 2n²(m − n/3) flops for m ≥ n, four times as many for complex numbers; memory for one copy of A with protection::correct (unless A had
  // to be copied anyway). Covered: panel, tau, T, V, trailing updates, R. With qr_update and hybrid, Q after Givens rotations is turned
  // back into reflectors, so that the storage is always this.
  BALLAST_API report geqrf(matrix_view<T> A, std::span<T> tau, const call& now = {}) const;

  // C ← op(Q) C (left) or C op(Q) (right), Q from geqrf's `A` and `tau` (k = tau.size() reflectors).
  BALLAST_API report ormqr(side from, transpose op, matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C,
                           const call& now = {}) const;

  // Overwrites A (m × n, n ≤ m, k = tau.size() ≤ n reflectors from geqrf) with the first n columns of Q.
  BALLAST_API report orgqr(matrix_view<T> A, std::span<const T> tau, const call& now = {}) const;

  // Solves min ‖B − A X‖₂ by columns (m ≥ n), or the X of least norm with A X = B (m < n). A (m × n, full rank) is overwritten by
  // its factors (for m < n its transpose by those of Aᵀ). B has max(m, n) rows: on entry its first m are B, on exit its first n are X, and
  // for m ≥ n the rows n … m − 1 hold the residual in Q's basis (their norm is the residual norm), as in LAPACK's xGELS. Throws
  // rank_deficient_error, with the rank and the number of a dependent column, if columns (rows for m < n) depend on each other to rounding,
  // for any scaling of them: if report::condition is above 1 / (4 u √min(m, n)), u the unit roundoff; options::full_rank.
  BALLAST_API report gels(matrix_view<T> A, matrix_view<T> B, const call& now = {}) const;

  // Column pivoting: A(:, pivots) = Q R, with Q and R stored as by geqrf, pivots a permutation of 0 … n − 1 (output only), and
  // |R_kk| ≥ ‖R(k … , j)‖₂ for all j > k, as LAPACK's xGEQP3 chooses. All columns are free to move. A with Inf or NaN keeps its order.
  // The same order as LAPACK's where no two norms come within a part in 10⁶ of each other. m n² + n³/3 flops for each round of the
  // choice (m ≥ n; most matrices take one; four times as many for complex numbers) and those of geqrf; memory for three copies of A in
  // double (six if n = 4m) and one of A. On cuda the device chooses, if its memory holds that, the columns in their order and
  // the n × n products of the columns, else the host. Covered: as geqrf; and the choice, which is verified on the finished R (a wrong norm
  // or choice: all is done again); and the permutation. pivots lies in host memory.
  BALLAST_API report geqp3(matrix_view<T> A, std::span<std::int64_t> pivots, std::span<T> tau, const call& now = {}) const;

  // Solves min ‖B − A X‖₂ by columns for A (m × n) of any rank; of all solutions the X of least norm, by a complete orthogonal
  // factorization: A(:, pivots) = Q R, R(0 … rank − 1, :) = [U 0] Zᵀ. The rank is the largest r for which the leading r × r block of R has
  // a condition number (estimated as by LAPACK's xGELSY) below 1 / rcond; what lies below it counts as zero. 0 ≤ rcond < 1; negative:
  // NumPy's, 2 u max(m, n). B has max(m, n) rows: on entry its first m are B, on exit its first n are X; the others keep their values. On
  // exit A holds the factors of geqp3; report::condition is that of the leading block. Covered: as geqp3, ormqr and gels. Throws
  // unsupported_error for matrices that exceed the device's memory.
  BALLAST_API report gelsy(matrix_view<T> A, matrix_view<T> B, std::span<std::int64_t> pivots, double rcond, std::int64_t& rank,
                           const call& now = {}) const;

  // Batches: the same for many matrices of one shape at once, A_b = Q_b R_b for b = 0 … count − 1. tau has `count` times as many elements,
  // matrix by matrix. Operands do not overlap, nor do the matrices of one; they may interleave (any strides that keep their elements apart
  // within a matrix).
  // Every matrix is verified by itself before it is stored, and computed again from its input if it fails, at most twice. An event's index
  // is the matrix. One that stays wrong (uncorrectable) is not stored under protection::correct, the others are; but orgqr and ormqr on
  // cuda store their results in parts of 8 to 128 columns, each verified by itself. Covered, up to about the floor of a column of the
  // functions above, for the whole matrix: everything between two readings of the input and the stores, and V, tau and R until these
  // stores. Matrices of up to 256 rows and columns are computed side by side, on the host one by each thread, on cuda one by a warp, a
  // block or a cluster of blocks (the latter from compute capability 9.0 on; docs/design/qr-cuda.md), and there also matrices of more rows,
  // unless the whole device is faster with one after the other. Others go one after the other through
  // the functions above, whose events then have the number of the matrix as index. gels: as its single form, but A holds factors that are
  // not scaled back, and each of its three steps (factor, apply Q, solve) is stored by itself: after an uncorrectable fault A_b and B_b may
  // hold anything. Throws rank_deficient_error, which names the first matrix in which a column depends on those before it to rounding (a
  // number on R's diagonal is at most 4 u √n times the largest in its column); the other matrices are solved, and the B of such a matrix is
  // not to be used.
  BALLAST_API report geqrf(matrix_batch_view<T> A, std::span<T> tau, const call& now = {}) const;
  BALLAST_API report ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C,
                           const call& now = {}) const;
  BALLAST_API report orgqr(matrix_batch_view<T> A, std::span<const T> tau, const call& now = {}) const;
  BALLAST_API report gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const call& now = {}) const;

  // The same on call::stream without waiting: for the cuda backend, matrices that its kernels for batches take (up to 256 columns), and
  // operands in device memory. A CUDA graph can capture the call once it has run outside of one. The report has the verdict, and its get()
  // throws rank_deficient_error. Throws unsupported_error for other backends and sizes.
  [[nodiscard]] BALLAST_API pending_report enqueue_geqrf(matrix_batch_view<T> A, std::span<T> tau, const call& now = {}) const;
  [[nodiscard]] BALLAST_API pending_report enqueue_ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau,
                                                         matrix_batch_view<T> C, const call& now = {}) const;
  [[nodiscard]] BALLAST_API pending_report enqueue_orgqr(matrix_batch_view<T> A, std::span<const T> tau, const call& now = {}) const;
  [[nodiscard]] BALLAST_API pending_report enqueue_gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const call& now = {}) const;

  // Bytes of device memory that the operation on a batch of problem().batch matrices takes from call::workspace; without a workspace it
  // takes the plan's own memory. 0 for other backends than cuda, and for larger matrices: such a call, like the functions for one larger
  // matrix, allocates in stream order. A workspace that is too small is an invalid_argument_error. orgqr: for matrices without gaps between
  // their elements; others need as many bytes more as their gaps have.
  BALLAST_API std::int64_t workspace_bytes(operation op) const;

  BALLAST_API const qr::problem& problem() const;
  BALLAST_API ballast::backend backend() const;  // the one that was chosen for operands in its own memory

  struct implementation;  // src/qr/api/plan.hpp

 private:
  const implementation& made() const;
  std::shared_ptr<const implementation> implementation_;
};

extern template class plan<float>;
extern template class plan<double>;
extern template class plan<std::complex<float>>;
extern template class plan<std::complex<double>>;

// ---- One call. Each makes a plan and runs it once.

BALLAST_API report geqrf(matrix_view<float> A, std::span<float> tau, const execution& where = {}, const call& now = {});
BALLAST_API report geqrf(matrix_view<double> A, std::span<double> tau, const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_view<const float> A, std::span<const float> tau, matrix_view<float> C,
                         const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_view<const double> A, std::span<const double> tau, matrix_view<double> C,
                         const execution& where = {}, const call& now = {});
BALLAST_API report orgqr(matrix_view<float> A, std::span<const float> tau, const execution& where = {}, const call& now = {});
BALLAST_API report orgqr(matrix_view<double> A, std::span<const double> tau, const execution& where = {}, const call& now = {});
BALLAST_API report gels(matrix_view<float> A, matrix_view<float> B, const execution& where = {}, const call& now = {});
BALLAST_API report gels(matrix_view<double> A, matrix_view<double> B, const execution& where = {}, const call& now = {});

// The same for complex numbers: ᵀ is the conjugate transpose, ormqr is xUNMQR and orgqr xUNGQR.
BALLAST_API report geqrf(matrix_view<std::complex<float>> A, std::span<std::complex<float>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report geqrf(matrix_view<std::complex<double>> A, std::span<std::complex<double>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_view<const std::complex<float>> A, std::span<const std::complex<float>> tau,
                         matrix_view<std::complex<float>> C, const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_view<const std::complex<double>> A, std::span<const std::complex<double>> tau,
                         matrix_view<std::complex<double>> C, const execution& where = {}, const call& now = {});
BALLAST_API report orgqr(matrix_view<std::complex<float>> A, std::span<const std::complex<float>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report orgqr(matrix_view<std::complex<double>> A, std::span<const std::complex<double>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report gels(matrix_view<std::complex<float>> A, matrix_view<std::complex<float>> B, const execution& where = {},
                        const call& now = {});
BALLAST_API report gels(matrix_view<std::complex<double>> A, matrix_view<std::complex<double>> B, const execution& where = {},
                        const call& now = {});

BALLAST_API report geqp3(matrix_view<float> A, std::span<std::int64_t> pivots, std::span<float> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report geqp3(matrix_view<double> A, std::span<std::int64_t> pivots, std::span<double> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report gelsy(matrix_view<float> A, matrix_view<float> B, std::span<std::int64_t> pivots, double rcond, std::int64_t& rank,
                         const execution& where = {}, const call& now = {});
BALLAST_API report gelsy(matrix_view<double> A, matrix_view<double> B, std::span<std::int64_t> pivots, double rcond, std::int64_t& rank,
                         const execution& where = {}, const call& now = {});
BALLAST_API report geqp3(matrix_view<std::complex<float>> A, std::span<std::int64_t> pivots, std::span<std::complex<float>> tau,
                         const execution& where = {}, const call& now = {});
BALLAST_API report geqp3(matrix_view<std::complex<double>> A, std::span<std::int64_t> pivots, std::span<std::complex<double>> tau,
                         const execution& where = {}, const call& now = {});
BALLAST_API report gelsy(matrix_view<std::complex<float>> A, matrix_view<std::complex<float>> B, std::span<std::int64_t> pivots,
                         double rcond, std::int64_t& rank, const execution& where = {}, const call& now = {});
BALLAST_API report gelsy(matrix_view<std::complex<double>> A, matrix_view<std::complex<double>> B, std::span<std::int64_t> pivots,
                         double rcond, std::int64_t& rank, const execution& where = {}, const call& now = {});

BALLAST_API report geqrf(matrix_batch_view<float> A, std::span<float> tau, const execution& where = {}, const call& now = {});
BALLAST_API report geqrf(matrix_batch_view<double> A, std::span<double> tau, const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_batch_view<const float> A, std::span<const float> tau, matrix_batch_view<float> C,
                         const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_batch_view<const double> A, std::span<const double> tau,
                         matrix_batch_view<double> C, const execution& where = {}, const call& now = {});
BALLAST_API report orgqr(matrix_batch_view<float> A, std::span<const float> tau, const execution& where = {}, const call& now = {});
BALLAST_API report orgqr(matrix_batch_view<double> A, std::span<const double> tau, const execution& where = {}, const call& now = {});
BALLAST_API report gels(matrix_batch_view<float> A, matrix_batch_view<float> B, const execution& where = {}, const call& now = {});
BALLAST_API report gels(matrix_batch_view<double> A, matrix_batch_view<double> B, const execution& where = {}, const call& now = {});

BALLAST_API report geqrf(matrix_batch_view<std::complex<float>> A, std::span<std::complex<float>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report geqrf(matrix_batch_view<std::complex<double>> A, std::span<std::complex<double>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_batch_view<const std::complex<float>> A, std::span<const std::complex<float>> tau,
                         matrix_batch_view<std::complex<float>> C, const execution& where = {}, const call& now = {});
BALLAST_API report ormqr(side from, transpose op, matrix_batch_view<const std::complex<double>> A,
                         std::span<const std::complex<double>> tau, matrix_batch_view<std::complex<double>> C, const execution& where = {},
                         const call& now = {});
BALLAST_API report orgqr(matrix_batch_view<std::complex<float>> A, std::span<const std::complex<float>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report orgqr(matrix_batch_view<std::complex<double>> A, std::span<const std::complex<double>> tau, const execution& where = {},
                         const call& now = {});
BALLAST_API report gels(matrix_batch_view<std::complex<float>> A, matrix_batch_view<std::complex<float>> B, const execution& where = {},
                        const call& now = {});
BALLAST_API report gels(matrix_batch_view<std::complex<double>> A, matrix_batch_view<std::complex<double>> B, const execution& where = {},
                        const call& now = {});

// A matrix that a call has computed, with its report.
template <class T>
struct computed {
  matrix<T> values;
  ballast::report report;
};

// A factorization that owns its storage. r(), q() and solve() throw invalid_argument_error if storage and tau do not belong together any
// more (changed or moved from).
template <class T>
class factors {
 public:
  matrix<T> storage;  // geqrf's A, column-major
  std::vector<T> tau;
  ballast::report report;

  BALLAST_API matrix<T> r() const;  // min(m, n) × n, upper trapezoidal; a copy
  // m × min(m, n), orthonormal columns.
  [[nodiscard]] BALLAST_API computed<T> q(const execution& where = {}, const call& now = {}) const;
  // The least-squares solution, n × B.columns, m ≥ n. Throws rank_deficient_error as gels.
  [[nodiscard]] BALLAST_API computed<T> solve(matrix_view<const T> B, const execution& where = {}, const call& now = {}) const;
};

extern template class factors<float>;
extern template class factors<double>;
extern template class factors<std::complex<float>>;
extern template class factors<std::complex<double>>;

BALLAST_API factors<float> factor(matrix_view<const float> A, const execution& where = {}, const call& now = {});
BALLAST_API factors<double> factor(matrix_view<const double> A, const execution& where = {}, const call& now = {});
BALLAST_API factors<std::complex<float>> factor(matrix_view<const std::complex<float>> A, const execution& where = {},
                                                const call& now = {});
BALLAST_API factors<std::complex<double>> factor(matrix_view<const std::complex<double>> A, const execution& where = {},
                                                 const call& now = {});

// A factorization with column pivoting that owns its storage: A(:, pivots) = Q R. All functions throw as those of `factors`.
template <class T>
class pivoted_factors {
 public:
  matrix<T> storage;  // geqp3's A, column-major
  std::vector<T> tau;
  std::vector<std::int64_t> pivots;
  ballast::report report;

  BALLAST_API matrix<T> r() const;  // min(m, n) × n, upper trapezoidal; a copy
  // m × min(m, n), orthonormal columns.
  [[nodiscard]] BALLAST_API computed<T> q(const execution& where = {}, const call& now = {}) const;
  // The numerical rank, as gelsy finds it.
  BALLAST_API std::int64_t rank(double rcond = -1) const;
};

extern template class pivoted_factors<float>;
extern template class pivoted_factors<double>;
extern template class pivoted_factors<std::complex<float>>;
extern template class pivoted_factors<std::complex<double>>;

BALLAST_API pivoted_factors<float> factor_pivoted(matrix_view<const float> A, const execution& where = {}, const call& now = {});
BALLAST_API pivoted_factors<double> factor_pivoted(matrix_view<const double> A, const execution& where = {}, const call& now = {});
BALLAST_API pivoted_factors<std::complex<float>> factor_pivoted(matrix_view<const std::complex<float>> A, const execution& where = {},
                                                                const call& now = {});
BALLAST_API pivoted_factors<std::complex<double>> factor_pivoted(matrix_view<const std::complex<double>> A, const execution& where = {},
                                                                 const call& now = {});

// The solution of least norm of a least-squares problem of any rank, as gelsy.
template <class T>
struct solution {
  matrix<T> values;       // n × B.columns
  std::int64_t rank = 0;  // A's, by rcond
  std::vector<std::int64_t> pivots;
  ballast::report report;
};

BALLAST_API solution<float> lstsq(matrix_view<const float> A, matrix_view<const float> B, double rcond = -1, const execution& where = {},
                                  const call& now = {});
BALLAST_API solution<double> lstsq(matrix_view<const double> A, matrix_view<const double> B, double rcond = -1, const execution& where = {},
                                   const call& now = {});
BALLAST_API solution<std::complex<float>> lstsq(matrix_view<const std::complex<float>> A, matrix_view<const std::complex<float>> B,
                                                double rcond = -1, const execution& where = {}, const call& now = {});
BALLAST_API solution<std::complex<double>> lstsq(matrix_view<const std::complex<double>> A, matrix_view<const std::complex<double>> B,
                                                 double rcond = -1, const execution& where = {}, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::qr
