// Names of verdicts and actions, the merging of reports, and the constructor of uncorrectable_error.
#include <ballast/report.hpp>

#include <algorithm>
#include <cmath>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast {
inline namespace abi_1 {

std::string_view to_string(verdict value) noexcept {
  switch (value) {
    case verdict::clean: return "clean";
    case verdict::corrected: return "corrected";
    case verdict::recomputed: return "recomputed";
    case verdict::uncorrectable: return "uncorrectable";
  }
  return "?";
}

std::string_view to_string(action value) noexcept {
  switch (value) {
    case action::corrected: return "corrected";
    case action::recomputed: return "recomputed";
    case action::uncorrectable: return "uncorrectable";
  }
  return "?";
}

void report::merge(const report& later) {
  verdict = std::max(verdict, later.verdict);
  checks += later.checks;
  detected += later.detected;
  corrected += later.corrected;
  recomputed += later.recomputed;
  uncorrectable += later.uncorrectable;
  false_alarms += later.false_alarms;
  seconds += later.seconds;
  condition = std::fmax(condition, later.condition);                       // fmax ignores a NaN
  if (later.protection == protection::off) protection = later.protection;  // a part was not protected
  sampled = std::max(sampled, later.sampled);
  if (fallback_kernels.empty()) fallback_kernels = later.fallback_kernels;
  const std::size_t capacity = k_max_events - std::min(k_max_events, events.size());
  events.insert(events.end(), later.events.begin(),
                later.events.begin() + static_cast<std::ptrdiff_t>(std::min(capacity, later.events.size())));
}

uncorrectable_error::uncorrectable_error(ballast::report seen)
    : error(fmt::format("{}: {} detected fault(s) could not be repaired ({} detected in all); the output is not to be used",
                        seen.problem.view(), seen.uncorrectable, seen.detected)),
      report_(std::move(seen)) {}

}  // namespace abi_1
}  // namespace ballast
