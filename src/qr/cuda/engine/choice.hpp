// The choice of the pivots on a device.
// Layer: backend "cuda" of QR. docs/design/qr-pivoting.md.
#pragma once

#include <span>

#include "qr/cuda/engine/session.hpp"
#include "qr/host/pivots.hpp"

namespace ballast::qr::cuda {

// Returns whether the device's memory holds what the choice for a matrix of this shape needs.
template <class S>
bool chooses(const session<S>& on, index rows, index columns);

// As host::choose_pivots, by Cholesky with pivoting of AᴴA. A: column-major, in the device's memory. Waits.
template <class S>
void choose_pivots(session<S>& on, const matrix_view<const S>& A, std::span<index> order);

// As host::measure_pivots. R: column-major, in the device's memory. Waits.
template <class S>
pivot_sums measure_pivots(session<S>& on, const matrix_view<const S>& R, index m);

}  // namespace ballast::qr::cuda
