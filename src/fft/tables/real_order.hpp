// The order of the numbers of a real line of odd length n, whose stage for reals has an odd radix r (fft/cpu/kernels.hpp, real_stage):
// number f of the spectrum is number f / r of transform f mod r, or the conjugate of number n − f. The line computes transforms 0 … r/2,
// side by side. An entry below 0 is ~place: the conjugate of the number there.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <vector>

namespace ballast::fft {

// Returns where the n/2 + 1 numbers of the spectrum are among those of the transforms.
inline std::vector<std::int64_t> spectrum_order(std::int64_t n, std::int64_t radix) {
  const std::int64_t transforms = radix / 2 + 1;
  const auto place = [&](std::int64_t f) { return f / radix * transforms + f % radix; };
  std::vector<std::int64_t> made;
  for (std::int64_t f = 0; f <= n / 2; ++f) made.push_back(f % radix < transforms ? place(f) : ~place(n - f));
  return made;
}

// Returns where the numbers of the transforms are in the spectrum.
inline std::vector<std::int64_t> transforms_order(std::int64_t n, std::int64_t radix) {
  std::vector<std::int64_t> made;
  for (std::int64_t t = 0; t < n / radix; ++t) {
    for (std::int64_t f = t * radix; f <= t * radix + radix / 2; ++f) made.push_back(f <= n / 2 ? f : ~(n - f));
  }
  return made;
}

}  // namespace ballast::fft
