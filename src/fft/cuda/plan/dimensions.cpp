// See dimensions.hpp.
#include "fft/cuda/plan/dimensions.hpp"

#include <algorithm>
#include <cstdlib>

namespace ballast::fft::cuda {

std::vector<dimension> merged(std::vector<dimension> all, bool by_target) {
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
