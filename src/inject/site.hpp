// The identity of a place where faults can be injected. Host and device code share this file; sites.hpp has the rest.
// Layer: foundation. It names no algorithm: each has its own sites in its own header, for instance src/fft/sites.hpp.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::inject {

// A site is the hash of its name: no list of numbers is needed, and a comparison with a site is a comparison with a constant. 0: no site.
enum class site : std::uint32_t {};

// Returns the site with this name, for instance site_of("fft.input"): the FNV-1a hash of its characters.
BALLAST_HD constexpr site site_of(const char* name) {
  std::uint32_t made = 0x811c9dc5u;
  for (; *name != 0; ++name) made = (made ^ static_cast<unsigned char>(*name)) * 0x01000193u;
  return static_cast<site>(made);
}

// Returns the bit that stands for a site in a mask of 64 sites. Several sites share a bit: a mask says that no fault waits at a site, or
// that one may.
BALLAST_HD constexpr unsigned bit_of(site where) { return static_cast<std::uint32_t>(where) & 63; }

// An event while it waits in the log: the only site that every operation has.
inline constexpr site k_event_log = site_of("event_log");

// The sites of one operation (sites.hpp).
struct site_table;

}  // namespace ballast::inject
