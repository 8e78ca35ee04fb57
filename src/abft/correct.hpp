// Repair in place.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// The value of element `j` of x(0) … x(count − 1) when their sum must be `checksum`: checksum minus the sum of the others, in double.
// Never "corrupted value plus residual": a value that was hit may be so large that its residual has lost every digit of the truth.
template <class Element>
BALLAST_HD double rebuild(double checksum, std::int64_t j, std::int64_t count, Element&& x) {
  double rest = checksum;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i != j) rest -= x(i);
  }
  return rest;
}

}  // namespace ballast::abft
