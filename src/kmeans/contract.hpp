// What a backend of K-Means implements: the work on one block of points. The driver (driver.hpp) decides, verifies and repairs.
// Layer: between the driver and the backends reference/ and cpu/.
// Letters: m points × n features, k clusters; x a point and c a centroid, both scaled and centred: x = points · scale − shift.
// Source: S. Wu, Y. Zhai, J. Huang et al., FT K-Means, 2024 (checksums in the product); docs/design/kmeans.md (this arrangement).
#pragma once

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

// The limits of the checks of one block, each kept twice. Residuals are compared squared: ρ² ≤ slope²‖x‖² + offset².
struct limits {
  abft::guarded_threshold direct;               // |direct − minimum| ≤ direct · (‖x‖² + ‖c‖²)
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
  std::int64_t table_lanes = 0;  // what the backend can look up in one register; 0: nothing
  core::aligned_buffer<T> rows;      // k × n: c
  core::aligned_buffer<T> columns;   // n × lanes, only for k ≤ lanes: −2c by features, for look-ups by label; lanes = table_lanes
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
  core::aligned_buffer<T> weight;           // 0 behind `count`
  core::aligned_buffer<T> norm;             // ‖x‖²
  core::aligned_buffer<T> minimum;          // min_j (‖c_j‖² − 2 x·c_j): the one the search of the index compares with
  core::aligned_buffer<T> twin;             // the same by a chain of its own
  core::aligned_buffer<std::int32_t> index; // its lowest j
  core::aligned_buffer<std::int32_t> label; // what is committed
  core::aligned_buffer<T> residual;         // 0, or a residual of a row check that exceeded its limit
  core::aligned_buffer<T> direct;           // ‖c‖² − 2 x·c for the label, computed by itself
  core::aligned_buffer<T> winner_norm;      // ‖c‖² for the label
  core::aligned_buffer<T> first_sums;       // scratch of invariants()
  core::aligned_buffer<T> second_sums;
  core::aligned_buffer<double> exact;       // ‖point − centroid of its label‖² · scale², from differences in double
  core::aligned_buffer<T> distance;         // k_group × capacity, only where distances() is used
  limits bounds;                            // this block's copy of the panel's
};

// What a group of blocks adds to the next centroids, and the invariants that it is verified with.
template <class T>
struct partial {
  core::aligned_buffer<double> sums;           // k × n: Σ weight · x over the points of each cluster
  core::aligned_buffer<double> weights;        // k: Σ weight; empty where all weights are 1, members telling the same
  core::aligned_buffer<std::int64_t> members;  // k: how many points of positive weight
  core::aligned_buffer<double> first;          // n: Σ_i weight_i x_i
  core::aligned_buffer<double> second;         // n: Σ_i weight_i (label_i + 1) x_i
  double first_weight = 0;                     // Σ_i weight_i
  double second_weight = 0;                    // Σ_i weight_i (label_i + 1)
  std::uint64_t first_members = 0;             // the same for members, modulo 2⁶⁴
  std::uint64_t second_members = 0;
  std::int64_t changed = 0;                    // labels that differ from the previous iteration's
  std::int64_t changed_twin = 0;
};

// What check() found first: site of the residual, or nothing.
struct finding {
  double residual = 0;      // 0: every comparison passed
  std::int64_t row = -1;
};

// Shows the products of a block to the injector. `place` holds interval and intervals; the kernel fills in the steps.
struct product_hook {
  inject::active_injector* injector = nullptr;
  inject::place place = {};
};

// The work on one block. All functions are pure functions of their arguments, so that repeating one repairs a transient fault.
template <class T>
struct kernels {
  std::int64_t width;        // of tile
  std::int64_t table_lanes;  // of panel

  // x and weight from the points. Zero behind the last point.
  void (*load)(const source<T>& from, tile<T>& block);
  // minimum and index of each point, over all centroids of the panel; with `protect` also norm, twin and residual (by block.bounds).
  void (*assign)(const panel<T>& centroids, bool protect, const product_hook& hook, tile<T>& block);
  // direct and winner_norm for the labels, from x.
  void (*winner)(const source<T>& from, const panel<T>& centroids, tile<T>& block);
  // Compares residual, minimum with twin, the range of the labels, and direct with minimum.
  finding (*check)(const panel<T>& centroids, const tile<T>& block);
  // Adds the points to the sums, weights and members of their labels (the largest one for a label out of range). Reads the points anew.
  void (*accumulate)(const source<T>& from, std::int64_t k, const tile<T>& block, partial<T>& into);
  // Adds the points of the tile to the invariants.
  void (*invariants)(tile<T>& block, partial<T>& into);
  // exact, for the labels and any k × n centroids that are scaled and shifted like `from`. Reads the points anew.
  void (*exact)(const source<T>& from, const T* centroids, std::int64_t k, tile<T>& block);
  // distance[j · capacity + p] = ‖x_p − c_j‖² from differences, for the centroids j of one group; with `protect` also norm and residual.
  void (*distances)(const panel<T>& centroids, std::int64_t group, bool protect, const product_hook& hook, tile<T>& block);
};

template <class T>
const kernels<T>& reference_kernels();
template <class T>
const kernels<T>& cpu_kernels();

}  // namespace ballast::kmeans
