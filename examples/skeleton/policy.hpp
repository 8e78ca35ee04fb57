// The compile-time parameters of the kernel, and its arguments.
// Layer: algorithm, for host and device code.
#pragma once

#include <cstdint>

#include "cuda/block/event_ring.hpp"

namespace ballast::skeleton {

struct policy {
  int threads = 256;  // threads per block
  bool check = true;
};

struct arguments {
  const double* x;
  double* y;
  cuda::event_ring* events;
  std::int64_t n;
  int repeats;
};

// Bytes of shared memory: three numbers for each warp, three totals, the outcome.
constexpr std::int64_t shared_bytes(const policy& p) { return (3 * p.threads / 32 + 4) * 8; }

}  // namespace ballast::skeleton
