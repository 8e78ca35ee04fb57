// Sums of integrity words by vectors, against their definitions word by word.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "abft/seal.hpp"
#include "abft/word_sums.hpp"
#include "core/counter_rng.hpp"

namespace ballast::abft {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::byte>(core::random_bits(5, 1, i));
  return made;
}

// The definition in word_sums.hpp.
std::array<std::uint64_t, 2> weighted_by_words(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 2> made = {0, 0};
  for (std::size_t i = 0; 8 * i < bytes.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, bytes.size() - 8 * i < 8 ? bytes.size() - 8 * i : 8);
    made[0] += word * (0x9e3779b97f4a7c15u * (2 * i + 1));
    made[1] += (word ^ word >> 31) * (0xd6e8feb86659fd93u * (2 * i + 1));
  }
  return made;
}

std::array<std::uint64_t, 2> weighted(std::span<const std::byte> bytes) {
  std::uint64_t sums[2];
  weighted_sums(bytes, sums);
  return {sums[0], sums[1]};
}

TEST(word_sums, of_messages_are_those_of_the_definition) {
  const std::vector<std::byte> all = random_bytes(5003);
  const std::span<const std::byte> from(all);
  for (std::size_t count = 0; count <= 700; ++count)
    EXPECT_EQ(weighted(from.first(count)), weighted_by_words(from.first(count))) << count << " bytes";
  for (std::size_t begin = 0; begin < 9; ++begin)
    EXPECT_EQ(weighted(from.subspan(begin)), weighted_by_words(from.subspan(begin))) << "from byte " << begin;
}

TEST(word_sums, of_messages_see_every_bit_and_every_exchange) {
  std::vector<std::byte> x = random_bytes(600);
  const std::array<std::uint64_t, 2> right = weighted(x);
  for (std::size_t bit = 0; bit < 8 * x.size(); ++bit) {
    x[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const auto seen = weighted(x);
    EXPECT_TRUE(seen[0] != right[0] && seen[1] != right[1]) << "bit " << bit;
    x[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  // Blocks of a vector that change places, and two changes of top bits, which cancel in the first sum.
  for (std::size_t a = 0; a + 64 <= x.size(); a += 8) {
    for (std::size_t b = a + 64; b + 64 <= x.size(); b += 8) {
      std::vector<std::byte> y = x;
      std::memcpy(y.data() + a, x.data() + b, 64);
      std::memcpy(y.data() + b, x.data() + a, 64);
      EXPECT_NE(weighted(y)[0], right[0]) << a << " and " << b;
      y = x;
      y[a + 7] ^= std::byte{0x80};
      y[b + 7] ^= std::byte{0x80};
      EXPECT_NE(weighted(y)[1], right[1]) << a << " and " << b;
    }
  }
}

template <int Bytes>
std::uint64_t spread_by_words(const std::byte* words, const word_loops& over) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < over.count[0]; ++i)
    for (std::int64_t j = 0; j < over.count[1]; ++j)
      for (std::int64_t e = 0; e < over.count[2]; ++e)
        for (std::int64_t w = 0; w < over.count[3]; ++w) {
          std::uint64_t word = 0;
          std::memcpy(&word, words + Bytes * (i * over.stride[0] + j * over.stride[1] + e * over.stride[2] + w * over.stride[3]), Bytes);
          sum += spread_hash(
              word, static_cast<std::uint64_t>(over.first + i * over.place[0] + j * over.place[1] + e * over.place[2] + w * over.place[3]));
        }
  return sum;
}

// Rows of every length up to some vectors, elements of one word and of two, places in the order of memory and in another one, elements that
// are no neighbours.
template <int Bytes>
void check_spread_sums() {
  const std::vector<std::byte> all = random_bytes(40000);
  for (const std::int64_t words : {1, 2}) {
    for (std::int64_t length = 0; length <= 70; ++length) {
      for (const std::int64_t step : {1, 3}) {
        for (const std::int64_t next : {std::int64_t{1}, std::int64_t{128}, std::int64_t{1} << 40}) {
          const std::int64_t row = words * length * step + 5;
          const word_loops over{.count = {2, 3, length, words},
                                .stride = {4 * row, row, words * step, 1},
                                .place = {7, std::int64_t{1} << 33, words * next, 1},
                                .first = 11};
          const std::byte* const from = all.data() + 4;
          ASSERT_EQ(spread_sum<Bytes>(from, over), spread_by_words<Bytes>(from, over))
              << words << " words, " << length << " elements, step " << step << ", next " << next;
        }
      }
    }
  }
}

TEST(word_sums, of_elements_are_those_of_the_definition) {
  check_spread_sums<8>();
  check_spread_sums<4>();
}

TEST(word_sums, of_elements_see_every_bit) {
  std::vector<std::byte> x = random_bytes(8 * 3 * 21);
  const word_loops over{.count = {1, 3, 21, 1}, .stride = {0, 21, 1, 1}, .place = {0, 1, 64, 1}, .first = 3};
  const std::uint64_t right = spread_sum<8>(x.data(), over);
  for (std::size_t bit = 0; bit < 8 * x.size(); ++bit) {
    x[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_NE(spread_sum<8>(x.data(), over), right) << "bit " << bit;
    x[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace ballast::abft
