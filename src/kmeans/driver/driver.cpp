// One call of K-Means: fit, predict, transform. See driver.hpp.
#include "kmeans/driver/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "abft/threshold.hpp"
#include "core/aligned_buffer.hpp"
#include "core/extent.hpp"
#include "group/session.hpp"
#include "kmeans/driver/cosines.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans {

template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend) {
  if (backend == ballast::backend::cuda) return what.sparse.present() ? cuda::make_sparse_engine(what) : cuda::make_engine(what);
  if (what.rows != nullptr) return ranks::make_engine(what, backend);
  return host::make_engine(what, backend);
}

template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&, ballast::backend);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&, ballast::backend);

template <class T>
driver<T>::driver(const driver_args<T>& what)
    : over_(what.rows != nullptr ? what.rows->over : nullptr),
      state_(what.state),
      m_(what.rows != nullptr ? what.rows->all : what.points.rows),
      n_(what.points.columns),
      k_(what.clusters),
      backend_(what.backend),
      sparse_(what.sparse.present()),
      weighted_(what.rows != nullptr ? what.rows->weighted : !what.weights.empty()),
      spherical_(what.spherical),
      strike_seeding_(what.strike_seeding),
      how_(what.how),
      token_(what.token),
      injector_(what.how.faults, site::table()),
      recorder_(token_, backend_, what.scheme, what.how, injector_),
      kept_(what.kept),
      engine_(engine_for(what)),
      staging_(what.how.stream) {}

// Makes the engine, after the points.
template <class T>
std::unique_ptr<engine<T>> driver<T>::engine_for(const driver_args<T>& what) {
  if (what.prepare) (*what.prepare)(recorder_, injector_);
  return make_engine(engine_args<T>{what.points, what.weights, what.clusters, what.how, recorder_, injector_, strike_seeding_, what.scheme,
                                    what.kept, what.rows, what.sparse, what.half, what.unit_rows},
                     backend_);
}

template <class T>
report driver<T>::fit(const options& wanted, matrix_view<const T> given, const fit_results<T>& to) {
  choose_normalization(wanted.init == init::given ? given : matrix_view<const T>{}, true);
  const int runs = wanted.init == init::given ? 1 : wanted.n_init;
  run_result best;
  int number = 0;
  bool last = true;      // the best run is the last one
  bool labelled = true;  // the engine has kept the labels of the best run
  if (state_ != nullptr) {
    number = static_cast<int>(state_->run);
    if (state_->has_best) {
      best = {
          state_->best, {state_->best_inertia, state_->best_inertia, 1}, static_cast<int>(state_->best_iterations), state_->best_reason};
      labelled = false;
    }
  }
  bool first = state_ == nullptr || !state_->has_best;
  for (; number < runs && !(number > 0 && stop()); ++number) {
    run_result made = one_run(wanted, given, number);
    last = first || made.inertia.value < best.inertia.value;
    first = false;
    if (last) {
      best = std::move(made);
      labelled = true;
      if (number + 1 < runs && !stop()) engine_->keep_labels();
    }
    if (state_ != nullptr) {
      *state_ = {.run = number + 1,
                 .has_best = true,
                 .best = best.centroids,
                 .best_inertia = best.inertia.value,
                 .best_iterations = best.iterations,
                 .best_reason = best.stopped};
    }
  }
  bool kept = runs > 1 && !last;
  if (!labelled) {  // the best run was over when ranks were lost
    (void)label(row_major<const T>(best.centroids.values().data(), k_, n_));
    kept = false;
  }
  if (kept && protects() && !stop()) {
    recorder_.checked(1);
    if (!engine_->kept_labels_fit()) {
      recorder_.detected("kmeans.assignment", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                         repairs() ? action::recomputed : action::uncorrectable, 0);
      (void)label(row_major<const T>(best.centroids.values().data(), k_, n_));
      kept = false;
    }
  }
  verify_waiting(best.centroids, "kmeans.centroid");
  if (protects() && !stop()) {
    recorder_.checked(1);
    if (!agree(best.inertia)) recorder_.detected("kmeans.inertia", -1, best.inertia.value - best.inertia.twin, 0, action::uncorrectable, 0);
  }
  engine_->settle();
  if (!throws()) store_centroids(best.centroids, to.centroids);
  if (!throws()) engine_->store_labels(for_engine(to.labels), kept);
  if (!throws()) {
    staging_.commit();
    if (to.inertia != nullptr) *to.inertia = best.inertia.value;
    if (to.iterations != nullptr) *to.iterations = best.iterations;
    if (to.stopped != nullptr) *to.stopped = best.stopped;
  }
  return finish();
}

template <class T>
report driver<T>::predict(matrix_view<const T> centroids, const prediction_results& to) {
  engine_->serve_only(true);
  choose_normalization(centroids, false);
  const summed_twice inertia = label(centroids);
  engine_->settle();
  if (!throws()) engine_->store_labels(for_engine(to.labels), false);
  if (!throws()) {
    staging_.commit();
    if (to.inertia != nullptr) *to.inertia = inertia.value;
  }
  return finish();
}

template <class T>
report driver<T>::transform(matrix_view<const T> centroids, const matrix_view<T>& values) {
  engine_->serve_only(false);
  choose_normalization(centroids, false);
  sealed_centroids<T> inner = normalize(centroids);
  verify_waiting_centroids(inner);
  verify_waiting(normalization_, "kmeans.normalization");
  if (!spherical_) {
    engine_->distances(inner, scaled(centroids), centroids, for_engine(values));
  } else {
    core::aligned_buffer<T> memory(core::checked_product(m_, k_));
    const matrix_view<T> made = row_major(memory.data(), m_, k_);
    engine_->distances(inner, scaled(centroids), centroids, made);
    if (!stop()) store_cosine_distances<T>(recorder_, injector_, how_, made, staging_.write(values));
  }
  engine_->settle();
  if (!throws()) staging_.commit();
  return finish();
}

// Returns the report: of a call on a group that of all ranks, whose callbacks and exception follow in wire::in_group.
template <class T>
report driver<T>::finish() {
  return over_ == nullptr ? recorder_.finish() : wire::joined(*over_, recorder_.collect());
}

// Returns a result where the engine can write it: those of the host get a host copy of a result in device memory.
template <class T>
template <class Result>
Result driver<T>::for_engine(const Result& result) {
  return backend_ == ballast::backend::cuda && !sparse_ ? result : staging_.write(result);
}

// Copies the centroids to the caller's memory, or to its host copy, and verifies the copy.
template <class T>
void driver<T>::store_centroids(const sealed_centroids<T>& from, const matrix_view<T>& to) {
  if (to.data == nullptr) return;
  const matrix_view<T> here = staging_.overwrite(to);
  const auto copy = [&] {
    const T* const values = from.values().data();
    each_centroid([&](std::int64_t j) {
      if (here.column_stride == 1) {
        std::copy_n(values + j * n_, n_, &here(j, 0));
      } else {
        for (std::int64_t f = 0; f < n_; ++f) here(j, f) = values[j * n_ + f];
      }
    });
  };
  if (!protects()) return copy();
  run::attempt(recorder_, how_.protection, "kmeans.centroid", 0, [&](int) {
    copy();
    recorder_.checked(1);
    core::vector<T> stored(at(k_ * n_));
    each_centroid([&](std::int64_t j) {
      if (here.column_stride == 1) {
        std::copy_n(&here(j, 0), n_, stored.begin() + j * n_);
      } else {
        for (std::int64_t f = 0; f < n_; ++f) stored[at(j * n_ + f)] = here(j, f);
      }
    });
    abft::finding found;
    found.word = seal_of(stored) == from.seal() ? abft::k_pass : abft::k_fail;
    found.residual = found.word == abft::k_pass ? 0 : std::numeric_limits<double>::quiet_NaN();
    return found;
  });
}

template <class T>
void driver<T>::verify_waiting_centroids(sealed_centroids<T>& centroids) {
  injector_.strike(site::centroid, {0, 1, 1, k_centroid_steps}, centroids.exposed().data(), k_ * n_);
  verify_waiting(centroids, "kmeans.centroid");
}

// Returns whether two sums over the points differ by rounding only. Numbers out of the normalization may be rounded to subnormal ones.
template <class T>
bool driver<T>::agree(const summed_twice& inertia) const {
  if (inertia.value == inertia.twin) return true;  // both may be Inf
  const double limit = abft::reordered_sum_limit(inertia.depth) * inertia.twin + 4 * std::numeric_limits<double>::denorm_min();
  return std::abs(inertia.value - inertia.twin) <= limit;
}

// Returns the centroids multiplied by the scale of the normalization, but not shifted.
template <class T>
core::vector<T> driver<T>::scaled(matrix_view<const T> centroids) {
  core::vector<T> made(at(k_ * n_));
  const auto scale_all = [&] {
    const T scale = normalization_.values().scale;
    each_centroid([&](std::int64_t j) {
      for (std::int64_t f = 0; f < n_; ++f) made[at(j * n_ + f)] = centroids(j, f) * scale;
    });
  };
  if (!protects()) {
    scale_all();
    return made;
  }
  run::attempt(recorder_, how_.protection, "kmeans.centroid", 0, [&](int) {
    scale_all();
    recorder_.checked(static_cast<std::uint64_t>(k_ * n_));
    abft::finding found;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    const volatile T& scale = normalization_.values().scale;
    core::vector<unsigned char> right(at(k_), 0);
    each_centroid([&](std::int64_t j) {
      const T again = scale;
      bool all = true;
      for (std::int64_t f = n_; f-- > 0;) all = all & (made[at(j * n_ + f)] == centroids(j, f) * again);
      right[at(j)] = all ? 1 : 0;
    });
    if (!std::ranges::all_of(right, [](unsigned char each) { return each != 0; })) found.word = abft::k_fail;
    return found;
  });
  return made;
}

// Labels the points for centroids in the user's coordinates; returns the inertia in their units. fit ends with it, so its labels are those
// of predict.
template <class T>
summed_twice driver<T>::label(matrix_view<const T> centroids) {
  sealed_centroids<T> inner = normalize(centroids);
  verify_waiting_centroids(inner);
  verify_waiting(normalization_, "kmeans.normalization");
  const core::vector<T> plain = scaled(centroids);
  summed_twice made;
  const auto compute = [&] {
    summed_twice sums = engine_->label(inner, plain);
    injector_.strike(site::inertia, {}, &sums.value, 1);
    // ‖x − c‖² = 2 (1 − cos) for unit vectors.
    const int halved = spherical_ ? 1 : 0;
    made = {denormalize(sums.value, sums.exponent - halved), denormalize(sums.twin, sums.exponent - halved), sums.depth};
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
    return engine_->agreed(found);
  });
  return made;
}

// The members that are defined in this file; the other files instantiate theirs.
template class driver<float>;
template class driver<double>;

}  // namespace ballast::kmeans
