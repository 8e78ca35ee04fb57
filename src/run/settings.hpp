// The settings of one call: those of its plan, those of the call, and the faults that a test injects.
// Layer: run. Public calls make one; drivers and backends read it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <ballast/execution.hpp>

#include "inject/active.hpp"

namespace ballast::run {

struct settings {
  ballast::backend backend = ballast::backend::automatic;
  int threads = 0;
  ballast::protection protection = ballast::protection::correct;  // correct also for final_only
  bool final_only = false;                                        // protection::final_only
  int sampled = 1;                                                // execution::sampled
  std::string_view scheme = {};                                   // empty: the default
  bool throw_on_uncorrectable = true;
  std::function<void(const event&)> on_event = {};
  std::function<void(const progress&)> on_progress = {};
  const inject::plan* faults = nullptr;  // for the instrumented library only
  void* stream = nullptr;
  std::span<std::byte> workspace = {};
  bool own_kernels = true;  // fft::kernels::own
  bool tf32x3 = true;       // qr::options
  bool full_rank = true;    // qr::options
  int device = -1;
  ballast::group group = {};

  ballast::protection asked() const { return final_only ? ballast::protection::final_only : protection; }
  execution where() const { return {backend, device, threads, asked(), std::string(scheme), group, sampled}; }
  call now() const { return {stream, workspace, on_event, on_progress, throw_on_uncorrectable}; }
};

// With the faults of the innermost inject::scope of this thread.
inline settings settings_of(const execution& where, const call& now = {}) {
  return {.backend = where.backend,
          .threads = where.threads,
          .protection = where.protection == protection::final_only ? protection::correct : where.protection,
          .final_only = where.protection == protection::final_only,
          .sampled = where.sampled,
          .scheme = where.scheme,
          .throw_on_uncorrectable = now.throw_on_uncorrectable,
          .on_event = now.on_event,
          .on_progress = now.on_progress,
          .faults = inject::scoped_faults(),
          .stream = now.stream,
          .workspace = now.workspace,
          .device = where.device,
          .group = where.group};
}

}  // namespace ballast::run
