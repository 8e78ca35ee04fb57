// What holds of the FFT on every backend: accuracy of every case in every order of threads, strides that are kept, results in place and
// without protection, Inf and NaN as data; faults at every site, and clean data of every kind without a false alarm.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_target.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

using test::same;
using test::subject;

// Norms differ in a factor at the end: once is enough where a test is slow.
bool usual_norm(const run_of_case& run) { return run.targets.front()->where() == backend::cuda || run.which.norm == norm::backward; }

// ---- Accuracy, places ----

TEST(fft, every_case_is_accurate_whatever_the_order_of_threads) {
  double worst = 0;
  for_each(every_run(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    std::vector<T> first;
    for (int order = 1; order <= orders(); ++order) {
      const auto prepared = on.prepare(run.which, static_cast<std::uint64_t>(order));
      std::vector<T> out = given.fresh();
      const plan made(given.problem, on.how(static_cast<std::uint64_t>(order), protection::correct));
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      EXPECT_EQ(seen.backend, on.where());
      EXPECT_EQ(seen.problem, run.which.token);
      EXPECT_GE(seen.checks, on.where() == backend::cuda ? static_cast<std::uint64_t>(given.signals()) : 1u);
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
  });
  RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
}

TEST(fft, results_are_the_same_in_place_and_without_protection) {
  for_each(every_run(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    constexpr std::uint64_t order = 5;
    const auto prepared = on.prepare(run.which, order);
    const plan made(given.problem, on.how(order, protection::correct));
    std::vector<T> wanted = given.fresh();
    ASSERT_EQ(given.run(made, wanted).verdict, verdict::clean);
    if (given.can_be_in_place()) {
      const placed<T> memory(on, given.in);
      EXPECT_EQ(given.run(made, memory.data(), memory.data()).verdict, verdict::clean);
      const auto out = memory.read();
      for (std::int64_t b = 0; b < given.signals(); ++b) EXPECT_EQ(given.got(out, b), given.got(wanted, b)) << "in place, signal " << b;
    }
    if (given.shape.kind != kind::c2c && !run.which.strided()) {
      subject<T> padded(test::in_place_problem(given.problem), given.way, 0);
      padded.set(test::pack(given.shape.input, given.signals(), given.in.data()));
      const plan here(padded.problem, on.how(order, protection::correct));
      std::vector<T> both = padded.in;
      both.resize(std::max(both.size(), padded.fresh().size()));
      const placed<T> memory(on, both);
      EXPECT_EQ(padded.run(here, memory.data(), memory.data()).verdict, verdict::clean);
      const auto out = memory.read();
      for (std::int64_t b = 0; b < given.signals(); ++b) EXPECT_EQ(padded.got(out, b), given.got(wanted, b)) << "in place, signal " << b;
    }
    if ((run.which.uses & k_bare) != 0) {
      const plan bare(given.problem, on.how(order, protection::off));
      std::vector<T> out = given.fresh();
      const report seen = given.run(bare, out);
      EXPECT_EQ(seen.checks, 0u);
      EXPECT_TRUE(same(out, wanted) || !on.same_arithmetic(given, false)) << "protection changes no bit";
    }
  });
}

// ---- Faults ----

TEST(fft, every_site_and_model_is_survived) {
  int compared = 0, compared_passes = 0;
  std::map<inject::site, int> found_anywhere, damaged_anywhere;
  for_each(fault_runs(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    const bool emulated = on.where() == backend::cuda;
    const auto number = static_cast<std::size_t>(&run - fault_runs().data());
    constexpr std::uint64_t order = 11;
    const auto prepared = on.prepare(run.which, order);
    struck_case<T> under(on, order, given);
    const bool comparable = on.same_arithmetic(given, true);
    compared += comparable ? 1 : 0;
    compared_passes += comparable && (run.which.where == machine::small || run.which.where == machine::paired) ? 1 : 0;
    for (const inject::site_row& row : inject::k_sites) {
      if (row.operation != "fft" && !row.operation.empty()) continue;
      const bool data = row.role == inject::site_role::data;
      int changed_at_site = 0, found_at_site = 0, damaged_at_site = 0;
      for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
        // Which models are left out depends on the site and the case, so that the cases together try every model at every site.
        if ((m + (emulated ? static_cast<std::size_t>(row.site) + number : 0)) % static_cast<std::size_t>(run.model_step) != 0) continue;
        for (const bool in_place : {false, true}) {
          if (in_place && !given.can_be_in_place()) continue;
          int changed = 0, found = 0, trials = 0;
          for (int seed = 0; seed < run.repeats; ++seed) {
            // The emulator runs each seed in one of the two places.
            if (emulated && given.can_be_in_place() && in_place != (seed % 2 == 1)) continue;
            ++trials;
            inject::request wanted;
            wanted.site = row.site;
            wanted.model = static_cast<inject::model>(m);
            wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
            wanted.bit = 62;
            SCOPED_TRACE(fmt::format("{} {} seed {}{}", row.name, inject::k_model_names[m], wanted.seed, in_place ? " in place" : ""));
            under.faults = inject::plan({wanted});
            const auto execute = [&](const plan& by, std::vector<T>& out) {
              out = given.fresh();
              if (!in_place) return given.run(by, out);
              const placed<T> memory(on, given.in);
              const report seen = given.run(by, memory.data(), memory.data());
              out = memory.read();
              // What lies between the elements is as it was in the input.
              const std::vector<T> gaps = given.in;
              for (std::size_t i = 0; i < out.size(); ++i) {
                if (std::isnan(gaps[i])) out[i] = subject<T>::k_untouched;
              }
              return seen;
            };
            std::vector<T> out;
            double off_effect = 0;
            if (data) {
              (void)execute(under.bare, out);
              off_effect = under.effect(out);
              changed += off_effect > 0 ? 1 : 0;
            }
            const report seen = execute(under.guarded, out);
            found += seen.verdict != verdict::clean ? 1 : 0;
            ASSERT_EQ(seen.detected, seen.corrected + seen.recomputed + seen.uncorrectable) << to_json(seen);
            if (emulated) {
              ASSERT_EQ(seen.events.size(), seen.detected);
            }
            for (const event& one : seen.events) {
              damaged_at_site += one.damaged ? 1 : 0;
              if (emulated) {
                ASSERT_TRUE(one.damaged || (one.index >= 0 && one.index < given.signals())) << to_json(one);
              }
            }
            if (seen.verdict == verdict::uncorrectable) {
              ASSERT_EQ(wanted.model, inject::model::stuck_at) << to_json(seen);
              continue;
            }
            ASSERT_LE(under.effect(out), seen.verdict == verdict::clean ? on.floor() : 0) << to_json(seen);
            // A struck check must not spoil data.
            ASSERT_TRUE(data || under.effect(out) == 0);
            ASSERT_TRUE(!comparable || off_effect <= on.floor() || seen.verdict != verdict::clean) << "effect " << off_effect;
            if (emulated) {
              ASSERT_TRUE(row.role != inject::site_role::checker || seen.false_alarms == seen.recomputed) << to_json(seen);
            }
          }
          changed_at_site += changed;
          found_at_site += found;
          if (emulated || trials == 0) continue;
          EXPECT_TRUE(found == trials || row.role != inject::site_role::repair) << row.name;
          // Where every model strikes often, each must reach the output of the unprotected transform.
          EXPECT_TRUE(changed > 0 || !data || test::sampled() || run.repeats < 3) << row.name << " " << inject::k_model_names[m];
        }
      }
      EXPECT_EQ(changed_at_site > 0, data) << row.name;
      found_anywhere[row.site] += found_at_site;
      damaged_anywhere[row.site] += damaged_at_site;
      if (test::sampled()) continue;  // fewer strikes in each case
      EXPECT_GT(found_at_site, 0) << row.name;
      if (emulated) {
        EXPECT_EQ(damaged_at_site > 0, row.role == inject::site_role::repair) << row.name;
      }
    }
  });
  const bool emulation = fault_runs().front().targets.front()->where() == backend::cuda;
  for (const auto& [site, found] : found_anywhere) {
    EXPECT_GT(found, 0) << inject::row_of(site).name;
    if (emulation) {
      EXPECT_EQ(damaged_anywhere[site] > 0, inject::row_of(site).role == inject::site_role::repair) << inject::row_of(site).name;
    }
  }
  EXPECT_GE(compared, 5);
  EXPECT_GE(compared_passes, emulation ? 1 : 0);
}

TEST(fft, random_flips_above_the_floor_are_all_found) {
  for_each(flip_runs(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on.prepare(run.which, order);
    ASSERT_TRUE(on.same_arithmetic(given, true)) << "the tests' tuning table sees to it";
    struck_case<T> under(on, order, given);
    int above = 0;
    for (int trial = 0; trial < run.repeats; ++trial) {
      inject::request wanted;
      wanted.site = trial % 4 == 0 ? inject::site::fft_input : trial % 4 == 1 ? inject::site::fft_output : inject::site::fft_stage;
      wanted.seed = static_cast<std::uint64_t>(trial);
      under.faults = inject::plan({wanted});
      std::vector<T> bare = given.fresh(), out = given.fresh();
      (void)given.run(under.bare, bare);
      const report seen = given.run(under.guarded, out);
      ASSERT_LE(under.effect(out), on.floor()) << trial;
      if (under.effect(bare) > on.floor()) {
        ++above;
        ASSERT_EQ(seen.verdict, verdict::recomputed) << trial << " effect " << under.effect(bare);
      }
    }
    EXPECT_GT(above, run.repeats / 8);
  });
}

TEST(fft, detection_only_reports_and_persistent_faults_throw) {
  for_each(persistent_runs(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on.prepare(run.which, order);
    inject::request wanted;
    wanted.site = inject::site::fft_stage;
    wanted.model = inject::model::stuck_at;
    wanted.interval = 0;
    const inject::plan faults({wanted});
    std::vector<T> out = given.fresh();
    const report watched = given.run(plan(given.problem, on.how(order, protection::detect, &faults)), out);
    EXPECT_EQ(watched.verdict, verdict::uncorrectable);
    EXPECT_EQ(watched.detected, 1u);
    ASSERT_EQ(watched.events.size(), 1u);
    EXPECT_EQ(watched.events[0].site, on.signal_site());
    EXPECT_FALSE(watched.events[0].residual <= watched.events[0].threshold);  // it may be NaN

    execution how = on.how(order, protection::correct, &faults);
    how.throw_on_uncorrectable = true;
    int events = 0;
    how.on_event = [&](const event& one) {
      ++events;
      EXPECT_EQ(one.site, on.signal_site());
      EXPECT_FALSE(one.residual <= one.threshold);
    };
    out = given.fresh();
    try {
      (void)given.run(plan(given.problem, how), out);
      ADD_FAILURE() << "expected an uncorrectable fault";
    } catch (const uncorrectable_error& e) {
      EXPECT_EQ(e.report().uncorrectable, 1u);
      EXPECT_EQ(events, 1);
      ASSERT_EQ(e.report().events.size(), 1u);
      for (const T x : given.got(out, e.report().events[0].index))
        ASSERT_EQ(x, subject<T>::k_untouched) << "a signal that failed must not be stored";
      // The emulator's results are copied from device memory at the end: nothing of them arrives.
      if (on.where() == backend::cuda) {
        EXPECT_TRUE(same(out, given.fresh()));
      }
    }
  });
}

TEST(fft, several_faults_in_several_tiles_are_repaired) {
  for_each(many_tile_runs(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on.prepare(run.which, order);
    struck_case<T> under(on, order, given);
    inject::request wanted;
    wanted.site = inject::site::fft_output;
    wanted.model = inject::model::nan;
    wanted.count = 4;
    under.faults = inject::plan({wanted});
    std::vector<T> out = given.fresh();
    const report seen = given.run(under.guarded, out);
    EXPECT_EQ(seen.verdict, verdict::recomputed);
    EXPECT_GE(seen.recomputed, 2u);
    EXPECT_EQ(under.effect(out), 0);
  });
}

// ---- Clean data of every kind ----

TEST(fft, no_false_alarm_on_clean_data_of_every_kind) {
  for_each(every_run(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& usual) {
    const std::int64_t points = usual.points();
    const fft::side& input = usual.shape.input;
    if (!usual_norm(run) || (test::sampled() && points * usual.signals() > 3000)) return;
    constexpr std::uint64_t order = 32;
    const auto prepared = on.prepare(run.which, order);
    subject<T> given = usual;
    const plan made(given.problem, on.how(order, protection::correct));
    std::uint64_t seed = 5;
    for (const std::string_view kind : test::k_fillings) {
      SCOPED_TRACE(kind);
      const std::vector<T> packed = test::filled<T>(kind, input, given.signals(), ++seed);
      given.set(packed);
      std::vector<T> out = given.fresh();
      const report seen = given.run(made, out);
      ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      if (points > 128 && kind != "huge" && kind != "subnormal" && kind != "scales") continue;
      // What gradual underflow adds to a relative error.
      const double tiny = 8 * static_cast<double>(std::numeric_limits<T>::denorm_min()) * static_cast<double>(points);
      for (std::int64_t b = 0; b < std::min<std::int64_t>(given.signals(), 3); ++b) {
        const auto& wanted = given.wanted(b);
        // Relative to the data where that is more: sums of equal numbers cancel. Norms of f32 in double, of f64 in long double: neither
        // leaves its range.
        wide<T> squares = 0;
        for (const auto x : wanted) squares += x * x;
        const auto words = test::words_of_signal(input);
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
  });
}

TEST(fft, infinity_and_nan_are_data) {
  for_each(every_run(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& usual) {
    using limits = std::numeric_limits<T>;
    if (usual.signals() < 2 || !usual_norm(run) || (test::sampled() && usual.points() * usual.signals() > 3000)) return;
    constexpr std::uint64_t order = 41;
    const auto prepared = on.prepare(run.which, order);
    const fft::side& input = usual.shape.input;
    const plan made(usual.problem, on.how(order, protection::correct));
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
        const auto y = given.got(out, b);
        if (b != 1) {
          ASSERT_EQ(y, given.got(clean, b)) << "a neighbour's Inf or NaN must stay there";
          continue;
        }
        const std::size_t together = given.shape.output.real ? 1 : 2;
        std::size_t finite = 0;
        for (std::size_t i = 0; i < y.size(); i += together) finite += std::isfinite(y[i]) && std::isfinite(y[i + together - 1]) ? 1 : 0;
        // Half spectra that are not taken in pairs multiply an Inf by no zero: it adds nothing to the outputs a quarter turn away.
        ASSERT_LE(finite, run.which.where == machine::general && given.shape.output.real ? y.size() / 2 : 0) << value;
      }
    }
  });
}

TEST(fft, overflow_that_the_data_cause_is_no_fault) {
  for_each(persistent_runs(), [&]<class T>(const target& on, const run_of_case& run, const subject<T>& usual) {
    constexpr std::uint64_t order = 1;
    const auto prepared = on.prepare(run.which, order);
    subject<T> given = usual;
    given.set(std::vector<T>(static_cast<std::size_t>(test::words_of_signal(given.shape.input) * given.signals()),
                             std::numeric_limits<T>::max()));
    std::vector<T> out = given.fresh();
    const report seen = given.run(plan(given.problem, on.how(order, protection::correct)), out);
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_FALSE(std::isfinite(out[0]));
  });
}

}  // namespace
}  // namespace ballast::fft
