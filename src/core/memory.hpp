// Memory that a plan keeps from one call to the next, so that its second call allocates nothing.
// Layer: foundation. Inside an arena_scope, pooled containers of the thread, and of the threads of parallel_for, take their memory from the
// scope's arena; outside of one, from the heap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

namespace ballast::core {

// Blocks of memory by size class (powers of two). A block that is released waits here for the next request of its class. Thread-safe.
// Blocks may outlive the arena.
class arena {
 public:
  // spares: the bodies of a parallel loop overlap differently from call to call. When a body takes a block, the arena allocates as many as
  // all threads of the loop would need if they ran that body at the same time, so that a later call needs no more. Only blocks of up to
  // 1 MiB have spares. For arenas that serve many calls.
  enum class spares { no, yes };
  explicit arena(spares kept = spares::no);
  ~arena();
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  // The arena of the innermost scope on this thread, or null.
  static arena* current() noexcept;

 private:
  friend class arena_scope;
  friend void* pool_allocate(std::size_t bytes);
  friend void pool_release(void* memory) noexcept;
  struct state;
  state* state_;
};

// Makes `of` the arena of this thread until the scope ends; null: the heap. threads > 1: the scope is a body of a parallel loop with so
// many threads.
class arena_scope {
 public:
  explicit arena_scope(arena* of, int threads = 1) noexcept;
  ~arena_scope();
  arena_scope(const arena_scope&) = delete;
  arena_scope& operator=(const arena_scope&) = delete;

 private:
  friend class arena;
  static constexpr int k_spare_classes = 14;  // spare blocks have up to 1 MiB
  // The values of the enclosing scope of this thread.
  arena* arena_before_;
  int threads_before_;
  std::array<std::uint16_t, k_spare_classes> held_before_;
  std::array<std::uint16_t, k_spare_classes> held_at_begin_{};
};

// Memory at a 128-byte boundary, from the current arena or from the heap. Throws std::bad_alloc.
void* pool_allocate(std::size_t bytes);
void pool_release(void* memory) noexcept;

template <class T>
class pooled_allocator {
 public:
  using value_type = T;
  pooled_allocator() = default;
  template <class U>
  pooled_allocator(const pooled_allocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    constexpr std::size_t size = sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a pointer
    if (count > std::numeric_limits<std::size_t>::max() / 2 / size) throw std::bad_array_new_length();
    return static_cast<T*>(pool_allocate(count * size));
  }
  void deallocate(T* memory, std::size_t) noexcept { pool_release(memory); }
  template <class U>
  bool operator==(const pooled_allocator<U>&) const noexcept {
    return true;
  }
};

template <class T>
using vector = std::vector<T, pooled_allocator<T>>;

// Base of objects that a call makes on the heap.
struct pooled {
  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void* operator new(std::size_t, void* where) noexcept { return where; }
  static void operator delete(void* memory) noexcept { pool_release(memory); }
};

}  // namespace ballast::core
