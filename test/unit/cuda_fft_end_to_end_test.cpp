// The weights of the check from end to end, and the schedules that have one.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/plan/tables.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/weights.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

using number = std::complex<long double>;

template <class T>
class cuda_fft_end_to_end : public testing::Test {
 protected:
  static constexpr bool wide = sizeof(T) == 8;
  static constexpr long double u = wide ? 0x1p-53L : 0x1p-24L;

  static std::vector<line_policy> passes(const std::vector<int>& lengths) {
    std::vector<line_policy> made;
    for (const int length : lengths) {
      line_request wanted;
      wanted.length = length;
      wanted.wide = wide;
      wanted.count = wanted.columns = 1000;
      wanted.in_columns = wanted.out_columns = true;
      wanted.check = check_form::verify_before_store;
      made.push_back(choose_policy(wanted, hopper(), tuning_table()));
    }
    return made;
  }
  static number at(const std::vector<T>& table, std::size_t i) { return {table.at(2 * i), table.at(2 * i + 1)}; }
};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(cuda_fft_end_to_end, precisions);

// Σ a(o) w^{to} for an impulse at t, as the last pass sums it from the outputs, is what the first pass encodes.
TYPED_TEST(cuda_fft_end_to_end, both_sides_have_the_same_sum) {
  using T = TypeParam;
  using source = table_source<T>;
  for (const auto& lengths : {std::vector<int>{64, 48}, {30, 100}, {32, 20, 18}}) {
    const auto passes = this->passes(lengths);
    const auto phases = source::end_to_end_phases_of(passes);
    const auto encode = source::end_to_end_encode(passes, phases);
    const auto verify = source::end_to_end_verify(passes, phases);
    const auto lines = source::end_to_end_lines(passes, phases);
    std::int64_t n = 1;
    for (const int length : lengths) n *= length;
    const line_policy& first = passes.front();
    const line_policy& last = passes.back();
    const std::int64_t rest = n / first.length, r = first.radix[0], of_lines = n / last.length;
    const std::int64_t last_radix = last.radix[last.stages - 1], stride = last.length / last_radix;
    ASSERT_EQ(encode.size(), static_cast<std::size_t>(6 * n / r));
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(4 * of_lines));
    for (std::int64_t t = 1; t < n; t += n / 13) {
      number out[2], in[2];
      for (std::int64_t o = 0; o < n; ++o) {
        const std::int64_t k = o / of_lines;
        const int turn = weight_quarters(static_cast<int>(last_radix), static_cast<int>(k / stride));
        const number w = fft::root_of_unity<long double>(t * o % n, n) * number(quarter_turn(turn));
        for (const std::size_t v : {0u, 1u}) {
          const number weight = this->at(lines, static_cast<std::size_t>(2 * (o % of_lines)) + v) *
                                this->at(verify, static_cast<std::size_t>(2 * (k % stride)) + v);
          const bool negative = v == 1 && weight_negative(static_cast<int>(last_radix), static_cast<int>(k / stride), false);
          out[v] += (negative ? -w : w) * weight;
        }
      }
      // First butterfly j of column c, with input m = 1 only.
      const std::int64_t c = t % rest, i = t / rest, butterflies = first.length / r, j = i % butterflies, m = i / butterflies;
      const std::int64_t p = j * rest + c;
      const number step = this->at(encode, static_cast<std::size_t>(2 * (n / r) + p));
      number series = 0;
      for (std::int64_t k = 0; k < r; ++k)
        series += std::pow(step, static_cast<long double>(k - weight_centre(static_cast<int>(r)))) *
                  fft::root_of_unity<long double>(k * m % r, r) *
                  number(quarter_turn(weight_quarters(static_cast<int>(r), static_cast<int>(k))));
      for (const std::size_t v : {0u, 1u}) {
        in[v] = this->at(encode, static_cast<std::size_t>(2 * p) + v) * series;
        EXPECT_LE(std::abs(in[v] - out[v]), 12 * this->u * std::sqrt(static_cast<long double>(n))) << t << " of " << n;
      }
    }
  }
}

// Every first butterfly is seen by one of both vectors, and none is so large that the rounding of an impulse there exceeds its share.
TYPED_TEST(cuda_fft_end_to_end, weights_of_inputs_are_neither_small_nor_large) {
  using T = TypeParam;
  using source = table_source<T>;
  for (const auto& lengths : {std::vector<int>{512, 256}, {512, 512}, {1024, 1024}, {64, 48}, {30, 100}, {20, 20, 20}, {128, 128, 64}}) {
    const auto passes = this->passes(lengths);
    const auto encode = source::end_to_end_encode(passes, source::end_to_end_phases_of(passes));
    const std::size_t count = encode.size() / 6;
    const long double mean = std::sqrt(static_cast<long double>(count));
    long double least = 10, most = 0;
    for (std::size_t p = 0; p < count; ++p) {
      const long double first = std::abs(this->at(encode, 2 * p)) / mean, second = std::abs(this->at(encode, 2 * p + 1)) / mean;
      least = std::min(least, std::max(first, second));
      most = std::max({most, first, second});
    }
    EXPECT_GE(least, 0.15) << lengths[0] << " first";
    EXPECT_LE(most, lengths.size() == 3 ? 4.2 : 3.6) << lengths[0] << " first";
  }
}

std::vector<check_form> checks_of(const problem& p, const ballast::cuda::capabilities& device, bool end_to_end = true) {
  schedule_request wanted;
  wanted.shape = resolve(p);
  wanted.precision = p.precision;
  wanted.check = check_form::verify_before_store;
  wanted.end_to_end = end_to_end;
  std::vector<check_form> made;
  for (const pass& each : make_schedule(wanted, device).passes) made.push_back(each.policy.check);
  return made;
}

TEST(cuda_fft_end_to_end_schedule, covers_complex_lines_of_several_passes) {
  using enum check_form;
  const auto device = hopper();
  const std::vector<check_form> two = {begins, ends, verify_before_store, verify_before_store};
  const std::vector<check_form> three = {begins, none, ends, verify_before_store, verify_before_store, verify_before_store};
  EXPECT_EQ(checks_of({.shape = {1 << 18}, .batch = 9}, device), two);
  EXPECT_EQ(checks_of({.shape = {1 << 18}, .batch = 9, .input = {{2}, 1 << 20}}, device), two);
  EXPECT_EQ(checks_of({.precision = precision::f64, .shape = {1 << 20}}, device), two);
  EXPECT_EQ(checks_of({.shape = {1 << 24}, .batch = 2}, device), three);
  // The last axis of two is transformed first, from input to output. The other one works in place.
  EXPECT_EQ(checks_of({.shape = {7, 1 << 18}}, device),
            (std::vector<check_form>{begins, ends, verify_before_store, verify_before_store, verify_before_store}));
  const std::vector<check_form> by_passes = {verify_before_store, verify_before_store};
  EXPECT_EQ(checks_of({.shape = {1 << 18}, .batch = 9}, device, false), by_passes);
  EXPECT_EQ(checks_of({.kind = kind::r2c, .shape = {1 << 18}}, device), by_passes);
  EXPECT_EQ(checks_of({.shape = {1024}, .batch = 64}, device), (std::vector<check_form>{verify_before_store}));
}

}  // namespace
}  // namespace ballast::fft::cuda
