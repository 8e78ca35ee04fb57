// Barriers of a block, of some of its warps and of a cluster; access to the shared memory of other blocks of a cluster.
// Layer: test emulator.
#include "simt/scheduler.hpp"

#include <fmt/format.h>

namespace simt {

int block_barrier(vote kind, int predicate, code_location where) {
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

void group_barrier(int number, int threads, code_location where) {
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
unsigned cluster_size() { return static_cast<unsigned>(now.shape.cluster); }

void cluster_arrive(code_location where) {
  lane_state& self = *now.current;
  cluster_state& cluster = *self.block->cluster;
  if (self.at_cluster_barrier) fail(where, "arrives a second time at the cluster barrier without a wait");
  self.at_cluster_barrier = true;
  self.where = where;
  self.cluster_phase = cluster.phase;
  ++cluster.arrived;
  release_cluster_barrier(cluster);
}

void cluster_wait(code_location where) {
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

void* cluster_map(const void* own, unsigned rank, code_location where) {
  block_state& block = *now.current->block;
  if (rank >= cluster_size()) fail(where, fmt::format("maps shared memory of block {} in a cluster of {}", rank, cluster_size()));
  block_state& peer = *block.cluster->blocks[rank];
  if (!peer.started)
    fail(where, fmt::format("maps shared memory of block {} of its cluster, which has not started: no cluster barrier before", rank));
  if (peer.live == 0) fail(where, fmt::format("maps shared memory of block {} of its cluster, which has ended", rank));
  const auto* byte = static_cast<const unsigned char*>(own);
  // C++ allows a pointer one past the end of the dynamic memory, so it may be mapped.
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
