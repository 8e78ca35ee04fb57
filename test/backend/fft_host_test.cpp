// The FFT on the host where there is much to compute: every length, long lines, many lines, 10⁵ clean intervals.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
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
  return {.backend = where, .threads = threads, .protection = guard};
}

template <class T>
problem line_problem(std::int64_t n, std::int64_t batch = 1, kind what = kind::c2c) {
  return {.kind = what, .precision = precision_of<T>, .shape = {n}, .batch = batch};
}

// Calls body.template operator()<float or double>().
template <class Body>
void with(precision type, const Body& body) {
  if (type == precision::f32) {
    body.template operator()<float>();
  } else {
    body.template operator()<double>();
  }
}

// A shape in one precision: the parameter of a test.
struct host_case {
  precision type;
  std::vector<std::int64_t> shape;
};

std::string name_of(const host_case& each) {
  std::string name(to_string(each.type));
  char separator = '_';
  for (const std::int64_t n : each.shape) {
    name += separator + std::string(separator == '_' ? "n" : "") + std::to_string(n);
    separator = 'x';
  }
  return name;
}
void PrintTo(const host_case& each, std::ostream* to) { *to << name_of(each); }
std::string host_name(const testing::TestParamInfo<host_case>& info) { return name_of(info.param); }

std::vector<host_case> in_both(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<host_case> made;
  for (const precision type : {precision::f32, precision::f64}) {
    for (const auto& shape : shapes) made.push_back({type, shape});
  }
  return made;
}

// ---- Every length ----

// The lengths first … first + k_lengths − 1 in one precision.
struct length_range {
  precision type;
  std::int64_t first;
};
constexpr std::int64_t k_lengths = 128, k_last_length = 4096;

std::vector<length_range> length_ranges() {
  std::vector<length_range> made;
  for (const precision type : {precision::f32, precision::f64}) {
    for (std::int64_t first = 1; first <= k_last_length; first += k_lengths) made.push_back({type, first});
  }
  return made;
}
void PrintTo(const length_range& each, std::ostream* to) { *to << "lengths from " << each.first; }

class fft_every_length_test : public testing::TestWithParam<length_range> {
 protected:
  // Returns whether to compute length n: a sample has the short lengths and one in 37 of the others.
  static bool taken(std::int64_t n) { return !test::sampled() || n < 130 || (n - 130) % 37 == 0; }

  template <class T>
  static double error_over_bound(const subject<T>& given, backend where) {
    const std::int64_t n = given.points();
    // Protection changes no bit (fft_test.cpp). The search for weights in extended precision would take most of the time here.
    const bool guard = sizeof(T) == 4 ? n <= 1024 || n % 4 == 0 : n <= 200 || n % 32 == 0;
    const plan made(given.problem, on(where, guard ? protection::correct : protection::off));
    std::vector<T> out = given.fresh();
    const report seen = given.run(made, out);
    EXPECT_EQ(seen.verdict, verdict::clean) << n << " " << to_string(where) << " " << to_json(seen);
    EXPECT_EQ(seen.backend, where);
    return given.error(out, 0) / given.allowed();
  }
};

TEST_P(fft_every_length_test, is_accurate) {
  with(GetParam().type, [&]<class T>() {
    double worst = 0;
    for (std::int64_t n = GetParam().first; n < std::min(GetParam().first + k_lengths, k_last_length + 1); ++n) {
      if (!taken(n)) continue;
      const subject<T> given(line_problem<T>(n, 2), direction::forward, static_cast<std::uint64_t>(n));
      for (const backend where : {backend::reference, backend::cpu}) {
        if (where == backend::reference && n > 700 && n % 61 != 0) continue;
        const double error = error_over_bound(given, where);
        ASSERT_LE(error, 1) << n << " " << to_string(where);
        worst = std::max(worst, error);
      }
    }
    RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_every_length_test, testing::ValuesIn(length_ranges()), [](const auto& info) {
  return fmt::format("{}_n{}_to_{}", to_string(info.param.type), info.param.first, info.param.first + k_lengths - 1);
});

// ---- Long lines ----

std::vector<host_case> long_lines() {
  std::vector<host_case> made = in_both({{8192}, {10007}, {65537}, {65536}, {20014}, {60060}});
  if (test::sampled()) return made;
  for (const host_case& each : in_both({{std::int64_t{1} << 20}})) made.push_back(each);
  for (const std::int64_t n : {1000003, 531441, 1000000, 823543, 4093 * 67}) made.push_back({precision::f32, {n}});
  return made;
}

class fft_long_line_test : public testing::TestWithParam<host_case> {};

TEST_P(fft_long_line_test, is_accurate_both_ways) {
  with(GetParam().type, [&]<class T>() {
    const std::int64_t n = GetParam().shape[0];
    const subject<T> given(line_problem<T>(n), direction::forward, static_cast<std::uint64_t>(n));
    const plan made(given.problem, on(backend::cpu, protection::correct, 2));
    std::vector<T> out = given.fresh(), back = given.fresh();
    report seen = given.run(made, out);
    ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_LE(given.error(out, 0), given.allowed());
    seen = test::execute<T>(made, given.shape, direction::inverse, out.data(), back.data());
    ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_LE(test::distance_of(back.data(), given.in.data(), 2 * n).relative(), 2 * given.allowed());
    seen = given.run(made, back.data(), back.data());
    ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_LE(given.error(back, 0), 3 * given.allowed());
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_long_line_test, testing::ValuesIn(long_lines()), host_name);

class fft_many_lines_test : public testing::TestWithParam<host_case> {};

TEST_P(fft_many_lines_test, are_accurate) {
  with(GetParam().type, [&]<class T>() {
    const std::int64_t batch = test::sampled() ? 20 : 300;
    const subject<T> given(line_problem<T>(GetParam().shape[0], batch), direction::forward, 17);
    std::vector<T> out = given.fresh();
    const report seen = given.run(plan(given.problem, on(backend::cpu, protection::correct, 2)), out);
    ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    for (const std::int64_t b : {std::int64_t{0}, batch / 2, batch - 1}) EXPECT_LE(given.error(out, b), given.allowed()) << b;
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_many_lines_test, testing::ValuesIn(in_both({{4096}})), host_name);

// Windows of one run that begin one number apart: signals whose numbers are shared.
class fft_windows_test : public testing::TestWithParam<host_case> {};

TEST_P(fft_windows_test, are_accurate) {
  with(GetParam().type, [&]<class T>() {
    const std::int64_t n = GetParam().shape[0], batch = 37;
    problem windows = line_problem<T>(n, batch);
    windows.input = {.strides = {1}, .distance = 1};
    windows.output = {.strides = {1}, .distance = n};
    const subject<T> given(windows, direction::forward, 18);
    for (const protection guard : {protection::off, protection::correct}) {
      std::vector<T> out = given.fresh();
      const report seen = given.run(plan(given.problem, on(backend::cpu, guard)), out);
      ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      // A window has too few numbers for a mean: all of them have enough.
      double squares = 0;
      for (std::int64_t b = 0; b < batch; ++b) squares += given.error(out, b) * given.error(out, b);
      EXPECT_LE(std::sqrt(squares / static_cast<double>(batch)), given.allowed());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_windows_test, testing::ValuesIn(in_both({{5}, {8}, {12}, {16}, {32}, {64}})), host_name);

// ---- Clean intervals ----

class fft_clean_test : public testing::TestWithParam<host_case> {
 public:
  // All lengths together have 10⁵ tiles of 16 lanes with two comparisons for each lane.
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    if (suite.test_to_run_count() != suite.total_test_count() || suite.failed_test_count() > 0) return;
    for (const auto& [type, checks] : checks_) EXPECT_GE(checks / 32, test::sampled() ? 100u : 100000u) << to_string(type);
  }

 protected:
  // Runs every kind of clean data.
  template <class T>
  static void run_clean(subject<T> given, const plan& by) {
    std::uint64_t seed = 5;
    for (const std::string_view kind : test::k_fillings) {
      given.set(test::filled<T>(kind, given.shape.input, given.signals(), ++seed));
      std::vector<T> out = given.fresh();
      const report seen = given.run(by, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << fft::to_token(given.problem, given.way) << " " << kind << " " << to_json(seen);
      checks_[given.problem.precision] += seen.checks;
    }
  }

 private:
  inline static std::map<precision, std::uint64_t> checks_;
};

class fft_clean_lines_test : public fft_clean_test {};

TEST_P(fft_clean_lines_test, raise_no_alarm) {
  with(GetParam().type, [&]<class T>() {
    const std::int64_t n = GetParam().shape[0];
    const std::int64_t signals = 16 * (test::sampled() ? 8 : n > 64 ? 100 : 1200);
    const subject<T> complex(line_problem<T>(n, signals), direction::forward, 1);
    const subject<T> real(line_problem<T>(n, signals, kind::r2c), direction::forward, 1);
    const subject<T> inverse(line_problem<T>(n, std::min<std::int64_t>(signals, 20)), direction::inverse, 1);
    run_clean(complex, plan(complex.problem, on(backend::cpu, protection::correct, 2)));
    run_clean(real, plan(real.problem, on(backend::cpu, protection::correct, 2)));
    run_clean(inverse, plan(inverse.problem, on(backend::reference)));
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_clean_lines_test,
                         testing::ValuesIn(in_both({{2}, {8}, {12}, {16}, {21}, {32}, {64}, {67}, {211}, {263}, {400}})), host_name);

class fft_clean_volumes_test : public fft_clean_test {
 public:
  static void TearDownTestSuite() {}  // fewer
};

TEST_P(fft_clean_volumes_test, raise_no_alarm) {
  with(GetParam().type, [&]<class T>() {
    const subject<T> given({.kind = kind::c2c, .precision = precision_of<T>, .shape = GetParam().shape}, direction::inverse, 1);
    run_clean(given, plan(given.problem, on(backend::cpu, protection::correct, 2)));
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_clean_volumes_test,
                         testing::ValuesIn(in_both({{4096}, {9216}, {3865}, {7971}, {10007}, {40, 36}, {12, 18, 20}})), host_name);

}  // namespace
}  // namespace ballast::fft
