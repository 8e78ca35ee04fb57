// One Householder reflector.
// Layer: algorithm. Source: LAPACK's conventions for xLARFG.
#include <algorithm>
#include <cmath>

#include "qr/kernels.hpp"

namespace ballast::qr {

template <class S>
S make_reflector(S& alpha, index n, S* x) {
  // In double with a common scale: for float nothing can overflow, for double the scale takes care.
  double largest = 0;
  bool nan = false;
  for (index i = 0; i < n; ++i) {
    const double size = std::abs(static_cast<double>(x[i]));
    nan |= size != size;
    if (size > largest) largest = size;
  }
  if (largest == 0 && !nan) return 0;
  double scale = 1;
  double head = static_cast<double>(alpha);
  const double top = std::max(largest, std::abs(head));
  // Powers of two: exact, and outside this range squares of doubles would lose accuracy.
  if (top > 0 && std::isfinite(top) && (top > 0x1p480 || top < 0x1p-480)) scale = std::ldexp(1.0, -std::ilogb(top));
  double squares = 0;
  for (index i = 0; i < n; ++i) {
    const double each = static_cast<double>(x[i]) * scale;
    squares += each * each;
  }
  head *= scale;
  const double beta = -std::copysign(std::sqrt(head * head + squares), head);
  const double divisor = head - beta;
  for (index i = 0; i < n; ++i) x[i] = static_cast<S>(static_cast<double>(x[i]) * scale / divisor);
  alpha = static_cast<S>(beta / scale);
  return static_cast<S>((beta - head) / beta);
}

template float make_reflector<float>(float&, index, float*);
template double make_reflector<double>(double&, index, double*);

}  // namespace ballast::qr
