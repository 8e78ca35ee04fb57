// Reports and their events.
// Layer: interface.
#include <string>

#include "c/handles.hpp"
#include "core/format.hpp"

namespace ballast::c {

namespace {

// A text that is not null: that of a std::string, or empty.
const char* text_of(const shared_text& value) { return value.empty() ? "" : value.view().data(); }

const ballast::report& filled(const ballast_report* given, std::string_view name) {
  const ballast_report& report = needed(given, name);
  if (!report.value) throw invalid_argument_error(fmt::format("{}: expected the report of a call, got one that no call has filled", name));
  return *report.value;
}

}  // namespace

ballast_event record_of(const event& seen) {
  return {sizeof(ballast_event), seen.site.c_str(),   seen.index,          seen.residual,
          seen.threshold,        seen.time,           seen.device.c_str(), static_cast<std::int32_t>(seen.action),
          seen.thread,           seen.multiprocessor, seen.damaged ? 1 : 0};
}

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_report_create(ballast_report** report, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(report, "report") = nullptr;
    *report = new ballast_report;
  });
}

void ballast_report_destroy(ballast_report* report) { destroy(report); }

int32_t ballast_report_summary(const ballast_report* report, ballast_summary* summary, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast::report& seen = filled(report, "report");
    const ballast_summary made = {sizeof(ballast_summary),
                                  static_cast<std::int32_t>(seen.verdict),
                                  static_cast<std::int32_t>(seen.backend),
                                  static_cast<std::int32_t>(seen.protection),
                                  static_cast<std::int32_t>(seen.events.size()),
                                  seen.checks,
                                  seen.detected,
                                  seen.corrected,
                                  seen.recomputed,
                                  seen.uncorrectable,
                                  seen.false_alarms,
                                  seen.seconds,
                                  seen.condition,
                                  text_of(seen.problem),
                                  text_of(seen.scheme),
                                  text_of(seen.fallback_kernels),
                                  seen.sampled};
    write_struct(made, "summary", summary);
  });
}

int32_t ballast_report_event(const ballast_report* report, size_t index, ballast_event* event, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast::report& seen = filled(report, "report");
    if (index >= seen.events.size())
      throw ballast::invalid_argument_error(
          ballast::fmt::format("index: expected a number below the {} events of the report, got {}", seen.events.size(), index));
    write_struct(record_of(seen.events[index]), "event", event);
  });
}

int32_t ballast_report_json(const ballast_report* report, char** text, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(text, "text") = nullptr;
    *text = copy_of(to_json(filled(report, "report")));
  });
}

int32_t ballast_event_json(const ballast_event* event, char** text, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(text, "text") = nullptr;
    const ballast_event given = read_struct(event, "event");
    if (given.action < BALLAST_ACTION_CORRECTED || given.action > BALLAST_ACTION_UNCORRECTABLE)
      throw ballast::invalid_argument_error(ballast::fmt::format("event: action: expected 0, 1 or 2, got {}", given.action));
    ballast::event made;
    made.site = ballast::c::text(given.site, "event: site");
    made.device = ballast::c::text(given.device, "event: device");
    made.index = given.index;
    made.residual = given.residual;
    made.threshold = given.threshold;
    made.action = static_cast<ballast::action>(given.action);
    made.thread = given.thread;
    made.multiprocessor = given.multiprocessor;
    made.time = given.time;
    made.damaged = given.damaged != 0;
    *text = copy_of(to_json(made));
  });
}

int32_t ballast_report_merge(ballast_report* report, const ballast_report* later, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_report& to = needed(report, "report");
    const ballast::report& from = filled(later, "later");
    if (to.value) {
      const ballast::report added = from;  // `later` may be `report`
      to.value->merge(added);
    } else {
      to.value = from;
    }
  });
}

// ---- Names of numbers. The texts of to_string are literals.

namespace {

template <class Enum>
const char* name_of_number(std::int32_t value, std::int32_t count) {
  return value < 0 || value >= count ? "unknown" : to_string(static_cast<Enum>(value)).data();
}

}  // namespace

const char* ballast_verdict_name(int32_t verdict) { return name_of_number<ballast::verdict>(verdict, 4); }
const char* ballast_action_name(int32_t action) { return name_of_number<ballast::action>(action, 3); }
const char* ballast_backend_name(int32_t backend) { return name_of_number<ballast::backend>(backend, 4); }
const char* ballast_protection_name(int32_t protection) { return name_of_number<ballast::protection>(protection, 4); }
const char* ballast_stop_name(int32_t stopped) { return name_of_number<ballast::kmeans::stop_reason>(stopped, 3); }
