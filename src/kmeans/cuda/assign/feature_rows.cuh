// Loads of adjacent features of rows in memory: of numbers of T, and of 16-bit numbers, which are widened.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "kmeans/cuda/layout/setup_args.hpp"
#include "kmeans/cuda/normalize/columns.cuh"

namespace ballast::kmeans::cuda {

// The adjacent numbers of one 16-byte load.
template <class T>
struct alignas(16) vector {
  T at[k_vector<T>];
};

// Rows in memory, each a list of features.
template <class T>
struct feature_rows {
  const T* data;
  std::int64_t row_stride;
  std::int64_t apart;  // from a feature to the next
  bool whole;          // k_vector features from a multiple of k_vector on are one load
};
template <class T>
__device__ __forceinline__ feature_rows<T> feature_rows_of(const T* data, std::int64_t row_stride, std::int64_t apart) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && row_stride % k_vector<T> == 0;
  return {data, row_stride, apart, aligned && apart == 1};
}

// Loads features f … f + k_vector − 1 of a row, by instructions of its own; those from n on are 0.
template <class T>
__device__ __forceinline__ vector<T> load_features(const feature_rows<T>& from, std::int64_t row, int f, int n) {
  const T* const at = from.data + row * from.row_stride + f * from.apart;
  if (from.whole && f + k_vector<T> <= n) return arch::load_itself(reinterpret_cast<const vector<T>*>(at));
  vector<T> made{};
#pragma unroll
  for (int i = 0; i < k_vector<T>; ++i) {
    if (f + i < n) made.at[i] = arch::load_itself(at + i * from.apart);
  }
  return made;
}

// The same of 16-bit numbers, widened.
struct half_rows {
  const std::uint16_t* data;
  std::int64_t row_stride;
  std::int64_t apart;
  bool whole;
  bool brain;
};
struct alignas(8) half_vector {
  std::uint16_t at[k_vector<float>];
};
template <class T>
__device__ __forceinline__ half_rows half_rows_of(const given_points<T>& from) {
  const auto* const data = static_cast<const std::uint16_t*>(from.points);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % sizeof(half_vector) == 0 && from.row_stride % k_vector<float> == 0;
  return {data, from.row_stride, from.column_stride, aligned && from.column_stride == 1, from.brain};
}
__device__ __forceinline__ vector<float> load_features(const half_rows& from, std::int64_t row, int f, int n) {
  const std::uint16_t* const at = from.data + row * from.row_stride + f * from.apart;
  half_vector bits{};
  if (from.whole && f + k_vector<float> <= n) {
    bits = arch::load_itself(reinterpret_cast<const half_vector*>(at));
  } else {
#pragma unroll
    for (int i = 0; i < k_vector<float>; ++i) {
      if (f + i < n) bits.at[i] = load_again(at + i * from.apart);
    }
  }
  vector<float> made;
#pragma unroll
  for (int i = 0; i < k_vector<float>; ++i) made.at[i] = from_16_bits(bits.at[i], from.brain);
  return made;
}

// The given points as rows. `Half`: of 16-bit numbers, which are widened as they are loaded.
template <bool Half, class T>
__device__ __forceinline__ auto given_rows_of(const given_points<T>& from) {
  if constexpr (Half) {
    return half_rows_of(from);
  } else {
    return feature_rows_of(static_cast<const T*>(from.points), from.row_stride, from.column_stride);
  }
}

}  // namespace ballast::kmeans::cuda
