// The check of a triangular solve.
// Layer: backend (host).
// Source: docs/design/qr.md; N. Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "abft/threshold.hpp"
#include "qr/contract.hpp"
#include "qr/host/largest.hpp"

namespace ballast::qr::host {

// The residual of U x = c, or Uᵀ x = c, against what rounding explains. Scaled by powers of two where doubles would overflow.
template <class S>
solve_sums residual_of(bool transposed, index n, const S* U, index ldu, const S* x, const S* c) {
  largest u_size, x_size;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i <= j; ++i) u_size.add(static_cast<double>(U[i + j * ldu]));
    x_size.add(static_cast<double>(x[j]));
    x_size.add(static_cast<double>(c[j]));
  }
  solve_sums made;
  made.finite = std::isfinite(u_size.value()) && std::isfinite(x_size.value());
  double u_scale = 1, x_scale = 1;
  if (made.finite && u_size.value() > 0x1p400) u_scale = std::ldexp(1.0, -std::ilogb(u_size.value()));
  if (made.finite && x_size.value() > 0x1p400) x_scale = std::ldexp(1.0, -std::ilogb(x_size.value()));
  constexpr double tiny = std::numeric_limits<S>::denorm_min();
  std::vector<double> residual(static_cast<std::size_t>(n)), size(residual), drowned(residual);
  for (index i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    residual[at] = static_cast<double>(c[i]) * x_scale * u_scale;
    size[at] = std::abs(residual[at]);
  }
  for (index j = 0; j < n; ++j) {
    const double xj = static_cast<double>(x[j]) * x_scale;
    for (index i = transposed ? j : 0; i < (transposed ? n : j + 1); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double u = static_cast<double>(transposed ? U[j + i * ldu] : U[i + j * ldu]) * u_scale;
      const double term = u * xj;
      residual[at] -= term;
      size[at] += std::abs(term);
      // Underflow may take the smallest number from an element of x, and from a reciprocal of the diagonal that the solve multiplies by.
      drowned[at] += std::abs(u) * x_scale * tiny;
      if (i == j) drowned[at] += std::abs(term) * (std::abs(u) / u_scale * tiny);
    }
  }
  // What products lost to underflow, here (in double) and in the solve.
  const double lost = 4 * static_cast<double>(n) *
                      (std::numeric_limits<double>::min() + static_cast<double>(std::numeric_limits<S>::min()) * x_scale * u_scale);
  for (index i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double threshold = abft::qr_solve_threshold<S>(size[at], n) + 4 * static_cast<double>(n) * drowned[at] + lost;
    const double off = std::abs(residual[at]);
    if (!std::isfinite(off) || !std::isfinite(threshold)) {
      made = {std::numeric_limits<double>::quiet_NaN(), threshold, false};  // a later row must not take its place
      break;
    }
    // Quotients, since products would underflow for small numbers.
    if (off / threshold <= made.residual / made.threshold) continue;
    made.residual = off;
    made.threshold = threshold;
    if (made.residual > made.threshold) break;
  }
  return made;
}

}  // namespace ballast::qr::host
