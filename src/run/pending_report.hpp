// The contents of a pending_report.
// Layer: run. Made by the public call of an algorithm that enqueues.
#pragma once

#include <memory>
#include <string>

#include <ballast/pending_report.hpp>

#include "core/memory.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "run/pending.hpp"
#include "run/settings.hpp"

namespace ballast {
inline namespace abi_1 {

struct pending_report::implementation : core::pooled {
  std::shared_ptr<const void> owner;  // the plan, whose memory and tables the work uses
  run::settings how;
  shared_text token;
  ballast::backend backend;
  shared_text scheme;
  inject::active_injector injector;
  std::unique_ptr<run::pending> work;
  std::shared_ptr<cuda::device> device = {};      // set by pending_report
  std::unique_ptr<cuda::stream_event> mark = {};  // for ready()
};

}  // namespace abi_1
}  // namespace ballast
