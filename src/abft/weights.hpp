// The weight vectors of checksums, for all algorithms and backends.
// Layer: foundation. Host/device-neutral.
// Source: docs/protection.md, "Which weights": dense random phases miss no fault above 30× rounding in a 1024-point FP32 FFT. Vectors with
// few different values (ones, {1, i, −1, −i}, cube roots of unity) have blind spots.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/counter_rng.hpp"
#include "core/macros.hpp"

namespace ballast::abft {

struct phase {
  double re;
  double im;
};

// Returns element `i` of random-phase vector `vector`: e^{2πiθ}, θ uniform in [0, 1).
BALLAST_HD inline phase random_phase(std::uint64_t seed, std::uint64_t vector, std::uint64_t i) {
  const double angle = 2 * std::numbers::pi * core::random_uniform(seed, vector, i);
  return {std::cos(angle), std::sin(angle)};
}

// Returns a weight, uniform in [1, 2): positive, so that a sum over data of one sign does not cancel; distinct with probability 1.
BALLAST_HD constexpr double random_weight(std::uint64_t seed, std::uint64_t vector, std::uint64_t i) {
  return 1 + core::random_uniform(seed, vector, i);
}

// Returns (j + 1) / rms(1 … count), j = 0 … count − 1. Equispaced weights put the largest possible gap between neighbouring columns. Their
// root mean square is 1, so that the weighted residual has the same noise as the unweighted one.
BALLAST_HD inline double equispaced_weight(std::int64_t j, std::int64_t count) {
  const double rms = std::sqrt((static_cast<double>(count) + 1) * (2 * static_cast<double>(count) + 1) / 6);
  return static_cast<double>(j + 1) / rms;
}

// Returns 2^exponent. A normal result is built from its bits, because std::ldexp takes ten times as long.
BALLAST_HD inline double power_of_two(int exponent) {
  if (exponent >= -1022 && exponent <= 1023) return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
  if (exponent < -1074) return 0;
  return std::ldexp(1.0, exponent);
}

// Returns the power of two that equilibrates a column of this norm in a checksum over columns; 1 if the norm is 0, Inf or NaN.
BALLAST_HD inline double equilibrating(double norm) {
  const int exponent = static_cast<int>(__builtin_bit_cast(std::uint64_t, norm) >> 52);  // `norm` ≥ 0: no sign bit
  if (exponent >= 1 && exponent <= 2046) return power_of_two(1023 - exponent);
  return norm > 0 && std::isfinite(norm) ? power_of_two(-std::ilogb(norm)) : 1.0;
}

}  // namespace ballast::abft
