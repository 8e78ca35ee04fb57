// Device memory that a stream of Ballast's own has released and may use again at once: a call takes some dozen buffers, and the next call
// of the same size takes the same ones.
// Layer: foundation. Thread-safe. Knows addresses and sizes; the device allocates and releases.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Memory by stream and size. Later work on a stream may use what was released in that stream's order without any wait, so memory never goes
// to another stream. Only streams that this process creates and destroys are served: a caller may destroy a stream, and the driver gives
// its handle to a new one.
class idle_memory {
 public:
  // Keeps at most `most_bytes` idle bytes.
  explicit idle_memory(std::int64_t most_bytes) : most_bytes_(most_bytes) {}
  idle_memory(const idle_memory&) = delete;
  idle_memory& operator=(const idle_memory&) = delete;

  static constexpr std::size_t k_most_blocks = 1024;  // a search goes through all of them

  struct block {
    void* memory = nullptr;
    std::int64_t bytes = 0;
    stream order = nullptr;
  };

  // The size that is allocated for `bytes` bytes: at most an eighth larger, so that calls of about the same size share memory.
  static std::int64_t rounded(std::int64_t bytes) {
    const auto floor = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1))));
    const std::int64_t unit = std::max<std::int64_t>(floor / 8, 512);
    return (std::max<std::int64_t>(bytes, 1) + unit - 1) / unit * unit;
  }

  // Serves this stream from now on, or no longer. forget() and drop_all() call release(block) for idle blocks: those of the stream, or all.
  void serve(stream on) {
    const std::lock_guard lock(mutex_);
    served_.push_back(on);
  }
  template <class Release>
  void forget(stream on, Release&& release) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(served_, on);
    drop([on](const noted& each) { return each.at.order == on; }, release);
  }
  template <class Release>
  void drop_all(Release&& release) noexcept {
    const std::lock_guard lock(mutex_);
    drop([](const noted&) { return true; }, release);
  }
  // Returns whether so many bytes of this stream can be kept.
  bool serves(stream on, std::int64_t bytes) const {
    const std::lock_guard lock(mutex_);
    return rounded(bytes) <= most_bytes_ && serves_now(on);
  }

  // Returns idle memory of this rounded size and stream; null: there is none.
  void* take(std::int64_t bytes, stream on) noexcept {
    const std::lock_guard lock(mutex_);
    for (noted& each : all_) {
      if (!each.idle || each.at.bytes != bytes || each.at.order != on) continue;
      each.idle = false;
      idle_bytes_ -= bytes;
      return each.at.memory;
    }
    return nullptr;
  }

  // Notes new memory of a served stream, in use. Memory that is not noted is not kept.
  void note(const block& made) noexcept {
    const std::lock_guard lock(mutex_);
    if (all_.size() >= k_most_blocks) return;
    try {
      all_.push_back({made, false, 0});
    } catch (...) {
      return;
    }
  }

  // Keeps memory that is released in the order of a stream. Returns false if the caller must release it: note() was not called, the
  // stream is not served, or the memory is larger than all that is kept. Calls release(block) for what has been idle longest, until the
  // rest is within the bound.
  template <class Release>
  bool keep(void* memory, stream on, Release&& release) noexcept {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(all_.begin(), all_.end(), [memory](const noted& each) { return !each.idle && each.at.memory == memory; });
    if (at == all_.end()) return false;
    if (!serves_now(on) || at->at.bytes > most_bytes_) {
      remove(at);
      return false;
    }
    at->at.order = on;
    at->idle = true;
    at->since = ++clock_;
    idle_bytes_ += at->at.bytes;
    while (idle_bytes_ > most_bytes_) {
      const auto oldest =
          std::min_element(all_.begin(), all_.end(), [](const noted& a, const noted& b) { return a.age_key() < b.age_key(); });
      idle_bytes_ -= oldest->at.bytes;
      release(oldest->at);
      remove(oldest);
    }
    return true;
  }

  std::int64_t idle_bytes() const {
    const std::lock_guard lock(mutex_);
    return idle_bytes_;
  }

 private:
  struct noted {
    block at;
    bool idle = false;
    std::uint64_t since = 0;  // a number that grows with each release
    std::uint64_t age_key() const { return idle ? since : ~std::uint64_t{0}; }
  };

  bool serves_now(stream on) const { return std::find(served_.begin(), served_.end(), on) != served_.end(); }
  void remove(std::vector<noted>::iterator at) {
    *at = all_.back();
    all_.pop_back();
  }
  template <class Chosen, class Release>
  void drop(Chosen&& chosen, Release&& release) noexcept {
    for (auto each = all_.begin(); each != all_.end();) {
      if (!each->idle || !chosen(*each)) {
        ++each;
        continue;
      }
      idle_bytes_ -= each->at.bytes;
      release(each->at);
      remove(each);
    }
  }

  const std::int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::vector<stream> served_;
  std::vector<noted> all_;
  std::int64_t idle_bytes_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace ballast::cuda
