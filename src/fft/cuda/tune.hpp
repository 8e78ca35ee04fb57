// The tuner: measures the candidates for every pass of a problem on the current device.
// Layer: fft/cuda; behind `ballast tune`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fft/cuda/tuning.hpp"

namespace ballast::fft::cuda {

struct tuning_result {
  std::string token;       // and ", checked" for the protected transform
  std::string policy;      // what was chosen, as a line of the tuning table
  double seconds;          // of the transform with it
  double default_seconds;  // and by the rules
};

// Tunes the passes of each problem one after the other, unprotected and protected, and adds the winners to `table`; an entry that does not
// gain 1 % over the rules is left out. `progress` gets a line now and then. Throws invalid_argument_error (tokens), unsupported_error (no
// device).
std::vector<tuning_result> tune(const std::vector<std::string>& tokens, tuning_table& table,
                                const std::function<void(const std::string&)>& progress);

}  // namespace ballast::fft::cuda
