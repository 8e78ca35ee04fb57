// One step of mini-batch K-Means: a pass of Lloyd's iteration over the batch, and from its sums the weighted means of all points so far.
// Layer: driver of K-Means (driver.hpp).
// Source: D. Sculley, Web-scale k-means clustering, WWW 2010.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans {

template <class T>
report driver<T>::choose(const options& wanted, matrix_view<const T> given, std::uint64_t run, sealed_centroids<T>& made) {
  choose_normalization(given, true);
  sealed_centroids<T> first = first_centroids(wanted, given, run);
  verify_waiting(first, "kmeans.centroid");
  sealed_centroids<T> chosen = denormalize(first.values());
  if (!failed()) made = std::move(chosen);
  return finish();
}

template <class T>
report driver<T>::measure_tolerance(double tol, abft::guarded_threshold& made) {
  choose_normalization({}, true);
  const abft::guarded_threshold found = tolerance_for(tol);
  made.value = std::ldexp(found.value, -2 * std::ilogb(normalization_.values().scale));
  made.twin = std::ldexp(found.twin, -2 * std::ilogb(normalization_.twin().scale));
  return finish();
}

// Returns the state after the batch: W' = W + w and c' = (W c + S) / W' for each cluster whose points have the weight w and the sum S; in
// normalized coordinates that are not shifted, so that W c does not overflow. And the inertia Σ w‖x‖² − 2 Σ_c c·S_c + Σ_c w_c‖c‖² of the
// centroids before, `inner` in normalized coordinates; `square`: Σ w‖x‖². Both computations of a step add in the same order, and so have
// the same bits; they go through the clusters in opposite ones.
template <class T>
auto driver<T>::move(const core::vector<T>& centroids, const core::vector<double>& weights, const core::vector<T>& inner,
                     const normalization<T>& chosen, double square, double count, bool backwards) const -> moved {
  constexpr std::int64_t lanes = 8;
  moved made{centroids, weights};
  // Powers of two, so that products with their inverses are exact.
  const double scale = static_cast<double>(chosen.scale), unscale = 1 / scale, unweight = 1 / static_cast<double>(chosen.weight_scale);
  const T* const shift = chosen.shift.data();
  core::vector<double> parts(at(k_));
  for (std::int64_t i = 0; i < k_; ++i) {
    const std::int64_t j = backwards ? k_ - 1 - i : i;
    const double* const sums = total_.sums.data() + j * n_;
    const T* const own = inner.data() + j * n_;
    const double scaled = weight_of(j);
    double part[lanes] = {};
    const auto term = [&](std::int64_t f) {
      const double c = static_cast<double>(own[f]);
      return c * (scaled * c - 2 * sums[f]);
    };
    std::int64_t first = 0;
    for (; first + lanes <= n_; first += lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane) part[lane] += term(first + lane);
    for (std::int64_t lane = 0; first + lane < n_; ++lane) part[lane] += term(first + lane);
    for (const double each : part) parts[at(j)] += each;
    if (!(scaled > 0)) continue;
    const double before = weights[at(j)], weight = scaled * unweight, after = before + weight, inverse = unscale / after;
    const T* const old = centroids.data() + j * n_;
    T* const to = made.centroids.data() + j * n_;
    for (std::int64_t f = 0; f < n_; ++f) {
      const double sum = sums[f] * unweight + weight * static_cast<double>(shift[f]);
      to[f] = static_cast<T>((before * (static_cast<double>(old[f]) * scale) + sum) * inverse);
    }
    made.weights[at(j)] = after;
  }
  made.weights[at(k_)] += count;
  for (const double each : parts) square += each;
  made.inertia = denormalize(std::max(0.0, square), 0);
  return made;
}

template <class T>
report driver<T>::step(mini_batch_state<T>& state, double count, abft::guarded_threshold& inertia) {
  total_.allocate(k_, n_, weighted_);
  mini_batch_state<T> next;
  // Makes `next`, and returns the inertia.
  const auto compute = [&](sealed_centroids<T>& inner, abft::guarded_threshold& square) {
    const auto given = row_major<const T>(state.centroids.values().data(), k_, n_);
    direction_ = projection_direction(n_);  // for each attempt
    choose_normalization(given, true);
    square = abft::guarded_threshold(whole_.weighted_square);
    inner = normalize(given);
    verify_waiting_centroids(inner);
    engine_->begin_run();
    engine_->pass(inner);
    take_totals();
    moved made =
        move(state.centroids.values(), state.weights.values(), inner.values(), normalization_.values(), square.value, count, false);
    injector_.strike(site::centroid, {0, 1, 0, k_centroid_steps}, made.centroids.data(), k_ * n_);
    injector_.strike(site::centroid, {0, 1, 0, k_centroid_steps}, made.weights.data(), k_ + 1);
    next = {sealed_centroids<T>(std::move(made.centroids)), sealed<core::vector<double>>(std::move(made.weights))};
    return made.inertia;
  };
  injector_.strike(site::centroid, {0, 1, 1, k_centroid_steps}, state.centroids.exposed().data(), k_ * n_);
  injector_.strike(site::centroid, {0, 1, 1, k_centroid_steps}, state.weights.exposed().data(), k_ + 1);
  sealed_centroids<T> inner;
  abft::guarded_threshold square;
  if (!protects()) {
    inertia = abft::guarded_threshold(compute(inner, square));
    state = std::move(next);
    return finish();
  }
  // All of it is repeated, since a wrong centroid of the state, or a wrong normalization, gives right sums of wrong labels.
  run::attempt(recorder_, how_.protection, "mini_batch.step", 0, [&](int) -> std::optional<abft::finding> {
    verify_waiting(state.centroids, "kmeans.centroid");
    verify_waiting(state.weights, "mini_batch.weight");
    if (failed()) return std::nullopt;
    inertia.value = compute(inner, square);
    if (stop()) return std::nullopt;
    const moved again = move(state.centroids.twin(), state.weights.twin(), inner.twin(), normalization_.twin(), square.twin, count, true);
    inertia.twin = again.inertia;
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4 + k_ * n_ + k_ + 2));
    abft::finding found = verify_sums(total_, whole_, direction_);
    if (found.word != abft::k_pass) return found;
    const bool same = !differ(next.centroids.values(), again.centroids) && !differ(next.weights.values(), again.weights) &&
                      abft::word_of(inertia.value) == abft::word_of(inertia.twin);
    if (same) return found;
    found.word = abft::k_fail;
    found.check = "mini_batch.centroid";
    found.residual = std::numeric_limits<double>::quiet_NaN();
    return found;
  });
  if (!failed()) state = std::move(next);
  return finish();
}

template report driver<float>::choose(const options&, matrix_view<const float>, std::uint64_t, sealed_centroids<float>&);
template report driver<float>::measure_tolerance(double, abft::guarded_threshold&);
template report driver<float>::step(mini_batch_state<float>&, double, abft::guarded_threshold&);
template report driver<double>::choose(const options&, matrix_view<const double>, std::uint64_t, sealed_centroids<double>&);
template report driver<double>::measure_tolerance(double, abft::guarded_threshold&);
template report driver<double>::step(mini_batch_state<double>&, double, abft::guarded_threshold&);

}  // namespace ballast::kmeans
