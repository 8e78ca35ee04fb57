// QR and least squares of block columns on several devices of one process, on the emulator: the definitions, faults of the messages between
// their threads, injected faults, operands on a device, and what is refused.
// Layer: backend tests.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>

#include "cuda/device/device.hpp"
#include "group/qr_definitions.hpp"
#include "group/state.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "qr/sites.hpp"
#include "support/effort.hpp"
#include "support/several_devices.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

template <class T>
struct column_results {
  matrix<T> q, r, x, projected, back;
  std::vector<T> tau;
  std::uint64_t detected = 0, checks = 0, uncorrectable = 0;
  std::size_t parts = 0;

  bool operator==(const column_results& other) const {
    const auto same = [](const matrix<T>& a, const matrix<T>& b) {
      return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
    };
    return same(q, other.q) && same(r, other.r) && same(x, other.x) && same(projected, other.projected) && same(back, other.back) &&
           tau == other.tau;
  }
};

execution columns_on(const std::vector<int>& devices, protection level = protection::correct,
                     const std::vector<wire::wire_fault>& faults = {}) {
  execution where{.threads = 2, .protection = level, .group = group::devices(devices, {.resend_after = 0.01})};
  where.group.internal()->faults = faults;
  return where;
}

template <class T>
column_results<T> factor_columns_of(matrix_view<const T> A, matrix_view<const T> B, std::int64_t block, const execution& where) {
  const call kept{.throw_on_uncorrectable = false};
  const column_factors<T> made = factor_columns(A, block, where, kept);
  computed<T> q = made.q(kept), projected = made.apply_transposed(B, kept);
  computed<T> back = made.apply(std::as_const(projected.values).view(), kept), x;
  if (A.rows >= A.columns) x = made.solve(B, kept);
  column_results<T> all{std::move(q.values), made.r(), std::move(x.values), std::move(projected.values), std::move(back.values), made.tau};
  all.parts = made.devices.size();
  for (const report* each : std::initializer_list<const report*>{&made.report, &q.report, &projected.report, &back.report, &x.report}) {
    all.detected += each->detected;
    all.checks += each->checks;
    all.uncorrectable += each->uncorrectable;
    if (each->checks > 0) {
      EXPECT_EQ(each->backend, backend::cuda);
    }
  }
  return all;
}

template <class T>
class qr_columns_devices : public testing::Test {
 protected:
  test::several_devices three_{4, 4, 4};
};
using precisions_of_columns = testing::Types<float, double>;
TYPED_SUITE(qr_columns_devices, precisions_of_columns, test::number_names);

// Square, tall and narrow blocks, a last block that is narrower, and fewer blocks than devices.
TYPED_TEST(qr_columns_devices, definitions) {
  using T = TypeParam;
  for (const auto& [m, n, block] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{49, 49, 16}, {70, 40, 24}, {40, 11, 8}}) {
    const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 3, 2);
    for (const std::vector<int>& list : {std::vector<int>{0}, {0, 1}, {2, 0, 1}, {1, 1}}) {
      const std::string what = std::to_string(m) + " × " + std::to_string(n) + " on " + std::to_string(list.size()) + " devices";
      const column_results<T> found = factor_columns_of<T>(A.view(), B.view(), block, columns_on(list));
      EXPECT_EQ(found.parts, std::min<std::size_t>(list.size(), static_cast<std::size_t>((n + block - 1) / block)));
      EXPECT_EQ(found.detected, 0U) << what;
      EXPECT_GT(found.checks, 0U);
      on_groups::expect_definitions(A, B, found, what);
      // Q Qᵀ B = B: two applications, each errs by n u of ‖B‖.
      double off = 0;
      for (std::int64_t j = 0; j < 3; ++j)
        for (std::int64_t i = 0; i < m; ++i) off += std::pow(static_cast<double>(found.back(i, j)) - static_cast<double>(B(i, j)), 2);
      EXPECT_LE(std::sqrt(off), 4 * static_cast<double>(n) * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) * on_groups::norm(B)) << what;
    }
    // Which devices compute does not matter.
    EXPECT_TRUE(factor_columns_of<T>(A.view(), B.view(), block, columns_on({2, 1})) ==
                factor_columns_of<T>(A.view(), B.view(), block, columns_on({0, 1})));
  }
}

// More columns than rows: the blocks after the last panel are only updated.
TYPED_TEST(qr_columns_devices, wide) {
  using T = TypeParam;
  const std::int64_t m = 37, n = 90;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 5), B = on_groups::random_matrix<T>(m, 2, 6);
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  for (const std::vector<int>& list : {std::vector<int>{0}, {0, 1}}) {
    const column_results<T> found = factor_columns_of<T>(A.view(), B.view(), 10, columns_on(list));
    EXPECT_EQ(found.detected, 0U);
    double residual = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = -static_cast<double>(A(i, j));
        for (std::int64_t e = 0; e < m; ++e) sum += static_cast<double>(found.q(i, e)) * static_cast<double>(found.r(e, j));
        residual += sum * sum;
      }
    }
    EXPECT_LE(std::sqrt(residual), 4 * static_cast<double>(n) * u * on_groups::norm(A));
  }
}

// A and B on a device of the group, column by column and row by row; factors stay on the devices.
TYPED_TEST(qr_columns_devices, operands_and_factors_on_devices) {
  using T = TypeParam;
  const std::int64_t m = 60, n = 40;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 2, 2);
  const column_results<T> expected = factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1}));
  for (const order as : {order::row_major, order::column_major}) {
    std::vector<ballast::cuda::device_buffer> memory;
    const auto there = [&](const matrix<T>& of) {
      matrix<T> turned(of.rows(), of.columns(), as);
      for (std::int64_t i = 0; i < of.rows(); ++i)
        for (std::int64_t j = 0; j < of.columns(); ++j) turned(i, j) = of(i, j);
      const auto bytes = static_cast<std::int64_t>(turned.size() * sizeof(T));
      memory.emplace_back(this->three_[1], bytes);
      this->three_[1]->copy(memory.back().data(), turned.data(), bytes, nullptr);
      matrix_view<const T> view = std::as_const(turned).view();
      view.data = static_cast<const T*>(memory.back().data());
      return view;
    };
    const matrix_view<const T> a = there(A), b = there(B);
    EXPECT_TRUE(factor_columns_of<T>(a, b, 8, columns_on({0, 1})) == expected);
    const column_factors<T> made = factor_columns(a, 8, columns_on({0, 1}));
    ASSERT_EQ(made.devices.size(), 2U);
    for (const device_columns<T>& each : made.devices)
      EXPECT_TRUE(this->three_[static_cast<std::size_t>(each.device)]->accessible(each.storage.data));
  }
  const test::several_devices apart({4, 4}, false);
  EXPECT_TRUE(factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1})) == expected);  // no road: through the host
}

TYPED_TEST(qr_columns_devices, refuse_dependent_columns) {
  using T = TypeParam;
  matrix<T> A = on_groups::random_matrix<T>(60, 20, 3);
  for (std::int64_t i = 0; i < 60; ++i) A(i, 14) = A(i, 1);
  const matrix<T> B = on_groups::random_matrix<T>(60, 1, 4);
  const column_factors<T> made = factor_columns(std::as_const(A).view(), 4, columns_on({0, 1}));
  try {
    (void)made.solve(B.view());
    ADD_FAILURE() << "columns that depend on each other were solved with";
  } catch (const rank_deficient_error& seen) {
    EXPECT_NE(std::string(seen.what()).find("column 14"), std::string::npos) << seen.what();
  }
}

TYPED_TEST(qr_columns_devices, survive_faults_of_messages) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(40, 24, 1), B = on_groups::random_matrix<T>(40, 2, 2);
  const column_results<T> clean = factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1}));
  std::uint64_t detected = 0;
  for (const wire::fault each : wire::k_faults) {
    if (each == wire::fault::lost_rank) continue;
    for (std::uint64_t message = 0; message < (test::sampled() ? 3U : 12U); ++message) {
      const auto where = columns_on({0, 1}, protection::correct, {{each, static_cast<int>(message % 2), message, 1, message}});
      const column_results<T> found = factor_columns_of<T>(A.view(), B.view(), 8, where);
      EXPECT_TRUE(found == clean) << "fault " << static_cast<int>(each) << " at message " << message;
      EXPECT_EQ(found.uncorrectable, 0U);
      detected += found.detected;
    }
  }
  EXPECT_GT(detected, 0U);
}

TYPED_TEST(qr_columns_devices, name_a_lost_thread) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 30, 1);
  for (const std::uint64_t message : {2U, 6U}) {
    const auto start = std::chrono::steady_clock::now();
    try {
      (void)factor_columns(A.view(), 8, columns_on({0, 1, 2}, protection::correct, {{wire::fault::lost_rank, 1, message}}));
      ADD_FAILURE() << "a call ended without a rank";
    } catch (const rank_lost_error& lost) {
      EXPECT_EQ(lost.ranks(), std::vector<int>{1});
      EXPECT_NE(std::string(lost.what()).find("lost 1"), std::string::npos) << lost.what();
    }
    // A second after the loss; the emulator computes for some more.
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 60);
  }
}

// Faults of one device: in panels and updates, in blocks that wait between two updates (qr.trailing), V of another device (qr.reflector),
// finished blocks (qr.r) and rows on their way (qr.transfer). Repaired, to the floor of the checks; without protection they reach the
// results.
TYPED_TEST(qr_columns_devices, repair_faults_of_one_device) {
  using T = TypeParam;
  const std::int64_t m = 32, n = 24;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 2, 2);
  const column_results<T> bare = factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1}, protection::off));
  for (const inject::site each :
       {site::panel, site::reflector, site::t, site::product, site::trailing, site::r, site::q, site::store, site::pivot}) {
    int detected = 0, reached = 0;
    // Pivots: without the highest bit of its exponent a number from 2 on becomes tiny, and its column is refused.
    const int bit = each == site::pivot ? 62 : 60;
    for (std::uint64_t seed = 0; seed < (test::sampled() && each != site::pivot ? 3U : 12U); ++seed) {
      const inject::plan faults({{.site = each, .seed = seed, .bit = sizeof(T) == 4 ? bit - 32 : bit}});
      const inject::scope inside(&faults);
      const column_results<T> found = factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1}));
      EXPECT_EQ(found.uncorrectable, 0U) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      on_groups::expect_definitions(A, B, found,
                                    "site " + std::to_string(static_cast<std::uint32_t>(each)) + ", seed " + std::to_string(seed));
      detected += found.detected > 0 ? 1 : 0;
      try {
        reached += factor_columns_of<T>(A.view(), B.view(), 8, columns_on({0, 1}, protection::off)) == bare ? 0 : 1;
      } catch (const rank_deficient_error&) {
        ++reached;  // the wrong R is refused
      }
    }
    EXPECT_GT(detected, 0) << "site " << static_cast<std::uint32_t>(each);
    EXPECT_GT(reached, 0) << "site " << static_cast<std::uint32_t>(each);
  }
}

TYPED_TEST(qr_columns_devices, refuse_what_they_cannot) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(30, 20, 1), wide = on_groups::random_matrix<T>(5, 6, 1);
  EXPECT_THROW((void)factor_columns(A.view(), 8, columns_on({0, 3})), invalid_argument_error);  // there are three devices
  EXPECT_THROW((void)factor_columns(A.view(), 0, columns_on({0, 1})), invalid_argument_error);
  EXPECT_THROW((void)factor_columns(A.view(), 1025, columns_on({0, 1})), invalid_argument_error);
  execution on_host = columns_on({0, 1});
  on_host.backend = backend::cpu;
  EXPECT_THROW((void)factor_columns(A.view(), 8, on_host), unsupported_error);
  const matrix<std::complex<T>> complex(6, 4, order::column_major);
  EXPECT_THROW((void)factor_columns(complex.view(), 2, columns_on({0, 1})), unsupported_error);
  int stream = 0;
  EXPECT_THROW((void)factor_columns(A.view(), 8, columns_on({0, 1}), {.stream = &stream}), invalid_argument_error);
  const column_factors<T> made = factor_columns(A.view(), 8, columns_on({0, 1})), flat = factor_columns(wide.view(), 2, columns_on({0, 1}));
  EXPECT_THROW((void)made.apply(wide.view()), invalid_argument_error);
  EXPECT_THROW((void)made.solve(wide.view()), invalid_argument_error);
  EXPECT_THROW((void)flat.solve(wide.view()), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::qr
