// Names, JSON and merging of reports; the errors' constructors.
#include <ballast/report.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/error.hpp>

namespace ballast {

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

namespace {

// JSON has no NaN or Inf: they are written as strings.
nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

nlohmann::ordered_json as_json(const event& value) {
  return {{"site", value.site},
          {"index", value.index},
          {"residual", number(value.residual)},
          {"threshold", number(value.threshold)},
          {"action", to_string(value.action)},
          {"device", value.device},
          {"thread", value.thread},
          {"time", value.time},
          {"damaged", value.damaged}};
}

}  // namespace

std::string to_json(const event& value) { return as_json(value).dump(); }

std::string to_json(const report& value) {
  auto events = nlohmann::ordered_json::array();
  for (const event& each : value.events) events.push_back(as_json(each));
  const nlohmann::ordered_json all = {{"verdict", to_string(value.verdict)}, {"checks", value.checks},
                                      {"detected", value.detected},          {"corrected", value.corrected},
                                      {"recomputed", value.recomputed},      {"uncorrectable", value.uncorrectable},
                                      {"false_alarms", value.false_alarms},  {"events", std::move(events)}};
  return all.dump();
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
  const std::size_t room = k_max_events - std::min(k_max_events, events.size());
  events.insert(events.end(), later.events.begin(),
                later.events.begin() + static_cast<std::ptrdiff_t>(std::min(room, later.events.size())));
}

uncorrectable_error::uncorrectable_error(ballast::report seen)
    : error(fmt::format("{}: {} detected fault(s) could not be repaired ({} detected in all); the output is not to be used", seen.problem,
                        seen.uncorrectable, seen.detected)),
      report_(std::move(seen)) {}

}  // namespace ballast
