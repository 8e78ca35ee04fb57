// Numbers cut to half precision, for tests of points in float16 and bfloat16.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <bit>
#include <cstdint>

#include <ballast/types.hpp>

namespace ballast::test {

// The number that is left of x, and its bits in half precision.
struct cut_number {
  float value;
  std::uint16_t bits;
};

// Cuts |x| < 65536 to a bfloat16 (`brain`) or a float16. Numbers below the smallest normal one of float16 become 0.
inline cut_number cut_to_half(float x, bool brain) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t exponent = bits >> 23 & 255;
  const std::uint32_t kept = brain ? bits & 0xffff0000 : exponent > 112 ? bits & 0xffffe000 : 0;
  const std::uint32_t half = brain ? kept >> 16 : kept == 0 ? 0 : kept >> 31 << 15 | (exponent - 112) << 10 | (kept >> 13 & 1023);
  return {std::bit_cast<float>(kept), static_cast<std::uint16_t>(half)};
}

}  // namespace ballast::test
