// The arguments of QR's kernels.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs. Matrices are column-major unless strides say otherwise.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "qr/arithmetic/number.hpp"
#include "qr/cuda/layout/matrix_args.hpp"
#include "qr/cuda/layout/shapes.hpp"

namespace ballast::qr::cuda {

// Reflectors as they are stored: v_j has an implicit one on the diagonal of V and implicit zeros above it; the numbers stored there belong
// to R.
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
  std::int64_t slab;  // rows of each thread block
  S* pivots;          // 2 × rows: scratch memory for slabs that do not fit into shared memory; null: they fit
};

// --- Panels ahead of the host.

// Decides whether work enqueued after a panel takes effect. Open: both words are 0. The first panel that fails its checks closes the gate,
// and it stays closed until the host opens it. A struck word can close the gate, but cannot open it.
struct panel_gate {
  std::uint32_t closed, closed_too;
};
// A null gate counts as open.
BALLAST_HD inline bool is_closed(const panel_gate* gate) { return gate != nullptr && (gate->closed | gate->closed_too) != 0; }
// Called by one thread.
BALLAST_HD inline void close(panel_gate* gate) {
  if (gate != nullptr) *gate = {1, 1};
}

// The sums of a panel's checks, as qr::panel_sums.
struct panel_result {
  double orthogonality, orthogonality_threshold, reflectors, data;
};

enum cholesky_qr_stage : int { k_cholesky_qr_failed, k_cholesky_qr_factored, k_cholesky_qr_orthonormal };

// The state of a Cholesky QR panel, as the device determines it.
struct cholesky_qr_state {
  int stage;  // a cholesky_qr_stage
  // 1: A is so well conditioned that A R⁻¹ is orthonormal to rounding, and Q is not computed. Otherwise 0.
  int direct;
};

// The results of a panel that the device leaves for the host.
struct panel_record {
  panel_result sums;
  double entry;  // ‖residual‖ of the check on entry
  // The gate when hold_kernel read it: 1 and 0 if it was open, else 0 and 1.
  std::uint32_t passed, held;
  cholesky_qr_state cholesky_qr;
};

// --- Cholesky QR panels: panels of many rows (cholesky_qr.cuh).

// The largest ‖QᵀQ − I‖ at which one more Cholesky factor makes Q orthonormal to rounding.
inline constexpr double k_cholesky_qr_deviation = 0.25;

template <class S>
struct gram_arguments {
  const S* from = nullptr;  // rows × width
  std::int64_t ldf = 0;
  std::int64_t rows = 0;
  int width = 0;
  int needed = k_cholesky_qr_failed;  // the kernel does nothing in any other stage; k_cholesky_qr_failed: it runs in every stage
  double* partial = nullptr;          // for each thread block: the Gram matrix of its rows, packed
  const cholesky_qr_state* state = nullptr;
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
  int needed = k_cholesky_qr_failed;  // as in gram_arguments
  bool in_place = false;              // for a direct panel the kernel reads the rows from `to`
  const double* R = nullptr;          // packed
  const cholesky_qr_state* state = nullptr;
};

struct small_factor_arguments {
  const double* G;  // packed, like R, before and all
  int width;
  bool first;   // G is the Gram matrix of A: there are no earlier factors
  double near;  // the largest ‖G − I‖ whose square is below rounding
  // A panel is direct if Σ 1 / λ is at most this, λ the eigenvalues of G with columns scaled to length 1.
  double direct;
  double* R;             // Cholesky factor of G
  const double* before;  // product of the earlier factors, unless `first`
  double* all;           // R times that product
  cholesky_qr_state* state;
  const panel_gate* gate = nullptr;  // closed: the panel is not computed; null: there is no gate
};

template <class S>
struct small_reflectors_arguments {
  const S* X;  // its first `width` rows are read; for a direct panel those of A
  std::int64_t ldx;
  int width;
  const double* R;       // packed, like `all` and `product`: X R⁻¹ is orthonormal
  const double* all;     // the panel is X R⁻¹ times this
  const double* direct;  // R and `all` of a direct panel
  double* product;       // U R: V = X (U R)⁻¹
  double* lower;         // V_1ᵀ without its diagonal, packed
  S* A;                  // its first `width` rows are written
  std::int64_t lda;
  S* tau;
  cholesky_qr_state* state;
  // Closed: the panel is not computed, and nothing is written. Null: there is no gate.
  const panel_gate* gate = nullptr;
};

template <class S>
struct small_t_arguments {
  int width;
  const double *R, *direct, *product, *lower;  // as in small_reflectors_arguments
  S* T;                                        // width × width; 0 if the panel is not computed
  const cholesky_qr_state* state;
  panel_gate* gate = nullptr;  // closed by the kernel if the panel is not computed; null: there is no gate
};

// The columns of a matrix in blocks, as in qr::layout: blocks of `width` columns, which start anew after the last panel.
struct block_list {
  std::int64_t steps, columns;
  int width;
};

// The sums over the rows of V for each of its columns: four products, and the four of its checkpoint.
template <class S>
inline constexpr int k_panel_sums = 4 * static_cast<int>(k_reals<S>) + 4;

// Sums over the rows of V. A null pointer leaves out its sums.
template <class S>
struct products_arguments {
  reflectors<S> h = {};
  const wide_of<S>* y = nullptr;   // one number for each row
  const wide_of<S>* tx = nullptr;  // `width` numbers: p = V tx
  const S* c = nullptr;            // two columns of `rows` numbers
  std::int64_t ldc = 0;
  const double* weights = nullptr;  // one for each component of a row: for the checkpoint of V
  // k_panel_sums · width + 1 numbers for each thread block: Vᴴ times y, p, c1, c2, by components; Σv, Σwv, Σw²v, Σv² over the components of
  // V; ‖p‖².
  double* partial = nullptr;
  // The number of reflectors: h and the panels after it are summed, the last one narrower if fewer reflectors are left. With `weights`
  // alone.
  std::int64_t columns = 0;
  // Thread blocks for each panel, whose sums begin blocks · (k_panel_sums · width + 1) apart. Some blocks are idle for panels with few
  // rows.
  std::int64_t blocks = 0;
};

// All panels of a factorization, as they are stored.
template <class S>
struct panel_list {
  const S* A;
  std::int64_t lda;
  std::int64_t rows;
  std::int64_t steps;
  int width;
  const S* T;  // width² numbers for each panel

  BALLAST_HD reflectors<S> operator[](std::int64_t k) const {
    const std::int64_t first = k * width, left = steps - first;
    const int w = static_cast<int>(left < width ? left : width);
    return {A + first * (lda + 1), lda, rows - first, w, T + k * width * width, w};
  }
};

// Computes the seals again: hashes of T, of R's rows above each panel, and of R's rows within it. The hashes of the rows above are added up
// in `to`.
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
  double* to;                                // count
  const cholesky_qr_state* state = nullptr;  // if this panel is orthonormal, fold_kernel does nothing; null: no such panel
};

// Adds up the partial sums that products_kernel has computed for panels: their checkpoints.
struct checkpoints_arguments {
  const double* partial;
  std::int64_t rows, columns, width, blocks;  // as in products_arguments
  std::int64_t sums;                          // k_panel_sums
  double* to;                                 // 4 · width numbers for each panel
};

template <class S>
struct judge_arguments {
  reflectors<S> h;
  fold_arguments fold;  // adds up products_arguments::partial
  std::int64_t m;       // rows of the whole matrix
  const S* tau;
  const double* x;       // `width` numbers
  const wide_of<S>* tx;  // computed with open_arguments, as tx_size
  const double* tx_size;
  wide_of<S>* tz;      // 3 × width: Tᴴ times the sums of y, c1, c2
  double* checkpoint;  // 4 × width; null: the checkpoint is not kept
  // Hashes of T, and of R's rows within the panel. One thread block each computes them, after the blocks that compute sums; null: not
  // computed. They are complete before T is checked.
  unsigned long long* seal_t;
  unsigned long long* seal_r;
  panel_result* to;
  std::uint32_t* arrived;
  panel_gate* gate = nullptr;  // closed unless orthogonality and reflectors pass; null: there is no gate
  double limit = 0;            // the threshold of `reflectors`
};

// The first step of a panel's checks.
template <class S>
struct open_arguments {
  reflectors<S> h;
  const double* x;
  wide_of<S>* tx;   // `width` numbers: T x
  double* tx_size;  // and |T| |x|
};

// y ← y − V tz.
template <class S>
struct transformed_arguments {
  reflectors<S> h = {};
  const wide_of<S>* tz = nullptr;  // for y, c1, c2: `width` numbers each
  const wide_of<S>* y = nullptr;
  wide_of<S>* next = nullptr;
  const S* c = nullptr;  // null: only y is transformed
  std::int64_t ldc = 0;
  const double* d = nullptr;  // width × 2: the weights of R's columns
  std::int64_t ldd = 0;
  wide_of<S>* head = nullptr;  // 2 × width: c1 and c2 in R's rows
  double* squares = nullptr;   // 2 for each thread block: of c1 and c2 below R's rows
  double* norm = nullptr;      // the larger of the norms of c1 and c2 below R's rows
  std::uint32_t* arrived = nullptr;
  panel_gate* gate = nullptr;  // closed unless the norm is at most `limit`; null: there is no gate
  double limit = 0;
};

// z = T x or Tᴴ x.
template <class S>
struct small_arguments {
  reflectors<S> h;
  bool transposed;
  const wide_of<S>* x;
  wide_of<S>* z;
};

// Multiplies blocks of columns by weights. It has many members because each of the results is optional, and has its own pointer.
template <class S>
struct weigh_arguments {
  const S* X = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;
  const int* shifts = nullptr;  // one for each column, which counts as 2^shift · x; null: no shifts
  std::int64_t rows = 0;
  block_list blocks = {};
  std::int64_t first_block;   // the first block of columns of the launch
  int chunks = 0;             // the number of blocks of columns
  bool r = false;             // true: only R's rows of panels
  const double* z = nullptr;  // n × count
  std::int64_t ldz;
  int count = 0;  // 1 or 2
  // The products are subtracted from `init` or `from`: count columns of ldi rows, 2 · ldi apart for each block. Both null: the products are
  // stored with their own sign.
  const S* init = nullptr;
  const wide_of<S>* from = nullptr;  // the same in double, one column
  std::int64_t ldi;
  S* to_column = nullptr;     // count columns of ldi rows, 2 · ldi apart for each block; null: not stored
  wide_of<S>* to = nullptr;   // count columns of ldi rows, count · ldi apart for each block; null: not stored
  double* squares = nullptr;  // count for each thread block; null: not stored
  // For a single block of columns: the largest norm of its products (null: not computed), and the hash of its rows above its diagonal block
  // (null: not computed).
  double* norm = nullptr;
  unsigned long long* seal = nullptr;
  unsigned long long* hashes = nullptr;  // one for each thread block
  std::uint32_t* arrived = nullptr;
  panel_gate* gate = nullptr;  // closed unless the norm is at most `limit`; null: there is no gate
  double limit = 0;
};

// Computes the checksum columns of all blocks of columns and their part of the certificate's product, and copies the input.
template <class S>
struct encode_arguments {
  const S* X;
  std::int64_t row_stride, column_stride;
  const int* shifts;  // one for each column, which counts as 2^shift · x, except in the copy; null: no shifts
  std::int64_t rows;
  block_list blocks;
  const double* z;  // n × 3: the weights of both checksums, and of the certificate's product
  std::int64_t ldz;
  S* to;              // two columns for each block
  wide_of<S>* parts;  // one column for each block
  S* copy;            // rows × n; null: no copy
  int sharing;        // warps that share the columns of the same rows
};

// Adds up the sums of chunks.
struct combine_arguments {
  const double* parts;  // chunks × rows
  int chunks;
  std::int64_t rows;
  const double* from;  // the sum is subtracted from this; null: the sum itself is stored
  double* to;          // null: not stored
  double* squares;     // one for each thread block; null: not stored
  std::int64_t there;  // rows that the chunks have; the sums of later rows are 0
};

// Computes the largest of `count` norms, NaN if one of them is NaN; for each chunk.
struct norm_arguments {
  const double* squares;  // chunks × blocks × count
  std::int64_t blocks;
  int count;
  double* to;  // one for each chunk
};

// Adds the sum of the hashes of all numbers to *to.
template <class S>
struct hash_arguments {
  const S* X;  // the first row
  std::int64_t ld;
  std::int64_t rows;
  bool upper;  // true: column l has only rows 0 … l
  unsigned long long* to;
};

struct changes_arguments {
  const double* now;
  const double* kept;
  std::int64_t stride;  // from one panel to the next
  int most;             // numbers of each panel except the last, which has `last`
  int last;
  double* to;  // one for each panel
};

// Stores the results of a verified panel: the checksums of R's rows, and the certificate's product. Or copies all rows of checksum columns.
template <class S>
struct accept_arguments {
  const wide_of<S>* head;  // width × 2
  std::int64_t width;
  S* to;
  std::int64_t ld;
  const wide_of<S>* next;  // rows
  wide_of<S>* carried;     // null: no product
  std::int64_t rows;
  const panel_gate* gate = nullptr;  // closed: the kernel does nothing; null: there is no gate
};

// Compares tau with T's diagonal to the bit: writes 0 for each panel where they are equal.
template <class S>
struct taus_arguments {
  const S* tau;
  const S* T;  // panels × width²; the last panel's may have fewer columns
  std::int64_t width;
  std::int64_t steps;
  double* to;
};

// --- Products with few columns (narrow.cuh).

template <class S>
struct narrow_product_arguments {
  const S* V;  // rows × width, contiguous
  std::int64_t rows;
  int width;
  struct {
    const S* data;
    std::int64_t ld;
    int columns;        // may be 0
  } C[2];               // side by side
  std::int64_t chunks;  // chunks of rows
  double* parts;        // VᵀC of each chunk: width × all columns, contiguous
};

template <class S>
struct apply_t_arguments {
  const S* T;  // width × width, upper triangular
  int width;
  bool transposed;
  std::int64_t columns;
  const double* parts;  // as in narrow_product_arguments
  std::int64_t chunks;
  // VᵀC, unless `parts` holds it, followed by op(T) VᵀC; both width × columns, contiguous.
  S* W;
};

template <class S>
struct narrow_subtract_arguments {
  const S* V;  // rows × width, contiguous
  std::int64_t rows;
  int width;
  const S* W;  // width × columns, contiguous
  int columns;
  S* C;
  std::int64_t ldc;
};

// --- Products of floats on tensor cores (product.cuh).

struct split_arguments {
  const float* V;  // rows × width, contiguous
  std::int64_t rows, width;
  float* by_rows;  // the image for W = VᵀC
  float* by_columns;
};

struct project_arguments {
  const float* image;  // the image by rows
  std::int64_t rows, width;
  const float* C;  // rows × columns
  std::int64_t ldc;
  std::int64_t columns;
  float* W;  // width × columns, contiguous
  std::int64_t splits;
  float* parts;  // `splits` matrices like W, used if splits > 1
};

struct subtract_arguments {
  const float* image;  // the image by columns
  std::int64_t rows, width;
  const float* W;  // width × columns, contiguous
  std::int64_t columns;
  float* C;
  std::int64_t ldc;
  int chunks;  // thread blocks that share a strip of rows
};

// --- Applications of Q (apply.cuh).

// Reflectors in blocks of `width` columns, the last of which may have fewer. Each block has width² numbers of G and of T.
template <class S>
struct wide_arguments {
  const S* V;  // rows × count, as stored
  std::int64_t ldv;
  std::int64_t rows, count;
  int width;
  const S* tau;
  // VᵀV of each block, above the diagonal. wide_gram_kernel writes one for each of `chunks` chunks of rows.
  wide_of<S>* G;
  int chunks;
  S* T;
  int half;  // columns that have a common T already
};

// y ← op(Q)ᴴ y for k_vectors vectors, without T.
template <class S>
struct chain_arguments {
  const S* V;
  std::int64_t ldv;
  std::int64_t rows;
  std::int64_t count;
  const S* tau;
  bool last_first;
  wide_of<S>* y;  // rows × k_vectors
};

// One step of the same by all multiprocessors. Step s applies group s − 1 and computes the sums of group s, in the order of the groups.
template <class S>
struct tall_chain_arguments {
  chain_arguments<S> chain;
  std::int64_t step;
  const double* sums;  // k_chain_sums: those of group `step` − 1, over all blocks
  double* parts;       // k_chain_sums of each block: those of group `step`
};

// to[j + q · columns] = Σ_i b(i, q) conj(x(i, j)), over the rows of a chunk. The sums of chunk c begin at to[c · k_vectors · columns].
template <class S>
struct dots_arguments {
  const S* X;  // null: the identity; column 0 is its column `first`
  std::int64_t row_stride, column_stride;
  std::int64_t rows;
  std::int64_t first;
  std::int64_t columns;
  const int* shifts;
  const wide_of<S>* b;
  std::int64_t ldb;
  wide_of<S>* to;
  std::int64_t chunks;      // 1 for the identity
  bool conjugated = false;  // x is the conjugate of what is stored
};

template <class S>
struct solve_arguments {
  const S* U;
  std::int64_t ldu;
  std::int64_t n;
  bool transposed;
  S* X;  // the right-hand sides, overwritten
  std::int64_t ldx;
  wide_of<S>* rest;  // n numbers for each right-hand side
};

// As qr::solve_sums.
struct solve_result {
  double residual, threshold;
  unsigned long long bits;
  int finite;
};

// Blocks of solve_check_kernel for each right-hand side.
BALLAST_HD constexpr std::int64_t solve_chunks(std::int64_t n) { return (n + k_threads - 1) / k_threads; }

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
  solve_result* to;  // one for each block
};

}  // namespace ballast::qr::cuda
