// Counter-based random numbers: number i of a stream is a pure function of (seed, stream, i), so that results do not depend on the order in
// which threads draw.
// Layer: foundation. Host/device-neutral.
// Source: the 64-bit finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::core {

BALLAST_HD constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Returns 64 random bits.
BALLAST_HD constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  return mix64(mix64(mix64(seed + golden) ^ (stream * golden + 0x632be59bd9b4e019u)) + (i + 1) * golden);
}

// Returns a number uniform in [0, 1), with 53 random bits.
BALLAST_HD constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  return static_cast<double>(random_bits(seed, stream, i) >> 11) * 0x1p-53;
}

}  // namespace ballast::core
