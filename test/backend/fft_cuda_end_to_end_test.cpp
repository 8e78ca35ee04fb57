// The scheme end_to_end on the emulator: faults in memory between the passes, damaged weights, verdicts that are lost, faults at every
// site, and how far residuals of clean data stay below their threshold. fft_cuda_schemes_test.cpp has what every scheme must do.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "abft/verify.hpp"
#include "backend/fft_cuda_schemes.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/sites.hpp"
#include "inject/sites.hpp"
#include "support/devices.hpp"
#include "support/fft_tolerances.hpp"

namespace {

using namespace ballast;
using fft::cuda::line_arguments;
using scheme_test::scheme_case;

// Calls a function before and after each launch of a kernel without an injector.
class hooked_device final : public test::forwarding_device {
 public:
  using hook = std::function<void(int launch, line_arguments&)>;
  using forwarding_device::forwarding_device;
  hook before, after;

  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    if (size != sizeof(line_arguments)) return inner_->launch(which, blocks, arguments, on);
    line_arguments given;
    std::memcpy(&given, argument, size);
    const int number = launches_++;
    if (before) before(number, given);
    inner_->launch(which, blocks, &given, size, on);
    if (after) after(number, given);
  }
  void count_from_zero() { launches_ = 0; }

 private:
  int launches_ = 0;
};

class fft_cuda_end_to_end_test : public testing::TestWithParam<scheme_case> {
 protected:
  static const scheme_case& what() { return GetParam(); }
  static std::int64_t batch() { return fft::parse_token(what().token).problem.batch; }
  // Lines of more than 4096 points take three passes on the device of these tests.
  static int passes() { return fft::parse_token(what().token).problem.shape[0] > 4096 ? 3 : 2; }

  // Calls body(a value of the type of the data, the device).
  template <class Body>
  static void with_device(const Body& body) {
    const auto device = std::make_shared<hooked_device>(std::make_shared<simt::emulated_device>(scheme_test::device_for(what())));
    const test::current_device_guard current(device);
    if (fft::parse_token(what().token).problem.precision == precision::f32) {
      body(float(), *device);
    } else {
      body(double(), *device);
    }
  }
  template <class T>
  static scheme_test::result<T> run(hooked_device& on, const std::vector<T>& in, bool in_place = false) {
    on.count_from_zero();
    return scheme_test::execute<T>(what(), protection::correct, nullptr, in, in_place);
  }
  template <class T>
  static std::vector<T> some_data() {
    return test::noise<T>(scheme_test::input_words(what()), 7);
  }
  // The largest relative error of a signal.
  template <class T>
  static double error_of(const std::vector<T>& in, const std::vector<T>& out) {
    const fft::token parsed = fft::parse_token(what().token);
    const fft::geometry shape = fft::resolve(parsed.problem);
    double worst = 0;
    const T* at = out.data();
    for (std::int64_t b = 0; b < batch(); ++b) {
      const auto right = test::reference<T>(parsed.problem, parsed.direction, shape, in.data(), b);
      worst = std::max(worst, test::distance_of(at, right.data(), static_cast<std::int64_t>(right.size())).relative());
      at += right.size();
    }
    return worst;
  }
  static double floor() { return test::k_floor * test::effect_unit(fft::parse_token(what().token).problem); }
};

std::vector<scheme_case> lines_of_several_passes() {
  std::vector<scheme_case> made = scheme_test::cases();
  std::erase_if(
      made, [](const scheme_case& each) { return each.scheme != "end_to_end" || fft::parse_token(each.token).problem.shape.size() != 1; });
  return made;
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_end_to_end_test, testing::ValuesIn(lines_of_several_passes()),
                         [](const auto& info) { return scheme_test::name_of(info.param); });

// A number that changes in memory between two passes. In place no check sees it, because each pass is checked by itself.
TEST_P(fft_cuda_end_to_end_test, sees_and_repairs_what_changes_between_the_passes) {
  with_device([]<class T>(T, hooked_device& device) {
    const auto in = some_data<T>();
    const auto clean = run(device, in);
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    std::mt19937_64 random(3);
    const auto words = in.size();
    int seen_in_place = 0;
    for (int trial = 0; trial < 8; ++trial) {
      const std::size_t word = random() % words;
      const int after = static_cast<int>(random() % static_cast<unsigned>(passes() - 1));
      device.after = [&](int launch, line_arguments& a) {
        if (launch == after) static_cast<T*>(a.out)[word] += T(3);
      };
      SCOPED_TRACE(fmt::format("word {} after launch {}", word, after));
      const auto seen = run(device, in);
      EXPECT_EQ(seen.report.verdict, verdict::recomputed) << to_json(seen.report);
      EXPECT_EQ(seen.report.detected, 1u);
      EXPECT_EQ(seen.report.false_alarms, 0u);
      ASSERT_FALSE(seen.report.events.empty());
      EXPECT_EQ(seen.report.events[0].site, "fft.whole_line");
      EXPECT_EQ(seen.report.events[0].index, static_cast<std::int64_t>(word) / (static_cast<std::int64_t>(words) / batch()));
      EXPECT_EQ(seen.out, clean.out);
      const auto in_place = run(device, in, true);
      EXPECT_GT(error_of(in, in_place.out), floor());
      seen_in_place += in_place.report.verdict != verdict::clean ? 1 : 0;
      device.after = {};
    }
    EXPECT_EQ(seen_in_place, 0);
  });
}

// Damaged weights of one side, here zeros, make every signal fail.
TEST_P(fft_cuda_end_to_end_test, fails_with_damaged_weights) {
  with_device([]<class T>(T, hooked_device& device) {
    const auto in = some_data<T>();
    const auto clean = run(device, in);
    const ballast::cuda::device_buffer zeros(ballast::cuda::current_device(), 1 << 20);
    std::memset(zeros.data(), 0, 1 << 20);
    const int last = passes() - 1;
    for (const int table : {0, 1, 2}) {
      device.before = [&](int launch, line_arguments& a) {
        if (launch == 0 && table == 0) a.encode = zeros.data();
        if (launch == last && table == 1) a.verify = zeros.data();
        if (launch == last && table == 2) a.whole_line.line_weights = zeros.data();
      };
      const auto seen = run(device, in);
      device.before = {};
      EXPECT_EQ(seen.report.detected, static_cast<std::uint64_t>(batch())) << "table " << table;
      EXPECT_EQ(seen.report.false_alarms, static_cast<std::uint64_t>(batch()));
      EXPECT_EQ(seen.out, clean.out);
    }
  });
}

// A verdict that is missing, or differs between its two words, costs a repair. A result that is wrong then is reported.
TEST_P(fft_cuda_end_to_end_test, trusts_no_verdict_that_is_damaged) {
  with_device([]<class T>(T, hooked_device& device) {
    const auto in = some_data<T>();
    const auto clean = run(device, in);
    const int last = passes() - 1;
    const auto signal = static_cast<std::size_t>(batch() - 1);
    for (const bool wrong : {false, true}) {
      for (const int which : {0, 1, 2}) {
        device.after = [&](int launch, line_arguments& a) {
          if (launch != last) return;
          auto& record = a.whole_line.records[signal];
          EXPECT_EQ(record.state, abft::k_pass);
          if (which != 1) record.state = 0;
          if (which != 0) record.twin = 0;
          if (wrong) static_cast<T*>(a.out)[signal * in.size() / static_cast<std::size_t>(batch()) + 5] += T(1);
        };
        const auto seen = run(device, in);
        device.after = {};
        EXPECT_EQ(seen.report.verdict, wrong ? verdict::recomputed : verdict::clean) << to_json(seen.report);
        EXPECT_EQ(seen.report.false_alarms, 0u);
        EXPECT_EQ(seen.out, clean.out);
        if (wrong) {
          ASSERT_FALSE(seen.report.events.empty());
          EXPECT_EQ(seen.report.events[0].index, static_cast<std::int64_t>(signal));
        }
      }
    }
  });
}

// A struck count of arrivals costs the verdict, so the line is repaired; a result that is wrong then is reported all the same.
TEST_P(fft_cuda_end_to_end_test, trusts_no_count_that_is_damaged) {
  with_device([]<class T>(T, hooked_device& device) {
    const auto in = some_data<T>();
    const auto clean = run(device, in);
    const int last = passes() - 1;
    for (const std::uint32_t count : {1000u, 0x80000000u}) {
      for (const bool wrong : {false, true}) {
        SCOPED_TRACE(fmt::format("count {} wrong {}", count, wrong));
        device.before = [&](int launch, line_arguments& a) {
          if (launch == last) a.whole_line.records[0].arrived += count;
        };
        device.after = [&](int launch, line_arguments& a) {
          if (wrong && launch == last) static_cast<T*>(a.out)[5] += T(1);
        };
        const auto seen = run(device, in);
        device.before = device.after = {};
        EXPECT_EQ(seen.report.verdict, wrong ? verdict::recomputed : verdict::clean) << to_json(seen.report);
        EXPECT_EQ(seen.out, clean.out);
        ASSERT_EQ(seen.report.events.size(), wrong ? 1u : 0u);
        if (wrong) {
          EXPECT_EQ(seen.report.events[0].index, 0);
        }
        EXPECT_EQ(run(device, in).report.verdict, verdict::clean);  // the next call counts from 0
      }
    }
  });
}

// Numbers whose squares overflow or vanish say nothing about the sums: such lines are computed again with the careful check. That is no
// alarm for clean data, and repairs what changed between the passes. 10^±18 and 10^±30 in f32, 10^±144 and 10^±240 in f64.
TEST_P(fft_cuda_end_to_end_test, judges_numbers_that_are_very_large_or_small) {
  with_device([]<class T>(T, hooked_device& device) {
    for (const int exponent : {-30, -18, 18, 30}) {
      const T scale = std::pow(T(10), static_cast<T>(sizeof(T) == 4 ? exponent : 8 * exponent));
      for (const bool wrong : {false, true}) {
        SCOPED_TRACE(fmt::format("scale {} wrong {}", scale, wrong));
        auto in = some_data<T>();
        for (T& each : in) each *= scale;
        device.after = [&](int launch, line_arguments& a) {
          if (wrong && launch == 0) static_cast<T*>(a.out)[7] += 3 * scale;
        };
        const auto seen = run(device, in);
        device.after = {};
        EXPECT_EQ(seen.report.verdict, wrong ? verdict::recomputed : verdict::clean) << to_json(seen.report);
        EXPECT_EQ(seen.report.detected, wrong ? 1u : 0u);
        EXPECT_EQ(seen.report.false_alarms, 0u);
        EXPECT_LT(error_of(in, seen.out), floor());
      }
    }
  });
}

// A repair runs only for what failed: it changes nothing in other signals, and nothing at all with protection::detect.
TEST_P(fft_cuda_end_to_end_test, repairs_nothing_that_passed) {
  with_device([]<class T>(T, hooked_device& device) {
    const auto in = some_data<T>();
    const int last = passes() - 1;
    const auto clean = run(device, in);
    device.after = [&](int launch, line_arguments& a) {
      if (launch == last) static_cast<T*>(a.out)[5] += T(1);  // after the verdict
    };
    const auto seen = run(device, in);
    EXPECT_EQ(seen.report.verdict, verdict::clean);
    EXPECT_EQ(seen.out[5], clean.out[5] + T(1));
    device.after = [&](int launch, line_arguments& a) {
      if (launch == 0) static_cast<T*>(a.out)[5] += T(3);
    };
    device.count_from_zero();
    const auto told = scheme_test::execute<T>(what(), protection::detect, nullptr, in, false);
    device.after = {};
    EXPECT_EQ(told.report.verdict, verdict::uncorrectable);
    EXPECT_EQ(told.report.detected, 1u);
    EXPECT_NE(told.out, clean.out);
  });
}

// Every model at every site: what is not reported is below the floor.
TEST_P(fft_cuda_end_to_end_test, hides_no_fault_at_any_site) {
  with_device([]<class T>(T, hooked_device&) {
    const auto in = some_data<T>();
    int detected = 0;
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "fft" && !row.operation().empty()) continue;
      for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
        for (std::uint64_t seed = 0; seed < 2; ++seed) {
          SCOPED_TRACE(fmt::format("{} {} seed {}", row.name, inject::k_model_names[m], seed));
          inject::plan faults;
          faults.add({.site = row.site, .model = static_cast<inject::model>(m), .seed = seed * 1000 + m, .bit = sizeof(T) == 4 ? 27 : 58});
          const auto seen = scheme_test::execute<T>(what(), protection::correct, &faults, in, false);
          detected += seen.report.detected > 0 ? 1 : 0;
          if (seen.report.verdict == verdict::uncorrectable) continue;
          ASSERT_LT(error_of(in, seen.out), floor()) << to_json(seen.report);
        }
      }
    }
    EXPECT_GT(detected, 20);
  });
}

// The largest share of the threshold that rounding takes, over data of many kinds. RMS and maximum are in docs/notebook/fft-cuda.md.
TEST_P(fft_cuda_end_to_end_test, stays_below_the_threshold_with_clean_data) {
  with_device([]<class T>(T, hooked_device& device) {
    const int last = passes() - 1;
    std::vector<double> shares;
    device.after = [&](int launch, line_arguments& a) {
      if (launch != last) return;
      const auto& e = a.whole_line;
      for (std::uint32_t line = 0; line < e.lines; ++line) {
        double sum[4] = {}, norm = 0;
        const auto add = [&](const void* from, std::uint32_t tiles, double scale) {
          const T* const at = static_cast<const T*>(from) + std::size_t{4} * line * tiles;
          for (std::uint32_t i = 0; i < 4 * tiles; ++i) sum[i % 4] += scale * static_cast<double>(at[i]);
        };
        add(e.encoded, e.first_tiles, -static_cast<double>(static_cast<T>(a.check_scale)));
        add(e.summed, e.last_tiles, 1);
        for (std::uint32_t i = 0; i < e.first_tiles; ++i)
          norm += static_cast<double>(static_cast<const T*>(e.squares)[line * e.first_tiles + i]);
        const double residual = std::max(std::abs(sum[0]) + std::abs(sum[1]), std::abs(sum[2]) + std::abs(sum[3]));
        if (norm > 0) shares.push_back(residual / std::sqrt(a.slope[0] * a.slope[0] * norm + a.offset[0] * a.offset[0]));
      }
    };
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal;
    const auto words = static_cast<std::size_t>(scheme_test::input_words(what()));
    const std::size_t one = words / static_cast<std::size_t>(batch());
    const auto numbers = static_cast<double>(one / 2);
    const auto kind = [&](const char* name, const auto& fill) {
      shares.clear();
      for (int trial = 0; trial < (test::sampled() ? 6 : 60); ++trial) {
        std::vector<T> in(words);
        for (std::size_t s = 0; s < words; s += one) fill(in.data() + s);
        EXPECT_EQ(run(device, in).report.verdict, verdict::clean) << name;
      }
      double square = 0, most = 0;
      for (const double share : shares) {
        square += share * share;
        most = std::max(most, share);
      }
      EXPECT_LT(most, 0.75) << name;
      if (!shares.empty())
        fmt::print("{}: {} lines, share of the threshold: RMS {:.3f}, largest {:.3f}\n", name, shares.size(),
                   std::sqrt(square / static_cast<double>(shares.size())), most);
    };
    const auto each = [&](const auto& word) {
      return [&, word](T* x) {
        for (std::size_t i = 0; i < one; ++i) x[i] = static_cast<T>(word(i));
      };
    };
    const auto sparse = [&](int count) {
      return [&, count](T* x) {
        for (int i = 0; i < count; ++i) x[random() % one] = static_cast<T>(normal(random));
      };
    };
    kind("normal", each([&](std::size_t) { return normal(random); }));
    kind("constant", each([&](std::size_t) { return 0.7; }));
    kind("positive", each([&](std::size_t) { return std::abs(normal(random)) + 1; }));
    kind("impulse", sparse(1));
    kind("three impulses", sparse(3));
    kind("heavy tails", each([&](std::size_t) { return normal(random) / (std::abs(normal(random)) + 1e-3); }));
    kind("wave", [&](T* x) {
      const double frequency = static_cast<double>(random() % (one / 2)), begin = normal(random);
      for (std::size_t i = 0; i < one; i += 2) {
        const double angle = 2 * std::acos(-1.0) * frequency * static_cast<double>(i / 2) / numbers + begin;
        x[i] = static_cast<T>(std::cos(angle));
        x[i + 1] = static_cast<T>(std::sin(angle));
      }
    });
  });
}

}  // namespace
