// A value that is stored between two uses, protected by a checksum (the seal) and a second copy.
// Layer: algorithm, backend-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "abft/seal.hpp"
#include "core/memory.hpp"

namespace ballast::kmeans {

using abft::k_seal_of_nothing;
using abft::seal_of;

// Four chains over words of 8 bytes in turn, whose steps overlap, and the chain of the four: each sees every change of a word as seal_of
// does.
template <class T, class Allocator>
std::uint64_t seal_of(const std::vector<T, Allocator>& numbers) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  constexpr std::size_t lanes = 4, each = sizeof(std::uint64_t) / sizeof(T);
  std::uint64_t made[lanes];
  for (std::size_t lane = 0; lane < lanes; ++lane) made[lane] = k_seal_of_nothing + lane;
  std::size_t at = 0;
  for (; at + lanes * each <= numbers.size(); at += lanes * each) {
    std::uint64_t words[lanes];
    std::memcpy(words, numbers.data() + at, sizeof words);
    for (std::size_t lane = 0; lane < lanes; ++lane) made[lane] = seal_of(words + lane, 1, made[lane]);
  }
  return seal_of(made, lanes, seal_of(numbers.data() + at, static_cast<std::int64_t>(numbers.size() - at)));
}

// A value in two copies. A copy that does not match the seal was corrupted while it was stored. Seal the value first, then verify the
// sealed value: so either the seal or the check protects it at every moment.
template <class Value>
class sealed {
 public:
  sealed() = default;
  explicit sealed(Value values) : values_(std::move(values)), twin_(values_), seal_(seal_of(values_)) {
    // A seal that was struck while it was made would condemn both copies: the second opinion is that of the twin, the third decides.
    const std::uint64_t second = seal_of(twin_);
    if (second != seal_ && seal_of(values_) == second) seal_ = second;
  }
  const Value& values() const { return values_; }
  const Value& twin() const { return twin_; }
  Value& exposed() { return values_; }  // for the injector, as the next one
  std::uint64_t& exposed_seal() { return seal_; }

  bool intact() const { return seal_of(values_) == seal_; }
  std::uint64_t seal() const { return seal_; }  // for a copy stored elsewhere

  enum class state { intact, repaired, lost };
  // Verifies the values. If they were corrupted, restores them from the twin. If both copies have another seal, and the same one, the seal
  // was corrupted and is made again.
  state verify() {
    if (intact()) return state::intact;
    const std::uint64_t of_twin = seal_of(twin_);
    if (of_twin != seal_) {
      if (seal_of(values_) != of_twin) return state::lost;
      seal_ = of_twin;
      return state::repaired;
    }
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
