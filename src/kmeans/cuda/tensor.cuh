// Matrix fragments of the schemes of FT K-Means on tensor cores: how a warp holds rows of points, columns of centroids and their products.
// Layer: backend "cuda" of K-Means, device code, over cuda/arch/mma.cuh.
// With g = lane / 4 and t = lane % 4, a lane holds of a slab the features k_vector · t … of row g (f32: and of row g + 8) and of column g.
// The order of the features in a product does not matter, so one load of 16 bytes feeds two steps.
#pragma once

#include <cstdint>

#include "cuda/arch/memory.cuh"
#include "cuda/arch/mma.cuh"
#include "cuda/block/bits.cuh"

namespace ballast::kmeans::cuda {

// A number as a product sees it: in f32 rounded to the 11 bits of TF32.
__device__ __forceinline__ float tensor_rounded(float value) { return ballast::cuda::from_bits<float>(arch::to_tf32(value)); }
__device__ __forceinline__ double tensor_rounded(double value) { return value; }

template <class T>
struct tensor;

// TF32: products of rounded numbers are exact, sums are in f32.
template <>
struct tensor<float> {
  using vector = float4;
  using pair = float2;
  static constexpr int k_halves = 2;  // groups of 8 rows in a fragment
  static constexpr int k_scores = 4;  // of a lane: (row g, column 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)

  // One slab of a fragment's rows, in the order of the instruction's registers.
  struct rows {
    std::uint32_t at[2][4];
  };
  __device__ static __forceinline__ void multiply_add(float* scores, const rows& a, const vector& column) {
    using ballast::cuda::bits;
    auto& d = *reinterpret_cast<float(*)[4]>(scores);
    const std::uint32_t b0[2] = {bits(column.x), bits(column.y)};
    arch::mma_m16n8k8_tf32(d, a.at[0], b0);
    const std::uint32_t b1[2] = {bits(column.z), bits(column.w)};
    arch::mma_m16n8k8_tf32(d, a.at[1], b1);
  }
};

template <>
struct tensor<double> {
  using vector = double2;
  using pair = double2;
  static constexpr int k_halves = 1;
  static constexpr int k_scores = 2;  // (g, 2t), (g, 2t + 1)

  struct rows {
    double at[2];
  };
  __device__ static __forceinline__ void multiply_add(double* scores, const rows& a, const vector& column) {
    auto& d = *reinterpret_cast<double(*)[2]>(scores);
    arch::mma_m8n8k4_f64(d, a.at[0], column.x);
    arch::mma_m8n8k4_f64(d, a.at[1], column.y);
  }
};

}  // namespace ballast::kmeans::cuda
