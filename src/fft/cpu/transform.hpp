// A transform of the cpu backend by a given choice.
// Layer: backend "cpu". The tuner measures choices with it.
#pragma once

#include <memory>

#include "fft/cpu/choice.hpp"

namespace ballast::fft::cpu {

// `by` is one of the problem's candidates.
std::unique_ptr<transform> make_chosen_transform(const geometry& shape, precision type, bool protect, const choice& by);

}  // namespace ballast::fft::cpu
