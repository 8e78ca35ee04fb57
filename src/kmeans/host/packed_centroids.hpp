// The centroids in the form that the kernels of a block read, with their checksums.
// Layer: backend "host".
#pragma once

#include <cstdint>

#include "kmeans/block.hpp"

namespace ballast::kmeans::host {

// Fills `made` (allocating it where it does not fit) for `k` centroids of `n` features: tiles, norms, names, weights; with `protect` also
// the checksum centroids and the limits. made.by_norm says whether centroids may be sorted for their checks. O(kn + k log k). `injector`,
// unless null, sees the norms (site kmeans.norm).
template <class T>
void make_panel(const T* centroids, std::int64_t k, std::int64_t n, bool protect, panel<T>& made,
                inject::active_injector* injector = nullptr);

// Sums the checksum centroids and the norms again in another order, and compares each column with the centroid that it is named after.
// Distances and row checks both start from the norms, so no row check
// sees a wrong one. Returns the largest difference in units of its limit: ≤ 1 unless one of two sums was struck.
template <class T>
double verify_panel(const panel<T>& made);

}  // namespace ballast::kmeans::host
