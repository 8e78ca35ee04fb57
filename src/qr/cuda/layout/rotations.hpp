// What the kernels of recovery take.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstdint>

namespace ballast::qr::cuda {

// Rotation i acts on rows i and i + 1: [x; y] ← [c s; −s c] [x; y].
enum class rotating { up, down, making };

template <class S>
struct rotate_rows_arguments {
  S* R;  // upper triangle; row i + 1 of column i is Y[i]
  std::int64_t ld;
  std::int64_t first, last;            // rotations first … last − 1
  std::int64_t first_column, columns;  // of R
  S* Y;
  S* c;
  S* s;
  std::int64_t spike_column;  // up: gets *spike in row 0 at the end; −1: none
  const S* spike;
};

template <class S>
struct rotate_columns_arguments {
  S* Q;
  std::int64_t ld, rows;
  std::int64_t first, last;
  const S* c;
  const S* s;
  bool up;
};

// c, s of the rotations that turn w into a multiple of e₁ from the bottom up; w[0] becomes its norm.
template <class S>
struct givens_arguments {
  S* w;
  std::int64_t count;
  S* c;
  S* s;
};

// Column `k` of Q gets w's tail from row k on, with norm 1; w[k] its norm. An empty tail: e_k.
template <class S>
struct tail_arguments {
  S* w;
  std::int64_t rows, k;
  S* column;
};

// Row i of R times sign_i, and V below the diagonal from Q's storage.
template <class S>
struct store_factors_arguments {
  S* A;
  std::int64_t lda;
  std::int64_t rows, columns, steps;
  const S* Q;  // rows × steps
  const S* sign;
};

// r = c1 − y1, s = c2 − y2, and for each block of threads Σr², Σrs, Σs².
template <class S>
struct match_arguments {
  const S* c;       // rows × 2
  const double* y;  // rows × 2
  std::int64_t rows;
  double* partial;  // blocks × 3
};

inline constexpr int k_rotated_rows = 16;  // rows that go through shared memory at once: a line of doubles

}  // namespace ballast::qr::cuda
