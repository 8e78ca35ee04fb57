// Thresholds: the size that rounding alone can give a residual. Each names its derivation; docs/protection.md has the measurements.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// Unit roundoff: half the distance from 1 to the next larger number.
template <class T>
inline constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Bound of |Re ρ| + |Im ρ|, ρ = aᵀy − bᵀx for y = DFT of x with `points` points, |a_k| = 1 with random phases, b = DFT of a,
// ‖x‖₂ = `norm`.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u, independently; the errors of one stage
// reach y with 2-norm c·u·√N·‖x‖, and a random-phase a projects that norm, so their part of ρ has the RMS c'·u·√(N log₂N)·‖x‖. The
// two sums are made in working precision in blocks of 16 terms; a block whose first term is dominant rounds 30 times at the size of
// |b_j||x_j| ≤ 2√N‖x‖, which is what 6 further stages would do. kappa = worst/RMS with room: docs/design/fft.md has the measurements.
// The second term is what gradual underflow adds: half the smallest number at each of N·log₂N operations.
template <class T>
double fft_residual(double points, double norm, double kappa) {
  const double stages = std::log2(points) + 1 + 6;
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return kappa * (unit_roundoff<T> * std::sqrt(points * stages) * norm + smallest * points * std::sqrt(stages));
}

}  // namespace ballast::abft
