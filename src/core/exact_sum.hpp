// A sum of doubles together with its rounding error.
// Layer: core.
// Source: D. Knuth, The art of computer programming, volume 2, section 4.2.2 (TwoSum).
#pragma once

namespace ballast::core {

// An unevaluated sum high + low of two doubles, about twice as precise as one.
struct exact_sum {
  double high = 0, low = 0;

  // Adds `value` and keeps the rounding error.
  void add(double value) {
    const double sum = high + value, part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  void add(const exact_sum& other) {
    add(other.high);
    low += other.low;
  }
};

}  // namespace ballast::core
