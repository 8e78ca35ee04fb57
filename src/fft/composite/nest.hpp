// Loops around a transform: it runs once for each combination of the outer loops, on the caller's arrays.
// Layer: FFT, over the backends. Every run is protected by the transform itself; nothing is copied.
#pragma once

#include <memory>
#include <vector>

#include "fft/contract.hpp"
#include "fft/problem.hpp"

namespace ballast::fft::composite {

// `inner` computes shape.inner. `first`: elements from the begin of the caller's spans to element (0, …, 0). concurrent: calls of `inner`
// may run at the same time.
std::unique_ptr<transform> make_nest(nested_geometry shape, const array_side& input, const array_side& output, precision type,
                                     std::unique_ptr<transform> inner, bool concurrent);

}  // namespace ballast::fft::composite
