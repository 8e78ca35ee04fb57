// The work on one block of points: what reference/ and cpu/ implement for the host backend (host/), which loops over blocks, verifies and
// repairs.
// Layer: algorithm, between host/ and its kernels.
// Letters: m points × n features, k clusters; x a point and c a centroid, both in the frame (contract.hpp).
// Source: S. Wu, Y. Zhai, J. Huang et al., FT K-Means, 2024 (checksums in the product); docs/design/kmeans.md (this arrangement).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/view.hpp>

#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "core/aligned_buffer.hpp"
#include "inject/active.hpp"
#include "kmeans/contract.hpp"

namespace ballast::kmeans {

inline constexpr std::int64_t k_tile = 8;      // centroids that stand side by side in panel::packed
inline constexpr std::int64_t k_section = 64;  // centroids that share one row check, at most

// The index of a centroid as a lane of T holds it: the bits of an integer in f32, so that 2³¹ fit; a number in f64.
template <class T>
T name_of(std::int32_t index) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(index);
  } else {
    return static_cast<T>(index);
  }
}
template <class T>
std::int32_t index_of(T name) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::int32_t>(name);
  } else {
    return static_cast<std::int32_t>(name);
  }
}

// The points of a call and their frame.
template <class T>
struct source : frame<T> {
  matrix_view<const T> points;
  std::span<const T> weights;  // empty: all 1
};

// The limits of the row checks of one block, each kept twice. Residuals are compared squared: ρ² ≤ slope²‖x‖² + offset².
struct limits {
  abft::guarded_threshold level;               // distances(): limit of the error of a weighted sum of distances, times that sum
  std::vector<abft::guarded_threshold> slope;  // one for each section
  std::vector<abft::guarded_threshold> offset;
  std::vector<double> doubt;  // abft::row_limits, of each section
};

// The centroids as one pass uses them, in columns: tiles of k_tile and sections of up to k_section of them. Made by make_panel
// (host/panel.hpp). Columns stand in the order of the centroids. Only where norms differ so much that the products of near centroids would
// drown in the row check of far ones, sections hold centroids of like norms, in their order within a section, and are `sorted`.
// What fills a tile up are copies of another centroid, of weight 0 and without a name: a search that ends at one has failed.
template <class T>
struct panel {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t tiles = 0;
  std::int64_t sections = 0;
  bool by_norm = false;                  // sorting is allowed
  bool sorted = false;                   // equal distances in two sections must be compared by name
  std::vector<std::int64_t> first_tile;  // sections + 1
  std::vector<std::int64_t> used;        // tiles: columns that are centroids; they come first
  core::aligned_buffer<T> rows;          // k × n: c, in the order of the centroids
  core::aligned_buffer<T> packed;        // tiles × n × k_tile: −2c
  core::aligned_buffer<T> norms;         // tiles × k_tile: ‖c‖²
  core::aligned_buffer<T> names[2];      // tiles × k_tile: name_of(index) for each of the two searches; −1 for the copies
  core::aligned_buffer<T> weights;       // tiles × k_tile: w, random in [1, 2), 0 for the copies
  core::aligned_buffer<T> checksum;      // sections × n: Σ_j w_j (−2c_j), the checksum centroids
  core::aligned_buffer<T> start;         // tiles: −Σ_j w_j ‖c_j‖², where the residual of a tile starts
  core::aligned_buffer<T> rest;          // sections: what rounding took from Σ start
  core::aligned_buffer<T> sum_weights;   // sections: Σ_j w_j
  limits bounds;
};

// Scratch of one block of up to `capacity` points. Feature f of point p is x[(p / width · n + f) · width + p mod width]: kernels::width
// points stand side by side.
template <class T>
struct point_block {
  std::int64_t n = 0;
  std::int64_t capacity = 0;
  std::int64_t width = 1;
  std::int64_t first = 0;  // index of the first point
  std::int64_t count = 0;  // points in use; the rest is zero
  core::aligned_buffer<T> x;
  core::aligned_buffer<T> weight;                 // 0 behind `count`
  core::aligned_buffer<T> norm;                   // ‖x‖², by measure()
  core::aligned_buffer<T> minimum;                // min_j (‖c_j‖² − 2 x·c_j), where it is asked for
  core::aligned_buffer<T> twin;                   // the same by a chain of its own; only while a search is interrupted
  core::aligned_buffer<std::int32_t> index;       // the lowest j of the minimum
  core::aligned_buffer<std::int32_t> index_twin;  // the lowest j of the twin
  core::aligned_buffer<std::int32_t> label;       // what is committed: a copy of index
  core::aligned_buffer<T> residual;               // scratch of distances()
  core::aligned_buffer<double> exact;             // ‖point − centroid of its label‖² · scale², from differences in double
  core::aligned_buffer<T> distance;               // k_section × capacity, only where distances() is used
  limits bounds;                                  // this block's copy of the panel's
  bool doubtful = false;                          // a residual stands out (abft::row_limits::doubt)
  std::vector<T> spread;                          // scratch of the search: what residuals of each section there are
  const T* squares = nullptr;                     // capacity: ‖x‖² as of the first load; row checks take their limits from it
};

// Whether the largest squared residual of a section stands out; `sum` of `count` others, all in units of their limits of doubt.
inline bool stands_out(double largest, double sum, std::int64_t count) {
  constexpr double ratio = abft::k_kmeans_doubt * abft::k_kmeans_doubt;
  return largest > 1 && (count == 0 || largest * static_cast<double>(count) > ratio * sum);
}

// The first row that fails a check of a block: its residual (0: none fails) and its point.
struct row_failure {
  double residual = 0;
  std::int64_t row = -1;
};

// What never changes about the points of a block, from its first load on: sums over the bit patterns of x, as many as the kernels like.
// Equal for equal x, and different after any change of one element, or of several in different lanes.
struct block_facts {
  std::uint64_t lanes[64] = {};
  bool operator==(const block_facts&) const = default;
};

// Shows the products of a block to the injector. `place` holds interval and intervals; the kernel fills in the steps.
struct product_hook {
  inject::active_injector* injector = nullptr;
  inject::place place = {};
};

// The kernels. All are pure functions of their arguments, so repeating one repairs a transient fault.
template <class T>
struct kernels {
  std::int64_t width;  // of point_block

  // x and weight from the points. Zero behind the last point.
  void (*load)(const source<T>& from, point_block<T>& block);
  // The signature of x as it lies in the block; and what it must be, from the points, in another order.
  void (*sign)(const point_block<T>& block, std::uint64_t* lanes);
  void (*sign_source)(const source<T>& from, const point_block<T>& block, std::uint64_t* lanes);
  // Adds x of `count` rows from `first` on to `sums` and x² to `squares`, n each, and writes the ‖x‖² of each row to `norms`; in double.
  void (*sum_rows)(const source<T>& from, std::int64_t first, std::int64_t count, double* sums, double* squares, double* norms);
  // norm of each point.
  void (*measure)(point_block<T>& block);
  // index of each point over all centroids of the panel. With `keep` also minimum. With `protect` also index_twin; the residual of each
  // row check is compared with its limit (by block.bounds and block.squares), and minimum with twin; doubtful says whether one stands out.
  row_failure (*assign)(const panel<T>& centroids, bool protect, bool keep, const product_hook& hook, point_block<T>& block);
  // Compares label with index_twin.
  row_failure (*check)(const point_block<T>& block, std::int64_t k);
  // Adds the points to the sums, weights and members of their labels. Reads the points anew. Labels must be in [0, k).
  void (*accumulate)(const source<T>& from, const point_block<T>& block, cluster_sums& into);
  // projection[p] = weight · (x · direction) for the points of the block, in double.
  void (*project)(const point_block<T>& block, const double* direction, double* projection);
  // Adds the labels to labelled_projection, labelled_weight and labelled_members.
  void (*sum_labels)(const point_block<T>& block, const double* projection, cluster_sums& into);
  // exact, for the labels and any k × n centroids that are scaled and shifted like `from`. Reads the points anew.
  void (*exact)(const source<T>& from, const T* centroids, point_block<T>& block);
  // distance[j · capacity + p] = ‖x_p − c_j‖² from differences, for the columns j of one section; with `protect` also residual.
  void (*distances)(const panel<T>& centroids, std::int64_t section, bool protect, const product_hook& hook, point_block<T>& block);
};

template <class T>
const kernels<T>& reference_kernels();
template <class T>
const kernels<T>& cpu_kernels();

}  // namespace ballast::kmeans
