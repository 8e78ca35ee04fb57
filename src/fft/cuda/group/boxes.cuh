// Copies and exact sums of parts of arrays that are divided among devices.
// Layer: fft/cuda kernels; boxes.cpp launches them.
//
// A block takes tiles of 32 × 32 elements: axis 0 is contiguous where they are read. Thread (x, y) of 32 × 8 has four elements of a tile.
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "fft/cuda/group/box_arguments.hpp"

namespace ballast::fft::cuda {

// An element of 4, 8 or 16 bytes as words of at most 8.
template <int Bytes>
struct alignas(Bytes) box_element {
  std::uint64_t word[Bytes / 8];
};
template <>
struct alignas(4) box_element<4> {
  std::uint32_t word[1];
};

struct box_tile {
  std::int64_t i0, i1, i2;
};

// Tile number `tile` of a part: the indexes of its first element. Axis 2 has no tiles.
// There are fewer than 2³² tiles, since none of 2³² would fit into a memory; division of 64 bits would take longer than the tile.
__device__ __forceinline__ box_tile tile_at(std::int64_t tile, std::int64_t across, std::int64_t down) {
  const auto number = static_cast<std::uint32_t>(tile), columns = static_cast<std::uint32_t>(across);
  const std::uint32_t row = number / columns, plane = row / static_cast<std::uint32_t>(down);
  return {std::int64_t{number - row * columns} * k_box_tile, std::int64_t{row - plane * static_cast<std::uint32_t>(down)} * k_box_tile,
          std::int64_t{plane}};
}

__device__ __forceinline__ std::int64_t tiles_of(std::int64_t count) { return (count + k_box_tile - 1) / k_box_tile; }

// Turned: axis 1 is contiguous in the target. Shared memory: a tile, with one element between its rows; two barriers for each tile.
template <int Bytes, bool Turned>
__global__ void __launch_bounds__(k_box_threads) box_copy_kernel(const __grid_constant__ box_copy_arguments a) {
  using element = box_element<Bytes>;
  constexpr int rows = k_box_threads / k_box_tile, pitch = k_box_tile + 1;
  auto* const held = reinterpret_cast<element*>(arch::shared_memory());
  const auto* const from = static_cast<const element*>(a.from);
  auto* const to = static_cast<element*>(a.to);
  const int x = static_cast<int>(threadIdx.x) % k_box_tile, y = static_cast<int>(threadIdx.x) / k_box_tile;
  const std::int64_t across = tiles_of(a.count[0]), down = tiles_of(a.count[1]), tiles = across * down * a.count[2];
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const box_tile at = tile_at(tile, across, down);
    const element* const source = from + at.i0 * a.from_step[0] + at.i1 * a.from_step[1] + at.i2 * a.from_step[2];
    element* const target = to + at.i0 * a.to_step[0] + at.i1 * a.to_step[1] + at.i2 * a.to_step[2];
    element own[k_box_tile / rows];
#pragma unroll
    for (int r = 0; r < k_box_tile / rows; ++r) {
      const int i = y + r * rows;
      if (at.i0 + x < a.count[0] && at.i1 + i < a.count[1]) own[r] = source[x * a.from_step[0] + i * a.from_step[1]];
    }
    if constexpr (Turned) {
#pragma unroll
      for (int r = 0; r < k_box_tile / rows; ++r) {
        const int i = y + r * rows;
        if (at.i0 + x < a.count[0] && at.i1 + i < a.count[1]) held[i * pitch + x] = own[r];
      }
      __syncthreads();  // the tile is complete
#pragma unroll
      for (int r = 0; r < k_box_tile / rows; ++r) {
        const int i = y + r * rows;  // along axis 0 now, and x along axis 1
        if (at.i0 + i < a.count[0] && at.i1 + x < a.count[1]) target[i * a.to_step[0] + x * a.to_step[1]] = held[x * pitch + i];
      }
      __syncthreads();  // all have read the tile
    } else {
#pragma unroll
      for (int r = 0; r < k_box_tile / rows; ++r) {
        const int i = y + r * rows;
        if (at.i0 + x < a.count[0] && at.i1 + i < a.count[1]) target[x * a.to_step[0] + i * a.to_step[1]] = own[r];
      }
    }
  }
}

// Shared memory: partial sums of the warps. One barrier before their addition.
template <int Bytes>
__global__ void __launch_bounds__(k_box_threads) box_sum_kernel(const __grid_constant__ box_sum_arguments a) {
  using element = box_element<Bytes>;
  constexpr int rows = k_box_threads / k_box_tile, words = Bytes < 8 ? 1 : Bytes / 8;
  const auto* const from = static_cast<const element*>(a.from);
  const int x = static_cast<int>(threadIdx.x) % k_box_tile, y = static_cast<int>(threadIdx.x) / k_box_tile;
  const std::int64_t across = tiles_of(a.count[0]), down = tiles_of(a.count[1]), tiles = across * down * a.count[2];
  std::uint64_t sum[1] = {0};
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const box_tile at = tile_at(tile, across, down);
    if (at.i0 + x >= a.count[0]) continue;
    const element* const source = from + (at.i0 + x) * a.step[0] + at.i1 * a.step[1] + at.i2 * a.step[2];
    const std::int64_t number = a.first + (at.i0 + x) * a.number_step[0] + at.i1 * a.number_step[1] + at.i2 * a.number_step[2];
#pragma unroll
    for (int r = 0; r < k_box_tile / rows; ++r) {
      const int i = y + r * rows;
      if (at.i1 + i >= a.count[1]) continue;
      const element own = source[i * a.step[1]];
      const auto place = static_cast<std::uint64_t>((number + i * a.number_step[1]) * words);
#pragma unroll
      for (int w = 0; w < words; ++w) sum[0] += abft::spread_hash(own.word[w], place + static_cast<std::uint64_t>(w));
    }
  }
  const std::uint64_t all = ballast::cuda::add_block<k_box_threads>(sum, reinterpret_cast<std::uint64_t*>(arch::shared_memory()));
  if (threadIdx.x == 0) atomicAdd(a.sum, static_cast<unsigned long long>(all));
}

}  // namespace ballast::fft::cuda
