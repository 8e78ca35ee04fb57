// Writes reports and events as JSON. Separate from report.cpp, so that a build without a JSON library has everything else.
#include <cmath>

#include <nlohmann/json.hpp>

#include <ballast/report.hpp>

namespace ballast {
inline namespace abi_1 {

namespace {

// Converts a number. JSON has no NaN or Inf: they become strings.
nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

nlohmann::ordered_json as_json(const event& value) {
  nlohmann::ordered_json made = {{"site", value.site},
                                 {"index", value.index},
                                 {"residual", number(value.residual)},
                                 {"threshold", number(value.threshold)},
                                 {"action", to_string(value.action)},
                                 {"device", value.device},
                                 {"thread", value.thread},
                                 {"multiprocessor", value.multiprocessor},
                                 {"time", value.time},
                                 {"damaged", value.damaged}};
  if (value.rank >= 0) made["rank"] = value.rank;
  return made;
}

}  // namespace

std::string to_json(const event& value) { return as_json(value).dump(); }

std::string to_json(const report& value) {
  auto events = nlohmann::ordered_json::array();
  for (const event& each : value.events) events.push_back(as_json(each));
  nlohmann::ordered_json all = {{"verdict", to_string(value.verdict)}, {"checks", value.checks},
                                {"detected", value.detected},          {"corrected", value.corrected},
                                {"recomputed", value.recomputed},      {"uncorrectable", value.uncorrectable},
                                {"false_alarms", value.false_alarms},  {"events", std::move(events)}};
  if (value.sampled > 1) all["sampled"] = value.sampled;
  if (!std::isnan(value.condition)) all["condition"] = number(value.condition);
  if (!value.fallback_kernels.empty()) all["fallback_kernels"] = value.fallback_kernels.view();
  return all.dump();
}

}  // namespace abi_1
}  // namespace ballast
