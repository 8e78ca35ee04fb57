// Hashes of many words: what one fault can change in several of them at once.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "abft/seal.hpp"
#include "core/counter_rng.hpp"

namespace ballast::abft {
namespace {

std::uint64_t sum_of(const std::vector<double>& x) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += hash_term(std::bit_cast<std::uint64_t>(x[i]), i);
  return sum;
}
std::uint64_t light_sum_of(const std::vector<double>& x) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto word = std::bit_cast<std::uint64_t>(x[i]);
    sum += light_term(word ^ word >> 31, i);
  }
  return sum;
}

// A wrong factor of −1 or 2 reaches all numbers of a row. In a sum of odd multiples of the words, equal changes of the sign of an even
// number of them cancel.
TEST(hash, equal_changes_of_many_words_do_not_cancel) {
  std::vector<double> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(core::random_bits(1, 2, i) % 1000) / 1000;
  const std::uint64_t sum = sum_of(x);
  const std::uint64_t light = light_sum_of(x);
  for (const double factor : {-1.0, 2.0, 0.5, -4.0}) {
    for (std::size_t first = 0; first < x.size(); ++first) {
      for (std::size_t count = 1; first + count <= x.size(); ++count) {
        std::vector<double> y = x;
        for (std::size_t i = first; i < first + count; ++i) y[i] *= factor;
        EXPECT_NE(sum_of(y), sum) << "factor " << factor << ", " << count << " numbers from " << first;
        if (count <= 3) {
          EXPECT_NE(light_sum_of(y), light) << "factor " << factor << ", " << count << " numbers from " << first;
        }
      }
    }
  }
}

TEST(hash, exchanged_words_do_not_cancel) {
  std::vector<double> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = core::random_uniform(1, 3, i);
  const std::uint64_t sum = sum_of(x);
  const std::uint64_t light = light_sum_of(x);
  for (std::size_t a = 0; a < x.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      std::vector<double> y = x;
      std::swap(y[a], y[b]);
      EXPECT_NE(sum_of(y), sum) << a << " and " << b;
      EXPECT_NE(light_sum_of(y), light) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace ballast::abft
