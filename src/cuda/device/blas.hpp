// Level-3 BLAS on a device, and its implementation by NVIDIA's cuBLAS: loaded at run time, never linked.
// Layer: cuda. device::make_blas makes one; the emulator of the tests makes one over the processor's BLAS.
// Source: cuBLAS API reference, CUDA 12 and 13; test/unit/cuda_blas_test.cpp compares the declarations with the toolkit's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"

namespace ballast::cuda {

// As core/blas.hpp for operands in device memory: column-major, characters as in Fortran, α and β on the host. Work is ordered on the
// stream that the object was made for; the host does not wait. Not thread-safe: one thread at a time calls it. The same call gives the same
// bits each time on one device.
class blas {
 public:
  blas() = default;
  blas(const blas&) = delete;
  blas& operator=(const blas&) = delete;
  virtual ~blas() = default;

  // C ← α op(A) op(B) + β C, op(A) m × k, op(B) k × n. trans: 'N' or 'T'.
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* A,
                    std::int64_t lda, const float* B, std::int64_t ldb, float beta, float* C, std::int64_t ldc) = 0;
  virtual void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* A,
                    std::int64_t lda, const double* B, std::int64_t ldb, double beta, double* C, std::int64_t ldc) = 0;

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

  // C ← α op(A) op(A)ᵀ + β C, op(A) n × k, C symmetric: only its triangle `uplo` is read and written.
  virtual void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, float alpha, const float* A, std::int64_t lda, float beta,
                    float* C, std::int64_t ldc) = 0;
  virtual void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, double alpha, const double* A, std::int64_t lda, double beta,
                    double* C, std::int64_t ldc) = 0;
};

// Why cuBLAS cannot be used, in one sentence; empty if it can be. Opens it, which takes a fair part of a second. library.hpp says where.
std::string why_no_cublas();

// --- the binding, apart so that tests can put a library of their own below it ----------------------------------------------------------

namespace cublas {

using status = int;  // cublasStatus_t; 0: success
using handle = struct handle_tag*;

enum operation : int { k_plain = 0, k_transposed = 1 };
enum triangle : int { k_lower = 0, k_upper = 1 };
enum diagonal : int { k_stored = 0, k_unit = 1 };
enum side : int { k_left = 0, k_right = 1 };
enum math_mode : int { k_default_math = 0, k_tf32_math = 3 };
inline constexpr status k_allocation_failed = 3;

// The functions for one precision, those with 64-bit sizes.
template <class T>
struct routines {
  status (*gemm)(handle, operation, operation, std::int64_t m, std::int64_t n, std::int64_t k, const T* alpha, const T* A, std::int64_t lda,
                 const T* B, std::int64_t ldb, const T* beta, T* C, std::int64_t ldc);
  status (*trmm)(handle, side, triangle, operation, diagonal, std::int64_t m, std::int64_t n, const T* alpha, const T* A, std::int64_t lda,
                 const T* B, std::int64_t ldb, T* C, std::int64_t ldc);
  status (*trsm)(handle, side, triangle, operation, diagonal, std::int64_t m, std::int64_t n, const T* alpha, const T* A, std::int64_t lda,
                 T* B, std::int64_t ldb);
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
};

// Fills `functions` from a library that dlopen gave. Returns the name of the first function that it lacks, or "".
std::string bind(void* library, api& functions);

// `functions`, `below` and `context` outlive what is made. Every call leaves the calling thread's current context as it found it.
std::unique_ptr<blas> make(const api& functions, const driver::api& below, driver::context context, blas_math math, stream on);

// The library that was found. Throws unsupported_error.
const api& found();

}  // namespace cublas

}  // namespace ballast::cuda
