// The `ballast` command.
// Built twice: `ballast` over the production library, and `ballast-instrumented` over the one that can inject faults. The former hands a
// command line with --inject to the latter, so that what users run and time contains no injector.
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ballast/ballast.hpp>

#include "command.hpp"
#include "usage.hpp"

namespace {

using namespace ballast;

int run(int argc, char** argv) {
  CLI::App app{"Ballast: FFT, K-Means and QR that detect, locate and repair silent data corruption while they compute.", "ballast"};
  app.set_version_flag("--version", [] { return information().version; });
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done (clean, corrected or recomputed), 2 bad usage or input, 3 a fault that could not be repaired, 1 anything else.");
  tools::action_function selected;
  tools::add_kmeans(app, selected);
  tools::add_fft(app, selected);
  tools::add_qr(app, selected);
  tools::add_lstsq(app, selected);
  tools::add_bench(app, selected);
  tools::add_tune(app, selected);
  tools::add_info(app, selected);
  if (const std::optional<int> ended = tools::parse_command_line(app, argc, argv)) return *ended;
#if !defined(BALLAST_INSTRUMENTED)
  // Only what was parsed tells an option from an operand or from an argument of another program.
  for (const CLI::App* command : app.get_subcommands()) {
    const CLI::Option* const inject = command->get_option_no_throw("--inject");
    if (inject != nullptr && inject->count() > 0) tools::run_sibling("ballast-instrumented", {argv + 1, argv + argc});
  }
#endif
  return selected();
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_program("ballast", [&] { return run(argc, argv); });
}
