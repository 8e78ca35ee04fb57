// Locates a fault from two residuals with different weights.
// Layer: foundation. Host/device-neutral.
// Source: J. Jou, J. Abraham, Fault-tolerant matrix arithmetic, 1986 (ratio of weighted residuals). docs/protection.md derives the
// least-squares form, and shows why it locates faults that the ratios of single rows do not.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/macros.hpp"

namespace ballast::abft {

// The result of locate_column: the index of the weight that fits, and the ratio of the residuals. index −1: no weight fits, so the
// assumption of one faulty column does not hold.
struct location {
  std::int64_t index = -1;
  double ratio = std::numeric_limits<double>::quiet_NaN();
};

// Locates a fault in one column. A fault e in column j gives the residual vectors r = e (weights 1) and s = w_j e. Least squares over all
// rows gives w_j ≈ rᵀs / rᵀr, which averages out the rounding of single rows. `rr` = rᵀr, `rs` = rᵀs, `ss` = sᵀs. The nearest weight of
// w(0) … w(count − 1) is accepted if
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
