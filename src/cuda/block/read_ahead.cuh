// One tile ahead: a bulk copy brings the next tile into shared memory while the block works on the one that it has.
// Layer: foundation, device code, sm_90 and later. One buffer: the copy of the next tile is asked for when all threads have read this one.
//   by one thread: init(); expect() and copy() for the first tile; a barrier of the block
//   for each tile: wait() by all threads; they read words(); a barrier of the block; expect() and copy() for the next tile by one thread
#pragma once

#include <cstdint>

#include "cuda/arch/async.cuh"

namespace ballast::cuda {

// Word: what the tile consists of. `memory`: Bytes of shared memory for the tile, aligned to 16, and 8 for the barrier behind it.
template <class Word, std::int64_t Bytes>
struct read_ahead {
  static_assert(Bytes % 8 == 0);
  static constexpr std::int64_t k_bytes = Bytes + 16;  // of shared memory that it takes

  unsigned char* memory;

  __device__ __forceinline__ Word* words() const { return reinterpret_cast<Word*>(memory); }
  __device__ __forceinline__ arch::mbarrier* full() const { return reinterpret_cast<arch::mbarrier*>(memory + Bytes); }

  __device__ __forceinline__ void init() const {
    arch::init_mbarrier(full(), 1);
    arch::fence_mbarrier_init();
  }
  // Asks for a tile of `bytes`: expect(), then copies that bring as many. Addresses and sizes are multiples of 16.
  __device__ __forceinline__ void expect(std::uint32_t bytes) const { arch::arrive_expect(full(), bytes); }
  __device__ __forceinline__ void copy(Word* to, const Word* from, std::uint32_t bytes) const { arch::load_bulk(to, from, bytes, full()); }
  // Until the tile is there. `parity`: 0 at first; each wait flips it.
  __device__ __forceinline__ void wait(unsigned& parity) const {
    arch::wait(full(), parity);
    parity ^= 1;
  }
};

}  // namespace ballast::cuda
