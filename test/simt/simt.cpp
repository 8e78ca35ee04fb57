// The emulator's scheduler. Every emulated thread is a fiber; a switch goes straight from the thread that waits to the next that can run.
// Layer: test emulator.
//
// A thread runs until it waits: at a block barrier, at a warp operation, at a cluster barrier, or because it gives way. Who is next is
// drawn from the seed: mostly another lane of the same warp (so that a warp operation costs one short switch per lane), else any warp.
#include "simt/simt.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/counter_rng.hpp"
#include "simt/launch.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

namespace context = boost::context;

// --- stacks --------------------------------------------------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t k_stack = 256 << 10;  // frames with red zones are several times larger
#else
constexpr std::size_t k_stack = 64 << 10;
#endif

struct stack_range {
  void* bottom = nullptr;
  std::size_t size = 0;
};

// Stacks are mapped many at a time and kept for ever. Below each is a page that faults.
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
  // Each such page costs two of the process's mappings, of which Linux allows 65530: the stacks of a whole large device go without.
  static int unguarded_after = 8192;
  if (unguarded_after > 0) {
    --unguarded_after;
    if (mprotect(base, page, PROT_NONE) != 0) throw std::bad_alloc();
  }
  // Tops that differ within a page: else the frames of all threads would compete for the same few sets of the first-level cache.
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

// --- state ---------------------------------------------------------------------------------------------------------------------------

struct cancelled {};  // thrown in the threads that wait when a launch fails

struct pending_copy {
  void* to = nullptr;
  const void* from = nullptr;
  int bytes = 0;
  int valid_bytes = 0;
  std::int64_t group = 0;
};

// Copies of one thread that complete in groups: cp.async, or bulk stores.
struct copy_groups {
  std::vector<pending_copy> waiting;  // groups ascend
  std::int64_t open = 0;              // the group that the next commit closes

  static void perform(const pending_copy& copy) {
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.valid_bytes));
    std::memset(static_cast<char*>(copy.to) + copy.valid_bytes, 0, static_cast<std::size_t>(copy.bytes - copy.valid_bytes));
  }
  void finish_before(std::int64_t group) {
    std::size_t done = 0;
    while (done < waiting.size() && waiting[done].group < group) perform(waiting[done++]);
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(done));
  }
  void clear() {
    waiting.clear();
    open = 0;
  }
};

// A copy that completes on an mbarrier.
struct flying_copy {
  void* to = nullptr;
  const void* from = nullptr;  // null: `value` holds the bytes
  std::uint32_t bytes = 0;
  std::uint64_t* barrier = nullptr;
  place where;
  unsigned char value[16] = {};
};

struct block_state;
struct warp_state;

struct lane_state {
  context::fiber fiber;
  stack_range stack;
  void* fake_stack = nullptr;  // AddressSanitizer's
  block_state* block = nullptr;
  warp_state* warp = nullptr;
  int lane = 0;
  uint3 index{};
  bool running = false;             // inside the kernel
  bool at_barrier = false;          // of the block, or of a group
  int group = -1;                   // whose barrier it waits at
  bool at_cluster_barrier = false;  // between arrive and wait
  std::uint64_t cluster_phase = 0;  // when it arrived
  place where;                      // of the barrier
  copy_groups copies;
  copy_groups stores;
  std::int64_t products = 0;  // groups of products that it has committed
  bool at_product = false;    // waits for the others of its warpgroup
};

enum class meeting { exchange, ballot, collective };

struct warp_state {
  block_state* block = nullptr;
  int number = 0;
  unsigned present = 0;  // lanes that the block has in this warp
  unsigned live = 0;     // lanes that have not returned
  unsigned ready = 0;    // lanes that can run
  unsigned waiting = 0;  // lanes in a warp operation
  bool queued = false;   // in scheduler::ready
  lane_state* lanes[32] = {};
  unsigned mask[32] = {};
  meeting kind[32] = {};
  place where[32] = {};
  std::uint64_t value[32] = {};
  std::uint64_t result[32] = {};
  int source[32] = {};
  void* operand[32] = {};
};

// Exactly as large as asked for, so that AddressSanitizer sees the first byte past the end.
class shared_memory {
 public:
  shared_memory(std::size_t bytes, std::size_t alignment)
      : bytes_(bytes), alignment_(alignment), data_(static_cast<unsigned char*>(::operator new(bytes, std::align_val_t(alignment)))) {}
  shared_memory(shared_memory&& other) noexcept
      : bytes_(other.bytes_), alignment_(other.alignment_), data_(std::exchange(other.data_, nullptr)) {}
  shared_memory& operator=(shared_memory&&) = delete;
  ~shared_memory() {
    if (data_ != nullptr) ::operator delete(data_, std::align_val_t(alignment_));
  }

  unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void poison() {
    std::fill_n(reinterpret_cast<std::uint32_t*>(data_), bytes_ / 4, k_poison);
    std::memcpy(data_ + bytes_ / 4 * 4, &k_poison, bytes_ % 4);
  }
  bool holds(const void* pointer) const {
    const auto* byte = static_cast<const unsigned char*>(pointer);
    return data_ <= byte && byte < data_ + bytes_;
  }

 private:
  std::size_t bytes_;
  std::size_t alignment_;
  unsigned char* data_;
};

struct static_object {
  const void* key;
  shared_memory memory;
};

// A barrier of some warps of a block.
struct group_state {
  int arrived = 0;
  int expected = 0;
  place where;
};

// A product of a warpgroup that has begun.
struct pending_product {
  void (*perform)(const unsigned char* operands, int size) = nullptr;
  int size = 0;
  std::int64_t group = 0;
  std::vector<unsigned char> operands;
};

struct warpgroup_state {
  int arrived = 0;
  place where;
  pending_product next;
  std::deque<pending_product> waiting;

  void finish_before(std::int64_t group) {
    while (!waiting.empty() && waiting.front().group < group) {
      waiting.front().perform(waiting.front().operands.data(), waiting.front().size);
      waiting.pop_front();
    }
  }
};

struct cluster_state;

struct block_state {
  cluster_state* cluster = nullptr;
  int rank = 0;  // in the cluster
  uint3 index{};
  std::vector<lane_state*> lanes;
  std::vector<warp_state> warps;
  bool started = false;  // some thread has run
  int live = 0;
  int arrived = 0;  // at the block barrier
  int votes = 0;    // of those that arrived, with a true predicate
  int outcome = 0;  // votes at the last barrier
  vote kind = vote::none;
  place where;
  group_state groups[16];
  std::vector<warpgroup_state> warpgroups;
  shared_memory dynamic;
  std::vector<static_object> statics;

  explicit block_state(std::int64_t bytes) : dynamic(static_cast<std::size_t>(bytes), 1024) {}
};

struct cluster_state {
  std::vector<std::unique_ptr<block_state>> blocks;
  int slot = 0;
  int live = 0;     // threads
  int arrived = 0;  // at the cluster barrier
  std::uint64_t phase = 0;
  std::vector<lane_state*> waiting;
};

// --- the launch that runs ------------------------------------------------------------------------------------------------------------

// Threads that poll in vain this often make another cluster start.
constexpr std::int64_t k_spins_before_another = 64;

struct scheduler {
  const options* how = nullptr;
  ballast::core::function_ref<void()>* kernel = nullptr;
  dim3 grid;
  dim3 block;
  int cluster = 1;

  std::uint64_t random_state = 0;
  std::vector<std::int64_t> order;  // of clusters
  std::size_t next = 0;             // into order
  std::int64_t slots = 1;           // clusters that may be alive
  std::vector<std::unique_ptr<cluster_state>> clusters;
  std::int64_t live = 0;           // threads
  std::vector<warp_state*> ready;  // warps with a ready lane, and some that have none any more
  warp_state* warp = nullptr;      // the one that runs
  lane_state* current = nullptr;
  lane_state* previous = nullptr;  // who switched to `current`
  lane_state main;                 // who called launch
  std::int64_t idle_spins = 0;     // since anything else happened
  std::vector<flying_copy> flying;
  std::uint64_t ticks = 0;
  bool cancelling = false;
  std::exception_ptr failure;

  std::uint64_t random() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
  }
  bool one_in(unsigned n) { return (random() >> 40) % n == 0; }
};

scheduler now;
std::mutex one_launch;

// Threads that no launch uses. Never freed, since a suspended fiber ends only by running.
std::vector<lane_state*>& idle_lanes() {
  static auto* lanes = new std::vector<lane_state*>;
  return *lanes;
}

// --- messages ------------------------------------------------------------------------------------------------------------------------

std::string name_of(const uint3& at, const dim3& in) {
  return in.y * in.z == 1 ? fmt::format("{}", at.x) : fmt::format("({}, {}, {})", at.x, at.y, at.z);
}

std::string name_of(const lane_state& lane) {
  return fmt::format("thread {} of block {}", name_of(lane.index, now.block), name_of(lane.block->index, now.grid));
}

std::string name_of(const place& where) { return fmt::format("{}:{}", where.file, where.line); }

bool same(const place& a, const place& b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

[[noreturn]] void fail(const std::string& what) { throw error(fmt::format("{}: {}", name_of(*now.current), what)); }

[[noreturn]] void fail(const place& where, const std::string& what) {
  throw error(fmt::format("{}: {}: {}", name_of(where), name_of(*now.current), what));
}

[[noreturn]] void fail_deadlock() {
  std::string waits;
  int told = 0;
  for (const auto& cluster : now.clusters) {
    for (const auto& block : cluster->blocks) {
      for (const lane_state* lane : block->lanes) {
        if (!lane->running || told == 4) continue;
        const warp_state& warp = *lane->warp;
        const bool meets = (warp.waiting >> lane->lane & 1) != 0;
        // The first lane of a warp that waits somewhere tells enough.
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
  throw error(fmt::format("deadlock: none of {} threads can go on{}", now.live, waits));
}

// --- switching -----------------------------------------------------------------------------------------------------------------------

// Suspends `from`, which is running, and resumes `to`.
void switch_to(lane_state& from, lane_state& to) {
  now.previous = &from;
  now.current = &to;
  if (to.block != nullptr) {
    threadIdx = to.index;
    blockIdx = to.block->index;
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack.bottom, to.stack.size);
#endif
  context::fiber back = std::move(to.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(from.fake_stack, &bottom, &size);
  if (now.previous == &now.main) now.main.stack = {const_cast<void*>(bottom), size};
#endif
  now.previous->fiber = std::move(back);
}

void set_ready(warp_state& warp, unsigned lanes) {
  if (lanes == 0) return;
  warp.ready |= lanes;
  if (!warp.queued) {
    warp.queued = true;
    now.ready.push_back(&warp);
  }
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

void count_bytes(std::uint64_t* barrier, std::int64_t bytes, place where);

// One asynchronous copy arrives.
void land(std::size_t which) {
  const flying_copy copy = now.flying[which];
  now.flying[which] = now.flying.back();
  now.flying.pop_back();
  std::memcpy(copy.to, copy.from != nullptr ? copy.from : copy.value, copy.bytes);
  count_bytes(copy.barrier, -static_cast<std::int64_t>(copy.bytes), copy.where);
  now.idle_spins = 0;
}

// Takes the next thread to run off the ready ones; with `anywhere`, not preferably one of the same warp.
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

// The running thread waits; returns when it is picked again. It may be ready itself.
void wait(bool anywhere = false) {
  lane_state& self = *now.current;
  lane_state* next = pick(anywhere);
  if (next != &self) switch_to(self, *next);
  if (now.cancelling) throw cancelled();
}

// --- blocks ----------------------------------------------------------------------------------------------------------------------------

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

// In the list of clusters from the start, so that clear() finds its threads if memory runs out meanwhile.
cluster_state& new_cluster(std::int64_t shared_bytes) {
  now.clusters.push_back(std::make_unique<cluster_state>());
  cluster_state* const cluster = now.clusters.back().get();
  cluster->slot = static_cast<int>(now.clusters.size()) - 1;
  const unsigned threads = now.block.x * now.block.y * now.block.z;
  for (int rank = 0; rank < now.cluster; ++rank) {
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
      lane->index = {i % now.block.x, i / now.block.x % now.block.y, i / (now.block.x * now.block.y)};
      block->lanes.push_back(lane);
      warp_state& warp = *lane->warp;
      warp.block = block;
      warp.number = static_cast<int>(i / 32);
      warp.lanes[i % 32] = lane;
    }
  }
  return *cluster;
}

// Puts the next cluster of the grid into this slot.
void start_next(cluster_state& cluster) {
  const auto across = static_cast<std::int64_t>(now.grid.x / static_cast<unsigned>(now.cluster));
  const std::int64_t index = now.order[now.next++];
  const auto x = static_cast<unsigned>(index % across) * static_cast<unsigned>(now.cluster);
  const auto y = static_cast<unsigned>(index / across % now.grid.y);
  const auto z = static_cast<unsigned>(index / across / now.grid.y);
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

void release_cluster_barrier(cluster_state& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  ++cluster.phase;
  now.idle_spins = 0;
  for (lane_state* lane : cluster.waiting) set_ready(*lane->warp, 1u << lane->lane);
  cluster.waiting.clear();
}

// The kernel has returned in the running thread. Returns who runs next.
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
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (now.previous == &now.main) now.main.stack = {const_cast<void*>(bottom), size};
#endif
  now.previous->fiber = std::move(from);
  for (;;) {
    lane_state* next = &now.main;
    try {
      self.running = true;
      self.block->started = true;
      blockIdx = self.block->index;  // a thread that follows itself, in the next block, has not been switched to
      (*now.kernel)();
      next = retire(self);
    } catch (const cancelled&) {
    } catch (...) {
      now.failure = std::current_exception();
    }
    self.running = false;
    if (next != &self) switch_to(self, *next);
  }
  return std::move(self.fiber);
}

// --- warp operations -------------------------------------------------------------------------------------------------------------------

void check_mask(const warp_state& warp, int lane, unsigned mask, place where) {
  if ((mask >> lane & 1) == 0) fail(where, fmt::format("lane {} is not in its own mask {:#010x}", lane, mask));
  if ((mask & ~warp.live) != 0) fail(where, fmt::format("mask {:#010x} has lanes that have returned: {:#010x}", mask, mask & ~warp.live));
}

// True if the running lane is the last of its mask; the others then wait in `kind` at the same place.
bool last_to_meet(warp_state& warp, int lane, unsigned mask, meeting kind, place where) {
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

// --- mbarriers -------------------------------------------------------------------------------------------------------------------------

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

void count_bytes(std::uint64_t* barrier, std::int64_t bytes, place where) {
  mbarrier state = mbarrier::read(barrier, where);
  state.bytes += bytes;
  state.write(barrier);
}

void fly(const flying_copy& copy) {
  now.flying.push_back(copy);
  if (now.one_in(4)) land(now.flying.size() - 1);
}

void require_shared(const void* pointer, const char* what, place where) {
  const block_state& block = *now.current->block;
  if (block.dynamic.holds(pointer)) return;
  for (const auto& object : block.statics) {
    if (object.memory.holds(pointer)) return;
  }
  fail(where, fmt::format("{} is not in the shared memory of its block", what));
}

}  // namespace

// --- what kernels call -----------------------------------------------------------------------------------------------------------------

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

std::uint64_t warp_exchange(unsigned mask, std::uint64_t value, int source, place where) {
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

unsigned warp_ballot(unsigned mask, bool predicate, place where) {
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

void warp_collective(unsigned mask, void* operand, void (*combine)(void* const* operands, unsigned mask), place where) {
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

void product_begin(const void* operand, int size, void (*perform)(const unsigned char* operands, int size), place where) {
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

void require_aligned_slow(const void* pointer, std::size_t alignment) {
  fail(fmt::format("address {} is not a multiple of {} bytes", fmt::ptr(pointer), alignment));
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

// --- asynchronous copies -----------------------------------------------------------------------------------------------------------------

void async_copy(void* shared, const void* global, int bytes, int valid_bytes, place where) {
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

void bulk_store(void* global, const void* shared, std::uint32_t bytes, place where) {
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

void bulk_load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier, place where) {
  require_aligned(global, 16);
  require_aligned(shared, 16);
  if (bytes % 16 != 0) fail(where, fmt::format("a bulk copy has a multiple of 16 bytes, got {}", bytes));
  fly({shared, global, bytes, barrier, where, {}});
}

void store_async(void* remote, const void* value, int bytes, std::uint64_t* remote_barrier, place where) {
  require_aligned(remote, static_cast<std::size_t>(bytes));
  flying_copy copy{remote, nullptr, static_cast<std::uint32_t>(bytes), remote_barrier, where, {}};
  std::memcpy(copy.value, value, static_cast<std::size_t>(bytes));
  fly(copy);
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

// --- clusters ----------------------------------------------------------------------------------------------------------------------------

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
  // One past the end of the dynamic memory may be mapped, as any pointer may be formed.
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

// --- launch
// --------------------------------------------------------------------------------------------------------------------------------

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

// Takes the launch's threads back, unwinding those that are inside the kernel.
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
  now.grid = grid;
  now.block = block;
  now.cluster = cluster;
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
