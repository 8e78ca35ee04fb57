// Recorder, report, JSON and names.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ballast/error.hpp>

#include "core/parallel.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/dispatch.hpp"
#include "run/recorder.hpp"

namespace ballast::run {
namespace {

TEST(recorder, verdict_is_the_worst_that_happened) {
  const run::settings how{.throw_on_uncorrectable = false};
  const auto verdict_of = [&](std::vector<action> actions) {
    inject::active_injector none(nullptr, fft::site::table());
    recorder seen("token", backend::cpu, "scheme", how, none);
    seen.checked(10);
    for (const action each : actions) seen.detected("here", 1, 2, 1, each, 0);
    const report r = seen.finish();
    EXPECT_EQ(r.detected, actions.size());
    EXPECT_EQ(r.events.size(), actions.size());
    EXPECT_EQ(r.checks, 10u);
    return r.verdict;
  };
  EXPECT_EQ(verdict_of({}), verdict::clean);
  EXPECT_EQ(verdict_of({action::corrected}), verdict::corrected);
  EXPECT_EQ(verdict_of({action::recomputed, action::corrected}), verdict::recomputed);
  EXPECT_EQ(verdict_of({action::corrected, action::uncorrectable, action::recomputed}), verdict::uncorrectable);
}

TEST(recorder, throws_when_asked_and_the_error_carries_the_report) {
  const run::settings how;
  inject::active_injector none(nullptr, fft::site::table());
  recorder seen("fft_c2c_f32_n8_b1_fwd", backend::cpu, "s", how, none);
  seen.detected("fft.composite", 3, std::numeric_limits<double>::quiet_NaN(), 1, action::uncorrectable, 0);
  try {
    (void)seen.finish();
    FAIL();
  } catch (const uncorrectable_error& e) {
    EXPECT_EQ(e.report().uncorrectable, 1u);
    EXPECT_NE(std::string(e.what()).find("fft_c2c_f32_n8_b1_fwd"), std::string::npos);
  }
}

TEST(recorder, counts_survive_a_full_log_and_many_threads) {
  const run::settings how;
  inject::active_injector none(nullptr, fft::site::table());
  recorder seen("token", backend::cpu, "s", how, none);
  const std::int64_t many = static_cast<std::int64_t>(report::k_max_events) + 100;
  core::parallel_for(2, many, [&](std::int64_t i, int slot) { seen.detected("here", i, 1, 0, action::recomputed, slot); });
  const report r = seen.finish();
  EXPECT_EQ(r.recomputed, static_cast<std::uint64_t>(many));
  EXPECT_EQ(r.events.size(), report::k_max_events);
}

TEST(recorder, a_struck_event_is_marked_and_the_counts_stand) {
  inject::request strike;
  strike.site = inject::k_event_log;
  const inject::plan faults({strike});
  inject::active_injector injector(&faults, fft::site::table());
  const run::settings how;
  recorder seen("token", backend::cpu, "s", how, injector);
  seen.detected("here", 1, 2, 1, action::recomputed, 0);
  seen.detected("here", 2, 2, 1, action::recomputed, 0);
  const report r = seen.finish();
  EXPECT_TRUE(r.events[0].damaged);
  EXPECT_FALSE(r.events[1].damaged);
  EXPECT_EQ(r.recomputed, 2u);
}

TEST(report, json_is_valid_also_with_nan) {
  event e;
  e.site = "fft.\"quoted\"";
  e.residual = std::numeric_limits<double>::quiet_NaN();
  e.threshold = std::numeric_limits<double>::infinity();
  report r;
  r.events.push_back(e);
  r.detected = 1;
  const auto parsed = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(parsed["detected"], 1);
  EXPECT_EQ(parsed["events"][0]["residual"], "nan");
  EXPECT_EQ(parsed["events"][0]["site"], e.site);
  EXPECT_EQ(nlohmann::json::parse(to_json(e))["threshold"], "inf");
}

TEST(report, merge_adds_and_keeps_the_worse_verdict) {
  report a, b;
  a.verdict = verdict::recomputed;
  a.checks = 3;
  b.verdict = verdict::corrected;
  b.checks = 4;
  b.events.resize(report::k_max_events);
  a.events.resize(10);
  a.merge(b);
  EXPECT_EQ(a.verdict, verdict::recomputed);
  EXPECT_EQ(a.checks, 7u);
  EXPECT_EQ(a.events.size(), report::k_max_events);
}

TEST(dispatch, a_backend_can_be_forced_and_an_absent_one_is_refused) {
  EXPECT_EQ(choose_backend({.backend = backend::reference}, "t"), backend::reference);
  EXPECT_EQ(choose_backend({.backend = backend::cpu}, "t"), backend::cpu);
  EXPECT_EQ(choose_backend({}, "t"), available_backends().front());
  EXPECT_EQ(host_backend(), backend::cpu);
  if (available_backends().front() == backend::cuda) return;
  try {
    (void)choose_backend({.backend = backend::cuda}, "t");
    FAIL() << "no exception";
  } catch (const unsupported_error& seen) {
    const std::string expected = "t: backend: expected one that can run here (cpu, reference), got cuda; ";
    EXPECT_EQ(std::string(seen.what()).substr(0, expected.size()), expected);
    EXPECT_GT(std::string(seen.what()).size(), expected.size()) << "no reason";
  }
}

TEST(dispatch, a_scheme_can_be_chosen_and_an_unknown_one_is_refused) {
  EXPECT_EQ(choose_scheme({}, "a", {"a", "b"}, "t"), "a");
  EXPECT_EQ(choose_scheme({.scheme = "b"}, "a", {"a", "b"}, "t"), "b");
  EXPECT_THROW(choose_scheme({.scheme = "c"}, "a", {"a", "b"}, "t"), unsupported_error);
}

TEST(names, go_both_ways) {
  for (const auto each : {precision::f32, precision::f64}) EXPECT_EQ(parse_precision(to_string(each)), each);
  for (const auto each : {backend::automatic, backend::reference, backend::cpu, backend::cuda})
    EXPECT_EQ(parse_backend(to_string(each)), each);
  for (const auto each : {protection::off, protection::detect, protection::correct}) EXPECT_EQ(parse_protection(to_string(each)), each);
  EXPECT_FALSE(parse_backend("gpu"));
}

}  // namespace
}  // namespace ballast::run
