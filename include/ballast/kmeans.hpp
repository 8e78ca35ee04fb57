// Protected K-Means clustering: Lloyd's algorithm with k-means++.
// Layer: interface; implemented in src/kmeans.
// Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024; D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; B. Bahmani, B. Moseley,
// A. Vattani, R. Kumar, S. Vassilvitskii, Scalable K-Means++, VLDB 2012; docs/protection.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::kmeans {

// How the first centroids are chosen. kmeans_plus_plus: greedy k-means++, 2 + ⌊ln k⌋ candidates a step. random: k different points.
// given: options::centroids. kmeans_parallel: k-means‖, which draws about oversampling · k points a round, so that a large k needs few
// passes over the points; of the candidates, each with the weight of the points nearest to it, k are chosen by greedy k-means++.
enum class init : std::uint8_t { kmeans_plus_plus, random, given, kmeans_parallel };

BALLAST_API std::string_view to_string(init value) noexcept;  // "k-means++", "random", "given", "k-means||"

// Points, weights and centroids may lie in host memory or in memory of the current CUDA device (or managed memory). The backends that
// compute on the host copy what lies on the device there first, each operand once, ordered on execution::stream. Results are in host
// memory, and every call returns when they are complete.

// T is float or double. Letters: m points × n features, k clusters.
template <class T>
struct options {
  std::int64_t clusters = 8;  // k, 1 ≤ k ≤ m
  kmeans::init init = kmeans::init::kmeans_plus_plus;
  matrix_view<const T> centroids = {};  // k × n, read only with init::given
  std::span<const T> weights = {};      // m weights ≥ 0, not all zero; empty: all 1
  int n_init = 1;                       // runs from different first centroids; the one with the least inertia wins
  int max_iter = 300;                   // Lloyd iterations of one run, ≥ 1
  double tol = 1e-4;       // stop when Σ‖centroid shift‖² ≤ tol · mean of the features' variances (scikit-learn's tol)
  std::uint64_t seed = 0;  // the same seed gives the same result, whatever the number of threads
  // Of k-means‖: candidates that a round draws on average, in multiples of k, > 0; and rounds, ≥ 1. There are more rounds only where these
  // have not found k candidates.
  double oversampling = 2;
  int rounds = 5;
};

// What ended a run: no label changed in its last iteration; the centroids' shift came within the tolerance; or it was the last one allowed.
enum class ending : std::uint8_t { labels_unchanged, tolerance, max_iter };

BALLAST_API std::string_view to_string(ending value) noexcept;  // "labels unchanged", "tolerance", "max_iter"

template <class T>
struct model {
  matrix<T> centroids;               // k × n, row-major
  std::vector<std::int32_t> labels;  // m values in [0, k): the nearest centroid, the lowest index among equals
  double inertia = 0;                // Σ_i weight_i ‖x_i − centroid(label_i)‖², from differences, accumulated in double
  int iterations = 0;                // of the winning run
  ending ended = ending::max_iter;   // likewise
  ballast::report report;
  bool converged() const { return ended != ending::max_iter; }
};

struct prediction {
  std::vector<std::int32_t> labels;
  double inertia = 0;  // as in model
  ballast::report report;
};

template <class T>
struct distances {
  matrix<T> values;  // m × k Euclidean distances (not squared), row-major
  ballast::report report;
};

// Minimises inertia. `points` is m × n with any strides. Clusters that lose all their points get the point farthest from its
// centroid; where none is away from its centroid by more than rounding (fewer different points than clusters), they take the place of the
// heaviest cluster and stay empty. execution::on_progress is called after each iteration, progress::value being the inertia of the
// iteration's labels with the centroids that they were found for. Throws invalid_argument_error (k, shapes, NaN or Inf in points, weights
// or centroids), uncorrectable_error. One iteration costs 2mnk + 4mn flops and reads the points once; memory beyond the arguments: O(m + kn
// + threads) on CPUs; on CUDA also two copies of the points, one with rows padded to 64 bytes; points of the host for
// which the device has too little memory pass through it in pieces, with the same result. Covered: distances, choice of the minimum, label,
// sums and counts, centroids, the decision to stop. Not covered: `points` and `weights` in memory before they are read, except that the
// first and later reads must agree in their sums. Schemes: "row_checksum" (default). Only on cuda, and not for transform, those that FT
// K-Means compares: without protection "naive", "gemm", "fused", "broadcast", "tensor"; with it "warp_checksum", "detect_recompute",
// "threadblock_checksum", which do not cover minimum and label (docs/protection.md); and "dmr", the whole fit by two blocks, as for
// batches. Labels of "tensor" and of the last three are exact in f64; in f32 they are those of TF32 products.
BALLAST_API model<float> fit(matrix_view<const float> points, const options<float>& wanted, const execution& how = {});
BALLAST_API model<double> fit(matrix_view<const double> points, const options<double>& wanted, const execution& how = {});

// Fits of many data sets of one shape, count × m × n. Fit b is fit() of points[b] with the seed `seed` + b, the weights m · b and behind,
// and rows k · b … of the given centroids: `weights` has count · m elements, `centroids` count · k rows. A stride of 0 between data sets is
// allowed: restarts of one. On CUDA the fits that a block of threads can hold (scheme "dmr", the default where it can: m·n·k ≤ 2²⁴,
// k·n within its shared memory, no k-means‖) are computed side by side in one launch, each by two blocks, whose results must agree to the
// bit; larger ones, and those of other backends and schemes, as by fit(). Results agree with those of fit() to rounding. event::index is
// the fit where a check has no row of points. execution::on_progress is not called. Throws what fit() throws; the message names the fit.
// Source: dual modular redundancy.
template <class T>
struct batch_model {
  std::int64_t count = 0;
  std::vector<T> centroids;          // count × k × n, row-major
  std::vector<std::int32_t> labels;  // count × m
  std::vector<double> inertia;       // count, as the two below
  std::vector<int> iterations;
  std::vector<ending> ended;
  ballast::report report;  // of all fits
};

BALLAST_API batch_model<float> fit(matrix_batch_view<const float> points, const options<float>& wanted, const execution& how = {});
BALLAST_API batch_model<double> fit(matrix_batch_view<const double> points, const options<double>& wanted, const execution& how = {});

// The nearest of the given k × n centroids for each point.
BALLAST_API prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, const execution& how = {});
BALLAST_API prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, const execution& how = {});
// With weights as in options, which count in the inertia only.
BALLAST_API prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, std::span<const float> weights,
                               const execution& how = {});
BALLAST_API prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, std::span<const double> weights,
                               const execution& how = {});

// The distance of each point to each centroid.
BALLAST_API distances<float> transform(matrix_view<const float> points, matrix_view<const float> centroids, const execution& how = {});
BALLAST_API distances<double> transform(matrix_view<const double> points, matrix_view<const double> centroids, const execution& how = {});

// The one-line name of a problem: kmeans_f32_m131072_n128_k128, or kmeans_f32_m1000_n16_k8_b500 for a batch of 500.
struct problem {
  ballast::precision precision = ballast::precision::f32;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 0;  // 0: no batch
};
BALLAST_API std::string to_token(const problem& value);
BALLAST_API problem parse_token(std::string_view text);  // invalid_argument_error if it is not one

}  // namespace ballast::kmeans
