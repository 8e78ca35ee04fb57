// The comparison of a residual with its threshold, hardened: the comparison is itself arithmetic that can be struck.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// A threshold kept twice: a flip in one copy must not switch the check off. Thresholds are computed in double also for FP32 data.
struct guarded_threshold {
  double value = 0;
  double twin = 0;

  constexpr guarded_threshold() = default;
  BALLAST_HD constexpr explicit guarded_threshold(double tau) : value(tau), twin(tau) {}
};

// The outcome of a comparison. Only k_pass passes: any other word, whatever made it, counts as a failure and leads to repair.
inline constexpr std::uint32_t k_pass = 0x5aa5c33c;
inline constexpr std::uint32_t k_fail = 0xa55a3cc3;

// k_pass if |residual| ≤ threshold and both copies of the threshold agree. Written so that NaN and Inf fail.
BALLAST_HD inline std::uint32_t verify(double residual, const guarded_threshold& tau) {
  const double size = residual < 0 ? -residual : residual;
  const bool agree = tau.value == tau.twin;  // a NaN threshold fails as well
  return size <= tau.value && size <= tau.twin && agree ? k_pass : k_fail;
}

// The same for a complex residual: |ρ|² against τ².
BALLAST_HD inline std::uint32_t verify(double residual_re, double residual_im, const guarded_threshold& tau) {
  const double size = residual_re * residual_re + residual_im * residual_im;
  const bool agree = tau.value == tau.twin;
  return size <= tau.value * tau.value && size <= tau.twin * tau.twin && agree ? k_pass : k_fail;
}

}  // namespace ballast::abft
