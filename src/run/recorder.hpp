// Collects what the checks of one call see, from all its threads, and makes the report.
// Layer: run. Every driver makes one, every check writes to it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/report.hpp>

#include "abft/attempt.hpp"
#include "core/fork.hpp"
#include "inject/active.hpp"
#include "run/settings.hpp"

namespace ballast::cuda {
struct event_log;
}

namespace ballast::run {

class recorder {
 public:
  // `backend` is the one that really runs; `injector` may strike the log (inject::k_event_log).
  recorder(shared_text problem, ballast::backend backend, shared_text scheme, const settings& how, inject::active_injector& injector);

  // `count` comparisons were made. Cheap, but call it once per task rather than once per comparison.
  void checked(std::uint64_t count) noexcept { checks_.fetch_add(count, std::memory_order_relaxed); }

  // One fault was detected by check `site` (a string literal), and the action was `taken`. `slot` is the worker's in parallel_for;
  // `multiprocessor` is for devices that have them.
  void detected(const char* site, std::int64_t index, double residual, double threshold, action taken, int slot, int multiprocessor = -1);

  // The attempts at one tile ended so: an event unless that is clean. `site` names the check unless the finding does.
  void settled(const char* site, abft::outcome how, const abft::attempts& seen, int slot);

  // Adds what the kernels of a device logged.
  void add(const cuda::event_log& seen);

  // Sets the name of the device that runs the call, for its events; the default is "cpu". Call it before the first fault. The name must
  // outlive the recorder.
  void runs_on(std::string_view device) { device_ = device; }

  // The reason why fallback kernels compute the call (report::fallback_kernels).
  void runs_fallback_kernels(std::string why) { head_.fallback_kernels = std::move(why); }

  // Sets report::condition.
  void conditioned(double number) { head_.condition = number; }

  // A recomputation gave bitwise what had been there: the check was hit, not the data. In addition to detected().
  void false_alarm() noexcept { false_alarms_.fetch_add(1, std::memory_order_relaxed); }

  bool uncorrectable() const noexcept { return uncorrectable_.load(std::memory_order_relaxed) != 0; }

  ballast::protection protection() const noexcept { return how_.protection; }

  // The report; calls execution::on_event for each event. Throws uncorrectable_error if the verdict is uncorrectable and the
  // execution asks for it: call it before results are committed where that is possible.
  report finish() { return deliver(collect()); }
  // The two halves of it: what has been recorded so far; and the callbacks and the exception for a report, which may be that of several
  // ranks.
  report collect();
  report deliver(report made) const;

 private:
  // An event while it waits. `seal` is a hash of the rest: the log is memory, too.
  struct entry {
    const char* site;
    std::int64_t index;
    double residual;
    double threshold;
    std::int64_t what;
    std::int64_t slot;
    std::int64_t multiprocessor;
    double time;
    std::uint64_t seal;
    std::uint64_t hash() const noexcept;
  };

  core::active_call call_;
  report head_;
  std::string_view device_ = "cpu";
  const settings& how_;
  inject::active_injector& injector_;
  std::chrono::steady_clock::time_point start_;
  std::atomic<std::uint64_t> checks_{0}, corrected_{0}, recomputed_{0}, uncorrectable_{0}, false_alarms_{0};
  std::mutex mutex_;
  std::vector<entry> log_;
};

}  // namespace ballast::run
