// _core_instrumented: _core, and faults for the tests. The calls of a thread begin with the faults that it armed last.
#include <optional>

#include "core.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"

namespace ballast_python {

namespace {

namespace inject = ballast::inject;
thread_local inject::plan faults;
thread_local std::optional<inject::scope> active;

void arm(const std::vector<std::string>& wanted) {
  active.reset();
  std::vector<inject::request> parsed;
  for (const std::string& each : wanted) parsed.push_back(inject::parse_request(each));
  faults = inject::plan(std::move(parsed));
  if (!wanted.empty()) active.emplace(&faults);
}

}  // namespace

}  // namespace ballast_python

NB_MODULE(_core_instrumented, m) {
  ballast_python::add_everything(m);
  m.def("arm", ballast_python::arm);
}
