// See active.hpp.
#include "inject/active.hpp"

#include "inject/injector.hpp"

namespace ballast::inject {

std::uint64_t armed_sites(const active_injector& of) noexcept { return of.armed_sites(); }

std::vector<device_fault> faults_for_device(const active_injector& of) { return of.for_device(); }

}  // namespace ballast::inject
