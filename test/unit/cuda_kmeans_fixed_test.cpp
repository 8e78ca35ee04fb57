// Numbers in fixed point: the words of a number, and their limbs, add up to it and keep within what sums have room for.
#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "kmeans/cuda/layout/fixed.cuh"

namespace ballast::kmeans::cuda {
namespace {

template <class T>
class kmeans_fixed : public testing::Test {};
using reals = testing::Types<float, double>;
TYPED_TEST_SUITE(kmeans_fixed, reals);

// Returns the number that the words stand for, · unit.
template <int Words>
long double value_of(const std::int32_t (&word)[Words]) {
  long double sum = 0;
  for (int w = 0; w < Words; ++w) sum += static_cast<long double>(word[w]) * word_value(w);
  return sum;
}

template <int Words, class T>
void expect_words(T value, T rest, T unit) {
  std::int32_t word[Words];
  if (rest == 0) {
    split<Words>(value, unit, word);
  } else {
    split<Words>(value, rest, unit, word);
  }
  const long double whole = (static_cast<long double>(value) + static_cast<long double>(rest)) * static_cast<long double>(unit);
  EXPECT_LE(std::fabs(whole - value_of<Words>(word)), 0.5L * word_value(Words - 1) * (rest == 0 ? 1 : 2)) << value << " + " << rest;
  for (int w = 0; w < Words; ++w) {
    EXPECT_EQ(word_of(upper_limb(word[w]), lower_limb(word[w])), word[w]);
    // Sums of as many limbs as a block adds up fit into 32 bits.
    EXPECT_LE(std::int64_t{k_flush_rows} * std::abs(std::int64_t{upper_limb(word[w])}), std::int64_t{0x7fffffff});
    EXPECT_LE(std::int64_t{k_flush_rows} * lower_limb(word[w]), std::int64_t{0xffffffff});
  }
}

TYPED_TEST(kmeans_fixed, words_add_up_to_the_number) {
  using T = TypeParam;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> in(-1, 1);
  const T unit = static_cast<T>(std::ldexp(1.0, k_word_bits));  // the unit of numbers up to 1
  for (const double each : {0.0, 1.0, -1.0, 0.5, -0.5, 0x1p-30, 3 * 0x1p-31, -3 * 0x1p-31, 0x1p-61, 1e-30, 0x1.fffffep-1}) {
    expect_words<1>(static_cast<T>(each), T(0), unit);
    expect_words<2>(static_cast<T>(each), T(0), unit);
  }
  for (int i = 0; i < 50000; ++i) {
    const T x = static_cast<T>(in(random)*std::ldexp(1.0, -static_cast<int>(random() % 40)));
    expect_words<1>(x, T(0), unit);
    expect_words<2>(x, T(0), unit);
    const T w = static_cast<T>(in(random) + 1);
    const T product = rounded_product(w, x);
    const T rest = product_rest(w, x, product);
    expect_words<1>(product, rest, unit / 2);
    expect_words<2>(product, rest, unit / 2);
  }
}

// A number of 24 bits within 2^-6 of the largest is kept whole by one word, one of 53 bits within 2^-7 by two.
TYPED_TEST(kmeans_fixed, what_is_within_reach_is_kept_exactly) {
  using T = TypeParam;
  constexpr int words = sizeof(T) == 4 ? 1 : 2;
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const int down = static_cast<int>(random() % (words == 1 ? 6 : 7)) + 1;
    const T x = static_cast<T>(std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52, -down));
    std::int32_t word[words];
    split<words>(x, T(0x1p30), word);
    EXPECT_EQ(value_of<words>(word), static_cast<long double>(x) * 0x1p30L);
  }
}

TEST(kmeans_fixed_layout, words_leave_room_for_all_points) {
  EXPECT_LE(std::ldexp(1.0, k_word_bits + 32), std::ldexp(1.0, 62));
  EXPECT_EQ(word_value(0), 1);
  EXPECT_EQ(word_value(1), 0x1p-30);
}

}  // namespace
}  // namespace ballast::kmeans::cuda
