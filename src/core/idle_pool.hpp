// Objects that are expensive to construct, and that calls use one after the other: workspaces, streams, pinned memory.
// Layer: foundation. Thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace ballast::core {

// Keeps at most `most` idle objects. T is movable. The destructor of a T runs without the lock.
template <class T>
class idle_pool {
 public:
  explicit idle_pool(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}
  idle_pool(const idle_pool&) = delete;
  idle_pool& operator=(const idle_pool&) = delete;

  // Returns an idle object, the one that came back last; nothing if none is idle.
  std::optional<T> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::nullopt;
    std::optional<T> one(std::move(idle_.back()));
    idle_.pop_back();
    return one;
  }
  // Returns an idle object, or what make() returns.
  template <class Make>
  T take_or(Make&& make) {
    if (std::optional<T> one = take()) return std::move(*one);
    return std::forward<Make>(make)();
  }

  // Keeps `one` for the next take(). Destroys it if enough objects are idle, or if there is no memory to note it.
  void give_back(T one) noexcept {
    const std::lock_guard lock(mutex_);
    if (idle_.size() >= most_) return;
    try {
      idle_.push_back(std::move(one));
    } catch (...) {
      return;
    }
  }

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::vector<T> idle_;
};

}  // namespace ballast::core
