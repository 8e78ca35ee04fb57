// The arguments of the kernels for batches of small matrices, and their policy.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "qr/cuda/layout/number_types.hpp"

namespace ballast::qr::cuda {

// The team of threads that works on one matrix, or on some columns of one. The team keeps the matrix in registers. If one warp has all
// columns, lane l of a group has rows l, l + lanes, …, so that finished rows drop out of the work. Otherwise it has rows l · rows, l · rows
// + 1, …, so that a step finds its row in the same register in every panel. A matrix has at most lanes · rows rows and groups · columns ·
// blocks columns. The groups of a warp have the columns of a panel, side by side; panel p belongs to warp p / blocks of block p % blocks.
struct batch_policy {
  int lanes = 2;
  int rows = 4;  // rows of each thread
  int groups = 4;
  int columns = 2;  // columns of each thread
  // Matrices of each thread block, if teams are a warp or a part of one. 1: the team is a thread block, or a cluster.
  int matrices = 8;
  int blocks = 1;            // thread blocks of the cluster that forms a team
  int resident = 10;         // thread blocks on a multiprocessor, for doubles
  int resident_single = 12;  // for floats
};

inline constexpr int k_certificates = 2;  // independent weight vectors of a check

template <batch_policy P>
struct batch_shape {
  static constexpr int team = P.lanes * P.groups;  // threads of the team in one thread block
  static constexpr int threads = team * P.matrices;
  static constexpr int resident(std::size_t bytes_of_a_component) { return bytes_of_a_component == 4 ? P.resident_single : P.resident; }
  static constexpr int warps = team < 32 ? 1 : team / 32;
  static constexpr int checkers = team < 32 ? team : 32;  // threads that verify
  static constexpr int readers = warps < 8 ? warps : 8;   // warps that read the input for the checks, or that add up at the same time
  static constexpr int height = P.lanes * P.rows;
  static constexpr int width = P.groups * P.columns * P.blocks;
  static constexpr int strip = P.groups;                                          // columns in shared memory at a time
  static constexpr int span = height < checkers ? height : checkers;              // checkers that share a column
  static constexpr int of_lane = height / span;                                   // rows of each checker
  static constexpr int near = P.lanes * P.groups < 32 ? P.groups : 32 / P.lanes;  // groups of one team within a warp
  static constexpr int panel = near * P.columns;                                  // columns of each warp
  static constexpr int panels = warps * P.blocks;
  static constexpr bool cyclic = panels == 1;
  BALLAST_HD static constexpr int lane_of(int row) { return cyclic ? row % P.lanes : row / P.rows; }
  BALLAST_HD static constexpr int register_of(int row) { return cyclic ? row / P.lanes : row % P.rows; }
  BALLAST_HD static constexpr int row_of(int lane, int number) { return cyclic ? lane + P.lanes * number : lane * P.rows + number; }
  static constexpr int row_step = cyclic ? P.lanes : 1;  // from one row of a lane to its next
  static constexpr bool unrolled = panel <= 16;          // true if the steps of a panel are unrolled
  static constexpr int at_once = 2;                      // reflectors that are applied at once: there are no registers for more
  static_assert((team % 32 == 0 || 32 % team == 0) && P.lanes <= 32 && (P.matrices == 1 || (team <= 32 && P.blocks == 1)) &&
                height % span == 0 && threads % 32 == 0);
};

// A column in shared memory: the rows of each lane, in words that one instruction loads, and a gap, so that lanes use different banks.
template <class S, batch_policy P>
struct batch_column {
  struct alignas(P.rows * sizeof(S) < 16 ? P.rows * sizeof(S) : 16) part {
    S row[P.rows];
    S gap[16 / sizeof(S)];
  };
  part lane[P.lanes];
  BALLAST_HD S operator[](int i) const { return lane[batch_shape<P>::lane_of(i)].row[batch_shape<P>::register_of(i)]; }
};

// The shared memory of a team.
template <class S, batch_policy P>
struct batch_memory {
  using shape = batch_shape<P>;
  using wide = wide_of<S>;
  wide partial[shape::readers][k_certificates][shape::height];
  wide sum[k_certificates][shape::height];  // Aw; the reflectors are applied to it
  // Sums of the weighted columns of the tile, by thread block. To solve: also Σ |x|, twice.
  wide rest[P.blocks][P.blocks > 1 ? k_certificates : k_certificates + 1][shape::height];
  double norm[shape::readers][k_certificates];
  double before[k_certificates];                // ‖Aw‖²
  double factor[k_certificates][shape::width];  // w, converted from the tile's units to those of the check
  union {
    batch_column<S, P> strip[P.blocks > 1 ? 1 : shape::strip];  // to apply Q, and to solve: no cluster does that
    // To factor: the reflectors of a panel, or the reflector that a warp has just computed and reads itself.
    batch_column<S, P> v[shape::panels > 1 ? 2 : 1][shape::panels > 1 ? shape::panel : 1];
  };
  // v_lᴴv_k, k < l, of the reflectors that are applied at once.
  S gram[2][shape::panels > 1 ? shape::panel / shape::at_once : 1][shape::panels > 1 ? shape::at_once : 1]
        [shape::panels > 1 ? shape::at_once : 1];
  S tau[shape::width];
  int shift[shape::width];     // column j is computed as 2^shift_j · x
  int exponent[shape::width];  // exponent of the largest element of each column, from the check's own loads
  int odd[shape::readers];     // 1 if Inf or NaN was seen
  // Hashes of the tile in registers: when it was added up, and right before it is stored.
  std::uint64_t hash[2][P.blocks][shape::warps];
  abft::attempts state;  // used by the first thread of the check
  int how;               // an abft::outcome
};

// The weights of the check, in shared memory after the memory of the teams: the same for all teams of a thread block.
template <batch_policy P>
struct batch_weights {
  double of[k_certificates][batch_shape<P>::width];
};

// Bytes from one team's memory to the next: the four teams of 8 threads that share a warp use different banks for doubles.
template <class S, batch_policy P>
inline constexpr std::int64_t k_batch_pitch = P.matrices == 1 ? static_cast<std::int64_t>(sizeof(batch_memory<S, P>))
                                                              : (static_cast<std::int64_t>(sizeof(batch_memory<S, P>)) + 127) / 128 * 128 +
                                                                    8 * batch_shape<P>::team % 128;

// One matrix for each team, `stride` apart.
template <class S>
struct batch_matrix {
  S* data = nullptr;
  std::int64_t row_stride = 0, column_stride = 0, stride = 0;
};

// Thresholds of the factorization's check for a norm of 1, and the threshold of its reflectors.
struct batch_limits {
  abft::tiers residual;
  double reflectors;
};

// A = QR of `count` matrices, in number.
template <class S>
struct batch_factor_arguments {
  batch_matrix<S> A = {};
  S* tau = nullptr;  // min(m, n) for each matrix, contiguous
  ballast::cuda::event_ring* events = nullptr;
  std::int64_t count = 0;
  batch_limits limits = {};
  int m = 0, n = 0;
  int repeats = 0;          // −1: no checks
  bool stores = true;       // true: uncorrectable results are stored, too
  bool conjugated = false;  // A holds the conjugate of the matrix, and takes that of its factors
};

inline constexpr std::int64_t k_singular_columns = 1024;

// X ← op(Q) X, or X ← T⁻¹ X, for `count` matrices. A team has `width` columns of one matrix.
template <class S>
struct batch_apply_arguments {
  batch_matrix<const S> V = {};  // the reflectors, or T
  const S* tau = nullptr;        // `reflectors` numbers for each matrix, contiguous
  batch_matrix<const S> from = {};
  batch_matrix<S> X = {};
  ballast::cuda::event_ring* events = nullptr;
  // To solve: the largest (count − matrix) · k_singular_columns − column for which T has a number on its diagonal that is not above
  // least_pivot times the largest in its column.
  std::int64_t* singular = nullptr;
  double least_pivot = 0;
  double least_pivot_twin = 0;  // the same; a matrix is refused if it is so by both
  std::int64_t count = 0;
  int m = 0, n = 0;        // size of X
  int given = 0;           // rows of `from`; later rows count as zero
  int reflectors = 0;      // to solve: the order of T
  int chunks = 1;          // teams for each matrix
  bool identity = false;   // `from` is the identity
  bool ascending = false;  // the order of the reflectors, or of the unknowns (T is then lower triangular)
  int repeats = 0;
  bool stores = true;
  bool V_conjugated = false;  // V holds the conjugates of the reflectors, or of T
  bool X_conjugated = false;  // `from` and X hold the conjugates of the columns
};

}  // namespace ballast::qr::cuda
