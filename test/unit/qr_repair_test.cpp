// The repair of a block: the elements that it changes, and those that it keeps.
// Layer: unit tests.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/counter_rng.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/checks/repair.hpp"
#include "qr/checks/weights.hpp"
#include "qr/sites.hpp"

namespace ballast::qr {
namespace {

// A block with the checksums of its columns, apart from rounding errors like those of updates.
struct block_with_checksums {
  static constexpr index rows = 400, columns = 24;
  static constexpr double noise = 1e-13;
  std::vector<double> X = std::vector<double>(rows * columns), c1 = std::vector<double>(rows), c2 = c1, r = c1, s = c1;
  const column_weights weights{0, columns};
  std::vector<double> second = std::vector<double>(columns);

  static double random(std::uint64_t stream, index i) { return core::random_uniform(7, stream, static_cast<std::uint64_t>(i)) - 0.5; }
  double& at(index i, index j) { return X[static_cast<std::size_t>(i + j * rows)]; }
  double sum(index i, const auto& by) {
    double made = 0;
    for (index j = 0; j < columns; ++j) made += by[static_cast<std::size_t>(j)] * at(i, j);
    return made;
  }

  block_with_checksums() {
    for (index e = 0; e < rows * columns; ++e) X[static_cast<std::size_t>(e)] = random(1, e);
    for (index j = 0; j < columns; ++j)
      second[static_cast<std::size_t>(j)] = weights.sign[static_cast<std::size_t>(j)] * weights.ratio[static_cast<std::size_t>(j)];
    for (index i = 0; i < rows; ++i) {
      c1[static_cast<std::size_t>(i)] = sum(i, weights.sign) + noise * random(2, i);
      c2[static_cast<std::size_t>(i)] = sum(i, second) + noise * random(3, i);
    }
  }

  // As checks measure it: within sqrt(rows) times the noise of a row, clean data are below the threshold.
  index repair() {
    for (index i = 0; i < rows; ++i) {
      r[static_cast<std::size_t>(i)] = c1[static_cast<std::size_t>(i)] - sum(i, weights.sign);
      s[static_cast<std::size_t>(i)] = c2[static_cast<std::size_t>(i)] - sum(i, second);
    }
    inject::active_injector none(nullptr, site::table());
    return repair_block<double>({.columns = columns,
                                 .X = X.data(),
                                 .ldx = rows,
                                 .full_rows = rows,
                                 .c1 = c1.data(),
                                 .d = weights.sign.data(),
                                 .e = second.data(),
                                 .r = r.data(),
                                 .s = s.data(),
                                 .threshold = noise * std::sqrt(static_cast<double>(rows))},
                                none, {});
  }
};

// A checksum has roundings of its own in every row: they are not to come into rows that nothing has struck.
TEST(qr_repair, of_an_element_leaves_the_others_of_its_column_as_they_are) {
  block_with_checksums block;
  const std::vector<double> before = block.X;
  block.at(131, 17) = 100;
  ASSERT_EQ(block.repair(), 17);
  for (index i = 0; i < block.rows; ++i) {
    for (index j = 0; j < block.columns; ++j) {
      const double was = before[static_cast<std::size_t>(i + j * block.rows)];
      if (i == 131 && j == 17) {
        EXPECT_NEAR(block.at(i, j), was, 1e-12);
      } else {
        ASSERT_EQ(block.at(i, j), was) << i << ", " << j;
      }
    }
  }
}

TEST(qr_repair, of_a_column_takes_all_rows_that_have_changed) {
  block_with_checksums block;
  const std::vector<double> before = block.X;
  for (index i = 5; i < block.rows; ++i) block.at(i, 3) += 1e-9 * block_with_checksums::random(4, i);
  ASSERT_EQ(block.repair(), 3);
  for (index i = 0; i < block.rows; ++i)
    ASSERT_NEAR(block.at(i, 3), before[static_cast<std::size_t>(i + 3 * block.rows)], 4 * block.noise) << i;
}

TEST(qr_repair, of_a_column_with_a_nan_rebuilds_all_of_it) {
  block_with_checksums block;
  const std::vector<double> before = block.X;
  block.at(9, 11) = std::nan("");
  block.at(10, 11) += 1e-11;
  ASSERT_EQ(block.repair(), 11);
  for (index i = 0; i < block.rows; ++i)
    ASSERT_NEAR(block.at(i, 11), before[static_cast<std::size_t>(i + 11 * block.rows)], 4 * block.noise) << i;
}

}  // namespace
}  // namespace ballast::qr
