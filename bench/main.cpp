// ballast-bench: times problems with and without protection, and their rivals, in one process.
// Google Benchmark interleaves the repetitions of all variants of a problem in random order, so that a slow period of the machine affects
// all of them equally. The program prints medians, and ratios of medians of the same run.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "floors.hpp"
#include "run/restart.hpp"
#include "suites.hpp"
#include "table.hpp"

namespace ballast::bench {
namespace {

// Collects the time of every repetition.
class collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      if (run.error_occurred) throw error(run.run_name.function_name + ": " + run.error_message);
      seconds[run.run_name.function_name].push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
    }
  }
  std::map<std::string, std::vector<double>> seconds;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

subject make(const std::string& token, const settings& how) {
  if (token.starts_with("fft_")) return make_fft(token, how);
  if (token.starts_with("kmeans_")) return make_kmeans(token, how);
  if (token.starts_with("qr_")) return make_qr(token, how);
  if (token.starts_with("geqp3_")) return make_geqp3(token, how);
  if (token.starts_with("gelsy_")) return make_gelsy(token, how);
  if (token.starts_with("convolve_") || token.starts_with("correlate_")) return make_convolution(token, how);
  throw invalid_argument_error(
      fmt::format("token: expected fft_…, convolve_…, correlate_…, kmeans_…, qr_…, geqp3_… or gelsy_…, got \"{}\"", token));
}

nlohmann::ordered_json measure(const subject& what, int repeat, double least_seconds) {
  benchmark::ClearRegisteredBenchmarks();
  for (const variant& each : what.variants) {
    benchmark::RegisterBenchmark(each.name.c_str(),
                                 [&each](benchmark::State& state) {
                                   for (auto _ : state) state.SetIterationTime(each.run());
                                 })
        ->UseManualTime()
        ->Repetitions(repeat)
        ->MinTime(least_seconds);
  }
  collector seen;
  benchmark::RunSpecifiedBenchmarks(&seen);

  nlohmann::ordered_json out = {{"token", what.token}, {"unit", what.unit}};
  std::map<std::string, double> medians;
  for (const variant& each : what.variants) {
    medians[each.name] = median(seen.seconds.at(each.name));
    const auto [least, most] = std::ranges::minmax(seen.seconds.at(each.name));
    nlohmann::ordered_json row = {{"median_seconds", medians[each.name]}, {"min_seconds", least}, {"max_seconds", most}};
    if (what.flops > 0) row["gflops"] = what.flops / medians[each.name] * 1e-9;
    out["variants"][each.name] = std::move(row);
  }
  for (const auto& [name, why] : what.missing) out["missing"][name] = why;
  out["protection_overhead"] = medians.at("correct") / medians.at("off") - 1;
  // With several rivals (cuFFT has two plans) compare with the fastest.
  double best = 0;
  for (const variant& each : what.variants) {
    if (each.name == "off" || each.name == "correct" || (best > 0 && medians.at(each.name) >= best)) continue;
    best = medians.at(each.name);
    out["peer"] = each.name;
    out["speedup_off"] = best / medians.at("off");
    out["speedup_correct"] = best / medians.at("correct");
  }
  return out;
}

void print_row(const nlohmann::ordered_json& row) {
  const auto& variants = row.at("variants");
  const auto milliseconds = [&](const std::string& name) { return variants.at(name).at("median_seconds").get<double>() * 1e3; };
  std::string line = fmt::format("| `{}` | {:.3g} | {:.1f} | {:.3g} | {:+.1f} % |", row.at("token").get<std::string>(), milliseconds("off"),
                                 variants.at("off").at("gflops").get<double>(), milliseconds("correct"),
                                 row.at("protection_overhead").get<double>() * 100);
  if (row.contains("peer")) {
    line +=
        fmt::format(" {} {:.3g} | {:.2f} | {:.2f} |", row.at("peer").get<std::string>(), milliseconds(row.at("peer").get<std::string>()),
                    row.at("speedup_off").get<double>(), row.at("speedup_correct").get<double>());
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  CLI::App app{"Times problems with protection off and on, and with --peers against FFTW or cuFFT, scikit-learn and OpenBLAS's LAPACK.",
               "ballast bench"};
  std::vector<std::string> tokens;
  settings how;
  int repeat = 7;
  double least = 0.2;
  bool json = false;
  std::string suite, backend = "auto";
  how.python = "/usr/bin/python3";
  how.scripts = BALLAST_BENCH_SCRIPTS;
  app.add_option("TOKEN", tokens,
                 "problems, for instance fft_c2c_f32_n1024_b16384_fwd, fft_dct2_f64_n1024_b64_fwd, convolve_real_f32_n65536_m129_same, "
                 "kmeans_f32_m131072_n128_k128 (also kmeans_bf16_…, …_csr, …_spherical, …_mini1000), qr_f64_m2048_n2048 (also qr_c128_…), "
                 "geqp3_…, gelsy_…");
  app.add_option("--suite", suite, "take the problems of a published table")->check(CLI::IsMember({"cpu", "fft", "fft-short"}));
  app.add_option("--rivals", how.rivals, "an environment of Python that has MKL, DUCC and SciPy (scripts/rivals-environment)");
  app.add_flag("--peers", how.peers, "run the rivals, too");
  app.add_option("--repeat", repeat, "repetitions of each variant; medians are printed")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--min-time", least, "seconds that one repetition lasts at least")->check(CLI::Range(1e-6, 60.0))->capture_default_str();
  app.add_option("--backend", backend, "what computes; cuda: data lie on the device and the rival of FFTs is cuFFT")
      ->check(CLI::IsMember({"auto", "reference", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", how.threads, "threads of every variant, 0: all cores")->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_option("--python", how.python, "interpreter that has scikit-learn")->capture_default_str();
  app.add_flag("--json", json, "print one JSON object instead of a Markdown table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (!suite.empty()) {
    for (std::string& each : problems_of(suite)) tokens.push_back(std::move(each));
  }
  if (tokens.empty()) throw invalid_argument_error("bench: expected at least one TOKEN or --suite, got none");
  const library_information info = information();
  how.backend = *parse_backend(backend);
  if (how.threads == 0) how.threads = info.threads;

  nlohmann::ordered_json all = {
      {"operation", "bench"}, {"version", info.version}, {"backend", backend}, {"simd", info.simd},
      {"blas", info.blas},    {"threads", how.threads},  {"repeat", repeat},   {"results", nlohmann::ordered_json::array()}};
  const bool page = suite.starts_with("fft");  // the page of transforms has all rivals and floors
  std::optional<fft_table> table;
  if (page) {
    table.emplace(measure_floors(how.threads));
    if (!json) table->print_head();
  } else if (!json) {
    fmt::print("| problem | off, ms | GFLOP/s | correct, ms | protection |{}\n",
               how.peers ? " rival, ms | speed-up, off | speed-up, correct |" : "");
    fmt::print("|---|---|---|---|---|{}\n", how.peers ? "---|---|---|" : "");
  }
  for (const std::string& token : tokens) {
    const subject what = make(token, how);
    auto row = measure(what, repeat, least);
    if (page) table->add(what, row);
    if (!json && !page) print_row(row);
    if (!json && page) table->print_last();
    all["results"].push_back(std::move(row));
  }
  if (page && !json) table->print_summary();
  if (json) fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace
}  // namespace ballast::bench

int main(int argc, char** argv) {
  ballast::run::restart_with_better_blas_kernels(argv);
  // Google Benchmark reads its settings from arguments: this one enables random interleaving.
  std::string name = "ballast-bench", interleave = "--benchmark_enable_random_interleaving=true";
  char* fixed[] = {name.data(), interleave.data(), nullptr};
  int count = 2;
  benchmark::Initialize(&count, fixed);
  try {
    const int status = ballast::bench::run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    fmt::print(stderr, "ballast bench: standard output could not be written in full\n");
    return 1;
  } catch (const ballast::invalid_argument_error& e) {
    fmt::print(stderr, "ballast bench: {}\n", e.what());
    return 2;
  } catch (const ballast::unsupported_error& e) {
    fmt::print(stderr, "ballast bench: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "ballast bench: {}\n", e.what());
    return 1;
  }
}
