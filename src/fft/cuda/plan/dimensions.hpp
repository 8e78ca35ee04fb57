// The dimensions that a pass loops over. Plain host code.
// Layer: fft/cuda.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fft/cuda/plan/schedule.hpp"

namespace ballast::fft::cuda {

// A dimension that a pass loops over but does not transform.
struct dimension {
  std::int64_t count;
  std::int64_t source, target;  // strides
  signal_of_index signals{};
  std::int64_t position_source = 0, position_target = 0;  // strides in positions of the whole line
  bool positioned() const { return position_source != 0 || position_target != 0; }
};

// Merges dimensions that one stride can step through. The dimension with the closest lines comes first.
inline std::vector<dimension> merged(std::vector<dimension> all, bool by_target) {
  std::erase_if(all, [](const dimension& d) { return d.count == 1; });
  std::ranges::sort(all, {}, [&](const dimension& d) { return std::abs(by_target ? d.target : d.source); });
  std::vector<dimension> made;
  for (const dimension& d : all) {
    if (!made.empty()) {
      dimension& last = made.back();
      if (!last.positioned() && !d.positioned() && d.source == last.source * last.count && d.target == last.target * last.count) {
        // At most one of the two contains the batch.
        if (d.signals.modulus > 1) last.signals = {last.count * d.signals.divisor, d.signals.modulus};
        last.count *= d.count;
        continue;
      }
    }
    made.push_back(d);
  }
  return made;
}

}  // namespace ballast::fft::cuda
