// Finds two tones in a signal of 1000 samples: a real transform, protected, with its report.
// Prints their amplitudes. Exit status 0 if they are those that the signal has, 1 otherwise.
#include <cmath>
#include <complex>
#include <iostream>
#include <numbers>
#include <vector>

#include <ballast/ballast.hpp>

int main() {
  constexpr int samples = 1000;
  std::vector<double> signal;
  for (int j = 0; j < samples; ++j) {
    const double t = 2 * std::numbers::pi * j / samples;
    signal.push_back(3 * std::sin(50 * t) + std::cos(120 * t));
  }
  std::vector<std::complex<double>> spectrum(samples / 2 + 1);

  try {
    // A plan is made once for a problem. It is immutable, and any number of threads may call it.
    const ballast::fft::plan plan({.kind = ballast::fft::kind::r2c, .precision = ballast::precision::f64, .shape = {samples}});
    const ballast::report seen = plan.forward(signal, spectrum);

    // A tone of amplitude a at frequency k gives |X_k| = a · samples / 2.
    const double strong = 2 * std::abs(spectrum[50]) / samples;
    const double weak = 2 * std::abs(spectrum[120]) / samples;
    std::cout << "amplitude " << strong << " at 50, " << weak << " at 120\n"
              << to_string(seen.verdict) << ", " << seen.checks << " checks\n";
    return std::abs(strong - 3) < 1e-12 && std::abs(weak - 1) < 1e-12 && seen.checks > 0 ? 0 : 1;
  } catch (const ballast::uncorrectable_error& fault) {  // each attempt failed its check: do not use the output
    std::cerr << to_json(fault.report()) << '\n';
  } catch (const ballast::error& problem) {
    std::cerr << problem.what() << '\n';
  }
  return 1;
}
