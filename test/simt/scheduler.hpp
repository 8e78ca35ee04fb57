// The state of the running launch, and declarations that the emulator's sources share: scheduler.cpp switches between threads; warps.cpp,
// barriers.cpp and memory.cpp implement the functions that kernels call.
// Layer: test emulator; private to these sources.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "simt/launch.hpp"
#include "simt/simt.hpp"

namespace simt {

namespace context = boost::context;

struct stack_range {
  void* bottom = nullptr;
  std::size_t size = 0;
};

struct cancelled {};  // thrown in the waiting threads after a launch has failed

struct pending_copy {
  void* to = nullptr;
  const void* from = nullptr;
  int bytes = 0;
  int valid_bytes = 0;
  std::int64_t group = 0;
};

// Copies of one thread that complete in groups: cp.async, or bulk stores.
struct copy_groups {
  std::vector<pending_copy> waiting;  // in ascending order of groups
  std::int64_t open = 0;              // the number of the group that the next commit closes

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
  code_location where;
  unsigned char value[16] = {};
};

struct block_state;
struct warp_state;

struct lane_state {
  context::fiber fiber;
  stack_range stack;
  block_state* block = nullptr;
  warp_state* warp = nullptr;
  int lane = 0;
  uint3 index{};
  bool running = false;             // true inside the kernel
  bool at_barrier = false;          // true at the barrier of the block or of a group
  int group = -1;                   // the number of the group barrier at which it waits; −1: none
  bool at_cluster_barrier = false;  // true between arrive and wait
  std::uint64_t cluster_phase = 0;  // the phase of the cluster barrier at its arrival
  code_location where;              // the place of the barrier
  copy_groups copies;
  copy_groups stores;
  std::int64_t products = 0;  // number of committed groups of products
  bool at_product = false;    // true while it waits for the other threads of its warpgroup
};

enum class meeting { exchange, ballot, collective };

struct warp_state {
  block_state* block = nullptr;
  int number = 0;
  unsigned present = 0;  // the lanes that exist in this warp
  unsigned live = 0;     // the lanes that have not returned
  unsigned ready = 0;    // the lanes that can run
  unsigned waiting = 0;  // the lanes that wait in a warp operation
  bool queued = false;   // true if the warp is in scheduler::ready
  lane_state* lanes[32] = {};
  unsigned mask[32] = {};
  meeting kind[32] = {};
  code_location where[32] = {};
  std::uint64_t value[32] = {};
  std::uint64_t result[32] = {};
  int source[32] = {};
  void* operand[32] = {};
};

// Shared memory of exactly the requested size, so that AddressSanitizer detects an access to the first byte past the end.
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
  code_location where;
};

// A product of a warpgroup that has been started but not performed.
struct pending_product {
  void (*perform)(const unsigned char* operands, int size) = nullptr;
  int size = 0;
  std::int64_t group = 0;
  std::vector<unsigned char> operands;
};

struct warpgroup_state {
  int arrived = 0;
  code_location where;
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
  int rank = 0;  // the rank in the cluster
  uint3 index{};
  std::vector<lane_state*> lanes;
  std::vector<warp_state> warps;
  bool started = false;  // true after a thread has run
  int live = 0;          // the number of threads that have not returned
  int arrived = 0;       // the number of threads at the block barrier
  int votes = 0;         // the number of these with a true predicate
  int outcome = 0;       // `votes` at the last barrier
  vote kind = vote::none;
  code_location where;
  group_state groups[16];
  std::vector<warpgroup_state> warpgroups;
  shared_memory dynamic;
  std::vector<static_object> statics;

  explicit block_state(std::int64_t bytes) : dynamic(static_cast<std::size_t>(bytes), 1024) {}
};

struct cluster_state {
  std::vector<std::unique_ptr<block_state>> blocks;
  int slot = 0;
  int live = 0;     // the number of threads that have not returned
  int arrived = 0;  // the number of threads at the cluster barrier
  std::uint64_t phase = 0;
  std::vector<lane_state*> waiting;
};

// The running launch. There is only one at a time.
struct scheduler {
  const options* how = nullptr;
  ballast::core::function_ref<void()>* kernel = nullptr;
  struct {
    dim3 grid;
    dim3 block;
    int cluster = 1;
  } shape;

  std::uint64_t random_state = 0;
  std::vector<std::int64_t> order;  // the order of the clusters
  std::size_t next = 0;             // the index in `order` of the next cluster
  std::int64_t slots = 1;           // the number of clusters that may be alive
  std::vector<std::unique_ptr<cluster_state>> clusters;
  std::int64_t live = 0;           // the number of threads that have not returned
  std::vector<warp_state*> ready;  // the warps with a ready lane, and some that no longer have one
  warp_state* warp = nullptr;      // the running warp
  lane_state* current = nullptr;
  lane_state* previous = nullptr;  // the thread that switched to `current`
  lane_state main;                 // the host thread that called launch
  std::int64_t idle_spins = 0;     // the number of polls since the last progress of any thread
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

extern scheduler now;

// Throw error. The message names the running thread and its place.
[[noreturn]] void fail(const std::string& what);
[[noreturn]] void fail(const code_location& where, const std::string& what);
std::string name_of(const code_location& where);
bool same(const code_location& a, const code_location& b);

// Marks these lanes as ready to run.
void set_ready(warp_state& warp, unsigned lanes);
// Suspends the running thread; returns when it is selected again. It may itself be ready. `anywhere`: select the next thread from all
// warps, without preferring the same warp.
void wait(bool anywhere = false);

// Releases the threads that wait at the cluster barrier, if all threads have arrived.
void release_cluster_barrier(cluster_state& cluster);
// Adds to the pending bytes of an mbarrier; negative: the bytes have arrived.
void count_bytes(std::uint64_t* barrier, std::int64_t bytes, code_location where);
// Performs the asynchronous copy now.flying[which].
void land(std::size_t which);
// Throws error unless `pointer` is in the shared memory of the running block.
void require_shared(const void* pointer, const char* what, code_location where);

}  // namespace simt
