// Shared memory, alignment, asynchronous copies, mbarriers. The seed determines whether a copy moves its bytes at once, at a later switch,
// or when a thread waits for it.
// Layer: test emulator.
#include "simt/scheduler.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace simt {

void require_aligned_slow(const void* pointer, std::size_t alignment) {
  fail(fmt::format("address {} is not a multiple of {} bytes", fmt::ptr(pointer), alignment));
}

void require_shared(const void* pointer, const char* what, code_location where) {
  const block_state& block = *now.current->block;
  if (block.dynamic.holds(pointer)) return;
  for (const auto& object : block.statics) {
    if (object.memory.holds(pointer)) return;
  }
  fail(where, fmt::format("{} is not in the shared memory of its block", what));
}

unsigned char* dynamic_shared() { return now.current->block->dynamic.data(); }

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  block_state& block = *now.current->block;
  for (auto& object : block.statics) {
    if (object.key == key) return object.memory.data();
  }
  block.statics.push_back({key, shared_memory(bytes, std::max<std::size_t>(alignment, 16))});
  block.statics.back().memory.poison();
  return block.statics.back().memory.data();
}

// --- asynchronous copies ---

void land(std::size_t which) {
  const flying_copy copy = now.flying[which];
  now.flying[which] = now.flying.back();
  now.flying.pop_back();
  std::memcpy(copy.to, copy.from != nullptr ? copy.from : copy.value, copy.bytes);
  count_bytes(copy.barrier, -static_cast<std::int64_t>(copy.bytes), copy.where);
  now.idle_spins = 0;
}

namespace {

void fly(const flying_copy& copy) {
  now.flying.push_back(copy);
  if (now.one_in(4)) land(now.flying.size() - 1);
}

}  // namespace

void async_copy(void* shared, const void* global, int bytes, int valid_bytes, code_location where) {
  if (bytes != 4 && bytes != 8 && bytes != 16) fail(where, fmt::format("an asynchronous copy has 4, 8 or 16 bytes, got {}", bytes));
  require_aligned(shared, static_cast<std::size_t>(bytes));
  require_aligned(global, static_cast<std::size_t>(bytes));
  require_shared(shared, "the destination of an asynchronous copy", where);
  copy_groups& groups = now.current->copies;
  const pending_copy copy{shared, global, bytes, valid_bytes, groups.open};
  if (now.one_in(4)) {
    copy_groups::perform(copy);
  } else {
    groups.waiting.push_back(copy);
  }
}

void async_commit() { ++now.current->copies.open; }

void async_wait(int groups_left) {
  copy_groups& groups = now.current->copies;
  groups.finish_before(groups.open - groups_left);
}

void bulk_store(void* global, const void* shared, std::uint32_t bytes, code_location where) {
  require_aligned(global, 16);
  require_aligned(shared, 16);
  if (bytes % 16 != 0) fail(where, fmt::format("a bulk copy has a multiple of 16 bytes, got {}", bytes));
  require_shared(shared, "the source of a bulk store", where);
  copy_groups& groups = now.current->stores;
  const pending_copy copy{global, shared, static_cast<int>(bytes), static_cast<int>(bytes), groups.open};
  if (now.one_in(4)) {
    copy_groups::perform(copy);
  } else {
    groups.waiting.push_back(copy);
  }
}

void bulk_commit() { ++now.current->stores.open; }

void bulk_wait(int groups_left) {
  copy_groups& groups = now.current->stores;
  groups.finish_before(groups.open - groups_left);
}

void bulk_load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier, code_location where) {
  require_aligned(global, 16);
  require_aligned(shared, 16);
  if (bytes % 16 != 0) fail(where, fmt::format("a bulk copy has a multiple of 16 bytes, got {}", bytes));
  fly({shared, global, bytes, barrier, where, {}});
}

void store_async(void* remote, const void* value, int bytes, std::uint64_t* remote_barrier, code_location where) {
  require_aligned(remote, static_cast<std::size_t>(bytes));
  flying_copy copy{remote, nullptr, static_cast<std::uint32_t>(bytes), remote_barrier, where, {}};
  std::memcpy(copy.value, value, static_cast<std::size_t>(bytes));
  fly(copy);
}

// --- mbarriers ---

namespace {

// The 64 bits of an mbarrier contain: pending transaction bytes (signed), arrivals per phase, pending arrivals, phase, and a mark.
struct mbarrier {
  std::int64_t bytes;
  unsigned count;
  unsigned pending;
  unsigned phase;

  static constexpr std::uint64_t k_mark = 0x5b5;
  static mbarrier read(const std::uint64_t* at, code_location where) {
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

void count_bytes(std::uint64_t* barrier, std::int64_t bytes, code_location where) {
  mbarrier state = mbarrier::read(barrier, where);
  state.bytes += bytes;
  state.write(barrier);
}

void mbarrier_init(std::uint64_t* barrier, unsigned count, code_location where) {
  require_aligned(barrier, 8);
  require_shared(barrier, "an mbarrier", where);
  if (count == 0 || count > 0x3fff) fail(where, fmt::format("an mbarrier of the emulator expects 1 to 16383 arrivals, got {}", count));
  mbarrier{0, count, count, 0}.write(barrier);
}

void mbarrier_arrive(std::uint64_t* barrier, unsigned count, unsigned expected_bytes, code_location where) {
  mbarrier state = mbarrier::read(barrier, where);
  if (count > state.pending) fail(where, fmt::format("{} arrivals at an mbarrier that waits for {}", count, state.pending));
  state.bytes += expected_bytes;
  state.pending -= count;
  state.write(barrier);
}

bool mbarrier_test(std::uint64_t* barrier, unsigned parity, code_location where) {
  if (mbarrier::read(barrier, where).phase != (parity & 1)) return true;
  give_way(true);
  return mbarrier::read(barrier, where).phase != (parity & 1);
}

}  // namespace simt
