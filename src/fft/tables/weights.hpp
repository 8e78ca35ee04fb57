// The weights of a line's two checksums. They are chosen when a plan is made, so that no single wrong number of the line is invisible to
// both: every number that it computes is followed to the outputs, sums inside of butterflies included.
// Layer: algorithm, backend-free. The reference and cpu backends use it.
// Source: M. Golay, Complementary series, 1961; H. Shapiro, 1951; W. Rudin, 1959; docs/design/fft.md, "Weights".
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace ballast::fft {

// What a line takes and gives. complex: n → n. real_forward: n/2 pairs of reals → n/2 + 1, n even. real_inverse: n/2 + 1 → n/2 pairs of
// reals, n even. Prime factors above k_largest_direct_prime, in one p, are convolutions: of p − 1 points if is_cyclic(p), else of
// smooth_length(2p − 1).
enum class form : std::uint8_t { complex, real_forward, real_inverse };

// Both vectors in one: a₀ = a; a₁ = a for the outputs of the first half, −a for those of the second. |a_k| = 1. Halves share no element,
// so the vectors are independent, and one product for each output gives both sums.
struct output_weights {
  std::vector<std::complex<double>> a;  // n, n/2 + 1, or one for each of n reals
  // The least over all single numbers of the line of max(|a₀ᵀe|, |a₁ᵀe|)/‖e‖₂, e being what a change of that number does to the outputs.
  // For numbers in front of the filter of a convolution ‖e‖ is an estimate.
  double least_response = 0;
};

// The first row of the second half. Rows are outputs, or pairs of reals.
constexpr std::int64_t second_half(std::int64_t rows) { return (rows + 1) / 2; }

// What every line's least response is at least.
inline constexpr double k_least_response = 0.25;

// Weights with k_least_response. `stream` makes the lines of one problem independent. O(n log n) for each of a few tries: powers of two
// need one. The last ones are remembered. Thread-safe. Throws std::runtime_error if there are none, which happens at no length that was
// tried (docs/design/fft.md).
output_weights choose_weights(form what, std::int64_t n, std::uint64_t stream);

// The first of those tries, unexamined: for lines whose numbers are verified in other ways, too. least_response is 0.
output_weights draw_weights(form what, std::int64_t n, std::uint64_t stream);

// What a change of an input by 1 and by i gives to aᵀy, of the first and of the second half: for tests.
struct input_response {
  std::complex<double> real[2], imaginary[2];
};
std::vector<input_response> input_responses(form what, std::int64_t n, const output_weights& weights);

}  // namespace ballast::fft
