// The interface of enqueued work: an algorithm gives it to a pending_report, which later collects the findings of its checks.
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
  // Waits for the work and records the findings since the last collection.
  virtual void collect(recorder& seen) = 0;
};

}  // namespace ballast::run
