// The time that a backend needs before a plan's first call.
// Layer: algorithm, backend-free; the contract beside contract.hpp.
#pragma once

#include <ballast/kmeans.hpp>

namespace ballast::kmeans::cuda {

// Predicts the seconds that a compiler takes before the kernels of such a call are ready on the current device, with the default scheme; 0
// if they are, or if a general pass is that serves until then. `batch`: all fits of a batch in one launch; otherwise fit, predict and
// transform. With `begin`, what is missing is compiled in the background, if that is possible; the call does not wait.
double seconds_to_start(const problem& size, const options& wanted, bool protect, bool batch, bool begin);

}  // namespace ballast::kmeans::cuda
