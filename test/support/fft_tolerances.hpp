// The tolerances of the FFT's tests: the promised accuracy, and the effect above which no fault is missed.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ballast/fft.hpp>

#include "abft/threshold.hpp"

namespace ballast::test {

inline double unit_roundoff(precision type) { return type == precision::f32 ? abft::unit_roundoff<float> : abft::unit_roundoff<double>; }

// Returns log₂ of the number of points of a signal, the product of the lengths.
inline double log_of_points(const fft::problem& problem) {
  double sum = 0;
  for (const std::int64_t n : problem.shape) sum += std::log2(static_cast<double>(n));
  return sum;
}

// Returns the accuracy that the documentation promises (docs/design/fft.md), as ‖y − ŷ‖₂/‖y‖₂ of one signal: c·u·√log₂N.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u. The errors are independent, and a stage
// preserves norms, so their squares add up: u·√log₂N. c = 1 for powers of two, whose stages need few operations. Otherwise c = 3, because
// larger butterflies add more terms, and a convolution consists of two transforms of more than twice the length.
inline double error_bound(const fft::problem& problem) {
  const bool powers_of_two = std::ranges::all_of(problem.shape, [](std::int64_t n) { return (n & (n - 1)) == 0; });
  return (powers_of_two ? 1 : 3) * unit_roundoff(problem.precision) * std::sqrt(std::max(1.0, log_of_points(problem)));
}
// The same with a factor of 1.5 for real data: one more stage combines the spectrum of M complex numbers to the spectrum of 2M reals, and
// the error of a half spectrum is averaged over fewer elements.
inline double error_bound_of_kind(const fft::problem& problem) { return error_bound(problem) * (problem.kind == fft::kind::c2c ? 1 : 1.5); }

// Returns the unit of the effect of a fault, relative to the norm of a signal. The error of a clean transform is about 0.4 units.
inline double effect_unit(const fft::problem& problem) { return unit_roundoff(problem.precision) * std::sqrt(log_of_points(problem) + 1); }
// Effects above this many units are never missed on a GPU. Derivation: a threshold is at most 11 units. All four components of the
// random-phase checksum of an effect of 400 units are below 11 with a probability of (11/400)⁴ = 6·10⁻⁷.
inline constexpr double k_floor = 400;
// The same on the host. Derivation: every single number has a response of at least 1/4, and a result whose residual is above half of a
// threshold, 4 to 10 units, must be computed twice with the same bits: docs/design/fft.md, "Floor".
inline constexpr double k_host_floor = 60;
inline double detection_floor(const fft::problem& problem) { return k_floor * effect_unit(problem); }

}  // namespace ballast::test
