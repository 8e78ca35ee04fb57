// Uninitialised scratch memory, aligned for SIMD and cache lines. The size is checked for overflow.
// Layer: foundation.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "core/memory.hpp"

namespace ballast::core {

// Returns a · b. Throws std::bad_array_new_length if a factor is negative or the product does not fit into 63 bits.
inline std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) throw std::bad_array_new_length();
  return product;
}

// Owns `size` elements of a trivial type, not initialised, at a 128-byte boundary, from the current arena (memory.hpp). Throws
// std::bad_alloc.
template <class T>
class aligned_buffer {
 public:
  static constexpr std::size_t k_alignment = 128;

  aligned_buffer() = default;
  explicit aligned_buffer(std::int64_t size)
      : size_(size), data_(static_cast<T*>(pool_allocate(static_cast<std::size_t>(checked_product(size, sizeof(T)))))) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }

 private:
  struct release {
    void operator()(T* p) const { pool_release(p); }
  };
  std::int64_t size_ = 0;
  std::unique_ptr<T[], release> data_;
};

// Returns such a buffer for much data, on large pages where the system has them: else its page faults would cost as much as writing it, and
// strided accesses a table walk each.
template <class T>
aligned_buffer<T> large_buffer(std::int64_t size) {
  aligned_buffer<T> made(size);
#if defined(__linux__)
  constexpr std::uintptr_t page = 1 << 21;
  const auto address = reinterpret_cast<std::uintptr_t>(made.data());
  const std::uintptr_t first = (address + page - 1) / page * page;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(made.data() + size) / page * page;
  // This is advice: a failure changes nothing.
  if (last > first + page) (void)::madvise(reinterpret_cast<char*>(made.data()) + (first - address), last - first, MADV_HUGEPAGE);
#endif
  return made;
}

}  // namespace ballast::core
