// ballast tune: measures the policies on this machine, and writes the fastest, each with its gain, into a table that plans read.
// Layer: tools, over the internals of the library; a subcommand of ballast-kernels, which `ballast tune` runs.
#include "tune.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>
#include <ballast/kmeans.hpp>

#include "cuda/device/device.hpp"
#include "cuda/system/private_folder.hpp"
#include "cuda/tuning/tuning_table.hpp"
#include "fft/cuda/tune/bundle_catalogue.hpp"
#include "fft/cuda/tune/tune.hpp"
#include "kmeans/cuda/tune/tune.hpp"
#include "outputs.hpp"
#include "qr/cuda/kernels/tuning.hpp"
#include "terminal.hpp"

namespace ballast::tools {
namespace {

namespace fs = std::filesystem;

std::string read_whole(const fs::path& file) {
  std::ifstream from(file);
  if (!from) throw invalid_argument_error(fmt::format("{}: cannot be read", printable(file)));
  std::ostringstream text;
  text << from.rdbuf();
  return text.str();
}

}  // namespace

int run_tune(std::vector<std::string> tokens, std::string output, bool quiet) {
  if (tokens.empty()) tokens = fft::cuda::tuned_problems();
  // The problems of each algorithm.
  std::vector<std::string> transforms, clusterings;
  for (const std::string& token : tokens) {
    if (token.starts_with("kmeans_")) {
      if (kmeans::parse_token(token).batch > 1)
        throw invalid_argument_error(fmt::format("tune: expected problems without a batch, whose kernel has no policy, got \"{}\"", token));
      clusterings.push_back(token);
    } else {
      (void)fft::parse_token(token);
      transforms.push_back(token);
    }
  }
  if (const std::string why = cuda::why_unavailable(); !why.empty()) throw unsupported_error(fmt::format("tune: backend cuda: {}", why));
  if (output.empty()) output = cuda::user_tuning_file().string();
  if (output.empty()) throw invalid_argument_error("-o: expected a file, since there is no cache folder (set HOME)");
  const fs::path file = output;
  if (file.has_parent_path()) (void)cuda::private_folder(file.parent_path()).make();  // perhaps the cache folder; reserve() reports errors
  outputs files;
  files.reserve(file);
  const std::string before = fs::is_regular_file(file) ? read_whole(file) : "";
  auto lines = fft::cuda::tuning_table::parse(before);
  kmeans::cuda::tuning_tables clusters{kmeans::cuda::pass_tuning(kmeans::cuda::pass_tuning::parse(before)),
                                       kmeans::cuda::tile_tuning(kmeans::cuda::tile_tuning::parse(before))};
  const std::vector<std::string_view> known = {fft::cuda::line_form::algorithm, fft::cuda::split_form::algorithm,
                                               kmeans::cuda::pass_form::algorithm, kmeans::cuda::tile_form::algorithm};
  const auto warn = [](const std::vector<std::string>& all) {
    for (const std::string& each : all) write_text(stderr, "{}\n", printable(each));
  };
  // QR's entries are written by hand: its lines stay as they are.
  std::vector<std::string_view> read_by_plans = known;
  read_by_plans.push_back(qr::cuda::choice_form::algorithm);
  warn(cuda::tuning_warnings(before, read_by_plans));
  warn(qr::cuda::choice_table::parse(before).warnings());
  warn(lines.warnings());
  warn(clusters.passes.warnings());
  warn(clusters.tiles.warnings());
  const bool shows = !quiet && isatty(2) != 0;
  const auto show = [&](const std::string& line) {
    if (shows) write_text(stderr, "{}\n", line);
  };
  auto results = fft::cuda::tune(transforms, lines, show);
  for (auto& each : kmeans::cuda::tune(clusterings, kmeans::cuda::all_tuned_schemes(), clusters, show)) results.push_back(std::move(each));
  std::string others = before;
  for (const std::string_view each : known) others = cuda::tuning_lines_of_others(others, each);
  files.write(file, fmt::format("# Made by ballast tune on an {}.\n", cuda::current_device()->about().name) + lines.to_text() +
                        clusters.passes.to_text() + clusters.tiles.to_text() + others);
  files.commit();
  if (quiet) return 0;
  for (const cuda::tuning_result& each : results) {
    std::string policy = each.policy;
    while (policy.ends_with('\n')) policy.pop_back();
    write_text("{:<44} {:>9.1f} µs, by the rules {:>9.1f} µs ({:.2f}x)  {}\n", each.token, each.seconds * 1e6, each.default_seconds * 1e6,
               each.default_seconds / each.seconds, policy);
  }
  write_text("{}: {} entries better than the rules\n", printable(file), results.size());
  return 0;
}

}  // namespace ballast::tools
