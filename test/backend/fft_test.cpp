// Tests of the FFT on every backend: accuracy of every case in every order of threads, strides that are kept, results in place and
// without protection, clean data of every kind without a false alarm, Inf and NaN as data. fft_faults_test.cpp has the faults.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_target.hpp"
#include "fft/cpu/choice.hpp"

namespace ballast::fft {
namespace {

using test::same;
using test::subject;

// ---- Accuracy, places ----

class fft_case_test : public fft_test {
 protected:
  // Transforms in place, and expects each signal to be that of `wanted`.
  template <class T>
  static void expect_same_in_place(const subject<T>& given, const plan& by, const std::vector<T>& both, const subject<T>& usual,
                                   const std::vector<T>& wanted) {
    const device_copy<T> memory(on(), both);
    EXPECT_EQ(given.run(by, memory.data(), memory.data()).verdict, verdict::clean);
    const auto out = memory.read();
    for (std::int64_t b = 0; b < given.signals(); ++b) EXPECT_EQ(given.got(out, b), usual.got(wanted, b)) << "in place, signal " << b;
  }
};

TEST_P(fft_case_test, is_accurate_whatever_the_order_of_threads) {
  with_data([&]<class T>(const subject<T>& given) {
    std::vector<T> first;
    double worst = 0;
    for (int order = 1; order <= orders(); ++order) {
      const auto prepared = on().prepare(run().which, static_cast<std::uint64_t>(order));
      std::vector<T> out = given.fresh();
      const plan made = make(given.problem, static_cast<std::uint64_t>(order), protection::correct);
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      EXPECT_EQ(seen.backend, on().where());
      EXPECT_EQ(seen.problem, run().which.token);
      EXPECT_GE(seen.checks, run().emulated() ? static_cast<std::uint64_t>(given.signals()) : 1u);
      if (order == 1) {
        first = out;
        given.expect_gaps_kept(out);
        for (std::int64_t b = 0; b < given.signals(); ++b) {
          const double e = given.error(out, b);
          worst = std::max(worst, e / given.allowed());
          ASSERT_LE(e, given.allowed()) << "signal " << b;
        }
      }
      EXPECT_TRUE(same(out, first)) << "order " << order;
    }
    RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
  });
}

TEST_P(fft_case_test, is_the_same_in_place_and_without_protection) {
  with_data([&]<class T>(const subject<T>& given) {
    constexpr std::uint64_t order = 5;
    const auto prepared = on().prepare(run().which, order);
    const plan made = make(given.problem, order, protection::correct);
    std::vector<T> wanted = given.fresh();
    ASSERT_EQ(given.run(made, wanted).verdict, verdict::clean);
    if (given.can_be_in_place()) expect_same_in_place(given, made, given.in, given, wanted);
    if (given.shape.kind != kind::c2c && !run().which.strided()) {
      subject<T> padded(test::in_place_problem(given.problem), given.way, 0);
      padded.set(test::pack(given.shape.input, given.signals(), given.in.data()));
      std::vector<T> both = padded.in;
      both.resize(std::max(both.size(), padded.fresh().size()));
      expect_same_in_place(padded, make(padded.problem, order, protection::correct), both, given, wanted);
    }
    if ((run().which.uses & k_bare) == 0) return;
    const plan bare = make(given.problem, order, protection::off);
    std::vector<T> out = given.fresh();
    const report seen = given.run(bare, out);
    EXPECT_EQ(seen.checks, 0u);
    EXPECT_TRUE(same(out, wanted) || !on().same_arithmetic(given, false)) << "protection changes no bit";
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_case_test, testing::ValuesIn(every_run()), test_name);

// ---- Clean data of every kind ----

class fft_data_test : public fft_test {
 protected:
  // Expects the error of the first signals of `out` within three times what the documentation promises, and with what gradual underflow
  // adds to it.
  template <class T>
  static void expect_accurate(const subject<T>& given, const std::vector<T>& packed, const std::vector<T>& out) {
    const std::int64_t points = given.points();
    const double tiny = 8 * static_cast<double>(std::numeric_limits<T>::denorm_min()) * static_cast<double>(points);
    const auto words = test::words_of_signal(given.shape.input);
    for (std::int64_t b = 0; b < std::min<std::int64_t>(given.signals(), 3); ++b) {
      const auto& wanted = given.wanted(b);
      // Relative to the data where they are larger: sums of equal numbers cancel. Norms of f32 are computed in double and norms of f64 in
      // long double: neither overflows.
      wide<T> squares = 0;
      for (const auto x : wanted) squares += x * x;
      double largest = 0;
      for (std::int64_t i = 0; i < words; ++i)
        largest = std::max(largest, std::sqrt(2.0) * std::abs(static_cast<double>(packed[static_cast<std::size_t>(b * words + i)])));
      const double size =
          std::max(static_cast<double>(std::sqrt(squares)), largest * std::sqrt(static_cast<double>(points)) * given.scale());
      const double allowed = 3 * test::error_bound(given.problem) * size + tiny;
      const auto y = given.got(out, b);
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_LE(static_cast<double>(std::abs(static_cast<wide<T>>(y[i]) - wanted[i])), allowed) << "signal " << b << " word " << i;
    }
  }
};

TEST_P(fft_data_test, raise_no_false_alarm) {
  with_data([&]<class T>(const subject<T>& usual) {
    constexpr std::uint64_t order = 32;
    const auto prepared = on().prepare(run().which, order);
    subject<T> given = usual;
    const plan made = make(given.problem, order, protection::correct);
    std::uint64_t seed = 5;
    for (const std::string_view kind : test::k_fillings) {
      SCOPED_TRACE(kind);
      const std::vector<T> packed = test::filled<T>(kind, given.shape.input, given.signals(), ++seed);
      given.set(packed);
      std::vector<T> out = given.fresh();
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      if (given.points() > 128 && kind != "huge" && kind != "subnormal" && kind != "scales") continue;
      expect_accurate(given, packed, out);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_data_test, testing::ValuesIn(clean_runs()), test_name);

class fft_special_test : public fft_test {
 protected:
  // Returns whether neighbouring signals of a problem of the current run are computed together.
  static bool is_paired(const geometry& shape) {
    return run().on->where() == backend::cpu &&
           cpu::choose_by_rule(shape, run().which.problem().precision).how == cpu::method::signal_pairs;
  }
};

TEST_P(fft_special_test, infinity_and_nan_are_data) {
  with_data([&]<class T>(const subject<T>& usual) {
    using limits = std::numeric_limits<T>;
    constexpr std::uint64_t order = 41;
    const auto prepared = on().prepare(run().which, order);
    const fft::side& input = usual.shape.input;
    const plan made = make(usual.problem, order, protection::correct);
    std::vector<T> clean = usual.fresh();
    ASSERT_EQ(usual.run(made, clean).verdict, verdict::clean);
    const std::vector<T> data = test::pack(input, usual.signals(), usual.in.data());
    subject<T> given = usual;
    for (const T value : {limits::infinity(), -limits::infinity(), limits::quiet_NaN()}) {
      // A real part of signal 1: a c2r transform ignores some imaginary ones.
      std::vector<T> packed = data;
      const std::int64_t words = test::words_of_signal(input), parts = input.real ? 1 : 2;
      packed[static_cast<std::size_t>(words + words / parts / 2 * parts)] = value;
      given.set(packed);
      std::vector<T> out = given.fresh();
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << value << " " << to_json(seen);
      for (std::int64_t b = 0; b < given.signals(); ++b) {
        if (b == 1) continue;
        // The cpu backend computes two real signals of odd length together: signal 0 is rounded otherwise without signal 1.
        if (b == 0 && is_paired(usual.shape)) {
          const auto y = given.got(out, b), want = given.got(clean, b);
          double error = 0, size = 0;
          for (std::size_t i = 0; i < y.size(); ++i) {
            error += std::pow(static_cast<double>(y[i]) - static_cast<double>(want[i]), 2);
            size += std::pow(static_cast<double>(want[i]), 2);
          }
          // Twice the bound of fft_property.cpp for any length: both are wrong by as much.
          ASSERT_LE(std::sqrt(error), 2 * 1.28 * std::sqrt(1.5 * size * std::log2(usual.shape.points())) * abft::unit_roundoff<T>);
          continue;
        }
        ASSERT_EQ(given.got(out, b), given.got(clean, b)) << "Inf and NaN must stay in their signal, " << b << " is another";
      }
      const auto y = given.got(out, 1);
      const std::size_t together = given.shape.output.real ? 1 : 2;
      std::size_t finite = 0;
      for (std::size_t i = 0; i < y.size(); i += together) finite += std::isfinite(y[i]) && std::isfinite(y[i + together - 1]) ? 1 : 0;
      // Half spectra that are not taken in pairs multiply an Inf by no zero: it adds nothing to the outputs a quarter turn away.
      ASSERT_LE(finite, run().which.where == machine::fallback && given.shape.output.real ? y.size() / 2 : 0) << value;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_special_test, testing::ValuesIn(special_runs()), test_name);

}  // namespace
}  // namespace ballast::fft
