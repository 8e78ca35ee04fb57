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

// QR: residual of one row of a block [X, Xd, X(d∘w)] that orthogonal transformations of vectors of m elements have passed over; of a
// panel's and the final certificate likewise. Each transformation is inner products of length m, whose rounding is √m·u in the
// probabilistic bound (Higham, Mary, 2019) and turns to that of its result's size; rotations spread it evenly over the rows, so that random
// data stay near u·norm, and constant data, whose roundings all go one way, come near √m·u·norm. `norm`: ‖X diag(d)‖_F + ‖Xd‖₂. Factors:
// docs/design/qr.md.
template <class T>
double qr_row_threshold(double norm, std::int64_t m) {
  return (16 + 8 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * norm;
}

// QR: |τ‖v‖² − 2|. Both factors carry a few roundings; reconstructed reflectors inherit the loss of orthogonality of their columns.
template <class T>
double qr_reflector_threshold(std::int64_t m) {
  return 8 * (16 + 8 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T>;
}

// QR: one element of TᵀVᵀV T x − (T + Tᵀ)x, with `size` = |T|ᵀ·(|VᵀVTx| + ‖VTx‖) + (|T| + |T|ᵀ)|x| for that element: T carries the
// roundings of VᵀV and of a product with |T|.
template <class T>
double qr_orthogonality_threshold(double size, std::int64_t m) {
  return (16 + 8 * std::sqrt(static_cast<double>(m))) * unit_roundoff<T> * size;
}

// Triangular solve: one element of U x − c with `size` = (|U||x| + |c|) for that element: the computed x solves a system whose elements
// are off by n·u at most (Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5).
template <class T>
double qr_solve_threshold(double size, std::int64_t n) {
  return 4 * (static_cast<double>(n) + 8) * unit_roundoff<T> * size;
}

}  // namespace ballast::abft
