// The tuner of K-Means: measures candidates for the pass of a problem, and for the tiles of the paper's schemes, on the current device.
// Layer: backend "cuda" of K-Means; called by `ballast tune`.
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

// The schemes to tune.
struct tuned_schemes {
  bool passes = true;              // the default scheme, without and with protection
  std::vector<std::string> tiles;  // names of the paper's schemes
};
tuned_schemes all_tuned_schemes();

// Tunes each problem and adds the winners to the tables, unless the gain over the earlier entry is below half a percent. A pass is timed by
// Lloyd iterations, in which some rows change their cluster; tiles are timed by label searches. `progress` gets one line per search. Throws
// invalid_argument_error (tokens), unsupported_error (no device).
std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, const tuned_schemes& wanted, tuning_tables& tables,
                                               const std::function<void(const std::string&)>& progress);

}  // namespace ballast::kmeans::cuda
