// Faults as kernels get them: everything that the host's injector draws from a seed, drawn beforehand.
// Layer: foundation. Plain structs for host and device.
#pragma once

#include <cstdint>

namespace ballast::inject {

struct device_fault {
  // What the models of inject/plan.hpp do to a word.
  enum kind : std::int32_t { flip, flip_neighbours, stick, replace };

  std::uint64_t interval = 0;            // modulo the number of intervals
  std::uint64_t step = 0;                // modulo the number of steps
  std::uint64_t element = 0;             // modulo the number of words of the tile
  std::uint64_t value = 0;               // replace: the word
  std::uint64_t mask32 = 0, mask64 = 0;  // bits to flip, or the stuck bit
  std::uint32_t value32 = 0;
  std::int32_t site = 0;
  std::int32_t action = flip;
  std::int64_t visit = 0;
  // Written by the device: visits so far and the word that a stuck bit is forced to (0: undecided, 2: cleared, 3: set), for each of the
  // 16 neighbouring words that one fault can strike.
  std::uint32_t visits[16] = {};
  std::uint32_t stuck = 0;
  std::uint32_t fired = 0;
};

struct device_faults {
  device_fault* list = nullptr;
  std::int32_t count = 0;
  std::uint64_t armed = 0;  // bit i: some fault waits at site i
};

}  // namespace ballast::inject
