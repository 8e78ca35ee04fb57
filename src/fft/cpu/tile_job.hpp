// One tile as a piece of work: where its lines lie in memory, what transforms them, where they go; and the load and the store of a tile.
// Layer: backend "cpu". The transforms make the jobs (one_pass.cpp, volume.cpp), a tile_worker does them (tile.hpp).
#pragma once

#include <cstdint>

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

template <class T>
struct tile_job {
  const line<T>* transform = nullptr;
  place_of<const T> from;
  place_of<T> to;
  int used = 0;  // lanes
  std::int64_t rows_stored = 0;
  bool inverse = false;
  bool expand = false;        // real_inverse of odd length: rows beyond the half spectrum are made in the tile
  const T* coarse = nullptr;  // twiddle factors after the transform
  const T* fine = nullptr;
  double scale = 1;
  bool stream = false;
  read_ahead ahead;  // what the next tile will read
  std::int64_t interval = 0;
  std::int64_t waiting = -1;  // number among the tiles whose result waits in memory, −1 for none
  std::int64_t index = 0;     // what events call lane 0
  std::int64_t index_lane = 1;
};

// Loads the tile of `job` into x, and unless `sums` is null encodes it there. Returns the number of seals that do not match.
template <class T>
std::int64_t load_tile(const tile_job<T>& job, T* x, lane_sums* sums);

// Stores the first rows_stored rows of a tile.
template <class T>
void store_tile(const tile_job<T>& job, const T* done);

extern template std::int64_t load_tile(const tile_job<float>& job, float* x, lane_sums* sums);
extern template std::int64_t load_tile(const tile_job<double>& job, double* x, lane_sums* sums);
extern template void store_tile(const tile_job<float>& job, const float* done);
extern template void store_tile(const tile_job<double>& job, const double* done);

}  // namespace ballast::fft::cpu
