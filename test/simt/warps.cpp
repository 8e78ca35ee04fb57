// Operations in which the lanes of a warp meet, and matrix products of a warpgroup.
// Layer: test emulator.
#include "simt/scheduler.hpp"

#include <bit>

#include <fmt/format.h>

namespace simt {
namespace {

void check_mask(const warp_state& warp, int lane, unsigned mask, code_location where) {
  if ((mask >> lane & 1) == 0) fail(where, fmt::format("lane {} is not in its own mask {:#010x}", lane, mask));
  if ((mask & ~warp.live) != 0) fail(where, fmt::format("mask {:#010x} has lanes that have returned: {:#010x}", mask, mask & ~warp.live));
}

// Returns true if the running lane is the last of its mask to arrive. Then it checks that the others wait in the same operation at the same
// place.
bool last_to_meet(warp_state& warp, int lane, unsigned mask, meeting kind, code_location where) {
  mask &= warp.present;
  check_mask(warp, lane, mask, where);
  warp.mask[lane] = mask;
  warp.kind[lane] = kind;
  warp.where[lane] = where;
  warp.waiting |= 1u << lane;
  if ((warp.waiting & mask) != mask) return false;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int other = std::countr_zero(left);
    if (warp.mask[other] != mask) {
      fail(where, fmt::format("mask {:#010x}, but lane {} came with mask {:#010x} at {}", mask, other, warp.mask[other],
                              name_of(warp.where[other])));
    }
    if (warp.kind[other] != kind || !same(warp.where[other], where)) {
      fail(where, fmt::format("lane {} is in another warp operation, at {}", other, name_of(warp.where[other])));
    }
  }
  warp.waiting &= ~mask;
  set_ready(warp, mask & ~(1u << lane));
  return true;
}

}  // namespace

std::uint64_t warp_exchange(unsigned mask, std::uint64_t value, int source, code_location where) {
  const int lane = now.current->lane;
  warp_state& warp = *now.current->warp;
  mask &= warp.present;
  if ((mask >> source & 1) == 0) fail(where, fmt::format("reads from lane {}, which is not in the mask {:#010x}", source, mask));
  warp.value[lane] = value;
  warp.source[lane] = source;
  if (last_to_meet(warp, lane, mask, meeting::exchange, where)) {
    for (unsigned left = mask; left != 0; left &= left - 1) {
      const int to = std::countr_zero(left);
      warp.result[to] = warp.value[warp.source[to]];
    }
  } else {
    wait();
  }
  return warp.result[lane];
}

unsigned warp_ballot(unsigned mask, bool predicate, code_location where) {
  const int lane = now.current->lane;
  warp_state& warp = *now.current->warp;
  mask &= warp.present;
  warp.value[lane] = predicate ? 1u << lane : 0u;
  if (last_to_meet(warp, lane, mask, meeting::ballot, where)) {
    std::uint64_t ballot = 0;
    for (unsigned left = mask; left != 0; left &= left - 1) ballot |= warp.value[std::countr_zero(left)];
    for (unsigned left = mask; left != 0; left &= left - 1) warp.result[std::countr_zero(left)] = ballot;
  } else {
    wait();
  }
  return static_cast<unsigned>(warp.result[lane]);
}

// Uses the FMA instructions of the processor, if it has them, because the fma of the C library is a function call.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("fma", "default")))
#endif
void multiply_add(int m, int n, int k, const double* a, const double* b, double* d) {
  for (int row = 0; row < m; ++row) {
    for (int i = 0; i < k; ++i) {
      for (int column = 0; column < n; ++column)
        d[row * n + column] = __builtin_fma(a[row * k + i], b[i * n + column], d[row * n + column]);
    }
  }
}

void warp_collective(unsigned mask, void* operand, void (*combine)(void* const* operands, unsigned mask), code_location where) {
  const int lane = now.current->lane;
  warp_state& warp = *now.current->warp;
  mask &= warp.present;
  warp.operand[lane] = operand;
  if (last_to_meet(warp, lane, mask, meeting::collective, where)) {
    combine(warp.operand, mask);
  } else {
    wait();
  }
}

void product_begin(const void* operand, int size, void (*perform)(const unsigned char* operands, int size), code_location where) {
  lane_state& self = *now.current;
  block_state& block = *self.block;
  const int first = self.warp->number / 4 * 4;  // warp of the warpgroup
  if ((first + 4) * 32 > static_cast<int>(block.lanes.size())) fail(where, "a product needs a warpgroup of 128 threads");
  warpgroup_state& group = block.warpgroups[static_cast<std::size_t>(first / 4)];
  if (group.arrived == 0) {
    group.where = where;
    group.next = {perform, size, self.products, std::vector<unsigned char>(static_cast<std::size_t>(128 * size))};
  } else if (!same(group.where, where) || group.next.group != self.products || group.next.perform != perform) {
    fail(where, fmt::format("is in this product while {} threads of its warpgroup are in {}", group.arrived, name_of(group.where)));
  }
  const int thread = (self.warp->number - first) * 32 + self.lane;
  std::memcpy(group.next.operands.data() + static_cast<std::ptrdiff_t>(thread) * size, operand, static_cast<std::size_t>(size));
  self.where = where;
  self.at_product = true;
  if (++group.arrived == 128) {
    group.arrived = 0;
    const bool first_of_all = group.waiting.empty();
    group.waiting.push_back(std::move(group.next));
    if (first_of_all && now.one_in(4)) group.finish_before(self.products + 1);
    for (int i = 0; i < 128; ++i) {
      lane_state* lane = block.lanes[static_cast<std::size_t>(first * 32 + i)];
      lane->at_product = false;
      if (lane != &self) set_ready(*lane->warp, 1u << lane->lane);
    }
  } else {
    wait();
  }
}

void product_commit() { ++now.current->products; }

void product_wait(int groups_left) {
  lane_state& self = *now.current;
  self.block->warpgroups[static_cast<std::size_t>(self.warp->number) / 4].finish_before(self.products - groups_left);
}

}  // namespace simt
