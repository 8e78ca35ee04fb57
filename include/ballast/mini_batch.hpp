// Protected mini-batch K-Means: steps that each move the centroids towards the points of one batch.
// Layer: interface; implemented in src/kmeans.
// Source: D. Sculley, Web-scale k-means clustering, WWW 2010; scikit-learn's MiniBatchKMeans for starts, reassignment and the end of a fit;
// docs/protection.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::kmeans {
inline namespace abi_1 {

// How a fit by mini-batches is computed.
struct mini_batch_options {
  kmeans::init init = kmeans::init::kmeans_plus_plus;
  std::int64_t batch_size = 1024;  // points of a step of fit, ≥ 1; fewer if there are not as many
  int max_iter = 100;              // fit takes at most ⌊max_iter · m / batch_size⌋ steps, and at least one
  double tol = 0;                  // stop when Σ‖centroid shift‖² of a step ≤ tol · mean of the features' variances; 0: not asked
  // Stop after so many steps without a new least smoothed inertia of the batches; nothing: never. The inertia of a batch for the centroids
  // before its step, divided by its points, has the weight min(1, 2 · batch_size / (m + 1)) in the smoothed one.
  std::optional<int> max_no_improvement = 10;
  // Points that a start is drawn from, and a sample on which the starts are compared: 0 for 3 · batch_size, or 3 k where that is below k.
  std::int64_t init_size = 0;
  int n_init = 1;  // starts; the one with the least inertia on the sample is taken
  // A centroid whose total weight is below this part of the largest one goes to a random point of the batch, with the least weight of those
  // that stay: asked while a centroid has no weight, and after each 10 k points. At most half as many as the batch has points. 0: never.
  double reassignment_ratio = 0.01;
  std::uint64_t seed = 0;  // the same seed gives the same result for any number of threads
};

// Centroids that move with each batch of points. T is float or double. An object is used by one thread at a time. Its copies are
// independent.
//
// A step labels the points x of a batch with their nearest centroids c, as plan<T>::predict does, and makes of each centroid whose points
// have the weights w
//   W' = W + Σ w,  c' = (W c + Σ w x) / W',
// W the total weight of the points that it has had: the weighted mean of them all. The others stay. Then centroids of small weight may be
// reassigned (mini_batch_options).
//
// fit draws the points of each batch at random, each with a probability proportional to its weight, and repeated; in the step they have
// weight 1. It begins anew: nothing of earlier calls remains. It copies points in device memory to the host. partial_fit takes given points
// as one batch; they count with their weights. Its first call chooses first centroids from these points.
//
// A step costs 2 b n k flops for b points and reads them twice. Memory: O(b n + k n + threads), fit also 16 bytes for each weight.
// Covered: what K-Means covers (kmeans.hpp), in each step; the batch as it was drawn and copied; centroids and their weights, which are
// made twice from two sealed copies; the reassignment; the decision to stop. protection::final_only is as protection::correct, since
// each step begins from the last one's result.
// Points lie in a matrix (data::points). Not with it: compressed rows, half precision, groups, other schemes than "row_checksum".
//
// Errors: those of plan<T>. A call that throws leaves the object, and the results, as they were; distances or labels of all points may have
// been stored by a fit that fails at its end.
template <class T>
class mini_batch {
 public:
  // clusters ≥ 1, features ≥ 1. Throws invalid_argument_error, unsupported_error (backend, scheme, group).
  BALLAST_API mini_batch(std::int64_t clusters, std::int64_t features, const mini_batch_options& wanted = {}, const execution& where = {});
  BALLAST_API ~mini_batch();
  BALLAST_API mini_batch(const mini_batch& other);
  BALLAST_API mini_batch(mini_batch&&) noexcept;
  BALLAST_API mini_batch& operator=(const mini_batch& other);
  BALLAST_API mini_batch& operator=(mini_batch&&) noexcept;

  // Results: fit_results::iterations counts the steps. Labels and inertia are those of all points for the last centroids, and cost a pass
  // over them if they are asked for. call::on_progress is called after each step; progress::value is the inertia of its batch before it.
  BALLAST_API report fit(const data<T>& from, const fit_results<T>& to = {}, const call& now = {});
  // One step. data::centroids: the first centroids, at the first call with init::given.
  BALLAST_API report partial_fit(const data<T>& batch, const call& now = {});

  // The state, in host memory; before the first call of fit or partial_fit the centroids have no rows. Throws uncorrectable_error if it was
  // corrupted while it waited and no copy of it is right.
  BALLAST_API matrix<T> centroids() const;          // k × n, row-major
  BALLAST_API std::vector<double> weights() const;  // k: the total weight of the points that each centroid has had
  BALLAST_API std::int64_t steps() const noexcept;  // the steps of all calls since the last fit began
  // Goes on from a state that centroids() and weights() gave. Throws invalid_argument_error (shapes, NaN, Inf, weights below 0).
  BALLAST_API void resume(matrix_view<const T> centroids, std::span<const double> weights);

  BALLAST_API ballast::backend backend() const;  // the one that was chosen for operands in its own memory

 private:
  struct implementation;
  std::unique_ptr<implementation> implementation_;
};

extern template class mini_batch<float>;
extern template class mini_batch<double>;

}  // namespace abi_1
}  // namespace ballast::kmeans
