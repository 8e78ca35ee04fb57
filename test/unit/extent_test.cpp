// Extents of operands with strides: the memory that they reach, their place in a copy, sizes that do not fit, elements at one address.
#include "core/extent.hpp"

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace ballast::core {
namespace {

TEST(extent, reaches_from_the_lowest_to_the_highest_address) {
  std::vector<int> memory(100);
  int* const middle = memory.data() + 50;
  for (const std::int64_t down : {-7, -1, 0, 1, 7})
    for (const std::int64_t across : {-3, 0, 2})
      for (const std::int64_t stride : {-11, 0, 13}) {
        const matrix_batch_view<int> v{middle, 2, 3, 4, down, across, stride};
        std::set<int*> all;
        for (std::int64_t b = 0; b < v.count; ++b)
          for (std::int64_t i = 0; i < v.rows; ++i)
            for (std::int64_t j = 0; j < v.columns; ++j) all.insert(&v[b](i, j));
        const extent<int> seen = extent_of(v);
        EXPECT_EQ(seen.first, *all.begin());
        EXPECT_EQ(seen.end() - 1, *all.rbegin());
        EXPECT_EQ(seen.bytes(), seen.elements * 4);
        EXPECT_EQ(seen.span().size(), static_cast<std::size_t>(seen.elements));
        EXPECT_EQ(extent_of(v[0]).first, extent_of(matrix_batch_view<int>{middle, 1, 3, 4, down, across, 0}).first);
      }
}

TEST(extent, of_no_elements_is_empty) {
  int one = 0;
  EXPECT_EQ(extent_of(matrix_view<int>{&one, 0, 4, 4, 1}).elements, 0);
  EXPECT_EQ(extent_of(matrix_view<int>{&one, 4, 0, 4, 1}).elements, 0);
  EXPECT_EQ(extent_of(matrix_batch_view<int>{&one, 0, 4, 4, 4, 1, 16}).elements, 0);
  EXPECT_EQ(extent_of(matrix_view<int>{nullptr, 4, 4, 4, 1}).elements, 0);
}

TEST(extent, a_view_in_a_copy_shows_the_same_elements) {
  std::vector<int> memory(60);
  for (std::size_t e = 0; e < memory.size(); ++e) memory[e] = static_cast<int>(e);
  const matrix_view<const int> v{memory.data() + 40, 3, 4, -10, 2};
  const extent<const int> all = extent_of(v);
  std::vector<int> copy(all.first, all.end());
  const matrix_view<const int> there = in_copy(v, copy.data());
  for (std::int64_t i = 0; i < v.rows; ++i)
    for (std::int64_t j = 0; j < v.columns; ++j) EXPECT_EQ(there(i, j), v(i, j));
}

TEST(extent, sizes_beyond_63_bits_do_not_fit) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto fits = [](std::int64_t rows, std::int64_t columns, std::int64_t down, std::int64_t across) {
    return extent_fits(matrix_view<double>{nullptr, rows, columns, down, across});
  };
  EXPECT_TRUE(fits(3, 4, 4, 1));
  EXPECT_TRUE(fits(2, 1, most / 16, 1));
  EXPECT_FALSE(fits(2, 1, most / 8, 1));
  EXPECT_FALSE(fits(3, 1, most / 2 + 1, 1));
  EXPECT_FALSE(fits(2, 2, most / 16 + 1, -(most / 16 + 1)));  // the distances to both sides add up
  EXPECT_FALSE(fits(2, 1, std::numeric_limits<std::int64_t>::min(), 1));
  EXPECT_FALSE(extent_fits(matrix_batch_view<float>{nullptr, 3, 1, 1, 1, 1, most / 8 + 1}));
}

TEST(extent, elements_are_apart_as_counting_says) {
  std::vector<int> memory(400);
  for (std::int64_t rows = 1; rows < 5; ++rows)
    for (std::int64_t columns = 1; columns < 5; ++columns)
      for (std::int64_t down = -6; down <= 6; ++down)
        for (std::int64_t across = -6; across <= 6; ++across) {
          const matrix_view<int> v{memory.data() + 200, rows, columns, down, across};
          std::set<int*> all;
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) all.insert(&v(i, j));
          EXPECT_EQ(elements_apart(v), static_cast<std::int64_t>(all.size()) == rows * columns)
              << rows << " × " << columns << " strides " << down << " " << across;
        }
}

}  // namespace
}  // namespace ballast::core
