// Operands of a pass on tensor cores: how a warp holds rows of points, columns of centroids and their scores.
// Layer: backend "cuda" of K-Means, device code, over cuda/arch/mma.cuh.
// f32 is multiplied as halves (FP16): they have the 11 bits of TF32 at twice its speed and half its size. They lack range, but
// normalization brings coordinates near 1; the rounding errors of very small ones are included in normalized_points::rounding like all
// others. With g = lane / 4 and t = lane % 4, a lane holds, for each k-slice, the features k_vector · t … of rows g and g + 8 and of column
// g. The order of the features in a product does not matter, so one 16-byte load feeds a product.
#pragma once

#include <cstdint>

#include "cuda/arch/memory.cuh"
#include "cuda/block/bits.cuh"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/tensor.cuh"

namespace ballast::kmeans::cuda {

// Converts a number to the format of packed_centroids::packed. Halves are clamped to ±65504.
__device__ __forceinline__ std::uint16_t as_operand(float value) {
  constexpr float most = 65504;
  return static_cast<std::uint16_t>(arch::to_halves(fminf(fmaxf(value, -most), most), 0));
}
__device__ __forceinline__ double as_operand(double value) { return value; }

// Returns the value that tensor cores multiply.
__device__ __forceinline__ float multiplied(float value) { return arch::from_half(as_operand(value)); }
__device__ __forceinline__ double multiplied(double value) { return value; }

// Products of rounded numbers are exact; sums are in T.
template <class T>
struct operands;

template <>
struct operands<float> : product_fragment<float> {
  using column = float2;             // one k-slice: two halves in each word
  static constexpr int k_words = 4;  // per lane, for the rows: 32-bit words

  static constexpr int k_tiles = k_operand_block / k_operand_rows;
  // One k-slice of a fragment's rows, in the order of the instruction's registers.
  struct rows {
    std::uint32_t at[k_words];
  };
  // Loads one k-slice of the tile of 16 rows that starts at row `first`, by the whole warp.
  __device__ static __forceinline__ rows load(const normalized_points<float>& from, int first, int slice, int stride) {
    const std::int64_t block = first / k_operand_block * std::int64_t{stride / k_slice<float>} + slice;
    const auto* const at = reinterpret_cast<const uint4*>(from.operand) + block * (k_tiles * 32) + first % k_operand_block * 2;
    const uint4 made = arch::load_table_late(at + threadIdx.x % 32);
    return {{made.x, made.y, made.z, made.w}};
  }
  // The same from shared memory: tile `tile` of a block, whose k-slices lie at `from`, beginning with some k-slice.
  __device__ static __forceinline__ rows read(const unsigned char* from, int tile, int slice) {
    const uint4 made = reinterpret_cast<const uint4*>(from)[(slice * k_tiles + tile) * 32 + static_cast<int>(threadIdx.x % 32)];
    return {{made.x, made.y, made.z, made.w}};
  }
  __device__ static __forceinline__ void multiply_add(float* scores, const rows& a, const column& b) {
    using ballast::cuda::bits;
    arch::mma_m16n8k16_f16(*reinterpret_cast<float(*)[k_scores]>(scores), a.at, {bits(b.x), bits(b.y)});
  }
};

template <>
struct operands<double> : tensor<double> {
  using column = vector;
  static constexpr int k_words = 4;
  __device__ static __forceinline__ rows load(const normalized_points<double>& from, int first, int slice, int stride) {
    const int g = static_cast<int>(threadIdx.x % 32 / 4), t = static_cast<int>(threadIdx.x % 4);
    const double* const at = from.x + (first + g) * std::int64_t{stride} + slice * k_slice<double> + t * k_vector<double>;
    const vector low = arch::load_table(reinterpret_cast<const vector*>(at)),
                 high = arch::load_table(reinterpret_cast<const vector*>(at + 8 * stride));
    return {{low.x, high.x, low.y, high.y}};
  }
};

}  // namespace ballast::kmeans::cuda
