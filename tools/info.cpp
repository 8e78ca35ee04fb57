// ballast info and ballast bench
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.hpp"

namespace ballast::tools {
namespace {

int run_info(bool json) {
  const library_information info = information();
  std::vector<std::string_view> backends;
  for (const backend each : info.backends) backends.push_back(to_string(each));
  if (json) {
    nlohmann::ordered_json sites, details = nlohmann::ordered_json::array();
    for (const site_information& each : info.sites) {
      sites[each.operation].push_back(each.name);
      details.push_back({{"operation", each.operation}, {"name", each.name}, {"data", each.data}, {"description", each.description}});
    }
    const nlohmann::ordered_json out = {{"version", info.version}, {"backends", backends},    {"devices", info.devices},
                                        {"simd", info.simd},       {"blas", info.blas},       {"threads", info.threads},
                                        {"sites", sites},          {"site_details", details}, {"models", info.models}};
    fmt::print("{}\n", out.dump(2));
    return k_done;
  }
  fmt::print("Ballast {}\nbackends  {}\ndevices   {}\nSIMD      {}\nBLAS      {}\nthreads   {}\nmodels    {}\nsites\n", info.version,
             fmt::join(backends, ", "),
             info.devices.empty() ? "none (this build has no CUDA backend)" : fmt::format("{}", fmt::join(info.devices, ", ")), info.simd,
             info.blas, info.threads, fmt::join(info.models, ", "));
  std::string last;
  for (const site_information& each : info.sites) {
    if (each.operation != last) fmt::print("  {}\n", each.operation);
    last = each.operation;
    fmt::print("    {:<20} {}{}\n", each.name, each.description, each.data ? "" : "  [protection itself]");
  }
  return k_done;
}

}  // namespace

void add_info(CLI::App& app, action_function& selected) {
  CLI::App* command = app.add_subcommand("info", "Say what this build is and what it can do here");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print one JSON object");
  command->callback([json, &selected] { selected = [json] { return run_info(*json); }; });
}

void add_bench(CLI::App& app, action_function& selected) {
  CLI::App* command =
      app.add_subcommand("bench", "Time problems given by their tokens; --peers runs FFTW, scikit-learn and LAPACK beside them");
  command->prefix_command();  // everything after it belongs to ballast-bench
  command->set_help_flag();   // also --help
  command->callback([command, &selected] { selected = [command]() -> int { run_sibling("ballast-bench", command->remaining()); }; });
}

}  // namespace ballast::tools
