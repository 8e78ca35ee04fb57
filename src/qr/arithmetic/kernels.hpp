// The arithmetic of the host backend: the panel, the block reflector, and sums in double for the checks. reference/ and cpu/ implement it;
// host/ calls it. Matrices are column-major; `ld…` are leading dimensions.
// Layer: algorithm.
// Source: R. Schreiber, C. Van Loan, A storage-efficient WY representation, 1989 (H = I − V T Vᴴ).
#pragma once

#include <cstdint>

#include "qr/arithmetic/scalar.hpp"

namespace ballast::qr {

using index = std::int64_t;

// H = H_1 … H_w = I − V T Vᴴ of one panel. V is `rows` × `width`. V1, its first `width` rows, is stored separately with its ones and zeros
// written out, since the panel's own storage holds R there. V2 is the rest of V.
template <class S>
struct block_reflector {
  index rows = 0;
  index width = 0;
  const S* V1 = nullptr;  // width × width, unit lower triangular
  const S* V2 = nullptr;  // (rows − width) × width
  index ldv = 0;
  const S* T = nullptr;  // width × width, upper triangular
};

// S is float, double, std::complex<float> or std::complex<double>; for real numbers ᴴ is ᵀ. Stateless; safe to use from several threads at
// once.
template <class S>
class kernels {
 public:
  virtual ~kernels() = default;

  // Computes the Householder QR of the panel A (m × w, m ≥ w) in LAPACK's storage, and the factor T (w × w, zero below the diagonal) of its
  // block reflector. `finite` promises that A holds no Inf and no NaN; without that promise no column may depend on the columns to its
  // right. `alone`: the threads have no other work meanwhile. The result has the same bits for any number of threads.
  virtual void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool finite, bool alone) const = 0;

  // Computes T (w × w, zero below the diagonal) of the reflectors in H.V1, H.V2 with the given tau; H.T is not read.
  virtual void triangular_factor(const block_reflector<S>& H, const S* tau, S* T) const = 0;

  // W ← Vᴴ C. C is rows × n, W is width × n with leading dimension width.
  virtual void product(const block_reflector<S>& H, index n, const S* C, index ldc, S* W) const = 0;

  // W ← T W, or Tᴴ W if transposed; then C ← C − V W. After product() the result is C ← H C, or Hᴴ C.
  virtual void update(const block_reflector<S>& H, bool transposed, index n, S* W, S* C, index ldc) const = 0;

  // W ← T W, or Tᴴ W if transposed. T is w × w upper triangular with leading dimension w, W is w × n with leading dimension w.
  virtual void triangular_product(bool transposed, index w, index n, const S* T, S* W) const = 0;

  // B ← U⁻¹ B or U⁻ᴴ B. U is n × n upper triangular, B is n × k.
  virtual void solve(bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) const = 0;

  // C ← C − A B. A is m × k, B is k × n.
  virtual void subtract_product(index m, index n, index k, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const = 0;

  // y_q ← y_q − X z_q for q = 0 … count − 1: X is m × w, z_q = z + q·ldz, y_q = y + q·ldy. Computed in double. count ≤ 4.
  virtual void subtract(index m, index w, const S* X, index ldx, int count, const wide_of<S>* z, index ldz, wide_of<S>* y,
                        index ldy) const = 0;

  // The same for real z.
  virtual void subtract_weighted(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, wide_of<S>* y,
                                 index ldy) const = 0;

  // z_q ← z_q + Xᴴ y_q. Computed in double.
  virtual void dot(index m, index w, const S* X, index ldx, int count, const wide_of<S>* y, index ldy, wide_of<S>* z, index ldz) const = 0;

  // z_j ← z_j + Σ_i |x(i, j)|², computed in double.
  virtual void squares(index m, index w, const S* X, index ldx, double* z) const = 0;

  // z_jq ← z_jq + Σ_i x(i, j) y_i^q for q = 0, 1, 2, and z_j3 ← z_j3 + Σ_i x(i, j)², with z_jq = z[j + q·ldz]. The x are the real
  // components of X's numbers, each with a y of its own: k_reals<S> m of them. Computed in double, in one pass.
  virtual void moments(index m, index w, const S* X, index ldx, const double* y, double* z, index ldz) const = 0;

  // C ← Aᴴ B. A is m × p, B is m × q.
  virtual void cross_product(index m, index p, index q, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const = 0;
};

template <class S>
const kernels<S>& reference_kernels();
template <class S>
const kernels<S>& cpu_kernels();

// Computes β, τ and v of H = I − τ [1; v] [1; v]ᴴ with Hᴴ [α; x] = [β; 0], by LAPACK's conventions: β is real; τ = 0 (H = I) for x = 0 and
// real α; otherwise β has the opposite sign of Re α, 1 ≤ Re τ ≤ 2 and |τ − 1| ≤ 1. `x` (n elements) is overwritten by v. Norms are safe
// against overflow and underflow.
template <class S>
S make_reflector(S& alpha, index n, S* x);

}  // namespace ballast::qr
