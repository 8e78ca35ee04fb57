// One tile as a unit of work: the memory layout of its lines, their transform, their destination; and the load and the store of a tile.
// Layer: backend "cpu". The transforms create the jobs (one_pass.cpp, volume.cpp), a tile_worker processes them (tile.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "fft/cpu/line.hpp"

namespace ballast::fft::cpu {

// The layout of the elements of a tile in memory. Strides are in scalars unless stated otherwise.
enum class access : std::uint8_t {
  rows,        // complex or real pairs; each lane contiguous
  columns,     // complex; each row contiguous
  complex,     // complex; any strides
  scalars,     // a lane's scalars one `element` apart: real pairs
  real,        // real; imaginary parts are zero (load) or dropped (store)
  hermitian,   // load: the half spectrum of `length` elements; the other half is computed; index_* in elements
  blocks,      // the workspace, rows are elements of W neighbouring lines: see load_blocks
  own_rows,    // the workspace: a store puts row i among the rows of the tile i that loads them, `element` apart; a load takes its own rows
  other_rows,  // the workspace, the reverse: a store keeps the tile's rows together; a load takes row i from those of tile i, `element`
               // apart
};

// Returns whether the numbers lie in the workspace, which has seals, and not in the caller's memory.
constexpr bool is_workspace(access how) { return how == access::blocks || how == access::own_rows || how == access::other_rows; }

template <class T>
struct tile_view {
  access how = access::rows;
  T* base = nullptr;
  bool odd = false;  // rows, scalars: the last pair has one real alone, and a zero in the tile
  std::int64_t lane = 0;
  std::int64_t element = 0;
  // hermitian: the index of an element within its line. Stores with length > 0 drop the elements from `length` on.
  std::int64_t index_first = 0, index_lane = 0, index_element = 1, length = 0;
  T* seals = nullptr;
  std::int64_t seal_stride = 0;
  std::int64_t first_sealed = 0;  // blocks, stores: the rows of the first seal, if it has fewer than the others
  // other_rows: the load extends the seals `running`, one for each row and lane, to `extended`, and compares them with `seals` if it is
  // the last of the tiles that share them. Before, `seals` is null.
  const std::remove_const_t<T>* running = nullptr;
  std::remove_const_t<T>* extended = nullptr;
};

template <class T>
struct tile_job {
  const line<T>* transform = nullptr;
  const along_line<T>* along = nullptr;  // if set, vectors lie along the signals: both sides are access::rows, and the tile is W signals
  bool repeated = false;  // signals of `along` are computed twice and compared, as many in a tile as it was made for; there are no sums
  tile_view<const T> from;
  tile_view<T> to;
  int used = 0;  // lanes
  std::int64_t rows_stored = 0;
  bool inverse = false;
  bool expand = false;     // a half spectrum is loaded, and the tile computes its other rows
  row_factors<T> factors;  // applied after the transform
  row_factors<T> check;    // second copies, with which the check removes the factors
  double scale = 1;
  double check_scale = 1;
  bool stream = false;
  bool stream_run = false;  // `along` stores the whole vectors of its output, one run, past the cache
  read_ahead ahead;         // memory brings it meanwhile
  std::int64_t interval = 0;
  std::int64_t waiting = -1;  // number among the tiles whose result waits in memory, −1 for none
  std::int64_t index = 0;     // the number of lane 0 in events
  std::int64_t index_lane = 1;
};

// Loads the tile of `job` into x and, unless `sums` is null, encodes it there. Returns the number of seals that do not match the numbers in
// x. The caller's memory has no seals: if the parity of x differs from that of the source, the sums become NaN.
template <class T>
std::int64_t load_tile(const tile_job<T>& job, T* x, lane_sums* sums);

// Returns the number of scalars that make_seals writes to `seals`.
template <class T>
std::int64_t seal_scalars(const tile_job<T>& job);

// Seals a tile whose result waits in memory. Call it before the tile is verified, so that either the check or the seal detects a change.
// store_tile copies the seals to memory.
template <class T>
void make_seals(const tile_job<T>& job, const T* done, T* seals);

// Returns whether the stored copy of a tile has a parity: in the caller's memory, if the sums have the parity of the same numbers, without
// factors between two passes.
template <class T>
bool has_stored_parity(const tile_job<T>& job) {
  return job.check.far == nullptr && !is_workspace(job.to.how);
}

// Stores the first rows_stored rows of a tile, and its seals if it has any. If has_stored_parity, returns the parity of the tile, computed
// from the stored rows as they were stored.
template <class T>
std::uint64_t store_tile(const tile_job<T>& job, const T* done, const T* seals);

extern template std::int64_t load_tile(const tile_job<float>& job, float* x, lane_sums* sums);
extern template std::int64_t load_tile(const tile_job<double>& job, double* x, lane_sums* sums);
extern template std::int64_t seal_scalars(const tile_job<float>& job);
extern template std::int64_t seal_scalars(const tile_job<double>& job);
extern template void make_seals(const tile_job<float>& job, const float* done, float* seals);
extern template void make_seals(const tile_job<double>& job, const double* done, double* seals);
extern template std::uint64_t store_tile(const tile_job<float>& job, const float* done, const float* seals);
extern template std::uint64_t store_tile(const tile_job<double>& job, const double* done, const double* seals);

}  // namespace ballast::fft::cpu
