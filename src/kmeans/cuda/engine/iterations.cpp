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
                                          "kmeans.centroid",   "kmeans.total",  "kmeans.shift",      "group.sum"};
  static_assert(std::size(names) == static_cast<std::size_t>(check::join) + 1);
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
  made.members = weighted() ? (statistics_.sums.empty() ? 0 : statistics_.sums[at(n_)].positive) : static_cast<std::uint64_t>(all_);
  made.all = all_;
  made.spread = std::sqrt(square / static_cast<double>(all_));
  made.check = checks();
  made.repeats = run::repeats_of(what_.how.protection);
  made.scheme = scheme_named(what_.scheme);
  made.kept = &state_;
  made.lane = &*lane_;
  return made;
}

template <class T>
lloyd<T>& cuda_engine<T>::iterations() {
  std::unique_ptr<lloyd<T>>& known = bare_ ? bare_lloyd_ : lloyd_;
  if (known != nullptr) return *known;
  lloyd_problem<T> what = problem();
  if (point_stream_.passes(part::normalized)) {
    if (what.scheme)
      throw unsupported_error(
          fmt::format("scheme: expected row_checksum for points that do not fit into the device's memory, got {}", what_.scheme));
    what.pieces = [this](core::function_ref<void(std::int64_t, const normalized_points<T>&)> use) {
      each(part::normalized, [&](const point_piece<T>& piece) { use(piece.first, piece.normalized); });
    };
  }
  if (ranks_) {
    device_join& with = what.join.emplace();
    with.over = what_.rows->over;
    with.meeting = what_.rows->meeting;
    with.link = what_.rows->link;
    with.kept = what_.rows->kept;
    with.states = [this](std::uint64_t own) { return ranks_.add(joined::stretch, {}, own); };
  }
  known = std::make_unique<lloyd<T>>(device_, call_, what);
  return *known;
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
  if (checks()) what_.seen.checked(at(m_));
}

template <class T>
void cuda_engine<T>::pass(const sealed_centroids<T>& centroids) {
  if (ranks_) return join_pass(centroids);
  launch_pass(centroids, true);
  collect();
}

// The sums of the clusters and of their weights in double on the host, in the order of rows, twice from two copies of the labels. They
// begin with `before`, those of the devices before this one.
template <class T>
core::vector<double> cuda_engine<T>::host_sums(core::vector<double> before) {
  if (host_.rows.empty()) {
    core::vector<std::int64_t> all(at(m_));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    host_.rows.resize(at(core::checked_product(m_, n_)));
    read_own_points(all, host_.rows.data());
  }
  core::vector<std::int32_t> labels(at(m_));
  const auto sum = [&] {
    store_labels(labels, false);
    core::vector<double> made = before;
    for (std::int64_t i = 0; i < m_; ++i) {
      const auto label = static_cast<std::int64_t>(labels[at(i)]);
      if (label < 0 || label >= k_) continue;  // only after a fault: the invariants show it
      const double w = weight_of(i);
      for (std::int64_t f = 0; f < n_; ++f) made[at(label * n_ + f)] += w * static_cast<double>(host_.rows[at(i * n_ + f)]);
      made[at(k_ * n_ + label)] += w;
    }
    return made;
  };
  if (!protect_) return sum();
  core::vector<double> made;
  run::attempt(what_.seen, what_.how.protection, "kmeans.sum", 0, [&](int) {
    made = sum();
    what_.seen.checked(at(k_));
    abft::finding found;
    if (sum() == made) return found;
    found.word = abft::k_fail;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    return found;
  });
  return made;
}

template <class T>
void cuda_engine<T>::set_host_sums(const core::vector<double>& from, cluster_sums& total) const {
  for (std::int64_t e = 0; e < k_ * n_; ++e) total.sums[e] = from[at(e)];
  for (std::int64_t j = 0; j < k_ && total.weights.size() != 0; ++j) total.weights[j] = from[at(k_ * n_ + j)];
}

// The other side of the second invariant, from the labels: three sums by block.
template <class T>
core::vector<double> cuda_engine<T>::labelled_blocks() {
  const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads;
  const buffer direction = upload(projection_direction(n_)), sums = allocate(3 * 8 * blocks);
  each(part::normalized, [&](const point_piece<T>& piece) {
    launch(
        k_labelled_kernel + points_.normalized.words - 1, [&] { return names::labelled(points_.normalized.words); },
        (piece.normalized.m + k_row_threads - 1) / k_row_threads,
        labelled_arguments<T>{piece.normalized, iterations().labels() + piece.first, static_cast<const double*>(direction.data()),
                              static_cast<double*>(sums.data()) + 3 * (piece.first / k_row_threads)});
  });
  return download<double>(sums, 3 * blocks);
}

// Adds the blocks of labelled_blocks to the sums. `fits`: whether the exact invariants hold. They detect more than those of the driver, so
// their failure is passed on as a NaN, which the driver detects.
inline void add_labelled(std::span<const double> parts, bool fits, cluster_sums& total) {
  const auto blocks = static_cast<std::int64_t>(parts.size()) / 3;
  for (std::int64_t block = 0; block < blocks; ++block) {
    total.labelled_projection += parts[at(3 * block)];
    total.labelled_weight += parts[at(3 * block + 1)];
    total.labelled_members += parts[at(3 * block + 2)];
  }
  total.label_chain = blocks + k_row_threads;
  if (!fits) total.labelled_members = std::numeric_limits<double>::quiet_NaN();
}

template <class T>
void cuda_engine<T>::add_sums(cluster_sums& total) {
  total.clear();
  if (ranks_) {
    const bool fits = convert_joined(total);
    if (host_.sums) set_host_sums(joined_.host, total);
    if (checks()) add_labelled(joined_.labelled, fits, total);
    return;
  }
  const bool fits = iterations().read_sums(total);
  if (host_.sums) set_host_sums(host_sums(core::vector<double>(at((n_ + 1) * k_), 0.0)), total);
  if (checks()) add_labelled(labelled_blocks(), fits, total);
}

template <class T>
point_sums cuda_engine<T>::repair_sums(const sealed_centroids<T>& centroids) {
  if (ranks_) return joined_.sums;  // each device verified its own before they were added, and their copies are sealed
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
  const bool alike = std::bit_cast<std::uint64_t>(tolerance.value) == std::bit_cast<std::uint64_t>(tolerance.twin);
  // All devices go the same way.
  const auto everywhere = [&](joined what, bool own, std::uint64_t seal) { return ranks_ ? ranks_.everywhere(what, own, seal) : own; };
  if (!everywhere(joined::start, !host_.sums && alike, first.seal())) return std::nullopt;
  lloyd<T>& runs = iterations();
  const std::uint64_t before = runs.checks();
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
    if (seen.logged) collect();
    if (ranks_) settle();
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
    } else {
      const bool read = runs.read_centroids(values);
      if (!everywhere(joined::end, read, 0)) return std::nullopt;
    }
    runs.begin_run(seen.lost);
    runs.set_centroids(values, values);
  }
  if (checks()) what_.seen.checked(runs.checks() - before);
  if (seen.reason == device_stop::empty_cluster) return std::nullopt;
  const bool read = runs.read_centroids(values);
  if (!everywhere(joined::end, read, protect_ ? seal_of(values) : 0) && !stop()) return std::nullopt;
  made.centroids = sealed_centroids<T>(std::move(values));
  if (bare_) {
    (void)runs.read_centroids(values, true);
    made.before = sealed_centroids<T>(std::move(values));
  }
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
template core::vector<double> cuda_engine<float>::host_sums(core::vector<double>);
template core::vector<double> cuda_engine<float>::labelled_blocks();
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
template core::vector<double> cuda_engine<double>::host_sums(core::vector<double>);
template core::vector<double> cuda_engine<double>::labelled_blocks();
template void cuda_engine<double>::add_sums(cluster_sums&);
template point_sums cuda_engine<double>::repair_sums(const sealed_centroids<double>&);
template std::optional<lloyd_result<double>> cuda_engine<double>::run_lloyd(const sealed_centroids<double>&, int,
                                                                            const abft::guarded_threshold&);

}  // namespace ballast::kmeans::cuda
