// A GPU as a user's program sees it, over the CUDA driver, which is loaded at run time: memory, one stream, times from events, graphs.
// Tests and benchmarks of the CUDA backends use it for their data and measurements.
// Layer: tools; not part of the library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ballast::bench::gpu {

// Returns the reason why no GPU can be used, in one sentence; empty if one can. The other functions need a GPU. They throw ballast::error
// with the driver's message, and std::bad_alloc if memory is exhausted.
std::string why_none();

struct description {
  std::string name;
  std::string driver;  // the newest toolkit that the driver supports: "13.0"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
};

// Returns the number of devices; after pretend(), 1.
int devices();

// Makes the device's primary context current in this thread, as any CUDA program does at its start.
description open(int device = 0);

// Returns the bytes of device memory that no program has taken, after all work has ended.
std::int64_t free_bytes();

// After this call the host performs all functions of this header, with its memory and clock. For trying test programs without a GPU, not
// for timings.
void pretend();

class buffer {
 public:
  buffer() = default;
  explicit buffer(std::int64_t bytes);
  buffer(buffer&& other) noexcept { swap(other); }
  buffer& operator=(buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~buffer();
  void* data() const noexcept { return memory_; }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void swap(buffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Returns the stream on which everything here that this thread does is ordered. Each thread has its own. It is not the default stream,
// which cannot be captured.
void* stream();

void copy(void* to, const void* from, std::int64_t bytes);  // any direction
void fill(void* memory, unsigned char value, std::int64_t bytes);
void synchronize();

// Copies the values to the device. Allocates nothing if there are none.
template <class T>
buffer buffer_of(const std::vector<T>& values) {
  if (values.empty()) return {};
  buffer made(static_cast<std::int64_t>(values.size() * sizeof(T)));
  copy(made.data(), values.data(), made.bytes());
  synchronize();
  return made;
}

// Returns the device time of the work that `work` enqueues on the stream.
double seconds_of(const std::function<void()>& work);

// A graph of the work that `work` enqueues on the stream; launch() runs it again.
class graph {
 public:
  graph() = default;
  explicit graph(const std::function<void()>& work);
  graph(graph&& other) noexcept { std::swap(ready_, other.ready_); }
  graph& operator=(graph&& other) noexcept {
    std::swap(ready_, other.ready_);
    return *this;
  }
  ~graph();
  void launch() const;
  explicit operator bool() const noexcept { return ready_ != nullptr; }

 private:
  void* ready_ = nullptr;
};

}  // namespace ballast::bench::gpu
