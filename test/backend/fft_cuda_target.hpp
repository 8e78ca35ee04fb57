// The cuda backend on the emulator, for fft_test.cpp and fft_cuda_test.cpp.
// Layer: backend tests.
#pragma once

#include "backend/fft_target.hpp"

namespace ballast::fft {

const target& emulated();

// The case of emulated_cases() without strides that has this token and device.
const fft_case& case_of(std::string_view token, machine where);

}  // namespace ballast::fft
