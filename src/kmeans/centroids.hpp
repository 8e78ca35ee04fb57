// Centroids that wait between two uses, protected by a seal and a second copy.
// Layer: algorithm, backend-free.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace ballast::kmeans {

// A hash of the words. Each step is a permutation: a change of one word always changes the hash, a change of several all but once in 2⁶⁴.
// A sum would not do: an even number of flips of the top bit cancels in it.
template <class T>
std::uint64_t seal_of(const T* words, std::int64_t count) {
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::uint64_t made = 0x9e3779b97f4a7c15;
  for (std::int64_t i = 0; i < count; ++i) {
    word bits;
    std::memcpy(&bits, words + i, sizeof bits);
    made = (std::rotl(made, 23) ^ bits) * 0xbf58476d1ce4e5b9;
  }
  return made;
}

// k × n centroids in two copies. The seal is made when they have been verified; a copy that does not fit it was struck while it waited.
template <class T>
class sealed_centroids {
 public:
  sealed_centroids() = default;
  explicit sealed_centroids(std::vector<T> values) : values_(std::move(values)), twin_(values_) { seal_ = seal_of(values_.data(), size()); }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  T* data() { return values_.data(); }  // for the injector
  const std::vector<T>& values() const { return values_; }

  bool intact() const { return seal_of(values_.data(), size()) == seal_; }

  enum class state { intact, repaired, lost };
  // Verifies the values, and takes them from the twin if they were hit.
  state verify() {
    if (seal_of(values_.data(), size()) == seal_) return state::intact;
    if (seal_of(twin_.data(), size()) != seal_) return state::lost;
    values_ = twin_;
    return state::repaired;
  }

 private:
  std::vector<T> values_;
  std::vector<T> twin_;
  std::uint64_t seal_ = 0;
};

}  // namespace ballast::kmeans
