// The check of a row, for all backends.
// Layer: algorithm. Host/device-neutral.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "core/macros.hpp"
#include "skeleton/thresholds.hpp"

namespace ballast::skeleton {

// Compares two sums of a row of n numbers; `size`: the sum of their absolute values. `check` false: nothing is compared (protection::off).
BALLAST_HD inline abft::finding compare(double sum, double again, double size, std::int64_t n, std::int64_t row, bool check) {
  abft::finding made;
  made.index = row;
  if (!check) return made;
  made.residual = sum - again;
  made.threshold = thresholds::residual(n, size);
  made.judged = size <= abft::k_largest<double>;
  made.word = abft::verify(made.residual, abft::guarded_threshold(made.threshold));
  abft::result_hash hash;
  hash.add(sum);
  made.bits = hash.bits();
  return made;
}

}  // namespace ballast::skeleton
