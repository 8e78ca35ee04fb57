// Strikes numbers of QR: a complex number as its two components.
// Layer: backend (host).
#pragma once

#include "inject/injector.hpp"
#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr::host {

// fault_injector::strike on data[0 … count), real or complex.
template <class S>
bool strike(inject::active_injector& injector, inject::site where, const inject::position& here, S* data, index count) {
  return injector.strike(where, here, reals(data), k_reals<S> * count);
}

}  // namespace ballast::qr::host
