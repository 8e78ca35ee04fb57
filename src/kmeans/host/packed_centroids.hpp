// Packs the centroids into the layout that the kernels of a block read, with checksums.
// Layer: backend "host".
#pragma once

#include <cstdint>

#include "kmeans/block.hpp"

namespace ballast::kmeans::host {

// Packs `k` centroids of `n` features into `made` (allocating if the sizes differ): tiles, norms, names, weights; with `protect` also the
// checksum centroids and the thresholds. made.by_norm allows sorting the centroids for their checks. O(kn + k log k). `injector`, unless
// null, sees the norms (site kmeans.norm).
template <class T>
void pack_centroids(const T* centroids, std::int64_t k, std::int64_t n, bool protect, packed_centroids<T>& made,
                    inject::active_injector* injector = nullptr);

// Sums the checksum centroids and the norms again in another order, and compares each column with the centroid that its name refers to.
// Distances and row checks both start from the norms, so no row check detects a wrong norm. Returns the largest difference in units of its
// limit: ≤ 1 unless one of two sums was corrupted.
template <class T>
double verify_packed_centroids(const packed_centroids<T>& packed);

}  // namespace ballast::kmeans::host
