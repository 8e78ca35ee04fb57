// What a backend of K-Means implements: the work on one block of points. The driver (driver.hpp) decides, verifies and repairs.
// Layer: between the driver and the backends reference/ and cpu/.
// Letters: m points × n features, k clusters; x a point and c a centroid, both scaled and centred: x = points · scale − shift.
// Source: S. Wu, Y. Zhai, J. Huang et al., FT K-Means, 2024 (checksums in the product); docs/design/kmeans.md (this arrangement).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/view.hpp>

#include "abft/verify.hpp"
#include "core/aligned_buffer.hpp"
#include "inject/injector.hpp"

namespace ballast::kmeans {

inline constexpr std::int64_t k_tile = 8;    // centroids that stand side by side in panel::packed
inline constexpr std::int64_t k_group = 64;  // centroids that share one row check

// The points, and how they are brought near the origin while they are loaded: no copy of them is ever made.
template <class T>
struct source {
  matrix_view<const T> points;
  std::span<const T> weights;  // empty: all 1
  T weight_scale = 1;          // a power of two that brings the largest weight into [1, 2)
  T scale = 1;                 // a power of two that brings the largest coordinate to about 1, so that no square overflows or vanishes
  std::vector<T> shift;        // n: mean · scale
};

// The limits of the row checks of one block, each kept twice. Residuals are compared squared: ρ² ≤ slope²‖x‖² + offset².
struct limits {
  abft::guarded_threshold level;                // distances(): limit of the error of a weighted sum of distances, times that sum
  std::vector<abft::guarded_threshold> slope;   // one for each group of k_group centroids
  std::vector<abft::guarded_threshold> offset;
};

// The centroids as one pass uses them. Made by make_panel (panel.hpp) from the sealed centroids.
template <class T>
struct panel {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t tiles = 0;   // ⌈k / k_tile⌉; the last one is filled up with copies of the last centroid, which never win
  std::int64_t groups = 0;  // ⌈k / k_group⌉
  core::aligned_buffer<T> rows;      // k × n: c
  core::aligned_buffer<T> packed;    // tiles × n × k_tile: −2c
  core::aligned_buffer<T> norms;     // tiles × k_tile: ‖c‖²
  core::aligned_buffer<T> weights;   // tiles × k_tile: w, random in [1, 2), 0 for the copies
  core::aligned_buffer<T> checksum;  // groups × n: Σ_j w_j (−2c_j), the checksum centroids
  core::aligned_buffer<T> start;     // tiles: −Σ_j w_j ‖c_j‖², where the residual of a tile starts
  core::aligned_buffer<T> rest;      // groups: what rounding took from Σ start
  core::aligned_buffer<T> sum_weights;  // groups: Σ_j w_j
  limits bounds;
};

// Scratch of one block of up to `capacity` points. Feature f of point p is x[(p / width · n + f) · width + p mod width], `width` being
// that of the backend: so many points stand side by side.
template <class T>
struct tile {
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
  core::aligned_buffer<double> exact;       // ‖point − centroid of its label‖² · scale², from differences in double
  core::aligned_buffer<T> distance;         // k_group × capacity, only where distances() is used
  limits bounds;                            // this block's copy of the panel's
  const double* cells = nullptr;            // block_facts::norms
};

// What a group of blocks adds to the next centroids, and the other side of the invariants that it is verified with.
template <class T>
struct partial {
  core::aligned_buffer<double> sums;           // k × n: Σ weight · x over the points of each cluster
  core::aligned_buffer<double> weights;        // k: Σ weight; empty where all weights are 1, members telling the same
  core::aligned_buffer<std::int64_t> members;  // k: how many points of positive weight
  double labelled_projection = 0;              // Σ_i label_i · projection_i
  double labelled_weight = 0;                  // Σ_i label_i · weight_i
  double labelled_members = 0;                 // Σ label_i over the points of positive weight: an integer
  std::int64_t changed = 0;                    // labels that differ from the previous iteration's
  std::int64_t changed_twin = 0;
};

// What a check found first: its residual (0: every comparison passed) and the point.
struct finding {
  double residual = 0;
  std::int64_t row = -1;
};

// What never changes about the points of a block, from its first load on.
// lanes: sums over the bit patterns of x, as many as the backend likes: equal for equal x, and different after any change of one element,
// or of several in different lanes. norms: the largest ‖x‖² of each cell of cell_points() points; row checks take their limits from it.
inline constexpr std::int64_t k_cells = 64;
struct block_facts {
  std::uint64_t lanes[64] = {};
  double norms[k_cells] = {};
  bool operator==(const block_facts&) const = default;
};

template <class T>
std::int64_t cell_points(const tile<T>& block) {
  return std::max(block.width, block.capacity / k_cells);
}

// Shows the products of a block to the injector. `place` holds interval and intervals; the kernel fills in the steps.
struct product_hook {
  inject::active_injector* injector = nullptr;
  inject::place place = {};
};

// The work on one block. All functions are pure functions of their arguments, so that repeating one repairs a transient fault.
template <class T>
struct kernels {
  std::int64_t width;  // of tile

  // x and weight from the points. Zero behind the last point.
  void (*load)(const source<T>& from, tile<T>& block);
  // The signature of x as it lies in the tile; and what it must be, from the points, in another order.
  void (*sign)(const tile<T>& block, std::uint64_t* lanes);
  void (*sign_source)(const source<T>& from, const tile<T>& block, std::uint64_t* lanes);
  // norm of each point.
  void (*measure)(tile<T>& block);
  // index of each point over all centroids of the panel. With `keep` also minimum. With `protect` also index_twin; the residual of each
  // row check is compared with its limit (by block.bounds and block.cells), and minimum with twin.
  finding (*assign)(const panel<T>& centroids, bool protect, bool keep, const product_hook& hook, tile<T>& block);
  // Compares label with index_twin.
  finding (*check)(const tile<T>& block, std::int64_t k);
  // Adds the points to the sums, weights and members of their labels. Reads the points anew. Labels must be in [0, k).
  void (*accumulate)(const source<T>& from, const tile<T>& block, partial<T>& into);
  // projection[p] = weight · (x · direction) for the points of the tile, in double.
  void (*project)(const tile<T>& block, const double* direction, double* projection);
  // Adds the labels to labelled_projection, labelled_weight and labelled_members.
  void (*sum_labels)(const tile<T>& block, const double* projection, partial<T>& into);
  // exact, for the labels and any k × n centroids that are scaled and shifted like `from`. Reads the points anew.
  void (*exact)(const source<T>& from, const T* centroids, tile<T>& block);
  // distance[j · capacity + p] = ‖x_p − c_j‖² from differences, for the centroids j of one group; with `protect` also norm and residual.
  void (*distances)(const panel<T>& centroids, std::int64_t group, bool protect, const product_hook& hook, tile<T>& block);
};

template <class T>
const kernels<T>& reference_kernels();
template <class T>
const kernels<T>& cpu_kernels();

}  // namespace ballast::kmeans
