// The recovery kernels by name.
// Layer: backend "cuda" of QR.
#pragma once

#include <vector>

#include "cuda/device/device.hpp"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/rotations.hpp"

namespace ballast::qr::cuda {

// S: float, double, or std::complex of one of these.
template <class S>
struct recovery_names {
  using request = ballast::cuda::kernel_request;
  static request rows(rotating how, int columns);
  static request columns();
  static request givens();
  static request tail();
  static request store();
  static request match();      // takes the components of complex numbers
  static request make_one();   // the plain recovery: computes one rotation
  static request apply_one();  // the plain recovery: applies it to two rows
  // Columns in a block of rotations on such a device: the most threads whose tile takes at most half of a block's shared memory, so that
  // two blocks share a multiprocessor.
  static int block(const ballast::cuda::capabilities& on);
  // Requests for all kernels, for the widest block on such a device.
  static std::vector<request> all(const ballast::cuda::capabilities& on);
};

}  // namespace ballast::qr::cuda
