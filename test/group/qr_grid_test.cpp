// QR on grids of ranks: against the definitions in double, the signs of one process, and with faults of the wire and of the computation.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/qr_grid.hpp>
#include <ballast/qr_rows.hpp>

#include "group/block_cyclic.hpp"
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
using real_of = decltype(std::real(T()));

template <class T>
struct outcome {
  matrix<T> q, r, x, projected, back, storage;  // the parts of all ranks together
  std::vector<T> tau;
  int ended = 0, lost = 0, errors = 0, refused = 0;
  std::uint64_t detected = 0, checks = 0;
  bool clean = true, alike = true;
  std::string message;
  std::vector<std::uint64_t> messages;
};

struct scene {
  protection level = protection::correct;
  std::vector<wire_fault> faults = {};
  double patience = 60;
  int struck_rank = -1;  // strikes of the computation, on this rank
  const inject::plan* strikes = nullptr;
  backend by = backend::cpu;
};

// Factors A, and computes Q, Qᴴ B, Q(Qᴴ B) and X. B's columns are divided in the way of A's.
template <class T>
outcome<T> factor_on(const example& of, const scene& how, const matrix<T>& A, const matrix<T>& B) {
  const int ranks = of.grid.rows * of.grid.columns;
  const auto board = std::make_shared<switchboard>(ranks, how.faults);
  const int m = of.m, n = of.n, steps = std::min(m, n), p = static_cast<int>(B.columns());
  outcome<T> made;
  made.q = matrix<T>(m, steps);
  made.r = matrix<T>(steps, n);
  made.storage = matrix<T>(m, n);
  made.x = matrix<T>(n, p);
  made.projected = matrix<T>(m, p);
  made.back = matrix<T>(m, p);
  example right = of;
  right.n = p;
  std::mutex mutex;
  const auto endings = test::run_ranks(board, quick(how.patience), [&](int rank, const group& own) {
    const execution where = {.backend = how.by, .threads = 1, .protection = how.level, .group = own};
    const local_part<T> mine = part_of(of, A, rank), b = part_of(right, B, rank);
    const int r = of.grid.by_columns ? rank % of.grid.rows : rank / of.grid.columns;
    const int c = of.grid.by_columns ? rank / of.grid.rows : rank % of.grid.columns;
    const auto operand = column_major<const T>(b.values.data(), count_of(m, of.mb, of.row_source, of.grid.rows, r),
                                               count_of(p, of.nb, of.column_source, of.grid.columns, c), b.desc[8]);
    const inject::scope strikes(rank == how.struck_rank && how.strikes != nullptr ? how.strikes : nullptr);
    const grid_factors<T> factors = factor_grid(std::span<const T>(mine.values), mine.desc, of.grid, where);
    const computed<T> q = factors.q();
    const computed<T> projected = factors.apply_transposed(operand);
    const computed<T> back = factors.apply(projected.values.view());
    computed<T> x;
    if (m >= n) x = factors.solve(operand);
    const std::lock_guard lock(mutex);
    ++made.ended;
    gather_part(of, q.values, rank, made.q);
    gather_part(of, factors.r(), rank, made.r);
    gather_part(of, factors.storage, rank, made.storage);
    gather_part(right, projected.values, rank, made.projected);
    gather_part(right, back.values, rank, made.back);
    if (m >= n) gather_part(right, x.values, rank, made.x);
    made.alike = made.alike && (made.tau.empty() || made.tau == factors.tau);
    made.tau = factors.tau;
    for (const report* each :
         std::initializer_list<const report*>{&factors.report, &q.report, &projected.report, &back.report, &x.report}) {
      made.detected += each->detected;
      made.checks += each->checks;
      made.clean = made.clean && each->verdict == verdict::clean;
    }
  });
  test::add_endings(endings, made);
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
bool same(const outcome<T>& a, const outcome<T>& b) {
  return same(a.storage, b.storage) && a.tau == b.tau && same(a.q, b.q) && same(a.projected, b.projected) && same(a.back, b.back) &&
         same(a.x, b.x);
}

std::complex<double> wide(double x) { return x; }
std::complex<double> wide(std::complex<double> x) { return x; }

// A = Q R, QᴴQ = I, Qᴴ B and Q(Qᴴ B) by their definitions, summed in double: for numbers and shapes of all kinds.
template <class T>
void expect_factors(const matrix<T>& A, const matrix<T>& B, const outcome<T>& found, const std::string& what) {
  const std::int64_t m = A.rows(), n = A.columns(), steps = std::min(m, n);
  const double u = sizeof(real_of<T>) == 4 ? 0x1p-24 : 0x1p-53, limit = 8 * (static_cast<double>(steps) + 8) * u;
  double residual = 0, skew = 0, size = 0, projection = 0, length = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      std::complex<double> sum = -wide(A(i, j));
      for (std::int64_t e = 0; e < std::min(j + 1, steps); ++e) sum += wide(found.q(i, e)) * wide(found.r(e, j));
      residual += std::norm(sum);
      size += std::norm(wide(A(i, j)));
    }
  }
  for (std::int64_t a = 0; a < steps; ++a) {
    for (std::int64_t b = 0; b < steps; ++b) {
      std::complex<double> sum = a == b ? -1 : 0;
      for (std::int64_t i = 0; i < m; ++i) sum += std::conj(wide(found.q(i, a))) * wide(found.q(i, b));
      skew += std::norm(sum);
    }
    for (std::int64_t c = 0; c < B.columns(); ++c) {
      std::complex<double> sum = -wide(found.projected(a, c));
      for (std::int64_t i = 0; i < m; ++i) sum += std::conj(wide(found.q(i, a))) * wide(B(i, c));
      projection += std::norm(sum);
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t c = 0; c < B.columns(); ++c) {
      projection += std::norm(wide(found.back(i, c)) - wide(B(i, c)));
      length += std::norm(wide(B(i, c)));
    }
  }
  EXPECT_LE(std::sqrt(residual), limit * std::sqrt(size)) << what;
  EXPECT_LE(std::sqrt(skew), limit * std::sqrt(static_cast<double>(steps))) << what;
  EXPECT_LE(std::sqrt(projection), limit * std::sqrt(length)) << what;
}

// Grids, shapes and blocks: m > n, m = n, m < n; blocks that do not divide, of other sizes by rows than by columns, larger than the matrix;
// fewer rows than ranks; a first block elsewhere; blocks wider than a panel.
const example k_examples[] = {{{1, 1, false}, 33, 20, 8, 8, 0, 0, 0, 0},    {{1, 3, false}, 40, 40, 8, 8, 0, 0, 0, 0},
                              {{2, 2, false}, 97, 97, 8, 8, 0, 0, 0, 0},    {{2, 2, true}, 61, 90, 8, 8, 1, 1, 0, 0},
                              {{3, 2, false}, 131, 50, 7, 5, 2, 0, 1, 0},   {{2, 3, false}, 50, 131, 6, 16, 0, 2, 0, 0},
                              {{4, 2, false}, 64, 64, 4, 8, 0, 0, 0, 0},    {{4, 2, true}, 3, 2, 8, 8, 1, 1, 0, 0},
                              {{4, 2, false}, 5, 9, 1, 2, 3, 0, 0, 0},      {{2, 2, false}, 180, 150, 75, 75, 0, 0, 0, 0},
                              {{3, 1, false}, 200, 24, 16, 32, 1, 0, 0, 0}, {{4, 1, false}, 30, 30, 1, 4, 0, 0, 0, 0}};

std::string name_of(const example& of) {
  return std::to_string(of.m) + " × " + std::to_string(of.n) + " on " + std::to_string(of.grid.rows) + " × " +
         std::to_string(of.grid.columns);
}

template <class T>
matrix<T> numbers(std::int64_t m, std::int64_t n, std::uint64_t seed) {
  const matrix<double> re = random_matrix<double>(m, n, seed), im = random_matrix<double>(m, n, seed + 100);
  matrix<T> made(m, n);
  for (std::size_t e = 0; e < made.size(); ++e) {
    if constexpr (std::is_floating_point_v<T>)
      made.data()[e] = static_cast<T>(re.data()[e]);
    else
      made.data()[e] = T(static_cast<real_of<T>>(re.data()[e]), static_cast<real_of<T>>(im.data()[e]));
  }
  return made;
}

template <class T>
class qr_grid : public testing::Test {};
using all_numbers = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_SUITE(qr_grid, all_numbers, test::number_names);

TYPED_TEST(qr_grid, definitions_and_signs) {
  using T = TypeParam;
  for (const example& of : k_examples) {
    const matrix<T> A = numbers<T>(of.m, of.n, 1), B = numbers<T>(of.m, 5, 2);
    const outcome<T> found = factor_on(of, {}, A, B);
    ASSERT_EQ(found.errors, 0) << name_of(of) << ": " << found.message;
    EXPECT_TRUE(found.clean && found.alike) << name_of(of);
    EXPECT_GT(found.checks, 0u);
    expect_factors(A, B, found, name_of(of));
    if constexpr (std::is_floating_point_v<T>)
      if (of.m >= of.n) expect_definitions(A, B, found, name_of(of));
    // LAPACK's signs, where R's diagonal is more than rounding.
    const factors<T> alone = factor(A.view(), {.backend = backend::cpu, .threads = 1});
    for (std::int64_t i = 0; i < found.r.rows(); ++i) {
      const double one = std::real(wide(alone.storage(i, i))), other = std::real(wide(found.r(i, i)));
      if (std::abs(one) > 1e-3) {
        EXPECT_EQ(one > 0, other > 0) << name_of(of) << ", row " << i;
      }
      EXPECT_EQ(std::imag(wide(found.r(i, i))), 0);
      for (std::int64_t j = 0; j < i; ++j) EXPECT_EQ(found.r(i, j), T(0));
    }
    // Without protection.
    const outcome<T> off = factor_on(of, {.level = protection::off}, A, B);
    ASSERT_EQ(off.errors, 0) << off.message;
    expect_factors(A, B, off, name_of(of) + ", off");
    EXPECT_EQ(off.detected, 0u);
  }
}

TYPED_TEST(qr_grid, reference_backend) {
  using T = TypeParam;
  const example of = {{3, 2, false}, 40, 30, 8, 8, 0, 0, 0, 0};
  const matrix<T> A = numbers<T>(40, 30, 1), B = numbers<T>(40, 5, 2);
  const outcome<T> found = factor_on(of, {.by = backend::reference}, A, B);
  ASSERT_EQ(found.errors, 0) << found.message;
  expect_factors(A, B, found, name_of(of));
}

// Dependent and zero columns, in the panel and between panels: Q stays unitary, and solve refuses them on all ranks.
TEST(qr_grid_data, dependent_columns) {
  for (const example& of : {k_examples[2], k_examples[4], k_examples[6]}) {
    matrix<double> A = numbers<double>(of.m, of.n, 3);
    const matrix<double> B = numbers<double>(of.m, 3, 4);
    for (std::int64_t i = 0; i < of.m; ++i) A(i, 14) = A(i, 1);
    for (std::int64_t i = 0; i < of.m; ++i) A(i, 17) = A(i, 16);
    for (std::int64_t i = 0; i < of.m; ++i) A(i, 20) = 0;
    std::mutex mutex;
    outcome<double> found;
    const int ranks = of.grid.rows * of.grid.columns;
    found.q = matrix<double>(of.m, of.n);
    found.r = matrix<double>(of.n, of.n);
    const auto endings = test::run_ranks(std::make_shared<switchboard>(ranks), quick(), [&](int rank, const group& own) {
      const local_part<double> mine = part_of(of, A, rank), b = part_of(of, A, rank);
      const auto made = factor_grid(std::span<const double>(mine.values), mine.desc, of.grid, {.backend = backend::cpu, .group = own});
      const auto q = made.q();
      {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(made.report.verdict, verdict::clean);
        gather_part(of, q.values, rank, found.q);
        gather_part(of, made.r(), rank, found.r);
      }
      (void)made.solve(made.storage.view());
    });
    test::add_endings(endings, found);
    EXPECT_EQ(found.refused, ranks) << found.message;
    EXPECT_NE(found.message.find("column 14"), std::string::npos) << found.message;
    found.projected = found.back = matrix<double>(of.m, 0);
    expect_factors(A, matrix<double>(of.m, 0), found, name_of(of));
  }
}

// Columns of extreme sizes have no checksum or an equilibrated one; Inf and NaN switch the comparisons off.
TEST(qr_grid_data, extreme_and_not_finite) {
  const example of = {{2, 2, false}, 50, 30, 4, 4, 0, 0, 0, 0};
  matrix<double> A = numbers<double>(50, 30, 3);
  const matrix<double> B = numbers<double>(50, 1, 4);
  for (std::int64_t i = 0; i < 50; ++i) {
    A(i, 2) *= 1e300;
    A(i, 9) *= 1e-300;
    A(i, 17) = 0;
    A(i, 20) *= 0x1p-1060;
  }
  for (const double special : {0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    matrix<double> C = A;
    if (special != 0) C(33, 14) = special;
    const auto endings = test::run_ranks(std::make_shared<switchboard>(4), quick(), [&](int rank, const group& own) {
      const local_part<double> mine = part_of(of, C, rank);
      const auto made = factor_grid(std::span<const double>(mine.values), mine.desc, of.grid, {.backend = backend::cpu, .group = own});
      EXPECT_EQ(made.report.verdict, verdict::clean) << special;
      EXPECT_EQ(made.q().report.verdict, verdict::clean) << special;
      // The columns of earlier panels are right.
      const auto R = made.r();
      if (R.size() > 0) {
        EXPECT_TRUE(std::isfinite(R(0, 0)));
      }
    });
    for (const auto& each : endings) EXPECT_FALSE(each.error);
  }
}

const example k_struck = {{2, 2, false}, 40, 40, 8, 8, 0, 0, 0, 0};

class qr_grid_faults : public testing::TestWithParam<fault> {};

TEST_P(qr_grid_faults, wire) {
  const matrix<double> A = numbers<double>(40, 40, 1), B = numbers<double>(40, 3, 2);
  const auto clean = factor_on(k_struck, {}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  test::strike_messages(
      GetParam(), clean.messages, test::sampled() ? 12 : ~std::uint64_t{0},
      [&](const std::vector<wire_fault>& faults) { return factor_on(k_struck, {.faults = faults}, A, B); },
      [&](const auto& found, const std::string& what) { EXPECT_TRUE(same(found, clean)) << what; });
}

INSTANTIATE_TEST_SUITE_P(all, qr_grid_faults, testing::ValuesIn(wire::k_faults));

TEST(qr_grid_protection, off_lets_a_bit_pass) {
  const matrix<double> A = numbers<double>(40, 40, 1), B = numbers<double>(40, 3, 2);
  const auto clean = factor_on(k_struck, {.level = protection::off}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  test::expect_a_bit_to_pass(
      clean.messages,
      [&](const std::vector<wire_fault>& faults) {
        return factor_on(k_struck, {.level = protection::off, .faults = faults, .patience = 1}, A, B);
      },
      [&](const auto& found) { return !same(found, clean); });
}

// Strikes of the computation on one rank: in the factorizations of triangles, the products, tiles between updates, V and T on every rank,
// finished columns, columns while Q is applied, R's diagonal, and copies of R and X in the substitution.
class qr_grid_strikes : public testing::TestWithParam<const char*> {};

TEST_P(qr_grid_strikes, right_results) {
  const matrix<double> A = numbers<double>(40, 40, 1), B = numbers<double>(40, 3, 2);
  const auto clean = factor_on(k_struck, {}, A, B);
  ASSERT_EQ(clean.errors, 0) << clean.message;
  std::uint64_t detected = 0;
  int reached = 0;
  // The highest bit of its exponent decides whether a column has a pivot: without it numbers from 2 on become tiny.
  const bool of_pivots = std::string(GetParam()) == "pivot";
  for (int seed = 0; seed < (test::sampled() && !of_pivots ? 24 : 240); ++seed) {
    const inject::plan strikes({{.site = inject::site_of((std::string("qr.") + GetParam()).c_str()),
                                 .seed = static_cast<std::uint64_t>(seed),
                                 .bit = of_pivots ? 62 : 61 - seed % 12}});
    const scene struck{.struck_rank = seed % 4, .strikes = &strikes};
    const auto found = factor_on(k_struck, struck, A, B);
    ASSERT_EQ(found.errors, 0) << "seed " << seed << ": " << found.message;
    detected += found.detected;
    expect_factors(A, B, found, "seed " + std::to_string(seed));
    expect_definitions(A, B, found, "seed " + std::to_string(seed));
    scene bare = struck;
    bare.level = protection::off;
    const auto without = factor_on(k_struck, bare, A, B);
    reached += without.errors > 0 || !same(without, clean) ? 1 : 0;
  }
  EXPECT_GT(detected, 0u);
  EXPECT_GT(reached, 0) << "without protection no strike reached the results";
}

INSTANTIATE_TEST_SUITE_P(all, qr_grid_strikes,
                         testing::Values("panel", "reflector", "tau", "t", "product", "trailing", "r", "q", "pivot", "store"),
                         [](const auto& seen) { return std::string(seen.param); });

// Counts the blocks that a rank sends for the first time, by receiver.
class counted_transport final : public transport {
 public:
  counted_transport(std::shared_ptr<switchboard> board, int rank, std::vector<int>& blocks)
      : over_(std::move(board), rank), blocks_(blocks) {}
  int rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  void send(int to, std::span<const std::byte> message) override {
    wire::head value;
    if (wire::read_head(message, value) && value.what == static_cast<std::uint64_t>(wire::kind::data) && value.copy == 0)
      ++blocks_[static_cast<std::size_t>(to)];
    over_.send(to, message);
  }
  int receive(std::vector<std::byte>& message, double seconds) override { return over_.receive(message, seconds); }
  bool lost(int rank) override { return over_.lost(rank); }

 private:
  wire::thread_engine over_;
  std::vector<int>& blocks_;
};

// The blocks that ranks send in a factorization and in a product with Q: beside a few exchanges of all, and in the factorization one sum of
// a word for each panel, they go along the process rows and columns. If the exchanges of a panel, 5 and 2, were of all ranks, as well as
// two before them, they would be many more.
TEST(qr_grid_messages, go_along_rows_and_columns) {
  for (const process_grid grid :
       {process_grid{2, 2, false}, process_grid{2, 3, true}, process_grid{4, 2, false}, process_grid{3, 4, false}}) {
    const int p = grid.rows, q = grid.columns, ranks = p * q;
    const example of = {grid, 96, 96, 8, 8, 0, 0, 0, 0};
    const int panels = 12;
    const matrix<double> A = numbers<double>(96, 96, 1), B = numbers<double>(96, 24, 2);
    example right = of;
    right.n = 24;
    for (const bool product : {false, true}) {
      const auto board = std::make_shared<switchboard>(ranks);
      std::vector<std::vector<int>> blocks(static_cast<std::size_t>(ranks), std::vector<int>(static_cast<std::size_t>(ranks), 0));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
          auto& own = blocks[static_cast<std::size_t>(rank)];
          const group over(std::make_shared<counted_transport>(board, rank, own), {.resend_after = 5, .patience = 60});
          const local_part<double> mine = part_of(of, A, rank), b = part_of(right, B, rank);
          const auto made = factor_grid(std::span<const double>(mine.values), mine.desc, grid, {.threads = 1, .group = over});
          if (!product) return;
          over.barrier();
          std::ranges::fill(own, 0);
          const auto height = made.storage.rows();
          (void)made.apply_transposed(column_major<const double>(
              b.values.data(), height, count_of(24, 8, 0, q, grid.by_columns ? rank / grid.rows : rank % grid.columns), b.desc[8]));
        });
      for (std::thread& each : threads) each.join();
      const auto row_of = [&](int rank) { return grid.by_columns ? rank % p : rank / q; };
      const auto column_of = [&](int rank) { return grid.by_columns ? rank / p : rank % q; };
      int all = 0, beside = 0;  // beside: to ranks of other rows and columns
      for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) {
          const int sent = blocks[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
          all += sent;
          if (row_of(from) != row_of(to) && column_of(from) != column_of(to)) beside += sent;
        }
      // Exchanges of all: the arguments, whether numbers are finite, the verdict, the report; and a word for each panel.
      const int of_all = 4 + (product ? 0 : panels);
      const bool relayed = ranks > 8;
      int steps = 0;
      while (1 << steps < ranks) ++steps;
      const int most_beside = relayed ? of_all * ranks * (steps + 2) : of_all * (p - 1) * (q - 1) * ranks;
      EXPECT_LE(beside, most_beside) << ranks;
      if (!relayed) {
        EXPECT_EQ(beside, most_beside) << ranks;
      }
      // A panel has two sums along the columns, triangles, tau and T from one rank, V along the rows; before the first one the sizes of
      // columns are summed twice.
      const int sums = q * p * (p - 1);
      const int in_lines = panels * (2 * sums + (product ? 0 : 2 * (p - 1)) + p * (q - 1)) + 2 * sums;
      const int in_exchanges_of_all = relayed ? of_all * ranks * (steps + 2) : of_all * ranks * (ranks - 1);
      EXPECT_LE(all, in_lines + in_exchanges_of_all) << ranks;
      const int in_exchanges = (panels * (product ? 2 : 5) + 6) * ranks * (ranks - 1);
      std::printf("%d x %d, %s: %d blocks, %d in exchanges of all ranks\n", p, q, product ? "product" : "factorization", all, in_exchanges);
      EXPECT_LT(all, in_exchanges * 6 / 10) << ranks;
    }
  }
}

// Arguments that one rank refuses end the call on all at once. A descriptor that is the same on all ranks and fits only some is refused by
// all with its own error.
TEST(qr_grid_errors, of_one_rank_end_all) {
  const std::vector<double> values(400, 1.0);
  std::mutex mutex;
  std::vector<std::string> same, named, own_error;
  const auto start = std::chrono::steady_clock::now();
  const auto endings = test::run_ranks(std::make_shared<switchboard>(4), quick(60), [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .threads = 1, .group = own};
    const auto refused = [&](std::vector<std::string>& to, const auto& work) {
      try {
        work();
        ADD_FAILURE() << "rank " << rank;
      } catch (const error& seen) {
        const std::lock_guard lock(mutex);
        to.emplace_back(seen.what());
      }
    };
    // 10 rows in blocks of 4 on two process rows: 6 and 4. LLD_ = 5 does for the second.
    const std::vector<int> narrow = {1, 0, 10, 10, 4, 4, 0, 0, 5}, good = {1, 0, 10, 10, 4, 4, 0, 0, 10};
    for (int i = 0; i < 20; ++i) {
      refused(same, [&] { (void)factor_grid(std::span<const double>(values), narrow, {2, 2, false}, where); });
      refused(same, [&] { (void)to_block_columns(std::span<const double>(values), narrow, {2, 2, false}, 3, where); });
    }
    // Refused before the call begins.
    execution other = where;
    if (rank == 2) other.protection = protection::final_only;
    refused(rank == 2 ? own_error : named, [&] { (void)factor_grid(std::span<const double>(values), good, {2, 2, false}, other); });
    refused(rank == 2 ? own_error : named, [&] { (void)factor_columns(column_major<const double>(values.data(), 5, 4), 4, other); });
    refused(rank == 2 ? own_error : named, [&] { (void)factor_rows(column_major<const double>(values.data(), 5, 4), other); });
    // Factors whose tau was shortened.
    auto factors = factor_grid(std::span<const double>(values), good, {2, 2, false}, where);
    const auto whole = factors.tau;
    if (rank == 1) factors.tau.pop_back();
    refused(rank == 1 ? own_error : named, [&] { (void)factors.q(); });
    factors.tau = whole;
    EXPECT_EQ(factors.q().report.verdict, verdict::clean);
    // Protection on some ranks only: their exchanges would differ.
    other = where;
    if (rank == 3) other.protection = protection::off;
    std::vector<std::string> unlike;
    refused(unlike, [&] { (void)factor_grid(std::span<const double>(values), good, {2, 2, false}, other); });
    EXPECT_NE(unlike.at(0).find("expected the same call"), std::string::npos) << unlike[0];
  });
  for (const auto& each : endings) EXPECT_FALSE(each.error);
  EXPECT_EQ(same.size(), 160U);
  for (const std::string& each : same) EXPECT_NE(each.find("LLD_ of the rank's 6 rows or more, got 5"), std::string::npos) << each;
  EXPECT_EQ(named.size(), 12U);
  for (const std::string& each : named) EXPECT_NE(each.find("of the group left the call"), std::string::npos) << each;
  EXPECT_EQ(own_error.size(), 4U);
  for (const std::string& each : own_error) EXPECT_EQ(each.find("left the call"), std::string::npos) << each;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
}

TEST(qr_grid_errors, shapes) {
  const std::vector<double> values(400, 1.0);
  const std::vector<int> good = {1, 0, 10, 10, 2, 2, 0, 0, 10};
  EXPECT_THROW((void)factor_grid(std::span<const double>(values), good, {1, 2, false}, execution{}), invalid_argument_error);
  EXPECT_THROW((void)factor_grid(std::span<const double>(values), good, {1, 2, false}, {.group = group::devices({0})}), unsupported_error);
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
    const auto with = [&](int field, int value, const process_grid& grid = {1, 2, false}) {
      std::vector<int> desc = good;
      desc[static_cast<std::size_t>(field)] = value;
      refused([&] { (void)factor_grid(std::span<const double>(values), desc, grid, where); });
    };
    with(0, 501);
    with(2, 0);
    with(5, 0);
    with(6, 1);
    with(8, 9);
    with(0, 1, {2, 2, false});
    with(5, rank == 0 ? 2 : 3);  // another block
    with(0, 1, rank == 0 ? process_grid{1, 2, false} : process_grid{2, 1, false});
    refused([&] { (void)factor_grid(std::span<const double>(values).first(3), good, {1, 2, false}, where); });
    std::vector<int> desc = good;
    desc[2] = 4;
    const auto wide = factor_grid(std::span<const double>(values), desc, {1, 2, false}, where);  // 4 × 10
    refused([&] { (void)wide.solve(column_major<const double>(values.data(), 4, 1)); });
    refused([&] { (void)wide.apply(column_major<const double>(values.data(), 5, 1)); });
    const auto tall = factor_grid(std::span<const double>(values), good, {2, 1, false}, where);
    refused([&] { (void)tall.apply(column_major<const double>(values.data(), tall.storage.rows(), rank + 1)); });
  });
  EXPECT_EQ(messages.size(), 24u);
}

}  // namespace
}  // namespace ballast::qr
