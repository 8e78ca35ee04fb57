// QR by the C interface computes what it says: against direct sums and residuals, real and complex, in steps and whole.
#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "c/support.hpp"

namespace ballast::test {
namespace {

using complex = std::complex<double>;

std::vector<complex> numbers_of(std::size_t count) {
  std::vector<complex> made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = {std::sin(1.0 + 3.7 * static_cast<double>(i)), std::cos(2.0 * static_cast<double>(i * i))};
  return made;
}

class c_qr_results : public c_interface {};

TEST_F(c_qr_results, qr_in_steps_and_whole) {
  constexpr int m = 7, n = 3;
  std::vector<double> A(m * n), b(m);
  for (int i = 0; i < m * n; ++i) A[static_cast<std::size_t>(i)] = std::sin(i * i + 1.0);
  for (int i = 0; i < m; ++i) b[static_cast<std::size_t>(i)] = std::cos(i);
  const std::vector<double> before = A, right = b;
  std::vector<double> tau(n), x(n), Q(m * n), R(n * n), storage(m * n), stored_tau(n);
  const tensor matrix(A, {m, n}), scalars(tau, {n}), column(b, {m}), target(x, {n}), q(Q, {m, n}, {1, m}), r(R, {n, n}),
      stored(storage, {m, n}), stored_scalars(stored_tau, {n});
  options with;
  make("qr", with);
  set(with, "rows", m);
  set(with, "columns", n);
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();

  factors owned_factors;
  ASSERT_EQ(ballast_qr_factor(matrix, with, nullptr, &owned_factors, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(A, before);
  EXPECT_STREQ(summary().problem, "qr_f64_m7_n3");
  ASSERT_EQ(ballast_factors_r(owned_factors, r, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_q(owned_factors, q, nullptr, seen, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_storage(owned_factors, stored, stored_scalars, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_solve(owned_factors, column, target, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = 0; k <= j; ++k) sum += Q[static_cast<std::size_t>(i + k * m)] * R[static_cast<std::size_t>(k * n + j)];
      EXPECT_NEAR(sum, before[static_cast<std::size_t>(i * n + j)], 1e-14);
    }
  }
  // geqrf, Q^T b, and Q by steps agree with that.
  ASSERT_EQ(ballast_qr_geqrf(plan, matrix, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(A, storage);
  EXPECT_EQ(tau, stored_tau);
  const tensor single(b, {m, 1});
  ASSERT_EQ(ballast_qr_ormqr(plan, BALLAST_LEFT, BALLAST_TRANSPOSE, matrix, scalars, single, nullptr, seen, wrong), BALLAST_OK)
      << message();
  for (int k = 0; k < n; ++k) {
    double sum = 0, solved = 0;
    for (int i = 0; i < m; ++i) sum += Q[static_cast<std::size_t>(i + k * m)] * right[static_cast<std::size_t>(i)];
    for (int j = k; j < n; ++j) solved += R[static_cast<std::size_t>(k * n + j)] * x[static_cast<std::size_t>(j)];
    EXPECT_NEAR(b[static_cast<std::size_t>(k)], sum, 1e-14);
    EXPECT_NEAR(solved, sum, 1e-14);
  }
  ASSERT_EQ(ballast_qr_orgqr(plan, matrix, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) EXPECT_NEAR(A[static_cast<std::size_t>(i * n + j)], Q[static_cast<std::size_t>(i + j * m)], 1e-14);
  }
  A = before;
  b = right;
  const tensor fresh(A, {m, n}), vector(b, {m});
  ASSERT_EQ(ballast_qr_gels(plan, fresh, vector, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_GE(summary().condition, 1);
  EXPECT_LT(summary().condition, 1000);
  for (int j = 0; j < n; ++j) EXPECT_NEAR(b[static_cast<std::size_t>(j)], x[static_cast<std::size_t>(j)], 1e-14);
}

TEST_F(c_qr_results, qr_of_complex_matrices) {
  constexpr int m = 7, n = 3, count = 2;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<complex> A = numbers_of(m * n), b = numbers_of(m);
  const std::vector<complex> before = A, right = b;
  std::vector<complex> tau(n), x(n), Q(m * n), R(n * n), storage(m * n), stored_tau(n);
  const tensor matrix(A, {m, n}), scalars(tau, {n}), column(b, {m}), target(x, {n}), q(Q, {m, n}, {1, m}), r(R, {n, n}),
      stored(storage, {m, n}), stored_scalars(stored_tau, {n});
  options with;
  make("qr", with);
  ASSERT_EQ(ballast_options_set_problem(with, "qr_c128_m7_n3", nullptr, wrong), BALLAST_OK) << message();
  std::int64_t complex_numbers = 0;
  ASSERT_EQ(ballast_options_get_integer(with, "complex", &complex_numbers, wrong), BALLAST_OK);
  EXPECT_EQ(complex_numbers, 1);
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  factors owned_factors;
  ASSERT_EQ(ballast_qr_factor(matrix, with, nullptr, &owned_factors, seen, wrong), BALLAST_OK) << message();
  EXPECT_STREQ(summary().problem, "qr_c128_m7_n3");
  ASSERT_EQ(ballast_factors_r(owned_factors, r, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_q(owned_factors, q, nullptr, seen, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_storage(owned_factors, stored, stored_scalars, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_factors_solve(owned_factors, column, target, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int k = 0; k < n; ++k) EXPECT_EQ(R[at(k * n + k)].imag(), 0);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      complex sum = 0;
      for (int k = 0; k <= j; ++k) sum += Q[at(i + k * m)] * R[at(k * n + j)];
      EXPECT_LT(std::abs(sum - before[at(i * n + j)]), 1e-14);
    }
  }
  ASSERT_EQ(ballast_qr_geqrf(plan, matrix, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(A, storage);
  EXPECT_EQ(tau, stored_tau);
  // The transpose is the conjugate one: b becomes Q^H b, and R x is its head.
  const tensor single(b, {m, 1});
  ASSERT_EQ(ballast_qr_ormqr(plan, BALLAST_LEFT, BALLAST_TRANSPOSE, matrix, scalars, single, nullptr, seen, wrong), BALLAST_OK)
      << message();
  for (int k = 0; k < n; ++k) {
    complex sum = 0, solved = 0;
    for (int i = 0; i < m; ++i) sum += std::conj(Q[at(i + k * m)]) * right[at(i)];
    for (int j = k; j < n; ++j) solved += R[at(k * n + j)] * x[at(j)];
    EXPECT_LT(std::abs(b[at(k)] - sum), 1e-14);
    EXPECT_LT(std::abs(solved - sum), 1e-14);
  }
  ASSERT_EQ(ballast_qr_orgqr(plan, matrix, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) EXPECT_LT(std::abs(A[at(i * n + j)] - Q[at(i + j * m)]), 1e-14);
  }
  // A batch of the same system twice.
  std::vector<complex> both(before), rights(right);
  both.insert(both.end(), before.begin(), before.end());
  rights.insert(rights.end(), right.begin(), right.end());
  const tensor batch(both, {count, m, n}), columns(rights, {count, m});
  ASSERT_EQ(ballast_options_set_problem(with, "qr_c128_m7_n3_b2", nullptr, wrong), BALLAST_OK) << message();
  qr_plan many;
  ASSERT_EQ(ballast_qr_plan_create(with, &many, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_qr_gels(many, batch, columns, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int which = 0; which < count; ++which) {
    for (int j = 0; j < n; ++j) EXPECT_LT(std::abs(rights[at(which * m + j)] - x[at(j)]), 1e-14);
  }
}

TEST_F(c_qr_results, qr_with_column_pivoting) {
  constexpr int m = 5, n = 3;
  // The second column is the longest; the third depends on the others.
  std::vector<double> A(m * n), b(m), tau(n);
  for (int i = 0; i < m; ++i) {
    const double first = std::sin(i + 1.0), second = 4 * std::cos(2.0 * i);
    A[static_cast<std::size_t>(i * n)] = first;
    A[static_cast<std::size_t>(i * n + 1)] = second;
    A[static_cast<std::size_t>(i * n + 2)] = first / 4 + second / 8;
    b[static_cast<std::size_t>(i)] = 3 * first - second;
  }
  const std::vector<double> before = A, right = b;
  options with;
  make("qr", with);
  set(with, "rows", m);
  set(with, "columns", n);
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  const tensor matrix(A, {m, n}), scalars(tau, {n}), vector(b, {m});
  std::int64_t pivots[n] = {-1, -1, -1}, rank = -1;
  ASSERT_EQ(ballast_qr_geqp3(plan, matrix, pivots, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(pivots[0], 1);
  EXPECT_EQ(pivots[1], 0);
  EXPECT_EQ(pivots[2], 2);
  EXPECT_GT(std::abs(A[0]), std::abs(A[n + 1]));
  EXPECT_LT(std::abs(A[2 * n + 2]), 1e-14);
  A = before;
  ASSERT_EQ(ballast_qr_gelsy(plan, matrix, vector, pivots, 1e-10, &rank, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(pivots[0], 1);
  EXPECT_LT(summary().condition, 100);
  // A x = b, and x is orthogonal to the vector (1/4, 1/8, −1) that A takes to zero.
  EXPECT_NEAR(b[0] / 4 + b[1] / 8 - b[2], 0, 1e-13);
  for (int i = 0; i < m; ++i) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += before[static_cast<std::size_t>(i * n + j)] * b[static_cast<std::size_t>(j)];
    EXPECT_NEAR(sum, right[static_cast<std::size_t>(i)], 1e-13);
  }
  EXPECT_EQ(ballast_qr_geqp3(plan, matrix, nullptr, scalars, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_qr_gelsy(plan, matrix, vector, pivots, 0.5, nullptr, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
}

// The same for complex numbers: the third column is i times the first one and a part of the second.
TEST_F(c_qr_results, complex_qr_with_column_pivoting) {
  constexpr int m = 5, n = 3;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const complex i_third(0, 1. / 4), eighth(1. / 8);
  std::vector<complex> A(m * n), b(m), tau(n);
  for (int i = 0; i < m; ++i) {
    const complex first = std::polar(1.0, i + 1.0), second = std::polar(4.0, i * i + 0.5);
    A[at(i * n)] = first;
    A[at(i * n + 1)] = second;
    A[at(i * n + 2)] = i_third * first + eighth * second;
    b[at(i)] = complex(3, 1) * first - second;
  }
  const std::vector<complex> before = A, right = b;
  options with;
  make("qr", with);
  set(with, "rows", m);
  set(with, "columns", n);
  set(with, "complex", 1);
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  const tensor matrix(A, {m, n}), scalars(tau, {n}), vector(b, {m});
  std::int64_t pivots[n] = {-1, -1, -1}, rank = -1;
  ASSERT_EQ(ballast_qr_geqp3(plan, matrix, pivots, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_STREQ(summary().problem, "qr_c128_m5_n3");
  EXPECT_EQ(pivots[0], 1);
  EXPECT_EQ(pivots[1], 0);
  EXPECT_EQ(pivots[2], 2);
  EXPECT_NEAR(std::abs(A[0]), 4 * std::sqrt(m), 1e-14);
  EXPECT_EQ(A[0].imag(), 0);
  EXPECT_GT(std::abs(A[0]), std::abs(A[n + 1]));
  EXPECT_LT(std::abs(A[2 * n + 2]), 1e-14);
  A = before;
  ASSERT_EQ(ballast_qr_gelsy(plan, matrix, vector, pivots, 1e-10, &rank, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(pivots[0], 1);
  EXPECT_LT(summary().condition, 100);
  // A x = b, and x is orthogonal to the vector (i/4, 1/8, −1) that A takes to zero.
  EXPECT_LT(std::abs(std::conj(i_third) * b[0] + eighth * b[1] - b[2]), 1e-13);
  for (int i = 0; i < m; ++i) {
    complex sum = 0;
    for (int j = 0; j < n; ++j) sum += before[at(i * n + j)] * b[at(j)];
    EXPECT_LT(std::abs(sum - right[at(i)]), 1e-13);
  }
}

}  // namespace
}  // namespace ballast::test
