// The time that a backend needs before a plan's first call.
// Layer: algorithm, backend-free; the contract beside contract.hpp.
#pragma once

#include <ballast/types.hpp>

#include "fft/contract.hpp"

namespace ballast::fft::cuda {

// Predicts the seconds that a compiler takes before the kernels of a forward transform (c2r: of the inverse one) with the default scheme
// are ready on the current device; 0 if they are. Operands are aligned. Also 0 where kernels of several transforms would be needed: more
// than three axes, split numbers, real to real in steps. With `begin`, what is missing is compiled in the background, if that is possible;
// the call does not wait.
double seconds_to_start(const array_problem& shape, precision type, bool protect, bool begin);

}  // namespace ballast::fft::cuda
