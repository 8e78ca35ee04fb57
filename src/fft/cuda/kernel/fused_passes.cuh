// Two passes in one launch: the second reads the results of the first while they are in the L2 cache, even if the cache cannot hold all of
// them.
// Layer: fft/cuda kernels; the tiles are those of line.cuh.
//
// The launch has as many blocks as fit on the device. They draw tickets; a ticket is one tile of either pass (policy.hpp: fused_arguments).
// A tile of the second pass waits until all tiles of the first pass that it depends on are stored. A tile of the first pass waits until its
// slot of the ring has been read. Deadlock is impossible: a tile only waits for tiles with earlier tickets, which resident blocks have
// drawn, and the block with the oldest open ticket waits for no other block. So there is progress with any number of blocks.
// Memory order. Writer: the stores of the block, its barrier, then an atomic addition with release order to the counter by one thread.
// Reader: a load of the counter with acquire order by one thread, the barrier of its block, then loads that bypass L1.
#pragma once

#include "cuda/block/twice.cuh"
#include "fft/cuda/kernel/line.cuh"

namespace ballast::fft::cuda {

template <class Injector>
struct fused_launch {
  line_launch<Injector> first, second;
  fused_arguments pair;
};

// A ticket, read by one thread for its block. It is in shared memory, after the memory of the tiles.
struct ticket_record {
  std::int64_t shift;         // line_tile::shared_shift
  const std::uint32_t* wait;  // the counter that the tile waits for
  std::uint32_t least;        // the tile starts when the counter is at least this
  std::uint32_t* done;        // the counter that is incremented when the tile is stored
  std::uint32_t tile;
  std::uint32_t kind;  // 0: no more tiles; 1, 2: the pass
  std::uint32_t open;  // not 0: the counter was below `least` when the ticket was read
};
static_assert(2 * sizeof(ticket_record) <= k_ticket_bytes);

__device__ __forceinline__ bool second_may_start(const ticket_record& r) {
  // The difference is signed because counters wrap; no device has room for 2^31 tiles.
  return static_cast<std::int32_t>(arch::load_acquire(r.wait) - r.least) >= 0;
}

__device__ __forceinline__ void read_ticket(const fused_arguments& p, std::uint32_t ticket, ticket_record& r) {
  const std::uint32_t ahead = p.ahead * p.first_tiles;
  const std::uint32_t both = p.first_tiles + p.second_tiles;
  const std::uint32_t turns = (p.units - p.ahead) * both;
  std::uint32_t unit = 0;
  std::uint32_t of_unit = ticket;
  r.kind = 1;
  if (ticket < ahead) {
    unit = ticket / p.first_tiles;
    of_unit -= unit * p.first_tiles;
  } else if (ticket - ahead < turns) {
    const std::uint32_t turn = (ticket - ahead) / both;
    of_unit = ticket - ahead - turn * both;
    unit = turn + p.ahead;
    if (of_unit >= p.first_tiles) {
      unit = turn;
      of_unit -= p.first_tiles;
      r.kind = 2;
    }
  } else {
    const std::uint32_t left = (ticket - ahead - turns) / p.second_tiles;
    of_unit = ticket - ahead - turns - left * p.second_tiles;
    unit = p.units - p.ahead + left;
    r.kind = left < p.ahead ? 2 : 0;
  }
  if (r.kind == 0) {
    r.open = 0;
    return;
  }
  const std::uint32_t round = unit / p.slots;
  const std::uint32_t slot = unit - round * p.slots;
  std::uint32_t* const counters = p.counters + 2 + 2 * slot;
  r.shift = p.slot_elements == 0 ? 0 : slot * p.slot_elements - unit * p.unit_elements;
  if (r.kind == 1) {
    r.tile = unit * p.first_tiles + of_unit;
    r.wait = counters + 1;
    r.least = round * p.second_tiles;
    r.done = counters;
  } else {
    const std::uint32_t outer = unit / p.groups;
    r.tile = (outer * p.second_tiles + of_unit) * p.groups + unit - outer * p.groups;
    r.wait = counters;
    r.least = (round + 1) * p.first_tiles;
    r.done = counters + 1;
  }
  r.open = r.least != 0 && !second_may_start(r) ? 1 : 0;
}

template <line_policy P, class Injector>
__device__ __forceinline__ void run_tile(const line_launch<Injector>& given, const ticket_record& r) {
  line_tile<P, Injector> tile(given);
  if constexpr (P.shared_source || P.shared_target) tile.shared_shift = r.shift;
  tile.select(r.tile);
  tile.run();
}

template <line_policy First, line_policy Second, class Injector>
__global__ void __launch_bounds__(First.block(), First.min_blocks) fused_kernel(const __grid_constant__ fused_launch<Injector> given) {
  static_assert(First.block() == Second.block() && First.min_blocks == Second.min_blocks);
  static_assert(!First.staged && !Second.staged && First.shared_target && Second.shared_source);
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  const fused_arguments& p = given.pair;
  auto* const records = reinterpret_cast<ticket_record*>(arch::shared_memory() + ticket_offset(First, Second));
  // One thread reads tickets and another counts finished tiles. They are in different warps if the block has two.
  const bool reads = threadIdx.x == First.block() - 1;
  if (reads) read_ticket(p, atomicAdd(p.counters, 1u), records[0]);
  __syncthreads();
  for (unsigned turn = 0;; turn ^= 1) {
    const ticket_record& now = records[turn];
    if (now.kind == 0) break;
    if (now.open != 0) {
      if (reads) {
        while (!second_may_start(now)) arch::spin_wait();
      }
      __syncthreads();
    }
    std::uint32_t next = 0;
    if (reads) next = atomicAdd(p.counters, 1u);
    if (now.kind == 1) {
      run_tile<First>(given.first, now);
    } else {
      run_tile<Second>(given.second, now);
    }
    if (reads) read_ticket(p, next, records[turn ^ 1]);
    std::uint32_t* const done = now.done;
    __syncthreads();
    if (threadIdx.x == 0) arch::atomic_add_release(done, 1u);
  }
  // The last block resets the counters to 0 for the next launch.
  const bool last = threadIdx.x == 0 && arch::atomic_add_acq_rel(p.counters + 1, 1u) == gridDim.x - 1;
  if (__syncthreads_or(last) != 0) {
    for (std::uint32_t i = threadIdx.x; i < fusion_counters(p.slots); i += First.block()) ballast::cuda::reset_counter(p.counters + i);
  }
}

}  // namespace ballast::fft::cuda
