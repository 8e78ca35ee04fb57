// Arguments of the kernel that divides points by their norms.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include "kmeans/cuda/layout/setup_args.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_unit_threads = 256;
inline constexpr int k_unit_rows = k_unit_threads / 32;  // rows of a block: one for each warp

// The flags of unit_rows_kernel: rows of zeros, as the computation and the check find them; rows that differ.
enum unit_flag : int { k_zero_row, k_zero_row_again, k_unlike_row, k_unit_flags };

template <class T>
struct unit_rows_arguments {
  given_points<T> given;  // scale and shift are not used
  T* unit;                // m × n, row-major
  row_flags* flags;       // k_unit_flags
  bool check;             // compares with `unit` instead of writing it: by other threads and blocks
};

}  // namespace ballast::kmeans::cuda
