// The arguments of the kernels that copy, scan and scale matrices.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "qr/cuda/layout/shapes.hpp"

namespace ballast::qr::cuda {

struct panel_gate;  // kernel_args.hpp
struct panel_record;
struct cholesky_qr_state;

template <class S>
struct copy_arguments {
  const S* from;  // null: the identity; column 0 is its column `first`
  std::int64_t from_row, from_column;
  S* to;
  std::int64_t to_row, to_column;
  std::int64_t rows, columns;
  std::int64_t there;  // rows of `from`; later rows count as zero
  std::int64_t first;
  const int* row_shifts;  // null: no shifts
  const int* column_shifts;
  int sign;    // +1 or −1: the sign with which shifts are applied
  bool upper;  // true: only elements on and above the diagonal
  bool conjugated = false;
  const std::int64_t* order = nullptr;  // column j of `to` is column order[j] of `from`; null: j
  bool triangle = false;                // true: elements below the diagonal count as zero
};

// Compares a copy with its source; no identity.
template <class S>
struct compare_arguments {
  copy_arguments<S> copy;
  long long* differs;  // lowered to the first column with an element that differs
};

// The norm of a column is norm · 2^exponent, as qr::column_size.
struct column_result {
  double norm;
  int exponent;
  int finite;
};

template <class S>
struct scan_arguments {
  const S* X;
  std::int64_t ld;
  std::int64_t rows;
  // The row of column 0's diagonal. With a triangle, column j has rows first + j … rows − 1 (lower), or 0 … first + j (upper).
  std::int64_t first;
  bool upper, lower;
  column_result* to;
  // If there are too few columns for all multiprocessors, each column is cut into chunks of rows.
  std::int64_t chunks = 1;
  double* partial = nullptr;         // a sum for each chunk of each column
  std::uint32_t* arrived = nullptr;  // one for each column, 0 before and after the launch
  // A packed matrix with the squared norms on its diagonal: a column whose square is within the range of doubles is not read. Null: no such
  // matrix.
  const double* gram = nullptr;
};

template <class S>
struct exponents_arguments {
  const S* X;
  std::int64_t row_stride, column_stride;
  std::int64_t rows;
  bool upper;
  const int* row_shifts;  // null: none
  std::int64_t chunks;    // blocks for each column
  int* to;                // for each chunk of each column; the largest of a column's chunks is the column's
};

template <class S>
struct diagonal_arguments {
  const S* R;
  std::int64_t ld;
  std::int64_t n;
  double small;
  // The index of the first zero, −1 if there is none; then 1 if an element is smaller than `small`, else 0.
  long long* to;
};

// Writes V with its ones and zeros.
template <class S>
struct form_v_arguments {
  const S* from;
  std::int64_t ld;
  std::int64_t rows;
  int width;
  S* to;                                     // rows × width
  bool checked;                              // the copy is read back and compared with a second reading of V
  const cholesky_qr_state* state = nullptr;  // the state of a panel begun ahead: V is 0 if it is not computed; null: it is computed
};

// The last reading of the gate for a panel. Closed: V and T become 0, so that products with them change nothing.
template <class S>
struct hold_arguments {
  const panel_gate* gate;
  panel_record* record;  // receives the state of the gate
  struct {
    S* data;
    std::int64_t count;
  } zero[2];  // V and T
};

// Column q of `count` numbers, `stride` doubles apart: number i of stream + q is random weight i.
struct random_arguments {
  double* to;
  std::int64_t count;
  std::uint64_t stream;
  bool with_sign;
  int stride = 1;  // 2: the real parts of complex numbers
};

template <class S>
struct strike_arguments {
  S* data;
  std::int64_t count;
  std::int64_t interval, intervals;
  std::int32_t step, steps;
  std::int32_t where;  // an inject::site
};

}  // namespace ballast::qr::cuda
