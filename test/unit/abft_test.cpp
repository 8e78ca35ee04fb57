// The checksum mathematics: verify, locate, correct, weights.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "abft/attempt.hpp"
#include "abft/correct.hpp"
#include "abft/locate.hpp"
#include "abft/verify.hpp"
#include "abft/weights.hpp"

namespace ballast::abft {
namespace {

TEST(verify, passes_at_the_threshold_and_fails_above) {
  const guarded_threshold tau(1e-6);
  EXPECT_EQ(verify(1e-6, tau), k_pass);
  EXPECT_EQ(verify(-1e-6, tau), k_pass);
  EXPECT_EQ(verify(1.0000001e-6, tau), k_fail);
  EXPECT_EQ(verify(0.0, guarded_threshold(0)), k_pass);
}

TEST(worst_comparison, keeps_the_largest_quotient_and_what_is_not_finite) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto worst_of = [](std::initializer_list<std::pair<double, double>> all) {
    worst_comparison worst;
    for (const auto& [residual, limit] : all) worst.take(residual, limit);
    return worst;
  };
  const worst_comparison finite = worst_of({{1, 8}, {3, 4}, {5, 16}});
  EXPECT_EQ(finite.residual, 3);
  EXPECT_EQ(finite.limit, 4);
  EXPECT_TRUE(finite.is_finite());
  // Near both ends of the range.
  EXPECT_EQ(worst_of({{1e290, 1e292}, {1e307, 1e292}, {1e291, 1e292}}).residual, 1e307);
  EXPECT_EQ(worst_of({{1e-300, 1e-292}, {1e-290, 1e-292}, {1e-291, 1e-292}}).residual, 1e-290);
  EXPECT_EQ(worst_of({{5, 1}, {0, 0}}).residual, 5);
  // In any order, and beside a residual of 0, whose product with Inf is NaN.
  for (const auto& [residual, limit] : {std::pair{nan, 1.0}, {inf, 1.0}, {inf, inf}, {0.0, inf}, {0.0, nan}, {nan, nan}}) {
    EXPECT_FALSE(worst_of({{residual, limit}, {0, 1}, {1e-9, 1}}).is_finite()) << residual << " " << limit;
    EXPECT_FALSE(worst_of({{0, 1}, {1e-9, 1}, {residual, limit}}).is_finite()) << residual << " " << limit;
    EXPECT_FALSE(worst_of({{1, 1}, {residual, limit}, {0, 1}}).is_finite()) << residual << " " << limit;
  }
}

TEST(verify, nan_and_inf_fail) {
  const guarded_threshold tau(1e300);
  EXPECT_EQ(verify(std::numeric_limits<double>::quiet_NaN(), tau), k_fail);
  EXPECT_EQ(verify(std::numeric_limits<double>::infinity(), tau), k_fail);
  EXPECT_EQ(verify(0.0, guarded_threshold(std::numeric_limits<double>::quiet_NaN())), k_fail);
  const guarded_threshold infinite(std::numeric_limits<double>::infinity());
  for (const double residual : {0.0, 1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(verify(residual, infinite), k_fail);
    EXPECT_EQ(verify(residual, residual, infinite), k_fail);
    EXPECT_EQ(verify(residual, 0.0, guarded_threshold(1e200)), k_fail) << "its square overflows";
  }
  EXPECT_EQ(verify(std::numeric_limits<double>::quiet_NaN(), 0.0, guarded_threshold(1)), k_fail);
  EXPECT_EQ(verify(0.0, std::numeric_limits<double>::quiet_NaN(), guarded_threshold(1)), k_fail);
}

TEST(verify, a_struck_threshold_fails_even_for_a_zero_residual) {
  guarded_threshold tau(1e-6);
  tau.value = std::numeric_limits<double>::infinity();
  EXPECT_EQ(verify(0.0, tau), k_fail);
  EXPECT_EQ(verify(0.0, 0.0, tau), k_fail);
}

TEST(verify, complex_residual_uses_the_absolute_value) {
  const guarded_threshold tau(5);
  EXPECT_EQ(verify(3.0, 4.0, tau), k_pass);
  EXPECT_EQ(verify(3.1, 4.0, tau), k_fail);
}

TEST(locate, finds_every_column_from_clean_residuals) {
  for (const int count : {1, 2, 7, 64, 192}) {
    for (int j = 0; j < count; ++j) {
      const auto w = [&](std::int64_t c) { return equispaced_weight(c, count); };
      double rr = 0, rs = 0, ss = 0;
      for (int i = 0; i < 50; ++i) {
        const double e = std::sin(1.0 + i);
        rr += e * e;
        rs += e * e * w(j);
        ss += e * e * w(j) * w(j);
      }
      EXPECT_EQ(locate_column(rr, rs, ss, count, w).index, j) << count;
    }
  }
}

TEST(locate, refuses_two_faults_in_different_columns) {
  const int count = 16;
  const auto w = [&](std::int64_t c) { return equispaced_weight(c, count); };
  double rr = 0, rs = 0, ss = 0;
  for (int i = 0; i < 50; ++i) {  // even rows hit in column 2, odd rows in column 13
    const double weight = w(i % 2 == 0 ? 2 : 13);
    rr += 1;
    rs += weight;
    ss += weight * weight;
  }
  EXPECT_EQ(locate_column(rr, rs, ss, count, w).index, -1);
}

TEST(locate, refuses_nan_and_nothing) {
  const auto w = [](std::int64_t c) { return equispaced_weight(c, 4); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(locate_column(nan, nan, nan, 4, w).index, -1);
  EXPECT_EQ(locate_column(0, 0, 0, 4, w).index, -1);
  EXPECT_EQ(locate_column(std::numeric_limits<double>::infinity(), 1, 1, 4, w).index, -1);
}

TEST(correct, rebuilds_from_the_others_whatever_the_struck_value_is) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double struck : {0.0, 1e300, nan}) {
    std::vector<double> x = {1, 2, 3, 4};
    x[2] = struck;
    EXPECT_EQ(rebuild(10.0, 2, 4, [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; }), 3.0);
  }
}

TEST(weights, are_reproducible_distinct_and_of_unit_size) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const phase p = random_phase(7, 1, i);
    EXPECT_NEAR(std::hypot(p.re, p.im), 1, 1e-15);
    EXPECT_EQ(p.re, random_phase(7, 1, i).re);
    EXPECT_NE(p.re, random_phase(7, 2, i).re);
    EXPECT_GE(random_weight(7, 1, i), 1);
    EXPECT_LT(random_weight(7, 1, i), 2);
  }
  double squares = 0;
  for (int j = 0; j < 100; ++j) squares += std::pow(equispaced_weight(j, 100), 2);
  EXPECT_NEAR(squares, 100, 1e-12);
}

finding judged(std::uint32_t word, std::uint64_t bits) { return {.word = word, .bits = bits}; }
finding unjudged(std::uint64_t bits) { return {.judged = false, .bits = bits}; }

TEST(attempts, a_judged_tile_passes_by_its_word) {
  attempts clean(2);
  EXPECT_EQ(clean.judge(judged(k_pass, 0)), outcome::clean);

  attempts struck(2);
  EXPECT_EQ(struck.judge(judged(k_fail, 1)), outcome::open);
  EXPECT_EQ(struck.judge(judged(k_pass, 2)), outcome::recomputed);
  EXPECT_FALSE(struck.false_alarm());

  attempts checker(2);
  EXPECT_EQ(checker.judge(judged(k_fail, 1)), outcome::open);
  EXPECT_EQ(checker.judge(judged(k_pass, 1)), outcome::recomputed);
  EXPECT_TRUE(checker.false_alarm());

  attempts persistent(2);
  EXPECT_EQ(persistent.judge(judged(k_fail, 1)), outcome::open);
  EXPECT_EQ(persistent.judge(judged(k_fail, 1)), outcome::open);
  EXPECT_EQ(persistent.judge(judged(k_fail, 1)), outcome::uncorrectable);

  attempts detect(0);
  EXPECT_EQ(detect.judge(judged(k_fail, 1)), outcome::uncorrectable);
}

TEST(attempts, an_unjudged_tile_passes_by_the_same_bits_twice) {
  attempts clean(0);
  EXPECT_EQ(clean.judge(unjudged(1)), outcome::open);
  EXPECT_EQ(clean.judge(unjudged(1)), outcome::clean);

  attempts struck(2);
  EXPECT_EQ(struck.judge(unjudged(1)), outcome::open);
  EXPECT_EQ(struck.judge(unjudged(2)), outcome::open);
  EXPECT_EQ(struck.judge(unjudged(2)), outcome::recomputed);
  EXPECT_FALSE(struck.false_alarm()) << "the data differed";

  attempts second(2);
  EXPECT_EQ(second.judge(unjudged(1)), outcome::open);
  EXPECT_EQ(second.judge(judged(k_fail, 2)), outcome::open);
  EXPECT_EQ(second.judge(unjudged(1)), outcome::recomputed) << "two of three agree";
  EXPECT_FALSE(second.false_alarm());

  attempts checker(2);
  EXPECT_EQ(checker.judge(judged(k_fail, 1)), outcome::open);
  EXPECT_EQ(checker.judge(unjudged(1)), outcome::recomputed);
  EXPECT_TRUE(checker.false_alarm());

  attempts detect(0);
  EXPECT_EQ(detect.judge(unjudged(1)), outcome::open);
  EXPECT_EQ(detect.judge(unjudged(2)), outcome::uncorrectable);

  attempts persistent(2);
  EXPECT_EQ(persistent.judge(unjudged(1)), outcome::open);
  EXPECT_EQ(persistent.judge(unjudged(2)), outcome::open);
  EXPECT_EQ(persistent.judge(unjudged(3)), outcome::uncorrectable);
}

TEST(attempts, an_unjudged_result_that_does_not_come_again_is_a_failure) {
  attempts state(0);
  finding odd = unjudged(1);
  odd.residual = 4;
  EXPECT_EQ(state.judge(odd), outcome::open);
  EXPECT_EQ(state.judge(judged(k_pass, 0)), outcome::recomputed);
  EXPECT_EQ(state.first().residual, 4);
}

TEST(attempts, settle_makes_the_computations) {
  attempts state(2);
  EXPECT_EQ(state.settle([](int number) { return judged(number < 2 ? k_fail : k_pass, 0); }), outcome::recomputed);
}

TEST(attempts, a_struck_comparison_contradicts_its_numbers) {
  EXPECT_TRUE(comparison_struck({.word = k_fail, .residual = -0.5, .threshold = 1}));
  EXPECT_FALSE(comparison_struck({.word = k_fail, .residual = 2, .threshold = 1}));
  EXPECT_FALSE(comparison_struck({.word = k_fail, .residual = std::numeric_limits<double>::quiet_NaN(), .threshold = 1}));
  EXPECT_FALSE(comparison_struck({.word = k_pass, .residual = 0.5, .threshold = 1}));
}

TEST(result_hash, sees_every_value_but_the_payload_of_nan) {
  const auto of = [](double x, float y) {
    result_hash made;
    made.add(x);
    made.add(y);
    return made.bits();
  };
  EXPECT_EQ(of(1, 2), of(1, 2));
  EXPECT_NE(of(1, 2), of(2, 1));
  EXPECT_NE(of(0.0, 1), of(-0.0, 1));
  EXPECT_EQ(of(std::nan("1"), 1), of(-std::nan("2"), 1));
  EXPECT_NE(of(std::nan("1"), 1), of(std::numeric_limits<double>::infinity(), 1));
}

}  // namespace
}  // namespace ballast::abft
