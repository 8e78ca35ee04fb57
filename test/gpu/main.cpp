// ballast-gpu-check: tests and times the CUDA backends on a GPU, against higher precision and against rivals. scripts/gpu-check builds and
// runs it and formats its output, one JSON object per line, as a table. Exit status: 0 all checks pass, 1 a check failed, 2 bad usage, 4 no
// GPU to run on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include <ballast/error.hpp>
#include <ballast/info.hpp>

#include "../../bench/gpu.hpp"
#include "../strike/subjects/subject.hpp"
#include "algorithm.hpp"
#include "cuda/device/cufft.hpp"
#include "cuda/device/device.hpp"
#include "output.hpp"
#include "run/restart.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_bad_usage = 2, k_no_gpu = 4;

constexpr const char* k_usage =
    "usage: ballast-gpu-check STAGE [--only fft|kmeans|qr] [--seconds S] [--quick] [--groups G,…] [--scheme NAME]… [--pairs] [--strikes N] "
    "[--seed N] "
    "[--backend B] [--nccl FILE] [TOKEN…]\n"
    "stages: info, algorithms, list, kernels [--arch sm_90a] [--bundle FILE], verify (groups instructions, accuracy, pieces, places, "
    "layouts, "
    "clean, huge; faults only in the "
    "instrumented program),\n"
    "        sanitize, bench, kinds, calls (kmeans, qr), first_call (likewise), repairs (fft: instrumented; qr), first_calls (fft), "
    "heatmap, "
    "sweep (kmeans), paper (qr), tune [--table FILE],\n"
    "        struck_kernels [--arch sm_90a] --bundle FILE, strike [--strikes N] [--seed N], threads, distributed, nccl --nccl FILE; their "
    "TOKENs are fft_…, "
    "kmeans_…, "
    "predict_…, "
    "transform_…,\n"
    "        geqrf_…, ormqr_…, ormqr_right_…, orgqr_… and gels_…\n"
    "--only: the algorithm whose stage it is; fft by default. distributed: qr or fft, only the calls of that one\n"
    "--bundle: also write the kernels to FILE, which the programs find as ../share/ballast/kernels.bundle\n"
    "kernels --groups kinds: those of the stage kinds alone\n"
    "TOKEN, --scheme: these instead of the stage's own\n"
    "--pairs: bench, and kernels for it, also with every pair of passes that can be one launch, and with none\n"
    "--nccl: the libnccl.so.2 of the stage nccl, whose groups are fits, faults, losses, qr, times and transforms\n"
    "--backend: cpu or reference instead of cuda, with the host's memory: tries the stages where there is no GPU\n";

const algorithm& algorithm_of(std::string_view name) {
  std::string known;
  for (const algorithm* each : algorithms()) {
    if (each->name == name) return *each;
    known += (known.empty() ? "" : ", ") + std::string(each->name);
  }
  throw invalid_argument_error("--only: expected an algorithm with a CUDA backend (" + known + "), got " + std::string(name));
}

}  // namespace

std::span<const algorithm* const> algorithms() {
  static const algorithm* const all[] = {&fft_algorithm(), &kmeans_algorithm(), &qr_algorithm()};
  return all;
}

namespace {

// Prints the row "info" of the device. Returns the exit status: k_no_gpu if a GPU is needed and there is none.
int print_info(const std::string& stage, bool needs_gpu) {
  row info("info");
  info.add("version", BALLAST_VERSION_TEXT);
  const std::string missing = tested == backend::cuda ? cuda::why_unavailable() : "";
  if (!missing.empty() && needs_gpu) {
    info.add("unavailable", missing).print();
    std::fprintf(stderr, "ballast-gpu-check: %s: cannot run here: %s\n", stage.c_str(), missing.c_str());
    return k_no_gpu;
  }
  if (missing.empty()) {
    const bench::gpu::description device = bench::gpu::open();
    info.add("device", device.name)
        .add("driver", device.driver)
        .add("capability", std::to_string(device.major) + "." + std::to_string(device.minor));
    info.add("multiprocessors", device.multiprocessors).add("l2_bytes", device.l2_bytes).add("memory_bytes", device.memory_bytes);
    info.add("cufft", cuda::cufft_version());
    if (!cuda::why_no_cufft().empty()) info.add("no_cufft", cuda::why_no_cufft());
  }
  info.print();
  return 0;
}

// The same in a process of its own: processes that this one starts later by fork can use the device only if this one has not.
int print_info_elsewhere(const std::string& stage) {
  std::fflush(nullptr);
  const pid_t made = fork();
  if (made < 0) throw error("fork failed");
  if (made == 0) {
    try {
      _exit(print_info(stage, true));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "ballast-gpu-check: %s\n", e.what());
      _exit(1);
    }
  }
  int status = 0;
  if (waitpid(made, &status, 0) != made || !WIFEXITED(status)) return 1;
  return WEXITSTATUS(status);
}

int run(int argc, char** argv) {
  settings wanted;
  double seconds = 1e9;
  std::string stage;
  const algorithm* of = &fft_algorithm();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) throw invalid_argument_error(std::string(argument) + ": expected a value, got nothing");
      return argv[++i];
    };
    if (argument == "--quick") {
      wanted.quick = true;
    } else if (argument == "--pairs") {
      wanted.compare_pairs = true;
    } else if (argument == "--seconds") {
      const std::string given(value());
      char* end = nullptr;
      seconds = std::strtod(given.c_str(), &end);
      if (given.empty() || *end != '\0' || !(seconds > 0))
        throw invalid_argument_error("--seconds: expected a number above 0, got " + given);
    } else if (argument == "--strikes") {
      const std::string given(value());
      char* end = nullptr;
      wanted.strikes = std::strtoll(given.c_str(), &end, 10);
      if (given.empty() || *end != '\0' || wanted.strikes < 1)
        throw invalid_argument_error("--strikes: expected a number above 0, got " + given);
    } else if (argument == "--seed") {
      const std::string given(value());
      char* end = nullptr;
      wanted.seed = std::strtoull(given.c_str(), &end, 10);
      if (given.empty() || *end != '\0') throw invalid_argument_error("--seed: expected a whole number, got " + given);
    } else if (argument == "--arch") {
      wanted.architecture = value();
    } else if (argument == "--bundle") {
      wanted.bundle = value();
    } else if (argument == "--only") {
      wanted.only = value();
      of = &algorithm_of(wanted.only);
    } else if (argument == "--table") {
      wanted.table = value();
    } else if (argument == "--nccl") {
      wanted.nccl = value();
    } else if (argument == "--groups") {
      wanted.groups = value();
    } else if (argument == "--scheme") {
      wanted.schemes.emplace_back(value());
    } else if (argument == "--backend") {
      const std::string given(value());
      const auto parsed = parse_backend(given);
      if (!parsed || *parsed == backend::automatic)
        throw invalid_argument_error("--backend: expected cuda, cpu or reference, got " + given);
      tested = *parsed;
      if (*parsed != backend::cuda) bench::gpu::pretend();
    } else if (argument.starts_with("-")) {
      throw invalid_argument_error(std::string(argument) + ": no such option");
    } else if (stage.empty()) {
      stage = argument;
    } else {
      wanted.tokens.emplace_back(argument);
    }
  }
  const bool strikes = stage == "strike" || stage == "struck_kernels";
  for (const std::string& token : wanted.tokens) {
    if (stage == "threads") {
      (void)strike::parse_subject(token);
    } else if (stage == "distributed") {
      (token.starts_with("qr_") ? qr_algorithm() : fft_algorithm()).check_token(token, stage);
    } else if (strikes) {
      of->check_token(strike::parse_subject(token).token, "strike");
    } else {
      of->check_token(token, stage == "kernels" && wanted.only_kinds() ? "kinds" : stage);
    }
  }
  if (stage == "list") {
    of->list(wanted);
    return 0;
  }
  if (stage == "algorithms") {
    for (const algorithm* each : algorithms()) row("algorithm").add("name", each->name).print();
    return 0;
  }
  const auto chosen = of->stages.find(stage);
  const bool compiles = stage == "kernels" || stage == "struck_kernels";  // needs no GPU
  if (chosen == of->stages.end() && stage != "info" && stage != "strike" && stage != "threads" && stage != "distributed" &&
      stage != "nccl" && !compiles)
    throw invalid_argument_error("STAGE: got \"" + stage + "\"");
  const bool starts_processes = stage == "strike" || stage == "nccl";
  const int ready = starts_processes ? print_info_elsewhere(stage) : print_info(stage, !compiles);
  if (ready != 0) return ready;

  const time_limit limit(seconds);
  const int failed = stage == "info"             ? 0
                     : stage == "kernels"        ? kernels(*of, wanted, limit)
                     : stage == "struck_kernels" ? struck_kernels(*of, wanted, limit)
                     : stage == "strike"         ? strike(*of, wanted, limit)
                     : stage == "threads"        ? threads(wanted, limit)
                     : stage == "distributed"    ? distributed(wanted, limit)
                     : stage == "nccl"           ? nccl(wanted, limit)
                                                 : chosen->second(wanted, limit);
  row("end").add("stage", stage).add("failed", failed).add("seconds", seconds - limit.left()).print();
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ballast::gpu_check

int main(int argc, char** argv) {
#if defined(BALLAST_HAS_CPU)
  ballast::run::restart_with_better_blas_kernels(argv);
#endif
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
