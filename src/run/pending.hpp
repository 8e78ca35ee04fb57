// What an algorithm gives to a pending_report: enqueued work, and how to ask what its checks have seen.
// Layer: run. For every algorithm with a backend on a device.
#pragma once

#include "core/memory.hpp"
#include "run/recorder.hpp"

namespace ballast::run {

// Work that was enqueued on a stream. Destroyed only when the stream has passed it.
class pending : public core::pooled {
 public:
  pending() = default;
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  virtual ~pending() = default;
  // Waits for it and records what its checks have seen since they were last asked.
  virtual void collect(recorder& seen) = 0;
};

}  // namespace ballast::run
