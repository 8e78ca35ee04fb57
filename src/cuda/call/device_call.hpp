// One call of a protected algorithm on a device, from its first launch until its events have been read: the workspace with the event ring,
// the faults, and the launches.
// Layer: foundation. The cuda backend of every algorithm constructs one for each call.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/call/event_log.hpp"
#include "cuda/call/faults.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/workspace.hpp"

namespace ballast::cuda {

// All work is ordered on the stream.
class device_call {
 public:
  // `memory` has at least k_ring_bytes and begins with the ring. If the memory is not fresh, its ring is already empty.
  device_call(std::shared_ptr<device> on, workspace memory, const inject::active_injector& injector, stream order)
      : device_(std::move(on)), memory_(std::move(memory)), faults_(device_, injector, order), stream_(order) {
    if (memory_.fresh()) clear_events(*device_, events(), stream_);
  }

  // Returns whether faults are armed. Then the kernels must be instrumented ones.
  bool instrumented() const noexcept { return faults_.armed(); }
  const fault_list& faults() const noexcept { return faults_; }
  stream order() const noexcept { return stream_; }

  event_ring* events() const noexcept { return reinterpret_cast<event_ring*>(memory_.data()); }
  // Return the algorithm's part of the workspace, and whether it is new, without data of an earlier call.
  unsigned char* memory() const noexcept { return memory_.data() + k_ring_bytes; }
  bool fresh() const noexcept { return memory_.fresh(); }

  // Launches a kernel whose only argument is `given`, followed by the faults if there are any.
  template <class Arguments>
  void launch(const kernel& which, std::int64_t blocks, const Arguments& given) const {
    cuda::launch(*device_, which, blocks, given, faults_, stream_);
  }

  // Waits for the stream.
  void wait() const { device_->synchronize(stream_); }
  // Waits for the stream, and returns the events that the kernels have logged since the last collect().
  event_log collect(const event_meaning& meaning) const { return read_events(*device_, events(), meaning, stream_); }

 private:
  std::shared_ptr<device> device_;
  workspace memory_;
  fault_list faults_;
  stream stream_;
};

}  // namespace ballast::cuda
