// A user's program over an installed Ballast: each algorithm once, through the public headers alone.
#include <cmath>
#include <complex>
#include <cstdio>
#include <vector>

#include <ballast/ballast.hpp>

int main() {
  // A cosine of 5 periods in 64 samples has its energy in component 5.
  std::vector<float> wave(64);
  std::vector<std::complex<float>> spectrum(33);
  for (std::size_t i = 0; i < wave.size(); ++i) wave[i] = std::cos(2 * 3.14159265f * 5 * static_cast<float>(i) / 64);
  ballast::fft::plan plan({.kind = ballast::fft::kind::r2c, .precision = ballast::precision::f32, .shape = {64}});
  const ballast::report seen = plan.forward(wave, spectrum);
  if (seen.verdict != ballast::verdict::clean || std::abs(std::abs(spectrum[5]) - 32) > 1e-3f || std::abs(spectrum[6]) > 1e-3f) return 1;

  // Two clusters on a line.
  const std::vector<double> points = {0, 0.1, 0.2, 10, 10.1, 10.2};
  const auto model = ballast::kmeans::fit(ballast::row_major(points.data(), 6, 1), 2, {.seed = 1});
  if (model.labels[0] != model.labels[2] || model.labels[0] == model.labels[3] || std::abs(model.inertia - 0.04) > 1e-12) return 2;

  // y = 1 + 2 t through three points.
  const std::vector<double> A = {1, 1, 1, 0, 1, 2};
  const std::vector<double> b = {1, 3, 5};
  const auto factors = ballast::qr::factor(ballast::column_major(A.data(), 3, 2));
  const auto [x, solved] = factors.solve(ballast::column_major(b.data(), 3, 1));
  if (solved.verdict != ballast::verdict::clean || std::abs(x(0, 0) - 1) > 1e-12 || std::abs(x(1, 0) - 2) > 1e-12) return 3;

  try {
    ballast::fft::plan nonsense({.shape = {0}});
    return 4;
  } catch (const ballast::invalid_argument_error& e) {
    std::printf("refused, as it must be: %s\n", e.what());
  }
  std::printf("Ballast %s works\n", ballast::information().version.c_str());
  return 0;
}
