// Roots of unity as compile-time constants, and the splits of radices.
// Layer: fft/cuda; device and host.
// Cosines and sines come from their power series in double-double arithmetic, so they are correctly rounded except for rare ties. Source of
// the error-free sum and product: T. Dekker, A floating-point technique for extending the available precision, 1971.
#pragma once

#include "core/macros.hpp"

namespace ballast::fft::cuda {

// The unevaluated sum of two doubles, |low| ≤ half a unit in the last place of high.
struct twofold {
  double high = 0;
  double low = 0;
};

BALLAST_HD constexpr twofold sum(const twofold& x, const twofold& y) {
  const double s = x.high + y.high;
  const double t = s - x.high;
  const double lost = (x.high - (s - t)) + (y.high - t) + x.low + y.low;
  const double high = s + lost;
  return {high, lost - (high - s)};
}

BALLAST_HD constexpr twofold product(const twofold& x, const twofold& y) {
  constexpr double splitter = 134217729;  // 2^27 + 1
  const double xs = splitter * x.high;
  const double ys = splitter * y.high;
  const double xh = xs - (xs - x.high);
  const double yh = ys - (ys - y.high);
  const double xl = x.high - xh;
  const double yl = y.high - yh;
  const double p = x.high * y.high;
  const double lost = ((xh * yh - p) + xh * yl + xl * yh) + xl * yl + (x.high * y.low + x.low * y.high);
  const double high = p + lost;
  return {high, lost - (high - p)};
}

// Returns x divided by a small integer.
BALLAST_HD constexpr twofold quotient(const twofold& x, double d) {
  const double q = x.high / d;
  const twofold back = product({q, 0}, {d, 0});
  const double rest = ((x.high - back.high) - back.low + x.low) / d;
  return sum({q, 0}, {rest, 0});
}

struct unit_root {
  double re = 1;
  double im = 0;
};

// Returns e^{−2πi k/n}.
BALLAST_HD constexpr unit_root root_of_unity(int k, int n) {
  k %= n;
  // The angle is an octant plus a fraction a / n of an eighth of a turn, measured from the end of the octant that is on an axis.
  const int eighths = 8 * k;
  int octant = eighths / n;
  int a = eighths % n;
  const bool odd = octant % 2 != 0;
  if (odd) a = n - a;
  // π/4 with 107 bits.
  const twofold angle = product(quotient({static_cast<double>(a), 0}, n), {0.78539816339744828, 3.061616997868383e-17});
  const twofold square = product(angle, angle);
  twofold cosine{1, 0};
  twofold sine = angle;
  twofold c{1, 0};
  twofold s = angle;
  for (int i = 1; i <= 13; ++i) {
    c = quotient(product(c, square), -(2.0 * i - 1) * (2.0 * i));
    s = quotient(product(s, square), -(2.0 * i) * (2.0 * i + 1));
    cosine = sum(cosine, c);
    sine = sum(sine, s);
  }
  double re = cosine.high;
  double im = sine.high;
  if (odd) {
    const double swapped = re;
    re = im;
    im = swapped;
  }
  for (int quarter = (odd ? octant + 1 : octant) / 2 - (odd ? 1 : 0); quarter > 0; --quarter) {
    const double swapped = re;
    re = -im;
    im = swapped;
  }
  return {re, -im};
}

BALLAST_HD constexpr int smallest_factor(int n) {
  for (int f = 2; f * f <= n; ++f) {
    if (n % f == 0) return f;
  }
  return n;
}

// Returns the inner factor of a composite radix: 8 = 2·4, 12 = 4·3, 16 = 4·4, 32 = 4·8, otherwise the smallest factor.
BALLAST_HD constexpr int inner_radix(int radix) { return radix == 12 || radix == 16 || radix == 32 ? 4 : smallest_factor(radix); }

BALLAST_HD constexpr bool coprime(int m, int n) {
  while (n != 0) {
    const int rest = m % n;
    m = n;
    n = rest;
  }
  return m == 1;
}

// Returns the k < m·n with k mod m = p and k mod n = q, for coprime m and n.
BALLAST_HD constexpr int index_of_remainders(int p, int m, int q, int n) {
  int k = p;
  while (k % n != q) k += m;
  return k;
}

}  // namespace ballast::fft::cuda
