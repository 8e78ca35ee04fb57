// Compares a residual with its threshold. The comparison is hardened, because a fault can strike it, too.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// The largest finite number.
template <class T>
inline constexpr double k_largest = sizeof(T) == 4 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;

// A threshold stored twice: a bit flip in one copy must not disable the check. Thresholds are computed in double, also for FP32 data.
struct guarded_threshold {
  double value = 0;
  double twin = 0;

  constexpr guarded_threshold() = default;
  BALLAST_HD constexpr explicit guarded_threshold(double tau) : value(tau), twin(tau) {}
};

// The outcome of a comparison. Only k_pass passes: any other word counts as a failure and leads to repair.
inline constexpr std::uint32_t k_pass = 0x5aa5c33c;
inline constexpr std::uint32_t k_fail = 0xa55a3cc3;

// Returns whether both copies agree on a finite number. An infinite threshold would pass everything.
BALLAST_HD inline bool is_sound(const guarded_threshold& tau) { return tau.value == tau.twin && tau.value <= k_largest<double>; }

// Returns k_pass if |residual| ≤ threshold and both copies of the threshold agree. NaN and Inf fail, on either side.
BALLAST_HD inline std::uint32_t verify(double residual, const guarded_threshold& tau) {
  const double size = residual < 0 ? -residual : residual;
  return size <= tau.value && size <= tau.twin && is_sound(tau) ? k_pass : k_fail;
}

// The same for a complex residual: compares |ρ|² with τ². The squares must not overflow.
BALLAST_HD inline std::uint32_t verify(double residual_re, double residual_im, const guarded_threshold& tau) {
  const double size = residual_re * residual_re + residual_im * residual_im;
  guarded_threshold squared;
  squared.value = tau.value * tau.value;
  squared.twin = tau.twin * tau.twin;
  return tau.value == tau.twin ? verify(size, squared) : k_fail;
}

// The comparison with the largest quotient of residual and limit, among several. One whose residual or limit is not finite is larger than
// all others. Quotients are divided: of numbers near the end of the range both products would be Inf.
struct worst_comparison {
  double residual = 0;
  double limit = 1;

  BALLAST_HD constexpr bool is_finite() const { return residual <= k_largest<double> && limit <= k_largest<double>; }
  // `other` and `bound`: a residual and its limit, not negative.
  BALLAST_HD constexpr void take(double other, double bound) {
    if (!is_finite()) return;
    if (other <= k_largest<double> && bound <= k_largest<double> && (other == 0 || other / bound <= residual / limit)) return;
    residual = other;
    limit = bound;
  }
};

}  // namespace ballast::abft
