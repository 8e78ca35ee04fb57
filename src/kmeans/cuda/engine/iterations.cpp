// Lloyd's iterations of the engine, over lloyd.hpp: single operations for the driver, or a whole run.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

// Returns the name of a check in reports.
const char* name_of(std::uint32_t which) {
  static constexpr const char* names[] = {"kmeans.assignment", "kmeans.points", "kmeans.assignment", "kmeans.assignment",
                                          "kmeans.centroid",   "kmeans.total",  "kmeans.shift"};
  static_assert(std::size(names) == static_cast<std::size_t>(check::shift) + 1);
  return which < std::size(names) ? names[which] : "kmeans";
}
void name_event(const ballast::cuda::device_event& seen, ballast::cuda::event_log::entry& made) {
  made.site = name_of(ballast::cuda::check_of(seen.what));
  made.index = seen.index;
}

}  // namespace

template <class T>
lloyd_problem<T> cuda_engine<T>::problem() const {
  double square = 0;
  for (const block_squares& each : statistics_.squares) square += each.square;
  lloyd_problem<T> made;
  made.points = points_.normalized;
  made.k = k_;
  made.expected = static_cast<const unsigned long long*>(points_.expected.data());
  made.members = weighted() ? (statistics_.sums.empty() ? 0 : statistics_.sums[at(n_)].positive) : static_cast<std::uint64_t>(m_);
  made.spread = std::sqrt(square / static_cast<double>(m_));
  made.check = protect_;
  made.repeats = run::repeats_of(what_.how.protection);
  made.scheme = scheme_named(what_.scheme);
  made.kept = &state_;
  return made;
}

template <class T>
lloyd<T>& cuda_engine<T>::iterations() {
  if (lloyd_ != nullptr) return *lloyd_;
  lloyd_problem<T> what = problem();
  if (point_stream_.passes(part::normalized)) {
    if (what.scheme)
      throw unsupported_error(
          fmt::format("scheme: expected row_checksum for points that do not fit into the device's memory, got {}", what_.scheme));
    what.pieces = [this](core::function_ref<void(std::int64_t, const normalized_points<T>&)> use) {
      each(part::normalized, [&](const point_piece<T>& piece) { use(piece.first, piece.normalized); });
    };
  }
  lloyd_ = std::make_unique<lloyd<T>>(device_, call_, what);
  return *lloyd_;
}

template <class T>
void cuda_engine<T>::collect() {
  what_.seen.add(call_.collect(name_event));
}

template <class T>
void cuda_engine<T>::begin_run() {
  iterations().begin_run();
}

template <class T>
void cuda_engine<T>::launch_pass(const sealed_centroids<T>& centroids, bool sums, T* distances) {
  iterations().set_centroids(centroids.values(), centroids.values());
  iterations().pass(sums, distances);
  if (protect_) what_.seen.checked(at(m_));
}

template <class T>
void cuda_engine<T>::pass(const sealed_centroids<T>& centroids) {
  launch_pass(centroids, true);
  collect();
}

// Replaces the sums by sums in double on the host, in the order of rows, twice from two copies of the labels.
template <class T>
void cuda_engine<T>::sum_on_host(cluster_sums& total) {
  if (host_.rows.empty()) {
    core::vector<std::int64_t> all(at(m_));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    host_.rows.resize(at(core::checked_product(m_, n_)));
    read_points(all, host_.rows.data());
  }
  core::vector<std::int32_t> labels(at(m_));
  const auto sum = [&] {
    store_labels(labels, false);
    core::vector<double> made(at((n_ + 1) * k_), 0.0);
    for (std::int64_t i = 0; i < m_; ++i) {
      const auto label = static_cast<std::int64_t>(labels[at(i)]);
      if (label < 0 || label >= k_) continue;  // only after a fault: the invariants show it
      const double w = weight_of(i);
      for (std::int64_t f = 0; f < n_; ++f) made[at(label * n_ + f)] += w * static_cast<double>(host_.rows[at(i * n_ + f)]);
      made[at(k_ * n_ + label)] += w;
    }
    return made;
  };
  core::vector<double> made;
  if (!protect_) {
    made = sum();
  } else {
    run::attempt(what_.seen, what_.how.protection, "kmeans.sum", 0, [&](int) {
      made = sum();
      what_.seen.checked(at(k_));
      abft::finding found;
      if (sum() == made) return found;
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      return found;
    });
  }
  for (std::int64_t e = 0; e < k_ * n_; ++e) total.sums[e] = made[at(e)];
  for (std::int64_t j = 0; j < k_ && total.weights.size() != 0; ++j) total.weights[j] = made[at(k_ * n_ + j)];
}

template <class T>
void cuda_engine<T>::add_sums(cluster_sums& total) {
  total.clear();
  const bool fits = iterations().read_sums(total);
  if (host_.sums) sum_on_host(total);
  if (!protect_) return;
  const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads;
  const buffer direction = upload(projection_direction(n_)), sums = allocate(3 * 8 * blocks);
  each(part::normalized, [&](const point_piece<T>& piece) {
    launch(
        k_labelled_kernel + points_.normalized.words - 1, [&] { return names::labelled(points_.normalized.words); },
        (piece.normalized.m + k_row_threads - 1) / k_row_threads,
        labelled_arguments<T>{piece.normalized, iterations().labels() + piece.first, static_cast<const double*>(direction.data()),
                              static_cast<double*>(sums.data()) + 3 * (piece.first / k_row_threads)});
  });
  const core::vector<double> parts = download<double>(sums, 3 * blocks);
  for (std::int64_t block = 0; block < blocks; ++block) {
    total.labelled_projection += parts[at(3 * block)];
    total.labelled_weight += parts[at(3 * block + 1)];
    total.labelled_members += parts[at(3 * block + 2)];
  }
  total.label_chain = blocks + k_row_threads;
  // The exact invariants detect more than those of the driver, so their failure is passed on as a NaN, which the driver detects.
  if (!fits) total.labelled_members = std::numeric_limits<double>::quiet_NaN();
}

template <class T>
point_sums cuda_engine<T>::repair_sums(const sealed_centroids<T>& centroids) {
  point_sums made = measure();
  iterations().begin_run();
  launch_pass(centroids, true);
  collect();
  return made;
}

// Runs all iterations on the device. Returns nothing if it cannot continue; the driver then runs the iterations itself, from the first
// centroids.
template <class T>
std::optional<lloyd_result<T>> cuda_engine<T>::run_lloyd(const sealed_centroids<T>& first, int max_iter,
                                                         const abft::guarded_threshold& tolerance) {
  if (host_.sums || std::bit_cast<std::uint64_t>(tolerance.value) != std::bit_cast<std::uint64_t>(tolerance.twin)) return std::nullopt;
  lloyd<T>& runs = iterations();
  const std::uint64_t checks = runs.checks();
  runs.begin_run();
  runs.set_centroids(first.values(), first.values());
  lloyd_result<T> made;
  core::vector<T> values;
  stretch seen;
  int failures = 0;
  check failed{};
  const auto record = [&](action done) {
    what_.seen.detected(name_of(static_cast<std::uint32_t>(failed)), -1, std::numeric_limits<double>::quiet_NaN(), 0, done, 0);
  };
  for (;;) {
    seen = runs.run(max_iter - made.iterations, tolerance);
    collect();
    made.iterations = seen.lost ? 0 : made.iterations + seen.iterations;
    const bool fails = seen.reason == device_stop::failure;
    if (failures > 0 && (seen.iterations > 0 || !fails)) {
      record(action::recomputed);
      failures = 0;
    }
    failed = seen.failed;
    if (!fails || stop()) break;
    if (failures == run::repeats_of(what_.how.protection)) {
      record(action::uncorrectable);
      break;
    }
    ++failures;
    // Continue from the last good centroids, or if they are not known from the first. There are no previous labels then; if an iteration
    // changes none, its shift of 0 stops the run.
    if (seen.lost) {
      values = first.values();
    } else if (!runs.read_centroids(values)) {
      return std::nullopt;
    }
    runs.begin_run(seen.lost);
    runs.set_centroids(values, values);
  }
  if (protect_) what_.seen.checked(runs.checks() - checks);
  if (seen.reason == device_stop::empty_cluster) return std::nullopt;
  if (!runs.read_centroids(values) && !stop()) return std::nullopt;
  made.centroids = sealed_centroids<T>(std::move(values));
  made.stopped = seen.reason == device_stop::labels_unchanged ? stop_reason::labels_unchanged
                 : seen.reason == device_stop::tolerance      ? stop_reason::tolerance
                                                              : stop_reason::max_iter;
  return made;
}

template lloyd_problem<float> cuda_engine<float>::problem() const;
template lloyd<float>& cuda_engine<float>::iterations();
template void cuda_engine<float>::launch_pass(const sealed_centroids<float>&, bool, float*);
template void cuda_engine<float>::collect();
template void cuda_engine<float>::begin_run();
template void cuda_engine<float>::pass(const sealed_centroids<float>&);
template void cuda_engine<float>::sum_on_host(cluster_sums&);
template void cuda_engine<float>::add_sums(cluster_sums&);
template point_sums cuda_engine<float>::repair_sums(const sealed_centroids<float>&);
template std::optional<lloyd_result<float>> cuda_engine<float>::run_lloyd(const sealed_centroids<float>&, int,
                                                                          const abft::guarded_threshold&);
template lloyd_problem<double> cuda_engine<double>::problem() const;
template lloyd<double>& cuda_engine<double>::iterations();
template void cuda_engine<double>::launch_pass(const sealed_centroids<double>&, bool, double*);
template void cuda_engine<double>::collect();
template void cuda_engine<double>::begin_run();
template void cuda_engine<double>::pass(const sealed_centroids<double>&);
template void cuda_engine<double>::sum_on_host(cluster_sums&);
template void cuda_engine<double>::add_sums(cluster_sums&);
template point_sums cuda_engine<double>::repair_sums(const sealed_centroids<double>&);
template std::optional<lloyd_result<double>> cuda_engine<double>::run_lloyd(const sealed_centroids<double>&, int,
                                                                            const abft::guarded_threshold&);

}  // namespace ballast::kmeans::cuda
