// Clusters 3000 points in the plane that lie around three centres.
// Prints the centroids. Exit status 0 if they are near the centres and the points around a centre share a label, 1 otherwise.
#include <cmath>
#include <cstddef>
#include <iostream>
#include <random>
#include <vector>

#include <ballast/ballast.hpp>

int main() {
  constexpr std::size_t points = 3000, clusters = 3;
  constexpr float centres[clusters][2] = {{0, 0}, {10, 0}, {0, 10}};
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 1);
  std::vector<float> data;  // row-major: point i is data[2 i], data[2 i + 1]
  for (std::size_t i = 0; i < points; ++i) {
    data.push_back(centres[i % clusters][0] + noise(random));
    data.push_back(centres[i % clusters][1] + noise(random));
  }

  try {
    const auto model = ballast::kmeans::fit(ballast::row_major(data.data(), points, 2), clusters, {.seed = 1});
    std::cout << model.iterations << " iterations, inertia " << model.inertia << '\n'
              << to_string(model.report.verdict) << ", " << model.report.checks << " checks\n";

    bool right = model.converged() && model.report.checks > 0;
    for (std::size_t c = 0; c < clusters; ++c) {
      const auto label = model.labels[c];  // the label of the first point around centre c
      const float x = model.centroids(label, 0), y = model.centroids(label, 1);
      std::cout << "centroid " << x << ", " << y << '\n';
      right = right && std::hypot(x - centres[c][0], y - centres[c][1]) < 0.2F;
      for (std::size_t i = c; i < points; i += clusters) right = right && model.labels[i] == label;
    }
    return right ? 0 : 1;
  } catch (const ballast::uncorrectable_error& fault) {  // each attempt failed its check: do not use the output
    std::cerr << to_json(fault.report()) << '\n';
  } catch (const ballast::error& problem) {
    std::cerr << problem.what() << '\n';
  }
  return 1;
}
