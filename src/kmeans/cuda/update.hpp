// Arguments of the kernel that turns the sums of a pass, or given centroids, into the panel of the next pass.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/panel.hpp"
#include "kmeans/cuda/points.hpp"

namespace ballast::kmeans::cuda {

struct update_policy {
  int threads = 512;  // the first 256 make a tile of centroids
  bool check = true;
  int words = 1;
  bool weighted = false;
  bool operator==(const update_policy&) const = default;
};

// What one tile of centroids tells its section, and a section those that decide: sums over clusters, or over sections' tiles.
struct tile_result {
  double half_norms;         // Σ w ‖c‖² / 2
  double root, root_square;  // Σ (w ‖c‖)², Σ (w ‖c‖² / 2)²
  double shift, shift_twin;  // Σ‖c_new − c_old‖² from the two copies of both
  double largest, smallest;  // ‖c‖
  double ratio;              // the largest ‖c − c̃‖² / ‖c‖²
  std::uint32_t empty;       // clusters without members
  std::uint32_t failed;      // checks that failed for good
};

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
  tile_result* tiles;               // sections × data_tiles, then sections
  double* checksums;                // sections × data_tiles × stride: Σ w c̃ of a tile
  std::uint32_t* tickets;           // sections + 1: 0 before and after
  loop_state* state;                // null: no iterations on the device
  double tolerance;
  double tolerance_twin;  // the same
  double spread;          // √(Σ‖x‖² / m)
  ballast::cuda::event_ring* events;
  int repeats;
};

}  // namespace ballast::kmeans::cuda
