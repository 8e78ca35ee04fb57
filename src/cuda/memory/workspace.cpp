// Lends device memory to executions. Executions that overlap in time get separate memory.
#include "cuda/memory/workspace.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <ballast/error.hpp>

#include "core/idle_pool.hpp"

namespace ballast::cuda {

struct workspace::idle_list {
  core::idle_pool<device_buffer> memory;
};

workspace::~workspace() {
  if (home_ != nullptr && owned_.data() != nullptr) home_->memory.give_back(std::move(owned_));
}

workspace_pool::workspace_pool(std::shared_ptr<device> on, std::int64_t bytes)
    : device_(std::move(on)), bytes_(bytes), idle_(std::make_shared<workspace::idle_list>()) {}

// The stream of the first execution may not exist any more. No execution uses idle memory.
workspace_pool::~workspace_pool() {
  while (std::optional<device_buffer> idle = idle_->memory.take()) idle->release_on(nullptr);
}

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
  if (std::optional<device_buffer> idle = idle_->memory.take()) {
    made.owned_ = std::move(*idle);
    made.fresh_ = false;
  }
  if (made.fresh_) made.owned_ = device_buffer(device_, bytes_, order);
  made.memory_ = static_cast<unsigned char*>(made.owned_.data());
  made.home_ = idle_;
  return made;
}

}  // namespace ballast::cuda
