// The tuner of the FFT: measures the candidates for every pass of a problem on the current device.
// Layer: fft/cuda; behind `ballast tune`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/tuning/tuner.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// Tunes the passes of each problem one after the other, unprotected and protected, and adds the winners to `table`; an entry that does not
// gain half a percent over what was there is left out. `progress` gets a line for each pass. Throws invalid_argument_error (tokens),
// unsupported_error (no device).
std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, tuning_table& table,
                                               const std::function<void(const std::string&)>& progress);

}  // namespace ballast::fft::cuda
