// K-Means: what holds for all inputs. Small random problems of all shapes, both precisions, both backends.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ballast/kmeans.hpp>

#include "support/kmeans_calls.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
struct problem_data {
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<T> values;
  std::vector<T> weights;
  init way = init::random;
  std::uint64_t seed = 0;
  ballast::backend where = backend::cpu;
  matrix_view<const T> view() const { return row_major(values.data(), m, n); }
  request<T> wanted(int max_iter = 15) const {
    return {.clusters = k, .init = way, .weights = weights, .max_iter = max_iter, .seed = seed};
  }
  run::settings how(int threads = 1) const { return {.backend = where, .threads = threads}; }
};

template <class T>
problem_data<T> arbitrary() {
  problem_data<T> made;
  made.m = *rc::gen::inRange<std::int64_t>(1, 700);
  made.n = *rc::gen::inRange<std::int64_t>(1, 20);
  made.k = *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(made.m, 80) + 1);
  made.way = *rc::gen::element(init::random, init::kmeans_plus_plus);
  made.seed = *rc::gen::arbitrary<std::uint64_t>();
  made.where = *rc::gen::element(backend::reference, backend::cpu);
  // Integers over a power of ten: ties, duplicates and different scales.
  const double scale = std::pow(10.0, *rc::gen::inRange(-6, 7));
  const auto range = *rc::gen::element(1, 5, 1000, 1000000);
  std::uint64_t state = made.seed | 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state >> 33);
  };
  for (std::int64_t e = 0; e < made.m * made.n; ++e)
    made.values.push_back(static_cast<T>(static_cast<double>(next() % (2 * range + 1) - range) * scale));
  if (*rc::gen::arbitrary<bool>()) {
    for (std::int64_t i = 0; i < made.m; ++i) made.weights.push_back(static_cast<T>(next() % 4));
    made.weights[0] = 1;
  }
  return made;
}

template <class T>
double square(const problem_data<T>& p, std::int64_t i, const matrix<T>& c, std::int64_t j) {
  double sum = 0;
  for (std::int64_t f = 0; f < p.n; ++f) sum += std::pow(static_cast<double>(p.view()(i, f)) - static_cast<double>(c(j, f)), 2);
  return sum;
}

template <class T>
void check_fit() {
  const auto p = arbitrary<T>();
  const auto found = fit(p.view(), p.wanted(), p.how());
  RC_ASSERT(found.report.verdict == verdict::clean);
  RC_ASSERT(found.iterations >= 1 && found.iterations <= 15);
  RC_ASSERT(static_cast<std::int64_t>(found.labels.size()) == p.m);
  double inertia = 0, size = 0;
  for (const T x : p.values) size = std::max(size, std::abs(static_cast<double>(x)));
  const double slack = 64 * std::numeric_limits<T>::epsilon() * static_cast<double>(p.n + 4) * 4 * size * size;
  for (std::int64_t i = 0; i < p.m; ++i) {
    const std::int32_t own = found.labels[static_cast<std::size_t>(i)];
    RC_ASSERT(own >= 0 && own < p.k);
    const double mine = square(p, i, found.centroids, own);
    for (std::int64_t j = 0; j < p.k; ++j) RC_ASSERT(mine <= square(p, i, found.centroids, j) + slack);
    inertia += mine * (p.weights.empty() ? 1.0 : static_cast<double>(p.weights[static_cast<std::size_t>(i)]));
  }
  RC_ASSERT(std::abs(found.inertia - inertia) <= 1e-9 * inertia + std::numeric_limits<double>::min());
}

template <class T>
void check_repeatable() {
  const auto p = arbitrary<T>();
  const auto one = fit(p.view(), p.wanted(), p.how(1));
  const auto three = fit(p.view(), p.wanted(), p.how(3));
  RC_ASSERT(one.labels == three.labels);
  RC_ASSERT(one.inertia == three.inertia);
  RC_ASSERT(std::equal(one.centroids.data(), one.centroids.data() + one.centroids.size(), three.centroids.data()));
  const auto again = predict(p.view(), one.centroids.view(), p.how(2));
  RC_ASSERT(again.labels == one.labels);
}

template <class T>
void check_power_of_two() {
  // Scaling by a power of two changes no bit of the significands.
  auto p = arbitrary<T>();
  const auto one = fit(p.view(), p.wanted(), p.how());
  for (T& x : p.values) x *= 64;
  const auto scaled = fit(p.view(), p.wanted(), p.how());
  RC_ASSERT(one.labels == scaled.labels);
  RC_ASSERT(one.iterations == scaled.iterations);
  RC_ASSERT(one.inertia * 4096 == scaled.inertia);
}

template <class T>
void check_descent() {
  auto p = arbitrary<T>();
  double last = std::numeric_limits<double>::infinity();
  for (const int iterations : {1, 2, 4, 8}) {
    auto wanted = p.wanted(iterations);
    wanted.tol = 0;
    const auto found = fit(p.view(), wanted, p.how());
    double size = 0;
    for (const T x : p.values) size = std::max(size, std::abs(static_cast<double>(x)));
    // Relocation of empty clusters aside (it lowers inertia as well), only rounding can raise it.
    RC_ASSERT(found.inertia <= last + 64 * std::numeric_limits<T>::epsilon() * static_cast<double>(p.m * p.n) * 4 * size * size);
    last = found.inertia;
  }
}

RC_GTEST_PROP(kmeans_property, labels_are_nearest_and_inertia_is_theirs_f32, ()) { check_fit<float>(); }
RC_GTEST_PROP(kmeans_property, labels_are_nearest_and_inertia_is_theirs_f64, ()) { check_fit<double>(); }
RC_GTEST_PROP(kmeans_property, threads_change_nothing_and_predict_agrees_f32, ()) { check_repeatable<float>(); }
RC_GTEST_PROP(kmeans_property, threads_change_nothing_and_predict_agrees_f64, ()) { check_repeatable<double>(); }
RC_GTEST_PROP(kmeans_property, powers_of_two_scale_exactly_f32, ()) { check_power_of_two<float>(); }
RC_GTEST_PROP(kmeans_property, powers_of_two_scale_exactly_f64, ()) { check_power_of_two<double>(); }
RC_GTEST_PROP(kmeans_property, inertia_never_grows_f32, ()) { check_descent<float>(); }
RC_GTEST_PROP(kmeans_property, inertia_never_grows_f64, ()) { check_descent<double>(); }

}  // namespace
}  // namespace ballast::kmeans
