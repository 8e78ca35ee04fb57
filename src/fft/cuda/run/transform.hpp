// The cuda backend's transform with everything that can be chosen about it.
// Layer: fft/cuda. make_transform of the contract fills in the scheme; the tuner tries tables.
#pragma once

#include <functional>
#include <memory>

#include "fft/contract.hpp"
#include "fft/cuda/plan/fused_passes.hpp"
#include "fft/cuda/plan/schedule.hpp"

namespace ballast::fft::cuda {

struct transform_options {
  check_form check = check_form::none;
  int transactions = 1;
  const tuning_table* tuned = &tuning_table::active();  // outlives the transform
  bool plain = false;                                   // no swizzle, and the same parameters for every problem
  pairing pairs = chosen_pairing();
  bool general = false;  // of general kernels only (general.hpp)
};

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, const transform_options& options);

// One launch for each stage of radix 2 (radix2.cpp). Throws unsupported_error unless the problem is 1-D, c2c and its length a power of two.
std::unique_ptr<transform> make_radix2_transform(const geometry& shape, precision type);

// cuFFT with checksums around it (offline.cpp); without `protect` cuFFT alone. Throws unsupported_error where there is no cuFFT, or unless
// the problem is c2c with contiguous signals.
std::unique_ptr<transform> make_offline_transform(const geometry& shape, precision type, bool protect);

// What that calls: an unnormalised transform of contiguous signals in device memory.
class dense_transform {
 public:
  dense_transform() = default;
  dense_transform(const dense_transform&) = delete;
  dense_transform& operator=(const dense_transform&) = delete;
  virtual ~dense_transform() = default;
  virtual void execute(const void* in, void* out, ballast::cuda::stream on) = 0;
};
using dense_transform_maker = std::function<std::unique_ptr<dense_transform>(const problem& shape, direction way)>;

// Replaces cuFFT by another until it is called with an empty one. For tests.
void override_cufft(dense_transform_maker other);

}  // namespace ballast::fft::cuda
