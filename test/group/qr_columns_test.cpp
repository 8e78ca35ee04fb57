// QR and least squares of block columns on the ranks of a group: against the definitions in double, against one process, and with faults of
// the wire and of the computation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>

#include "group/qr_definitions.hpp"
#include "group/wire_faults.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
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

template <class T>
struct outcome {
  matrix<T> q, r, x, projected, storage;  // the parts of all ranks together
  std::vector<T> tau;
  int ended = 0, lost = 0, errors = 0, refused = 0;
  std::uint64_t detected = 0, checks = 0, injected = 0;
  bool clean = true, alike = true;
  std::string message;
  std::vector<std::uint64_t> messages;
  std::vector<event> events;
};

struct scene {
  int ranks = 3;
  std::int64_t block = 8;
  protection level = protection::correct;
  std::vector<wire_fault> faults = {};
  double patience = 60;
  int struck_rank = -1;  // strikes of the computation, on this rank
  const inject::plan* strikes = nullptr;
  int threads = 1;
};

template <class T>
matrix<T> columns_of(const matrix<T>& A, const block_columns& own) {
  matrix<T> made(A.rows(), own.count());
  for (std::int64_t j = 0; j < own.count(); ++j)
    for (std::int64_t i = 0; i < A.rows(); ++i) made(i, j) = A(i, own.global(j));
  return made;
}

template <class T>
void gather_columns(const matrix<T>& part, const block_columns& own, matrix<T>& all) {
  for (std::int64_t j = 0; j < own.count(); ++j)
    for (std::int64_t i = 0; i < part.rows(); ++i) all(i, own.global(j)) = part(i, j);
}

// Factors A, and solves for B's columns, each rank for those that block_columns gives it.
template <class T>
outcome<T> factor_on(const scene& how, const matrix<T>& A, const matrix<T>& B) {
  const auto board = std::make_shared<switchboard>(how.ranks, how.faults);
  const std::int64_t m = A.rows(), n = A.columns(), steps = std::min(m, n);
  outcome<T> made;
  made.q = matrix<T>(m, steps);
  made.r = matrix<T>(steps, n);
  made.storage = matrix<T>(m, n);
  made.x = matrix<T>(n, B.columns());
  made.projected = matrix<T>(m, B.columns());
  std::mutex mutex;
  const auto endings = test::run_ranks(board, quick(how.patience), [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .threads = how.threads, .protection = how.level, .group = own};
    const block_columns mine{n, how.block, how.ranks, rank}, right{B.columns(), 1, how.ranks, rank};
    const matrix<T> part = columns_of(A, mine), b = columns_of(B, right);
    const inject::scope strikes(rank == how.struck_rank && how.strikes != nullptr ? how.strikes : nullptr);
    const column_factors<T> factors = factor_columns(part.view(), how.block, where, {});
    const computed<T> q = factors.q();
    const computed<T> projected = factors.apply_transposed(b.view());
    computed<T> x;
    if (m >= n) x = factors.solve(b.view());
    const std::lock_guard lock(mutex);
    ++made.ended;
    gather_columns(q.values, factors.q_columns(), made.q);
    gather_columns(factors.r(), factors.own, made.r);
    gather_columns(factors.storage, factors.own, made.storage);
    gather_columns(projected.values, right, made.projected);
    if (m >= n) gather_columns(x.values, right, made.x);
    made.alike = made.alike && (made.tau.empty() || made.tau == factors.tau);
    made.tau = factors.tau;
    for (const report* each : std::initializer_list<const report*>{&factors.report, &q.report, &projected.report, &x.report}) {
      made.detected += each->detected;
      made.checks += each->checks;
      made.clean = made.clean && each->verdict == verdict::clean;
      made.events.insert(made.events.end(), each->events.begin(), each->events.end());
    }
  });
  test::add_endings(endings, made);
  for (int r = 0; r < how.ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
bool same(const outcome<T>& a, const outcome<T>& b) {
  return same(a.storage, b.storage) && a.tau == b.tau && same(a.q, b.q) && same(a.projected, b.projected) && same(a.x, b.x);
}

template <class T>
class qr_columns : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(qr_columns, precisions, test::number_names);

TYPED_TEST(qr_columns, definitions_and_the_same_bits_for_any_number_of_ranks) {
  using T = TypeParam;
  for (const auto& [m, n, block] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{97, 97, 8}, {131, 70, 16}, {40, 40, 96}, {33, 5, 1}}) {
    const matrix<T> A = random_matrix<T>(m, n, 1), B = random_matrix<T>(m, 5, 2);
    outcome<T> first;
    for (const int ranks : {1, 2, 3, 4, 7, 12}) {
      const std::string what = std::to_string(m) + " × " + std::to_string(n) + ", " + std::to_string(ranks) + " ranks";
      const outcome<T> found = factor_on(scene{.ranks = ranks, .block = block}, A, B);
      ASSERT_EQ(found.errors, 0) << what << ": " << found.message;
      EXPECT_TRUE(found.clean) << what;
      EXPECT_TRUE(found.alike) << what;
      EXPECT_GT(found.checks, 0u);
      expect_definitions(A, B, found, what);
      if (ranks == 1) first = found;
      EXPECT_TRUE(same(found.storage, first.storage) && found.tau == first.tau) << what;
      EXPECT_TRUE(same(found.q, first.q)) << what;
    }
  }
}

// More columns than rows: R is a trapezoid, and the blocks after the last panel are only updated.
TYPED_TEST(qr_columns, wide) {
  using T = TypeParam;
  const std::int64_t m = 37, n = 90;
  const matrix<T> A = random_matrix<T>(m, n, 5), B = random_matrix<T>(m, 2, 6);
  const double u = std::numeric_limits<T>::epsilon() / 2;
  outcome<T> first;
  for (const int ranks : {1, 3, 4}) {
    const outcome<T> found = factor_on(scene{.ranks = ranks, .block = 10}, A, B);
    ASSERT_EQ(found.errors, 0) << found.message;
    EXPECT_TRUE(found.clean);
    double residual = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = -static_cast<double>(A(i, j));
        for (std::int64_t e = 0; e < m; ++e) sum += static_cast<double>(found.q(i, e)) * static_cast<double>(found.r(e, j));
        residual += sum * sum;
      }
    }
    EXPECT_LE(std::sqrt(residual), 4 * static_cast<double>(n) * u * norm(A));
    if (ranks == 1) first = found;
    EXPECT_TRUE(same(found.storage, first.storage));
  }
}

// The factors of one process, to rounding: each column of R differs by at most n u of its norm for these data, and there are two of them.
TYPED_TEST(qr_columns, agrees_with_one_process) {
  using T = TypeParam;
  const matrix<T> A = random_matrix<T>(120, 90, 7), B = random_matrix<T>(120, 1, 8);
  const outcome<T> found = factor_on(scene{.ranks = 3, .block = 16}, A, B);
  const matrix<T> alone = factor(A.view(), {.backend = backend::cpu}).r();
  const double u = std::numeric_limits<T>::epsilon() / 2;
  for (std::int64_t j = 0; j < 90; ++j) {
    double squares = 0, difference = 0;
    for (std::int64_t i = 0; i <= j; ++i) {
      squares += std::pow(static_cast<double>(alone(i, j)), 2);
      difference += std::pow(static_cast<double>(found.r(i, j)) - static_cast<double>(alone(i, j)), 2);
    }
    // The condition number of these data's leading columns is below 40.
    EXPECT_LE(std::sqrt(difference), 40 * 2 * 90 * u * std::sqrt(squares)) << j;
  }
}

TEST(qr_columns_complex, residual) {
  using T = std::complex<double>;
  const std::int64_t m = 61, n = 44;
  matrix<T> A(m, n), B(m, 3);
  const matrix<double> re = random_matrix<double>(m, n, 1), im = random_matrix<double>(m, n, 2);
  for (std::int64_t e = 0; e < m * n; ++e) A.data()[e] = {re.data()[e], im.data()[e]};
  for (std::int64_t e = 0; e < m * 3; ++e) B.data()[e] = {re.data()[e], -im.data()[e]};
  outcome<T> first;
  for (const int ranks : {1, 3}) {
    const outcome<T> found = factor_on(scene{.ranks = ranks, .block = 8}, A, B);
    ASSERT_EQ(found.errors, 0) << found.message;
    EXPECT_TRUE(found.clean);
    double residual = 0, size = 0, gradient = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < m; ++i) {
        T sum = -A(i, j);
        for (std::int64_t e = 0; e <= j; ++e) sum += found.q(i, e) * found.r(e, j);
        residual += std::norm(sum);
        size += std::norm(A(i, j));
      }
      for (std::int64_t c = 0; c < 3; ++c) {
        T sum = 0;
        for (std::int64_t i = 0; i < m; ++i) {
          T rest = -B(i, c);
          for (std::int64_t e = 0; e < n; ++e) rest += A(i, e) * found.x(e, c);
          sum += std::conj(A(i, j)) * rest;
        }
        gradient += std::norm(sum);
      }
    }
    EXPECT_LE(std::sqrt(residual), 8 * 44 * 0x1p-53 * std::sqrt(size));
    EXPECT_LE(std::sqrt(gradient), 8 * 44 * 0x1p-53 * size * 100);
    if (ranks == 1) first = found;
    EXPECT_TRUE(same(found, first));
  }
}

// Columns of extreme sizes have no checksum or an equilibrated one; Inf and NaN switch the comparisons off.
TEST(qr_columns_data, extreme_and_not_finite) {
  matrix<double> A = random_matrix<double>(50, 30, 3);
  const matrix<double> B = random_matrix<double>(50, 1, 4);
  for (std::int64_t i = 0; i < 50; ++i) {
    A(i, 2) *= 1e300;
    A(i, 9) *= 1e-300;
    A(i, 17) = 0;
    A(i, 20) *= 0x1p-1060;
  }
  for (const int ranks : {1, 3}) {
    std::mutex mutex;
    for (const double special : {0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      matrix<double> C = A;
      if (special != 0) C(3, 4) = special;
      const auto endings = test::run_ranks(std::make_shared<switchboard>(ranks), quick(), [&](int rank, const group& own) {
        const matrix<double> part = columns_of(C, {30, 4, ranks, rank});
        const auto made = factor_columns(part.view(), 4, {.backend = backend::cpu, .threads = 1, .group = own});
        const std::lock_guard lock(mutex);
        EXPECT_EQ(made.report.verdict, verdict::clean) << special << ", " << ranks << " ranks";
      });
      for (const auto& each : endings) EXPECT_FALSE(each.error);
    }
  }
}

TYPED_TEST(qr_columns, dependent_columns_are_refused_on_all_ranks) {
  matrix<TypeParam> A = random_matrix<TypeParam>(60, 20, 3);
  for (std::int64_t i = 0; i < 60; ++i) A(i, 14) = A(i, 1);
  const auto found = factor_on(scene{.ranks = 3, .block = 4}, A, random_matrix<TypeParam>(60, 1, 4));
  EXPECT_EQ(found.refused, 3) << found.message;
  EXPECT_NE(found.message.find("column 14"), std::string::npos) << found.message;
}

class qr_columns_faults : public testing::TestWithParam<fault> {};

TEST_P(qr_columns_faults, wire) {
  const matrix<double> A = random_matrix<double>(40, 40, 1), B = random_matrix<double>(40, 3, 2);
  const auto clean = factor_on(scene{}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  test::strike_messages(
      GetParam(), clean.messages, test::sampled() ? 12 : ~std::uint64_t{0},
      [&](const std::vector<wire_fault>& faults) { return factor_on(scene{.faults = faults}, A, B); },
      [&](const auto& found, const std::string& what) { EXPECT_TRUE(same(found, clean)) << what; });
}

INSTANTIATE_TEST_SUITE_P(all, qr_columns_faults, testing::ValuesIn(wire::k_faults));

TEST(qr_columns_protection, off_lets_a_bit_pass) {
  const matrix<double> A = random_matrix<double>(40, 40, 1), B = random_matrix<double>(40, 3, 2);
  const auto clean = factor_on(scene{.level = protection::off}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  test::expect_a_bit_to_pass(
      clean.messages,
      [&](const std::vector<wire_fault>& faults) {
        return factor_on(scene{.level = protection::off, .faults = faults, .patience = 1}, A, B);
      },
      [&](const auto& found) { return !same(found, clean); });
}

// Strikes of the computation on one rank: at every site of QR, and at the blocks that wait between two updates (qr.trailing), V on the
// other ranks (qr.reflector), finished blocks (qr.r), and blocks of R that came for the substitution (qr.store).
class qr_columns_strikes : public testing::TestWithParam<const char*> {};

TEST_P(qr_columns_strikes, right_results) {
  const matrix<double> A = random_matrix<double>(48, 48, 1), B = random_matrix<double>(48, 3, 2);
  const auto clean = factor_on(scene{}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  std::uint64_t detected = 0;
  int reached = 0;
  // The highest bit of its exponent decides whether a column has a pivot: without it numbers from 2 on become tiny.
  const bool of_pivots = std::string(GetParam()) == "pivot";
  for (int seed = 0; seed < (test::sampled() && !of_pivots ? 12 : 60); ++seed) {
    const inject::plan strikes({{.site = inject::site_of((std::string("qr.") + GetParam()).c_str()),
                                 .seed = static_cast<std::uint64_t>(seed),
                                 .bit = of_pivots ? 62 : 61 - seed % 12}});
    const scene struck{.struck_rank = seed % 3, .strikes = &strikes};
    const auto found = factor_on(struck, A, B);
    ASSERT_EQ(found.errors, 0) << "seed " << seed << ": " << found.message;
    detected += found.detected;
    expect_definitions(A, B, found, "seed " + std::to_string(seed));
    scene bare = struck;
    bare.level = protection::off;
    const auto without = factor_on(bare, A, B);
    reached += without.errors > 0 || without.refused > 0 || !same(without, clean) ? 1 : 0;
  }
  EXPECT_GT(detected, 0u);
  EXPECT_GT(reached, 0) << "without protection no strike reached the results";
}

INSTANTIATE_TEST_SUITE_P(all, qr_columns_strikes,
                         testing::Values("panel", "reflector", "tau", "t", "product", "trailing", "r", "q", "pivot", "store"),
                         [](const auto& seen) { return std::string(seen.param); });

TEST(qr_columns_errors, shapes) {
  const matrix<double> A = random_matrix<double>(6, 9, 1);
  EXPECT_THROW((void)factor_columns(A.view(), 2, execution{}), invalid_argument_error);
  std::mutex mutex;
  std::vector<std::string> messages;
  test::run_ranks(2, [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .group = own};
    const auto refused = [&](const auto& work) {
      try {
        work();
      } catch (const invalid_argument_error& seen) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(seen.what());
      }
    };
    refused([&] { (void)factor_columns(A.view(), 0, where); });
    refused([&] { (void)factor_columns(A.view(), 97, where); });
    refused([&] { (void)factor_columns(A.view(), rank == 0 ? 2 : 3, where); });                    // another block
    refused([&] { (void)factor_columns(A.view().block(0, 0, rank == 0 ? 5 : 6, 9), 9, where); });  // other rows
    refused([&] { (void)factor_columns(A.view().block(0, 0, 6, rank == 0 ? 3 : 6), 3, where); });  // 6 columns on rank 0
    const auto wide = factor_columns(A.view(), 9, where);                                          // 6 × 18
    refused([&] { (void)wide.solve(A.view()); });
    refused([&] { (void)wide.apply(A.view().block(0, 0, 5, 1)); });
  });
  EXPECT_EQ(messages.size(), 14u);
}

}  // namespace
}  // namespace ballast::qr
