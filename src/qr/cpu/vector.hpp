// The loops of the CPU backend that no BLAS routine covers: sums in double over float or double data, and the innermost panel.
// Layer: backend (cpu). Implemented with Highway, dispatched at run time.
#pragma once

#include <cstdint>

#include "qr/arithmetic/scalar.hpp"

namespace ballast::qr::vector {

// Columns of the innermost panel: their sums stay in registers.
template <class S>
inline constexpr int k_base = is_complex<S> ? 4 : 8;

// y_q ← y_q − X z_q, z_q ← z_q + Xᴴ y_q in double: see kernels<S>::subtract and dot. count ≤ 4.
template <class S>
void subtract(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* z, std::int64_t ldz, wide_of<S>* y,
              std::int64_t ldy);
template <class S>
void dot(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* y, std::int64_t ldy, wide_of<S>* z,
         std::int64_t ldz);

// z_j ← z_j + Σ_i x(i, j)² in double. S is real, here and for moments.
template <class S>
void squares(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, double* z);

// See kernels<S>::moments.
template <class S>
void moments(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, const double* y, double* z, std::int64_t ldz);

// g_l = Σ_i conj(a(i, 0)) a(i, l) for l = 0 … columns − 1, columns ≤ k_base<S>.
template <class S>
void first_dots(std::int64_t m, int columns, const S* a, std::int64_t lda, S* g);

// Computes one step of the innermost panel in one pass over it: a(:, 0) ← scale · a(:, 0), then a(:, l) ← a(:, l) − a(:, 0) w_{l−1} for
// l = 1 … columns − 1. Computes the next step's g_l = Σ_{i ≥ 1} conj(a(i, 1)) a(i, l) for l = 1 … columns − 1 into g[0] ….
template <class S>
void panel_step(std::int64_t m, int columns, S* a, std::int64_t lda, S scale, const S* w, S* g);

}  // namespace ballast::qr::vector
