// How long does a caller wait for a problem that is new? Random problems, each planned and executed once, and then again. The script gives
// an empty cache of kernels; the bundle stays, as a user has it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/counter_rng.hpp"
#include "device_problem.hpp"
#include "fft_stages.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

constexpr std::uint64_t k_seed = 0x6669727374;
constexpr int k_problems = 22;
constexpr double k_points = 0x1p22;  // of a whole problem, about

// c2c and r2c, both precisions, 1-D lengths spread evenly in their logarithm from 8 to 2^20, every fourth problem 2-D.
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

template <class T>
void measure(const fft::token& token, row& line) {
  const device_problem<T> problem(token.problem, token.direction);
  problem.prepare(noise<T>(problem.in_words(), 1));
  const auto plan_and_start = [&] {
    const fft::plan plan(problem.problem(), on_gpu(protection::correct));
    return plan.enqueue(problem.way(), problem.in(), problem.out());
  };
  std::vector<double> again;
  line.add("first", bench::seconds_of([&] { (void)plan_and_start().get(); }));
  for (int repetition = 0; repetition < 9; ++repetition) {
    std::optional<pending_report> pending;
    again.push_back(bench::seconds_of([&] { pending = plan_and_start(); }));
    (void)pending->get();
  }
  std::ranges::sort(again);
  line.add("again", again[again.size() / 2]);
}

}  // namespace

int first_calls(const settings& wanted, const time_limit& limit) {
  int failed = 0, skipped = 0;
  for (int i = 0; i < (wanted.quick ? 6 : k_problems); ++i) {
    if (limit.over()) {
      ++skipped;
      continue;
    }
    const fft::token token = random_problem(i);
    row line("first call");
    line.add("token", fft::to_token(token.problem, token.direction));
    try {
      token.problem.precision == precision::f32 ? measure<float>(token, line) : measure<double>(token, line);
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
