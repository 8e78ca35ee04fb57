// Verifies protection: faults at every site are repaired or reported, and clean data of every kind raise no false alarm.
#include "verify.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "device_problem.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

// ---- Faults ----

struct outcomes {
  int trials = 0, corrected = 0, recomputed = 0, uncorrectable = 0, unnoticed = 0, silent = 0;
};

template <class T>
void faults(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
            const time_limit& limit) {
  const fft::problem& problem = token.problem;
  const device_problem<T> held(problem, token.direction);
  const std::vector<T> input = noise<T>(held.in_words(), 3);
  const std::int64_t words = words_of_signal(held.shape().output);
  const double floor = detection_floor(problem);
  std::string wrong;
  const auto label = [&](std::string_view rest) { return (scheme.empty() ? std::string() : scheme + ", ") + std::string(rest); };

  // Results with and without protection may differ in rounding: each is compared with its own clean result.
  std::map<protection, std::vector<T>> clean;
  {
    one_case now(seen, "faults", name, label("clean run"));
    guarded(now, !scheme.empty(), [&] {
      for (const protection guard : {protection::off, protection::detect, protection::correct}) {
        const fft::plan plan(problem, on_gpu(guard, guard == protection::off ? "" : scheme));
        held.prepare(input);
        expect_clean(now, held.run(plan), guard);
        clean[guard] = held.read(wrong);
        if (!wrong.empty()) now.fail(wrong);
      }
    });
  }
  if (clean.size() < 3) return;

  for (const inject::site_row& site : inject::sites()) {
    if (!site.operation().empty() && site.operation() != "fft") continue;
    // cuFFT computes the transform of scheme "offline": its data can be struck only after that.
    if (scheme == "offline" && site.role == inject::site_role::data && site.site != fft::site::output) continue;
    for (const protection guard : {protection::correct, protection::detect, protection::off}) {
      if (guard == protection::off && (site.role != inject::site_role::data || problem.kind == fft::kind::c2r || !scheme.empty())) continue;
      if (limit.over()) {
        ++seen.skipped;
        continue;
      }
      one_case now(seen, "faults", name, label(std::string(site.name) + ", " + std::string(to_string(guard))));
      guarded(now, false, [&] {
        inject::plan struck;
        const inject::scope injected(&struck);
        const fft::plan plan(problem, on_gpu(guard, guard == protection::off ? "" : scheme));
        outcomes all;
        const int seeds = wanted.quick ? 1 : 2;
        for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
          const auto model = static_cast<inject::model>(m);
          for (int seed = 0; seed < seeds; ++seed) {
            // Seed 0 strikes the top exponent bit, an effect that nothing can hide. The others strike any bit.
            const bool flips = model == inject::model::bit_flip || model == inject::model::two_bits || model == inject::model::vector_mask;
            const bool strong = (flips && seed == 0) || model == inject::model::infinity || model == inject::model::negative_infinity ||
                                model == inject::model::nan || (model == inject::model::stuck_at && seed == 0);
            if (guard == protection::off && !strong) continue;
            inject::request request;
            request.site = site.site;
            request.model = model;
            request.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
            if (flips && seed == 0) request.bit = 62;
            struck = inject::plan({request});
            held.prepare(input);
            const report got = held.run(plan);
            const std::vector<T> out = held.read(wrong);
            const std::string what = std::string(inject::k_model_names[m]) + " seed " + std::to_string(request.seed);
            ++all.trials;
            double effect = 0;
            bool same = true;
            const std::vector<T>& right = clean.at(guard);
            if (std::memcmp(out.data(), right.data(), out.size() * sizeof(T)) != 0) {
              same = false;
              for (std::int64_t b = 0; b < problem.batch; ++b)
                effect = std::max(effect, distance_of(out.data() + b * words, right.data() + b * words, words).relative());
            }
            if (guard == protection::off) {
              now.expect(!same, what + " did not reach the output");
              continue;
            }
            all.corrected += got.corrected > 0 ? 1 : 0;
            all.recomputed += got.recomputed > 0 ? 1 : 0;
            all.uncorrectable += got.verdict == verdict::uncorrectable ? 1 : 0;
            all.unnoticed += got.detected == 0 ? 1 : 0;
            if (got.verdict == verdict::uncorrectable) {
              const bool persistent = model == inject::model::stuck_at;
              now.expect(guard == protection::detect || persistent, what + " ended uncorrectable");
            } else if (!(effect <= floor)) {
              ++all.silent;
              now.fail(what + " changed the output by " + text(effect) + ", verdict " + std::string(to_string(got.verdict)));
            } else if (!wrong.empty()) {
              now.fail(what + ": " + wrong);
            }
            if (strong && site.role == inject::site_role::data && guard == protection::correct && same && got.detected == 0)
              now.fail(what + " struck nothing");
            wrong.clear();
          }
        }
        now.line().add("trials", all.trials);
        if (guard != protection::off)
          now.line()
              .add("corrected", all.corrected)
              .add("recomputed", all.recomputed)
              .add("uncorrectable", all.uncorrectable)
              .add("unnoticed", all.unnoticed)
              .add("silent", all.silent);
      });
    }
  }
}

// ---- Clean data ----

template <class T>
void clean(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
           const time_limit& limit) {
  const fft::problem& problem = token.problem;
  const device_problem<T> held(problem, token.direction);
  const std::int64_t words = words_of_signal(held.shape().output);
  std::unique_ptr<fft::plan> plan;
  for (const char* const kind : {"normal", "constant", "huge", "tiny", "subnormal", "cauchy", "impulse", "zero", "scales"}) {
    if (limit.over()) {
      ++seen.skipped;
      continue;
    }
    one_case now(seen, "clean", name, (scheme.empty() ? "" : scheme + ", ") + kind);
    guarded(now, !scheme.empty(), [&] {
      if (!plan) plan = std::make_unique<fft::plan>(problem, on_gpu(protection::correct, scheme));
      const int runs = kind == std::string_view("normal") && !wanted.quick ? 20 : 2;
      std::uint64_t checks = 0;
      for (int run = 0; run < runs; ++run) {
        const auto values = test::filled<T>(kind, held.shape().input, problem.batch, 100 + static_cast<std::uint64_t>(run));
        const std::vector<T> input = test::unpack(held.shape().input, problem.batch, values, T(0));
        held.prepare(input);
        const report got = held.run(*plan);
        checks += got.checks;
        std::string wrong;
        const std::vector<T> out = held.read(wrong);
        if (!wrong.empty()) now.fail(wrong);
        expect_clean(now, got, protection::correct);
        if (run > 0) continue;
        double worst = 0;
        for (const std::int64_t b : samples(problem.batch)) {
          const auto exact = reference<T>(problem, token.direction, held.shape(), input.data(), b);
          const distance off = distance_of(out.data() + b * words, exact.data(), words);
          // Gradual underflow adds half of the smallest number at each operation.
          const double underflow = 8 * std::sqrt(static_cast<double>(held.shape().points())) *
                                   static_cast<double>(std::numeric_limits<T>::denorm_min()) * static_cast<double>(held.shape().points());
          if (!(off.difference <= error_bound(problem) * off.size + underflow)) worst = std::max(worst, off.relative());
        }
        now.expect(worst == 0, "error " + text(worst) + " above " + text(error_bound(problem)));
      }
      now.line().add("checks", checks);
    });
  }
  // One signal has NaN or Inf: the others must keep every bit, and no fault may be reported.
  if (problem.batch < 2) return;
  for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    if (limit.over()) {
      ++seen.skipped;
      continue;
    }
    one_case now(seen, "clean", name, (scheme.empty() ? "" : scheme + ", ") + (std::isnan(special) ? "a NaN" : "an Inf"));
    guarded(now, !scheme.empty(), [&] {
      if (!plan) plan = std::make_unique<fft::plan>(problem, on_gpu(protection::correct, scheme));
      std::vector<T> input = noise<T>(held.in_words(), 5);
      std::string wrong;
      held.prepare(input);
      (void)held.run(*plan);
      const std::vector<T> before = held.read(wrong);
      const std::int64_t b = problem.batch / 2;
      const std::int64_t position = (b * held.shape().input.distance + 1) * (held.shape().input.real ? 1 : 2);
      input[static_cast<std::size_t>(position)] = static_cast<T>(special);
      held.prepare(input);
      const report got = held.run(*plan);
      const std::vector<T> after = held.read(wrong);
      expect_clean(now, got, protection::correct);
      bool others = true, spoiled = false;
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(after.size()); ++i) {
        const T x = before[static_cast<std::size_t>(i)], y = after[static_cast<std::size_t>(i)];
        if (i / words == b) {
          spoiled = spoiled || !std::isfinite(y);
        } else {
          others = others && std::memcmp(&x, &y, sizeof x) == 0;
        }
      }
      now.expect(others, "another signal changed");
      now.expect(spoiled, "the signal with it came out finite");
    });
  }
}

}  // namespace

void verify_faults(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
                   const time_limit& limit) {
  by_precision(token.problem.precision, [&]<class T>() { faults<T>(seen, token, name, scheme, wanted, limit); });
}

void verify_clean_data(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
                       const time_limit& limit) {
  by_precision(token.problem.precision, [&]<class T>() { clean<T>(seen, token, name, scheme, wanted, limit); });
}

}  // namespace ballast::gpu_check
