// Recovery by QR update: Givens rotations computed and applied in blocks, or one after the other.
// Layer: backend "cuda" of QR, host side of recovery.cuh.
// Source: P. Du et al., 2011, §5.3 (blocked, fused generation and application, coalesced access through shared memory).
#pragma once

#include <cstdint>

#include "qr/cuda/engine/session.hpp"
#include "qr/cuda/kernels/recovery_kernels.hpp"

namespace ballast::qr::cuda {

// Restores triangular form of R (upper triangle, subdiagonal in Y) from the top down by rotations 0 … count − 1, which c and s keep.
// `plain`: one launch to compute a rotation and one to apply it, with threads that read across columns. n: columns of R.
template <class S>
void reduce_hessenberg(session<S>& on, S* R, std::int64_t ld, std::int64_t count, std::int64_t n, S* Y, S* c, S* s, bool plain);

}  // namespace ballast::qr::cuda
