// The tuner of the FFT: measures the candidates for every pass of a problem on the current device.
// Layer: fft/cuda; the implementation of `ballast tune`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/tuning/tuner.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// Tunes the passes of each problem in turn, unprotected and protected, and adds the winners to `table`. Skips an entry that gains less than
// half a percent over the previous one. `progress` gets a line for each pass. Throws invalid_argument_error (tokens), unsupported_error (no
// device).
std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, tuning_table& table,
                                               const std::function<void(const std::string&)>& progress);

}  // namespace ballast::fft::cuda
