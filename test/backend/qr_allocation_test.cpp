// Allocations of QR on the host: the second call of a plan makes none. And memory that runs out.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "support/allocations.hpp"
#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"
#if defined(BALLAST_TEST_QR_ON_CUDA)
#include "support/qr_on_device.hpp"
#endif

namespace ballast::qr {
namespace {

using namespace subjects;

#if defined(BALLAST_TEST_QR_ON_CUDA)
// The emulator's own allocations are not counted: a GPU does this work.
class quiet_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    return inner_->allocate(bytes, on);
  }
  void release(void* memory, ballast::cuda::stream on) noexcept override {
    const test::uncounted pause;
    inner_->release(memory, on);
  }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->copy(to, from, bytes, on);
  }
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->zero(memory, bytes, on);
  }
  using device::launch;
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->launch(which, blocks, arguments, on);
  }
};
#endif

template <class Setting>
class qr_allocation : public subjects::qr<Setting> {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;
#if defined(BALLAST_TEST_QR_ON_CUDA)
  device_for_a_test here_{std::make_shared<quiet_device>(ballast::cuda::current_device())};
#endif

  // Several panels, and columns of extreme size in some.
  static dense<T> matrix(index m, index n, bool extreme) { return matrix_of_kind<T>(extreme ? "extreme columns" : "normal", m, n, 1); }
  static plan<T> make(index m, index n, index batch, protection level, std::string scheme) {
    return plan<T>({.rows = m, .columns = n, .batch = batch},
                   {.backend = which, .threads = 3, .protection = level, .scheme = std::move(scheme)}, {.full_rank = false});
  }
};
TYPED_SUITE(qr_allocation, settings, test::setting_names);

// Counts the allocations of the second of two calls.
template <class Call>
std::int64_t second_of(const Call& call) {
  call();
  return test::allocations_of(call);
}

TYPED_TEST(qr_allocation, a_second_call_allocates_nothing) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : {std::pair<index, index>(50, 40), {40, 50}, {90, 20}}) {
    for (const char* scheme : k_schemes) {
      for (const protection level : {protection::correct, protection::detect, protection::off}) {
        for (const bool extreme : {false, true}) {
          if (extreme && level != protection::correct) continue;
          if (this->which == backend::cuda && test::sampled() && (level == protection::detect || (m != 50 && extreme))) continue;
          SCOPED_TRACE(std::string(scheme) + " " + std::string(to_string(level)) + " " + std::to_string(m) + " × " + std::to_string(n) +
                       (extreme ? " extreme" : ""));
          const plan<T> made = this->make(m, n, 1, level, scheme);
          const dense<T> A = this->matrix(m, n, extreme), right = random_matrix<T>(std::max(m, n), 3, 2);
          const index k = std::min(m, n);
          dense<T> F = A, Q(m, k, order::column_major), C = copy_of<T>(right.view().block(0, 0, m, 3)), X = right;
          std::vector<T> tau(static_cast<std::size_t>(k));
          const auto fill = [](const dense<T>& from, dense<T>& to) { std::copy_n(from.data(), to.size(), to.data()); };
          EXPECT_EQ(second_of([&] {
                      fill(A, F);
                      EXPECT_EQ(made.geqrf(F.view(), tau).detected, 0u);
                    }),
                    0)
              << "geqrf";
          EXPECT_EQ(second_of([&] {
                      fill(F, Q);
                      EXPECT_EQ(made.orgqr(Q.view(), tau).detected, 0u);
                    }),
                    0)
              << "orgqr";
          EXPECT_EQ(
              second_of([&] { EXPECT_EQ(made.ormqr(side::left, transpose::yes, std::as_const(F).view(), tau, C.view()).detected, 0u); }), 0)
              << "ormqr";
          EXPECT_EQ(second_of([&] {
                      fill(A, F);
                      fill(right, X);
                      EXPECT_EQ(made.gels(F.view(), X.view()).detected, 0u);
                    }),
                    0)
              << "gels";
        }
      }
    }
  }
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)
// Complex numbers, with the steps that conjugate: C op(Q), and gels of m < n.
template <class S>
void complex_calls_allocate_once(backend which) {
  for (const auto& [m, n] : {std::pair<index, index>(50, 40), {40, 50}}) {
    for (const char* scheme : k_schemes) {
      SCOPED_TRACE(std::string(to_string(which)) + " " + scheme + " " + std::to_string(m) + " × " + std::to_string(n));
      const plan<S> made({.rows = m, .columns = n}, {.backend = which, .threads = 3, .scheme = scheme});
      const auto numbers = [](index rows, index columns, std::uint64_t seed) {
        const dense<double> re = random_matrix<double>(rows, columns, seed), im = random_matrix<double>(rows, columns, seed + 1);
        dense<S> drawn(rows, columns, order::column_major);
        for (std::size_t i = 0; i < drawn.size(); ++i) drawn.data()[i] = static_cast<S>(std::complex<double>(re.data()[i], im.data()[i]));
        return drawn;
      };
      const index k = std::min(m, n);
      const dense<S> A = numbers(m, n, 1), right = numbers(std::max(m, n), 3, 3);
      dense<S> F = A, Q(m, k, order::column_major), C = numbers(4, m, 5), X = right;
      std::vector<S> tau(static_cast<std::size_t>(k));
      EXPECT_EQ(second_of([&] {
                  std::copy_n(A.data(), F.size(), F.data());
                  (void)made.geqrf(F.view(), tau);
                  std::copy_n(F.data(), Q.size(), Q.data());
                  (void)made.orgqr(Q.view(), tau);
                  (void)made.ormqr(side::right, transpose::yes, std::as_const(F).view(), tau, C.view());
                  std::copy_n(A.data(), F.size(), F.data());
                  std::copy_n(right.data(), X.size(), X.data());
                  (void)made.gels(F.view(), X.view());
                }),
                0);
    }
  }
}

TEST(qr_allocation_complex, a_second_call_allocates_nothing) {
  for (const backend which : k_backends) {
    complex_calls_allocate_once<std::complex<float>>(which);
    complex_calls_allocate_once<std::complex<double>>(which);
  }
}
#endif

// Row-major operands are copied.
TYPED_TEST(qr_allocation, copied_operands_make_no_difference) {
  using T = typename TestFixture::T;
  constexpr index m = 50, n = 40;
  const plan<T> made = this->make(m, n, 1, protection::correct, "");
  const dense<T> A = copy_of<T>(this->matrix(m, n, false).view(), order::row_major);
  dense<T> F = A, B = copy_of<T>(random_matrix<T>(m, 3, 2).view(), order::row_major);
  std::vector<T> tau(n);
  EXPECT_EQ(second_of([&] {
              std::copy_n(A.data(), F.size(), F.data());
              (void)made.geqrf(F.view(), tau);
              (void)made.ormqr(side::left, transpose::no, std::as_const(F).view(), tau, B.view());
              (void)made.gels(F.view(), B.view());
            }),
            0);
}

TYPED_TEST(qr_allocation, batches_allocate_nothing_the_second_time) {
  using T = typename TestFixture::T;
  // The larger ones go one by one.
  for (const auto& [m, n, count] : {std::tuple<index, index, index>(20, 12, 9), {12, 20, 3}, {270, 5, 2}}) {
    for (const protection level : {protection::correct, protection::off}) {
      SCOPED_TRACE(std::string(to_string(level)) + " " + std::to_string(m) + " × " + std::to_string(n));
      const plan<T> made = this->make(m, n, count, level, "");
      const index k = std::min(m, n), most = std::max(m, n);
      const dense<T> A = random_matrix<T>(m, n * count, 1), right = random_matrix<T>(most, 2 * count, 2);
      dense<T> F = A, Q = copy_of<T>(A.view().block(0, 0, m, k * count)), C = random_matrix<T>(m, 2 * count, 3), X = right;
      std::vector<T> tau(static_cast<std::size_t>(k * count));
      const auto batch = [count = count](dense<T>& all, index rows, index columns) {
        return batch_of(column_major(all.data(), rows, columns), count);
      };
      EXPECT_EQ(second_of([&] {
                  std::copy_n(A.data(), F.size(), F.data());
                  EXPECT_EQ(made.geqrf(batch(F, m, n), tau).detected, 0u);
                }),
                0)
          << "geqrf";
      EXPECT_EQ(second_of([&] {
                  for (index b = 0; b < count; ++b) std::copy_n(F.data() + b * m * n, m * k, Q.data() + b * m * k);
                  EXPECT_EQ(made.orgqr(batch(Q, m, k), std::as_const(tau)).detected, 0u);
                }),
                0)
          << "orgqr";
      const matrix_batch_view<const T> factors = batch(F, m, n);
      EXPECT_EQ(second_of([&] { EXPECT_EQ(made.ormqr(side::left, transpose::yes, factors, tau, batch(C, m, 2)).detected, 0u); }), 0)
          << "ormqr";
      EXPECT_EQ(second_of([&] {
                  std::copy_n(A.data(), F.size(), F.data());
                  std::copy_n(right.data(), X.size(), X.data());
                  EXPECT_EQ(made.gels(batch(F, m, n), batch(X, most, 2)).detected, 0u);
                }),
                0)
          << "gels";
    }
  }
}

#if defined(BALLAST_TEST_QR_ON_CUDA)

TYPED_TEST(qr_allocation, enqueued_batches_allocate_nothing_the_second_time) {
  using T = typename TestFixture::T;
  const auto device = ballast::cuda::current_device();
  constexpr index m = 20, n = 12, count = 5, size = static_cast<index>(sizeof(T));
  const ballast::cuda::device_buffer there(device, m * n * count * size), scalars(device, n * count * size);
  device->zero(there.data(), there.bytes(), nullptr);
  const matrix_batch_view<T> view = batch_of(column_major(static_cast<T*>(there.data()), m, n), count);
  const std::span<T> tau(static_cast<T*>(scalars.data()), static_cast<std::size_t>(n * count));
  const plan<T> made = this->make(m, n, count, protection::correct, "");
  EXPECT_EQ(second_of([&] { (void)made.enqueue_geqrf(view, tau).get(); }), 0);
}

#else

// Every allocation of a plan's construction and first call fails once, in turn.
TYPED_TEST(qr_allocation, memory_that_runs_out_is_an_error_of_its_class) {
  using T = typename TestFixture::T;
  constexpr index m = 50, n = 40;
  const dense<T> A = this->matrix(m, n, false), right = random_matrix<T>(m, 2, 2);
  const problem size{.rows = m, .columns = n};
  const execution where{.backend = this->which, .threads = 1};
  dense<T> expected = A, solution = right;
  (void)plan<T>(size, where).gels(expected.view(), solution.view());
  std::int64_t number = 0;
  for (bool failed = true; failed; number = 1 + number * 11 / 10) {
    SCOPED_TRACE(number);
    dense<T> F = A, X = right;
    std::optional<plan<T>> made;
    try {
      const test::failing_allocation fails(number);
      try {
        made.emplace(size, where);
        (void)made->gels(F.view(), X.view());
      } catch (...) {
        failed = fails.failed();
        throw;
      }
      failed = fails.failed();  // the library continued without it
    } catch (const out_of_memory_error& seen) {
      EXPECT_NE(std::string(seen.what()).find("qr"), std::string::npos) << seen.what();
      EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), F.data())) << "a result was committed";
    }
    if (!made) continue;
    std::copy_n(A.data(), F.size(), F.data());
    std::copy_n(right.data(), X.size(), X.data());
    (void)made->gels(F.view(), X.view());
    EXPECT_TRUE(std::equal(solution.data(), solution.data() + solution.size(), X.data())) << "the plan can be used afterwards";
  }
  EXPECT_GT(number, 10);
}

#endif

}  // namespace
}  // namespace ballast::qr
