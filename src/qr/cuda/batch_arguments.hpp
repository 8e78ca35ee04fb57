// What the kernels of batches of small matrices take, and their policy.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "cuda/block/event_ring.hpp"

namespace ballast::qr::cuda {

// The team of threads that works on one matrix, or on some columns of one. A matrix lies in the registers of its team: lane l of group g
// has rows l, l + lanes, … of columns g, g + groups, …. So a matrix has at most lanes · rows rows and groups · columns · blocks columns.
struct batch_policy {
  int lanes = 4;
  int rows = 2;  // of a thread
  int groups = 8;
  int columns = 1;   // of a thread
  int matrices = 4;  // of a block: teams of one warp; 1: the team is a block, or a cluster
  int blocks = 1;    // of the cluster that is a team
  int resident = 8;  // blocks that a multiprocessor is to hold
};

inline constexpr int k_certificates = 2;  // independent weight vectors of a check

template <batch_policy P>
struct batch_shape {
  static constexpr int team = P.lanes * P.groups;  // threads of one block
  static constexpr int threads = team * P.matrices;
  static constexpr int warps = team / 32;
  static constexpr int readers = warps < 8 ? warps : 8;  // warps that read the input for the checks
  static constexpr int height = P.lanes * P.rows;
  static constexpr int width = P.groups * P.columns * P.blocks;
  static constexpr int strip = P.groups;                  // columns that lie in shared memory at once
  static constexpr int of_lane = (height + 31) / 32;      // rows of a lane of the warp that verifies
  static constexpr int span = height < 32 ? height : 32;  // lanes of a warp that share a column in the check
  static constexpr int pitch = height + P.lanes;          // groups of a warp use other banks
  static_assert(team % 32 == 0 && P.lanes <= 32 && (P.matrices == 1 || (team == 32 && P.blocks == 1)) && (span & (span - 1)) == 0);
};

// The shared memory of a team.
template <class S, batch_policy P>
struct batch_memory {
  using shape = batch_shape<P>;
  double partial[shape::readers][k_certificates][shape::height];
  double sum[k_certificates][shape::height];   // what is verified
  double more[k_certificates][shape::height];  // T: Σ w x, and in the second one Σ |x|
  double size[shape::height];                  // T: what the residual is compared with
  double norm[shape::readers][k_certificates];
  double weight[k_certificates][shape::width];
  S strip[shape::strip][shape::pitch];
  S v[2][shape::height];
  S tau[shape::width];
  int shift[shape::width];                     // columns are worked on as 2^shift · x
  int exponent[shape::width];                  // of the largest element of a column, by the check's own loads
  int odd[shape::readers];                     // Inf or NaN seen
  std::uint64_t hash[P.blocks][shape::warps];  // of the tile in registers, right before it is stored
  abft::attempts state;                        // of the first thread
  int how;                                     // abft::outcome
};

// A matrix for each team, `stride` apart.
template <class S>
struct batch_matrix {
  S* data = nullptr;
  std::int64_t row_stride = 0, column_stride = 0, stride = 0;
};

// A = QR of `count` matrices, in place.
template <class S>
struct batch_factor_arguments {
  batch_matrix<S> A = {};
  S* tau = nullptr;  // min(m, n) for each matrix, one behind the other
  ballast::cuda::event_ring* events = nullptr;
  std::int64_t count = 0;
  int m = 0, n = 0;
  int repeats = 0;     // −1: no checks
  bool stores = true;  // what stays wrong, too
};

inline constexpr std::int64_t k_singular_columns = 1024;

// X ← op(Q) X, or X ← T⁻¹ X, for `count` matrices. A team has `width` columns of one.
template <class S>
struct batch_apply_arguments {
  batch_matrix<const S> V = {};  // the reflectors, or T
  const S* tau = nullptr;        // `reflectors` for each matrix, one behind the other
  batch_matrix<const S> from = {};
  batch_matrix<S> X = {};
  ballast::cuda::event_ring* events = nullptr;
  std::int64_t* singular = nullptr;  // T: the largest (count − matrix) · k_singular_columns − column of a zero on its diagonal
  std::int64_t count = 0;
  int m = 0, n = 0;        // of X
  int given = 0;           // rows of `from`; zeros below
  int reflectors = 0;      // T: its order
  int chunks = 1;          // teams for one matrix
  bool identity = false;   // `from` is that
  bool ascending = false;  // the order of the reflectors, or of the unknowns (T is then lower triangular)
  int repeats = 0;
  bool stores = true;
};

}  // namespace ballast::qr::cuda
