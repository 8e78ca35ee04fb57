// Parities of tiles on their way from and to memory: what several words of a register that change alike, or exchanged words, do to them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile_job.hpp"
#include "support/fft_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using cpu::kernels;
using cpu::line;

template <class T>
class fft_parity : public testing::Test {};
using parity_precisions = testing::Types<float, double>;
TYPED_SUITE(fft_parity, parity_precisions, test::number_names);

// The rotations of the words of a register, in bits, with `scalar` from one scalar of a signal to the next and `lane` from one lane to the
// next. `of_scalars` and `of_lanes` are bits of the numbers of the scalars and lanes of these words: all their sums occur.
std::vector<int> turns_of_register(const std::vector<int>& of_scalars, const std::vector<int>& of_lanes, int scalar, int lane) {
  std::vector<int> made = {0};
  const auto add = [&](const std::vector<int>& bits, int turn) {
    for (const int bit : bits) {
      const std::size_t size = made.size();
      for (std::size_t i = 0; i < size; ++i) made.push_back(made[i] + bit * turn);
    }
  };
  add(of_scalars, scalar);
  add(of_lanes, lane);
  return made;
}

// As polynomials over GF(2) modulo xᴮ + 1 = (x + 1)ᴮ for words of B bits, a mask m in some words of a register changes the parity by m S, S
// the sum of x^turn over those words. It vanishes only if (x + 1) divides m and S at least B times together. In powers of x + 1, the one
// with exponent i has the coefficient that the i-th derivative (by Hasse) gives. Returns how often (x + 1) divides the S of `some`.
template <class T>
int divisions_of_sum(const std::vector<int>& some) {
  for (int i = 0; i < cpu::k_word_bits<T>; ++i) {
    bool odd = false;
    for (const int turn : some) odd ^= (turn % cpu::k_word_bits<T> & i) == i;
    if (odd) return i;
  }
  return cpu::k_word_bits<T>;
}

template <class T>
int most_divisions(const std::vector<int>& turns) {
  int most = 0;
  std::vector<int> some;
  for (std::uint32_t which = 1; which < std::uint32_t{1} << turns.size(); ++which) {
    some.clear();
    for (std::size_t k = 0; k < turns.size(); ++k) {
      if ((which >> k & 1) != 0) some.push_back(turns[k]);
    }
    most = std::max(most, divisions_of_sum<T>(some));
  }
  return most;
}

// No S of a register has more than B/2 factors, so a mask that passes has as many: its two half words are equal. So it is with vectors of
// any number of lanes, for registers of a row, of a signal, of complex numbers of neighbouring lanes in the order of memory and in the one
// before it, and for all within a transposition. The first of these have words with equal rotations if there are 16 lanes: there only a
// mask over all words surely shows. Such vectors take complex numbers to the order of memory at once.
TYPED_TEST(fft_parity, one_mask_in_any_words_of_a_register_shows_in_a_parity) {
  using T = TypeParam;
  constexpr int k_half = cpu::k_word_bits<T> / 2;
  for (int bits = 1; (1 << bits) * static_cast<int>(sizeof(T)) <= 64; ++bits) {
    const int lanes = 1 << bits;
    std::vector<int> all;
    for (int i = 0; i < bits; ++i) all.push_back(1 << i);
    const std::vector<int> low(all.begin(), all.end() - 1);
    std::vector<int> in_blocks = all;  // one half of each block of 128 bits
    in_blocks.erase(std::find(in_blocks.begin(), in_blocks.end(), std::min(lanes, 16 / static_cast<int>(sizeof(T))) / 2));
    struct turns {
      int scalar, lane;
    };
    for (const turns of : {turns{1, cpu::lane_turn<T>(lanes)}, turns{cpu::chunk_turn<T>, 1}}) {
      const std::string which = std::to_string(lanes) + " " + std::to_string(of.lane);
      EXPECT_LE(most_divisions<T>(turns_of_register({}, all, of.scalar, of.lane)), k_half) << which;
      EXPECT_LE(most_divisions<T>(turns_of_register(all, {}, of.scalar, of.lane)), k_half) << which;
      EXPECT_LE(most_divisions<T>(turns_of_register({1}, low, of.scalar, of.lane)), k_half) << which;
      if (lanes < 16) {
        EXPECT_LE(most_divisions<T>(turns_of_register({1}, in_blocks, of.scalar, of.lane)), k_half) << which;
      }
      // A transposition takes bits of one number, those within a block of 128 bits from the upper one on, and gives bits of the other.
      std::vector<int> left = sizeof(T) == 4 && bits > 1 ? std::vector<int>{2, 1} : std::vector<int>{1};
      for (int i = static_cast<int>(left.size()); i < bits; ++i) left.push_back(1 << i);
      std::vector<int> gained;
      while (left.size() > 1) {
        gained.push_back(1 << gained.size());
        left.erase(left.begin());
        for (const std::vector<int>& between :
             {turns_of_register(left, gained, of.scalar, of.lane), turns_of_register(gained, left, of.scalar, of.lane)}) {
          EXPECT_LE(divisions_of_sum<T>(between), k_half) << which;
          if (lanes < 16 || gained.size() > 1) {
            EXPECT_LE(most_divisions<T>(between), k_half) << which << " " << gained.size();
          }
        }
      }
    }
  }
}

// Changes several words of a tile as one fault of a register does, and calls seen() after each change: masks over words of a register, in
// the order of the tile and in those of memory, and two words exchanged.
template <class T, class Seen>
void change_registers_of_tile(T* tile, std::int64_t rows, const Seen& seen) {
  const int lanes = kernels<T>().lanes, bits = cpu::k_word_bits<T>;
  const auto change = [&](const std::vector<std::int64_t>& at, const std::string& which) {
    const auto size = static_cast<std::int64_t>(at.size());
    if (size < 2) return;
    const auto flip = [&](std::int64_t i, cpu::word_of<T> mask) {
      T& one = tile[at[static_cast<std::size_t>(i)]];
      one = std::bit_cast<T>(static_cast<cpu::word_of<T>>(std::bit_cast<cpu::word_of<T>>(one) ^ mask));
    };
    for (const cpu::word_of<T> mask : {cpu::word_of<T>{1} << (bits - 1), cpu::word_of<T>{1} << (at[0] % bits), cpu::word_of<T>{3} << 5,
                                       static_cast<cpu::word_of<T>>(0x2f5d), static_cast<cpu::word_of<T>>(~cpu::word_of<T>{0} >> 1)}) {
      for (const std::int64_t every : {1, 2, 3}) {
        for (std::int64_t i = 0; i < size; i += every) flip(i, mask);
        seen(which + " mask " + std::to_string(mask) + " every " + std::to_string(every));
        for (std::int64_t i = 0; i < size; i += every) flip(i, mask);
      }
    }
    const auto exchange = [&] { std::swap(tile[at[static_cast<std::size_t>(at[0] % (size - 1))]], tile[at.back()]); };
    exchange();
    seen(which + " exchanged");
    exchange();
  };
  std::vector<std::int64_t> at;
  for (std::int64_t s = 0; s < 2 * rows; ++s) {
    at.clear();
    for (int l = 0; l < lanes; ++l) at.push_back(s * lanes + l);
    change(at, "scalar " + std::to_string(s));
    if (s % lanes != 0 || s + lanes > 2 * rows) continue;
    for (int l = 0; l < lanes; ++l) {
      at.clear();
      for (int k = 0; k < lanes; ++k) at.push_back((s + k) * lanes + l);
      change(at, "signal " + std::to_string(l) + " from " + std::to_string(s));
    }
  }
  for (std::int64_t j = 0; j < rows; ++j) {
    for (int half = 0; half < 2; ++half) {
      at.clear();
      for (int k = 0; k < lanes; ++k) at.push_back((2 * j + k % 2) * lanes + (half * lanes + k) / 2);
      change(at, "row " + std::to_string(j) + " half " + std::to_string(half));
    }
  }
}

// A store returns the parity of the verified numbers, unless one of them has changed since.
TYPED_TEST(fft_parity, what_is_stored_is_what_was_verified) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  const std::int64_t lanes = kernel.lanes, row = 2 * lanes;
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, lanes, 2 * lanes + 3, std::int64_t{50}}) {
    core::aligned_buffer<T> tile(rows * row);
    const auto noise = test::noise<T>(rows * row, 6);
    std::copy(noise.begin(), noise.end(), tile.data());
    std::vector<T> out(noise.size()), weights(static_cast<std::size_t>(2 * rows), T(1));
    cpu::lane_sums sums;
    cpu::output_sum<T> of;
    of.weights = weights.data();
    of.sums = &sums;
    kernel.sum_outputs(tile.data(), rows, of);
    const std::uint64_t verified = cpu::parity_of(sums);
    const auto by_rows = [&] { return kernel.store_rows(tile.data(), 2 * rows, kernel.lanes, out.data(), 2 * rows, false); };
    const auto by_columns = [&] { return kernel.store_columns(tile.data(), rows, kernel.lanes, out.data(), row, false); };
    EXPECT_EQ(by_rows(), verified) << rows;
    EXPECT_EQ(by_columns(), verified) << rows;
    for (std::int64_t i = 0; i < rows * row; ++i) {
      const T kept = tile[i];
      tile[i] = std::nextafter(kept, T(9));
      ASSERT_NE(by_rows(), verified) << rows << " " << i;
      ASSERT_NE(by_columns(), verified) << rows << " " << i;
      tile[i] = kept;
    }
    change_registers_of_tile(tile.data(), rows, [&](const std::string& what) {
      ASSERT_NE(by_rows(), verified) << rows << " " << what;
      ASSERT_NE(by_columns(), verified) << rows << " " << what;
    });
    // A load returns the parity of the numbers that it encodes.
    const std::vector<T> in_weights(static_cast<std::size_t>(4 * rows), T(1));
    for (const int used : {1, kernel.lanes}) {
      const cpu::encoder<T> encode{in_weights.data(), false, &sums};
      const std::uint64_t of_rows = kernel.load_rows(noise.data(), 2 * rows, used, 2 * rows, tile.data(), encode);
      EXPECT_EQ(of_rows, cpu::parity_of(sums)) << rows << " " << used;
      const std::uint64_t of_columns = kernel.load_columns(noise.data(), row, used, rows, tile.data(), encode);
      EXPECT_EQ(of_columns, cpu::parity_of(sums)) << rows << " " << used;
      EXPECT_EQ(kernel.join_rows(tile.data(), 0, rows), cpu::parity_of(sums));
      if (used < kernel.lanes) continue;
      // A change between the load and the sums gives them another parity than the source has.
      change_registers_of_tile(tile.data(), rows, [&](const std::string& what) {
        kernel.sum_tile(tile.data(), rows, encode);
        ASSERT_NE(cpu::parity_of(sums), of_rows) << rows << " " << what;
      });
    }
    std::copy(noise.begin(), noise.end(), tile.data());
  }
}

// So it is however a tile is loaded and stored: in part, with strides, real parts only, half of a spectrum.
TYPED_TEST(fft_parity, every_load_and_store_has_a_parity) {
  using T = TypeParam;
  using cpu::access;
  constexpr std::int64_t n = 20;
  const auto& kernel = kernels<T>();
  const int lanes = kernel.lanes;
  const auto noise = test::noise<T>(8 * n * lanes, 7);
  const line<T> whole(form::complex, n, 1, true), half(form::real_inverse, 2 * n, 1, true);
  const std::int64_t row = 2 * lanes;
  for (const access how : {access::rows, access::columns, access::complex, access::scalars, access::real, access::hermitian}) {
    for (const int used : {1, lanes - 1, lanes}) {
      if (used == 0) continue;
      const std::string which = std::to_string(static_cast<int>(how)) + " " + std::to_string(used);
      const bool by_columns = how == access::columns;
      cpu::tile_job<T> job;
      job.used = used;
      job.from = {.how = how, .base = noise.data(), .lane = by_columns ? 2 : 4 * n, .element = by_columns ? row : 2, .length = n};
      for (const line<T>* by : {&whole, &half}) {
        if (by == &half && how == access::real) continue;
        job.transform = by;
        core::aligned_buffer<T> tile(by->rows_scratch() * row);
        cpu::lane_sums sums;
        ASSERT_EQ(cpu::load_tile(job, tile.data(), &sums), 0) << which;
        for (int l = 0; l < used; ++l) EXPECT_FALSE(std::isnan(sums.high[0][l])) << which;
      }
      if (how == access::hermitian) continue;
      job.transform = &whole;
      for (const std::int64_t stored : {n, n / 2 + 1}) {
        job.rows_stored = stored;
        std::vector<T> out(noise.size());
        job.to = {.how = how, .base = out.data(), .lane = job.from.lane, .element = job.from.element};
        core::aligned_buffer<T> tile(n * row);
        std::copy_n(noise.begin(), n * row, tile.data());
        const std::uint64_t verified = kernel.join_rows(tile.data(), 0, n);
        ASSERT_TRUE(cpu::has_stored_parity(job)) << which;
        EXPECT_EQ(cpu::store_tile<T>(job, tile.data(), nullptr), verified) << which;
        for (std::int64_t i = 0; i < stored * row; ++i) {
          const T kept = tile[i];
          tile[i] = -kept;
          ASSERT_NE(cpu::store_tile<T>(job, tile.data(), nullptr), verified) << which << " " << i;
          tile[i] = kept;
        }
        change_registers_of_tile(tile.data(), stored, [&](const std::string& what) {
          ASSERT_NE(cpu::store_tile<T>(job, tile.data(), nullptr), verified) << which << " " << stored << " " << what;
        });
      }
    }
  }
}

}  // namespace
}  // namespace ballast::fft
