// See tune.cpp.
#pragma once

#include <string>
#include <vector>

namespace ballast::tools {

// Tunes the problems of `tokens` (empty: common ones) on the current GPU, and adds the fastest policies to the table in the file `output`
// (empty: the one that plans read, tuning.txt in the cache folder). Returns the exit status; throws invalid_argument_error, and
// unsupported_error without a GPU.
int run_tune(std::vector<std::string> tokens, std::string output, bool quiet);

}  // namespace ballast::tools
