// Reads counters first, and events only where there are any: most calls have none.
#include "cuda/event_log.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>

namespace ballast::cuda {

namespace {

constexpr std::size_t k_counters = offsetof(event_ring, events);

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

void clear_events(device& on, event_ring* ring, stream order) { on.zero(ring, k_counters, order); }

event_log read_events(device& on, event_ring* ring, const event_meaning& meaning, stream order) {
  const auto read = std::make_unique<event_ring>();
  on.copy(read.get(), ring, k_counters, order);
  on.synchronize(order);
  event_log made;
  if (read->written == 0 && read->false_alarms == 0) return made;
  on.copy(read->events, ring->events, sizeof(read->events), order);
  clear_events(on, ring, order);
  on.synchronize(order);
  made.corrected = read->corrected;
  made.recomputed = read->recomputed;
  made.uncorrectable = read->uncorrectable;
  made.false_alarms = read->false_alarms;
  const std::size_t kept = std::min<std::size_t>(read->written, k_ring_events);
  for (std::size_t i = 0; i < kept; ++i) made.events.push_back(readable(read->events[i], meaning));
  return made;
}

}  // namespace ballast::cuda
