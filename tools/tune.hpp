// See tune.cpp.
#pragma once

#include <string>
#include <vector>

namespace ballast::tools {

struct tune_settings {
  std::vector<std::string> tokens;  // empty: common problems
  std::string backend = "auto";     // auto, cpu or cuda
  int threads = 0;                  // cpu: of the plans; 0: as many as a plan takes
  std::string output;               // the table; empty: the one that plans read, tuning.txt in the cache folder
  bool quiet = false;
};

// Tunes problems on the current GPU or on the processor, and adds what is fastest to the table. Returns the exit status; throws
// invalid_argument_error (also for a file that is no table), and unsupported_error without the backend.
int run_tune(tune_settings how);

}  // namespace ballast::tools
