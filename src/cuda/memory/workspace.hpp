// Device memory of executions: the caller's, or the plan's, which is kept for the next execution.
// Layer: foundation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

class workspace_pool;

// The required alignment of a caller's memory. CUDA's allocations have it.
inline constexpr std::uintptr_t k_workspace_alignment = 256;
// Returns the least multiple of it that is at least `bytes`.
constexpr std::int64_t aligned_bytes(std::int64_t bytes) {
  constexpr auto unit = static_cast<std::int64_t>(k_workspace_alignment);
  return (bytes + unit - 1) / unit * unit;
}

// The memory of one execution. The destructor returns a pool's memory to the pool.
class workspace {
 public:
  workspace() = default;
  workspace(workspace&&) noexcept = default;
  workspace& operator=(workspace&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(fresh_, other.fresh_);
    std::swap(owned_, other.owned_);
    std::swap(home_, other.home_);
    return *this;
  }
  ~workspace();

  unsigned char* data() const noexcept { return memory_; }
  // Returns true if the content is undefined. If false, the memory holds the data of the previous execution, for example counters that it
  // has reset to 0.
  bool fresh() const noexcept { return fresh_; }

 private:
  friend class workspace_pool;
  struct idle_list;
  unsigned char* memory_ = nullptr;
  bool fresh_ = true;
  device_buffer owned_;
  std::shared_ptr<idle_list> home_;
};

// The workspaces of one plan, all of the same size. Thread-safe.
class workspace_pool {
 public:
  workspace_pool(std::shared_ptr<device> on, std::int64_t bytes);
  ~workspace_pool();
  workspace_pool(const workspace_pool&) = delete;
  workspace_pool& operator=(const workspace_pool&) = delete;
  std::int64_t bytes() const noexcept { return bytes_; }

  // Returns `given` (execution::workspace) unless it is empty, or else idle memory, or else new memory. The previous execution with the
  // same memory must be ordered before this one. Throws invalid_argument_error if `given` is too small, misaligned or not on the device,
  // and std::bad_alloc.
  workspace take(std::span<std::byte> given, stream order) const;

 private:
  std::shared_ptr<device> device_;
  std::int64_t bytes_;
  std::shared_ptr<workspace::idle_list> idle_;
};

}  // namespace ballast::cuda
