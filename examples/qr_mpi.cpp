// Factors a square matrix whose block columns are spread over the ranks of MPI, and compares with one rank that has all of them: the bits
// must be the same. Then on a grid of 2 × P/2 or P × 1 ranks: R must be the same to rounding. mpirun -n 4 qr_mpi [columns]. Exit status 0
// if they are, on every rank; 1 otherwise.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <span>
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

// Factors A where ScaLAPACK's layout would have it, and compares this rank's part of R with that of one rank.
bool on_grid(std::int64_t n, const ballast::group& ranks, const std::vector<double>& A, const ballast::qr::column_factors<double>& alone) {
  const int rows = ranks.size() % 2 == 0 ? 2 : ranks.size(), columns = ranks.size() / rows;
  const ballast::qr::block_columns my_rows{n, block, rows, ranks.rank() / columns}, my_columns{n, block, columns, ranks.rank() % columns};
  const std::int64_t leading = std::max<std::int64_t>(1, my_rows.count());
  std::vector<double> mine(static_cast<std::size_t>(leading * my_columns.count()));
  for (std::int64_t j = 0; j < my_columns.count(); ++j)
    for (std::int64_t i = 0; i < my_rows.count(); ++i)
      mine[static_cast<std::size_t>(i + j * leading)] = A[static_cast<std::size_t>(my_rows.global(i) + my_columns.global(j) * n)];
  const int size = static_cast<int>(n), width = static_cast<int>(block);
  const int desc[] = {1, 0, size, size, width, width, 0, 0, static_cast<int>(leading)};
  const auto factors = ballast::qr::factor_grid(std::span<const double>(mine), desc, {rows, columns}, {.group = ranks});
  const auto R = factors.r(), expected = alone.r();
  bool same = factors.report.verdict == ballast::verdict::clean;
  // Both have LAPACK's signs. The error of R grows with the condition of A, some 10⁴ for random numbers.
  for (std::int64_t j = 0; j < R.columns(); ++j)
    for (std::int64_t i = 0; i < R.rows(); ++i)
      same = same && std::abs(R(i, j) - expected(my_rows.global(i), my_columns.global(j))) < 1e-8 * std::sqrt(static_cast<double>(n));
  return same;
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
  const bool agrees = on_grid(n, ranks, A, alone);
  if (ranks.rank() == 0)
    std::cout << ranks.size() << " ranks, " << n << " x " << n << ", " << to_string(spread.report.verdict) << ", " << spread.report.checks
              << " checks: " << (same ? "the bits of one rank" : "other bits than one rank") << "; on a grid "
              << (agrees ? "the same R" : "another R") << '\n';
  return same && agrees && spread.report.verdict == ballast::verdict::clean;
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
