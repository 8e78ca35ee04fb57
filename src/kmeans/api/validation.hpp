// Validation of the arguments of the public calls of K-Means. Each throws invalid_argument_error with the token in front.
// Layer: algorithm.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "core/format.hpp"

namespace ballast::kmeans {

// Checks a view: not empty, not null, and its farthest element within 63 bits.
template <class T>
void check_view(const std::string& token, std::string_view name, const matrix_view<const T>& view) {
  if (view.rows < 1 || view.columns < 1)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected at least one row and one column, got {} × {}", token, name, view.rows, view.columns));
  std::int64_t down = 0, across = 0, all = 0, bytes = 0;
  if (__builtin_mul_overflow(view.rows - 1, view.row_stride, &down) ||
      __builtin_mul_overflow(view.columns - 1, view.column_stride, &across) || __builtin_add_overflow(down, across, &all) ||
      __builtin_mul_overflow(all, static_cast<std::int64_t>(sizeof(T)), &bytes) || __builtin_mul_overflow(view.rows, view.columns, &all) ||
      __builtin_mul_overflow(all, static_cast<std::int64_t>(sizeof(T)), &bytes))
    throw invalid_argument_error(fmt::format("{}: {}: expected a size below 2^63 bytes, got {} × {} with strides {} and {}", token, name,
                                             view.rows, view.columns, view.row_stride, view.column_stride));
  if (view.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected an address, got null", token, name));
  if (reinterpret_cast<std::uintptr_t>(view.data) % sizeof(T) != 0)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected an address at a multiple of {} bytes, an element's size, got another one", token, name, sizeof(T)));
}

template <class T>
std::string token_of(const matrix_view<const T>& points, std::int64_t k) {
  return to_token({precision_of<T>, points.rows, points.columns, k});
}

template <class T>
std::string token_of(const matrix_batch_view<const T>& points, std::int64_t k) {
  return to_token({precision_of<T>, points.rows, points.columns, k, points.count});
}

inline void check_clusters(const std::string& token, std::int64_t k) {
  if (k < 1) throw invalid_argument_error(fmt::format("{}: clusters: expected at least 1, got {}", token, k));
  if (k > std::numeric_limits<std::int32_t>::max())
    throw invalid_argument_error(fmt::format("{}: clusters: expected at most 2147483647, for labels have 32 bits, got {}", token, k));
}

template <class T>
void check_centroids(const std::string& token, const matrix_view<const T>& centroids, std::int64_t k, std::int64_t n) {
  check_view(token, "centroids", centroids);
  if (centroids.rows != k || centroids.columns != n)
    throw invalid_argument_error(
        fmt::format("{}: centroids: expected {} × {}, got {} × {}", token, k, n, centroids.rows, centroids.columns));
}

template <class T>
void check_weights(const std::string& token, std::span<const T> weights, std::int64_t m) {
  if (!weights.empty() && static_cast<std::int64_t>(weights.size()) != m)
    throw invalid_argument_error(fmt::format("{}: weights: expected {}, got {}", token, m, weights.size()));
  if (!weights.empty() && weights.data() == nullptr)
    throw invalid_argument_error(fmt::format("{}: weights: expected an address, got null", token));
}

// Points and options of fit, or of one of `count` fits, whose weights and given centroids lie one behind the other.
template <class T>
void check_options(const std::string& token, const matrix_view<const T>& points, const options<T>& wanted, std::int64_t count) {
  check_view(token, "points", points);
  check_clusters(token, wanted.clusters);
  if (wanted.clusters > points.rows)
    throw invalid_argument_error(
        fmt::format("{}: clusters: expected at most the number of points, {}, got {}", token, points.rows, wanted.clusters));
  if (wanted.n_init < 1) throw invalid_argument_error(fmt::format("{}: n_init: expected at least 1, got {}", token, wanted.n_init));
  if (wanted.max_iter < 1) throw invalid_argument_error(fmt::format("{}: max_iter: expected at least 1, got {}", token, wanted.max_iter));
  if (!(wanted.tol >= 0)) throw invalid_argument_error(fmt::format("{}: tol: expected a number ≥ 0, got {}", token, wanted.tol));
  switch (wanted.init) {
    case init::kmeans_plus_plus:
    case init::random: break;
    case init::kmeans_parallel:
      if (!(wanted.oversampling > 0) || !std::isfinite(wanted.oversampling))
        throw invalid_argument_error(fmt::format("{}: oversampling: expected a finite number > 0, got {}", token, wanted.oversampling));
      if (wanted.rounds < 1) throw invalid_argument_error(fmt::format("{}: rounds: expected at least 1, got {}", token, wanted.rounds));
      break;
    case init::given: check_centroids(token, wanted.centroids, count * wanted.clusters, points.columns); break;
    default:
      throw invalid_argument_error(
          fmt::format("{}: init: expected k-means++, k-means||, random or given, got {}", token, static_cast<int>(wanted.init)));
  }
  check_weights(token, wanted.weights, count * points.rows);
}

}  // namespace ballast::kmeans
