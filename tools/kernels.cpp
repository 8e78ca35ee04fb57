// ballast-kernels: compiles the kernels of the common problems without a GPU, and tunes them on one.
//   bundle  writes them into one file, which the library finds in its installation, so that first calls need no compiler
//   check   prints the resources of each kernel, and fails if one has register spills or exceeds its budget
//   ptx     prints a hash of each kernel's PTX, without names and unused constants: a change that only moves code changes no hash
//   tune    implements `ballast tune` (tune.cpp)
// Layer: tools, over the internals of the library.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/ballast.hpp>

#include "command_line.hpp"
#include "cuda/arch/checks.hpp"
#include "cuda/jit/jit.hpp"
#include "fft/cuda/tune/bundle_catalogue.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "outputs.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "terminal.hpp"
#include "tune.hpp"

namespace {

using namespace ballast;

struct job {
  cuda::capabilities on;
  cuda::kernel_request wanted;
  std::shared_ptr<const cuda::image> made;
  std::string failure;
  double seconds = 0;  // processor time of the compiler; 0: it was in the cache
};

using kernel_list = std::vector<cuda::kernel_request> (*)(const cuda::capabilities&);

// Returns the catalogue, which `check` and `ptx` compile: the algorithms' kernels, and the one that calls the functions of src/abft, and
// those that load twice.
std::vector<cuda::kernel_request> catalogue(const cuda::capabilities& on) {
  std::vector<cuda::kernel_request> list = fft::cuda::checked_kernels(on);
  for (cuda::kernel_request& each : kmeans::cuda::checked_kernels(on)) list.push_back(std::move(each));
  for (cuda::kernel_request& each : kmeans::cuda::scheme_kernels(on)) list.push_back(std::move(each));
  for (cuda::kernel_request& each : qr::cuda::checked_kernels(on)) list.push_back(std::move(each));
  list.push_back({.header = "cuda/device/probe.cuh", .expression = "ballast::cuda::abft_kernel<64>", .threads = 64});
  for (const auto& [type, bytes] : {std::pair{"float", 4}, std::pair{"double", 8}, std::pair{"float4", 16}}) {
    using arch::checks::k_twice_loads;
    list.push_back({.header = "cuda/arch/checks.cuh",
                    .expression = fmt::format("ballast::arch::checks::twice_kernel<{}, 0>", type),
                    .threads = 128,
                    .shared = 128 * bytes,
                    .loads = {.global = k_twice_loads, .streamed = 2, .shared = 2}});
  }
  return list;
}

// Returns the kernels of the bundle.
std::vector<cuda::kernel_request> common(const cuda::capabilities& on) {
  std::vector<cuda::kernel_request> list = fft::cuda::common_kernels(on);
  for (cuda::kernel_request& each : kmeans::cuda::common_kernels(on)) list.push_back(std::move(each));
  for (cuda::kernel_request& each : qr::cuda::checked_kernels(on)) list.push_back(std::move(each));
  return list;
}

// Selects kernels of the catalogue: those whose expression contains `filter`, and of these every `every`-th one. The first one differs by
// architecture.
struct selection {
  std::string filter;
  int every = 1;
};

// Compiles the selected requests for all architectures, on all cores. Each job stores its failure. With `ptx` it compiles to PTX instead of
// machine code.
std::vector<job> compile_all(const std::vector<std::string>& architectures, kernel_list list, const selection& chosen = {},
                             bool ptx = false) {
  std::vector<job> jobs;
  int first = 0;
  for (const std::string& architecture : architectures) {
    const cuda::capabilities on = cuda::typical_capabilities(architecture);
    int number = first++;
    for (const cuda::kernel_request& wanted : list(on)) {
      if (wanted.expression.find(chosen.filter) == std::string::npos) continue;
      if (number++ % chosen.every == 0) jobs.push_back({on, wanted, nullptr, "", 0});
    }
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        const std::string target = ptx ? "compute" + jobs[i].on.name.substr(2) : jobs[i].on.name;
        const cuda::kernel_cache::found got = cuda::kernels().get(jobs[i].wanted, target);
        jobs[i].made = got.made;
        jobs[i].seconds = got.seconds;
      } catch (const std::exception& refused) {
        jobs[i].failure = refused.what();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // the process cannot start more threads: use those that it has
    }
    work();
  }
  return jobs;
}

int run_bundle(const std::vector<std::string>& architectures, const selection& chosen, const std::filesystem::path& file, bool list) {
  tools::outputs files;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  files.reserve(file);
  std::vector<cuda::image> images;
  double seconds = 0;
  for (const job& each : compile_all(architectures, common, chosen)) {
    if (each.made == nullptr) {
      tools::write_text(stderr, "ballast-kernels: {}\n", each.failure);
      return 1;
    }
    seconds += each.seconds;
    if (list)
      tools::write_text("{:<10} {:>7.3f} s {:>7} bytes  {}\n", each.on.name, each.seconds, each.made->code.size(), each.wanted.expression);
    // Several problems may need the same kernel: store it once.
    const auto same = [&](const cuda::image& other) { return other.text == each.made->text; };
    if (std::ranges::none_of(images, same)) images.push_back(*each.made);
  }
  files.write(file, [&](const auto& put) {
    for (const cuda::image& each : images) put(cuda::pack(each));
  });
  files.commit();
  std::size_t bytes = 0;
  for (const cuda::image& each : images) bytes += each.code.size();
  tools::write_text("{}: {} kernels, {:.1f} MB, {:.0f} s of the compiler\n", tools::printable(file), images.size(),
                    1e-6 * static_cast<double>(bytes), seconds);
  return 0;
}

// Returns PTX without the parts that change if code only moves: it removes comments, file names, and constants of headers that the kernel
// does not use but the compiler lists. Mangled symbols become numbers, in the order of their first use.
std::string without_names(const std::string& ptx) {
  static const std::regex noise("//[^\n]*|_Z[A-Za-z0-9_$]+");
  static const std::regex symbol("_Z[A-Za-z0-9_$]+");
  std::map<std::string, int> uses;
  for (std::sregex_iterator each(ptx.begin(), ptx.end(), symbol), end; each != end; ++each) ++uses[each->str()];
  std::string used;
  for (std::size_t first = 0; first < ptx.size();) {
    const std::size_t next = std::min(ptx.find('\n', first), ptx.size() - 1) + 1;
    const std::string line = ptx.substr(first, next - first);
    std::smatch name;
    if (!line.starts_with(".global ") || !std::regex_search(line, name, symbol) || uses[name.str()] > 1) used += line;
    first = next;
  }
  std::map<std::string, std::size_t> numbers;
  std::string made;
  auto rest = used.cbegin();
  for (std::sregex_iterator each(used.cbegin(), used.cend(), noise), end; each != end; ++each) {
    made.append(rest, (*each)[0].first);
    rest = (*each)[0].second;
    if (each->str().front() == '_') made += fmt::format("@{}", numbers.try_emplace(each->str(), numbers.size()).first->second);
  }
  return made.append(rest, used.cend());
}

int run_ptx(const std::vector<std::string>& architectures, const selection& chosen) {
  int failures = 0;
  for (job& each : compile_all(architectures, catalogue, chosen, true)) {
    if (each.made == nullptr) {
      ++failures;
      tools::write_text(stderr, "ballast-kernels: {}\n", each.failure);
      continue;
    }
    const std::string text = without_names(each.made->code);
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    tools::write_text("{:016x} {} {}\n", hash, each.on.name, each.wanted.expression);
  }
  return failures == 0 ? 0 : 1;
}

int run_check(const std::vector<std::string>& architectures, const selection& chosen) {
  int failures = 0;
  const auto jobs = compile_all(architectures, catalogue, chosen);
  for (const job& each : jobs) {
    std::string verdict = each.failure;
    if (each.made != nullptr) {
      const auto& uses = each.made->uses;
      verdict = cuda::over_budget(*each.made, each.wanted, each.on);
      tools::write_text("{:<7} registers {:>3} of {:>3}  spills {}  stack {}  shared {:>6}  {}\n", each.on.name, uses.registers,
                        cuda::register_budget(each.wanted, each.on), uses.spills, uses.stack, uses.static_shared + each.wanted.shared,
                        each.wanted.expression);
    }
    if (verdict.empty()) continue;
    ++failures;
    tools::write_text("{:<7} FAILED: {}: {}\n", each.on.name, each.wanted.expression, verdict);
  }
  tools::write_text("{} kernels, {} failed\n", jobs.size(), failures);
  return failures == 0 ? 0 : 1;
}

// Returns the architectures of a bundle: machine code for A100, for H100 and H200, and where NVRTC knows it for B200; PTX for all others.
std::vector<std::string> bundled_architectures() {
  std::vector<std::string> made{"sm_80", "sm_90a"};
  const cuda::nvrtc::compiler* const with = cuda::nvrtc::find(std::numeric_limits<int>::max());
  if (with != nullptr && std::ranges::find(with->architectures(), 100) != with->architectures().end()) made.emplace_back("sm_100a");
  made.emplace_back("compute_90");
  return made;
}

int run(int argc, char** argv) {
  tools::command_line program(
      "ballast-kernels",
      "Compiles Ballast's kernels for the common problems; needs NVRTC, but no GPU. Tunes them on a GPU, and transforms on a processor.");
  std::vector<std::string> architectures{"sm_80", "sm_90a"}, bundled;
  std::string file;
  selection chosen;
  tools::command_line& bundle = program.subcommand("bundle", "write them into one file");
  tools::command_line& check =
      program.subcommand("check", "print registers, spills and shared memory of each; fail if one is over its budget");
  tools::command_line& ptx = program.subcommand("ptx", "print a hash of the PTX of each, without names and unused constants");
  for (tools::command_line* command : {&check, &ptx}) command->list("--arch", architectures, "architectures, separated by commas");
  bundle.list("--arch", bundled,
              "architectures, separated by commas; default: sm_80, sm_90a, sm_100a if NVRTC knows it, and PTX, compute_90");
  for (tools::command_line* command : {&bundle, &check, &ptx}) {
    command->text("--filter", chosen.filter, "only kernels whose expression contains this text");
    command->integer("--every", chosen.every, "one of so many kernels, for each architecture others", 1);
  }
  bool list = false;
  bundle.flag("--list", list, "print the compiler's processor time and the bytes of each; 0 s: it was in the cache of kernels");
  bundle.text("-o", file, "the file to write", tools::presence::required);
  bundle.action([&] { return run_bundle(bundled.empty() ? bundled_architectures() : bundled, chosen, file, list); });
  check.action([&] { return run_check(architectures, chosen); });
  ptx.action([&] { return run_ptx(architectures, chosen); });
  std::vector<std::string> tokens;
  std::string backend = "auto", table;
  int threads = 0;
  bool quiet = false;
  tools::command_line& tune = program.subcommand("tune", "measure what is fastest on this machine and keep the winners with their gains");
  tune.operands("TOKEN", tokens,
                "problems, for instance fft_c2c_f32_n1024_b16384_fwd or kmeans_f32_m131072_n128_k128; default: common transforms");
  tune.choice("--backend", backend, "what is tuned; auto: kernels for the GPU, where there is none transforms on the processor",
              {"auto", "cpu", "cuda"});
  tune.integer("--threads", threads, "cpu: threads of the plans that will use the entry; 0: as many as a plan takes by itself", 0);
  tune.text("-o,--output", table, "the table to add to; default: the one that plans read, tuning.txt in the cache folder");
  tune.flag("--quiet", quiet, "print nothing but errors");
  tune.action([&] { return tools::run_tune({tokens, backend, threads, table, quiet}); });
  if (const std::optional<int> ended = program.parse(argc, argv)) return *ended;
  return program.run();
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_program("ballast-kernels", [&] { return run(argc, argv); });
}
