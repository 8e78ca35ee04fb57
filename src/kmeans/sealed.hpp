// A value that is stored between two uses, protected by a checksum (the seal) and a second copy.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "abft/seal.hpp"
#include "core/memory.hpp"

namespace ballast::kmeans {

using abft::k_seal_of_nothing;
using abft::seal_of;

template <class T, class Allocator>
std::uint64_t seal_of(const std::vector<T, Allocator>& words) {
  return seal_of(words.data(), static_cast<std::int64_t>(words.size()));
}

// A value in two copies. A copy that does not match the seal was corrupted while it was stored. Seal the value first, then verify the
// sealed value: so either the seal or the check protects it at every moment.
template <class Value>
class sealed {
 public:
  sealed() = default;
  explicit sealed(Value values) : values_(std::move(values)), twin_(values_), seal_(seal_of(values_)) {}
  const Value& values() const { return values_; }
  Value& exposed() { return values_; }  // for the injector

  bool intact() const { return seal_of(values_) == seal_; }
  std::uint64_t seal() const { return seal_; }  // for a copy stored elsewhere

  enum class state { intact, repaired, lost };
  // Verifies the values. If they were corrupted, restores them from the twin.
  state verify() {
    if (intact()) return state::intact;
    if (seal_of(twin_) != seal_) return state::lost;
    values_ = twin_;
    return state::repaired;
  }

 private:
  Value values_;
  Value twin_;
  std::uint64_t seal_ = 0;
};

// The k × n centroids.
template <class T>
using sealed_centroids = sealed<core::vector<T>>;

}  // namespace ballast::kmeans
