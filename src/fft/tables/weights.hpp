// The weights of a line's two checksums. A plan chooses them when it is constructed, such that at least one of both checksums sees any
// single wrong number of the line: the search follows every number that the line computes to the outputs, also the sums inside butterflies.
// Layer: algorithm, backend-free. The reference and cpu backends use it.
// Source: M. Golay, Complementary series, 1961; H. Shapiro, 1951; W. Rudin, 1959; docs/design/fft.md, "Weights".
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace ballast::fft {

// The input and output of a line. complex: n → n. real_forward: pairs of n reals → n/2 + 1. real_inverse: n/2 + 1 → pairs of n reals. n is
// even, or it is odd, real_radix(n) > 1 and the last pair has one real alone. The prime factors above k_largest_direct_prime, multiplied to
// one p, form a convolution: of p − 1 points if is_cyclic(p), otherwise of smooth_length(2p − 1).
enum class form : std::uint8_t { complex, real_forward, real_inverse };

// Both weight vectors in one: a₀ = a; a₁ = a for the outputs of the first half, −a for those of the second. |a_k| = 1. The halves share no
// element, so the vectors are independent, and one product per output serves both sums.
struct output_weights {
  std::vector<std::complex<double>> a;  // n, n/2 + 1, or one for each of n reals
  // The minimum, over all single numbers of the line, of max(|a₀ᵀe|, |a₁ᵀe|)/‖e‖₂, where e is the change of the outputs that a change of
  // the number causes. For numbers before the filter of a convolution ‖e‖ is an estimate.
  double least_response = 0;
};

// Returns the first row of the second half. Rows are outputs, or pairs of reals.
constexpr std::int64_t second_half(std::int64_t rows) { return (rows + 1) / 2; }

// The smallest least_response that choose_weights accepts.
inline constexpr double k_least_response = 0.25;

// That of the inputs of an axis whose weights are multiplied by those of other axes: a change inside of a line of the last one of three
// axes meets two such factors, 1/2 in all, and a response of k_least_response.
inline constexpr double k_least_joint_input = 0.7072;

// Returns weights with at least k_least_response. `stream` makes the lines of one problem independent. Takes O(n log n) for each of a few
// tries; powers of two need one try. The latest results are cached. Thread-safe. Throws std::runtime_error if no try succeeds; no length
// that was tried so far threw (docs/design/fft.md). inputs: the least response of the inputs, if they need more than the other numbers.
output_weights choose_weights(form kind, std::int64_t n, std::uint64_t stream, double inputs = k_least_response);

// Returns the weights of the first of those tries without examining them: for lines whose numbers other checks verify as well.
// least_response is 0.
output_weights draw_weights(form kind, std::int64_t n, std::uint64_t stream);

// The change of aᵀy, of the first and of the second half, when an input changes by 1 and by i. For tests.
struct input_response {
  std::complex<double> real[2], imaginary[2];
};
std::vector<input_response> input_responses(form kind, std::int64_t n, const output_weights& weights);

}  // namespace ballast::fft
