// The types of numbers of the kernels for batches.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include "core/macros.hpp"
#include "qr/arithmetic/number.hpp"

namespace ballast::qr::cuda {

namespace numbers {

// Has the layout of std::complex<R>, and the alignment of one load. Unlike cuda/block/complex.cuh it is for the host, too, and a real
// number converts to it, so that a template over the number reads as for real ones.
template <class R>
struct alignas(2 * sizeof(R)) complex_number {
  R re, im;

  complex_number() = default;
  BALLAST_HD constexpr complex_number(R real, R imaginary = 0) : re(real), im(imaginary) {}

  friend BALLAST_HD constexpr complex_number operator+(complex_number a, complex_number b) { return {a.re + b.re, a.im + b.im}; }
  friend BALLAST_HD constexpr complex_number operator-(complex_number a, complex_number b) { return {a.re - b.re, a.im - b.im}; }
  friend BALLAST_HD constexpr complex_number operator*(complex_number a, complex_number b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  friend BALLAST_HD constexpr complex_number operator*(R a, complex_number b) { return {a * b.re, a * b.im}; }
  friend BALLAST_HD constexpr bool operator==(complex_number a, complex_number b) { return a.re == b.re && a.im == b.im; }
  BALLAST_HD constexpr complex_number& operator+=(complex_number b) { return *this = *this + b; }
  BALLAST_HD constexpr complex_number& operator-=(complex_number b) { return *this = *this - b; }
};

}  // namespace numbers

using numbers::complex_number;

}  // namespace ballast::qr::cuda

namespace ballast::qr {

template <class R>
struct scalar<cuda::complex_number<R>> {
  using real = R;
  using wide = cuda::complex_number<double>;
  static constexpr std::int64_t reals = 2;
};

}  // namespace ballast::qr
