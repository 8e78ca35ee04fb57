// Layouts of the exchanges between stages in shared memory, chosen by counting bank conflicts.
// Layer: fft/cuda, host.
#pragma once

#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// The cheapest layout for exchange s of a policy whose other parts are there: rows or columns, first as the threads that read it run, and
// at most two shifts into the low bits; gaps instead where masks cost more than they save.
exchange_layout choose_exchange(const line_policy& policy, int s);

// Bank conflicts: the mean number of shared-memory cycles that one access of a warp takes in exchange s, over its minimum.
double exchange_cost(const line_policy& policy, int s);

}  // namespace ballast::fft::cuda
