// The subcommands `ballast info`, `ballast bench` and `ballast tune`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.hpp"

namespace ballast::tools {
namespace {

int run_info(bool json) {
  const library_information info = information();
  // Names from the environment and the file system are printed to a terminal and into JSON, so control characters are escaped.
  const auto text = [](const std::string& value) { return printable(value); };
  std::vector<std::string_view> backends;
  for (const backend each : info.backends) backends.push_back(to_string(each));
  if (json) {
    nlohmann::ordered_json sites, details = nlohmann::ordered_json::array();
    for (const site_information& each : info.sites) {
      sites[each.operation].push_back(each.name);
      details.push_back({{"operation", each.operation}, {"name", each.name}, {"data", each.data}, {"description", each.description}});
    }
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const device_information& each : info.devices)
      devices.push_back({{"name", each.name},
                         {"compute_capability", each.compute_capability},
                         {"multiprocessors", each.multiprocessors},
                         {"memory", each.memory}});
    const cuda_information& cuda = info.cuda;
    const nlohmann::ordered_json accelerator = {
        {"available", cuda.unavailable.empty()}, {"unavailable", text(cuda.unavailable)},           {"driver", cuda.driver},
        {"compiler", text(cuda.compiler)},       {"without_compiler", text(cuda.without_compiler)}, {"bundle", text(cuda.bundle)},
        {"bundle_kernels", cuda.bundle_kernels}, {"without_bundle", text(cuda.without_bundle)},     {"cache", text(cuda.cache)},
        {"cache_state", text(cuda.cache_state)}};
    const nlohmann::ordered_json out = {{"version", info.version}, {"backends", backends}, {"devices", devices},      {"cuda", accelerator},
                                        {"simd", info.simd},       {"blas", info.blas},    {"threads", info.threads}, {"sites", sites},
                                        {"site_details", details}, {"models", info.models}};
    write_text("{}\n", out.dump(2));
    return k_done;
  }
  const cuda_information& cuda = info.cuda;
  const auto either = [&](const std::string& value, const std::string& otherwise) { return value.empty() ? otherwise : text(value); };
  write_text("Ballast {}\nbackends  {}\nSIMD      {}\nBLAS      {}\nthreads   {}\n", info.version, fmt::join(backends, ", "), info.simd,
             info.blas, info.threads);
  write_text("CUDA      {}\n", either(cuda.unavailable, "available"));
  for (const device_information& each : info.devices)
    write_text("  device    {}, compute capability {}, {} multiprocessors, {:.1f} GiB\n", each.name, each.compute_capability,
               each.multiprocessors, static_cast<double>(each.memory) / (1 << 30));
  write_text("  driver    {}\n  compiler  {}\n  bundle    {}\n  cache     {}\n",
             cuda.driver.empty() ? "none" : fmt::format("for CUDA {}", cuda.driver),
             cuda.compiler.empty() ? text(cuda.without_compiler) : fmt::format("NVRTC {}", text(cuda.compiler)),
             cuda.bundle.empty() ? text(cuda.without_bundle) : fmt::format("{} ({} kernels)", text(cuda.bundle), cuda.bundle_kernels),
             cuda.cache.empty() ? text(cuda.cache_state) : fmt::format("{} ({})", text(cuda.cache), text(cuda.cache_state)));
  write_text("models    {}\nsites\n", fmt::join(info.models, ", "));
  std::string last;
  for (const site_information& each : info.sites) {
    if (each.operation != last) write_text("  {}\n", each.operation);
    last = each.operation;
    write_text("    {:<20} {}{}\n", each.name, each.description, each.data ? "" : "  [protection itself]");
  }
  return k_done;
}

}  // namespace

void add_info(command_line& program) {
  command_line& command = program.subcommand("info", "Say what this build is and what it can do here");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "print one JSON object");
  command.action([json] { return run_info(*json); });
}

namespace {

// Adds a subcommand that runs another program. --help shows it if that program is installed. `origin` says where it comes from.
void add_program(command_line& program, const std::string& name, const std::string& description, const std::string& other,
                 const std::vector<std::string>& first, const std::string& origin) {
  command_line& command = program.subcommand(name, description);
  if (sibling(other).empty()) command.hide();
  auto rest = std::make_shared<std::vector<std::string>>();
  command.rest(*rest);
  command.action([=]() -> int {
    std::vector<std::string> arguments = first;
    arguments.insert(arguments.end(), rest->begin(), rest->end());
    run_sibling(other, arguments, origin);
  });
}

}  // namespace

void add_bench(command_line& program) {
  add_program(program, "bench", "Time problems given by their tokens; --peers runs FFTW or cuFFT, scikit-learn and LAPACK beside them",
              "ballast-bench", {}, "it is built from the source, with -DBALLAST_BUILD_BENCHMARKS=ON, and runs in the build folder");
}

void add_tune(command_line& program) {
  add_program(program, "tune", "Measure what is fastest on this machine for problems given by their tokens, and keep it for later plans",
              "ballast-kernels", {"tune"}, "it is installed beside this program");
}

}  // namespace ballast::tools
