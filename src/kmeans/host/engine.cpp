// Division of a problem into blocks and groups, and the choice of kernels.
// Layer: backend "host" (engine.hpp).
#include "kmeans/host/engine.hpp"

#include <algorithm>

#include <ballast/error.hpp>

#include "core/parallel.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::host {

template <class T>
host_engine<T>::host_engine(const engine_args<T>& what, const kernels<T>& kernels, int threads)
    : what_(what),
      kernels_(kernels),
      m_(what.points.rows),
      n_(what.points.columns),
      k_(what.clusters),
      threads_(threads),
      protect_(what.how.protection != protection::off),
      staging_(what.how.stream),
      quiet_(nullptr, site::table()) {
  source_.points = staging_.read(what.points);
  source_.weights = staging_.read(what.weights);
  // A transposed block of points stays in the second-level cache, with room for centroids. Its size is independent of threads and kernels.
  constexpr std::int64_t block_bytes = 96 * 1024;
  division_.capacity = std::clamp<std::int64_t>(block_bytes / (static_cast<std::int64_t>(sizeof(T)) * n_) / 64 * 64, 64, 512);
  division_.blocks = (m_ + division_.capacity - 1) / division_.capacity;
  // Each group has its own k × n sums. There are enough groups to occupy the threads, but few enough that adding their sums costs little.
  division_.groups = std::min(division_.blocks, std::clamp<std::int64_t>(m_ / (4 * k_), 8, 64));
  // Allocated here, so that the memory of a call does not depend on which threads run.
  rows_.resize(at(threads_));
  for (row_scratch& each : rows_) {
    each.row.resize(at(n_));
    each.sums.resize(at(n_));
    each.weighted_sums.resize(weighted() ? at(n_) : 0);
  }
}

template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend) {
  if (backend == ballast::backend::reference) return std::make_unique<host_engine<T>>(what, reference_kernels<T>(), 1);
#if defined(BALLAST_HAS_CPU)
  return std::make_unique<host_engine<T>>(what, cpu_kernels<T>(), core::thread_count(what.how.threads));
#else
  throw unsupported_error("backend: expected one that was built (cuda, reference), got cpu");
#endif
}

template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&, ballast::backend);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&, ballast::backend);

}  // namespace ballast::kmeans::host
