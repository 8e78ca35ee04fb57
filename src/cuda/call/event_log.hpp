// The host's side of the event ring: clearing it before a call, reading it after.
// Layer: foundation. cuda/block/event_ring.hpp is what kernels write.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ballast/report.hpp>

#include "cuda/block/event_ring.hpp"
#include "cuda/device/device.hpp"

namespace ballast::cuda {

// What the kernels of a call logged: counts, and the events that the ring had room for. run::recorder::add puts it into a report.
struct event_log {
  struct entry {
    const char* site = "";
    std::int64_t index = -1;
    double residual = 0;
    double threshold = 0;
    action what = action::uncorrectable;
    int multiprocessor = -1;
    double time = 0;       // seconds of the device's clock
    bool damaged = false;  // the entry's own hash no longer fits
  };
  std::uint64_t corrected = 0, recomputed = 0, uncorrectable = 0, false_alarms = 0;
  std::vector<entry> events;
};

// Room for a ring at the beginning of a workspace.
inline constexpr std::int64_t k_ring_bytes = (sizeof(event_ring) + 255) / 256 * 256;

// Sets the counters to 0, in the order of the stream.
void clear_events(device& on, event_ring* ring, stream order);

// Fills in what only the algorithm knows of an event: its site and its index. Numbers of a damaged event may be anything.
using event_meaning = std::function<void(const device_event&, event_log::entry&)>;

// Waits for the stream, reads what was logged since the ring was last cleared or read, and clears it. One small copy if nothing was.
event_log read_events(device& on, event_ring* ring, const event_meaning& meaning, stream order);

}  // namespace ballast::cuda
