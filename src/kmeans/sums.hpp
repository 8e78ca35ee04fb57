// The update step in small arrays: sums of points by cluster, sums of all points that never change, and the invariants that tie them.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <vector>

#include "abft/attempt.hpp"
#include "core/aligned_buffer.hpp"
#include "core/at.hpp"

namespace ballast::kmeans {

inline constexpr std::int64_t k_survey_rows = 64;  // rows whose sum is made by itself, so that chains stay short

using core::at;

// Sums of the points of each cluster, and one side of the invariants: sums over labels, from the other way through the data.
struct cluster_sums {
  core::aligned_buffer<double> sums;           // k × n: Σ weight · x over the points of each cluster
  core::aligned_buffer<double> weights;        // k: Σ weight; empty where all weights are 1, members telling the same
  core::aligned_buffer<std::int64_t> members;  // k: how many points of positive weight
  double labelled_projection = 0;              // Σ_i label_i · projection_i, projection = weight · (x · direction)
  double labelled_weight = 0;                  // Σ_i label_i · weight_i
  double labelled_members = 0;                 // Σ label_i over the points of positive weight: an integer
  std::int64_t label_chain = 0;                // the most additions into one accumulator of the three above
  std::int64_t changed = 0;                    // labels that differ from the previous pass's
  std::int64_t changed_twin = 0;               // the same by counting equal ones

  void allocate(std::int64_t k, std::int64_t n, bool weighted);
  void clear();
};

// Sums over points, or over some of them, that stay the same over all iterations: the other side.
struct point_sums {
  std::vector<double> first;    // n: Σ weight · x
  std::vector<double> plain;    // n: Σ x; empty where all weights are 1
  std::vector<double> squares;  // n: Σ x²
  double total_square = 0;      // Σ ‖x‖², summed by rows
  double weighted_square = 0;   // Σ weight · ‖x‖²
  double largest_square = 0;    // max ‖x‖²; NaN if one is
  double weight = 0;            // Σ weight
  double members = 0;           // how many points of positive weight
  double count = 0;             // how many points

  void clear(std::int64_t n, bool weighted);
  void add(const point_sums& other);
};

// n numbers, random in ±[1, 2): the direction of the projections.
std::vector<double> projection_direction(std::int64_t n);

// The invariants. For each feature Σ_c S_c = Σ_i w_i x_i; and, so that no point is in the sum of a wrong cluster,
// Σ_c c (S_c · r) = Σ_i label_i w_i (x_i · r) with the direction r. The same for weights, and exactly for members and changed labels; each
// number of members is in range. n + 4 comparisons.
abft::finding verify_sums(const cluster_sums& sums, const point_sums& expected, const std::vector<double>& direction);

}  // namespace ballast::kmeans
