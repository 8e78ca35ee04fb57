// What an algorithm gives to a pending_report: enqueued work, and how to ask what its checks have seen.
// Layer: run. For every algorithm with a backend on a device.
#pragma once

#include <memory>
#include <string>

#include <ballast/execution.hpp>
#include <ballast/pending_report.hpp>

#include "inject/injector.hpp"
#include "run/recorder.hpp"

namespace ballast::run {

// Work that was enqueued on a stream. Destroyed only when the stream has passed it.
class pending {
 public:
  pending() = default;
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  virtual ~pending() = default;
  // Waits for it and records what its checks have seen since they were last asked.
  virtual void collect(recorder& seen) = 0;
};

}  // namespace ballast::run

namespace ballast {

struct pending_report::implementation {
  std::shared_ptr<const void> owner;  // keeps alive what `how` and the work refer to: a plan, say
  const execution& how;
  std::string token;
  ballast::backend backend;
  std::string scheme;
  inject::active_injector injector;
  std::unique_ptr<run::pending> work;
};

}  // namespace ballast
