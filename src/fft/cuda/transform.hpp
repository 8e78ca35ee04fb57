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
};

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, const transform_options& options);

}  // namespace ballast::fft::cuda
