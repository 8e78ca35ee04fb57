// Copies and exact sums of parts of arrays that are divided among devices.
// Layer: backend "cuda"; the arguments of boxes.cuh's kernels for host and device compilers, and their launches.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device/device.hpp"

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

// Launches on one device. Elements of 8 or 16 bytes: complex numbers.
class box_kernels {
 public:
  box_kernels() = default;
  box_kernels(std::shared_ptr<ballast::cuda::device> on, int element_bytes);

  // Copies a part from one memory to another, in any order of axes on both sides. Either memory may be that of another device that has
  // opened it. Enqueues.
  void copy(const void* from, const std::int64_t (&from_step)[3], void* to, const std::int64_t (&to_step)[3],
            const std::int64_t (&count)[3], ballast::cuda::stream on) const;
  // Adds the sum of a part to *sum, in device memory. Enqueues.
  void sum(const void* from, const std::int64_t (&step)[3], const std::int64_t (&count)[3], std::int64_t first,
           const std::int64_t (&number_step)[3], unsigned long long* sum, ballast::cuda::stream on) const;

 private:
  std::int64_t blocks_for(const std::int64_t (&count)[3], int rows_axis, int columns_axis) const;
  std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::kernel *straight_ = nullptr, *turned_ = nullptr, *sum_ = nullptr;
};

// Returns the requests of these kernels: copies that keep the contiguous axis, copies that turn it, and sums.
ballast::cuda::kernel_request box_copy_request(int element_bytes, bool turned);
ballast::cuda::kernel_request box_sum_request(int element_bytes);

}  // namespace ballast::fft::cuda
