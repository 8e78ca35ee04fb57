// One call of K-Means: fit, predict, transform. See driver.hpp.
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ballast::kmeans {

namespace {

// One line for each backend.
template <class T>
std::unique_ptr<engine<T>> make_engine(const call<T>& what, ballast::backend backend) {
  return host::make_engine(what, backend);
}

}  // namespace

template <class T>
driver<T>::driver(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const execution& how, std::string token,
                  ballast::backend backend, std::string_view scheme, bool strike_seeding)
    : m_(points.rows),
      n_(points.columns),
      k_(clusters),
      weighted_(!weights.empty()),
      how_(how),
      token_(std::move(token)),
      injector_(how.faults, "kmeans"),
      recorder_(token_, backend, std::string(scheme), how, injector_),
      engine_(make_engine(call<T>{points, weights, clusters, how, recorder_, injector_, strike_seeding}, backend)) {}

template <class T>
model<T> driver<T>::fit(const options<T>& wanted) {
  choose_frame(wanted.init == init::given ? wanted.centroids : matrix_view<const T>{});
  const double tolerance = wanted.tol * mean_variance();
  const int runs = wanted.init == init::given ? 1 : wanted.n_init;
  run_result best;
  for (int number = 0; number < runs && !(number > 0 && stop()); ++number) {
    run_result made = one_run(first_centroids(wanted, static_cast<std::uint64_t>(number)), wanted, tolerance);
    if (number == 0 || made.inertia < best.inertia) best = std::move(made);
  }
  model<T> result;
  result.report = recorder_.finish();
  result.centroids = matrix<T>(k_, n_);
  std::ranges::copy(best.centroids, result.centroids.data());
  result.labels = std::move(best.labels);
  result.inertia = best.inertia;
  result.iterations = best.iterations;
  result.converged = best.converged;
  return result;
}

template <class T>
prediction driver<T>::predict(matrix_view<const T> centroids) {
  choose_frame(centroids);
  std::vector<T> rows(at(core::checked_product(k_, n_)));
  for (std::int64_t j = 0; j < k_; ++j)
    for (std::int64_t f = 0; f < n_; ++f) rows[at(j * n_ + f)] = centroids(j, f);
  prediction made;
  made.inertia = label(rows);
  made.labels = engine_->take_labels();
  made.report = recorder_.finish();
  return made;
}

template <class T>
distances<T> driver<T>::transform(matrix_view<const T> centroids) {
  choose_frame(centroids);
  sealed_centroids<T> sealed(into_frame(centroids));
  verify_waiting(sealed);
  distances<T> made;
  made.values = matrix<T>(m_, k_);
  engine_->distances(sealed, made.values.data());
  made.report = recorder_.finish();
  return made;
}

// Before a pass uses centroids that have waited: they must be what was sealed.
template <class T>
void driver<T>::verify_waiting(sealed_centroids<T>& centroids) {
  injector_.strike(inject::site::kmeans_centroid, {0, 1, 1, 2}, centroids.data(), centroids.size());
  if (!protects()) return;
  recorder_.checked(1);
  using state = typename sealed_centroids<T>::state;
  const state found = repairs() ? centroids.verify() : centroids.intact() ? state::intact : state::lost;
  if (found == state::intact) return;
  recorder_.detected("kmeans.centroid", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                     found == state::repaired ? action::corrected : action::uncorrectable, 0);
}

// Labels and inertia for centroids in the user's coordinates. fit ends with it, so its labels are those of predict.
template <class T>
double driver<T>::label(const std::vector<T>& centroids) {
  sealed_centroids<T> sealed(into_frame(row_major(centroids.data(), k_, n_)));
  verify_waiting(sealed);
  std::vector<T> plain(centroids);
  for (T& each : plain) each *= frame_.scale;
  const double unscale = 1 / static_cast<double>(frame_.scale);
  return engine_->label(sealed, plain) * unscale * unscale / static_cast<double>(frame_.weight_scale);
}

// The members that are defined in this file; the other files instantiate theirs.
template class driver<float>;
template class driver<double>;

}  // namespace ballast::kmeans
