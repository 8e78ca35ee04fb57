// The interface that a backend of K-Means implements: each operation is one pass over all points of a call. The driver (driver/driver.hpp)
// decides which operations run; it sees scalars, arrays of n, k or k × n numbers and a few rows, and never loops over points.
// Layer: algorithm, backend-free. A backend owns all data that grow with m: points, labels, projections, sums of blocks.
// Letters: m points × n features, k clusters; x a point and c a centroid, both normalized (struct normalization).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/view.hpp>

#include "abft/verify.hpp"
#include "core/memory.hpp"
#include "inject/active.hpp"
#include "kmeans/half_points.hpp"
#include "kmeans/rows.hpp"
#include "kmeans/sealed.hpp"
#include "kmeans/sparse_rows.hpp"
#include "kmeans/sums.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans {

// The state of a backend that a plan keeps from one call to the next: loaded kernels, idle memory. Thread-safe.
class plan_state {
 public:
  plan_state() = default;
  plan_state(const plan_state&) = delete;
  plan_state& operator=(const plan_state&) = delete;
  virtual ~plan_state() = default;
  // Returns the bytes of device memory for call::workspace.
  virtual std::int64_t workspace_bytes() const = 0;
};

// One call of fit, predict or transform.
template <class T>
struct engine_args {
  matrix_view<const T> points;  // m × n, in host or device memory
  std::span<const T> weights;   // m, likewise; empty: all 1
  std::int64_t clusters = 0;    // k
  const run::settings& how;
  run::recorder& seen;  // every check is recorded here by the code that computes it
  inject::active_injector& injector;
  // True: the injector also sees the choice of first centroids: distances (site kmeans.product); of k-means‖ also the kept distances and
  // numbers of the candidates (kmeans.minimum, kmeans.index), the rows that were drawn (kmeans.label) and the candidates' weights
  // (kmeans.count). For tests.
  bool strike_seeding = false;
  std::string_view scheme = {};  // how a pass is computed and verified; empty: the default
  plan_state* kept = nullptr;    // the plan's state of this backend; null: the engine has its own
  // The rows of a rank of a group; null: the call has no group. Host backends read them in place of points and weights; for cuda these are
  // the rank's rows, its only part.
  const rank_rows<T>* rows = nullptr;
  sparse_rows<T> sparse = {};  // present: the points; `points` has their shape alone
  half_points half = {};       // likewise; T is float
  // True: the engine divides the points by their norms before all else, and copies those with NaN or Inf (cuda, if makes_unit_rows()).
  bool unit_rows = false;
};

// The normalization x = point · scale − shift of points and centroids, which moves them near the origin. Backends apply it while they read.
template <class T>
struct normalization {
  T scale = 1;            // a power of two: the largest coordinate becomes about 1, so no square overflows or vanishes
  T weight_scale = 1;     // a power of two: the largest weight becomes a number in [1, 2)
  core::vector<T> shift;  // n: mean · scale
};

template <class T>
std::uint64_t seal_of(const normalization<T>& value) {
  const T scales[] = {value.scale, value.weight_scale};
  return seal_of(scales, 2, seal_of(value.shift));
}

// The first invalid value of an argument.
template <class T>
struct refused_value {
  std::int64_t row = -1;  // −1: there is none
  std::int64_t column = 0;
  T value = 0;
};

// The column statistics from which the normalization is chosen.
template <class T>
struct ranges {
  core::vector<double> low, high;  // n: of each feature
  core::vector<double> sum;        // n: Σ point · 2⁻⁶⁴, which no m < 2⁶³ makes overflow
  core::vector<double> exponent;   // n: mean ⌊log₂|point|⌋ of the points other than 0; empty: not measured
  refused_value<T> point;          // NaN or Inf: the lowest column, and there the lowest row
  T heaviest = 1;                  // weight
  refused_value<T> weight;         // below 0, NaN or Inf: the lowest row
  std::int64_t zero_row = -1;      // engine_args::unit_rows: the lowest row of zeros; −1: there is none
};

// A point that is far from its centroid.
struct far_point {
  std::int64_t row = 0;
  std::int64_t label = 0;
  double weight = 0;    // multiplied by weight_scale
  double distance = 0;  // ‖x − c‖², in double
};

// Two sums of the same non-negative numbers that share no accumulator, and no weight once it was read. The driver compares them. `depth`:
// see abft::reordered_sum_limit. The sums are value · 2^exponent and twin · 2^exponent.
struct summed_twice {
  double value = 0;
  double twin = 0;
  double depth = 0;
  int exponent = 0;
};

// The result of the iterations of one run.
template <class T>
struct lloyd_result {
  sealed_centroids<T> centroids;
  int iterations = 0;
  stop_reason stopped = stop_reason::max_iter;
  sealed_centroids<T> before;  // those that the last iteration began with; only of bare passes
};

inline constexpr std::int64_t k_candidate_group = 64;  // the most candidates of k-means‖ in one call of take_candidates

// The points of one call on one backend. Detected faults are repaired inside an operation (abft::attempts) and recorded in
// engine_args::seen. A fault that persists makes the report uncorrectable; the result of the operation is then any number, and any label in
// [0, k). Sums have an order that depends on the problem only, so results are the same bits for any number of threads.
template <class T>
class engine : public core::pooled {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  // ---- Ranks of a group: every rank runs the driver, with the same numbers, and its backend joins those of all ranks ----

  // Returns whether a fault on any rank is uncorrectable, as far as all ranks know it alike.
  virtual bool failed() const { return false; }
  // Makes that known to all ranks. The driver asks for it before it stores results.
  virtual void settle() {}
  // Returns the finding of all ranks from that of this one: it fails if one of them does. The driver asks where the repetition of an
  // attempt exchanges data.
  virtual abft::finding agreed(const abft::finding& own) { return own; }

  // ---- Normalization ----

  // Called before all others by predict and transform: the points are used once, so a backend need not prepare them. Only column_stats,
  // normalize, measure, and label and store_labels, or distances (`labels` is false), follow.
  virtual void serve_only(bool labels) { static_cast<void>(labels); }
  // Reads every point and weight once. The driver verifies the ranges, and the normalization that it chooses from them, by measure(); if
  // the normalization fails its check, the call measures the columns, normalizes and measures the sums again.
  virtual ranges<T> column_stats() = 0;
  // Sets the normalization of everything below. The backend stores it until the call ends, sealed.
  virtual void normalize(const normalization<T>& chosen) = 0;
  // Returns the sums over the points that no iteration changes, from points that are read again. Called once for each normalize(), but not
  // by predict and transform without protection. Two sums over the same squares must agree (kmeans.variance).
  virtual point_sums measure() = 0;

  // ---- Single points ----

  // Reads the x of these rows: to[e · n + f] is feature f of rows[e].
  virtual void read_points(std::span<const std::int64_t> rows, T* to) = 0;
  // Returns the rows at these positions in the list of all points with a positive weight, or with weight 0. Positions count from 0 in order
  // of rows.
  virtual core::vector<std::int64_t> rows_at(std::span<const std::int64_t> positions, bool positive) = 0;

  // ---- Greedy k-means++ ----

  // Forgets all centroids. `trials`: the most candidates of one step; 2 + ⌊ln k⌋ < 24.
  virtual void begin_seeding(std::int64_t trials) = 0;
  // Returns the row at which the running sum of weights exceeds `share` · Σ weight; the last of positive weight if rounding leaves none.
  virtual std::int64_t row_by_weight(double share) = 0;
  // The same for the running sum of weight · (distance to the nearest centroid)² and `target`; −1 if all are 0.
  virtual std::int64_t row_by_potential(double target) = 0;
  // row_by_potential of each target.
  virtual core::vector<std::int64_t> rows_by_potential(std::span<const double> targets) {
    core::vector<std::int64_t> made;
    for (const double each : targets) made.push_back(row_by_potential(each));
    return made;
  }
  // Returns the potential Σ weight · (distance to the nearest centroid)² that each of `count` candidates would leave; count × n `rows`. The
  // stored distances to earlier centroids are verified (kmeans.closest).
  virtual core::vector<double> try_candidates(const T* rows, std::int64_t count) = 0;
  // Takes one more centroid and returns the potential. `candidate`: its number in the last try_candidates, whose potential it must have
  // bit for bit (kmeans.closest); −1: it was no candidate.
  virtual double take_centroid(const T* row, std::int64_t candidate) = 0;

  // ---- k-means‖ ----

  // Forgets all candidates.
  virtual void begin_candidates() = 0;
  // Takes `count` ≤ k_candidate_group more candidates, count × n `rows`, with the next numbers; returns Σ weight · (distance to the nearest
  // candidate)². The distance and the lowest number of the nearest candidate of each point stay in the backend (kmeans.closest).
  virtual double take_candidates(const T* rows, std::int64_t count) = 0;
  // Returns the rows, ascending, for which random_uniform(seed, stream, row) · Σ weight · distance² < expected · weight · distance²:
  // `expected` of them on average. The stored distances are verified, and the rows are drawn twice (kmeans.closest).
  virtual core::vector<std::int64_t> draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) = 0;
  // Returns for each candidate Σ weight over the points that it is nearest to. The distance of each point to its candidate is computed
  // again (kmeans.closest), and the sums are computed twice (kmeans.count).
  virtual core::vector<double> weigh_candidates() = 0;

  // ---- Lloyd ----

  // For protection::final_only. `bare`: from now on passes, add_sums and run_lloyd are computed as without protection. A change ends the
  // run. Never called on a group.
  virtual void set_bare(bool bare) { static_cast<void>(bare); }
  // Starts a run: no point has a label.
  virtual void begin_run() = 0;
  // Gives each point the label of its nearest centroid, the lowest among equals, and sums the points by label. Labels are kept, as are
  // those of the pass before, to count the changes. The packed centroids are verified, each ‖c‖² by a second sum of its own
  // (kmeans.checksum; site kmeans.norm): distances and row checks start from different norms.
  virtual void pass(const sealed_centroids<T>& centroids) = 0;
  // Adds up the sums of the last pass over all points. They are stored in parts; each call adds these parts again.
  virtual void add_sums(cluster_sums& total) = 0;
  // Called if the total fails its check: verifies each part, computes again those that fail, and returns measure() for the parts as they
  // are then. `centroids`: of the last pass.
  virtual point_sums repair_sums(const sealed_centroids<T>& centroids) = 0;
  // Returns the `count` points of positive weight farthest from the centroids of their labels, the farthest first, the lowest row among
  // equals; fewer if there are not as many. The driver calls it twice and compares.
  virtual core::vector<far_point> farthest(const sealed_centroids<T>& centroids, std::int64_t count) = 0;
  // Does begin_run() and all iterations of one run, with every decision and check of driver/lloyd.cpp, if the backend needs no host between
  // iterations. Returns nothing if it cannot: the driver then runs them by the operations above, as it always does for calls with
  // on_progress.
  virtual std::optional<lloyd_result<T>> run_lloyd(const sealed_centroids<T>& first, int max_iter,
                                                   const abft::guarded_threshold& tolerance) {
    static_cast<void>(first), static_cast<void>(max_iter), static_cast<void>(tolerance);
    return std::nullopt;
  }

  // ---- Results ----

  // Labels all points; returns Σ weight · ‖x − c‖² in the units of the normalization, from differences in double between the points and
  // `plain`: k × n, the same centroids · scale without shift. The two distances of a point must agree (kmeans.inertia).
  virtual summed_twice label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) = 0;
  // Keeps the labels of the last label(), while other runs follow.
  virtual void keep_labels() = 0;
  // Returns whether the kept labels are still those that keep_labels() kept; true if the backend cannot tell. The driver asks before it
  // stores them.
  virtual bool kept_labels_fit() { return true; }
  // Copies the labels of the last label(), or those that were kept, to `to`: m numbers in host memory; for cuda also in device memory.
  virtual void store_labels(std::span<std::int32_t> to, bool kept) = 0;
  // Computes the Euclidean distance of each point to each centroid in the units of the points: m × k, to memory as above. `plain`: see
  // label(); `given`: the centroids in the units of the points. Under protection::correct a block of rows whose distances stay wrong is not
  // stored.
  virtual void distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                         const matrix_view<T>& values) = 0;
};

// Makes the engine of `backend`, which can run here.
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& args, ballast::backend backend);
namespace host {
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& args, ballast::backend backend);  // reference or cpu
}
namespace ranks {
// For engine_args::rows on the host: the host backend on each part, and sums over all ranks.
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& args, ballast::backend backend);
}  // namespace ranks
namespace cuda {
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& args);
// For engine_args::sparse.
template <class T>
std::unique_ptr<engine<T>> make_sparse_engine(const engine_args<T>& args);
// Returns whether the engine can divide these points by their norms (engine_args::unit_rows): all of them stay on the current device, with
// their copies. `half`: the points, if present.
template <class T>
bool makes_unit_rows(matrix_view<const T> points, const half_points& half, bool weighted, std::int64_t clusters);
// The points of devices of a group are divided at multiples of these rows.
std::int64_t rows_of_segment_of(std::int64_t points);
inline constexpr std::size_t k_most_devices = 32;  // devices of one process
// Makes the state of a plan on the current device. `enqueued`: bytes of device memory of enqueued fits (batch.hpp); 0: there are none.
std::shared_ptr<plan_state> make_plan_state(std::int64_t enqueued);

// schemes: returns the schemes beside the default, those of FT K-Means. check_scheme: throws unsupported_error if a scheme is not meant for
// calls with or without protection.
const std::vector<std::string_view>& schemes();
void check_scheme(std::string_view name, bool protect);
}  // namespace cuda

}  // namespace ballast::kmeans
