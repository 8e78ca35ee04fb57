// What is measured several times: quantiles, how a row says them, and variants that take turns in one run.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "output.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

// Between neighbours where none is there. values: not empty.
inline double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// "milliseconds", the median, "low" and "high".
inline row& add_milliseconds(row& line, const std::vector<double>& milliseconds) {
  return line.add("milliseconds", median(milliseconds)).add("low", quantile(milliseconds, 0)).add("high", quantile(milliseconds, 1));
}

// The milliseconds of each of `variants`, which take turns: `rounds` of each, behind one that is not counted if `warm_up`. Ends with the
// first round behind the time limit. prepare(v), which is not timed, returns false for a variant that has no turn; run(v) returns when its
// work is done; behind(v) is not timed.
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
