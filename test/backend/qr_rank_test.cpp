// Least squares without full rank, for any scaling of the columns: refused, with the rank and a dependent column. The condition number
// of the report. Right-hand sides with large numbers beside small ones.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_rank : public subjects::qr<Setting> {};
TYPED_SUITE(qr_rank, settings, test::setting_names);

template <class T>
dense<T> from_rows(const std::vector<std::vector<double>>& rows) {
  dense<T> made(static_cast<index>(rows.size()), static_cast<index>(rows[0].size()), order::column_major);
  for (index j = 0; j < made.columns(); ++j) {
    for (index i = 0; i < made.rows(); ++i) made(i, j) = static_cast<T>(rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
  }
  return made;
}

// A deficient matrix, its rank, and columns of which the message must name one.
struct deficient {
  std::string name;
  std::vector<std::vector<double>> rows;
  index rank;
  std::vector<std::string> says;
};

std::vector<deficient> deficient_cases() {
  std::vector<std::vector<double>> equal, dummies, products;
  for (int i = 1; i <= 10; ++i) {
    const double x = i, low = i < 6 ? 1 : 0;
    equal.push_back({1, x, x});
    dummies.push_back({1, x, low, 1 - low});
    products.push_back({x, 0.1 * x + 0.3 * x * x, x * x});
  }
  return {{"two equal columns", equal, 2, {"column 1", "column 2"}},
          {"dummy variables beside a constant", dummies, 3, {"column 0", "column 2", "column 3"}},
          {"a rounded combination", products, 2, {"column 0", "column 1", "column 2"}},
          {"more columns than rows", {{1, 2, 3}, {2, 4, 6}}, 1, {"row 0", "row 1"}},
          {"a zero column", {{1, 0, 2}, {3, 0, 4}, {5, 0, 7}, {7, 0, 1}}, 2, {"column 1"}},
          {"zero", {{0, 0}, {0, 0}, {0, 0}}, 0, {"column 0"}}};
}

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const rank_deficient_error& e) {
    return e.what();
  }
  return "";
}

template <class T>
bool equal(const dense<T>& a, const dense<T>& b) {
  return std::equal(a.data(), a.data() + a.size(), b.data());
}

TYPED_TEST(qr_rank, gels_refuses_columns_that_depend_on_each_other) {
  using T = typename TestFixture::T;
  for (const deficient& each : deficient_cases()) {
    for (const double spread : {1.0, sizeof(T) == 4 ? 1e9 : 1e120}) {
      SCOPED_TRACE(each.name + (spread == 1 ? "" : ", scaled"));
      dense<T> A = from_rows<T>(each.rows);
      const bool under = A.rows() < A.columns();
      // Powers of the spread on the columns (rows, if these depend) change no rank.
      for (index i = 0; i < A.rows(); ++i) {
        for (index j = 0; j < A.columns(); ++j) {
          const double scale = std::exp2(std::round(std::log2(spread)) * static_cast<double>(((under ? i : j) % 3) - 1));
          A(i, j) = static_cast<T>(static_cast<double>(A(i, j)) * scale);
        }
      }
      dense<T> B = random_matrix<T>(std::max(A.rows(), A.columns()), 2, 5);
      const dense<T> A0 = A, B0 = B;
      const std::string said = refusal([&] { (void)gels(A.view(), B.view(), this->how()); });
      EXPECT_NE(said.find("rank " + std::to_string(each.rank) + " of"), std::string::npos) << said;
      EXPECT_TRUE(std::any_of(each.says.begin(), each.says.end(), [&](const auto& name) { return said.find(name) != std::string::npos; }))
          << said;
      EXPECT_TRUE(equal(A, A0) && equal(B, B0)) << "a result was committed";
      if (under) continue;
      const auto factored = factor(matrix_view<const T>(A0.view()), this->how());
      EXPECT_FALSE(refusal([&] { (void)solution_of(factored, B0.view(), this->how()); }).empty());
    }
  }
}

// Kahan's matrix: R(i, i) = sⁱ, R(i, j) = −c sⁱ. No number on the diagonal is small, but the smallest singular value is.
TYPED_TEST(qr_rank, gels_sees_a_dependence_that_no_diagonal_shows) {
  using T = typename TestFixture::T;
  const index n = sizeof(T) == 4 ? 48 : 100;
  const double s = std::sin(1.2), c = std::cos(1.2);
  dense<T> A(n + 4, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i <= j; ++i) A(i, j) = static_cast<T>((i == j ? 1 : -c) * std::pow(s, static_cast<double>(i)));
  }
  dense<T> B = random_matrix<T>(n + 4, 1, 6);
  const std::string said = refusal([&] { (void)gels(A.view(), B.view(), this->how()); });
  EXPECT_NE(said.find("full rank"), std::string::npos) << said;
}

// Returns ‖S‖_F ‖S⁺‖₂ / √n by inverse iteration in long double, S as in report::condition.
template <class T>
double condition_of(const dense<T>& A) {
  const index m = A.rows(), n = A.columns();
  const auto number = [&](index i) { return static_cast<std::size_t>(i); };
  std::vector<std::vector<long double>> S(number(n), std::vector<long double>(number(m))),
      G(number(n), std::vector<long double>(number(n)));
  long double all = 0;
  for (index j = 0; j < n; ++j) {
    long double square = 0;
    for (index i = 0; i < m; ++i) square += static_cast<long double>(A(i, j)) * A(i, j);
    const long double scale = std::exp2(-static_cast<long double>(std::ilogb(std::sqrt(square))));
    for (index i = 0; i < m; ++i) S[number(j)][number(i)] = A(i, j) * scale;
    all += square * scale * scale;
  }
  // The Cholesky factor of SᵀS, by rows.
  for (index i = 0; i < n; ++i) {
    for (index j = 0; j <= i; ++j) {
      long double sum = 0;
      for (index r = 0; r < m; ++r) sum += S[number(i)][number(r)] * S[number(j)][number(r)];
      for (index l = 0; l < j; ++l) sum -= G[number(i)][number(l)] * G[number(j)][number(l)];
      G[number(i)][number(j)] = i == j ? std::sqrt(sum) : sum / G[number(j)][number(j)];
    }
  }
  std::vector<long double> x(number(n), 1);
  long double norm = 0;
  for (int step = 0; step < 100; ++step) {
    for (index i = 0; i < n; ++i) {
      for (index l = 0; l < i; ++l) x[number(i)] -= G[number(i)][number(l)] * x[number(l)];
      x[number(i)] /= G[number(i)][number(i)];
    }
    for (index i = n; i-- > 0;) {
      for (index l = i + 1; l < n; ++l) x[number(i)] -= G[number(l)][number(i)] * x[number(l)];
      x[number(i)] /= G[number(i)][number(i)];
    }
    norm = 0;
    for (const long double each : x) norm += each * each;
    norm = std::sqrt(norm);
    for (long double& each : x) each /= norm;
  }
  return static_cast<double>(std::sqrt(norm) * std::sqrt(all / static_cast<long double>(n)));
}

TYPED_TEST(qr_rank, gels_reports_the_condition_number) {
  using T = typename TestFixture::T;
  const auto reported = [&](dense<T> A) {
    dense<T> B = random_matrix<T>(std::max(A.rows(), A.columns()), 1, 8);
    return gels(A.view(), B.view(), this->how()).condition;
  };
  dense<T> identity(5, 5, order::column_major);
  for (index i = 0; i < 5; ++i) identity(i, i) = static_cast<T>(std::exp2(static_cast<double>(10 * i)));
  EXPECT_NEAR(reported(identity), 1, 1e-5);
  std::vector<dense<T>> cases = {random_matrix<T>(40, 24, 1), matrix_of_kind<T>("hilbert", 9, sizeof(T) == 4 ? 3 : 7, 1),
                                 matrix_of_kind<T>("columns 1e±12", 40, 12, 2)};
  dense<T> years(40, 3, order::column_major);  // 1, t, t²: collinear, and still independent
  for (index i = 0; i < 40; ++i) {
    for (index j = 0; j < 3; ++j) years(i, j) = static_cast<T>(std::pow((sizeof(T) == 4 ? 100.0 : 1960.0) + static_cast<double>(i), j));
  }
  cases.push_back(years);
  for (const dense<T>& A : cases) {
    const double exact = condition_of(A), seen = reported(A);
    EXPECT_LE(seen, 1.1 * exact);
    EXPECT_GE(seen, exact / 10);
  }
  dense<T> wide = random_matrix<T>(3, 8, 3), tall(8, 3, order::column_major);
  for (index i = 0; i < 8; ++i) {
    for (index j = 0; j < 3; ++j) tall(i, j) = wide(j, i);
  }
  EXPECT_NEAR(reported(wide), reported(tall), 1e-3 * reported(tall));
  dense<T> odd = random_matrix<T>(6, 3, 9);
  odd(2, 1) = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reported(odd)));
}

TYPED_TEST(qr_rank, batches_of_gels_name_a_column_that_depends_on_others) {
  using T = typename TestFixture::T;
  constexpr index m = 9, n = 4, count = 5;
  for (const bool under : {false, true}) {
    std::vector<T> A(m * n * count), B(m * 2 * count);
    const dense<T> data = random_matrix<T>(m * n, count, 4), right = random_matrix<T>(m * 2, count, 5);
    std::copy_n(data.data(), A.size(), A.begin());
    std::copy_n(right.data(), B.size(), B.begin());
    for (index i = 0; i < m; ++i) A[static_cast<std::size_t>(i + (2 + n * 3) * m)] = A[static_cast<std::size_t>(i + n * 3 * m)] * T(1024);
    matrix_batch_view<T> tall{A.data(), count, m, n, 1, m, m * n};
    const matrix_batch_view<T> both{B.data(), count, m, 2, 1, m, m * 2};
    const std::string said = refusal([&] { (void)gels(under ? tall.transposed() : tall, both, this->how()); });
    EXPECT_NE(said.find("column 2 of matrix 3"), std::string::npos) << said;
    for (const index b : {index{0}, index{4}}) {
      dense<T> F(m, n, order::column_major), X(m, 2, order::column_major);
      std::copy_n(data.data() + b * m * n, m * n, F.data());
      std::copy_n(right.data() + b * m * 2, m * 2, X.data());
      EXPECT_EQ(gels(under ? F.view().transposed() : F.view(), X.view(), this->how()).verdict, verdict::clean);
      for (index i = 0; i < (under ? m : n); ++i) EXPECT_NEAR(both[b](i, 1), X(i, 1), 1e4 * abft::unit_roundoff<T>);
    }
  }
}

// The least-squares solution of the identity is the right-hand side, for any numbers.
TYPED_TEST(qr_rank, large_numbers_of_a_right_hand_side_leave_small_ones_alone) {
  using T = typename TestFixture::T;
  const std::vector<std::pair<double, double>> pairs =
      sizeof(T) == 4 ? std::vector<std::pair<double, double>>{{1e30, 1e-12}, {1e-30, 1e-36}, {3e38, 1}}
                     : std::vector<std::pair<double, double>>{{1e200, 1e-200}, {1e-200, 1e-290}, {1e308, 1}};
  for (const auto& [large, small] : pairs) {
    dense<T> A(2, 2, order::column_major), B(2, 2, order::column_major);
    A(0, 0) = A(1, 1) = 1;
    B(0, 0) = B(1, 1) = static_cast<T>(large);
    B(1, 0) = B(0, 1) = static_cast<T>(small);
    const dense<T> expected = B, A0 = A;
    EXPECT_EQ(gels(A.view(), B.view(), this->how()).verdict, verdict::clean);
    EXPECT_TRUE(equal(B, expected)) << B(0, 0) << ' ' << B(1, 0) << ' ' << B(0, 1) << ' ' << B(1, 1);
    const auto factored = factor(matrix_view<const T>(A0.view()), this->how());
    const matrix<T> X = solution_of(factored, expected.view(), this->how()).values;
    for (index e = 0; e < 4; ++e) EXPECT_EQ(X.data()[e], expected.data()[e]);
    std::vector<T> all, right;
    for (int b = 0; b < 3; ++b) {
      all.insert(all.end(), A0.data(), A0.data() + 4);
      right.insert(right.end(), expected.data(), expected.data() + 4);
    }
    EXPECT_EQ(
        gels(matrix_batch_view<T>{all.data(), 3, 2, 2, 1, 2, 4}, matrix_batch_view<T>{right.data(), 3, 2, 2, 1, 2, 4}, this->how()).verdict,
        verdict::clean);
    for (std::size_t e = 0; e < right.size(); ++e) EXPECT_EQ(right[e], expected.data()[e % 4]);
  }
}

// A call whose numbers are so large that they must be scaled counts once, as every other call does.
TYPED_TEST(qr_rank, every_second_call_is_protected_whatever_its_numbers) {
  using T = typename TestFixture::T;
  const index m = 9, n = 4;
  const plan<T> made({.rows = m, .columns = n}, {.backend = TestFixture::which, .threads = 2, .sampled = 2});
  bool guarded = false;  // plans of one problem begin with different calls
  for (int number = 0; number < 4; ++number) {
    dense<T> A = random_matrix<T>(m, n, number), B = random_matrix<T>(m, 2, number + 10);
    for (index i = 0; i < m; ++i) B(i, 1) *= static_cast<T>(sizeof(T) == 4 ? 1e32 : 1e250);
    const report seen = made.gels(A.view(), B.view(), {});
    EXPECT_EQ(seen.verdict, verdict::clean);
    if (number > 0) EXPECT_NE(seen.checks > 0, guarded) << number;
    guarded = seen.checks > 0;
    EXPECT_EQ(seen.protection == protection::off, !guarded) << number;
  }
}

// A refused call leaves the matrices and what lies between their rows and columns as they were.
TYPED_TEST(qr_rank, gaps_are_not_written) {
  using T = typename TestFixture::T;
  const index m = 6, n = 3, pitch = 8;
  std::vector<T> a(static_cast<std::size_t>(pitch * n)), b(static_cast<std::size_t>(pitch * 2));
  for (std::size_t e = 0; e < a.size(); ++e) a[e] = static_cast<T>(e % 8 + 1);  // columns are equal
  for (std::size_t e = 0; e < b.size(); ++e) b[e] = static_cast<T>(e);
  const std::vector<T> a0 = a, b0 = b;
  const matrix_view<T> A = column_major(a.data(), m, n, pitch), B = column_major(b.data(), m, index{2}, pitch);
  EXPECT_NE(refusal([&] { (void)gels(A, B, this->how()); }), "");
  EXPECT_EQ(a, a0);
  EXPECT_EQ(b, b0);
}

}  // namespace
}  // namespace ballast::qr
