// Calls the BLAS by its Fortran symbols, which this file declares itself: any BLAS that has them can be linked. BALLAST_BLAS_PREFIX stands
// before every symbol of a BLAS that renames them, so that it can live beside another one in a process: scipy_ in PyPI's scipy-openblas32.
#include "core/blas.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string_view>

#ifndef BALLAST_BLAS_PREFIX
#define BALLAST_BLAS_PREFIX
#endif
#define BALLAST_JOIN_NAMES(prefix, name) prefix##name
#define BALLAST_JOIN(prefix, name) BALLAST_JOIN_NAMES(prefix, name)
#define BALLAST_BLAS(name) BALLAST_JOIN(BALLAST_BLAS_PREFIX, name)
#define openblas_get_config BALLAST_BLAS(openblas_get_config)
#define openblas_get_corename BALLAST_BLAS(openblas_get_corename)
#define openblas_set_num_threads BALLAST_BLAS(openblas_set_num_threads)
#define openblas_get_num_threads BALLAST_BLAS(openblas_get_num_threads)

// OpenBLAS's controls; null with another BLAS.
extern "C" {
__attribute__((weak)) char* openblas_get_config();
__attribute__((weak)) char* openblas_get_corename();
__attribute__((weak)) void openblas_set_num_threads(int);
__attribute__((weak)) int openblas_get_num_threads();
}

#define BALLAST_DECLARE_BLAS(T, p)                                                                                                        \
  void BALLAST_BLAS(p##gemm_)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*,     \
                              const int*, const T*, T*, const int*, std::size_t, std::size_t);                                            \
  void BALLAST_BLAS(p##trmm_)(const char*, const char*, const char*, const char*, const int*, const int*, const T*, const T*, const int*, \
                              T*, const int*, std::size_t, std::size_t, std::size_t, std::size_t);                                        \
  void BALLAST_BLAS(p##trsm_)(const char*, const char*, const char*, const char*, const int*, const int*, const T*, const T*, const int*, \
                              T*, const int*, std::size_t, std::size_t, std::size_t, std::size_t);

#define BALLAST_DECLARE_REAL_BLAS(T, p)                                                                                                \
  BALLAST_DECLARE_BLAS(T, p)                                                                                                           \
  void BALLAST_BLAS(p##gemv_)(const char*, const int*, const int*, const T*, const T*, const int*, const T*, const int*, const T*, T*, \
                              const int*, std::size_t);                                                                                \
  void BALLAST_BLAS(p##ger_)(const int*, const int*, const T*, const T*, const int*, const T*, const int*, T*, const int*);

extern "C" {
BALLAST_DECLARE_REAL_BLAS(float, s)
BALLAST_DECLARE_REAL_BLAS(double, d)
BALLAST_DECLARE_BLAS(std::complex<float>, c)
BALLAST_DECLARE_BLAS(std::complex<double>, z)
}

namespace ballast::core {

std::string blas_name() {
  if (openblas_get_config != nullptr) return openblas_get_config();
  return "BLAS";
}

// Source: the names in OpenBLAS's driver/others/dynamic.c. An OpenBLAS that was built for a single processor ignores OPENBLAS_CORETYPE.
std::string better_blas_kernels() {
#if defined(__x86_64__)
  static constexpr std::array<std::string_view, 18> k_sse = {"Unknown", "Katmai",       "Coppermine",    "Northwood",  "Prescott", "Banias",
                                                             "Atom",    "Core2",        "Penryn",        "Dunnington", "Nehalem",  "Athlon",
                                                             "Opteron", "Opteron_SSE3", "Opteron(SSE3)", "Barcelona",  "Bobcat",   "Nano"};
  if (openblas_get_config == nullptr || openblas_get_corename == nullptr || std::getenv("OPENBLAS_CORETYPE") != nullptr) return {};
  if (std::string_view(openblas_get_config()).find("DYNAMIC_ARCH") == std::string_view::npos) return {};
  if (std::ranges::find(k_sse, openblas_get_corename()) == k_sse.end()) return {};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return {};
}

namespace {
std::mutex control;
int holders = 0;
int threads_before = 1;
}  // namespace

single_threaded_blas::single_threaded_blas() {
  const std::lock_guard lock(control);
  if (holders++ > 0 || openblas_set_num_threads == nullptr || openblas_get_num_threads == nullptr) return;
  threads_before = openblas_get_num_threads();
  if (threads_before != 1) openblas_set_num_threads(1);
}

single_threaded_blas::~single_threaded_blas() {
  const std::lock_guard lock(control);
  if (--holders > 0 || openblas_set_num_threads == nullptr || openblas_get_num_threads == nullptr) return;
  if (threads_before != 1) openblas_set_num_threads(threads_before);
}

#define BALLAST_DEFINE_BLAS(T, p)                                                                                                          \
  void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, const T* B, \
            std::int64_t ldb, T beta, T* C, std::int64_t ldc) {                                                                            \
    const int im = int(m), in = int(n), ik = int(k), ia = int(lda), ib = int(ldb), ic = int(ldc);                                          \
    BALLAST_BLAS(p##gemm_)(&trans_a, &trans_b, &im, &in, &ik, &alpha, A, &ia, B, &ib, &beta, C, &ic, 1, 1);                                \
  }                                                                                                                                        \
  void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,      \
            std::int64_t ldb) {                                                                                                            \
    const int im = int(m), in = int(n), ia = int(lda), ib = int(ldb);                                                                      \
    BALLAST_BLAS(p##trmm_)(&side, &uplo, &trans, &diag, &im, &in, &alpha, A, &ia, B, &ib, 1, 1, 1, 1);                                     \
  }                                                                                                                                        \
  void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,      \
            std::int64_t ldb) {                                                                                                            \
    const int im = int(m), in = int(n), ia = int(lda), ib = int(ldb);                                                                      \
    BALLAST_BLAS(p##trsm_)(&side, &uplo, &trans, &diag, &im, &in, &alpha, A, &ia, B, &ib, 1, 1, 1, 1);                                     \
  }

#define BALLAST_DEFINE_REAL_BLAS(T, p)                                                                                                \
  BALLAST_DEFINE_BLAS(T, p)                                                                                                           \
  void gemv(char trans, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, const T* x, std::int64_t incx, T beta, \
            T* y, std::int64_t incy) {                                                                                                \
    const int im = int(m), in = int(n), ia = int(lda), ix = int(incx), iy = int(incy);                                                \
    BALLAST_BLAS(p##gemv_)(&trans, &im, &in, &alpha, A, &ia, x, &ix, &beta, y, &iy, 1);                                               \
  }                                                                                                                                   \
  void ger(std::int64_t m, std::int64_t n, T alpha, const T* x, std::int64_t incx, const T* y, std::int64_t incy, T* A,               \
           std::int64_t lda) {                                                                                                        \
    const int im = int(m), in = int(n), ia = int(lda), ix = int(incx), iy = int(incy);                                                \
    BALLAST_BLAS(p##ger_)(&im, &in, &alpha, x, &ix, y, &iy, A, &ia);                                                                  \
  }

BALLAST_DEFINE_REAL_BLAS(float, s)
BALLAST_DEFINE_REAL_BLAS(double, d)
BALLAST_DEFINE_BLAS(std::complex<float>, c)
BALLAST_DEFINE_BLAS(std::complex<double>, z)

}  // namespace ballast::core
