// Runs calls on groups of ranks in SimGrid's simulator of MPI (SMPI): the library's own messages, on a simulated network.
// scripts/simulate-ranks builds and starts it; docs/scaling.md has its table.
// Computing takes no simulated time, so a call lasts as long as its messages do. Prints a line of JSON for each call, from rank 0: ranks,
// simulated seconds from the moment at which all have begun, the most messages and bytes that one rank sent.
// Layer: benchmark program, built only by that script.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include <ballast/ballast.hpp>

#include "core/memory.hpp"

namespace {

using namespace ballast;

// Ranks are fibers of one thread, which may change in any call of MPI that takes simulated time. The library keeps the scope of its memory
// for each thread: here each rank takes its own along.
template <class Call>
void switching(Call&& call) {
  const core::arena_scope none(nullptr);
  call();
}

// The engine of SMPI's ranks. A message travels as MPI sends it; nothing is lost here, so that receive() waits until one comes.
class simulated_transport final : public transport {
 public:
  simulated_transport() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, std::span<const std::byte> bytes) override {
    ++messages;
    sent += bytes.size();
    if (bytes.size() < k_detached) {  // MPI copies it and forgets the request
      switching([&] { MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 0, MPI_COMM_WORLD); });
      return;
    }
    auto& kept = sending_.emplace_back();
    kept.bytes.assign(bytes.begin(), bytes.end());
    switching([&] { MPI_Isend(kept.bytes.data(), static_cast<int>(kept.bytes.size()), MPI_BYTE, to, 0, MPI_COMM_WORLD, &kept.request); });
  }
  int receive(std::vector<std::byte>& bytes, double seconds) override {
    MPI_Status status;
    int found = 1, size = 0;
    switching([&] {
      if (seconds <= 0) MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
      if (found != 0) MPI_Recv(place_.get(), k_longest, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
    });
    if (found == 0) return -1;
    MPI_Get_count(&status, MPI_BYTE, &size);
    bytes.assign(place_.get(), place_.get() + size);
    return status.MPI_SOURCE;
  }
  bool lost(int) override { return false; }
  // Ends what was sent, and forgets it.
  void settle() {
    for (outgoing& each : sending_) MPI_Wait(&each.request, MPI_STATUS_IGNORE);
    sending_.clear();
  }

  std::int64_t messages = 0;
  std::uint64_t sent = 0;

 private:
  struct outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static constexpr std::size_t k_detached = 65536;  // the default of smpi/send-is-detached-thresh

  int rank_ = 0, size_ = 1;
  static constexpr int k_longest = 1 << 22;  // bytes; a longer message ends the program
  std::unique_ptr<std::byte[]> place_ = std::make_unique_for_overwrite<std::byte[]>(k_longest);
  std::deque<outgoing> sending_;
};

struct session {
  std::shared_ptr<simulated_transport> engine;
  group ranks;

  execution how() const { return {.backend = backend::cpu, .threads = 1, .protection = protection::correct, .group = ranks}; }

  // Times a call that all ranks make.
  template <class Call>
  void time(const std::string& name, Call&& call) {
    engine->settle();
    MPI_Barrier(MPI_COMM_WORLD);
    const std::int64_t messages = engine->messages;
    const std::uint64_t bytes = engine->sent;
    const double start = MPI_Wtime();
    const verdict said = call();
    // The clock is that of the simulation, the same for all; ranks leave MPI's barrier at different times.
    double mine[5] = {start, MPI_Wtime(), static_cast<double>(engine->messages - messages), static_cast<double>(engine->sent - bytes),
                      said == verdict::clean ? 0.0 : 1.0};
    double most[5] = {};
    MPI_Reduce(mine, most, 5, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (engine->rank() == 0) {
      std::printf("{\"call\": \"%s\", \"ranks\": %d, \"seconds\": %.9g, \"messages\": %.0f, \"bytes\": %.0f, \"clean\": %s}\n",
                  name.c_str(), engine->size(), most[1] - most[0], most[2], most[3], most[4] == 0 ? "true" : "false");
      std::fflush(stdout);
    }
  }
};

// A forward transform of `shape` in FP32, with a transposed result.
void transform(session& at, const std::string& name, const std::vector<std::int64_t>& shape, fft::division division) {
  const fft::group_plan<float> plan(shape, at.how(), {.division = division});
  const std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.data().size()), {1, 0});
  std::vector<std::complex<float>> out(static_cast<std::size_t>(plan.spectrum().size()));
  at.time(name, [&] { return plan.forward(std::span<const std::complex<float>>(in), std::span(out)).verdict; });
}

template <class T>
std::vector<T> normal_numbers(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<T> normal;
  std::vector<T> made(count);
  for (T& each : made) each = normal(random);
  return made;
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  {
    session at;
    at.engine = std::make_shared<simulated_transport>();
    at.ranks = group(at.engine, {.resend_after = 1e7, .patience = 1e8});
    const std::int64_t ranks = at.engine->size();
    const std::string only = count > 1 ? words[1] : "";
    const auto wanted = [&](const char* name) { return only.empty() || only == name; };
    if (wanted("barrier")) {
      at.time("barrier", [&] {
        at.ranks.barrier();
        return verdict::clean;
      });
    }
    if (wanted("kmeans")) {
      constexpr std::int64_t points = 64, features = 16;
      const std::vector<float> x = normal_numbers<float>(at.engine->rank(), points * features);
      const auto fit = [&](int iterations) {
        return kmeans::fit(row_major<const float>(x.data(), points, features), 16,
                           {.init = kmeans::init::random, .max_iter = iterations, .tol = 0, .seed = 1}, at.how())
            .report.verdict;
      };
      at.time("K-Means, 2 iterations", [&] { return fit(2); });
      at.time("K-Means, 3 iterations", [&] { return fit(3); });
    }
    if (wanted("qr")) {
      // Every rank keeps the triangles of all.
      const std::int64_t rows = 64, columns = ranks > 256 ? 4 : 16;
      const std::vector<double> a = normal_numbers<double>(at.engine->rank(), rows * columns);
      at.time("QR of rows, " + std::to_string(columns) + " columns",
              [&] { return qr::factor_rows(row_major<const double>(a.data(), rows, columns), at.how()).report.verdict; });
    }
    if (wanted("grid")) {
      // Two panels or more for each process column; one above 512 ranks.
      const int size = at.engine->size();
      int p = 1;
      for (int rows = 1; rows * rows <= size; ++rows)
        if (size % rows == 0) p = rows;
      const int q = size / p, n = 8 * std::max(16, size > 512 ? q : 2 * q);
      const qr::process_grid grid{.rows = p, .columns = q};
      std::vector<int> desc = {1, 0, n, n, 8, 8, 0, 0, 1};
      const qr::layout_part own = qr::part_of_layout(desc, grid, at.engine->rank());
      desc[8] = static_cast<int>(own.rows.count());
      const std::vector<double> a =
          normal_numbers<double>(at.engine->rank(), static_cast<std::size_t>(own.rows.count() * own.columns.count()));
      const std::string name = " on a grid of " + std::to_string(p) + " x " + std::to_string(q) + ", " + std::to_string(n / 8) + " panels";
      qr::grid_factors<double> factors;
      at.time("QR" + name, [&] {
        factors = qr::factor_grid(std::span<const double>(a), desc, grid, at.how());
        return factors.report.verdict;
      });
      const std::vector<double> b(static_cast<std::size_t>(own.rows.count()), 1.0);
      at.time("Product with Q" + name,
              [&] { return factors.apply_transposed(column_major<const double>(b.data(), own.rows.count(), 1)).report.verdict; });
    }
    // 4096 numbers of each rank.
    std::int64_t side = 1;
    while (side * side < ranks) side *= 2;
    if (wanted("slabs")) transform(at, "FFT, slabs", {ranks, ranks, 4096 / ranks > 4 ? 4096 / ranks : 4}, fft::division::slabs);
    if (wanted("pencils")) transform(at, "FFT, pencils", {side, side, 4096}, fft::division::pencils);
    at.engine->settle();
    at.ranks = {};
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
