// The candidates that the tuner tries for a line.
// Layer: fft/cuda, host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// Returns the radices, threads, lines, exchanges, stages and clusters that could be the fastest for this line. Each fits on the device and
// appears once.
std::vector<tuned_line> candidates(const line_request& wanted, const ballast::cuda::capabilities& device);

// Returns the lengths of two and of three passes that a line of n points could take, the most even ones first: of two passes the longer one
// is at most eight times the shorter one, of three four times. Empty if a line of n points cannot be divided like this.
std::vector<std::vector<std::int64_t>> candidate_splits(std::int64_t n, bool wide, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
