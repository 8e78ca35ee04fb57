// Matrix fragments of K-Means on tensor cores: how a warp holds rows of points, columns of centroids and their scores.
// Layer: backend "cuda" of K-Means, device code, over cuda/arch/mma.cuh.
// With g = lane / 4 and t = lane % 4, a lane holds of a slab the features k_vector · t … of row g (f32: and of row g + 8) and of column g.
// The order of the features in a product does not matter, so one load of 16 bytes feeds two steps.
#pragma once

#include <cstdint>

#include "cuda/arch/memory.cuh"
#include "cuda/arch/mma.cuh"
#include "cuda/block/bits.cuh"

namespace ballast::kmeans::cuda {

template <class T>
struct tensor;

// TF32: operands lose their last 13 bits, products are exact, sums are in f32.
template <>
struct tensor<float> {
  using vector = float4;
  static constexpr int k_halves = 2;  // groups of 8 rows in a fragment
  static constexpr int k_scores = 4;  // of a lane: (row g, column 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)

  __device__ static __forceinline__ void multiply_add(float (&scores)[4], const vector (&rows)[2], const vector& column) {
    using ballast::cuda::bits;
    const std::uint32_t a0[4] = {bits(rows[0].x), bits(rows[1].x), bits(rows[0].y), bits(rows[1].y)};
    const std::uint32_t b0[2] = {bits(column.x), bits(column.y)};
    arch::mma_m16n8k8_tf32(scores, a0, b0);
    const std::uint32_t a1[4] = {bits(rows[0].z), bits(rows[1].z), bits(rows[0].w), bits(rows[1].w)};
    const std::uint32_t b1[2] = {bits(column.z), bits(column.w)};
    arch::mma_m16n8k8_tf32(scores, a1, b1);
  }
};

template <>
struct tensor<double> {
  using vector = double2;
  static constexpr int k_halves = 1;
  static constexpr int k_scores = 2;  // (g, 2t), (g, 2t + 1)

  __device__ static __forceinline__ void multiply_add(double (&scores)[2], const vector (&rows)[1], const vector& column) {
    arch::mma_m8n8k4_f64(scores, rows[0].x, column.x);
    arch::mma_m8n8k4_f64(scores, rows[0].y, column.y);
  }
};

// A number as tensor cores see it when its bits are passed as they are.
__device__ __forceinline__ float chopped(float value) { return ballast::cuda::from_bits<float>(ballast::cuda::bits(value) & 0xffffe000u); }
__device__ __forceinline__ double chopped(double value) { return value; }

// Rounded so that tensor cores see all of it.
__device__ __forceinline__ float tensor_rounded(float value) { return ballast::cuda::from_bits<float>(arch::to_tf32(value)); }
__device__ __forceinline__ double tensor_rounded(double value) { return value; }

}  // namespace ballast::kmeans::cuda
