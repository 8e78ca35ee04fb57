// The host side of the event ring: clears it before a call and reads it afterwards.
// Layer: foundation. cuda/block/event_ring.hpp declares the ring that kernels write.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ballast/report.hpp>

#include "cuda/block/event_ring.hpp"
#include "cuda/device/device.hpp"

namespace ballast::cuda {

// The log of the kernels of one call: counts, and the events that the ring had room for. run::recorder::add adds it to a report.
struct event_log {
  struct entry {
    const char* site = "";
    std::int64_t index = -1;
    double residual = 0;
    double threshold = 0;
    action what = action::uncorrectable;
    int multiprocessor = -1;
    double time = 0;       // seconds of the device's clock
    bool damaged = false;  // true if the seal of the event does not match
  };
  std::uint64_t corrected = 0, recomputed = 0, uncorrectable = 0, false_alarms = 0;
  std::vector<entry> events;
};

// The bytes of a ring at the beginning of a workspace.
inline constexpr std::int64_t k_ring_bytes = (sizeof(event_ring) + 255) / 256 * 256;

// Sets the counters to 0, ordered on the stream.
void clear_events(device& on, event_ring* ring, stream order);

// Sets site and index of an entry, which only the algorithm knows. The numbers of a damaged event may have any value.
using event_meaning = std::function<void(const device_event&, event_log::entry&)>;

// Waits for the stream, reads the events since the ring was last cleared or read, and clears it. Without events it makes one small copy
// only.
event_log read_events(device& on, event_ring* ring, const event_meaning& meaning, stream order);

}  // namespace ballast::cuda
