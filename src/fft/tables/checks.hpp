// The checksum of a transform: the constants of its check, the weights of both sides in extended precision, and a sum in more than
// working precision.
// Layer: algorithm, backend-free. The reference and cpu backends use all of it; the cuda backend uses the constants only.
// Source: TurboFFT (PPoPP 2025) section 4; docs/protection.md, "Which weights".
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/tables/weights.hpp"

namespace ballast::fft {

inline constexpr std::uint64_t k_weight_seed = 0x62616c6c617374;  // seed of cuda's weights; arbitrary, but fixed, so that runs compare
inline constexpr int k_vectors = 2;
// Safety factor of the threshold. In units of thresholds::residual with κ = 1 the RMS of clean residuals is 0.8, and the largest of some
// 10⁶ lines is 5.5: docs/design/fft.md.
inline constexpr double k_kappa = 7.5;
inline constexpr double k_convolution_sensitivity = 1.25;
// A residual above this share of its threshold is not accepted as rounding at once: the transform is computed again and must give the same
// bits. Used on the host.
inline constexpr double k_repeat_share = 0.5;

// The weights of one axis: a for the output (rounded to T, so that both sides use the same numbers), b = Wᵀa for the input.
template <class T>
struct axis_weights {  // NOLINT(bugprone-reserved-identifier): clang-tidy 14 means its own name in the implicit copy
  std::vector<std::complex<wide<T>>> a[k_vectors];
  std::vector<std::complex<wide<T>>> b[k_vectors];
};

// Builds the weights for `rows` rows of outputs. A row takes one element of `chosen`, or two if rows are pairs of reals. Elements of a
// beyond those rows are zero: the transform does not store these outputs.
template <class T>
axis_weights<T> make_axis_weights(std::int64_t n, const output_weights& chosen, std::int64_t rows) {
  axis_weights<T> made;
  const auto kept = static_cast<std::int64_t>(chosen.a.size()), of_row = (kept + rows - 1) / rows;
  for (auto& each : made.a) each.resize(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < kept; ++k) {
    const auto at = static_cast<std::size_t>(k);
    made.a[0][at] = {static_cast<T>(chosen.a[at].real()), static_cast<T>(chosen.a[at].imag())};
    made.a[1][at] = k / of_row < second_half(rows) ? made.a[0][at] : -made.a[0][at];
  }
  for (int v = 0; v < k_vectors; ++v) made.b[v] = dft(made.a[v]);
  return made;
}

// A complex weighted sum for each weight vector, stored as unevaluated high and low parts.
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
