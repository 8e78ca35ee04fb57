// The `ballast` command.
// Built twice: `ballast` over the production library, and `ballast-instrumented` over the one that can inject faults. The former hands a
// command line with --inject to the latter, so that what users run and time contains no injector.
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <ballast/ballast.hpp>

#include "command.hpp"

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? tools::k_done : tools::k_bad_usage;
  }
  return selected();
}

#if !defined(BALLAST_INSTRUMENTED)
bool wants_injection(const std::vector<std::string>& arguments) {
  for (const std::string& each : arguments) {
    if (each == "bench" || each == "tune") return false;
    if (each == "--inject" || each.starts_with("--inject=")) return true;
  }
  return false;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const auto fail = [](int status, const char* what) {
    fmt::print(stderr, "ballast: {}\n", what);
    return status;
  };
  try {
#if !defined(BALLAST_INSTRUMENTED)
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (wants_injection(arguments)) tools::run_sibling("ballast-instrumented", arguments);
#endif
    return run(argc, argv);
  } catch (const invalid_argument_error& e) {
    return fail(tools::k_bad_usage, e.what());
  } catch (const unsupported_error& e) {
    return fail(tools::k_bad_usage, e.what());
  } catch (const std::bad_alloc&) {
    return fail(tools::k_bad_usage, "not enough memory for this problem on this machine");
  } catch (const std::length_error&) {
    return fail(tools::k_bad_usage, "not enough memory for this problem on this machine");
  } catch (const std::exception& e) {
    return fail(tools::k_failure, e.what());
  }
}
