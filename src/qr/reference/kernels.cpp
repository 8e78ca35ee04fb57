// The reference backend of QR: plain loops that can be checked by hand. Serial; no BLAS.
// Layer: backend (reference). Source: G. Golub, C. Van Loan, Matrix Computations, §5.1–5.2; LAPACK's storage conventions.
#include <algorithm>

#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr {

namespace {

// Returns v_j(i) of a block reflector.
template <class S>
S element(const block_reflector<S>& H, index i, index j) {
  return i < H.width ? H.V1[i + j * H.width] : H.V2[(i - H.width) + j * H.ldv];
}

template <class S>
class plain_kernels final : public kernels<S> {
  using wide = wide_of<S>;

 public:
  void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int, bool, bool) const override {
    const auto a = [&](index i, index j) -> S& { return A[i + j * lda]; };
    for (index j = 0; j < w; ++j) {
      tau[j] = make_reflector(a(j, j), m - j - 1, &a(j, j) + 1);
      for (index c = j + 1; c < w; ++c) {
        wide sum = a(j, c);
        for (index i = j + 1; i < m; ++i) sum += conjugate(wide(a(i, j))) * wide(a(i, c));
        sum *= conjugate(wide(tau[j]));
        a(j, c) = static_cast<S>(wide(a(j, c)) - sum);
        for (index i = j + 1; i < m; ++i) a(i, c) = static_cast<S>(wide(a(i, c)) - wide(a(i, j)) * sum);
      }
    }
    const auto v = [&](index i, index j) -> wide { return i < j ? wide(0) : i == j ? wide(1) : wide(a(i, j)); };
    form_t(m, w, v, tau, T);
  }

  void triangular_factor(const block_reflector<S>& H, const S* tau, S* T) const override {
    form_t(
        H.rows, H.width, [&](index i, index j) -> wide { return element(H, i, j); }, tau, T);
  }

  void product(const block_reflector<S>& H, index n, const S* C, index ldc, S* W) const override {
    for (index c = 0; c < n; ++c) {
      for (index j = 0; j < H.width; ++j) {
        wide sum = 0;
        for (index i = j; i < H.rows; ++i) sum += conjugate(wide(element(H, i, j))) * wide(C[i + c * ldc]);
        W[j + c * H.width] = static_cast<S>(sum);
      }
    }
  }

  void triangular_product(bool transposed, index w, index n, const S* T, S* W) const override {
    for (index c = 0; c < n; ++c) {
      S* const column = W + c * w;
      // Computed in place: T is upper triangular, so that row j of T W needs rows ≥ j, and row j of Tᴴ W rows ≤ j.
      for (index step = 0; step < w; ++step) {
        const index j = transposed ? w - 1 - step : step;
        wide sum = 0;
        for (index l = transposed ? 0 : j; l < (transposed ? j + 1 : w); ++l)
          sum += (transposed ? conjugate(wide(T[l + j * w])) : wide(T[j + l * w])) * wide(column[l]);
        column[j] = static_cast<S>(sum);
      }
    }
  }

  void update(const block_reflector<S>& H, bool transposed, index n, S* W, S* C, index ldc) const override {
    const index w = H.width;
    triangular_product(transposed, w, n, H.T, W);
    for (index c = 0; c < n; ++c) {
      const S* const column = W + c * w;
      for (index i = 0; i < H.rows; ++i) {
        wide sum = 0;
        for (index j = 0; j < std::min(w, i + 1); ++j) sum += wide(element(H, i, j)) * wide(column[j]);
        C[i + c * ldc] = static_cast<S>(wide(C[i + c * ldc]) - sum);
      }
    }
  }

  void solve(bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) const override {
    for (index c = 0; c < k; ++c) {
      for (index step = 0; step < n; ++step) {
        const index i = transposed ? step : n - 1 - step;
        wide sum = B[i + c * ldb];
        for (index l = transposed ? 0 : i + 1; l < (transposed ? i : n); ++l)
          sum -= (transposed ? conjugate(wide(U[l + i * ldu])) : wide(U[i + l * ldu])) * wide(B[l + c * ldb]);
        const wide diagonal = U[i + i * ldu];
        B[i + c * ldb] = static_cast<S>(sum / (transposed ? conjugate(diagonal) : diagonal));
      }
    }
  }

  void subtract_product(index m, index n, index k, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        wide sum = C[i + j * ldc];
        for (index l = 0; l < k; ++l) sum -= wide(A[i + l * lda]) * wide(B[l + j * ldb]);
        C[i + j * ldc] = static_cast<S>(sum);
      }
    }
  }

  void cross_product(index m, index p, index q, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    for (index j = 0; j < q; ++j) {
      for (index i = 0; i < p; ++i) {
        wide sum = 0;
        for (index l = 0; l < m; ++l) sum += conjugate(wide(A[l + i * lda])) * wide(B[l + j * ldb]);
        C[i + j * ldc] = static_cast<S>(sum);
      }
    }
  }

  void subtract(index m, index w, const S* X, index ldx, int count, const wide* z, index ldz, wide* y, index ldy) const override {
    subtract_any(m, w, X, ldx, count, z, ldz, y, ldy);
  }

  void subtract_weighted(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, wide* y,
                         index ldy) const override {
    subtract_any(m, w, X, ldx, count, z, ldz, y, ldy);
  }

  void dot(index m, index w, const S* X, index ldx, int count, const wide* y, index ldy, wide* z, index ldz) const override {
    for (int q = 0; q < count; ++q) {
      for (index j = 0; j < w; ++j) {
        wide sum = 0;
        for (index i = 0; i < m; ++i) sum += conjugate(wide(X[i + j * ldx])) * y[i + q * ldy];
        z[j + q * ldz] += sum;
      }
    }
  }

  void squares(index m, index w, const S* X, index ldx, double* z) const override {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < m; ++i) z[j] += square_of(X[i + j * ldx]);
    }
  }

  void moments(index m, index w, const S* X, index ldx, const double* y, double* z, index ldz) const override {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < k_reals<S> * m; ++i) {
        const double x = static_cast<double>(reals(X + j * ldx)[i]);
        z[j] += x;
        z[j + ldz] += x * y[i];
        z[j + 2 * ldz] += x * y[i] * y[i];
        z[j + 3 * ldz] += x * x;
      }
    }
  }

 private:
  template <class Weight>
  static void subtract_any(index m, index w, const S* X, index ldx, int count, const Weight* z, index ldz, wide* y, index ldy) {
    for (int q = 0; q < count; ++q) {
      for (index j = 0; j < w; ++j) {
        for (index i = 0; i < m; ++i) y[i + q * ldy] -= wide(X[i + j * ldx]) * z[j + q * ldz];
      }
    }
  }

  // Computes column j of T: −τ_j T (Vᴴ v_j) above the diagonal, τ_j on it.
  template <class Element>
  static void form_t(index m, index w, Element&& v, const S* tau, S* T) {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) T[i + j * w] = 0;
      T[j + j * w] = tau[j];
      for (index i = 0; i < j; ++i) {
        wide sum = 0;
        for (index r = j; r < m; ++r) sum += conjugate(v(r, i)) * v(r, j);
        T[i + j * w] = static_cast<S>(-wide(tau[j]) * sum);
      }
      for (index i = 0; i < j; ++i) {
        wide sum = 0;
        for (index l = i; l < j; ++l) sum += wide(T[i + l * w]) * wide(T[l + j * w]);
        T[i + j * w] = static_cast<S>(sum);
      }
    }
  }
};

}  // namespace

template <class S>
const kernels<S>& reference_kernels() {
  static const plain_kernels<S> all;
  return all;
}

template const kernels<float>& reference_kernels<float>();
template const kernels<double>& reference_kernels<double>();
template const kernels<std::complex<float>>& reference_kernels<std::complex<float>>();
template const kernels<std::complex<double>>& reference_kernels<std::complex<double>>();

}  // namespace ballast::qr
