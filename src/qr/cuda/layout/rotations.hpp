// The arguments of the recovery kernels.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstdint>

namespace ballast::qr::cuda {

// Rotation i acts on rows i and i + 1: [x; y] ← [c̄ s̄; −s c] [x; y]. For real numbers c̄ is c.
enum class rotating { up, down, making };

template <class S>
struct rotate_rows_arguments {
  S* R;  // upper triangle; row i + 1 of column i is stored in Y[i]
  std::int64_t ld;
  std::int64_t first, last;            // rotations first … last − 1
  std::int64_t first_column, columns;  // columns of R
  S* Y;
  S* c;
  S* s;
  // Rotating up: row 0 of this column receives *spike at the end; −1: no spike.
  std::int64_t spike_column;
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
  // Rotating down complex columns: column i < turned is multiplied by turns[i] at the end.
  const S* turns = nullptr;
  std::int64_t turned = 0;
};

// Computes c, s of the rotations that turn w into a multiple of e₁ from the bottom up; w[0] becomes its norm.
template <class S>
struct givens_arguments {
  S* w;
  std::int64_t count;
  S* c;
  S* s;
};

// Column `k` of Q receives w's tail from row k on, normalized; w[k] receives the norm of the tail. For an empty tail the column is e_k.
template <class S>
struct tail_arguments {
  S* w;
  std::int64_t rows, k;
  S* column;
};

// Multiplies row i of R by sign_i, after which R_ii is real, and copies V below the diagonal from Q's storage. Complex: |sign_i| = 1.
template <class S>
struct store_factors_arguments {
  S* A;
  std::int64_t lda;
  std::int64_t rows, columns, steps;
  const S* Q;  // rows × steps
  const S* sign;
};

// Computes r = c1 − y1, s = c2 − y2, and Σr², Σrs, Σs² for each thread block. The components of a complex number are two rows; S is real.
template <class S>
struct match_arguments {
  const S* c;       // rows × 2
  const double* y;  // rows × 2
  std::int64_t rows;
  double* partial;  // blocks × 3
};

inline constexpr int k_rotated_rows = 16;  // rows in shared memory at a time: a cache line of doubles

}  // namespace ballast::qr::cuda
