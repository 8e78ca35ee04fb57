// The schemes of the cuda backend under the emulator: results against a transform in double, with and without injected faults.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/fft_cuda_schemes.hpp"
#include "fft/sites.hpp"
#include "inject/sites.hpp"
#include "support/devices.hpp"
#include "support/fft_tolerances.hpp"

namespace {

using namespace ballast;
using scheme_test::scheme_case;

// Returns the packed words of each signal in higher precision, for comparison.
template <class T>
std::vector<std::vector<fft::wide<T>>> expected(const scheme_case& what, const std::vector<T>& in) {
  const fft::token parsed = fft::parse_token(what.token);
  const fft::geometry shape = fft::resolve(parsed.problem);
  std::vector<std::vector<fft::wide<T>>> all;
  for (std::int64_t b = 0; b < shape.batch; ++b) all.push_back(test::reference<T>(parsed.problem, parsed.direction, shape, in.data(), b));
  return all;
}

// The relative error of each signal in the 2-norm; infinity where something is not a number.
template <class T>
std::vector<double> errors(const std::vector<T>& out, const std::vector<std::vector<fft::wide<T>>>& right) {
  std::vector<double> all;
  const T* at = out.data();
  for (const auto& signal : right) {
    all.push_back(test::distance_of(at, signal.data(), static_cast<std::int64_t>(signal.size())).relative());
    at += signal.size();
  }
  return all;
}

template <class T>
std::vector<T> some_data(const scheme_case& what) {
  return test::noise<T>(scheme_test::input_words(what), 7);
}

class device_here {
 public:
  explicit device_here(const scheme_case& what) : current_(std::make_shared<simt::emulated_device>(scheme_test::device_for(what))) {
    scheme_test::replace_cufft();
  }
  ~device_here() { fft::cuda::override_cufft({}); }

 private:
  test::current_device_guard current_;
};

class scheme_test_of_cases : public testing::TestWithParam<scheme_case> {
 protected:
  static const scheme_case& what() { return GetParam(); }
  // Calls body(a value of the type of the data) on the emulator.
  template <class Body>
  static void with_data(const Body& body) {
    const device_here device(what());
    if (fft::parse_token(what().token).problem.precision == precision::f32) {
      body(float());
    } else {
      body(double());
    }
  }
};

bool composite(const scheme_case& what) { return what.scheme == "threadblock" || what.scheme.starts_with("multi_transaction"); }
bool can_be_in_place(const scheme_case& what) { return fft::parse_token(what.token).problem.kind == fft::kind::c2c; }
double allowed(const scheme_case& what) { return test::error_bound_of_kind(fft::parse_token(what.token).problem); }
// The error of a result that was repaired: a correction adds the difference of two checksums, with their rounding errors.
template <class T>
constexpr double k_repaired = sizeof(T) == 4 ? 2e-5 : 4e-14;

std::string test_name(const testing::TestParamInfo<scheme_case>& info) { return scheme_test::name_of(info.param); }

// The cases that `wanted` holds of.
std::vector<scheme_case> cases_that(const std::function<bool(const scheme_case&)>& wanted) {
  std::vector<scheme_case> made;
  std::ranges::copy_if(scheme_test::cases(), std::back_inserter(made), wanted);
  return made;
}

class fft_cuda_scheme_test : public scheme_test_of_cases {};
class fft_cuda_protected_scheme_test : public scheme_test_of_cases {};
class fft_cuda_composite_scheme_test : public scheme_test_of_cases {};
class fft_cuda_multi_transaction_test : public scheme_test_of_cases {};
class fft_cuda_kernel_check_test : public scheme_test_of_cases {};

bool is_protected(const scheme_case& what) { return what.protect; }
bool has_large_groups(const scheme_case& what) { return composite(what) && !what.small; }
bool has_several_tiles(const scheme_case& what) { return what.scheme.starts_with("multi_transaction_") && !what.small; }
bool is_checked_by_its_kernels(const scheme_case& what) { return what.protect && what.scheme != "offline"; }

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_scheme_test, testing::ValuesIn(scheme_test::cases()), test_name);
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_protected_scheme_test, testing::ValuesIn(cases_that(is_protected)), test_name);
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_composite_scheme_test, testing::ValuesIn(cases_that(has_large_groups)), test_name);
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_multi_transaction_test, testing::ValuesIn(cases_that(has_several_tiles)), test_name);
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_kernel_check_test, testing::ValuesIn(cases_that(is_checked_by_its_kernels)), test_name);

TEST_P(fft_cuda_scheme_test, are_right_and_clean_without_faults) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    for (const bool in_place : {false, true}) {
      if (in_place && !can_be_in_place(what())) continue;
      const auto seen = scheme_test::execute<T>(what(), what().protection(), nullptr, in, in_place);
      EXPECT_EQ(seen.report.verdict, verdict::clean) << to_json(seen.report);
      EXPECT_EQ(seen.report.scheme, what().scheme);
      if (what().scheme == "end_to_end" && !in_place && fft::parse_token(what().token).problem.shape.size() == 1) {
        EXPECT_EQ(seen.report.checks, static_cast<std::uint64_t>(fft::parse_token(what().token).problem.batch)) << "one for each signal";
      }
      EXPECT_EQ(seen.report.checks > 0, what().protect);
      for (const double error : errors(seen.out, right)) ASSERT_LE(error, allowed(what()));
    }
  });
}

TEST(fft_cuda_schemes, are_refused_where_they_mean_nothing) {
  const device_here device(scheme_test::cases()[0]);
  const auto refused = [](const std::string& scheme, protection level, const std::string& token) {
    try {
      const fft::plan made(fft::parse_token(token).problem, {.backend = backend::cuda, .protection = level, .scheme = scheme});
    } catch (const unsupported_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* scheme : {"v0", "v1", "v2", "tuned"})
    EXPECT_NE(refused(scheme, protection::correct, "fft_c2c_f32_n64_b1_fwd").find("no protection"), std::string::npos) << scheme;
  for (const char* scheme : {"one_sided", "threadblock", "multi_transaction_32"})
    EXPECT_NE(refused(scheme, protection::off, "fft_c2c_f32_n64_b1_fwd").find("expected protection"), std::string::npos) << scheme;
  EXPECT_EQ(refused("verify_before_store", protection::off, "fft_c2c_f32_n64_b1_fwd"), "");
  EXPECT_NE(refused("v0", protection::off, "fft_c2c_f32_n60_b1_fwd").find("power of two"), std::string::npos);
  const std::string unknown = refused("multi_transaction_3", protection::correct, "fft_c2c_f32_n64_b1_fwd");
  for (const auto name : fft::cuda::schemes()) EXPECT_NE(unknown.find(name), std::string::npos) << name;
}

// A fault that doubles or halves a number: what a composite sees it corrects, in place or not.
TEST_P(fft_cuda_protected_scheme_test, correct_what_is_struck_between_load_and_store) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    int corrected = 0;
    int missed = 0;
    int runs = 0;
    for (const auto where : {fft::site::input, fft::site::stage, fft::site::intermediate, fft::site::output, fft::site::twiddle}) {
      // These schemes see nothing else.
      if (what().scheme == "thread" && where != fft::site::stage) continue;
      if (what().scheme == "offline" && where != fft::site::output) continue;
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        SCOPED_TRACE(std::string(inject::row_of(where).name) + " seed " + std::to_string(seed));
        const bool in_place = can_be_in_place(what()) && seed % 2 == 1;
        inject::plan faults;
        faults.add({.site = where, .model = inject::model::bit_flip, .seed = seed, .bit = sizeof(T) == 4 ? 23 : 52});
        const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, in_place);
        ++runs;
        EXPECT_NE(seen.report.verdict, verdict::uncorrectable);
        EXPECT_EQ(seen.report.false_alarms, 0u);
        if (seen.report.verdict == verdict::clean) {
          ++missed;  // the word was not in use, or the effect is below the floor: the result must be good in any case
        } else {
          EXPECT_EQ(seen.report.detected, 1u);
          corrected += seen.report.verdict == verdict::corrected;
        }
        for (const double error : errors(seen.out, right)) ASSERT_LT(error, k_repaired<T>);
      }
    }
    EXPECT_LE(missed, runs / 2);
    EXPECT_GE(corrected, !composite(what()) ? 0 : what().small ? runs / 5 : runs / 3);
  });
}

// NaN, Inf and numbers of any size: a composite cannot correct them.
TEST_P(fft_cuda_protected_scheme_test, never_pass_what_they_cannot_correct) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    int repaired = 0;
    for (const auto model :
         {inject::model::nan, inject::model::infinity, inject::model::random_value, inject::model::vector_mask, inject::model::stuck_at}) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(std::string(inject::k_model_names[static_cast<std::size_t>(model)]) + " seed " + std::to_string(seed));
        const bool in_place = can_be_in_place(what()) && seed % 2 == 1;
        inject::plan faults;
        const auto where = what().scheme == "offline"              ? fft::site::output
                           : seed < 2 || what().scheme == "thread" ? fft::site::stage
                                                                   : fft::site::input;
        faults.add({.site = where, .model = model, .seed = seed});
        const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, in_place);
        if (seen.report.verdict == verdict::uncorrectable) {
          EXPECT_TRUE(in_place || model == inject::model::stuck_at);
          continue;
        }
        SCOPED_TRACE(to_json(seen.report));
        repaired += seen.report.verdict != verdict::clean;
        for (const double error : errors(seen.out, right)) ASSERT_LT(error, k_repaired<T>);
      }
    }
    EXPECT_GE(repaired, 5);
  });
}

TEST_P(fft_cuda_composite_scheme_test, locate_the_signal) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    std::set<std::int64_t> places;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      inject::plan faults;
      faults.add({.site = fft::site::stage, .model = inject::model::bit_flip, .seed = seed, .bit = sizeof(T) == 4 ? 25 : 54});
      const auto seen = scheme_test::execute<T>(what(), protection::detect, &faults, in, false);
      if (seen.report.detected == 0) continue;
      EXPECT_EQ(seen.report.verdict, verdict::uncorrectable);
      ASSERT_EQ(seen.report.events.size(), 1u);
      const event& told = seen.report.events[0];
      EXPECT_EQ(told.site, "fft.composite");
      EXPECT_GT(told.residual, told.threshold);
      const auto off = errors(seen.out, right);
      const auto worst = std::ranges::max_element(off);
      if (*worst < allowed(what())) continue;  // it struck a number that is not stored
      EXPECT_EQ(told.index, worst - off.begin());
      places.insert(told.index);
    }
    EXPECT_GE(places.size(), 3u);
  });
}

// Equal faults in equal signals must not cancel: in two tiles of a group, and in all of them.
TEST_P(fft_cuda_multi_transaction_test, see_equal_faults_of_equal_signals) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const std::string many = "multi_transaction_";
    const std::int64_t group = std::stoll(what().scheme.substr(many.size()));
    std::vector<T> in = some_data<T>(what());
    const std::size_t one = in.size() / static_cast<std::size_t>(fft::parse_token(what().token).problem.batch);
    for (std::size_t i = one; i < in.size(); ++i) in[i] = in[i - one];
    const auto right = expected(what(), in);
    int found = 0;
    std::vector<std::vector<std::int64_t>> struck(1);
    for (std::int64_t g = 0; g < group; ++g) struck[0].push_back(g);
    for (std::int64_t g = 1; g < group; g += std::max<std::int64_t>(1, group / 4)) struck.push_back({0, g});
    for (const auto& tiles : struck) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(std::to_string(tiles.size()) + " faults, the last in tile " + std::to_string(tiles.back()) + ", seed " +
                     std::to_string(seed));
        inject::plan faults;
        for (const std::int64_t tile : tiles)
          faults.add({.site = fft::site::stage,
                      .model = inject::model::bit_flip,
                      .seed = seed,
                      .bit = sizeof(T) == 4 ? 25 : 54,
                      .interval = tile});
        const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, false);
        found += seen.report.verdict != verdict::clean ? 1 : 0;
        EXPECT_NE(seen.report.verdict, verdict::uncorrectable);
        for (const double error : errors(seen.out, right)) ASSERT_LT(error, k_repaired<T>);
      }
    }
    EXPECT_GE(found, static_cast<int>(struck.size()));
  });
}

// A fault in the check alone changes nothing but the report.
TEST_P(fft_cuda_kernel_check_test, recognise_faults_of_the_check) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    for (const auto where : {fft::site::checksum, fft::site::threshold, fft::site::comparison}) {
      SCOPED_TRACE(std::string(inject::row_of(where).name));
      inject::plan faults;
      faults.add({.site = where, .model = inject::model::nan, .seed = 5});
      const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, false);
      EXPECT_EQ(seen.report.verdict, verdict::recomputed);
      EXPECT_EQ(seen.report.false_alarms, 1u);
      for (const double error : errors(seen.out, right)) ASSERT_LE(error, allowed(what()));
    }
  });
}

TEST_P(fft_cuda_protected_scheme_test, repair_several_faults_out_of_place) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto in = some_data<T>(what());
    const auto right = expected(what(), in);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      inject::plan faults;
      faults.add({.site = what().scheme == "offline" ? fft::site::output : fft::site::stage,
                  .model = inject::model::bit_flip,
                  .count = 6,
                  .seed = seed,
                  .bit = sizeof(T) == 4 ? 24 : 53});
      const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, false);
      EXPECT_NE(seen.report.verdict, verdict::uncorrectable);
      EXPECT_NE(seen.report.verdict, verdict::clean);
      for (const double error : errors(seen.out, right)) ASSERT_LT(error, k_repaired<T>);
    }
  });
}

// Signals that are equal, of any size, zero, or not numbers are no faults, also in place.
TEST_P(fft_cuda_protected_scheme_test, raise_no_alarm_for_unusual_data) {
  with_data([](auto zero) {
    using T = decltype(zero);
    const auto usual = some_data<T>(what());
    const std::size_t one = usual.size() / static_cast<std::size_t>(fft::parse_token(what().token).problem.batch);
    const auto check = [&](const char* name, auto&& element) {
      SCOPED_TRACE(name);
      std::vector<T> in(usual);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = element(i, in[i]);
      const auto seen = scheme_test::execute<T>(what(), protection::correct, nullptr, in, can_be_in_place(what()));
      EXPECT_EQ(seen.report.verdict, verdict::clean);
      if (what().scheme != "end_to_end") return seen.out;
      const auto apart = scheme_test::execute<T>(what(), protection::correct, nullptr, in, false);
      EXPECT_EQ(apart.report.verdict, verdict::clean) << to_json(apart.report);
      return apart.out;
    };
    check("zero", [](std::size_t, T) { return T(0); });
    check("constant", [](std::size_t, T) { return T(0.7); });
    check("equal signals", [&](std::size_t i, T) { return usual[i % one]; });
    check("every third signal", [&](std::size_t i, T x) { return i / one % 3 == 0 ? usual[i % one] : T(1e-3) * x; });
    check("tiny", [](std::size_t, T x) { return x * T(sizeof(T) == 4 ? 1e-30 : 1e-280); });
    check("smallest", [](std::size_t, T x) { return x > T(0) ? std::numeric_limits<T>::denorm_min() : T(0); });
    check("huge", [](std::size_t, T x) { return x * T(sizeof(T) == 4 ? 1e30 : 1e290); });
    check("one huge signal", [&](std::size_t i, T x) { return i / one == 1 ? x * T(sizeof(T) == 4 ? 1e33 : 1e290) : x; });
    const auto out =
        check("one that is not a number", [&](std::size_t i, T x) { return i == one + 2 ? std::numeric_limits<T>::quiet_NaN() : x; });
    const std::size_t stored = out.size() / (usual.size() / one);
    // The imaginary part of the first output is a sum of imaginary parts alone, where factors that are 1 are not multiplied.
    const std::size_t step = stored % 2 == 0 ? 2 : 1;
    for (std::size_t i = 0; i < out.size(); i += step) EXPECT_EQ(std::isnan(out[i]) || std::isnan(out[i + step - 1]), i / stored == 1) << i;
  });
}

}  // namespace
