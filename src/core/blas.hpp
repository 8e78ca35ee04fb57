// The BLAS routines that Ballast calls, overloaded by precision, and control of the BLAS's own threads.
// Layer: foundation. Column-major, as in Fortran. Dimensions are passed as `int`: callers keep every dimension below 2³¹.
#pragma once

#include <complex>
#include <cstdint>
#include <string>

namespace ballast::core {

// Returns "OpenBLAS 0.3.21 …", or "BLAS" for a library that does not report its name.
std::string blas_name();

// See ballast::better_blas_kernels().
std::string better_blas_kernels();

// While an object of this class exists, the BLAS runs on the calling thread only, because Ballast's own threads call it on blocks. The
// setting is process-wide and reference-counted. It has no effect on a BLAS without such a control.
class single_threaded_blas {
 public:
  single_threaded_blas();
  ~single_threaded_blas();
  single_threaded_blas(const single_threaded_blas&) = delete;
  single_threaded_blas& operator=(const single_threaded_blas&) = delete;
};

// C ← α op(A) op(B) + β C, op(A) m × k, op(B) k × n. trans: 'N', 'T' or, for the conjugate transpose, 'C'; for real numbers 'C' is 'T'.
void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* A, std::int64_t lda,
          const float* B, std::int64_t ldb, float beta, float* C, std::int64_t ldc);
void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* A, std::int64_t lda,
          const double* B, std::int64_t ldb, double beta, double* C, std::int64_t ldc);
void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, std::complex<float> alpha,
          const std::complex<float>* A, std::int64_t lda, const std::complex<float>* B, std::int64_t ldb, std::complex<float> beta,
          std::complex<float>* C, std::int64_t ldc);
void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, std::complex<double> alpha,
          const std::complex<double>* A, std::int64_t lda, const std::complex<double>* B, std::int64_t ldb, std::complex<double> beta,
          std::complex<double>* C, std::int64_t ldc);

// B ← α op(A) B (side 'L') or α B op(A) (side 'R'), A triangular (uplo 'U' or 'L', diag 'U' or 'N'), B m × n.
void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, float alpha, const float* A, std::int64_t lda,
          float* B, std::int64_t ldb);
void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, double alpha, const double* A, std::int64_t lda,
          double* B, std::int64_t ldb);
void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<float> alpha,
          const std::complex<float>* A, std::int64_t lda, std::complex<float>* B, std::int64_t ldb);
void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<double> alpha,
          const std::complex<double>* A, std::int64_t lda, std::complex<double>* B, std::int64_t ldb);

// B ← α op(A)⁻¹ B or α B op(A)⁻¹.
void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, float alpha, const float* A, std::int64_t lda,
          float* B, std::int64_t ldb);
void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, double alpha, const double* A, std::int64_t lda,
          double* B, std::int64_t ldb);
void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<float> alpha,
          const std::complex<float>* A, std::int64_t lda, std::complex<float>* B, std::int64_t ldb);
void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<double> alpha,
          const std::complex<double>* A, std::int64_t lda, std::complex<double>* B, std::int64_t ldb);

// y ← α op(A) x + β y, A m × n.
void gemv(char trans, std::int64_t m, std::int64_t n, float alpha, const float* A, std::int64_t lda, const float* x, std::int64_t incx,
          float beta, float* y, std::int64_t incy);
void gemv(char trans, std::int64_t m, std::int64_t n, double alpha, const double* A, std::int64_t lda, const double* x, std::int64_t incx,
          double beta, double* y, std::int64_t incy);

// A ← A + α x yᵀ, A m × n.
void ger(std::int64_t m, std::int64_t n, float alpha, const float* x, std::int64_t incx, const float* y, std::int64_t incy, float* A,
         std::int64_t lda);
void ger(std::int64_t m, std::int64_t n, double alpha, const double* x, std::int64_t incx, const double* y, std::int64_t incy, double* A,
         std::int64_t lda);

}  // namespace ballast::core
