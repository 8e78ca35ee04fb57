// The update step in small arrays: sums of points by cluster, sums over all points that stay constant, and the invariants that connect
// them.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"

namespace ballast::kmeans {

inline constexpr std::int64_t k_column_stats_rows = 64;  // rows with a sum of their own, to keep summation chains short

using core::at;

// Sums of the points of each cluster, and the other side of the second invariant: sums over labels, computed by another way through the
// data.
struct cluster_sums {
  core::aligned_buffer<double> sums;           // k × n: Σ weight · x over the points of each cluster
  core::aligned_buffer<double> weights;        // k: Σ weight; empty if all weights are 1, since members is the same
  core::aligned_buffer<std::int64_t> members;  // k: number of points of positive weight
  double labelled_projection = 0;              // Σ_i label_i · projection_i, projection = weight · (x · direction)
  double labelled_weight = 0;                  // Σ_i label_i · weight_i
  double labelled_members = 0;                 // Σ label_i over the points of positive weight: an integer
  std::int64_t label_chain = 0;                // the largest number of additions into one of the three accumulators above
  std::int64_t changed = 0;                    // labels that differ from the previous pass's
  std::int64_t changed_twin = 0;               // the same, from the count of equal labels

  void allocate(std::int64_t k, std::int64_t n, bool weighted);
  void clear();
};

// Sums over all or some points that are constant over all iterations: the expected side of the invariants.
struct point_sums {
  core::vector<double> first;              // n: Σ weight · x
  core::vector<double> plain;              // n: Σ x; empty if all weights are 1
  core::vector<double> squares;            // n: Σ x²
  double total_square = 0;                 // Σ ‖x‖², summed by rows
  double weighted_square = 0;              // Σ weight · ‖x‖²
  double largest_square = 0;               // max ‖x‖²; NaN if any ‖x‖² is NaN
  double weight = 0;                       // Σ weight
  double members = 0;                      // number of points of positive weight
  double count = 0;                        // number of points
  double part_rows = k_column_stats_rows;  // the most rows with a sum of their own

  void clear(std::int64_t n, bool weighted);
  void add(const point_sums& other);
};

// Returns n random numbers in ±[1, 2): the direction of the projections.
core::vector<double> projection_direction(std::int64_t n);

// Verifies the invariants. For each feature Σ_c S_c = Σ_i w_i x_i. To detect a point in the sum of a wrong cluster,
// Σ_c c (S_c · r) = Σ_i label_i w_i (x_i · r) with the direction r. The same two hold for the weights. Members and changed labels are
// compared exactly, and each number of members must be in range. n + 4 comparisons.
abft::finding verify_sums(const cluster_sums& sums, const point_sums& expected, const core::vector<double>& direction);
// The same for sums of a bare pass, which has not summed over labels: the first invariant of points, weights and members, n + 2
// comparisons.
abft::finding verify_bare_sums(const cluster_sums& sums, const point_sums& expected, const core::vector<double>& direction);

}  // namespace ballast::kmeans
