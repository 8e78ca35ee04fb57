// Arguments and results of the kernels that run before and after passes: the given points, sums by column, flags of checks.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>
#include <limits>

#include "core/macros.hpp"
#include "kmeans/cuda/layout/points.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

// The points of a call and their normalization (contract.hpp), in device memory.
template <class T>
struct given_points {
  // Feature f of row i is number i · row_stride + f · column_stride. The numbers are of T, or have 16 bits, for kernels with `Half`.
  const void* points = nullptr;
  bool brain = false;  // 16-bit numbers: bfloat16, else float16
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  const T* weights = nullptr;  // m; null: all 1
  const T* shift = nullptr;    // n
  T scale = 1;
  T weight_scale = 1;
  std::int64_t m = 0;
  int n = 0;
};

// The result of a check of rows: the number of failures, and ~row of the first. All 0: no row failed.
struct row_flags {
  unsigned long long failures;
  unsigned long long first_inverse;  // the maximum of ~row
};

// ---- columns.cuh ----

inline constexpr int k_column_threads = 256;
inline constexpr std::int64_t k_most_strips = 1024;
inline constexpr std::int64_t k_strip_rows = 1024;

// Divides the elements of an m × columns matrix: strips of rows, tiles of columns. A block processes `column_lanes` adjacent columns, and
// each column has 256 / column_lanes accumulators over rows. The division, and with it the order of all sums, depends on the problem only.
struct column_shape {
  std::int64_t m = 0;
  std::int64_t strip_rows = 0;
  int strips = 0;
  int columns = 0;
  int column_lanes = 0;  // a power of two up to 32

  BALLAST_HD constexpr int tiles() const { return (columns + column_lanes - 1) / column_lanes; }
  BALLAST_HD constexpr std::int64_t blocks() const { return std::int64_t{strips} * tiles(); }
};

inline column_shape column_shape_of(std::int64_t m, int columns) {
  column_shape made;
  made.m = m;
  made.columns = columns;
  // Up to k_most_strips strips of whole k_strip_rows, so that a piece of the points can end where a strip ends.
  made.strip_rows = (m + k_strip_rows * k_most_strips - 1) / (k_strip_rows * k_most_strips) * k_strip_rows;
  made.strips = static_cast<int>((m + made.strip_rows - 1) / made.strip_rows);
  made.column_lanes = 1;
  while (made.column_lanes < 32 && made.column_lanes < columns) made.column_lanes *= 2;
  return made;
}

// Statistics of a column of the given points, before normalization. poison: 0, or NaN if a value is not finite.
template <class T>
struct column_ranges {
  double sum;  // Σ point · 2^-64
  T low, high;
  T poison;
  T spare;
  std::int64_t exponents;  // Σ of the biased exponents of all values; that of 0 is 0
  std::int64_t others;     // the number of values other than 0
  // The same from other operations: Σ (largest exponent − exponent), and the number of zeros.
  std::int64_t below, zeros;

  // Returns whether the two computations agree for m values. All four begin with one register's 0: if bit 63 of that is wrong, the sums
  // still agree, but their terms are negative.
  BALLAST_HD constexpr bool agree(std::int64_t m) const {
    constexpr std::int64_t top = 2 * std::numeric_limits<T>::max_exponent - 1;
    return exponents >= 0 && below >= 0 && others >= 0 && zeros >= 0 && exponents + below == top * m && others + zeros == m;
  }
};

// Sums over a column of x and of y. y is x itself; with weights it is w · x, and w in the column after the features. The words are totals
// of y in fixed point.
struct column_sums {
  double largest;  // |y|
  double size;     // Σ |y|
  double squares;  // Σ x²
  double plain;    // Σ x
  std::uint64_t word[2];
  std::uint64_t positive;  // number of values above 0
  std::uint64_t spare;
};

template <class T>
struct range_arguments {
  given_points<T> given;
  column_shape shape;
  bool rows_first;          // adjacent threads read adjacent rows
  column_ranges<T>* parts;  // strips × columns
};

struct fold_arguments {
  const void* parts;  // strips × columns
  void* sums;         // columns
  int strips;
  int columns;
  bool mirrored;  // other threads and blocks add the same numbers
};

template <class T>
struct find_arguments {
  given_points<T> given;
  int column;
  bool weights;  // true for weights: also refuses numbers below 0
  row_flags* found;
};

// ---- rows.cuh ----

inline constexpr int k_row_threads = 256;
inline constexpr int k_normalize_elements = 4;  // per thread
inline constexpr int k_normalize_bits = 10;     // a tile has 2^10 elements

template <class T>
struct normalize_arguments {
  given_points<T> given;
  T* x;                    // m × stride
  operand_of<T>* operand;  // f32: the same numbers in operand format
  T* weight;               // m, or null
  int stride;
  int lanes;        // columns per tile: a power of two that divides stride, up to 32
  bool rows_first;  // adjacent threads read adjacent rows: the tile is transposed in shared memory
};

// Sums over the rows of a block.
struct block_squares {
  double square;    // Σ ‖x‖²
  double weighted;  // Σ weight · ‖x‖²
  double largest;   // max ‖x‖²; NaN if any ‖x‖² is NaN
};

// The row statistics (points.hpp), and ‖x‖² in double.
template <class T>
struct row_statistics {
  std::uint64_t signature;
  double square;
  T norm;
  T rounding;
  T projection;
};

template <class T>
struct row_stats_arguments {
  given_points<T> given;
  normalized_points<T> normalized;
  T* norm;
  T* rounding;
  T* projection;
  std::uint64_t* signature;
  block_squares* squares;      // per block
  column_sums* columns;        // blocks × columns, from the given points
  column_sums* columns_again;  // the same from x
  row_flags* flags;
  bool check;
  bool rows_first;     // adjacent threads read adjacent rows of the given points
  bool known = false;  // computed from an earlier load of the points: only compared with x
};

template <class T>
struct gather_arguments {
  given_points<T> given;
  const T* x;
  const std::int64_t* rows;
  T* to;     // count × n: from the normalized points
  T* again;  // the same, from the given points
  std::int64_t count;
  int stride;
};

// ---- distances.cuh ----

inline constexpr int k_group = 8;     // centroids whose distances a thread computes at once
inline constexpr int k_section = 64;  // centroids that share one row check
inline constexpr int k_chain = 32;    // features summed in one accumulation chain

// Centroids in the layout that distances are computed from, and their checks: for each section the checksum centroid Σ w_j c_j, Σ w_j
// ‖c_j‖² and Σ w_j, in double.
template <class T>
struct checked_centroids {
  const T* rows;           // count × stride, 0 from feature n on
  const double* checksum;  // sections × stride
  const double* norms;     // sections
  const double* weights;   // sections
  const T* weight;         // count: w, in [1, 2)
  int count;
  double limit;  // thresholds::distance
};

// The shared memory of a block of distances_kernel: the coordinates of a slab of features, of the rows twice, from separate loads; and the
// squared distances of the rows to a section of centroids. A row of each has one vector more than it needs, so that neighbouring threads
// use different banks. Blocks of f64 have half of the rows in the same memory.
template <class T>
struct distance_tile {
  static constexpr int k_rows = sizeof(T) == 4 ? 128 : 64;
  static constexpr int k_features = k_slice<T>;
  static constexpr int k_row_stride = k_rows + k_vector<T>;
  static constexpr int k_column_stride = k_section + k_vector<T>;
  alignas(16) T x[k_features * k_row_stride];  // feature by feature
  alignas(16) T again[k_features * k_row_stride];
  alignas(16) T c[k_features * k_column_stride];
  alignas(16) T squares[k_rows * k_column_stride];  // row by row
};

template <class T>
struct distances_arguments {
  normalized_points<T> normalized;
  checked_centroids<T> centroids;
  std::int64_t first;  // first row
  std::int64_t rows;
  T* values;                  // rows × count: the distances, in the units of the points
  std::int64_t value_stride;  // elements from one row of `values` to the next
  double unscale;             // a power of two
  row_flags* flags;
  bool check;
  given_points<T> given;
  const T* plain;     // count × n: the centroids in the units of point · scale
  const T* shift[2];  // with `Given`: stride, of the normalization, 0 from feature n on; two copies. `normalized` has no arrays then
};

// Distances to centroids that were moved nearer (k_far), from the coordinates as given.
template <class T>
struct far_arguments {
  given_points<T> given;
  const T* centroids;           // k × n
  const std::int32_t* columns;  // count: the numbers of these centroids
  int count;
  T* values;  // rows × k
  std::int64_t value_stride;
  std::int64_t first;
  std::int64_t rows;
  bool compare;  // compares with values instead of writing them
  row_flags* flags;
};

// ---- exact.cuh ----

// Rows whose labels only the points as given decide. Blocks list theirs while there is room; the others decide theirs themselves.
inline constexpr int k_open_rows = 1 << 13;
struct open_row {
  std::int64_t row;
  double distance;  // to the label, times k_lift²
};
struct chosen_label {
  std::int64_t row;
  std::int64_t label;
};
struct open_block {
  std::int32_t first;  // place of its first row in the list
  std::int32_t count;  // 0: none of its rows is listed
};
struct open_list {
  std::uint32_t* count;  // 0 before the launch
  open_row* rows;        // k_open_rows
  chosen_label* chosen;  // 2 × k_open_rows: two decisions
  open_block* blocks;    // per block
};

template <class T>
struct exact_arguments {
  given_points<T> given;
  normalized_points<T> normalized;
  std::int32_t* labels;           // may change if `settles`
  const T* plain;                 // k × n in the units of point · scale; null: distances are between x and `normalized_centroids`
  const T* normalized_centroids;  // k × n, normalized
  int k;
  T* passed;          // m: normalized distances as found by the checks of the pass that assigned the labels, or null
  double* distances;  // m, or null
  double* sums;       // per block: Σ weight · distance, and the same from second loads
  double limit;       // threshold for the difference of the two distances, in units of ‖x‖² + ‖c‖²
  row_flags* flags;
  bool check;
  bool settles;  // decides labels that the rounding of normalized coordinates leaves open
  bool second;   // after settle_kernel: only for the blocks that listed rows
  open_list open;
};

// Labels that wait while other runs follow: two copies.
struct keep_arguments {
  const std::int32_t* labels;  // m
  std::int32_t *kept, *twin;   // m
  std::int64_t m;
  bool compare;  // compares the copies instead of making them
  row_flags* flags;
};

template <class T>
struct labelled_arguments {
  normalized_points<T> normalized;
  const std::int32_t* labels;
  const double* direction;  // n: projection_direction
  double* sums;             // 3 per block: Σ label · projection, Σ label · weight, Σ label over the points of positive weight
};

// ---- seeding.cuh ----

inline constexpr int k_seed_threads = 512;  // also the number of rows per block
inline constexpr int k_most_trials = 24;

template <class T>
struct seeding_arguments {
  normalized_points<T> normalized;
  checked_centroids<T> candidates;
  T* closest;          // m
  double* potentials;  // per block: Σ weight · closest
  double* tried;       // blocks × trials
  T* distances;        // candidates × `apart`: the squared distances of all rows to the candidates that were tried, or null
  std::int64_t apart;
  row_flags* flags;  // 3: row checks; potentials; stored distances to earlier centroids
  int trials;
  int candidate;  // with `take`: the candidate whose potential the new one must equal, or −1
  bool take;      // the only candidate becomes a centroid
  bool known;     // with `take`: candidate number `candidate` becomes one, with its distances as they were stored
  bool fresh;     // true if there are no earlier centroids
  bool check;
};

// ---- candidates.cuh: the same division into blocks as seeding ----

template <class T>
struct cover_arguments {
  normalized_points<T> normalized;
  checked_centroids<T> candidates;  // up to k_section
  T* closest;                       // m
  std::int32_t* nearest;            // m
  double* potentials;               // per block: Σ weight · closest
  row_flags* flags;                 // 3: row checks and choice; potentials; stored distances to earlier candidates
  int first;                        // index of the first of these candidates
  bool fresh;                       // true if there are no earlier candidates
  bool check;
};

template <class T>
struct draw_arguments {
  normalized_points<T> normalized;
  const T* closest;          // m
  const double* potentials;  // per block
  double potential;          // the sum of potentials
  double expected;
  std::uint64_t seed, stream;
  std::uint32_t* drawn;  // one bit per row
  std::uint32_t* again;  // the same, drawn by other threads
  row_flags* flags;      // 3: the last one is for the stored distances
  bool check;
};

template <class T>
struct nearest_arguments {
  exact_arguments<T> exact;  // distances to the nearest candidates, which are passed as labels
  const T* closest;          // m
};

template <class T>
constexpr std::int64_t seeding_shared_bytes(int trials) {
  return std::int64_t{k_seed_threads} * trials * static_cast<std::int64_t>(sizeof(T)) + 2 * (k_most_trials + 1) * 8;
}

}  // namespace ballast::kmeans::cuda
