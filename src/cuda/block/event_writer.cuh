// Writing what a check found to the event ring: the device side of event_ring.hpp.
// Layer: foundation, device code.
#pragma once

#include "cuda/arch/thread.cuh"
#include "cuda/block/event_ring.hpp"
#include "cuda/block/launch.cuh"

namespace ballast::cuda {

__device__ __forceinline__ void count(unsigned long long& counter) { atomicAdd(&counter, 1ull); }

// Counts a detected fault by what was done about it, and writes its event if the ring has room. fill(e) sets index, residual, threshold,
// what and chunk; the rest is set here. Called by one thread for each fault.
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
  // The log is memory, too: what is struck here no longer fits the seal.
  given.strike(index<1>{}, inject::site::event_log, inject::device_place{0, 1, 0, 1, 0, 1}, &e.residual);
  ring.events[at] = e;
}

}  // namespace ballast::cuda
