// A header of 128 bytes before each block holds its arena and size class, so that a block finds its way back.
#include "core/memory.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>

namespace ballast::core {

namespace {

constexpr std::size_t k_alignment = 128;
constexpr int k_classes = 48;  // up to 2^54 bytes

constexpr int k_spare_classes = 14;

// The scope that this thread is in. `held`: the blocks by size class that the bodies of parallel loops on this thread's stack hold.
struct scope_of_thread {
  arena* memory = nullptr;
  int threads = 1;
  std::array<std::uint16_t, k_spare_classes> held{};
};
thread_local scope_of_thread here;

int class_of(std::size_t bytes) { return bytes <= 128 ? 0 : static_cast<int>(std::bit_width(bytes - 1)) - 7; }

}  // namespace

struct arena::state {
  struct alignas(k_alignment) header {
    state* home;  // null: the heap's
    header* next;
    int size_class;
  };
  static_assert(sizeof(header) == k_alignment);

  static header* from_heap(std::size_t bytes, state* home, int size_class) {
    void* const memory = ::operator new (bytes + k_alignment, std::align_val_t{k_alignment});
    return new (memory) header{home, nullptr, size_class};
  }
  static void to_heap(header* block) noexcept { ::operator delete (block, std::align_val_t{k_alignment}); }

  explicit state(bool keeps_spares) : spares(keeps_spares) {}

  const bool spares;
  std::mutex mutex;
  std::array<header*, k_classes> idle{};
  std::array<std::int32_t, k_classes> idle_count{};
  std::array<std::int32_t, k_spare_classes> held_by_bodies{};  // sums over all threads
  std::int64_t out = 0;                                        // blocks in use
  bool owned = true;                                           // by an arena that is alive

  header* take(std::size_t bytes) {
    const int which = class_of(bytes);
    if (which >= k_classes) throw std::bad_alloc();
    const auto at = static_cast<std::size_t>(which);
    const std::lock_guard lock(mutex);
    header* block = idle[at];
    if (block != nullptr) {
      idle[at] = block->next;
      --idle_count[at];
    } else {
      block = from_heap(std::size_t{128} << which, this, which);
    }
    ++out;
    if (spares && here.threads > 1 && which < k_spare_classes) keep_spares(which);
    return block;
  }

  // Every other thread may hold as many blocks as this one does now. Counts the block that a body has just taken.
  void keep_spares(int which) {
    const auto at = static_cast<std::size_t>(which);
    const int mine = ++here.held[at], others = ++held_by_bodies[at] - mine;
    try {
      while (idle_count[at] + others < (here.threads - 1) * mine) keep(from_heap(std::size_t{128} << which, this, which));
    } catch (const std::bad_alloc&) {
      return;  // a later call may have to allocate
    }
  }

  void keep(header* block) noexcept {
    const auto at = static_cast<std::size_t>(block->size_class);
    block->next = idle[at];
    idle[at] = block;
    ++idle_count[at];
  }

  // True if nothing refers to the state any more.
  bool give_back(header* block) noexcept {
    const std::lock_guard lock(mutex);
    --out;
    if (owned) {
      if (spares && here.threads > 1 && block->size_class < k_spare_classes) {
        std::uint16_t& held = here.held[static_cast<std::size_t>(block->size_class)];
        if (held > 0) {
          --held;
          --held_by_bodies[static_cast<std::size_t>(block->size_class)];
        }
      }
      keep(block);
      return false;
    }
    to_heap(block);
    return out == 0;
  }

  // A body has ended that began with `before`. Blocks that it still holds outlive it: they do not belong to the loop any more.
  void end_body(const std::array<std::uint16_t, k_spare_classes>& before) noexcept {
    if (!spares || here.held == before) return;
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < before.size(); ++i) held_by_bodies[i] -= here.held[i] - before[i];
  }

  // Releases the idle blocks. True if no block is in use.
  bool abandon() noexcept {
    const std::lock_guard lock(mutex);
    owned = false;
    for (header*& first : idle) {
      while (first != nullptr) {
        header* const next = first->next;
        to_heap(first);
        first = next;
      }
    }
    return out == 0;
  }
};

arena::arena(spares kept) : state_(new state(kept == spares::yes)) {}

arena::~arena() {
  if (state_->abandon()) delete state_;
}

arena* arena::current() noexcept { return here.memory; }

arena_scope::arena_scope(arena* of, int threads) noexcept
    : arena_before_(here.memory), threads_before_(here.threads), held_before_(here.held) {
  static_assert(arena_scope::k_spare_classes == core::k_spare_classes);
  // An inner loop's body runs on the stack of an outer one: both hold blocks at the same time.
  if (here.threads <= 1 || here.memory != of) here.held = {};
  held_at_begin_ = here.held;
  here.memory = of;
  here.threads = threads;
}
arena_scope::~arena_scope() {
  if (here.memory != nullptr && here.threads > 1) here.memory->state_->end_body(held_at_begin_);
  here.memory = arena_before_;
  here.threads = threads_before_;
  here.held = held_before_;
}

void* pool_allocate(std::size_t bytes) {
  using header = arena::state::header;
  header* const block = here.memory != nullptr ? here.memory->state_->take(bytes) : arena::state::from_heap(bytes, nullptr, 0);
  return block + 1;
}

void pool_release(void* memory) noexcept {
  using header = arena::state::header;
  if (memory == nullptr) return;
  header* const block = static_cast<header*>(memory) - 1;
  arena::state* const home = block->home;
  if (home == nullptr)
    arena::state::to_heap(block);
  else if (home->give_back(block))
    delete home;
}

}  // namespace ballast::core
