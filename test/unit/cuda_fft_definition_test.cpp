// The tables of lines whose primes are transformed by the definition: their factors, and the weights of the checksums.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fft/cuda/plan/tables.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

using exact_number = std::complex<long double>;

template <class T>
class cuda_fft_definition : public testing::Test {
 protected:
  static constexpr bool wide = sizeof(T) == 8;
  static line_policy policy(int length) {
    line_request wanted;
    wanted.length = length;
    wanted.wide = wide;
    wanted.check = check_form::verify_before_store;
    wanted.count = wanted.columns = 1 << 20;
    return choose_policy(wanted, hopper(), tuning_table());
  }
  static exact_number number_at(const std::vector<T>& table, std::size_t i) { return {table[2 * i], table[2 * i + 1]}; }
};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(cuda_fft_definition, precisions);

// The change of the larger checksum when an input changes, a sum or difference of two of them, or the cosine or sine term of two outputs,
// divided by the root of the number of outputs that it reaches.
TYPED_TEST(cuda_fft_definition, every_number_is_seen_by_the_weights) {
  int seen = 0;
  for (int length = 29; length <= 127; length += 2) {
    if (radix_before_definition(length, this->wide) != 1) continue;
    ++seen;
    SCOPED_TRACE(length);
    const line_policy p = this->policy(length);
    ASSERT_TRUE(p.by_definition());
    const auto n = static_cast<std::size_t>(length);
    const auto weights = table_source<TypeParam>::checksum_weights(p);
    ASSERT_EQ(weights.verify.size(), 4 * n);
    std::array<std::vector<exact_number>, 2> outputs, inputs;
    for (const std::size_t v : {0u, 1u}) {
      for (std::size_t o = 0; o < n; ++o) outputs[v].push_back(this->number_at(weights.verify, 2 * o + v));
      inputs[v] = dft(outputs[v]);
    }
    const auto larger = [](const auto& of) { return static_cast<double>(std::max(std::abs(of(0)), std::abs(of(1)))); };
    for (std::size_t k = 0; k < n; ++k)
      EXPECT_GE(larger([&](std::size_t v) { return inputs[v][k]; }) / std::sqrt(length), 0.4) << "input " << k;
    const double least = 0.5 / std::sqrt(std::sqrt(length));
    for (std::size_t k = 1; k <= n / 2; ++k) {
      for (const long double sign : {1.0L, -1.0L}) {
        EXPECT_GE(larger([&](std::size_t v) { return inputs[v][k] + sign * inputs[v][n - k]; }) / std::sqrt(2.0 * length), least) << k;
        EXPECT_GE(larger([&](std::size_t v) { return outputs[v][k] + sign * outputs[v][n - k]; }) / std::sqrt(2), least) << k;
      }
    }
  }
  EXPECT_EQ(seen, this->wide ? 22 : 20);
}

// Four outputs m for each k ≤ p/2, then the next four; then the twiddle factors of the first stage.
TYPED_TEST(cuda_fft_definition, factors_are_in_the_order_of_their_use) {
  constexpr std::size_t pairs = k_definition_pairs;
  const double u = this->wide ? 0x1p-53 : 0x1p-24;
  for (const int radix : {1, 2, 6}) {
    constexpr int points = 37, half = points / 2;
    const line_policy p = this->policy(radix * points);
    ASSERT_EQ(p.definition_points(), points);
    const auto factors = table_source<TypeParam>::stage_twiddles(p);
    const std::size_t matrix = pairs * half * static_cast<std::size_t>(p.definition_groups());
    ASSERT_EQ(factors.size(), 2 * (matrix + static_cast<std::size_t>((radix - 1) * points)));
    for (std::size_t m = 0; m < pairs * static_cast<std::size_t>(p.definition_groups()); ++m) {
      for (std::size_t k = 1; k <= half; ++k) {
        const exact_number wanted = m > half ? exact_number(0) : fft::root_of_unity<long double>(static_cast<std::int64_t>(m * k), points);
        EXPECT_LE(std::abs(this->number_at(factors, (m / pairs * half + k - 1) * pairs + m % pairs) - wanted), 2 * u) << m << ' ' << k;
      }
    }
    for (int k = 1; k < radix; ++k) {
      for (int j = 0; j < points; ++j) {
        const exact_number wanted = fft::root_of_unity<long double>(std::int64_t{j} * k, std::int64_t{radix} * points);
        EXPECT_LE(std::abs(this->number_at(factors, matrix + static_cast<std::size_t>((k - 1) * points + j)) - wanted), 2 * u)
            << j << ' ' << k;
      }
    }
  }
}

}  // namespace
}  // namespace ballast::fft::cuda
