// QR and least squares of rows on the ranks of a group, against the definitions in double, and with faults of the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

#include "group/qr_definitions.hpp"
#include "group/wire_faults.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace on_groups;
using on_groups::same;
using test::quick;
using wire::fault;
using wire::switchboard;
using wire::wire_fault;

// Uneven blocks: from three ranks on the second has fewer rows than columns, from four on the third has none.
std::int64_t first_row(std::int64_t m, int ranks, int rank) {
  if (rank == 0 || ranks == 1) return rank == 0 ? 0 : m;
  if (rank == ranks) return m;
  const std::int64_t first = m / ranks;
  if (ranks < 3) return first;
  if (rank == 1) return first;
  if (rank == 2 || (ranks >= 4 && rank == 3)) return first + 3;
  return first + 3 + (m - first - 3) * (rank - 2) / (ranks - 2);
}

template <class T>
struct outcome {
  matrix<T> q, r, x, projected;  // q: all rows
  int ended = 0, lost = 0, errors = 0, refused = 0;
  bool alike = true;
  std::uint64_t detected = 0;
  bool clean = true;
  std::string message;
  std::vector<std::uint64_t> messages;
};

template <class T>
outcome<T> factor_on(int ranks, const matrix<T>& A, const matrix<T>& B, const std::vector<wire_fault>& faults = {},
                     protection level = protection::correct, double patience = 60) {
  const auto board = std::make_shared<switchboard>(ranks, faults);
  outcome<T> made;
  made.q = matrix<T>(A.rows(), A.columns());
  std::mutex mutex;
  const auto rows = [](const matrix<T>& of, std::int64_t first, std::int64_t count) {
    return row_major<const T>(of.data() + first * of.columns(), count, of.columns());
  };
  const auto endings = test::run_ranks(board, quick(patience), [&](int rank, const group& own) {
    const std::int64_t first = first_row(A.rows(), ranks, rank), count = first_row(A.rows(), ranks, rank + 1) - first;
    const execution where = {.backend = backend::cpu, .threads = 1, .protection = level, .group = own};
    const row_factors<T> made_here = factor_rows(rows(A, first, count), where);
    const computed<T> q = made_here.q();
    const computed<T> x = made_here.solve(rows(B, first, count));
    const computed<T> projected = made_here.apply_transposed(rows(B, first, count));
    const matrix<T> r = made_here.r();
    const std::lock_guard lock(mutex);
    if (made.ended++ > 0) made.alike = made.alike && same(made.r, r) && same(made.x, x.values) && same(made.projected, projected.values);
    made.r = r;
    made.x = x.values;
    made.projected = projected.values;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < A.columns(); ++j) made.q(first + i, j) = q.values(i, j);
    for (const report* each : {&made_here.report, &q.report, &x.report, &projected.report}) {
      made.detected += each->detected;
      made.clean = made.clean && each->verdict == verdict::clean;
      EXPECT_TRUE(each->checks > 0 || level == protection::off);
    }
  });
  test::add_endings(endings, made);
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
bool same(const outcome<T>& a, const outcome<T>& b) {
  return same(a.r, b.r) && same(a.x, b.x) && same(a.q, b.q) && same(a.projected, b.projected);
}

template <class T>
class qr_group : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(qr_group, precisions, test::number_names);

TYPED_TEST(qr_group, definitions) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{331, 23}, {64, 7}, {50, 50}}) {
    const matrix<T> A = random_matrix<T>(m, n, 1), B = random_matrix<T>(m, 3, 2);
    for (const int ranks : {1, 2, 3, 4, 7, 12}) {
      const auto found = factor_on(ranks, A, B);
      ASSERT_EQ(found.errors, 0) << found.message;
      EXPECT_TRUE(found.alike);
      EXPECT_TRUE(found.clean);
      expect_definitions(A, B, found, std::to_string(m) + " × " + std::to_string(n) + ", " + std::to_string(ranks) + " ranks");
    }
  }
}

TYPED_TEST(qr_group, dependent_columns_are_refused_on_all_ranks) {
  matrix<TypeParam> A = random_matrix<TypeParam>(90, 6, 3);
  for (std::int64_t i = 0; i < 90; ++i) A(i, 4) = A(i, 1);
  const auto found = factor_on(3, A, random_matrix<TypeParam>(90, 1, 4));
  EXPECT_EQ(found.refused, 3) << found.message;
}

class qr_group_faults : public testing::TestWithParam<fault> {};

TEST_P(qr_group_faults, wire) {
  const matrix<double> A = random_matrix<double>(70, 6, 1), B = random_matrix<double>(70, 2, 2);
  const auto clean = factor_on(3, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  test::strike_messages(
      GetParam(), clean.messages, test::sampled() ? 8 : 40,
      [&](const std::vector<wire_fault>& faults) { return factor_on(3, A, B, faults); },
      [&](const auto& found, const std::string& what) {
        EXPECT_TRUE(found.alike) << what;
        EXPECT_TRUE(same(found, clean)) << what;
      });
}

INSTANTIATE_TEST_SUITE_P(all, qr_group_faults, testing::ValuesIn(wire::k_faults));

TEST(qr_group_protection, off_lets_a_bit_pass) {
  const matrix<double> A = random_matrix<double>(70, 6, 1), B = random_matrix<double>(70, 2, 2);
  const auto clean = factor_on(3, A, B, {}, protection::off);
  test::expect_a_bit_to_pass(
      clean.messages, [&](const std::vector<wire_fault>& faults) { return factor_on(3, A, B, faults, protection::off, 1); },
      [&](const auto& found) { return !same(found, clean); });
}

TEST(qr_group_errors, shapes) {
  const matrix<double> A = random_matrix<double>(5, 6, 1);
  EXPECT_THROW((void)factor_rows(A.view(), execution{}), invalid_argument_error);
  std::atomic<int> refused{0};
  test::run_ranks(2, [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .group = own};
    try {
      (void)factor_rows(row_major<const double>(A.data(), 2, 6), where);  // 4 × 6
    } catch (const invalid_argument_error&) {
      ++refused;
    }
    try {
      (void)factor_rows(row_major<const double>(A.data(), 6, rank == 0 ? 4 : 5), where);
    } catch (const invalid_argument_error&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 4);
}

}  // namespace
}  // namespace ballast::qr
