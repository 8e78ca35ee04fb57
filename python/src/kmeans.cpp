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

// The points of a call: an array, or a tuple (values, columns, offsets, m, n) of compressed rows. Holds the arrays.
struct points_argument {
  explicit points_argument(const nb::object& given) {
    if (!nb::isinstance<nb::tuple>(given)) {
      dense = nb::cast<input>(given);
      return;
    }
    const auto parts = nb::cast<nb::tuple>(given);
    sparse = true;
    values = nb::cast<input>(parts[0]);
    columns = nb::cast<input>(parts[1]);
    offsets = nb::cast<input>(parts[2]);
    m = nb::cast<std::int64_t>(parts[3]);
    n = nb::cast<std::int64_t>(parts[4]);
  }
  template <class T, class Index>
  ballast::csr_view<const T, Index> rows() const {
    expect_type<T>(values, "values");
    expect_type<Index>(columns, "columns");
    expect_type<Index>(offsets, "offsets");
    return {
        m, n, {data_of<Index>(offsets), offsets.size()}, {data_of<Index>(columns), columns.size()}, {data_of<T>(values), values.size()}};
  }

  bool sparse = false;
  input dense, values, columns, offsets;
  std::int64_t m = 0, n = 0;
};

// Takes points of float16 or bfloat16, whose results are in float. Returns false for others.
bool take_half(const input& points, kmeans::data<float>& to) {
  const auto is = [&](nb::dlpack::dtype_code code) {
    return points.dtype() == nb::dlpack::dtype{.code = static_cast<std::uint8_t>(code), .bits = 16, .lanes = 1};
  };
  if (is(nb::dlpack::dtype_code::Float)) {
    to.half = matrix_of(data_of<ballast::float16>(points), points);
  } else if (is(nb::dlpack::dtype_code::Bfloat)) {
    to.half = matrix_of(data_of<ballast::bfloat16>(points), points);
  } else {
    return false;
  }
  return true;
}
bool take_half(const input&, kmeans::data<double>&) { return false; }

// Weights without elements: each point counts 1.
template <class T>
kmeans::data<T> operands(const points_argument& points, const input& weights, const input& centroids) {
  kmeans::data<T> from;
  if (!points.sparse) {
    if (!take_half(points.dense, from)) {
      expect_type<T>(points.dense, "points");
      from.points = matrix_of(data_of<T>(points.dense), points.dense);
    }
  } else if (points.columns.dtype() == nb::dtype<std::int64_t>()) {
    from.sparse = points.rows<T, std::int64_t>();
  } else {
    from.sparse = points.rows<T, std::int32_t>();
  }
  expect_type<T>(centroids, "centroids");
  from.centroids = matrix_of(data_of<T>(centroids), centroids);
  expect_type<T>(weights, "weights");
  from.weights = {data_of<T>(weights), weights.size()};
  return from;
}

std::span<std::int32_t> labels_of(const output& to) {
  expect_type<std::int32_t>(to, "labels");
  return {data_of<std::int32_t>(to), to.size()};
}

template <class T>
kmeans::problem size_of(const points_argument& points, const kmeans::data<T>& from, bool spherical) {
  constexpr kmeans::storage kinds[] = {kmeans::storage::dense, kmeans::storage::f16, kmeans::storage::bf16};  // by the index in data::half
  return {.precision = ballast::precision_of<T>,
          .points = points.sparse ? points.m : static_cast<std::int64_t>(points.dense.shape(0)),
          .features = points.sparse ? points.n : static_cast<std::int64_t>(points.dense.shape(1)),
          .clusters = from.centroids.rows,
          .storage = points.sparse ? kmeans::storage::csr : kinds[from.half.index()],
          .spherical = spherical};
}

template <class T>
void add_functions(nb::module_& m, bool spherical) {
  const std::string prefix = spherical ? "kmeans_spherical_" : "kmeans_", suffix = sizeof(T) == 4 ? "_f32" : "_f64";
  // `first` has k rows and is read where init is "given". Returns (report, inertia, iterations, whether the run stopped before max_iter).
  // Each fit writes to memory of its own.
  m.def((prefix + "fit" + suffix).c_str(), [spherical](const nb::object& given, const input& weights, const input& first,
                                                       const output& centroids, const output& labels, const std::string& init, int n_init,
                                                       std::uint64_t seed, std::int64_t max_iter, double tol,
                                                       const ballast::execution& where, std::uintptr_t stream) {
    const points_argument points(given);
    kmeans::data<T> from = operands<T>(points, weights, first);
    const kmeans::problem size = size_of(points, from, spherical);
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
  m.def((prefix + "predict" + suffix).c_str(), [spherical](const nb::object& given, const input& weights, const input& centroids,
                                                           const output& labels, const ballast::execution& where, std::uintptr_t stream) {
    const points_argument points(given);
    const kmeans::data<T> from = operands<T>(points, weights, centroids);
    const kmeans::problem size = size_of(points, from, spherical);
    double inertia = 0;
    const kmeans::prediction_results to{.labels = labels_of(labels), .inertia = &inertia};
    ballast::report seen = unlocked([&] { return kmeans::plan<T>(size, {}, where).predict(from, to, on_stream(stream)); });
    return nb::make_tuple(std::move(seen), inertia);
  });
  m.def((prefix + "transform" + suffix).c_str(), [spherical](const nb::object& given, const input& weights, const input& centroids,
                                                             const output& values, const ballast::execution& where, std::uintptr_t stream) {
    const points_argument points(given);
    const kmeans::data<T> from = operands<T>(points, weights, centroids);
    const kmeans::problem size = size_of(points, from, spherical);
    expect_type<T>(values, "values");
    const auto to = matrix_of(data_of<T>(values), values);
    return unlocked([&] { return kmeans::plan<T>(size, {}, where).transform(from, to, on_stream(stream)); });
  });
}

}  // namespace

void add_kmeans(nb::module_& m) {
  for (const bool spherical : {false, true}) {
    add_functions<float>(m, spherical);
    add_functions<double>(m, spherical);
  }
}

}  // namespace ballast_python
