// Matrices that do not fit into the device's memory, on the emulator with little memory: its allocator refuses what is more.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "core/at.hpp"
#include "inject/plan.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using core::at;
using namespace subjects;

// So much memory that a piece of a matrix with m rows has 64 columns.
template <class T>
ballast::cuda::capabilities little_memory(index m) {
  ballast::cuda::capabilities about = simt::emulated_capabilities();
  about.memory = (m * (24 << 10) + 4 * m * static_cast<index>(sizeof(T)) * 80) / 9 * 10;
  return about;
}

template <class T>
class qr_cuda_out_of_core : public testing::Test {};
TYPED_SUITE(qr_cuda_out_of_core, test::reals, test::number_names);

TYPED_TEST(qr_cuda_out_of_core, factors_and_q_are_as_good_as_of_a_whole_matrix) {
  using T = TypeParam;
  struct shape {
    index m, n;
  };
  for (const auto& [m, n] : {shape{150, 140}, {70, 150}}) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    const device_for_a_test here(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
    for (const order layout : {order::column_major, order::row_major}) {
      const matrix<T> A = copy_of<T>(random_matrix<T>(m, n, 1).view(), layout);
      for (const protection level : {protection::correct, protection::off}) {
        matrix<T> F = A;
        std::vector<T> tau(at(std::min(m, n)));
        std::int64_t last = 0;
        const run::settings how{.backend = backend::cuda, .threads = 1, .protection = level, .on_progress = [&](const progress& seen) {
                                  EXPECT_GT(seen.done, last);
                                  last = seen.done;
                                }};
        ASSERT_EQ(geqrf(F.view(), tau, how).verdict, verdict::clean);
        EXPECT_GE(last, 3);
        const ratios seen = ratios_of<T>(A.view(), F.view(), tau);
        EXPECT_LE(seen.residual, 10);
        EXPECT_LE(seen.orthogonality, 10);
        if (test::sampled() && (layout == order::row_major) == (level == protection::correct)) continue;
        // Q, and Q applied from both sides, beside the reference backend.
        const run::settings plain{.backend = backend::cuda, .threads = 1, .protection = level}, reference{.backend = backend::reference};
        const index k = std::min(m, n);
        matrix<T> Q = copy_of<T>(F.view().block(0, 0, m, k)), expected = Q;
        ASSERT_EQ(orgqr(Q.view(), tau, plain).verdict, verdict::clean);
        ASSERT_EQ(orgqr(expected.view(), tau, reference).verdict, verdict::clean);
        const double tolerance = 100 * static_cast<double>(m) * abft::unit_roundoff<T>;
        EXPECT_LE(largest_change(Q, expected), tolerance);
        for (const side where : {side::left, side::right}) {
          for (const transpose op : {transpose::no, transpose::yes}) {
            if (test::sampled() && (where == side::left) != (op == transpose::yes)) continue;
            const matrix<T> X = where == side::left ? random_matrix<T>(m, 100, 2) : random_matrix<T>(100, m, 2);
            matrix<T> C = X, D = X;
            ASSERT_EQ(ormqr(where, op, F.view().block(0, 0, m, k), tau, C.view(), plain).verdict, verdict::clean);
            ASSERT_EQ(ormqr(where, op, F.view().block(0, 0, m, k), tau, D.view(), reference).verdict, verdict::clean);
            EXPECT_LE(largest_change(C, D), 10 * tolerance);
          }
        }
      }
    }
    const matrix<T> A = random_matrix<T>(m, n, 3);
    const factors<T> made = factor(A.view(), {.backend = backend::cuda, .threads = 1});
    EXPECT_EQ(made.report.verdict, verdict::clean);
    EXPECT_LE(ratios_of<T>(A.view(), made.storage.view(), made.tau).residual, 10);
    EXPECT_EQ(made.q({.backend = backend::cuda, .threads = 1}).values.columns(), std::min(m, n));
  }
}

// Column pivoting: factors of either layout, faults in the choice, and a refusal of gelsy.
TYPED_TEST(qr_cuda_out_of_core, pivots_are_those_of_the_reference) {
  using T = TypeParam;
  const index m = 150, n = 140;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
  const execution where{.backend = backend::cuda, .threads = 1}, reference{.backend = backend::reference};
  const matrix<T> A = random_matrix<T>(m, n, 1);
  std::vector<index> expected(at(n));
  std::vector<T> tau(at(n));
  matrix<T> plain = A;
  ASSERT_EQ(geqp3(plain.view(), expected, tau, reference).verdict, verdict::clean);
  matrix<T> ordered = A;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) ordered(i, j) = A(i, expected[at(j)]);
  }
  for (const order layout : {order::column_major, order::row_major}) {
    matrix<T> F = copy_of<T>(A.view(), layout);
    std::vector<index> pivots(at(n));
    const inject::plan faults({{.site = site::pivot, .model = inject::model::random_value, .seed = 5}});
    const inject::scope scope(layout == order::column_major ? nullptr : &faults);
    const report seen = geqp3(F.view(), pivots, tau, where);
    EXPECT_EQ(seen.verdict == verdict::clean, layout == order::column_major) << to_json(seen);
    EXPECT_EQ(pivots, expected);
    const ratios found = ratios_of<T>(ordered.view(), F.view(), tau);
    EXPECT_LE(found.residual, 30);
    EXPECT_LE(found.orthogonality, 30);
  }
  matrix<T> F = A, B = random_matrix<T>(m, 1, 2);
  std::vector<index> pivots(at(n));
  index rank = 0;
  EXPECT_THROW((void)gelsy(F.view(), B.view(), pivots, 0.1, rank, where), unsupported_error);
}

// gels and factors::solve, tall and wide, of several blocks of right-hand sides, and where columns of A are of extreme size.
TYPED_TEST(qr_cuda_out_of_core, least_squares_are_those_of_the_reference) {
  using T = TypeParam;
  const index m = 150, n = 140;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
  const run::settings how{.backend = backend::cuda, .threads = 1}, reference{.backend = backend::reference};
  // Columns that nearly are orthogonal, so that solutions differ by rounding alone.
  const auto matrix_of = [&](bool wide, bool extreme) {
    matrix<T> A = random_matrix<T>(wide ? n : m, wide ? m : n, 4);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        T& element = wide ? A(j, i) : A(i, j);
        element = element / 8 + (i == j ? T(8) : T(0));
        if (extreme && j % 50 == 3) element = std::ldexp(element, sizeof(T) == 4 ? -100 : -900);
      }
    }
    return A;
  };
  const double tolerance = 500 * static_cast<double>(m) * abft::unit_roundoff<T>;
  for (const bool wide : {false, true}) {
    for (const index count : {3, 100}) {
      for (const bool extreme : {false, true}) {
        if (extreme && (wide || count > 3)) continue;
        if (test::sampled() && wide != (count > 3) && !extreme) continue;
        SCOPED_TRACE(std::to_string(wide) + " " + std::to_string(count) + " " + std::to_string(extreme));
        const matrix<T> A = matrix_of(wide, extreme), B = random_matrix<T>(m, count, 5);
        matrix<T> F = A, X = B, G = A, Y = B;
        const report seen = gels(F.view(), X.view(), how);
        ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        ASSERT_EQ(gels(G.view(), Y.view(), reference).verdict, verdict::clean);
        double size = 0;
        for (index j = 0; j < count; ++j) {
          for (index i = 0; i < m; ++i) {
            // Unknowns of extreme columns are extreme as well.
            const int shift = extreme && i < n && i % 50 == 3 ? (sizeof(T) == 4 ? -100 : -900) : 0;
            X(i, j) = std::ldexp(X(i, j), shift), Y(i, j) = std::ldexp(Y(i, j), shift);
            size = std::max(size, std::abs(double{Y(i, j)}));
          }
        }
        EXPECT_LE(largest_change(X, Y), tolerance * size);
        EXPECT_LE(largest_change(F, G), tolerance * 8);
        if (wide) continue;
        computed<T> again = solution_of(factor(A.view(), how), B.view(), how);
        matrix<T>& Z = again.values;
        EXPECT_EQ(again.report.verdict, verdict::clean) << to_json(again.report);
        for (index j = 0; j < count; ++j) {
          for (index i = 3; extreme && i < n; i += 50) Z(i, j) = std::ldexp(Z(i, j), sizeof(T) == 4 ? -100 : -900);
        }
        EXPECT_LE(largest_change(Z, copy_of<T>(Y.view().block(0, 0, n, count))), tolerance * size);
      }
    }
  }
  matrix<T> singular = matrix_of(false, false), B = random_matrix<T>(m, 1, 5);
  for (index i = 0; i < m; ++i) singular(i, 70) = 0;
  EXPECT_THROW((void)gels(singular.view(), B.view(), how), rank_deficient_error);
}

// Faults in the application of Q to right-hand sides are repaired; without protection they reach the solution.
TYPED_TEST(qr_cuda_out_of_core, faults_in_least_squares_are_repaired) {
  using T = TypeParam;
  const index m = 150, n = 140;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
  const matrix<T> A = random_matrix<T>(m, n, 4), right = random_matrix<T>(m, 3, 5);
  const auto solve = [&](protection level, const inject::plan* faults, report& seen) {
    matrix<T> F = A, X = right;
    seen = gels(F.view(), X.view(),
                run::settings{.backend = backend::cuda,
                              .threads = 1,
                              .protection = level,
                              .throw_on_uncorrectable = false,
                              .faults = faults,
                              .full_rank = false});
    return X;
  };
  report seen;
  const matrix<T> expected = solve(protection::correct, nullptr, seen);
  ASSERT_EQ(seen.verdict, verdict::clean);
  const double small = 1e-2 * largest_change(expected, matrix<T>(m, 3, order::column_major));
  int repaired = 0, reached = 0;
  for (std::uint64_t seed = 0; seed < (test::sampled() ? 2u : 6u); ++seed) {
    const inject::plan faults({{.site = site::q, .model = inject::model::random_value, .seed = seed}});
    const matrix<T> made = solve(protection::correct, &faults, seen);
    EXPECT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
    EXPECT_LE(largest_change(made, expected), small) << to_json(seen);
    repaired += seen.detected > 0 ? 1 : 0;
    reached += largest_change(solve(protection::off, &faults, seen), expected) > small ? 1 : 0;
  }
  EXPECT_GE(repaired, test::sampled() ? 1 : 3);
  EXPECT_GE(reached, test::sampled() ? 1 : 3);
}

// Every copy of a run but the caller's numbers on their way in: what arrives wrong, be it a factored piece that is loaded again, is copied
// once more. Without protection it reaches the result.
TYPED_TEST(qr_cuda_out_of_core, what_arrives_wrong_is_copied_again) {
  using T = TypeParam;
  const index m = 150, n = 140;
  const auto device = std::make_shared<struck_device>(std::make_shared<simt::emulated_device>(little_memory<T>(m)));
  const device_for_a_test here(device);
  const matrix<T> A = random_matrix<T>(m, n, 1);
  const auto factor_it = [&](protection level, matrix<T>& F) {
    F = A;
    std::vector<T> tau(at(n));
    return geqrf(F.view(), tau,
                 run::settings{.backend = backend::cuda, .threads = 1, .protection = level, .throw_on_uncorrectable = false});
  };
  matrix<T> expected, F;
  ASSERT_EQ(factor_it(protection::correct, expected).verdict, verdict::clean);
  int repaired = 0, reached = 0;
  for (std::int64_t which = 0;; ++which) {
    if (!test::taken(static_cast<std::uint64_t>(which), 2)) continue;
    device->strikes = {{"copy_kernel", which, [&](const void* a) {
                          const auto& given = *static_cast<const cuda::copy_arguments<T>*>(a);
                          device->alter(given.to + (given.rows - 1) * given.to_row, 0.5);
                        }}};
    const report seen = factor_it(protection::correct, F);
    if (!device->strikes[0].met()) break;
    if (std::none_of(seen.events.begin(), seen.events.end(), [](const event& e) { return std::string(e.site) == "qr.piece"; })) continue;
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(largest_change(F, expected), 0);
    ++repaired;
    device->strikes[0].seen = 0;
    EXPECT_EQ(factor_it(protection::off, F).verdict, verdict::clean);
    if (largest_change(F, expected) >= 1e-3) ++reached;
  }
  // Three pieces: 1 + 2 loads, as many results taken over, and a copy of each to go back to, which serves nothing without protection.
  EXPECT_GE(repaired, test::sampled() ? 4 : 9);
  EXPECT_GE(reached, test::sampled() ? 2 : 4);
}

}  // namespace
}  // namespace ballast::qr
