// The argument of radix2.cuh's kernel.
// Layer: fft/cuda; for host and device compilers.
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_radix2_threads = 256;

struct radix2_arguments {
  const void* in;
  void* out;
  const void* roots;                                              // w^j for j < n, complex
  std::int64_t in_stride, in_distance, out_stride, out_distance;  // in complex numbers
  std::int64_t half;                                              // n / 2
  std::int64_t before;                                            // 2^stage
  std::int64_t butterflies;                                       // half · signals
  double scale;
  int turn_in, turn_out;  // not 0: exchanges real and imaginary parts
};

}  // namespace ballast::fft::cuda
