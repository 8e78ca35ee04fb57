// The FFT on the host where there is much to compute: every length, long lines, many lines, 10⁵ clean intervals.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "support/effort.hpp"
#include "support/fft_subject.hpp"

namespace ballast::fft {
namespace {

using test::subject;

execution on(backend where, protection guard = protection::correct, int threads = 1) {
  execution how;
  how.backend = where;
  how.protection = guard;
  how.threads = threads;
  how.throw_on_uncorrectable = false;
  return how;
}

template <class T>
problem line_problem(std::int64_t n, std::int64_t batch = 1, kind what = kind::c2c) {
  return {.kind = what, .precision = precision_of<T>, .shape = {n}, .batch = batch};
}

template <class T>
class fft_host : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(fft_host, precisions);

TYPED_TEST(fft_host, every_length_is_accurate) {
  using T = TypeParam;
  const std::int64_t step = test::sampled() ? 37 : 1;
  double worst = 0;
  for (std::int64_t n = 1; n <= 4096; n += n < 130 ? 1 : step) {
    const subject<T> given(line_problem<T>(n, 2), direction::forward, static_cast<std::uint64_t>(n));
    for (const backend where : {backend::reference, backend::cpu}) {
      if (where == backend::reference && n > 700 && n % 61 != 0) continue;
      // Protection changes no bit (fft_test.cpp); its weights in extended precision would take most of the time here.
      const bool guard = sizeof(T) == 4 ? n <= 1024 || n % 4 == 0 : n <= 200 || n % 32 == 0;
      const plan made(given.problem, on(where, guard ? protection::correct : protection::off));
      std::vector<T> out = given.fresh();
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << n << " " << to_string(where) << " " << to_json(seen);
      ASSERT_EQ(seen.backend, where);
      const double e = given.error(out, 0);
      worst = std::max(worst, e / given.allowed());
      ASSERT_LE(e, given.allowed()) << n << " " << to_string(where);
    }
  }
  this->RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
}

TYPED_TEST(fft_host, long_lines_are_accurate_both_ways) {
  using T = TypeParam;
  std::vector<std::int64_t> lengths = {8192, 10007, 65537, 65536, 20014, 60060};
  if (!test::sampled()) lengths.insert(lengths.end(), {std::int64_t{1} << 20});
  if (!test::sampled() && sizeof(T) == 4) lengths.insert(lengths.end(), {1000003, 531441, 1000000, 823543, 4093 * 67});
  for (const std::int64_t n : lengths) {
    const subject<T> given(line_problem<T>(n), direction::forward, static_cast<std::uint64_t>(n));
    const plan made(given.problem, on(backend::cpu, protection::correct, 2));
    std::vector<T> out = given.fresh(), back = given.fresh();
    report seen = given.run(made, out);
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(given.error(out, 0), given.allowed()) << n;
    seen = test::execute<T>(made, given.shape, direction::inverse, out.data(), back.data());
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(test::distance_of(back.data(), given.in.data(), 2 * n).relative(), 2 * given.allowed()) << n;
    seen = given.run(made, back.data(), back.data());
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(given.error(back, 0), 3 * given.allowed()) << n;
  }
}

TYPED_TEST(fft_host, many_long_lines_are_accurate) {
  using T = TypeParam;
  const std::int64_t batch = test::sampled() ? 20 : 300;
  const subject<T> given(line_problem<T>(4096, batch), direction::forward, 17);
  std::vector<T> out = given.fresh();
  const report seen = given.run(plan(given.problem, on(backend::cpu, protection::correct, 2)), out);
  ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  for (const std::int64_t b : {std::int64_t{0}, batch / 2, batch - 1}) EXPECT_LE(given.error(out, b), given.allowed()) << b;
}

TYPED_TEST(fft_host, no_false_alarm_in_1e5_clean_intervals) {
  using T = TypeParam;
  std::uint64_t checks = 0, seed = 5;
  const auto run = [&](subject<T>& given, const plan& by, std::string_view kind) {
    given.set(test::filled<T>(kind, given.shape.input, given.signals(), ++seed));
    std::vector<T> out = given.fresh();
    const report seen = given.run(by, out);
    EXPECT_EQ(seen.verdict, verdict::clean) << fft::to_token(given.problem, given.way) << " " << kind << " " << to_json(seen);
    checks += seen.checks;
    return seen.verdict == verdict::clean;
  };
  for (const std::int64_t n : {2, 8, 12, 16, 21, 32, 64, 67, 211, 263, 400}) {
    const std::int64_t signals = 16 * (test::sampled() ? 8 : n > 64 ? 100 : 1200);
    subject<T> complex(line_problem<T>(n, signals), direction::forward, 1);
    subject<T> real(line_problem<T>(n, signals, kind::r2c), direction::forward, 1);
    subject<T> inverse(line_problem<T>(n, std::min<std::int64_t>(signals, 20)), direction::inverse, 1);
    const plan of_complex(complex.problem, on(backend::cpu, protection::correct, 2));
    const plan of_real(real.problem, on(backend::cpu, protection::correct, 2));
    const plan of_inverse(inverse.problem, on(backend::reference));
    for (const std::string_view kind : test::k_fillings) {
      ASSERT_TRUE(run(complex, of_complex, kind));
      ASSERT_TRUE(run(real, of_real, kind));
      ASSERT_TRUE(run(inverse, of_inverse, kind));
    }
  }
  // Tiles of 16 lanes with 2 comparisons each.
  EXPECT_GE(checks / 32, test::sampled() ? 100u : 100000u);
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4096}, {9216}, {3865}, {7971}, {40, 36}, {12, 18, 20}}) {
    subject<T> given({.kind = kind::c2c, .precision = precision_of<T>, .shape = shape}, direction::inverse, 1);
    const plan made(given.problem, on(backend::cpu, protection::correct, 2));
    for (const std::string_view kind : test::k_fillings) ASSERT_TRUE(run(given, made, kind));
  }
}

}  // namespace
}  // namespace ballast::fft
