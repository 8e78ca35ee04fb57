// Discrete Fourier transforms in more precision than the data: roots of unity, chirps, whole transforms. Tables and checksum weights are
// made with them, and the reference backend transforms large prime lengths with them. Serial and plain.
// Layer: algorithm, backend-free.
// Source: T. Stockham, High-speed convolution and correlation, 1966; L. Bluestein, A linear filtering approach to the DFT, 1970.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace ballast::fft {

// What sums over data of type T are accumulated in where speed does not matter.
template <class T>
using wide = std::conditional_t<sizeof(T) == 4, double, long double>;

// Primes up to this are transformed by the definition, larger ones by a convolution.
inline constexpr std::int64_t k_largest_direct_prime = 113;

// The prime factors of n in ascending order.
std::vector<std::int64_t> prime_factors(std::int64_t n);

// The product of the prime factors above k_largest_direct_prime: the part of a transform of n points that is a convolution. 1: none.
std::int64_t convolved_part(std::int64_t n);

// The smallest m ≥ least with no prime factor above 5.
std::int64_t smooth_length(std::int64_t least);

// e^{-2πi k/n}, the angle reduced to an octant first: exact at multiples of an eighth turn, else within rounding of W.
template <class W>
std::complex<W> root_of_unity(std::int64_t k, std::int64_t n);

// The product without the special treatment of NaN that the language prescribes for operator*.
template <class W>
constexpr std::complex<W> multiply(const std::complex<W>& x, const std::complex<W>& y) {
  return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
}

// Forward transform. The same bits for any number of threads.
template <class W>
std::vector<std::complex<W>> dft(std::vector<std::complex<W>> x, int threads = 1);

// Bluestein's convolution. From jk = (j² + k² − (k − j)²)/2 the transform of n points is y_k = c_k Σ_j (x_j c_j) conj(c_{k−j}) with the
// chirp c_j = e^{−πi j²/n}: a cyclic convolution of any length m ≥ 2n − 1.
template <class W>
std::complex<W> chirp(std::int64_t j, std::int64_t n);

// What the transform of x c is multiplied with: the transform of conj(c) of length m, with c_{−j} = c_j. Not divided by m. `inverse`: for
// the inverse transform of n points, which has the conjugate chirp.
template <class W>
std::vector<std::complex<W>> chirp_filter(std::int64_t n, std::int64_t m, bool inverse = false, int threads = 1);

extern template std::complex<double> root_of_unity(std::int64_t, std::int64_t);
extern template std::complex<long double> root_of_unity(std::int64_t, std::int64_t);
extern template std::vector<std::complex<double>> dft(std::vector<std::complex<double>>, int);
extern template std::vector<std::complex<long double>> dft(std::vector<std::complex<long double>>, int);
extern template std::complex<double> chirp(std::int64_t, std::int64_t);
extern template std::complex<long double> chirp(std::int64_t, std::int64_t);
extern template std::vector<std::complex<double>> chirp_filter(std::int64_t, std::int64_t, bool, int);
extern template std::vector<std::complex<long double>> chirp_filter(std::int64_t, std::int64_t, bool, int);

}  // namespace ballast::fft
