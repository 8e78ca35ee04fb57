// One run: Lloyd's iterations with the checks of the totals, relocation of empty clusters, new centroids, convergence; then the labels.
// Layer: driver of K-Means (driver.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "abft/threshold.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/stop.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans {

// Returns the divisor of a cluster.
template <class T>
double driver<T>::weight_of(std::int64_t cluster) const {
  if (!(total_.members[cluster] > 0)) return 0;
  return weighted_ ? total_.weights[cluster] : static_cast<double>(total_.members[cluster]);
}

// Returns what the sum of a cluster is divided by: its weight; of spherical K-Means the norm of the sum, so that the centroid has the norm
// of normalized unit vectors. `backwards`: summed in the other order.
template <class T>
double driver<T>::divisor_of(std::int64_t cluster, bool backwards) const {
  if (!spherical_) return weight_of(cluster);
  double largest = 0, sum = 0;
  const double* const row = total_.sums.data() + cluster * n_;
  for (std::int64_t f = 0; f < n_; ++f) largest = std::max(largest, std::abs(row[f]));
  if (!(largest > 0)) return 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    const double part = row[backwards ? n_ - 1 - f : f] / largest;
    sum += part * part;
  }
  return largest * std::sqrt(sum) / static_cast<double>(normalization_.values().scale);
}

template <class T>
std::int64_t driver<T>::heaviest_cluster() const {
  std::int64_t heaviest = 0;
  for (std::int64_t j = 1; j < k_; ++j)
    if (weight_of(j) > weight_of(heaviest)) heaviest = j;
  return heaviest;
}

// Gives each cluster without members the point that is farthest from its centroid, as scikit-learn does: the farthest for the first empty
// cluster, and so on. The invariants of the sums hold afterwards, too. Returns whether there was an empty cluster.
template <class T>
bool driver<T>::relocate(const sealed_centroids<T>& old) {
  core::vector<std::int64_t> empty;
  for (std::int64_t j = 0; j < k_; ++j)
    if (!(total_.members[j] > 0)) empty.push_back(j);
  if (empty.empty()) return false;
  core::vector<far_point> far;
  core::vector<T> points;
  const auto look = [&] {
    far = engine_->farthest(old, static_cast<std::int64_t>(empty.size()));
    core::vector<std::int64_t> rows;
    for (const far_point& each : far) rows.push_back(each.row);
    points.resize(far.size() * at(n_));
    engine_->read_points(rows, points.data());
  };
  if (protects()) {
    // The sums agree with a wrong point as well as with the right one, so the points are found twice.
    run::attempt(recorder_, how_.protection, "kmeans.relocation", 0, [&](int) {
      look();
      recorder_.checked(1);
      abft::result_hash hash;
      for (const far_point& each : far) {
        hash.add(each.row);
        hash.add(each.label);
        hash.add(each.weight);
        hash.add(each.distance);
      }
      for (const T each : points) hash.add(each);
      return engine_->agreed({.judged = false, .bits = hash.bits()});
    });
  } else {
    look();
  }
  for (std::size_t e = 0; e < far.size(); ++e) {
    const std::int64_t from = far[e].label;
    const std::int64_t to = empty[e];
    const T* x = points.data() + e * at(n_);
    double square = 0, projection = 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      square += static_cast<double>(x[f]) * static_cast<double>(x[f]);
      projection += direction_[at(f)] * static_cast<double>(x[f]);
    }
    if (!may_relocate<T>(far[e].distance, square, static_cast<double>(total_.members[from]))) break;  // all remaining points are nearer
    const double weight = far[e].weight, step = static_cast<double>(to - from);
    for (std::int64_t f = 0; f < n_; ++f) {
      total_.sums[from * n_ + f] -= weight * static_cast<double>(x[f]);
      total_.sums[to * n_ + f] += weight * static_cast<double>(x[f]);
    }
    total_.members[to] += 1;
    total_.members[from] -= 1;
    if (weighted_) {
      total_.weights[to] += weight;
      total_.weights[from] -= weight;
    }
    total_.labelled_projection += step * weight * projection;
    total_.labelled_weight += step * weight;
    total_.labelled_members += step;
  }
  return true;
}

// Returns the new centroids: sums over weights. A cluster that is still empty gets a copy of the heaviest centroid.
template <class T>
core::vector<T> driver<T>::divide(const core::vector<T>& old) {
  const std::int64_t heaviest = heaviest_cluster();
  core::vector<T> made(old.size());
  for (std::int64_t j = 0; j < k_; ++j) {
    const std::int64_t from = weight_of(j) > 0 ? j : heaviest;
    const double w = divisor_of(from, false);
    for (std::int64_t f = 0; f < n_; ++f)
      made[at(j * n_ + f)] = w > 0 ? static_cast<T>(total_.sums[from * n_ + f] / w) : old[at(j * n_ + f)];
  }
  injector_.strike(site::centroid, {0, 1, 0, k_centroid_steps}, made.data(), static_cast<std::int64_t>(made.size()));
  return made;
}

// Verifies the quotients: c is the rounded quotient exactly if |c w − S| is at most half a unit in the last place of c, times w. The
// residual is the largest ratio of the two.
template <class T>
abft::finding driver<T>::verify_quotients(const core::vector<T>& made) const {
  const std::int64_t heaviest = heaviest_cluster();
  double worst = 0;
  for (std::int64_t j = 0; j < k_; ++j) {
    const std::int64_t from = weight_of(j) > 0 ? j : heaviest;
    const double w = divisor_of(from, true);
    if (!(w > 0)) continue;
    // The divisor is a root of a sum in another order.
    const double divided = spherical_ ? abft::reordered_sum_limit(static_cast<double>(n_ + 4)) : 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      const double sum = total_.sums[from * n_ + f];
      const double residual = std::abs(static_cast<double>(made[at(j * n_ + f)]) * w - sum);
      const double limit = (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double> + divided) * std::abs(sum) +
                           w * static_cast<double>(std::numeric_limits<T>::denorm_min()) + std::numeric_limits<double>::denorm_min();
      const double ratio = residual / limit;
      if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
    }
  }
  abft::finding found;
  found.check = "kmeans.centroid";
  found.residual = worst;
  found.threshold = 1;
  found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
  return found;
}

// Returns the inertia of the labels of the last pass with its centroids, from the sums: Σ w‖x‖² − 2 Σ_c c·S_c + Σ_c W_c‖c‖², in the units
// of the points and weights.
template <class T>
double driver<T>::inertia_of_pass(const core::vector<T>& centroids) const {
  double made = whole_.weighted_square;
  for (std::int64_t j = 0; j < k_; ++j) {
    for (std::int64_t f = 0; f < n_; ++f) {
      const double c = static_cast<double>(centroids[at(j * n_ + f)]);
      made += c * (weight_of(j) * c - 2 * total_.sums[j * n_ + f]);
    }
  }
  return denormalize(std::max(0.0, made), spherical_ ? -1 : 0);
}

template <class T>
void driver<T>::take_totals() {
  engine_->add_sums(total_);
  injector_.strike(site::total, {0, 1, 0, 2}, total_.sums.data(), total_.sums.size());
  if (weighted_) {
    injector_.strike(site::total, {0, 1, 1, 2}, total_.weights.data(), k_);
  } else {
    injector_.strike(site::total, {0, 1, 1, 2}, total_.members.data(), k_);
  }
}

// Computes the next centroids from the sums of a pass: totals, relocation, division. The totals are verified after their use, so that no
// fault can strike them between check and use; the centroids are sealed before they are verified. If the totals fail, they were struck, or
// a stored part of them was.
template <class T>
sealed_centroids<T> driver<T>::next_centroids(const sealed_centroids<T>& old) {
  sealed_centroids<T> made;
  bool relocated = false;
  const auto compute = [&] {
    take_totals();
    if (how_.on_progress) pass_inertia_ = inertia_of_pass(old.values());
    relocated = relocate(old);
    made = sealed_centroids<T>(divide(old.values()));
  };
  if (!protects()) {
    compute();
    return made;
  }
  const bool bare = bare_;
  run::attempt(recorder_, how_.protection, "kmeans.total", 0, [&](int number) -> std::optional<abft::finding> {
    if (number > 0) {
      if (bare) leave_bare_passes(old);
      whole_ = engine_->repair_sums(old);
    }
    if (stop()) return std::nullopt;
    compute();
    if (stop()) return std::nullopt;
    recorder_.checked(static_cast<std::uint64_t>(n_ + (bare_ ? 2 : 4) + k_ * n_));
    abft::finding found = bare_ ? verify_bare_sums(total_, whole_, direction_) : verify_sums(total_, whole_, direction_);
    if (found.word == abft::k_pass) found = verify_quotients(made.values());
    // Ranks of a group exchange points to relocate, so all repeat that together.
    return relocated ? engine_->agreed(found) : found;
  });
  if (bare && !bare_) {
    set_bare(true);
    engine_->begin_run();  // the next pass has no labels before it
  }
  return made;
}

template <class T>
void driver<T>::set_bare(bool bare) {
  bare_ = bare;
  engine_->set_bare(bare);
}

// Computes the pass that failed with all checks.
template <class T>
void driver<T>::leave_bare_passes(const sealed_centroids<T>& centroids) {
  if (!bare_) return;
  set_bare(false);
  engine_->begin_run();
  engine_->pass(centroids);
}

// Returns Σ‖a − b‖², summed centroid by centroid, and for verification backwards.
template <class T>
double driver<T>::shift_between(const core::vector<T>& a, const core::vector<T>& b) {
  double shift = 0;
  const auto compute = [&] {
    shift = 0;
    for (std::size_t e = 0; e < a.size(); ++e) {
      const double d = static_cast<double>(a[e]) - static_cast<double>(b[e]);
      shift += d * d;
    }
    injector_.strike(site::shift, {}, &shift, 1);
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
    found.threshold = abft::reordered_sum_limit(1 + static_cast<double>(a.size())) * twin;
    found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
    recorder_.checked(1);
    return found;
  });
  return shift;
}

// Runs the iterations from `begin` to `end` by single operations of the backend.
template <class T>
lloyd_result<T> driver<T>::run_lloyd(const lloyd_run& run, sealed_centroids<T> first, int begin, int end) {
  const options& wanted = run.wanted;
  abft::guarded_threshold tolerance = run.tolerance;
  if (direction_.empty()) {
    direction_ = projection_direction(n_);
    total_.allocate(k_, n_, weighted_);
  }
  engine_->begin_run();
  lloyd_result<T> made;
  made.iterations = begin;
  sealed_centroids<T> current(std::move(first));
  if (state_ != nullptr && state_->iterations > 0) {
    // The run goes on after ranks were lost. Its next pass compares labels with those of its last one, which is made again.
    made.iterations = static_cast<int>(state_->iterations);
    current = state_->current;
    if (state_->stopped) {
      made.stopped = state_->reason;
      made.centroids = std::move(current);
      return made;
    }
    engine_->pass(state_->before);
  }
  for (int i = made.iterations; i < end && !stop(); ++i) {
    verify_waiting_centroids(current);
    engine_->pass(current);
    if (stop()) break;
    sealed_centroids<T> next = next_centroids(current);
    if (stop()) break;
    const double shift = shift_between(next.values(), current.values());
    if (state_ != nullptr) {
      state_->before = current;
      state_->current = next;
      state_->iterations = i + 1;
    }
    if (bare_) made.before = std::move(current);
    current = std::move(next);
    made.iterations = i + 1;
    if (how_.on_progress) how_.on_progress({i + 1, wanted.max_iter, "iteration", run.number, pass_inertia_});
    injector_.strike(site::tolerance, {0, 1, 1, 2}, &tolerance.value, 1);
    if (protects()) {
      run::attempt(recorder_, how_.protection, "kmeans.tolerance", 0, [&](int again) {
        if (again > 0) tolerance = tolerance_for(wanted.tol);
        recorder_.checked(1);
        abft::finding found;
        const bool same = std::bit_cast<std::uint64_t>(tolerance.value) == std::bit_cast<std::uint64_t>(tolerance.twin);
        found.word = same ? abft::k_pass : abft::k_fail;
        found.residual = tolerance.value - tolerance.twin;
        return found;
      });
    }
    const stop_rule rule = stop_after(total_.changed == 0, shift, tolerance.value);
    if (rule == stop_rule::none) continue;
    made.stopped = static_cast<stop_reason>(rule);
    break;
  }
  if (state_ != nullptr && made.iterations > 0) {
    state_->stopped = true;
    state_->reason = made.stopped;
  }
  made.centroids = std::move(current);
  return made;
}

// The iterations from `begin` to `end`, by the backend if it iterates by itself.
template <class T>
lloyd_result<T> driver<T>::iterate(const lloyd_run& run, sealed_centroids<T> from, int begin, int end) {
  // A backend that iterates by itself divides sums by weights.
  if (!how_.on_progress && !spherical_) {
    if (std::optional<lloyd_result<T>> found = engine_->run_lloyd(from, end - begin, run.tolerance)) {
      found->iterations += begin;
      return *std::move(found);
    }
  }
  return run_lloyd(run, std::move(from), begin, end);
}

// Returns whether the last bare iteration, computed again with all checks as `step`, gives the same centroids and reason to stop.
template <class T>
bool driver<T>::last_step_holds(const lloyd_run& run, const lloyd_result<T>& bare, const lloyd_result<T>& step) {
  recorder_.checked(2);
  const auto differs = [&](const char* check, double residual, double threshold) {
    recorder_.detected(check, -1, residual, threshold, action::recomputed, 0);
    return false;
  };
  if (seal_of(step.centroids.values()) != seal_of(bare.centroids.values()))
    return differs("kmeans.step", std::numeric_limits<double>::quiet_NaN(), 0);
  const double shift = shift_between(step.centroids.values(), bare.before.values());
  // Labels that stay give the same centroids, except where an empty cluster has taken a point: then the iterations go on.
  if (bare.stopped == stop_reason::labels_unchanged) return shift == 0;
  if (stop_after(false, shift, run.tolerance.value) == stop_rule::tolerance) return true;
  return differs("kmeans.tolerance", shift, run.tolerance.value);
}

// Returns whether these can be means of points, whose normalized coordinates are below 4, or the first centroids. A fault of a bare
// iteration can leave others, NaN say, from which no iteration computes.
template <class T>
bool may_be_means(const core::vector<T>& centroids, const core::vector<T>& first) {
  return std::ranges::all_of(centroids, [](T c) { return std::abs(c) <= T(8); }) || seal_of(centroids) == seal_of(first);
}

// protection::final_only: bare iterations, and the last one with all checks. A last iteration that was not known to be the last
// is computed again. If that shows a fault, iterations with all checks go on from its centroids.
template <class T>
lloyd_result<T> driver<T>::iterate_final_only(const lloyd_run& run, const sealed_centroids<T>& first) {
  const int most = run.wanted.max_iter;
  lloyd_result<T> bare;
  bare.centroids = first;
  if (most > 1) {
    set_bare(true);
    bare = iterate(run, first, 0, most - 1);
    set_bare(false);
  }
  if (stop()) return bare;
  const bool last_is_left = bare.stopped == stop_reason::max_iter || bare.iterations == 0;
  sealed_centroids<T>& from = last_is_left ? bare.centroids : bare.before;
  verify_waiting_centroids(from);
  if (!may_be_means(from.values(), first.values())) {
    recorder_.detected("kmeans.step", -1, std::numeric_limits<double>::quiet_NaN(), 0, action::recomputed, 0);
    return iterate(run, first, 0, most);
  }
  const int begin = last_is_left ? bare.iterations : bare.iterations - 1;
  lloyd_result<T> step = iterate(run, from, begin, begin + 1);
  // This pass does not know the labels before. Those that stay give the same centroids.
  if (step.stopped == stop_reason::tolerance && seal_of(step.centroids.values()) == from.seal())
    step.stopped = stop_reason::labels_unchanged;
  if (stop()) return step;
  if (!last_is_left && last_step_holds(run, bare, step)) {
    step.stopped = bare.stopped;
    return step;
  }
  if (step.stopped != stop_reason::max_iter || step.iterations == most) return step;
  return iterate(run, std::move(step.centroids), step.iterations, most);
}

template <class T>
auto driver<T>::one_run(const options& wanted, matrix_view<const T> given, int number) -> run_result {
  const lloyd_run run{wanted, number, tolerance_for(wanted.tol)};
  const bool begun = state_ != nullptr && state_->iterations > 0;
  sealed_centroids<T> first = begun ? state_->current : first_centroids(wanted, given, static_cast<std::uint64_t>(number));
  lloyd_result<T> found = how_.final_only ? iterate_final_only(run, first) : iterate(run, std::move(first), 0, wanted.max_iter);
  run_result made;
  if (!stop()) verify_waiting(found.centroids, "kmeans.centroid");
  made.centroids = denormalize(found.centroids.values());
  made.iterations = found.iterations;
  made.stopped = found.stopped;
  if (!stop()) made.inertia = label(row_major<const T>(made.centroids.values().data(), k_, n_));
  return made;
}

template double driver<float>::weight_of(std::int64_t) const;
template double driver<double>::weight_of(std::int64_t) const;
template driver<float>::run_result driver<float>::one_run(const options&, matrix_view<const float>, int);
template driver<double>::run_result driver<double>::one_run(const options&, matrix_view<const double>, int);

}  // namespace ballast::kmeans
