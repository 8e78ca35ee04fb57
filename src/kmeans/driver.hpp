// K-Means without a backend: survey of the points, first centroids, Lloyd iterations, convergence, final labels; and all decisions about
// protection: what is compared, what is computed again, what is reported.
// Layer: driver; calls a backend through contract.hpp.
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's conventions for tol, convergence and empty clusters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/kmeans.hpp>

#include "kmeans/contract.hpp"
#include "kmeans/panel.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans {

inline constexpr int k_attempts = 3;               // the first, and at most two recomputations
inline constexpr std::int64_t k_survey_rows = 64;  // rows whose sum is made by itself, so that chains stay short

template <class Value>
std::size_t at(Value i) {
  return static_cast<std::size_t>(i);
}

// One call of fit, predict or transform. The arguments have been validated but for the values of the points.
template <class T>
class engine {
 public:
  engine(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const execution& how, std::string token,
         ballast::backend backend, std::string_view scheme);

  model<T> fit(const options<T>& wanted);
  prediction predict(matrix_view<const T> centroids);
  distances<T> transform(matrix_view<const T> centroids);

  // Lets seeding show its distances to the injector (site kmeans.product), whose visits then no longer count iterations. For tests.
  void strike_seeding() { strike_seeding_ = true; }

 private:
  // Scratch of one thread.
  struct worker {
    tile<T> block;
    panel<T> fresh;                    // made anew for a block that failed
    std::vector<std::int32_t> labels;  // of the first attempt
  };
  struct outcome {
    std::vector<T> centroids;  // k × n, in the user's coordinates
    std::vector<std::int32_t> labels;
    double inertia = 0;
    int iterations = 0;
    bool converged = false;
  };
  // Sums over the points of one group of blocks that stay the same over all iterations: one side of the invariants.
  struct group_survey {
    std::vector<double> low, high, poison, sum;  // n: of the points as they are
    std::vector<double> first;                   // n: Σ weight · x
    std::vector<double> plain;                   // n: Σ x; empty where all weights are 1
    std::vector<double> squares;                 // n: Σ x²
    double total_square = 0;                     // Σ ‖x‖², summed by rows
    double weight = 0;                           // Σ weight
    double members = 0;                          // how many points of positive weight
    double count = 0;                            // how many points
  };

  // Where a group of blocks begins.
  std::int64_t first_block(std::int64_t group) const { return group * blocks_ / groups_; }
  inject::place at_block(std::int64_t block) const { return {block, blocks_, 0, 1}; }
  void allocate(worker& made, bool with_distances) const;
  void prepare_workers(bool with_distances);
  bool repairs() const { return how_.protection == protection::correct; }
  bool stop() const { return repairs() && recorder_.uncorrectable(); }

  void survey(matrix_view<const T> centroids);
  double variance();
  void add_surveys();
  void survey_group(std::int64_t group, bool centred);
  void read_point(std::int64_t i, T* to) const;
  std::vector<T> to_scaled(matrix_view<const T> centroids) const;

  void load(worker& at, std::int64_t block);
  void load_verified(worker& at, int slot, std::int64_t block);
  void make_verified_panel(sealed_centroids<T>& centroids, panel<T>& made);
  void assign_block(worker& at, int slot, std::int64_t block, const panel<T>& centroids, const sealed_centroids<T>& origin,
                    bool keep = false);
  bool distances_block(worker& at, int slot, std::int64_t block, const panel<T>& centroids, const T* origin, std::int64_t group,
                       bool strike);

  std::vector<T> seed(const options<T>& wanted, std::uint64_t stream);
  std::vector<T> seed_random(std::uint64_t seed, std::uint64_t stream);
  std::vector<T> seed_plus_plus(std::uint64_t seed, std::uint64_t stream);

  void run_group(std::int64_t group, int slot, const panel<T>& centroids, const sealed_centroids<T>& origin, const std::int32_t* old,
                 std::int32_t* labels);
  struct failed_sum {
    double residual = 0;
    double threshold = 0;
    bool ok = true;
  };
  failed_sum verify_partial(const partial<T>& sums, const group_survey& expected) const;
  void combine(const panel<T>& centroids, const sealed_centroids<T>& origin, const std::int32_t* old, std::int32_t* labels);
  void add_partials();
  void relocate(const sealed_centroids<T>& old, const std::int32_t* labels);
  std::vector<T> divide(const std::vector<T>& old);
  double shift_between(const std::vector<T>& a, const std::vector<T>& b);
  outcome lloyd(std::vector<T> first, const options<T>& wanted, double tolerance);
  double label_all(const std::vector<T>& centroids, std::vector<std::int32_t>& labels);

  matrix_view<const T> points_;
  std::int64_t m_, n_, k_;
  const execution& how_;
  std::string token_;
  int threads_;
  bool protect_;
  const kernels<T>& kernels_;
  inject::active_injector injector_;
  run::recorder recorder_;
  source<T> source_;
  std::int64_t capacity_ = 0;  // points in a block
  std::int64_t blocks_ = 0;
  std::int64_t groups_ = 0;
  std::vector<worker> workers_;
  std::vector<group_survey> surveys_;
  group_survey whole_;                   // their sum
  std::vector<block_facts> facts_;       // of each block, from its first load on
  std::vector<block_facts> fact_twins_;  // the same; different until then
  std::vector<double> direction_;        // n: random in ±[1, 2)
  std::vector<double> projections_;      // m: weight · (x · direction)
  std::vector<char> projected_;          // which blocks of them are known
  std::vector<partial<T>> partials_;
  partial<T> total_;
  bool strike_seeding_ = false;
};

}  // namespace ballast::kmeans
