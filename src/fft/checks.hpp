// The checksum of a transform: the constants of its check, the weights on both sides, a weighted sum above working precision.
// Layer: algorithm, backend-free. The reference and cpu backends use all of it, the cuda backend the constants.
// Source: TurboFFT (PPoPP 2025) section 4; docs/protection.md, "Which weights".
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "abft/weights.hpp"
#include "fft/wide.hpp"

namespace ballast::fft {

inline constexpr std::uint64_t k_weight_seed = 0x62616c6c617374;  // any; fixed so that runs can be compared
inline constexpr int k_vectors = 2;                               // independent random-phase vectors
// In units of fft_residual with κ = 1 the clean RMS is 0.8, the largest of some 10⁶ lines 5.5: docs/design/fft.md.
inline constexpr double k_kappa = 7.5;
inline constexpr double k_convolution_sensitivity = 1.25;

// The weights of one axis: a on the output (rounded to T, so that both sides use the same numbers), b = Wᵀa on the input. The second vector
// is the first times random signs. It is uncorrelated with the first, and one product gives the terms of both sums. Of the elements 2m and
// 2m + 1 one keeps its sign: order[m] is 1 if that is 2m, else −1.
template <class T>
struct axis_weights {  // NOLINT(bugprone-reserved-identifier): clang-tidy 14 means its own name in the implicit copy
  std::vector<std::complex<wide<T>>> a[k_vectors];
  std::vector<std::complex<wide<T>>> b[k_vectors];
  std::vector<int> order;
};

// `stream` makes the axes of one problem independent. Elements k ≥ `kept` of a are zero: outputs that nobody stores.
template <class T>
axis_weights<T> make_axis_weights(std::int64_t n, std::uint64_t stream, std::int64_t kept) {
  axis_weights<T> made;
  for (auto& each : made.a) each.resize(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < kept; ++k) {
    const auto at = static_cast<std::size_t>(k);
    const abft::phase drawn = abft::random_phase(k_weight_seed, 2 * stream, static_cast<std::uint64_t>(k));
    if (k % 2 == 0) made.order.push_back(k + 1 == kept || core::random_bits(k_weight_seed, 2 * stream + 1, at / 2) % 2 == 0 ? 1 : -1);
    const int sign = k % 2 == 0 ? made.order.back() : -made.order.back();
    made.a[0][at] = {static_cast<T>(drawn.re), static_cast<T>(drawn.im)};
    made.a[1][at] = made.a[0][at] * static_cast<wide<T>>(sign);
  }
  for (int v = 0; v < k_vectors; ++v) made.b[v] = dft(made.a[v]);
  return made;
}

// A weighted sum, complex, as unevaluated high and low parts: what a checksum is kept in.
struct checksum {
  double high[2 * k_vectors] = {};
  double low[2 * k_vectors] = {};

  template <class W>
  void set(int vector, const std::complex<W>& sum) {
    const W part[2] = {sum.real(), sum.imag()};
    for (int i = 0; i < 2; ++i) {
      high[2 * vector + i] = static_cast<double>(part[i]);
      low[2 * vector + i] = static_cast<double>(part[i] - static_cast<W>(high[2 * vector + i]));
    }
  }
  template <class W>
  std::complex<W> get(int vector) const {
    return {static_cast<W>(high[2 * vector]) + static_cast<W>(low[2 * vector]),
            static_cast<W>(high[2 * vector + 1]) + static_cast<W>(low[2 * vector + 1])};
  }
};

}  // namespace ballast::fft
