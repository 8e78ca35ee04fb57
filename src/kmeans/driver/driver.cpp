// One call of K-Means: fit, predict, transform. See driver.hpp.
#include "kmeans/driver/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "run/attempt.hpp"

namespace ballast::kmeans {

// One line for each backend.
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend) {
  if (backend == ballast::backend::cuda) return cuda::make_engine(what);
  return host::make_engine(what, backend);
}

template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&, ballast::backend);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&, ballast::backend);

template <class T>
driver<T>::driver(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const run::settings& how, std::string token,
                  ballast::backend backend, std::string_view scheme, bool strike_seeding)
    : m_(points.rows),
      n_(points.columns),
      k_(clusters),
      backend_(backend),
      weighted_(!weights.empty()),
      strike_seeding_(strike_seeding),
      how_(how),
      token_(std::move(token)),
      injector_(how.faults, "kmeans"),
      recorder_(token_, backend, std::string(scheme), how, injector_),
      engine_(make_engine(engine_args<T>{points, weights, clusters, how, recorder_, injector_, strike_seeding, scheme}, backend)) {}

template <class T>
model<T> driver<T>::fit(const options<T>& wanted) {
  choose_frame(wanted.init == init::given ? wanted.centroids : matrix_view<const T>{}, true);
  const int runs = wanted.init == init::given ? 1 : wanted.n_init;
  run_result best;
  for (int number = 0; number < runs && !(number > 0 && stop()); ++number) {
    run_result made = one_run(wanted, number);
    if (number == 0 || made.inertia.value < best.inertia.value) best = std::move(made);
  }
  // The winner has waited for the other runs, and is copied once more. What is compared is the copy.
  verify_waiting(best.centroids, "kmeans.centroid");
  model<T> result;
  result.centroids = matrix<T>(k_, n_);
  std::ranges::copy(best.centroids.values(), result.centroids.data());
  result.labels = std::move(best.labels);
  result.inertia = best.inertia.value;
  result.iterations = best.iterations;
  result.ended = best.ended;
  if (protects() && !stop()) {
    recorder_.checked(2);
    constexpr double no_size = std::numeric_limits<double>::quiet_NaN();
    if (seal_of(result.centroids.data(), k_ * n_) != best.centroids.seal())
      recorder_.detected("kmeans.centroid", -1, no_size, 0, action::uncorrectable, 0);
    if (!agree({result.inertia, best.inertia.twin}))
      recorder_.detected("kmeans.inertia", -1, result.inertia - best.inertia.twin, 0, action::uncorrectable, 0);
  }
  result.report = recorder_.finish();
  return result;
}

template <class T>
prediction driver<T>::predict(matrix_view<const T> centroids) {
  choose_frame(centroids, false);
  prediction made;
  made.inertia = label(centroids).value;
  made.labels = engine_->take_labels();
  made.report = recorder_.finish();
  return made;
}

template <class T>
distances<T> driver<T>::transform(matrix_view<const T> centroids) {
  choose_frame(centroids, false);
  sealed_centroids<T> inner = into_frame(centroids);
  verify_waiting_centroids(inner);
  distances<T> made;
  made.values = matrix<T>(m_, k_);
  engine_->distances(inner, made.values.data());
  made.report = recorder_.finish();
  return made;
}

template <class T>
void driver<T>::verify_waiting_centroids(sealed_centroids<T>& centroids) {
  injector_.strike(inject::site::kmeans_centroid, {0, 1, 1, k_centroid_steps}, centroids.exposed().data(), k_ * n_);
  verify_waiting(centroids, "kmeans.centroid");
}

// Two sums over m numbers: rounding in double is far smaller.
template <class T>
bool driver<T>::agree(const summed_twice& inertia) const {
  if (inertia.value == inertia.twin) return true;  // both Inf, too
  const double limit = 1e-12 * std::sqrt(static_cast<double>(m_)) * inertia.twin + 4 * std::numeric_limits<double>::denorm_min();
  return std::abs(inertia.value - inertia.twin) <= limit;
}

// Labels and inertia for centroids in the user's coordinates, in their units. fit ends with it, so its labels are those of predict.
template <class T>
summed_twice driver<T>::label(matrix_view<const T> centroids) {
  sealed_centroids<T> inner = into_frame(centroids);
  verify_waiting_centroids(inner);
  verify_waiting(frame_, "kmeans.frame");
  std::vector<T> plain(at(k_ * n_));
  const auto scale = [&](std::int64_t e) { return centroids(e / n_, e % n_) * frame_.values().scale; };
  const auto scale_all = [&] {
    for (std::int64_t e = 0; e < k_ * n_; ++e) plain[at(e)] = scale(e);
  };
  if (protects()) {
    run::attempt(recorder_, how_.protection, "kmeans.centroid", 0, [&](int) {
      scale_all();
      recorder_.checked(static_cast<std::uint64_t>(k_ * n_));
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      for (std::int64_t e = k_ * n_; e-- > 0;) {
        if (!(plain[at(e)] == scale(e))) found.word = abft::k_fail;
      }
      return found;
    });
  } else {
    scale_all();
  }
  summed_twice made;
  const auto compute = [&] {
    summed_twice sums = engine_->label(inner, plain);
    injector_.strike(inject::site::kmeans_inertia, {}, &sums.value, 1);
    made = {out_of_frame(sums.value), out_of_frame(sums.twin)};
  };
  if (!protects()) {
    compute();
    return made;
  }
  run::attempt(recorder_, how_.protection, "kmeans.inertia", 0, [&](int) -> std::optional<abft::finding> {
    compute();
    if (stop()) return std::nullopt;
    recorder_.checked(1);
    abft::finding found;
    found.word = agree(made) ? abft::k_pass : abft::k_fail;
    found.residual = made.value - made.twin;
    return found;
  });
  return made;
}

// The members that are defined in this file; the other files instantiate theirs.
template class driver<float>;
template class driver<double>;

}  // namespace ballast::kmeans
