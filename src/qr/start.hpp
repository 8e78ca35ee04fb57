// The time that a backend needs before a plan's first call.
// Layer: algorithm, backend-free; the contract beside contract.hpp.
#pragma once

#include <ballast/qr.hpp>

namespace ballast::qr::cuda {

// Predicts the seconds that a compiler takes before the kernels for geqrf of such a problem are ready on the current device; 0 if they are.
// `batch`: kernels for batches do all the work (takes_batch). With `begin`, what is missing is compiled in the background, if that is
// possible; the call does not wait.
double seconds_to_start(const problem& size, bool batch, bool begin);

}  // namespace ballast::qr::cuda
