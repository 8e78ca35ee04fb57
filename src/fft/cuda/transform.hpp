// The cuda backend's transform with everything that can be chosen about it.
// Layer: fft/cuda. make_transform of the contract fills in the scheme; the tuner tries tables.
#pragma once

#include <memory>

#include "fft/contract.hpp"
#include "fft/cuda/schedule.hpp"

namespace ballast::fft::cuda {

struct transform_options {
  check_form check = check_form::none;
  int transactions = 1;
  const tuning_table* tuned = &tuning_table::active();  // outlives the transform
  bool plain = false;                                   // no swizzle, and the same parameters for every problem
};

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, const transform_options& options);

// One launch for each stage of radix 2 (radix2.cpp). Throws unsupported_error unless the problem is 1-D, c2c and its length a power of two.
std::unique_ptr<transform> make_radix2_transform(const geometry& shape, precision type);

}  // namespace ballast::fft::cuda
