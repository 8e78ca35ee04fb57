// Prefetches one tile: a bulk copy loads the next tile into shared memory while the block works on the current one in registers.
// Layer: foundation, device code, sm_90 and later.
// There is one buffer: the copy of the next tile starts after all threads have read this one. Order of calls:
//   at first, one thread: init(); expect() and copy() for the first tile; then a barrier of the block
//   for each tile: all threads wait() and read words(); a barrier of the block; one thread calls expect() and copy() for the next tile
#pragma once

#include <cstdint>

#include "cuda/arch/async.cuh"

namespace ballast::cuda {

// Word: the type of the tile's elements. `memory`: shared memory, aligned to 16 bytes: Bytes for the tile, then 8 for the mbarrier.
template <class Word, std::int64_t Bytes>
struct read_ahead {
  static_assert(Bytes % 8 == 0);
  static constexpr std::int64_t k_bytes = Bytes + 16;  // bytes of shared memory in all

  unsigned char* memory;

  __device__ __forceinline__ Word* words() const { return reinterpret_cast<Word*>(memory); }
  __device__ __forceinline__ arch::mbarrier* full() const { return reinterpret_cast<arch::mbarrier*>(memory + Bytes); }

  __device__ __forceinline__ void init() const {
    arch::init_mbarrier(full(), 1);
    arch::fence_mbarrier_init();
  }
  // Start the load of a tile: call expect(bytes), then copy() for as many bytes in all. Addresses and sizes are multiples of 16.
  __device__ __forceinline__ void expect(std::uint32_t bytes) const { arch::arrive_expect(full(), bytes); }
  __device__ __forceinline__ void copy(Word* to, const Word* from, std::uint32_t bytes) const { arch::load_bulk(to, from, bytes, full()); }
  // Waits until the tile has arrived. `parity`: 0 at first; each wait flips it.
  __device__ __forceinline__ void wait(unsigned& parity) const {
    arch::wait(full(), parity);
    parity ^= 1;
  }
};

}  // namespace ballast::cuda
