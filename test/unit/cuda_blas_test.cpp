// The declarations of cuBLAS's interface against the toolkit's, and what is asked of it, on a library of the test's own.
#include "cuda/device/blas.hpp"

#include <complex>
#include <new>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/system/library.hpp"

#ifdef BALLAST_CUBLAS_H
#include <cublas_v2.h>
#endif

namespace ballast::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#ifdef BALLAST_CUBLAS_H
static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_ALLOC_FAILED == static_cast<int>(cublas::k_allocation_failed));
static_assert(CUBLAS_OP_N == static_cast<int>(cublas::k_plain) && CUBLAS_OP_T == static_cast<int>(cublas::k_transposed));
static_assert(CUBLAS_OP_C == static_cast<int>(cublas::k_conjugated));
static_assert(sizeof(cuComplex) == sizeof(std::complex<float>) && sizeof(cuDoubleComplex) == sizeof(std::complex<double>));
static_assert(CUBLAS_FILL_MODE_LOWER == static_cast<int>(cublas::k_lower) && CUBLAS_FILL_MODE_UPPER == static_cast<int>(cublas::k_upper));
static_assert(CUBLAS_DIAG_NON_UNIT == static_cast<int>(cublas::k_stored) && CUBLAS_DIAG_UNIT == static_cast<int>(cublas::k_unit));
static_assert(CUBLAS_SIDE_LEFT == static_cast<int>(cublas::k_left) && CUBLAS_SIDE_RIGHT == static_cast<int>(cublas::k_right));
static_assert(CUBLAS_DEFAULT_MATH == static_cast<int>(cublas::k_default_math));
static_assert(CUBLAS_TF32_TENSOR_OP_MATH == static_cast<int>(cublas::k_tf32_math));
static_assert(sizeof(cublasStatus_t) == sizeof(cublas::status) && sizeof(cublasHandle_t) == sizeof(cublas::handle));
static_assert(sizeof(cublasOperation_t) == sizeof(int) && sizeof(cublasFillMode_t) == sizeof(int) && sizeof(cublasMath_t) == sizeof(int));

// The toolkit's functions take what ours take, with its own names for enumerations and handles.
template <class Type>
struct plain {
  using type = Type;
};
template <class Type>
requires std::is_enum_v<Type>
struct plain<Type> {
  using type = int;
};
template <>
struct plain<cublasHandle_t> {
  using type = void*;
};
template <>
struct plain<cublas::handle> {
  using type = void*;
};
template <>
struct plain<const cuComplex*> {
  using type = const std::complex<float>*;
};
template <>
struct plain<cuComplex*> {
  using type = std::complex<float>*;
};
template <>
struct plain<const cuDoubleComplex*> {
  using type = const std::complex<double>*;
};
template <>
struct plain<cuDoubleComplex*> {
  using type = std::complex<double>*;
};
template <class Function>
struct shape;
template <class Result, class... Arguments>
struct shape<Result (*)(Arguments...)> {
  using type = typename plain<Result>::type (*)(typename plain<Arguments>::type...);
};
template <class Ours, class Theirs>
constexpr bool same = std::is_same_v<typename shape<Ours>::type, typename shape<Theirs>::type>;
static_assert(same<decltype(cublas::routines<float>::gemm), decltype(&cublasSgemm_v2_64)>);
static_assert(same<decltype(cublas::routines<float>::trmm), decltype(&cublasStrmm_v2_64)>);
static_assert(same<decltype(cublas::routines<float>::trsm), decltype(&cublasStrsm_v2_64)>);
static_assert(same<decltype(cublas::routines<float>::syrk), decltype(&cublasSsyrk_v2_64)>);
static_assert(same<decltype(cublas::routines<double>::gemm), decltype(&cublasDgemm_v2_64)>);
static_assert(same<decltype(cublas::routines<double>::trmm), decltype(&cublasDtrmm_v2_64)>);
static_assert(same<decltype(cublas::routines<double>::trsm), decltype(&cublasDtrsm_v2_64)>);
static_assert(same<decltype(cublas::routines<double>::syrk), decltype(&cublasDsyrk_v2_64)>);
static_assert(same<decltype(cublas::complex_routines<std::complex<float>>::gemm), decltype(&cublasCgemm_v2_64)>);
static_assert(same<decltype(cublas::complex_routines<std::complex<float>>::trsm), decltype(&cublasCtrsm_v2_64)>);
static_assert(same<decltype(cublas::complex_routines<std::complex<double>>::gemm), decltype(&cublasZgemm_v2_64)>);
static_assert(same<decltype(cublas::complex_routines<std::complex<double>>::trsm), decltype(&cublasZtrsm_v2_64)>);
#endif

struct fake_state {
  std::vector<std::string> calls;
  std::vector<driver::context> contexts;
  cublas::status next = 0;
};
fake_state fake;

driver::context const k_ours = reinterpret_cast<driver::context>(0x10);
stream const k_stream = reinterpret_cast<stream>(0x60);
cublas::handle const k_handle = reinterpret_cast<cublas::handle>(0x90);

driver::api make_driver() {
  driver::api made{};
  made.context_current = [](driver::context* current) {
    return *current = fake.contexts.empty() ? nullptr : fake.contexts.back(), driver::k_success;
  };
  made.exchange_capture_mode = [](int*) { return driver::k_success; };
  made.context_push = [](driver::context pushed) { return fake.contexts.push_back(pushed), driver::k_success; };
  made.context_pop = [](driver::context* popped) { return *popped = fake.contexts.back(), fake.contexts.pop_back(), driver::k_success; };
  return made;
}

template <class T>
cublas::complex_routines<T> make_complex_routines() {
  using std::to_string;
  cublas::complex_routines<T> made{};
  made.gemm = [](cublas::handle, cublas::operation a, cublas::operation b, std::int64_t m, std::int64_t n, std::int64_t k, const T* alpha,
                 const T*, std::int64_t lda, const T*, std::int64_t ldb, const T* beta, T*, std::int64_t ldc) {
    fake.calls.push_back("gemm " + to_string(a) + to_string(b) + " " + to_string(m) + "x" + to_string(n) + "x" + to_string(k) + " " +
                         to_string(static_cast<int>(std::real(*alpha))) + " " + to_string(lda) + " " + to_string(ldb) + " " +
                         to_string(static_cast<int>(std::real(*beta))) + " " + to_string(ldc) +
                         (fake.contexts.empty() ? " without a context" : ""));
    return fake.next;
  };
  made.trsm = [](cublas::handle, cublas::side side, cublas::triangle uplo, cublas::operation trans, cublas::diagonal diag, std::int64_t m,
                 std::int64_t n, const T*, const T*, std::int64_t, T*, std::int64_t) {
    fake.calls.push_back("trsm " + to_string(side) + to_string(uplo) + to_string(trans) + to_string(diag) + " " + to_string(m) + "x" +
                         to_string(n));
    return fake.next;
  };
  return made;
}

template <class T>
cublas::routines<T> make_routines() {
  using std::to_string;
  cublas::routines<T> made{make_complex_routines<T>(), nullptr, nullptr};
  made.trmm = [](cublas::handle, cublas::side side, cublas::triangle uplo, cublas::operation trans, cublas::diagonal diag, std::int64_t m,
                 std::int64_t n, const T*, const T*, std::int64_t, const T* B, std::int64_t ldb, T* C, std::int64_t ldc) {
    fake.calls.push_back("trmm " + to_string(side) + to_string(uplo) + to_string(trans) + to_string(diag) + " " + to_string(m) + "x" +
                         to_string(n) + (B == C && ldb == ldc ? " in place" : ""));
    return fake.next;
  };
  made.syrk = [](cublas::handle, cublas::triangle uplo, cublas::operation trans, std::int64_t n, std::int64_t k, const T*, const T*,
                 std::int64_t, const T*, T*, std::int64_t) {
    fake.calls.push_back("syrk " + to_string(uplo) + to_string(trans) + " " + to_string(n) + "x" + to_string(k));
    return fake.next;
  };
  return made;
}

cublas::api make_library() {
  cublas::api made{};
  made.create = [](cublas::handle* handle) {
    fake.calls.push_back(fake.contexts.empty() ? "create without a context" : "create");
    return *handle = k_handle, fake.next;
  };
  made.destroy = [](cublas::handle) { return fake.calls.push_back("destroy"), 0; };
  made.set_stream = [](cublas::handle, stream on) { return fake.calls.push_back(on == k_stream ? "stream" : "another stream"), fake.next; };
  made.set_math = [](cublas::handle, cublas::math_mode mode) { return fake.calls.push_back("math " + std::to_string(mode)), fake.next; };
  made.words = [](cublas::status) { return "fake words"; };
  made.f32 = make_routines<float>();
  made.f64 = make_routines<double>();
  made.c64 = make_complex_routines<std::complex<float>>();
  made.c128 = make_complex_routines<std::complex<double>>();
  return made;
}

template <class T>
class cuda_blas : public testing::Test {
 protected:
  void SetUp() override { fake = {}; }
  const driver::api below = make_driver();
  const cublas::api library = make_library();
};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(cuda_blas, precisions);

TYPED_TEST(cuda_blas, hands_over_what_it_is_asked) {
  using T = TypeParam;
  T* const p = nullptr;
  {
    const auto made = cublas::make(this->library, this->below, k_ours, blas_math::full, k_stream);
    EXPECT_THAT(fake.calls, ElementsAre("create", "stream", "math 0"));
    fake.calls.clear();
    made->gemm('N', 'T', 2, 3, 4, T(5), p, 6, p, 7, T(8), p, 9);
    made->trmm('L', 'U', 'N', 'U', 2, 3, T(1), p, 4, p, 5);
    made->trsm('R', 'L', 'T', 'N', 2, 3, T(1), p, 4, p, 5);
    made->syrk('U', 'T', 2, 3, T(1), p, 4, T(0), p, 5);
    EXPECT_THAT(fake.calls, ElementsAre("gemm 01 2x3x4 5 6 7 8 9", "trmm 0101 2x3 in place", "trsm 1010 2x3", "syrk 11 2x3"));
    fake.calls.clear();
    EXPECT_TRUE(fake.contexts.empty());
  }
  EXPECT_THAT(fake.calls, ElementsAre("destroy"));
}

TYPED_TEST(cuda_blas, hands_over_complex_products) {
  using T = std::complex<TypeParam>;
  T* const p = nullptr;
  const auto made = cublas::make(this->library, this->below, k_ours, blas_math::full, k_stream);
  fake.calls.clear();
  made->gemm('C', 'N', 2, 3, 4, T(5), p, 6, p, 7, T(8), p, 9);
  made->trsm('L', 'U', 'C', 'N', 2, 3, T(1), p, 4, p, 5);
  EXPECT_THAT(fake.calls, ElementsAre("gemm 20 2x3x4 5 6 7 8 9", "trsm 0120 2x3"));
}

TYPED_TEST(cuda_blas, rounds_to_tf32_only_when_asked) {
  (void)cublas::make(this->library, this->below, k_ours, blas_math::tf32, k_stream);
  EXPECT_THAT(fake.calls, ElementsAre("create", "stream", "math 3", "destroy"));
}

TYPED_TEST(cuda_blas, failures_carry_its_words) {
  using T = TypeParam;
  const auto made = cublas::make(this->library, this->below, k_ours, blas_math::full, k_stream);
  fake.next = 13;
  try {
    made->syrk('U', 'N', 1, 1, T(1), static_cast<T*>(nullptr), 1, T(0), nullptr, 1);
    FAIL() << "no exception";
  } catch (const error& seen) {
    EXPECT_STREQ(seen.what(), "cuBLAS: syrk: expected success, got fake words");
  }
  fake.next = cublas::k_allocation_failed;
  EXPECT_THROW((void)cublas::make(this->library, this->below, k_ours, blas_math::full, k_stream), std::bad_alloc);
  EXPECT_TRUE(fake.contexts.empty());
}

TEST(cuda_blas_library, one_of_the_toolkit_has_every_function) {
  if (!why_no_cublas().empty()) GTEST_SKIP() << why_no_cublas();
  EXPECT_NE(cublas::found().f64.syrk, nullptr);
}

TEST(cuda_blas_library, one_that_is_none_is_named_by_what_it_lacks) {
  void* self = dlopen(nullptr, RTLD_NOW);
  cublas::api functions{};
  EXPECT_EQ(cublas::bind(self, functions), "cublasCreate_v2");
  dlclose(self);
}

}  // namespace
}  // namespace ballast::cuda
