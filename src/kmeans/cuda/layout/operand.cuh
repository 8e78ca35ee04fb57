// Operands of a pass on tensor cores: how a warp holds rows of points, columns of centroids and their scores.
// Layer: backend "cuda" of K-Means, device code, over cuda/arch/mma.cuh.
// f32 is multiplied in halves: they have the 11 bits of TF32 at twice its speed and in half its bytes. What they lack is range, and the
// frame brings coordinates near 1; the roundings of very small ones are in placed_points::rounding as all others.
// With g = lane / 4 and t = lane % 4, a lane holds of a slab the features k_vector · t … of rows g and g + 8 and of column g.
// The order of the features in a product does not matter, so one load of 16 bytes feeds a product.
#pragma once

#include <cstdint>

#include "cuda/arch/memory.cuh"
#include "cuda/block/bits.cuh"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/tensor.cuh"

namespace ballast::kmeans::cuda {

// A number as panel::packed has it. Halves end at ±65504.
__device__ __forceinline__ std::uint16_t as_operand(float value) {
  constexpr float most = 65504;
  return static_cast<std::uint16_t>(arch::to_halves(fminf(fmaxf(value, -most), most), 0));
}
__device__ __forceinline__ double as_operand(double value) { return value; }

// A number as a product sees it.
__device__ __forceinline__ float multiplied(float value) { return arch::from_half(as_operand(value)); }
__device__ __forceinline__ double multiplied(double value) { return value; }

// Products of rounded numbers are exact, sums are in T.
template <class T>
struct operands;

template <>
struct operands<float> : product_fragment<float> {
  using column = float2;             // of a slab: two halves in each
  static constexpr int k_words = 4;  // of rows

  static constexpr int k_tiles = k_operand_block / k_operand_rows;
  // One slab of a fragment's rows, in the order of the instruction's registers.
  struct rows {
    std::uint32_t at[k_words];
  };
  // Of the tile of 16 rows from `first` on, by the whole warp.
  __device__ static __forceinline__ rows load(const placed_points<float>& from, int first, int slab, int stride) {
    const std::int64_t block = first / k_operand_block * std::int64_t{stride / k_slab<float>} + slab;
    const auto* const at = reinterpret_cast<const uint4*>(from.operand) + block * (k_tiles * 32) + first % k_operand_block * 2;
    const uint4 made = arch::load_table_late(at + threadIdx.x % 32);
    return {{made.x, made.y, made.z, made.w}};
  }
  // The same from shared memory: of tile `tile` of a block, whose slabs from some one on lie there.
  __device__ static __forceinline__ rows read(const unsigned char* from, int tile, int slab) {
    const uint4 made = reinterpret_cast<const uint4*>(from)[(slab * k_tiles + tile) * 32 + static_cast<int>(threadIdx.x % 32)];
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
  __device__ static __forceinline__ rows load(const placed_points<double>& from, int first, int slab, int stride) {
    const int g = static_cast<int>(threadIdx.x % 32 / 4), t = static_cast<int>(threadIdx.x % 4);
    const double* const at = from.x + (first + g) * std::int64_t{stride} + slab * k_slab<double> + t * k_vector<double>;
    const vector low = arch::load_table(reinterpret_cast<const vector*>(at)),
                 high = arch::load_table(reinterpret_cast<const vector*>(at + 8 * stride));
    return {{low.x, high.x, low.y, high.y}};
  }
};

}  // namespace ballast::kmeans::cuda
