// The kernels of a host backend.
// Layer: backend (host).
#pragma once

#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"

namespace ballast::qr::host {

template <class S>
const kernels<S>& kernels_of([[maybe_unused]] const context& run) {
#if defined(BALLAST_HAS_CPU)
  if (run.which != backend::reference) return cpu_kernels<S>();
#endif
  return reference_kernels<S>();
}

}  // namespace ballast::qr::host
