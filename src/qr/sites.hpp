// The sites of QR: positions where the injector can strike it. sites.cpp describes them.
// Layer: QR, for host and device code.
#pragma once

#include "inject/site.hpp"

namespace ballast::qr::site {

inline constexpr inject::site transfer = inject::site_of("qr.transfer");
inline constexpr inject::site panel = inject::site_of("qr.panel");
inline constexpr inject::site reflector = inject::site_of("qr.reflector");
inline constexpr inject::site tau = inject::site_of("qr.tau");
inline constexpr inject::site t = inject::site_of("qr.t");
inline constexpr inject::site product = inject::site_of("qr.product");
inline constexpr inject::site trailing = inject::site_of("qr.trailing");
inline constexpr inject::site r = inject::site_of("qr.r");
inline constexpr inject::site q = inject::site_of("qr.q");
inline constexpr inject::site store = inject::site_of("qr.store");
inline constexpr inject::site column_norm = inject::site_of("qr.column_norm");
inline constexpr inject::site pivot = inject::site_of("qr.pivot");
inline constexpr inject::site permutation = inject::site_of("qr.permutation");
inline constexpr inject::site checksum = inject::site_of("qr.checksum");
inline constexpr inject::site threshold = inject::site_of("qr.threshold");
inline constexpr inject::site comparison = inject::site_of("qr.comparison");
inline constexpr inject::site corrector = inject::site_of("qr.corrector");

// The table of these sites, for inject::active_injector; it is in the register (inject/sites.hpp).
const inject::site_table& table() noexcept;

}  // namespace ballast::qr::site
