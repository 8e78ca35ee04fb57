// ballast-gpu-check: tests and times the CUDA backend of the FFT on a GPU, against more precision and against cuFFT. scripts/gpu-check
// builds and runs it and makes a table of what it prints, one JSON object a line. Exit status: 0 all is right, 1 a check failed, 2 bad
// usage, 4 no GPU to run on.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ballast/error.hpp>

#include "../../bench/gpu.hpp"
#include "../../bench/peers/cufft.hpp"
#include "output.hpp"
#include "problems.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_bad_usage = 2, k_no_gpu = 4;

constexpr const char* k_usage =
    "usage: ballast-gpu-check STAGE [--seconds S] [--quick] [--groups G,…] [--scheme NAME]… [TOKEN…]\n"
    "stages: info, list, verify (groups accuracy, places, layouts, faults, clean, huge), sanitize, bench, heatmap\n"
    "TOKEN, --scheme: these instead of the stage's own\n";

int list(const settings& wanted) {
  const auto print = [](const char* stage, const std::vector<std::string>& tokens) {
    for (const std::string& token : tokens) {
      (void)fft::parse_token(token);
      row("problem").add("stage", stage).add("token", token).print();
    }
  };
  print("accuracy", accuracy_set(wanted.quick));
  print("faults", fault_set(wanted.quick));
  print("huge", huge_set());
  print("sanitize", sanitizer_set());
  std::vector<std::string> timed;
  for (const timed_problem& each : benchmark_set(wanted.quick)) timed.push_back(each.token);
  print("bench", timed);
  return 0;
}

int run(int argc, char** argv) {
  settings wanted;
  double seconds = 1e9;
  std::string stage;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) throw invalid_argument_error(std::string(argument) + ": expected a value, got nothing");
      return argv[++i];
    };
    if (argument == "--quick") {
      wanted.quick = true;
    } else if (argument == "--seconds") {
      const std::string given(value());
      char* end = nullptr;
      seconds = std::strtod(given.c_str(), &end);
      if (given.empty() || *end != '\0' || !(seconds > 0))
        throw invalid_argument_error("--seconds: expected a number above 0, got " + given);
    } else if (argument == "--groups") {
      wanted.groups = value();
    } else if (argument == "--scheme") {
      wanted.schemes.emplace_back(value());
    } else if (argument.starts_with("-")) {
      throw invalid_argument_error(std::string(argument) + ": no such option");
    } else if (stage.empty()) {
      stage = argument;
    } else {
      (void)fft::parse_token(argument);
      wanted.tokens.emplace_back(argument);
    }
  }
  if (stage == "list") return list(wanted);
  const bool known = stage == "info" || stage == "verify" || stage == "sanitize" || stage == "bench" || stage == "heatmap";
  if (!known) throw invalid_argument_error("STAGE: expected one of info, list, verify, sanitize, bench, heatmap, got \"" + stage + "\"");

  row info("info");
  info.add("version", BALLAST_VERSION);
  const std::string missing = bench::gpu::why_none();
  if (!missing.empty()) {
    info.add("unavailable", missing).print();
    std::fprintf(stderr, "ballast-gpu-check: %s: cannot run here: %s\n", stage.c_str(), missing.c_str());
    return k_no_gpu;
  }
  const bench::gpu::description device = bench::gpu::open();
  info.add("device", device.name)
      .add("driver", device.driver)
      .add("capability", std::to_string(device.major) + "." + std::to_string(device.minor));
  info.add("multiprocessors", device.multiprocessors).add("l2_bytes", device.l2_bytes).add("memory_bytes", device.memory_bytes);
  info.add("cufft", bench::cufft_version());
  if (!bench::why_no_cufft().empty()) info.add("no_cufft", bench::why_no_cufft());
  info.print();

  const time_limit limit(seconds);
  const int failed = stage == "verify"     ? verify(wanted, limit)
                     : stage == "sanitize" ? sanitize(wanted, limit)
                     : stage == "bench"    ? bench(wanted, limit)
                     : stage == "heatmap"  ? heatmap(wanted, limit)
                                           : 0;
  row("end").add("stage", stage).add("failed", failed).add("seconds", seconds - limit.left()).print();
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ballast::gpu_check

int main(int argc, char** argv) {
  try {
    return ballast::gpu_check::run(argc, argv);
  } catch (const ballast::invalid_argument_error& e) {
    std::fprintf(stderr, "ballast-gpu-check: %s\n%s", e.what(), ballast::gpu_check::k_usage);
    return ballast::gpu_check::k_bad_usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ballast-gpu-check: %s\n", e.what());
    return 1;
  }
}
