// The subcommand `ballast kmeans`.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.hpp"

namespace ballast::tools {
namespace {

constexpr double k_not_given = -std::numeric_limits<double>::infinity();

// Mini-batches, if batch_size is not 0.
struct step_options {
  std::int64_t batch_size = 0, init_size = 0;
  int max_no_improvement = 10;
  double reassignment_ratio = 0.01;
};

struct kmeans_options : common_options {
  std::string input, init = "k-means++", weights, labels, centroids, row_offsets, row_columns, devices;
  std::int64_t clusters = 0, features = 0;
  int max_iter = 0, n_init = 1, rounds = 5;  // max_iter 0: not given
  double tol = k_not_given, oversampling = 2;
  step_options steps;
  std::uint64_t seed = 0;
  bool verbose = false, spherical = false;
};

// Returns a two-dimensional view of the array; with one axis there is one feature.
template <class T>
matrix_view<const T> points_of(const array& read, const std::vector<T>& values, const std::string& file) {
  if (read.shape.empty() || read.shape.size() > 2)
    throw invalid_argument_error(fmt::format("{}: expected points × features, or a batch of them (1 to 3 axes), got shape {}",
                                             printable(file), to_string(read.shape)));
  const auto strides = read.strides();
  return {values.data(), read.shape[0], read.shape.size() == 2 ? read.shape[1] : 1, strides[0], read.shape.size() == 2 ? strides[1] : 1};
}

template <class T>
std::vector<T> real_values(array& read, const std::string& file) {
  if (read.is_complex()) throw invalid_argument_error(fmt::format("{}: expected real values, got complex ones", printable(file)));
  return std::move(read).as<T>();
}

// The rows of the whole file, of which the array may be a part.
std::int64_t rows_in_file(const array& read) { return read.facts->shape.empty() ? 0 : read.facts->shape[0]; }

std::string_view text_of(kmeans::stop_reason value) {
  switch (value) {
    case kmeans::stop_reason::labels_unchanged: return "converged: no label changed";
    case kmeans::stop_reason::tolerance: return "converged: shift within --tol";
    case kmeans::stop_reason::max_iter: return "stopped by --max-iter";
    case kmeans::stop_reason::no_improvement: return "converged: the smoothed inertia no longer fell";
  }
  return "?";
}

// The options of the library, and the content of the files that the command names.
template <class T>
struct fit_options {
  kmeans::options options;
  matrix_view<const T> centroids;  // a view of `given`
  std::vector<T> given, weights;
};

// Rows of the points that were left out are left out of the weights as well, and the reverse.
template <class T>
fit_options<T> options_of(const kmeans_options& wanted, array& points) {
  fit_options<T> made;
  auto& [options, centroids, given, weights] = made;
  options.n_init = wanted.n_init;
  if (wanted.max_iter != 0) options.max_iter = wanted.max_iter;
  if (wanted.tol != k_not_given) options.tol = wanted.tol;
  options.seed = wanted.seed;
  if (wanted.init == "k-means++") {
    options.init = kmeans::init::kmeans_plus_plus;
  } else if (wanted.init == "random") {
    options.init = kmeans::init::random;
  } else if (wanted.init == "k-means||") {
    options.init = kmeans::init::kmeans_parallel;
    options.oversampling = wanted.oversampling;
    options.rounds = wanted.rounds;
  } else {
    if (!format_of(wanted.init) && wanted.init != "-" && !std::filesystem::exists(wanted.init))
      throw invalid_argument_error(
          fmt::format("--init: expected k-means++, k-means||, random or a file, got \"{}\"", printable(wanted.init)));
    array start = wanted.files->whole("--init", wanted.init);
    options.init = kmeans::init::given;
    given = real_values<T>(start, wanted.init);
    centroids = points_of(start, given, wanted.init);  // for a batch: contiguous
  }
  if (!wanted.weights.empty() && !wanted.row_offsets.empty()) {
    array read_weights = wanted.files->whole("--weights", wanted.weights);
    weights = real_values<T>(read_weights, wanted.weights);
  } else if (!wanted.weights.empty()) {
    array read_weights = wanted.files->of_option("--weights", wanted.weights);
    const std::int64_t all = rows_in_file(points), weighted = rows_in_file(read_weights);
    if (wanted.together.several() && all != weighted)
      throw invalid_argument_error(fmt::format("--weights: expected {} weights, got {}", all, weighted));
    inputs::keep_common_rows(points, read_weights);
    weights = real_values<T>(read_weights, wanted.weights);
  }
  return made;
}

// Points in compressed rows: INPUT has the values.
template <class T>
struct compressed_rows {
  std::vector<T> values;
  std::vector<std::int64_t> offsets, columns;
  std::int64_t features = 0;
  csr_view<const T, std::int64_t> view() const {
    return {static_cast<std::int64_t>(offsets.size()) - 1, features, offsets, columns, values};
  }
};

// Integers from a file.
std::vector<std::int64_t> integers_of(const kmeans_options& wanted, const std::string& option, const std::string& file) {
  array read = wanted.files->whole(option, file);
  std::vector<std::int64_t> made;
  for (const double each : real_values<double>(read, file)) {
    if (!(each >= 0 && each < 0x1p53) || each != std::floor(each))
      throw invalid_argument_error(fmt::format("{}: {}: expected integers from 0 to 2^53 - 1, got {}", option, printable(file), each));
    made.push_back(static_cast<std::int64_t>(each));
  }
  return made;
}

template <class T>
compressed_rows<T> rows_of(const kmeans_options& wanted, array& values) {
  if (values.shape.size() != 1)
    throw invalid_argument_error(fmt::format("{}: expected one axis, the values of the elements, with --row-offsets, got shape {}",
                                             printable(wanted.input), to_string(values.shape)));
  compressed_rows<T> made;
  made.offsets = integers_of(wanted, "--row-offsets", wanted.row_offsets);
  made.columns = integers_of(wanted, "--row-columns", wanted.row_columns);
  if (made.offsets.size() < 2)
    throw invalid_argument_error(fmt::format("--row-offsets: expected at least 2 numbers, got {}", made.offsets.size()));
  made.features = wanted.features;
  if (made.features == 0 && !made.columns.empty()) made.features = std::ranges::max(made.columns) + 1;
  made.values = real_values<T>(values, wanted.input);
  return made;
}

// A fit of directions.
template <class T>
kmeans::model<T> fit_directions(const kmeans::data<T>& from, const kmeans::problem& size, const kmeans::options& options,
                                const execution& where, const call& now) {
  kmeans::model<T> made;
  made.centroids = matrix<T>(size.clusters, size.features);
  made.labels.resize(static_cast<std::size_t>(size.points));
  made.report =
      kmeans::plan<T>(size, options, where).fit(from, {made.centroids, made.labels, &made.inertia, &made.iterations, &made.stopped}, now);
  return made;
}

// A fit by mini-batches.
template <class T>
kmeans::model<T> fit_batches(const kmeans::data<T>& from, const kmeans_options& wanted, const kmeans::options& options,
                             const execution& where, const call& now) {
  const kmeans::mini_batch_options defaults;
  const kmeans::mini_batch_options how{.init = options.init,
                                       .batch_size = wanted.steps.batch_size,
                                       .max_iter = wanted.max_iter != 0 ? wanted.max_iter : defaults.max_iter,
                                       .tol = wanted.tol != k_not_given ? wanted.tol : defaults.tol,
                                       .max_no_improvement = wanted.steps.max_no_improvement,
                                       .init_size = wanted.steps.init_size,
                                       .n_init = options.n_init,
                                       .reassignment_ratio = wanted.steps.reassignment_ratio,
                                       .seed = options.seed};
  kmeans::model<T> made;
  made.centroids = matrix<T>(wanted.clusters, from.points.columns);
  made.labels.resize(static_cast<std::size_t>(from.points.rows));
  made.report = kmeans::mini_batch<T>(wanted.clusters, from.points.columns, how, where)
                    .fit(from, {made.centroids, made.labels, &made.inertia, &made.iterations, &made.stopped}, now);
  return made;
}

template <class T>
int run(const kmeans_options& wanted, array read) {
  invocation work(wanted, "kmeans");
  execution where = work.where();
  if (!wanted.devices.empty()) {
    if (wanted.together.several())
      throw invalid_argument_error("--devices: expected no list under MPI, where each rank computes on its CPU");
    where.group = group::devices(devices_of(wanted.devices));
  }
  if (!wanted.labels.empty()) work.reserve(wanted.labels, 1);
  if (!wanted.centroids.empty()) work.reserve(wanted.centroids, 2);
  const fit_options<T> given = options_of<T>(wanted, read);
  std::vector<T> values;
  compressed_rows<T> rows;
  kmeans::data<T> from{.weights = given.weights, .centroids = given.centroids};
  const bool compressed = !wanted.row_offsets.empty();
  if (compressed) {
    rows = rows_of<T>(wanted, read);
    from.sparse = rows.view();
  } else {
    values = real_values<T>(read, wanted.input);
    from.points = points_of(read, values, wanted.input);
  }
  const std::int64_t points = compressed ? rows.view().rows : rows_in_file(read);

  call now = work.now();
  if (wanted.verbose) {
    now.on_progress = [](const progress& so_far) {
      write_text(stderr, "run {}, {} {}: inertia {:.10g}\n", so_far.run + 1, so_far.unit, so_far.done, so_far.value);
    };
  }
  const kmeans::problem size{.points = points,
                             .features = compressed ? rows.features : from.points.columns,
                             .clusters = wanted.clusters,
                             .storage = compressed ? kmeans::storage::csr : kmeans::storage::dense,
                             .spherical = true};
  auto model = wanted.steps.batch_size != 0 ? fit_batches(from, wanted, given.options, where, now)
               : wanted.spherical           ? fit_directions(from, size, given.options, where, now)
                                            : kmeans::fit(from, wanted.clusters, given.options, where, now);
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(model.report)) {
    work.count<T>({model.centroids.data(), static_cast<std::size_t>(model.centroids.size())});
    work.count<double>({&model.inertia, 1});
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(wanted.clusters));
    if (wanted.together.several()) model.labels = wanted.together.gather(std::move(model.labels));
    for (const auto label : model.labels) {
      // With protection off, a fault can give a label any value.
      if (label >= 0 && label < wanted.clusters) ++sizes[static_cast<std::size_t>(label)];
    }
    results = {{"inertia", json_number(model.inertia)},
               {"iterations", model.iterations},
               {"converged", model.converged()},
               {"stopped", to_string(model.stopped)},
               {"sizes", sizes}};
    if (!wanted.devices.empty()) results["devices"] = devices_of(wanted.devices);
    if (wanted.together.several()) results["ranks"] = wanted.together.group.size();
    lines.push_back(fmt::format("inertia {:.10g} after {} {} ({}); points in each cluster: {}", model.inertia, model.iterations,
                                wanted.steps.batch_size != 0 ? "steps" : "iterations", text_of(model.stopped), fmt::join(sizes, " ")));
    if (!wanted.labels.empty()) work.write(wanted.labels, {{points}, false, std::move(model.labels)});
    if (!wanted.centroids.empty()) {
      const std::vector<T> flat(model.centroids.data(), model.centroids.data() + model.centroids.size());
      work.write(wanted.centroids, {{model.centroids.rows(), model.centroids.columns()}, false, flat});
    }
  }
  return work.finish(results, lines);
}

// Fits each data set of a batch, batch × points × features.
template <class T>
int run_batch(const kmeans_options& wanted, array read) {
  invocation work(wanted, "kmeans");
  if (!wanted.labels.empty()) work.reserve(wanted.labels, 2);
  if (!wanted.centroids.empty()) work.reserve(wanted.centroids, 3);
  if (!wanted.devices.empty()) throw invalid_argument_error("--devices: expected points × features, a single fit, got a batch");
  if (wanted.verbose) throw invalid_argument_error("--verbose: expected points × features, a single fit, got a batch");
  const fit_options<T> given = options_of<T>(wanted, read);
  const std::vector<T> values = real_values<T>(read, wanted.input);
  const auto strides = read.strides();
  const matrix_batch_view<const T> points{values.data(), read.shape[0], read.shape[1], read.shape[2], strides[1], strides[2], strides[0]};
  auto made = kmeans::fit({points, given.weights, given.centroids}, wanted.clusters, given.options, work.where(), work.now());
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(made.report)) {
    work.count<T>(made.centroids);
    work.count<double>(made.inertia);
    nlohmann::ordered_json inertia = nlohmann::ordered_json::array(), stopped = nlohmann::ordered_json::array();
    for (const double each : made.inertia) inertia.push_back(json_number(each));
    for (const kmeans::stop_reason each : made.stopped) stopped.push_back(to_string(each));
    results = {{"inertia", inertia}, {"iterations", made.iterations}, {"stopped", stopped}};
    const auto [least, most] = std::ranges::minmax(made.inertia);
    const auto at_most = std::ranges::count(made.stopped, kmeans::stop_reason::max_iter);
    lines.push_back(fmt::format("{} fits: inertia {:.10g} to {:.10g}, at most {} iterations; {} stopped by --max-iter", made.count, least,
                                most, std::ranges::max(made.iterations), at_most));
    if (!wanted.labels.empty()) work.write(wanted.labels, {{points.count, points.rows}, false, std::move(made.labels)});
    if (!wanted.centroids.empty())
      work.write(wanted.centroids, {{points.count, wanted.clusters, points.columns}, false, std::move(made.centroids)});
  }
  return work.finish(results, lines);
}

}  // namespace

void add_kmeans(command_line& program, const ranks& together) {
  auto wanted = std::make_shared<kmeans_options>();
  command_line& command =
      program.subcommand("kmeans", "Cluster the rows of INPUT (points × features, or a batch × points × features) into K clusters");
  command.operand("INPUT", wanted->input, ".npy, .csv or .tsv; - is standard input");
  command.integer("-k", wanted->clusters, "number of clusters", std::int64_t{1}, presence::required);
  command.text("--init", wanted->init, "k-means++, k-means||, random, or a file with K first centroids (of a batch K for each)");
  command.number("--oversampling", wanted->oversampling, "k-means||: candidates of a round, in multiples of K");
  command.integer("--rounds", wanted->rounds, "k-means||: rounds of candidates", 1);
  command.integer("--max-iter", wanted->max_iter,
                  "Lloyd iterations of one run, by default 300; of mini-batches passes over the points, 100", 1);
  command.number("--tol", wanted->tol,
                 "stop when the centroids' summed squared shift is below this times the mean variance of the features; by default 1e-4, of "
                 "mini-batches 0, not at all");
  command.integer("--batch-size", wanted->steps.batch_size, "mini-batches: each step takes so many points, drawn at random",
                  std::int64_t{1});
  command.integer("--max-no-improvement", wanted->steps.max_no_improvement,
                  "mini-batches: stop after so many steps without a smaller smoothed inertia", 1);
  command.integer("--init-size", wanted->steps.init_size, "mini-batches: points that first centroids are drawn from; default: 3 batches",
                  std::int64_t{1});
  command.number("--reassignment-ratio", wanted->steps.reassignment_ratio,
                 "mini-batches: a centroid with less than this part of the largest weight may go to a random point");
  command.integer("--n-init", wanted->n_init, "runs; the best one is kept", 1);
  command.integer("--seed", wanted->seed, "the same seed gives the same result", std::uint64_t{0});
  command.text("--weights", wanted->weights, "a file with a weight for each point; for a batch, those of all data sets in order");
  command.text(
      "--row-offsets", wanted->row_offsets,
      "the points are compressed rows (CSR): INPUT has the values of their elements, this file where each row begins and the last ends");
  command.text("--row-columns", wanted->row_columns, "compressed rows: a file with the column of each element, ascending in a row");
  command.integer("--features", wanted->features, "compressed rows: number of columns; default: up to the last one that has an element",
                  std::int64_t{1});
  command.flag("--spherical", wanted->spherical, "cluster directions: the inertia is the sum of 1 - cos");
  command.text("--devices", wanted->devices, "numbers of CUDA devices that share the points, such as 0,1; the result is that of one");
  command.text("--labels", wanted->labels, "write the cluster of each point (.npy: int32)");
  command.text("--centroids", wanted->centroids, "write the K centroids");
  command.flag("--verbose", wanted->verbose, "print the inertia of each iteration on standard error");
  wanted->files->add_to(command);
  wanted->add_to(command);
  command.action([wanted, together] {
    wanted->together = together;
    if (together.several()) {
      wanted->files->read_part(together.rows());
      if (together.group.rank() != 0) {
        wanted->labels.clear();
        wanted->centroids.clear();
        wanted->events.clear();
        wanted->verbose = false;
        wanted->quiet = true;
      }
    }
    if (wanted->row_offsets.empty() != wanted->row_columns.empty())
      throw invalid_argument_error("--row-offsets, --row-columns: expected both or none, got one");
    if (wanted->features > 0 && wanted->row_offsets.empty())
      throw invalid_argument_error("--features: expected --row-offsets and --row-columns beside it, got neither");
    if (wanted->spherical && together.several())
      throw invalid_argument_error("--spherical: expected a call without ranks, got one on ranks");
    if (!wanted->row_offsets.empty() && together.several())
      throw invalid_argument_error("--row-offsets: expected a call without ranks, got one on ranks");
    if (wanted->steps.batch_size != 0 &&
        (together.several() || wanted->spherical || !wanted->row_offsets.empty() || !wanted->devices.empty()))
      throw invalid_argument_error(
          "--batch-size: expected no ranks, and none of --spherical, --row-offsets and --devices beside it, got one of them");
    array read = wanted->files->operand(wanted->input);
    if (wanted->steps.batch_size != 0 && read.shape.size() == 3)
      throw invalid_argument_error("--batch-size: expected points × features, a single fit, got a batch of fits");
    if (read.shape.size() == 3) {
      if (wanted->spherical) throw invalid_argument_error("--spherical: expected points × features, a single fit, got a batch");
      return wanted->precision_for(read.is_double()) == precision::f32 ? run_batch<float>(*wanted, std::move(read))
                                                                       : run_batch<double>(*wanted, std::move(read));
    }
    return wanted->precision_for(read.is_double()) == precision::f32 ? run<float>(*wanted, std::move(read))
                                                                     : run<double>(*wanted, std::move(read));
  });
}

}  // namespace ballast::tools
