// QR and least squares of rows on several devices of one process, on the emulator: the definitions, faults of the messages between their
// threads, injected faults, operands on a device, and what is refused.
// Layer: backend tests.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

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
struct results {
  matrix<T> q, r, x, projected;
  std::uint64_t detected = 0, checks = 0, uncorrectable = 0;
  std::size_t parts = 0;

  bool operator==(const results& other) const {
    const auto same = [](const matrix<T>& a, const matrix<T>& b) {
      return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
    };
    return same(q, other.q) && same(r, other.r) && same(x, other.x) && same(projected, other.projected);
  }
};

execution on(const std::vector<int>& devices, protection level = protection::correct, const std::vector<wire::wire_fault>& faults = {}) {
  execution where{.threads = 2, .protection = level, .group = group::devices(devices, {.resend_after = 0.01})};
  where.group.internal()->faults = faults;
  return where;
}

// `A`: one matrix, or its rows in parts.
template <class T, class Rows>
results<T> factor_on_devices(const Rows& A, matrix_view<const T> B, const execution& where) {
  const call kept{.throw_on_uncorrectable = false};
  const row_factors<T> made = factor_rows(A, where, kept);
  computed<T> q = made.q(kept), x = made.solve(B, kept), projected = made.apply_transposed(B, kept);
  results<T> all{std::move(q.values), made.r(), std::move(x.values), std::move(projected.values)};
  all.parts = made.devices.size();
  for (const report* each : std::initializer_list<const report*>{&made.report, &q.report, &x.report, &projected.report}) {
    all.detected += each->detected;
    all.checks += each->checks;
    all.uncorrectable += each->uncorrectable;
    EXPECT_EQ(each->backend, backend::cuda);
  }
  return all;
}

template <class T>
class qr_devices : public testing::Test {
 protected:
  test::several_devices three_{4, 4, 4};
};
using reals = testing::Types<float, double>;
TYPED_SUITE(qr_devices, reals, test::number_names);

// Shares above and below 256 rows, which other kernels factor, and fewer shares than devices.
TYPED_TEST(qr_devices, definitions) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{601, 9}, {50, 20}}) {
    const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 3, 2);
    for (const std::vector<int>& list : {std::vector<int>{0}, {0, 1}, {2, 0, 1}, {1, 1}}) {
      const results<T> found = factor_on_devices<T>(A.view(), B.view(), on(list));
      EXPECT_EQ(found.parts, std::min<std::size_t>(list.size(), static_cast<std::size_t>(m / n)));
      EXPECT_EQ(found.detected, 0U);
      EXPECT_GT(found.checks, 0U);
      on_groups::expect_definitions(A, B, found, std::to_string(m) + " rows on " + std::to_string(list.size()) + " devices");
    }
    // Which devices compute does not matter, and neither do the strides.
    const results<T> expected = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
    matrix<T> columns(m, n, order::column_major);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) columns(i, j) = A(i, j);
    EXPECT_TRUE(factor_on_devices<T>(std::as_const(columns).view(), B.view(), on({2, 1})) == expected);
    EXPECT_TRUE(factor_on_devices<T>(A.view(), B.view(), on({1, 1})) == expected);
  }
}

// A matrix in memory of a device.
template <class T>
struct resident_matrix {
  resident_matrix(const std::shared_ptr<ballast::cuda::device>& device, matrix_view<const T> of, order as) {
    matrix<T> turned(of.rows, of.columns, as);
    for (std::int64_t i = 0; i < of.rows; ++i)
      for (std::int64_t j = 0; j < of.columns; ++j) turned(i, j) = of(i, j);
    const auto bytes = static_cast<std::int64_t>(turned.size() * sizeof(T));
    memory = ballast::cuda::device_buffer(device, bytes);
    device->copy(memory.data(), turned.data(), bytes, nullptr);
    view = std::as_const(turned).view();
    view.data = static_cast<const T*>(memory.data());
  }
  ballast::cuda::device_buffer memory;
  matrix_view<const T> view;
};

// A and B lie on one of the devices, in any strides; with roads between the devices and without.
TYPED_TEST(qr_devices, read_operands_on_a_device) {
  using T = TypeParam;
  const std::int64_t m = 60, n = 5;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 2, 2);
  const results<T> expected = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
  for (const order as : {order::row_major, order::column_major}) {
    const resident_matrix<T> a(this->three_[1], A.view(), as), b(this->three_[1], B.view(), as);
    EXPECT_TRUE(factor_on_devices<T>(a.view, b.view, on({0, 1})) == expected);
    EXPECT_TRUE(factor_on_devices<T>(a.view, b.view, on({2, 0})) == expected);  // a device outside of the group has them
  }
  // Every second column of a wider matrix, and its rows in reverse.
  matrix<T> wide(m, 2 * n, order::column_major);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) wide(m - 1 - i, 2 * j) = A(i, j), wide(m - 1 - i, 2 * j + 1) = 7;
  const resident_matrix<T> a(this->three_[1], wide.view(), order::column_major);
  const matrix_view<const T> turned{a.view.data + m - 1, m, n, -1, 2 * a.view.column_stride};
  EXPECT_TRUE(factor_on_devices<T>(turned, B.view(), on({0, 1})) == expected);
}

TYPED_TEST(qr_devices, read_operands_of_a_device_without_roads) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 5, 1), B = on_groups::random_matrix<T>(60, 2, 2);
  const results<T> expected = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
  const test::several_devices apart({4, 4}, false);
  const resident_matrix<T> a(apart[1], A.view(), order::column_major), b(apart[1], B.view(), order::column_major);
  EXPECT_TRUE(factor_on_devices<T>(a.view, b.view, on({0, 1})) == expected);
}

// Rows that are divided already, in memory of their device, of another one or of the host; their factors stay where they are.
TYPED_TEST(qr_devices, take_rows_in_parts) {
  using T = TypeParam;
  const std::int64_t m = 61, n = 5, half = m / 2;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 2, 2);
  const results<T> expected = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
  const matrix_view<const T> upper = A.view().block(0, 0, half, n), lower = A.view().block(half, 0, m - half, n);
  const resident_matrix<T> a(this->three_[0], upper, order::column_major), b(this->three_[1], lower, order::column_major);
  for (const auto& parts : {std::vector{a.view, b.view}, std::vector{upper, b.view}, std::vector{upper, lower}})
    EXPECT_TRUE(factor_on_devices<T>(std::span<const matrix_view<const T>>(parts), B.view(), on({0, 1})) == expected);
  const std::vector swapped{a.view, b.view};
  EXPECT_TRUE(factor_on_devices<T>(std::span<const matrix_view<const T>>(swapped), B.view(), on({1, 0})) == expected);
  // Shares of any size, fewer rows than columns among them.
  const std::vector uneven{A.view().block(0, 0, 3, n), A.view().block(3, 0, 40, n), A.view().block(43, 0, m - 43, n)};
  const results<T> found = factor_on_devices<T>(std::span<const matrix_view<const T>>(uneven), B.view(), on({0, 1, 2}));
  on_groups::expect_definitions(A, B, found, "uneven parts");

  const std::vector given{a.view, b.view};
  const row_factors<T> made = factor_rows(std::span<const matrix_view<const T>>(given), on({0, 1}));
  ASSERT_EQ(made.devices.size(), 2U);
  for (const device_factors<T>& each : made.devices) {
    EXPECT_TRUE(this->three_[static_cast<std::size_t>(each.device)]->accessible(each.storage.data));
    EXPECT_TRUE(this->three_[static_cast<std::size_t>(each.device)]->accessible(each.tau.data()));
  }
  // They are those of one device.
  const factors<T> alone = factor(lower, {.backend = backend::cuda, .device = 1}), copied = made.devices[1].on_host();
  EXPECT_EQ(copied.tau, alone.tau);
  EXPECT_TRUE(std::equal(copied.storage.data(), copied.storage.data() + copied.storage.size(), alone.storage.data()));

  const std::vector many{upper, upper, upper};
  EXPECT_THROW((void)factor_rows(std::span<const matrix_view<const T>>(many), on({0, 1})), invalid_argument_error);
  EXPECT_THROW((void)factor_rows(std::span<const matrix_view<const T>>(), on({0, 1})), invalid_argument_error);
  const std::vector widths{upper, lower.block(0, 0, m - half, n - 1)};
  EXPECT_THROW((void)factor_rows(std::span<const matrix_view<const T>>(widths), on({0, 1})), invalid_argument_error);
  EXPECT_THROW((void)factor_rows(std::span<const matrix_view<const T>>(given), execution{}), invalid_argument_error);
}

// Rows that change on their way from one device to another: the seal sees every bit; without protection they reach the results.
TYPED_TEST(qr_devices, repair_rows_struck_on_their_way) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 5, 1), B = on_groups::random_matrix<T>(60, 2, 2);
  // The same bits are asked for; kernels that faults can strike round differently, so these have a request that never strikes.
  const inject::plan never({{.site = site::permutation}});
  results<T> clean, bare;
  {
    const inject::scope inside(&never);
    clean = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
    bare = factor_on_devices<T>(A.view(), B.view(), on({0, 1}, protection::off));
  }
  const resident_matrix<T> a(this->three_[1], A.view(), order::column_major);
  int reached = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    // The lowest bit, too. Device 0 has its rows from device 1: requests with an even seed strike it.
    const inject::plan faults({{.site = site::transfer, .seed = 2 * seed, .bit = seed == 0 ? 0 : static_cast<int>(8 * sizeof(T) - 3)}});
    const inject::scope inside(&faults);
    const results<T> found = factor_on_devices<T>(a.view, B.view(), on({0, 1}));
    EXPECT_TRUE(found == clean) << "seed " << seed;
    EXPECT_EQ(found.detected, 1U) << "seed " << seed;
    EXPECT_EQ(found.uncorrectable, 0U);
    reached += factor_on_devices<T>(a.view, B.view(), on({0, 1}, protection::off)) == bare ? 0 : 1;
  }
  EXPECT_EQ(reached, 4);
}

TYPED_TEST(qr_devices, refuse_dependent_columns) {
  using T = TypeParam;
  matrix<T> A = on_groups::random_matrix<T>(90, 6, 3);
  for (std::int64_t i = 0; i < 90; ++i) A(i, 4) = A(i, 1);
  const matrix<T> B = on_groups::random_matrix<T>(90, 1, 4);
  const row_factors<T> made = factor_rows(std::as_const(A).view(), on({0, 1}));
  EXPECT_THROW((void)made.solve(B.view()), rank_deficient_error);
}

// Faults of messages between the threads, all over the calls.
TYPED_TEST(qr_devices, survive_faults_of_messages) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 5, 1), B = on_groups::random_matrix<T>(60, 2, 2);
  const results<T> clean = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
  std::uint64_t detected = 0;
  for (const wire::fault each : wire::k_faults) {
    if (each == wire::fault::lost_rank) continue;
    for (std::uint64_t message = 0; message < (test::sampled() ? 4U : 10U); ++message) {
      const auto where = on({0, 1}, protection::correct, {{each, static_cast<int>(message % 2), message, 1, message}});
      const results<T> found = factor_on_devices<T>(A.view(), B.view(), where);
      EXPECT_TRUE(found == clean) << "fault " << static_cast<int>(each) << " at message " << message;
      EXPECT_EQ(found.uncorrectable, 0U);
      detected += found.detected;
    }
  }
  EXPECT_GT(detected, 0U);
}

TYPED_TEST(qr_devices, name_a_lost_thread) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 5, 1);
  try {
    (void)factor_rows(A.view(), on({0, 1, 2}, protection::correct, {{wire::fault::lost_rank, 1, 2}}));
    ADD_FAILURE() << "a call ended without a rank";
  } catch (const rank_lost_error& lost) {
    EXPECT_EQ(lost.ranks(), std::vector<int>{1});
    EXPECT_NE(std::string(lost.what()).find("lost 1"), std::string::npos) << lost.what();
  }
}

// Faults at sites of the kernels of one device: repaired, to the floor of the checks; and without protection they reach the results.
TYPED_TEST(qr_devices, repair_faults_of_one_device) {
  using T = TypeParam;
  const std::int64_t m = 601, n = 9;
  const matrix<T> A = on_groups::random_matrix<T>(m, n, 1), B = on_groups::random_matrix<T>(m, 1, 2);
  const results<T> bare = factor_on_devices<T>(A.view(), B.view(), on({0, 1}, protection::off));
  int detected = 0, reached = 0;
  for (const inject::site each : {site::panel, site::reflector, site::tau, site::r, site::store}) {
    for (std::uint64_t seed = 0; seed < (test::sampled() ? 2U : 6U); ++seed) {
      const inject::plan faults({{.site = each, .seed = seed, .bit = sizeof(T) == 4 ? 28 : 60}});
      const inject::scope inside(&faults);
      const results<T> found = factor_on_devices<T>(A.view(), B.view(), on({0, 1}));
      EXPECT_EQ(found.uncorrectable, 0U) << "site " << static_cast<std::uint32_t>(each) << ", seed " << seed;
      on_groups::expect_definitions(A, B, found, "site " + std::to_string(static_cast<std::uint32_t>(each)));
      detected += found.detected > 0 ? 1 : 0;
      reached += factor_on_devices<T>(A.view(), B.view(), on({0, 1}, protection::off)) == bare ? 0 : 1;
    }
  }
  EXPECT_GT(detected, 2);
  EXPECT_GT(reached, 2);
}

TYPED_TEST(qr_devices, refuse_what_they_cannot) {
  using T = TypeParam;
  const matrix<T> A = on_groups::random_matrix<T>(60, 5, 1), wide = on_groups::random_matrix<T>(5, 6, 1);
  EXPECT_THROW((void)factor_rows(A.view(), on({0, 3})), invalid_argument_error);  // there are three devices
  EXPECT_THROW((void)factor_rows(wide.view(), on({0, 1})), invalid_argument_error);
  execution on_host = on({0, 1});
  on_host.backend = backend::cpu;
  EXPECT_THROW((void)factor_rows(A.view(), on_host), unsupported_error);
  execution one = on({0, 1});
  one.device = 1;
  EXPECT_THROW((void)factor_rows(A.view(), one), invalid_argument_error);
  int stream = 0;
  EXPECT_THROW((void)factor_rows(A.view(), on({0, 1}), {.stream = &stream}), invalid_argument_error);
  const row_factors<T> made = factor_rows(A.view(), on({0, 1}));
  EXPECT_THROW((void)made.solve(wide.view()), invalid_argument_error);
  EXPECT_THROW((void)made.apply(A.view()), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::qr
