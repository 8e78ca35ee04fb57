// Factors a square matrix whose block columns are spread over the ranks of MPI, and compares with one rank that has all of them: the bits
// must be the same. mpirun -n 4 qr_mpi [columns]. Exit status 0 if they are, on every rank; 1 otherwise.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>

namespace {

constexpr std::int64_t block = 32;

// This rank's columns of an n × n matrix, each made from its own number.
std::vector<double> columns(std::int64_t n, const ballast::qr::block_columns& mine) {
  std::vector<double> made;
  for (std::int64_t j = 0; j < mine.count(); ++j) {
    std::mt19937 random(static_cast<std::uint32_t>(mine.global(j)));
    std::normal_distribution<double> number;
    for (std::int64_t i = 0; i < n; ++i) made.push_back(number(random));
  }
  return made;
}

bool run(std::int64_t n) {
  const ballast::group ranks = ballast::mpi_group(MPI_COMM_WORLD);
  const ballast::qr::block_columns mine{n, block, ranks.size(), ranks.rank()}, all{n, block, 1, 0};
  const std::vector<double> my_A = columns(n, mine), A = columns(n, all), b(static_cast<std::size_t>(n), 1.0);

  const auto spread = ballast::qr::factor_columns(ballast::column_major(my_A.data(), n, mine.count()), block, {.group = ranks});
  const auto x = spread.solve(ballast::column_major(b.data(), n, 1));  // A x = b, the same on every rank
  const auto alone = ballast::qr::factor_columns(ballast::column_major(A.data(), n, n), block, {.group = ballast::group::threads(1)[0]});
  const auto y = alone.solve(ballast::column_major(b.data(), n, 1));

  bool same = spread.tau == alone.tau;
  for (std::int64_t j = 0; j < mine.count(); ++j)
    for (std::int64_t i = 0; i < n; ++i) same = same && spread.storage(i, j) == alone.storage(i, mine.global(j));
  for (std::int64_t i = 0; i < n; ++i) same = same && x.values(i, 0) == y.values(i, 0);
  if (ranks.rank() == 0)
    std::cout << ranks.size() << " ranks, " << n << " x " << n << ", " << to_string(spread.report.verdict) << ", " << spread.report.checks
              << " checks: " << (same ? "the bits of one rank" : "other bits than one rank") << '\n';
  return same && spread.report.verdict == ballast::verdict::clean;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool right = false;
  try {
    right = run(argc > 1 ? std::atoll(argv[1]) : 500);
  } catch (const ballast::error& problem) {
    std::cerr << problem.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
