// Two-dimensional transforms on the ranks of a group, against the definition in extended precision, and with faults of the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft_slab.hpp>

#include "core/counter_rng.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"

namespace ballast::fft {
namespace {

using test::quick;
using wire::fault;
using wire::switchboard;
using wire::wire_fault;

template <class T>
std::vector<std::complex<T>> random_numbers(std::int64_t count) {
  std::vector<std::complex<T>> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    made.emplace_back(static_cast<T>(core::random_uniform(1, 0, at) - 0.5), static_cast<T>(core::random_uniform(1, 1, at) - 0.5));
  }
  return made;
}

// The definition, summed in extended precision.
template <class T>
std::vector<std::complex<long double>> transform_of(const std::vector<std::complex<T>>& x, std::int64_t n0, std::int64_t n1) {
  const auto root = [](std::int64_t k, std::int64_t n) {
    return std::polar(1.0L, -2 * std::numbers::pi_v<long double> * static_cast<long double>(k % n) / static_cast<long double>(n));
  };
  std::vector<std::complex<long double>> rows(x.size()), made(x.size());
  for (std::int64_t i = 0; i < n0; ++i)
    for (std::int64_t b = 0; b < n1; ++b)
      for (std::int64_t j = 0; j < n1; ++j)
        rows[static_cast<std::size_t>(i * n1 + b)] +=
            root(b * j, n1) * static_cast<std::complex<long double>>(x[static_cast<std::size_t>(i * n1 + j)]);
  for (std::int64_t a = 0; a < n0; ++a)
    for (std::int64_t b = 0; b < n1; ++b)
      for (std::int64_t i = 0; i < n0; ++i)
        made[static_cast<std::size_t>(a * n1 + b)] += root(a * i, n0) * rows[static_cast<std::size_t>(i * n1 + b)];
  return made;
}

template <class T>
struct outcome {
  std::vector<std::complex<T>> spectrum, back;  // n0 × n1, row-major, for any layout of the ranks
  int ended = 0, lost = 0, errors = 0;
  std::uint64_t detected = 0;
  bool clean = true;
  std::string message;
  std::vector<std::uint64_t> messages;
};

template <class T>
outcome<T> transform_on(int ranks, const std::vector<std::complex<T>>& x, std::int64_t n0, std::int64_t n1, slab_order order,
                        const std::vector<wire_fault>& faults = {}, protection level = protection::correct, double patience = 60) {
  const auto board = std::make_shared<switchboard>(ranks, faults);
  outcome<T> made;
  made.spectrum.resize(x.size());
  made.back.resize(x.size());
  std::mutex mutex;
  const auto endings = test::run_ranks(board, quick(patience), [&](int, const group& own) {
    const slab_plan<T> plan(n0, n1, {.backend = backend::cpu, .threads = 1, .protection = level, .group = own}, order);
    const bool transposed = order == slab_order::transposed;
    const auto rows_begin = x.begin() + plan.first_row() * n1;
    const std::vector<std::complex<T>> in(rows_begin, rows_begin + plan.rows() * n1);
    std::vector<std::complex<T>> out(static_cast<std::size_t>(transposed ? plan.columns() * n0 : plan.rows() * n1)), back(in.size());
    const report forward = plan.forward(in, out), inverse = plan.inverse(out, back);
    const std::lock_guard lock(mutex);
    ++made.ended;
    for (const report* each : {&forward, &inverse}) {
      made.detected += each->detected;
      made.clean = made.clean && each->verdict == verdict::clean;
    }
    if (transposed) {
      for (std::int64_t b = 0; b < plan.columns(); ++b)
        for (std::int64_t a = 0; a < n0; ++a)
          made.spectrum[static_cast<std::size_t>(a * n1 + plan.first_column() + b)] = out[static_cast<std::size_t>(b * n0 + a)];
    } else {
      std::ranges::copy(out, made.spectrum.begin() + plan.first_row() * n1);
    }
    std::ranges::copy(back, made.back.begin() + plan.first_row() * n1);
  });
  test::add_endings(endings, made);
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
class fft_group : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(fft_group, precisions);

// A transform errs by a few u √log₂ N of the norm of the spectrum (docs/design/fft.md, "Accuracy"); 4 are allowed, for both together 8.
TYPED_TEST(fft_group, definition_and_inverse) {
  using T = TypeParam;
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  for (const auto& [n0, n1] : {std::pair<std::int64_t, std::int64_t>{12, 20}, {31, 8}, {5, 3}, {1, 16}}) {
    const auto x = random_numbers<T>(n0 * n1);
    const auto expected = transform_of(x, n0, n1);
    for (const slab_order order : {slab_order::transposed, slab_order::natural}) {
      for (const int ranks : {1, 2, 3, 4, 7}) {
        const auto found = transform_on(ranks, x, n0, n1, order);
        ASSERT_EQ(found.errors, 0) << found.message;
        EXPECT_TRUE(found.clean);
        long double error = 0, size = 0, error_back = 0, size_back = 0;
        for (std::size_t e = 0; e < x.size(); ++e) {
          error += std::norm(static_cast<std::complex<long double>>(found.spectrum[e]) - expected[e]);
          size += std::norm(expected[e]);
          error_back += std::norm(static_cast<std::complex<long double>>(found.back[e]) - static_cast<std::complex<long double>>(x[e]));
          size_back += std::norm(static_cast<std::complex<long double>>(x[e]));
        }
        const double limit = 4 * u * std::sqrt(std::log2(static_cast<double>(n0 * n1)) + 1);
        EXPECT_LE(std::sqrt(static_cast<double>(error / size)), limit) << n0 << " × " << n1 << ", " << ranks << " ranks";
        EXPECT_LE(std::sqrt(static_cast<double>(error_back / size_back)), 2 * limit) << n0 << " × " << n1 << ", " << ranks << " ranks";
      }
    }
  }
}

class fft_group_faults : public testing::TestWithParam<fault> {};

TEST_P(fft_group_faults, wire) {
  const auto x = random_numbers<double>(12 * 20);
  for (const slab_order order : {slab_order::transposed, slab_order::natural}) {
    const auto clean = transform_on(3, x, 12, 20, order);
    ASSERT_EQ(clean.errors, 0) << clean.message;
    std::uint64_t detected = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const std::uint64_t all = clean.messages[static_cast<std::size_t>(rank)];
      for (std::uint64_t number = static_cast<std::uint64_t>(rank); number < all; number += all / (test::sampled() ? 8 : 40) + 1) {
        const auto found = transform_on(3, x, 12, 20, order, {{GetParam(), rank, number, 1, number}});
        detected += found.detected;
        if (GetParam() == fault::lost_rank && found.lost == 0) {
          // Messages that are sent again make their number vary: in this run the rank has sent fewer.
          EXPECT_LE(found.messages[static_cast<std::size_t>(rank)], number);
          EXPECT_EQ(found.ended, 3);
        } else if (GetParam() == fault::lost_rank) {
          EXPECT_EQ(found.lost, 1);
          EXPECT_EQ(found.ended + found.errors, 2);
          // The message ends with the lost ranks; one that has finished all calls may be among them.
          const std::size_t names = found.message.find("lost ");
          EXPECT_TRUE(found.errors == 0 ||
                      (names != std::string::npos && found.message.find(std::to_string(rank), names) != std::string::npos))
              << found.message;
          continue;
        }
        ASSERT_EQ(found.errors, 0) << found.message;
        EXPECT_EQ(found.spectrum, clean.spectrum);
        EXPECT_EQ(found.back, clean.back);
      }
    }
    const bool seen = GetParam() == fault::repeated || GetParam() == fault::late || GetParam() == fault::lost_rank || detected > 0;
    EXPECT_TRUE(seen);
  }
}

INSTANTIATE_TEST_SUITE_P(all, fft_group_faults, testing::ValuesIn(wire::k_faults));

TEST(fft_group_protection, off_lets_a_bit_pass) {
  const auto x = random_numbers<double>(12 * 20);
  const auto clean = transform_on(3, x, 12, 20, slab_order::transposed, {}, protection::off);
  int different = 0;
  for (std::uint64_t number = 0; number < clean.messages[1] && different == 0; ++number) {
    const auto found =
        transform_on(3, x, 12, 20, slab_order::transposed, {{fault::bit, 1, number, 1, 8191 * number + 3}}, protection::off, 1);
    different += found.errors > 0 || found.spectrum != clean.spectrum || found.back != clean.back ? 1 : 0;
  }
  EXPECT_GT(different, 0);
}

TEST(fft_group_errors, arguments) {
  EXPECT_THROW(slab_plan<float>(4, 4, execution{}), invalid_argument_error);
  std::atomic<int> refused{0};
  test::run_ranks(2, [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .group = own};
    try {
      const slab_plan<float> none(0, 4, where);
    } catch (const invalid_argument_error&) {
      ++refused;
    }
    try {
      const slab_plan<float> plan(rank == 0 ? 4 : 6, 4, where);
      std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.rows() * 4)),
          out(static_cast<std::size_t>(plan.columns()) * (rank == 0 ? 4 : 6));
      (void)plan.forward(in, out);
    } catch (const invalid_argument_error&) {
      ++refused;
    }
    const slab_plan<float> plan(4, 4, where);
    std::vector<std::complex<float>> in(3), out(8);
    try {
      (void)plan.forward(in, out);
    } catch (const error&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 6);
}

}  // namespace
}  // namespace ballast::fft
