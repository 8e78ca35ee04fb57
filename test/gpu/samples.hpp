// Repeated measurements: quantiles, their output in a row, and variants that alternate in one run.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "output.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

// Interpolates between neighbours. values: not empty.
inline double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// Adds "milliseconds" (the median), "low" and "high".
inline row& add_milliseconds(row& line, const std::vector<double>& milliseconds) {
  return line.add("milliseconds", median(milliseconds)).add("low", quantile(milliseconds, 0)).add("high", quantile(milliseconds, 1));
}

// Measures the milliseconds of each of `variants`, which alternate: `rounds` rounds of each, after one uncounted round if `warm_up`. Stops
// at the first round after the time limit. prepare(v), which is not timed, returns false for a variant that is skipped; run(v) returns when
// its work is done; the last function runs after it and is not timed.
template <class Prepare, class Run, class Behind>
std::vector<std::vector<double>> in_turn(std::size_t variants, int rounds, const time_limit& limit, const Prepare& prepare, const Run& run,
                                         const Behind& behind, bool warm_up = true) {
  std::vector<std::vector<double>> made(variants);
  for (int round = warm_up ? -1 : 0; round < rounds && !(round > 0 && limit.over()); ++round) {
    for (std::size_t v = 0; v < variants; ++v) {
      if (!prepare(v)) continue;
      const time_limit clock(0);
      run(v);
      if (round >= 0) made[v].push_back(-1e3 * clock.left());
      behind(v);
    }
  }
  return made;
}

}  // namespace ballast::gpu_check
