// Faults for the tests: the calls of this thread begin with those that were armed last. Only _core_instrumented has this.
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

void add_injection(nb::module_& m) { m.def("arm", arm); }

}  // namespace ballast_python
