// The scheme `offline`: cuFFT, with separate checksum kernels before and after it.
// Layer: backend "cuda"; the argument of offline.cuh's kernel for host and device compilers.
// Source: TurboFFT (PPoPP 2025) section 4.2, its first step, with random phases for the encoding vectors.
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_offline_threads = 256;
inline constexpr int k_offline_part = 4096;  // elements of a signal that a block sums

// The checksums of one signal. Zero before its kernels run.
struct offline_sums {
  double input[4];          // bᵀx of both vectors
  double square;            // ‖x‖²
  double output[4];         // aᵀy
  unsigned long long hash;  // hash of y
};

struct offline_arguments {
  void* data;  // c2c, dense; the first signal. An output is scaled in place, if `scale` is not 1
  offline_sums* sums;
  const double* weights[3];  // one per axis: two complex numbers per index, whose products are b or a
  std::int64_t n[3];
  std::int64_t points;
  std::int64_t parts;   // blocks per signal
  std::int64_t blocks;  // blocks of this launch; first_block: the first of them among those of all signals, for injection
  std::int64_t first_block, all_blocks;
  double scale;
  int output;  // not 0: sums y, otherwise x
};

}  // namespace ballast::fft::cuda
