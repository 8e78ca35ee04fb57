// What the kernels of QR take.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs. Matrices are column-major unless strides say otherwise.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "qr/cuda/layout/shapes.hpp"

namespace ballast::qr::cuda {

// Reflectors as they are stored: v_j has a one on the diagonal of V and zeros above it; what is stored there is R's.
template <class S>
struct reflectors {
  const S* V;  // rows × width
  std::int64_t ldv;
  std::int64_t rows;
  int width;
  const S* T;  // width × width, upper triangular
  std::int64_t ldt;
};

// A Householder QR of up to k_inner columns.
template <class S>
struct panel_arguments {
  S* A;  // rows × width
  std::int64_t lda;
  std::int64_t rows;
  int width;
  S* tau;
  S* T;  // width × width, zero below the diagonal
  std::int64_t ldt;
  std::int64_t slab;  // rows of a block
  S* pivots;          // 2 × rows: scratch where the slab does not fit into shared memory; null: it does
};

// --- Panels ahead of the host.

// Whether what is enqueued behind a panel counts. Open: both words are 0. The first panel that does not pass closes it, and it stays closed
// until the host opens it. A struck word can close it, and cannot open it.
struct panel_gate {
  std::uint32_t closed, closed_too;
};
// Null: there is none.
BALLAST_HD inline bool is_closed(const panel_gate* gate) { return gate != nullptr && (gate->closed | gate->closed_too) != 0; }
// By one thread.
BALLAST_HD inline void close(panel_gate* gate) {
  if (gate != nullptr) *gate = {1, 1};
}

// As qr::panel_sums.
struct panel_result {
  double orthogonality, orthogonality_threshold, reflectors, data;
};

enum tall_stage : int { k_tall_failed, k_tall_factored, k_tall_orthonormal };

// What the device finds of a tall panel.
struct tall_state {
  int stage;   // a tall_stage
  int direct;  // 1: A is so well conditioned that A R⁻¹ is orthonormal to rounding; it is not made. Else 0
};

// What the device leaves of a panel for the host.
struct panel_record {
  panel_result sums;
  double entry;                // ‖residual‖
  std::uint32_t passed, held;  // whether the gate was open at the last look at it: 1 and 0, else 0 and 1
  tall_state tall;
};

// --- Panels of many rows (tall.cuh).

inline constexpr double k_tall_deviation = 0.25;  // ‖QᵀQ − I‖ from where one Cholesky factor makes Q orthonormal to rounding

template <class S>
struct gram_arguments {
  const S* from = nullptr;  // rows × width
  std::int64_t ldf = 0;
  std::int64_t rows = 0;
  int width = 0;
  int needed = k_tall_failed;  // nothing is done in another stage; k_tall_failed: it is done in any
  double* partial = nullptr;   // of each block: the Gram matrix of its rows, packed
  const tall_state* state = nullptr;
};

// to ← from R⁻¹.
template <class S>
struct substitute_arguments {
  const S* from = nullptr;  // rows × width
  std::int64_t ldf = 0;
  S* to = nullptr;  // may be `from`
  std::int64_t ldt = 0;
  std::int64_t rows = 0;
  int width = 0;
  int needed = k_tall_failed;  // as there
  bool in_place = false;       // of a direct panel the rows are taken from `to`
  const double* R = nullptr;   // packed
  const tall_state* state = nullptr;
};

struct square_factor_arguments {
  const double* G;  // packed, as R, before and all
  int width;
  bool first;            // G is A's: nothing is in front of it
  double near;           // ‖G − I‖ up to where its square is rounding
  double direct;         // Σ of 1 / λ, λ the eigenvalues of G with columns of length 1, up to where the panel is direct
  double* R;             // Cholesky factor of G
  const double* before;  // product of the factors in front of it, if there are any
  double* all;           // R times those
  tall_state* state;
  const panel_gate* gate = nullptr;  // closed: the panel is not made; null: none
};

template <class S>
struct square_reflectors_arguments {
  const S* X;  // its first `width` rows are read; of a direct panel A's
  std::int64_t ldx;
  int width;
  const double* R;       // packed, as `all` and `product`: X R⁻¹ is orthonormal
  const double* all;     // the panel is X R⁻¹ times this
  const double* direct;  // R and `all` of a direct panel
  double* product;       // what X becomes V by
  double* lower;         // V_1ᵀ without its diagonal, packed
  S* A;                  // its first `width` rows are written
  std::int64_t lda;
  S* tau;
  tall_state* state;
  const panel_gate* gate = nullptr;  // closed: the panel is not made, and nothing is written; null: none
};

template <class S>
struct square_t_arguments {
  int width;
  const double *R, *direct, *product, *lower;  // of square_reflectors_arguments
  S* T;                                        // width × width; 0 if the panel is not made
  const tall_state* state;
  panel_gate* gate = nullptr;  // is closed if the panel is not made; null: none
};

// The columns of a matrix in blocks, as qr::layout has them: of `width` columns, beginning anew behind the last panel.
struct block_list {
  std::int64_t steps, columns;
  int width;
};

// Sums over the rows of V.
template <class S>
struct products_arguments {
  reflectors<S> h = {};
  const double* y = nullptr;   // of rows; null: none
  const double* tx = nullptr;  // of width: p = V tx; null: none
  const S* c = nullptr;        // two columns of rows; null: none
  std::int64_t ldc = 0;
  const double* weights = nullptr;  // of rows: the checkpoint of V; null: none
  double* partial = nullptr;        // of each block 8 · width + 1: Vᵀ times y, p, c1, c2; Σv, Σwv, Σw²v, Σv²; ‖p‖²
  // Of `columns` reflectors, h and the panels behind it are taken, the last one narrower where so many are left; with weights alone.
  std::int64_t columns = 0;
  std::int64_t blocks =
      0;  // of threads for each panel, whose sums begin blocks · (8 · width + 1) apart; some are idle where rows are fewer
};

// All panels of a factorization, as they are stored.
template <class S>
struct panel_list {
  const S* A;
  std::int64_t lda;
  std::int64_t rows;
  std::int64_t steps;
  int width;
  const S* T;  // width² for each panel

  BALLAST_HD reflectors<S> operator[](std::int64_t k) const {
    const std::int64_t first = k * width, left = steps - first;
    const int w = static_cast<int>(left < width ? left : width);
    return {A + first * (lda + 1), lda, rows - first, w, T + k * width * width, w};
  }
};

// The seals anew: hashes of T, of R's rows above each panel, and of those within it; the second ones are added.
template <class S>
struct seals_arguments {
  panel_list<S> panels;
  std::int64_t count;
  unsigned long long* to;  // three for each panel
};

struct fold_arguments {
  const double* partial;  // blocks × count
  std::int64_t blocks;
  std::int64_t count;
  double* to;                         // count
  const tall_state* state = nullptr;  // fold_kernel does nothing if this panel is orthonormal; null: none
};

// Adds up what products_arguments leave of panels: their checkpoints.
struct checkpoints_arguments {
  const double* partial;
  std::int64_t rows, columns, width, blocks;  // as there
  double* to;                                 // 4 · width for each panel
};

template <class S>
struct judge_arguments {
  reflectors<S> h;
  fold_arguments fold;  // of products_arguments::partial
  std::int64_t m;       // of the whole matrix
  const S* tau;
  const double* x;     // width
  const double* tx;    // of open_arguments
  double* tz;          // 3 × width: Tᵀ times the sums of y, c1, c2
  double* checkpoint;  // 4 × width; null: not kept
  // Hashes of T, and of R's rows within the panel, by a block each behind those of the sums; null: none. They are there before T is judged.
  unsigned long long* seal_t;
  unsigned long long* seal_r;
  panel_result* to;
  std::uint32_t* arrived;
  panel_gate* gate = nullptr;  // is closed unless orthogonality and reflectors pass; null: none
  double limit = 0;            // of reflectors
};

// What the checks of a panel begin with.
template <class S>
struct open_arguments {
  reflectors<S> h;
  const double* x;
  double* tx;  // 2 × width: T x, and |T| |x|
};

// y ← y − V tz.
template <class S>
struct transformed_arguments {
  reflectors<S> h = {};
  const double* tz = nullptr;  // of y, c1, c2, width each
  const double* y = nullptr;
  double* next = nullptr;
  const S* c = nullptr;  // null: y alone
  std::int64_t ldc = 0;
  const double* d = nullptr;  // width × 2: the weights of R's columns
  std::int64_t ldd = 0;
  double* head = nullptr;     // 2 × width: what c1 and c2 become in R's rows
  double* squares = nullptr;  // 2 of each block: of c1 and c2 without R's part
  double* norm = nullptr;     // the larger of the norms of c1 and c2 without R's part
  std::uint32_t* arrived = nullptr;
  panel_gate* gate = nullptr;  // is closed unless the norm is at most `limit`; null: none
  double limit = 0;
};

// z = T x or Tᵀ x.
template <class S>
struct small_arguments {
  reflectors<S> h;
  bool transposed;
  const double* x;
  double* z;
};

// Blocks of columns times weights.
template <class S>
struct weigh_arguments {
  const S* X = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;
  const int* shifts = nullptr;  // of each column: it counts as 2^shift · x; null: none
  std::int64_t rows = 0;
  block_list blocks = {};
  std::int64_t first_block;   // of those that the launch takes
  int chunks = 0;             // how many
  bool r = false;             // R's rows of panels alone
  const double* z = nullptr;  // n × count
  std::int64_t ldz;
  int count = 0;  // 1 or 2
  // What the products are taken from, count columns of ldi, 2 · ldi for each block; null: none, and they are not negated.
  const S* init = nullptr;
  const double* from = nullptr;  // the same in double, one column
  std::int64_t ldi;
  S* to_column = nullptr;     // count columns of ldi rows, 2 · ldi for each block; null: none
  double* to = nullptr;       // count columns of ldi, count · ldi for each block; null: none
  double* squares = nullptr;  // count for each block of threads; null: none
  // Of one block of columns: the largest norm of its products, null: none; and the hash of its rows above its diagonal block, null: none.
  double* norm = nullptr;
  unsigned long long* seal = nullptr;
  unsigned long long* hashes = nullptr;  // one for each block of threads
  std::uint32_t* arrived = nullptr;
  panel_gate* gate = nullptr;  // is closed unless the norm is at most `limit`; null: none
  double limit = 0;
};

// Checksum columns of all blocks of columns, their share in the certificate's product, and a copy.
template <class S>
struct encode_arguments {
  const S* X;
  std::int64_t row_stride, column_stride;
  const int* shifts;  // of each column: it counts as 2^shift · x, but for the copy; null: none
  std::int64_t rows;
  block_list blocks;
  const double* z;  // n × 3: the weights of both checksums, and of the product
  std::int64_t ldz;
  S* to;          // two columns for each block
  double* parts;  // a column for each block
  S* copy;        // rows × n; null: none
  int sharing;    // warps that share the columns of the same rows
};

// Sums over chunks.
struct combine_arguments {
  const double* parts;  // chunks × rows
  int chunks;
  std::int64_t rows;
  const double* from;  // what they are taken from; null: none, and the sum is stored
  double* to;          // null: not stored
  double* squares;     // one for each block of threads; null: none
  std::int64_t there;  // rows that chunks have; behind them they are 0
};

// The largest of `count` norms, NaN if there is one; for each chunk.
struct norm_arguments {
  const double* squares;  // chunks × blocks × count
  std::int64_t blocks;
  int count;
  double* to;  // one for each chunk
};

// Σ of a hash of each number, added to *to.
template <class S>
struct hash_arguments {
  const S* X;  // the first row
  std::int64_t ld;
  std::int64_t rows;
  bool upper;  // of column l rows 0 … l alone
  unsigned long long* to;
};

struct changes_arguments {
  const double* now;
  const double* kept;
  std::int64_t stride;  // of a panel
  int most;             // numbers of a panel, but of the last …
  int last;
  double* to;  // one for each panel
};

// What a verified panel leaves: checksums of R's rows, and the certificate's product, to their places. Or all rows of checksum columns.
template <class S>
struct accept_arguments {
  const double* head;  // width × 2
  std::int64_t width;
  S* to;
  std::int64_t ld;
  const double* next;  // rows
  double* carried;     // null: none
  std::int64_t rows;
  const panel_gate* gate = nullptr;  // closed: nothing is done; null: none
};

// Whether tau is T's diagonal to the bit: 0 for each panel where it is.
template <class S>
struct taus_arguments {
  const S* tau;
  const S* T;  // panels × width²; the last panel's may have fewer columns
  std::int64_t width;
  std::int64_t steps;
  double* to;
};

template <class S>
struct copy_arguments {
  const S* from;  // null: the identity, whose first column is `first`
  std::int64_t from_row, from_column;
  S* to;
  std::int64_t to_row, to_column;
  std::int64_t rows, columns;
  std::int64_t there;  // rows of `from`; zero behind them
  std::int64_t first;
  const int* row_shifts;  // null: none
  const int* column_shifts;
  int sign;    // of the shifts
  bool upper;  // on and above the diagonal alone
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
  std::int64_t first;  // with a triangle: of column j rows first + j … rows − 1 (lower), or 0 … j (upper)
  bool upper, lower;
  column_result* to;
  // Where there are too few columns for all multiprocessors, each is cut into chunks of rows.
  std::int64_t chunks = 1;
  double* partial = nullptr;         // a sum for each chunk of each column
  std::uint32_t* arrived = nullptr;  // for each column, 0 in front of the launch and behind it
  // A packed matrix that has the squared norms on its diagonal: a column whose square is in the range of doubles is not read. Null: none.
  const double* gram = nullptr;
};

template <class S>
struct exponents_arguments {
  const S* X;
  std::int64_t row_stride, column_stride;
  std::int64_t rows;
  bool upper;
  const int* row_shifts;
  int* to;
};

template <class S>
struct diagonal_arguments {
  const S* R;
  std::int64_t ld;
  std::int64_t n;
  double small;
  long long* to;  // the first zero, −1 if there is none; and whether one is smaller than `small`
};

// V with its ones and zeros.
template <class S>
struct form_v_arguments {
  const S* from;
  std::int64_t ld;
  std::int64_t rows;
  int width;
  S* to;                              // rows × width
  const tall_state* state = nullptr;  // of a panel that was begun ahead: V is 0 if it is not made; null: it is made
};

// The last look at the gate for a panel. Closed: V and T become 0, so that products with them change nothing.
template <class S>
struct hold_arguments {
  const panel_gate* gate;
  panel_record* record;  // gets what it says
  struct {
    S* data;
    std::int64_t count;
  } zero[2];  // V and T
};

// weights[i] = random number i of the stream.
// Columns of `count` numbers: column q of stream + q.
struct random_arguments {
  double* to;
  std::int64_t count;
  std::uint64_t stream;
  bool with_sign;
};

template <class S>
struct strike_arguments {
  S* data;
  std::int64_t count;
  std::int64_t interval, intervals;
  std::int32_t step, steps;
  std::int32_t where;  // an inject::site
};

// --- Products with few columns (narrow.cuh).

template <class S>
struct narrow_product_arguments {
  const S* V;  // rows × width, without gaps
  std::int64_t rows;
  int width;
  struct {
    const S* data;
    std::int64_t ld;
    int columns;        // may be 0
  } C[2];               // side by side
  std::int64_t chunks;  // of rows
  double* parts;        // of each chunk VᵀC, width × all columns, without gaps
};

template <class S>
struct turn_arguments {
  const S* T;  // width × width, upper triangular
  int width;
  bool transposed;
  std::int64_t columns;
  const double* parts;  // of narrow_product_arguments
  std::int64_t chunks;
  S* W;  // VᵀC, where it does not come in parts, and behind it op(T) VᵀC, both width × columns without gaps
};

template <class S>
struct narrow_subtract_arguments {
  const S* V;  // rows × width, without gaps
  std::int64_t rows;
  int width;
  const S* W;  // width × columns, without gaps
  int columns;
  S* C;
  std::int64_t ldc;
};

// --- Products of floats on tensor cores (product.cuh).

struct split_arguments {
  const float* V;  // rows × width, without gaps
  std::int64_t rows, width;
  float* by_rows;  // the image for W = VᵀC
  float* by_columns;
};

struct project_arguments {
  const float* image;  // by rows
  std::int64_t rows, width;
  const float* C;  // rows × columns
  std::int64_t ldc;
  std::int64_t columns;
  float* W;  // width × columns, without gaps
  std::int64_t splits;
  float* parts;  // `splits` matrices like W, where there is more than one
};

struct subtract_arguments {
  const float* image;  // by columns
  std::int64_t rows, width;
  const float* W;  // width × columns, without gaps
  std::int64_t columns;
  float* C;
  std::int64_t ldc;
  int chunks;  // blocks that share a strip of rows
};

// --- Q applied (apply.cuh).

// Reflectors in blocks of `width` columns, of which the last one may have fewer; each has width² numbers of G and T.
template <class S>
struct wide_arguments {
  const S* V;  // rows × count, as stored
  std::int64_t ldv;
  std::int64_t rows, count;
  int width;
  const S* tau;
  double* G;  // VᵀV of each block, above the diagonal; in wide_gram_kernel of each chunk of rows, `chunks` times as much
  int chunks;
  S* T;
  int half;  // columns that have a common T already
};

// y ← op(Q)ᵀ y for k_vectors vectors, without T.
template <class S>
struct chain_arguments {
  const S* V;
  std::int64_t ldv;
  std::int64_t rows;
  std::int64_t count;
  const S* tau;
  bool last_first;
  double* y;  // rows × k_vectors
};

// to[j + q · columns] = Σ_i b(i, q) x(i, j).
template <class S>
struct dots_arguments {
  const S* X;  // null: the identity, whose first column is `first`
  std::int64_t row_stride, column_stride;
  std::int64_t rows;
  std::int64_t first;
  std::int64_t columns;
  const int* shifts;
  const double* b;
  std::int64_t ldb;
  double* to;
};

template <class S>
struct solve_arguments {
  const S* U;
  std::int64_t ldu;
  std::int64_t n;
  bool transposed;
  S* X;  // the right-hand sides, overwritten
  std::int64_t ldx;
  double* rest;  // n for each of them
};

// As qr::solve_sums.
struct solve_result {
  double residual, threshold;
  unsigned long long bits;
  int finite;
};

template <class S>
struct solve_check_arguments {
  const S* U;
  std::int64_t ldu;
  std::int64_t n;
  bool transposed;
  const S* X;
  std::int64_t ldx;
  const S* C;
  std::int64_t row_stride, column_stride;
  solve_result* to;
};

}  // namespace ballast::qr::cuda
