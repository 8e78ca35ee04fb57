// Centroids while they wait (sealed) and as a pass uses them (panel), with their checksums.
// Layer: driver, backend-free.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kmeans/contract.hpp"

namespace ballast::kmeans {

// The running sum of the words and the running sum of that: any change of one word, and almost any of several, changes it.
struct seal {
  std::uint64_t sum = 0;
  std::uint64_t sum_of_sums = 0;
  bool operator==(const seal&) const = default;
};

template <class T>
seal seal_of(const T* words, std::int64_t count) {
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  seal made;
  for (std::int64_t i = 0; i < count; ++i) {
    word bits;
    std::memcpy(&bits, words + i, sizeof bits);
    made.sum += bits;
    made.sum_of_sums += made.sum;
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
  seal seal_;
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
