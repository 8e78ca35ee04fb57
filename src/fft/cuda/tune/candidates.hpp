// The candidates that the tuner tries for a line.
// Layer: fft/cuda, host.
#pragma once

#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// Returns the radices, threads, lines, exchanges, stages and clusters that could be the fastest for this line. Each fits on the device and
// appears once.
std::vector<tuned_line> candidates(const line_request& wanted, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
