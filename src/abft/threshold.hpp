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

// Bound of |aᵀy − bᵀx| for y = DFT of x with `points` points, |a_k| = 1 with random phases, b = DFT of a, ‖x‖₂ = `norm`.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u, independently; the errors of one stage
// reach y with 2-norm c·u·√N·‖x‖, and a random-phase a projects that norm, so the residual's RMS is c'·u·√(N log₂N)·‖x‖.
// kappa = worst/RMS with room: docs/design/fft.md has the measured maxima per length and kind of data. The second term is what
// gradual underflow adds: an absolute error of half the smallest number at each of N·log₂N operations.
template <class T>
double fft_residual(double points, double norm, double kappa) {
  const double stages = std::log2(points) + 1;
  const double smallest = sizeof(T) == 4 ? 0x1p-149 : 0x1p-1074;
  return kappa * (unit_roundoff<T> * std::sqrt(points * stages) * norm + smallest * points * std::sqrt(stages));
}

}  // namespace ballast::abft
