// Transforms of more than three axes: up to three axes at a time, all others being loops around them.
// Layer: backend "cuda". Each step is protected by itself. The data between two steps lie in the output, for c2r in the workspace.
#pragma once

#include <functional>
#include <memory>

#include "fft/contract.hpp"

namespace ballast::fft::cuda {

using step_maker = std::function<std::unique_ptr<transform>(const nested_geometry&)>;

// `make` makes the transform of one step.
std::unique_ptr<transform> make_axes_in_turn(const array_problem& shape, precision type, const step_maker& make);

}  // namespace ballast::fft::cuda
