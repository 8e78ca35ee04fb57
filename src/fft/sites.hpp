// The sites of the FFT: positions where the injector can strike it. sites.cpp describes them.
// Layer: FFT, for host and device code.
#pragma once

#include "inject/site.hpp"

namespace ballast::fft::site {

inline constexpr inject::site input = inject::site_of("fft.input");
inline constexpr inject::site twiddle = inject::site_of("fft.twiddle");
inline constexpr inject::site stage = inject::site_of("fft.stage");
inline constexpr inject::site intermediate = inject::site_of("fft.intermediate");
inline constexpr inject::site output = inject::site_of("fft.output");
inline constexpr inject::site checksum = inject::site_of("fft.checksum");
inline constexpr inject::site threshold = inject::site_of("fft.threshold");
inline constexpr inject::site comparison = inject::site_of("fft.comparison");

// The table of these sites, for inject::active_injector; it is in the register (inject/sites.hpp).
const inject::site_table& table() noexcept;

// The sites of transforms on a group, beside those of their lines.
inline constexpr inject::site block = inject::site_of("fft_group.block");
inline constexpr inject::site copy = inject::site_of("fft_group.copy");
inline constexpr inject::site product = inject::site_of("fft_group.product");

// Their table. It is not in the register, since the command reaches none of them: a test adds it.
const inject::site_table& group_table() noexcept;
bool is_of_group(inject::site one) noexcept;

}  // namespace ballast::fft::site
