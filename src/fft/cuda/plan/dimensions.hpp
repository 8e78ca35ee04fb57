// The dimensions that a pass loops over. Plain host code.
// Layer: fft/cuda.
#pragma once

#include <cstdint>
#include <vector>

#include "fft/cuda/plan/schedule.hpp"

namespace ballast::fft::cuda {

// A dimension that a pass loops over but does not transform.
struct dimension {
  std::int64_t count;
  std::int64_t source, target;  // strides
  signal_of_index signals{};
  std::int64_t position_source = 0, position_target = 0;  // strides in positions of the whole line
  bool positioned() const { return position_source != 0 || position_target != 0; }
};

// Merges dimensions that one stride can step through. The dimension with the closest lines comes first.
std::vector<dimension> merged(std::vector<dimension> all, bool by_target);

}  // namespace ballast::fft::cuda
