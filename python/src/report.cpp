// Reports and the settings of a plan.
#include "core.hpp"

namespace ballast_python {

namespace {

nb::str text(std::string_view value) { return nb::str(value.data(), value.size()); }

nb::dict values_of(const ballast::event& seen) {
  nb::dict to;
  to["site"] = seen.site;
  to["index"] = seen.index;
  to["residual"] = seen.residual;
  to["threshold"] = seen.threshold;
  to["action"] = text(to_string(seen.action));
  to["device"] = seen.device;
  to["thread"] = seen.thread;
  to["multiprocessor"] = seen.multiprocessor;
  to["time"] = seen.time;
  to["damaged"] = seen.damaged;
  return to;
}

nb::dict values_of(const ballast::report& seen) {
  nb::dict to;
  to["verdict"] = text(to_string(seen.verdict));
  to["checks"] = seen.checks;
  to["detected"] = seen.detected;
  to["corrected"] = seen.corrected;
  to["recomputed"] = seen.recomputed;
  to["uncorrectable"] = seen.uncorrectable;
  to["false_alarms"] = seen.false_alarms;
  nb::list events;
  for (const ballast::event& each : seen.events) events.append(values_of(each));
  to["events"] = events;
  to["problem"] = text(seen.problem);
  to["backend"] = text(to_string(seen.backend));
  to["protection"] = text(to_string(seen.protection));
  to["scheme"] = text(seen.scheme);
  to["fallback_kernels"] = text(seen.fallback_kernels);
  to["seconds"] = seen.seconds;
  to["condition"] = seen.condition;
  to["sampled"] = seen.sampled;
  return to;
}

// The value that `parse` finds in `name`; `what` names the argument in the message.
template <class Parse>
auto parsed(Parse parse, const std::string& name, const char* what, const char* expected) {
  const auto found = parse(name);
  if (!found) throw ballast::invalid_argument_error(std::string(what) + ": expected " + expected + ", got \"" + name + "\"");
  return *found;
}

}  // namespace

void add_reports(nb::module_& m) {
  nb::class_<ballast::report>(m, "Report")
      .def("values", [](const ballast::report& seen) { return values_of(seen); })
      .def("merge", add)
      .def_ro("detected", &ballast::report::detected);
  nb::class_<ballast::execution>(m, "Execution")
      .def(
          "__init__",
          [](ballast::execution* made, const std::string& backend, int device, int threads, const std::string& protection,
             const std::string& scheme, std::vector<int> devices, int sampled, const ballast::group* group) {
            if (threads < 0) throw ballast::invalid_argument_error("threads: expected 0 or more, got " + std::to_string(threads));
            if (group != nullptr && !devices.empty())
              throw ballast::invalid_argument_error("device: expected a number beside a group of ranks, got a list");
            if (sampled < 1) throw ballast::invalid_argument_error("sampled: expected 1 or more, got " + std::to_string(sampled));
            new (made) ballast::execution{
                .backend = parsed(ballast::parse_backend, backend, "backend", "auto, reference, cpu or cuda"),
                .device = device,
                .threads = threads,
                .protection = parsed(ballast::parse_protection, protection, "protection", "off, detect, correct or final_only"),
                .scheme = scheme,
                .group = group != nullptr  ? *group
                         : devices.empty() ? ballast::group()
                                           : ballast::group::devices(std::move(devices)),
                .sampled = sampled};
          },
          nb::arg("backend"), nb::arg("device"), nb::arg("threads"), nb::arg("protection"), nb::arg("scheme"),
          nb::arg("devices") = std::vector<int>(), nb::arg("sampled") = 1, nb::arg("group").none() = nb::none());
}

}  // namespace ballast_python
