// QR with column pivoting and least squares of any rank: the rule of the pivots, LAPACK's pivots and its revelation of the rank, solutions
// of least norm, and faults in norms, choices and the permutation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/qr_subject.hpp"

extern "C" {
void dgeqp3_(const int*, const int*, double*, const int*, int*, double*, double*, const int*, int*);
void dgesvd_(const char*, const char*, const int*, const int*, double*, const int*, double*, double*, const int*, double*, const int*,
             double*, const int*, int*);
void dgelsd_(const int*, const int*, const int*, double*, const int*, double*, const int*, double*, const double*, int*, double*,
             const int*, int*, int*);
}

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_pivot : public subjects::qr<Setting> {};
TYPED_TEST_SUITE(qr_pivot, settings, names);

std::size_t number(index i) { return static_cast<std::size_t>(i); }

template <class T>
struct pivoted {
  dense<T> F;
  std::vector<T> tau;
  std::vector<index> pivots;
  report seen;
};

template <class T>
pivoted<T> factor_in_order(const dense<T>& A, run::settings how, const inject::plan* faults = nullptr) {
  how.throw_on_uncorrectable = false;
  const inject::scope scope(faults);
  pivoted<T> made{A, std::vector<T>(number(std::min(A.rows(), A.columns()))), std::vector<index>(number(A.columns())), {}};
  made.seen = geqp3(made.F.view(), made.pivots, made.tau, how.where(), how.now());
  return made;
}

template <class T>
dense<T> in_order(const dense<T>& A, const std::vector<index>& order) {
  dense<T> made(A.rows(), A.columns(), order::column_major);
  for (index j = 0; j < A.columns(); ++j) std::copy_n(A.data() + order[number(j)] * A.rows(), A.rows(), made.data() + j * A.rows());
  return made;
}

bool is_permutation(std::vector<index> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t j = 0; j < order.size(); ++j) {
    if (order[j] != static_cast<index>(j)) return false;
  }
  return true;
}

// Returns the largest excess of a column's norm below row k over |R_kk|, in units of the norms of both columns times max(m, n) u, in long
// double. 10⁻⁶ of the pivot is not counted: norms that near to each other may change places.
template <class T>
double excess(const dense<T>& F) {
  const index m = F.rows(), n = F.columns(), steps = std::min(m, n);
  std::vector<long double> norms(number(n));
  double worst = 0;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i <= std::min(j, steps - 1); ++i) norms[number(j)] = std::hypot(norms[number(j)], static_cast<long double>(F(i, j)));
  }
  for (index j = 0; j < n; ++j) {
    long double norm = 0;
    for (index k = std::min(j, steps - 1); k >= 0; --k) {
      norm = std::hypot(norm, static_cast<long double>(F(k, j)));
      if (k == j) continue;
      const long double pivot = std::abs(static_cast<long double>(F(k, k))), over = norm - pivot * (1 + 1e-6L);
      const long double unit = (norms[number(j)] + norms[number(k)]) * static_cast<long double>(std::max(m, n)) * abft::unit_roundoff<T>;
      if (over > 0) worst = std::max(worst, static_cast<double>(over / (unit + std::numeric_limits<T>::denorm_min())));
    }
  }
  return worst;
}

TYPED_TEST(qr_pivot, factors_every_kind_of_matrix_in_the_order_of_the_rule) {
  using T = typename TestFixture::T;
  auto cases = this->kinds_and_shapes(k_kinds);
  // Large matrices of some kinds only: the comparison in long double takes the time.
  std::erase_if(cases, [](const auto& each) {
    return each.m * each.n > 20000 && each.kind != "normal" && each.kind != "graded" && each.kind != "nearly equal";
  });
  for (const char* kind : {"normal", "graded", "columns 1e±12"}) {
    cases.push_back({kind, 8, 60});  // more than four times as many columns as rows
    if (this->which == backend::cpu) cases.push_back({kind, 20, 500});
    if (this->which == backend::cpu) cases.push_back({kind, 260, 200});
  }
  for (const auto& each : cases) {
    const dense<T> A = matrix_of_kind<T>(each.kind, each.m, each.n, 5);
    const pivoted<T> made = factor_in_order(A, this->how());
    const std::string name = fmt::format("{} {} × {}: {}", each.kind, each.m, each.n, to_json(made.seen));
    EXPECT_EQ(made.seen.verdict, verdict::clean) << name;
    ASSERT_TRUE(is_permutation(made.pivots)) << name;
    const dense<T> ordered = in_order(A, made.pivots);
    const ratios found = ratios_of<T>(ordered.view(), made.F.view(), made.tau);
    EXPECT_LE(found.residual, 30) << name;
    EXPECT_LE(found.orthogonality, 30) << name;
    EXPECT_LE(excess(made.F), 30) << name;
  }
}

// LAPACK's factors of the same matrix in double.
struct lapack_pivots {
  std::vector<index> pivots;
  std::vector<double> diagonal;  // |R_kk|
  template <class T>
  explicit lapack_pivots(const dense<T>& A) {
    const int m = static_cast<int>(A.rows()), n = static_cast<int>(A.columns()), lwork = 64 * n + 3 * n + 1;
    std::vector<double> F(A.data(), A.data() + A.size()), tau(static_cast<std::size_t>(std::min(m, n))),
        work(static_cast<std::size_t>(lwork));
    std::vector<int> order(static_cast<std::size_t>(n));
    int info = 0;
    dgeqp3_(&m, &n, F.data(), &m, order.data(), tau.data(), work.data(), &lwork, &info);
    EXPECT_EQ(info, 0);
    for (const int j : order) pivots.push_back(j - 1);
    for (int k = 0; k < std::min(m, n); ++k) diagonal.push_back(std::abs(F[static_cast<std::size_t>(k) * static_cast<std::size_t>(m + 1)]));
  }
};

std::vector<double> singular_values(std::vector<double> A, index rows, index columns) {
  const int m = static_cast<int>(rows), n = static_cast<int>(columns), lwork = 10 * (m + n), one = 1;
  std::vector<double> s(number(std::min(rows, columns))), work(static_cast<std::size_t>(lwork));
  double none = 0;
  int info = 0;
  dgesvd_("N", "N", &m, &n, A.data(), &m, s.data(), &none, &one, &none, &one, work.data(), &lwork, &info);
  EXPECT_EQ(info, 0);
  return s;
}

TYPED_TEST(qr_pivot, chooses_the_pivots_of_lapack) {
  using T = typename TestFixture::T;
  std::vector<std::pair<index, index>> shapes = {{30, 20}, {20, 20}, {20, 33}, {8, 50}, {90, 70}};
  if (this->which == backend::cuda && test::sampled()) shapes.resize(4);
  if (this->which == backend::cpu) shapes.insert(shapes.end(), {{300, 200}, {200, 300}, {30, 300}, {600, 130}});
  for (const auto& [m, n] : shapes) {
    for (const char* kind : {"normal", "graded", "columns 1e±12", "cauchy"}) {
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 17);
      const lapack_pivots expected(A);
      pivoted<T> made = factor_in_order(A, this->how());
      // Below rounding the order is arbitrary.
      std::size_t same = 0;
      const double least = 1e3 * abft::unit_roundoff<T> * expected.diagonal[0] * (std::string(kind) == "columns 1e±12" ? 1e-24 : 1);
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
      for (index i = 0; i < n; ++i) A(i, j) = static_cast<T>(f(i, j));
    }
    return A;
  };
  // Kahan's with the perturbation that keeps the columns in their order.
  const double s = std::sin(1.2), c = std::cos(1.2);
  const dense<T> kahan = made_of([&](index i, index j) {
    return i > j ? 0 : (i == j ? 1 + 25 * abft::unit_roundoff<T> * static_cast<double>(n - i) : -c) * std::pow(s, static_cast<double>(i));
  });
  // Gks: R(i, j) = −1/√j above a diagonal of 1/√j.
  const dense<T> gks = made_of([](index i, index j) {
    return (i > j ? 0.0 : i == j ? 1.0 : -1.0) / std::sqrt(static_cast<double>(j + 1));
  });
  // A product of a random matrix and a graded one, and one with a gap: singular values that fall from 1 to u, or to √u at half.
  dense<T> graded = random_matrix<T>(n, n, 3), gap = random_matrix<T>(n, n, 4);
  const dense<T> mix = random_matrix<T>(n, n, 5);
  const auto product = [&](dense<T>& left, auto&& weight) {
    dense<T> all(n, n, order::column_major);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < n; ++i) {
        double sum = 0;
        for (index l = 0; l < n; ++l) sum += static_cast<double>(left(i, l)) * weight(l) * mix(l, j);
        all(i, j) = static_cast<T>(sum);
      }
    }
    left = all;
  };
  product(graded,
          [&](index l) { return std::pow(static_cast<double>(abft::unit_roundoff<T>), static_cast<double>(l) / static_cast<double>(n)); });
  product(gap, [&](index l) { return l < n / 2 ? 1.0 : std::sqrt(static_cast<double>(abft::unit_roundoff<T>)); });
  const std::vector<std::pair<std::string, dense<T>>> cases = {{"Kahan", kahan}, {"Gks", gks}, {"graded", graded}, {"gap", gap}};
  for (const auto& [name, A] : cases) {
    const std::vector<double> sigma = singular_values(std::vector<double>(A.data(), A.data() + A.size()), n, n);
    const lapack_pivots lapack(A);
    const pivoted<T> made = factor_in_order(A, this->how());
    ASSERT_EQ(made.seen.verdict, verdict::clean) << name << to_json(made.seen);
    double own = 1, other = 1;
    for (index k = 0; k < n; ++k) {
      if (sigma[number(k)] < 1e3 * abft::unit_roundoff<T> * sigma[0]) break;
      const auto off = [&](double r) { return std::max(r / sigma[number(k)], sigma[number(k)] / r); };
      own = std::max(own, off(std::abs(static_cast<double>(made.F(k, k)))));
      other = std::max(other, off(lapack.diagonal[number(k)]));
    }
    EXPECT_LE(own, 1.05 * other) << name;
  }
}

template <class T>
struct solved {
  dense<T> A, X;
  std::vector<index> pivots;
  index rank = -1;
  report seen;
};

template <class T>
solved<T> solve(const dense<T>& A, const dense<T>& B, double rcond, run::settings how, const inject::plan* faults = nullptr) {
  how.throw_on_uncorrectable = false;
  const inject::scope scope(faults);
  solved<T> made{
      A, dense<T>(std::max(A.rows(), A.columns()), B.columns(), order::column_major), std::vector<index>(number(A.columns())), -1, {}};
  for (index j = 0; j < B.columns(); ++j) std::copy_n(B.data() + j * B.rows(), B.rows(), made.X.data() + j * made.X.rows());
  made.seen = gelsy(made.A.view(), made.X.view(), made.pivots, rcond, made.rank, how.where(), how.now());
  return made;
}

// A of rank r: a product of random matrices.
template <class T>
dense<T> low_rank(index m, index n, index r, std::uint64_t seed) {
  const dense<T> left = random_matrix<T>(m, r, seed), right = random_matrix<T>(r, n, seed + 1);
  dense<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) {
      double sum = 0;
      for (index l = 0; l < r; ++l) sum += static_cast<double>(left(i, l)) * right(l, j);
      A(i, j) = static_cast<T>(sum);
    }
  }
  return A;
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
    const dense<T> A = low_rank<T>(m, n, r, 31), B = random_matrix<T>(m, 3, 33);
    const double rcond = sizeof(T) == 4 ? 1e-5 : 1e-12;
    const solved<T> made = solve(A, B, rcond, this->how());
    const std::string name = fmt::format("{} × {} rank {}: {}", m, n, r, to_json(made.seen));
    EXPECT_EQ(made.seen.verdict, verdict::clean) << name;
    ASSERT_EQ(made.rank, r) << name;
    EXPECT_TRUE(is_permutation(made.pivots));
    const int im = static_cast<int>(m), in = static_cast<int>(n), nrhs = 3, ldb = static_cast<int>(std::max(m, n)),
              lwork = 200 * (ldb + 10);
    std::vector<double> a(A.data(), A.data() + A.size()), b(number(ldb * 3)), s(number(std::min(m, n))), work(number(lwork));
    std::vector<int> iwork(10000);
    for (index j = 0; j < 3; ++j) std::copy_n(B.data() + j * m, m, b.data() + j * ldb);
    int rank = 0, info = 0;
    dgelsd_(&im, &in, &nrhs, a.data(), &im, b.data(), &ldb, s.data(), &rcond, &rank, work.data(), &lwork, iwork.data(), &info);
    ASSERT_EQ(info, 0);
    ASSERT_EQ(rank, r) << name;
    const double condition = s[0] / s[number(r - 1)];
    // The leading block has no smaller condition number than the kept part of A; pivoting keeps it near.
    EXPECT_LE(made.seen.condition, 3 * condition) << name;
    EXPECT_GE(made.seen.condition, condition / 20) << name;
    for (index j = 0; j < 3; ++j) {
      double off = 0, norm = 0, right = 0;
      for (index i = 0; i < n; ++i) {
        const double x = b[number(i + j * ldb)];
        off += std::pow(static_cast<double>(made.X(i, j)) - x, 2);
        norm += x * x;
      }
      for (index i = 0; i < m; ++i) right += std::pow(static_cast<double>(B(i, j)), 2);
      const double limit = 30 * static_cast<double>(std::max(m, n)) * abft::unit_roundoff<T> * condition *
                           (std::sqrt(norm) + condition * std::sqrt(right) / s[0]);
      EXPECT_LE(std::sqrt(off), limit) << name;
    }
  }
}

TYPED_TEST(qr_pivot, gelsy_takes_zeros_extremes_and_other_strides) {
  using T = typename TestFixture::T;
  const dense<T> zero(4, 3, order::column_major), B = random_matrix<T>(4, 2, 1);
  const solved<T> none = solve(zero, B, -1, this->how());
  EXPECT_EQ(none.rank, 0);
  for (index j = 0; j < 2; ++j) {
    for (index i = 0; i < 3; ++i) EXPECT_EQ(none.X(i, j), 0);
  }
  // Equal columns share the coefficient.
  for (const double size : {1.0, sizeof(T) == 4 ? 1e-36 : 1e-300, sizeof(T) == 4 ? 1e35 : 1e300}) {
    dense<T> A(4, 2, order::column_major), b(4, 1, order::column_major);
    for (index i = 0; i < 4; ++i)
      A(i, 0) = A(i, 1) = static_cast<T>(size * static_cast<double>(i + 1)), b(i, 0) = static_cast<T>(4 * i + 4);
    const solved<T> both = solve(A, b, -1, this->how());
    EXPECT_EQ(both.seen.verdict, verdict::clean) << to_json(both.seen);
    EXPECT_EQ(both.rank, 1) << size;
    for (index j = 0; j < 2; ++j) EXPECT_NEAR(both.X(j, 0) * size, 2, 40 * abft::unit_roundoff<T>) << size;
  }
  const dense<T> A = low_rank<T>(9, 6, 4, 5), right = random_matrix<T>(9, 2, 6);
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
  const dense<T> A = random_matrix<T>(m, n, 8);
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
  std::vector<index> pivots(number(n));
  std::vector<T> tau(number(std::min(m, n)));
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
      double sum = 0;
      for (index l = 0; l <= j; ++l) sum += static_cast<double>(Q(i, l)) * R(l, j);
      off = std::max(off, std::abs(sum - A(i, held.pivots[number(j)])));
    }
  }
  EXPECT_LE(off, 100 * std::sqrt(static_cast<double>(m)) * abft::unit_roundoff<T>);
}

TYPED_TEST(qr_pivot, data_with_inf_or_nan_keep_their_order) {
  using T = typename TestFixture::T;
  dense<T> A = random_matrix<T>(6, 4, 2);
  A(3, 2) = std::numeric_limits<T>::quiet_NaN();
  const pivoted<T> made = factor_in_order(A, this->how());
  EXPECT_EQ(made.seen.verdict, verdict::clean);
  EXPECT_EQ(made.pivots, (std::vector<index>{0, 1, 2, 3}));
  EXPECT_TRUE(std::isfinite(made.F(1, 1)));
  const solved<T> x = solve(A, random_matrix<T>(6, 1, 3), -1, this->how());
  EXPECT_TRUE(std::isnan(x.X(3, 0)) && std::isnan(x.X(2, 0)));
  EXPECT_TRUE(std::isnan(x.seen.condition));
}

TYPED_TEST(qr_pivot, refuses_arguments_that_do_not_fit) {
  using T = typename TestFixture::T;
  dense<T> A = random_matrix<T>(6, 4, 2), B = random_matrix<T>(6, 1, 3);
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
}

// --------------------------------------------------------------------------------------------------------------------------- faults

const std::vector<inject::site> k_choice = {site::column_norm, site::pivot, site::permutation};

TYPED_TEST(qr_pivot, every_fault_in_the_choice_is_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21), B = random_matrix<T>(40, 2, 22), low = low_rank<T>(40, 24, 9, 23);
  const pivoted<T> clean = factor_in_order(A, this->how());
  const solved<T> clean_x = solve(low, B, 1e-5, this->how());
  ASSERT_EQ(clean.seen.verdict, verdict::clean);
  ASSERT_EQ(clean_x.rank, 9);
  for (const inject::site where : k_choice) {
    int at_site = 0;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      // On the emulator a sample takes a third of the models, different ones at each site.
      if (this->which == backend::cuda && test::sampled() && !test::taken(static_cast<std::uint64_t>(where) + what, 3)) continue;
      const auto model = static_cast<inject::model>(what);
      int noticed = 0;
      const std::uint64_t seeds = this->rounds(test::sampled() ? 6 : 20);
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const std::string name = fmt::format("{} {} seed {}", inject::row_of(where).name, inject::k_model_names[what], seed);
        const inject::plan faults({fault(where, model, seed)});
        const pivoted<T> struck = factor_in_order(A, this->how(), &faults);
        noticed += struck.seen.verdict == verdict::clean ? 0 : 1;
        if (struck.seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.seen);
          EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), struck.F.data())) << "A was not given back: " << name;
        } else {
          EXPECT_EQ(struck.pivots, clean.pivots) << name << to_json(struck.seen);
          EXPECT_LE(change(struck.F, clean.F), 300.0) << name;
        }
        const solved<T> x = solve(low, B, 1e-5, this->how(), &faults);
        if (x.seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(x.seen);
        } else {
          EXPECT_EQ(x.rank, 9) << name;
          EXPECT_LE(change(x.X, clean_x.X), 3e4) << name << to_json(x.seen);
        }
      }
      at_site += noticed;
      if (where != site::column_norm) {
        EXPECT_GE(noticed, static_cast<int>(seeds) / 2) << inject::row_of(where).name << inject::k_model_names[what];
      }
    }
    EXPECT_GT(at_site, 0) << inject::row_of(where).name;
  }
}

TYPED_TEST(qr_pivot, without_protection_a_fault_in_the_choice_reaches_the_output) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  run::settings off = this->how(), detect = this->how();
  off.protection = protection::off;
  detect.protection = protection::detect;
  const pivoted<T> clean = factor_in_order(A, off);
  EXPECT_EQ(clean.seen.checks, 0u);
  for (const inject::site where : k_choice) {
    int reached = 0, seen = 0;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      inject::request wanted = fault(where, where == site::column_norm ? inject::model::bit_flip : inject::model::random_value, seed);
      if (where == site::column_norm) wanted.bit = 62;  // a norm below 1 becomes the largest
      const inject::plan faults({wanted});
      const pivoted<T> struck = factor_in_order(A, off, &faults);
      EXPECT_EQ(struck.seen.verdict, verdict::clean);
      reached += struck.pivots != clean.pivots ? 1 : 0;
      const pivoted<T> told = factor_in_order(A, detect, &faults);
      seen += told.seen.verdict == verdict::uncorrectable ? 1 : 0;
      EXPECT_EQ(told.seen.verdict == verdict::uncorrectable, struck.pivots != clean.pivots) << inject::row_of(where).name << seed;
    }
    EXPECT_GE(reached, 5) << inject::row_of(where).name;
    EXPECT_GE(seen, 5) << inject::row_of(where).name;
  }
}

TYPED_TEST(qr_pivot, faults_in_the_factorization_are_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21), B = random_matrix<T>(40, 2, 22), low = low_rank<T>(40, 24, 9, 23);
  const pivoted<T> clean = factor_in_order(A, this->how());
  const solved<T> clean_x = solve(low, B, 1e-5, this->how());
  for (const inject::site where :
       {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r, site::q, site::store, site::checksum}) {
    for (const auto model : {inject::model::bit_flip, inject::model::random_value, inject::model::nan}) {
      for (std::uint64_t seed = 0; seed < this->rounds(4); ++seed) {
        const std::string name = fmt::format("{} seed {}", inject::row_of(where).name, seed);
        const inject::plan faults({fault(where, model, seed)});
        const solved<T> x = solve(low, B, 1e-5, this->how(), &faults);
        ASSERT_NE(x.seen.verdict, verdict::uncorrectable) << name << to_json(x.seen);
        EXPECT_EQ(x.rank, 9) << name;
        EXPECT_LE(change(x.X, clean_x.X), 3e4) << name << to_json(x.seen);
        if (where == site::q || where == site::store) continue;  // geqp3 in place does not reach them
        const pivoted<T> struck = factor_in_order(A, this->how(), &faults);
        ASSERT_NE(struck.seen.verdict, verdict::uncorrectable) << name << to_json(struck.seen);
        EXPECT_EQ(struck.pivots, clean.pivots) << name;
        EXPECT_LE(change(struck.F, clean.F), 300.0 * 40) << name;
      }
    }
  }
}

TYPED_TEST(qr_pivot, a_cancelled_call_gives_its_arguments_back) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  dense<T> F = A;
  std::vector<T> tau(24, T(7));
  std::vector<index> pivots(24, 5);
  call now;
  struct enough {};
  now.on_progress = [](const progress&) { throw enough(); };
  EXPECT_THROW((void)geqp3(F.view(), pivots, tau, this->how().where(), now), enough);
  EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), F.data()));
  EXPECT_EQ(tau, std::vector<T>(24, T(7)));
  EXPECT_EQ(pivots, std::vector<index>(24, 5));
}

}  // namespace
}  // namespace ballast::qr
