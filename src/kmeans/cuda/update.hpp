// Arguments of the kernel that turns the sums of a pass, or given centroids, into the panel of the next pass.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/panel.hpp"
#include "kmeans/cuda/points.hpp"

namespace ballast::kmeans::cuda {

struct update_policy {
  int threads = 256;
  bool check = true;
  int words = 1;
  bool weighted = false;
  bool operator==(const update_policy&) const = default;
};

// What one section tells the block that decides.
struct section_result {
  double shift, shift_twin;  // Σ‖c_new − c_old‖² from the two copies of both
  double largest, smallest;  // ‖c‖
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
  unsigned long long* next_sums;  // those of the next pass, which are set to 0
  unsigned long long* next_members;
  pass_totals* next_totals;
  const unsigned long long* expected;  // words × columns: Σ word over all points
  unsigned long long expected_members;
  unsigned long long* column_sums;  // words × columns + 4: 0 before and after
  section_result* sections;
  std::uint32_t* ticket;  // 0 before and after
  const double* inertia;  // of each block of the pass
  std::int64_t inertia_count;
  loop_state* state;  // null: no iterations on the device
  double tolerance;
  double spread;  // √(Σ‖x‖² / m)
  ballast::cuda::event_ring* events;
  int repeats;
};

}  // namespace ballast::kmeans::cuda
