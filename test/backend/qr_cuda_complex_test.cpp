// QR of complex matrices on cuda, on the emulator: accuracy against long double, LAPACK's conventions, application of Q from both sides,
// least squares, batches, hard data, and what is refused. Faults: qr_cuda_complex_faults_test.cpp.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "backend/qr_cuda_complex_cases.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

class emulated final : public testing::Environment {
 public:
  void SetUp() override { cuda::override_device(std::make_shared<simt::emulated_device>()); }
  void TearDown() override { cuda::override_device(nullptr); }
};
[[maybe_unused]] const auto* const k_emulated = testing::AddGlobalTestEnvironment(new emulated);

TYPED_SUITE(qr_cuda_complex, complex_on_cuda, test::number_names);

TYPED_TEST(qr_cuda_complex, factors_every_shape_accurately_with_a_real_diagonal) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->sizes()) {
    const dense<S> A = random_complex<S>(m, n, static_cast<std::uint64_t>(m * 1000 + n));
    const factored<S> made = factor_in_place<S>(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
    EXPECT_EQ(made.report.detected, 0u);
    EXPECT_EQ(made.report.backend, backend::cuda);
    EXPECT_EQ(made.report.problem, to_token(this->problem_here(m, n)));
    EXPECT_EQ(made.report.checks, 2u);
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 10) << m << " × " << n;
    EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    for (index j = 0; j < std::min(m, n); ++j) EXPECT_EQ(made.F(j, j).imag(), 0) << m << " × " << n << ", " << j;
    // The same numbers without protection.
    run::settings bare = this->how();
    bare.protection = protection::off;
    const factored<S> same = factor_in_place<S>(A, bare);
    EXPECT_EQ(same.tau, made.tau) << m << " × " << n;
    EXPECT_TRUE(std::equal(same.F.data(), same.F.data() + same.F.size(), made.F.data())) << m << " × " << n;
    EXPECT_EQ(same.report.checks, 0u);
    if (m == n && m > 2) continue;  // the last rows of a square matrix are ill-conditioned
    const factored<S> host = factor_in_place<S>(A, {.backend = backend::reference});
    const double tolerance = 1000 * static_cast<double>(std::max(m, n)) * this->u;
    for (std::size_t j = 0; j < made.tau.size(); ++j) EXPECT_LT(std::abs(made.tau[j] - host.tau[j]), tolerance) << m << " × " << n;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i)
        ASSERT_LT(std::abs(made.F(i, j) - host.F(i, j)), tolerance * std::sqrt(static_cast<double>(m))) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr_cuda_complex, factors_every_kind_of_data_accurately_and_without_alarm) {
  using S = typename TestFixture::S;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 8}, {20, 13}, {13, 20}, {60, 40}}) {
      const dense<S> A = complex_of_kind<S>(kind, m, n, 5);
      const factored<S> made = factor_in_place<S>(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.detected, 0u) << kind << " " << m << " × " << n;
      const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 30) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 30) << kind << " " << m << " × " << n;
      for (index j = 0; j < std::min(m, n); ++j) EXPECT_EQ(made.F(j, j).imag(), 0) << kind;
    }
  }
}

TYPED_TEST(qr_cuda_complex, a_triangle_keeps_its_rows_up_to_their_phase) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{1, 1}, {7, 7}, {16, 9}, {9, 16}, {40, 30}}) {
    dense<S> A = complex_of_kind<S>("triangular", m, n, 5);
    for (index j = 0; j < std::min(m, n); j += 2) A(j, j) = S(A(j, j).real(), 0);
    const factored<S> made = factor_in_place<S>(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    for (index j = 0; j < std::min(m, n); ++j) {
      EXPECT_EQ(made.F(j, j).imag(), 0);
      // LAPACK leaves a real number alone, and makes a complex one real.
      if (j % 2 == 0) {
        EXPECT_EQ(made.tau[place(j)], S(0)) << m << " × " << n << ", " << j;
        EXPECT_EQ(made.F(j, j), A(j, j));
      } else {
        EXPECT_NE(made.tau[place(j)], S(0));
        EXPECT_NEAR(std::abs(made.F(j, j)), std::abs(A(j, j)), 8 * this->u * std::abs(A(j, j)));
      }
    }
  }
}

TYPED_TEST(qr_cuda_complex, inf_and_nan_pass_through_and_are_no_fault) {
  using S = typename TestFixture::S;
  using real = typename TestFixture::real;
  dense<S> A = random_complex<S>(10, 6, 5);
  A(4, 3) = S(1, std::numeric_limits<real>::quiet_NaN());
  const factored<S> made = factor_in_place<S>(A, this->how());
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_EQ(made.report.detected, 0u);
  const factored<S> expected = factor_in_place<S>(random_complex<S>(10, 6, 5), this->how());
  for (index i = 0; i < 10; ++i) {
    for (index j = 0; j < 3; ++j) EXPECT_EQ(made.F(i, j), expected.F(i, j));
  }
  EXPECT_TRUE(std::isnan(std::abs(made.F(9, 3))));
  A(4, 3) = S(std::numeric_limits<real>::infinity(), 0);
  EXPECT_EQ(factor_in_place<S>(A, this->how()).report.detected, 0u);
}

// Q applied to few columns and to more than one team has.
TYPED_TEST(qr_cuda_complex, ormqr_applies_q_and_its_conjugate_transpose_from_both_sides) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{1, 1}, {8, 5}, {5, 8}, {16, 16}, {30, 12}, {70, 20}}) {
    const factored<S> made = factor_in_place<S>(random_complex<S>(m, n, 6), this->how());
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        for (const order layout : {order::column_major, order::row_major}) {
          const index other = m == 8 ? 300 : 19;
          const dense<S> C0 = random_complex<S>(where == side::left ? m : other, where == side::left ? other : m, 7);
          dense<S> C = copy_of<S>(C0, layout);
          const report seen = ormqr(where, op, made.F.view(), made.tau, C.view(), this->how());
          EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_GT(seen.checks, 0u);
          const dense<S> expected = complex_applied<S>(where, op, made.F, made.tau, C0);
          const double tolerance = 10 * static_cast<double>(m) * this->u * std::sqrt(static_cast<double>(m)) + 4 * this->u;
          for (index i = 0; i < C.rows(); ++i) {
            for (index j = 0; j < C.columns(); ++j)
              ASSERT_LT(std::abs(C(i, j) - expected(i, j)), tolerance) << m << " × " << n << " " << (where == side::left);
          }
        }
      }
    }
  }
  // No reflectors: C stays.
  const dense<S> C0 = random_complex<S>(6, 4, 1);
  dense<S> C = copy_of<S>(C0);
  EXPECT_EQ(ormqr(side::left, transpose::no, matrix_view<const S>(C0.view()), std::span<const S>(), C.view(), this->how()).verdict,
            verdict::clean);
  EXPECT_TRUE(std::equal(C.data(), C.data() + C.size(), C0.data()));
}

TYPED_TEST(qr_cuda_complex, orgqr_makes_orthonormal_columns_and_factors_give_back_the_matrix) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{1, 1}, {8, 8}, {16, 7}, {7, 16}, {40, 24}, {33, 70}, {64, 64}}) {
    const dense<S> A = copy_of<S>(random_complex<S>(m, n, 9), order::row_major);
    const auto made = factor(A.view(), this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    const computed<S> formed = q_of(made, this->how());
    const matrix<S>&Q = formed.values, R = made.r();
    EXPECT_EQ(formed.report.verdict, verdict::clean);
    EXPECT_GT(formed.report.checks, 0u);
    const double tolerance = 20 * static_cast<double>(std::max(m, n)) * this->u;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        long_complex sum = -long_complex(A(i, j));
        for (index l = 0; l < R.rows(); ++l) sum += long_complex(Q(i, l)) * long_complex(R(l, j));
        ASSERT_LT(std::abs(sum), tolerance) << m << " × " << n;
      }
    }
    for (index j = 0; j < Q.columns(); ++j) {
      for (index l = 0; l <= j; ++l) {
        long_complex sum = j == l ? -1 : 0;
        for (index i = 0; i < m; ++i) sum += std::conj(long_complex(Q(i, l))) * long_complex(Q(i, j));
        ASSERT_LT(std::abs(sum), tolerance) << m << " × " << n;
      }
    }
    if (m < n) continue;
    dense<S> again = copy_of<S>(made.storage.view());
    EXPECT_EQ(orgqr(again.view(), made.tau, this->how()).verdict, verdict::clean);
    EXPECT_TRUE(std::equal(again.data(), again.data() + again.size(), Q.data()));
  }
}

// Overdetermined: Aᴴ(b − Ax) = 0, and the rows below X have the norm of b − Ax. Underdetermined: Ax = b, and x is that of the host.
TYPED_TEST(qr_cuda_complex, gels_solves_over_and_underdetermined_systems) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{2, 2}, {16, 7}, {7, 16}, {40, 24}, {24, 40}, {70, 33}, {33, 70}}) {
    const index k = 3;
    const dense<S> A = random_complex<S>(m, n, 10), B = random_complex<S>(std::max(m, n), k, 11);
    dense<S> F = copy_of<S>(A, m % 2 == 0 ? order::column_major : order::row_major), X = copy_of<S>(B, order::row_major);
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_GE(seen.condition, 1 - 1e-3);
    dense<S> on_host = copy_of<S>(A), expected = copy_of<S>(B);
    const report from_host = gels(on_host.view(), expected.view(), run::settings{.backend = backend::reference});
    EXPECT_NEAR(seen.condition, from_host.condition, 1e-2 * from_host.condition);
    const double tolerance = 3000 * static_cast<double>(std::max(m, n)) * this->u * from_host.condition;
    for (index c = 0; c < k; ++c) {
      for (index j = 0; j < n; ++j) EXPECT_LT(std::abs(X(j, c) - expected(j, c)), tolerance) << m << " × " << n;
      long double rest = 0, squares = 0;
      for (index i = 0; i < m; ++i) {
        long_complex left = B(i, c);
        for (index j = 0; j < n; ++j) left -= long_complex(A(i, j)) * long_complex(X(j, c));
        squares += std::norm(left);
      }
      for (index i = n; i < m; ++i) rest += std::norm(long_complex(X(i, c)));
      EXPECT_NEAR(std::sqrt(rest), std::sqrt(squares), tolerance);
    }
    // A holds what the host leaves there: the factors of A, or L and the rows of LAPACK's xGELQF.
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) EXPECT_LT(std::abs(F(i, j) - on_host(i, j)), tolerance) << m << " × " << n;
    }
    if (m < n) continue;
    const auto made = factor(matrix_view<const S>(A.view()), this->how());
    const matrix<S> again = solution_of(made, B.view(), this->how()).values;
    for (index i = 0; i < n; ++i) {
      for (index c = 0; c < k; ++c) EXPECT_LT(std::abs(again(i, c) - X(i, c)), tolerance);
    }
  }
}

TYPED_TEST(qr_cuda_complex, gels_refuses_dependent_columns_and_leaves_both_operands) {
  using S = typename TestFixture::S;
  for (const bool under : {false, true}) {
    dense<S> A = random_complex<S>(under ? 12 : 40, under ? 40 : 12, 30);
    const dense<S> B = random_complex<S>(40, 2, 31);
    for (index i = 0; i < 40; ++i) (under ? A(7, i) : A(i, 7)) = (under ? A(2, i) : A(i, 2)) * S(0, 1);
    dense<S> F = copy_of<S>(A), X = copy_of<S>(B);
    try {
      (void)gels(F.view(), X.view(), this->how());
      ADD_FAILURE() << "dependent columns were accepted";
    } catch (const rank_deficient_error& e) {
      EXPECT_NE(std::string(e.what()).find("rank 11 of 12"), std::string::npos) << e.what();
    }
    EXPECT_TRUE(std::equal(F.data(), F.data() + F.size(), A.data()));
    EXPECT_TRUE(std::equal(X.data(), X.data() + X.size(), B.data()));
  }
}

// Numbers near the ends of the range.
TYPED_TEST(qr_cuda_complex, extreme_sizes_lose_nothing) {
  using S = typename TestFixture::S;
  using real = typename TestFixture::real;
  for (const int e : {sizeof(real) == 4 ? 125 : 1020, sizeof(real) == 4 ? -120 : -1000}) {
    dense<S> A = random_complex<S>(20, 9, 12);
    real most = 0;
    for (std::size_t i = 0; i < A.size(); ++i) most = std::max({most, std::abs(A.data()[i].real()), std::abs(A.data()[i].imag())});
    for (std::size_t i = 0; i < A.size(); ++i) A.data()[i] = scaled(A.data()[i] / (4 * most), e);
    const factored<S> made = factor_in_place<S>(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << e << to_json(made.report);
    EXPECT_EQ(made.report.detected, 0u) << e;
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 10) << e;
    EXPECT_LT(seen.orthogonality, 10) << e;
  }
}

// A batch of all operations, with strides: rows contiguous, matrices interleaved.
TYPED_TEST(qr_cuda_complex, batches_have_the_bits_of_single_matrices) {
  using S = typename TestFixture::S;
  const index count = 5;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{6, 6}, {9, 5}, {5, 9}, {40, 20}}) {
    const index k = std::min(m, n), most = std::max(m, n), columns = 3;
    std::vector<S> memory(place(m * (n + 2) * count), S(77, 1)), tau(place(k * count)), right(place(most * columns * count));
    const matrix_batch_view<S> A{memory.data(), count, m, n, (n + 2) * count, count, 1};
    const matrix_batch_view<S> B{right.data(), count, most, columns, 1, most, most * columns};
    std::vector<dense<S>> each, rhs;
    for (index b = 0; b < count; ++b) {
      each.push_back(random_complex<S>(m, n, static_cast<std::uint64_t>(40 + b)));
      rhs.push_back(random_complex<S>(most, columns, static_cast<std::uint64_t>(60 + b)));
      for (index i = 0; i < m; ++i) {
        for (index j = 0; j < n; ++j) A[b](i, j) = each[place(b)](i, j);
      }
      for (index i = 0; i < most; ++i) {
        for (index j = 0; j < columns; ++j) B[b](i, j) = rhs[place(b)](i, j);
      }
    }
    const std::vector<S> given = memory;
    const report seen = geqrf(A, std::span<S>(tau), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_EQ(seen.checks, 2u * count);
    for (index b = 0; b < count; ++b) {
      const factored<S> one = factor_in_place<S>(each[place(b)], this->how());
      for (index j = 0; j < k; ++j) EXPECT_EQ(tau[place(b * k + j)], one.tau[place(j)]);
      for (index i = 0; i < m; ++i) {
        for (index j = 0; j < n; ++j) ASSERT_EQ(A[b](i, j), one.F(i, j)) << m << " × " << n;
        for (index j = n; j < n + 2; ++j) EXPECT_EQ(memory[place((i * (n + 2) + j) * count + b)], S(77, 1));
      }
    }
    memory = given;
    const report solved = gels(A, B, this->how());
    EXPECT_EQ(solved.verdict, verdict::clean) << to_json(solved);
    for (index b = 0; b < count; ++b) {
      dense<S> F = copy_of<S>(each[place(b)].view()), X = copy_of<S>(rhs[place(b)].view());
      (void)gels(F.view(), X.view(), this->how());
      for (index i = 0; i < most; ++i) {
        for (index j = 0; j < columns; ++j) EXPECT_EQ(B[b](i, j), X(i, j)) << m << " × " << n;
      }
    }
  }
}

TYPED_TEST(qr_cuda_complex, plans_serve_many_calls_and_enqueue) {
  using S = typename TestFixture::S;
  const index m = 20, n = 12, count = 5;
  const plan<S> made({.rows = m, .columns = n, .batch = count}, {.backend = backend::cuda});
  EXPECT_EQ(made.backend(), backend::cuda);
  const dense<S> all = random_complex<S>(m, n * count, 3);
  const auto device = cuda::current_device();
  const std::int64_t bytes = made.workspace_bytes(operation::gels);
  EXPECT_GT(bytes, n * count * static_cast<index>(sizeof(S)));
  const cuda::device_buffer there(device, all.size() * static_cast<index>(sizeof(S))),
      scalars(device, n * count * static_cast<index>(sizeof(S)));
  for (int round = 0; round < 2; ++round) {
    dense<S> F = copy_of<S>(all.view());
    std::vector<S> tau(place(n * count));
    EXPECT_EQ(made.geqrf(batch_of(column_major(F.data(), m, n), count), tau).verdict, verdict::clean);
    device->copy(there.data(), all.data(), there.bytes(), nullptr);
    pending_report pending = made.enqueue_geqrf(batch_of(column_major(static_cast<S*>(there.data()), m, n), count),
                                                {static_cast<S*>(scalars.data()), place(n * count)});
    EXPECT_EQ(pending.get().verdict, verdict::clean);
    EXPECT_TRUE(std::equal(F.data(), F.data() + F.size(), static_cast<const S*>(there.data())));
    EXPECT_TRUE(std::equal(tau.begin(), tau.end(), static_cast<const S*>(scalars.data())));
  }
  // A batch whose backend is chosen for it takes the device; a single matrix, whose plan pivots, too, does not.
  EXPECT_EQ(plan<S>({.rows = m, .columns = n, .batch = count}, {}).backend(), backend::cuda);
  EXPECT_NE(plan<S>({.rows = m, .columns = n}, {}).backend(), backend::cuda);
}

TYPED_TEST(qr_cuda_complex, refuses_what_is_not_there_with_the_reason) {
  using S = typename TestFixture::S;
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const unsupported_error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  const execution on_cuda{.backend = backend::cuda};
  const std::string text =
      message([&] { plan<S>({.rows = 20, .columns = 8, .batch = 3}, {.backend = backend::cuda, .scheme = "qr_update"}); });
  EXPECT_TRUE(has(text, "qr_update")) << text;
  EXPECT_EQ(plan<S>({.rows = 20, .columns = 8}, {.scheme = "hybrid"}).backend(), backend::cuda);
  dense<S> A = random_complex<S>(20, 8, 1);
  std::vector<S> tau(8);
  EXPECT_THROW((void)geqrf(A.view(), std::span<S>(tau).first(3), on_cuda), invalid_argument_error);
  EXPECT_THROW((void)geqrf(matrix_view<S>{nullptr, 6, 4, 1, 6}, std::span<S>(tau).first(4), on_cuda), invalid_argument_error);
}

// A device without clusters has kernels for fewer columns; the engine takes the others.
TYPED_TEST(qr_cuda_complex, a_device_without_clusters_factors_all_sizes) {
  using S = typename TestFixture::S;
  const auto before = cuda::overriding_device();
  cuda::override_device(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, 8)));
  const dense<S> A = random_complex<S>(40, 20, 3);
  EXPECT_EQ(factor_in_place<S>(A, this->how()).report.verdict, verdict::clean);
  const dense<S> large = random_complex<S>(130, 130, 3);
  const factored<S> made = factor_in_place<S>(large, this->how());
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  const ratios seen = complex_ratios_of<S>(large, made.F, made.tau);
  EXPECT_LT(seen.residual, 10);
  EXPECT_LT(seen.orthogonality, 10);
  cuda::forget_idle_states();
  cuda::override_device(before);
}

}  // namespace
}  // namespace ballast::qr
