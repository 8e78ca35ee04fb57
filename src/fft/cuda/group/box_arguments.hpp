// The arguments of boxes.cuh's kernels, for host and device compilers.
// Layer: backend "cuda".
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_box_tile = 32;
inline constexpr int k_box_threads = 256;

// to[i · to_step] = from[i · from_step] for all i < count. Axis 0 is contiguous in `from`, and axis `turned` in `to`.
struct box_copy_arguments {
  const void* from;
  void* to;
  std::int64_t count[3];
  std::int64_t from_step[3], to_step[3];
};

// *sum += Σ spread_hash (word, number of the word), over all words of the elements; element i has the number first + i · number_step.
struct box_sum_arguments {
  const void* from;
  unsigned long long* sum;
  std::int64_t count[3];
  std::int64_t step[3];
  std::int64_t first, number_step[3];
};

}  // namespace ballast::fft::cuda
