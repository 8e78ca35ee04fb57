// A GPU as a user's program sees it, through the CUDA driver found at run time: memory, one stream, times by events, graphs. What tests and
// benchmarks of the CUDA backends hold their data in and measure with.
// Layer: tools; not part of the library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ballast::bench::gpu {

// Why there is no GPU to use, in one sentence; empty if there is one. The other functions need one. They throw ballast::error with the
// driver's words, and std::bad_alloc where memory is not there.
std::string why_none();

struct description {
  std::string name;
  std::string driver;  // the newest toolkit that the driver supports: "13.0"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
};

// Makes the first device's primary context current, as any CUDA program does at its start.
description open();

// From now on everything here is done by the host, with its memory and clock: to try a program of tests without a GPU. Not to be timed by.
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

// The stream that everything here is ordered on; not the default stream, which cannot be captured.
void* stream();

void copy(void* to, const void* from, std::int64_t bytes);  // any direction
void fill(void* memory, unsigned char value, std::int64_t bytes);
void synchronize();

// These values on the device; no memory for none.
template <class T>
buffer buffer_of(const std::vector<T>& values) {
  if (values.empty()) return {};
  buffer made(static_cast<std::int64_t>(values.size() * sizeof(T)));
  copy(made.data(), values.data(), made.bytes());
  synchronize();
  return made;
}

// Device time of what `work` puts on the stream.
double seconds_of(const std::function<void()>& work);

// What `work` put on the stream, to be run again without the host.
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
