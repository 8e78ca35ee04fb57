// ScaLAPACK's layout on threads: to block columns and back, for grids and blocks of many kinds; the factors of a matrix that came from it;
// faults of the wire; bad descriptors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>

#include "group/block_cyclic.hpp"
#include "group/qr_definitions.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"

namespace ballast::qr {
namespace {

using namespace on_groups;

const example k_examples[] = {{{1, 1, false}, 9, 7, 2, 3, 0, 0, 0, 2},    {{2, 2, false}, 31, 29, 4, 3, 1, 0, 2, 5},
                              {{2, 2, true}, 31, 29, 4, 3, 0, 1, 0, 5},   {{3, 1, false}, 20, 20, 7, 32, 2, 0, 1, 4},
                              {{1, 3, false}, 17, 23, 64, 4, 0, 2, 0, 4}, {{2, 3, true}, 40, 13, 1, 1, 1, 2, 3, 8},
                              {{2, 2, false}, 3, 2, 8, 8, 1, 1, 0, 1},    {{3, 4, false}, 30, 37, 4, 3, 2, 1, 0, 3}};

TEST(qr_descriptor, there_and_back) {
  for (const example& of : k_examples) {
    const int ranks = of.grid.rows * of.grid.columns;
    const matrix<double> A = random_matrix<double>(of.m, of.n, 3);
    test::run_ranks(ranks, [&](int rank, const group& own) {
      const execution where = {.backend = backend::cpu, .group = own};
      local_part<double> mine = part_of(of, A, rank);
      const auto found = to_block_columns(std::span<const double>(mine.values), mine.desc, of.grid, of.block, where);
      EXPECT_EQ(found.report.verdict, verdict::clean);
      EXPECT_GT(found.report.checks, 0u);
      const block_columns divided{of.n, of.block, ranks, rank};
      ASSERT_EQ(found.values.columns(), divided.count());
      for (std::int64_t j = 0; j < divided.count(); ++j)
        for (std::int64_t i = 0; i < of.m; ++i) ASSERT_EQ(found.values(i, j), A(i, divided.global(j))) << i << ", " << j;
      std::vector<double> back(mine.values.size(), -7);
      (void)from_block_columns(found.values.view(), of.block, std::span(back), mine.desc, of.grid, where);
      EXPECT_EQ(back, mine.values) << "gaps of LLD_ keep what they held";
    });
  }
}

TEST(qr_descriptor, parts_by_the_definition) {
  for (const example& of : k_examples) {
    const std::vector<int> desc = {1, 55, of.m, of.n, of.mb, of.nb, of.row_source, of.column_source, 1};
    for (int rank = 0; rank < of.grid.rows * of.grid.columns; ++rank) {
      const int r = of.grid.by_columns ? rank % of.grid.rows : rank / of.grid.columns;
      const int c = of.grid.by_columns ? rank / of.grid.rows : rank % of.grid.columns;
      const layout_part own = part_of_layout(desc, of.grid, rank);
      ASSERT_EQ(own.rows.count(), count_of(of.m, of.mb, of.row_source, of.grid.rows, r));
      ASSERT_EQ(own.columns.count(), count_of(of.n, of.nb, of.column_source, of.grid.columns, c));
      for (int i = 0; i < of.m; ++i)
        if (process_of(i, of.mb, of.row_source, of.grid.rows) == r) {
          EXPECT_EQ(own.rows.global(place_of(i, of.mb, of.grid.rows)), i);
        }
      const int k = std::min(of.m, of.n);
      EXPECT_EQ(own.leading(k, of.n).rows.count(), count_of(k, of.mb, of.row_source, of.grid.rows, r));
      EXPECT_EQ(own.leading(of.m, k).columns.count(), count_of(k, of.nb, of.column_source, of.grid.columns, c));
    }
    EXPECT_THROW((void)part_of_layout(desc, of.grid, of.grid.rows * of.grid.columns), invalid_argument_error);
    EXPECT_THROW((void)part_of_layout(desc, {0, 1, false}, 0), invalid_argument_error);
    EXPECT_THROW((void)part_of_layout(std::vector<int>{1, 2}, of.grid, 0), invalid_argument_error);
  }
}

TEST(qr_descriptor, complex_numbers_and_factors) {
  using T = std::complex<float>;
  const example of = {{2, 2, false}, 24, 24, 4, 4, 0, 0, 0, 4};
  matrix<T> A(24, 24);
  const matrix<float> re = random_matrix<float>(24, 24, 1), im = random_matrix<float>(24, 24, 2);
  for (std::int64_t e = 0; e < 24 * 24; ++e) A.data()[e] = {re.data()[e], im.data()[e]};
  test::run_ranks(4, [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .threads = 1, .group = own};
    local_part<T> mine = part_of(of, A, rank);
    const auto columns = to_block_columns(std::span<const T>(mine.values), mine.desc, of.grid, 4, where);
    const auto factors = factor_columns(columns.values.view(), 4, where);
    std::vector<T> stored(mine.values.size());
    (void)from_block_columns(factors.storage.view(), 4, std::span(stored), mine.desc, of.grid, where);
    // The same factorization with all columns on one rank.
    const group alone = group::threads(1)[0];
    const auto whole = factor_columns(A.view(), 4, {.backend = backend::cpu, .threads = 1, .group = alone});
    EXPECT_EQ(stored, part_of(of, whole.storage, rank).values);
  });
}

TEST(qr_descriptor, faults_of_the_wire) {
  const example of = k_examples[1];
  const matrix<double> A = random_matrix<double>(of.m, of.n, 3);
  for (const wire::fault what : wire::k_faults) {
    if (what == wire::fault::lost_rank) continue;  // qr_columns_test.cpp
    for (std::uint64_t number = 0; number < 24; number += test::sampled() ? 5 : 1) {
      const auto board = std::make_shared<wire::switchboard>(4, std::vector<wire::wire_fault>{{what, 2, number, 1, number}});
      const auto endings = test::run_ranks(board, test::quick(), [&](int rank, const group& own) {
        const local_part<double> mine = part_of(of, A, rank);
        const auto found = to_block_columns(std::span<const double>(mine.values), mine.desc, of.grid, of.block, {.group = own});
        const block_columns divided{of.n, of.block, 4, rank};
        for (std::int64_t j = 0; j < divided.count(); ++j)
          for (std::int64_t i = 0; i < of.m; ++i) ASSERT_EQ(found.values(i, j), A(i, divided.global(j)));
      });
      for (const auto& each : endings) EXPECT_FALSE(each.error);
    }
  }
}

TEST(qr_descriptor, errors_name_the_field) {
  test::run_ranks(2, [&](int, const group& own) {
    const std::vector<double> values(100);
    const auto message = [&](int field, int value, const process_grid& grid = {1, 2, false}) {
      std::vector<int> desc = {1, 0, 10, 10, 2, 2, 0, 0, 10};
      desc[static_cast<std::size_t>(field)] = value;
      try {
        (void)to_block_columns(std::span<const double>(values), desc, grid, 2, {.group = own});
      } catch (const error& seen) {
        return std::string(seen.what());
      }
      return std::string();
    };
    for (const auto& [field, value, text] :
         {std::tuple{0, 501, "DTYPE_"}, {2, 0, "M_"}, {4, 0, "MB_"}, {6, 1, "RSRC_"}, {7, 2, "CSRC_"}, {8, 9, "LLD_"}}) {
      const std::string seen = message(field, value);
      // One rank may hear first that the other has left the call.
      EXPECT_TRUE(seen.find(text) != std::string::npos || seen.find("left the call") != std::string::npos) << seen;
    }
    const std::string grid = message(0, 1, {2, 2, false});
    EXPECT_TRUE(grid.find("grid") != std::string::npos || grid.find("left the call") != std::string::npos) << grid;
    EXPECT_THROW((void)to_block_columns(std::span<const double>(values), std::vector<int>{1, 2}, {1, 2, false}, 2, {.group = own}), error);
  });
}

}  // namespace
}  // namespace ballast::qr
