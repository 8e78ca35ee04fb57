// The error of a convolution at some of its results, each of which is summed in higher precision.
// Layer: gpu-check.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <ballast/convolve.hpp>

#include "core/counter_rng.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "kinds.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::gpu_check {

// x, h, y: the operands and the result. Compares 64 results, the first and the last among them. The bound is that of three transforms of
// the full result, each of at most 3·u·√log₂N, and one rounding of the products; in the norm, of which random data give every result a
// share.
template <class T>
measured_error error_of_convolution(const fft::convolution_problem& what, const std::vector<std::int64_t>& shape, const std::vector<T>& x,
                                    const std::vector<T>& h, const std::vector<T>& y) {
  using W = fft::wide<T>;
  using number = std::complex<W>;
  constexpr std::int64_t k_compared = 64;
  const std::size_t rank = shape.size();
  const auto element = [&](const std::vector<T>& of, std::int64_t i) {
    const auto at = static_cast<std::size_t>(what.complex ? 2 * i : i);
    return number(of[at], what.complex ? of[at + 1] : T(0));
  };
  const auto points_of = [](const std::vector<std::int64_t>& lengths) {
    std::int64_t all = 1;
    for (const std::int64_t n : lengths) all *= n;
    return all;
  };
  const std::int64_t results = points_of(shape), terms = points_of(what.second);
  double points = 1, difference = 0, size = 0;
  for (std::size_t a = 0; a < rank; ++a) points *= static_cast<double>(what.first[a] + what.second[a] - 1);
  for (std::int64_t c = 0; c < k_compared; ++c) {
    const std::int64_t k =
        c == 0   ? 0
        : c == 1 ? results - 1
                 : static_cast<std::int64_t>(core::random_bits(5, 0, static_cast<std::uint64_t>(c)) % static_cast<std::uint64_t>(results));
    number sum = 0;
    for (std::int64_t l = 0; l < terms; ++l) {  // element l of h, in C order
      std::int64_t from = 0, at_k = k, at_l = l, step_x = 1, step_h = 1, in_h = 0;
      bool inside = true;
      for (std::size_t a = rank; a-- > 0;) {
        const std::int64_t n = what.first[a], m = what.second[a];
        const std::int64_t begin = what.mode == fft::convolution_mode::same    ? (m - 1) / 2
                                   : what.mode == fft::convolution_mode::valid ? std::min(n, m) - 1
                                                                               : 0;
        const std::int64_t j = at_k % shape[a] + begin - at_l % m;
        inside = inside && j >= 0 && j < n;
        from += j * step_x;
        in_h += (what.correlate ? m - 1 - at_l % m : at_l % m) * step_h;
        step_x *= n;
        step_h *= m;
        at_k /= shape[a];
        at_l /= m;
      }
      if (!inside) continue;
      const number f = element(h, in_h);
      sum += element(x, from) * (what.correlate ? std::conj(f) : f);
    }
    difference += static_cast<double>(std::norm(element(y, k) - sum));
    size += static_cast<double>(std::norm(sum));
  }
  const double bound = (3 * 3 * std::sqrt(std::log2(points) + 1) + 1) * test::unit_roundoff(what.precision);
  return {std::sqrt(difference / size), bound};
}

}  // namespace ballast::gpu_check
