// The verdict on a tile from the numbers of its check, in kernels for batches: the comparison with its threshold, the comparison of hashes,
// and the outcome of the attempt. Layer: backend "cuda" of QR, device code. docs/design/qr-cuda-batches.md, describes the checks.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "cuda/block/event_writer.cuh"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

// A number has changed since it was verified: the computation fails.
__device__ __forceinline__ void compare_hash(std::uint64_t verified, std::uint64_t stored, abft::finding& now) {
  if (verified == stored) return;
  now.word = abft::k_fail;
  now.judged = true;
  now.residual = now.threshold = 0;  // a comparison of bits
}

// The verdict on problem `item` of `items`.
template <class Launch>
struct batch_verdict {
  const Launch& given;
  const std::int64_t item, items;

  // Between the two thresholds the bits decide, if the tile may be recomputed. `hash`: of all numbers to store; `odd`: the input holds Inf
  // or NaN; `first`: the one thread that faults may strike.
  __device__ __forceinline__ abft::finding judge(double residual, const abft::tiers& limits, std::uint64_t hash, bool odd, int repeats,
                                                 bool first) const {
    abft::finding now = compare(residual, repeats > 0 ? limits.clean : limits.wrong, first);
    now.bits = hash == 0 ? 1 : hash;
    if (now.word != abft::k_pass) now.judged = !(repeats > 0 && residual > limits.clean && residual <= limits.wrong);
    if (odd) now.judged = false;
    return now;
  }

  // Judges the computation, and writes the event. One thread calls it.
  __device__ __forceinline__ abft::outcome settle(abft::attempts& state, const abft::finding& now, ballast::cuda::event_ring& events,
                                                  std::int64_t matrix, int check) const {
    const abft::outcome how = state.judge(now);
    ballast::cuda::write_outcome(given, events, how, state.first(), matrix, 0, static_cast<std::uint32_t>(check));
    if (how == abft::outcome::recomputed && state.false_alarm()) ballast::cuda::count(events.false_alarms);
    return how;
  }

 private:
  __device__ __forceinline__ abft::finding compare(double residual, double threshold, bool first) const {
    abft::finding now;
    abft::guarded_threshold limit(threshold);
    now.residual = residual;
    now.threshold = threshold;
    if (first) strike(site::threshold, &limit.value);
    now.word = abft::verify(residual, limit);
    if (first) strike(site::comparison, &now.word);
    return now;
  }
  template <class T>
  __device__ __forceinline__ void strike(inject::site where, T* data) const {
    given.strike(ballast::cuda::index<1>{}, where, {item, items, 0, 1, 0, 1}, data);
  }
};

}  // namespace ballast::qr::cuda
