// Calls on the ranks of MPI that one rank does not make, since its arguments are refused or it says so: the others end at once, with an
// error that names it, and the group goes on. mpirun -n 3 mpi_left. Its status is 0 if all is right.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>
#include <ballast/qr_grid.hpp>

namespace {

using namespace ballast;

int wrong = 0;

void expect(bool right, const char* what, const std::string& message = {}) {
  if (right) return;
  std::printf("mpi_left: expected %s, got %s\n", what, message.c_str());
  ++wrong;
}

// A call that the last rank of several leaves.
template <class Call>
void left_by_last(const group& ranks, const Call& call) {
  const int last = ranks.size() - 1;
  std::string message;
  try {
    call();
  } catch (const std::exception& seen) {
    message = seen.what();
  }
  const bool named = message.find("rank " + std::to_string(last) + " of the group left the call") != std::string::npos;
  if (ranks.rank() == last)
    expect(!message.empty() && !named, "an error of its own", message);
  else
    expect(named, "the name of the rank that left", message);
}

void run() {
  const group ranks = mpi_group(MPI_COMM_WORLD, {.patience = 120});
  const bool refused = ranks.rank() == ranks.size() - 1;
  const auto start = std::chrono::steady_clock::now();
  const int rows = 8;
  std::vector<double> values(64);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * i * 7 + static_cast<std::size_t>(ranks.rank()) * 13) % 31) - 15;
  const std::vector<int> desc = {1, 0, rows * ranks.size(), 8, rows, 4, 0, 0, rows};
  const execution good{.backend = backend::cpu, .threads = 1, .group = ranks};
  execution other = good;
  if (refused) other.protection = protection::final_only;
  const auto factor = [&](const execution& where) {
    return qr::factor_grid(std::span<const double>(values), desc, {ranks.size(), 1, false}, where);
  };
  for (int i = 0; i < 5 && ranks.size() > 1; ++i) {
    left_by_last(ranks, [&] { (void)factor(other); });
    left_by_last(ranks, [&] {
      prepare_call(ranks, [&] {
        if (refused) throw std::invalid_argument("refused");
        (void)factor(good);
      });
    });
    left_by_last(ranks, [&] {
      if (refused) {
        ranks.leave_call();
        throw std::invalid_argument("refused");
      }
      (void)factor(good);
    });
  }
  // Wrong on all ranks alike: all have the error itself.
  std::vector<int> narrow = desc;
  narrow[8] = rows - 1;
  for (int i = 0; i < 5; ++i) {
    try {
      (void)qr::factor_grid(std::span<const double>(values), narrow, {ranks.size(), 1, false}, good);
      expect(false, "an error", "none");
    } catch (const invalid_argument_error& seen) {
      const std::string message = seen.what();
      expect(message.find("LLD_ of the rank's 8 rows or more") != std::string::npos, "the error of LLD_", message);
    } catch (const std::exception& seen) {
      expect(false, "invalid_argument_error", seen.what());
    }
  }
  expect(factor(good).report.verdict == verdict::clean, "a clean call", "another");
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(60), "an end at once", "a wait");
  ranks.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    run();
  } catch (const std::exception& seen) {
    expect(false, "no exception", seen.what());
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
