// The kernels that work on one block of points. reference/ and cpu/ implement them for the host backend (host/), which loops over blocks,
// verifies and repairs.
// Layer: algorithm, between host/ and its kernels.
// Letters: m points × n features, k clusters; x a point and c a centroid, both normalized (contract.hpp).
// Source: S. Wu, Y. Zhai, J. Huang et al., FT K-Means, 2024 (checksums in the product); docs/design/kmeans.md (this arrangement).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <ballast/view.hpp>

#include "abft/verify.hpp"
#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "inject/active.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/sparse_rows.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans {

inline constexpr std::int64_t k_tile = 8;      // centroids that lie side by side in packed_centroids::packed
inline constexpr std::int64_t k_section = 64;  // centroids that share one row check, at most

// The norm of padding columns: above every score, and far below the largest number.
inline constexpr double k_padding = 0x1p100;

// The bits of a number of type T: a SIMD lane that holds an integer.
template <class T>
T lane_of(std::uint64_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
  } else {
    return std::bit_cast<T>(bits);
  }
}

// The points of a call and their normalization.
template <class T>
struct source : normalization<T> {
  matrix_view<const T> points;  // the rows from `origin` on
  std::span<const T> weights;   // those of all rows; empty: all 1
  sparse_rows<T> sparse = {};   // present: the points, in place of `points`, which then has their shape alone; the shift is 0
  half_points half = {};        // likewise
  std::int64_t origin = 0;      // above 0: the points are some rows of others, widened
};

// The thresholds of the row checks of one block, each stored twice. Residuals are compared squared: ρ² ≤ slope²‖x‖² + offset².
struct limits {
  abft::guarded_threshold level;                // for distances(): threshold of the error of a weighted sum of distances, relative to that
                                                // sum
  core::vector<abft::guarded_threshold> slope;  // one per section
  core::vector<abft::guarded_threshold> offset;
  core::vector<double> doubt;                                         // one per section: thresholds::row_limits::doubt
  core::vector<abft::guarded_threshold> second_slope, second_offset;  // the same for second_checksum
};

// How a search orders the columns. The low bits of a score hold the place of its column within the section, so one minimum gives both. Each
// of the two searches has its own places and its own mask.
template <class T>
struct score_order {
  core::aligned_buffer<T> places[2];   // tiles × k_tile: lane_of(column within the section)
  T score_bits[2] = {};                // lane_of(the bits of a score that are not those of a place)
  thresholds::score_margin<T> margin;  // scores nearer to each other have no certain order
};

// Another row check, for distances(): a wrong coordinate of a point changes several distances, and their errors may cancel in one weighted
// sum. The weights v have random sizes of their own, and their signs alternate. One element per section, or what is said.
template <class T>
struct second_checksum {
  core::aligned_buffer<T> weights;      // tiles × k_tile: v, |v| random in [1, 2); 0 for padding
  core::aligned_buffer<T> checksum;     // sections × n: Σ_j v_j (−2c_j)
  core::aligned_buffer<T> start, rest;  // Σ_j v_j ‖c_j‖², and its rounding error
  core::aligned_buffer<T> sum;          // Σ_j v_j
  core::aligned_buffer<T> size, norms;  // Σ_j |v_j|, Σ_j |v_j| ‖c_j‖²
};

// The numbers that only a search of sparse points needs.
template <class T>
struct sparse_columns {
  core::aligned_buffer<T> start;    // tiles × k_tile: −w ‖c‖², the start value of a column's residual; 0 for padding
  core::aligned_buffer<T> rest;     // sections: sum of the rounding errors of start
  core::vector<double> squares[2];  // k, in the order of the centroids: ‖c‖², for each of two computations of a distance
};

// The packed centroids of one pass, stored in columns: tiles of k_tile centroids, and sections of up to k_section. pack_centroids
// (host/packed_centroids.hpp) fills it. Columns usually keep the order of the centroids. If norms differ so much that the row check of far
// centroids would hide errors in the products of near ones, the columns are `sorted`: each section holds centroids of similar norms, in
// their order within the section. Padding columns complete a tile: each is a copy of another centroid with weight 0, name −1 and the norm
// k_padding, so that its score is above all others; a search that ends at one has failed.
// Without `sorted` the name of a column is that of the section's first one plus its place.
// For dense points a tile has its k_tile columns of a feature side by side; for sparse ones a section has all its columns of a feature side
// by side, since a row reads few features. It has that many members because kernels read all of them in one loop.
template <class T>
struct packed_centroids {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t tiles = 0;
  std::int64_t sections = 0;
  std::int64_t longest = -1;                    // the most stored elements of a sparse point; −1: the points are dense
  bool by_norm = false;                         // true if sorting is allowed
  bool sorted = false;                          // true if equal distances in two sections must be compared by name
  core::vector<std::int64_t> first_tile;        // sections + 1
  core::vector<std::int64_t> used;              // tiles: number of columns that are centroids; these come first
  core::aligned_buffer<T> rows;                 // k × n: c, in the order of the centroids
  core::aligned_buffer<T> packed;               // tiles × n × k_tile, or sections × n × columns: −2c
  core::aligned_buffer<T> norms;                // tiles × k_tile: ‖c‖²; k_padding for padding
  core::aligned_buffer<std::int32_t> names[2];  // tiles × k_tile: index of the centroid, for each of the two searches; −1 for padding
  core::aligned_buffer<T> weights;              // tiles × k_tile: w, random in [1, 2); 0 for padding
  core::aligned_buffer<T> checksum;             // sections × n: Σ_j w_j (−2c_j), the checksum centroids
  core::aligned_buffer<T> start;                // tiles: −Σ_j w_j ‖c_j‖², the start value of a tile's residual
  core::aligned_buffer<T> rest;                 // sections: sum of the rounding errors of start
  core::aligned_buffer<T> sum_weights;          // sections: Σ_j w_j
  second_checksum<T> second;
  sparse_columns<T> sparse;
  limits bounds;
  score_order<T> order;

  bool for_sparse() const { return longest >= 0; }
  // The products of a score.
  std::int64_t terms() const { return for_sparse() ? std::max<std::int64_t>(longest, 1) : n; }
  // A column of a section: the place in `packed` of its feature 0, and the distance from one feature to the next.
  std::int64_t place_of(std::int64_t section, std::int64_t column) const {
    const std::int64_t first = first_tile[static_cast<std::size_t>(section)] * k_tile;
    return for_sparse() ? first * n + column - first : column / k_tile * k_tile * n + column % k_tile;
  }
  std::int64_t stride_of(std::int64_t section) const {
    const auto at = static_cast<std::size_t>(section);
    return for_sparse() ? (first_tile[at + 1] - first_tile[at]) * k_tile : k_tile;
  }
};

// The nearest centroid of each point of a block, by one chain of comparisons.
template <class T>
struct search_result {
  core::aligned_buffer<T> minimum;           // min_j (‖c_j‖² − 2 x·c_j); its low bits: search_kind
  core::aligned_buffer<std::int32_t> index;  // the lowest j of the minimum
  core::aligned_buffer<T> score;             // scratch of a search of search_kind::checked_scores, in `nearest`
};

// The points of a block whose two smallest scores are within the margin of rounding: the first `count` of `points`.
template <class T>
struct undecided_points {
  core::aligned_buffer<T> second;             // the second smallest score of each point; valid only during a search
  core::aligned_buffer<std::int32_t> points;  // indexes within the block
  std::int64_t count = 0;
};

// Scratch of one block of up to `capacity` points. Feature f of point p is x[(p / width · n + f) · width + p mod width]: kernels::width
// points lie side by side. If the points are sparse, x has their stored elements alone: those of point p, in columns column[e], are x[e]
// for e from begin[p] to begin[p + 1] − 1. It has that many members because all scratch of a thread is in it.
template <class T>
struct point_block {
  std::int64_t n = 0;
  std::int64_t capacity = 0;
  std::int64_t width = 1;
  std::int64_t first = 0;  // index of the first point
  std::int64_t count = 0;  // points in use; the rest is zero
  core::aligned_buffer<T> x;
  core::aligned_buffer<std::int32_t> column;  // empty for dense points
  core::aligned_buffer<std::int64_t> begin;   // capacity + 1, likewise
  core::aligned_buffer<T> weight;             // 0 from `count` on
  core::aligned_buffer<T> norm;               // ‖x‖², by measure()
  search_result<T> nearest;
  search_result<T> twin;  // the same from an independent chain of comparisons; its minimum is valid only during a search
  undecided_points<T> undecided;
  core::aligned_buffer<std::int32_t> label;  // the label that is committed: a copy of nearest.index
  core::aligned_buffer<T> residual[2];       // scratch of distances(): of both row checks
  core::aligned_buffer<double> exact;        // ‖x − centroid of its label‖² · lift², from differences in double
  core::aligned_buffer<T> distance;          // k_section × capacity, allocated only for distances()
  limits bounds;                             // the block's copy of the thresholds of the packed centroids
  bool doubtful = false;                     // true if a residual stands out (thresholds::row_limits::doubt)
  core::vector<T> spread;                    // scratch of the search: the spread of the residuals of each section
  T* row = nullptr;                          // n: scratch for a row whose features are not contiguous; of sparse points zeros between uses
  const T* squares = nullptr;  // capacity, with protection: ‖x‖² computed at the first load; row checks derive their thresholds from it,
                               // and score_order::margin the points that scores do not decide
};

// Returns whether the largest squared residual of a section stands out from the `count` others, whose sum is `sum`. Both are in units of
// their limits of doubt.
inline bool stands_out(double largest, double sum, std::int64_t count) {
  constexpr double ratio = thresholds::k_doubt * thresholds::k_doubt;
  return largest > 1 && (count == 0 || largest * static_cast<double>(count) > ratio * sum);
}

// The first row of a block that fails a check: its residual (0: no row fails) and the index of its point.
struct row_failure {
  double residual = 0;
  std::int64_t row = -1;
};

// The bits of a number as an integer; those of a negative one are inverted except for the sign, so that the integers are in the order of
// the numbers. A changed sign then changes the integer by more than its highest bit, of which two are no change of a sum.
template <class T>
std::uint64_t ordered_bits(T value) {
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const auto bits = std::bit_cast<word>(value);
  return (bits >> (8 * sizeof(T) - 1)) != 0 ? bits ^ (static_cast<word>(-1) >> 1) : bits;
}

// A signature of the points of a block, constant from the first load on: sums over ordered_bits of x, one per lane, up to 64 lanes. Equal
// for equal x, and different after any change of one element, or of several elements in different lanes. If all numbers of a lane change
// their sign, it stays as it is only where the integers of the positive ones and of the negative ones have equal sums.
struct block_signature {
  std::uint64_t lanes[64] = {};
  bool operator==(const block_signature&) const = default;
};

// Column statistics of points before normalization, n each. poison: 0, or NaN if a value is not finite. sum: of the values times 2⁻⁶⁴.
// exponents: Σ of the biased exponents of the values other than 0, and their number.
template <class T>
struct column_ranges {
  core::vector<T> low, high, poison;
  core::vector<double> sum;
  core::vector<std::int64_t> exponents, others;
  void clear(std::int64_t n) {
    const auto size = static_cast<std::size_t>(n);
    low.assign(size, std::numeric_limits<T>::infinity());
    high.assign(size, -std::numeric_limits<T>::infinity());
    poison.assign(size, T(0));
    sum.assign(size, 0.0);
    exponents.assign(size, 0);
    others.assign(size, 0);
  }
  // Adds values(0), …, values(count − 1) to feature f.
  template <class Values>
  void add(std::int64_t f, std::int64_t count, Values&& values) {
    const auto at = static_cast<std::size_t>(f);
    for (std::int64_t i = 0; i < count; ++i) {
      const T x = values(i);
      low[at] = x < low[at] ? x : low[at];
      high[at] = x > high[at] ? x : high[at];
      poison[at] += x * 0;
      sum[at] += static_cast<double>(x) * 0x1p-64;
      const auto bits = std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(x);
      exponents[at] += static_cast<std::int64_t>((bits << 1) >> std::numeric_limits<T>::digits);
      others[at] += x != 0 ? 1 : 0;
    }
  }
};

// Shows the products of a block to the injector. The caller fills in `position.interval` and `position.intervals`; the kernel fills in the
// steps.
struct product_hook {
  inject::active_injector* injector = nullptr;
  inject::position position = {};
};

// plain: a search computes labels. checked: it checks them as well. checked_scores: search_result::minimum has all bits of its score; else
// the low bits of a minimum may hold the place of its column.
enum class search_kind : std::uint8_t { plain, checked, checked_scores };

// Points and centroids whose differences are those of block.x and packed_centroids::packed, but with fewer roundings: x like
// point_block::x, packed like packed_centroids::packed.
template <class T>
struct difference_operands {
  const T* x;
  const T* packed;
};

// The kernels. All are pure functions of their arguments, so repeating one repairs a transient fault.
template <class T>
struct kernels {
  std::int64_t width;  // number of points that lie side by side in point_block::x

  // Loads x and weight from the points. Both are zero after the last point.
  void (*load)(const source<T>& from, point_block<T>& block);
  // sign: computes the signature of x as it lies in the block. sign_source: computes the expected signature from the points, in another
  // order.
  void (*sign)(const point_block<T>& block, std::uint64_t* lanes);
  void (*sign_source)(const source<T>& from, const point_block<T>& block, std::uint64_t* lanes);
  // Adds `count` rows from `first` on to the statistics of their columns, each in the order of the rows. `row`: point_block::row.
  void (*add_ranges)(const source<T>& from, std::int64_t first, std::int64_t count, column_ranges<T>& into, T* row);
  // Adds x of `count` rows from `first` on to `sums` and x² to `squares`, n each, and writes the ‖x‖² of each row to `norms`; in double.
  // `row`: point_block::row.
  void (*sum_rows)(const source<T>& from, std::int64_t first, std::int64_t count, double* sums, double* squares, double* norms, T* row);
  // Computes norm of each point.
  void (*measure)(point_block<T>& block);
  // Finds nearest of each point over all packed centroids, and the undecided points. With protection also finds twin, compares the residual
  // of each row check with its threshold (from block.bounds and block.squares) and both minima, and sets doubtful if a residual stands out.
  row_failure (*assign)(const packed_centroids<T>& centroids, search_kind what, const product_hook& hook, point_block<T>& block);
  // Replaces labels that are none by the last one.
  void (*keep_in_range)(point_block<T>& block, std::int64_t k);
  // Compares label with twin.index.
  row_failure (*check)(const point_block<T>& block, std::int64_t k);
  // Adds the points to the sums, weights and members of their labels. Loads the points again. Labels must be in [0, k).
  void (*accumulate)(const source<T>& from, const point_block<T>& block, cluster_sums& into);
  // Computes projection[p] = weight · (x · direction) for the points of the block, in double.
  void (*project)(const point_block<T>& block, const double* direction, double* projection);
  // Adds the contribution of the labels to labelled_projection, labelled_weight and labelled_members.
  void (*sum_labels)(const point_block<T>& block, const double* projection, cluster_sums& into);
  // Computes exact for the labels and any k × n centroids that are scaled and shifted like `from`. Loads the points again. Differences are
  // multiplied by `lift`, a power of two, before they are squared. `squares`: ‖c‖² of these centroids, for sparse points alone.
  void (*exact)(const source<T>& from, const T* centroids, const double* squares, double lift, point_block<T>& block);
  // Computes distance[j · capacity + p] = ‖x_p − c_j‖² for the columns j of one section, from differences of `from`; with `protect` also
  // residual, from block.x and `centroids`.
  void (*distances)(const packed_centroids<T>& centroids, const difference_operands<T>& from, std::int64_t section, bool protect,
                    const product_hook& hook, point_block<T>& block);
  // Stores √distance / scale of the columns of one section in the rows and columns of `values`; scale: a power of two. With `protect`
  // squares the roots again, and compares the bits of what was stored, read back, with those of the roots. Returns false if they differ.
  bool (*store_distances)(const packed_centroids<T>& centroids, std::int64_t section, double scale, bool protect, const product_hook& hook,
                          const point_block<T>& block, const matrix_view<T>& values);
};

template <class T>
const kernels<T>& reference_kernels();
template <class T>
const kernels<T>& cpu_kernels();
// The same for sparse points.
template <class T>
const kernels<T>& reference_sparse_kernels();
template <class T>
const kernels<T>& cpu_sparse_kernels();

}  // namespace ballast::kmeans
