// Supplies packed centroids to the warps of a block: from global memory, all from shared memory, or in chunks that pass through a ring in
// shared memory during the products. Long rows of points pass through the ring with them (pass_policy::rows).
// Layer: backend "cuda" of K-Means, device code. A ring needs sm_90: bulk copies and mbarriers.
// Order of calls, the same in all warps of the block: for each group of tiles, and each `depth` k-slices of it, acquire(), reads,
// release(); or pass(), and release_passed() after the group.
#pragma once

#include <cstdint>

#include "cuda/arch/async.cuh"
#include "cuda/arch/memory.cuh"
#include "cuda/arch/shared.cuh"
#include "kmeans/cuda/assign/pass.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P>
struct centroid_stage {
  static constexpr bool k_ring = P.centroids == centroid_memory::ring;
  static constexpr bool k_loader = has_loader(P);
  static constexpr bool k_rows = P.rows;
  static constexpr int k_chunk_bytes = chunk_bytes<T>(P), k_row_bytes = row_chunk_bytes<T>(P), k_slot_bytes = slot_bytes<T>(P);
  // Chunks that are requested ahead if a thread that multiplies requests them. Slower warps may still read the others.
  static constexpr int k_ahead = P.slots > 3 ? P.slots - 2 : P.slots - 1;
  static_assert(!k_rows || can_pass_rows(P));
  static_assert(!k_ring || (P.slots >= 2 && P.slots <= k_most_slots));
  static constexpr int k_drawn = k_drawn_bytes / 4;
  static_assert(k_drawn > k_most_slots + 1);

  const unsigned char* packed;  // in global memory
  unsigned char* memory;        // in shared memory: centroid_bytes, then column_bytes
  const T* columns;             // packed_centroids::columns
  arch::mbarrier* full;         // slots; then `empty`, slots
  int chunks;                   // number of chunks of packed centroids
  bool asks;                    // true if this thread requests chunks while it multiplies
  int slot = 0;                 // slot of the chunk that is read next
  unsigned parity = 0;          // parity of `slot`
  int ask_slot = 0;
  unsigned ask_parity = 1;  // parity of the last release of ask_slot: none at first
  int ask_chunk = 0;
  std::int64_t left = 0;  // chunks that remain to be requested
  volatile int* drawn;    // stored by the loader: for each tile of rows, the next one; without a ring, the turns of teams
  int tile = 0;           // number of tiles processed

  // Copies or requests the first data. `sweeps`: how often the block reads all packed centroids, if there is no loader. A barrier of the
  // block must follow.
  __device__ __forceinline__ centroid_stage(const packed_centroids<T>& from, unsigned char* to, unsigned char* barriers,
                                            std::int64_t sweeps)
      : packed(reinterpret_cast<const unsigned char*>(from.packed)),
        memory(to),
        columns(P.columns ? reinterpret_cast<const T*>(to + centroid_bytes<T>(P, from.shape)) : from.columns),
        full(reinterpret_cast<arch::mbarrier*>(barriers)),
        chunks(static_cast<int>(from.shape.template packed_bytes<T>() / k_chunk_bytes)),
        asks(!k_loader && threadIdx.x == 0),
        drawn(reinterpret_cast<int*>(barriers + k_barrier_bytes - k_drawn_bytes)) {
    if constexpr (P.columns) copy(from.columns, to + centroid_bytes<T>(P, from.shape), column_bytes<T>(P, from.shape));
    if constexpr (P.centroids == centroid_memory::shared) {
      copy(packed, memory, from.shape.template packed_bytes<T>());
      if constexpr (P.unit == product_unit::warpgroup) arch::fence_async_shared();
    }
    if constexpr (k_ring) {
      left = sweeps * chunks;
      if (threadIdx.x == 0) {
        for (int s = 0; s < P.slots; ++s) {
          arch::init_mbarrier(full + s, 1);
          arch::init_mbarrier(full + P.slots + s, P.warps);
        }
        arch::fence_mbarrier_init();
        for (int i = 0; asks && i < k_ahead; ++i) ask();
      }
    }
  }

  // Loads all chunks for the tile `first` of rows, and for the tiles below `tiles` that draw(tile) returns for each next one, as slots
  // become free. Stores the number of the next tile before it loads the chunks of a tile. `points`: used if rows pass through the ring.
  // Called by one thread of the loader.
  template <class Draw>
  __device__ __forceinline__ void load(int first, int tiles, const normalized_points<T>& points, Draw&& draw) {
    const int together = k_rows ? points.stride / k_slice<T> / P.depth : chunks;  // chunks with different k-slices of the same centroids
    const auto* const rows = reinterpret_cast<const unsigned char*>(points.operand);
    for (int of = first; of < tiles; ++tile) {
      const unsigned char* const rows_of_tile = k_rows ? rows + std::int64_t{of} * together * k_row_bytes : nullptr;
      of = draw(of);
      drawn[tile % k_drawn] = of;
      const unsigned char* from = packed;
#pragma unroll 1
      for (int group = chunks / together; group > 0; --group) {
        const unsigned char* slices = rows_of_tile;
#pragma unroll 1
        for (int c = 0; c < together; ++c, from += k_chunk_bytes, slices += k_row_bytes) fill(from, slices);
      }
    }
  }
  // With a loader: returns the tile after the one whose chunks are read next. Call once per tile.
  __device__ __forceinline__ int next_tile() {
    __syncwarp();
    arch::wait(full + slot, parity);
    __syncwarp();
    return drawn[tile++ % k_drawn];
  }

  // Waits for the chunk that is read next and returns it: `depth` k-slices of a group of tiles. `group`, `slice`: its position.
  __device__ __forceinline__ const unsigned char* acquire(const packed_shape& shape, int group, int slice) {
    if constexpr (k_ring) {
      if (asks) ask();
      __syncwarp();
      arch::wait(full + slot, parity);
      __syncwarp();
      return memory + slot * k_slot_bytes;
    } else if constexpr (P.centroids == centroid_memory::shared) {
      return memory + (group * shape.slices + slice) * (P.tiles * k_slice_bytes<T>);
    } else {
      return packed + (std::int64_t{group} * shape.slices + slice) * (P.tiles * k_slice_bytes<T>);
    }
  }
  // pass() replaces release() if a chunk may be read while the next ones are. release_passed() releases the last `count` (at most Most)
  // together.
  __device__ __forceinline__ void pass() {
    if (++slot == P.slots) slot = 0, parity ^= 1;
  }
  template <int Most>
  __device__ __forceinline__ void release_passed(int count) {
    static_assert(k_loader && Most < P.slots);
    fence_reads();
    __syncwarp();  // all lanes have read the chunks
    const auto each = static_cast<int>(threadIdx.x % 32);
    if (each < count) {
      const int of = slot - 1 - each;
      arch::arrive(full + P.slots + (of < 0 ? of + P.slots : of));
    }
  }
  __device__ __forceinline__ void release() {
    if constexpr (k_ring) {
      fence_reads();
      __syncwarp();  // all lanes have read the chunk
      if (threadIdx.x % 32 == 0) arch::arrive(full + P.slots + slot);
      if (++slot == P.slots) slot = 0, parity ^= 1;
    }
  }

 private:
  // Orders ordinary reads before the copy that overwrites them. Reads of wgmma are ordered with copies anyway.
  __device__ static __forceinline__ void fence_reads() {
    if constexpr (P.unit == product_unit::warp || k_rows) arch::fence_async_shared();
  }
  __device__ static __forceinline__ void copy(const void* from, unsigned char* to, std::int64_t bytes) {
    const auto count = static_cast<int>(bytes / 16);
    for (int e = static_cast<int>(threadIdx.x); e < count; e += 32 * P.warps)
      reinterpret_cast<float4*>(to)[e] = arch::load_table(static_cast<const float4*>(from) + e);
  }

  // Requests a chunk of packed centroids, and of rows if these pass through the ring, once all warps have read its slot.
  __device__ __forceinline__ void fill(const unsigned char* from, [[maybe_unused]] const unsigned char* rows) {
    arch::wait(full + P.slots + ask_slot, ask_parity);
    unsigned char* const to = memory + ask_slot * k_slot_bytes;
    arch::arrive_expect(full + ask_slot, k_slot_bytes);
    arch::load_bulk(to, from, k_chunk_bytes, full + ask_slot);
    if constexpr (k_rows) arch::load_bulk(to + k_chunk_bytes, rows, k_row_bytes, full + ask_slot);
    if (++ask_slot == P.slots) ask_slot = 0, ask_parity ^= 1;
  }
  // Requests the next chunk, if one is left. Called by a thread that multiplies.
  __device__ __forceinline__ void ask() {
    if (left == 0) return;
    --left;
    fill(packed + static_cast<std::int64_t>(ask_chunk) * k_chunk_bytes, nullptr);
    if (++ask_chunk == chunks) ask_chunk = 0;
  }
};

}  // namespace ballast::kmeans::cuda
