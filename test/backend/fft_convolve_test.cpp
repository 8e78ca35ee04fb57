// Convolution and correlation: against sums by the definition in more than working precision; faults at every site; refusals.
#include <ballast/convolve.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/fft_convolved.hpp"
#include "core/at.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {
namespace {

using core::at;

constexpr backend k_hosts[] = {backend::reference, backend::cpu};

template <class Element>
void check(const convolution_problem& what, backend where, bool blocks = false) {
  const convolved<Element> given(what);
  SCOPED_TRACE(std::string(to_string(where)) + ' ' + to_token(given.what));
  const convolution made(given.what, {.backend = where, .threads = 2});
  std::vector<Element> out(given.wanted.size()), bare(out.size());
  ASSERT_EQ(test::points_of(made.output_shape()), std::ssize(out));
  const report seen = made.run(given.x, given.h, out, test::quiet_call());
  EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  EXPECT_EQ(seen.detected, 0U) << to_json(seen);
  EXPECT_GT(seen.checks, blocks ? 8U : 0U);
  EXPECT_LE(given.error(out), given.allowed());
  const convolution open(given.what, {.backend = where, .protection = protection::off});
  EXPECT_EQ(open.run(given.x, given.h, bare).checks, 0U);
  EXPECT_EQ(out, bare);
}

template <class Body>
void with_elements(const Body& body) {
  body(float{});
  body(std::complex<double>{});
  if (test::sampled()) return;
  body(double{});
  body(std::complex<float>{});
}

TEST(fft_convolve, every_mode_and_rank_against_the_definition) {
  for (const backend where : k_hosts) {
    with_elements([&]<class Element>(Element) {
      for (const bool correlate : {false, true}) {
        for (const convolution_mode mode : {convolution_mode::full, convolution_mode::same, convolution_mode::valid}) {
          for (const auto& [n, m] :
               std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 5}, {7, 1}, {20, 13}, {13, 20}, {16, 16}})
            check<Element>({.correlate = correlate, .first = {n}, .second = {m}, .mode = mode}, where);
          check<Element>({.correlate = correlate, .first = {6, 9}, .second = {3, 4}, .mode = mode}, where);
          check<Element>({.correlate = correlate, .first = {2, 9}, .second = {5, 4}, .mode = mode}, where);
          check<Element>({.correlate = correlate, .first = {3, 4, 5}, .second = {2, 3, 2}, .mode = mode}, where);
        }
      }
    });
  }
}

TEST(fft_convolve, long_signals_in_blocks) {
  with_elements([&]<class Element>(Element) {
    for (const bool correlate : {false, true}) {
      for (const convolution_mode mode : {convolution_mode::full, convolution_mode::same, convolution_mode::valid}) {
        check<Element>({.correlate = correlate, .first = {3000}, .second = {17}, .mode = mode}, backend::cpu, true);
        check<Element>({.correlate = correlate, .first = {9}, .second = {2500}, .mode = mode}, backend::cpu, true);
      }
    }
  });
  // More blocks than are transformed together.
  check<float>({.first = {300'000}, .second = {40}}, backend::cpu, true);
}

// A fault of every model at every site, at several visits: repaired, and without protection in the output.
template <class Element>
void strike_every_site(const convolution_problem& what, backend where) {
  const convolved<Element> given(what);
  SCOPED_TRACE(std::string(to_string(where)) + ' ' + to_token(given.what));
  const convolution guarded(given.what, {.backend = where}), open(given.what, {.backend = where, .protection = protection::off});
  std::vector<Element> clean(given.wanted.size());
  (void)guarded.run(given.x, given.h, clean);
  for (const inject::site_row& row : inject::sites()) {
    if (row.operation() != "fft") continue;
    struck_convolutions seen;
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      if (test::sampled() && m % 3 != static_cast<std::size_t>(row.site) % 3) continue;
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE(std::string(row.name) + ' ' + std::string(inject::k_model_names[m]) + ' ' + std::to_string(seed));
        inject::request wanted;
        wanted.site = row.site;
        wanted.model = static_cast<inject::model>(m);
        wanted.seed = seed * 1000 + m;
        wanted.bit = given.what.precision == precision::f32 ? 30 : 62;
        wanted.visit = static_cast<std::int64_t>(seed % 4);
        strike(given, guarded, open, clean, row, wanted, seen);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(seen.changed > 0, row.role == inject::site_role::data) << row.name;
    EXPECT_GT(seen.found, 0) << row.name;
  }
}

TEST(fft_convolve, every_site) {
  for (const backend where : k_hosts) {
    strike_every_site<float>({.first = {40}, .second = {25}}, where);
    strike_every_site<std::complex<double>>({.correlate = true, .first = {6, 9}, .second = {3, 4}, .mode = convolution_mode::same}, where);
  }
  strike_every_site<double>({.first = {2000}, .second = {17}, .mode = convolution_mode::valid}, backend::cpu);
}

// One mask over neighbouring words of the padded kernel, the first place of the site: even the lowest bit of each is seen, although sixteen
// equal changes have no parity of their own.
TEST(fft_convolve, a_mask_over_padded_operands_has_no_floor) {
  const convolved<float> given({.first = {40}, .second = {25}});
  for (const backend where : k_hosts) {
    const convolution guarded(given.what, {.backend = where}), open(given.what, {.backend = where, .protection = protection::off});
    std::vector<float> clean(given.wanted.size()), out(clean.size());
    (void)guarded.run(given.x, given.h, clean);
    int changed = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      inject::request wanted;
      wanted.site = site::input;
      wanted.model = inject::model::vector_mask;
      wanted.seed = seed;
      wanted.bit = static_cast<int>(seed % 4);
      const inject::plan faults({wanted});
      const inject::scope struck(&faults);
      (void)open.run(given.x, given.h, out);
      changed += out == clean ? 0 : 1;
      const report seen = guarded.run(given.x, given.h, out, test::quiet_call());
      ASSERT_EQ(out, clean) << to_string(where) << ' ' << seed << ' ' << to_json(seen);
    }
    EXPECT_GT(changed, 0) << to_string(where);
  }
}

// Constant and alternating data, an impulse, values of every size: no false alarm, although rounding errors may lie at one frequency.
TEST(fft_convolve, no_false_alarm) {
  const std::int64_t rounds = test::sampled() ? 20 : 200;
  std::uint64_t checks = 0;
  const auto fill = [](std::vector<float>& to, int how, std::uint64_t seed) {
    const std::vector<float> noise = test::noise<float>(std::ssize(to), seed);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const float step = static_cast<float>(i) * 0.01F * static_cast<float>(seed % 97);
      to[i] = how == 0   ? 1.25F
              : how == 1 ? (i % 2 == 0 ? 3.0F : -3.0F)
              : how == 2 ? (i == seed % to.size() ? 1e30F : 0.0F)
              : how == 3 ? std::sin(step)
              : how == 4 ? noise[i] * 1e-38F
                         : noise[i] * std::pow(10.0F, static_cast<float>(i % 20) - 10);
    }
  };
  for (const auto& [n, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{{900, 31}, {64, 64}, {20'000, 16}}) {
    const convolution made({.first = {n}, .second = {m}}, {.backend = backend::cpu});
    std::vector<float> x(at(n)), h(at(m)), y(at(n + m - 1));
    for (int how = 0; how < 6; ++how) {
      for (std::int64_t round = 0; round < rounds; ++round) {
        fill(x, how, static_cast<std::uint64_t>(round));
        fill(h, (how + round % 3 == 2) ? 5 : how == 2 ? 0 : how, static_cast<std::uint64_t>(round + 7));
        const report seen = made.run(x, h, y, test::quiet_call());
        checks += seen.checks;
        ASSERT_EQ(seen.detected, 0U) << n << ' ' << how << ' ' << round << ' ' << to_json(seen);
      }
    }
  }
  EXPECT_GT(checks, 1000U);
}

TEST(fft_convolve, inf_and_nan_are_no_fault) {
  const convolution made({.first = {40}, .second = {7}}, {.backend = backend::cpu});
  std::vector<float> x(40, 1), h(7, 2), y(46);
  x[10] = std::numeric_limits<float>::infinity();
  const report seen = made.run(x, h, y);
  EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  EXPECT_FALSE(std::isfinite(y[12]));
}

TEST(fft_convolve, refusals_say_what_was_expected) {
  const auto text_of = [](const auto& run) -> std::string {
    try {
      (void)run();
    } catch (const error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text_of([] { return convolution({.first = {3}, .second = {}}); }),
            "convolve_real_f32_n3_m_full: expected operands of the same rank, got 1 and 0");
  EXPECT_EQ(text_of([] { return convolution({.first = {3}, .second = {0}}); }),
            "convolve_real_f32_n3_m0_full: expected lengths of at least 1, got 3 and 0");
  const convolution made({.correlate = true, .first = {3}, .second = {2}, .mode = convolution_mode::same}, {.backend = backend::reference});
  std::vector<float> x(3), h(2), y(3);
  EXPECT_EQ(text_of([&] { return made.run(x, h, std::span(y).first(2)); }),
            "correlate_real_f32_n3_m2_same: out: expected 3 elements, got 2");
  EXPECT_EQ(text_of([&] { return made.run(x, h, x); }),
            "correlate_real_f32_n3_m2_same: expected out not to overlap the operands, got an overlap");
  std::vector<double> wide(3), wide_h(2), wide_y(3);
  EXPECT_EQ(text_of([&] { return made.run(wide, wide_h, wide_y); }),
            "correlate_real_f32_n3_m2_same: expected real numbers in f32, got real ones in f64");
}

}  // namespace
}  // namespace ballast::fft
