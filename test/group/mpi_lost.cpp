// Clusters points that are spread over the ranks of MPI while one rank is killed, at a time that the caller gives.
// mpirun -n 4 mpi_lost VICTIM MICROSECONDS; VICTIM −1: none. Each rank that is left prints whether its results have the bits of one rank,
// how many ranks are left, and the time of the call. Its status is 0 if the bits are right, 1 otherwise.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>

namespace {

constexpr std::int64_t points = 20000, features = 6, clusters = 8;

// Rows first … first + count − 1, from their numbers.
std::vector<float> rows(std::int64_t first, std::int64_t count) {
  std::vector<float> made;
  for (std::int64_t i = first; i < first + count; ++i) {
    for (std::int64_t f = 0; f < features; ++f) {
      const auto mixed = static_cast<std::uint64_t>(i * features + f + 1) * 0x9e3779b97f4a7c15u;
      made.push_back(static_cast<float>(i * (f + 3) % 7) + static_cast<float>(mixed >> 40) * 0x1p-22F);
    }
  }
  return made;
}

// Ends a process whose group has lost a rank, or will, after the call. MPI_Finalize of Open MPI 5.0.11 sometimes waits for the killed
// process for ever.
[[noreturn]] void end_without_finalize(const ballast::group& ranks, int status) {
  try {
    ranks.barrier();
  } catch (const ballast::rank_lost_error&) {  // another one has ended before this one
  }
  std::_Exit(status);
}

int run(int victim, int microseconds) {
  const ballast::group ranks = ballast::mpi_group(MPI_COMM_WORLD);
  const int me = ranks.rank();
  const std::int64_t first = points * me / ranks.size(), end = points * (me + 1) / ranks.size();
  const std::vector<float> mine = rows(first, end - first), all = rows(0, points);
  const ballast::kmeans::options wanted = {.max_iter = 60, .tol = 0, .seed = 2};
  const auto alone = ballast::kmeans::fit(ballast::row_major(all.data(), points, features), clusters, wanted,
                                          {.threads = 1, .group = ballast::group::threads(1)[0]});
  std::vector<std::vector<float>> loaded;
  ballast::kmeans::data<float> data{.points = ballast::row_major(mine.data(), end - first, features)};
  data.reload = [&](std::int64_t from, std::int64_t count) {
    loaded.push_back(rows(from, count));
    return ballast::kmeans::data<float>{.points = ballast::row_major<const float>(loaded.back().data(), count, features)};
  };
  ranks.barrier();
  if (me == victim) {
    std::thread([microseconds] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      (void)std::raise(SIGKILL);
    }).detach();
  }
  const auto start = std::chrono::steady_clock::now();
  const auto spread = ballast::kmeans::fit(data, clusters, wanted, {.threads = 1, .group = ranks});
  const auto taken = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  while (me == victim) std::this_thread::sleep_for(std::chrono::seconds(1));  // it was done before its end
  bool same = spread.inertia == alone.inertia && spread.iterations == alone.iterations;
  for (std::int64_t j = 0; j < clusters; ++j)
    for (std::int64_t f = 0; f < features; ++f) same = same && spread.centroids(j, f) == alone.centroids(j, f);
  for (std::int64_t i = first; i < end; ++i)
    same = same && spread.labels[static_cast<std::size_t>(i - first)] == alone.labels[static_cast<std::size_t>(i)];
  std::printf("rank %d: %s, %d left, %lld µs\n", me, same ? "the bits of one rank" : "other bits than one rank", ranks.size(),
              static_cast<long long>(taken));
  std::fflush(stdout);
  if (victim >= 0) end_without_finalize(ranks, same ? 0 : 1);
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = run(std::atoi(argv[1]), std::atoi(argv[2]));
  } catch (const ballast::error& problem) {
    std::printf("error: %s\n", problem.what());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // until the others have told it, too
    std::_Exit(1);
  }
  MPI_Finalize();
  return status;
}
