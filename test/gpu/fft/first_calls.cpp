// Measures the time that a caller waits for a new problem. Plans and executes random problems once each, then until the kernels of the
// problem have taken over, and then again. The script provides an empty kernel cache; the bundle stays, as in a user's installation.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/counter_rng.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/jit.hpp"
#include "device_problem.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft_stages.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

constexpr std::uint64_t k_seed = 0x6669727374;
constexpr int k_problems = 22;
constexpr double k_points = 0x1p22;  // approximate points of a whole problem

// Returns c2c and r2c problems in both precisions, with 1-D lengths log-uniform from 8 to 2^20; every fourth problem is 2-D.
fft::token random_problem(int i) {
  const auto draw = [&](std::uint64_t stream) { return core::random_uniform(k_seed, stream, static_cast<std::uint64_t>(i)); };
  const auto length = [](double from, double to, double at) { return static_cast<std::int64_t>(std::exp2(from + (to - from) * at)); };
  fft::token made;
  made.problem.kind = draw(0) < 0.5 ? fft::kind::c2c : fft::kind::r2c;
  made.problem.precision = draw(1) < 0.5 ? precision::f32 : precision::f64;
  made.problem.shape = {length(3, 20, draw(2))};
  if (i % 4 == 3) made.problem.shape = {length(3, 10, draw(2)), length(3, 10, draw(3))};
  double points = 1;
  for (const std::int64_t n : made.problem.shape) points *= static_cast<double>(n);
  made.problem.batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(k_points / points));
  return made;
}

// Compares the result of the first call with that of the kernels compiled meanwhile. Returns false if they differ.
template <class T>
bool measure(const fft::token& token, row& line) {
  const device_problem<T> problem(token.problem, token.direction);
  problem.prepare(noise<T>(problem.in_words(), 1));
  const auto plan_and_start = [&] {
    const fft::plan plan(problem.problem(), on_gpu(protection::correct), {.kernels = fft::kernels::fallback_at_first});
    return problem.enqueue(plan);
  };
  std::string wrong;
  report seen;
  const double first = bench::seconds_of([&] { seen = plan_and_start().get(); });
  bool fallback = !seen.fallback_kernels.empty();
  line.add("first", first).add("fallback", fallback).add("why", seen.fallback_kernels).add("verdict", to_string(seen.verdict));
  const std::vector<T> early = problem.read(wrong);
  const auto start = std::chrono::steady_clock::now();
  double waited = 0;
  while (fallback && waited < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seen = plan_and_start().get();
    fallback = !seen.fallback_kernels.empty();
    waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  line.add("switched", first + waited).add("fallback_at_last", fallback).add("why_at_last", seen.fallback_kernels);
  std::vector<double> again;
  for (int repetition = 0; repetition < 9; ++repetition) {
    std::optional<pending_report> pending;
    again.push_back(bench::seconds_of([&] { pending = plan_and_start(); }));
    (void)pending->get();
  }
  std::ranges::sort(again);
  line.add("again", again[again.size() / 2]);
  const std::vector<T> late = problem.read(wrong);
  const std::vector<fft::wide<T>> wanted(late.begin(), late.end());
  const double difference = distance_of(early.data(), wanted.data(), static_cast<std::int64_t>(early.size())).relative();
  const double bound = 3 * error_bound(token.problem);  // bound on the difference of both results
  const bool passes = wrong.empty() && difference <= bound && !fallback && seen.verdict == verdict::clean;
  line.add("difference_in_bounds", difference / bound).add("wrong", wrong).add("pass", passes);
  return passes;
}

}  // namespace

int first_calls(const settings& wanted, const time_limit& limit) {
  int failed = 0, skipped = 0;
  // Every installation has the fallback kernels in its bundle. If this program has none, they are compiled before the clock starts.
  const cuda::capabilities& about = cuda::current_device()->about();
  cuda::kernels().prepare(fft::cuda::fallback_kernels(), about.major, about.minor, cuda::driver::available().version / 1000);
  for (int i = 0; i < (wanted.quick ? 6 : k_problems); ++i) {
    if (limit.over()) {
      ++skipped;
      continue;
    }
    const fft::token token = random_problem(i);
    row line("first call");
    line.add("token", fft::to_token(token.problem, token.direction));
    try {
      const bool passes = token.problem.precision == precision::f32 ? measure<float>(token, line) : measure<double>(token, line);
      failed += passes ? 0 : 1;
    } catch (const std::exception& e) {
      ++failed;
      line.add("refused", e.what());
    }
    line.print();
  }
  if (skipped > 0) row("skipped").add("stage", "first_calls").add("cases", skipped).print();
  return failed;
}

}  // namespace ballast::gpu_check
