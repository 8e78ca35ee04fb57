// The FFT under faults, on every backend: every model at every site, random flips, faults that persist, several at once, and overflow that
// is no fault.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_target.hpp"
#include "fft/sites.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

using test::same;
using test::subject;

// ---- Every site, every model ----

// The results of the strikes at one site.
struct strikes_at_site {
  int changed = 0;  // reached the output without protection
  int found = 0;
  int damaged = 0;  // events that were hit themselves
};

class fft_fault_test : public fft_test {
 public:
  // Checks the results of all cases together, unless a filter excluded some.
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    if (suite.test_to_run_count() != suite.total_test_count() || suite.failed_test_count() > 0) return;
    const bool emulation = fault_runs().front().emulated();
    for (const auto& [site, found] : found_) EXPECT_GT(found, 0) << inject::row_of(site).name;
    for (const auto& [site, damaged] : damaged_) {
      if (!emulation) continue;
      EXPECT_EQ(damaged > 0, inject::row_of(site).role == inject::site_role::repair) << inject::row_of(site).name;
    }
    EXPECT_GE(comparable_, 5);
    EXPECT_GE(comparable_passes_, emulation && test::chosen_effort() >= test::effort::sample ? 1 : 0);
  }

 protected:
  template <class T>
  static void strike_every_site(const subject<T>& given) {
    constexpr std::uint64_t order = 11;
    const auto prepared = on().prepare(run().which, order);
    struck_case<T> under(on(), run().which, order, given);
    const bool comparable = on().same_arithmetic(given, true);
    comparable_ += comparable ? 1 : 0;
    comparable_passes_ += comparable && (run().which.where == machine::small || run().which.where == machine::paired) ? 1 : 0;
    for (const inject::site_row& row : inject::sites()) {
      if ((row.operation() != "fft" && !row.operation().empty()) || !on().has(run().which, row.site)) continue;
      SCOPED_TRACE(row.name);
      strikes_at_site seen;
      strike_every_model(under, row, comparable, seen);
      if (HasFatalFailure()) return;
      EXPECT_EQ(seen.changed > 0, row.role == inject::site_role::data);
      found_[row.site] += seen.found;
      damaged_[row.site] += seen.damaged;
      if (test::sampled()) continue;  // fewer strikes in each case
      EXPECT_GT(seen.found, 0);
      if (run().emulated()) {
        EXPECT_EQ(seen.damaged > 0, row.role == inject::site_role::repair);
      }
    }
  }

 private:
  template <class T>
  static void strike_every_model(struck_case<T>& under, const inject::site_row& row, bool comparable, strikes_at_site& seen) {
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      // The excluded models depend on the site and the case, so that the cases together try every model at every site.
      const std::size_t number = run().emulated() ? static_cast<std::size_t>(row.site) + run().number : 0;
      if ((m + number) % static_cast<std::size_t>(run().model_step) != 0) continue;
      for (const bool in_place : {false, true}) {
        if (in_place && !under.given.can_be_in_place()) continue;
        SCOPED_TRACE(fmt::format("{}{}", inject::k_model_names[m], in_place ? " in place" : ""));
        strike_every_seed(under, row, m, in_place, comparable, seen);
        if (HasFatalFailure()) return;
      }
    }
  }

  template <class T>
  static void strike_every_seed(struck_case<T>& under, const inject::site_row& row, std::size_t model, bool in_place, bool comparable,
                                strikes_at_site& seen) {
    strikes_at_site here;
    int trials = 0;
    for (int seed = 0; seed < run().repeats; ++seed) {
      // The emulator runs each seed in one of the two places.
      if (run().emulated() && under.given.can_be_in_place() && in_place != (seed % 2 == 1)) continue;
      ++trials;
      inject::request wanted;
      wanted.site = row.site;
      wanted.model = static_cast<inject::model>(model);
      wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + model;
      wanted.bit = 62;
      SCOPED_TRACE(fmt::format("seed {}", wanted.seed));
      under.faults = inject::plan({wanted});
      strike_once(under, row, wanted.model, in_place, comparable, here);
      if (HasFatalFailure()) return;
    }
    seen.changed += here.changed;
    seen.found += here.found;
    seen.damaged += here.damaged;
    if (run().emulated() || trials == 0) return;
    EXPECT_TRUE(here.found == trials || row.role != inject::site_role::repair);
    // If every model strikes often, each must reach the output of the unprotected transform.
    EXPECT_TRUE(here.changed > 0 || row.role != inject::site_role::data || test::sampled() || run().repeats < 3);
  }

  template <class T>
  static void strike_once(const struck_case<T>& under, const inject::site_row& row, inject::model model, bool in_place, bool comparable,
                          strikes_at_site& seen) {
    const bool data = row.role == inject::site_role::data;
    std::vector<T> out;
    double off_effect = 0;
    if (data) {
      (void)execute(under, under.bare, in_place, out);
      off_effect = under.effect(out);
      seen.changed += off_effect > 0 ? 1 : 0;
    }
    const report got = execute(under, under.guarded, in_place, out);
    seen.found += got.verdict != verdict::clean ? 1 : 0;
    ASSERT_EQ(got.detected, got.corrected + got.recomputed + got.uncorrectable) << to_json(got);
    if (run().emulated()) {
      ASSERT_EQ(got.events.size(), got.detected);
    }
    for (const event& one : got.events) {
      seen.damaged += one.damaged ? 1 : 0;
      if (run().emulated()) {
        ASSERT_TRUE(one.damaged || (one.index >= 0 && one.index < under.given.signals())) << to_json(one);
      }
    }
    if (got.verdict == verdict::uncorrectable) {
      ASSERT_EQ(model, inject::model::stuck_at) << to_json(got);
      return;
    }
    ASSERT_LE(under.effect(out), got.verdict == verdict::clean ? on().floor_of(run().which) : 0) << to_json(got);
    ASSERT_TRUE(data || under.effect(out) == 0) << "a check that is struck must not spoil data";
    ASSERT_TRUE(!comparable || off_effect <= on().floor_of(run().which) || got.verdict != verdict::clean) << "effect " << off_effect;
    if (run().emulated()) {
      ASSERT_TRUE(row.role != inject::site_role::checker || got.false_alarms == got.recomputed) << to_json(got);
    }
  }

  // Performs one struck call. `out` gets the result of a call out of place.
  template <class T>
  static report execute(const struck_case<T>& under, const plan& by, bool in_place, std::vector<T>& out) {
    out = under.given.fresh();
    if (!in_place) return under.run(by, out);
    const device_copy<T> memory(on(), under.given.in);
    report seen = under.run(by, memory.data(), memory.data());
    out = memory.read();
    // The gaps between the elements are as in the input.
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (std::isnan(under.given.in[i])) out[i] = subject<T>::k_untouched;
    }
    return seen;
  }

  inline static std::map<inject::site, int> found_, damaged_;
  inline static int comparable_ = 0, comparable_passes_ = 0;
};

TEST_P(fft_fault_test, every_site_and_model_is_survived) {
  with_data([&]<class T>(const subject<T>& given) { strike_every_site(given); });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_fault_test, testing::ValuesIn(fault_runs()), test_name);

// ---- Random flips ----

class fft_flip_test : public fft_test {};

TEST_P(fft_flip_test, above_the_floor_are_all_found) {
  with_data([&]<class T>(const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on().prepare(run().which, order);
    ASSERT_TRUE(on().same_arithmetic(given, true)) << "the tests' tuning table sees to it";
    struck_case<T> under(on(), run().which, order, given);
    int above = 0;
    for (int trial = 0; trial < run().repeats; ++trial) {
      inject::request wanted;
      wanted.site = trial % 4 == 0 ? fft::site::input : trial % 4 == 1 ? fft::site::output : fft::site::stage;
      wanted.seed = static_cast<std::uint64_t>(trial);
      under.faults = inject::plan({wanted});
      std::vector<T> bare = given.fresh(), out = given.fresh();
      (void)under.run(under.bare, bare);
      const report seen = under.run(under.guarded, out);
      ASSERT_LE(under.effect(out), on().floor()) << trial;
      if (under.effect(bare) > on().floor()) {
        ++above;
        ASSERT_EQ(seen.verdict, verdict::recomputed) << trial << " effect " << under.effect(bare);
      }
    }
    EXPECT_GT(above, run().repeats / 8);
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_flip_test, testing::ValuesIn(flip_runs()), test_name);

// ---- A fault that persists, overflow ----

class fft_persistent_test : public fft_test {};

TEST_P(fft_persistent_test, is_reported_by_detection_and_thrown_by_correction) {
  with_data([&]<class T>(const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on().prepare(run().which, order);
    inject::request wanted;
    wanted.site = fft::site::stage;
    wanted.model = inject::model::stuck_at;
    wanted.interval = 0;
    const inject::plan faults({wanted});
    const inject::scope struck(&faults);
    std::vector<T> out = given.fresh();
    const report watched = given.run(make(given.problem, order, protection::detect), out);
    EXPECT_EQ(watched.verdict, verdict::uncorrectable);
    EXPECT_EQ(watched.detected, 1u);
    ASSERT_EQ(watched.events.size(), 1u);
    EXPECT_EQ(watched.events[0].site, on().signal_site());
    EXPECT_FALSE(watched.events[0].residual <= watched.events[0].threshold);  // it may be NaN

    int events = 0;
    call now;
    now.on_event = [&](const event& one) {
      ++events;
      EXPECT_EQ(one.site, on().signal_site());
      EXPECT_FALSE(one.residual <= one.threshold);
    };
    out = given.fresh();
    try {
      (void)given.run(make(given.problem, order, protection::correct), out, now);
      ADD_FAILURE() << "expected an uncorrectable fault";
    } catch (const uncorrectable_error& e) {
      EXPECT_EQ(e.report().uncorrectable, 1u);
      EXPECT_EQ(events, 1);
      ASSERT_EQ(e.report().events.size(), 1u);
      for (const T x : given.got(out, e.report().events[0].index))
        ASSERT_EQ(x, subject<T>::k_untouched) << "a signal that failed must not be stored";
      // The emulator's results are copied from device memory at the end: nothing of them arrives.
      if (run().emulated()) {
        EXPECT_TRUE(same(out, given.fresh()));
      }
    }
  });
}

TEST_P(fft_persistent_test, overflow_that_the_data_cause_is_no_fault) {
  with_data([&]<class T>(const subject<T>& usual) {
    constexpr std::uint64_t order = 1;
    const auto prepared = on().prepare(run().which, order);
    subject<T> given = usual;
    given.set(std::vector<T>(static_cast<std::size_t>(test::words_of_signal(given.shape.input) * given.signals()),
                             std::numeric_limits<T>::max()));
    std::vector<T> out = given.fresh();
    const report seen = given.run(make(given.problem, order, protection::correct), out);
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_FALSE(std::isfinite(out[0]));
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_persistent_test, testing::ValuesIn(persistent_runs()), test_name);

// ---- Several faults ----

class fft_many_faults_test : public fft_test {};

TEST_P(fft_many_faults_test, in_several_tiles_are_repaired) {
  with_data([&]<class T>(const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on().prepare(run().which, order);
    struck_case<T> under(on(), run().which, order, given);
    inject::request wanted;
    wanted.site = fft::site::output;
    wanted.model = inject::model::nan;
    wanted.count = 4;
    under.faults = inject::plan({wanted});
    std::vector<T> out = given.fresh();
    const report seen = under.run(under.guarded, out);
    EXPECT_EQ(seen.verdict, verdict::recomputed);
    EXPECT_GE(seen.recomputed, 2u);
    EXPECT_EQ(under.effect(out), 0);
  });
}

// execution::sampled: calls with protection have the bits of a protected plan, the others those of a plan without; a fault that stays is
// found within so many calls, and reaches the result of the others.
TEST_P(fft_many_faults_test, that_stay_are_found_by_every_third_call) {
  with_data([&]<class T>(const subject<T>& given) {
    constexpr std::uint64_t order = 2;
    const auto prepared = on().prepare(run().which, order);
    struck_case<T> under(on(), run().which, order, given);
    std::vector<T> bare = given.fresh();
    ASSERT_EQ(given.run(under.bare, bare).verdict, verdict::clean);
    execution where = on().how(order, protection::correct);
    where.sampled = 3;
    const plan made(given.problem, where, run().which.options());
    std::vector<int> guarded;
    for (int call = 0; call < 6; ++call) {
      std::vector<T> out = given.fresh();
      const report seen = given.run(made, out);
      EXPECT_EQ(seen.verdict, verdict::clean);
      EXPECT_EQ(seen.sampled, 3);
      const bool is = seen.protection == protection::correct;
      EXPECT_TRUE(is || seen.protection == protection::off);
      EXPECT_EQ(seen.checks > 0, is);
      EXPECT_TRUE(same(out, is ? under.clean : bare)) << "call " << call;
      if (is) guarded.push_back(call);
    }
    ASSERT_EQ(guarded.size(), 2U);
    EXPECT_EQ(guarded[1] - guarded[0], 3);
    inject::request wanted;
    wanted.site = fft::site::stage;
    wanted.model = inject::model::stuck_at;
    wanted.interval = 0;
    under.faults = inject::plan({wanted});
    int found = 0, missed = 0;
    for (int call = 0; call < 3; ++call) {
      std::vector<T> out = given.fresh();
      const report seen = under.run(made, out);
      found += seen.verdict == verdict::uncorrectable;
      missed += seen.verdict == verdict::clean && !same(out, bare);
    }
    EXPECT_EQ(found, 1);
    EXPECT_EQ(missed, 2);
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_many_faults_test, testing::ValuesIn(many_tile_runs()), test_name);

}  // namespace
}  // namespace ballast::fft
