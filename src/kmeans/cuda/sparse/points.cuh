// Reads points in compressed rows.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "kmeans/cuda/sparse/arguments.hpp"

namespace ballast::kmeans::cuda {

// Each returns a number from a load of its own: two calls share no register.
template <class T>
__device__ __forceinline__ std::int64_t load_index(const sparse_points<T>& p, const void* from, std::int64_t at) {
  return p.wide ? arch::load_itself(static_cast<const std::int64_t*>(from) + at)
                : std::int64_t{arch::load_itself(static_cast<const std::int32_t*>(from) + at)};
}
template <class T>
__device__ __forceinline__ std::int64_t first_of(const sparse_points<T>& p, std::int64_t row) {
  return load_index(p, p.offsets, row) - p.origin;
}

// An element of a row: x, normalized, and its feature.
template <class T>
struct sparse_element {
  T x;
  std::int32_t feature;
};
template <class T>
__device__ __forceinline__ sparse_element<T> load_element(const sparse_points<T>& p, std::int64_t at) {
  return {arch::load_itself(p.values + at) * p.scale, static_cast<std::int32_t>(load_index(p, p.columns, at))};
}
// The same for a check, which shares no register with the computation, the scale included.
template <class T>
__device__ __forceinline__ sparse_element<T> load_element_again(const sparse_points<T>& p, std::int64_t at) {
  return {arch::load_itself(p.values + at) * p.scale_twin, static_cast<std::int32_t>(load_index(p, p.columns, at))};
}

}  // namespace ballast::kmeans::cuda
