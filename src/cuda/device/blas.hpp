// Level-3 BLAS on a device, and its implementation with NVIDIA's cuBLAS, which is loaded at run time and never linked.
// Layer: cuda. device::make_blas constructs one; the test emulator constructs one over the CPU's BLAS.
// Source: cuBLAS API reference, CUDA 12 and 13; test/unit/cuda_blas_test.cpp compares the declarations with the toolkit's.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"

namespace ballast::cuda {

// The routines of core/blas.hpp for operands in device memory: column-major, characters as in Fortran, α and β on the host. Work is ordered
// on the stream of the object; the host does not wait. Not thread-safe: only one thread at a time may call it. The same call gives the same
// bits each time on one device.
class blas {
 public:
  blas() = default;
  blas(const blas&) = delete;
  blas& operator=(const blas&) = delete;
  virtual ~blas() = default;

  // C ← α op(A) op(B) + β C, op(A) m × k, op(B) k × n. trans: 'N' or 'T', or 'C' for complex numbers.
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* A,
                    std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C, std::int64_t ldc) = 0;
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* A,
                    std::int64_t lda, const double* B, std::int64_t ldb, double beta, double* C, std::int64_t ldc) = 0;
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, std::complex<float> alpha,
                    const std::complex<float>* A, std::int64_t lda, const std::complex<float>* B, std::int64_t ldb,
                    std::complex<float> beta, std::complex<float>* C, std::int64_t ldc) = 0;
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, std::complex<double> alpha,
                    const std::complex<double>* A, std::int64_t lda, const std::complex<double>* B, std::int64_t ldb,
                    std::complex<double> beta, std::complex<double>* C, std::int64_t ldc) = 0;

  // B ← α op(A) B (side 'L') or α B op(A) (side 'R'), A triangular (uplo 'U' or 'L', diag 'U' or 'N'), B m × n.
  virtual void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, float alpha, const float* A,
                    std::int64_t lda, float* B, std::int64_t ldb) = 0;
  virtual void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, double alpha, const double* A,
                    std::int64_t lda, double* B, std::int64_t ldb) = 0;

  // B ← α op(A)⁻¹ B or α B op(A)⁻¹.
  virtual void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, float alpha, const float* A,
                    std::int64_t lda, float* B, std::int64_t ldb) = 0;
  virtual void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, double alpha, const double* A,
                    std::int64_t lda, double* B, std::int64_t ldb) = 0;
  virtual void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<float> alpha,
                    const std::complex<float>* A, std::int64_t lda, std::complex<float>* B, std::int64_t ldb) = 0;
  virtual void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, std::complex<double> alpha,
                    const std::complex<double>* A, std::int64_t lda, std::complex<double>* B, std::int64_t ldb) = 0;

  // C ← α op(A) op(A)ᵀ + β C, op(A) n × k, C symmetric: only its triangle `uplo` is read and written.
  virtual void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, float alpha, const float* A, std::int64_t lda, float beta,
                    float* C, std::int64_t ldc) = 0;
  virtual void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, double alpha, const double* A, std::int64_t lda, double beta,
                    double* C, std::int64_t ldc) = 0;
};

// Returns the reason why cuBLAS cannot be used, in one sentence; empty if it can. Loads the library, which is slow: call it only if cuBLAS
// is needed. system/library.hpp lists the places where it is searched.
std::string why_no_cublas();

// --- the binding, separate so that tests can bind a library of their own ---------------------------------------------------------------

namespace cublas {

using status = int;  // cublasStatus_t; 0: success
using handle = struct handle_tag*;

enum operation : int { k_plain = 0, k_transposed = 1, k_conjugated = 2 };
enum triangle : int { k_lower = 0, k_upper = 1 };
enum diagonal : int { k_stored = 0, k_unit = 1 };
enum side : int { k_left = 0, k_right = 1 };
enum math_mode : int { k_default_math = 0, k_tf32_math = 3 };
inline constexpr status k_allocation_failed = 3;

// The functions for one type of numbers, with 64-bit sizes: for complex numbers, and all four for real ones.
template <class T>
struct complex_routines {
  status (*gemm)(handle, operation, operation, std::int64_t m, std::int64_t n, std::int64_t k, const T* alpha, const T* A, std::int64_t lda,
                 const T* B, std::int64_t ldb, const T* beta, T* C, std::int64_t ldc);
  status (*trsm)(handle, side, triangle, operation, diagonal, std::int64_t m, std::int64_t n, const T* alpha, const T* A, std::int64_t lda,
                 T* B, std::int64_t ldb);
};
template <class T>
struct routines : complex_routines<T> {
  status (*trmm)(handle, side, triangle, operation, diagonal, std::int64_t m, std::int64_t n, const T* alpha, const T* A, std::int64_t lda,
                 const T* B, std::int64_t ldb, T* C, std::int64_t ldc);
  status (*syrk)(handle, triangle, operation, std::int64_t n, std::int64_t k, const T* alpha, const T* A, std::int64_t lda, const T* beta,
                 T* C, std::int64_t ldc);
};

struct api {
  status (*create)(handle*);
  status (*destroy)(handle);
  status (*set_stream)(handle, stream);
  status (*set_math)(handle, math_mode);
  const char* (*words)(status);
  routines<float> f32;
  routines<double> f64;
  complex_routines<std::complex<float>> c64;
  complex_routines<std::complex<double>> c128;
};

// Fills `functions` from a library handle of dlopen. Returns the name of the first missing function, or "".
std::string bind(void* library, api& functions);

// Constructs a blas over `functions`. `functions`, `below` and `context` must outlive it. Every call restores the calling thread's current
// context.
std::unique_ptr<blas> make(const api& functions, const driver::api& below, driver::context context, blas_math math, stream on);

// Returns the functions of the loaded library. Throws unsupported_error if there is none.
const api& found();

}  // namespace cublas

}  // namespace ballast::cuda
