// The arguments of the kernels for QR with column pivoting.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs. Wide: double, or a complex number of two doubles.
#pragma once

#include <cstdint>

#include "qr/cuda/layout/matrix_args.hpp"

namespace ballast::qr::cuda {

inline constexpr int k_choice_block = 64;   // pivots between two updates of G
inline constexpr double k_taken = -2;       // stands for the square of a column that is a pivot
inline constexpr int k_choice_alone = 256;  // up to so many columns one thread block chooses

// Takes up to `count` pivots of G − L Lᴴ, G = WᴴW: pivot k's column of L, and the diagonal that remains. Rows and columns of G keep their
// places; a row of L below a pivot's own is 0.
template <class Wide>
struct choice_arguments {
  const Wide* G;  // n × n; the pivots before this launch are subtracted
  std::int64_t n;
  Wide* L;  // n × count; columns without a pivot become 0
  int count;
  std::int64_t before;         // pivots that earlier launches of the round took at most
  double* rest;                // the diagonal of G − L Lᴴ by column; k_taken: it is a pivot
  const double* scale;         // 4^exponent of each column
  const double* initial;       // the diagonal of G times `scale`
  std::int32_t* order;         // receives the pivots of the round: order[before + k]
  std::int32_t* state;         // [0]: pivots of the round; [1]: 1 if the round is over, and later launches take none
  std::int64_t slab;           // rows for each thread block
  std::int64_t chosen, steps;  // pivots of earlier rounds; pivots of all rounds
};

// to(i, j) ← 2^−shifts_j · from(rows_i, columns_j), in double. Null: i, j, no shift.
template <class S>
struct gather_arguments {
  const S* from;
  std::int64_t ld;
  std::int64_t rows, columns;
  const std::int32_t* row_list;
  const std::int32_t* column_list;
  const std::int32_t* shifts;
  wide_of<S>* to;
  std::int64_t ldt;
};

struct pivot_result {
  double residual, threshold;
};

// The largest excess of the norm of each column of R below a row over that row's pivot: host::measure_pivots.
template <class S>
struct measure_pivots_arguments {
  const S* R;  // steps × n
  std::int64_t ld;
  std::int64_t steps, n;
  std::int64_t reals;          // real numbers in a column of A
  const column_result* sizes;  // the norms of R's columns
  pivot_result* to;            // n
};

}  // namespace ballast::qr::cuda
