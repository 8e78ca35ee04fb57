// Transforms of any rank, with any strides, of split complex numbers, and from reals to reals: signals are copied into dense arrays of a
// chunk, transformed there axis by axis by a backend's transforms, verified from end to end, and copied to their places.
// Layer: FFT, over the backends of the host.
#pragma once

#include <memory>

#include "fft/composite/line_steps.hpp"
#include "fft/contract.hpp"

namespace ballast::fft::composite {

// by_definition: real-to-real lines are computed by their definition, with a time of n², not by transforms from `make`.
std::unique_ptr<transform> make_composite(const array_problem& shape, precision type, bool protect, transform_maker make,
                                          bool by_definition);

}  // namespace ballast::fft::composite
