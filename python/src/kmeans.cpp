// K-Means: one fit from given centroids, the nearest centroids, the distances to centroids.
#include "core.hpp"

namespace ballast_python {

namespace {

namespace kmeans = ballast::kmeans;

kmeans::init init_of(const std::string& name) {
  for (const kmeans::init each : {kmeans::init::kmeans_plus_plus, kmeans::init::random, kmeans::init::given, kmeans::init::kmeans_parallel})
    if (name == to_string(each)) return each;
  throw ballast::invalid_argument_error("init: expected k-means++, random, given or k-means||, got \"" + name + "\"");
}

// Weights without elements: each point counts 1.
template <class T>
kmeans::data<T> operands(const input& points, const input& weights, const input& centroids) {
  expect_type<T>(points, "points");
  expect_type<T>(centroids, "centroids");
  kmeans::data<T> from{
      .points = matrix_of(data_of<T>(points), points), .weights = {}, .centroids = matrix_of(data_of<T>(centroids), centroids)};
  expect_type<T>(weights, "weights");
  from.weights = {data_of<T>(weights), weights.size()};
  return from;
}

std::span<std::int32_t> labels_of(const output& to) {
  expect_type<std::int32_t>(to, "labels");
  return {data_of<std::int32_t>(to), to.size()};
}

template <class T>
kmeans::problem size_of(const kmeans::data<T>& from) {
  return {
      .precision = ballast::precision_of<T>, .points = from.points.rows, .features = from.points.columns, .clusters = from.centroids.rows};
}

template <class T>
void add_functions(nb::module_& m) {
  const std::string suffix = sizeof(T) == 4 ? "_f32" : "_f64";
  // `first` has k rows and is read where init is "given". Returns (report, inertia, iterations, whether the run stopped before max_iter).
  // Each fit writes to memory of its own.
  m.def(("kmeans_fit" + suffix).c_str(), [](const input& points, const input& weights, const input& first, const output& centroids,
                                            const output& labels, const std::string& init, int n_init, std::uint64_t seed,
                                            std::int64_t max_iter, double tol, const ballast::execution& where, std::uintptr_t stream) {
    kmeans::data<T> from = operands<T>(points, weights, first);
    const kmeans::problem size = size_of(from);
    expect_type<T>(centroids, "centroids");
    const kmeans::options how{.init = init_of(init), .n_init = n_init, .max_iter = static_cast<int>(max_iter), .tol = tol, .seed = seed};
    if (how.init != kmeans::init::given) from.centroids = {};
    double inertia = 0;
    int iterations = 0;
    kmeans::stop_reason stopped{};
    const kmeans::fit_results<T> to{.centroids = matrix_of(data_of<T>(centroids), centroids),
                                    .labels = labels_of(labels),
                                    .inertia = &inertia,
                                    .iterations = &iterations,
                                    .stopped = &stopped};
    ballast::report seen = unlocked([&] { return kmeans::plan<T>(size, how, where).fit(from, to, on_stream(stream)); });
    return nb::make_tuple(std::move(seen), inertia, iterations, stopped != kmeans::stop_reason::max_iter);
  });
  m.def(("kmeans_predict" + suffix).c_str(), [](const input& points, const input& weights, const input& centroids, const output& labels,
                                                const ballast::execution& where, std::uintptr_t stream) {
    const kmeans::data<T> from = operands<T>(points, weights, centroids);
    double inertia = 0;
    const kmeans::prediction_results to{.labels = labels_of(labels), .inertia = &inertia};
    ballast::report seen = unlocked([&] { return kmeans::plan<T>(size_of(from), {}, where).predict(from, to, on_stream(stream)); });
    return nb::make_tuple(std::move(seen), inertia);
  });
  m.def(("kmeans_transform" + suffix).c_str(), [](const input& points, const input& weights, const input& centroids, const output& values,
                                                  const ballast::execution& where, std::uintptr_t stream) {
    const kmeans::data<T> from = operands<T>(points, weights, centroids);
    expect_type<T>(values, "values");
    const auto to = matrix_of(data_of<T>(values), values);
    return unlocked([&] { return kmeans::plan<T>(size_of(from), {}, where).transform(from, to, on_stream(stream)); });
  });
}

}  // namespace

void add_kmeans(nb::module_& m) {
  add_functions<float>(m);
  add_functions<double>(m);
}

}  // namespace ballast_python
