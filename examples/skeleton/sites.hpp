// The sites of the sum: places where the injector can strike it. sites.cpp describes them.
// Layer: algorithm, for host and device code.
#pragma once

#include "inject/site.hpp"

namespace ballast::skeleton::site {

inline constexpr inject::site partial = inject::site_of("skeleton.partial");
inline constexpr inject::site checksum = inject::site_of("skeleton.checksum");
inline constexpr inject::site comparison = inject::site_of("skeleton.comparison");

// The table of these sites, for inject::active_injector; it is in the register (inject/sites.hpp).
const inject::site_table& table() noexcept;

}  // namespace ballast::skeleton::site
