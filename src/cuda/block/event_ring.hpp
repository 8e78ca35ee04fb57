// The log that kernels write: counters of detected faults, and a ring of events, each of which contains a hash of itself (its seal).
// Layer: foundation. Plain structs for kernels and host; cuda/call/event_log.hpp reads them.
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "core/macros.hpp"

namespace ballast::cuda {

// The repair of a fault.
enum class event_action : std::uint32_t { corrected, recomputed, uncorrectable };

// One detected fault. A kernel writes it; the host reads it for the report.
struct device_event {
  std::int64_t index;  // the checked object, as the algorithm numbers it; the host translates it into ballast::event::index
  double residual;
  double threshold;     // the square of the threshold, because kernels compare squares; 0: a comparison of bits, without threshold
  std::uint64_t time;   // nanoseconds of the device's clock
  std::uint32_t what;   // event_word: the part of the work, the check, and the action
  std::uint32_t chunk;  // the chunk of the call, if the algorithm splits a call into chunks
  std::uint32_t multiprocessor;
  std::uint32_t seal;  // event_seal of the other members
};
static_assert(sizeof(device_event) == 48);

// Encodes device_event::what. The algorithm defines `part` (0 … 255), its pass or step, and `check` (0 … 255), its kind of check.
BALLAST_HD constexpr std::uint32_t event_word(std::uint32_t part, std::uint32_t check, event_action action) {
  return part | check << 8 | static_cast<std::uint32_t>(action) << 16;
}
BALLAST_HD constexpr std::uint32_t part_of(std::uint32_t what) { return what & 0xff; }
BALLAST_HD constexpr std::uint32_t check_of(std::uint32_t what) { return what >> 8 & 0xff; }
BALLAST_HD constexpr event_action action_of(std::uint32_t what) { return static_cast<event_action>(what >> 16); }

// Returns the hash of an event, over the words before `seal`. The log is memory, too: if a fault strikes an event, its seal no longer
// matches.
BALLAST_HD inline std::uint32_t event_seal(const device_event& e) {
  struct words {
    std::uint32_t at[12];
  };
  const words all = __builtin_bit_cast(words, e);
  return abft::short_seal<11>(all.at);
}

inline constexpr int k_ring_events = 4096;

// The counters. The host reads them first, and events only if there are any.
struct event_counters {
  unsigned long long corrected, recomputed, uncorrectable, false_alarms;
  unsigned long long written;   // the number of events so far; the ring keeps the first k_ring_events
  unsigned long long spare[3];  // padding to 64 bytes
};

// The log of one call in device memory. The counters are 0 before the first kernel of the call; the events may be uninitialised.
struct event_ring : event_counters {
  device_event events[k_ring_events];
};

}  // namespace ballast::cuda
