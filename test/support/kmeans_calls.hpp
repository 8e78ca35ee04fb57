// Calls of K-Means with all their settings in one argument, and a fit with all its operands in one: for tests that vary them together.
// Layer: test harness.
#pragma once

#include <cstdint>
#include <span>

#include <ballast/kmeans.hpp>

#include "inject/active.hpp"
#include "run/settings.hpp"

namespace ballast::kmeans {

// A fit with its options and operands besides the points.
template <class T>
struct request {
  std::int64_t clusters = 8;
  kmeans::init init = kmeans::init::kmeans_plus_plus;
  matrix_view<const T> centroids = {};
  std::span<const T> weights = {};
  int n_init = 1;
  int max_iter = 300;
  double tol = 1e-4;
  std::uint64_t seed = 0;
  double oversampling = 2;
  int rounds = 5;

  options how() const { return {init, n_init, max_iter, tol, seed, oversampling, rounds}; }
  data<T> operands(matrix_view<const T> points) const { return {points, weights, centroids}; }
  batch_data<T> operands(matrix_batch_view<const T> points) const { return {points, weights, centroids}; }
};

namespace test_calls {

template <class Call>
auto with(const run::settings& how, Call&& call) {
  const inject::scope faults(how.faults);
  return call(how.where(), how.now());
}
template <class T>
model<T> fit_any(matrix_view<const T> points, const request<T>& what, const run::settings& how) {
  return with(how, [&](const auto& where, const auto& now) { return fit(what.operands(points), what.clusters, what.how(), where, now); });
}
template <class T>
batch_model<T> fit_any(matrix_batch_view<const T> points, const request<T>& what, const run::settings& how) {
  return with(how, [&](const auto& where, const auto& now) { return fit(what.operands(points), what.clusters, what.how(), where, now); });
}
template <class T>
prediction predict_any(const data<T>& from, const run::settings& how) {
  return with(how, [&](const auto& where, const auto& now) { return predict(from, where, now); });
}
template <class T>
distances<T> transform_any(const data<T>& from, const run::settings& how) {
  return with(how, [&](const auto& where, const auto& now) { return transform(from, where, now); });
}

}  // namespace test_calls

// Not templates, so that arguments may be written in braces.
inline model<float> fit(matrix_view<const float> points, const request<float>& what, const run::settings& how = {}) {
  return test_calls::fit_any(points, what, how);
}
inline model<double> fit(matrix_view<const double> points, const request<double>& what, const run::settings& how = {}) {
  return test_calls::fit_any(points, what, how);
}
inline batch_model<float> fit(matrix_batch_view<const float> points, const request<float>& what, const run::settings& how = {}) {
  return test_calls::fit_any(points, what, how);
}
inline batch_model<double> fit(matrix_batch_view<const double> points, const request<double>& what, const run::settings& how = {}) {
  return test_calls::fit_any(points, what, how);
}
inline prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, const run::settings& how = {}) {
  return test_calls::predict_any<float>({points, {}, centroids}, how);
}
inline prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, const run::settings& how = {}) {
  return test_calls::predict_any<double>({points, {}, centroids}, how);
}
inline prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, std::span<const float> weights,
                          const run::settings& how = {}) {
  return test_calls::predict_any<float>({points, weights, centroids}, how);
}
inline prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, std::span<const double> weights,
                          const run::settings& how = {}) {
  return test_calls::predict_any<double>({points, weights, centroids}, how);
}
inline distances<float> transform(matrix_view<const float> points, matrix_view<const float> centroids, const run::settings& how = {}) {
  return test_calls::transform_any<float>({points, {}, centroids}, how);
}
inline distances<double> transform(matrix_view<const double> points, matrix_view<const double> centroids, const run::settings& how = {}) {
  return test_calls::transform_any<double>({points, {}, centroids}, how);
}

}  // namespace ballast::kmeans
