// QR factorization and least squares of a matrix that is divided among a grid of ranks by rows and columns, in ScaLAPACK's layout.
// Layer: interface; implemented in src/qr/api/grid.cpp. docs/distributed.md shows its use.
// Source: J. Choi et al., The design and implementation of the ScaLAPACK LU, QR, and Cholesky factorization routines, 1996 (the steps);
// J. Demmel et al., Communication-optimal parallel and sequential QR and LU factorizations, 2012 (the panel); G. Ballard et al.,
// Reconstructing Householder vectors from TSQR, 2014; P. Du et al., Algorithm-based fault tolerance for dense matrix factorizations, 2012.
#pragma once

#include <array>
#include <complex>
#include <span>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/qr.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/report.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {
inline namespace abi_1 {

// A = Q R, M_ × N_ of any shape, on the grid that has it; no element moves to another layout. A panel lies in one block of columns and one
// block of rows; the ranks of its process column factor their rows of it, the one with its first row joins the triangles and finds V, tau
// and R in LAPACK's storage and with its signs. V and T go along the process rows; Vᴴ A is gathered along the process columns and added in
// the order of the process rows. The next panel is made while the rest of A is updated with the last one. Choose MB_ = NB_ of 32 to 96, or
// a multiple: panels end where a block ends, and have at most 64 columns.
//
// All ranks call the members in the same order, on the group that made the object, with as many ranks. The bits depend on the grid and the
// blocks. Errors: invalid_argument_error (desc, grid, shapes; different calls on the ranks), unsupported_error (backend cuda, a group of
// devices), rank_lost_error (it names the rank; its part of the matrix is lost), uncorrectable_error and the others of factors<T>. The
// report of each call is that of all ranks. With Inf or NaN in A the columns from the first of their panel on hold NaN. Covered: on every
// rank, a checksum column of each of its panels of columns, from the copy of the input to the end (from norms of 2^-900, for float 2^-90,
// or 0 on; without Inf and NaN); that I − V T Vᴴ of every panel is unitary; V, T and finished columns in memory by seals; the messages as
// in docs/distributed.md. A fault that these find lets all ranks compute again from A, or from the operand. Not covered: A and operands
// before they are copied, and the object after the call. Flops of a rank: about 1/P of geqrf, and twice those of panels for its process
// column. Memory beside the factors: two panels, and VᴴA for the rank's columns, up to four times while it is sent.
template <class T>
class grid_factors {
 public:
  matrix<T> storage;          // the rank's part, column-major: R on and above the diagonal of the whole matrix, V below it
  std::vector<T> tau;         // min(M_, N_): all of them, on every rank
  std::array<int, 9> desc{};  // the descriptor of A, with LLD_ of `storage`
  process_grid grid;
  int rank = 0;  // this rank's number in the grid
  ballast::report report;

  // The rank's part of R, min(M_, N_) × N_, in the same layout: its rows below min(M_, N_), all its columns.
  BALLAST_API matrix<T> r() const;
  // The rank's part of Q, M_ × min(M_, N_), in the same layout: all its rows, its columns below min(M_, N_).
  [[nodiscard]] BALLAST_API computed<T> q(const call& now = {}) const;
  // Q C and Qᴴ B: the rank's rows, as of A, of its process column's p columns; p ≥ 0 is the same on the ranks of a process column.
  [[nodiscard]] BALLAST_API computed<T> apply(matrix_view<const T> C, const call& now = {}) const;
  [[nodiscard]] BALLAST_API computed<T> apply_transposed(matrix_view<const T> B, const call& now = {}) const;
  // The X of least ‖A X − B‖, N_ × p, M_ ≥ N_: the rank's rows below N_ of its process column's columns. B as above. Throws
  // rank_deficient_error on all ranks if a diagonal element of R is rounding beside its column; dependences that no single column shows are
  // not seen.
  [[nodiscard]] BALLAST_API computed<T> solve(matrix_view<const T> B, const call& now = {}) const;

  execution where;  // the execution that factor_grid was given
};

extern template class grid_factors<float>;
extern template class grid_factors<double>;
extern template class grid_factors<std::complex<float>>;
extern template class grid_factors<std::complex<double>>;

// Factors the matrix of which each rank of where.group passes its part. desc, grid, local: as to_block_columns takes them.
BALLAST_API grid_factors<float> factor_grid(std::span<const float> local, std::span<const int> desc, const process_grid& grid,
                                            const execution& where, const call& now = {});
BALLAST_API grid_factors<double> factor_grid(std::span<const double> local, std::span<const int> desc, const process_grid& grid,
                                             const execution& where, const call& now = {});
BALLAST_API grid_factors<std::complex<float>> factor_grid(std::span<const std::complex<float>> local, std::span<const int> desc,
                                                          const process_grid& grid, const execution& where, const call& now = {});
BALLAST_API grid_factors<std::complex<double>> factor_grid(std::span<const std::complex<double>> local, std::span<const int> desc,
                                                           const process_grid& grid, const execution& where, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::qr
