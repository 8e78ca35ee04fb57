// Injects faults into all later calls of this thread, for a program in C.
#include <optional>

#include "inject/active.hpp"
#include "inject/plan.hpp"

extern "C" void inject_faults(const char* request) {
  static ballast::inject::plan faults;
  static std::optional<ballast::inject::scope> inside;
  inside.reset();
  faults = ballast::inject::plan({ballast::inject::parse_request(request)});
  inside.emplace(&faults);
}
