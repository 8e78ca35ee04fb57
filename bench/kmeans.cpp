// Compares K-Means, per Lloyd iteration or step of a mini-batch, with scikit-learn. A Python process calls scikit-learn's own Lloyd step,
// without the set-up of a fit, and returns the times over a pipe. Ballast's time is a whole fit (with set-up and final labels) divided by
// its iterations.
#include <algorithm>
#include <bit>
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
#include <unistd.h>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "child.hpp"
#include "stopwatch.hpp"

namespace ballast::bench {
namespace {

constexpr int k_iterations = 20;

template <class Values>
void write_raw(const std::filesystem::path& file, const Values& values) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(*values.data())));
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

// Times fits with and without protection, divided by their iterations. fit(options, execution) returns these.
template <class Fit>
void add_variants(subject& made, const settings& how, const Fit& fit) {
  for (const auto level : {protection::off, protection::correct}) {
    made.variants.push_back({std::string(to_string(level)), [=] {
                               const kmeans::options options{.init = kmeans::init::given, .max_iter = k_iterations, .tol = 0};
                               int iterations = 1;
                               const execution where{.backend = how.backend, .threads = how.threads, .protection = level};
                               const double seconds = seconds_of([&] { iterations = fit(options, where); });
                               return seconds / iterations;
                             }});
  }
}

// The files that scikit_learn.py reads lie in `folder`.
void add_scikit_learn(subject& made, const kmeans::problem& wanted, const settings& how, const std::shared_ptr<scratch_folder>& folder) {
  auto rival = std::make_shared<child>(
      std::vector<std::string>{how.python, how.scripts + "/scikit_learn.py", folder->path.string(),
                               wanted.precision == precision::f32 ? "float32" : "float64", std::to_string(wanted.points),
                               std::to_string(wanted.features), std::to_string(wanted.clusters), std::to_string(how.threads),
                               wanted.storage == kmeans::storage::csr ? "csr" : "dense"},
      "scikit-learn (is python3-sklearn installed?)");
  rival->ask();  // makes the child read the files and warm up
  made.variants.push_back({"scikit-learn", [rival, folder] { return rival->ask(); }});
}

// Returns whether scikit-learn is to run beside a single fit of these points. If it cannot, `made` says why.
bool has_rival(subject& made, const kmeans::problem& wanted, const settings& how) {
  if (how.peers && wanted.spherical) made.missing["scikit-learn"] = "it has no spherical K-Means";
  return how.peers && !wanted.spherical;
}

// Fits once, and returns the iterations.
template <class T>
int iterations_of(const kmeans::problem& wanted, const kmeans::data<T>& from, const kmeans::options& options, const execution& where) {
  matrix<T> centroids(wanted.clusters, wanted.features);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(wanted.points));
  int made = 0;
  (void)kmeans::plan<T>(wanted, options, where).fit(from, {.centroids = centroids.view(), .labels = labels, .iterations = &made});
  return made;
}

// Points in compressed rows, half a percent of whose elements are stored, at random places.
template <class T>
subject make_sparse(const kmeans::problem& wanted, const settings& how) {
  struct rows {
    std::vector<std::int32_t> offsets = {0}, columns;
    std::vector<T> values;
    matrix<T> centroids;
  };
  const std::int64_t m = wanted.points, n = wanted.features, k = wanted.clusters;
  auto points = std::make_shared<rows>();
  points->centroids = matrix<T>(k, n);
  std::mt19937 random(1);
  std::uniform_real_distribution<T> uniform(T(0.05), T(1));
  constexpr std::int64_t mean_gap = 200;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t f = random() % (2 * mean_gap); f < n; f += 1 + static_cast<std::int64_t>(random() % (2 * mean_gap - 1))) {
      points->columns.push_back(static_cast<std::int32_t>(f));
      points->values.push_back(uniform(random));
      if (i < k) points->centroids(i, f) = points->values.back();
    }
    points->offsets.push_back(static_cast<std::int32_t>(points->columns.size()));
  }
  subject made;
  made.token = kmeans::to_token(wanted);
  made.unit = "Lloyd iteration";
  made.flops = 2.0 * static_cast<double>(points->values.size()) * static_cast<double>(k);
  add_variants(made, how, [=](const kmeans::options& options, const execution& where) {
    kmeans::data<T> from;
    from.sparse = csr_view<const T, std::int32_t>{m, n, points->offsets, points->columns, points->values};
    from.centroids = std::as_const(points->centroids).view();
    return iterations_of(wanted, from, options, where);
  });
  if (!has_rival(made, wanted, how)) return made;
  auto folder = std::make_shared<scratch_folder>();
  write_raw(folder->path / "points", points->values);
  write_raw(folder->path / "columns", points->columns);
  write_raw(folder->path / "offsets", points->offsets);
  write_raw(folder->path / "centroids", points->centroids);
  add_scikit_learn(made, wanted, how, folder);
  return made;
}

// Returns the bits of a number of moderate size, cut to half precision.
std::uint16_t cut(float value, kmeans::storage kind) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (kind == kmeans::storage::bf16) return static_cast<std::uint16_t>(bits >> 16);
  const std::int64_t exponent = static_cast<std::int64_t>(bits >> 23 & 255) - 127 + 15;
  const std::uint32_t magnitude = exponent <= 0 ? 0 : static_cast<std::uint32_t>(exponent) << 10 | (bits >> 13 & 1023);
  return static_cast<std::uint16_t>(bits >> 31 << 15 | magnitude);
}

template <class Half>
std::shared_ptr<std::vector<Half>> halves_of(const matrix<float>& points, kmeans::storage kind) {
  auto made = std::make_shared<std::vector<Half>>();
  for (std::size_t e = 0; e < points.size(); ++e) made->push_back({cut(points.data()[e], kind)});
  return made;
}

// k overlapping normal clusters, so that Lloyd does not converge within the measured iterations.
template <class T>
matrix<T> overlapping_clusters(std::int64_t m, std::int64_t n, std::int64_t k) {
  matrix<T> points(m, n), centres(k, n);
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  for (std::int64_t c = 0; c < k; ++c)
    for (std::int64_t f = 0; f < n; ++f) centres(c, f) = normal(random);
  for (std::int64_t i = 0; i < m; ++i) {
    const auto c = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(k));
    for (std::int64_t f = 0; f < n; ++f) points(i, f) = centres(c, f) + normal(random);
  }
  return points;
}

// Mini-batches: whole fits from given centroids, without labels, divided by their steps, as scikit-learn's.
template <class T>
subject make_steps(const kmeans::problem& wanted, const settings& how) {
  constexpr std::int64_t steps = 40;
  const std::int64_t m = wanted.points, n = wanted.features, k = wanted.clusters;
  auto points = std::make_shared<matrix<T>>(overlapping_clusters<T>(m, n, k));
  auto centroids = std::make_shared<matrix<T>>(k, n);
  std::copy_n(points->data(), k * n, centroids->data());
  const int passes = static_cast<int>(std::max<std::int64_t>(1, steps * wanted.mini_batch / m));
  subject made;
  made.token = kmeans::to_token(wanted);
  made.unit = "step";
  made.flops = 2.0 * static_cast<double>(wanted.mini_batch) * static_cast<double>(n) * static_cast<double>(k);
  for (const auto level : {protection::off, protection::correct}) {
    made.variants.push_back(
        {std::string(to_string(level)), [=] {
           const kmeans::mini_batch_options options{
               .init = kmeans::init::given, .batch_size = wanted.mini_batch, .max_iter = passes, .max_no_improvement = {}};
           kmeans::mini_batch<T> by(k, n, options, {.backend = how.backend, .threads = how.threads, .protection = level});
           const double seconds =
               seconds_of([&] { (void)by.fit({.points = std::as_const(*points).view(), .centroids = std::as_const(*centroids).view()}); });
           return seconds / static_cast<double>(by.steps());
         }});
  }
  if (!how.peers) return made;
  auto folder = std::make_shared<scratch_folder>();
  write_raw(folder->path / "points", *points);
  write_raw(folder->path / "centroids", *centroids);
  auto rival = std::make_shared<child>(
      std::vector<std::string>{how.python, how.scripts + "/scikit_learn_mini_batch.py", folder->path.string(),
                               sizeof(T) == 4 ? "float32" : "float64", std::to_string(m), std::to_string(n), std::to_string(k),
                               std::to_string(how.threads), std::to_string(wanted.mini_batch), std::to_string(passes)},
      "scikit-learn (is python3-sklearn installed?)");
  rival->ask();  // makes the child read the files and warm up
  made.variants.push_back({"scikit-learn", [rival, folder] { return rival->ask(); }});
  return made;
}

template <class T>
subject make(const kmeans::problem& wanted, const settings& how) {
  const std::int64_t fits = wanted.batch, m = wanted.points, n = wanted.features, k = wanted.clusters;
  auto points = std::make_shared<matrix<T>>(overlapping_clusters<T>(fits * m, n, k));
  auto centroids = std::make_shared<matrix<T>>(fits * k, n);
  for (std::int64_t c = 0; c < centroids->rows(); ++c)
    for (std::int64_t f = 0; f < n; ++f) (*centroids)(c, f) = (*points)(c / k * m + c % k, f);

  subject made;
  made.token = kmeans::to_token(wanted);
  made.unit = "Lloyd iteration";
  made.flops = 2.0 * static_cast<double>(fits) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto with = [=](const kmeans::data<T>& from, const kmeans::options& options, const execution& where) {
    kmeans::data<T> all = from;
    all.centroids = std::as_const(*centroids).view();
    return iterations_of(wanted, all, options, where);
  };
  if constexpr (sizeof(T) == 4) {
    const auto add_half = [&]<class Half>(Half) {
      const auto halves = halves_of<Half>(*points, wanted.storage);
      add_variants(made, how, [=](const kmeans::options& options, const execution& where) {
        kmeans::data<T> from;
        from.half = row_major(std::as_const(*halves).data(), m, n);
        return with(from, options, where);
      });
      return made;
    };
    if (wanted.storage == kmeans::storage::f16) return add_half(float16{});
    if (wanted.storage == kmeans::storage::bf16) return add_half(bfloat16{});
  }
  add_variants(made, how, [=](const kmeans::options& options, const execution& where) {
    const auto all = row_major(std::as_const(*points).data(), m, n);
    if (fits == 1) return with({.points = all}, options, where);
    return std::ranges::max(
        kmeans::fit(kmeans::batch_data<T>{batch_of(all, fits), {}, std::as_const(*centroids).view()}, k, options, where).iterations);
  });
  if (fits == 1 && has_rival(made, wanted, how)) {
    auto folder = std::make_shared<scratch_folder>();
    write_raw(folder->path / "points", *points);
    write_raw(folder->path / "centroids", *centroids);
    add_scikit_learn(made, wanted, how, folder);
  }
  return made;
}

}  // namespace

subject make_kmeans(const std::string& token, const settings& how) {
  const kmeans::problem wanted = kmeans::parse_token(token);
  if (wanted.mini_batch != 0) return wanted.precision == precision::f32 ? make_steps<float>(wanted, how) : make_steps<double>(wanted, how);
  if (wanted.storage == kmeans::storage::csr)
    return wanted.precision == precision::f32 ? make_sparse<float>(wanted, how) : make_sparse<double>(wanted, how);
  return wanted.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
