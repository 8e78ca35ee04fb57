#include "kmeans/host/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/exact_sum.hpp"

namespace ballast::kmeans::host {

namespace {

using core::exact_sum;

bool less(const exact_sum& one, const exact_sum& other) {
  exact_sum difference = one;
  difference.add({-other.high, -other.low});
  return difference.high + difference.low < 0;
}

// A row of the points as they were given: of a matrix, or with the zeros of a sparse one.
template <class T>
struct given_row {
  const T* first;
  std::int64_t stride;
  T operator[](std::int64_t f) const { return first[f * stride]; }
};

// Returns ‖x − c‖² in double. Four accumulators, so that additions overlap.
template <class T>
double plain_distance(const source<T>& from, const given_row<T>& row, const T* c) {
  const std::int64_t n = from.points.columns;
  double sum[4] = {};
  for (std::int64_t f = 0; f < n; ++f) {
    const double x = static_cast<double>(row[f]) * static_cast<double>(from.scale) - static_cast<double>(from.shift[at(f)]);
    const double difference = k_lift<T> * (x - static_cast<double>(c[f]));
    sum[f & 3] += difference * difference;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Returns ‖x − c‖² with the rounding errors of every operation but the last ones.
exact_sum precise_distance(const source<double>& from, const given_row<double>& row, const double* c) {
  exact_sum sum;
  for (std::int64_t f = 0; f < from.points.columns; ++f) {
    exact_sum difference{row[f] * from.scale};
    difference.add(-from.shift[at(f)]);
    difference.add(-c[f]);
    const double d = k_lift<double> * (difference.high + difference.low);
    const double rest = k_lift<double> * ((difference.high - (difference.high + difference.low)) + difference.low);
    const double square = d * d;
    sum.add(square);
    sum.low += std::fma(d, d, -square) + 2 * d * rest;
  }
  return sum;
}

// Returns the index of the nearest of the centroids that may(j) admits, the lowest of equally near ones.
template <class T, class May>
std::int64_t nearest_of(const source<T>& from, const given_row<T>& row, const T* centroids, std::int64_t k, const May& may) {
  const std::int64_t n = from.points.columns;
  double least = std::numeric_limits<double>::infinity();
  std::int64_t found = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    if (!may(j)) continue;
    const double distance = plain_distance(from, row, centroids + j * n);
    if (!(distance < least)) continue;
    least = distance;
    found = j;
  }
  if constexpr (sizeof(T) == 8) {
    const double near = least * (1 + 4 * static_cast<double>(n + 4) * abft::unit_roundoff<double>);
    std::int64_t best = -1;
    exact_sum smallest;
    for (std::int64_t j = 0; j < k; ++j) {
      if (!may(j) || !(plain_distance(from, row, centroids + j * n) <= near)) continue;
      const exact_sum distance = precise_distance(from, row, centroids + j * n);
      if (best >= 0 && !less(distance, smallest)) continue;
      smallest = distance;
      best = j;
    }
    if (best >= 0) found = best;
  }
  return found;
}

// Σ x² and Σ |x| · |c| of a sparse point bound what its scores in double round: each of its elements and ‖c‖² has a relative error of (e +
// 4) u for e stored elements, apart from what ‖c‖² lost in n additions.
template <class T>
std::int64_t nearest_of_sparse(const source<T>& from, std::int64_t row, const T* centroids, std::int64_t k, const double* squares,
                               T* scratch) {
  const std::int64_t n = from.points.columns;
  const sparse_rows<T>& points = from.sparse;
  core::vector<double> scores(at(k));
  core::vector<double> slack(at(k));
  double least = std::numeric_limits<double>::infinity();
  const double stored = static_cast<double>(points.first(row + 1) - points.first(row));
  for (std::int64_t j = 0; j < k; ++j) {
    const T* const c = centroids + j * n;
    double product = 0, size = 0;
    points.each(row, [&](std::int64_t f, T value) {
      const double term = static_cast<double>(value * from.scale) * static_cast<double>(c[f]);
      product += term;
      size += std::abs(term);
    });
    scores[at(j)] = squares[j] - 2 * product;
    slack[at(j)] = 2 * abft::unit_roundoff<double> * ((stored + 4) * 2 * size + static_cast<double>(n + 4) * squares[j]);
    least = std::min(least, scores[at(j)] + slack[at(j)]);
  }
  // Not "above": a NaN is compared, too.
  const auto may = [&](std::int64_t j) { return !(scores[at(j)] - slack[at(j)] > least); };
  std::int64_t only = -1, many = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    if (!may(j)) continue;
    only = j;
    ++many;
  }
  if (many == 1) return only;
  points.each(row, [&](std::int64_t f, T value) { scratch[f] = value; });
  const std::int64_t found = nearest_of(from, {scratch, 1}, centroids, k, may);
  points.each(row, [&](std::int64_t f, T) { scratch[f] = 0; });
  return found;
}

}  // namespace

template <class T>
std::int32_t nearest_centroid(const source<T>& from, std::int64_t row, const T* centroids, std::int64_t k, const double* squares,
                              T* scratch) {
  if (from.sparse.present()) return static_cast<std::int32_t>(nearest_of_sparse(from, row, centroids, k, squares, scratch));
  const given_row<T> x = {from.points.data + (row - from.origin) * from.points.row_stride, from.points.column_stride};
  return static_cast<std::int32_t>(nearest_of(from, x, centroids, k, [](std::int64_t) { return true; }));
}

template std::int32_t nearest_centroid(const source<float>&, std::int64_t, const float*, std::int64_t, const double*, float*);
template std::int32_t nearest_centroid(const source<double>&, std::int64_t, const double*, std::int64_t, const double*, double*);

}  // namespace ballast::kmeans::host
