// Copies between device memory and the host for host backends.
#include "run/staging.hpp"

#include <ballast/error.hpp>

#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"

namespace ballast::run {

void* host_staging::stage(const void* origin, std::int64_t bytes, bool written, bool read) {
  void* const same = const_cast<void*>(origin);
  if (bytes == 0) return same;
  const cuda::residence where = cuda::residence_of(origin);
  if (where == cuda::residence::host) return same;
  if (device_ == nullptr) device_ = cuda::current_device();
  if (where == cuda::residence::managed) {
    device_->synchronize(stream_);
    return same;
  }
  if (!device_->accessible(origin)) throw invalid_argument_error("expected operands on the current CUDA device, got memory of another one");
  copies_.push_back({same, bytes, written, core::aligned_buffer<std::byte>(bytes)});
  void* const here = copies_.back().memory.data();
  if (!read) return here;
  device_->copy(here, origin, bytes, stream_);
  device_->synchronize(stream_);
  return here;
}

void host_staging::commit() {
  bool waits = false;
  for (const copy& each : copies_) {
    if (!each.written) continue;
    device_->copy(each.origin, each.memory.data(), each.bytes, stream_);
    waits = true;
  }
  if (waits) device_->synchronize(stream_);
}

}  // namespace ballast::run
