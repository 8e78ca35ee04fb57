// The numbers of a matrix: float, double, std::complex<float> or std::complex<double>, and what the code for all four needs of them.
// Layer: algorithm, backend-free. In host memory.
// An array of n complex numbers is also an array of 2n real ones (the C++ standard, [complex.numbers]). Sums with real weights, norms,
// hashes and seals take it as such; only products of two complex numbers differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include "abft/seal.hpp"
#include "qr/arithmetic/number.hpp"

namespace ballast::qr {

template <class R>
struct scalar<std::complex<R>> {
  using real = R;
  using wide = std::complex<double>;
  static constexpr std::int64_t reals = 2;
};

// The components of an array.
template <class S>
real_of<S>* reals(S* x) {
  return reinterpret_cast<real_of<S>*>(x);
}
template <class S>
const real_of<S>* reals(const S* x) {
  return reinterpret_cast<const real_of<S>*>(x);
}

inline float conjugate(float x) { return x; }
inline double conjugate(double x) { return x; }
template <class R>
std::complex<R> conjugate(const std::complex<R>& x) {
  return std::conj(x);
}

// Computes x · y by four products, without the C++ library's special treatment of Inf and NaN.
inline float times(float x, float y) { return x * y; }
inline double times(double x, double y) { return x * y; }
template <class R>
std::complex<R> times(const std::complex<R>& x, const std::complex<R>& y) {
  return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
}

// |x|² in double.
inline double square_of(double x) { return x * x; }
template <class R>
double square_of(const std::complex<R>& x) {
  return square_of(static_cast<double>(x.real())) + square_of(static_cast<double>(x.imag()));
}

// |x| in double.
inline double size_of_number(double x) { return std::abs(x); }
template <class R>
double size_of_number(const std::complex<R>& x) {
  return std::hypot(static_cast<double>(x.real()), static_cast<double>(x.imag()));
}

inline float real_part(float x) { return x; }
inline double real_part(double x) { return x; }
template <class R>
R real_part(const std::complex<R>& x) {
  return x.real();
}
inline double imaginary_part(double) { return 0; }
template <class R>
R imaginary_part(const std::complex<R>& x) {
  return x.imag();
}

inline bool is_finite(double x) { return std::isfinite(x); }
template <class R>
bool is_finite(const std::complex<R>& x) {
  return std::isfinite(x.real()) && std::isfinite(x.imag());
}

// x · 2^e.
inline float scaled(float x, int e) { return std::ldexp(x, e); }
inline double scaled(double x, int e) { return std::ldexp(x, e); }
template <class R>
std::complex<R> scaled(const std::complex<R>& x, int e) {
  return {std::ldexp(x.real(), e), std::ldexp(x.imag(), e)};
}

// The exponent of the larger component. x ≠ 0.
inline int exponent_of(double x) { return std::ilogb(x); }
template <class R>
int exponent_of(const std::complex<R>& x) {
  return std::ilogb(std::max(std::abs(x.real()), std::abs(x.imag())));
}

template <class S>
bool same_bits(const S& a, const S& b) {
  if constexpr (is_complex<S>)
    return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
  else
    return abft::word_of(a) == abft::word_of(b);
}

// Adds the components of `count` numbers to a hash.
template <class Hash, class S>
void add_numbers(Hash& to, const S* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count * k_reals<S>; ++i) to.add(reals(x)[i]);
}

// The residual of the equation by which H = I − τ v vᴴ is unitary, |τ|²‖v‖² = 2 Re τ, over Re τ; with `squares` = ‖v‖². 1 ≤ Re τ ≤ 2, or
// τ = 0, which belongs to v = e₁.
inline double reflector_residual(double tau, double squares) { return tau == 0 ? squares - 1 : tau * squares - 2; }
inline double reflector_residual(const std::complex<double>& tau, double squares) {
  return tau == 0.0 ? squares - 1 : std::norm(tau) / tau.real() * squares - 2;
}

}  // namespace ballast::qr
