// Numbers in fixed point: the limbs of a number add up to it, they keep within what sums have room for, and equal numbers have equal limbs.
#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "kmeans/cuda/fixed.cuh"

namespace ballast::kmeans::cuda {
namespace {

template <class T>
class kmeans_fixed : public testing::Test {};
using reals = testing::Types<float, double>;
TYPED_TEST_SUITE(kmeans_fixed, reals);

// What the limbs stand for, · unit.
template <int Words>
long double value_of(const std::int32_t (&hi)[Words], const std::int32_t (&lo)[Words], int bits) {
  long double sum = 0;
  for (int w = 0; w < Words; ++w) sum += static_cast<long double>(word_of(hi[w], lo[w], bits)) * word_value(bits, w);
  return sum;
}

template <int Words, class T>
void check(T value, T rest, T unit, int bits) {
  std::int32_t hi[Words], lo[Words];
  const T step = step_of<T>(bits);
  if (rest == 0) {
    split<Words>(value, unit, step, hi, lo);
  } else {
    split<Words>(value, rest, unit, step, hi, lo);
  }
  // Word by word, so that 64 bits hold every difference.
  long double left = static_cast<long double>(value) * static_cast<long double>(unit);
  for (int w = 0; w < Words; ++w) left -= static_cast<long double>(word_of(hi[w], lo[w], bits)) * word_value(bits, w);
  left += static_cast<long double>(rest) * static_cast<long double>(unit);
  EXPECT_LE(std::fabs(left), 0.5L * word_value(bits, Words - 1) * (rest == 0 ? 1 : 2)) << value << " + " << rest;
  const std::int64_t most = std::int64_t{1} << bits;
  for (int w = 0; w < Words; ++w) {
    EXPECT_LE(std::abs(std::int64_t{hi[w]}), w == 0 || rest != 0 ? most : most / 2);
    EXPECT_LE(std::abs(std::int64_t{lo[w]}), rest != 0 ? most : most / 2);
    EXPECT_LE(std::int64_t{k_flush_rows} * std::abs(std::int64_t{hi[w]}), std::int64_t{1} << 30);
  }
}

TYPED_TEST(kmeans_fixed, limbs_add_up_to_the_number) {
  using T = TypeParam;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> in(-1, 1);
  for (const int bits : {20, 19, 15, 10}) {
    const T unit = static_cast<T>(std::ldexp(1.0, bits));  // of numbers up to 1
    for (const double each : {0.0, 1.0, -1.0, 0.5, -0.5, 0x1p-20, 3 * 0x1p-21, -3 * 0x1p-21, 0x1p-41, 1e-30, 0x1.fffffep-1}) {
      check<1>(static_cast<T>(each), T(0), unit, bits);
      check<2>(static_cast<T>(each), T(0), unit, bits);
    }
    for (int i = 0; i < 20000; ++i) {
      const T x = static_cast<T>(in(random)*std::ldexp(1.0, -static_cast<int>(random() % 40)));
      check<1>(x, T(0), unit, bits);
      check<2>(x, T(0), unit, bits);
      const T w = static_cast<T>(in(random) + 1);
      const T product = rounded_product(w, x);
      const T rest = product_rest(w, x, product);
      check<1>(product, rest, unit / 2, bits);
      check<2>(product, rest, unit / 2, bits);
    }
  }
}

// A number of 24 bits within 2^-16 of the largest is kept whole by one word, one of 53 bits within 2^-26 by two.
TYPED_TEST(kmeans_fixed, what_is_within_reach_is_kept_exactly) {
  using T = TypeParam;
  constexpr int words = sizeof(T) == 4 ? 1 : 2;
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const T x = static_cast<T>(std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52, -static_cast<int>(random() % 16) - 1));
    std::int32_t hi[words], lo[words];
    split<words>(x, T(0x1p20), step_of<T>(20), hi, lo);
    EXPECT_EQ(value_of<words>(hi, lo, 20), static_cast<long double>(x) * 0x1p20L);
  }
}

TEST(kmeans_fixed_layout, limbs_leave_room_for_all_points) {
  EXPECT_EQ(limb_bits(1), 20);
  EXPECT_EQ(limb_bits(std::int64_t{1} << 22), 20);
  EXPECT_EQ(limb_bits((std::int64_t{1} << 22) + 1), 19);
  for (int log = 0; log < 40; ++log) EXPECT_LE(2 * limb_bits(std::int64_t{1} << log) + log, 62);
  EXPECT_EQ(word_value(20, 0), 0x1p-20);
  EXPECT_EQ(word_value(20, 1), 0x1p-60);
}

}  // namespace
}  // namespace ballast::kmeans::cuda
