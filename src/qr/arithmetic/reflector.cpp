// Computes one Householder reflector.
// Layer: algorithm. Source: LAPACK's conventions for xLARFG.
#include <algorithm>
#include <cmath>

#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr {

template <class S>
S make_reflector(S& alpha, index n, S* x) {
  // Computed in double with a common scale: for float nothing can overflow; for double the scale prevents overflow.
  double largest = 0;
  bool nan = false;
  for (index i = 0; i < n; ++i) {
    const double size = std::abs(static_cast<double>(x[i]));
    nan |= size != size;
    if (size > largest) largest = size;
  }
  if (largest == 0 && !nan) return 0;
  double head = static_cast<double>(alpha);
  const double top = std::max(largest, std::abs(head));
  // Powers of two are exact. Outside this range squares of doubles would lose accuracy. The scale is split into two factors, since the
  // reciprocal of a subnormal number is not representable.
  const int e = top > 0 && std::isfinite(top) && (top > 0x1p480 || top < 0x1p-480) ? -std::ilogb(top) : 0;
  const double scale = std::ldexp(1.0, e / 2), rest = std::ldexp(1.0, e - e / 2);
  // The rounding errors of the sum are accumulated, too: the roundings of equal terms all have the same sign, and would cost Q its
  // orthogonality.
  double squares = 0, lost = 0;
  for (index i = 0; i < n; ++i) {
    const double each = static_cast<double>(x[i]) * scale * rest;
    const double term = each * each, sum = squares + term, had = sum - term;
    lost += (squares - had) + (term - (sum - had));
    squares = sum;
  }
  // Inf and NaN have no such errors.
  if (std::isfinite(lost)) squares += lost;
  head = head * scale * rest;
  const double beta = -std::copysign(std::sqrt(head * head + squares), head);
  const double divisor = head - beta;
  for (index i = 0; i < n; ++i) x[i] = static_cast<S>(static_cast<double>(x[i]) * scale * rest / divisor);
  alpha = static_cast<S>(beta / scale / rest);
  return static_cast<S>((beta - head) / beta);
}

template float make_reflector<float>(float&, index, float*);
template double make_reflector<double>(double&, index, double*);

}  // namespace ballast::qr
