// The error of a convolution at some of its results, each of which is summed in higher precision.
// Layer: gpu-check.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ballast/convolve.hpp>

#include "core/counter_rng.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "kinds.hpp"
#include "support/convolution_sum.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::gpu_check {

// x, h, y: the operands and the result. Compares 64 results, the first and the last among them. The bound is that of three transforms of
// the full result, each of at most 3·u·√log₂N, and one rounding of the products; in the norm, of which random data give every result a
// share.
template <class T>
measured_error error_of_convolution(const fft::convolution_problem& what, const std::vector<T>& x, const std::vector<T>& h,
                                    const std::vector<T>& y) {
  using number = std::complex<fft::wide<T>>;
  constexpr std::int64_t k_compared = 64;
  const test::convolution_sum<fft::wide<T>, T> sum(what, x, h);
  const std::int64_t results = sum.results();
  double points = 1, difference = 0, size = 0;
  for (std::size_t a = 0; a < what.first.size(); ++a) points *= static_cast<double>(what.first[a] + what.second[a] - 1);
  for (std::int64_t c = 0; c < k_compared; ++c) {
    const std::int64_t k =
        c == 0   ? 0
        : c == 1 ? results - 1
                 : static_cast<std::int64_t>(core::random_bits(5, 0, static_cast<std::uint64_t>(c)) % static_cast<std::uint64_t>(results));
    const auto at = static_cast<std::size_t>(what.complex ? 2 * k : k);
    const number right = sum(k);
    difference += static_cast<double>(std::norm(number(y[at], what.complex ? y[at + 1] : T(0)) - right));
    size += static_cast<double>(std::norm(right));
  }
  const double bound = (3 * 3 * std::sqrt(std::log2(points) + 1) + 1) * test::unit_roundoff(what.precision);
  return {std::sqrt(difference / size), bound};
}

}  // namespace ballast::gpu_check
