// Sums over the lanes of a warp, the threads of a block and the blocks of a cluster. The order of the additions depends only on the shape
// of the block, so the same data give the same bits.
// Layer: foundation, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/cluster.cuh"
#include "cuda/block/unroll.cuh"

namespace ballast::cuda {

// The lanes that this thread's warp has, in a block of `Threads`: its last warp may have fewer than 32.
template <int Threads>
__device__ __forceinline__ unsigned warp_mask() {
  if constexpr (Threads % 32 == 0) return 0xffffffffu;
  const int rest = Threads - static_cast<int>(threadIdx.x / 32 * 32);
  return rest >= 32 ? 0xffffffffu : (1u << rest) - 1;
}

// The value of the lane whose number differs by the bits of `distance`; 0 if the block has no such lane.
template <int Threads, class T>
__device__ __forceinline__ T from_partner(T value, int distance) {
  if constexpr (Threads % 32 == 0) return __shfl_xor_sync(0xffffffffu, value, distance);
  const unsigned mask = warp_mask<Threads>();
  const int own = static_cast<int>(threadIdx.x % 32);
  const bool there = (mask >> (own ^ distance) & 1) != 0;
  const T other = __shfl_sync(mask, value, there ? own ^ distance : own);
  return there ? other : T(0);
}

// Adds up each value, and each of `more`, over `Lanes` lanes that are `Near` apart, both powers of two: all of these lanes get the sums.
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

// Adds up each value over the first `lanes` lanes of a warp, a power of two: all of these get the sums. In a loop, for code that is
// executed once: its instructions have to be fetched for that.
template <int Count, class T>
__device__ __forceinline__ void add_lanes_in_loop(T (&value)[Count], int lanes = 32) {
#pragma unroll 1
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (T& each : value) each += __shfl_xor_sync(0xffffffffu, each, distance);
  }
}

// Sums over a block of whole warps: value v is added up over all threads, and thread v returns that sum, for v < Count. What other threads
// return is undefined. `partial`: shared memory for Count numbers of each warp; it may be used again after another barrier of the block.
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

// The sum of `value`, which thread 0 of each block of the cluster has, over its blocks: thread 0 of block 0 gets it in return; what other
// threads get is undefined. `gathered`: shared memory for one number of each block. Called by all threads; two barriers of the cluster,
// behind which the memory may be used again.
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
