// One run: Lloyd's iterations with the checks of the totals, relocation of empty clusters, new centroids, convergence; then the labels.
// Layer: driver of K-Means (driver.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "abft/threshold.hpp"
#include "kmeans/driver.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans {

// The sums of the last pass, verified as a whole. If they fail, a part was struck while it waited.
template <class T>
void driver<T>::add_sums(const sealed_centroids<T>& centroids) {
  if (!protects()) return engine_->add_sums(total_);
  run::attempt(recorder_, how_.protection, "kmeans.total", 0, [&](int number) -> std::optional<abft::finding> {
    if (number > 0) whole_ = engine_->repair_sums(centroids);
    if (stop()) return std::nullopt;
    engine_->add_sums(total_);
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    return verify_sums(total_, whole_, direction_);
  });
}

// Gives each cluster without members the point that is farthest from its centroid, as scikit-learn does: the farthest for the first empty
// cluster, and so on.
template <class T>
void driver<T>::relocate(const sealed_centroids<T>& old) {
  std::vector<std::int64_t> empty;
  for (std::int64_t j = 0; j < k_; ++j)
    if (!(total_.members[j] > 0)) empty.push_back(j);
  if (empty.empty()) return;
  const std::vector<far_point> far = engine_->farthest(old, static_cast<std::int64_t>(empty.size()));
  std::vector<std::int64_t> rows;
  for (const far_point& each : far) rows.push_back(each.row);
  std::vector<T> points(far.size() * at(n_));
  engine_->read_points(rows, points.data());
  for (std::size_t e = 0; e < far.size(); ++e) {
    const std::int64_t from = far[e].label;
    const std::int64_t to = empty[e];
    const T* x = points.data() + e * at(n_);
    for (std::int64_t f = 0; f < n_; ++f) {
      total_.sums[from * n_ + f] -= far[e].weight * static_cast<double>(x[f]);
      total_.sums[to * n_ + f] = far[e].weight * static_cast<double>(x[f]);
    }
    total_.members[to] = 1;
    total_.members[from] -= 1;
    if (weighted_) {
      total_.weights[to] = far[e].weight;
      total_.weights[from] -= far[e].weight;
    }
  }
}

// The new centroids: sums over weights. A cluster that is still empty takes the place of the heaviest one.
template <class T>
std::vector<T> driver<T>::divide(const std::vector<T>& old) {
  const auto weight = [&](std::int64_t j) {
    if (!(total_.members[j] > 0)) return 0.0;
    return weighted_ ? total_.weights[j] : static_cast<double>(total_.members[j]);
  };
  std::int64_t heaviest = 0;
  for (std::int64_t j = 1; j < k_; ++j)
    if (weight(j) > weight(heaviest)) heaviest = j;
  std::vector<T> made(old.size());
  const auto compute = [&] {
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      for (std::int64_t f = 0; f < n_; ++f)
        made[at(j * n_ + f)] = w > 0 ? static_cast<T>(total_.sums[from * n_ + f] / w) : old[at(j * n_ + f)];
    }
    injector_.strike(inject::site::kmeans_centroid, {0, 1, 0, 2}, made.data(), static_cast<std::int64_t>(made.size()));
  };
  // c is the rounded quotient exactly if |c w − S| is at most half a unit in the last place of c, times w. The largest ratio of the two.
  const auto worst_ratio = [&] {
    double worst = 0;
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      if (!(w > 0)) continue;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double sum = total_.sums[from * n_ + f];
        const double residual = std::abs(static_cast<double>(made[at(j * n_ + f)]) * w - sum);
        const double limit = (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>)*std::abs(sum) +
                             w * static_cast<double>(std::numeric_limits<T>::denorm_min()) + std::numeric_limits<double>::denorm_min();
        const double ratio = residual / limit;
        if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
      }
    }
    return worst;
  };
  if (!protects()) {
    compute();
    return made;
  }
  run::attempt(recorder_, how_.protection, "kmeans.centroid", 0, [&](int) {
    compute();
    abft::finding found;
    found.residual = worst_ratio();
    found.threshold = 1;
    found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
    recorder_.checked(static_cast<std::uint64_t>(made.size()));
    return found;
  });
  return made;
}

// Σ‖a − b‖², summed centroid by centroid, and for verification backwards.
template <class T>
double driver<T>::shift_between(const std::vector<T>& a, const std::vector<T>& b) {
  double shift = 0;
  const auto compute = [&] {
    shift = 0;
    for (std::size_t e = 0; e < a.size(); ++e) {
      const double d = static_cast<double>(a[e]) - static_cast<double>(b[e]);
      shift += d * d;
    }
    injector_.strike(inject::site::kmeans_shift, {}, &shift, 1);
  };
  if (!protects()) {
    compute();
    return shift;
  }
  run::attempt(recorder_, how_.protection, "kmeans.shift", 0, [&](int) {
    compute();
    double twin = 0;
    for (std::size_t e = a.size(); e-- > 0;) {
      const double d = static_cast<double>(b[e]) - static_cast<double>(a[e]);
      twin += d * d;
    }
    abft::finding found;
    found.residual = shift - twin;
    found.threshold = abft::unit_roundoff<double> * (8 + static_cast<double>(a.size())) * twin;  // equal terms err alike
    found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
    recorder_.checked(1);
    return found;
  });
  return shift;
}

// The iterations, one operation of the backend after another.
template <class T>
descent<T> driver<T>::descend(std::vector<T> first, int max_iter, double tolerance) {
  if (direction_.empty()) {
    direction_ = projection_direction(n_);
    total_.allocate(k_, n_, weighted_);
  }
  engine_->begin_run();
  descent<T> made;
  sealed_centroids<T> current(std::move(first));
  for (int i = 0; i < max_iter && !stop(); ++i) {
    verify_waiting(current);
    engine_->pass(current);
    if (stop()) break;
    add_sums(current);
    if (stop()) break;
    relocate(current);
    std::vector<T> next = divide(current.values());
    const double shift = shift_between(next, current.values());
    current = sealed_centroids<T>(std::move(next));
    made.iterations = i + 1;
    if (how_.on_progress) how_.on_progress({i + 1, max_iter, "iteration"});
    if (total_.changed == 0 || shift <= tolerance) {
      made.converged = true;
      break;
    }
  }
  made.centroids = std::move(current);
  return made;
}

template <class T>
auto driver<T>::one_run(std::vector<T> first, const options<T>& wanted, double tolerance) -> run_result {
  descent<T> found;
  if (auto by_itself = engine_->descend(sealed_centroids<T>(first), wanted.max_iter, tolerance)) {
    found = std::move(*by_itself);
  } else {
    found = descend(std::move(first), wanted.max_iter, tolerance);
  }
  // The centroids wait a last time.
  if (protects() && !stop() && found.centroids.verify() == sealed_centroids<T>::state::lost)
    recorder_.detected("kmeans.centroid", -1, std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
  run_result made;
  made.centroids = out_of_frame(found.centroids.values());
  made.iterations = found.iterations;
  made.converged = found.converged;
  if (!stop()) made.inertia = label(made.centroids);
  made.labels = engine_->take_labels();
  return made;
}

template driver<float>::run_result driver<float>::one_run(std::vector<float>, const options<float>&, double);
template driver<double>::run_result driver<double>::one_run(std::vector<double>, const options<double>&, double);

}  // namespace ballast::kmeans
