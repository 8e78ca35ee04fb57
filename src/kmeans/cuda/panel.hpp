// The centroids of one pass as the kernels read them, what a pass adds up, and the state of the iterations on the device.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
//
// Scores: s_ij = x_i · c_j − ‖c_j‖² / 2, the largest of which marks the nearest centroid. A tile is 8 columns of scores. A section is
// `data_tiles` tiles of centroids and, with checks, one check tile, whose columns are not centroids:
//   0, 1, 2  the checksum centroid Σ_j w_j c̃_j of the section in three parts that tensor cores hold exactly (f64: two); column 0 starts at
//            −Σ_j w_j ‖c_j‖² / 2
//   3        the direction of placed_points::projection
//   4 … 7    0
// c̃: what a tensor core sees of c. Columns beyond k have the weight 0 and a score that never wins.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "kmeans/cuda/points.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_tile_columns = 8;
inline constexpr int k_most_data_tiles = 48;  // of a section
inline constexpr int k_check_columns = 4;     // in use

struct panel_shape {
  int k = 0;
  int slabs = 0;  // of a row: placed_points::stride / k_slab
  int sections = 0;
  int section_tiles = 0;  // with the check tile
  int data_tiles = 0;     // of a section

  BALLAST_HD constexpr int tiles() const { return sections * section_tiles; }
  // Centroids of a section, but for the last one.
  BALLAST_HD constexpr int section_columns() const { return data_tiles * k_tile_columns; }
};

// The limits of one section, each the square of a bound: a residual ρ passes if ρ² ≤ slope · ‖x‖² + offset.
template <class T>
struct section_limits {
  T row_slope = 0;
  T row_offset = 0;
  T projection_slope = 0;
  T spare = 0;
  bool operator==(const section_limits&) const = default;
};

// The error of a score. A centroid that can be the nearest of x has ‖c‖ ≤ C = min(largest, 2‖x‖ + smallest): one that is farther out is
// farther from x than the one with the smallest norm. For these |score − exact score| ≤ product · ‖x‖ C + sum · (‖x‖ + C) C.
template <class T>
struct score_bound {
  T product = 0;   // relative error of a product: roundings of the operands
  T sum = 0;       // of the sums over features
  T largest = 0;   // ‖c‖
  T smallest = 0;  // ‖c‖
  bool operator==(const score_bound&) const = default;
};

// Device memory. Written by update (update.cuh).
template <class T>
struct panel {
  T* packed;                  // tiles × slabs × 32 × k_vector: lane l has features k_vector · (l % 4) … of column l / 4
  T* columns;                 // tiles × 8 × 2: start of the score, weight w in the row check
  T* rows;                    // (k + 1) × stride: c as it is, another copy: what distances are computed from; the last row is 0
  section_limits<T>* limits;  // sections × 2: each twice
  score_bound<T>* bound;      // 2: twice
  panel_shape shape;
};

// What the blocks of a pass add up in integers: over all points, modulo 2^64.
struct pass_totals {
  // Σ signature; Σ label · signature; points of positive weight, and in the upper half Σ label over them; labels that are as before, and in
  // the upper half those that differ.
  unsigned long long quantities[4];
  unsigned long long looks;  // rows that got a second look
  unsigned long long scans;  // and those for which many centroids were looked at

  BALLAST_HD constexpr unsigned long long same() const { return quantities[3] & 0xffffffffu; }
  BALLAST_HD constexpr unsigned long long changed() const { return quantities[3] >> 32; }
};

// Kinds of checks, for events.
enum class check : std::uint32_t { row, projection, minimum, distance, sums, centroid, checksum, totals, shift };

// Why iterations stopped on the device.
enum class stop_reason : std::uint32_t { none, labels_unchanged, tolerance, empty_cluster, failure };

// One per run, in device memory.
struct loop_state {
  std::uint32_t reason;      // stop_reason; kernels of later iterations do nothing if it is not 0
  std::uint32_t iterations;  // that are complete
  double shift;              // Σ‖c_new − c_old‖² of the last one
  double inertia;            // Σ weight · ‖x − c_old‖² of the last pass
  unsigned long long changed;
};

}  // namespace ballast::kmeans::cuda
