// Loops around a transform: it runs once for each combination of the outer loops, on the caller's arrays.
// Layer: FFT, over the backends of the host. Every run is protected by the transform itself; nothing is copied.
#pragma once

#include <memory>

#include "fft/contract.hpp"

namespace ballast::fft::composite {

// `inner` computes shape.inner. concurrent: calls of `inner` may run at the same time.
std::unique_ptr<transform> make_nest(nested_geometry shape, precision type, std::unique_ptr<transform> inner, bool concurrent);

}  // namespace ballast::fft::composite
