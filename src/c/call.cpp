// Calls with their callbacks, and enqueued work.
// Layer: interface.
#include <cstddef>
#include <span>

#include "c/handles.hpp"
#include "core/format.hpp"

namespace ballast::c {

const ballast::call& call_of(const ballast_call* given) {
  static const ballast::call none;
  return given == nullptr ? none : needed(given, "call").now;
}

void begin(frame& here, ballast_report* report, const ballast::call& now) {
  if (report != nullptr) needed(report, "report").value.reset();
  if (report == nullptr && !now.throw_on_uncorrectable)
    throw invalid_argument_error("report: expected a report, because an uncorrectable fault is no error of this call, got null");
  here.report = report;
}

void store_stop_reasons(std::vector<kmeans::stop_reason>& from, std::int32_t* to) {
  if (to == nullptr) return;
  constexpr auto none = static_cast<kmeans::stop_reason>(k_no_stop_reason);
  for (std::size_t fit = 0; fit < from.size(); ++fit) {
    if (from[fit] != none) to[fit] = static_cast<std::int32_t>(std::exchange(from[fit], none));
  }
}

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_call_create(ballast_call** call, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(call, "call") = nullptr;
    *call = new ballast_call;
  });
}

void ballast_call_destroy(ballast_call* call) { destroy(call); }

int32_t ballast_call_set_stream(ballast_call* call, void* stream, ballast_error* error) {
  return guarded(error, [&](frame&) { needed(call, "call").now.stream = stream; });
}

int32_t ballast_call_set_workspace(ballast_call* call, void* memory, size_t bytes, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_call& to = needed(call, "call");
    if (memory == nullptr && bytes != 0)
      throw ballast::invalid_argument_error(ballast::fmt::format("workspace: expected an address for {} bytes, got null", bytes));
    to.now.workspace = {static_cast<std::byte*>(memory), bytes};
  });
}

int32_t ballast_call_set_on_event(ballast_call* call, ballast_on_event callback, void* user, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_call& to = needed(call, "call");
    to.now.on_event = {};
    if (callback == nullptr) return;
    to.now.on_event = [callback, user](const ballast::event& seen) {
      const ballast_event record = record_of(seen);
      callback(user, &record);
    };
  });
}

int32_t ballast_call_set_on_progress(ballast_call* call, ballast_on_progress callback, void* user, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_call& to = needed(call, "call");
    to.now.on_progress = {};
    if (callback == nullptr) return;
    to.now.on_progress = [callback, user](const ballast::progress& seen) {
      const ballast_progress record = {sizeof(ballast_progress), seen.done, seen.total, seen.run, seen.value, seen.unit};
      if (callback(user, &record) != 0) throw cancelled();
    };
  });
}

int32_t ballast_call_set_uncorrectable_is_error(ballast_call* call, int32_t value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_call& to = needed(call, "call");
    if (value != 0 && value != 1)
      throw ballast::invalid_argument_error(ballast::fmt::format("uncorrectable_is_error: expected 0 or 1, got {}", value));
    to.now.throw_on_uncorrectable = value == 1;
  });
}

// ---- Enqueued work

int32_t ballast_pending_ready(ballast_pending* pending, int32_t* ready, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    ballast_pending& of = needed(pending, "pending");
    here.problem = of.problem;
    output(ready, "ready");
    *ready = of.work.ready() ? 1 : 0;
  });
}

int32_t ballast_pending_wait(ballast_pending* pending, ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    ballast_pending& of = needed(pending, "pending");
    here.problem = of.problem;
    ballast::call how;
    how.throw_on_uncorrectable = !of.needs_report;
    begin(here, report, how);
    try {
      fill(report, of.work.get());
    } catch (...) {
      store_stop_reasons(of.stopped, of.stopped_to);
      throw;
    }
    store_stop_reasons(of.stopped, of.stopped_to);
  });
}

void ballast_pending_destroy(ballast_pending* pending) { destroy(pending); }
