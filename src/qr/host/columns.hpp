// The checksum of a block of columns that is divided from the others: its weights, and its residual before and after the block has become a
// panel.
// Layer: backend (host), over kernels<S>. For QR of columns on the ranks of a group.
// Source: docs/design/distributed.md, "QR of columns".
#pragma once

#include <span>

#include "qr/contract.hpp"

namespace ballast::qr::host {

// Draws the weights of a block, whose first column has number `first`, from the sizes of its columns, 2^-e for their norms. Returns ‖A
// diag(d)‖²; Inf and NaN as encode_columns().
template <class S>
double weights_of_columns(std::span<const column_size> sizes, index first, double* weights);

// Draws the weights of a block, whose first column has number `first`, and computes its checksum c = A d (m numbers). Returns ‖A diag(d)‖ +
// ‖c‖, from which the threshold follows; Inf if A has Inf or NaN, and NaN if no checksum can judge the block because a column is so small
// that R's rounding is absolute.
template <class S>
double encode_columns(const context& run, const matrix_view<const S>& A, index first, double* weights, S* c);

// Returns ‖A d − c‖ over all rows. `panel` ≥ 0: the block is a factored panel whose diagonal begins in this row: of the rows from there on
// only the upper triangle counts, and zeros below it.
template <class S>
double residual_of_columns(const context& run, const matrix_view<const S>& A, index panel, const double* weights, const S* c);

// Returns a seal of the bits of a matrix (columns contiguous) that continues `made`.
template <class S>
std::uint64_t seal_of_columns(const matrix_view<const S>& A, std::uint64_t made);

// y ← y − R x, x: R.columns × count, y: R.rows × count, in double: one step of a back substitution.
template <class S>
void subtract_columns(const context& run, const matrix_view<const S>& R, index count, const wide_of<S>* x, index ldx, wide_of<S>* y,
                      index ldy);

}  // namespace ballast::qr::host
