// Arguments of the kernels of points in compressed rows.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

namespace ballast::kmeans::cuda {

inline constexpr int k_sparse_threads = 128;  // the threads of a block

// The points of a call in device memory, as they were given. Row i has the elements offsets[i] − origin to offsets[i + 1] − origin − 1.
template <class T>
struct sparse_points {
  const T* values = nullptr;
  const void* columns = nullptr;  // numbers of 32 or of 64 bits, like the offsets
  const void* offsets = nullptr;
  bool wide = false;  // 64 bits
  std::int64_t origin = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  T scale = 1;
  T scale_twin = 1;  // the same number, for checks: a thread keeps each in a register
};

// Packed centroids (kmeans/block.hpp) in device memory: of each section all columns of a feature lie side by side.
template <class T>
struct sparse_centroids {
  const T* packed = nullptr;
  const T* norms = nullptr;                    // per column, like the next two
  const T* weights = nullptr;                  // w of the row check
  const T* start = nullptr;                    // −w ‖c‖²
  const std::int32_t* names[2] = {};           // per column, for each of the two searches
  const std::int64_t* first_column = nullptr;  // sections + 1
  const T* checksum = nullptr;                 // sections × n
  const T* rest = nullptr;                     // sections
  const T* limits = nullptr;                   // sections × 3: slope², offset², doubt² of a residual
  int sections = 0;
};

// The state of a row after the search. The first row of a warp is doubtful if a residual of any of its rows stands out.
enum sparse_state : unsigned char { k_undecided = 1, k_failed = 2, k_doubtful = 4 };

template <class T>
struct sparse_search_arguments {
  sparse_points<T> points;
  sparse_centroids<T> centroids;
  const T* squares = nullptr;           // m, of checks alone: ‖x‖², computed from another load
  T square = 0, least = 0, offset = 0;  // thresholds::score_margin
  std::int32_t* label = nullptr;        // m
  std::int32_t* twin = nullptr;         // m: by the second search
  T* minimum = nullptr;                 // m: the smallest score
  unsigned char* state = nullptr;       // m: sparse_state
  int rows = 0;                         // the rows of a warp
  bool check = false;
};

template <class T>
struct sparse_sums_arguments {
  sparse_points<T> points;
  const T* point_weights = nullptr;  // m; null: all 1
  T weight_scale = 1;
  const std::int32_t* label = nullptr;
  const double* unit = nullptr;        // n: |w x| · unit < 2^word_bits
  unsigned long long* sums = nullptr;  // k × n × words; with `check` twice, each from loads of its own
  std::int32_t clusters = 0;
  int words = 0, word_bits = 0;
  bool check = false;  // the second half of the blocks sums again
};

struct sparse_convert_arguments {
  const unsigned long long* sums = nullptr;
  const unsigned long long* again = nullptr;  // the sums of the second computation; null: none
  const double* unit = nullptr;
  double* made = nullptr;  // k × n; NaN where the two computations differ
  std::int64_t count = 0, n = 0;
  int words = 0, word_bits = 0;
};

}  // namespace ballast::kmeans::cuda
