// Discrete Fourier transforms in more precision than the data: roots of unity, chirps, whole transforms. Tables and checksum weights are
// computed with them, and the reference backend transforms large prime lengths with them. Plain code.
// Layer: algorithm, backend-free.
// Source: T. Stockham, High-speed convolution and correlation, 1966; L. Bluestein, A linear filtering approach to the DFT, 1970.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/memory.hpp"

namespace ballast::fft {

// The type in which sums over data of type T are accumulated where speed does not matter.
template <class T>
using wide = std::conditional_t<sizeof(T) == 4, double, long double>;

// Primes up to this one are transformed by the definition, larger primes by a convolution.
inline constexpr std::int64_t k_largest_direct_prime = 113;

// Returns the prime factors of n in ascending order.
std::vector<std::int64_t> prime_factors(std::int64_t n);

// Returns the product of the prime factors above k_largest_direct_prime: the part of a transform of n points that is a convolution, or 1 if
// the transform has no such part.
std::int64_t convolved_part(std::int64_t n);

// Returns the odd radix of the stage between n real numbers and transforms of n/radix points (see fft/cpu/kernels.hpp, real_stage), or 1 if
// real lines of n points have no such stage: n is even or has a prime factor above k_largest_direct_prime.
std::int64_t real_radix(std::int64_t n);

// Returns the smallest m ≥ least without a prime factor above 5.
std::int64_t smooth_length(std::int64_t least);

// Returns e^{-2πi k/n}. Reduces the angle to an octant first: exact at multiples of an eighth turn, otherwise within rounding of W.
template <class W>
std::complex<W> root_of_unity(std::int64_t k, std::int64_t n);

// Returns the product x y without the special treatment of NaN that the language prescribes for operator*.
template <class W>
constexpr std::complex<W> multiply(const std::complex<W>& x, const std::complex<W>& y) {
  return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
}

// Computes the forward transform. Gives the same bits for any number of threads.
template <class W>
std::vector<std::complex<W>> dft(std::vector<std::complex<W>> x, int threads = 1);
// The same for a transform in a call: all memory is from the current arena (core/memory.hpp).
template <class W>
core::vector<std::complex<W>> dft(core::vector<std::complex<W>> x);

// Bluestein's convolution. From jk = (j² + k² − (k − j)²)/2 the transform of n points is y_k = c_k Σ_j (x_j c_j) conj(c_{k−j}) with the
// chirp c_j = e^{−πi j²/n}: a cyclic convolution of any length m ≥ 2n − 1.
template <class W>
std::complex<W> chirp(std::int64_t j, std::int64_t n);

// Returns the factors of the spectrum of x c: the transform of conj(c) of length m, with c_{−j} = c_j. It is not divided by m. `inverse`:
// for the inverse transform of n points, which has the conjugate chirp.
template <class W>
std::vector<std::complex<W>> chirp_filter(std::int64_t n, std::int64_t m, bool inverse = false, int threads = 1);

extern template std::complex<double> root_of_unity(std::int64_t, std::int64_t);
extern template std::complex<long double> root_of_unity(std::int64_t, std::int64_t);
extern template std::vector<std::complex<double>> dft(std::vector<std::complex<double>>, int);
extern template std::vector<std::complex<long double>> dft(std::vector<std::complex<long double>>, int);
extern template core::vector<std::complex<double>> dft(core::vector<std::complex<double>>);
extern template core::vector<std::complex<long double>> dft(core::vector<std::complex<long double>>);
extern template std::complex<double> chirp(std::int64_t, std::int64_t);
extern template std::complex<long double> chirp(std::int64_t, std::int64_t);
extern template std::vector<std::complex<double>> chirp_filter(std::int64_t, std::int64_t, bool, int);
extern template std::vector<std::complex<long double>> chirp_filter(std::int64_t, std::int64_t, bool, int);

}  // namespace ballast::fft
