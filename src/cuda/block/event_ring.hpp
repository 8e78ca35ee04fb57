// The log that kernels write: counters of what was detected and a ring of events, each sealed with a hash of itself.
// Layer: foundation. Plain structs for kernels and host; cuda/call/event_log.hpp reads them.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace ballast::cuda {

// What was done about a fault.
enum class event_action : std::uint32_t { corrected, recomputed, uncorrectable };

// One detected fault. A kernel writes it, the host reads it when the report is asked for.
struct device_event {
  std::int64_t index;  // of what was checked; the algorithm says of what, and the host translates it into ballast::event::index
  double residual;
  double threshold;     // its square: kernels compare squares. 0: a comparison of bits, which has none
  std::uint64_t time;   // nanoseconds of the device's clock
  std::uint32_t what;   // event_word: which part of the work, which check, what was done
  std::uint32_t chunk;  // the chunk of the call, where an algorithm cuts one into several
  std::uint32_t multiprocessor;
  std::uint32_t seal;  // event_seal of the rest
};
static_assert(sizeof(device_event) == 48);

// device_event::what. `part` (0 … 255) and `check` (0 … 255) are numbers of the algorithm: its pass or step, and its kind of check.
BALLAST_HD constexpr std::uint32_t event_word(std::uint32_t part, std::uint32_t check, event_action action) {
  return part | check << 8 | static_cast<std::uint32_t>(action) << 16;
}
BALLAST_HD constexpr std::uint32_t part_of(std::uint32_t what) { return what & 0xff; }
BALLAST_HD constexpr std::uint32_t check_of(std::uint32_t what) { return what >> 8 & 0xff; }
BALLAST_HD constexpr event_action action_of(std::uint32_t what) { return static_cast<event_action>(what >> 16); }

// The hash of an event, over the words in front of `seal`. The log is memory, too: a struck event no longer fits its seal.
BALLAST_HD inline std::uint32_t event_seal(const device_event& e) {
  struct words {
    std::uint32_t at[12];
  };
  const words all = __builtin_bit_cast(words, e);
  std::uint32_t h = 0x9e3779b9u;
  for (int i = 0; i < 11; ++i) h = (h ^ all.at[i]) * 0x85ebca6bu + (h >> 15);
  return h;
}

inline constexpr int k_ring_events = 4096;

// What the host reads to know whether there is anything.
struct event_counters {
  unsigned long long corrected, recomputed, uncorrectable, false_alarms;
  unsigned long long written;   // events so far; the ring keeps the first k_ring_events
  unsigned long long spare[3];  // to 64 bytes
};

// The log of one call in device memory. The counters are 0 before its first kernel; the events need not be.
struct event_ring : event_counters {
  device_event events[k_ring_events];
};

}  // namespace ballast::cuda
