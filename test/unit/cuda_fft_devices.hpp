// The two devices in the tests of the host side of the cuda backend's FFT: an A100 and an H200.
// Layer: unit tests.
#pragma once

#include "cuda/device/device.hpp"
#include "cuda/jit/jit.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::capabilities;

inline const capabilities& ampere() {
  static const capabilities about = ballast::cuda::typical_capabilities("sm_80");
  return about;
}
inline const capabilities& hopper() {
  static const capabilities about = ballast::cuda::typical_capabilities("sm_90a");
  return about;
}

}  // namespace ballast::fft::cuda
