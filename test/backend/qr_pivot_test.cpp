// QR with column pivoting and least squares of any rank, of real and complex numbers: the rule of the pivots, LAPACK's pivots and its
// revelation of the rank, solutions of least norm. Faults: qr_pivot_faults_test.cpp.
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

#include "support/qr_pivot_subject.hpp"
#include "support/typed_suite.hpp"

extern "C" {
void dgeqp3_(const int*, const int*, double*, const int*, int*, double*, double*, const int*, int*);
void zgeqp3_(const int*, const int*, std::complex<double>*, const int*, int*, std::complex<double>*, std::complex<double>*, const int*,
             double*, int*);
void dgesvd_(const char*, const char*, const int*, const int*, double*, const int*, double*, double*, const int*, double*, const int*,
             double*, const int*, int*);
void zgesvd_(const char*, const char*, const int*, const int*, std::complex<double>*, const int*, double*, std::complex<double>*,
             const int*, std::complex<double>*, const int*, std::complex<double>*, const int*, double*, int*);
void dgelsd_(const int*, const int*, const int*, double*, const int*, double*, const int*, double*, const double*, int*, double*,
             const int*, int*, int*);
void zgelsd_(const int*, const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, const int*, double*,
             const double*, int*, std::complex<double>*, const int*, double*, int*, int*);
}

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_pivot : public subjects::qr<Setting> {};
TYPED_SUITE(qr_pivot, pivot_settings, test::setting_names);

TYPED_TEST(qr_pivot, factors_every_kind_of_matrix_in_the_order_of_the_rule) {
  using T = typename TestFixture::T;
  auto cases = this->kinds_and_shapes(k_kinds);
  // Large matrices of some kinds only: the comparison in long double takes the time.
  std::erase_if(cases, [](const auto& each) {
    if (each.m * each.n <= 20000 || each.kind == "graded") return false;
    return is_complex<T> || (each.kind != "normal" && each.kind != "nearly equal");
  });
  for (const char* kind : {"normal", "graded", "columns 1e±12"}) {
    cases.push_back({kind, 8, 60});  // more than four times as many columns as rows
    if (this->which == backend::cpu) cases.push_back({kind, 20, 500});
    if (this->which == backend::cpu) cases.push_back({kind, 260, 200});
  }
  for (const auto& each : cases) {
    const dense<T> A = any_of_kind<T>(each.kind, each.m, each.n, 5);
    const pivoted<T> made = factor_in_order(A, this->how());
    const std::string name = fmt::format("{} {} × {}: {}", each.kind, each.m, each.n, to_json(made.seen));
    EXPECT_EQ(made.seen.verdict, verdict::clean) << name;
    ASSERT_TRUE(is_permutation(made.pivots)) << name;
    const dense<T> ordered = in_order(A, made.pivots);
    const ratios found = any_ratios(ordered, made.F, made.tau);
    EXPECT_LE(found.residual, 30) << name;
    EXPECT_LE(found.orthogonality, 30) << name;
    EXPECT_LE(excess(made.F), 30) << name;
  }
}

// The numbers of a matrix in double.
template <class T>
std::vector<wide_of<T>> widened(const dense<T>& A) {
  return std::vector<wide_of<T>>(A.data(), A.data() + A.size());
}

// LAPACK's factors of the same matrix in double.
struct lapack_pivots {
  std::vector<index> pivots;
  std::vector<double> diagonal;  // |R_kk|
  template <class T>
  explicit lapack_pivots(const dense<T>& A) {
    using wide = wide_of<T>;
    const int m = static_cast<int>(A.rows()), n = static_cast<int>(A.columns()), lwork = 64 * n + 3 * n + 1;
    std::vector<wide> F = widened(A), tau(place(std::min(m, n))), work(place(lwork));
    std::vector<double> real_work(place(2 * n));
    std::vector<int> order(place(n));
    int info = 0;
    if constexpr (is_complex<T>)
      zgeqp3_(&m, &n, F.data(), &m, order.data(), tau.data(), work.data(), &lwork, real_work.data(), &info);
    else
      dgeqp3_(&m, &n, F.data(), &m, order.data(), tau.data(), work.data(), &lwork, &info);
    EXPECT_EQ(info, 0);
    for (const int j : order) pivots.push_back(j - 1);
    for (int k = 0; k < std::min(m, n); ++k) diagonal.push_back(std::abs(F[place(k) * place(m + 1)]));
  }
};

template <class T>
std::vector<double> singular_values(const dense<T>& of) {
  using wide = wide_of<T>;
  const int m = static_cast<int>(of.rows()), n = static_cast<int>(of.columns()), lwork = 10 * (m + n), one = 1;
  std::vector<wide> A = widened(of), work(place(lwork));
  std::vector<double> s(place(std::min(m, n))), real_work(place(5 * std::min(m, n)));
  wide none = 0;
  int info = 0;
  if constexpr (is_complex<T>)
    zgesvd_("N", "N", &m, &n, A.data(), &m, s.data(), &none, &one, &none, &one, work.data(), &lwork, real_work.data(), &info);
  else
    dgesvd_("N", "N", &m, &n, A.data(), &m, s.data(), &none, &one, &none, &one, work.data(), &lwork, &info);
  EXPECT_EQ(info, 0);
  return s;
}

TYPED_TEST(qr_pivot, chooses_the_pivots_of_lapack) {
  using T = typename TestFixture::T;
  std::vector<std::pair<index, index>> shapes = {{30, 20}, {20, 20}, {20, 33}, {8, 50}, {90, 70}};
  if (this->which == backend::cuda && test::sampled()) shapes.resize(4);
  if (this->which == backend::cpu) shapes.insert(shapes.end(), {{300, 200}, {200, 300}, {30, 300}, {600, 130}});
  if (this->which == backend::cuda) shapes.emplace_back(70, 270);  // a cluster chooses, with an update of G
  for (const auto& [m, n] : shapes) {
    for (const std::string kind : {"normal", "graded", "columns 1e±12", "cauchy"}) {
      if (this->which == backend::cuda && n > 256 && kind != "normal") continue;
      const dense<T> A = any_of_kind<T>(kind, m, n, 17);
      const lapack_pivots expected(A);
      pivoted<T> made = factor_in_order(A, this->how());
      // Below rounding the order is arbitrary.
      std::size_t same = 0;
      const double least = 1e3 * k_unit<T> * expected.diagonal[0] * (kind == "columns 1e±12" ? 1e-24 : 1);
      while (same < expected.diagonal.size() && expected.diagonal[same] > least) ++same;
      EXPECT_GE(same, std::min<std::size_t>(expected.diagonal.size(), 8)) << kind;
      for (std::size_t k = 0; k < same; ++k)
        ASSERT_EQ(made.pivots[k], expected.pivots[k]) << kind << ' ' << m << " × " << n << " step " << k;
    }
  }
}

// Matrices that are hard for the rule: the diagonal of R against the singular values, beside LAPACK's.
TYPED_TEST(qr_pivot, reveals_the_rank_as_lapack_does) {
  using T = typename TestFixture::T;
  const index n = this->which == backend::cpu ? 130 : 40;
  const auto made_of = [&](auto&& f) {
    dense<T> A(n, n, order::column_major);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < n; ++i) A(i, j) = static_cast<T>(f(i, j) * turn<T>(i) * turn<T>(3 * j + 1));
    }
    return A;
  };
  // Rows and columns are turned by phases, which changes no norm. Kahan's with the perturbation that keeps the columns in their order.
  const double s = std::sin(1.2), c = std::cos(1.2);
  const dense<T> kahan = made_of([&](index i, index j) {
    return i > j ? 0.0 : (i == j ? 1 + 25 * k_unit<T> * static_cast<double>(n - i) : -c) * std::pow(s, static_cast<double>(i));
  });
  // Gks: R(i, j) = −1/√j above a diagonal of 1/√j.
  const dense<T> gks = made_of([](index i, index j) {
    return (i > j ? 0.0 : i == j ? 1.0 : -1.0) / std::sqrt(static_cast<double>(j + 1));
  });
  // A product of a random matrix and a graded one, and one with a gap: singular values that fall from 1 to u, or to √u at half.
  dense<T> graded = any_random<T>(n, n, 3), gap = any_random<T>(n, n, 4);
  const dense<T> mix = any_random<T>(n, n, 5);
  const auto product = [&](dense<T>& left, auto&& weight) {
    dense<T> all(n, n, order::column_major);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < n; ++i) {
        wide_of<T> sum = 0;
        for (index l = 0; l < n; ++l) sum += static_cast<wide_of<T>>(left(i, l)) * weight(l) * static_cast<wide_of<T>>(mix(l, j));
        all(i, j) = static_cast<T>(sum);
      }
    }
    left = all;
  };
  product(graded, [&](index l) { return std::pow(k_unit<T>, static_cast<double>(l) / static_cast<double>(n)); });
  product(gap, [&](index l) { return l < n / 2 ? 1.0 : std::sqrt(k_unit<T>); });
  const std::vector<std::pair<std::string, dense<T>>> cases = {{"Kahan", kahan}, {"Gks", gks}, {"graded", graded}, {"gap", gap}};
  for (const auto& [name, A] : cases) {
    const std::vector<double> sigma = singular_values(A);
    const lapack_pivots lapack(A);
    const pivoted<T> made = factor_in_order(A, this->how());
    ASSERT_EQ(made.seen.verdict, verdict::clean) << name << to_json(made.seen);
    double own = 1, other = 1;
    for (index k = 0; k < n; ++k) {
      if (sigma[place(k)] < 1e3 * k_unit<T> * sigma[0]) break;
      const auto off = [&](double r) { return std::max(r / sigma[place(k)], sigma[place(k)] / r); };
      own = std::max(own, off(size_of_number(made.F(k, k))));
      other = std::max(other, off(lapack.diagonal[place(k)]));
    }
    EXPECT_LE(own, 1.05 * other) << name;
  }
}

// xGELSD in double with the same rank: the tolerance is the condition number of what is kept times u, and its square times the residual.
TYPED_TEST(qr_pivot, gelsy_solves_with_least_norm_for_any_rank) {
  using T = typename TestFixture::T;
  struct shape {
    index m, n, r;
  };
  std::vector<shape> shapes = {{30, 20, 20}, {30, 20, 7}, {20, 30, 20}, {20, 30, 9}, {12, 12, 1}, {5, 1, 1}, {1, 5, 1}};
  if (this->which == backend::cpu) shapes.push_back({200, 150, 60});
  for (const auto& [m, n, r] : shapes) {
    const dense<T> A = low_rank<T>(m, n, r, 31), B = any_random<T>(m, 3, 33);
    const double rcond = sizeof(real_of<T>) == 4 ? 1e-5 : 1e-12;
    const solved<T> made = solve(A, B, rcond, this->how());
    const std::string name = fmt::format("{} × {} rank {}: {}", m, n, r, to_json(made.seen));
    EXPECT_EQ(made.seen.verdict, verdict::clean) << name;
    ASSERT_EQ(made.rank, r) << name;
    EXPECT_TRUE(is_permutation(made.pivots));
    const int im = static_cast<int>(m), in = static_cast<int>(n), nrhs = 3, ldb = static_cast<int>(std::max(m, n)),
              lwork = 200 * (ldb + 10);
    std::vector<wide_of<T>> a = widened(A), b(place(ldb * 3)), work(place(lwork));
    std::vector<double> s(place(std::min(m, n))), real_work(50000);
    std::vector<int> iwork(10000);
    for (index j = 0; j < 3; ++j) std::copy_n(B.data() + j * m, m, b.data() + j * ldb);
    int rank = 0, info = 0;
    if constexpr (is_complex<T>)
      zgelsd_(&im, &in, &nrhs, a.data(), &im, b.data(), &ldb, s.data(), &rcond, &rank, work.data(), &lwork, real_work.data(), iwork.data(),
              &info);
    else
      dgelsd_(&im, &in, &nrhs, a.data(), &im, b.data(), &ldb, s.data(), &rcond, &rank, work.data(), &lwork, iwork.data(), &info);
    ASSERT_EQ(info, 0);
    ASSERT_EQ(rank, r) << name;
    const double condition = s[0] / s[place(r - 1)];
    // The leading block has no smaller condition number than the kept part of A; pivoting keeps it near.
    EXPECT_LE(made.seen.condition, 3 * condition) << name;
    EXPECT_GE(made.seen.condition, condition / 20) << name;
    for (index j = 0; j < 3; ++j) {
      double off = 0, norm = 0, right = 0;
      for (index i = 0; i < n; ++i) {
        const wide_of<T> x = b[place(i + j * ldb)];
        off += square_of(static_cast<wide_of<T>>(made.X(i, j)) - x);
        norm += square_of(x);
      }
      for (index i = 0; i < m; ++i) right += square_of(B(i, j));
      const double limit =
          30 * static_cast<double>(std::max(m, n)) * k_unit<T> * condition * (std::sqrt(norm) + condition * std::sqrt(right) / s[0]);
      EXPECT_LE(std::sqrt(off), limit) << name;
    }
  }
}

TYPED_TEST(qr_pivot, gelsy_takes_zeros_extremes_and_other_strides) {
  using T = typename TestFixture::T;
  const dense<T> zero(4, 3, order::column_major), B = any_random<T>(4, 2, 1);
  const solved<T> none = solve(zero, B, -1, this->how());
  EXPECT_EQ(none.rank, 0);
  for (index j = 0; j < 2; ++j) {
    for (index i = 0; i < 3; ++i) EXPECT_EQ(none.X(i, j), T(0));
  }
  // Equal columns share the coefficient.
  for (const double size : {1.0, sizeof(real_of<T>) == 4 ? 1e-36 : 1e-300, sizeof(real_of<T>) == 4 ? 1e35 : 1e300}) {
    dense<T> A(4, 2, order::column_major), b(4, 1, order::column_major);
    for (index i = 0; i < 4; ++i)
      A(i, 0) = A(i, 1) = static_cast<T>(turn<T>(i) * size * static_cast<double>(i + 1)),
           b(i, 0) = static_cast<T>(turn<T>(i) * static_cast<double>(4 * i + 4));
    const solved<T> both = solve(A, b, -1, this->how());
    EXPECT_EQ(both.seen.verdict, verdict::clean) << to_json(both.seen);
    EXPECT_EQ(both.rank, 1) << size;
    for (index j = 0; j < 2; ++j) EXPECT_LE(std::abs(static_cast<wide_of<T>>(both.X(j, 0)) * size - 2.0), 40 * k_unit<T>) << size;
  }
  const dense<T> A = low_rank<T>(9, 6, 4, 5), right = any_random<T>(9, 2, 6);
  const solved<T> expected = solve(A, right, 1e-5, this->how());
  dense<T> by_rows(9, 6), right_by_rows(9, 2);
  for (index i = 0; i < 9; ++i) {
    for (index j = 0; j < 6; ++j) by_rows(i, j) = A(i, j);
    for (index j = 0; j < 2; ++j) right_by_rows(i, j) = right(i, j);
  }
  std::vector<index> order(6);
  index rank = 0;
  const report seen = gelsy(by_rows.view(), right_by_rows.view(), order, 1e-5, rank, this->how().where());
  EXPECT_EQ(seen.verdict, verdict::clean);
  EXPECT_EQ(order, expected.pivots);
  for (index i = 0; i < 6; ++i) {
    for (index j = 0; j < 6; ++j) EXPECT_EQ(by_rows(i, j), expected.A(i, j));
    for (index j = 0; j < 2; ++j) EXPECT_EQ(right_by_rows(i, j), expected.X(i, j));
  }
}

TYPED_TEST(qr_pivot, the_result_does_not_depend_on_threads_or_on_the_layout) {
  using T = typename TestFixture::T;
  const index m = this->which == backend::cpu ? 300 : 40, n = this->which == backend::cpu ? 260 : 30;
  const dense<T> A = any_random<T>(m, n, 8);
  run::settings one = this->how();
  one.threads = 1;
  const pivoted<T> a = factor_in_order(A, one), b = factor_in_order(A, this->how());
  EXPECT_EQ(a.pivots, b.pivots);
  EXPECT_EQ(a.tau, b.tau);
  EXPECT_TRUE(std::equal(a.F.data(), a.F.data() + a.F.size(), b.F.data()));
  dense<T> by_rows(m, n);
  for (index i = 0; i < m; ++i) {
    for (index j = 0; j < n; ++j) by_rows(i, j) = A(i, j);
  }
  std::vector<index> pivots(place(n));
  std::vector<T> tau(place(std::min(m, n)));
  EXPECT_EQ(geqp3(by_rows.view(), pivots, tau, this->how().where()).verdict, verdict::clean);
  EXPECT_EQ(pivots, b.pivots);
  for (index i = 0; i < m; ++i) {
    for (index j = 0; j < n; ++j) ASSERT_EQ(by_rows(i, j), b.F(i, j));
  }
  const pivoted_factors<T> held = factor_pivoted(matrix_view<const T>(A.view()), this->how().where());
  EXPECT_EQ(held.pivots, b.pivots);
  EXPECT_EQ(held.rank(), n);
  const matrix<T> Q = held.q(this->how().where()).values, R = held.r();
  double off = 0;
  for (index i = 0; i < m; i += 7) {
    for (index j = 0; j < n; j += 5) {
      wide_of<T> sum = 0;
      for (index l = 0; l <= j; ++l) sum += static_cast<wide_of<T>>(Q(i, l)) * static_cast<wide_of<T>>(R(l, j));
      off = std::max(off, std::abs(sum - static_cast<wide_of<T>>(A(i, held.pivots[place(j)]))));
    }
  }
  EXPECT_LE(off, 100 * std::sqrt(static_cast<double>(m)) * k_unit<T>);
}

TYPED_TEST(qr_pivot, data_with_inf_or_nan_keep_their_order) {
  using T = typename TestFixture::T;
  dense<T> A = any_random<T>(6, 4, 2);
  A(3, 2) = std::numeric_limits<real_of<T>>::quiet_NaN();
  const pivoted<T> made = factor_in_order(A, this->how());
  EXPECT_EQ(made.seen.verdict, verdict::clean);
  EXPECT_EQ(made.pivots, (std::vector<index>{0, 1, 2, 3}));
  EXPECT_TRUE(is_finite(made.F(1, 1)));
  const solved<T> x = solve(A, any_random<T>(6, 1, 3), -1, this->how());
  EXPECT_FALSE(is_finite(x.X(3, 0)) || is_finite(x.X(2, 0)));
  EXPECT_TRUE(std::isnan(x.seen.condition));
}

// The rank of a matrix whose last column is i times its first one and a part of the second: only complex arithmetic sees it. The factors of
// lstsq and factor_pivoted agree, and the residual is orthogonal to A's columns.
TYPED_TEST(qr_pivot, complex_dependence_is_found) {
  using T = typename TestFixture::T;
  using wide = wide_of<T>;
  const index m = 14, n = 6;
  dense<T> A = any_random<T>(m, n, 41);
  const dense<T> B = any_random<T>(m, 2, 42);
  const wide factor = turn<T>(1);
  for (index i = 0; i < m; ++i) A(i, n - 1) = static_cast<T>(factor * static_cast<wide>(A(i, 0)) + static_cast<wide>(A(i, 1)) * 0.5);
  const double rcond = sizeof(real_of<T>) == 4 ? 1e-5 : 1e-12;
  const auto held = factor_pivoted(matrix_view<const T>(A.view()), this->how().where());
  EXPECT_EQ(held.rank(rcond), n - 1);
  EXPECT_EQ(held.rank(), n - 1);
  const auto x = lstsq(matrix_view<const T>(A.view()), matrix_view<const T>(B.view()), rcond, this->how().where());
  EXPECT_EQ(x.rank, n - 1);
  EXPECT_EQ(x.pivots, held.pivots);
  EXPECT_EQ(x.report.verdict, verdict::clean);
  for (index c = 0; c < 2; ++c) {
    double worst = 0;
    for (index j = 0; j < n; ++j) {
      wide sum = 0;
      for (index i = 0; i < m; ++i) {
        wide residual = static_cast<wide>(B(i, c));
        for (index l = 0; l < n; ++l) residual -= static_cast<wide>(A(i, l)) * static_cast<wide>(x.values(l, c));
        sum += conjugate(static_cast<wide>(A(i, j))) * residual;
      }
      worst = std::max(worst, std::abs(sum));
    }
    EXPECT_LE(worst, 1e4 * k_unit<T>);
    // The solution of least norm is orthogonal to the vector (factor, 1/2, 0, …, −1) that A takes to zero.
    const wide along = conjugate(factor) * static_cast<wide>(x.values(0, c)) + 0.5 * static_cast<wide>(x.values(1, c)) -
                       static_cast<wide>(x.values(n - 1, c));
    EXPECT_LE(std::abs(along), 1e3 * k_unit<T>);
  }
}

TYPED_TEST(qr_pivot, refuses_arguments_that_do_not_fit) {
  using T = typename TestFixture::T;
  dense<T> A = any_random<T>(6, 4, 2), B = any_random<T>(6, 1, 3);
  std::vector<T> tau(4);
  std::vector<index> pivots(4), few(3);
  index rank = 0;
  const execution where = this->how().where();
  EXPECT_THROW((void)geqp3(A.view(), few, tau, where), invalid_argument_error);
  EXPECT_THROW((void)geqp3(A.view(), pivots, std::span<T>(tau).first(3), where), invalid_argument_error);
  EXPECT_THROW((void)gelsy(A.view(), B.view(), few, 0.1, rank, where), invalid_argument_error);
  EXPECT_THROW((void)gelsy(A.view(), B.view(), pivots, 1.0, rank, where), invalid_argument_error);
  EXPECT_THROW((void)gelsy(A.view(), B.view(), pivots, std::numeric_limits<double>::quiet_NaN(), rank, where), invalid_argument_error);
  EXPECT_THROW((void)lstsq(matrix_view<const T>(A.view()), matrix_view<const T>(B.view().block(0, 0, 5, 1)), -1, where),
               invalid_argument_error);
  // Matrices without elements.
  for (const auto& [m, n] : {std::pair<index, index>{0, 4}, {6, 0}}) {
    const matrix_view<T> none{A.data(), m, n, 1, 6};
    EXPECT_THROW((void)geqp3(none, std::span(pivots).first(place(n)), std::span<T>(tau).first(0), where), invalid_argument_error);
    EXPECT_THROW((void)gelsy(none, B.view(), std::span(pivots).first(place(n)), 0.1, rank, where), invalid_argument_error);
    EXPECT_THROW((void)factor_pivoted(matrix_view<const T>(none), where), invalid_argument_error);
  }
}

}  // namespace
}  // namespace ballast::qr
