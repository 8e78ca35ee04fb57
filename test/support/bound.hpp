// Computes a bound of the rate of events from their number in many trials.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <cmath>
#include <cstdint>

namespace ballast::test {

// Returns the one-sided bound of Clopper and Pearson: the rate at which at most `seen` events in `trials` have a probability of 1 %. The
// true rate is below it with 99 % confidence. Sums `seen` + 1 terms 100 times.
inline double bound_99(std::int64_t seen, std::int64_t trials) {
  if (trials == 0 || seen >= trials) return 1;
  const auto n = static_cast<double>(trials);
  const auto chance = [&](double rate) {
    double sum = 0;
    for (std::int64_t i = 0; i <= seen; ++i) {
      const auto k = static_cast<double>(i);
      sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(rate) + (n - k) * std::log1p(-rate));
    }
    return sum;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (chance(middle) > 0.01 ? low : high) = middle;
  }
  return high;
}

}  // namespace ballast::test
