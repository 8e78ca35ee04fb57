// The command on the ranks of MPI: mpirun -n 4 ballast-openmpi kmeans points.npy -k 100. Built for each MPI that is found, since the
// library and the command `ballast` link none. Each rank reads its rows; the first prints the report and writes the files.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>

#include "abft/seal.hpp"
#include "command.hpp"
#include "run/restart.hpp"

namespace {

using namespace ballast;

// The labels of all ranks on the first. MPI carries them without the seals of a group: the words of each rank are followed by their hash.
std::vector<std::int32_t> gather(std::vector<std::int32_t> own) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto own_count = static_cast<std::int64_t>(own.size());
  const std::uint64_t own_hash = abft::seal_of(own.data(), own_count);
  const std::int64_t facts[] = {own_count, static_cast<std::int64_t>(own_hash)};
  std::vector<std::int64_t> all_facts(2 * static_cast<std::size_t>(size));
  MPI_Gather(facts, 2, MPI_INT64_T, all_facts.data(), 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
  constexpr std::int64_t chunk = std::int64_t{1} << 28;  // counts of MPI have 31 bits
  if (rank != 0) {
    for (std::int64_t at = 0; at < own_count; at += chunk)
      MPI_Send(own.data() + at, static_cast<int>(std::min(chunk, own_count - at)), MPI_INT32_T, 0, 1, MPI_COMM_WORLD);
    return {};
  }
  std::vector<std::int32_t> made = std::move(own);
  for (int from = 1; from < size; ++from) {
    const std::int64_t count = all_facts[2 * static_cast<std::size_t>(from)];
    const std::size_t begin = made.size();
    made.resize(begin + static_cast<std::size_t>(count));
    for (std::int64_t at = 0; at < count; at += chunk)
      MPI_Recv(made.data() + begin + at, static_cast<int>(std::min(chunk, count - at)), MPI_INT32_T, from, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    if (abft::seal_of(made.data() + begin, count) != static_cast<std::uint64_t>(all_facts[2 * static_cast<std::size_t>(from) + 1]))
      throw error(fmt::format("labels of rank {}: expected the bits that it sent, got others", from));
  }
  return made;
}

int run(int argc, char** argv) {
  const group all = mpi_group(MPI_COMM_WORLD);
  tools::command_line program("ballast", "Ballast on the ranks of MPI: each reads its part of the rows, and the first prints and writes.");
  program.version([] { return information().version; });
  program.footer("Started by mpirun or srun. Exit status as that of ballast.");
  tools::add_kmeans(program, {.group = all, .gather = gather});
  tools::add_qr(program, {.group = all});
  if (const std::optional<int> ended = program.parse(argc, argv)) return *ended;
  if (program.given("--inject")) throw unsupported_error("--inject: expected the command ballast, got the one for MPI");
  return program.run();
}

// Waits until all ranks have come here: without end after a success; after a failure for two seconds, since a rank that waits for this one
// in the middle of its work never comes. Returns whether they have.
bool all_have_ended(bool failed) {
  MPI_Request together = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &together);
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0;;) {
    MPI_Test(&together, &done, MPI_STATUS_IGNORE);
    if (done != 0) return true;
    if (failed && std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  ballast::run::restart_with_better_blas_kernels(argv);
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // The first rank speaks for all. Another one does if it alone has failed.
  std::FILE* const own_errors = rank == 0 ? nullptr : fdopen(dup(STDERR_FILENO), "w");
  if (rank != 0 && (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr)) {
    MPI_Abort(MPI_COMM_WORLD, tools::k_failure);
  }
  std::string message;
  const int status = tools::run_program("ballast", [&] {
    try {
      return ::run(argc, argv);
    } catch (const std::exception& seen) {
      message = seen.what();
      throw;
    }
  });
  if (!all_have_ended(status != tools::k_done)) {
    if (own_errors != nullptr && !message.empty()) {
      tools::write_text(own_errors, "ballast, rank {}: {}\n", rank, message);
      std::fflush(own_errors);
    }
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  MPI_Finalize();
  return status;
}
