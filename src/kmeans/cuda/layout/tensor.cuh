// Matrix fragments of the schemes of FT K-Means on tensor cores: how a warp holds rows of points, columns of centroids and their products.
// Layer: backend "cuda" of K-Means, device code, over cuda/arch/mma.cuh.
// With g = lane / 4 and t = lane % 4, a lane holds, for each k-slice, the features k_vector · t … of rows g and g + 8 and of column g. The
// order of the features in a product does not matter, so one 16-byte load feeds a product (f32: two).
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/arch/memory.cuh"
#include "cuda/arch/mma.cuh"
#include "cuda/block/bits.cuh"

namespace ballast::kmeans::cuda {

// Returns the value that the tensor core multiplies: in f32 rounded to the 11 bits of TF32.
__device__ __forceinline__ float tensor_rounded(float value) { return ballast::cuda::from_bits<float>(arch::to_tf32(value)); }
__device__ __forceinline__ double tensor_rounded(double value) { return value; }

// A fragment of a product: 16 rows of points and 8 columns of centroids.
template <class T>
struct product_fragment {
  using vector = std::conditional_t<sizeof(T) == 4, float4, double2>;
  using pair = std::conditional_t<sizeof(T) == 4, float2, double2>;
  static constexpr int k_halves = 2;  // groups of 8 rows
  static constexpr int k_scores = 4;  // per lane: (row g, column 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
};

template <class T>
struct tensor;

// TF32: products of rounded numbers are exact; sums are in f32.
template <>
struct tensor<float> : product_fragment<float> {
  // One k-slice of a fragment's rows, in the order of the instruction's registers.
  struct rows {
    std::uint32_t at[2][4];
  };
  __device__ static __forceinline__ void multiply_add(float* scores, const rows& a, const vector& column) {
    using ballast::cuda::bits;
    auto& d = *reinterpret_cast<float(*)[k_scores]>(scores);
    const std::uint32_t b0[2] = {bits(column.x), bits(column.y)};
    arch::mma_m16n8k8_tf32(d, a.at[0], b0);
    const std::uint32_t b1[2] = {bits(column.z), bits(column.w)};
    arch::mma_m16n8k8_tf32(d, a.at[1], b1);
  }
};

template <>
struct tensor<double> : product_fragment<double> {
  struct rows {
    double at[4];
  };
  __device__ static __forceinline__ void multiply_add(double* scores, const rows& a, const vector& column) {
    arch::mma_m16n8k8_f64(*reinterpret_cast<double(*)[k_scores]>(scores), a.at, {column.x, column.y});
  }
};

}  // namespace ballast::kmeans::cuda
