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
  source_.points = what.sparse.present() || what.half.present() ? what.points : staging_.read(what.points);
  source_.weights = staging_.read(what.weights);
  source_.sparse = what.sparse;
  source_.half = what.half;
  divide();
  // Allocated here, so that the memory of a call does not depend on which threads run.
  rows_.resize(at(threads_));
  for (row_scratch& each : rows_) {
    each.row.resize(at(n_));
    each.sums.resize(at(n_));
    each.weighted_sums.resize(weighted() ? at(n_) : 0);
    if (!half()) continue;
    each.of_tile = core::aligned_buffer<T>(division_.elements);
    each.tile.weights = source_.weights;
  }
}

// Returns a source from which `count` rows from `first` on, at most a block of them, can be read: `from` itself, or these rows widened.
template <class T>
const source<T>& host_engine<T>::tile(row_scratch& scratch, const source<T>& from, std::int64_t first, std::int64_t count) const {
  if constexpr (sizeof(T) == 4) {
    if (!half()) return from;
    source<T>& made = scratch.tile;
    static_cast<normalization<T>&>(made) = from;
    made.origin = first;
    made.points = row_major<const T>(scratch.of_tile.data(), count, n_);
    for (std::int64_t p = 0; p < count; ++p) source_.half.read_row(first + p, n_, scratch.of_tile.data() + p * n_);
    what_.injector.strike(site::points, at_block(first / division_.capacity), scratch.of_tile.data(), count * n_);
    return made;
  } else {
    return from;
  }
}

// Divides the points into blocks and groups.
template <class T>
void host_engine<T>::divide() {
  // A transposed block of points stays in the second-level cache, with room for centroids. Its size is independent of threads and kernels.
  constexpr std::int64_t block_bytes = 96 * 1024;
  std::int64_t bytes_of_point = static_cast<std::int64_t>(sizeof(T)) * n_;
  const sparse_rows<T>& rows = source_.sparse;
  const std::int64_t stored = sparse() ? rows.first(m_) - rows.first(0) : 0;
  if (sparse()) bytes_of_point = static_cast<std::int64_t>(sizeof(T) + sizeof(std::int32_t)) * (stored / m_ + 1);
  division_.capacity = std::clamp<std::int64_t>(block_bytes / bytes_of_point / 64 * 64, 64, 512);
  division_.blocks = (m_ + division_.capacity - 1) / division_.capacity;
  // Each group has its own k × n sums. There are enough groups to occupy the threads, but few enough that adding their sums costs little.
  division_.groups = std::min(division_.blocks, std::clamp<std::int64_t>(m_ / (4 * k_), 8, 64));
  division_.part_rows = k_column_stats_rows;
  if (!sparse()) {
    division_.elements = core::checked_product(division_.capacity, n_);
    return;
  }
  // Each group has k n sums. The work for 128 n stored elements outweighs that for the sums.
  division_.groups = std::min(division_.blocks, std::clamp<std::int64_t>(stored / (128 * n_), 4, 64));
  // Likewise a sum of n numbers for as many stored elements.
  division_.part_rows = std::max<std::int64_t>(k_column_stats_rows, n_ / (stored / m_ + 1));
  division_.longest = 0;
  for (std::int64_t i = 0; i < m_; ++i) division_.longest = std::max(division_.longest, rows.first(i + 1) - rows.first(i));
  for (std::int64_t i = 0; i < m_; i += division_.capacity)
    division_.elements = std::max(division_.elements, rows.first(std::min(i + division_.capacity, m_)) - rows.first(i));
}

template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend) {
  const bool sparse = what.sparse.present();
  if (backend == ballast::backend::reference)
    return std::make_unique<host_engine<T>>(what, sparse ? reference_sparse_kernels<T>() : reference_kernels<T>(), 1);
#if defined(BALLAST_HAS_CPU)
  return std::make_unique<host_engine<T>>(what, sparse ? cpu_sparse_kernels<T>() : cpu_kernels<T>(), core::thread_count(what.how.threads));
#else
  throw unsupported_error("backend: expected one that was built (cuda, reference), got cpu");
#endif
}

template host_engine<float>::host_engine(const engine_args<float>&, const kernels<float>&, int);
template host_engine<double>::host_engine(const engine_args<double>&, const kernels<double>&, int);
template const source<float>& host_engine<float>::tile(row_scratch&, const source<float>&, std::int64_t, std::int64_t) const;
template const source<double>& host_engine<double>::tile(row_scratch&, const source<double>&, std::int64_t, std::int64_t) const;
template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&, ballast::backend);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&, ballast::backend);

}  // namespace ballast::kmeans::host
