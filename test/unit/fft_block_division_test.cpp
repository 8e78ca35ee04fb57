// Divisions of convolutions into blocks.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/types.hpp>

#include "fft/tables/block_division.hpp"

namespace ballast::fft {
namespace {

void expect_covers(const block_division& by, std::int64_t n, std::int64_t m) {
  EXPECT_GE(by.length, by.step + m - 1) << n << ' ' << m;  // the whole result of a block has room in it
  EXPECT_GE(by.blocks * by.step, n);
  EXPECT_LT((by.blocks - 1) * by.step, n);
  EXPECT_TRUE(by.length == 1 || by.length % 2 == 0) << by.length;
  EXPECT_TRUE(by.blocks == 1 || by.step >= m - 1) << n << ' ' << m;  // only neighbours overlap
}

TEST(fft_block_division, covers_the_operand_with_blocks_whose_neighbours_overlap) {
  const std::vector<std::int64_t> lengths = {1, 2, 3, 31, 32, 33, 100, 1000, 4096, 65537};
  for (const std::int64_t n : lengths) {
    for (const std::int64_t m : lengths) {
      expect_covers(divide(n, m), n, m);
      for (const precision type : {precision::f32, precision::f64}) {
        for (const std::int64_t rows : {1, 5, 700}) {
          const std::vector<std::int64_t> shape = {rows, n, 40}, kernel = {m, m, 3};
          const std::vector<block_division> made = divide_for_device(shape, kernel, type, false, true);
          ASSERT_EQ(made.size(), shape.size());
          for (std::size_t i = 0; i < made.size(); ++i) expect_covers(made[i], shape[i], kernel[i]);
        }
      }
    }
  }
}

// 640 points with a step of 608 cover 4096 with 4480, less than any other fast length and the whole of 4608. The spectrum of a small kernel
// stays in the cache.
TEST(fft_block_division, of_a_plane_moves_the_fewest_bytes) {
  for (const block_division& by : divide_for_device({4096, 4096}, {33, 33}, precision::f32, false, true)) {
    EXPECT_EQ(by.length, 640);
    EXPECT_EQ(by.step, 608);
    EXPECT_EQ(by.blocks, 7);
  }
  // A kernel as large as the operand leaves one block.
  for (const block_division& by : divide_for_device({2500, 2500}, {2500, 2500}, precision::f32, false, true)) EXPECT_EQ(by.blocks, 1);
  // No transform along an axis on which the kernel has one point.
  EXPECT_EQ(divide_for_device({1000, 4096}, {1, 33}, precision::f64, true, false)[0].length, 1);
}

// Many axes have few combinations.
TEST(fft_block_division, of_forty_axes) {
  const std::vector<std::int64_t> shape(40, 2), kernel(40, 1);
  for (const block_division& by : divide_for_device(shape, kernel, precision::f32, false, true)) EXPECT_EQ(by.blocks, 1);
}

}  // namespace
}  // namespace ballast::fft
