// Counting is lock-free; events are rare and take a lock.
#include "run/recorder.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "cuda/call/event_log.hpp"
#include "inject/injector.hpp"

namespace ballast::run {

recorder::recorder(shared_text problem, ballast::backend backend, shared_text scheme, const settings& how,
                   inject::active_injector& injector)
    : how_(how), injector_(injector), start_(std::chrono::steady_clock::now()) {
  head_.problem = std::move(problem);
  head_.backend = backend;
  head_.scheme = std::move(scheme);
  head_.protection = how.asked();
  head_.sampled = how.sampled;
}

std::uint64_t recorder::entry::hash() const noexcept {
  std::uint64_t words[8];
  static_assert(offsetof(entry, seal) == sizeof words);
  std::memcpy(words, this, sizeof words);
  abft::result_hash made;
  for (const std::uint64_t word : words) made.add(word);
  return made.bits();
}

void recorder::detected(const char* site, std::int64_t index, double residual, double threshold, action what, int slot,
                        int multiprocessor) {
  switch (what) {
    case action::corrected: corrected_.fetch_add(1); break;
    case action::recomputed: recomputed_.fetch_add(1); break;
    case action::uncorrectable: uncorrectable_.fetch_add(1); break;
  }
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  entry made{site, index, std::abs(residual), threshold, static_cast<std::int64_t>(what), slot, multiprocessor, now, 0};
  made.seal = made.hash();
  injector_.strike(inject::k_event_log, {}, &made.residual, 1);
  const std::lock_guard lock(mutex_);
  if (log_.size() < report::k_max_events) log_.push_back(made);
}

void recorder::settled(const char* site, abft::outcome how, const abft::attempts& seen, int slot) {
  if (how == abft::outcome::clean) return;
  const abft::finding& first = seen.first();
  const action what = how == abft::outcome::corrected    ? action::corrected
                      : how == abft::outcome::recomputed ? action::recomputed
                                                         : action::uncorrectable;
  detected(first.check != nullptr ? first.check : site, first.index, first.residual, first.threshold, what, slot);
  if (what == action::recomputed && seen.false_alarm()) false_alarm();
}

void recorder::add(const cuda::event_log& seen) {
  corrected_.fetch_add(seen.corrected);
  recomputed_.fetch_add(seen.recomputed);
  uncorrectable_.fetch_add(seen.uncorrectable);
  false_alarms_.fetch_add(seen.false_alarms);
  const std::lock_guard lock(mutex_);
  for (const cuda::event_log::entry& each : seen.events) {
    if (log_.size() >= report::k_max_events) return;
    entry made{each.site, each.index, std::abs(each.residual), each.threshold, static_cast<std::int64_t>(each.what), 0, each.multiprocessor,
               each.time, 0};
    made.seal = made.hash() ^ (each.damaged ? 1 : 0);
    log_.push_back(made);
  }
}

report recorder::collect() {
  report seen = head_;
  seen.checks = checks_;
  seen.corrected = corrected_;
  seen.recomputed = recomputed_;
  seen.uncorrectable = uncorrectable_;
  seen.false_alarms = false_alarms_;
  seen.detected = seen.corrected + seen.recomputed + seen.uncorrectable;
  seen.verdict = seen.uncorrectable != 0 ? verdict::uncorrectable
                 : seen.recomputed != 0  ? verdict::recomputed
                 : seen.corrected != 0   ? verdict::corrected
                                         : verdict::clean;
  for (const entry& kept : log_) {
    event out;
    out.damaged = kept.hash() != kept.seal;
    out.site = kept.site;
    out.index = kept.index;
    out.residual = kept.residual;
    out.threshold = kept.threshold;
    out.action = static_cast<action>(kept.what);
    out.device = device_;
    out.thread = static_cast<int>(kept.slot);
    out.multiprocessor = static_cast<int>(kept.multiprocessor);
    out.time = kept.time;
    seen.events.push_back(std::move(out));
  }
  seen.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return seen;
}

report recorder::deliver(report seen) const {
  if (how_.on_event) {
    for (const event& each : seen.events) how_.on_event(each);
  }
  if (seen.verdict == verdict::uncorrectable && how_.throw_on_uncorrectable) throw uncorrectable_error(std::move(seen));
  return seen;
}

}  // namespace ballast::run
