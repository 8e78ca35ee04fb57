// K-Means without a backend: normalization, first centroids, Lloyd's iterations, convergence, empty clusters, the runs of n_init, and the
// checks of all results before they are stored.
// Layer: algorithm, backend-free. The backend (contract.hpp) holds all data that grow with the number of points.
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's conventions for tol, convergence and empty clusters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <ballast/kmeans.hpp>

#include "abft/seal.hpp"
#include "core/function_ref.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "kmeans/contract.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

// The steps of site kmeans.centroid: 0 after the division, 1 before the next use, 2 normalized, 3 in the user's coordinates.
inline constexpr std::int64_t k_centroid_steps = 4;

// The points of a call, and how it runs.
template <class T>
struct driver_args {
  matrix_view<const T> points;  // m × n, in host or device memory
  std::span<const T> weights;   // m, likewise; empty: all 1
  std::int64_t clusters = 0;    // k
  const run::settings& how;
  shared_text token;
  ballast::backend backend;  // the one that was chosen
  shared_text scheme;
  plan_state* kept = nullptr;          // engine_args::kept
  bool strike_seeding = false;         // engine_args::strike_seeding
  const rank_rows<T>* rows = nullptr;  // engine_args::rows
  fit_state<T>* state = nullptr;       // the state of a fit on a group: where it begins, and how far it has come
  sparse_rows<T> sparse = {};          // engine_args::sparse
  half_points half = {};               // engine_args::half
  bool spherical = false;              // points and centroids have unit length; new centroids get it
  bool unit_rows = false;              // engine_args::unit_rows
  // Makes the points, before the backend reads them. Null: they are there.
  std::optional<core::function_ref<void(run::recorder&, inject::active_injector&)>> prepare = {};
};

// The centroids of mini-batches, in the user's coordinates, and k + 1 numbers: the weight that each has had, and the points since the last
// reassignment.
template <class T>
struct mini_batch_state {
  sealed_centroids<T> centroids;  // k × n
  sealed<core::vector<double>> weights;
};

// Returns whether two ranges of as many numbers differ in a bit. It begins with the last number.
template <class V>
bool differ(const V& one, const V& other) {
  for (std::size_t e = one.size(); e-- > 0;)
    if (abft::word_of(one[e]) != abft::word_of(other[e])) return true;
  return false;
}

// One call of fit, predict or transform, or one step of mini-batches. The shapes have been validated; the column statistics check the
// values. Centroids of the caller are in host memory, results in host or device memory. If the call throws uncorrectable_error, nothing is
// stored, except rows of distances that passed their checks. It has that many members because it keeps the arguments of its call.
template <class T>
class driver {
 public:
  explicit driver(const driver_args<T>& args);

  // `given`: the first centroids of init::given.
  report fit(const options& wanted, matrix_view<const T> given, const fit_results<T>& to);
  report predict(matrix_view<const T> centroids, const prediction_results& to);
  report transform(matrix_view<const T> centroids, const matrix_view<T>& values);

  // Mini-batches: first centroids, in the user's coordinates. `run`: of n_init.
  report choose(const options& wanted, matrix_view<const T> given, std::uint64_t run, sealed_centroids<T>& made);
  // tol · the mean variance of the features, in the units of the points.
  report measure_tolerance(double tol, abft::guarded_threshold& made);
  // One step with the points as the batch. `inertia`: of the centroids before, computed twice. `count` is added to the points since the
  // last reassignment. The state stays where a fault is uncorrectable.
  report step(mini_batch_state<T>& state, double count, abft::guarded_threshold& inertia);

  run::recorder& recorder() { return recorder_; }

 private:
  struct run_result {
    sealed_centroids<T> centroids;  // k × n, in the user's coordinates
    summed_twice inertia;
    int iterations = 0;
    stop_reason stopped = stop_reason::max_iter;
  };

  bool protects() const { return how_.protection != protection::off; }
  bool repairs() const { return how_.protection == protection::correct; }
  // A rank of a group knows of a failure when all know of it, so that they go the same way.
  bool failed() const { return over_ == nullptr ? recorder_.uncorrectable() : engine_->failed(); }
  bool stop() const { return repairs() && failed(); }

  // driver.cpp
  std::unique_ptr<engine<T>> engine_for(const driver_args<T>& what);
  template <class Value>
  void verify_waiting(sealed<Value>& kept, const char* check);
  void verify_waiting_centroids(sealed_centroids<T>& centroids);
  bool agree(const summed_twice& inertia) const;
  summed_twice label(matrix_view<const T> centroids);
  bool throws() const { return failed() && how_.throw_on_uncorrectable; }
  report finish();
  template <class Result>
  Result for_engine(const Result& result);
  void store_centroids(const sealed_centroids<T>& from, const matrix_view<T>& to);

  // normalization.cpp
  void choose_normalization(matrix_view<const T> centroids, bool measured);
  ranges<T> column_stats();
  void make_normalization(const ranges<T>& seen, matrix_view<const T> centroids);
  abft::finding verify_normalization(const ranges<T>& seen, matrix_view<const T> centroids) const;
  double mean_variance(bool by_features) const;
  abft::guarded_threshold tolerance_for(double tol);
  template <class Convert, class Compare>
  sealed_centroids<T> carry(std::int64_t step, const Convert& convert, const Compare& compare);
  sealed_centroids<T> normalize(matrix_view<const T> centroids);
  sealed_centroids<T> denormalize(const core::vector<T>& centroids);
  double denormalize(double inertia, int exponent) const;
  core::vector<T> scaled(matrix_view<const T> centroids);
  template <class Use>
  void each_centroid(Use&& use) const;
  abft::finding compare_normalized(matrix_view<const T> outer, const core::vector<T>& inner) const;

  // seeding.cpp
  sealed_centroids<T> first_centroids(const options& wanted, matrix_view<const T> given, std::uint64_t run);
  core::vector<T> draw_different_points(std::uint64_t seed, std::uint64_t stream);
  core::vector<T> draw_plus_plus(engine<T>& from, std::int64_t count, std::uint64_t seed, std::uint64_t stream);
  core::vector<T> draw_parallel(const options& wanted, std::uint64_t run);

  // lloyd.cpp
  run_result one_run(const options& wanted, matrix_view<const T> given, int number);
  // A run, and its tolerance.
  struct lloyd_run {
    const options& wanted;
    int number;
    abft::guarded_threshold tolerance;
  };
  lloyd_result<T> iterate(const lloyd_run& run, sealed_centroids<T> from, int begin, int end);
  lloyd_result<T> iterate_final_only(const lloyd_run& run, const sealed_centroids<T>& first);
  lloyd_result<T> run_lloyd(const lloyd_run& run, sealed_centroids<T> first, int begin, int end);
  bool last_step_holds(const lloyd_run& run, const lloyd_result<T>& bare, const lloyd_result<T>& step);
  sealed_centroids<T> next_centroids(const sealed_centroids<T>& old);
  void set_bare(bool bare);
  void leave_bare_passes(const sealed_centroids<T>& centroids);
  void take_totals();  // the sums of a pass
  bool relocate(const sealed_centroids<T>& old);
  core::vector<T> divide(const core::vector<T>& old);
  abft::finding verify_quotients(const core::vector<T>& centroids) const;
  double weight_of(std::int64_t cluster) const;
  double divisor_of(std::int64_t cluster, bool backwards) const;
  std::int64_t heaviest_cluster() const;
  double shift_between(const core::vector<T>& a, const core::vector<T>& b);
  double inertia_of_pass(const core::vector<T>& centroids) const;

  // mini_batch.cpp
  struct moved {
    core::vector<T> centroids;
    core::vector<double> weights;
    double inertia = 0;
  };
  moved move(const core::vector<T>& centroids, const core::vector<double>& weights, const core::vector<T>& inner,
             const normalization<T>& chosen, double square, double count, bool backwards) const;

  wire::exchange* over_;  // null: the call has no group
  fit_state<T>* state_;
  std::int64_t m_, n_, k_;  // m of all ranks
  ballast::backend backend_;
  bool sparse_;
  bool weighted_;
  bool spherical_;
  bool strike_seeding_;
  const run::settings& how_;
  shared_text token_;
  inject::active_injector injector_;
  run::recorder recorder_;
  plan_state* kept_;
  std::unique_ptr<engine<T>> engine_;
  run::host_staging staging_;  // host copies of results that lie in device memory
  sealed<normalization<T>> normalization_;
  point_sums whole_;                // sums over all points
  cluster_sums total_;              // sums of the last pass
  core::vector<double> direction_;  // projection_direction
  bool bare_ = false;               // the passes are bare (engine::set_bare)
  double pass_inertia_ = 0;         // inertia of the last pass, for on_progress
};

// Calls use(j) for each centroid j, on several threads if it has enough coordinates.
template <class T>
template <class Use>
void driver<T>::each_centroid(Use&& use) const {
  constexpr double seconds = 2e-9;  // for a coordinate, about
  const std::int64_t rows = std::max<std::int64_t>(1, 8192 / n_), tasks = (k_ + rows - 1) / rows;
  const int threads = core::worthwhile_threads(how_.threads, static_cast<double>(k_) * static_cast<double>(n_) * seconds);
  core::parallel_for(threads, tasks, [&](std::int64_t task, int) {
    for (std::int64_t j = task * rows; j < std::min(k_, (task + 1) * rows); ++j) use(j);
  });
}

// Verifies a value that was stored: it must be the value that was sealed.
template <class T>
template <class Value>
void driver<T>::verify_waiting(sealed<Value>& kept, const char* check) {
  if (!protects()) return;
  recorder_.checked(1);
  using state = typename sealed<Value>::state;
  const state found = repairs() ? kept.verify() : kept.intact() ? state::intact : state::lost;
  if (found == state::intact) return;
  recorder_.detected(check, -1, std::numeric_limits<double>::quiet_NaN(), 0,
                     found == state::repaired ? action::corrected : action::uncorrectable, 0);
}

}  // namespace ballast::kmeans
