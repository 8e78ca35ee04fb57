// Loads cuBLAS, and implements cuda::blas with it.
#include "cuda/device/blas.hpp"

#include <new>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/system/library.hpp"

namespace ballast::cuda {

namespace cublas {

std::string bind(void* library, api& functions) {
  std::string missing;
  const auto find = [&](auto& target, const char* name) {
    if (!find_function(library, name, target) && missing.empty()) missing = name;
  };
  find(functions.create, "cublasCreate_v2");
  find(functions.destroy, "cublasDestroy_v2");
  find(functions.set_stream, "cublasSetStream_v2");
  find(functions.set_math, "cublasSetMathMode");
  find(functions.words, "cublasGetStatusString");
  find(functions.f32.gemm, "cublasSgemm_v2_64");
  find(functions.f32.trmm, "cublasStrmm_v2_64");
  find(functions.f32.trsm, "cublasStrsm_v2_64");
  find(functions.f32.syrk, "cublasSsyrk_v2_64");
  find(functions.f64.gemm, "cublasDgemm_v2_64");
  find(functions.f64.trmm, "cublasDtrmm_v2_64");
  find(functions.f64.trsm, "cublasDtrsm_v2_64");
  find(functions.f64.syrk, "cublasDsyrk_v2_64");
  find(functions.c64.gemm, "cublasCgemm_v2_64");
  find(functions.c64.trsm, "cublasCtrsm_v2_64");
  find(functions.c128.gemm, "cublasZgemm_v2_64");
  find(functions.c128.trsm, "cublasZtrsm_v2_64");
  return missing;
}

namespace {

operation operation_of(char trans) { return trans == 'N' ? k_plain : trans == 'C' ? k_conjugated : k_transposed; }
triangle triangle_of(char uplo) { return uplo == 'U' ? k_upper : k_lower; }
diagonal diagonal_of(char diag) { return diag == 'U' ? k_unit : k_stored; }
side side_of(char which) { return which == 'L' ? k_left : k_right; }

class bound_blas final : public blas {
 public:
  bound_blas(const api& functions, const driver::api& below, driver::context context, blas_math math, stream on)
      : functions_(functions), below_(below), context_(context) {
    const driver::in_context scope(below_, context_);
    check(functions_.create(&handle_), "cublasCreate");
    try {
      check(functions_.set_stream(handle_, on), "cublasSetStream");
      check(functions_.set_math(handle_, math == blas_math::tf32 ? k_tf32_math : k_default_math), "cublasSetMathMode");
    } catch (...) {
      functions_.destroy(handle_);
      throw;
    }
  }
  ~bound_blas() override {
    const driver::in_context scope(below_, context_, std::nothrow);
    if (scope.status() == driver::k_success) functions_.destroy(handle_);
  }

#define BALLAST_COMPLEX_CUBLAS(T, precision)                                                                                               \
  void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, const T* B, \
            std::int64_t ldb, T beta, T* C, std::int64_t ldc) override {                                                                   \
    const driver::in_context scope(below_, context_);                                                                                      \
    check(                                                                                                                                 \
        functions_.precision.gemm(handle_, operation_of(trans_a), operation_of(trans_b), m, n, k, &alpha, A, lda, B, ldb, &beta, C, ldc),  \
        "gemm");                                                                                                                           \
  }                                                                                                                                        \
  void trsm(char which, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,     \
            std::int64_t ldb) override {                                                                                                   \
    const driver::in_context scope(below_, context_);                                                                                      \
    check(functions_.precision.trsm(handle_, side_of(which), triangle_of(uplo), operation_of(trans), diagonal_of(diag), m, n, &alpha, A,   \
                                    lda, B, ldb),                                                                                          \
          "trsm");                                                                                                                         \
  }
#define BALLAST_CUBLAS(T, precision)                                                                                                      \
  BALLAST_COMPLEX_CUBLAS(T, precision)                                                                                                    \
  void trmm(char which, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,    \
            std::int64_t ldb) override {                                                                                                  \
    const driver::in_context scope(below_, context_);                                                                                     \
    check(functions_.precision.trmm(handle_, side_of(which), triangle_of(uplo), operation_of(trans), diagonal_of(diag), m, n, &alpha, A,  \
                                    lda, B, ldb, B, ldb),                                                                                 \
          "trmm");                                                                                                                        \
  }                                                                                                                                       \
  void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, T beta, T* C, std::int64_t ldc) \
      override {                                                                                                                          \
    const driver::in_context scope(below_, context_);                                                                                     \
    check(functions_.precision.syrk(handle_, triangle_of(uplo), operation_of(trans), n, k, &alpha, A, lda, &beta, C, ldc), "syrk");       \
  }
  BALLAST_CUBLAS(float, f32)
  BALLAST_CUBLAS(double, f64)
  BALLAST_COMPLEX_CUBLAS(std::complex<float>, c64)
  BALLAST_COMPLEX_CUBLAS(std::complex<double>, c128)
#undef BALLAST_COMPLEX_CUBLAS
#undef BALLAST_CUBLAS

 private:
  void check(status got, const char* call) const {
    if (got == 0) return;
    if (got == k_allocation_failed) throw std::bad_alloc();
    throw device_error(fmt::format("cuBLAS: {}: expected success, got {}", call, functions_.words(got)));
  }

  const api& functions_;
  const driver::api& below_;
  driver::context context_;
  handle handle_ = nullptr;
};

struct availability {
  api functions{};
  std::string why;
};

const availability& available() {
  static const availability made = [] {
    availability found;
    const opened_library library = open_library(k_cublas_library);
    found.why = library.why;
    if (library.handle == nullptr) return found;
    if (const std::string missing = bind(library.handle, found.functions); !missing.empty())
      found.why = fmt::format("{}: expected cuBLAS 12 or later, got a library without {}", library.path, missing);
    return found;
  }();
  return made;
}

}  // namespace

std::unique_ptr<blas> make(const api& functions, const driver::api& below, driver::context context, blas_math math, stream on) {
  return std::make_unique<bound_blas>(functions, below, context, math, on);
}

const api& found() {
  if (!available().why.empty()) throw unsupported_error(available().why);
  return available().functions;
}

}  // namespace cublas

std::string why_no_cublas() { return cublas::available().why; }

}  // namespace ballast::cuda
