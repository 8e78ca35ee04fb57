// The tuner of the FFT on processors: measures the candidates for a problem, and adds the fastest to a table.
// Layer: backend "cpu"; the implementation of `ballast tune --backend cpu`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/tuning/tuner.hpp"
#include "fft/cpu/tuning.hpp"

namespace ballast::fft::cpu {

// The problems that are tuned if none is given.
std::vector<std::string> tuned_problems();

// Measures each problem, unprotected and protected, for plans of `threads` threads (0: as many as a plan takes for it). Candidates take
// turns; those whose estimate is more than four times the least are left out. The fastest is measured again beside the rule, and becomes an
// entry if it is two percent faster in the median of nine rounds and faster in eight of them. The tuner removes the entry that the table
// had for the problem if there is no such candidate. `progress` gets a line for each problem. Throws invalid_argument_error for tokens, and
// for problems that the backend does not compute as they are.
std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, int threads, choice_table& table,
                                               const std::function<void(const std::string&)>& progress);

}  // namespace ballast::fft::cpu
