// Compares the sums that check an application of Q, column by column.
// Layer: algorithm, backend-free.
// Source: docs/design/qr.md.
#pragma once

#include <cmath>
#include <limits>

#include "qr/arithmetic/random.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/checks/largest.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

// Compares the sums of `width` columns: `encoded` is xᴴ(op(Q)ᴴa) and `found` is (op(Q) x)ᴴa, both for k_vectors random a,
// width × k_vectors. Wide: double or std::complex<double>. `norms`: the norms of the columns. `odd`: marks the columns that held Inf or NaN
// when they were loaded.
template <class Wide>
applied_sums compare_applied(index width, const Wide* encoded, const Wide* found, const double* norms, const char* odd) {
  applied_sums seen;
  for (index j = 0; j < width; ++j) {
    largest off;
    for (index q = 0; q < k_vectors; ++q) {
      const Wide expected = encoded[j + q * width];
      // Both readings of the input must agree that the column holds Inf or NaN.
      off.add(odd[j] == 0           ? size_of_number(found[j + q * width] - expected)
              : is_finite(expected) ? std::numeric_limits<double>::quiet_NaN()
                                    : 0.0);
    }
    seen.odd |= odd[j] != 0;
    const double norm = odd[j] == 0 ? norms[j] : 0, residual = off.value();
    // Products of the largest doubles are long doubles.
    if (j > 0 && static_cast<long double>(residual) * seen.norm <= static_cast<long double>(seen.residual) * norm) continue;
    seen.residual = residual;
    seen.norm = norm;
    seen.column = j;
    if (!std::isfinite(residual)) break;  // no later column may replace it
  }
  return seen;
}

}  // namespace ballast::qr
