// Barriers of a block, of some of its warps and of a cluster; mbarriers; and the shared memory of other blocks of a cluster.
// Layer: test emulator.
#include "simt/scheduler.hpp"

#include <fmt/format.h>

namespace simt {

int block_barrier(vote kind, int predicate, place where) {
  lane_state& self = *now.current;
  block_state& block = *self.block;
  if (block.live != static_cast<int>(block.lanes.size())) {
    fail(where, fmt::format("waits at a block barrier after {} threads of its block have returned",
                            static_cast<int>(block.lanes.size()) - block.live));
  }
  if (block.arrived == 0) {
    block.where = where;
    block.kind = kind;
    block.votes = 0;
  } else if (block.kind != kind || !same(block.where, where)) {
    fail(where, fmt::format("waits at this barrier while {} threads of its block wait at {}", block.arrived, name_of(block.where)));
  }
  block.votes += predicate != 0 ? 1 : 0;
  self.where = where;
  self.at_barrier = true;
  if (++block.arrived == block.live) {
    block.arrived = 0;
    block.outcome = block.votes;
    now.idle_spins = 0;
    for (warp_state& warp : block.warps) set_ready(warp, warp.live);
    for (lane_state* lane : block.lanes) lane->at_barrier = false;
  }
  wait();
  switch (kind) {
    case vote::none: return 0;
    case vote::any: return block.outcome > 0 ? 1 : 0;
    case vote::all: return block.outcome == static_cast<int>(block.lanes.size()) ? 1 : 0;
    case vote::count: return block.outcome;
  }
  return 0;
}

void group_barrier(int number, int threads, place where) {
  lane_state& self = *now.current;
  block_state& block = *self.block;
  if (number < 1 || number > 15) fail(where, fmt::format("expected a group barrier 1 to 15, got {}", number));
  if (threads < 32 || threads % 32 != 0 || threads > static_cast<int>(block.lanes.size())) {
    fail(where, fmt::format("expected a group of whole warps of a block of {} threads, got {} threads", block.lanes.size(), threads));
  }
  group_state& group = block.groups[number];
  if (group.arrived == 0) {
    group.expected = threads;
    group.where = where;
  } else if (group.expected != threads || !same(group.where, where)) {
    fail(where, fmt::format("waits with {} threads at group barrier {} while {} threads of its block wait there for {}, at {}", threads,
                            number, group.arrived, group.expected, name_of(group.where)));
  }
  self.where = where;
  self.at_barrier = true;
  self.group = number;
  if (++group.arrived == group.expected) {
    group.arrived = 0;
    now.idle_spins = 0;
    for (lane_state* lane : block.lanes) {
      if (lane->group != number) continue;
      lane->group = -1;
      lane->at_barrier = false;
      set_ready(*lane->warp, 1u << lane->lane);
    }
  }
  wait();
}

// --- mbarriers ---

namespace {

// In the 64 bits of an mbarrier: transaction bytes still due (signed), arrivals per phase, arrivals still due, phase, and a mark.
struct mbarrier {
  std::int64_t bytes;
  unsigned count;
  unsigned pending;
  unsigned phase;

  static constexpr std::uint64_t k_mark = 0x5b5;
  static mbarrier read(const std::uint64_t* at, place where) {
    require_aligned(at, 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, at, 8);
    if (bits >> 53 != k_mark) fail(where, fmt::format("not an initialised mbarrier: {:#018x}", bits));
    return {static_cast<std::int64_t>(bits << 40) >> 40, static_cast<unsigned>(bits >> 24 & 0x3fff),
            static_cast<unsigned>(bits >> 38 & 0x3fff), static_cast<unsigned>(bits >> 52 & 1)};
  }
  void write(std::uint64_t* at) {
    if (pending == 0 && bytes == 0) {
      phase ^= 1;
      pending = count;
      now.idle_spins = 0;
    }
    const std::uint64_t bits = (static_cast<std::uint64_t>(bytes) & 0xffffff) | static_cast<std::uint64_t>(count) << 24 |
                               static_cast<std::uint64_t>(pending) << 38 | static_cast<std::uint64_t>(phase) << 52 | k_mark << 53;
    std::memcpy(at, &bits, 8);
  }
};

}  // namespace

void count_bytes(std::uint64_t* barrier, std::int64_t bytes, place where) {
  mbarrier state = mbarrier::read(barrier, where);
  state.bytes += bytes;
  state.write(barrier);
}

void mbarrier_init(std::uint64_t* barrier, unsigned count, place where) {
  require_aligned(barrier, 8);
  require_shared(barrier, "an mbarrier", where);
  if (count == 0 || count > 0x3fff) fail(where, fmt::format("an mbarrier of the emulator expects 1 to 16383 arrivals, got {}", count));
  mbarrier{0, count, count, 0}.write(barrier);
}

void mbarrier_arrive(std::uint64_t* barrier, unsigned count, unsigned expected_bytes, place where) {
  mbarrier state = mbarrier::read(barrier, where);
  if (count > state.pending) fail(where, fmt::format("{} arrivals at an mbarrier that waits for {}", count, state.pending));
  state.bytes += expected_bytes;
  state.pending -= count;
  state.write(barrier);
}

bool mbarrier_test(std::uint64_t* barrier, unsigned parity, place where) {
  if (mbarrier::read(barrier, where).phase != (parity & 1)) return true;
  give_way(true);
  return mbarrier::read(barrier, where).phase != (parity & 1);
}

// --- clusters ---

void release_cluster_barrier(cluster_state& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  ++cluster.phase;
  now.idle_spins = 0;
  for (lane_state* lane : cluster.waiting) set_ready(*lane->warp, 1u << lane->lane);
  cluster.waiting.clear();
}

unsigned cluster_rank() { return static_cast<unsigned>(now.current->block->rank); }
unsigned cluster_size() { return static_cast<unsigned>(now.cluster); }

void cluster_arrive(place where) {
  lane_state& self = *now.current;
  cluster_state& cluster = *self.block->cluster;
  if (self.at_cluster_barrier) fail(where, "arrives a second time at the cluster barrier without a wait");
  self.at_cluster_barrier = true;
  self.where = where;
  self.cluster_phase = cluster.phase;
  ++cluster.arrived;
  release_cluster_barrier(cluster);
}

void cluster_wait(place where) {
  lane_state& self = *now.current;
  cluster_state& cluster = *self.block->cluster;
  if (!self.at_cluster_barrier) fail(where, "waits at the cluster barrier without having arrived");
  self.where = where;
  if (cluster.phase == self.cluster_phase) {
    cluster.waiting.push_back(&self);
    wait();
  }
  self.at_cluster_barrier = false;
}

void* cluster_map(const void* own, unsigned rank, place where) {
  block_state& block = *now.current->block;
  if (rank >= cluster_size()) fail(where, fmt::format("maps shared memory of block {} in a cluster of {}", rank, cluster_size()));
  block_state& peer = *block.cluster->blocks[rank];
  if (!peer.started)
    fail(where, fmt::format("maps shared memory of block {} of its cluster, which has not started: no cluster barrier before", rank));
  if (peer.live == 0) fail(where, fmt::format("maps shared memory of block {} of its cluster, which has ended", rank));
  const auto* byte = static_cast<const unsigned char*>(own);
  // A pointer to one past the end of the dynamic memory may be formed, so it may be mapped.
  if (block.dynamic.holds(own) || byte == block.dynamic.data() + block.dynamic.bytes())
    return peer.dynamic.data() + (byte - block.dynamic.data());
  for (const auto& object : block.statics) {
    if (!object.memory.holds(own)) continue;
    for (const auto& other : peer.statics) {
      if (other.key == object.key) return other.memory.data() + (byte - object.memory.data());
    }
    peer.statics.push_back({object.key, shared_memory(object.memory.bytes(), 1024)});
    peer.statics.back().memory.poison();
    return peer.statics.back().memory.data() + (byte - object.memory.data());
  }
  fail(where, "maps an address that is not in the shared memory of its block");
}

}  // namespace simt
