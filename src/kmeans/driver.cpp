// One call of K-Means: fit, predict, transform. See driver.hpp.
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.hpp"

namespace ballast::kmeans {

template <class T>
engine<T>::engine(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const execution& how, std::string token,
                  ballast::backend backend, std::string_view scheme)
    : points_(points),
      m_(points.rows),
      n_(points.columns),
      k_(clusters),
      how_(how),
      token_(std::move(token)),
      threads_(core::thread_count(how.threads)),
      protect_(how.protection != protection::off),
      kernels_(backend == ballast::backend::reference ? reference_kernels<T>() : cpu_kernels<T>()),
      injector_(how.faults, "kmeans"),
      recorder_(token_, backend, std::string(scheme), how, injector_) {
  if (backend == ballast::backend::reference) threads_ = 1;
  source_.points = points;
  source_.weights = weights;
  // A block of points, transposed, stays in the second-level cache with room for centroids. Independent of threads and backend.
  constexpr std::int64_t block_bytes = 96 * 1024;
  capacity_ = std::clamp<std::int64_t>(block_bytes / (static_cast<std::int64_t>(sizeof(T)) * n_) / 64 * 64, 64, 512);
  blocks_ = (m_ + capacity_ - 1) / capacity_;
  // Each group has its own k × n sums: enough groups to occupy the threads, few enough that adding them up costs little beside the points.
  groups_ = std::min(blocks_, std::clamp<std::int64_t>(m_ / (4 * k_), 8, 64));
}

template <class T>
model<T> engine<T>::fit(const options<T>& wanted) {
  survey(wanted.init == init::given ? wanted.centroids : matrix_view<const T>{});
  const double tolerance = wanted.tol * variance();
  const int runs = wanted.init == init::given ? 1 : wanted.n_init;
  outcome best;
  for (int run = 0; run < runs && !(run > 0 && stop()); ++run) {
    outcome made = lloyd(seed(wanted, static_cast<std::uint64_t>(run)), wanted, tolerance);
    if (run == 0 || made.inertia < best.inertia) best = std::move(made);
  }
  model<T> result;
  result.report = recorder_.finish();
  result.centroids = matrix<T>(k_, n_);
  std::ranges::copy(best.centroids, result.centroids.data());
  result.labels = std::move(best.labels);
  result.inertia = best.inertia;
  result.iterations = best.iterations;
  result.converged = best.converged;
  return result;
}

template <class T>
prediction engine<T>::predict(matrix_view<const T> centroids) {
  survey(centroids);
  std::vector<T> rows(at(core::checked_product(k_, n_)));
  for (std::int64_t j = 0; j < k_; ++j)
    for (std::int64_t f = 0; f < n_; ++f) rows[at(j * n_ + f)] = centroids(j, f);
  prediction made;
  made.labels.resize(at(m_));
  made.inertia = label_all(rows, made.labels);
  made.report = recorder_.finish();
  return made;
}

template <class T>
distances<T> engine<T>::transform(matrix_view<const T> centroids) {
  survey(centroids);
  prepare_workers(true);
  sealed_centroids<T> sealed(to_scaled(centroids));
  panel<T> shared;
  make_verified_panel(sealed, shared);
  distances<T> made;
  made.values = matrix<T>(m_, k_);
  const double unscale = 1 / static_cast<double>(source_.scale);
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    for (std::int64_t g = 0; g < shared.groups && !stop(); ++g) {
      distances_block(here, slot, block, shared, sealed.values().data(), g, true);
      const tile<T>& b = here.block;
      const std::int64_t last = std::min((g + 1) * k_group, k_);
      for (std::int64_t p = 0; p < b.count; ++p) {
        T* row = made.values.data() + (b.first + p) * k_;
        for (std::int64_t j = g * k_group; j < last; ++j)
          row[j] = static_cast<T>(std::sqrt(static_cast<double>(b.distance[(j - g * k_group) * capacity_ + p])) * unscale);
      }
    }
  });
  made.report = recorder_.finish();
  return made;
}

// The members that are defined in this file; the other files instantiate theirs.
template class engine<float>;
template class engine<double>;

}  // namespace ballast::kmeans
