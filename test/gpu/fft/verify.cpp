// Verifies results: instructions against their scalar twins, accuracy against higher precision and against cuFFT, layouts, streams.
// verify_faults.cpp has faults and clean data.
#include <algorithm>
#include <cmath>
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
#include "verify.hpp"

namespace ballast::gpu_check {
namespace {

// The root mean square error over this many words and more is compared with cuFFT's. A mean over M words scatters by about 1/√(2M) of
// itself, the quotient of two by √2 of that; roundings of one signal are not independent, which the factor 4 covers.
constexpr std::int64_t k_rival_words = 1 << 14;
double rival_room(std::int64_t words) { return 1 + 4 / std::sqrt(static_cast<double>(words)); }

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
  // Without them the host transforms as many as the comparison with cuFFT takes.
  std::vector<std::int64_t> chosen = samples(problem.batch);
  if (every.empty() && rival) {
    const std::int64_t enough = std::min(problem.batch, (k_rival_words * 4 + words - 1) / words);
    if (enough > static_cast<std::int64_t>(chosen.size())) {
      chosen.resize(static_cast<std::size_t>(enough));
      for (std::int64_t i = 0; i < enough; ++i) chosen[static_cast<std::size_t>(i)] = i * (problem.batch - 1) / (enough - 1);
    }
  }
  std::vector<std::vector<fft::wide<T>>> exact;
  const std::int64_t longest = *std::ranges::max_element(shape.n);
  if (!rival || (longest <= k_longest_reference && shape.points() <= k_largest_reference)) {
    exact.resize(chosen.size());
    const std::size_t workers = std::min<std::size_t>(chosen.size(), std::max(std::thread::hardware_concurrency(), 1U));
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < workers; ++first) {
      threads.emplace_back([&, first] {
        for (std::size_t i = first; i < chosen.size(); i += workers)
          exact[i] = reference<T>(problem, token.direction, shape, input.data(), chosen[i]);
      });
    }
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

      // The largest error of a signal, and the root mean square over all of them beside cuFFT's.
      double worst = 0;
      distance mine, other;
      std::int64_t compared = 0;
      const auto add = [](distance& to, const distance& one) {
        to.difference = std::hypot(to.difference, one.difference);
        to.size = std::hypot(to.size, one.size);
      };
      const auto compare = [&](const auto* wanted, std::int64_t first, std::int64_t count) {
        const distance here = distance_of(out.data() + first, wanted, count);
        worst = std::max(worst, here.relative());
        add(mine, here);
        if (rival) add(other, distance_of(theirs.data() + first, wanted, count));
        compared += count;
      };
      for (std::size_t i = 0; i < exact.size(); ++i) compare(exact[i].data(), chosen[i] * words, words);
      if (!every.empty()) {
        mine = other = {};
        compared = 0;
        compare(every.data(), 0, words * problem.batch);
      } else if (rival) {
        // The signals that the host did not transform may differ from cuFFT's by the errors of two correct results.
        const double apart_by = distance_of(out.data(), theirs.data(), words * problem.batch).relative();
        now.line().add("difference", apart_by);
        now.expect(apart_by <= 2 * bound, "all signals together differ from cuFFT by " + text(apart_by));
      }
      now.line().add("error", worst).add("bound", bound).add("error_in_bounds", worst / bound);
      now.expect(worst <= bound, "error " + text(worst) + " above " + text(bound));
      if (rival && compared > 0 && other.difference > 0) {
        const double times = mine.relative() / other.relative();
        now.line().add("rival_error", other.relative()).add("error_to_rival", times).add("words_compared", compared);
        if (compared >= k_rival_words) {
          now.line().add("rival_room", rival_room(compared));
          now.expect(times <= rival_room(compared), "error " + text(times) + " times cuFFT's");
        }
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
      const report got = test::execute<T>(*plan, held.shape(), token.direction, input.data(), out.data(), on_stream());
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
          waiting.emplace(held.enqueue(*plan));
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
  {
    one_case now(seen, "places", name, "device memory of a second call");
    guarded(now, false, [&] {
      held.prepare(input);
      (void)held.run(*plan);
      const std::int64_t free = gpu::free_bytes();
      (void)held.run(*plan);
      now.expect(gpu::free_bytes() == free, "the second call took memory of the device");
    });
  }
  if (tested == backend::cuda) {
    one_case now(seen, "places", name, "the caller's workspace");
    guarded(now, false, [&] {
      const gpu::buffer work(std::max<std::int64_t>(plan->workspace_bytes(), 1));
      call with = on_stream();
      with.workspace = {static_cast<std::byte*>(work.data()), static_cast<std::size_t>(work.bytes())};
      held.prepare(input);
      gpu::fill(work.data(), 0xff, work.bytes());
      expect_clean(now, held.run(*plan, with), protection::correct);
      now.expect(held.read(wrong) == on_device, "differs from the library's own");
      with.workspace = with.workspace.first(with.workspace.size() / 2);
      try {
        (void)held.run(*plan, with);
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
        shielded("faults", name, [&] { verify_faults(seen, token, name, scheme, wanted, limit); });
      });
    }
    if (selected("clean")) {
      each(tokens, [&]<class T>(const fft::token& token, const std::string& name) {
        shielded("clean", name, [&] { verify_clean_data(seen, token, name, scheme, wanted, limit); });
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
