// What the tests of the FFT allow: the promised accuracy, and the effect above which no fault is missed.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ballast/fft.hpp>

#include "abft/threshold.hpp"

namespace ballast::test {

inline double unit_roundoff(precision type) { return type == precision::f32 ? abft::unit_roundoff<float> : abft::unit_roundoff<double>; }

// log₂ of the points of a signal: of the product of the lengths.
inline double log_of_points(const fft::problem& problem) {
  double sum = 0;
  for (const std::int64_t n : problem.shape) sum += std::log2(static_cast<double>(n));
  return sum;
}

// The accuracy that the documentation promises (docs/design/fft.md), as ‖y − ŷ‖₂/‖y‖₂ of one signal: c·u·√log₂N.
// Derivation: each of the log₂N stages rounds every element with a relative error of about u. The errors are independent and a stage keeps
// norms, so their squares add up: u·√log₂N. c = 1 for powers of two, whose stages need few operations; c = 3 else, since larger
// butterflies add up more terms and a convolution is two transforms of more than twice the length.
inline double error_bound(const fft::problem& problem) {
  const bool powers_of_two = std::ranges::all_of(problem.shape, [](std::int64_t n) { return (n & (n - 1)) == 0; });
  return (powers_of_two ? 1 : 3) * unit_roundoff(problem.precision) * std::sqrt(std::max(1.0, log_of_points(problem)));
}
// With room for real data, 1.5: one more stage combines the spectrum of M complex numbers to that of 2M reals, and a half spectrum has
// fewer elements for its error to average over.
inline double error_bound_of_kind(const fft::problem& problem) { return error_bound(problem) * (problem.kind == fft::kind::c2c ? 1 : 1.5); }

// The unit that the effect of a fault is measured in, relative to the norm of a signal: the error of a clean transform is about 0.4 of it.
inline double effect_unit(const fft::problem& problem) { return unit_roundoff(problem.precision) * std::sqrt(log_of_points(problem) + 1); }
// Effects of more than so many units are never missed on a GPU. Derivation: a threshold is at most 11 units, and a random-phase checksum of
// an effect of 400 is below 11 in all of its four components with a chance of (11/400)⁴ = 6·10⁻⁷.
inline constexpr double k_floor = 400;
// The same on the host. Derivation: every single number has a response of at least 1/4, and results whose residual is above half of a
// threshold, 4 to 10 units, must come out twice: docs/design/fft.md, "Floor".
inline constexpr double k_host_floor = 60;
inline double detection_floor(const fft::problem& problem) { return k_floor * effect_unit(problem); }

}  // namespace ballast::test
