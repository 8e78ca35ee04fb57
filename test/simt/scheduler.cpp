// The emulator's scheduler. Every emulated thread is a fiber. A switch goes directly from the waiting thread to the next ready thread.
// Layer: test emulator.
//
// A thread runs until it waits: at a barrier, in a warp operation, or because it yields. The seed selects the next thread: in most cases
// another lane of the same warp, so that a warp operation costs one short switch per lane; otherwise a lane of any warp.
#include "simt/scheduler.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include <fmt/format.h>

#include "core/counter_rng.hpp"

#if defined(SIMT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

scheduler now;

namespace {

std::mutex one_launch;

// --- stacks ---

#if defined(SIMT_ADDRESS_SANITIZER)
constexpr std::size_t k_stack = 256 << 10;  // red zones make frames several times larger
#else
constexpr std::size_t k_stack = 64 << 10;
#endif

// Returns a new stack. Stacks are mapped in groups and never unmapped. Below each is a guard page.
stack_range new_stack() {
  static constexpr std::size_t k_stacks_per_mapping = 64;
  static char* next = nullptr;
  static std::size_t left = 0;
  static std::size_t colour = 0;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t stride = k_stack + page;
  if (left == 0) {
    void* mapping =
        mmap(nullptr, k_stacks_per_mapping * stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    next = static_cast<char*>(mapping);
    left = k_stacks_per_mapping;
  }
  char* base = next;
  next += stride;
  --left;
  // A guard page needs two mappings, and Linux allows 65530 per process. So only the first 8192 stacks have one.
  static int unguarded_after = 8192;
  if (unguarded_after > 0) {
    --unguarded_after;
    if (mprotect(base, page, PROT_NONE) != 0) throw std::bad_alloc();
  }
  // The stacks start at different offsets within a page. Otherwise the frames of all threads would compete for the same few sets of the L1
  // cache.
  colour = (colour + 1) % 32;
  return {base + page, k_stack - colour * 128};
}

struct fixed_stack {
  stack_range range;
  context::stack_context allocate() const {
    context::stack_context made;
    made.size = range.size;
    made.sp = static_cast<char*>(range.bottom) + range.size;
    return made;
  }
  void deallocate(context::stack_context&) const noexcept {}
};

// Returns the threads that no launch uses. They are never freed, because a suspended fiber can only end by running.
std::vector<lane_state*>& idle_lanes() {
  static auto* lanes = new std::vector<lane_state*>;
  return *lanes;
}

// --- messages ---

std::string name_of(const uint3& at, const dim3& in) {
  return in.y * in.z == 1 ? fmt::format("{}", at.x) : fmt::format("({}, {}, {})", at.x, at.y, at.z);
}

std::string name_of(const lane_state& lane) {
  return fmt::format("thread {} of block {}", name_of(lane.index, now.shape.block), name_of(lane.block->index, now.shape.grid));
}

}  // namespace

std::string name_of(const code_location& where) { return fmt::format("{}:{}", where.file, where.line); }

bool same(const code_location& a, const code_location& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

namespace {

#if defined(SIMT_ADDRESS_SANITIZER)
// Tells AddressSanitizer the current stack; returns the stack that it assumed before.
stack_range tell_stack(stack_range stack) {
  void* fake = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_start_switch_fiber(&fake, stack.bottom, stack.size);
  __sanitizer_finish_switch_fiber(fake, &bottom, &size);
  return {const_cast<void*>(bottom), size};
}
#endif

// Call it before throwing an exception. AddressSanitizer needs the stack of the running thread only when an exception unwinds it: then it
// clears its marks there. Telling it at every switch would take an eighth of the time of a test. (Its option detect_stack_use_after_return
// is off, because it would need every switch.)
void begin_throw() {
#if defined(SIMT_ADDRESS_SANITIZER)
  const stack_range before = tell_stack(now.current->stack);
  if (now.main.stack.size == 0) now.main.stack = before;
#endif
}

// Call it after an exception has left the kernel in the running thread.
void end_throw([[maybe_unused]] const lane_state& self) {
#if defined(SIMT_ADDRESS_SANITIZER)
  if (now.main.stack.size != 0) tell_stack(std::exchange(now.main.stack, {}));
  __asan_unpoison_memory_region(self.stack.bottom, self.stack.size);  // also for exceptions of the kernel itself, without begin_throw
#endif
}

}  // namespace

void fail(const std::string& what) {
  begin_throw();
  throw error(fmt::format("{}: {}", name_of(*now.current), what));
}

void fail(const code_location& where, const std::string& what) {
  begin_throw();
  throw error(fmt::format("{}: {}: {}", name_of(where), name_of(*now.current), what));
}

// --- switching ---

void set_ready(warp_state& warp, unsigned lanes) {
  if (lanes == 0) return;
  warp.ready |= lanes;
  if (!warp.queued) {
    warp.queued = true;
    now.ready.push_back(&warp);
  }
}

namespace {

[[noreturn]] void fail_deadlock() {
  std::string waits;
  int told = 0;
  for (const auto& cluster : now.clusters) {
    for (const auto& block : cluster->blocks) {
      for (const lane_state* lane : block->lanes) {
        if (!lane->running || told == 4) continue;
        const warp_state& warp = *lane->warp;
        const bool meets = (warp.waiting >> lane->lane & 1) != 0;
        // Names only the first of consecutive lanes of a warp that wait in the same way.
        const bool told_before = lane->lane > 0 && warp.lanes[lane->lane - 1]->running &&
                                 warp.lanes[lane->lane - 1]->at_barrier == lane->at_barrier &&
                                 (warp.waiting >> (lane->lane - 1) & 1) == (meets ? 1u : 0u);
        if (told_before) continue;
        waits += fmt::format("; {} waits {}", name_of(*lane),
                             lane->at_barrier           ? "at the block barrier " + name_of(lane->where)
                             : meets                    ? "in the warp operation " + name_of(warp.where[lane->lane])
                             : lane->at_product         ? "in the product of a warpgroup " + name_of(lane->where)
                             : lane->at_cluster_barrier ? "at the cluster barrier " + name_of(lane->where)
                                                        : "for memory that nobody writes");
        ++told;
      }
    }
  }
  if (now.current != nullptr) begin_throw();
  throw error(fmt::format("deadlock: none of {} threads can go on{}", now.live, waits));
}

// Suspends `from`, the running thread, and resumes `to`.
void switch_to(lane_state& from, lane_state& to) {
  now.previous = &from;
  now.current = &to;
  if (to.block != nullptr) {
    threadIdx = to.index;
    blockIdx = to.block->index;
  }
  context::fiber back = std::move(to.fiber).resume();
  now.previous->fiber = std::move(back);
}

warp_state* any_ready_warp() {
  while (!now.ready.empty()) {
    const std::size_t at = (now.random() >> 32) * now.ready.size() >> 32;
    warp_state* warp = now.ready[at];
    if (warp->ready != 0) return warp;
    warp->queued = false;
    now.ready[at] = now.ready.back();
    now.ready.pop_back();
  }
  return nullptr;
}

// Selects the next thread from the ready ones; with `anywhere`, without preferring the same warp.
lane_state* pick(bool anywhere) {
  const std::uint64_t drawn = now.random();
  ++now.ticks;
  if (!now.flying.empty() && (anywhere || (drawn & 15) == 0)) land((drawn >> 33) % now.flying.size());
  if (anywhere || now.warp == nullptr || now.warp->ready == 0 || (drawn >> 4 & 31) == 0) {
    now.warp = any_ready_warp();
    while (now.warp == nullptr) {
      if (now.flying.empty()) fail_deadlock();
      land(0);
      now.warp = any_ready_warp();
    }
  }
  warp_state& warp = *now.warp;
  const int turn = static_cast<int>(drawn >> 9 & 31);
  const unsigned turned = std::rotr(warp.ready, turn);
  const int found = (drawn >> 14 & 1) != 0 ? std::countr_zero(turned) : 31 - std::countl_zero(turned);
  const int lane = (found + turn) & 31;
  warp.ready &= ~(1u << lane);
  return warp.lanes[lane];
}

}  // namespace

void wait(bool anywhere) {
  lane_state& self = *now.current;
  lane_state* next = pick(anywhere);
  if (next != &self) switch_to(self, *next);
  if (now.cancelling) {
    begin_throw();
    throw cancelled();
  }
}

// --- blocks ---

namespace {

// After this many polls without progress another cluster starts.
constexpr std::int64_t k_spins_before_another = 64;

context::fiber lane_loop(lane_state& self, context::fiber&& from);

lane_state* new_lane() {
  auto& idle = idle_lanes();
  if (idle.empty()) {
    auto made = std::make_unique<lane_state>();
    made->stack = new_stack();
    lane_state* self = made.get();
    made->fiber = context::fiber(std::allocator_arg, fixed_stack{made->stack},
                                 [self](context::fiber&& from) { return lane_loop(*self, std::move(from)); });
    idle.push_back(made.get());
    made.release();
  }
  lane_state* lane = idle.back();
  idle.pop_back();
  return lane;
}

// Creates a cluster. It is added to the list before its threads are created, so that clear() finds them if memory runs out.
cluster_state& new_cluster(std::int64_t shared_bytes) {
  now.clusters.push_back(std::make_unique<cluster_state>());
  cluster_state* const cluster = now.clusters.back().get();
  cluster->slot = static_cast<int>(now.clusters.size()) - 1;
  const unsigned threads = now.shape.block.x * now.shape.block.y * now.shape.block.z;
  for (int rank = 0; rank < now.shape.cluster; ++rank) {
    cluster->blocks.push_back(std::make_unique<block_state>(shared_bytes));
    block_state* const block = cluster->blocks.back().get();
    block->cluster = cluster;
    block->rank = rank;
    block->warps.resize((threads + 31) / 32);
    block->warpgroups.resize((threads + 127) / 128);
    block->lanes.reserve(threads);
    for (unsigned i = 0; i < threads; ++i) {
      lane_state* lane = new_lane();
      lane->block = block;
      lane->warp = &block->warps[i / 32];
      lane->lane = static_cast<int>(i % 32);
      lane->index = {i % now.shape.block.x, i / now.shape.block.x % now.shape.block.y, i / (now.shape.block.x * now.shape.block.y)};
      block->lanes.push_back(lane);
      warp_state& warp = *lane->warp;
      warp.block = block;
      warp.number = static_cast<int>(i / 32);
      warp.lanes[i % 32] = lane;
    }
  }
  return *cluster;
}

// Starts the next cluster of the grid in this slot.
void start_next(cluster_state& cluster) {
  const auto across = static_cast<std::int64_t>(now.shape.grid.x / static_cast<unsigned>(now.shape.cluster));
  const std::int64_t index = now.order[now.next++];
  const auto x = static_cast<unsigned>(index % across) * static_cast<unsigned>(now.shape.cluster);
  const auto y = static_cast<unsigned>(index / across % now.shape.grid.y);
  const auto z = static_cast<unsigned>(index / across / now.shape.grid.y);
  cluster.live = 0;
  cluster.arrived = 0;
  for (auto& block : cluster.blocks) {
    block->index = {x + static_cast<unsigned>(block->rank), y, z};
    block->started = false;
    block->live = static_cast<int>(block->lanes.size());
    block->arrived = 0;
    for (group_state& group : block->groups) group.arrived = 0;
    for (warpgroup_state& group : block->warpgroups) group.arrived = 0;
    block->dynamic.poison();
    for (auto& object : block->statics) object.memory.poison();
    cluster.live += block->live;
    for (warp_state& warp : block->warps) {
      const std::size_t lanes = std::min<std::size_t>(32, block->lanes.size() - static_cast<std::size_t>(warp.number) * 32);
      warp.present = static_cast<unsigned>((std::uint64_t{1} << lanes) - 1);
      warp.live = warp.present;
      warp.waiting = 0;
      set_ready(warp, warp.live);
    }
  }
  now.live += cluster.live;
  now.idle_spins = 0;
}

bool more_may_start() { return now.next < now.order.size() && static_cast<std::int64_t>(now.clusters.size()) < now.slots; }

void start_another(std::int64_t shared_bytes) { start_next(new_cluster(shared_bytes)); }

// Ends the running thread, whose kernel has returned. Returns the next thread to run.
lane_state* retire(lane_state& self) {
  block_state& block = *self.block;
  if (block.arrived > 0) {
    fail(fmt::format("returned while {} threads of its block wait at the barrier {}", block.arrived, name_of(block.where)));
  }
  warp_state& warp = *self.warp;
  for (unsigned left = warp.waiting; left != 0; left &= left - 1) {
    const int other = std::countr_zero(left);
    if ((warp.mask[other] >> self.lane & 1) != 0) {
      fail(fmt::format("returned while lane {} waits for it in the warp operation {}", other, name_of(warp.where[other])));
    }
  }
  for (const group_state& group : block.groups) {
    if (group.arrived > 0 && block.live == group.arrived + 1) {
      fail(fmt::format("returned while the {} other threads of its block wait at the barrier {} of {} threads", group.arrived,
                       name_of(group.where), group.expected));
    }
  }
  if (self.at_cluster_barrier) fail(self.where, "returned between arrival and wait of the cluster barrier");
  if (!self.stores.waiting.empty()) fail("returned with a bulk store from shared memory that it has not waited for");
  const warpgroup_state& products = block.warpgroups[static_cast<std::size_t>(warp.number) / 4];
  if (products.arrived > 0) fail(fmt::format("returned while its warpgroup waits for it in the product {}", name_of(products.where)));
  if (!products.waiting.empty()) fail("returned before a product of its warpgroup that it has not waited for");
  self.products = 0;
  self.copies.clear();
  self.stores.clear();
  self.running = false;
  warp.live &= ~(1u << self.lane);
  --block.live;
  cluster_state& cluster = *block.cluster;
  --cluster.live;
  --now.live;
  now.idle_spins = 0;
  if (cluster.live > 0) {
    release_cluster_barrier(cluster);
  } else {
    for (const flying_copy& copy : now.flying) {
      for (const auto& each : cluster.blocks) {
        if (each->dynamic.holds(copy.to)) fail(copy.where, "the last thread returned before an asynchronous copy had arrived");
      }
    }
    if (now.next < now.order.size()) start_next(cluster);
  }
  return now.live == 0 ? &now.main : pick(false);
}

context::fiber lane_loop(lane_state& self, context::fiber&& from) {
  now.previous->fiber = std::move(from);
  for (;;) {
    lane_state* next = &now.main;
    try {
      self.running = true;
      self.block->started = true;
      blockIdx = self.block->index;  // needed if the thread continues with the next block without a switch
      (*now.kernel)();
      next = retire(self);
    } catch (const cancelled&) {
      end_throw(self);
    } catch (...) {
      end_throw(self);
      now.failure = std::current_exception();
    }
    self.running = false;
    if (next != &self) switch_to(self, *next);
  }
  return std::move(self.fiber);
}

}  // namespace

// --- queries of kernels about themselves, and yielding ---

unsigned live_lanes() { return now.current->warp->live; }
int lane() { return now.current->lane; }
int warp() { return now.current->warp->number; }
int multiprocessor() { return now.current->block->cluster->slot % now.how->multiprocessors; }
std::uint64_t ticks() { return now.ticks; }

void give_way(bool spins) {
  lane_state& self = *now.current;
  if (spins) {
    ++now.idle_spins;
    if (now.idle_spins >= k_spins_before_another && more_may_start()) start_another(static_cast<std::int64_t>(self.block->dynamic.bytes()));
    if (now.idle_spins > 100000 + 1000 * now.live) fail_deadlock();
  }
  set_ready(*self.warp, 1u << self.lane);
  wait(true);
}

void maybe_give_way() {
  if (now.one_in(8)) give_way(false);
}

void refuse(const char* what) { fail(what); }

// --- launch ---

namespace {

void check_shape(dim3 grid, dim3 block, int cluster, std::int64_t shared_bytes) {
  const std::uint64_t threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  if (threads < 1 || threads > 1024) throw error(fmt::format("launch: expected 1 to 1024 threads in a block, got {}", threads));
  if (grid.x < 1 || grid.y < 1 || grid.z < 1)
    throw error(fmt::format("launch: expected blocks, got a grid of {}x{}x{}", grid.x, grid.y, grid.z));
  if (cluster < 1 || cluster > 16 || grid.x % static_cast<unsigned>(cluster) != 0) {
    throw error(fmt::format("launch: expected a cluster of 1 to 16 blocks that divides the grid's {} columns, got {}", grid.x, cluster));
  }
  if (shared_bytes < 0 || shared_bytes > 227 * 1024)
    throw error(fmt::format("launch: expected 0 to 232448 bytes of shared memory, got {}", shared_bytes));
}

// Returns the threads of the launch to the idle list, and unwinds those that are inside the kernel.
void clear() {
  now.cancelling = true;
  for (auto& cluster : now.clusters) {
    for (auto& block : cluster->blocks) {
      for (lane_state* lane : block->lanes) {
        if (lane->running) switch_to(now.main, *lane);
        lane->at_barrier = false;
        lane->group = -1;
        lane->products = 0;
        lane->at_product = false;
        lane->at_cluster_barrier = false;
        lane->copies.clear();
        lane->stores.clear();
        idle_lanes().push_back(lane);
      }
    }
  }
  now.cancelling = false;
  now.clusters.clear();
  now.ready.clear();
  now.flying.clear();
  now.order.clear();
  now.warp = nullptr;
  now.current = nullptr;
}

}  // namespace

void launch(dim3 grid, dim3 block, int cluster, std::int64_t shared_bytes, const options& how, ballast::core::function_ref<void()> kernel) {
  check_shape(grid, block, cluster, shared_bytes);
  const std::lock_guard<std::mutex> alone(one_launch);
  now.how = &how;
  now.kernel = &kernel;
  now.shape.grid = grid;
  now.shape.block = block;
  now.shape.cluster = cluster;
  now.random_state = ballast::core::random_bits(how.seed, 0, 0) | 1;
  now.next = 0;
  now.live = 0;
  now.idle_spins = 0;
  now.failure = nullptr;
  now.slots = std::max<std::int64_t>({how.resident_blocks / cluster, how.alive_from_start / cluster, 1});
  gridDim = grid;
  blockDim = block;

  const std::int64_t clusters = static_cast<std::int64_t>(grid.x / static_cast<unsigned>(cluster)) * grid.y * grid.z;
  lane_state* first = nullptr;
  try {
    now.order.resize(static_cast<std::size_t>(clusters));
    for (std::size_t i = 0; i < now.order.size(); ++i) now.order[i] = static_cast<std::int64_t>(i);
    for (std::size_t i = now.order.size(); i > 1; --i) std::swap(now.order[i - 1], now.order[(now.random() >> 32) * i >> 32]);
    const std::int64_t at_once = std::clamp<std::int64_t>(how.alive_from_start / cluster, 1, clusters);
    for (std::int64_t i = 0; i < at_once; ++i) start_another(shared_bytes);
    first = pick(true);
  } catch (...) {
    clear();
    throw;
  }
  switch_to(now.main, *first);
  clear();
  if (now.failure) std::rethrow_exception(std::exchange(now.failure, nullptr));
}

}  // namespace simt
