// Operands of the host that exceed the engine's memory: copies by columns, and the steps that pass them through the engine in pieces.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "cuda/device/residence.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/driver/out_of_core.hpp"

namespace ballast::qr {

// Returns the width of the pieces if the matrix exceeds the engine's memory, else 0.
template <class S>
index piece_width(const operation_call<S>& here, const void* operand, index rows, index columns) {
  const index width = here.on->resident_columns(operand, rows, columns);
  return width < columns ? width : 0;
}

inline bool in_host_memory(const void* operand) { return ballast::cuda::residence_of(operand) != ballast::cuda::residence::device; }

// Copies a matrix in host memory.
template <class S>
void copy_on_host(const matrix_view<const S>& from, const matrix_view<S>& to) {
  for (index j = 0; j < to.columns; ++j) {
    if (from.row_stride == 1 && to.row_stride == 1) {
      std::copy_n(&from(0, j), to.rows, &to(0, j));
    } else {
      for (index i = 0; i < to.rows; ++i) to(i, j) = from(i, j);
    }
  }
}

// A column-major matrix in host memory, not initialised.
template <class S>
struct host_matrix {
  host_matrix(index rows, index columns)
      : memory(core::checked_product(rows, columns)), view(column_major(memory.data(), rows, columns, std::max<index>(rows, 1))) {}
  core::aligned_buffer<S> memory;
  matrix_view<S> view;
};

// Factors A in pieces. It works on a copy, so that A keeps its values after an uncorrectable fault under protection::correct.
template <class S>
void factor_out_of_core(operation_call<S>& here, index width, const matrix_view<S>& A, S* tau) {
  out_of_core<S> parts(here.run, *here.on, A.rows, width);
  if (here.how.protection != protection::correct && A.row_stride == 1) return parts.factor(here.plan.scheme, A, tau);
  const host_matrix<S> work(A.rows, A.columns);
  copy_on_host<S>(A, work.view);
  parts.factor(here.plan.scheme, work.view, tau);
  if (!here.lost()) copy_on_host<S>(work.view, A);
}

// out ← op(Q) out in pieces, or the first columns of op(Q).
template <class S>
void apply_out_of_core(operation_call<S>& here, index width, const matrix_view<const S>& V, std::span<const S> tau, bool transposed,
                       bool identity, const matrix_view<S>& out) {
  const index count = static_cast<index>(tau.size());
  matrix_view<const S> reflectors = V.block(0, 0, V.rows, count);
  const host_matrix<S> made(out.rows, out.columns);
  if (!identity) copy_on_host<S>(out, made.view);
  const auto apply = [&] {
    out_of_core<S>(here.run, *here.on, V.rows, width)
        .apply(transposed, reflectors, count, here.on->read(tau).data(), {.view = made.view, .identity = identity}, made.view);
  };
  if (reflectors.row_stride == 1) {
    apply();
  } else {
    const host_matrix<S> copy(V.rows, count);
    copy_on_host<S>(reflectors, copy.view);
    reflectors = copy.view;
    apply();
  }
  if (!here.lost()) copy_on_host<S>(made.view, out);
}

}  // namespace ballast::qr
