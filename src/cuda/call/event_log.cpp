// Reads the event ring: the counters first, and the events only if there are any, because most calls have none.
#include "cuda/call/event_log.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast::cuda {

namespace {

event_log::entry readable(const device_event& e, const event_meaning& meaning) {
  event_log::entry made;
  made.damaged = event_seal(e) != e.seal;
  made.residual = e.residual;
  made.threshold = std::sqrt(e.threshold);
  switch (action_of(e.what)) {
    case event_action::corrected: made.what = action::corrected; break;
    case event_action::recomputed: made.what = action::recomputed; break;
    default: made.what = action::uncorrectable; break;
  }
  made.time = static_cast<double>(e.time) * 1e-9;
  made.multiprocessor = static_cast<int>(e.multiprocessor);
  meaning(e, made);
  return made;
}

}  // namespace

void clear_events(device& on, event_ring* ring, stream order) { on.zero(ring, sizeof(event_counters), order); }

event_log read_events(device& on, event_ring* ring, const event_meaning& meaning, stream order) {
  event_counters read;
  on.copy(&read, ring, sizeof read, order);
  on.synchronize(order);
  event_log made;
  if (read.written == 0 && read.false_alarms == 0) return made;
  std::vector<device_event> events(std::min<std::size_t>(read.written, k_ring_events));
  if (!events.empty()) on.copy(events.data(), ring->events, static_cast<std::int64_t>(events.size() * sizeof(device_event)), order);
  clear_events(on, ring, order);
  on.synchronize(order);
  made.corrected = read.corrected;
  made.recomputed = read.recomputed;
  made.uncorrectable = read.uncorrectable;
  made.false_alarms = read.false_alarms;
  for (const device_event& each : events) made.events.push_back(readable(each, meaning));
  return made;
}

}  // namespace ballast::cuda
