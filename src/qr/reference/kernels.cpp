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
 public:
  void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int, bool, bool) const override {
    const auto a = [&](index i, index j) -> S& { return A[i + j * lda]; };
    for (index j = 0; j < w; ++j) {
      tau[j] = make_reflector(a(j, j), m - j - 1, &a(j, j) + 1);
      for (index c = j + 1; c < w; ++c) {
        double sum = a(j, c);
        for (index i = j + 1; i < m; ++i) sum += static_cast<double>(a(i, j)) * a(i, c);
        sum *= tau[j];
        a(j, c) = static_cast<S>(a(j, c) - sum);
        for (index i = j + 1; i < m; ++i) a(i, c) = static_cast<S>(a(i, c) - a(i, j) * sum);
      }
    }
    const auto v = [&](index i, index j) -> double { return i < j ? 0 : i == j ? 1 : static_cast<double>(a(i, j)); };
    form_t(m, w, v, tau, T);
  }

  void triangular_factor(const block_reflector<S>& H, const S* tau, S* T) const override {
    form_t(
        H.rows, H.width, [&](index i, index j) -> double { return element(H, i, j); }, tau, T);
  }

  void product(const block_reflector<S>& H, index n, const S* C, index ldc, S* W) const override {
    for (index c = 0; c < n; ++c) {
      for (index j = 0; j < H.width; ++j) {
        double sum = 0;
        for (index i = j; i < H.rows; ++i) sum += static_cast<double>(element(H, i, j)) * C[i + c * ldc];
        W[j + c * H.width] = static_cast<S>(sum);
      }
    }
  }

  void update(const block_reflector<S>& H, bool transposed, index n, S* W, S* C, index ldc) const override {
    const index w = H.width;
    for (index c = 0; c < n; ++c) {
      S* const column = W + c * w;
      // Computed in place: T is upper triangular, so that row j of T W needs rows ≥ j, and row j of Tᵀ W rows ≤ j.
      for (index step = 0; step < w; ++step) {
        const index j = transposed ? w - 1 - step : step;
        double sum = 0;
        for (index l = transposed ? 0 : j; l < (transposed ? j + 1 : w); ++l)
          sum += static_cast<double>(transposed ? H.T[l + j * w] : H.T[j + l * w]) * column[l];
        column[j] = static_cast<S>(sum);
      }
      for (index i = 0; i < H.rows; ++i) {
        double sum = 0;
        for (index j = 0; j < std::min(w, i + 1); ++j) sum += static_cast<double>(element(H, i, j)) * column[j];
        C[i + c * ldc] = static_cast<S>(C[i + c * ldc] - sum);
      }
    }
  }

  void solve(bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) const override {
    for (index c = 0; c < k; ++c) {
      for (index step = 0; step < n; ++step) {
        const index i = transposed ? step : n - 1 - step;
        double sum = B[i + c * ldb];
        for (index l = transposed ? 0 : i + 1; l < (transposed ? i : n); ++l)
          sum -= static_cast<double>(transposed ? U[l + i * ldu] : U[i + l * ldu]) * B[l + c * ldb];
        B[i + c * ldb] = static_cast<S>(sum / U[i + i * ldu]);
      }
    }
  }

  void subtract_product(index m, index n, index k, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        double sum = C[i + j * ldc];
        for (index l = 0; l < k; ++l) sum -= static_cast<double>(A[i + l * lda]) * B[l + j * ldb];
        C[i + j * ldc] = static_cast<S>(sum);
      }
    }
  }

  void cross_product(index m, index p, index q, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    for (index j = 0; j < q; ++j) {
      for (index i = 0; i < p; ++i) {
        double sum = 0;
        for (index l = 0; l < m; ++l) sum += static_cast<double>(A[l + i * lda]) * B[l + j * ldb];
        C[i + j * ldc] = static_cast<S>(sum);
      }
    }
  }

  void subtract(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, double* y, index ldy) const override {
    for (int q = 0; q < count; ++q) {
      for (index j = 0; j < w; ++j) {
        for (index i = 0; i < m; ++i) y[i + q * ldy] -= static_cast<double>(X[i + j * ldx]) * z[j + q * ldz];
      }
    }
  }

  void dot(index m, index w, const S* X, index ldx, int count, const double* y, index ldy, double* z, index ldz) const override {
    for (int q = 0; q < count; ++q) {
      for (index j = 0; j < w; ++j) {
        double sum = 0;
        for (index i = 0; i < m; ++i) sum += static_cast<double>(X[i + j * ldx]) * y[i + q * ldy];
        z[j + q * ldz] += sum;
      }
    }
  }

  void squares(index m, index w, const S* X, index ldx, double* z) const override {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < m; ++i) z[j] += static_cast<double>(X[i + j * ldx]) * X[i + j * ldx];
    }
  }

  void moments(index m, index w, const S* X, index ldx, const double* y, double* z, index ldz) const override {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < m; ++i) {
        const double x = static_cast<double>(X[i + j * ldx]);
        z[j] += x;
        z[j + ldz] += x * y[i];
        z[j + 2 * ldz] += x * y[i] * y[i];
        z[j + 3 * ldz] += x * x;
      }
    }
  }

 private:
  // Computes column j of T: −τ_j T (Vᵀ v_j) above the diagonal, τ_j on it.
  template <class Element>
  static void form_t(index m, index w, Element&& v, const S* tau, S* T) {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) T[i + j * w] = 0;
      T[j + j * w] = tau[j];
      for (index i = 0; i < j; ++i) {
        double sum = 0;
        for (index r = j; r < m; ++r) sum += v(r, i) * v(r, j);
        T[i + j * w] = static_cast<S>(-static_cast<double>(tau[j]) * sum);
      }
      for (index i = 0; i < j; ++i) {
        double sum = 0;
        for (index l = i; l < j; ++l) sum += static_cast<double>(T[i + l * w]) * T[l + j * w];
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

}  // namespace ballast::qr
