// The points on the unit circle at which convolutions are verified from end to end.
// Layer: FFT, backend-free.
#pragma once

#include <complex>
#include <cstdint>

#include "core/counter_rng.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft {

// Returns z^exponent for point 0 or 1 of an axis. The turns of z are a multiple of 2⁻⁴⁰, which is exact, so that z^j z^k is z^{j+k} to the
// last digits.
template <class W>
std::complex<W> circle_power(std::size_t axis, std::size_t point, std::int64_t exponent) {
  constexpr std::uint64_t k_circle = std::uint64_t{1} << 40;  // divides 2⁶⁴: products may wrap around
  const std::uint64_t turn = core::mix64(k_weight_seed + 2 * axis + point) % k_circle | 1;
  return root_of_unity<W>(static_cast<std::int64_t>(turn * static_cast<std::uint64_t>(exponent) % k_circle),
                          static_cast<std::int64_t>(k_circle));
}

}  // namespace ballast::fft
