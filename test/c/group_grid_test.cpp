// QR on a grid of ranks in C: on ranks that are threads over a table of functions, against the definitions, with faults of the wire and of
// the computation. test/group tests what is computed. These tests ask whether the calls reach it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "c/group_factors.hpp"
#include "c/post_office.hpp"
#include "c/support.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"

namespace ballast::test {
namespace {

using c_grid_factors = owned<ballast_grid_factors, ballast_grid_factors_destroy>;

struct grid_scene {
  ballast_process_grid grid = {sizeof(ballast_process_grid), 2, 2, 0};
  std::int32_t rows = 24, columns = 17, row_block = 4, column_block = 4, row_source = 0, column_source = 0, gap = 0;
  const char* protection = "correct";
  std::function<void(int, post_office::desk&)> prepare = {};
  const inject::plan* strikes = nullptr;  // on rank 1
  int ranks() const { return grid.rows * grid.columns; }
};

// The numbers, below `rows` and `columns` of a whole matrix, that a rank has, by ScaLAPACK's definition.
struct numbers_on_grid {
  numbers_on_grid(const grid_scene& how, int rank, std::int64_t m, std::int64_t n, std::int64_t wide) {
    const std::int64_t row = how.grid.by_columns == 1 ? rank % how.grid.rows : rank / how.grid.columns;
    const std::int64_t column = how.grid.by_columns == 1 ? rank / how.grid.rows : rank % how.grid.columns;
    for (std::int64_t i = 0; i < m; ++i)
      if ((i / how.row_block + how.row_source) % how.grid.rows == row) rows.push_back(i);
    for (std::int64_t j = 0; j < n; ++j)
      if ((j / wide + how.column_source) % how.grid.columns == column) columns.push_back(j);
  }
  std::int64_t height() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t width() const { return static_cast<std::int64_t>(columns.size()); }
  template <class T>
  std::vector<T> elements(std::uint64_t stream, std::int64_t leading) const {
    std::vector<T> made(static_cast<std::size_t>(leading * width()), T(-7));
    for (std::size_t j = 0; j < columns.size(); ++j)
      for (std::size_t i = 0; i < rows.size(); ++i)
        made[i + j * static_cast<std::size_t>(leading)] = element<T>(stream, rows[i], columns[j]);
    return made;
  }
  template <class T>
  void gather(const std::vector<T>& part, std::int64_t all_rows, std::vector<T>& all) const {
    for (std::size_t j = 0; j < columns.size(); ++j)
      for (std::size_t i = 0; i < rows.size(); ++i)
        all[static_cast<std::size_t>(rows[i] + columns[j] * all_rows)] = part[i + j * rows.size()];
  }
  std::vector<std::int64_t> rows, columns;
};

// Factors a random matrix, applies Q, solves (m ≥ n), on ranks that are threads. The two right-hand sides lie on the process columns in
// turn.
template <class T>
outcome<T> factor_on_grid(const grid_scene& how) {
  const std::int64_t m = how.rows, n = how.columns, k = std::min(m, n);
  const auto count = [](std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); };
  outcome<T> all;
  all.q.resize(count(m, k));
  all.r.resize(count(k, n));
  all.storage.resize(count(m, n));
  all.product.resize(count(m, 2));
  if (m >= n) all.x.resize(count(n, 2));
  std::mutex mutex;
  on_threads(
      how.ranks(),
      [&](int rank, ballast_group* group) {
        rank_objects with(group, how.protection);
        std::uint64_t detected = 0, uncorrectable = 0;
        const auto run = [&](std::int32_t status) { with.called(status, detected, uncorrectable); };
        const numbers_on_grid own(how, rank, m, n, how.column_block), of_r(how, rank, k, n, how.column_block),
            of_q(how, rank, m, k, how.column_block), of_b(how, rank, m, 2, 1), of_x(how, rank, n, 2, 1);
        const std::int64_t leading = std::max<std::int64_t>(1, own.height()) + how.gap, sides = of_b.width();
        const std::int32_t desc[9] = {1,
                                      -1,
                                      how.rows,
                                      how.columns,
                                      how.row_block,
                                      how.column_block,
                                      how.row_source,
                                      how.column_source,
                                      static_cast<std::int32_t>(leading)};
        std::vector<T> a = own.elements<T>(1, leading), b = of_b.elements<T>(2, of_b.height()), q(count(own.height(), of_q.width())),
                       r(count(of_r.height(), own.width())), x(count(of_x.height(), sides)), product(b.size()), back(b.size()),
                       storage(count(own.height(), own.width())), tau(static_cast<std::size_t>(k));
        const inject::scope struck(rank == 1 ? how.strikes : nullptr);
        c_grid_factors made;
        run(ballast_qr_factor_grid(tensor(a, {static_cast<std::int64_t>(a.size())}), desc, &how.grid, with.with, nullptr, &made, with.seen,
                                   with.failed));
        if (!with.wrong) {
          run(ballast_grid_factors_q(made, column_tensor(q, own.height(), of_q.width()), nullptr, with.seen, with.failed));
          run(ballast_grid_factors_apply(made, BALLAST_TRANSPOSE, column_tensor(b, own.height(), sides),
                                         column_tensor(product, own.height(), sides), nullptr, with.seen, with.failed));
          run(ballast_grid_factors_apply(made, BALLAST_NO_TRANSPOSE, column_tensor(product, own.height(), sides),
                                         column_tensor(back, own.height(), sides), nullptr, with.seen, with.failed));
          const double allowed = 40 * static_cast<double>(m) * std::ldexp(1.0, -unit_roundoff<T>());
          if (std::string(how.protection) == "correct") {
            for (std::size_t e = 0; e < b.size(); ++e) EXPECT_LE(std::abs(back[e] - b[e]), allowed);
          }
          if (m >= n)
            run(ballast_grid_factors_solve(made, column_tensor(b, own.height(), sides), column_tensor(x, of_x.height(), sides), nullptr,
                                           with.seen, with.failed));
        }
        const std::lock_guard lock(mutex);
        all.detected += detected;
        all.uncorrectable += uncorrectable;
        if (with.wrong) {
          ++all.errors;
          return;
        }
        with.right(ballast_grid_factors_r(made, column_tensor(r, of_r.height(), own.width()), with.failed));
        with.right(ballast_grid_factors_storage(made, column_tensor(storage, own.height(), own.width()), tensor(tau, {k}), with.failed));
        std::int64_t shape[6] = {};
        with.right(ballast_grid_factors_shape(made, &shape[0], &shape[1], &shape[2], &shape[3], &shape[4], &shape[5], with.failed));
        EXPECT_EQ(std::vector(shape, shape + 6), (std::vector{m, n, own.height(), own.width(), of_r.height(), of_q.width()}));
        of_q.gather(q, m, all.q);
        of_r.gather(r, k, all.r);
        own.gather(storage, m, all.storage);
        of_b.gather(product, m, all.product);
        if (m >= n) of_x.gather(x, n, all.x);
        EXPECT_TRUE(all.tau.empty() || all.tau == tau);
        all.tau = tau;
      },
      how.prepare);
  return all;
}

template <class T>
class c_group_grid : public testing::Test {};
using grid_types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(c_group_grid, grid_types);

TYPED_TEST(c_group_grid, definitions) {
  const auto size = static_cast<std::int32_t>(sizeof(ballast_process_grid));
  const auto grid = [&](std::int32_t rows, std::int32_t columns, std::int32_t by_columns) {
    return ballast_process_grid{static_cast<std::size_t>(size), rows, columns, by_columns};
  };
  for (const grid_scene& how : {grid_scene{.grid = grid(1, 1, 0)}, grid_scene{}, grid_scene{.grid = grid(2, 2, 1), .gap = 3},
                                grid_scene{.grid = grid(3, 1, 0), .rows = 19, .columns = 19, .row_block = 3, .column_block = 5},
                                grid_scene{.grid = grid(2, 3, 1), .rows = 31, .columns = 20, .row_source = 1, .column_source = 2},
                                // The second process row has no rows.
                                grid_scene{.grid = grid(2, 2, 0), .rows = 9, .columns = 22, .row_block = 16, .column_block = 5}}) {
    const outcome<TypeParam> found = factor_on_grid<TypeParam>(how);
    ASSERT_EQ(found.errors, 0);
    EXPECT_EQ(found.detected, 0U);
    expect_definitions(how.rows, how.columns, found);
    // R and V lie where pdgeqrf leaves them, and Qᴴ b is that of Q.
    const std::int64_t m = how.rows, n = how.columns, k = std::min(m, n);
    const double allowed = 8 * static_cast<double>(m) * std::ldexp(1.0, -unit_roundoff<TypeParam>());
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i <= std::min(j, k - 1); ++i)
        EXPECT_EQ(found.storage[static_cast<std::size_t>(i + j * m)], found.r[static_cast<std::size_t>(i + j * k)]);
    for (std::int64_t c = 0; c < 2; ++c)
      for (std::int64_t j = 0; j < k; ++j) {
        TypeParam sum = -found.product[static_cast<std::size_t>(j + c * m)];
        for (std::int64_t i = 0; i < m; ++i) sum += conjugate(found.q[static_cast<std::size_t>(i + j * m)]) * element<TypeParam>(2, i, c);
        EXPECT_LE(std::abs(sum), 4 * allowed);
      }
  }
}

TEST(c_group_grid_faults, a_damaged_message_is_sent_again) {
  const outcome<double> clean = factor_on_grid<double>({});
  std::uint64_t detected = 0;
  const auto damage = [](int number) { return [number](int rank, post_office::desk& own) { own.damaged = rank == 1 ? number : -1; }; };
  for (int number = 0; number < 240; number += 24) {
    const outcome<double> found = factor_on_grid<double>({.prepare = damage(number)});
    ASSERT_EQ(found.errors, 0) << number;
    EXPECT_TRUE(found == clean) << number;
    EXPECT_EQ(found.uncorrectable, 0U);
    detected += found.detected;
  }
  EXPECT_GT(detected, 0U);
  // Without protection a damaged message reaches the results, or ends a call.
  const outcome<double> bare = factor_on_grid<double>({.protection = "off"});
  int different = 0;
  for (int number = 0; number < 24 && different == 0; ++number) {
    const outcome<double> found = factor_on_grid<double>({.protection = "off", .prepare = damage(number)});
    different += found.errors > 0 || !(found == bare) ? 1 : 0;
  }
  EXPECT_GT(different, 0);
}

TEST(c_group_grid_faults, a_strike_of_a_rank_is_repaired) {
  const outcome<double> clean = factor_on_grid<double>({.protection = "off"});
  for (const char* const site : {"qr.trailing", "qr.reflector", "qr.q"}) {
    std::uint64_t detected = 0;
    int different = 0;
    for (int seed = 0; seed < 8; ++seed) {
      const std::string request = std::string("site=") + site + ",model=bit_flip,bit=61,seed=" + std::to_string(seed);
      const inject::plan once({inject::parse_request(request)}), again({inject::parse_request(request)});
      const outcome<double> found = factor_on_grid<double>({.strikes = &once});
      ASSERT_EQ(found.errors, 0) << request;
      EXPECT_EQ(found.uncorrectable, 0U) << request;
      expect_definitions(24, 17, found);
      detected += found.detected;
      const outcome<double> bare = factor_on_grid<double>({.protection = "off", .strikes = &again});
      different += bare.errors > 0 || !(bare == clean) ? 1 : 0;
    }
    EXPECT_GT(detected, 0U) << site;
    EXPECT_GT(different, 0) << site;
  }
}

TEST(c_group_grid_errors, statuses) {
  std::mutex mutex;
  std::map<std::string, int> told;  // how many ranks told a text
  on_threads(4, [&](int rank, ballast_group* group) {
    rank_objects with(group, "correct");
    const grid_scene how{.rows = 12, .columns = 6, .row_block = 2, .column_block = 2};
    const numbers_on_grid own(how, rank, 12, 6, 2);
    const std::int64_t height = own.height(), width = own.width(), below = numbers_on_grid(how, rank, 6, 6, 2).height();
    std::vector<double> a = own.elements<double>(1, height), b(static_cast<std::size_t>(height), 1.0), x(static_cast<std::size_t>(below));
    const std::int32_t good[9] = {1, 0, 12, 6, 2, 2, 0, 0, static_cast<std::int32_t>(height)};
    c_grid_factors made;
    const auto expect = [&](std::int32_t status, std::int32_t wanted, const std::string& part) {
      const std::string message = ballast_error_message(with.failed);
      const bool right = status == wanted && message.find(part) != std::string::npos;
      EXPECT_TRUE(right) << part << ", status " << status << ": " << message;
      const std::lock_guard lock(mutex);
      told[part] += right ? 1 : 0;
    };
    const auto factor = [&](std::vector<double>& local, const std::int32_t* desc, const ballast_process_grid* grid,
                            const ballast_options* options) {
      return ballast_qr_factor_grid(tensor(local, {static_cast<std::int64_t>(local.size())}), desc, grid, options, nullptr, &made,
                                    with.seen, with.failed);
    };
    const auto changed = [&](int place, std::int32_t value, const std::string& part) {
      std::vector<std::int32_t> desc(good, good + 9);
      desc[static_cast<std::size_t>(place)] = value;
      expect(factor(a, desc.data(), &how.grid, with.with), BALLAST_INVALID_ARGUMENT, part);
      EXPECT_TRUE(made.value == nullptr);
    };
    // All ranks refuse these alike.
    changed(0, 502, "desc: expected DTYPE_ 1");
    changed(2, 0, "desc: expected M_ and N_ of 1 or more, got 0 and 6");
    changed(5, 0, "desc: expected MB_ and NB_ of 1 or more");
    changed(6, 2, "desc: expected RSRC_ below 2");
    changed(8, 1, "desc: expected LLD_ of the rank's 6 rows or more, got 1");
    const ballast_process_grid larger = {sizeof larger, 2, 3, 0}, odd = {sizeof odd, 2, 2, 5};
    expect(factor(a, good, &larger, with.with), BALLAST_INVALID_ARGUMENT, "rows × columns of the group's 4 ranks, got 2 × 3");
    expect(factor(a, good, &odd, with.with), BALLAST_INVALID_ARGUMENT, "by_columns: expected 0 or 1, got 5");
    expect(factor(a, nullptr, &how.grid, with.with), BALLAST_INVALID_ARGUMENT, "desc");
    expect(factor(a, good, nullptr, with.with), BALLAST_INVALID_ARGUMENT, "grid");
    expect(factor(a, good, &how.grid, nullptr), BALLAST_INVALID_ARGUMENT, "group: expected one whose ranks have the matrix, got none");
    std::vector<double> few(3);
    expect(factor(few, good, &how.grid, with.with), BALLAST_INVALID_ARGUMENT, "elements or more");
    expect(ballast_qr_factor_grid(column_tensor(a, height, width), good, &how.grid, with.with, nullptr, &made, with.seen, with.failed),
           BALLAST_INVALID_ARGUMENT, "local");
    tensor elsewhere(a, {static_cast<std::int64_t>(a.size())});
    elsewhere->device.device_type = static_cast<decltype(elsewhere->device.device_type)>(BALLAST_DLPACK_CUDA);
    expect(ballast_qr_factor_grid(elsewhere, good, &how.grid, with.with, nullptr, &made, with.seen, with.failed), BALLAST_UNSUPPORTED,
           "local: expected host memory, got that of a device");
    options devices;
    const std::int64_t numbers[] = {0, 1};
    with.right(ballast_options_create("qr", &devices, with.failed));
    with.right(ballast_options_set_integers(devices, "devices", numbers, 2, with.failed));
    expect(factor(a, good, &how.grid, devices), BALLAST_UNSUPPORTED, "expected ranks of an engine for a grid, got devices");
    expect(ballast_grid_factors_r(made, column_tensor(a, height, width), with.failed), BALLAST_INVALID_ARGUMENT, "factors");

    ASSERT_EQ(factor(a, good, &how.grid, with.with), BALLAST_OK) << ballast_error_message(with.failed);
    ballast_summary told{};
    told.size = sizeof told;
    ASSERT_EQ(ballast_report_summary(with.seen, &told, with.failed), BALLAST_OK);
    EXPECT_STREQ(told.problem, "qr_f64_m12_n6");  // the whole matrix's
    const auto solve = [&](const ballast_grid_factors* by, std::int64_t rows_of_x) {
      return ballast_grid_factors_solve(by, tensor(b, {height}), tensor(x, {rows_of_x}), nullptr, with.seen, with.failed);
    };
    expect(ballast_grid_factors_apply(made, 2, tensor(b, {height}), tensor(b, {height}), nullptr, with.seen, with.failed),
           BALLAST_INVALID_ARGUMENT, "transpose: expected 0 (no) or 1 (yes), got 2");
    expect(solve(made, below - 1), BALLAST_INVALID_ARGUMENT, "X: expected ");
    with.right(ballast_grid_factors_q(made, column_tensor(a, height, width), nullptr, with.seen, with.failed));
    ASSERT_EQ(solve(made, below), BALLAST_OK) << ballast_error_message(with.failed);
    // Another number of columns on one rank of each process column.
    const std::int64_t sides = rank < 2 ? 1 : 0;
    std::int32_t status = ballast_grid_factors_apply(made, BALLAST_TRANSPOSE, column_tensor(b, height, sides),
                                                     column_tensor(b, height, sides), nullptr, with.seen, with.failed);
    expect(status, BALLAST_INVALID_ARGUMENT, "as many columns on all ranks of a process column");
    // Columns that depend on each other: the same status on all ranks.
    a = own.elements<double>(1, height);
    for (std::size_t j = 0; j < own.columns.size(); ++j)
      if (own.columns[j] == 4) std::fill_n(a.begin() + static_cast<std::ptrdiff_t>(j) * height, height, 0.0);
    c_grid_factors dependent;
    ASSERT_EQ(ballast_qr_factor_grid(tensor(a, {static_cast<std::int64_t>(a.size())}), good, &how.grid, with.with, nullptr, &dependent,
                                     with.seen, with.failed),
              BALLAST_OK);
    expect(solve(dependent, below), BALLAST_RANK_DEFICIENT, "column 4");
  });
  for (const auto& [part, ranks] : told) EXPECT_EQ(ranks, 4) << part;
}

// Arguments that this interface refuses on one rank end the call on the others at once, and so does a caller that makes no call.
TEST(c_group_grid_errors, of_one_rank_end_all) {
  std::atomic<int> named{0};
  const auto start = std::chrono::steady_clock::now();
  on_threads(
      4,
      [&](int rank, ballast_group* group) {
        rank_objects with(group, "correct");
        const grid_scene how{.rows = 12, .columns = 6, .row_block = 2, .column_block = 2};
        const numbers_on_grid own(how, rank, 12, 6, 2);
        const std::int64_t height = own.height(), width = own.width();
        std::vector<double> a = own.elements<double>(1, height), b(static_cast<std::size_t>(height), 1.0);
        const std::int32_t desc[9] = {1, 0, 12, 6, 2, 2, 0, 0, static_cast<std::int32_t>(height)};
        const auto expect = [&](std::int32_t status) {
          const std::string message = ballast_error_message(with.failed);
          EXPECT_EQ(status, rank == 2 ? BALLAST_INVALID_ARGUMENT : BALLAST_INTERNAL_ERROR) << message;
          if (rank == 2) return;
          EXPECT_NE(message.find("rank 2 of the group left the call"), std::string::npos) << message;
          ++named;
        };
        c_grid_factors made;
        // A tensor of two axes where one is expected.
        tensor one(a, {static_cast<std::int64_t>(a.size())}), two = column_tensor(a, height, width);
        expect(ballast_qr_factor_grid(rank == 2 ? two : one, desc, &how.grid, with.with, nullptr, &made, with.seen, with.failed));
        // A null.
        expect(ballast_qr_factor_grid(one, rank == 2 ? nullptr : desc, &how.grid, with.with, nullptr, &made, with.seen, with.failed));
        ASSERT_EQ(ballast_qr_factor_grid(one, desc, &how.grid, with.with, nullptr, &made, with.seen, with.failed), BALLAST_OK)
            << ballast_error_message(with.failed);
        expect(
            ballast_grid_factors_apply(made, rank == 2 ? 2 : 1, tensor(b, {height}), tensor(b, {height}), nullptr, with.seen, with.failed));
        // A caller that refuses its arguments itself.
        if (rank == 2) {
          with.right(ballast_group_leave_call(group, with.failed));
        } else {
          expect(ballast_grid_factors_q(made, column_tensor(a, height, width), nullptr, with.seen, with.failed));
        }
        // A null in place of a handle names no group: the caller tells the other ranks.
        if (rank == 2) {
          EXPECT_EQ(ballast_grid_factors_q(nullptr, column_tensor(a, height, width), nullptr, with.seen, with.failed),
                    BALLAST_INVALID_ARGUMENT);
          with.right(ballast_group_leave_call(group, with.failed));
        } else {
          expect(ballast_grid_factors_q(made, column_tensor(a, height, width), nullptr, with.seen, with.failed));
        }
        with.right(ballast_grid_factors_q(made, column_tensor(a, height, width), nullptr, with.seen, with.failed));
      },
      {}, 60);
  EXPECT_EQ(named, 5 * 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace ballast::test
