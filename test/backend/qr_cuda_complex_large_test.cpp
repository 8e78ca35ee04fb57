// QR of complex matrices that the kernels for batches do not hold, on cuda, on the emulator: panels of several parts, tall matrices,
// updates of several blocks, Q from both sides, least squares, batches, and faults. Small matrices with the same engine:
// qr_complex_test.cpp.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_cuda_complex_large : public qr_complex<Setting> {
 protected:
  // No scheme is named: the shape alone selects the engine.
  static run::settings how() { return qr_complex<Setting>::how(""); }
};

TYPED_SUITE(qr_cuda_complex_large, complex_settings, test::number_names);

TYPED_TEST(qr_cuda_complex_large, factors_every_shape_accurately_with_a_real_diagonal) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{257, 3}, {3, 257}, {1500, 9}, {600, 70}, {70, 300}, {300, 260}}) {
    const dense<S> A = random_complex<S>(m, n, static_cast<std::uint64_t>(m * 1000 + n));
    const factored<S> made = factor_in_place<S>(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
    EXPECT_EQ(made.report.detected, 0u) << m << " × " << n;
    EXPECT_EQ(made.report.backend, backend::cuda);
    EXPECT_EQ(made.report.problem, to_token(this->problem_here(m, n)));
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 10) << m << " × " << n;
    EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    for (index j = 0; j < std::min(m, n); ++j) EXPECT_EQ(made.F(j, j).imag(), 0) << m << " × " << n << ", " << j;
    run::settings bare = this->how();
    bare.protection = protection::off;
    const factored<S> same = factor_in_place<S>(A, bare);
    EXPECT_EQ(same.tau, made.tau) << m << " × " << n;
    EXPECT_TRUE(std::equal(same.F.data(), same.F.data() + same.F.size(), made.F.data())) << m << " × " << n;
    const factored<S> host = factor_in_place<S>(A, {.backend = backend::reference});
    const double tolerance = 1000 * static_cast<double>(std::max(m, n)) * this->u;
    for (std::size_t j = 0; j < made.tau.size(); ++j) EXPECT_LT(std::abs(made.tau[j] - host.tau[j]), tolerance) << m << " × " << n;
  }
}

TYPED_TEST(qr_cuda_complex_large, applies_q_and_its_conjugate_transpose_from_both_sides) {
  using S = typename TestFixture::S;
  // For the tall one passes of all multiprocessors compute op(Q)ᴴa of the check, for the others one cluster.
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{300, 20}, {270, 150}, {1100, 19}}) {
    const factored<S> made = factor_in_place<S>(random_complex<S>(m, n, 6), this->how());
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        const dense<S> C0 = random_complex<S>(where == side::left ? m : 9, where == side::left ? 9 : m, 7);
        dense<S> C = copy_of<S>(C0, op == transpose::no ? order::column_major : order::row_major);
        const report seen = ormqr(where, op, made.F.view(), made.tau, C.view(), this->how());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        EXPECT_GT(seen.checks, 0u);
        const dense<S> expected = complex_applied<S>(where, op, made.F, made.tau, C0);
        const double tolerance = 10 * static_cast<double>(m) * this->u * std::sqrt(static_cast<double>(m));
        for (index i = 0; i < C.rows(); ++i) {
          for (index j = 0; j < C.columns(); ++j) ASSERT_LT(std::abs(C(i, j) - expected(i, j)), tolerance) << m << " × " << n;
        }
      }
    }
  }
}

TYPED_TEST(qr_cuda_complex_large, factors_solve_and_form_q) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{400, 30}, {30, 280}}) {
    const dense<S> A = copy_of<S>(random_complex<S>(m, n, 9), order::row_major), B = random_complex<S>(std::max(m, n), 2, 11);
    dense<S> F = copy_of<S>(A), X = copy_of<S>(B, order::row_major), on_host = copy_of<S>(A), expected = copy_of<S>(B);
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    const report from_host = gels(on_host.view(), expected.view(), run::settings{.backend = backend::reference});
    EXPECT_NEAR(seen.condition, from_host.condition, 1e-2 * from_host.condition);
    const double tolerance = 300 * static_cast<double>(std::max(m, n)) * this->u * from_host.condition;
    for (index i = 0; i < n; ++i) {
      for (index c = 0; c < 2; ++c) EXPECT_LT(std::abs(X(i, c) - expected(i, c)), tolerance) << m << " × " << n;
    }
    const auto made = factor(A.view(), this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    const computed<S> formed = q_of(made, this->how());
    EXPECT_EQ(formed.report.verdict, verdict::clean) << to_json(formed.report);
    const matrix<S>&Q = formed.values, R = made.r();
    for (index j = 0; j < n; j += 7) {
      for (index i = 0; i < m; ++i) {
        long_complex sum = -long_complex(A(i, j));
        for (index l = 0; l < R.rows(); ++l) sum += long_complex(Q(i, l)) * long_complex(R(l, j));
        ASSERT_LT(std::abs(sum), 20 * static_cast<double>(std::max(m, n)) * this->u) << m << " × " << n;
      }
    }
    if (m < n) continue;
    const computed<S> again = solution_of(made, B.view(), this->how());
    EXPECT_EQ(again.report.verdict, verdict::clean);
    for (index i = 0; i < n; ++i) {
      for (index c = 0; c < 2; ++c) EXPECT_LT(std::abs(again.values(i, c) - X(i, c)), tolerance);
    }
  }
}

// Panels of two parts, whose T comes from VᴴV, and three blocks. Each fault strikes one component.
TYPED_TEST(qr_cuda_complex_large, every_fault_is_repaired_and_reaches_the_output_without_protection) {
  using S = typename TestFixture::S;
  const index m = 270, n = 200;
  const dense<S> A = random_complex<S>(m, n, 21), C0 = random_complex<S>(m, 3, 22);
  const auto compute = [&](protection level, const inject::plan* faults, report& seen) {
    run::settings how = this->how();
    how.protection = level;
    how.faults = faults;
    how.throw_on_uncorrectable = false;
    factored<S> made = factor_in_place<S>(A, how);
    dense<S> C = copy_of<S>(C0);
    seen = made.report;
    seen.merge(ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), how));
    return std::pair{std::move(made.F), std::move(C)};
  };
  report seen;
  const auto clean = compute(protection::correct, nullptr, seen);
  ASSERT_EQ(seen.verdict, verdict::clean);
  for (const inject::site where :
       {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r, site::q, site::checksum, site::store}) {
    int noticed = 0, reached = 0;
    const std::uint64_t seeds = test::sampled() ? 2 : 6;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const std::string name = fmt::format("{} seed {}", inject::row_of(where).name, seed);
      const inject::plan faults({fault(where, seed % 2 == 0 ? inject::model::random_value : inject::model::nan, seed)});
      const auto struck = compute(protection::correct, &faults, seen);
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << name << to_json(seen);
      noticed += seen.verdict != verdict::clean;
      EXPECT_LE(std::max(change(struck.first, clean.first), change(struck.second, clean.second)), 300.0 * static_cast<double>(m)) << name;
      if (inject::row_of(where).role != inject::site_role::data) continue;
      const auto open = compute(protection::off, &faults, seen);
      reached += !(std::max(change(open.first, clean.first), change(open.second, clean.second)) <= 1e4);
    }
    if (inject::row_of(where).role != inject::site_role::data) continue;
    EXPECT_GT(noticed, 0) << inject::row_of(where).name;
    if (where != site::store) {  // in-place operands have no copy to strike
      EXPECT_GT(reached, 0) << inject::row_of(where).name;
    }
  }
}

}  // namespace
}  // namespace ballast::qr
