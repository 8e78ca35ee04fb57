// Measures choices in turns.
#include "fft/cpu/tune.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <ballast/error.hpp>

#include "core/aligned_buffer.hpp"
#include "core/counter_rng.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "fft/cpu/transform.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/dispatch.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cpu {
namespace {

constexpr double k_round = 4e-3;       // seconds of one measurement of a candidate, at least one call
constexpr int k_first_rounds = 3;      // rounds for each candidate
constexpr int k_final_rounds = 9;      // rounds for the rule and the fastest candidates
constexpr double k_least_gain = 1.02;  // the rule's time over an entry's
constexpr double k_hopeless = 4;       // an estimate so many times the least is not measured

// A problem with data in memory.
class trial {
 public:
  trial(const std::string& token, int threads) : what_(parse_token(token)) {
    auto nest = nest_of(describe(what_.problem));
    if (!nest || !nest->outer.empty())
      throw invalid_argument_error(fmt::format(
          "{}: tune: expected one to three axes of complex data, reals or half spectra, got a problem that the cpu backend takes "
          "apart",
          token));
    shape_ = nest->inner;
    wide_ = what_.problem.precision == precision::f64;
    // As many as a plan takes.
    threads_ = core::worthwhile_threads(threads, nominal_flops(describe(what_.problem)) / run::flops_per_second(what_.problem.precision));
    for (const side* each : {&shape_.input, &shape_.output}) {
      const std::int64_t scalars = each->extent * (each->real ? 1 : 2);
      memory_.emplace_back(scalars * (wide_ ? 2 : 1));
    }
    // Random numbers, since zeros may be faster than real data.
    fill(memory_[0], shape_.input);
  }

  const geometry& shape() const { return shape_; }
  ballast::precision precision() const { return what_.problem.precision; }
  int threads() const { return threads_; }

  // Returns the seconds of a call of each choice, in turns: one row for each round. Infinity where memory is not enough.
  std::vector<std::vector<double>> seconds_of(const std::vector<choice>& tried, bool protect, int rounds) {
    std::vector<std::unique_ptr<transform>> made(tried.size());
    std::vector<int> calls(tried.size(), 0);
    for (std::size_t i = 0; i < tried.size(); ++i) {
      try {
        made[i] = make_chosen_transform(shape_, precision(), protect, tried[i]);
        time(*made[i], protect, 1);
        calls[i] = static_cast<int>(std::clamp(k_round / time(*made[i], protect, 1), 1.0, 1e5));
      } catch (const std::bad_alloc&) {
        made[i] = nullptr;
      }
    }
    std::vector<std::vector<double>> all;
    for (int round = 0; round < rounds; ++round) {
      std::vector<double>& row = all.emplace_back(tried.size(), std::numeric_limits<double>::infinity());
      for (std::size_t i = 0; i < tried.size(); ++i) {
        if (made[i] != nullptr) row[i] = time(*made[i], protect, calls[i]);
      }
    }
    return all;
  }

 private:
  void fill(core::aligned_buffer<float>& to, const side& of) const {
    const std::int64_t scalars = of.extent * (of.real ? 1 : 2);
    for (std::int64_t i = 0; i < scalars; ++i) {
      const double value = core::random_uniform(1, 0, static_cast<std::uint64_t>(i) & 0xfffff) - 0.5;
      if (wide_)
        reinterpret_cast<double*>(to.data())[i] = value;
      else
        to.data()[i] = static_cast<float>(value);
    }
  }

  double time(const transform& work, bool protect, int calls) {
    run::settings how;
    how.protection = protect ? protection::correct : protection::off;
    const direction way = shape_.kind == kind::c2c ? what_.direction : natural_direction(shape_.kind);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      inject::active_injector none(nullptr, site::table());
      run::recorder seen("", backend::cpu, "", how, none);
      const transform_args one{way, 1, 1, false, how.protection, threads_, nullptr, {}, seen, none, true};
      work.run(memory_[0].data(), memory_[1].data(), one);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  }

  token what_;
  geometry shape_;
  bool wide_ = false;
  int threads_ = 1;
  std::vector<core::aligned_buffer<float>> memory_;  // input and output
};

// Returns the candidates that are worth a measurement, the choice by rule first.
std::vector<choice> worth_measuring(const trial& of, bool protect) {
  const auto all = candidates(of.shape(), of.precision(), of.threads());
  std::vector<double> estimates;
  for (const choice& each : all) estimates.push_back(estimated_seconds(of.shape(), of.precision(), each, of.threads(), protect));
  const double least = *std::ranges::min_element(estimates);
  std::vector<choice> made;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || estimates[i] <= k_hopeless * least) made.push_back(all[i]);
  }
  return made;
}

struct winner {
  choice chosen;
  double seconds, by_rule;  // medians
};

// The choice with the least time in any round.
std::size_t fastest(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> least = rounds.front();
  for (const auto& row : rounds) {
    for (std::size_t i = 0; i < row.size(); ++i) least[i] = std::min(least[i], row[i]);
  }
  return static_cast<std::size_t>(std::ranges::min_element(least) - least.begin());
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Returns the choice by rule unless another one is faster by the least gain, in the median of the ratios within a round, and in all rounds
// but one: on a busy machine no choice is.
winner measure(trial& of, bool protect) {
  const std::vector<choice> tried = worth_measuring(of, protect);
  const choice best = tried[fastest(of.seconds_of(tried, protect, k_first_rounds))];
  std::vector<choice> finals{tried.front()};
  if (best != finals.front()) finals.push_back(best);
  // Fewer threads, for the fastest of them.
  for (int fewer = of.threads() / 2; fewer >= 1; fewer /= 2) {
    finals.push_back(best);
    finals.back().threads = fewer;
  }
  const auto rounds = of.seconds_of(finals, protect, k_final_rounds);
  const std::size_t first = fastest(rounds);
  std::vector<double> by_rule, by_first, ratios;
  int lost = 0;
  for (const auto& row : rounds) {
    by_rule.push_back(row[0]);
    by_first.push_back(row[first]);
    ratios.push_back(row[0] / row[first]);
    lost += static_cast<int>(ratios.back() <= 1);
  }
  const double rule = median(by_rule), ratio = median(ratios);
  if (first == 0 || ratio < k_least_gain || lost > 1) return {tried.front(), rule, rule};
  return {finals[first], rule / ratio, rule};
}

}  // namespace

std::vector<std::string> tuned_problems() {
  std::vector<std::string> made;
  for (const char* const precision : {"f32", "f64"}) {
    for (const char* const problem :
         {"c2c_{}_n1024_b1", "c2c_{}_n4096_b1", "c2c_{}_n16384_b1", "c2c_{}_n65536_b1", "c2c_{}_n262144_b1", "c2c_{}_n1048576_b1",
          "c2c_{}_n4096_b1024", "c2c_{}_n16384_b256", "c2c_{}_n65536_b64", "c2c_{}_n262144_b16", "c2c_{}_n1048576_b4", "r2c_{}_n65536_b64",
          "r2c_{}_n1048576_b4", "c2c_{}_n1024x1024_b4", "r2c_{}_n320x320_b64", "c2c_{}_n128x128x128_b2"}) {
      std::string token = problem;
      token.replace(token.find("{}"), 2, precision);
      made.push_back("fft_" + token + "_fwd");
    }
  }
  return made;
}

std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, int threads, choice_table& table,
                                               const std::function<void(const std::string&)>& progress) {
  std::vector<ballast::cuda::tuning_result> results;
  for (const std::string& token : tokens) {
    trial problem(token, threads);
    for (const bool protect : {false, true}) {
      const std::string name = token + (protect ? ", checked" : "");
      const winner best = measure(problem, protect);
      progress(fmt::format("{}: {:.1f} µs by the rule, {:.1f} µs {} {}x{} {}", name, best.by_rule * 1e6, best.seconds * 1e6,
                           to_string(best.chosen.how), best.chosen.n1, best.chosen.n2, to_string(best.chosen.share)));
      const auto at = key_of(problem.shape(), problem.precision(), protect, problem.threads());
      if (at) table.remove(*at);
      if (!at || best.chosen == choose_by_rule(problem.shape(), problem.precision())) continue;
      const choice_form::value entry{best.chosen, ballast::cuda::noted_gain(best.by_rule, best.seconds)};
      table.set(*at, entry);
      choice_table only;
      only.set(*at, entry);
      results.push_back({name, only.to_text(), best.seconds, best.by_rule});
    }
  }
  return results;
}

}  // namespace ballast::fft::cpu
