// Parts of thresholds, which bound the residual that rounding alone can cause. Each algorithm has its thresholds with their derivation in
// its own thresholds.hpp.
// Layer: foundation. Host/device-neutral.
#pragma once

#include "core/macros.hpp"

namespace ballast::abft {

// Unit roundoff: half the distance from 1 to the next larger number.
template <class T>
inline constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Two sums in double of the same non-negative numbers in two orders: bounds their difference, relative to either. `depth`: the most
// roundings that a term of either sum passes through: additions, and one more if the terms are products that are rounded. Derivation: a
// computed sum is the sum of x (1 + δ₁)…(1 + δ_h) with h ≤ depth and |δ| ≤ u (Higham, Accuracy and Stability of Numerical Algorithms,
// section 4.2). All terms have the same sign, so its relative error is at most (1 + u)^h − 1, which is below 1.01 h u for h u ≤ 0.01, or h
// ≤ 9·10¹³. Two such sums differ by at most 2.02 h u of the exact sum, which is below 2.1 h u of either computed one. This is a bound and
// needs no factor.
BALLAST_HD constexpr double reordered_sum_limit(double depth) { return 2.1 * unit_roundoff<double> * depth; }

// Two thresholds of one residual. Up to `clean` it is rounding; above `wrong` it is a fault. Between them it may be either, because the
// roundings of some data all have the same sign. Such data are computed again, and accepted if the result has the same bits.
struct tiers {
  double clean = 0;
  double wrong = 0;
};

}  // namespace ballast::abft
