// Transforms of a prime number of points as cyclic convolutions: the order of the elements, and the filter.
// Layer: algorithm, backend-free. The cpu backend and the search for its weights use it.
// Source: C. Rader, Discrete Fourier transforms when the number of data samples is prime, 1968; I. Good, The interaction algorithm and
// practical Fourier analysis, 1958.
//
// With a primitive root g of p, y_0 = Σ_j x_j, and for n < p − 1: y_{g^−n} = x_0 + Σ_j x_{g^j} e^{−2πi g^{j−n}/p}, a cyclic convolution of
// p − 1 points. The convolution permutes its elements anyway, so its transforms are split into coprime factors, which need no twiddle
// factors between them: less rounding and less work.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace ballast::fft {

// Returns whether p is a prime whose convolution contains no further convolution: all prime factors of p − 1 are at most
// k_largest_direct_prime.
bool is_cyclic(std::int64_t p);

// p rows: first the p − 1 rows of the transforms, then x_0, which becomes y_0.
struct cyclic_convolution {
  std::vector<std::int64_t> factors;  // prime powers with product p − 1, in the order of the forward transform; the inverse reverses it
  std::vector<std::int64_t> input;    // the element of x in each row
  std::vector<std::int64_t> powers;   // the element of the filter that belongs to each row of the spectrum
  std::vector<std::int64_t> output;   // the row of each element of y
};
cyclic_convolution make_cyclic(std::int64_t p);

// Returns the filter of each row of the spectrum, divided by p − 1.
template <class W>
std::vector<std::complex<W>> cyclic_filter(const cyclic_convolution& of);

extern template std::vector<std::complex<double>> cyclic_filter(const cyclic_convolution&);
extern template std::vector<std::complex<long double>> cyclic_filter(const cyclic_convolution&);

}  // namespace ballast::fft
