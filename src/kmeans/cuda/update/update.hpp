// Arguments of the kernel that computes the packed centroids of the next pass, from the sums of a pass or from given centroids.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/points.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

struct update_policy {
  int threads = 512;  // the first 256 compute rows, one warp per row
  bool check = true;
  int words = 1;
  bool weighted = false;
  bool operator==(const update_policy&) const = default;
};

// k_part_features: features of a row that one block computes, one vector per lane of a warp. update_parts: blocks that share a tile's rows.
template <class T>
inline constexpr int k_part_features = 32 * k_vector<T>;
template <class T>
BALLAST_HD constexpr int update_parts(int stride) {
  return (stride + k_part_features<T> - 1) / k_part_features<T>;
}

// The result of a block for its part of the features; the last block of its section reads it.
struct part_result {
  // ‖c‖², ‖c − c̃‖²: by the warp that computed a row, then by the one that verified it, from the second copy
  double squares[k_tile_columns], cuts[k_tile_columns];
  double squares_twin[k_tile_columns], cuts_twin[k_tile_columns];
  double weights[k_tile_columns];  // w, for the whole row
  double half_norms;               // Σ w ‖c‖² / 2
  double shift, shift_twin;        // Σ‖c_new − c_old‖² from the two copies of both
  // Squared norms of this part of the section's checksum centroid, and of the direction. Stored only in the results of the section's first
  // tile, by the last block of the part.
  double checksum_square, direction;
  std::uint32_t empty;   // number of clusters without members
  std::uint32_t failed;  // number of checks that failed even after repetition
};

// The combined results of the blocks of a section, or of some of its centroids and features; the deciding block reads it.
struct section_result {
  // Σ (w ‖c‖)², Σ (w ‖c‖² / 2)², each from both ‖c‖²; the sums of part_result; ‖C‖² of the checksum centroid, ‖direction‖²
  enum sum : int { root, root_twin, root_square, root_square_twin, half_norms, shift, shift_twin, checksum_square, direction, k_sums };
  double sums[k_sums];
  // The largest and the smallest ‖c‖, and the largest ‖c − c̃‖² / ‖c‖²; again from the second ‖c‖².
  double largest[2], smallest[2], ratio[2];
  std::uint32_t empty, failed;
};

// Bounds the rounding error of a score, relative to the norms of its operands: k_row_factor random walks over n features. u: the unit
// roundoff.
inline constexpr double k_row_factor = 4;  // docs/design/kmeans-cuda.md, "Thresholds"
inline double score_walk(double u, int n) {
  return k_row_factor * u * (4 + std::sqrt(static_cast<double>(n)) + static_cast<double>(n) / 8);
}

// The argument of the update kernel. It has many members because one launch computes the new rows, verifies them and decides whether to
// stop, and its inputs come with second copies.
template <class T>
struct update_arguments {
  normalized_points<T> points;
  packed_centroids<T> centroids;  // written; `rows` is the new k × stride
  T* twin;                        // k × stride: the second copy of the new rows
  const T* old_rows;              // k × stride, and its second copy
  const T* old_twin;
  const T* given;  // k × n normalized centroids, and a second copy, used instead of sums. Null: use sums
  const T* given_twin;
  const unsigned long long* sums;  // sums of the pass, as in pass_arguments
  const unsigned long long* members;
  const pass_totals* totals;
  unsigned long long* next_sums;  // sums of the next pass, which are set to 0. Null: the next pass updates `sums`
  unsigned long long* next_members;
  pass_totals* next_totals;            // set to 0
  const unsigned long long* expected;  // words × columns: Σ word over all points
  unsigned long long expected_members;
  unsigned long long* column_sums;  // words × columns + 4: 0 before and after the kernel
  part_result* results;             // per block
  section_result* sections;         // per section
  double* checksums;                // sections × data_tiles × stride: Σ w c̃ of a tile
  double* squares;  // k: ‖c‖² of the old rows, from which weights are chosen if a row has several parts; then ‖c‖² of the new rows
  std::uint32_t* tickets;  // sections × (parts + 1), and one more: 0 before and after the kernel
  loop_state* state;       // two copies; null: no iterations on the device
  double tolerance;
  double tolerance_twin;  // second copy of tolerance
  double spread;          // √(Σ‖x‖² / m)
  double walk;            // score_walk
  double distance_limit;  // thresholds::distance
  ballast::cuda::event_ring* events;
  int repeats;
};

}  // namespace ballast::kmeans::cuda
