// The scales of the normalization: powers of two, so that scaling adds no rounding error.
// Layer: algorithm, host/device-neutral.
#pragma once

#include <cmath>

#include "core/macros.hpp"

namespace ballast::kmeans {

// Returns 2^e as T, clamped to the range of normal numbers.
template <class T>
BALLAST_HD inline T power_of_two(int e) {
  constexpr int least = sizeof(T) == 4 ? -125 : -1021, most = sizeof(T) == 4 ? 126 : 1022;
  return static_cast<T>(std::ldexp(1.0, e < least ? least : e > most ? most : e));
}

// Returns the power of two that brings the heaviest weight into [1, 2), or below for weights that are subnormal. It may be subnormal
// itself.
template <class T>
BALLAST_HD inline T weight_scale_for(double heaviest) {
  constexpr int least = sizeof(T) == 4 ? -127 : -1023, most = sizeof(T) == 4 ? 126 : 1022;
  const int e = -std::ilogb(heaviest);
  return static_cast<T>(std::ldexp(1.0, e < least ? least : e > most ? most : e));
}

// Returns the scale that brings 4 · spread into [1, 2), reduced if largest · scale would overflow.
template <class T>
BALLAST_HD inline T scale_for(double spread, double largest) {
  int exponent = 0;
  if (spread > 0 && std::isfinite(spread)) exponent = -(std::ilogb(spread) + 2);
  if (largest > 0) {
    const int headroom = (sizeof(T) == 4 ? 128 : 1024) - 4 - std::ilogb(largest);
    exponent = exponent < headroom ? exponent : headroom;
  }
  return power_of_two<T>(exponent);
}

// A centroid a million times as far away as the data can win no point. It is moved to this distance, so that its fourth power does not
// overflow and the thresholds of the row checks stay useful.
template <class T>
inline constexpr T k_far = 0x1p20;

}  // namespace ballast::kmeans
