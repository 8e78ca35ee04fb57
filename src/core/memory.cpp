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

thread_local arena* current_arena = nullptr;

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

  std::mutex mutex;
  std::array<header*, k_classes> idle{};
  std::int64_t out = 0;  // blocks in use
  bool owned = true;     // by an arena that is alive

  header* take(std::size_t bytes) {
    const int which = class_of(bytes);
    if (which >= k_classes) throw std::bad_alloc();
    const std::lock_guard lock(mutex);
    header* block = idle[static_cast<std::size_t>(which)];
    if (block != nullptr)
      idle[static_cast<std::size_t>(which)] = block->next;
    else
      block = from_heap(std::size_t{128} << which, this, which);
    ++out;
    return block;
  }

  // True if nothing refers to the state any more.
  bool give_back(header* block) noexcept {
    const std::lock_guard lock(mutex);
    --out;
    if (owned) {
      header*& first = idle[static_cast<std::size_t>(block->size_class)];
      block->next = first;
      first = block;
      return false;
    }
    to_heap(block);
    return out == 0;
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

arena::arena() : state_(new state) {}

arena::~arena() {
  if (state_->abandon()) delete state_;
}

arena* arena::current() noexcept { return current_arena; }

arena_scope::arena_scope(arena* of) noexcept : before_(current_arena) { current_arena = of; }
arena_scope::~arena_scope() { current_arena = before_; }

void* pool_allocate(std::size_t bytes) {
  using header = arena::state::header;
  header* const block = current_arena != nullptr ? current_arena->state_->take(bytes) : arena::state::from_heap(bytes, nullptr, 0);
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
