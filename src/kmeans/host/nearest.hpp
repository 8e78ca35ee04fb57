// The nearest centroid of one point by exact distances, where scores are too near to decide.
// Layer: backend "host".
#pragma once

#include <cstdint>

#include "kmeans/block.hpp"

namespace ballast::kmeans::host {

// Differences of doubles are multiplied by this before they are squared, so that neither the largest squares, of normalized points,
// overflow nor those of differences down to 1e-290 vanish. Floats need no factor: their squares are doubles.
template <class T>
inline constexpr double k_lift = sizeof(T) == 4 ? 1.0 : 0x1p450;

// Returns the index of the centroid with the smallest ‖x − c‖² for a row of the points, the lowest index of equally near ones. centroids:
// k × n, scaled and shifted like `from`. Differences and sums are in double, with a relative error below (n + 4) u; for points of type
// double, centroids that are closer together than that are compared with the rounding errors of the differences, squares and sums included.
// For sparse points `squares` are the k numbers ‖c‖², and `scratch` n zeros, which it holds again at the end: the centroids that
// ‖c‖² − 2 x·c in double cannot rule out are compared as above.
template <class T>
std::int32_t nearest_centroid(const source<T>& from, std::int64_t row, const T* centroids, std::int64_t k, const double* squares = nullptr,
                              T* scratch = nullptr);

}  // namespace ballast::kmeans::host
