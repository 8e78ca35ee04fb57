// The attempt loop of the host: abft::attempts with its outcome recorded.
// Layer: run. For every driver and host backend.
#pragma once

#include <optional>

#include "abft/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::run {

// How often a tile may be computed again under this protection.
constexpr int repeats_of(protection wanted) { return wanted == protection::correct ? abft::k_repeats : 0; }

// One computation. It is a function of its own because no vector register outlives a call: a constant of the check, kept in one over all
// computations, would fail them all once it was struck.
template <class Once>
[[gnu::noinline]] std::optional<abft::finding> compute_once(Once& once, int number) {
  return once(number);
}

// Computes and verifies until a result passes: once(number) makes attempt `number` = 0, 1, … and returns its abft::finding, or
// std::nullopt if something that the tile rests on failed for good and was recorded itself: that ends the attempts as uncorrectable. Else
// the outcome is recorded for check `site`, or for the one that the finding names; `slot` is the worker's in parallel_for. Under
// protection::off no check may fail.
template <class Once>
abft::outcome attempt(recorder& seen, protection wanted, const char* site, int slot, Once&& once) {
  abft::attempts state(repeats_of(wanted));
  for (int number = 0;; ++number) {
    const std::optional<abft::finding> found = compute_once(once, number);
    if (!found) return abft::outcome::uncorrectable;
    const abft::outcome how = state.judge(*found);
    if (how == abft::outcome::open) continue;
    seen.settled(site, how, state, slot);
    return how;
  }
}

}  // namespace ballast::run
