// Validation of problems, options and operands of K-Means. Each function throws invalid_argument_error with the token in front.
// Layer: algorithm.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/device/residence.hpp"

namespace ballast::kmeans {

inline bool overflows(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product);
}

// The problem of one call on these operands.
template <class T>
problem problem_of(const data<T>& from, std::int64_t clusters) {
  const auto rows = std::visit([](const auto& sparse) { return std::pair(sparse.rows, sparse.columns); }, from.sparse);
  if (from.points.data == nullptr && rows.first > 0)
    return {.precision = precision_of<T>, .points = rows.first, .features = rows.second, .clusters = clusters, .storage = storage::csr};
  problem made{.precision = precision_of<T>, .points = from.points.rows, .features = from.points.columns, .clusters = clusters};
  const auto take = [&](const auto& half, storage kind) {
    made.points = half.rows;
    made.features = half.columns;
    made.storage = kind;
  };
  if (const auto* const half = std::get_if<matrix_view<const float16>>(&from.half)) take(*half, storage::f16);
  if (const auto* const half = std::get_if<matrix_view<const bfloat16>>(&from.half)) take(*half, storage::bf16);
  return made;
}

// The sizes of a problem. The number of clusters may exceed that of the points, except for fit.
// `on_group`: the points of this rank may be none.
inline void check_problem(std::string_view token, const problem& size, bool on_group = false) {
  if (size.batch < 1) throw invalid_argument_error(fmt::format("{}: batch: expected at least one data set, got {}", token, size.batch));
  if (size.points < (on_group ? 0 : 1) || size.features < 1)
    throw invalid_argument_error(
        fmt::format("{}: points: expected at least one row and one column, got {} × {}", token, size.points, size.features));
  if (size.clusters < 1) throw invalid_argument_error(fmt::format("{}: clusters: expected at least 1, got {}", token, size.clusters));
  if (size.clusters > std::numeric_limits<std::int32_t>::max())
    throw invalid_argument_error(
        fmt::format("{}: clusters: expected at most 2147483647, because labels have 32 bits, got {}", token, size.clusters));
  const std::int64_t bytes = size.precision == precision::f32 ? 4 : 8;
  if (overflows(size.points, size.features, bytes) || overflows(size.clusters, size.features, bytes) ||
      overflows(size.batch, size.points, 8) || overflows(size.batch, size.clusters, 8) ||
      overflows(size.batch, size.clusters * size.features, bytes))
    throw invalid_argument_error(fmt::format("{}: expected sizes below 2^63 bytes, got {} data sets of {} × {} with {} clusters", token,
                                             size.batch, size.points, size.features, size.clusters));
}

inline void check_options(std::string_view token, const options& wanted) {
  if (wanted.n_init < 1) throw invalid_argument_error(fmt::format("{}: n_init: expected at least 1, got {}", token, wanted.n_init));
  if (wanted.max_iter < 1) throw invalid_argument_error(fmt::format("{}: max_iter: expected at least 1, got {}", token, wanted.max_iter));
  if (!(wanted.tol >= 0)) throw invalid_argument_error(fmt::format("{}: tol: expected a number ≥ 0, got {}", token, wanted.tol));
  switch (wanted.init) {
    case init::kmeans_plus_plus:
    case init::random:
    case init::given: break;
    case init::kmeans_parallel:
      if (!(wanted.oversampling > 0) || !std::isfinite(wanted.oversampling))
        throw invalid_argument_error(fmt::format("{}: oversampling: expected a finite number > 0, got {}", token, wanted.oversampling));
      if (wanted.rounds < 1) throw invalid_argument_error(fmt::format("{}: rounds: expected at least 1, got {}", token, wanted.rounds));
      break;
    default:
      throw invalid_argument_error(
          fmt::format("{}: init: expected k-means++, k-means||, random or given, got {}", token, static_cast<int>(wanted.init)));
  }
}

// A view of the expected size, not null, aligned, and with its farthest element within 63 bits.
template <class T>
void check_view(std::string_view token, std::string_view name, const matrix_view<T>& view, std::int64_t rows, std::int64_t columns) {
  if (view.rows != rows || view.columns != columns)
    throw invalid_argument_error(fmt::format("{}: {}: expected {} × {}, got {} × {}", token, name, rows, columns, view.rows, view.columns));
  if (!core::extent_fits(view))
    throw invalid_argument_error(fmt::format("{}: {}: expected a size below 2^63 bytes, got {} × {} with strides {} and {}", token, name,
                                             rows, columns, view.row_stride, view.column_stride));
  if (view.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected an address, got null", token, name));
  if (reinterpret_cast<std::uintptr_t>(view.data) % sizeof(T) != 0)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected an address at a multiple of {} bytes, an element's size, got another one", token, name, sizeof(T)));
}

// A result with strides: as above, and no two elements at one position.
template <class T>
void check_result(std::string_view token, std::string_view name, const matrix_view<T>& view, std::int64_t rows, std::int64_t columns) {
  check_view(token, name, view, rows, columns);
  if (!core::elements_apart(view))
    throw invalid_argument_error(fmt::format("{}: {}: expected strides that keep the elements apart, got {} and {}", token, name,
                                             view.row_stride, view.column_stride));
}

// An operand or result that may be empty.
template <class T>
void check_span(std::string_view token, std::string_view name, std::span<T> given, std::int64_t size) {
  if (given.empty()) return;
  if (static_cast<std::int64_t>(given.size()) != size)
    throw invalid_argument_error(fmt::format("{}: {}: expected {}, got {}", token, name, size, given.size()));
  if (given.data() == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected an address, got null", token, name));
  if (reinterpret_cast<std::uintptr_t>(given.data()) % sizeof(T) != 0)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected an address at a multiple of {} bytes, an element's size, got another one", token, name, sizeof(T)));
}

// Compressed rows whose every index lies within the arrays and the matrix, with ascending columns in each row. Arrays on a device are
// checked when their copy is there.
template <class T, class Index>
void check_rows(std::string_view token, const csr_view<const T, Index>& given, std::int64_t rows, std::int64_t columns) {
  if (given.rows != rows || given.columns != columns)
    throw invalid_argument_error(fmt::format("{}: points: expected {} × {}, got {} × {}", token, rows, columns, given.rows, given.columns));
  if (static_cast<std::int64_t>(given.offsets.size()) != rows + 1)
    throw invalid_argument_error(fmt::format("{}: points: expected {} offsets of rows, got {}", token, rows + 1, given.offsets.size()));
  if (given.indices.size() != given.values.size())
    throw invalid_argument_error(
        fmt::format("{}: points: expected as many columns as values, {}, got {}", token, given.values.size(), given.indices.size()));
  check_span(token, "points: offsets", given.offsets, rows + 1);
  check_span(token, "points: columns", given.indices, static_cast<std::int64_t>(given.indices.size()));
  check_span(token, "points: values", given.values, static_cast<std::int64_t>(given.values.size()));
  for (const void* each : {static_cast<const void*>(given.offsets.data()), static_cast<const void*>(given.indices.data()),
                           static_cast<const void*>(given.values.data())}) {
    if (ballast::cuda::residence_of(each) != ballast::cuda::residence::host) return;
  }
  const auto stored = static_cast<std::int64_t>(given.values.size());
  std::int64_t first = given.offsets[0];
  if (first < 0 || first > stored)
    throw invalid_argument_error(fmt::format("{}: points: expected offsets from 0 to {}, got {} for row 0", token, stored, first));
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t end = given.offsets[static_cast<std::size_t>(i + 1)];
    if (end < first || end > stored)
      throw invalid_argument_error(
          fmt::format("{}: points: expected offsets that do not fall, up to {}, got {} after {} in row {}", token, stored, end, first, i));
    std::int64_t before = -1;
    for (; first < end; ++first) {
      const std::int64_t column = given.indices[static_cast<std::size_t>(first)];
      if (column <= before || column >= columns)
        throw invalid_argument_error(
            fmt::format("{}: points: expected ascending columns in [0, {}), got {} after {} in row {}", token, columns, column, before, i));
      before = column;
    }
  }
}

// The points of a call.
template <class T>
void check_points(std::string_view token, const problem& size, const data<T>& from) {
  if (size.storage == storage::dense) return check_view(token, "points", from.points, size.points, size.features);
  const auto check_half = [&](const auto* half, std::string_view type) {
    if (half == nullptr)
      throw invalid_argument_error(fmt::format("{}: points: expected a matrix of {} (data::half), got none", token, type));
    check_view(token, "points", *half, size.points, size.features);
  };
  if (size.storage == storage::f16) return check_half(std::get_if<matrix_view<const float16>>(&from.half), "float16");
  if (size.storage == storage::bf16) return check_half(std::get_if<matrix_view<const bfloat16>>(&from.half), "bfloat16");
  std::visit([&](const auto& sparse) { check_rows(token, sparse, size.points, size.features); }, from.sparse);
}

inline void check_clusters_of_fit(std::string_view token, const problem& size) {
  if (size.clusters > size.points)
    throw invalid_argument_error(
        fmt::format("{}: clusters: expected at most the number of points, {}, got {}", token, size.points, size.clusters));
}

// The operands of a fit.
template <class T>
void check_fit(std::string_view token, const problem& size, const options& wanted, const data<T>& from) {
  check_clusters_of_fit(token, size);
  check_points(token, size, from);
  if (wanted.init == init::given) check_view(token, "centroids", from.centroids, size.clusters, size.features);
  check_span(token, "weights", from.weights, size.points);
}

template <class T>
void check_fit(std::string_view token, const problem& size, const options& wanted, const batch_data<T>& from) {
  check_clusters_of_fit(token, size);
  if (size.storage != storage::dense || size.spherical)
    throw unsupported_error(fmt::format("{}: batch: expected points in matrices, got a plan for other points", token));
  if (from.points.count != size.batch)
    throw invalid_argument_error(fmt::format("{}: points: expected {} data sets, got {}", token, size.batch, from.points.count));
  check_view(token, "points", from.points[0], size.points, size.features);
  if (!core::extent_fits(from.points))
    throw invalid_argument_error(fmt::format("{}: points: expected a size below 2^63 bytes, got {} data sets with a stride of {}", token,
                                             size.batch, from.points.stride));
  if (wanted.init == init::given) check_view(token, "centroids", from.centroids, size.batch * size.clusters, size.features);
  check_span(token, "weights", from.weights, size.batch * size.points);
}

// The results of a fit.
template <class T>
void check_results(std::string_view token, const problem& size, const fit_results<T>& to) {
  if (to.centroids.data != nullptr) check_result(token, "centroids", to.centroids, size.clusters, size.features);
  check_span(token, "labels", to.labels, size.points);
}

template <class T>
void check_results(std::string_view token, const problem& size, const batch_results<T>& to) {
  if (to.centroids.data != nullptr) check_result(token, "centroids", to.centroids, size.batch * size.clusters, size.features);
  check_span(token, "labels", to.labels, size.batch * size.points);
  check_span(token, "inertia", to.inertia, size.batch);
  check_span(token, "iterations", to.iterations, size.batch);
  check_span(token, "stopped", to.stopped, size.batch);
}

// The operands of predict and transform.
template <class T>
void check_points_and_centroids(std::string_view token, const problem& size, const data<T>& from) {
  check_points(token, size, from);
  check_view(token, "centroids", from.centroids, size.clusters, size.features);
  check_span(token, "weights", from.weights, size.points);
}

}  // namespace ballast::kmeans
