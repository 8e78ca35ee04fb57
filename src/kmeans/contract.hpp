// What a backend of K-Means implements: each operation is one pass over all points of a call. The driver (driver.hpp) decides what is
// done; it sees scalars, arrays of n, k or k × n numbers and a few rows, and never loops over points.
// Layer: algorithm, backend-free. A backend owns whatever grows with m: points, labels, projections, sums of blocks.
// Letters: m points × n features, k clusters; x a point and c a centroid, both in the frame of the call.
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
#include "inject/active.hpp"
#include "kmeans/sealed.hpp"
#include "kmeans/sums.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans {

// One call of fit, predict or transform.
template <class T>
struct engine_args {
  matrix_view<const T> points;  // m × n, in host or device memory
  std::span<const T> weights;   // m, likewise; empty: all 1
  std::int64_t clusters = 0;    // k
  const run::settings& how;
  run::recorder& seen;  // every check is recorded here by the code that makes it
  inject::active_injector& injector;
  // The choice of first centroids is shown to the injector, too: distances (site kmeans.product); of k-means‖ also what is kept of the
  // candidates (kmeans.minimum, kmeans.index), the rows that were drawn (kmeans.label) and the candidates' weights (kmeans.count). For
  // tests.
  bool strike_seeding = false;
  std::string_view scheme = {};  // how a pass is computed and verified; empty: the default
};

// Coordinates near the origin: x = point · scale − shift, for points and centroids. Backends apply it while they read: no copy of the
// points is made.
template <class T>
struct frame {
  T scale = 1;           // a power of two: the largest coordinate becomes about 1, so no square overflows or vanishes
  T weight_scale = 1;    // a power of two: the largest weight comes into [1, 2)
  std::vector<T> shift;  // n: mean · scale
};

template <class T>
std::uint64_t seal_of(const frame<T>& value) {
  const T scales[] = {value.scale, value.weight_scale};
  return seal_of(scales, 2, seal_of(value.shift));
}

// The first value of an argument that has no meaning.
template <class T>
struct refused_value {
  std::int64_t row = -1;  // −1: there is none
  std::int64_t column = 0;
  T value = 0;
};

// What the frame is made from.
template <class T>
struct ranges {
  std::vector<double> low, high;  // n: of each feature
  std::vector<double> sum;        // n: Σ point · 2⁻⁶⁴, which no m < 2⁶³ makes overflow
  refused_value<T> point;         // NaN or Inf: the lowest column, and there the lowest row
  T heaviest = 1;                 // weight
  refused_value<T> weight;        // below 0, NaN or Inf: the lowest row
};

// A point that is far from its centroid.
struct far_point {
  std::int64_t row = 0;
  std::int64_t label = 0;
  double weight = 0;    // · weight_scale
  double distance = 0;  // ‖x − c‖², in double
};

// Two sums of the same numbers that share no accumulator, and no weight once it was read. The driver compares them.
struct summed_twice {
  double value = 0;
  double twin = 0;
};

// What a backend returns that runs all iterations of one run by itself.
template <class T>
struct descent {
  sealed_centroids<T> centroids;
  int iterations = 0;
  ending ended = ending::max_iter;
};

inline constexpr std::int64_t k_candidate_group = 64;  // candidates of k-means‖ that are taken at once

// The points of one call on one backend. Detected faults are repaired inside an operation (abft::attempts) and recorded in call::seen. One
// that stays makes the report uncorrectable; the result of the operation is then any number, and any label in [0, k).
// Sums have an order that depends on the problem only, so results are the same bits for any number of threads.
template <class T>
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  // ---- Survey ----

  // Reads every point and weight once. The driver verifies the ranges, and the frame that it makes of them, by measure(); a call whose
  // frame fails surveys, places and measures again.
  virtual ranges<T> survey() = 0;
  // The frame of everything below. It waits in the backend until the call ends: keep it sealed.
  virtual void place(const frame<T>& chosen) = 0;
  // Sums over the points that no iteration changes, read anew; once for each place(), but not by predict and transform without
  // protection. Two sums over the same squares must agree (kmeans.variance).
  virtual point_sums measure() = 0;

  // ---- Single points ----

  // The x of these rows: to[e · n + f] is feature f of rows[e].
  virtual void read_points(std::span<const std::int64_t> rows, T* to) = 0;
  // The rows at these places in the list of all points with a positive weight, or with weight 0. Places from 0 in order of rows.
  virtual std::vector<std::int64_t> rows_at(std::span<const std::int64_t> places, bool positive) = 0;

  // ---- Greedy k-means++ ----

  // Forgets all centroids. `trials`: the most candidates of one step; 2 + ⌊ln k⌋ < 24.
  virtual void begin_seeding(std::int64_t trials) = 0;
  // The row at which the running sum of weights exceeds `share` · Σ weight; the last of positive weight if rounding leaves none.
  virtual std::int64_t row_by_weight(double share) = 0;
  // The row at which the running sum of weight · (distance to the nearest centroid)² exceeds `target`, likewise; −1 if all are 0.
  virtual std::int64_t row_by_potential(double target) = 0;
  // The potential Σ weight · (distance to the nearest centroid)² that each of `count` candidates would leave; count × n `rows`. What is
  // kept of earlier centroids is verified (kmeans.closest).
  virtual std::vector<double> try_candidates(const T* rows, std::int64_t count) = 0;
  // Takes one more centroid and returns the potential. `candidate`: its number in the last try_candidates, whose potential it must have
  // bit for bit (kmeans.closest); −1: it was none.
  virtual double take_centroid(const T* row, std::int64_t candidate) = 0;

  // ---- k-means‖ ----

  // Forgets all candidates.
  virtual void begin_candidates() = 0;
  // Takes `count` ≤ k_candidate_group more candidates, count × n `rows`, numbered behind those before; returns Σ weight · (distance to the
  // nearest candidate)². The distance and the lowest number of the nearest candidate of each point stay in the backend (kmeans.closest).
  virtual double take_candidates(const T* rows, std::int64_t count) = 0;
  // The rows, ascending, for which random_uniform(seed, stream, row) · Σ weight · distance² < expected · weight · distance²: `expected` of
  // them on average. What is kept of the candidates is verified, and the rows are drawn twice (kmeans.closest).
  virtual std::vector<std::int64_t> draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) = 0;
  // For each candidate Σ weight over the points that it is nearest to. Each point's distance to the candidate that it has is computed again
  // (kmeans.closest), and the sums are made twice (kmeans.count).
  virtual std::vector<double> weigh_candidates() = 0;

  // ---- Lloyd ----

  // A run starts: no point has a label.
  virtual void begin_run() = 0;
  // Gives each point the label of its nearest centroid, the lowest among equals, and sums the points by label. Labels are kept, as are
  // those of the pass before, to count what changed. Whatever is made of the centroids for the pass is verified, each ‖c‖² by a second sum
  // of its own (kmeans.checksum; site kmeans.norm): the norms that distances start from are not those that row checks start from.
  virtual void pass(const sealed_centroids<T>& centroids) = 0;
  // The sums of the last pass over all points. They wait in parts; each call adds up these parts anew.
  virtual void add_sums(cluster_sums& total) = 0;
  // The total did not pass its check: verifies each part, computes those again that fail, and returns measure() for the parts as they are
  // now. `centroids`: of the last pass.
  virtual point_sums repair_sums(const sealed_centroids<T>& centroids) = 0;
  // The `count` points of positive weight farthest from the centroids of their labels, the farthest first, the lowest row among equals;
  // fewer if there are not as many. The driver asks twice.
  virtual std::vector<far_point> farthest(const sealed_centroids<T>& centroids, std::int64_t count) = 0;
  // begin_run() and all iterations of one run with every decision and check of lloyd.cpp, for a backend that needs no host between
  // iterations. Nothing: the driver runs them by the operations above, as it does without asking where somebody watches the progress.
  virtual std::optional<descent<T>> descend(const sealed_centroids<T>& first, int max_iter, const abft::guarded_threshold& tolerance) {
    static_cast<void>(first), static_cast<void>(max_iter), static_cast<void>(tolerance);
    return std::nullopt;
  }

  // ---- Results ----

  // Labels all points; returns Σ weight · ‖x − c‖² in the units of the frame, from differences in double between the points and `plain`:
  // k × n, the same centroids · scale without shift. The two distances of a point must agree (kmeans.inertia).
  virtual summed_twice label(const sealed_centroids<T>& centroids, const std::vector<T>& plain) = 0;
  // The m labels of the last pass() or label(). They are the caller's from then on.
  virtual std::vector<std::int32_t> take_labels() = 0;
  // The Euclidean distance of each point to each centroid in the units of the points, to `values`: m × k in host memory.
  virtual void distances(const sealed_centroids<T>& centroids, T* values) = 0;
};

// The engine of `backend`, which can run here.
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend);
namespace host {
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend);  // reference or cpu
}
namespace cuda {
template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what);

// The schemes beside the default, those of FT K-Means; and unsupported_error for one that means nothing with or without protection.
const std::vector<std::string_view>& schemes();
void check_scheme(std::string_view name, bool protect);
}  // namespace cuda

}  // namespace ballast::kmeans
