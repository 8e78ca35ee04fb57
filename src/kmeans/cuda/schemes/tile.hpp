// The kernels of the schemes that FT K-Means compares: policies and arguments.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
// Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, sections III and IV. A tile is the part of the m × k products x·c that one
// block computes.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/points.hpp"

namespace ballast::kmeans::cuda {

// The unit that multiplies: the lanes of a warp by multiply-adds, or its tensor cores (f32: TF32). Both hold the same elements of a tile.
enum class tile_unit : int { lanes, tensor };

// The result of a tile. distances: all its distances are stored in memory; minima: the nearest centroid of the tile for each row; labels:
// the nearest centroid of all tiles so far, updated under a lock per row.
enum class tile_finish : int { distances, minima, labels };

// The check of a tile (tile_check.cuh).
//   warp         checksums of both operands by e₁ and e₂ within a warp, multiplied by three more products; verified every k_tile_interval
//                features; a wrong element is located and corrected (FT K-Means)
//   detect       e₁ only, one more product, verified at the end; a wrong tile is computed again (Kosaian)
//   threadblock  sums of rows and columns of the block's tile, encoded while operands pass through registers to shared memory; verified
//                every k_tile_interval features; a wrong element is located and corrected (Wu)
enum class tile_check : int { none, warp, detect, threadblock };

inline constexpr int k_tile_interval = 256;

struct tile_policy {
  tile_unit unit = tile_unit::tensor;
  tile_finish finish = tile_finish::labels;
  tile_check check = tile_check::none;
  int rows = 128;         // rows of the block's tile: points
  int columns = 64;       // columns of the block's tile: centroids
  int depth = 16;         // features per stage
  int warp_rows = 32;     // rows of a warp's tile; divides rows
  int warp_columns = 32;  // columns of a warp's tile; divides columns
  int stages = 3;         // stages in the ring of asynchronous copies; check threadblock has two, of ordinary copies
  int blocks = 1;         // blocks per multiprocessor, for the register budget
  bool operator==(const tile_policy&) const = default;

  BALLAST_HD constexpr int warps() const { return rows / warp_rows * (columns / warp_columns); }
  BALLAST_HD constexpr int threads() const { return 32 * warps(); }
};

// Rows of a matrix fragment; a fragment has 8 columns.
inline constexpr int k_fragment_rows = 16;
// The elements of the paper's thread tiles, 16 × 8 × 4 and in f64 8 × 8 × 4.
template <class T>
inline constexpr int k_thread_tile = sizeof(T) == 4 ? 128 : 64;

// Returns whether a policy obeys the paper's rules (powers of two; a warp has the depth of its block; a warp has 8 or 16 thread tiles) and
// can be compiled (a warp has whole fragments; a stage has whole k-slices; a block has up to 16 warps; check threadblock has one k-slice
// per stage).
template <class T>
BALLAST_HD constexpr bool obeys_rules(const tile_policy& p) {
  const auto power = [](int x) { return x > 0 && (x & (x - 1)) == 0; };
  if (!power(p.rows) || !power(p.columns) || !power(p.depth) || !power(p.warp_rows) || !power(p.warp_columns)) return false;
  if (p.warp_rows < k_fragment_rows || p.warp_columns < 8 || p.rows < p.warp_rows || p.columns < p.warp_columns) return false;
  const int thread_tiles = p.warp_rows * p.warp_columns / k_thread_tile<T>;
  if (thread_tiles != 8 && thread_tiles != 16) return false;
  if (p.depth % k_slice<T> != 0 || p.warps() > 16 || p.rows > 256 || p.stages < 2) return false;
  return p.check != tile_check::threadblock || (p.depth == k_slice<T> && p.stages == 2);
}

// The nearest centroid of a row among those of a tile.
template <class T>
struct tile_minimum {
  T value;  // ‖c‖² − 2 x·c
  std::int32_t centroid;
};

template <class T>
struct tile_arguments {
  normalized_points<T> points;
  const T* centroids;  // k × stride, normalized
  const T* norms;      // k: ‖c‖²
  int k;
  T* distances;             // finish distances: m × k, ‖x‖² + ‖c‖² − 2 x·c
  tile_minimum<T>* minima;  // finish minima: m × tiles across
  T* best;                  // finish labels: m, values of the nearest centroids so far
  std::uint32_t* locks;     // finish labels: m; 0: no centroid so far, 1: locked, 2: free. 0 on entry
  std::int32_t* labels;     // m
  ballast::cuda::event_ring* events;
  const loop_state* state;  // null: no iterations on the device
  int repeats;              // abft::attempts
  T slack;                  // tile_slack
  std::uint64_t flips;      // instrumented kernels: if not 0, one bit of one product per block is flipped, drawn from this seed
};

// Shared memory of a block in bytes: the stages; with check threadblock followed by its sums. The search for the nearest centroid reuses
// the memory of the stages after the products.
template <class T>
BALLAST_HD constexpr std::int64_t tile_stage_bytes(const tile_policy& p) {
  return std::int64_t{p.rows + p.columns} * p.depth * static_cast<std::int64_t>(sizeof(T));
}
template <class T>
BALLAST_HD constexpr std::int64_t tile_shared_bytes(const tile_policy& p) {
  const std::int64_t stages = p.stages * tile_stage_bytes<T>(p);
  const std::int64_t search = std::int64_t{p.columns / p.warp_columns} * p.rows * static_cast<std::int64_t>(sizeof(tile_minimum<T>));
  std::int64_t made = stages > search ? stages : search;
  if (p.check == tile_check::threadblock) {
    const std::int64_t numbers = std::int64_t{2} * k_slice<T> * (p.warps() + 1) + std::int64_t{p.columns / p.warp_columns} * p.rows +
                                 std::int64_t{p.rows / p.warp_rows} * p.columns + 2;
    made += numbers * static_cast<std::int64_t>(sizeof(T)) + 32;
  }
  return (made + 15) / 16 * 16;
}

// Arguments of the kernels before and after the tiles, in paper_kernels.cuh.

template <class T>
struct tile_norm_arguments {
  const T* centroids;  // k × stride
  T* norms;            // k
  int k, stride;
  ballast::cuda::event_ring* events;
  const loop_state* state;
  int repeats;
  bool check;  // compute each norm twice
};

template <class T>
struct tile_search_arguments {
  normalized_points<T> points;
  const T* centroids;             // naive: k × stride
  const T* distances;             // gemm: m × k
  const tile_minimum<T>* minima;  // fused: m × across
  std::int32_t* labels;
  int k, across;
  const loop_state* state;
};

// Sums of the points by label, as in pass_arguments. With sums_twin everything is summed twice, and both sums must agree.
template <class T>
struct tile_update_arguments {
  normalized_points<T> points;
  const std::int32_t* labels;
  const std::int32_t* previous;
  unsigned long long* sums;
  unsigned long long* members;
  unsigned long long* sums_twin;  // 0 on entry; null: no check
  unsigned long long* members_twin;
  pass_totals* totals;
  std::uint32_t* ticket;  // 0 before and after the kernel
  ballast::cuda::event_ring* events;
  const loop_state* state;
  int k;
  int repeats;
};

inline constexpr int k_tile_threads = 256;  // for the kernels before and after the tiles

}  // namespace ballast::kmeans::cuda
