// Batches of small matrices on every backend, in one program on those of the host, in the other (BALLAST_TEST_QR_ON_CUDA) on cuda by the
// emulator: accuracy against long double sums, LAPACK's storage, strides, hostile data without an alarm, arguments. Faults:
// qr_batch_faults_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "backend/qr_batch_cases.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using index = std::int64_t;
using namespace subjects;

TYPED_SUITE(qr_batch, settings, test::setting_names);

TYPED_TEST(qr_batch, factors_every_shape_accurately) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    const index count = m * n < 2000 ? 9 : 2;
    const batch<T> A = random_batch<T>(m, n, count, static_cast<std::uint64_t>(m * 1000 + n));
    const factored_batch<T> made = factor_each(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
    EXPECT_EQ(made.report.backend, this->which);
    EXPECT_EQ(made.report.problem, to_token({precision_of<T>, m, n, count}));
    // Processors compute larger matrices one after the other, panel by panel.
    const auto of_tiles = static_cast<std::uint64_t>(2 * count);
    if (this->on_cuda() || std::max(m, n) <= 256)
      EXPECT_EQ(made.report.checks, of_tiles) << m << " × " << n;
    else
      EXPECT_GT(made.report.checks, of_tiles) << m << " × " << n;
    const ratios seen = worst_of(A, made);
    EXPECT_LT(seen.residual, 10) << m << " × " << n;
    EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    // The same numbers without protection.
    run::settings bare = this->how();
    bare.protection = protection::off;
    const factored_batch<T> same = factor_each(A, bare);
    EXPECT_EQ(same.F.data, made.F.data) << m << " × " << n;
    EXPECT_EQ(same.tau, made.tau) << m << " × " << n;
    EXPECT_EQ(same.report.checks, 0u);
  }
}

TYPED_TEST(qr_batch, factors_every_kind_of_data_accurately_and_without_alarm) {
  using T = typename TestFixture::T;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 8}, {20, 13}, {13, 20}, {60, 40}, {300, 9}}) {
      const batch<T> A = batch_of_kind<T>(kind, m, n, this->on_cuda() ? 2 : 5);
      const factored_batch<T> made = factor_each(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.detected, 0u) << kind;
      const ratios seen = worst_of(A, made);
      EXPECT_LT(seen.residual, 30) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 30) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr_batch, agrees_with_lapacks_conventions) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(12, 6, 3, 4);
  for (index i = 3; i < 12; ++i) A.data[static_cast<std::size_t>(i + 12 * 2)] = 0;  // R's third column, as A's first two, has other numbers
  for (index e = 0; e < 12 * 6; ++e) A.data[static_cast<std::size_t>(72 + e)] = T(e % 13 == 0);  // an identity: no tails
  const factored_batch<T> made = factor_each(A, this->how());
  for (index j = 0; j < 6; ++j) {
    EXPECT_EQ(made.tau[static_cast<std::size_t>(6 + j)], 0);
    for (index i = 0; i < 12; ++i) EXPECT_EQ(made.F[1](i, j), T(i == j));
    // β has the opposite sign of the diagonal's number, 1 ≤ τ ≤ 2.
    EXPECT_GE(made.tau[static_cast<std::size_t>(j)], 1);
    EXPECT_LE(made.tau[static_cast<std::size_t>(j)], 2);
  }
  EXPECT_LT(made.F[0](0, 0) * A[0](0, 0), 0);
}

TYPED_TEST(qr_batch, leaves_what_lies_between_strided_elements_alone) {
  using T = typename TestFixture::T;
  for (const auto& [m, n, count] : {std::tuple<index, index, index>(9, 5, 4), {300, 5, 2}}) {
    const batch<T> A = random_batch<T>(m, n, count, 8);
    // Rows are contiguous, with gaps, and the matrices interleave: elements of one are `count` apart.
    std::vector<T> memory(static_cast<std::size_t>(m * (n + 2) * count), T(77));
    const matrix_batch_view<T> strided{memory.data(), count, m, n, (n + 2) * count, count, 1};
    for (index b = 0; b < count; ++b) {
      for (index i = 0; i < m; ++i) {
        for (index j = 0; j < n; ++j) strided[b](i, j) = A[b](i, j);
      }
    }
    std::vector<T> tau(static_cast<std::size_t>(n * count));
    EXPECT_EQ(geqrf(strided, tau, this->how()).verdict, verdict::clean);
    const factored_batch<T> made = factor_each(A, this->how());
    EXPECT_EQ(tau, made.tau);
    for (index b = 0; b < count; ++b) {
      for (index i = 0; i < m; ++i) {
        for (index j = 0; j < n; ++j) EXPECT_EQ(strided[b](i, j), made.F[b](i, j));
        for (index j = n; j < n + 2; ++j) EXPECT_EQ(memory[static_cast<std::size_t>((i * (n + 2) + j) * count + b)], T(77));
      }
    }
  }
}

// NaN in a column spreads to the columns to its right, and to no other matrix. This is no fault.
TYPED_TEST(qr_batch, inf_and_nan_pass_through_and_are_no_fault) {
  using T = typename TestFixture::T;
  for (const index m : {10, 300}) {
    batch<T> A = random_batch<T>(m, 6, 3, 5);
    const auto at = [](index i) { return static_cast<std::size_t>(i); };
    A.data[at(6 * m + 3 * m + 4)] = std::numeric_limits<T>::quiet_NaN();
    A.data[at(12 * m)] = std::numeric_limits<T>::infinity();
    const factored_batch<T> made = factor_each(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
    EXPECT_EQ(made.report.detected, 0u);
    const batch<T> clean = random_batch<T>(m, 6, 3, 5);
    const factored_batch<T> expected = factor_each(clean, this->how());
    for (index e = 0; e < 9 * m; ++e) EXPECT_EQ(made.F.data[at(e)], expected.F.data[at(e)]);
    EXPECT_TRUE(std::isnan(made.F[1](9, 3)));
  }
}

// op(Q) of a batch, on both sides, against the reflectors one after the other in long double.
TYPED_TEST(qr_batch, applies_and_forms_q) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 5}, {16, 9}, {30, 30}, {70, 20}, {150, 140}, {300, 5}, {7000, 3}}) {
    if (test::sampled() && this->on_cuda() && m == 150) continue;
    const index k = std::min(m, n), count = 3;
    const factored_batch<T> made = factor_each(random_batch<T>(m, n, count, 6), this->how());
    const auto apply = [&](index b, std::vector<long double>& x, bool transposed) {
      for (index s = 0; s < k; ++s) {
        const index j = transposed ? s : k - 1 - s;
        const auto v = [&](index i) { return i == j ? 1.0L : static_cast<long double>(made.F[b](i, j)); };
        long double dot = 0;
        for (index i = j; i < m; ++i) dot += v(i) * x[static_cast<std::size_t>(i)];
        for (index i = j; i < m; ++i)
          x[static_cast<std::size_t>(i)] -= v(i) * dot * static_cast<long double>(made.tau_of(b)[static_cast<std::size_t>(j)]);
      }
    };
    const double tolerance = 20 * static_cast<double>(m) * abft::unit_roundoff<T>;
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        // Small matrices also with more columns than a team has: teams of one warp then have other numbers of them.
        const index p = m <= 16 ? 20 : 7;
        const batch<T> C = where == side::left ? random_batch<T>(m, p, count, 9) : random_batch<T>(p, m, count, 9);
        batch<T> X = C;
        const report seen = ormqr(where, op, std::as_const(made.F).view(), made.tau, X.view(), this->how());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        EXPECT_GT(seen.checks, 0u);
        for (index b = 0; b < count; ++b) {
          for (index c = 0; c < p; ++c) {
            std::vector<long double> x;
            for (index i = 0; i < m; ++i) x.push_back(where == side::left ? C[b](i, c) : C[b](c, i));
            apply(b, x, (op == transpose::yes) == (where == side::left));
            for (index i = 0; i < m; ++i)
              ASSERT_NEAR(where == side::left ? X[b](i, c) : X[b](c, i), static_cast<double>(x[static_cast<std::size_t>(i)]), tolerance)
                  << m << " × " << n;
          }
        }
      }
    }
    batch<T> Q(m, k, count);
    for (index b = 0; b < count; ++b) std::copy_n(made.F.data.begin() + b * m * n, m * k, Q.data.begin() + b * m * k);
    const report formed = orgqr(Q.view(), made.tau, this->how());
    EXPECT_EQ(formed.verdict, verdict::clean) << to_json(formed);
    for (index b = 0; b < count; ++b) {
      for (index c = 0; c < k; ++c) {
        std::vector<long double> x(static_cast<std::size_t>(m));
        x[static_cast<std::size_t>(c)] = 1;
        apply(b, x, false);
        for (index i = 0; i < m; ++i) ASSERT_NEAR(Q[b](i, c), static_cast<double>(x[static_cast<std::size_t>(i)]), tolerance);
      }
    }
  }
}

// The solution's residual is orthogonal to A's columns (m ≥ n), or zero, and X lies in the span of A's rows (m < n).
TYPED_TEST(qr_batch, solves_least_squares_of_both_shapes) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 8}, {24, 10}, {10, 24}, {64, 33}, {33, 64}, {300, 8}, {8, 300}}) {
    const index count = 3, p = 3, most = std::max(m, n);
    const batch<T> A = random_batch<T>(m, n, count, 12);
    batch<T> F = A, X = random_batch<T>(most, p, count, 13);
    const batch<T> B = X;
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << m << " × " << n << to_json(seen);
    for (index b = 0; b < count; ++b) {
      for (index c = 0; c < p; ++c) {
        std::vector<long double> r;
        long double scale = 1;
        for (index i = 0; i < m; ++i) {
          long double sum = B[b](i, c);
          for (index j = 0; j < n; ++j) {
            sum -= static_cast<long double>(A[b](i, j)) * static_cast<long double>(X[b](j, c));
            scale = std::max(scale, std::abs(static_cast<long double>(X[b](j, c))));
          }
          r.push_back(sum);
        }
        const double tolerance = 100 * static_cast<double>(most * most) * abft::unit_roundoff<T> * static_cast<double>(scale);
        for (index j = 0; m >= n && j < n; ++j) {
          long double along = 0;
          for (index i = 0; i < m; ++i) along += r[static_cast<std::size_t>(i)] * static_cast<long double>(A[b](i, j));
          ASSERT_NEAR(static_cast<double>(along), 0, tolerance) << m << " × " << n;
        }
        for (index i = 0; m < n && i < m; ++i) ASSERT_NEAR(static_cast<double>(r[static_cast<std::size_t>(i)]), 0, tolerance);
      }
    }
    if (m >= n) continue;
    // The solution of least norm is that of the single call.
    for (index b = 0; b < count; ++b) {
      dense<T> one = copy_of<T>(A[b]), solution = copy_of<T>(B[b]);
      (void)gels(one.view(), solution.view(), {.backend = this->which == backend::cuda ? backend::cpu : this->which});
      for (index c = 0; c < p; ++c) {
        for (index j = 0; j < n; ++j) ASSERT_NEAR(X[b](j, c), solution(j, c), 1e4 * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr_batch, gels_names_the_matrix_without_full_rank_and_solves_the_others) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(6, 6, 5, 3);
  for (index e = 0; e < 36; ++e) A.data[static_cast<std::size_t>(3 * 36 + e)] = T(e % 7 == 0 && e != 28);  // a 0 in column 4
  batch<T> X = random_batch<T>(6, 1, 5, 4);
  const batch<T> B = X, original = A;
  try {
    (void)gels(A.view(), X.view(), this->how());
    FAIL();
  } catch (const rank_deficient_error& e) {
    EXPECT_NE(std::string(e.what()).find("column 4 of matrix 3"), std::string::npos) << e.what();
  }
  for (index b = 0; b < 5; b += 4) {
    for (index i = 0; i < 6; ++i) {
      double sum = B[b](i, 0);
      for (index j = 0; j < 6; ++j) sum -= static_cast<double>(original[b](i, j)) * static_cast<double>(X[b](j, 0));
      EXPECT_NEAR(sum, 0, 1e5 * abft::unit_roundoff<T>);
    }
  }
}

// Larger ones go through the functions for one matrix.
TYPED_TEST(qr_batch, matrices_of_any_size) {
  using T = typename TestFixture::T;
  const batch<T> A = random_batch<T>(260, 6, 2, 2);
  const factored_batch<T> made = factor_each(A, this->how());
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_EQ(made.report.problem, to_token({precision_of<T>, 260, 6, 2}));
  EXPECT_LT(worst_of(A, made).residual, 10);
  const inject::plan faults({inject::parse_request("site=qr.trailing,model=bit_flip,bit=29,seed=3")});
  const factored_batch<T> struck = factor_each(A, this->how(&faults));
  for (const event& each : struck.report.events) EXPECT_LT(each.index, 2);
}

// -------------------------------------------------------------------------------------------------------------------- Arguments

TYPED_TEST(qr_batch, refuses_what_makes_no_sense) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(6, 4, 3, 1), C = random_batch<T>(6, 2, 2, 1), B = random_batch<T>(6, 2, 3, 1);
  std::vector<T> tau(12), few(11);
  const run::settings how = this->how();
  EXPECT_THROW((void)geqrf(A.view(), few, how), invalid_argument_error);
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(A.data.data(), 12), how), invalid_argument_error);
  matrix_batch_view<T> same = A.view();
  same.stride = 0;
  EXPECT_THROW((void)geqrf(same, tau, how), invalid_argument_error);
  matrix_batch_view<T> none = A.view();
  none.count = 0;
  EXPECT_THROW((void)geqrf(none, std::span<T>(), how), invalid_argument_error);
  none = A.view();
  none.data = nullptr;
  EXPECT_THROW((void)geqrf(none, tau, how), invalid_argument_error);
  EXPECT_THROW((void)ormqr(side::left, transpose::no, std::as_const(A).view(), tau, C.view(), how), invalid_argument_error);
  EXPECT_THROW((void)gels(A.view(), C.view(), how), invalid_argument_error);
  EXPECT_THROW((void)gels(A.view(), A.view(), how), invalid_argument_error);
  EXPECT_THROW((void)orgqr(A.view(), few, how), invalid_argument_error);
  run::settings other = how;
  other.scheme = "qr_update";
  EXPECT_THROW((void)geqrf(A.view(), tau, other), unsupported_error);
  if (!this->on_cuda()) {
    EXPECT_THROW((void)enqueue_geqrf(A.view(), tau, how), unsupported_error);
  }
}

TEST(qr_batch_token, is_read_and_written) {
  const problem made = parse_token("qr_f32_m64_n32_b1000");
  EXPECT_EQ(made.batch, 1000);
  EXPECT_EQ(made.columns, 32);
  EXPECT_EQ(to_token(made), "qr_f32_m64_n32_b1000");
  EXPECT_EQ(parse_token("qr_f64_m64_n32").batch, 1);
  for (const char* wrong : {"qr_f32_m64_n32_b", "qr_f32_m64_n32_b0", "qr_f32_m64_n32_b-1", "qr_f32_m64_n32_b2x", "qr_f32_m64_n32b2"})
    EXPECT_THROW((void)parse_token(wrong), invalid_argument_error) << wrong;
}

#if defined(BALLAST_TEST_QR_ON_CUDA)

// Operands in device memory, on a stream, without waiting; in the caller's workspace.
TEST(qr_batch_on_a_stream, reports_when_it_is_asked) {
  const auto device = cuda::current_device();
  const index m = 20, n = 12, count = 5;
  const batch<double> A = random_batch<double>(m, n, count, 7);
  const factored_batch<double> expected = factor_each(A, {.backend = backend::cuda});
  const cuda::device_buffer there(device, 8 * m * n * count), scalars(device, 8 * n * count);
  const auto workspace = [](index rows, index columns, index batch, operation what) {
    return plan<double>({.rows = rows, .columns = columns, .batch = batch}, {.backend = backend::cuda}).workspace_bytes(what);
  };
  const std::int64_t bytes = workspace(m, n, count, operation::geqrf);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(workspace(m, n, count, operation::ormqr), bytes);
  EXPECT_EQ(workspace(m, n, count, operation::gels), bytes + 8 * n * count);
  EXPECT_GT(workspace(300, 4, 1, operation::geqrf), 0);
  EXPECT_EQ(workspace(300, 300, 1, operation::geqrf), 0);
  EXPECT_EQ(plan<double>({.rows = m, .columns = n, .batch = count}, {.backend = backend::cpu}).workspace_bytes(operation::geqrf), 0);
  const cuda::device_buffer memory(device, bytes);
  device->copy(there.data(), A.data.data(), there.bytes(), nullptr);
  const matrix_batch_view<double> view = batch_of(column_major(static_cast<double*>(there.data()), m, n), count);
  const std::span<double> tau(static_cast<double*>(scalars.data()), static_cast<std::size_t>(n * count));
  const std::span<std::byte> room(static_cast<std::byte*>(memory.data()), static_cast<std::size_t>(bytes));
  pending_report pending = enqueue_geqrf(view, tau, {.backend = backend::cuda, .workspace = room});
  const report seen = pending.get();
  EXPECT_EQ(seen.verdict, verdict::clean);
  EXPECT_EQ(seen.checks, 2u * count);
  EXPECT_EQ(seen.problem, "qr_f64_m20_n12_b5");
  EXPECT_EQ(std::memcmp(there.data(), expected.F.data.data(), there.bytes()), 0);
  EXPECT_THROW((void)enqueue_geqrf(view, tau, {.backend = backend::cuda, .workspace = room.first(256)}), invalid_argument_error);
  batch<double> host = A;
  EXPECT_THROW((void)enqueue_geqrf(host.view(), tau, {.backend = backend::cuda}), invalid_argument_error);
  EXPECT_THROW((void)enqueue_geqrf(batch_of(column_major(static_cast<double*>(there.data()), 60, 300), 1), tau.first(60),
                                   {.backend = backend::cuda}),
               unsupported_error);
  // gels, with a matrix without full rank that is known when the report is asked for.
  device->copy(there.data(), A.data.data(), there.bytes(), nullptr);
  device->zero(there.data(), 8 * m * n, nullptr);
  const cuda::device_buffer right(device, 8 * m * count);
  device->zero(right.data(), right.bytes(), nullptr);
  pending_report solved =
      enqueue_gels(view, batch_of(column_major(static_cast<double*>(right.data()), m, index{1}), count), {.backend = backend::cuda});
  EXPECT_THROW((void)solved.get(), rank_deficient_error);
}

// gels of one small matrix takes the kernels for batches, in place, and the host estimates the condition. Operands in device memory keep
// what they held where the matrix is refused, and numbers near the ends of the range take the engine for one matrix.
TEST(qr_batch_of_one, gels_has_the_bits_of_a_batch_and_refuses_without_a_trace) {
  const auto device = cuda::current_device();
  const execution where{.backend = backend::cuda, .threads = 1};
  const execution engine{.backend = backend::cuda, .threads = 1, .scheme = "block_checksum"};
  constexpr index k = 3;
  for (const auto& [m, n] : {std::pair<index, index>(32, 32), {40, 24}, {24, 40}}) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    const index most = std::max(m, n);
    const auto solve = [&](const batch<double>& A, const batch<double>& B, const execution& how, batch<double>& F, batch<double>& X) {
      const cuda::device_buffer a(device, 8 * m * n), b(device, 8 * most * k);
      device->copy(a.data(), A.data.data(), a.bytes(), nullptr);
      device->copy(b.data(), B.data.data(), b.bytes(), nullptr);
      report seen;
      std::string refused;
      try {
        seen = gels(column_major(static_cast<double*>(a.data()), m, n), column_major(static_cast<double*>(b.data()), most, k), how);
      } catch (const rank_deficient_error& error) {
        refused = error.what();
      }
      device->copy(F.data.data(), a.data(), a.bytes(), nullptr);
      device->copy(X.data.data(), b.data(), b.bytes(), nullptr);
      return std::pair(seen, refused);
    };
    const batch<double> A = random_batch<double>(m, n, 1, 41), B = random_batch<double>(most, k, 1, 42);
    batch<double> F = A, X = B, G = A, Y = B, of_batch = random_batch<double>(m, n, 2, 41), right = random_batch<double>(most, k, 2, 42);
    const auto [seen, refused] = solve(A, B, where, F, X);
    EXPECT_EQ(refused, "");
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_EQ(seen.problem, to_token({precision::f64, m, n, 1}));
    std::copy_n(A.data.begin(), m * n, of_batch.data.begin());
    std::copy_n(B.data.begin(), most * k, right.data.begin());
    ASSERT_EQ(gels(of_batch.view(), right.view(), where).verdict, verdict::clean);
    EXPECT_TRUE(std::equal(F.data.begin(), F.data.end(), of_batch.data.begin()));
    EXPECT_TRUE(std::equal(X.data.begin(), X.data.end(), right.data.begin()));
    const report longer = solve(A, B, engine, G, Y).first;
    EXPECT_NEAR(seen.condition, longer.condition, 1e-9 * longer.condition);
    for (std::size_t e = 0; e < X.data.size(); ++e) EXPECT_NEAR(X.data[e], Y.data[e], 1e-10);
    // The same row and column twice.
    batch<double> twice = A;
    for (index i = 0; i < m; ++i) twice.data[static_cast<std::size_t>(i + 5 * m)] = twice.data[static_cast<std::size_t>(i + 3 * m)];
    for (index j = 0; j < n; ++j) twice.data[static_cast<std::size_t>(5 + j * m)] = twice.data[static_cast<std::size_t>(3 + j * m)];
    const std::string why = solve(twice, B, where, F, X).second;
    EXPECT_NE(why, "");
    EXPECT_EQ(F.data, twice.data);
    EXPECT_EQ(X.data, B.data);
    EXPECT_EQ(why.substr(0, why.find("condition")), [&] {
      const std::string same = solve(twice, B, engine, G, Y).second;
      return same.substr(0, same.find("condition"));
    }());
    batch<double> huge = B;
    for (double& each : huge.data) each *= 0x1p1000;
    (void)solve(A, huge, where, F, X);
    (void)solve(A, huge, engine, G, Y);
    EXPECT_EQ(F.data, G.data);
    EXPECT_EQ(X.data, Y.data);
  }
}

// A small matrix takes the kernels for batches: it has the bits that it has in a batch.
TEST(qr_batch_of_one, has_the_bits_of_a_batch) {
  const auto device = cuda::current_device();
  const index m = 40, n = 24, columns = 7;
  const execution where{.backend = backend::cuda, .threads = 1};
  batch<double> A = random_batch<double>(m, n, 2, 11), Q = A, C = random_batch<double>(m, columns, 2, 12),
                D = random_batch<double>(columns, m, 2, 13);
  const matrix_batch_view<double> left = C.view(), right = D.view();
  std::vector<double> tau(2 * static_cast<std::size_t>(n));
  std::vector<double> one_tau(static_cast<std::size_t>(n));
  batch<double> one = A, one_C = C, one_D = D;
  ASSERT_EQ(geqrf(A.view(), std::span(tau), where).verdict, verdict::clean);
  const report seen = geqrf(one.view()[0], std::span(one_tau), where);
  EXPECT_EQ(seen.verdict, verdict::clean);
  EXPECT_EQ(seen.checks, 2U);
  EXPECT_EQ(seen.problem, "qr_f64_m40_n24");
  const auto same = [](matrix_view<const double> a, matrix_view<const double> b) {
    for (index j = 0; j < a.columns; ++j) {
      for (index i = 0; i < a.rows; ++i) {
        if (a(i, j) != b(i, j)) return false;
      }
    }
    return true;
  };
  EXPECT_TRUE(same(one[0], A[0]));
  EXPECT_TRUE(std::ranges::equal(one_tau, std::span(tau).first(static_cast<std::size_t>(n))));
  const matrix_batch_view<const double> V = A.view();
  for (const transpose op : {transpose::no, transpose::yes}) {
    (void)ormqr(side::left, op, V, std::span<const double>(tau), left, where);
    (void)ormqr(side::left, op, V[0], std::span<const double>(one_tau), one_C.view()[0], where);
    EXPECT_TRUE(same(one_C[0], C[0]));
    (void)ormqr(side::right, op, V, std::span<const double>(tau), right, where);
    (void)ormqr(side::right, op, V[0], std::span<const double>(one_tau), one_D.view()[0], where);
    EXPECT_TRUE(same(one_D[0], D[0]));
  }
  (void)orgqr(A.view(), std::span<const double>(tau), where);
  (void)orgqr(one.view()[0], std::span<const double>(one_tau), where);
  EXPECT_TRUE(same(one[0], A[0]));
  // Q applied to more columns than one team holds is for the engine for one matrix, which stores all or nothing; so are calls that want
  // progress.
  const execution engine{.backend = backend::cuda, .threads = 1, .scheme = "block_checksum"};
  batch<double> wide = random_batch<double>(m, 200, 1, 14), same_wide = wide, told = random_batch<double>(m, n, 1, 15), same_told = told;
  (void)ormqr(side::left, transpose::no, V[0], std::span<const double>(one_tau), wide.view()[0], where);
  (void)ormqr(side::left, transpose::no, V[0], std::span<const double>(one_tau), same_wide.view()[0], engine);
  EXPECT_TRUE(same(wide[0], same_wide[0]));
  std::vector<double> told_tau = one_tau, same_tau = one_tau;
  int steps = 0;
  (void)geqrf(told.view()[0], std::span(told_tau), where, {.on_progress = [&](const progress&) { ++steps; }});
  (void)geqrf(same_told.view()[0], std::span(same_tau), engine);
  EXPECT_GT(steps, 0);
  EXPECT_TRUE(same(told[0], same_told[0]));
  // A named scheme is computed by the engine for one matrix, right up to rounding.
  const report named =
      geqrf(Q.view()[0], std::span(one_tau), execution{.backend = backend::cuda, .threads = 1, .scheme = "block_checksum"});
  EXPECT_EQ(named.verdict, verdict::clean);
  EXPECT_NE(named.checks, 2U);
}

// On a device without clusters the largest go one by one.
TEST(qr_batch_without_clusters, takes_every_size) {
  const auto before = cuda::overriding_device();
  cuda::override_device(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, 8)));
  const batch<float> A = random_batch<float>(20, 130, 2, 3);
  const factored_batch<float> made = factor_each(A, {.backend = backend::cuda});
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_LT(worst_of(A, made).residual, 10);
  cuda::forget_idle_states();
  cuda::override_device(before);
}

#endif

}  // namespace
}  // namespace ballast::qr
