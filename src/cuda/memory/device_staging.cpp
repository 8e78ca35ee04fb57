// Copies whole operands: a strided operand is copied with the gaps between its elements.
#include "cuda/memory/device_staging.hpp"

#include <algorithm>

namespace ballast::cuda {

void* device_staging::stage(void* operand, std::int64_t bytes, std::int64_t read, std::int64_t written) {
  if (device_->accessible(operand)) return operand;
  copies_.push_back({operand, written, device_buffer(device_, bytes, stream_)});
  void* const here = copies_.back().memory.data();
  if (read > 0) device_->copy(here, operand, read, stream_);
  return here;
}

const void* device_staging::read(const void* operand, std::int64_t bytes) { return stage(const_cast<void*>(operand), bytes, bytes, 0); }

void* device_staging::write(void* operand, std::int64_t bytes, bool partly) { return stage(operand, bytes, partly ? bytes : 0, bytes); }

void* device_staging::update(void* operand, std::int64_t read, std::int64_t written) {
  return stage(operand, std::max(read, written), read, written);
}

void device_staging::commit() {
  bool waits = false;
  for (const copy& each : copies_) {
    if (each.written == 0) continue;
    device_->copy(each.origin, each.memory.data(), each.written, stream_);
    waits = true;
  }
  if (waits) device_->synchronize(stream_);
}

}  // namespace ballast::cuda
