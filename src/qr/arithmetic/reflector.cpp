// Computes one Householder reflector.
// Layer: algorithm. Source: LAPACK's conventions for xLARFG.
#include <algorithm>
#include <cmath>

#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr {

template <class S>
S make_reflector(S& alpha, index n, S* x) {
  using real = real_of<S>;
  // Computed in double with a common scale: for float nothing can overflow; for double the scale prevents overflow.
  real* const components = reals(x);
  double largest = 0;
  bool nan = false;
  for (index i = 0; i < n * k_reals<S>; ++i) {
    const double size = std::abs(static_cast<double>(components[i]));
    nan |= size != size;
    if (size > largest) largest = size;
  }
  if (largest == 0 && !nan && imaginary_part(alpha) == 0) return 0;
  wide_of<S> head = alpha;
  const double top =
      std::max({largest, std::abs(static_cast<double>(real_part(alpha))), std::abs(static_cast<double>(imaginary_part(alpha)))});
  // Powers of two are exact. Outside this range squares of doubles would lose accuracy. The scale is split into two factors, since the
  // reciprocal of a subnormal number is not representable.
  const int e = top > 0 && std::isfinite(top) && (top > 0x1p480 || top < 0x1p-480) ? -std::ilogb(top) : 0;
  const double scale = std::ldexp(1.0, e / 2), rest = std::ldexp(1.0, e - e / 2);
  // The rounding errors of the sum are accumulated, too: the roundings of equal terms all have the same sign, and would cost Q its
  // orthogonality.
  double squares = 0, lost = 0;
  for (index i = 0; i < n * k_reals<S>; ++i) {
    const double each = static_cast<double>(components[i]) * scale * rest;
    const double term = each * each, sum = squares + term, had = sum - term;
    lost += (squares - had) + (term - (sum - had));
    squares = sum;
  }
  // Inf and NaN have no such errors.
  if (std::isfinite(lost)) squares += lost;
  head = head * scale * rest;
  const double beta = -std::copysign(std::sqrt(square_of(head) + squares), real_part(head));
  const wide_of<S> divisor = head - beta;
  for (index i = 0; i < n; ++i) x[i] = static_cast<S>(static_cast<wide_of<S>>(x[i]) * scale * rest / divisor);
  alpha = static_cast<S>(beta / scale / rest);
  return static_cast<S>((beta - head) / beta);
}

template float make_reflector<float>(float&, index, float*);
template double make_reflector<double>(double&, index, double*);
template std::complex<float> make_reflector<std::complex<float>>(std::complex<float>&, index, std::complex<float>*);
template std::complex<double> make_reflector<std::complex<double>>(std::complex<double>&, index, std::complex<double>*);

}  // namespace ballast::qr
