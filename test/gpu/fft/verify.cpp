// Verifies results: instructions against their scalar twins, accuracy against higher precision and against cuFFT, layouts, faults at every
// site, no false alarm on clean data, streams.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "cuda/device/cufft.hpp"
#include "device_problem.hpp"
#include "fft_stages.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "one_case.hpp"
#include "output.hpp"
#include "problems.hpp"
#include "simt/arch_checks.hpp"

namespace ballast::gpu_check {
namespace {

// The factor by which ‖errors‖ may exceed cuFFT's by chance, with this many outputs.
constexpr double k_rival_room = 1.05;
constexpr std::int64_t k_rival_points = 1 << 14;

std::string text(double value) {
  char made[32];
  std::snprintf(made, sizeof made, "%.3g", value);
  return made;
}

// Runs `body`; an exception fails the case. A scheme or problem that the plan refuses is marked, and is no failure if `may_refuse`.
template <class Body>
void guarded(one_case& now, bool may_refuse, const Body& body) {
  try {
    body();
  } catch (const unsupported_error& e) {
    now.line().add("refused", e.what());
    if (!may_refuse) now.fail(e.what());
  } catch (const std::exception& e) {
    now.fail(e.what());
  }
}

void expect_clean(one_case& now, const report& seen, protection guard) {
  now.expect(seen.backend == tested, "ran on " + std::string(to_string(seen.backend)));
  now.expect(seen.verdict == verdict::clean,
             "verdict " + std::string(to_string(seen.verdict)) + " (" + std::to_string(seen.detected) + " detected)");
  now.expect(guard == protection::off || seen.checks > 0, "nothing was checked");
}

// Returns the signals to compare with the host's reference: the first, the last (a tail), and one between.
std::vector<std::int64_t> samples(std::int64_t batch) {
  std::vector<std::int64_t> made = {0};
  if (batch > 2) made.push_back(batch / 2);
  if (batch > 1) made.push_back(batch - 1);
  return made;
}

// Returns cuFFT's result for contiguous data of type T, packed and scaled.
template <class T>
std::vector<T> by_cufft(const fft::problem& problem, fft::direction way, const std::vector<T>& input) {
  fft::problem same = problem;
  same.precision = precision_of<T>;
  const fft::geometry shape = fft::resolve(same);
  const cuda::cufft_plan plan(same, way, false);
  const gpu::buffer in = gpu::buffer_of(input);
  std::vector<T> out(static_cast<std::size_t>(words_of_signal(shape.output) * shape.batch));
  const gpu::buffer device_out(static_cast<std::int64_t>(out.size() * sizeof(T)));
  plan.execute(in.data(), device_out.data(), gpu::stream());
  gpu::copy(out.data(), device_out.data(), device_out.bytes());
  gpu::synchronize();
  const T scale = static_cast<T>(scale_of(problem, way));
  if (scale != 1) {
    for (T& each : out) each *= scale;
  }
  return out;
}

// Limits of the host's transforms in higher precision within the time: points of a line, which one core transforms, and of a signal.
constexpr std::int64_t k_longest_reference = std::int64_t{1} << 21, k_largest_reference = std::int64_t{1} << 24;
// Number of points of all signals above which only one manner is tested.
constexpr std::int64_t k_huge = std::int64_t{1} << 27;

// ---- Accuracy ----

template <class T>
void accuracy(tally& seen, const fft::token& token, const std::string& name) {
  const fft::problem& problem = token.problem;
  const device_problem<T> apart(problem, token.direction);
  const fft::geometry& shape = apart.shape();
  const bool huge = shape.points() * shape.batch > k_huge;
  const std::vector<T> input = noise<T>(apart.in_words(), 7);
  const std::int64_t words = words_of_signal(shape.output);
  const auto chosen = samples(problem.batch);
  std::vector<T> theirs;
  std::vector<double> every;  // all signals in higher precision: only for f32, by cuFFT
  std::string no_rival;
  try {
    theirs = by_cufft<T>(problem, token.direction, input);
    if (sizeof(T) == 4 && !huge) every = by_cufft<double>(problem, token.direction, std::vector<double>(input.begin(), input.end()));
  } catch (const std::exception& e) {
    theirs.clear();
    no_rival = e.what();
  }
  const bool rival = no_rival.empty();
  std::vector<std::vector<fft::wide<T>>> exact;
  const std::int64_t longest = *std::ranges::max_element(shape.n);
  if (!rival || (longest <= k_longest_reference && shape.points() <= k_largest_reference)) {
    exact.resize(chosen.size());
    std::vector<std::jthread> team;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      team.emplace_back([&, i] { exact[i] = reference<T>(problem, token.direction, shape, input.data(), chosen[i]); });
  }
  const double bound = error_bound(problem);

  struct manner {
    const char* name;
    protection guard;
    bool in_place;
  };
  for (const manner& how : {manner{"off", protection::off, false}, manner{"detect", protection::detect, false},
                            manner{"correct", protection::correct, false}, manner{"correct, in place", protection::correct, true}}) {
    if (huge && how.guard != protection::correct) continue;
    one_case now(seen, "accuracy", name, how.name);
    guarded(now, false, [&] {
      std::vector<T> out;
      std::string wrong;
      report got;
      if (!how.in_place) {
        const fft::plan plan(problem, on_gpu(how.guard));
        apart.prepare(input);
        got = apart.run(plan);
        out = apart.read(wrong);
      } else {
        const device_problem<T> inside(in_place_problem(problem), token.direction, true);
        // The same values at the positions of the padded layout.
        const std::vector<T> moved = test::unpack(inside.shape().input, shape.batch, pack(shape.input, shape.batch, input.data()), T(0));
        const fft::plan plan(inside.problem(), on_gpu(how.guard));
        inside.prepare(moved);
        got = inside.run(plan);
        out = inside.read(wrong);
      }
      if (!wrong.empty()) now.fail(wrong);
      expect_clean(now, got, how.guard);
      now.line().add("scheme", got.scheme);
      if (!rival) now.line().add("no_rival", no_rival);

      double ours = 0, rivals = 0;
      const auto compare = [&](const auto* wanted, std::int64_t first, std::int64_t count) {
        const distance mine = distance_of(out.data() + first, wanted, count);
        ours = std::max(ours, mine.relative());
        if (rival) rivals = std::max(rivals, distance_of(theirs.data() + first, wanted, count).relative());
      };
      for (std::size_t i = 0; i < exact.size(); ++i) compare(exact[i].data(), chosen[i] * words, words);
      const double sampled = ours;
      const double sampled_rival = rivals;
      ours = rivals = 0;
      if (!every.empty()) compare(every.data(), 0, words * problem.batch);
      if (every.empty() && rival) {
        // The signals that the host did not transform may differ from cuFFT's by the errors of two correct results.
        const double apart_by = distance_of(out.data(), theirs.data(), words * problem.batch).relative();
        now.line().add("difference", apart_by);
        now.expect(apart_by <= 2 * bound, "all signals together differ from cuFFT by " + text(apart_by));
      }
      const double worst = std::max(sampled, ours);
      now.line().add("error", worst).add("bound", bound).add("error_in_bounds", worst / bound);
      now.expect(worst <= bound, "error " + text(worst) + " above " + text(bound));
      if (rival) {
        const double mine = every.empty() ? sampled : ours, other = every.empty() ? sampled_rival : rivals;
        if (mine > 0 || other > 0) now.line().add("rival_error", other).add("error_to_rival", other > 0 ? mine / other : 1.0);
        const std::int64_t compared = every.empty() ? words * static_cast<std::int64_t>(chosen.size()) : words * problem.batch;
        if (compared >= k_rival_points && other > 0)
          now.expect(mine <= k_rival_room * other, "error " + text(mine / other) + " times cuFFT's");
      }
    });
  }
}

// ---- Layouts, norms ----

struct layout_case {
  const char* name;
  fft::problem problem;
  fft::direction way = fft::direction::forward;
};

std::vector<layout_case> layout_cases(precision type) {
  using fft::direction, fft::kind, fft::norm;
  std::vector<layout_case> all;
  for (const std::int64_t n : {64, 1000, 4096, 65536}) {
    const std::int64_t batch = n > 4096 ? 3 : 7;
    all.push_back({"elements 3 apart, signals with a gap", {kind::c2c, type, {n}, batch, norm::backward, {{3}, 3 * n + 5}, {{1}, n + 9}}});
    all.push_back({"signals interleaved on both sides", {kind::c2c, type, {n}, batch, norm::backward, {{batch}, 1}, {{batch}, 1}}});
    all.push_back({"transposed", {kind::c2c, type, {n}, batch, norm::backward, {{batch}, 1}, {{1}, n}}, direction::inverse});
    all.push_back({"ortho, gaps in the output", {kind::c2c, type, {n}, batch, norm::ortho, {}, {{2}, 2 * n + 1}}, direction::inverse});
    all.push_back({"norm forward", {kind::c2c, type, {n}, batch, norm::forward}});
    all.push_back({"real rows with gaps", {kind::r2c, type, {n}, batch, norm::ortho, {{1}, n + 3}, {{1}, n / 2 + 4}}});
    all.push_back(
        {"half spectra interleaved", {kind::c2r, type, {n}, batch, norm::backward, {{batch}, 1}, {{1}, n + 1}}, direction::inverse});
  }
  all.push_back({"axes exchanged", {kind::c2c, type, {24, 50}, 3, norm::backward, {{1, 24}, 1200}, {}}});
  all.push_back({"volume with gaps", {kind::r2c, type, {6, 10, 14}, 2, norm::backward, {{15 * 11, 15, 1}, 15 * 11 * 7}, {}}});
  return all;
}

template <class T>
void layouts(tally& seen, const settings& wanted, const time_limit& limit) {
  for (const layout_case& each : layout_cases(precision_of<T>)) {
    if (wanted.quick && each.problem.shape[0] > 1000) continue;
    const std::string name = fft::to_token(each.problem, each.way);
    if (limit.over()) {
      ++seen.skipped;
      continue;
    }
    one_case now(seen, "layouts", name, each.name);
    guarded(now, false, [&] {
      const device_problem<T> held(each.problem, each.way);
      const std::vector<T> input = noise<T>(held.in_words(), 11);
      const fft::plan plan(each.problem, on_gpu(protection::correct));
      held.prepare(input);
      const report got = held.run(plan);
      std::string wrong;
      const std::vector<T> out = held.read(wrong);
      if (!wrong.empty()) now.fail(wrong);
      expect_clean(now, got, protection::correct);
      const std::int64_t words = words_of_signal(held.shape().output);
      double worst = 0;
      for (std::int64_t b = 0; b < each.problem.batch; ++b) {
        const auto exact = reference<T>(each.problem, each.way, held.shape(), input.data(), b);
        worst = std::max(worst, distance_of(out.data() + b * words, exact.data(), words).relative());
      }
      const double bound = error_bound(each.problem);
      now.line().add("error", worst).add("bound", bound).add("error_in_bounds", worst / bound);
      now.expect(worst <= bound, "error " + text(worst) + " above " + text(bound));
    });
  }
}

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

  for (const inject::site_row& site : inject::k_sites) {
    if (!site.operation.empty() && site.operation != "fft") continue;
    for (const protection guard : {protection::correct, protection::detect, protection::off}) {
      if (guard == protection::off && (site.role != inject::site_role::data || problem.kind == fft::kind::c2r || !scheme.empty())) continue;
      if (limit.over()) {
        ++seen.skipped;
        continue;
      }
      one_case now(seen, "faults", name, label(std::string(site.name) + ", " + std::string(to_string(guard))));
      guarded(now, false, [&] {
        inject::plan struck;
        const fft::plan plan(problem, on_gpu(guard, guard == protection::off ? "" : scheme, &struck));
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
      const std::int64_t place = (b * held.shape().input.distance + 1) * (held.shape().input.real ? 1 : 2);
      input[static_cast<std::size_t>(place)] = static_cast<T>(special);
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

// ---- Memory locations and streams ----

template <class T>
void places(tally& seen, const fft::token& token, const std::string& name) {
  const fft::problem& problem = token.problem;
  const device_problem<T> held(problem, token.direction);
  const std::vector<T> input = noise<T>(held.in_words(), 9);
  std::vector<T> on_device;
  std::string wrong;
  std::unique_ptr<fft::plan> plan;
  {
    one_case now(seen, "places", name, "device memory, twice the same bits");
    guarded(now, false, [&] {
      plan = std::make_unique<fft::plan>(problem, on_gpu(protection::correct));
      held.prepare(input);
      expect_clean(now, held.run(*plan), protection::correct);
      on_device = held.read(wrong);
      held.prepare(input);
      (void)held.run(*plan);
      now.expect(held.read(wrong) == on_device, "two runs differ");
    });
  }
  if (on_device.empty()) return;
  {
    one_case now(seen, "places", name, "host memory");
    guarded(now, false, [&] {
      std::vector<T> out(static_cast<std::size_t>(held.out_words()));
      execution how = on_gpu(protection::correct);
      const report got = execute<T>(fft::plan(problem, how), held.shape(), token.direction, input.data(), out.data());
      gpu::synchronize();
      expect_clean(now, got, protection::correct);
      now.expect(pack(held.shape().output, problem.batch, out.data()) == on_device, "differs from device memory");
    });
  }
  {
    one_case now(seen, "places", name, "a captured graph, replayed");
    guarded(now, false, [&] {
      held.prepare(input);
      std::optional<pending_report> waiting;
      const gpu::graph captured([&] {
        if (tested == backend::cuda) {
          waiting.emplace(plan->enqueue(token.direction, held.in(), held.out()));
        } else {
          (void)held.run(*plan);
        }
      });
      for (int replay = 0; replay < 2; ++replay) {
        held.prepare(input);
        captured.launch();
        if (waiting) {
          const report got = waiting->get();
          expect_clean(now, got, protection::correct);
        }
        now.expect(held.read(wrong) == on_device, "replay " + std::to_string(replay) + " differs");
        if (!wrong.empty()) now.fail(wrong);
      }
    });
  }
  if (tested == backend::cuda) {
    one_case now(seen, "places", name, "the caller's workspace");
    guarded(now, false, [&] {
      const gpu::buffer work(std::max<std::int64_t>(plan->workspace_bytes(), 1));
      execution how = on_gpu(protection::correct);
      how.workspace = {static_cast<std::byte*>(work.data()), static_cast<std::size_t>(work.bytes())};
      held.prepare(input);
      gpu::fill(work.data(), 0xff, work.bytes());
      expect_clean(now, held.run(fft::plan(problem, how)), protection::correct);
      now.expect(held.read(wrong) == on_device, "differs from the library's own");
      how.workspace = how.workspace.first(how.workspace.size() / 2);
      try {
        (void)held.run(fft::plan(problem, how));
        now.fail("half of the workspace was accepted");
      } catch (const invalid_argument_error&) {
      }
    });
  }
}

// ---- Instructions ----

// Runs the checks of the wrappers in cuda/arch, kernel by kernel; on the emulator the same checks test their scalar twins.
void instructions(tally& seen) {
  const auto device = cuda::current_device();
  for (const arch_checks::check& each : arch_checks::all(device->about().major)) {
    one_case now(seen, "instructions", each.request.expression, "");
    guarded(now, false, [&] {
      const std::string wrong = each.run(*device, device->load(each.request));
      if (!wrong.empty()) now.fail(wrong);
    });
  }
}

// Returns the reason why no problem of that set supports this scheme; empty if one does.
std::string why_refused(const std::string& scheme) {
  std::string why;
  for (const std::string& name : scheme_set()) {
    try {
      (void)fft::plan(fft::parse_token(name).problem, on_gpu(protection::correct, scheme));
      return "";
    } catch (const unsupported_error& e) {
      why = e.what();
    }
  }
  return why;
}

// Calls body.template operator()<float or double>().
template <class Body>
void by_precision(precision type, const Body& body) {
  if (type == precision::f32) {
    body.template operator()<float>();
  } else {
    body.template operator()<double>();
  }
}

}  // namespace

int verify(const settings& wanted, const time_limit& limit) {
  tally seen;
  const auto selected = [&](std::string_view group) { return wanted.includes(group); };
  const auto each = [&](const std::vector<std::string>& fallback, const auto& body) {
    for (const std::string& name : wanted.tokens.empty() ? fallback : wanted.tokens) {
      if (limit.over()) {
        ++seen.skipped;
        continue;
      }
      const fft::token token = fft::parse_token(name);
      by_precision(token.problem.precision, [&]<class T>() { body.template operator()<T>(token, name); });
    }
  };
  // An error that stops a whole problem (no memory, no plan) fails this problem; the others run.
  const auto shielded = [&](std::string_view group, const std::string& name, const auto& body) {
    try {
      body();
    } catch (const std::exception& e) {
      one_case(seen, group, name, "").fail(e.what());
    }
  };
  if (selected("instructions") && wanted.tokens.empty() && tested == backend::cuda)
    shielded("instructions", "", [&] { instructions(seen); });
  if (selected("accuracy")) {
    each(accuracy_set(wanted.quick), [&]<class T>(const fft::token& token, const std::string& name) {
      shielded("accuracy", name, [&] { accuracy<T>(seen, token, name); });
    });
  }
  if (selected("places")) {
    each(fault_set(wanted.quick), [&]<class T>(const fft::token& token, const std::string& name) {
      shielded("places", name, [&] { places<T>(seen, token, name); });
    });
  }
  if (selected("layouts") && wanted.tokens.empty()) {
    shielded("layouts", "", [&] {
      layouts<float>(seen, wanted, limit);
      layouts<double>(seen, wanted, limit);
    });
  }
  std::vector<std::string> schemes = wanted.schemes.empty() ? k_other_schemes : wanted.schemes;
  if (wanted.schemes.empty()) schemes.insert(schemes.begin(), "");
  for (const std::string& scheme : schemes) {
    if (!scheme.empty() && (selected("faults") || selected("clean"))) {
      const std::string refused = why_refused(scheme);
      if (!refused.empty()) {
        row("scheme").add("scheme", scheme).add("refused", refused).print();
        continue;
      }
    }
    std::vector<std::string> tokens = fault_set(wanted.quick);
    if (!scheme.empty()) tokens = scheme_set();
    if (selected("faults") && inject::active_injector::enabled) {
      each(tokens, [&]<class T>(const fft::token& token, const std::string& name) {
        shielded("faults", name, [&] { faults<T>(seen, token, name, scheme, wanted, limit); });
      });
    }
    if (selected("clean")) {
      each(tokens, [&]<class T>(const fft::token& token, const std::string& name) {
        shielded("clean", name, [&] { clean<T>(seen, token, name, scheme, wanted, limit); });
      });
    }
  }
  if (selected("huge") && !wanted.quick) {
    each(huge_set(), [&]<class T>(const fft::token& token, const std::string& name) {
      // The host needs time for memory of this size.
      const double needed = static_cast<double>(fft::resolve(token.problem).points()) / (1 << 27) * 8;
      if (limit.left() < needed) {
        ++seen.skipped;
        return;
      }
      shielded("huge", name, [&] { accuracy<T>(seen, token, name); });
    });
  }
  if (seen.skipped > 0) row("skipped").add("stage", "verify").add("cases", seen.skipped).print();
  return seen.failed;
}

int sanitize(const settings& wanted, const time_limit& limit) {
  tally seen;
  for (const std::string& name : wanted.tokens.empty() ? sanitizer_set() : wanted.tokens) {
    if (limit.over()) {
      ++seen.skipped;
      continue;
    }
    const fft::token token = fft::parse_token(name);
    by_precision(token.problem.precision, [&]<class T>() {
      for (const protection guard : {protection::off, protection::correct}) {
        one_case now(seen, "sanitize", name, to_string(guard));
        guarded(now, false, [&] {
          const device_problem<T> held(token.problem, token.direction);
          const std::vector<T> input = noise<T>(held.in_words(), 13);
          held.prepare(input);
          const report got = held.run(fft::plan(token.problem, on_gpu(guard)));
          std::string wrong;
          const std::vector<T> out = held.read(wrong);
          if (!wrong.empty()) now.fail(wrong);
          expect_clean(now, got, guard);
          const std::int64_t words = words_of_signal(held.shape().output);
          const auto exact = reference<T>(token.problem, token.direction, held.shape(), input.data(), 0);
          const double error = distance_of(out.data(), exact.data(), words).relative();
          now.line().add("error", error);
          now.expect(error <= error_bound(token.problem), "error " + text(error));
        });
      }
    });
  }
  if (seen.skipped > 0) row("skipped").add("stage", "sanitize").add("cases", seen.skipped).print();
  return seen.failed;
}

}  // namespace ballast::gpu_check
