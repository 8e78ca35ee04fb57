// Objects that are expensive to construct, and that calls use one after the other: workspaces, streams, pinned memory.
// Layer: foundation. Thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
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

// An object that a call has taken from a pool. The destructor gives it back, or destroys it after spoil().
// Members that use the object are declared after this one, so that they are destroyed first: memory whose release is ordered on a stream
// must be released before the stream is.
template <class T>
class lent {
 public:
  // Takes an idle object, or calls make().
  template <class Make>
  lent(std::shared_ptr<idle_pool<T>> home, Make&& make) : home_(std::move(home)), one_(home_->take_or(std::forward<Make>(make))) {}
  lent(const lent&) = delete;
  lent& operator=(const lent&) = delete;
  ~lent() {
    if (!spoiled_) home_->give_back(std::move(one_));
  }

  T& get() noexcept { return one_; }
  const T& get() const noexcept { return one_; }
  // The object is in an unknown state: no other call may use it.
  void spoil() noexcept { spoiled_ = true; }

 private:
  std::shared_ptr<idle_pool<T>> home_;
  T one_;
  bool spoiled_ = false;
};

}  // namespace ballast::core
