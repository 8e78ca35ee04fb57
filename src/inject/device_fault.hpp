// The faults that kernels receive. The host has already drawn everything that its own injector draws from a seed.
// Layer: foundation. Plain structs for host and device.
#pragma once

#include <cstdint>

#include "inject/site.hpp"

namespace ballast::inject {

struct device_fault {
  // The operations on a word that the models of inject/plan.hpp need.
  enum kind : std::int32_t { flip, flip_neighbours, stick, replace };

  std::uint64_t interval = 0;            // modulo the number of intervals
  std::uint64_t step = 0;                // modulo the number of steps
  std::uint64_t element = 0;             // modulo the number of words of the tile
  std::uint64_t value = 0;               // replace: the new word
  std::uint64_t mask32 = 0, mask64 = 0;  // bits to flip, or the stuck bit
  std::uint32_t value32 = 0;
  inject::site site = {};
  std::int32_t action = flip;
  std::int64_t visit = 0;
  // The device writes the rest: the visits so far, for each of the 16 neighbouring words that one fault can strike, and the state of a
  // stuck bit (0: undecided, 2: cleared, 3: set).
  std::uint32_t visits[16] = {};
  std::uint32_t stuck = 0;
  std::uint32_t fired = 0;
};

struct device_faults {
  device_fault* list = nullptr;
  std::int32_t count = 0;
  std::uint64_t armed = 0;  // a mask by bit_of(site) of the sites at which faults wait
};

}  // namespace ballast::inject
