// QR on every backend, in one program on those of the host, in the other on cuda by the emulator: accuracy against long double sums,
// LAPACK's conventions, strides, least squares, hard data and bad input.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

TYPED_SUITE(qr, settings, test::setting_names);

TYPED_TEST(qr, factors_every_shape_accurately_with_both_schemes) {
  using T = typename TestFixture::T;
  for (const char* scheme : k_schemes) {
    for (const auto& [m, n] : this->shapes()) {
      const dense<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m * 1000 + n));
      const factored<T> made = factor_in_place<T>(A, this->how(scheme));
      EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.backend, this->which);
      EXPECT_EQ(made.report.scheme, scheme);
      EXPECT_EQ(made.report.problem, to_token({precision_of<T>, m, n}));
      EXPECT_GT(made.report.checks, 0u);
      const ratios seen = ratios_of<T>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 10) << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, factors_every_kind_of_data_accurately_and_without_alarm) {
  using T = typename TestFixture::T;
  for (const auto& [kind, m, n] : this->kinds_and_shapes(k_kinds)) {
    if (m * n > (test::sampled() ? 50000 : 400000)) continue;
    const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
    const factored<T> made = factor_in_place<T>(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
    const ratios seen = ratios_of<T>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 10) << kind << " " << m << " × " << n;
    EXPECT_LT(seen.orthogonality, 10) << kind << " " << m << " × " << n;
  }
}

TYPED_TEST(qr, has_lapacks_storage_and_signs) {
  using T = typename TestFixture::T;
  const double u = abft::unit_roundoff<T>;
  for (const auto& [m, n] : this->shapes()) {
    if (m == n) continue;  // a square matrix has an ill-conditioned last row
    const dense<T> A = random_matrix<T>(m, n, 3);
    const factored<T> made = factor_in_place<T>(A, this->how());
    dense<T> expected = copy_of<T>(A);
    std::vector<T> tau(made.tau.size());
    lapack(expected, tau);
    // Both are off by c·u·κ of the leading columns; random ones have κ of some tens.
    const double tolerance = 500 * static_cast<double>(std::max(m, n)) * u;
    for (std::size_t j = 0; j < tau.size(); ++j) EXPECT_NEAR(made.tau[j], tau[j], tolerance) << m << " × " << n;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i)
        ASSERT_NEAR(made.F(i, j), expected(i, j), tolerance * std::sqrt(static_cast<double>(m))) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, a_zero_tail_gives_tau_zero) {
  using T = typename TestFixture::T;
  for (const auto& [kind, m, n] : this->kinds_and_shapes({"zero", "identity", "triangular"})) {
    const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
    const factored<T> made = factor_in_place<T>(A, this->how());
    for (const T tau : made.tau) EXPECT_EQ(tau, 0) << kind << " " << m << " × " << n;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) ASSERT_EQ(made.F(i, j), A(i, j)) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, takes_any_strides_and_leaves_the_rest_alone) {
  using T = typename TestFixture::T;
  const index m = 23, n = 11;
  const dense<T> A = random_matrix<T>(m, n, 4);
  const factored<T> expected = factor_in_place<T>(A, this->how());
  const T mark = static_cast<T>(-77);
  for (const auto& [rs, cs] :
       std::vector<std::pair<index, index>>{{1, m}, {1, m + 5}, {n, 1}, {n + 3, 1}, {2, 2 * m + 1}, {-1, m}, {1, -m - 2}, {40, 3}}) {
    const index span = (m - 1) * std::abs(rs) + (n - 1) * std::abs(cs) + 1;
    std::vector<T> memory(static_cast<std::size_t>(span), mark);
    T* const first = memory.data() + (rs < 0 ? -(m - 1) * rs : 0) + (cs < 0 ? -(n - 1) * cs : 0);
    const matrix_view<T> view{first, m, n, rs, cs};
    std::vector<bool> inside(static_cast<std::size_t>(span), false);
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) {
        view(i, j) = A(i, j);
        inside[static_cast<std::size_t>(&view(i, j) - memory.data())] = true;
      }
    }
    std::vector<T> tau(static_cast<std::size_t>(n));
    EXPECT_EQ(geqrf(view, tau, this->how()).verdict, verdict::clean);
    EXPECT_EQ(tau, expected.tau);
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) EXPECT_EQ(view(i, j), expected.F(i, j));
    }
    for (std::size_t at = 0; at < memory.size(); ++at) {
      if (!inside[at]) {
        EXPECT_EQ(memory[at], mark);
      }
    }
  }
}

TYPED_TEST(qr, does_not_depend_on_threads_scheme_of_checks_or_protection) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    const dense<T> A = random_matrix<T>(m, n, 8);
    const factored<T> expected = factor_in_place<T>(A, this->how());
    for (const int threads : {1, 2, 3}) {
      if (this->which == backend::cuda && test::sampled() && threads == 2) continue;
      for (const protection level : {protection::off, protection::detect, protection::correct}) {
        run::settings how = this->how();
        how.threads = threads;
        how.protection = level;
        const factored<T> made = factor_in_place<T>(A, how);
        EXPECT_EQ(made.tau, expected.tau) << m << " × " << n << " " << threads;
        EXPECT_TRUE(std::equal(made.F.data(), made.F.data() + made.F.size(), expected.F.data())) << m << " × " << n << " " << threads;
        EXPECT_EQ(made.report.verdict, verdict::clean);
      }
    }
  }
}

// C as the mathematics has it: reflectors one by one in long double.
template <class T>
dense<T> applied(side where, transpose op, const dense<T>& F, const std::vector<T>& tau, const dense<T>& C) {
  const index k = static_cast<index>(tau.size());
  dense<T> made = C;
  const matrix_view<T> X = where == side::left ? made.view() : made.view().transposed();
  const bool forward = (op == transpose::yes) == (where == side::left);
  for (index c = 0; c < X.columns; ++c) {
    std::vector<long double> x(static_cast<std::size_t>(X.rows));
    for (index i = 0; i < X.rows; ++i) x[static_cast<std::size_t>(i)] = X(i, c);
    for (index s = 0; s < k; ++s) {
      const index j = forward ? s : k - 1 - s;
      long double dot = x[static_cast<std::size_t>(j)];
      for (index i = j + 1; i < X.rows; ++i) dot += static_cast<long double>(F(i, j)) * x[static_cast<std::size_t>(i)];
      dot *= static_cast<long double>(tau[static_cast<std::size_t>(j)]);
      x[static_cast<std::size_t>(j)] -= dot;
      for (index i = j + 1; i < X.rows; ++i) x[static_cast<std::size_t>(i)] -= static_cast<long double>(F(i, j)) * dot;
    }
    for (index i = 0; i < X.rows; ++i) X(i, c) = static_cast<T>(x[static_cast<std::size_t>(i)]);
  }
  return made;
}

TYPED_TEST(qr, ormqr_applies_q_from_both_sides) {
  using T = typename TestFixture::T;
  // A sample on the emulator takes each of the eight ways with half of the shapes, in double with the other half.
  std::uint64_t number = sizeof(T) == 8 ? 1 : 0;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
    ++number;
    const factored<T> made = factor_in_place<T>(random_matrix<T>(m, n, 6), this->how());
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        for (const order layout : {order::column_major, order::row_major}) {
          if (!test::taken(number++, this->which == backend::cuda ? 2 : 1)) continue;
          const index other = 19;
          const dense<T> C0 = random_matrix<T>(where == side::left ? m : other, where == side::left ? other : m, 7);
          dense<T> C = copy_of<T>(C0, layout);
          const report seen = ormqr(where, op, made.F.view(), made.tau, C.view(), this->how());
          EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_GT(seen.checks, 0u);
          const dense<T> expected = applied<T>(where, op, made.F, made.tau, C0);
          const double tolerance = 10 * static_cast<double>(m) * abft::unit_roundoff<T> * std::sqrt(static_cast<double>(m));
          for (index i = 0; i < C.rows(); ++i) {
            for (index j = 0; j < C.columns(); ++j) ASSERT_NEAR(C(i, j), expected(i, j), tolerance) << m << " × " << n;
          }
        }
      }
    }
  }
}

TYPED_TEST(qr, ormqr_takes_reflectors_that_are_none) {
  using T = typename TestFixture::T;
  // LAPACK applies any given v and tau; so does Ballast, without an alarm.
  const dense<T> V = random_matrix<T>(20, 6, 1);
  const std::vector<T> tau = {T(0.3), T(0), T(1), T(-0.5), T(0.01), T(0)};
  const dense<T> C0 = random_matrix<T>(20, 4, 2);
  dense<T> C = copy_of<T>(C0);
  // Such a product grows: 1 + |tau|‖v‖² for each.
  run::settings how = this->how();
  how.protection = protection::off;
  EXPECT_EQ(ormqr(side::left, transpose::no, V.view(), tau, C.view(), how).verdict, verdict::clean);
  const dense<T> expected = applied<T>(side::left, transpose::no, V, tau, C0);
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) size = std::max(size, std::abs(static_cast<double>(expected.data()[i])));
  for (index i = 0; i < 20; ++i) {
    for (index j = 0; j < 4; ++j) EXPECT_NEAR(C(i, j), expected(i, j), size * 1000 * abft::unit_roundoff<T>);
  }
  EXPECT_EQ(ormqr(side::left, transpose::no, V.view(), std::vector<T>{}, C.view(), this->how()).verdict, verdict::clean);
}

TYPED_TEST(qr, orgqr_makes_orthonormal_columns) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m < n || m > 1000) continue;
    for (const index k : {n, (n + 1) / 2}) {
      factored<T> made = factor_in_place<T>(random_matrix<T>(m, k, 6), this->how());
      dense<T> Q(m, n, order::column_major);
      for (index j = 0; j < k; ++j) {
        for (index i = 0; i < m; ++i) Q(i, j) = made.F(i, j);
      }
      EXPECT_EQ(orgqr(Q.view(), made.tau, this->how()).verdict, verdict::clean);
      dense<T> unit(m, n, order::column_major);
      for (index j = 0; j < n; ++j) unit(j, j) = 1;
      const dense<T> expected = applied<T>(side::left, transpose::no, made.F, made.tau, unit);
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < m; ++i) ASSERT_NEAR(Q(i, j), expected(i, j), 10 * static_cast<double>(m) * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr, owning_factors_give_back_the_matrix) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
    const dense<T> A = copy_of<T>(random_matrix<T>(m, n, 9), order::row_major);
    const auto made = factor(A.view(), this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    const computed<T> formed = q_of(made, this->how());
    const matrix<T>& Q = formed.values;
    const matrix<T> R = made.r();
    EXPECT_EQ(formed.report.verdict, verdict::clean);
    EXPECT_GT(formed.report.checks, 0u);
    ASSERT_EQ(Q.columns(), std::min(m, n));
    ASSERT_EQ(R.rows(), std::min(m, n));
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) {
        double sum = 0;
        for (index l = 0; l < R.rows(); ++l) sum += static_cast<double>(Q(i, l)) * R(l, j);
        ASSERT_NEAR(sum, A(i, j), 20 * static_cast<double>(std::max(m, n)) * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr, gels_solves_over_and_underdetermined_systems) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000 || m == n) continue;
    for (const index k : {1, 3}) {
      // A sample on the emulator takes one column in single precision, three in double.
      if (this->which == backend::cuda && test::sampled() && (k == 1) != (sizeof(T) == 4)) continue;
      const dense<T> A = random_matrix<T>(m, n, 10);
      const dense<T> B = random_matrix<T>(std::max(m, n), k, 11);
      dense<T> F = copy_of<T>(A), X = copy_of<T>(B, order::row_major);
      const report seen = gels(F.view(), X.view(), this->how());
      EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      const double tolerance = 3000 * static_cast<double>(std::max(m, n)) * abft::unit_roundoff<T>;
      for (index c = 0; c < k; ++c) {
        // Overdetermined: Aᵀ(b − Ax) = 0 and ‖b − Ax‖ in the rest. Underdetermined: Ax = b and x in the range of Aᵀ, which its length
        // shows.
        std::vector<double> residual(static_cast<std::size_t>(m));
        double squares = 0, rest = 0;
        for (index i = 0; i < m; ++i) {
          double sum = B(i, c);
          for (index j = 0; j < n; ++j) sum -= static_cast<double>(A(i, j)) * X(j, c);
          residual[static_cast<std::size_t>(i)] = sum;
          squares += sum * sum;
        }
        if (m > n) {
          for (index j = 0; j < n; ++j) {
            double sum = 0;
            for (index i = 0; i < m; ++i) sum += residual[static_cast<std::size_t>(i)] * A(i, j);
            EXPECT_NEAR(sum, 0, tolerance);
          }
          for (index i = n; i < m; ++i) rest += static_cast<double>(X(i, c)) * X(i, c);
          EXPECT_NEAR(std::sqrt(rest), std::sqrt(squares), tolerance);
        } else {
          EXPECT_NEAR(std::sqrt(squares), 0, tolerance);
          // x = Aᵀ y for the y with A Aᵀ y = b: x is orthogonal to what A does not see. A basis of that: Q's last columns of Aᵀ = QR.
          const auto transposed = factor(matrix_view<const T>(A.view().transposed()), this->how());
          dense<T> x(n, 1, order::column_major);
          for (index i = 0; i < n; ++i) x(i, 0) = X(i, c);
          (void)ormqr(side::left, transpose::yes, transposed.storage.view(), transposed.tau, x.view(), this->how());
          for (index i = m; i < n; ++i) EXPECT_NEAR(x(i, 0), 0, tolerance);
        }
      }
      if (m > n) {
        const auto made = factor(matrix_view<const T>(A.view()), this->how());
        const matrix<T> again = solution_of(made, B.view(), this->how()).values;
        for (index i = 0; i < n; ++i) {
          for (index c = 0; c < k; ++c) EXPECT_NEAR(again(i, c), X(i, c), tolerance);
        }
      }
    }
  }
}

TEST(longley, agrees_with_the_certified_coefficients_to_nine_digits) {
  for (const backend which : k_backends) {
    for (const char* scheme : k_schemes) {
      dense<double> A, b;
      longley(A, b);
      const run::settings how{.backend = which, .scheme = scheme};
      EXPECT_EQ(gels(A.view(), b.view(), how).verdict, verdict::clean);
      double digits = 16;
      for (index j = 0; j < 7; ++j) digits = std::min(digits, -std::log10(std::abs(b(j, 0) / k_certified[j] - 1)));
      EXPECT_GE(digits, 9) << to_string(which);
      RecordProperty(fmt::format("digits_{}", to_string(which)), static_cast<int>(digits * 10));
    }
  }
}

TYPED_TEST(qr, inf_and_nan_pass_through_without_alarm) {
  using T = typename TestFixture::T;
  for (const T odd : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()}) {
    for (const char* scheme : k_schemes) {
      dense<T> A = random_matrix<T>(30, 12, 12);
      A(17, 5) = odd;
      const factored<T> made = factor_in_place<T>(A, this->how(scheme));
      EXPECT_EQ(made.report.verdict, verdict::clean);
      EXPECT_EQ(made.report.detected, 0u);
      for (index j = 0; j < 5; ++j) {
        for (index i = 0; i < 30; ++i) EXPECT_TRUE(std::isfinite(made.F(i, j))) << "columns before the odd one are not touched by it";
      }
      EXPECT_FALSE(std::isfinite(made.F(5, 5)));
      dense<T> B = random_matrix<T>(30, 2, 13);
      const report seen = gels(A.view(), B.view(), this->how(scheme));
      EXPECT_EQ(seen.verdict, verdict::clean);
      EXPECT_FALSE(std::isfinite(B(6, 0)));
    }
    dense<T> C = random_matrix<T>(30, 4, 14);
    C(3, 2) = odd;
    const factored<T> made = factor_in_place<T>(random_matrix<T>(30, 12, 12), this->how());
    EXPECT_EQ(ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), this->how()).verdict, verdict::clean);
    EXPECT_FALSE(std::isfinite(C(0, 2)));
    EXPECT_TRUE(std::isfinite(C(0, 1)));
  }
}

TYPED_TEST(qr, a_solution_beyond_the_range_of_numbers_is_no_fault) {
  using T = typename TestFixture::T;
  dense<T> A(3, 2, order::column_major), B(3, 1, order::column_major);
  A(0, 0) = 1;
  A(1, 1) = std::numeric_limits<T>::denorm_min();
  B(0, 0) = 1;
  B(1, 0) = std::numeric_limits<T>::max();
  const report seen = gels(A.view(), B.view(), this->how());
  EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  EXPECT_TRUE(std::isinf(B(1, 0)));
}

TYPED_TEST(qr, refuses_what_has_no_meaning_and_says_why) {
  using T = typename TestFixture::T;
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& e) {
      return e.what();
    }
    return "no error";
  };
  dense<T> A(6, 4, order::column_major), C(6, 2, order::column_major);
  std::vector<T> tau(4);
  const run::settings how = this->how();
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(tau).first(3), how); }), "expected 4 elements, got 3"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(tau).first(3), how); }), to_token({precision_of<T>, 6, 4})));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 0, 4, 1, 6}, std::span<T>(tau), how); }), "at least 1"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{nullptr, 6, 4, 1, 6}, std::span<T>(tau), how); }), "null"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, 1, 3}, std::span<T>(tau), how); }), "apart"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, 0, 6}, std::span<T>(tau), how); }), "apart"));
  EXPECT_TRUE(has(message([&] {
                    (void)geqrf(matrix_view<T>{A.data(), index{1} << 40, 1, 1, 1}, std::span<T>(tau).first(1), how);
                  }),
                  "at most"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, index{1} << 61, 6}, std::span<T>(tau), how); }), "strides"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(A.data() + 2, 4), how); }), "overlapping"));
  EXPECT_TRUE(has(message([&] { (void)ormqr(side::left, transpose::no, A.view(), tau, dense<T>(5, 2).view(), how); }), "expected 5 rows"));
  EXPECT_TRUE(has(message([&] { (void)ormqr(side::left, transpose::no, A.view(), tau, A.view(), how); }), "overlapping"));
  EXPECT_TRUE(has(message([&] { (void)orgqr(A.view().transposed(), tau, how); }), "columns ≤ rows"));
  EXPECT_TRUE(has(message([&] { (void)gels(A.view(), dense<T>(5, 2).view(), how); }), "6 rows"));
  for (index i = 0; i < 6; ++i) A(i, 0) = 1;
  try {
    (void)gels(A.view(), C.view(), how);
    ADD_FAILURE() << "a singular matrix was accepted";
  } catch (const rank_deficient_error& e) {
    EXPECT_TRUE(has(e.what(), "full rank")) << e.what();
  }
  EXPECT_EQ(A(3, 0), 1) << "a result was committed";
  const auto factored = factor(matrix_view<const T>(A.view()), how);
  EXPECT_THROW((void)solution_of(factored, C.view(), how), rank_deficient_error);
  run::settings bad = how;
  bad.threads = -1;
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), invalid_argument_error);
  bad = how;
  bad.scheme = "magic";
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), unsupported_error);
  bad = how;
  bad.scheme = this->which == backend::cuda ? "magic" : "hybrid";  // needs a device
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), unsupported_error);
}

TEST(token, goes_both_ways_and_refuses_others) {
  EXPECT_EQ(to_token({precision::f64, 4096, 500}), "qr_f64_m4096_n500");
  const problem p = parse_token("qr_f32_m20000_n64");
  EXPECT_EQ(p.precision, precision::f32);
  EXPECT_EQ(p.rows, 20000);
  EXPECT_EQ(p.columns, 64);
  for (const char* bad : {"", "qr", "qr_f16_m1_n1", "qr_f64_m0_n1", "qr_f64_m1", "qr_f64_m1_n1_", "qr_f64_m-1_n1", "qr_f64_m1_n01",
                          "qr_f64_m1_n99999999999999999999"})
    EXPECT_THROW((void)parse_token(bad), invalid_argument_error) << bad;
}

TYPED_TEST(qr, constant_columns_are_factored_as_well_as_by_lapack) {
  using T = typename TestFixture::T;
  if (this->which != backend::cpu) return;  // plain sums, or those of the device's BLAS
  for (const char* kind : {"constant", "low rank"}) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{300, 100}, {1000, 100}, {6000, 24}, {20000, 12}}) {
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
      const factored<T> made = factor_in_place<T>(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
      dense<T> F = copy_of<T>(A);
      std::vector<T> tau(made.tau.size());
      lapack(F, tau);
      const ratios ours = ratios_of<T>(A, made.F, made.tau), theirs = ratios_of<T>(A, F, tau);
      const double size = static_cast<double>(m);  // ratios are in units of m u; within these of LAPACK nothing is to be told
      EXPECT_LT(ours.residual * size, 2 * theirs.residual * size + 32) << kind << " " << m << " × " << n;
      EXPECT_LT(ours.orthogonality * size, 3 * theirs.orthogonality * size + 16) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, very_wide_matrices_raise_no_alarm) {
  using T = typename TestFixture::T;
  for (const char* scheme : k_schemes) {
    for (auto [m, n] : std::vector<std::pair<index, index>>{{1, 60000}, {1, 5000}, {2, 30000}, {7, 20000}}) {
      if (this->which == backend::cuda) n /= test::sampled() ? 200 : 20;
      for (const char* kind : {"ones", "constant", "normal"}) {
        dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
        if (std::string(kind) == "ones") std::fill_n(A.data(), A.size(), T(1));
        const factored<T> made = factor_in_place<T>(A, this->how(scheme));
        EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << scheme << to_json(made.report);
        EXPECT_EQ(made.report.detected, 0u);
      }
    }
  }
}

// LAPACK scales A and B as a whole. Each case has a solution that is known.
TYPED_TEST(qr, least_squares_at_the_ends_of_the_range) {
  using T = typename TestFixture::T;
  constexpr bool single = sizeof(T) == 4;
  const auto power = [](double e) { return static_cast<T>(std::pow(10.0, single ? e / 8 : e)); };
  const auto expect = [&](const dense<T>& A0, const std::vector<double>& x, const dense<T>& B0, const std::string& name,
                          bool full_rank = true) {
    for (const char* scheme : k_schemes) {
      for (const protection level : {protection::off, protection::correct}) {
        run::settings how = this->how(scheme);
        how.protection = level;
        how.throw_on_uncorrectable = false;
        how.full_rank = full_rank;
        dense<T> A = A0, B = B0;
        const report seen = gels(A.view(), B.view(), how);
        EXPECT_EQ(seen.verdict, verdict::clean) << name << to_json(seen);
        EXPECT_EQ(seen.detected, 0u) << name << to_json(seen);
        for (std::size_t i = 0; i < x.size(); ++i)
          EXPECT_NEAR(static_cast<double>(B(static_cast<index>(i), 0)) / x[i], 1, 300 * abft::unit_roundoff<T>) << name << " " << i;
        // The factors are in A's units: they may be Inf, or subnormal and inaccurate.
        if (!full_rank || A0.rows() < A0.columns() || !(std::abs(A0(0, 0)) >= std::numeric_limits<T>::min() / abft::unit_roundoff<T>))
          continue;
        const auto made = factor(matrix_view<const T>(A0.view()), how);
        const matrix<T> again = solution_of(made, B0.view(), how).values;
        for (std::size_t i = 0; i < x.size() && std::isfinite(made.storage(0, 0)); ++i)
          EXPECT_NEAR(static_cast<double>(again(static_cast<index>(i), 0)) / x[i], 1, 300 * abft::unit_roundoff<T>) << name << " " << i;
      }
    }
  };
  const auto of = [](index m, index n, std::initializer_list<T> rows) {
    dense<T> made(m, n, order::column_major);
    index at = 0;
    for (const T each : rows) {
      made(at / n, at % n) = each;
      ++at;
    }
    return made;
  };
  {
    const T big = power(200), small = power(-120);
    expect(of(2, 2, {big, 1, 0, small}), {(1 - 1 / static_cast<double>(small)) / static_cast<double>(big), 1 / static_cast<double>(small)},
           of(2, 1, {1, 1}), "graded triangle", false);  // its columns are parallel to rounding
    expect(of(2, 2, {power(60), 0, 0, power(-150)}), {1 / static_cast<double>(power(60)), 1 / static_cast<double>(power(-150))},
           of(2, 1, {1, 1}), "graded diagonal");
  }
  // A x = B for the x of ones, with A scaled to either end; and B with it, or alone.
  const index m = 12, n = 5;
  std::mt19937_64 bits(3);
  std::uniform_int_distribution<int> digits(-8, 8);
  dense<T> base(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) base(i, j) = static_cast<T>(digits(bits) + (i == j ? 40 : 0));
  }
  const int top = std::numeric_limits<T>::max_exponent, bottom = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  for (const int scale : {0, top - 8, top - 7, bottom + 12, bottom + 40, -top / 2, top / 2}) {
    for (const bool under : {false, true}) {
      const index rows = under ? n : m, columns = under ? m : n;
      dense<T> A(rows, columns, order::column_major), B(m, 1, order::column_major);
      for (index i = 0; i < rows; ++i) {
        for (index j = 0; j < columns; ++j) A(i, j) = std::ldexp(under ? base(j, i) : base(i, j), scale);
      }
      std::vector<double> x(static_cast<std::size_t>(columns), 1);
      if (under) {
        // The solution of least norm is in the range of Aᵀ: x = Aᵀ 1 / 2^scale.
        for (index j = 0; j < m; ++j) {
          x[static_cast<std::size_t>(j)] = 0;
          for (index i = 0; i < n; ++i) x[static_cast<std::size_t>(j)] += static_cast<double>(base(j, i));
        }
        x[static_cast<std::size_t>(m - 1)] += 0;
      }
      for (index i = 0; i < rows; ++i) {
        double sum = 0;
        for (index j = 0; j < columns; ++j) sum += static_cast<double>(under ? base(j, i) : base(i, j)) * x[static_cast<std::size_t>(j)];
        B(i, 0) = static_cast<T>(std::ldexp(sum, under ? scale - 8 : scale));
      }
      if (under) {
        for (double& each : x) each = std::ldexp(each, -8);
      }
      std::erase_if(x, [](double each) { return each == 0; });
      if (x.size() != static_cast<std::size_t>(columns)) continue;
      expect(A, x, B, fmt::format("2^{} {}", scale, under ? "under" : "over"));
    }
  }
}

TYPED_TEST(qr, columns_that_become_subnormal_are_factored) {
  using T = typename TestFixture::T;
  const T small = std::numeric_limits<T>::min() / 1024;
  for (const char* scheme : k_schemes) {
    for (const protection level : {protection::off, protection::correct}) {
      for (const index m : {3, 8, 40, 300}) {
        for (const index n : {2, 5, 24}) {
          // Columns that differ below their first rows by subnormal numbers only, which stay when the first rows are eliminated.
          dense<T> A(m, n, order::column_major);
          for (index j = 0; j < n; ++j) {
            for (index i = 0; i < m; ++i) A(i, j) = i == 0 ? T(1) : static_cast<T>(small * static_cast<T>(1 + (i * 7 + j * 13) % 11));
          }
          run::settings how = this->how(scheme);
          how.protection = level;
          const factored<T> made = factor_in_place<T>(A, how);
          EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
          const ratios seen = ratios_of<T>(A, made.F, made.tau);
          EXPECT_LT(seen.residual, 10) << m << " × " << n;
          EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
        }
      }
    }
  }
}

// Its column of R is spread over all rows: each element is below the smallest number, and R's column is 0.
TYPED_TEST(qr, a_column_of_the_smallest_number_alone_raises_no_alarm) {
  using T = typename TestFixture::T;
  const index m = 90, n = 89;
  dense<T> A = random_matrix<T>(m, n, 11);
  for (index i = 0; i < m; ++i) A(i, n - 1) = i == m - 1 ? std::numeric_limits<T>::denorm_min() : T(0);
  for (const char* scheme : k_schemes) {
    const factored<T> made = factor_in_place<T>(A, this->how(scheme));
    EXPECT_EQ(made.report.verdict, verdict::clean) << scheme << to_json(made.report);
    for (index i = 0; i < n; ++i) EXPECT_LE(std::abs(made.F(i, n - 1)), std::numeric_limits<T>::denorm_min()) << scheme << ", row " << i;
  }
}

}  // namespace
}  // namespace ballast::qr
