// The `ballast` command.
// Built twice: `ballast` with the production library, and `ballast-instrumented` with the library that can inject faults. `ballast` passes
// a command line with --inject to `ballast-instrumented`, so that the program that users run and time contains no injector.
#include <optional>

#include <ballast/ballast.hpp>

#include "command.hpp"
#include "run/restart.hpp"

namespace {

using namespace ballast;

int run(int argc, char** argv) {
  tools::command_line program("ballast",
                              "Ballast: FFT, K-Means and QR that detect, locate and repair silent data corruption while they compute.");
  program.version([] { return information().version; });
  program.footer(
      "Exit status: 0 done (clean, corrected or recomputed), 2 bad usage or input, 3 a fault that could not be repaired, 1 anything else.");
  tools::add_kmeans(program);
  tools::add_fft(program);
  tools::add_convolve(program);
  tools::add_qr(program);
  tools::add_lstsq(program);
  tools::add_bench(program);
  tools::add_tune(program);
  tools::add_info(program);
  if (const std::optional<int> ended = program.parse(argc, argv)) return *ended;
#if !defined(BALLAST_INSTRUMENTED)
  // Only the parser can distinguish the option from an operand or from an argument of another program.
  if (program.given("--inject")) tools::run_sibling("ballast-instrumented", {argv + 1, argv + argc});
#endif
  return program.run();
}

}  // namespace

int main(int argc, char** argv) {
  ballast::run::restart_with_better_blas_kernels(argv);
  return tools::run_program("ballast", [&] { return ::run(argc, argv); });
}
