// Panels of the CPU backend: recursive, and TSQR for tall ones.
// Layer: backend (cpu).
#pragma once

#include <algorithm>

#include "core/blas.hpp"
#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr::cpu {

// Rows of one product XᵀY: longer ones are cut into runs, for the roundings of equal terms in a long chain all go one way. The BLAS cuts
// products into runs of about 256 rows. 128 where the BLAS adds up a short product in several chains at a time, as OpenBLAS's kernels for
// AVX-512 do; 32 where it makes one chain, as those for AVX2 and SSE do, with which runs of 64 rows give constant columns more than twice
// LAPACK's error. Which it is, is measured once.
template <class S>
index product_rows();

// W ← W + Xᵀ Y (X m × a, Y m × b), in runs of rows that are added up one after the other.
template <class S>
void add_product(index m, index a, index b, const S* X, index ldx, const S* Y, index ldy, S* W, index ldw) {
  const index run = product_rows<S>();
  for (index top = 0; top < m; top += run)
    core::gemm('T', 'N', a, b, std::min(run, m - top), S(1), X + top, ldx, Y + top, ldy, S(1), W, ldw);
}

// Recursive Householder QR of A (m × w, m ≥ w) on the calling thread; T (leading dimension ldt) is written on and above its diagonal.
// `work`: w² elements. Source: E. Elmroth, F. Gustavson, 2000.
template <class S>
void recursive_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, S* work);

// Whether wide_tall_panel pays for this shape. `alone`: nothing else keeps the threads busy meanwhile, so that smaller pieces pay, too; the
// functions below cut it into such pieces then. Pieces depend on the shape and on this alone.
template <class S>
bool is_tall(index m, index w, bool alone);

// The same result (to rounding) by a tree of small factorizations, whose orthogonal factor is turned back into reflectors. Finite A only.
// Source: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, 2012 (TSQR); G. Ballard et al., Reconstructing Householder vectors from TSQR, 2014.
template <class S>
void tall_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool alone);

// The same for wider panels: trees of a few columns each, joined as recursive_panel joins its halves. T has leading dimension ldt.
template <class S>
void wide_tall_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, int threads, bool alone);

// V, tau and T (w × w, zero below the diagonal) of orthonormal columns. `top` holds the first w rows of Q on entry; on exit the unit lower
// triangular V1 below its diagonal, and U on and above it, so that the rows of V below are Q₂ U⁻¹. sign_j = ±1: Q diag(sign) is what the
// reflectors make, so that R must be multiplied by diag(sign) from the left.
template <class S>
void reconstruct(index w, S* top, index ld, S* T, S* sign);

}  // namespace ballast::qr::cpu
