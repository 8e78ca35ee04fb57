// The pass kernel's policy and arguments.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/panel.hpp"
#include "kmeans/cuda/points.hpp"

namespace ballast::kmeans::cuda {

// Where a pass adds up the points of each cluster.
enum class sum_memory : int { none, shared, global };

struct pass_policy {
  int slabs = 1;      // of x that a lane keeps in registers: those of a whole row; 0: rows are read again for each group of tiles
  int tiles = 2;      // whose scores a warp computes at a time: a group. Divides panel_shape::section_tiles
  int fragments = 1;  // matrix fragments of rows (16 in f32, 8 in f64) of a warp
  int warps = 8;      // of a block
  int blocks = 2;     // per multiprocessor, for the register budget
  int words = 1;      // of a sum
  sum_memory sums = sum_memory::shared;
  bool weighted = false;
  bool check = true;
  bool operator==(const pass_policy&) const = default;
};

template <class T>
struct pass_arguments {
  placed_points<T> points;
  panel<T> centroids;
  std::int32_t* labels;          // m
  const std::int32_t* previous;  // m: of the pass before. May be `labels`
  unsigned long long* sums;      // k × words × columns
  unsigned long long* members;   // k
  pass_totals* totals;
  const unsigned long long* factors;  // words × columns: signature_weight
  double* inertia;                    // of each block: Σ weight · ‖x − c‖²
  ballast::cuda::event_ring* events;
  const loop_state* state;  // null: no iterations on the device
  int repeats;              // abft::attempts
};

inline constexpr int k_block_words = 8 * 32;  // of 8 bytes: what the warps of a block add up
inline constexpr int k_postponed_bytes = 32;  // of a row in a queue

// Rows that the queue of a warp has room for: those of three tiles, of which one may add each row twice.
template <class T>
BALLAST_HD constexpr int pass_queue_rows(const pass_policy& p) {
  return 3 * p.fragments * (sizeof(T) == 4 ? 16 : 8);
}

// Bytes of dynamic shared memory: what the block adds up, the queues, limbs of the sums, members; of one more cluster for rows that wait.
template <class T>
constexpr std::int64_t pass_shared_bytes(const pass_policy& p, std::int64_t k, std::int64_t n) {
  const std::int64_t pitch = padded_features<T>(n) + (p.weighted ? 1 : 0);
  const std::int64_t always = k_block_words * 8 + std::int64_t{p.warps} * pass_queue_rows<T>(p) * k_postponed_bytes;
  return always + (p.sums == sum_memory::shared ? (k + 1) * (pitch * 8 * p.words + 4) : 0);
}

}  // namespace ballast::kmeans::cuda
