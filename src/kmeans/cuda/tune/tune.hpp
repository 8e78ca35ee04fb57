// The tuner of K-Means: measures the candidates for the pass of a problem, and for the tiles of the paper's schemes, on the current device.
// Layer: backend "cuda" of K-Means; behind `ballast tune`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/tuning/tuner.hpp"
#include "kmeans/cuda/policy/tuning.hpp"

namespace ballast::kmeans::cuda {

struct tuning_tables {
  pass_tuning passes;
  tile_tuning tiles;
};

// Which schemes are tuned.
struct tuned_schemes {
  bool passes = true;              // the default, without protection and with it
  std::vector<std::string> tiles;  // names
};
tuned_schemes all_tuned_schemes();

// Tunes each problem and adds the winners to the tables; an entry that does not gain half a percent over what was there is left out. A pass
// is timed by Lloyd iterations, in which some rows change their cluster; tiles by the labels they find. `progress` gets a line for each
// search. Throws invalid_argument_error (tokens), unsupported_error (no device).
std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, const tuned_schemes& wanted, tuning_tables& tables,
                                               const std::function<void(const std::string&)>& progress);

}  // namespace ballast::kmeans::cuda
