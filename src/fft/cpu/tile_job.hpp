// One tile as a piece of work: where its lines lie in memory, what transforms them, where they go; and the load and the store of a tile.
// Layer: backend "cpu". The transforms make the jobs (one_pass.cpp, volume.cpp), a tile_worker does them (tile.hpp).
#pragma once

#include <cstdint>
#include <optional>

#include "fft/cpu/line.hpp"

namespace ballast::fft::cpu {

// How the elements of a tile lie in memory. Strides in scalars unless said otherwise.
enum class access : std::uint8_t {
  rows,       // complex; each lane contiguous
  columns,    // complex; each row contiguous
  complex,    // complex; any strides
  scalars,    // a lane's scalars one `element` apart: real pairs
  real,       // real; imaginary parts are zero (load) or dropped (store)
  hermitian,  // load: the half spectrum of `length` elements, the other half made from it; index_* in elements
  blocks,     // the workspace, its rows being elements of W neighbouring lines: load_blocks, store_blocks
  own_rows,   // the workspace, a tile's own rows `element` apart
};

template <class T>
struct place_of {
  access how = access::rows;
  T* base = nullptr;
  std::int64_t lane = 0;
  std::int64_t element = 0;
  // hermitian: the number of an element within its line. Stores with length > 0: elements from there on are dropped.
  std::int64_t index_first = 0, index_lane = 0, index_element = 1, length = 0;
  T* seals = nullptr;
  std::int64_t seal_stride = 0;
};

// Twiddle factors between two passes: coarse[row] · fine[row][lane].
template <class T>
struct factors_of {
  const T* coarse = nullptr;
  const T* fine = nullptr;
};

template <class T>
struct tile_job {
  const line<T>* transform = nullptr;
  place_of<const T> from;
  place_of<T> to;
  int used = 0;  // lanes
  std::int64_t rows_stored = 0;
  bool inverse = false;
  bool expand = false;    // half a spectrum is loaded, its other rows are made in the tile
  factors_of<T> factors;  // after the transform, and
  factors_of<T> check;    // their twins, which the check takes them off with
  double scale = 1;
  double check_scale = 1;
  bool stream = false;
  read_ahead ahead;  // what the next tile will read
  std::int64_t interval = 0;
  std::int64_t waiting = -1;  // number among the tiles whose result waits in memory, −1 for none
  std::int64_t index = 0;     // what events call lane 0
  std::int64_t index_lane = 1;
};

// Loads the tile of `job` into x, and unless `sums` is null encodes it there. Returns the number of seals that do not match what lies in x.
// What comes from the caller's memory has no seals: if x does not have its parity, the sums become NaN.
template <class T>
std::int64_t load_tile(const tile_job<T>& job, T* x, lane_sums* sums);

// The number of scalars of `seals` in make_seals.
template <class T>
std::int64_t seal_scalars(const tile_job<T>& job);

// Seals a tile whose result waits in memory. Done before the tile is verified, so that a change meets the check or the seal. The seals go
// to the tile's place when it is stored.
template <class T>
void make_seals(const tile_job<T>& job, const T* done, T* seals);

// Stores the first rows_stored rows of a tile, and its seals, if it has any. Where they go to the caller's memory: the parity of the tile,
// with what was stored as it was stored.
template <class T>
std::optional<std::uint64_t> store_tile(const tile_job<T>& job, const T* done, const T* seals);

extern template std::int64_t load_tile(const tile_job<float>& job, float* x, lane_sums* sums);
extern template std::int64_t load_tile(const tile_job<double>& job, double* x, lane_sums* sums);
extern template std::int64_t seal_scalars(const tile_job<float>& job);
extern template std::int64_t seal_scalars(const tile_job<double>& job);
extern template void make_seals(const tile_job<float>& job, const float* done, float* seals);
extern template void make_seals(const tile_job<double>& job, const double* done, double* seals);
extern template std::optional<std::uint64_t> store_tile(const tile_job<float>& job, const float* done, const float* seals);
extern template std::optional<std::uint64_t> store_tile(const tile_job<double>& job, const double* done, const double* seals);

}  // namespace ballast::fft::cpu
