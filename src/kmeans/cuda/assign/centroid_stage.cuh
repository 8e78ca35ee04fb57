// The panel of centroids as the warps of a block read it: from global memory, whole from shared memory, or in chunks that pass through a
// ring there while they multiply. Long rows of points pass through the ring with it (pass_policy::rows).
// Layer: backend "cuda" of K-Means, device code. A ring needs sm_90: bulk copies and mbarriers.
// Order, by all warps of the block alike: for each group of tiles and each `depth` slabs of it: acquire(), reads, release(); or pass(), and
// release_passed() behind the group.
#pragma once

#include <cstdint>

#include "cuda/arch/async.cuh"
#include "cuda/arch/memory.cuh"
#include "cuda/arch/shared.cuh"
#include "kmeans/cuda/assign/pass.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P>
struct panel_stage {
  static constexpr bool k_ring = P.panel == panel_memory::ring;
  static constexpr bool k_loader = has_loader(P);
  static constexpr bool k_rows = P.rows;
  static constexpr int k_chunk_bytes = chunk_bytes<T>(P), k_row_bytes = row_chunk_bytes<T>(P), k_slot_bytes = slot_bytes<T>(P);
  // Chunks that are asked for ahead where a thread that multiplies does it. The others may still be read by warps that are behind it.
  static constexpr int k_ahead = P.slots > 3 ? P.slots - 2 : P.slots - 1;
  static_assert(!k_rows || can_pass_rows(P));
  static_assert(!k_ring || (P.slots >= 2 && P.slots <= k_most_slots));
  static constexpr int k_drawn = k_drawn_bytes / 4;
  static_assert(k_drawn > k_most_slots + 1);

  const unsigned char* packed;  // in global memory
  unsigned char* memory;        // in shared memory: panel_bytes, then column_bytes
  const T* columns;             // panel::columns
  arch::mbarrier* full;         // slots; then `empty`, slots
  int chunks;                   // of the panel
  bool asks;                    // this thread asks for chunks while it multiplies
  int slot = 0;                 // of the chunk that is read next
  unsigned parity = 0;          // of that slot
  int ask_slot = 0;
  unsigned ask_parity = 1;  // of its last release: none at first
  int ask_chunk = 0;
  std::int64_t left = 0;  // chunks that are still to be asked for
  volatile int* drawn;    // by the loader: of a tile of rows that is worked on, which is the next one; without a ring, the turns of teams
  int tile = 0;           // how many have been worked on

  // `sweeps`: how often the block reads the whole panel, where there is no loader. Followed by a barrier of the block.
  __device__ __forceinline__ panel_stage(const panel<T>& from, unsigned char* to, unsigned char* barriers, std::int64_t sweeps)
      : packed(reinterpret_cast<const unsigned char*>(from.packed)),
        memory(to),
        columns(P.columns ? reinterpret_cast<const T*>(to + panel_bytes<T>(P, from.shape)) : from.columns),
        full(reinterpret_cast<arch::mbarrier*>(barriers)),
        chunks(static_cast<int>(from.shape.template packed_bytes<T>() / k_chunk_bytes)),
        asks(!k_loader && threadIdx.x == 0),
        drawn(reinterpret_cast<int*>(barriers + k_barrier_bytes - k_drawn_bytes)) {
    if constexpr (P.columns) copy(from.columns, to + panel_bytes<T>(P, from.shape), column_bytes<T>(P, from.shape));
    if constexpr (P.panel == panel_memory::shared) {
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

  // By one thread of the loader: all chunks for the tile `first` of rows and those that draw(tile) says come behind it, below `tiles`, as
  // slots become free. Before the chunks of a tile it says which tile is next. `points`: where rows pass, too.
  template <class Draw>
  __device__ __forceinline__ void load(int first, int tiles, const placed_points<T>& points, Draw&& draw) {
    const int together = k_rows ? points.stride / k_slab<T> / P.depth : chunks;  // that have other slabs of the same centroids
    const auto* const rows = reinterpret_cast<const unsigned char*>(points.operand);
    for (int of = first; of < tiles; ++tile) {
      const unsigned char* const rows_of_tile = k_rows ? rows + std::int64_t{of} * together * k_row_bytes : nullptr;
      of = draw(of);
      drawn[tile % k_drawn] = of;
      const unsigned char* from = packed;
#pragma unroll 1
      for (int group = chunks / together; group > 0; --group) {
        const unsigned char* slabs = rows_of_tile;
#pragma unroll 1
        for (int c = 0; c < together; ++c, from += k_chunk_bytes, slabs += k_row_bytes) fill(from, slabs);
      }
    }
  }
  // Where there is a loader: the tile behind the one whose chunks are read next. Once for each tile.
  __device__ __forceinline__ int next_tile() {
    __syncwarp();
    arch::wait(full + slot, parity);
    __syncwarp();
    return drawn[tile++ % k_drawn];
  }

  // The chunk that is read next: `depth` slabs of a group of tiles. `group`, `slab`: which they are.
  __device__ __forceinline__ const unsigned char* acquire(const panel_shape& shape, int group, int slab) {
    if constexpr (k_ring) {
      if (asks) ask();
      __syncwarp();
      arch::wait(full + slot, parity);
      __syncwarp();
      return memory + slot * k_slot_bytes;
    } else if constexpr (P.panel == panel_memory::shared) {
      return memory + (group * shape.slabs + slab) * (P.tiles * k_slab_bytes<T>);
    } else {
      return packed + (std::int64_t{group} * shape.slabs + slab) * (P.tiles * k_slab_bytes<T>);
    }
  }
  // In place of release(), where a chunk may be read while the next ones are: these are released together, the last `count`, at most Most.
  __device__ __forceinline__ void pass() {
    if (++slot == P.slots) slot = 0, parity ^= 1;
  }
  template <int Most>
  __device__ __forceinline__ void release_passed(int count) {
    static_assert(k_loader && Most < P.slots);
    fence_reads();
    __syncwarp();  // all lanes have read them
    const auto each = static_cast<int>(threadIdx.x % 32);
    if (each < count) {
      const int of = slot - 1 - each;
      arch::arrive(full + P.slots + (of < 0 ? of + P.slots : of));
    }
  }
  __device__ __forceinline__ void release() {
    if constexpr (k_ring) {
      fence_reads();
      __syncwarp();  // all lanes have read it
      if (threadIdx.x % 32 == 0) arch::arrive(full + P.slots + slot);
      if (++slot == P.slots) slot = 0, parity ^= 1;
    }
  }

 private:
  // Ordinary reads, before a copy that overwrites. wgmma reads in the order of the copies.
  __device__ static __forceinline__ void fence_reads() {
    if constexpr (P.unit == product_unit::warp || k_rows) arch::fence_async_shared();
  }
  __device__ static __forceinline__ void copy(const void* from, unsigned char* to, std::int64_t bytes) {
    const auto count = static_cast<int>(bytes / 16);
    for (int e = static_cast<int>(threadIdx.x); e < count; e += 32 * P.warps)
      reinterpret_cast<float4*>(to)[e] = arch::load_table(static_cast<const float4*>(from) + e);
  }

  // Asks for a chunk of the panel, and of rows where these pass, once its slot has been read by all warps.
  __device__ __forceinline__ void fill(const unsigned char* from, [[maybe_unused]] const unsigned char* rows) {
    arch::wait(full + P.slots + ask_slot, ask_parity);
    unsigned char* const to = memory + ask_slot * k_slot_bytes;
    arch::arrive_expect(full + ask_slot, k_slot_bytes);
    arch::load_bulk(to, from, k_chunk_bytes, full + ask_slot);
    if constexpr (k_rows) arch::load_bulk(to + k_chunk_bytes, rows, k_row_bytes, full + ask_slot);
    if (++ask_slot == P.slots) ask_slot = 0, ask_parity ^= 1;
  }
  // By a thread that multiplies: the next one, if any is left.
  __device__ __forceinline__ void ask() {
    if (left == 0) return;
    --left;
    fill(packed + static_cast<std::int64_t>(ask_chunk) * k_chunk_bytes, nullptr);
    if (++ask_chunk == chunks) ask_chunk = 0;
  }
};

}  // namespace ballast::kmeans::cuda
