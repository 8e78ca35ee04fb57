// Device memory of executions: the caller's, or a plan's own, which is kept for the next execution.
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

// What a caller's memory must begin at a multiple of; CUDA's own allocations do.
inline constexpr std::uintptr_t k_workspace_alignment = 256;

// The memory of one execution. A pool's own memory goes back to it.
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
  // Whether it holds anything whatever. If not, it holds what the execution before it left there: counters that are 0 again, say.
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
  std::int64_t bytes() const noexcept { return bytes_; }

  // `given` (execution::workspace) unless that is empty; else memory that is idle, else new memory. The execution before it that had the
  // same memory must be ordered in front of this one. Throws invalid_argument_error if `given` is too small or not on the device,
  // std::bad_alloc.
  workspace take(std::span<std::byte> given, stream order) const;

 private:
  std::shared_ptr<device> device_;
  std::int64_t bytes_;
  std::shared_ptr<workspace::idle_list> idle_;
};

}  // namespace ballast::cuda
