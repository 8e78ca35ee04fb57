// The injector of the production library: its constructor refuses faults.
#include <ballast/error.hpp>

#include "core/format.hpp"
#include "inject/injector.hpp"

namespace ballast::inject {

no_injector::no_injector(const plan* faults, const site_table& sites) {
  if (faults != nullptr)
    throw unsupported_error(
        fmt::format("{}: faults can be injected only by the instrumented library; this is the production library", sites.operation));
}

}  // namespace ballast::inject
