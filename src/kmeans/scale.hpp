// The scales of the frame: powers of two, so that they round nothing.
// Layer: algorithm, host/device-neutral.
#pragma once

#include <cmath>

#include "core/macros.hpp"

namespace ballast::kmeans {

// 2^e as T, kept where T has a normal number.
template <class T>
BALLAST_HD inline T power_of_two(int e) {
  constexpr int least = sizeof(T) == 4 ? -125 : -1021, most = sizeof(T) == 4 ? 126 : 1022;
  return static_cast<T>(std::ldexp(1.0, e < least ? least : e > most ? most : e));
}

// The scale that brings 4 · spread into [1, 2). largest · scale must stay finite, too.
template <class T>
BALLAST_HD inline T scale_for(double spread, double largest) {
  int exponent = 0;
  if (spread > 0 && std::isfinite(spread)) exponent = -(std::ilogb(spread) + 2);
  if (largest > 0) {
    const int room = (sizeof(T) == 4 ? 128 : 1024) - 4 - std::ilogb(largest);
    exponent = exponent < room ? exponent : room;
  }
  return power_of_two<T>(exponent);
}

// A centroid that is a million times as far away as the data can win no point. It is moved nearer, so that its fourth power is a number and
// the limits of the row checks stay useful.
template <class T>
inline constexpr T k_far = 0x1p20;

}  // namespace ballast::kmeans
