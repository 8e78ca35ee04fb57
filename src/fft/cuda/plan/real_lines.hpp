// Real-to-real transforms of lines that fit into one block: one pass (kernel/real_line.cuh). Their shapes, their lines, and the tables of
// their kernels, which are computed in more precision than the data and rounded once.
// Layer: fft/cuda.
// Source: J. Makhoul, A fast cosine transform in one and two dimensions, 1980 (II and III); Z. Wang, 1984 (IV of even length); H. Sorensen
// et al., Real-valued fast Fourier transform algorithms, 1987 (pairs of reals).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// The complex line of a real one.
struct real_line_shape {
  reals_form form = reals_form::none;
  bool sines = false;
  std::int64_t length = 1;
};

// Returns the complex line of a transform of n reals; none if it has no form of a single pass, or if its line does not fit into a block of
// the device: lengths with a prime factor above largest_prime, fewer than two complex numbers, dct4 and dst4 of odd n.
std::optional<real_line_shape> one_pass_of(real_kind kind, std::int64_t n, bool wide, const ballast::cuda::capabilities& device);

// Returns all lines of an axis of a real-to-real problem as loops around their transform; the other axes and the loops of the problem
// count lines. Addresses are relative to element (0, …, 0) of signal 0. from_input, to_output: in the layout of that side, otherwise of the
// other one.
nested_geometry lines_along(const array_problem& shape, std::size_t number, real_kind kind, bool from_input);

// Tables of T. Factors of the step before the transform: `halves` and `third` c_q of number k, conj(Z_k) = Σ_q c_q x_{i(q)}, over the reals
// k, n − k, n/2 − k and n/2 + k (odd n: k and n − k), complex; `fourth` e^{−πi(4j+1)/4n}. Others have none.
template <class T>
std::vector<T> real_load_factors(real_kind kind, std::int64_t n);
// Factors of the step after it: `pairs`, `first` and `second` α and β of result t, y = Re(α Z_k) + Re(β Z_{m−k}), as Re α, −Im α, Re β,
// −Im β (odd n: α); `fourth` 2 e^{−πik/n}.
template <class T>
std::vector<T> real_store_factors(real_kind kind, std::int64_t n);

// The weights of a line: `verify` a, random phases; `encode` b = Lᵀa for both vectors, four scalars, by the definition of L and not by
// these steps. The second vector is a with the other sign from the middle result on: results whose sums share a number of the spectrum are
// on both sides of it.
template <class T>
struct real_weights {
  std::vector<T> verify, encode;
};
template <class T>
real_weights<T> make_real_weights(real_kind kind, std::int64_t n);

// ‖L‖²: the largest ‖L x‖²/‖x‖², about.
double growth_of(real_kind kind, std::int64_t n);

extern template std::vector<float> real_load_factors(real_kind, std::int64_t);
extern template std::vector<double> real_load_factors(real_kind, std::int64_t);
extern template std::vector<float> real_store_factors(real_kind, std::int64_t);
extern template std::vector<double> real_store_factors(real_kind, std::int64_t);
extern template real_weights<float> make_real_weights(real_kind, std::int64_t);
extern template real_weights<double> make_real_weights(real_kind, std::int64_t);

}  // namespace ballast::fft::cuda
