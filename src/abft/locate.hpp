// Where a fault is, from two residuals with different weights.
// Layer: foundation. Host/device-neutral.
// Source: J. Jou, J. Abraham, Fault-tolerant matrix arithmetic, 1986 (ratio of weighted residuals); docs/protection.md for the
// least-squares form and why it places what ratios of single rows do not.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/macros.hpp"

namespace ballast::abft {

// The outcome of locate: which of the weights fits, and how well. index −1: none does, so the premise "one place" does not hold.
struct location {
  std::int64_t index = -1;
  double ratio = std::numeric_limits<double>::quiet_NaN();
};

// One fault e in column j makes residual vectors r = e (weights 1) and s = w_j e. Least squares over all rows: w_j ≈ rᵀs / rᵀr, which
// averages the rounding of single rows away. `rr` = rᵀr, `rs` = rᵀs, `ss` = sᵀs. Accepts the nearest weight w(0) … w(count − 1) if
//   · r and s are collinear: rs² ≥ (1 − collinearity) · rr · ss, and
//   · the ratio is nearer to that weight than `tolerance` of the gap to its neighbours.
template <class Weight>
BALLAST_HD location locate_column(double rr, double rs, double ss, std::int64_t count, Weight&& w, double collinearity = 1e-2,
                                  double tolerance = 0.45) {
  location found;
  if (!(rr > 0) || !std::isfinite(rr) || !std::isfinite(ss) || !(rs * rs >= (1 - collinearity) * rr * ss)) return found;
  found.ratio = rs / rr;
  double nearest = std::numeric_limits<double>::infinity();
  double second = nearest;
  std::int64_t best = -1;
  for (std::int64_t j = 0; j < count; ++j) {
    const double distance = std::abs(found.ratio - w(j));
    if (distance < nearest) {
      second = nearest;
      nearest = distance;
      best = j;
    } else if (distance < second) {
      second = distance;
    }
  }
  const bool unambiguous = count == 1 ? nearest <= tolerance * std::abs(w(0)) : nearest <= tolerance * (nearest + second);
  if (unambiguous) found.index = best;
  return found;
}

}  // namespace ballast::abft
