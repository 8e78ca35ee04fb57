// Two passes in one launch: the second reads the results of the first while they are in the L2 cache, which need not hold all of them.
// Layer: fft/cuda kernels; tiles are those of line.cuh.
// As many blocks as the device holds take tickets; a ticket is one tile of either pass (policy.hpp: pair_arguments). A tile of the second
// pass waits until all tiles of the first pass that it depends on are stored. A tile of the first pass waits until its slot of the ring has
// been read. What a tile waits for has an earlier ticket, drawn by a block that runs: the block with the oldest open ticket waits for
// nobody, so there is always progress, however few blocks there are. Order of memory, writer: the block's stores, its barrier, one thread's
// releasing addition to the counter. Reader: one thread's acquiring load of the counter, the barrier of its block, loads that do not go
// through L1.
#pragma once

#include "fft/cuda/kernel/line.cuh"

namespace ballast::fft::cuda {

template <class Injector>
struct pair_launch {
  line_launch<Injector> first, second;
  pair_arguments pair;
};

// A ticket, as one thread reads it for its block. In shared memory, behind the memory of the tiles.
struct ticket_record {
  std::int64_t shift;         // line_tile::shared_shift
  const std::uint32_t* wait;  // the counter that the tile waits for
  std::uint32_t least;        // until it is at least this
  std::uint32_t* done;        // the counter that the tile is added to
  std::uint32_t tile;
  std::uint32_t kind;  // 0: no more tiles; 1, 2: the pass
  std::uint32_t open;  // not 0: the counter was less when the ticket was read
};
static_assert(2 * sizeof(ticket_record) <= k_ticket_bytes);

__device__ __forceinline__ bool pair_may_start(const ticket_record& r) {
  // Counters grow, and no device has room for 2^31 tiles.
  return static_cast<std::int32_t>(arch::load_acquire(r.wait) - r.least) >= 0;
}

__device__ __forceinline__ void read_ticket(const pair_arguments& p, std::uint32_t ticket, ticket_record& r) {
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
  r.open = r.least != 0 && !pair_may_start(r) ? 1 : 0;
}

template <line_policy P, class Injector>
__device__ __forceinline__ void run_tile(const line_launch<Injector>& given, const ticket_record& r) {
  line_tile<P, Injector> tile(given);
  if constexpr (P.shared_source || P.shared_target) tile.shared_shift = r.shift;
  tile.select(r.tile);
  tile.run();
}

template <line_policy First, line_policy Second, class Injector>
__global__ void __launch_bounds__(First.block(), First.min_blocks) pair_kernel(const __grid_constant__ pair_launch<Injector> given) {
  static_assert(First.block() == Second.block() && First.min_blocks == Second.min_blocks);
  static_assert(!First.staged && !Second.staged && First.shared_target && Second.shared_source);
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  const pair_arguments& p = given.pair;
  auto* const records = reinterpret_cast<ticket_record*>(arch::shared_memory() + ticket_offset(First, Second));
  // One thread reads tickets, another counts finished tiles: threads of different warps if the block has two.
  const bool reads = threadIdx.x == First.block() - 1;
  if (reads) read_ticket(p, atomicAdd(p.counters, 1u), records[0]);
  __syncthreads();
  for (unsigned turn = 0;; turn ^= 1) {
    const ticket_record& now = records[turn];
    if (now.kind == 0) break;
    if (now.open != 0) {
      if (reads) {
        while (!pair_may_start(now)) arch::spin_wait();
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
  // The last block sets the counters back to 0 for the next launch.
  const bool last = threadIdx.x == 0 && arch::atomic_add_acq_rel(p.counters + 1, 1u) == gridDim.x - 1;
  if (__syncthreads_or(last) != 0) {
    for (std::uint32_t i = threadIdx.x; i < pair_counters(p.slots); i += First.block()) p.counters[i] = 0;
  }
}

}  // namespace ballast::fft::cuda
