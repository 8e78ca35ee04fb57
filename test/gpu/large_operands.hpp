// Operands of the stage `distributed`, of some GB: made, copied and summed by many threads, since none of that is timed.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"
#include "distributed.hpp"

namespace ballast::gpu_check {

// Fresh memory of the host: the threads that fill it share its page faults, which take seconds for 8 GB.
template <class T>
class host_memory {
 public:
  explicit host_memory(std::size_t count) : bytes_(std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T))), count_(count) {}
  std::span<T> values() const { return {reinterpret_cast<T*>(bytes_.get()), count_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t count_;
};

// Stores random numbers from −1/2 to 1/2, by Knuth's generator, whose upper bits are random enough: it begins anew for each block.
template <class T>
void fill_with_numbers(std::span<T> to, std::uint64_t seed) {
  constexpr std::int64_t block = 1 << 16;
  const auto count = static_cast<std::int64_t>(to.size());
  work_in_threads((count + block - 1) / block, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      std::uint64_t state = (seed + static_cast<std::uint64_t>(b) * 0x9e3779b97f4a7c15U) * 6364136223846793005U;
      for (std::int64_t e = b * block; e < std::min((b + 1) * block, count); ++e) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        to[static_cast<std::size_t>(e)] = static_cast<T>(std::ldexp(static_cast<double>(state >> 40U), -24) - 0.5);
      }
    }
  });
}

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> made(count);
  fill_with_numbers(std::span(made), seed);
  return made;
}

// Adds what sum(first, last) returns for parts of [0, count), which threads take.
inline double sum_in_threads(std::int64_t count, const std::function<double(std::int64_t first, std::int64_t last)>& sum) {
  std::mutex adding;
  double all = 0;
  work_in_threads(count, [&](std::int64_t first, std::int64_t last) {
    const double part = sum(first, last);
    const std::lock_guard lock(adding);
    all += part;
  });
  return all;
}

template <class T>
double norm_of(std::span<const T> values) {
  return std::sqrt(sum_in_threads(static_cast<std::int64_t>(values.size()), [&](std::int64_t first, std::int64_t last) {
    double squares = 0;
    for (std::int64_t e = first; e < last; ++e) squares += std::norm(static_cast<double>(values[static_cast<std::size_t>(e)]));
    return squares;
  }));
}

// Copies between a device and pageable memory of the host by page-locked memory, which what is not timed need not wait for.
class staging {
 public:
  explicit staging(std::shared_ptr<cuda::device> device) : device_(std::move(device)), memory_(device_, k_chunk) {}

  void load(void* to, const void* from, std::int64_t bytes) const {
    for (std::int64_t at = 0; at < bytes; at += k_chunk) {
      const std::int64_t size = std::min(k_chunk, bytes - at);
      copy_in_threads(memory_.data(), static_cast<const std::byte*>(from) + at, size);
      device_->copy(static_cast<std::byte*>(to) + at, memory_.data(), size, nullptr);
      device_->synchronize(nullptr);
    }
  }
  // Calls visit(part, at, size) for the parts of what lies on the device.
  template <class Visit>
  void read(const void* from, std::int64_t bytes, const Visit& visit) const {
    for (std::int64_t at = 0; at < bytes; at += k_chunk) {
      const std::int64_t size = std::min(k_chunk, bytes - at);
      device_->copy(memory_.data(), static_cast<const std::byte*>(from) + at, size, nullptr);
      device_->synchronize(nullptr);
      visit(static_cast<const std::byte*>(memory_.data()), at, size);
    }
  }
  void store(void* to, const void* from, std::int64_t bytes) const {
    read(from, bytes,
         [&](const std::byte* part, std::int64_t at, std::int64_t size) { copy_in_threads(static_cast<std::byte*>(to) + at, part, size); });
  }
  const std::shared_ptr<cuda::device>& device() const { return device_; }

 private:
  static constexpr std::int64_t k_chunk = std::int64_t{64} << 20;

  static void copy_in_threads(void* to, const void* from, std::int64_t bytes) {
    work_in_threads(bytes, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first, static_cast<std::size_t>(last - first));
    });
  }

  std::shared_ptr<cuda::device> device_;
  cuda::pinned_buffer memory_;
};

}  // namespace ballast::gpu_check
