// Protected K-Means clustering: Lloyd's algorithm with k-means++.
// Layer: interface; implemented in src/kmeans.
// Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024; D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; B. Bahmani, B. Moseley,
// A. Vattani, R. Kumar, S. Vassilvitskii, Scalable K-Means++, VLDB 2012; docs/protection.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/pending_report.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::kmeans {
inline namespace abi_1 {

// How the first centroids are chosen. kmeans_plus_plus: greedy k-means++, 2 + ⌊ln k⌋ candidates a step. random: k different points.
// given: data::centroids. kmeans_parallel: k-means‖, which draws about oversampling · k points a round, so that a large k needs few
// passes over the points; of the candidates, each with the weight of the points nearest to it, k are chosen by greedy k-means++.
enum class init : std::uint8_t { kmeans_plus_plus, random, given, kmeans_parallel };

BALLAST_API std::string_view to_string(init value) noexcept;  // "k-means++", "random", "given", "k-means||"

// The reason why a run stopped: no label changed in its last iteration; the centroids' shift came within the tolerance; the run reached
// max_iter; or, only of mini-batches, the smoothed inertia no longer fell.
enum class stop_reason : std::uint8_t { labels_unchanged, tolerance, max_iter, no_improvement };

BALLAST_API std::string_view to_string(stop_reason value) noexcept;  // "labels unchanged", "tolerance", "max_iter", "no improvement"

// How the points of a problem are stored. dense: a matrix. csr: compressed rows (data::sparse), of which neither a copy with the zeros is
// made nor any work is done for zeros. f16, bf16: a matrix of float16 or bfloat16 (data::half), computed as the same numbers in float.
enum class storage : std::uint8_t { dense, csr, f16, bf16 };

// The size of a problem: m points × n features, k clusters, `batch` data sets of this size.
struct problem {
  ballast::precision precision = ballast::precision::f32;
  std::int64_t points = 0;    // m
  std::int64_t features = 0;  // n
  std::int64_t clusters = 8;  // k ≥ 1; for fits k ≤ m
  std::int64_t batch = 1;     // data sets, fitted independently
  kmeans::storage storage = kmeans::storage::dense;
  bool spherical = false;       // points and centroids are taken as directions
  std::int64_t mini_batch = 0;  // points of a step of mini-batch K-Means (mini_batch.hpp); 0: each iteration takes all points
};

// The one-line name of a problem: kmeans_f32_m131072_n128_k128, kmeans_f32_m1000_n16_k8_b500 for a batch of 500, or
// kmeans_f32_m100000_n10000_k20_csr for points in compressed rows; kmeans_f16_m131072_n128_k128 and kmeans_bf16_… for half precision;
// then _spherical; or kmeans_f32_m20000_n16_k10_mini1000 for steps of 1000 points.
BALLAST_API std::string to_token(const problem& value);
BALLAST_API problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

// How a fit is computed.
struct options {
  kmeans::init init = kmeans::init::kmeans_plus_plus;
  int n_init = 1;          // runs from different first centroids; the one with the least inertia wins
  int max_iter = 300;      // Lloyd iterations of one run, ≥ 1
  double tol = 1e-4;       // stop when Σ‖centroid shift‖² ≤ tol · mean of the features' variances (scikit-learn's tol)
  std::uint64_t seed = 0;  // the same seed gives the same result for any number of threads
  // k-means‖: the candidates that a round draws on average, in multiples of k, > 0; and the rounds, ≥ 1. More rounds follow only if these
  // have not found k candidates.
  double oversampling = 2;
  int rounds = 5;
};

// The operands of a call. T is float or double. They may lie in host memory, in memory of the plan's CUDA device, or in managed memory. A
// backend that computes on the host first copies operands of the device, each once, ordered on call::stream.
template <class T>
struct data {
  matrix_view<const T> points = {};     // m × n with any strides
  std::span<const T> weights = {};      // m weights ≥ 0, not all zero; empty: all 1
  matrix_view<const T> centroids = {};  // k × n: of predict and transform, and of fit with init::given
  // For plans on a group: returns rows first … first + count − 1 of all points, and their weights if there are any, in memory of the host
  // that stays until the call returns. Ranks that are left call it, each for other rows, when a rank was lost. Empty: a lost rank ends the
  // call with rank_lost_error.
  std::function<data(std::int64_t first, std::int64_t count)> reload = {};
  // For plans of storage::csr the points, in place of `points`: m × n with indices of 32 or 64 bits, columns ascending in each row. Zeros
  // may be stored.
  std::variant<csr_view<const T, std::int32_t>, csr_view<const T, std::int64_t>> sparse = {};
  // For plans of storage::f16 and bf16, whose T is float, the points in place of `points`: m × n with any strides.
  std::variant<std::monostate, matrix_view<const float16>, matrix_view<const bfloat16>> half = {};
};

// The caller's memory for the results of a fit, on the host or the device. Empty members are not stored.
template <class T>
struct fit_results {
  matrix_view<T> centroids = {};  // k × n, any strides that keep the elements apart
  std::span<std::int32_t> labels =
      {};                     // m values in [0, k): the nearest centroid (docs/kmeans.md says how exactly), the lowest index among equals
  double* inertia = nullptr;  // host: Σ_i weight_i ‖x_i − centroid(label_i)‖², from differences, accumulated in double
  int* iterations = nullptr;  // host: of the winning run
  stop_reason* stopped = nullptr;  // host: likewise
};

// The caller's memory for the results of predict.
struct prediction_results {
  std::span<std::int32_t> labels = {};  // m, host or device
  double* inertia = nullptr;            // host
};

// The operands and results of a batch: `count` data sets in points.count matrices, the weights m · b and later of data set b, and rows
// k · b and later of the given centroids.
template <class T>
struct batch_data {
  matrix_batch_view<const T> points = {};  // a stride of 0 between data sets is allowed: restarts of one
  std::span<const T> weights = {};         // count · m
  matrix_view<const T> centroids = {};     // count · k × n
};

// The caller's memory for the results of a batch.
template <class T>
struct batch_results {
  matrix_view<T> centroids = {};        // count · k × n
  std::span<std::int32_t> labels = {};  // count · m
  std::span<double> inertia = {};       // count, as the two below in host memory
  std::span<int> iterations = {};
  std::span<stop_reason> stopped = {};
};

// A prepared K-Means problem: immutable and thread-safe; copies share it. After the first call a call of the same kind allocates no memory
// on the host, except by the schemes that FT K-Means compares (docs/design/memory.md says what a device allocates).
//
// fit minimises inertia. A cluster that loses all its points gets the point farthest from its centroid. With fewer different points than
// clusters, spare clusters copy the heaviest centroid and stay empty. call::on_progress is called after each iteration; progress::value is
// the inertia of the iteration's labels with the centroids that they were found for. One iteration costs 2mnk + 4mn flops and reads the
// points once. Memory beyond the arguments: O(m + kn + threads) on CPUs; on CUDA also two copies of the points, one with rows padded to 64
// bytes. Points of the host that exceed the device's memory pass through it in pieces, with the same result.
// Covered: distances, choice of the minimum, label, sums and counts, centroids, the decision to stop. Not covered: points and weights in
// memory before they are read, except that the first and later reads must agree in their sums.
// Schemes: "row_checksum" (default). Only on cuda, and not for transform, those that FT K-Means compares: without protection "naive",
// "gemm", "fused", "broadcast", "tensor"; with it "warp_checksum", "detect_recompute", "threadblock_checksum", which do not cover minimum
// and label (docs/protection.md); and "dmr", the whole fit by two blocks, the default of batches whose fits a block can hold (m·n·k ≤ 2²⁴,
// k·n within its shared memory, no k-means‖). Labels of "tensor" and of the last three are exact in f64; in f32 they are those of TF32
// products.
// On a group (execution::group) each rank passes its own rows, problem::points of them, which may be 0; the rows of all ranks in the order
// of ranks are the points of the problem. Clusters, options, centroids and protection must be the same on all ranks; call::on_progress on
// any rank makes all compute the inertia of each iteration. Centroids, inertia, iterations and report are those of all rows, on every rank;
// labels and distances those of the rank's own. The bits do not depend on the number of ranks, nor on how the rows are divided. One
// iteration sums about 16 k n bytes over the ranks. If a rank is lost, the others load its rows by
// data::reload and go on with the iteration that it was lost in: the result has the same bits. Not on a group: the cuda backend, k-means‖,
// batches.
//
// Spherical (problem::spherical; I. Dhillon, D. Modha, Concept decompositions for large sparse text data using clustering, 2001): points
// and given centroids are divided by their norms, in copies of the call, and each new centroid is the sum of its points by weight, divided
// by the norm of the sum; where that is 0, the centroid stays. `inertia` is Σ_i weight_i (1 − cos(x_i, centroid(label_i))), as half of the
// squared distances between these rounded unit vectors; labels are nearest for these exactly. Centroids have norm 1, to rounding. transform
// gives 1 − cos, likewise, to m × k more numbers of the host first. A row of zeros has no direction: invalid_argument_error. Points of a
// device are copied to the host and back for their norms. Not with it: batches, groups.
//
// Points in half precision (storage::f16, bf16; T is float): the results, to the bit, of the same numbers in float, of which a block at a
// time is made; on cuda kernels read them as they are, from memory of the host or of the device. Not with them: batches, groups.
//
// Points in compressed rows (storage::csr): fit, predict and transform as for the same points in a matrix, with the same contract for
// labels; the points are not shifted to their mean. A distance of transform has a relative error of (n/2 + 4) u for floats and 8 (e + 4) u
// for doubles, e the most stored elements of a point. One iteration costs 2k operations for each stored element and O(kn) beside. Memory
// beyond the arguments: O(m + kn · groups), 4 to 64 groups. n ≤ 2^31 − 1. On cuda rows of the host are copied to the device; rows of the
// device are read there as they lie, and copied to the host once. automatic chooses a backend of the host. Not with storage::csr: batches,
// groups of ranks.
//
// Errors: invalid_argument_error (shapes, k, NaN or Inf in points, weights or centroids; on a group also: different calls on its ranks),
// unsupported_error, rank_lost_error, device_error, out_of_memory_error, uncorrectable_error. Results are stored after they have been
// verified: a call that throws uncorrectable_error has stored none, but distances of rows, and fits of a batch, that passed their checks
// may have been stored, and NaN in place of distances that did not where the rows lie on a device. A report with verdict uncorrectable, for
// calls without throw_on_uncorrectable, means that the results are not to be used.
template <class T>
class plan {
 public:
  // `size.precision` is ignored: the precision is T's. Throws invalid_argument_error, unsupported_error (backend, scheme).
  BALLAST_API explicit plan(const kmeans::problem& size, const options& wanted = {}, const execution& where = {});
  BALLAST_API ~plan();
  BALLAST_API plan(const plan&);
  BALLAST_API plan(plan&&) noexcept;
  BALLAST_API plan& operator=(const plan&);
  BALLAST_API plan& operator=(plan&&) noexcept;

  BALLAST_API report fit(const data<T>& from, const fit_results<T>& to, const call& now = {}) const;
  // Fits problem::batch data sets of this size. Fit b is that of data set b with the seed `seed` + b. event::index is the fit where a check
  // has no row of points. call::on_progress is not called. The message of an error names the fit.
  BALLAST_API report fit(const batch_data<T>& from, const batch_results<T>& to, const call& now = {}) const;
  // The nearest of data::centroids for each point. Weights count in the inertia only.
  BALLAST_API report predict(const data<T>& from, const prediction_results& to, const call& now = {}) const;
  // values: m × k Euclidean distances (not squared) of each point to each centroid, host or device, any strides.
  BALLAST_API report transform(const data<T>& from, const matrix_view<T>& values, const call& now = {}) const;

  // The same for a batch on call::stream without waiting, by scheme "dmr": one launch, in which the device verifies and stores each fit,
  // and with protection::correct two more, which compute again the fits that need it and else return at once. Points, weights, centroids
  // and labels lie in device memory (invalid_argument_error otherwise). pending_report::get() stores what `to` has in host memory, which
  // must live until then, and throws invalid_argument_error for NaN or Inf in the operands. A CUDA graph can capture the call once the plan
  // has enqueued one outside of it. A fit that is uncorrectable is not stored. Throws unsupported_error for other backends than cuda, and
  // for other schemes, whose iterations need decisions of the host.
  [[nodiscard]] BALLAST_API pending_report enqueue_fit(const batch_data<T>& from, const batch_results<T>& to, const call& now = {}) const;

  // Bytes of device memory for call::workspace; 0 for other backends than cuda. A batch by "dmr" needs no other memory beside copies of
  // host operands; other calls take the rest of their memory from the driver's pool.
  BALLAST_API std::int64_t workspace_bytes() const;

  BALLAST_API const kmeans::problem& problem() const;
  BALLAST_API ballast::backend backend() const;  // the one that was chosen for operands in its own memory

  struct implementation;  // src/kmeans/api/plan.hpp

 private:
  const implementation& made() const;
  std::shared_ptr<const implementation> implementation_;
};

extern template class plan<float>;
extern template class plan<double>;

// ---- One call: results that Ballast allocates in host memory. Each makes a plan and runs it once.

// The results of a fit.
template <class T>
struct model {
  matrix<T> centroids;  // k × n, row-major
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int iterations = 0;
  stop_reason stopped = stop_reason::max_iter;
  ballast::report report;
  bool converged() const { return stopped != stop_reason::max_iter; }
};

// The results of a batch of fits.
template <class T>
struct batch_model {
  std::int64_t count = 0;
  std::vector<T> centroids;          // count × k × n, row-major
  std::vector<std::int32_t> labels;  // count × m
  std::vector<double> inertia;       // count, as the two below
  std::vector<int> iterations;
  std::vector<stop_reason> stopped;
  ballast::report report;  // the report of all fits
};

// The results of predict.
struct prediction {
  std::vector<std::int32_t> labels;
  double inertia = 0;
  ballast::report report;
};

// The results of transform.
template <class T>
struct distances {
  matrix<T> values;  // m × k, row-major
  ballast::report report;
};

BALLAST_API model<float> fit(matrix_view<const float> points, std::int64_t clusters, const options& wanted = {},
                             const execution& where = {}, const call& now = {});
BALLAST_API model<double> fit(matrix_view<const double> points, std::int64_t clusters, const options& wanted = {},
                              const execution& where = {}, const call& now = {});
// With weights, or with given centroids.
BALLAST_API model<float> fit(const data<float>& from, std::int64_t clusters, const options& wanted = {}, const execution& where = {},
                             const call& now = {});
BALLAST_API model<double> fit(const data<double>& from, std::int64_t clusters, const options& wanted = {}, const execution& where = {},
                              const call& now = {});
BALLAST_API batch_model<float> fit(const batch_data<float>& from, std::int64_t clusters, const options& wanted = {},
                                   const execution& where = {}, const call& now = {});
BALLAST_API batch_model<double> fit(const batch_data<double>& from, std::int64_t clusters, const options& wanted = {},
                                    const execution& where = {}, const call& now = {});
BALLAST_API prediction predict(const data<float>& from, const execution& where = {}, const call& now = {});
BALLAST_API prediction predict(const data<double>& from, const execution& where = {}, const call& now = {});
BALLAST_API distances<float> transform(const data<float>& from, const execution& where = {}, const call& now = {});
BALLAST_API distances<double> transform(const data<double>& from, const execution& where = {}, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::kmeans
