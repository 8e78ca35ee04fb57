// The quantities that a pass sums over its rows for the checks.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "kmeans/cuda/assign/delta_sums.cuh"

namespace ballast::kmeans::cuda {

template <class T>
__device__ __forceinline__ T smallest_normal() {
  return sizeof(T) == 4 ? static_cast<T>(0x1p-126) : static_cast<T>(0x1p-1022);
}

// Quantities that the threads sum over rows. Two lanes share the work of a row: lane t sums quantities t % 2 and t % 2 + 2, and an even
// lane also sums the last one.
enum class quantity : int {
  signature,           // Σ signature
  labelled_signature,  // Σ label · signature
  members,             // points of positive weight, and Σ label over them, modulo 2^32, in the upper half
  same,                // labels that did not change
  changed,             // labels that changed, by another lane's comparison
};
static_assert(static_cast<int>(quantity::changed) + 1 == k_quantities);

struct tally {
  unsigned long long sum[2];  // the two quantities of the lane
  std::uint32_t changed;      // summed by even lanes
};

}  // namespace ballast::kmeans::cuda
