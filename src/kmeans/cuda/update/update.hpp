// Arguments of the kernel that turns the sums of a pass, or given centroids, into the panel of the next pass.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/points.hpp"

namespace ballast::kmeans::cuda {

struct update_policy {
  int threads = 512;  // the first 256 make rows, one warp each
  bool check = true;
  int words = 1;
  bool weighted = false;
  bool operator==(const update_policy&) const = default;
};

// Features of a row that one block makes: a vector for each lane of a warp. And how many blocks share a tile's rows.
template <class T>
inline constexpr int k_part_features = 32 * k_vector<T>;
template <class T>
BALLAST_HD constexpr int update_parts(int stride) {
  return (stride + k_part_features<T> - 1) / k_part_features<T>;
}

// What a block tells the last one of its section, of its part of the features.
struct part_result {
  double squares[k_tile_columns];  // ‖c‖²
  double cuts[k_tile_columns];     // ‖c − c̃‖²
  double weights[k_tile_columns];  // w: of the whole row
  double half_norms;               // Σ w ‖c‖² / 2
  double shift, shift_twin;        // Σ‖c_new − c_old‖² from the two copies of both
  // Of this part of the section's checksum centroid, and of the direction. Only in results of the section's first tile, by the last block
  // of the part.
  double checksum_square, direction;
  std::uint32_t empty;   // clusters without members
  std::uint32_t failed;  // checks that failed for good
};

// What follows from these for a section, or for some of its centroids and features; and a section tells those that decide.
struct section_result {
  // Σ (w ‖c‖)², Σ (w ‖c‖² / 2)²; those of part_result; ‖C‖² of the checksum centroid, ‖direction‖²
  enum sum : int { root, root_square, half_norms, shift, shift_twin, checksum_square, direction, k_sums };
  double sums[k_sums];
  double largest, smallest;  // ‖c‖
  double ratio;              // the largest ‖c − c̃‖² / ‖c‖²
  std::uint32_t empty, failed;
};

// What rounding adds to a score, over the norms of its operands: k_row_factor random walks over n features. u: the unit roundoff.
inline constexpr double k_row_factor = 4;  // docs/design/kmeans-cuda.md, "Thresholds"
inline double score_walk(double u, int n) {
  return k_row_factor * u * (4 + std::sqrt(static_cast<double>(n)) + static_cast<double>(n) / 8);
}

template <class T>
struct update_arguments {
  placed_points<T> points;
  panel<T> centroids;  // written; `rows` is the new k × stride
  T* twin;             // k × stride: the second copy of the new rows
  const T* old_rows;   // k × stride, and its second copy
  const T* old_twin;
  const T* given;  // k × n centroids in the frame, and a second copy: instead of sums. Null: sums
  const T* given_twin;
  const unsigned long long* sums;  // of the pass, as in pass_arguments
  const unsigned long long* members;
  const pass_totals* totals;
  unsigned long long* next_sums;  // those of the next pass, which are set to 0. Null: it changes `sums`
  unsigned long long* next_members;
  pass_totals* next_totals;            // set to 0
  const unsigned long long* expected;  // words × columns: Σ word over all points
  unsigned long long expected_members;
  unsigned long long* column_sums;  // words × columns + 4: 0 before and after
  part_result* results;             // of each block
  section_result* sections;         // of each section
  double* checksums;                // sections × data_tiles × stride: Σ w c̃ of a tile
  double* squares;         // k: ‖c‖² of the old rows, by which weights are chosen where a row has several parts; then of the new ones
  std::uint32_t* tickets;  // sections × (parts + 1), then one: 0 before and after
  loop_state* state;       // null: no iterations on the device
  double tolerance;
  double tolerance_twin;  // the same
  double spread;          // √(Σ‖x‖² / m)
  double walk;            // score_walk
  double distance_limit;  // abft::kmeans_distance_limit
  ballast::cuda::event_ring* events;
  int repeats;
};

}  // namespace ballast::kmeans::cuda
