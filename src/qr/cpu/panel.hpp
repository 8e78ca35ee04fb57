// Panel factorizations of the CPU backend: recursive, and TSQR for tall panels.
// Layer: backend (cpu).
#pragma once

#include <algorithm>

#include "core/blas.hpp"
#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr::cpu {

// Rows of one run of a product XᴴY. Longer products are cut into runs, since the roundings of equal terms in a long chain of additions all
// have the same sign. BLAS itself cuts products into runs of about 256 rows. The run has 128 rows if BLAS adds a short product in several
// chains at a time, as OpenBLAS's kernels for AVX-512 do, and 32 rows if it uses one chain, as the kernels for AVX2 and SSE do; with one
// chain, runs of 64 rows give constant columns more than twice LAPACK's error. The kind of BLAS is measured once.
template <class S>
index product_rows();

// W ← W + Xᴴ Y (X m × a, Y m × b), in runs of rows that are added one after the other.
template <class S>
void add_product(index m, index a, index b, const S* X, index ldx, const S* Y, index ldy, S* W, index ldw) {
  const index run = product_rows<S>();
  for (index top = 0; top < m; top += run)
    core::gemm('C', 'N', a, b, std::min(run, m - top), S(1), X + top, ldx, Y + top, ldy, S(1), W, ldw);
}

// Recursive Householder QR of A (m × w, m ≥ w) on the calling thread. T (leading dimension ldt) is written on and above its diagonal.
// `work`: w² elements. Source: E. Elmroth, F. Gustavson, 2000.
template <class S>
void recursive_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, S* work);

// Returns whether wide_tsqr_panel is faster for this shape. `alone`: the threads have no other work meanwhile, so that smaller tiles are
// faster, too; the functions below then use such tiles. Tiles depend only on the shape and on `alone`.
template <class S>
bool suits_tsqr(index m, index w, bool alone);

// Computes the same result (to rounding) by a tree of small factorizations, and reconstructs reflectors from its orthogonal factor. Finite
// A only. Source: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, 2012 (TSQR); G. Ballard et al., Reconstructing Householder vectors from
// TSQR, 2014.
template <class S>
void tsqr_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool alone);

// The same for wider panels: trees of a few columns each, joined as recursive_panel joins its halves. T has leading dimension ldt.
template <class S>
void wide_tsqr_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, int threads, bool alone);

// Computes V, tau and T (w × w, zero below the diagonal) of orthonormal columns. `top` holds the first w rows of Q on entry. On exit it
// holds the unit lower triangular V1 below its diagonal, and U on and above it, so that the rows of V below are Q₂ U⁻¹. sign_j = ±1: the
// reflectors generate Q diag(sign), so that R must be multiplied by diag(sign) from the left.
template <class S>
void reconstruct(index w, S* top, index ld, S* T, S* sign);

}  // namespace ballast::qr::cpu
