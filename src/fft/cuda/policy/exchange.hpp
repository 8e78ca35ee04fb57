// Chooses the layouts of the exchanges between stages in shared memory by counting bank conflicts.
// Layer: fft/cuda, host.
#pragma once

#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// Returns the cheapest layout for exchange s of a policy whose other parts are set. Candidates are rows and columns (first the order of the
// reading threads) with at most two shifts into the low bits, and gaps if masks cost more than they save.
exchange_layout choose_exchange(const line_policy& policy, int s);

// Returns the bank conflicts: the mean number of shared-memory cycles of one access of a warp in exchange s, divided by its minimum.
double exchange_cost(const line_policy& policy, int s);

}  // namespace ballast::fft::cuda
