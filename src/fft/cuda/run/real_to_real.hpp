// Real-to-real transforms on a device, of any rank, with any loops and strides: axis by axis a sparse map, Fourier transforms of all lines,
// sparse maps.
// Layer: backend "cuda". Each step is protected by itself. fft/tables/real_to_real.hpp has the mathematics.
#pragma once

#include <memory>

#include "fft/contract.hpp"
#include "fft/cuda/run/transform.hpp"

namespace ballast::fft::cuda {

std::unique_ptr<transform> make_real_to_real(const array_problem& shape, precision type, const transform_options& options);

}  // namespace ballast::fft::cuda
