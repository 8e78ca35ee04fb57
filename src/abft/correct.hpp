// Repair in place: computes a faulty element from its checksum and the other elements.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// Returns element `j` of x(0) … x(count − 1), whose sum must be `checksum`: checksum minus the sum of the others, in double.
// It never computes "corrupted value plus residual": the corrupted value may be so large that the residual has lost all digits of the
// correct value.
template <class Element>
BALLAST_HD double rebuild(double checksum, std::int64_t j, std::int64_t count, Element&& x) {
  double rest = checksum;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i != j) rest -= x(i);
  }
  return rest;
}

}  // namespace ballast::abft
