// Arguments of the kernels that add up the points of each cluster after a pass, where the sums of all clusters do not fit into shared
// memory: rows in the order of their labels, so that a warp adds many rows of a cluster in registers before it touches memory. Layer:
// backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "kmeans/cuda/points.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_sort_threads = 1024;
inline constexpr int k_least_sorted_rows = 4 * k_sort_threads;  // of a block that counts or orders
inline constexpr int k_most_sorted_clusters = 12 * 1024;        // two counters of each are in shared memory
inline constexpr int k_sum_threads = 256;
inline constexpr int k_sum_rows = 64;  // of a warp

// Bytes of shared memory of a block that counts (one counter of each cluster) or orders (two).
BALLAST_HD constexpr std::int64_t sort_bytes(std::int64_t k, int counters) { return k * counters * 4; }

// Columns that a warp adds up: one load of 16 bytes for each lane.
template <class T>
inline constexpr int k_sum_columns = 32 * k_vector<T>;

template <class T>
struct sorted_sums_arguments {
  placed_points<T> points;
  const std::int32_t* labels;   // m
  unsigned long long* sums;     // k × words × sum_pitch, as passes leave them: added to
  unsigned long long* members;  // k: added to
  std::uint32_t* counters;      // 2 k: rows of each label, and how many of them have a place; 0 before and after
  std::int32_t* order;          // m: rows of positive weight, label by label
  std::uint32_t* ordered;       // rows in `order`
  const std::uint32_t* stop;    // loop_state::reason; null: no iterations on the device
  int k;
};

}  // namespace ballast::kmeans::cuda
