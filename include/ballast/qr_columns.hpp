// QR factorization and least squares of a matrix whose columns are divided among the ranks of a group, block by block in turn.
// Layer: interface; implemented in src/qr/api/columns.cpp. docs/distributed.md shows its use.
// Source: J. Choi et al., The design and implementation of the ScaLAPACK LU, QR, and Cholesky factorization routines, 1996 (the layout and
// the order of the steps); P. Du et al., Algorithm-based fault tolerance for dense matrix factorizations, 2012 (checksums of blocks).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/qr.hpp>
#include <ballast/report.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {
inline namespace abi_1 {

// The 1-D block-cyclic division of `columns` columns: rank p of P has the blocks p, p + P, p + 2P … of `block` columns each, one beside the
// other; the last block of all may be narrower. It is ScaLAPACK's layout on a grid of 1 × P processes with NB = block and CSRC = 0.
struct block_columns {
  std::int64_t columns = 0;
  std::int64_t block = 1;
  int ranks = 1;
  int rank = 0;

  std::int64_t blocks() const { return (columns + block - 1) / block; }
  // The number of this rank's columns.
  std::int64_t count() const {
    const std::int64_t whole = blocks(), own = whole / ranks + (rank < whole % ranks ? 1 : 0);
    const bool last = whole > 0 && (whole - 1) % ranks == rank;
    return own * block - (last ? whole * block - columns : 0);
  }
  // The number, in the whole matrix, of this rank's column `local`.
  std::int64_t global(std::int64_t local) const { return (local / block * ranks + rank) * block + local % block; }
  // The rank that has a column of the whole matrix, and its number there.
  int owner(std::int64_t column) const { return static_cast<int>(column / block % ranks); }
  std::int64_t local(std::int64_t column) const { return column / block / ranks * block + column % block; }
};

// The block columns of the factors that one device has, in its memory. Copies share the memory, which is released with the last of them.
// Not to be written.
template <class T>
class device_columns {
 public:
  int device = -1;                     // its number in the driver's order
  block_columns own;                   // the rank: its place among the devices that take part
  matrix_view<const T> storage;        // m × own.count(), column-major
  std::shared_ptr<const void> memory;  // owns it
};

// A = Q R, m × n of any shape, with block columns of A on the ranks of a group. The owner of a block column factors it as one call of geqrf
// does and sends V and tau to all, which apply Qᵀ to their blocks. The next panel is updated and factored before the rest, so that it is on
// its way meanwhile. R, V and tau have the same bits for any number of ranks that compute on the same backend; they differ from those of
// factor() by rounding.
// On a group of devices (group::devices) a call is made once, for real numbers, with all columns of A, which may lie in host memory or in
// memory of any device; work on them by other streams than the default stream of each device must have ended. Device p of P has the block
// columns that rank p would have, in its memory, and keeps them there; no more devices take part than there are blocks. Panels go from
// device to device. Q, R and the results are whole then, and lie in host memory; C and B are whole, and the devices have even shares of
// their columns. The bits depend on the number of devices that take part. All ranks call the members in the same order, on the group that
// made the object, with as many ranks. Errors: invalid_argument_error (shapes; different calls on the ranks), unsupported_error (backend
// cuda without a group of devices; complex numbers on devices), rank_lost_error (it names the rank; the rank's columns are lost),
// uncorrectable_error and the others of factors<T>. The report of each call is that of all ranks. Covered: the panels as in geqrf, the
// updates as in ormqr, the messages as in docs/distributed.md; every block from the copy of the input to the end by a checksum column that
// is updated with it (from 0 or norms of 2^-900, for float 2^-90, on; without Inf and NaN); V on every rank and the finished factors by
// seals. A fault that these find lets all ranks factor again from A. Not covered: A itself before it is copied, columns that come to a
// device from host memory and results that leave it for there, and the object after the call. Flops of a rank: 1/P of geqrf, and the panels
// one after the other. Each rank sends its panels, m' × block, to all. Memory beside the factors: twice the rank's columns during the call.
template <class T>
class column_factors {
 public:
  matrix<T> storage;   // the rank's columns, m × own.count(), column-major: R on and above the diagonal of the whole matrix, V below it
  std::vector<T> tau;  // min(m, n): all of them, on every rank
  block_columns own;   // the division of the n columns
  std::vector<device_columns<T>> devices;  // on a group of devices: their columns; then `storage` is empty, and own.rank is 0
  ballast::report report;

  // The rank's columns of R, min(m, n) × own.count().
  BALLAST_API matrix<T> r() const;
  // The division of Q's min(m, n) columns, and the rank's columns of Q, m × q_columns().count().
  BALLAST_API block_columns q_columns() const;
  [[nodiscard]] BALLAST_API computed<T> q(const call& now = {}) const;
  // Q C and Qᴴ B, m × p; C, B: this rank's operand, m × p, of any p ≥ 0, which may differ from rank to rank.
  [[nodiscard]] BALLAST_API computed<T> apply(matrix_view<const T> C, const call& now = {}) const;
  [[nodiscard]] BALLAST_API computed<T> apply_transposed(matrix_view<const T> B, const call& now = {}) const;
  // The X of least ‖A X − B‖, n × p, m ≥ n; B: this rank's right-hand sides, m × p, of any p ≥ 0. Throws rank_deficient_error on all ranks
  // if a diagonal element of R is rounding beside its column; dependences that no single column shows are not seen.
  [[nodiscard]] BALLAST_API computed<T> solve(matrix_view<const T> B, const call& now = {}) const;

  execution where;  // the execution that factor_columns was given
};

extern template class column_factors<float>;
extern template class column_factors<double>;
extern template class column_factors<std::complex<float>>;
extern template class column_factors<std::complex<double>>;

// Factors the matrix of which each rank of where.group passes its columns, m × block_columns::count(), as block_columns divides them. n is
// the sum of all. `block`: 1 to 96 columns, on devices 1 to 1024 (512 suits large matrices). A rank may have none; it passes m × 0.
BALLAST_API column_factors<float> factor_columns(matrix_view<const float> A, std::int64_t block, const execution& where,
                                                 const call& now = {});
BALLAST_API column_factors<double> factor_columns(matrix_view<const double> A, std::int64_t block, const execution& where,
                                                  const call& now = {});
BALLAST_API column_factors<std::complex<float>> factor_columns(matrix_view<const std::complex<float>> A, std::int64_t block,
                                                               const execution& where, const call& now = {});
BALLAST_API column_factors<std::complex<double>> factor_columns(matrix_view<const std::complex<double>> A, std::int64_t block,
                                                                const execution& where, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::qr
