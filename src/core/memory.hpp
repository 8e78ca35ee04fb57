// Memory that a plan keeps from one call to the next, so that its second call allocates nothing.
// Layer: foundation. Inside an arena_scope, pooled containers of the thread, and of the threads of parallel_for, take their memory from the
// scope's arena; outside of one, from the heap.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace ballast::core {

// Blocks of memory by size class (powers of two). A block that is released waits here for the next request of its class. Thread-safe.
// Blocks may outlive the arena.
class arena {
 public:
  arena();
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

// Makes `of` the arena of this thread until the scope ends; null: the heap.
class arena_scope {
 public:
  explicit arena_scope(arena* of) noexcept;
  ~arena_scope();
  arena_scope(const arena_scope&) = delete;
  arena_scope& operator=(const arena_scope&) = delete;

 private:
  arena* before_;
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
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(pool_allocate(count * sizeof(T)));
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
