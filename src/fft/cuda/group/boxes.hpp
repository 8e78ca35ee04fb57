// Copies and exact sums of parts of arrays that are divided among devices.
// Layer: backend "cuda"; the launches of boxes.cuh's kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device/device.hpp"
#include "fft/cuda/group/box_arguments.hpp"

namespace ballast::fft::cuda {

// Thread blocks per multiprocessor: of a launch that has the device to itself, and of one beside a transform, to which it leaves most
// of the device. 16 blocks of a whole device saturate a link [docs/design/distributed.md].
inline constexpr int k_alone = 16, k_beside = 2;

// Launches on one device. Elements of 8 or 16 bytes, complex numbers, or of 4, real ones.
class box_kernels {
 public:
  box_kernels() = default;
  box_kernels(std::shared_ptr<ballast::cuda::device> on, int element_bytes);

  // Copies a part from one memory to another, in any order of axes on both sides. Either memory may be that of another device that has
  // opened it. `share`: k_alone or k_beside. Enqueues.
  void copy(const void* from, const std::int64_t (&from_step)[3], void* to, const std::int64_t (&to_step)[3],
            const std::int64_t (&count)[3], int share, ballast::cuda::stream on) const;
  // Adds the sum of a part to *sum, in device memory. Enqueues.
  void sum(const void* from, const std::int64_t (&step)[3], const std::int64_t (&count)[3], std::int64_t first,
           const std::int64_t (&number_step)[3], unsigned long long* sum, int share, ballast::cuda::stream on) const;

 private:
  std::int64_t blocks_for(const std::int64_t (&count)[3], int rows_axis, int columns_axis, int share) const;
  std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::kernel *straight_ = nullptr, *turned_ = nullptr, *sum_ = nullptr;
};

// Returns the requests of these kernels: copies that keep the contiguous axis, copies that turn it, and sums.
ballast::cuda::kernel_request box_copy_request(int element_bytes, bool turned);
ballast::cuda::kernel_request box_sum_request(int element_bytes);

}  // namespace ballast::fft::cuda
