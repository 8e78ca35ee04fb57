// QR of block columns in C: on ranks that are threads over a table of functions, against the definitions, with faults of the wire, and
// ScaLAPACK's layout. test/group tests what is computed. These tests ask whether the calls reach it.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "c/group_factors.hpp"
#include "c/post_office.hpp"
#include "c/support.hpp"

namespace ballast::test {
namespace {

using column_factors = owned<ballast_column_factors, ballast_column_factors_destroy>;

struct scene {
  int ranks = 3;
  std::int64_t rows = 24, columns = 17, block = 4;
  const char* protection = "correct";
  std::function<void(int, post_office::desk&)> prepare = {};
};

std::int64_t count_of(std::int64_t columns, std::int64_t block, int ranks, int rank) {
  std::int64_t count = -1;
  EXPECT_EQ(ballast_block_columns(columns, block, ranks, rank, &count, nullptr), BALLAST_OK);
  return count;
}

std::int64_t global_of(std::int64_t local, std::int64_t block, int ranks, int rank) {
  return (local / block * ranks + rank) * block + local % block;
}

template <class T>
std::vector<T> columns_of(std::uint64_t stream, std::int64_t rows, std::int64_t columns, std::int64_t block, int ranks, int rank) {
  std::vector<T> made;
  for (std::int64_t l = 0; l < count_of(columns, block, ranks, rank); ++l)
    for (std::int64_t i = 0; i < rows; ++i) made.push_back(element<T>(stream, i, global_of(l, block, ranks, rank)));
  return made;
}

template <class T>
void gather(const std::vector<T>& part, std::int64_t rows, std::int64_t columns, std::int64_t block, int ranks, int rank,
            std::vector<T>& all) {
  for (std::int64_t l = 0; l < count_of(columns, block, ranks, rank); ++l)
    std::copy_n(part.begin() + l * rows, rows, all.begin() + global_of(l, block, ranks, rank) * rows);
}

// Factors a random matrix, applies Q, solves (m ≥ n), on ranks that are threads. Each solves the same two right-hand sides.
template <class T>
outcome<T> factor_on(const scene& how) {
  const std::int64_t m = how.rows, n = how.columns, k = std::min(m, n);
  outcome<T> all;
  all.q.resize(static_cast<std::size_t>(m * k));
  all.r.resize(static_cast<std::size_t>(k * n));
  all.storage.resize(static_cast<std::size_t>(m * n));
  std::mutex mutex;
  on_threads(
      how.ranks,
      [&](int rank, ballast_group* group) {
        rank_objects with(group, how.protection);
        std::uint64_t detected = 0, uncorrectable = 0;
        const auto run = [&](std::int32_t status) { with.called(status, detected, uncorrectable); };
        const std::int64_t own = count_of(n, how.block, how.ranks, rank), of_q = count_of(k, how.block, how.ranks, rank);
        std::vector<T> a = columns_of<T>(1, m, n, how.block, how.ranks, rank), q(static_cast<std::size_t>(m * of_q)),
                       r(static_cast<std::size_t>(k * own)), x(static_cast<std::size_t>(2 * n)), b,
                       product(static_cast<std::size_t>(2 * m)), storage(static_cast<std::size_t>(m * own)),
                       tau(static_cast<std::size_t>(k));
        for (std::int64_t j = 0; j < 2; ++j)
          for (std::int64_t i = 0; i < m; ++i) b.push_back(element<T>(2, i, j));
        column_factors made;
        run(ballast_qr_factor_columns(column_tensor(a, m, own), how.block, with.with, nullptr, &made, with.seen, with.failed));
        if (!with.wrong) {
          run(ballast_column_factors_q(made, column_tensor(q, m, of_q), nullptr, with.seen, with.failed));
          run(ballast_column_factors_apply(made, BALLAST_TRANSPOSE, column_tensor(b, m, 2), column_tensor(product, m, 2), nullptr,
                                           with.seen, with.failed));
          std::vector<T> back(product.size());
          run(ballast_column_factors_apply(made, BALLAST_NO_TRANSPOSE, column_tensor(product, m, 2), column_tensor(back, m, 2), nullptr,
                                           with.seen, with.failed));
          const double allowed = 40 * static_cast<double>(m) * std::ldexp(1.0, -unit_roundoff<T>());
          if (std::string(how.protection) == "correct") {
            for (std::size_t e = 0; e < b.size(); ++e) EXPECT_LE(std::abs(back[e] - b[e]), allowed);
          }
          if (m >= n)
            run(ballast_column_factors_solve(made, column_tensor(b, m, 2), column_tensor(x, n, 2), nullptr, with.seen, with.failed));
        }
        const std::lock_guard lock(mutex);
        all.detected += detected;
        all.uncorrectable += uncorrectable;
        all.errors += with.wrong ? 1 : 0;
        if (with.wrong) return;
        with.right(ballast_column_factors_r(made, column_tensor(r, k, own), with.failed));
        with.right(ballast_column_factors_storage(made, column_tensor(storage, m, own), tensor(tau, {k}), with.failed));
        std::int64_t shape[4] = {};
        with.right(ballast_column_factors_shape(made, &shape[0], &shape[1], &shape[2], &shape[3], with.failed));
        EXPECT_EQ(std::vector(shape, shape + 4), (std::vector{m, n, own, of_q}));
        gather(q, m, k, how.block, how.ranks, rank, all.q);
        gather(r, k, n, how.block, how.ranks, rank, all.r);
        gather(storage, m, n, how.block, how.ranks, rank, all.storage);
        EXPECT_TRUE(all.tau.empty() || all.tau == tau);
        EXPECT_TRUE(all.x.empty() || all.x == x);
        all.tau = tau;
        all.x = x;
        all.product = product;
      },
      how.prepare);
  return all;
}

template <class T>
class c_group_columns : public testing::Test {};
using types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(c_group_columns, types);

TYPED_TEST(c_group_columns, definitions_and_the_same_bits_for_any_number_of_ranks) {
  for (const auto& [m, n, block] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{24, 17, 4}, {19, 19, 3}, {9, 22, 5}}) {
    outcome<TypeParam> first;
    for (const int ranks : {1, 2, 3, 7}) {
      const scene how{.ranks = ranks, .rows = m, .columns = n, .block = block};
      const outcome<TypeParam> found = factor_on<TypeParam>(how);
      ASSERT_EQ(found.errors, 0);
      EXPECT_EQ(found.detected, 0U);
      expect_definitions(m, n, found);
      if (ranks == 1) first = found;
      EXPECT_TRUE(found == first) << ranks;
    }
  }
}

TEST(c_group_columns_faults, a_damaged_message_is_sent_again) {
  const outcome<double> clean = factor_on<double>({});
  std::uint64_t detected = 0;
  for (int number = 0; number < 24; number += 3) {
    const auto damage = [&](int rank, post_office::desk& own) { own.damaged = rank == 1 ? number : -1; };
    const outcome<double> found = factor_on<double>({.prepare = damage});
    ASSERT_EQ(found.errors, 0) << number;
    EXPECT_TRUE(found == clean) << number;
    EXPECT_EQ(found.uncorrectable, 0U);
    detected += found.detected;
  }
  EXPECT_GT(detected, 0U);
  // Without protection a damaged message reaches the results, or ends a call.
  const outcome<double> bare = factor_on<double>({.protection = "off"});
  int different = 0;
  for (int number = 0; number < 24 && different == 0; ++number) {
    const auto damage = [&](int rank, post_office::desk& own) { own.damaged = rank == 1 ? number : -1; };
    const outcome<double> found = factor_on<double>({.protection = "off", .prepare = damage});
    different += found.errors > 0 || !(found == bare) ? 1 : 0;
  }
  EXPECT_GT(different, 0);
}

// A matrix in ScaLAPACK's layout on a grid of 2 × 2 processes, to block columns and back.
TEST(c_group_columns_layout, goes_and_comes_back) {
  constexpr std::int64_t m = 13, n = 11, block = 2;
  constexpr std::int32_t mb = 3, nb = 2;
  for (const std::int32_t by_columns : {0, 1}) {
    on_threads(4, [&](int rank, ballast_group* group) {
      rank_objects with(group, "correct");
      const int row = by_columns == 1 ? rank % 2 : rank / 2, column = by_columns == 1 ? rank / 2 : rank % 2;
      std::vector<double> local;
      std::int32_t height = 0;
      for (std::int64_t i = 0; i < m; ++i) height += i / mb % 2 == row ? 1 : 0;
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i)
          if (i / mb % 2 == row && j / nb % 2 == column) local.push_back(element<double>(3, i, j));
      const std::int32_t desc[9] = {1, 0, m, n, mb, nb, 0, 0, height};
      const ballast_process_grid grid = {sizeof grid, 2, 2, by_columns};
      const std::int64_t own = count_of(n, block, 4, rank), length = static_cast<std::int64_t>(local.size());
      std::vector<double> columns(static_cast<std::size_t>(m * own)), back(local.size());
      with.right(ballast_qr_to_block_columns(tensor(local, {length}), desc, &grid, block, with.with, column_tensor(columns, m, own),
                                             nullptr, with.seen, with.failed));
      EXPECT_EQ(columns, columns_of<double>(3, m, n, block, 4, rank));
      with.right(ballast_qr_from_block_columns(column_tensor(columns, m, own), block, tensor(back, {length}), desc, &grid, with.with,
                                               nullptr, with.seen, with.failed));
      EXPECT_EQ(back, local);
      // All ranks refuse these alike.
      const auto refused = [&](std::int32_t status, const std::string& part) {
        EXPECT_EQ(status, BALLAST_INVALID_ARGUMENT);
        EXPECT_NE(std::string(ballast_error_message(with.failed)).find(part), std::string::npos) << ballast_error_message(with.failed);
      };
      const auto to_columns = [&](const std::int32_t* numbers, const ballast_process_grid* of) {
        return ballast_qr_to_block_columns(tensor(local, {length}), numbers, of, block, with.with, column_tensor(columns, m, own), nullptr,
                                           with.seen, with.failed);
      };
      const ballast_process_grid larger = {sizeof larger, 2, 3, 0}, odd = {sizeof odd, 2, 2, 5};
      const std::int32_t sparse[9] = {502, 0, m, n, mb, nb, 0, 0, height};
      refused(to_columns(desc, &larger), "rows × columns of the group's 4 ranks, got 2 × 3");
      refused(to_columns(desc, &odd), "by_columns: expected 0 or 1, got 5");
      refused(to_columns(sparse, &grid), "expected DTYPE_ 1");
      refused(to_columns(nullptr, &grid), "desc");
      tensor elsewhere(local, {length});
      elsewhere->device.device_type = static_cast<decltype(elsewhere->device.device_type)>(BALLAST_DLPACK_CUDA);
      EXPECT_EQ(ballast_qr_to_block_columns(elsewhere, desc, &grid, block, with.with, column_tensor(columns, m, own), nullptr, with.seen,
                                            with.failed),
                BALLAST_UNSUPPORTED);
      EXPECT_EQ(ballast_qr_from_block_columns(column_tensor(columns, m, own), block, elsewhere, desc, &grid, with.with, nullptr, with.seen,
                                              with.failed),
                BALLAST_UNSUPPORTED);
      refused(to_columns(desc, nullptr), "grid");
    });
  }
}

TEST(c_group_columns_errors, statuses) {
  std::int64_t count = 0;
  EXPECT_EQ(ballast_block_columns(10, 0, 2, 0, &count, nullptr), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_block_columns(10, 2, 2, 2, &count, nullptr), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_block_columns(10, 2, 2, 0, nullptr, nullptr), BALLAST_INVALID_ARGUMENT);
  on_threads(2, [&](int rank, ballast_group* group) {
    rank_objects with(group, "correct");
    std::vector<double> a = columns_of<double>(1, 8, 6, 2, 2, rank), b(8, 1.0), x(6);
    const std::int64_t own = count_of(6, 2, 2, rank);
    column_factors made;
    const auto expect = [&](std::int32_t status, std::int32_t wanted, const std::string& part) {
      EXPECT_EQ(status, wanted) << ballast_error_message(with.failed);
      EXPECT_NE(std::string(ballast_error_message(with.failed)).find(part), std::string::npos) << ballast_error_message(with.failed);
    };
    const auto factor = [&](std::int64_t block, const ballast_options* how) {
      return ballast_qr_factor_columns(column_tensor(a, 8, own), block, how, nullptr, &made, with.seen, with.failed);
    };
    expect(factor(97, with.with), BALLAST_INVALID_ARGUMENT, "block: expected 1 to 96 columns, got 97");
    expect(factor(2, nullptr), BALLAST_INVALID_ARGUMENT, "group: expected one whose ranks have the columns, got none");
    expect(ballast_column_factors_r(made, column_tensor(a, 8, own), with.failed), BALLAST_INVALID_ARGUMENT, "factors");
    ASSERT_EQ(factor(2, with.with), BALLAST_OK) << ballast_error_message(with.failed);
    expect(ballast_column_factors_apply(made, 2, tensor(b, {8}), tensor(x, {6}), nullptr, with.seen, with.failed), BALLAST_INVALID_ARGUMENT,
           "transpose: expected 0 (no) or 1 (yes), got 2");
    expect(ballast_column_factors_solve(made, tensor(b, {8}), tensor(x, {5}), nullptr, with.seen, with.failed), BALLAST_INVALID_ARGUMENT,
           "X: expected 6 × 1, got 5 × 1");
    ASSERT_EQ(ballast_column_factors_solve(made, tensor(b, {8}), tensor(x, {6}), nullptr, with.seen, with.failed), BALLAST_OK);
    // Columns that depend on each other: the same status on all ranks.
    if (rank == 0) std::copy_n(a.begin(), 8, a.begin() + 8);
    column_factors dependent;
    ASSERT_EQ(ballast_qr_factor_columns(column_tensor(a, 8, own), 2, with.with, nullptr, &dependent, with.seen, with.failed), BALLAST_OK);
    ballast_summary told{};
    told.size = sizeof told;
    ASSERT_EQ(ballast_report_summary(with.seen, &told, with.failed), BALLAST_OK);
    EXPECT_STREQ(told.problem, "qr_f64_m8_n6");  // the whole matrix's
    expect(ballast_column_factors_solve(dependent, tensor(b, {8}), tensor(x, {6}), nullptr, with.seen, with.failed), BALLAST_RANK_DEFICIENT,
           "column 1");
  });
}

}  // namespace
}  // namespace ballast::test
