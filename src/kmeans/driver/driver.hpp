// K-Means without a backend: the frame, first centroids, Lloyd's iterations, convergence, empty clusters, runs of n_init, and what becomes
// of a result that does not pass its checks.
// Layer: algorithm, backend-free; all that grows with the number of points is behind contract.hpp.
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's conventions for tol, convergence and empty clusters.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/kmeans.hpp>

#include "inject/injector.hpp"
#include "kmeans/contract.hpp"

namespace ballast::kmeans {

// The steps of site kmeans.centroid: 0 as the division leaves them, 1 while they wait, 2 in the frame, 3 out of it.
inline constexpr std::int64_t k_centroid_steps = 4;

// One call of fit, predict or transform. The shapes have been validated; values are checked by the survey.
template <class T>
class driver {
 public:
  // `points` and `weights` in host or device memory; all other operands of a call in host memory. `strike_seeding`: call::strike_seeding.
  driver(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const run::settings& how, std::string token,
         ballast::backend backend, std::string_view scheme, bool strike_seeding = false);

  model<T> fit(const options<T>& wanted);
  prediction predict(matrix_view<const T> centroids);
  distances<T> transform(matrix_view<const T> centroids);

 private:
  struct run_result {
    sealed_centroids<T> centroids;  // k × n, in the user's coordinates
    std::vector<std::int32_t> labels;
    summed_twice inertia;
    int iterations = 0;
    ending ended = ending::max_iter;
  };

  bool protects() const { return how_.protection != protection::off; }
  bool repairs() const { return how_.protection == protection::correct; }
  bool stop() const { return repairs() && recorder_.uncorrectable(); }

  // driver.cpp
  template <class Value>
  void verify_waiting(sealed<Value>& kept, const char* check);
  void verify_waiting_centroids(sealed_centroids<T>& centroids);
  bool agree(const summed_twice& inertia) const;
  summed_twice label(matrix_view<const T> centroids);

  // frame.cpp
  void choose_frame(matrix_view<const T> centroids, bool measured);
  ranges<T> survey();
  void make_frame(const ranges<T>& seen, matrix_view<const T> centroids);
  abft::finding verify_frame(const ranges<T>& seen, matrix_view<const T> centroids) const;
  double mean_variance(bool by_features) const;
  abft::guarded_threshold tolerance_for(double tol);
  template <class Element, class Compare>
  sealed_centroids<T> carry(std::int64_t step, const Element& element, const Compare& compare);
  sealed_centroids<T> into_frame(matrix_view<const T> centroids);
  sealed_centroids<T> out_of_frame(const std::vector<T>& centroids);
  double out_of_frame(double inertia) const;
  abft::finding compare_frames(matrix_view<const T> outer, const std::vector<T>& inner) const;

  // seeding.cpp
  sealed_centroids<T> first_centroids(const options<T>& wanted, std::uint64_t run);
  std::vector<T> draw_different_points(std::uint64_t seed, std::uint64_t stream);
  std::vector<T> draw_plus_plus(engine<T>& from, std::int64_t count, std::uint64_t seed, std::uint64_t stream);
  std::vector<T> draw_parallel(const options<T>& wanted, std::uint64_t run);

  // lloyd.cpp
  run_result one_run(const options<T>& wanted, int number);
  descent<T> descend(sealed_centroids<T> first, const options<T>& wanted, int number, abft::guarded_threshold tolerance);
  sealed_centroids<T> next_centroids(const sealed_centroids<T>& old);
  void relocate(const sealed_centroids<T>& old);
  std::vector<T> divide(const std::vector<T>& old);
  abft::finding verify_quotients(const std::vector<T>& made) const;
  double weight_of(std::int64_t cluster) const;
  std::int64_t heaviest_cluster() const;
  double shift_between(const std::vector<T>& a, const std::vector<T>& b);
  double inertia_of_pass(const std::vector<T>& centroids) const;

  std::int64_t m_, n_, k_;
  ballast::backend backend_;
  bool weighted_;
  bool strike_seeding_;
  const run::settings& how_;
  std::string token_;
  inject::active_injector injector_;
  run::recorder recorder_;
  std::unique_ptr<engine<T>> engine_;
  sealed<frame<T>> frame_;
  point_sums whole_;               // sums over all points
  cluster_sums total_;             // of the last pass
  std::vector<double> direction_;  // projection_direction
  double pass_inertia_ = 0;        // of the last pass, where somebody watches
};

// Before something that has waited is used: it must be what was sealed.
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
