// The comparison that every check of QR uses.
// Layer: algorithm (driver). Backend-free.
// Source: docs/protection.md.
#pragma once

#include <cmath>
#include <limits>

#include "abft/attempt.hpp"
#include "abft/verify.hpp"
#include "inject/injector.hpp"
#include "qr/contract.hpp"
#include "qr/sites.hpp"

namespace ballast::qr {

// Compares |residual| ≤ threshold for check `name` (a string literal), with injection sites at `where`. `position` is the index that an
// event reports.
inline abft::finding compare(const context& run, const inject::position& where, double residual, double threshold, const char* name,
                             index position) {
  run.seen.checked(1);
  // An infinite value gives an infinite threshold, against which nothing may pass.
  if (!std::isfinite(residual) || !std::isfinite(threshold)) residual = std::numeric_limits<double>::quiet_NaN();
  abft::guarded_threshold tau(threshold);
  run.injector.strike(site::threshold, where, &tau.value, 1);
  std::uint32_t word = abft::verify(residual, tau);
  run.injector.strike(site::comparison, where, &word, 1);
  return {.word = word, .residual = residual, .threshold = threshold, .index = position, .check = name};
}

inline bool passes(const abft::finding& seen) { return seen.word == abft::k_pass; }

}  // namespace ballast::qr
