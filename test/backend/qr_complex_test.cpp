// QR of complex matrices on the host's backends, and in another program by the engine of cuda (BALLAST_TEST_QR_ON_CUDA): accuracy against
// long double, LAPACK's conventions, strides, application of Q, least squares, batches, hard data and bad input.
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

#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"
#include "support/typed_suite.hpp"

extern "C" {
void cgeqrf_(const int*, const int*, std::complex<float>*, const int*, std::complex<float>*, std::complex<float>*, const int*, int*);
void zgeqrf_(const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, std::complex<double>*, const int*, int*);
}

namespace ballast::qr {
namespace {

using namespace subjects;

TYPED_SUITE(qr_complex, complex_settings, test::setting_names);

void lapack_complex(int m, int n, std::complex<float>* A, std::complex<float>* tau) {
  std::vector<std::complex<float>> work(static_cast<std::size_t>(64 * n));
  const int lwork = 64 * n;
  int info = 0;
  cgeqrf_(&m, &n, A, &m, tau, work.data(), &lwork, &info);
  ASSERT_EQ(info, 0);
}
void lapack_complex(int m, int n, std::complex<double>* A, std::complex<double>* tau) {
  std::vector<std::complex<double>> work(static_cast<std::size_t>(64 * n));
  const int lwork = 64 * n;
  int info = 0;
  zgeqrf_(&m, &n, A, &m, tau, work.data(), &lwork, &info);
  ASSERT_EQ(info, 0);
}

TYPED_TEST(qr_complex, factors_every_shape_accurately_with_a_real_diagonal) {
  using S = typename TestFixture::S;
  for (const char* scheme : k_complex_schemes) {
    for (const auto& [m, n] : this->shapes()) {
      const dense<S> A = random_complex<S>(m, n, static_cast<std::uint64_t>(m * 1000 + n));
      const factored<S> made = factor_in_place<S>(A, this->how(scheme));
      EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.backend, this->which);
      EXPECT_EQ(made.report.problem, to_token(this->problem_here(m, n)));
      EXPECT_GT(made.report.checks, 0u);
      const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 10) << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
      for (index j = 0; j < std::min(m, n); ++j) EXPECT_EQ(made.F(j, j).imag(), 0) << m << " × " << n << ", " << j;
    }
  }
}

TYPED_TEST(qr_complex, factors_every_kind_of_data_accurately_and_without_alarm) {
  using S = typename TestFixture::S;
  std::uint64_t number = 0;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : this->shapes()) {
      if (m * n > 30000) continue;
      for (const char* scheme : k_complex_schemes) {
        if (!test::taken(number++, 3)) continue;
        const dense<S> A = complex_of_kind<S>(kind, m, n, 5);
        const factored<S> made = factor_in_place<S>(A, this->how(scheme));
        EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
        EXPECT_EQ(made.report.detected, 0u) << kind << " " << m << " × " << n;
        const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
        EXPECT_LT(seen.residual, 10) << kind << " " << m << " × " << n;
        EXPECT_LT(seen.orthogonality, 10) << kind << " " << m << " × " << n;
      }
    }
  }
}

TYPED_TEST(qr_complex, has_lapacks_storage_and_signs) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->shapes()) {
    if (m == n && m > 2) continue;  // a square matrix has an ill-conditioned last row
    const dense<S> A = random_complex<S>(m, n, 3);
    const factored<S> made = factor_in_place<S>(A, this->how());
    dense<S> expected = copy_of<S>(A);
    std::vector<S> tau(made.tau.size());
    lapack_complex(static_cast<int>(m), static_cast<int>(n), expected.data(), tau.data());
    // Both are off by c·u·κ of the leading columns; random ones have κ of some tens.
    const double tolerance = 1000 * static_cast<double>(std::max(m, n)) * this->u;
    for (std::size_t j = 0; j < tau.size(); ++j) EXPECT_LT(std::abs(made.tau[j] - tau[j]), tolerance) << m << " × " << n;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i)
        ASSERT_LT(std::abs(made.F(i, j) - expected(i, j)), tolerance * std::sqrt(static_cast<double>(m))) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr_complex, a_triangle_keeps_its_rows_up_to_their_phase) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->shapes()) {
    if (m * n > 30000) continue;
    dense<S> A = complex_of_kind<S>("triangular", m, n, 5);
    for (index j = 0; j < std::min(m, n); j += 2) A(j, j) = S(A(j, j).real(), 0);
    const factored<S> made = factor_in_place<S>(A, this->how());
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

TYPED_TEST(qr_complex, takes_any_strides_and_leaves_the_rest_alone) {
  using S = typename TestFixture::S;
  const index m = 23, n = 11;
  const dense<S> A = random_complex<S>(m, n, 4);
  const factored<S> expected = factor_in_place<S>(A, this->how());
  const S mark(-77, 3);
  for (const auto& [rs, cs] :
       std::vector<std::pair<index, index>>{{1, m}, {1, m + 5}, {n, 1}, {n + 3, 1}, {2, 2 * m + 1}, {-1, m}, {1, -m - 2}, {40, 3}}) {
    const index span = (m - 1) * std::abs(rs) + (n - 1) * std::abs(cs) + 1;
    std::vector<S> memory(place(span), mark);
    S* const first = memory.data() + (rs < 0 ? -(m - 1) * rs : 0) + (cs < 0 ? -(n - 1) * cs : 0);
    const matrix_view<S> view{first, m, n, rs, cs};
    std::vector<bool> inside(place(span), false);
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) {
        view(i, j) = A(i, j);
        inside[place(&view(i, j) - memory.data())] = true;
      }
    }
    std::vector<S> tau(place(n));
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

TYPED_TEST(qr_complex, does_not_depend_on_threads_or_protection) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->shapes()) {
    const dense<S> A = random_complex<S>(m, n, 8);
    const factored<S> expected = factor_in_place<S>(A, this->how());
    for (const int threads : {1, 2, 3}) {
      for (const protection level : {protection::off, protection::detect, protection::correct}) {
        run::settings how = this->how();
        how.threads = threads;
        how.protection = level;
        const factored<S> made = factor_in_place<S>(A, how);
        EXPECT_EQ(made.tau, expected.tau) << m << " × " << n << " " << threads;
        EXPECT_TRUE(std::equal(made.F.data(), made.F.data() + made.F.size(), expected.F.data())) << m << " × " << n << " " << threads;
        EXPECT_EQ(made.report.verdict, verdict::clean);
      }
    }
  }
}

TYPED_TEST(qr_complex, ormqr_applies_q_and_its_conjugate_transpose_from_both_sides) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
    const factored<S> made = factor_in_place<S>(random_complex<S>(m, n, 6), this->how());
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        for (const order layout : {order::column_major, order::row_major}) {
          const index other = 19;
          const dense<S> C0 = random_complex<S>(where == side::left ? m : other, where == side::left ? other : m, 7);
          dense<S> C = copy_of<S>(C0, layout);
          const report seen = ormqr(where, op, made.F.view(), made.tau, C.view(), this->how());
          EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_GT(seen.checks, 0u);
          const dense<S> expected = complex_applied<S>(where, op, made.F, made.tau, C0);
          const double tolerance = 10 * static_cast<double>(m) * this->u * std::sqrt(static_cast<double>(m));
          for (index i = 0; i < C.rows(); ++i) {
            for (index j = 0; j < C.columns(); ++j)
              ASSERT_LT(std::abs(C(i, j) - expected(i, j)), tolerance) << m << " × " << n << " " << (where == side::left);
          }
        }
      }
    }
  }
}

TYPED_TEST(qr_complex, orgqr_makes_orthonormal_columns_and_factors_give_back_the_matrix) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
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

// Overdetermined: Aᴴ(b − Ax) = 0, and the rows below X have the norm of b − Ax. Underdetermined: Ax = b, and x is in the range of Aᴴ.
TYPED_TEST(qr_complex, gels_solves_over_and_underdetermined_systems) {
  using S = typename TestFixture::S;
  for (const char* scheme : k_complex_schemes) {
    for (const auto& [m, n] : this->shapes()) {
      if (m > 1000 || (m == n && m > 2)) continue;
      const index k = 3;
      const dense<S> A = random_complex<S>(m, n, 10), B = random_complex<S>(std::max(m, n), k, 11);
      dense<S> F = copy_of<S>(A, m % 2 == 0 ? order::column_major : order::row_major), X = copy_of<S>(B, order::row_major);
      const report seen = gels(F.view(), X.view(), this->how(scheme));
      EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      EXPECT_GE(seen.condition, 1 - 1e-3);
      const double tolerance = 3000 * static_cast<double>(std::max(m, n)) * this->u;
      for (index c = 0; c < k; ++c) {
        std::vector<long_complex> residual(place(m));
        long double squares = 0, rest = 0;
        for (index i = 0; i < m; ++i) {
          residual[place(i)] = B(i, c);
          for (index j = 0; j < n; ++j) residual[place(i)] -= long_complex(A(i, j)) * long_complex(X(j, c));
          squares += std::norm(residual[place(i)]);
        }
        if (m > n) {
          for (index j = 0; j < n; ++j) {
            long_complex sum = 0;
            for (index i = 0; i < m; ++i) sum += residual[place(i)] * std::conj(long_complex(A(i, j)));
            EXPECT_LT(std::abs(sum), tolerance);
          }
          for (index i = n; i < m; ++i) rest += std::norm(long_complex(X(i, c)));
          EXPECT_NEAR(std::sqrt(rest), std::sqrt(squares), tolerance);
        } else {
          EXPECT_LT(std::sqrt(squares), tolerance);
          dense<S> mirror(n, m, order::column_major), x(n, 1, order::column_major);
          for (index i = 0; i < m; ++i) {
            for (index j = 0; j < n; ++j) mirror(j, i) = std::conj(A(i, j));
          }
          for (index i = 0; i < n; ++i) x(i, 0) = X(i, c);
          const auto factors = factor(matrix_view<const S>(mirror.view()), this->how());
          (void)ormqr(side::left, transpose::yes, factors.storage.view(), factors.tau, x.view(), this->how());
          for (index i = m; i < n; ++i) EXPECT_LT(std::abs(x(i, 0)), tolerance);
          // A holds L and the rows of LAPACK's xGELQF: the conjugate transpose of the factors of Aᴴ.
          for (index i = 0; i < m && m < n; ++i) {
            for (index j = 0; j < n; ++j) EXPECT_EQ(F(i, j), std::conj(factors.storage(j, i))) << i << " " << j;
          }
        }
      }
      if (m > n) {
        const auto made = factor(matrix_view<const S>(A.view()), this->how(scheme));
        const matrix<S> again = solution_of(made, B.view(), this->how(scheme)).values;
        for (index i = 0; i < n; ++i) {
          for (index c = 0; c < k; ++c) EXPECT_LT(std::abs(again(i, c) - X(i, c)), tolerance);
        }
      }
    }
  }
}

// A = U D Vᴴ with known singular values; the estimate is that of columns scaled to norm 1, a lower bound up to its factor √n.
TYPED_TEST(qr_complex, gels_reports_the_condition_and_refuses_dependent_columns) {
  using S = typename TestFixture::S;
  const index m = 40, n = 12;
  for (const bool under : {false, true}) {
    dense<S> A = random_complex<S>(under ? n : m, under ? m : n, 30), B = random_complex<S>(m, 1, 31);
    const auto column = [&](index j, index i) -> S& { return under ? A(j, i) : A(i, j); };
    const auto solve = [&](run::settings how) {
      dense<S> F = copy_of<S>(A), X = copy_of<S>(B);
      return gels(F.view(), X.view(), how);
    };
    EXPECT_LT(solve(this->how()).condition, 100);
    // Column 7 is i times column 2 and a bit more: only complex arithmetic sees the dependence.
    const double bit = 1e4 * this->u;
    for (index i = 0; i < m; ++i) column(7, i) = column(2, i) * S(0, 1) + column(7, i) * S(static_cast<typename TestFixture::real>(bit), 0);
    const double near = solve(this->how()).condition;
    EXPECT_GT(near, 0.02 / bit);
    EXPECT_LT(near, 50 / bit);
    for (index i = 0; i < m; ++i) column(7, i) = column(2, i) * S(0, 1);
    try {
      (void)solve(this->how());
      ADD_FAILURE() << "dependent columns were accepted";
    } catch (const rank_deficient_error& e) {
      EXPECT_NE(std::string(e.what()).find("rank 11 of 12"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("c" + std::string(sizeof(S) == 8 ? "64" : "128")), std::string::npos) << e.what();
    }
    for (index i = 0; i < m; ++i) column(7, i) = 0;
    run::settings how = this->how();
    how.full_rank = false;
    EXPECT_THROW((void)solve(how), rank_deficient_error);
  }
}

TYPED_TEST(qr_complex, inf_and_nan_pass_through_without_alarm) {
  using S = typename TestFixture::S;
  using real = typename TestFixture::real;
  for (const real odd : {std::numeric_limits<real>::quiet_NaN(), std::numeric_limits<real>::infinity()}) {
    for (const S value : {S(odd, 1), S(1, -odd), S(odd, odd)}) {
      for (const char* scheme : k_complex_schemes) {
        dense<S> A = random_complex<S>(30, 12, 12);
        A(17, 5) = value;
        const factored<S> made = factor_in_place<S>(A, this->how(scheme));
        EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
        EXPECT_EQ(made.report.detected, 0u);
        for (index j = 0; j < 5; ++j) {
          for (index i = 0; i < 30; ++i) EXPECT_TRUE(is_finite(made.F(i, j))) << "columns before the odd one are not touched by it";
        }
        EXPECT_FALSE(is_finite(made.F(5, 5)));
        dense<S> B = random_complex<S>(30, 2, 13);
        const report seen = gels(A.view(), B.view(), this->how(scheme));
        EXPECT_EQ(seen.verdict, verdict::clean);
        EXPECT_FALSE(is_finite(B(6, 0)));
      }
      const factored<S> made = factor_in_place<S>(random_complex<S>(30, 12, 12), this->how());
      for (const side where : {side::left, side::right}) {
        dense<S> C = random_complex<S>(30, 30, 14);
        (where == side::left ? C(3, 2) : C(2, 3)) = value;
        EXPECT_EQ(ormqr(where, transpose::yes, made.F.view(), made.tau, C.view(), this->how()).verdict, verdict::clean);
        EXPECT_FALSE(is_finite(where == side::left ? C(0, 2) : C(2, 0)));
        EXPECT_TRUE(is_finite(where == side::left ? C(0, 1) : C(1, 0)));
      }
    }
  }
}

// A x = B for a known x, with A scaled to either end of the range, and B with it.
TYPED_TEST(qr_complex, least_squares_at_the_ends_of_the_range) {
  using S = typename TestFixture::S;
  using real = typename TestFixture::real;
  const int top = std::numeric_limits<real>::max_exponent,
            bottom = std::numeric_limits<real>::min_exponent - std::numeric_limits<real>::digits;
  const index m = 12, n = 5;
  std::mt19937_64 bits(3);
  std::uniform_int_distribution<int> digits(-8, 8);
  dense<S> base(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) base(i, j) = S(static_cast<real>(digits(bits) + (i == j ? 40 : 0)), static_cast<real>(digits(bits)));
  }
  for (const int scale : {0, top - 9, bottom + 12, bottom + 40, -top / 2, top / 2}) {
    for (const bool under : {false, true}) {
      const index rows = under ? n : m, columns = under ? m : n;
      dense<S> A(rows, columns, order::column_major), B(m, 1, order::column_major);
      // Overdetermined: x_j = 1 + i. Underdetermined: x = Aᴴ 1 / 2^scale, in the range of Aᴴ.
      std::vector<std::complex<double>> x(place(columns), {1, 1});
      for (index j = 0; j < m && under; ++j) {
        x[place(j)] = 0;
        for (index i = 0; i < n; ++i) x[place(j)] += static_cast<std::complex<double>>(base(j, i));
      }
      for (index i = 0; i < rows; ++i) {
        std::complex<double> sum = 0;
        for (index j = 0; j < columns; ++j) {
          const S each = under ? std::conj(base(j, i)) : base(i, j);
          A(i, j) = scaled(each, scale);
          sum += static_cast<std::complex<double>>(each) * x[place(j)];
        }
        B(i, 0) = static_cast<S>(scaled(sum, under ? scale - 10 : scale));
      }
      for (const char* scheme : k_complex_schemes) {
        dense<S> F = copy_of<S>(A), X = copy_of<S>(B);
        const report seen = gels(F.view(), X.view(), this->how(scheme));
        EXPECT_EQ(seen.verdict, verdict::clean) << scale << " " << under << to_json(seen);
        EXPECT_EQ(seen.detected, 0u);
        double size = 0;
        for (const auto& each : x) size = std::max(size, std::abs(each));
        // B of the underdetermined system near the bottom has few digits left.
        const double left = under && scale - 10 < bottom + 24 ? 1 : this->u;
        for (std::size_t j = 0; j < x.size(); ++j) {
          const auto got = scaled(static_cast<std::complex<double>>(X(static_cast<index>(j), 0)), under ? 10 : 0);
          EXPECT_LT(std::abs(got - x[j]), 300 * left * size) << scale << " " << under << " " << j;
        }
      }
    }
  }
}

// Batches: the numbers of each matrix alone, to rounding.
TYPED_TEST(qr_complex, batches_are_many_single_matrices) {
  using S = typename TestFixture::S;
  const index count = 5, k = 4;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{1, 1}, {9, 4}, {4, 9}, {40, 24}, {24, 40}, {33, 33}, {300, 20}}) {
    const index steps = std::min(m, n), most = std::max(m, n);
    const dense<S> all = random_complex<S>(m, n * count, 40);
    const matrix_batch_view<const S> A{all.data(), count, m, n, 1, m, m * n};
    dense<S> F = copy_of<S>(all.view());
    const matrix_batch_view<S> Fs{F.data(), count, m, n, 1, m, m * n};
    std::vector<S> tau(place(steps * count));
    const report factored_all = geqrf(Fs, std::span<S>(tau), this->how());
    EXPECT_EQ(factored_all.verdict, verdict::clean) << to_json(factored_all);
    EXPECT_GE(factored_all.checks, static_cast<std::uint64_t>(count));
    for (index b = 0; b < count; ++b) {
      const dense<S> one = copy_of<S>(A[b]), of_one = copy_of<S>(matrix_view<const S>(Fs[b]));
      const std::vector<S> its(tau.begin() + b * steps, tau.begin() + (b + 1) * steps);
      const ratios seen = complex_ratios_of<S>(one, of_one, its);
      EXPECT_LT(seen.residual, 10) << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
      for (index j = 0; j < steps; ++j) EXPECT_EQ(of_one(j, j).imag(), 0);
    }
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        const index rows = where == side::left ? m : k, columns = where == side::left ? k : m;
        const dense<S> C0 = random_complex<S>(rows, columns * count, 41);
        dense<S> C = copy_of<S>(C0.view());
        const matrix_batch_view<S> Cs{C.data(), count, rows, columns, 1, rows, rows * columns};
        const report seen = ormqr(where, op, matrix_batch_view<const S>(Fs), std::span<const S>(tau), Cs, this->how());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        for (index b = 0; b < count; ++b) {
          const std::vector<S> its(tau.begin() + b * steps, tau.begin() + (b + 1) * steps);
          const dense<S> expected = complex_applied<S>(where, op, copy_of<S>(matrix_view<const S>(Fs[b])), its,
                                                       copy_of<S>(C0.view().block(0, b * columns, rows, columns)));
          for (index i = 0; i < rows; ++i) {
            for (index j = 0; j < columns; ++j)
              ASSERT_LT(std::abs(Cs[b](i, j) - expected(i, j)), 10 * static_cast<double>(m) * std::sqrt(static_cast<double>(m)) * this->u);
          }
        }
      }
    }
    if (m >= n) {
      dense<S> Q = copy_of<S>(F.view());
      const matrix_batch_view<S> Qs{Q.data(), count, m, n, 1, m, m * n};
      EXPECT_EQ(orgqr(Qs, std::span<const S>(tau), this->how()).verdict, verdict::clean);
      dense<S> unit(m, n, order::column_major);
      for (index j = 0; j < n; ++j) unit(j, j) = 1;
      for (index b = 0; b < count; ++b) {
        const std::vector<S> its(tau.begin() + b * steps, tau.begin() + (b + 1) * steps);
        const dense<S> expected = complex_applied<S>(side::left, transpose::no, copy_of<S>(matrix_view<const S>(Fs[b])), its, unit);
        EXPECT_LT(change(copy_of<S>(matrix_view<const S>(Qs[b])), expected), 20 * static_cast<double>(m));
      }
    }
    if (m == n && m > 1) continue;  // ill-conditioned
    dense<S> G = copy_of<S>(all.view()), X = random_complex<S>(most, k * count, 42);
    const dense<S> B = copy_of<S>(X.view());
    EXPECT_EQ(gels(matrix_batch_view<S>{G.data(), count, m, n, 1, m, m * n},
                   matrix_batch_view<S>{X.data(), count, most, k, 1, most, most * k}, this->how())
                  .verdict,
              verdict::clean);
    for (index b = 0; b < count; ++b) {
      dense<S> one = copy_of<S>(A[b]), x = copy_of<S>(B.view().block(0, b * k, most, k));
      (void)gels(one.view(), x.view(), this->how());
      EXPECT_LT(change(copy_of<S>(matrix_view<const S>(X.view().block(0, b * k, n, k))),
                       copy_of<S>(matrix_view<const S>(x.view().block(0, 0, n, k)))),
                3000 * static_cast<double>(most))
          << m << " × " << n;
    }
    if (m < 2 || n < 2) continue;
    // Row or column 1 of matrix 3 is i times the one before it.
    dense<S> H = copy_of<S>(all.view());
    for (index i = 0; i < most; ++i) (m < n ? H(1, 3 * n + i) : H(i, 3 * n + 1)) = (m < n ? H(0, 3 * n + i) : H(i, 3 * n)) * S(0, 1);
    X = copy_of<S>(B.view());
    EXPECT_THROW((void)gels(matrix_batch_view<S>{H.data(), count, m, n, 1, m, m * n},
                            matrix_batch_view<S>{X.data(), count, most, k, 1, most, most * k}, this->how()),
                 rank_deficient_error)
        << m << " × " << n;
  }
}

TYPED_TEST(qr_complex, a_plan_serves_many_calls_and_refuses_what_is_not_there) {
  using S = typename TestFixture::S;
  const plan<S> made({.rows = 20, .columns = 8}, this->how().where());
  EXPECT_TRUE(made.problem().complex);
  EXPECT_EQ(made.problem().precision, precision_of<typename TestFixture::real>);
  if (this->which != backend::cuda) {
    EXPECT_EQ(made.workspace_bytes(operation::geqrf), 0);
  }
  const dense<S> A = random_complex<S>(20, 8, 1);
  const factored<S> expected = factor_in_place<S>(A, this->how());
  for (int call = 0; call < 3; ++call) {
    dense<S> F = copy_of<S>(A);
    std::vector<S> tau(8);
    EXPECT_EQ(made.geqrf(F.view(), tau).verdict, verdict::clean);
    EXPECT_EQ(tau, expected.tau);
    EXPECT_TRUE(std::equal(F.data(), F.data() + F.size(), expected.F.data()));
  }
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const unsupported_error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  dense<S> F = copy_of<S>(A);
  std::vector<S> tau(8);
  if (this->which == backend::cuda) {
    EXPECT_EQ(plan<S>({.rows = 20, .columns = 8}, {.scheme = "hybrid"}).backend(), backend::cuda);
  } else {
    const std::string hybrid = message([&] { plan<S>({.rows = 20, .columns = 8}, {.backend = this->which, .scheme = "hybrid"}); });
    EXPECT_TRUE(has(hybrid, "expected one of block_checksum, qr_update, got hybrid")) << hybrid;
  }
  EXPECT_NE(plan<S>({.rows = 20, .columns = 8}).backend(), backend::cuda);
  if (this->which != backend::cuda) {
    EXPECT_THROW((void)made.enqueue_geqrf(batch_of(F.view(), 1), tau), unsupported_error);
  }
  EXPECT_THROW((void)geqrf(F.view(), std::span<S>(tau).first(3), this->how()), invalid_argument_error);
  EXPECT_THROW((void)geqrf(matrix_view<S>{nullptr, 6, 4, 1, 6}, std::span<S>(tau).first(4), this->how()), invalid_argument_error);
  EXPECT_THROW((void)geqrf(matrix_view<S>{F.data(), 0, 4, 1, 6}, std::span<S>(tau).first(0), this->how()), invalid_argument_error);
}

TEST(complex_token, goes_both_ways_and_refuses_others) {
  EXPECT_EQ(to_token({precision::f64, 4096, 500, 1, true}), "qr_c128_m4096_n500");
  EXPECT_EQ(to_token({precision::f32, 8, 4, 30, true}), "qr_c64_m8_n4_b30");
  for (const auto& [text, which] : {std::pair{"qr_c64_m20_n6_b2", precision::f32}, std::pair{"qr_c128_m20_n6_b2", precision::f64}}) {
    const problem p = parse_token(text);
    EXPECT_TRUE(p.complex);
    EXPECT_EQ(p.precision, which);
    EXPECT_EQ(p.rows, 20);
    EXPECT_EQ(p.columns, 6);
    EXPECT_EQ(p.batch, 2);
  }
  EXPECT_FALSE(parse_token("qr_f64_m20_n6").complex);
  for (const char* bad : {"qr_c32_m1_n1", "qr_c256_m1_n1", "qr_c64m1_n1", "qr_c_m1_n1", "qr_c12_m1_n1"})
    EXPECT_THROW((void)parse_token(bad), invalid_argument_error) << bad;
}

}  // namespace
}  // namespace ballast::qr
