// Writes detected faults to the event ring: the device side of event_ring.hpp.
// Layer: foundation, device code.
#pragma once

#include "abft/attempt.hpp"
#include "cuda/arch/thread.cuh"
#include "cuda/block/event_ring.hpp"
#include "cuda/block/launch.cuh"

namespace ballast::cuda {

__device__ __forceinline__ void count(unsigned long long& counter) { atomicAdd(&counter, 1ull); }

// Counts a detected fault by its action, and writes its event if the ring has room. fill(e) sets index, residual, threshold, what and
// chunk; this function sets the rest. One thread calls it for each fault.
template <class Launch, class Fill>
__device__ __forceinline__ void write_event(const Launch& given, event_ring& ring, event_action action, Fill&& fill) {
  count(action == event_action::uncorrectable ? ring.uncorrectable : action == event_action::recomputed ? ring.recomputed : ring.corrected);
  const unsigned long long at = atomicAdd(&ring.written, 1ull);
  if (at >= k_ring_events) return;
  device_event e{};
  fill(e);
  e.time = arch::global_timer();
  e.multiprocessor = static_cast<std::uint32_t>(arch::multiprocessor_id());
  e.seal = event_seal(e);
  // A strike here makes the event differ from its seal.
  given.strike(index<1>{}, inject::k_event_log, inject::device_position{0, 1, 0, 1, 0, 1}, &e.residual);
  ring.events[at] = e;
}

// The same for a tile whose attempts have ended with this outcome; writes nothing if it is clean. `index`: device_event::index; `part` and
// `check`: see event_word.
template <class Launch>
__device__ __forceinline__ void write_outcome(const Launch& given, event_ring& ring, abft::outcome how, const abft::finding& first,
                                              std::int64_t index, std::uint32_t part = 0, std::uint32_t check = 0) {
  if (how == abft::outcome::open || how == abft::outcome::clean) return;
  const event_action action = how == abft::outcome::corrected    ? event_action::corrected
                              : how == abft::outcome::recomputed ? event_action::recomputed
                                                                 : event_action::uncorrectable;
  write_event(given, ring, action, [&](device_event& e) {
    e.index = index;
    e.residual = first.residual;
    e.threshold = first.threshold * first.threshold;
    e.what = event_word(part, check, action);
  });
}

}  // namespace ballast::cuda
