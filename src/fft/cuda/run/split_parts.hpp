// Transforms of split complex numbers on a device: copies into interleaved ones, the transform, copies out of them.
// Layer: backend "cuda". The copies are protected by two readings of each number.
#pragma once

#include <functional>
#include <memory>

#include "fft/contract.hpp"

namespace ballast::fft::cuda {

// `make` makes the transform of an interleaved problem. protect: the copies are checked.
std::unique_ptr<transform> make_split_parts(const array_problem& shape, precision type, bool protect,
                                            const std::function<std::unique_ptr<transform>(const array_problem&)>& make);

}  // namespace ballast::fft::cuda
