// Manages a locked list of idle memory. Executions that overlap in time get separate memory.
#include "cuda/memory/workspace.hpp"

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <ballast/error.hpp>

namespace ballast::cuda {

struct workspace::idle_list {
  std::mutex mutex;
  std::vector<device_buffer> memory;
};

workspace::~workspace() {
  if (home_ == nullptr || owned_.data() == nullptr) return;
  const std::lock_guard lock(home_->mutex);
  home_->memory.push_back(std::move(owned_));
}

workspace_pool::workspace_pool(std::shared_ptr<device> on, std::int64_t bytes)
    : device_(std::move(on)), bytes_(bytes), idle_(std::make_shared<workspace::idle_list>()) {}

workspace workspace_pool::take(std::span<std::byte> given, stream order) const {
  workspace made;
  if (!given.empty()) {
    if (static_cast<std::int64_t>(given.size()) < bytes_)
      throw invalid_argument_error("workspace: expected at least " + std::to_string(bytes_) + " bytes, got " +
                                   std::to_string(given.size()));
    if (!device_->accessible(given.data())) throw invalid_argument_error("workspace: expected device memory, got a host pointer");
    if (reinterpret_cast<std::uintptr_t>(given.data()) % k_workspace_alignment != 0)
      throw invalid_argument_error("workspace: expected memory at a multiple of " + std::to_string(k_workspace_alignment) + " bytes");
    made.memory_ = reinterpret_cast<unsigned char*>(given.data());
    return made;
  }
  {
    const std::lock_guard lock(idle_->mutex);
    if (!idle_->memory.empty()) {
      made.owned_ = std::move(idle_->memory.back());
      idle_->memory.pop_back();
      made.fresh_ = false;
    }
  }
  if (made.fresh_) made.owned_ = device_buffer(device_, bytes_, order);
  made.memory_ = static_cast<unsigned char*>(made.owned_.data());
  made.home_ = idle_;
  return made;
}

}  // namespace ballast::cuda
