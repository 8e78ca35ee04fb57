// The centroids of one pass in the layout that kernels read (the packed centroids), the sums of a pass, and the state of the iterations on
// the device.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
//
// Scores: s_ij = x_i · c_j − ‖c_j‖² / 2; the largest marks the nearest centroid. A tile is 8 columns of scores. A group is the tiles that a
// warp multiplies at a time. A section is several groups: tiles of centroids and, with checks, one check tile at the end, whose columns are
// not centroids:
//   0, 1, 2  the checksum centroid Σ_j w_j c̃_j of the section, split into three parts that tensor cores represent exactly, each scaled
//            (check_scale); columns 0 and 1 start at the two parts of −Σ_j w_j ‖c_j‖² / 2. Their weights are −1 / scale, so that
//            Σ w · score over the section's columns is 0 except for rounding
//   3        the direction of normalized_points::projection; weight 0
//   4 … 7    0
// c̃: c as rounded for the tensor core. Columns from k on have weight 0 and a score that never wins.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "kmeans/cuda/layout/points.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_tile_columns = 8;
// The score of a column after the last centroid.
template <class T>
inline constexpr T k_no_score = static_cast<T>(sizeof(T) == 4 ? -7e37 : -1e307);
// f64: exact distances come from differences times 2^k_lift_exponent, so that squares of coordinates that the normalization made small do
// not underflow.
template <class T>
inline constexpr int k_lift_exponent = sizeof(T) == 4 ? 0 : 400;
template <class T>
inline constexpr double k_lift = sizeof(T) == 4 ? 1.0 : 0x1p400;

inline constexpr int k_check_columns = 4;  // number of check columns in use

// Returns the factor that brings a part of the checksum centroid into the range of halves: the first part may be large, the others are
// small.
template <class T>
BALLAST_HD constexpr double check_scale(int part) {
  return sizeof(T) == 4 ? static_cast<double>(std::int64_t{1} << 11 * part) / 16 : 1;
}

template <class T>
inline constexpr int k_slice_bytes = k_tile_columns* k_slice<T>* static_cast<int>(sizeof(operand_of<T>));  // per tile and k-slice

// The unit that multiplies: a warp by mma, or four warps by wgmma. They read `packed` in different orders.
enum class product_unit : int { warp, warpgroup };

struct packed_shape {
  int k = 0;
  int slices = 0;  // k-slices per row: normalized_points::stride / k_slice
  int sections = 0;
  int section_tiles = 0;  // including the check tile
  int data_tiles = 0;     // per section
  int group_tiles = 1;
  product_unit unit = product_unit::warp;

  BALLAST_HD constexpr int tiles() const { return sections * section_tiles; }
  // Returns the number of centroids of a section (the last section may have fewer).
  BALLAST_HD constexpr int section_columns() const { return data_tiles * k_tile_columns; }
  template <class T>
  BALLAST_HD constexpr std::int64_t packed_bytes() const {
    return std::int64_t{tiles()} * slices * k_slice_bytes<T>;
  }
};

// Returns the position of feature f of column c of a tile in `packed`: group by group, in a group k-slice by k-slice, in a k-slice tile by
// tile. A k-slice of a tile, with the features V t + v of t = 0 … 3 and v < V = k_vector, is stored as
//   warp        (c, t, v): lane 4c + t loads its numbers in one load
//   warpgroup   (v / 2, c, t, v % 2): two blocks of 8 columns × 16 bytes, the layout of wgmma
template <class T>
BALLAST_HD constexpr std::int64_t packed_index(const packed_shape& shape, int tile, int c, int f) {
  constexpr int size = k_tile_columns * k_slice<T>;
  const int group = tile / shape.group_tiles, slice = f / k_slice<T>, t = f % k_slice<T> / k_vector<T>, v = f % k_vector<T>;
  const std::int64_t at = ((std::int64_t{group} * shape.slices + slice) * shape.group_tiles + tile % shape.group_tiles) * size;
  return at + (shape.unit == product_unit::warp ? (c * 4 + t) * k_vector<T> + v : ((v / 2 * k_tile_columns + c) * 4 + t) * 2 + v % 2);
}

// Returns the position of the sum of column f of a cluster, in shared and in global memory: the four lanes of a row add to adjacent
// numbers. A cluster has sum_pitch numbers (per word, and in shared memory per limb). The last four hold the weight, and shift the next
// cluster to other banks.
template <class T>
BALLAST_HD constexpr int sum_index(int f, int n, int stride) {
  if (f == n) return stride;
  return f / k_slice<T> * k_slice<T> + f % k_vector<T> * 4 + f % k_slice<T> / k_vector<T>;
}
BALLAST_HD constexpr int sum_pitch(int stride) { return stride + 4; }

// The thresholds of one section, each the square of a bound: a residual ρ passes if ρ² ≤ slope · ‖x‖² + offset. A row whose ρ² is above
// that, but not above `excess` times that, is doubtful: its label is decided by distances.
template <class T>
struct alignas(16) section_limits {
  T row_slope = 0;
  T row_offset = 0;
  T projection_slope = 0;
  T excess = 1;  // thresholds::row_excess
  bool operator==(const section_limits&) const = default;
};

// The error bound of a score. A centroid that can be the nearest to x has ‖c‖ ≤ C = min(largest, 2‖x‖ + smallest): one farther out is
// farther from x than the centroid with the smallest norm. For these |score − exact score| ≤ (r + product · (‖x‖ + r)) C + sum · (‖x‖ + C)
// C, with r = normalized_points::rounding.
template <class T>
struct alignas(16) score_bound {
  T product = 0;   // the largest ‖c − c̃‖ / ‖c‖, or slightly more
  T sum = 0;       // rounding of the sums over features
  T largest = 0;   // the largest ‖c‖
  T smallest = 0;  // the smallest ‖c‖
  T distance = 0;  // thresholds::distance
  bool operator==(const score_bound&) const = default;
};

// The packed centroids, in device memory. Written by update (update.cuh).
template <class T>
struct packed_centroids {
  operand_of<T>* packed;      // tiles × slices × k_slice_bytes: packed_index
  T* columns;                 // tiles × 2 × 8: the start values of the scores, then their weights w in the row check
  T* rows;                    // (k + 1) × stride: c itself, in a second copy, from which distances are computed; the last row is 0
  section_limits<T>* limits;  // sections × 2: each stored twice
  score_bound<T>* bound;      // 2: stored twice
  packed_shape shape;
};

inline constexpr int k_quantities = 5;
// The integer sums of the blocks of a pass over all points, modulo 2^64.
struct pass_totals {
  // [0] Σ signature; [1] Σ label · signature; [2] points of positive weight, and in the upper half Σ label over them; [3] unchanged labels;
  // [4] changed labels.
  unsigned long long quantities[k_quantities];
  unsigned long long looks;  // rows with an exact recheck of listed candidates
  unsigned long long scans;  // rows with an exact recheck of many centroids
  std::uint32_t drawn;       // tiles of rows drawn by blocks (pass_arguments::draws)
  std::uint32_t unused;      // totals are cleared by words of 8 bytes

  BALLAST_HD constexpr unsigned long long same() const { return quantities[3]; }
  BALLAST_HD constexpr unsigned long long changed() const { return quantities[4]; }
};

// Kinds of checks, reported in events.
enum class check : std::uint32_t { row, projection, minimum, distance, centroid, totals, shift, join };

// The reason why iterations stopped on the device.
enum class device_stop : std::uint32_t { none, labels_unchanged, tolerance, empty_cluster, failure };

// Two per run, in device memory: each is computed by another thread from numbers of its own, and the host compares them. Kernels of later
// iterations do nothing if the reason of the first is not none.
struct loop_state {
  std::uint32_t reason;      // a device_stop
  std::uint32_t iterations;  // number of complete iterations
  std::uint32_t failed;      // with device_stop::failure: the check that failed
  std::uint32_t changed;     // 1 if a label changed in the last iteration
  double shift;              // Σ‖c_new − c_old‖² of the last iteration
};

}  // namespace ballast::kmeans::cuda
