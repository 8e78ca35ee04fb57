// K-Means without a backend: the frame, first centroids, Lloyd's iterations, convergence, empty clusters, runs of n_init, and what becomes
// of a result that does not pass its checks.
// Layer: algorithm, backend-free; all that grows with the number of points is behind contract.hpp.
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's conventions for tol, convergence and empty clusters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/kmeans.hpp>

#include "kmeans/contract.hpp"

namespace ballast::kmeans {

// One call of fit, predict or transform. The shapes have been validated; values are checked by the survey.
template <class T>
class driver {
 public:
  // `points` and `weights` in host or device memory; all other operands of a call in host memory. `strike_seeding`: call::strike_seeding.
  driver(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const execution& how, std::string token,
         ballast::backend backend, std::string_view scheme, bool strike_seeding = false);

  model<T> fit(const options<T>& wanted);
  prediction predict(matrix_view<const T> centroids);
  distances<T> transform(matrix_view<const T> centroids);

 private:
  struct run_result {
    std::vector<T> centroids;  // k × n, in the user's coordinates
    std::vector<std::int32_t> labels;
    double inertia = 0;
    int iterations = 0;
    bool converged = false;
  };

  bool protects() const { return how_.protection != protection::off; }
  bool repairs() const { return how_.protection == protection::correct; }
  bool stop() const { return repairs() && recorder_.uncorrectable(); }

  // driver.cpp
  void verify_waiting(sealed_centroids<T>& centroids);
  double label(const std::vector<T>& centroids);

  // frame.cpp
  void choose_frame(matrix_view<const T> centroids);
  double mean_variance();
  std::vector<T> into_frame(matrix_view<const T> centroids) const;
  std::vector<T> out_of_frame(const std::vector<T>& centroids) const;

  // seeding.cpp
  std::vector<T> first_centroids(const options<T>& wanted, std::uint64_t run);
  std::vector<T> draw_different_points(std::uint64_t seed, std::uint64_t stream);
  std::vector<T> draw_plus_plus(std::uint64_t seed, std::uint64_t stream);

  // lloyd.cpp
  run_result one_run(std::vector<T> first, const options<T>& wanted, double tolerance);
  descent<T> descend(std::vector<T> first, int max_iter, double tolerance);
  void add_sums(const sealed_centroids<T>& centroids);
  void relocate(const sealed_centroids<T>& old);
  std::vector<T> divide(const std::vector<T>& old);
  double shift_between(const std::vector<T>& a, const std::vector<T>& b);

  std::int64_t m_, n_, k_;
  bool weighted_;
  const execution& how_;
  std::string token_;
  inject::active_injector injector_;
  run::recorder recorder_;
  std::unique_ptr<engine<T>> engine_;
  frame<T> frame_;
  point_sums whole_;               // sums over all points
  cluster_sums total_;             // of the last pass
  std::vector<double> direction_;  // projection_direction
};

}  // namespace ballast::kmeans
