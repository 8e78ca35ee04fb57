// The common part of the stages of K-Means and QR: one case after the other until the time is over, their data, and faults at every site.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/report.hpp>

#include "core/counter_rng.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "one_case.hpp"
#include "output.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

// Returns element i of a stream of random numbers with mean 0 and variance 1, nearly normal: the sum of four uniform numbers of 16 bits.
inline double nearly_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  const std::uint64_t bits = core::random_bits(seed, stream, i);
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>(bits >> (16 * part) & 0xffff) * 0x1p-16;
  return (sum - 2) * 1.7320508;
}

// Calls body(zero, token) for each problem, with a zero of its precision. Counts the problems that no time is left for. `Parse` reads a
// token.
template <class Parse, class Body>
void each_problem(const std::vector<std::string>& tokens, Parse&& parse, const time_limit& limit, tally& seen, const Body& body) {
  for (const std::string& token : tokens) {
    if (limit.over()) {
      ++seen.skipped;
    } else if (parse(token).precision == precision::f32) {
      body(float(), token);
    } else {
      body(double(), token);
    }
  }
}

// Returns the number of failed checks, the result of a stage. Prints the number of cases that had no time.
inline int ended(const tally& seen, std::string_view stage) {
  if (seen.skipped > 0) row("skipped").add("stage", stage).add("cases", seen.skipped).print();
  return seen.failed;
}

// Runs a stage that measures times: body(zero, token) returns the number of failed checks. A problem that throws gets a row of type `type`
// with the reason.
template <class Parse, class Body>
int time_each(const std::vector<std::string>& tokens, Parse&& parse, const time_limit& limit, std::string_view type, const Body& body) {
  tally seen;
  each_problem(tokens, parse, limit, seen, [&](auto zero, const std::string& token) {
    try {
      seen.failed += body(zero, token);
    } catch (const std::exception& e) {
      row(type).add("token", token).add("variant", "all").add("refused", e.what()).print();
      ++seen.failed;
    }
  });
  return ended(seen, "bench");
}

// Prints the failed check of a timed call that reported a fault in clean data.
inline void print_false_alarm(const std::string& token, const std::string& what) {
  row("check")
      .add("group", "bench")
      .add("token", token)
      .add("manner", "clean")
      .add("pass", false)
      .add("wrong", "a false alarm" + (what.empty() ? what : ": " + what))
      .print();
}

// The result of one call with an injected fault.
struct outcome {
  report seen;
  bool wrong;  // the result differs by more than rounding
};

// Runs one case for each site of the operation: run(plan) for every model. Models with a bit strike `bit`, the second or third highest bit
// of the exponent. `visits`: the seed also selects the visit of the site that is struck.
template <class Run>
void strike_every_site(tally& seen, std::string_view operation, const std::string& token, int bit, bool visits, const settings& wanted,
                       const time_limit& limit, const Run& run) {
  for (const inject::site_row& site : inject::sites()) {
    if (!site.operation().empty() && site.operation() != operation) continue;
    one_case now(seen, "faults", token, site.name);
    int trials = 0, corrected = 0, recomputed = 0, uncorrectable = 0, silent = 0;
    now.guarded([&] {
      for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
        for (std::uint64_t seed = 0; seed < (wanted.quick ? 1u : 3u) && !limit.over(); ++seed) {
          inject::request fault;
          fault.site = site.site;
          fault.model = static_cast<inject::model>(model);
          fault.seed = seed;
          if (visits) fault.visit = static_cast<std::int64_t>(seed);
          if (fault.model == inject::model::bit_flip || fault.model == inject::model::two_bits || fault.model == inject::model::vector_mask)
            fault.bit = bit;
          const inject::plan plan({fault});
          const outcome found = run(plan);
          const std::string name = std::string(inject::k_model_names[model]) + " " + std::to_string(seed);
          ++trials;
          corrected += found.seen.corrected > 0;
          recomputed += found.seen.recomputed > 0;
          if (found.seen.verdict == verdict::uncorrectable) {
            ++uncorrectable;
            now.expect(fault.model == inject::model::stuck_at, name + ": uncorrectable");
            continue;
          }
          silent += found.wrong && found.seen.detected == 0;
          now.expect(!found.wrong, name + ": another result");
        }
      }
    });
    now.line()
        .add("trials", trials)
        .add("corrected", corrected)
        .add("recomputed", recomputed)
        .add("uncorrectable", uncorrectable)
        .add("silent", silent);
  }
}

// Prints a row of type "problem" for each token. Parses each token, so that a wrong one is an error.
template <class Parse>
void print_problems(const char* stage, const std::vector<std::string>& tokens, Parse&& parse) {
  for (const std::string& token : tokens) {
    (void)parse(token);
    row("problem").add("stage", stage).add("token", token).print();
  }
}

// Returns a report in a few words. Without packages there is no library to write JSON.
inline std::string describe(const report& seen) {
  std::string text(to_string(seen.verdict));
  for (std::size_t i = 0; i < seen.events.size() && i < 3; ++i) {
    const event& each = seen.events[i];
    text += "; " + each.site + " " + std::to_string(each.index) + ": " + std::to_string(each.residual / each.threshold) + " thresholds";
  }
  return text;
}

}  // namespace ballast::gpu_check
