// Times calls on the ranks of MPI beside FFTW-MPI and ScaLAPACK: mpirun -n 2 ballast-bench-ranks [REPEATS [WORD [cpu]]]; WORD: fft, qr,
// qr-large or kmeans, only these problems; cpu: times of the processor, for one rank on a busy machine. Ranks that wait in MPI use the
// processor, too, so those of several ranks mean nothing. Each rank has one thread. The variants of a problem take turns, so that a slow
// period of the machine affects all equally; a time is that of the slowest rank, and the table has medians and ratios of medians.
// Layer: benchmark program; the only one with these rivals.
#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fftw3-mpi.h>
#include <fmt/format.h>
#include <mpi.h>

#include <ballast/ballast.hpp>
#include <ballast/mpi.hpp>

#include "abft/word_sums.hpp"

extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridexit(int context);
void descinit_(int* desc, const int* m, const int* n, const int* mb, const int* nb, const int* row, const int* column, const int* context,
               const int* leading, int* info);
void pdgeqrf_(const int* m, const int* n, double* a, const int* i, const int* j, const int* desc, double* tau, double* work,
              const int* size, int* info);
}

namespace {

using namespace ballast;

struct variant {
  std::string name;
  std::function<void()> run;
};

int g_repeats = 7;
std::string g_only;
bool g_of_processor = false;

// Seconds, of the clock or of this process on the processor.
double now() {
  if (!g_of_processor) return MPI_Wtime();
  timespec seen{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &seen);
  return static_cast<double>(seen.tv_sec) + 1e-9 * static_cast<double>(seen.tv_nsec);
}

bool wanted(const std::string& problems) { return g_only.empty() || g_only == problems; }

double median(std::vector<double> of) {
  std::ranges::sort(of);
  return of[of.size() / 2];
}

// Times the variants in turn and prints a row: off, correct, and the fastest rival; "none" where no rival solves it.
void row(const std::string& problem, const std::vector<variant>& variants) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<std::vector<double>> seconds(variants.size());
  for (int i = -1; i < g_repeats; ++i) {
    for (std::size_t v = 0; v < variants.size(); ++v) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = now();
      variants[v].run();
      double own = now() - start, slowest = 0;
      MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (i >= 0) seconds[v].push_back(slowest);
    }
  }
  if (rank != 0) return;
  const double off = 1e3 * median(seconds[0]), correct = 1e3 * median(seconds[1]);
  std::string text = fmt::format("| {} | {:.3g} | {:.3g} | {:+.1f} % |", problem, off, correct, 100 * (correct / off - 1));
  if (variants.size() > 2) {
    std::size_t fastest = 2;
    for (std::size_t v = 3; v < variants.size(); ++v) fastest = median(seconds[v]) < median(seconds[fastest]) ? v : fastest;
    const double rival = 1e3 * median(seconds[fastest]);
    text += fmt::format(" {} {:.3g} | {:.2f} | {:.2f} |", variants[fastest].name, rival, rival / off, rival / correct);
  } else {
    text += " none | – | – |";
  }
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

execution on(const group& ranks, protection level) { return {.backend = backend::cpu, .threads = 1, .protection = level, .group = ranks}; }

template <class T>
struct fftw;
template <>
struct fftw<float> {
  static constexpr auto plan = fftwf_mpi_plan_dft;
  static constexpr auto size = fftwf_mpi_local_size_transposed;
  static constexpr auto size_1d = fftwf_mpi_local_size_1d;
  static constexpr auto plan_1d = fftwf_mpi_plan_dft_1d;
  static constexpr auto execute = fftwf_execute;
  static constexpr auto destroy = fftwf_destroy_plan;
  using number = fftwf_complex;
};
template <>
struct fftw<double> {
  static constexpr auto plan = fftw_mpi_plan_dft;
  static constexpr auto size = fftw_mpi_local_size_transposed;
  static constexpr auto size_1d = fftw_mpi_local_size_1d;
  static constexpr auto plan_1d = fftw_mpi_plan_dft_1d;
  static constexpr auto execute = fftw_execute;
  static constexpr auto destroy = fftw_destroy_plan;
  using number = fftw_complex;
};

// A forward transform with a transposed result; FFTW's is transposed, too, or of one dimension in its scrambled order.
template <class T>
void fft_row(const group& ranks, const std::vector<std::int64_t>& shape, const fft::distribution& how) {
  const fft::group_plan<T> off(shape, on(ranks, protection::off), how), correct(shape, on(ranks, protection::correct), how);
  std::vector<std::complex<T>> in(static_cast<std::size_t>(off.data().size())), out(static_cast<std::size_t>(off.spectrum().size()));
  std::mt19937 random(static_cast<unsigned>(ranks.rank()));
  std::normal_distribution<T> normal;
  for (auto& each : in) each = {normal(random), normal(random)};
  const auto forward = [&](const fft::group_plan<T>& plan) { (void)plan.forward(std::span<const std::complex<T>>(in), std::span(out)); };
  using rival = fftw<T>;
  const std::vector<ptrdiff_t> n(shape.begin(), shape.end());
  ptrdiff_t a = 0, b = 0, c = 0, d = 0;
  const int dimensions = static_cast<int>(n.size());
  const ptrdiff_t size = dimensions == 1 ? rival::size_1d(n[0], MPI_COMM_WORLD, FFTW_FORWARD, FFTW_MPI_SCRAMBLED_OUT, &a, &b, &c, &d)
                                         : rival::size(dimensions, n.data(), MPI_COMM_WORLD, &a, &b, &c, &d);
  std::vector<std::complex<T>> from(static_cast<std::size_t>(size)), to(static_cast<std::size_t>(size));
  auto* const x = reinterpret_cast<typename rival::number*>(from.data());
  auto* const y = reinterpret_cast<typename rival::number*>(to.data());
  auto* const plan = dimensions == 1
                         ? rival::plan_1d(n[0], x, y, MPI_COMM_WORLD, FFTW_FORWARD, FFTW_MEASURE | FFTW_MPI_SCRAMBLED_OUT)
                         : rival::plan(dimensions, n.data(), x, y, MPI_COMM_WORLD, FFTW_FORWARD, FFTW_MEASURE | FFTW_MPI_TRANSPOSED_OUT);
  std::copy_n(in.begin(), std::min(in.size(), from.size()), from.begin());
  std::string name = fmt::format("FFT {}", sizeof(T) == 4 ? "f32" : "f64");
  for (std::size_t i = 0; i < shape.size(); ++i) name += fmt::format("{}{}", i == 0 ? " " : " × ", shape[i]);
  if (how.division == fft::division::pencils) name += ", pencils";
  std::vector<variant> variants = {{"off", [&] { forward(off); }}, {"correct", [&] { forward(correct); }}};
  // FFTW-MPI has no plan for some problems: for one dimension on one rank.
  if (plan != nullptr) variants.push_back({"FFTW-MPI", [&] { rival::execute(plan); }});
  row(name, variants);
  if (plan != nullptr) rival::destroy(plan);
}

std::vector<double> random_numbers(const group& ranks, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(ranks.rank()));
  std::normal_distribution<double> normal;
  std::vector<double> made(static_cast<std::size_t>(count));
  for (double& each : made) each = normal(random);
  return made;
}

// A matrix in ScaLAPACK's layout on a grid of `rows` process rows, in blocks of mb × nb, and pdgeqrf on a copy of it.
class scalapack {
 public:
  scalapack(const group& ranks, int m, int n, int mb, int nb, int rows) : m_(m), n_(n), rows_(rows), columns_(ranks.size() / rows) {
    const int zero = 0, one = 1;
    Cblacs_get(0, 0, &context_);
    Cblacs_gridinit(&context_, "Row", rows_, columns_);
    const qr::block_columns of_rows{m, mb, rows_, ranks.rank() / columns_}, of_columns{n, nb, columns_, ranks.rank() % columns_};
    const int leading = std::max(1, static_cast<int>(of_rows.count()));
    int info = 0;
    descinit_(desc_.data(), &m, &n, &mb, &nb, &zero, &zero, &context_, &leading, &info);
    from_ = random_numbers(ranks, leading * of_columns.count());
    a_ = from_;
    tau_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, of_columns.count())));
    pdgeqrf_(&m, &n, a_.data(), &one, &one, desc_.data(), tau_.data(), work_.data(), &size_, &info);
    size_ = static_cast<int>(work_[0]);
    work_.resize(static_cast<std::size_t>(size_));
  }
  scalapack(const scalapack&) = delete;
  scalapack& operator=(const scalapack&) = delete;
  ~scalapack() { Cblacs_gridexit(context_); }

  void factor() {
    const int one = 1;
    int info = 0;
    a_ = from_;
    pdgeqrf_(&m_, &n_, a_.data(), &one, &one, desc_.data(), tau_.data(), work_.data(), &size_, &info);
  }
  std::span<const double> local() const { return from_; }
  const std::array<int, 9>& desc() const { return desc_; }
  qr::process_grid grid() const { return {rows_, columns_, false}; }
  variant rival() {
    return {fmt::format("ScaLAPACK {} × {}", rows_, columns_), [this] { factor(); }};
  }

 private:
  const int m_, n_, rows_, columns_;
  int context_ = 0, size_ = -1;
  std::array<int, 9> desc_{};
  std::vector<double> from_, a_, tau_, work_ = std::vector<double>(1);
};

void qr_row(const group& ranks, int rows, int columns) {
  const int mine = rows / ranks.size(), all = mine * ranks.size();
  const std::vector<double> A = random_numbers(ranks, std::int64_t{mine} * columns);
  const auto factor = [&](protection level) { (void)qr::factor_rows(row_major<const double>(A.data(), mine, columns), on(ranks, level)); };
  scalapack with(ranks, all, columns, mine, 32, ranks.size());
  row(fmt::format("QR f64 {} × {}", all, columns),
      {{"off", [&] { factor(protection::off); }}, {"correct", [&] { factor(protection::correct); }}, with.rival()});
}

// The squarest grid: its process rows, at most as many as its process columns.
int squarest(int ranks) {
  int rows = 1;
  for (int r = 1; r * r <= ranks; ++r) rows = ranks % r == 0 ? r : rows;
  return rows;
}

// Square matrices: block columns here, and for ScaLAPACK on the same grid of 1 × P and on the squarest one.
void qr_columns_row(const group& ranks, int n) {
  constexpr int block = 64;
  const std::int64_t mine = qr::block_columns{n, block, ranks.size(), ranks.rank()}.count();
  const std::vector<double> A = random_numbers(ranks, n * mine);
  const auto factor = [&](protection level) {
    (void)qr::factor_columns(column_major<const double>(A.data(), n, mine), block, on(ranks, level));
  };
  std::vector<variant> variants = {{"off", [&] { factor(protection::off); }}, {"correct", [&] { factor(protection::correct); }}};
  scalapack one_row(ranks, n, n, block, block, 1), square(ranks, n, n, block, block, squarest(ranks.size()));
  variants.push_back(one_row.rival());
  if (squarest(ranks.size()) > 1) variants.push_back(square.rival());
  row(fmt::format("QR f64 {} × {}, block columns", n, n), variants);
}

// Matrices where they lie on a grid of `rows` process rows; ScaLAPACK on the same.
void qr_grid_row(const group& ranks, int m, int n, int rows) {
  constexpr int block = 64;
  scalapack with(ranks, m, n, block, block, rows);
  const auto factor = [&](protection level) { (void)qr::factor_grid(with.local(), with.desc(), with.grid(), on(ranks, level)); };
  row(fmt::format("QR f64 {} × {}, grid {} × {}", m, n, rows, ranks.size() / rows),
      {{"off", [&] { factor(protection::off); }}, {"correct", [&] { factor(protection::correct); }}, with.rival()});
}

void kmeans_row(const group& ranks, std::int64_t points, std::int64_t features, int clusters) {
  const std::int64_t mine = points / ranks.size();
  std::mt19937 random(static_cast<unsigned>(ranks.rank()));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(mine * features));
  for (float& each : x) each = normal(random);
  const auto fit = [&](protection level) {
    (void)kmeans::fit(row_major<const float>(x.data(), mine, features), clusters,
                      {.init = kmeans::init::random, .max_iter = 10, .tol = 0, .seed = 1}, on(ranks, level));
  };
  row(fmt::format("K-Means f32 {} × {}, k {}, 10 iterations", mine * ranks.size(), features, clusters),
      {{"off", [&] { fit(protection::off); }}, {"correct", [&] { fit(protection::correct); }}});
}

// Prints the constants of docs/scaling.md: the time of an exchange of empty blocks, of MPI's own barrier, and the speed of the seals of
// messages.
void constants(const group& ranks) {
  constexpr int rounds = 200;
  const auto each = [&](const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = 0; i < g_repeats; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (int r = 0; r < rounds; ++r) work();
      times.push_back((MPI_Wtime() - start) / rounds);
    }
    return median(times);
  };
  const double exchange = each([&] { ranks.barrier(); }), barrier = each([] { MPI_Barrier(MPI_COMM_WORLD); });
  const std::vector<std::byte> block(std::size_t{1} << 24, std::byte{7});
  std::uint64_t sums[2] = {};
  const double start = MPI_Wtime();
  for (int i = 0; i < g_repeats; ++i) abft::weighted_sums(block, sums);
  const double seal = (MPI_Wtime() - start) / g_repeats;
  if (ranks.rank() == 0)
    fmt::print("\n{} ranks: an exchange of empty blocks takes {:.1f} µs, MPI's barrier {:.1f} µs; a seal covers {:.1f} GB/s ({:016x})\n\n",
               ranks.size(), 1e6 * exchange, 1e6 * barrier, 1e-9 * static_cast<double>(block.size()) / seal, sums[0] ^ sums[1]);
}

void run() {
  const group ranks = mpi_group(MPI_COMM_WORLD);
  constants(ranks);
  if (ranks.rank() == 0) {
    fmt::print("| {} ranks | off, ms | correct, ms | protection | rival, ms | speed-up, off | speed-up, correct |\n", ranks.size());
    fmt::print("|---|---|---|---|---|---|---|\n");
  }
  if (wanted("fft")) {
    fft_row<float>(ranks, {128, 128, 128}, {});
    fft_row<float>(ranks, {256, 256, 256}, {});
    fft_row<double>(ranks, {128, 128, 128}, {});
    fft_row<float>(ranks, {256, 256, 256}, {.division = fft::division::pencils});
    fft_row<float>(ranks, {4096, 4096}, {});
    fft_row<double>(ranks, {1 << 22}, {});
  }
  if (wanted("qr")) {
    qr_row(ranks, 100000, 32);
    qr_row(ranks, 200000, 64);
    qr_columns_row(ranks, 1024);
    qr_columns_row(ranks, 2048);
    std::vector<int> grids = {1, squarest(ranks.size()), ranks.size()};
    grids.erase(std::unique(grids.begin(), grids.end()), grids.end());
    for (const int rows : grids) {
      qr_grid_row(ranks, 1024, 1024, rows);
      qr_grid_row(ranks, 2048, 2048, rows);
    }
    qr_grid_row(ranks, 20000, 512, ranks.size());
  }
  if (wanted("qr-large")) {
    qr_columns_row(ranks, 4096);
    qr_grid_row(ranks, 4096, 4096, squarest(ranks.size()));
    qr_grid_row(ranks, 4096, 4096, ranks.size());
  }
  if (wanted("kmeans")) kmeans_row(ranks, 200000, 32, 64);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  fftwf_mpi_init();
  fftw_mpi_init();
  if (argc > 1) g_repeats = std::max(1, std::atoi(argv[1]));
  if (argc > 2) g_only = argv[2];
  g_of_processor = argc > 3 && std::string(argv[3]) == "cpu";
  try {
    run();
  } catch (const ballast::error& seen) {
    fmt::print(stderr, "{}\n", seen.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
