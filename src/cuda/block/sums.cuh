// Sums over the lanes of a warp, the threads of a block and the blocks of a cluster. The order of the additions depends only on the shape
// of the block, so the same data give the same bits.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/cluster.cuh"
#include "cuda/block/unroll.cuh"

namespace ballast::cuda {

// Returns the mask of the lanes of this thread's warp, in a block of `Threads` threads: the last warp may have fewer than 32 lanes.
template <int Threads>
__device__ __forceinline__ unsigned warp_mask() {
  if constexpr (Threads % 32 == 0) return 0xffffffffu;
  const int rest = Threads - static_cast<int>(threadIdx.x / 32 * 32);
  return rest >= 32 ? 0xffffffffu : (1u << rest) - 1;
}

// Returns the value of lane (own lane XOR distance); 0 if the block has no such lane.
template <int Threads, class T>
__device__ __forceinline__ T from_partner(T value, int distance) {
  if constexpr (Threads % 32 == 0) return __shfl_xor_sync(0xffffffffu, value, distance);
  const unsigned mask = warp_mask<Threads>();
  const int own = static_cast<int>(threadIdx.x % 32);
  const bool there = (mask >> (own ^ distance) & 1) != 0;
  const T other = __shfl_sync(mask, value, there ? own ^ distance : own);
  return there ? other : T(0);
}

// Sums each value, and each of `more`, over `Lanes` lanes at a distance of `Near`, both powers of two. All of these lanes get the sums.
template <int Threads, int Lanes, int Near, int Count, class T, class... More>
__device__ __forceinline__ void add_lanes(T (&value)[Count], More&... more) {
  unrolled<5>([&](auto level) {
    constexpr int distance = Near << decltype(level)::value;
    if constexpr (distance < Near * Lanes) {
      for (int v = 0; v < Count; ++v) value[v] += from_partner<Threads>(value[v], distance);
      ((more += from_partner<Threads>(more, distance)), ...);
    }
  });
}

// Sums each value over the first `lanes` lanes of a warp, a power of two. All of these lanes get the sums. The loop is not unrolled: it is
// for code that runs once, where fetching the instructions of an unrolled loop costs more.
template <int Count, class T>
__device__ __forceinline__ void add_lanes_in_loop(T (&value)[Count], int lanes = 32) {
#pragma unroll 1
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (T& each : value) each += __shfl_xor_sync(0xffffffffu, each, distance);
  }
}

// Sums value v over all threads of a block of whole warps; thread v returns that sum, for v < Count. The return value of other threads is
// undefined. `partial`: shared memory for Count numbers of each warp; it may be used again after another barrier of the block.
template <int Threads, int Count, class T>
__device__ __forceinline__ T add_block(T (&value)[Count], T* partial) {
  static_assert(Threads % 32 == 0 && Count <= Threads);
  constexpr int warps = Threads / 32;
  add_lanes<Threads, 32, 1>(value);
  if (threadIdx.x % 32 == 0) {
    for (int v = 0; v < Count; ++v) partial[threadIdx.x / 32 * Count + v] = value[v];
  }
  __syncthreads();
  T sum = 0;
  if (threadIdx.x < Count) {
    for (int w = 0; w < warps; ++w) sum += partial[w * Count + threadIdx.x];
  }
  return sum;
}

// Sums the `value` of thread 0 of each block over the blocks of the cluster; thread 0 of block 0 calls use(sum). `gathered`: shared memory
// for one number of each block. All threads call it. It contains two barriers of the cluster; after the second the memory may be used
// again.
template <int Blocks, class T, class Use>
__device__ __forceinline__ void add_cluster(int rank, T* gathered, const T& value, Use&& use) {
  if (threadIdx.x == 0) arch::store_remote(gathered + rank, 0, value);
  arch::cluster_sync();
  if (rank == 0 && threadIdx.x == 0) {
    T sum = 0;
    for (int i = 0; i < Blocks; ++i) sum += gathered[i];
    use(sum);
  }
  arch::cluster_sync();
}

}  // namespace ballast::cuda
