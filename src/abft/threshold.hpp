// Thresholds: the size that rounding alone can give a residual. Each names its derivation; docs/protection.md has the measurements.
// Layer: foundation. Host/device-neutral.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/macros.hpp"

namespace ballast::abft {

// Unit roundoff: half the distance from 1 to the next larger number.
template <class T>
inline constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// QR: residual of one row of a block [X, Xd, X(d∘w)] that orthogonal transformations have passed over, of a panel's and the final certificate
// likewise. Backward error analysis bounds the change of a column by c(m, n)·u times its norm, and rotations spread it evenly, so that one
// row of the difference of a column and a sum of columns is of the size u·‖X diag(d)‖_F whatever the number of transformations; `norm` is
// that norm. The factor is measured: docs/design/qr.md.
template <class T>
double qr_row_threshold(double norm) {
  return 64 * unit_roundoff<T> * norm;
}

// QR: |τ‖v‖² − 2|. Both factors carry a few roundings; reconstructed reflectors inherit the loss of orthogonality of their columns.
template <class T>
double qr_reflector_threshold() {
  return 256 * unit_roundoff<T>;
}

// QR: one element of TᵀVᵀV T x − (T + Tᵀ)x, with `size` = |T|ᵀ·(|VᵀVTx| + ‖VTx‖) + (|T| + |T|ᵀ)|x| for that element: T carries the
// roundings of VᵀV and of a product with |T|.
template <class T>
double qr_orthogonality_threshold(double size, std::int64_t width) {
  return 16 * unit_roundoff<T> * std::sqrt(static_cast<double>(width)) * size;
}

// Triangular solve: one element of U x − c with `size` = (|U||x| + |c|) for that element: the computed x solves a system whose elements
// are off by n·u at most (Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5).
template <class T>
double qr_solve_threshold(double size, std::int64_t n) {
  return 4 * (static_cast<double>(n) + 8) * unit_roundoff<T> * size;
}

}  // namespace ballast::abft
