// ballast tune: measures the policies on this machine, and writes the fastest, each with its gain, into a table that plans read.
// Layer: tools, over the internals of the library; a subcommand of ballast-kernels, which `ballast tune` runs.
#include "tune.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>
#include <ballast/info.hpp>
#include <ballast/kmeans.hpp>

#include "cuda/device/device.hpp"
#include "cuda/system/private_folder.hpp"
#include "cuda/tuning/tuning_table.hpp"
#include "fft/cpu/tune.hpp"
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

// Returns the text of a table. Throws invalid_argument_error if the file holds something else: it would be replaced.
std::string read_table(const fs::path& file) {
  if (!fs::is_regular_file(file)) return "";
  std::string text = read_whole(file);
  const auto wrong =
      std::ranges::find_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' && c != '\r'; });
  if (wrong != text.end())
    throw invalid_argument_error(
        fmt::format("{}: expected a table of ballast tune, which is text, got byte {:#04x} at offset {}; the file stays as it is",
                    printable(file), static_cast<unsigned char>(*wrong), wrong - text.begin()));
  return text;
}

void warn(const std::vector<std::string>& all) {
  for (const std::string& each : all) write_text(stderr, "{}\n", printable(each));
}

using progress = std::function<void(const std::string&)>;

// The part of the table that one backend tunes.
struct tuned_part {
  std::string machine;                       // for the head of the file
  std::vector<std::string_view> algorithms;  // whose lines `text` has
  std::string text;
  std::vector<cuda::tuning_result> results;
};

tuned_part tune_devices(const tune_settings& how, const std::string& before, const progress& show) {
  // The problems of each algorithm.
  std::vector<std::string> transforms, clusterings;
  for (const std::string& token : how.tokens) (token.starts_with("kmeans_") ? clusterings : transforms).push_back(token);
  auto lines = fft::cuda::tuning_table::parse(before);
  kmeans::cuda::tuning_tables clusters{kmeans::cuda::pass_tuning(kmeans::cuda::pass_tuning::parse(before)),
                                       kmeans::cuda::tile_tuning(kmeans::cuda::tile_tuning::parse(before))};
  warn(lines.warnings());
  warn(clusters.passes.warnings());
  warn(clusters.tiles.warnings());
  tuned_part made;
  made.machine = cuda::current_device()->about().name;
  made.algorithms = {fft::cuda::line_form::algorithm, fft::cuda::split_form::algorithm, kmeans::cuda::pass_form::algorithm,
                     kmeans::cuda::tile_form::algorithm};
  made.results = fft::cuda::tune(transforms, lines, show);
  for (auto& each : kmeans::cuda::tune(clusterings, kmeans::cuda::all_tuned_schemes(), clusters, show))
    made.results.push_back(std::move(each));
  made.text = lines.to_text() + clusters.passes.to_text() + clusters.tiles.to_text();
  return made;
}

tuned_part tune_processor(const tune_settings& how, const std::string& before, const progress& show) {
  auto table = fft::cpu::choice_table::parse(before);
  warn(table.warnings());
  tuned_part made;
  made.machine = information().simd + " processor";
  made.algorithms = {fft::cpu::choice_form::algorithm};
  made.results = fft::cpu::tune(how.tokens, how.threads, table, show);
  made.text = table.to_text();
  return made;
}

// Replaces auto, supplies the common problems and refuses what the backend cannot tune.
void resolve(tune_settings& how) {
  const std::string why_not = cuda::why_unavailable();
  const bool processor = how.backend == "cpu" || (how.backend == "auto" && !why_not.empty());
  if (how.tokens.empty()) how.tokens = processor ? fft::cpu::tuned_problems() : fft::cuda::tuned_problems();
  for (const std::string& token : how.tokens) {
    if (!token.starts_with("kmeans_")) {
      (void)fft::parse_token(token);
    } else if (kmeans::parse_token(token).batch > 1) {
      throw invalid_argument_error(fmt::format("tune: expected problems without a batch, whose kernel has no policy, got \"{}\"", token));
    } else if (how.backend == "cpu") {
      throw invalid_argument_error(fmt::format("tune: expected transforms for backend cpu, got \"{}\"", token));
    } else if (processor) {
      throw unsupported_error(fmt::format("tune: {}: backend cuda: {}", token, why_not));
    }
  }
  if (how.backend == "cuda" && !why_not.empty()) throw unsupported_error(fmt::format("tune: backend cuda: {}", why_not));
  how.backend = processor ? "cpu" : "cuda";
}

}  // namespace

int run_tune(tune_settings how) {
  resolve(how);
  if (how.output.empty()) how.output = cuda::user_tuning_file().string();
  if (how.output.empty()) throw invalid_argument_error("-o: expected a file, since there is no cache folder (set HOME)");
  const fs::path file = how.output;
  if (file.has_parent_path()) (void)cuda::private_folder(file.parent_path()).make();  // perhaps the cache folder; reserve() reports errors
  const std::string before = read_table(file);
  outputs files;
  files.reserve(file);
  // QR's entries are written by hand: its lines stay as they are, and so do those of the other backend.
  warn(cuda::tuning_warnings(before,
                             {fft::cuda::line_form::algorithm, fft::cuda::split_form::algorithm, kmeans::cuda::pass_form::algorithm,
                              kmeans::cuda::tile_form::algorithm, qr::cuda::choice_form::algorithm, fft::cpu::choice_form::algorithm}));
  warn(qr::cuda::choice_table::parse(before).warnings());
  const bool shows = !how.quiet && isatty(2) != 0;
  const auto show = [&](const std::string& line) {
    if (shows) write_text(stderr, "{}\n", line);
  };
  const tuned_part made = how.backend == "cpu" ? tune_processor(how, before, show) : tune_devices(how, before, show);
  std::string others = before;
  for (const std::string_view each : made.algorithms) others = cuda::tuning_lines_of_others(others, each);
  files.write(file, fmt::format("# Made by ballast tune on an {}.\n", made.machine) + made.text + others);
  files.commit();
  if (how.quiet) return 0;
  for (const cuda::tuning_result& each : made.results) {
    std::string policy = each.policy;
    while (policy.ends_with('\n')) policy.pop_back();
    write_text("{:<44} {:>9.1f} µs, by the rules {:>9.1f} µs ({:.2f}x)  {}\n", each.token, each.seconds * 1e6, each.default_seconds * 1e6,
               each.default_seconds / each.seconds, policy);
  }
  write_text("{}: {} entries better than the rules\n", printable(file), made.results.size());
  return 0;
}

}  // namespace ballast::tools
