// Clusters points that are spread over the ranks of MPI, and compares with one rank that has all of them: the bits must be the same.
// mpirun -n 4 kmeans_mpi [points]. Exit status 0 if they are, on every rank; 1 otherwise.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>

namespace {

constexpr std::int64_t features = 8, clusters = 10;

// Rows first … first + count − 1: each rank can make those that it needs, as it would read them from a file.
std::vector<float> rows(std::int64_t first, std::int64_t count) {
  std::vector<float> made;
  for (std::int64_t i = first; i < first + count; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(i));
    std::normal_distribution<float> noise(0, 1);
    for (std::int64_t f = 0; f < features; ++f) made.push_back(static_cast<float>(5 * ((i * (f + 1)) % clusters)) + noise(random));
  }
  return made;
}

bool run(std::int64_t points) {
  const ballast::group ranks = ballast::mpi_group(MPI_COMM_WORLD);
  const std::int64_t first = points * ranks.rank() / ranks.size(), end = points * (ranks.rank() + 1) / ranks.size();
  const std::vector<float> mine = rows(first, end - first), all = rows(0, points);

  const ballast::kmeans::options wanted = {.seed = 1};
  const auto spread = ballast::kmeans::fit(ballast::row_major(mine.data(), end - first, features), clusters, wanted, {.group = ranks});
  const auto alone =
      ballast::kmeans::fit(ballast::row_major(all.data(), points, features), clusters, wanted, {.group = ballast::group::threads(1)[0]});

  bool same = spread.inertia == alone.inertia && spread.iterations == alone.iterations;
  for (std::int64_t j = 0; j < clusters; ++j)
    for (std::int64_t f = 0; f < features; ++f) same = same && spread.centroids(j, f) == alone.centroids(j, f);
  for (std::int64_t i = first; i < end; ++i)
    same = same && spread.labels[static_cast<std::size_t>(i - first)] == alone.labels[static_cast<std::size_t>(i)];
  if (ranks.rank() == 0)
    std::cout << ranks.size() << " ranks, " << spread.iterations << " iterations, inertia " << spread.inertia << ", "
              << to_string(spread.report.verdict) << ", " << spread.report.checks
              << " checks: " << (same ? "the bits of one rank" : "other bits than one rank") << '\n';
  return same && spread.report.verdict == ballast::verdict::clean;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool right = false;
  try {
    right = run(argc > 1 ? std::atoll(argv[1]) : 20000);
  } catch (const ballast::error& problem) {
    std::cerr << problem.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
