// Compares K-Means, per Lloyd iteration, with scikit-learn. A Python process calls scikit-learn's own Lloyd step, without the set-up of a
// fit, and returns the times over a pipe. Ballast's time is a whole fit (with set-up and final labels) divided by its iterations.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "stopwatch.hpp"

namespace ballast::bench {
namespace {

constexpr int k_iterations = 20;

// A child process that answers each line of input with one measurement.
class child {
 public:
  explicit child(const std::vector<std::string>& command) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) throw error("pipe failed");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (const int each : {to[0], to[1], from[0], from[1]}) close(each);
      std::vector<char*> arguments;
      for (const auto& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    requests_ = fdopen(to[1], "w");
    answers_ = fdopen(from[0], "r");
  }
  ~child() {
    std::fclose(requests_);
    std::fclose(answers_);
    waitpid(pid_, nullptr, 0);
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;

  double ask() {
    std::fputs("run\n", requests_);
    std::fflush(requests_);
    double seconds = 0;
    if (std::fscanf(answers_, "%lf", &seconds) != 1) throw error("scikit-learn gave no time: is python3-sklearn installed?");
    return seconds;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* requests_ = nullptr;
  std::FILE* answers_ = nullptr;
};

template <class T>
void write_raw(const std::filesystem::path& file, const matrix<T>& values) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!out) throw error(fmt::format("{}: cannot be written", file.string()));
}

// A temporary folder; the destructor removes it.
struct scratch_folder {
  std::filesystem::path path;
  scratch_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ballast-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw error("no temporary folder can be made");
    path = pattern;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

template <class T>
subject make(const kmeans::problem& wanted, const settings& how) {
  const std::int64_t fits = wanted.batch, m = wanted.points, n = wanted.features, k = wanted.clusters;
  auto points = std::make_shared<matrix<T>>(fits * m, n);
  auto centroids = std::make_shared<matrix<T>>(fits * k, n);
  // k overlapping normal clusters, so that Lloyd does not converge within the measured iterations.
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  matrix<T> centres(k, n);
  for (std::int64_t c = 0; c < k; ++c)
    for (std::int64_t f = 0; f < n; ++f) centres(c, f) = normal(random);
  for (std::int64_t i = 0; i < points->rows(); ++i) {
    const auto c = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(k));
    for (std::int64_t f = 0; f < n; ++f) (*points)(i, f) = centres(c, f) + normal(random);
  }
  for (std::int64_t c = 0; c < centroids->rows(); ++c)
    for (std::int64_t f = 0; f < n; ++f) (*centroids)(c, f) = (*points)(c / k * m + c % k, f);

  subject made;
  made.token = kmeans::to_token(wanted);
  made.unit = "Lloyd iteration";
  made.flops = 2.0 * static_cast<double>(fits) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  for (const auto level : {protection::off, protection::correct}) {
    made.variants.push_back({std::string(to_string(level)), [=] {
                               const kmeans::options options{.init = kmeans::init::given, .max_iter = k_iterations, .tol = 0};
                               const matrix_view<const T> first = std::as_const(*centroids).view();
                               int iterations = 1;
                               const execution where{.backend = how.backend, .threads = how.threads, .protection = level};
                               const double seconds = seconds_of([&] {
                                 const auto all = row_major(std::as_const(*points).data(), m, n);
                                 if (fits > 1) {
                                   const kmeans::batch_data<T> from{batch_of(all, fits), {}, first};
                                   iterations = std::ranges::max(kmeans::fit(from, k, options, where).iterations);
                                 } else {
                                   iterations = kmeans::fit(kmeans::data<T>{all, {}, first}, k, options, where).iterations;
                                 }
                               });
                               return seconds / iterations;
                             }});
  }
  if (how.peers && fits == 1) {
    auto folder = std::make_shared<scratch_folder>();
    write_raw(folder->path / "points", *points);
    write_raw(folder->path / "centroids", *centroids);
    const std::string type = sizeof(T) == 4 ? "float32" : "float64";
    auto rival = std::make_shared<child>(std::vector<std::string>{how.python, how.scripts + "/scikit_learn.py", folder->path.string(), type,
                                                                  std::to_string(m), std::to_string(n), std::to_string(k),
                                                                  std::to_string(how.threads)});
    rival->ask();  // makes the child read the files and warm up
    made.variants.push_back({"scikit-learn", [rival, folder] { return rival->ask(); }});
  }
  return made;
}

}  // namespace

subject make_kmeans(const std::string& token, const settings& how) {
  const kmeans::problem wanted = kmeans::parse_token(token);
  return wanted.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
