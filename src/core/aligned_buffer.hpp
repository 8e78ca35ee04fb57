// Uninitialised scratch memory, aligned for SIMD and cache lines. The size is checked for overflow.
// Layer: foundation.
#pragma once

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

}  // namespace ballast::core
