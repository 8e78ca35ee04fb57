// The CPU backend of QR: BLAS for the products, recursive and TSQR panels, Highway for the sums of the checks.
// Layer: backend (cpu). BLAS runs on the calling thread; the driver distributes blocks over threads.
#include <algorithm>
#include <cmath>

#include "core/aligned_buffer.hpp"
#include "core/blas.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/cpu/panel.hpp"
#include "qr/cpu/vector.hpp"

namespace ballast::qr {

namespace {

template <class S>
class blas_kernels final : public kernels<S> {
 public:
  void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool finite, bool alone) const override {
    if (finite && cpu::suits_tsqr<S>(m, w, alone)) {
      cpu::wide_tsqr_panel(m, w, A, lda, tau, T, w, threads, alone);
    } else {
      core::aligned_buffer<S> work(w * w);
      cpu::recursive_panel(m, w, A, lda, tau, T, w, work.data());
    }
    for (index j = 0; j < w; ++j) std::fill(T + j + 1 + j * w, T + w + j * w, S(0));
  }

  void triangular_factor(const block_reflector<S>& H, const S* tau, S* T) const override {
    const index w = H.width;
    core::aligned_buffer<S> G(w * w);  // Vᴴ V
    core::gemm('C', 'N', w, w, w, S(1), H.V1, w, H.V1, w, S(0), G.data(), w);
    cpu::add_product(H.rows - w, w, w, H.V2, H.ldv, H.V2, H.ldv, G.data(), w);
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) T[i + j * w] = i == j ? tau[j] : S(0);
      for (index i = 0; i < j; ++i) {
        S sum = 0;
        for (index l = i; l < j; ++l) sum += times(T[i + l * w], G[l + j * w]);
        T[i + j * w] = times(-tau[j], sum);
      }
    }
  }

  void product(const block_reflector<S>& H, index n, const S* C, index ldc, S* W) const override {
    core::gemm('C', 'N', H.width, n, H.width, S(1), H.V1, H.width, C, ldc, S(0), W, H.width);
    cpu::add_product(H.rows - H.width, H.width, n, H.V2, H.ldv, C + H.width, ldc, W, H.width);
  }

  void triangular_product(bool transposed, index w, index n, const S* T, S* W) const override {
    core::trmm('L', 'U', transposed ? 'C' : 'N', 'N', w, n, S(1), T, w, W, w);
  }

  void update(const block_reflector<S>& H, bool transposed, index n, S* W, S* C, index ldc) const override {
    triangular_product(transposed, H.width, n, H.T, W);
    core::gemm('N', 'N', H.width, n, H.width, S(-1), H.V1, H.width, W, H.width, S(1), C, ldc);
    if (H.rows > H.width) core::gemm('N', 'N', H.rows - H.width, n, H.width, S(-1), H.V2, H.ldv, W, H.width, S(1), C + H.width, ldc);
  }

  void solve(bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) const override {
    // BLAS multiplies by reciprocals of the diagonal; the reciprocal of a number below this limit is Inf.
    constexpr double smallest = sizeof(real_of<S>) == 4 ? 0x1p-120 : 0x1p-1000;
    for (index j = 0; j < n; ++j) {
      if (size_of_number(U[j + j * ldu]) < smallest) return reference_kernels<S>().solve(transposed, n, k, U, ldu, B, ldb);
    }
    core::trsm('L', 'U', transposed ? 'C' : 'N', 'N', n, k, S(1), U, ldu, B, ldb);
  }

  void subtract_product(index m, index n, index k, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    if (m > 0 && n > 0) core::gemm('N', 'N', m, n, k, S(-1), A, lda, B, ldb, S(1), C, ldc);
  }

  void cross_product(index m, index p, index q, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    core::gemm('C', 'N', p, q, m, S(1), A, lda, B, ldb, S(0), C, ldc);
  }

  void subtract(index m, index w, const S* X, index ldx, int count, const wide_of<S>* z, index ldz, wide_of<S>* y,
                index ldy) const override {
    vector::subtract(m, w, X, ldx, count, z, ldz, y, ldy);
  }

  void subtract_weighted(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, wide_of<S>* y,
                         index ldy) const override {
    constexpr index each = k_reals<S>;
    vector::subtract(each * m, w, reals(X), each * ldx, count, z, ldz, reals(y), each * ldy);
  }

  void dot(index m, index w, const S* X, index ldx, int count, const wide_of<S>* y, index ldy, wide_of<S>* z, index ldz) const override {
    vector::dot(m, w, X, ldx, count, y, ldy, z, ldz);
  }

  void squares(index m, index w, const S* X, index ldx, double* z) const override {
    vector::squares(k_reals<S> * m, w, reals(X), k_reals<S> * ldx, z);
  }

  void moments(index m, index w, const S* X, index ldx, const double* y, double* z, index ldz) const override {
    vector::moments(k_reals<S> * m, w, reals(X), k_reals<S> * ldx, y, z, ldz);
  }
};

}  // namespace

template <class S>
const kernels<S>& cpu_kernels() {
  static const blas_kernels<S> all;
  return all;
}

template const kernels<float>& cpu_kernels<float>();
template const kernels<double>& cpu_kernels<double>();
template const kernels<std::complex<float>>& cpu_kernels<std::complex<float>>();
template const kernels<std::complex<double>>& cpu_kernels<std::complex<double>>();

}  // namespace ballast::qr
