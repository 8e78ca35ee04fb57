// Centroids while they wait (sealed) and as a pass uses them (panel), with their checksums.
// Layer: driver, backend-free.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kmeans/contract.hpp"

namespace ballast::kmeans {

// A hash of the words. Each step is a permutation, so a change of one word always changes it, and of several but for one time in 2⁶⁴.
// (Sums are not enough: alike flips of the top bit of a whole vector vanish from them.)
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

// k × n centroids that survive a fault while they wait: two copies, each checked against the seal that was made when they were verified.
template <class T>
class sealed_centroids {
 public:
  sealed_centroids() = default;
  explicit sealed_centroids(std::vector<T> values) : values_(std::move(values)), twin_(values_) {
    seal_ = seal_of(values_.data(), size());
  }
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

// Fills `made` (allocating it at first) for `k` centroids of `n` features: tiles, norms, weights; with `protect` also the checksum
// centroids and the limits. O(kn).
template <class T>
void make_panel(const T* centroids, std::int64_t k, std::int64_t n, bool protect, panel<T>& made);

// The checksum centroids once more, in another order of summation; the largest difference in units of their limit. ≤ 1 unless one of the
// two was struck.
template <class T>
double verify_checksum(const panel<T>& made);

}  // namespace ballast::kmeans
