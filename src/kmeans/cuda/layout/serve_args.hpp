// Labels of points as they are given, in f32 or of 16 bits: the arguments of serve.cuh, and which points its kernel can take.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_serve_rows = k_row_threads;  // per block, as in exact_kernel: it sums the inertia by so many
inline constexpr int k_serve_pack_threads = 32 * k_tile_columns;

// The instance of serve_kernel: warps of a block, and tiles of centroids whose scores a warp computes at a time.
struct serve_policy {
  int warps = 8;
  int tiles = 4;
  bool operator==(const serve_policy&) const = default;
};

// The norms of the centroids of a tile: the largest and the smallest ‖c‖, and the largest ‖c − c̃‖ / ‖c‖, or slightly more.
template <class T>
struct serve_norms {
  T largest, smallest, ratio;
};

// A copy of the centroids, in device memory. Two copies come from two transfers and share nothing.
template <class T>
struct serve_centroids {
  const T* values;         // k × n, normalized
  const T* plain;          // k × n, in the units of point · scale
  const T* shift;          // stride: of the normalization, 0 from feature n on
  T* rows;                 // k × stride: `values`, 0 from feature n on
  operand_of<T>* packed;   // tiles × slices × k_slice_bytes: packed_index
  T* starts;               // tiles × 8: the scores' start values −‖c‖²/2
  serve_norms<T>* bounds;  // per tile
};

template <class T>
struct serve_arguments {
  given_points<T> given;
  serve_centroids<T> centroids[2];  // the second one is for the second computation
  exact_arguments<T> exact[2];  // the same for the functions of exact.cuh: given, plain and k. Made in a kernel they would lie in its stack
  packed_shape shape;
  int k;
  std::int32_t* labels;  // m
  double* sums;          // per block: Σ distance², and the same by the second computation
  row_flags* flags;
  bool check;  // every row is computed twice
};

// Bytes of shared memory: the operands of each warp's rows, one row of coordinates for each warp; per row two distances, two labels and a
// hash; two sums.
template <class T>
BALLAST_HD constexpr std::int64_t serve_shared_bytes(const serve_policy& p, std::int64_t stride) {
  const std::int64_t operand = p.warps * std::int64_t{k_operand_rows} * stride * static_cast<std::int64_t>(sizeof(operand_of<T>));
  return operand + p.warps * stride * static_cast<std::int64_t>(sizeof(T)) + k_serve_rows * (2 * 8 + 3 * 4) + 2 * 8;
}

// The longest row that a block of so many warps takes, in features: above the first it has half of the warps.
inline constexpr std::int64_t k_serve_features = 256, k_serve_most_features = 1024;

// Returns whether labels of points as they are given take less time than a pass over prepared ones. Their products run at a quarter of the
// speed of a pass, so only few of them are less than the preparation: on an H200, protected, 128 features and 128 clusters take 0.74 of the
// time, 64 and 1024 3.2 times as much.
BALLAST_HD constexpr bool serves_labels(std::int64_t n, std::int64_t k) { return n <= k_serve_most_features && n * k <= 16384; }

// Returns the instance for a problem.
BALLAST_HD constexpr serve_policy serve_policy_of(std::int64_t n, std::int64_t k) {
  return {n <= k_serve_features ? 8 : 4, k <= k_tile_columns ? 1 : 4};
}

}  // namespace ballast::kmeans::cuda
