// The results of a call: final labels with their inertia, and distances.
// Layer: backend "host" (engine.hpp).
#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "core/parallel.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/host/nearest.hpp"
#include "kmeans/host/packed_centroids.hpp"
#include "kmeans/scale.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

// Compares the distances of a block computed from differences, b.exact, with those of the search; and their sum, `forwards`, with the sum
// in reverse order.
template <class T>
abft::finding host_engine<T>::compare_distances(const point_block<T>& b, const core::vector<double>& norms, double limit, double forwards,
                                                double& backwards) const {
  abft::finding found;
  backwards = 0;
  for (std::int64_t p = b.count; p-- > 0;) {
    backwards += static_cast<double>(weight_of(b.first + p)) * b.exact[p];
    const double size = static_cast<double>(b.norm[p]) + norms[at(b.label[p])];
    const double residual =
        b.exact[p] / k_lift<T> / k_lift<T> - (static_cast<double>(b.nearest.minimum[p]) + static_cast<double>(b.norm[p]));
    if (std::abs(residual) <= limit * size + std::numeric_limits<T>::min()) continue;
    found.residual = std::isnan(residual) ? residual : std::abs(residual);
    found.index = b.first + p;
  }
  if (!(std::abs(forwards - backwards) <= abft::reordered_sum_limit(static_cast<double>(b.count + 1)) * backwards)) {
    found.residual = std::numeric_limits<double>::quiet_NaN();
    found.index = b.first;
  }
  found.word = abft::verify(found.residual, abft::guarded_threshold(0));
  found.threshold = limit;
  return found;
}

template <class T>
summed_twice host_engine<T>::label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) {
  prepare_workers(false);
  pack_verified_centroids(centroids, packed_);
  prepare_search();
  labels_.last.resize(at(m_));
  // The inertia is computed from the coordinates as given, only scaled.
  source<T> unshifted = source_;
  std::ranges::fill(unshifted.shift, T(0));
  const double limit = 2 * thresholds::distance(abft::unit_roundoff<T>, packed_.terms());  // factor 2: x and c were rounded as well
  core::vector<double> norms(at(k_), 0.0);                                                 // ‖c‖²
  for (std::int64_t e = 0; e < k_ * n_; ++e)
    norms[at(e / n_)] += static_cast<double>(centroids.values()[at(e)]) * static_cast<double>(centroids.values()[at(e)]);
  core::vector<double> inertia(at(division_.blocks)), twin(at(division_.blocks));
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    if (stop()) return;
    point_block<T>& b = here.block;
    const auto once = [&](const packed_centroids<T>& shared) {
      assign_block(here, slot, block, shared, centroids, {&unshifted, plain.data(), plain.data()}, search_kind::checked_scores);
      if (protect_) kernels_.measure(b);
      const bool stored = store_labels(b);
      kernels_.exact(tile(here, unshifted), plain.data(), shared.sparse.squares[1].data(), k_lift<T>, b);
      double sum = 0;
      for (std::int64_t p = 0; p < b.count; ++p) sum += static_cast<double>(b.weight[p]) * b.exact[p];
      inertia[at(block)] = sum;
      return stored;
    };
    if (!protect_) {
      (void)once(packed_);
      return;
    }
    // Distances from differences detect smaller faults than the row checks. So after a failure the packed centroids and labels are computed
    // again as well.
    run::attempt(what_.seen, what_.how.protection, "kmeans.inertia", slot, [&](int number) {
      if (number > 0) pack(centroids.values().data(), k_, true, here.fresh);
      const packed_centroids<T>& shared = number > 0 ? here.fresh : packed_;
      what_.seen.checked(static_cast<std::uint64_t>(b.count + 1));
      if (!once(shared)) return bits_differ(true, b.first);
      return compare_distances(b, norms, limit, inertia[at(block)], twin[at(block)]);
    });
  });
  summed_twice sum;
  for (std::int64_t block = 0; block < division_.blocks; ++block) sum.value += inertia[at(block)];
  for (std::int64_t block = division_.blocks; block-- > 0;) sum.twin += twin[at(block)];
  sum.depth = static_cast<double>(division_.capacity + division_.blocks + 1);
  sum.exponent = -2 * std::ilogb(k_lift<T>);
  return sum;
}

template <class T>
void host_engine<T>::store_labels(std::span<std::int32_t> to, bool kept) {
  const core::vector<std::int32_t>& from = kept ? labels_.best : labels_.last;
  if (to.empty() || from.empty()) return;
  const auto copy = [&] { std::ranges::copy(from, to.begin()); };
  if (!protect_) return copy();
  run::attempt(what_.seen, what_.how.protection, "kmeans.assignment", 0, [&](int) {
    copy();
    what_.seen.checked(1);
    return bits_differ(!std::ranges::equal(from, to), -1);
  });
}

// Packs centroids, k × n, in the columns of packed_. A centroid that was moved nearer (k_far) is packed where it was moved to.
template <class T>
auto host_engine<T>::make_plain(const core::vector<T>& centroids) const -> plain_operands {
  plain_operands made;
  if (sparse()) return made;  // it has no shift, and its distances are those of packed_
  made.points = source_;
  std::ranges::fill(made.points.shift, T(0));
  made.packed = core::aligned_buffer<T>(packed_.packed.size());
  for (std::int64_t column = 0; column < packed_.tiles * k_tile; ++column) {
    const std::int64_t t = column / k_tile, r = column % k_tile;
    const std::int64_t j = packed_.names[0][t * k_tile + std::min(r, packed_.used[at(t)] - 1)];
    for (std::int64_t f = 0; f < n_; ++f) {
      const T moved = packed_.rows[j * n_ + f];
      const T c = std::abs(moved) < k_far<T> ? centroids[at(j * n_ + f)] : moved + source_.shift[at(f)];
      made.packed[(t * n_ + f) * k_tile + r] = -2 * c;
    }
  }
  return made;
}

// Stores the distances to centroids that were moved nearer: scaled sums in double, of the coordinates as given.
template <class T>
void host_engine<T>::store_far_distances(matrix_view<const T> given, const core::vector<T>& centroids, const matrix_view<T>& values) {
  for (std::int64_t j = 0; j < k_; ++j) {
    if (std::ranges::none_of(std::span(centroids).subspan(at(j * n_), at(n_)), [](T c) { return std::abs(c) >= k_far<T>; })) continue;
    // `row`: scratch of zeros for the features of a sparse point.
    const auto distance = [&](std::int64_t i, T* row) {
      const sparse_rows<T>& stored = source_.sparse;
      if (sparse()) stored.each(i, [&](std::int64_t f, T value) { row[f] = value; });
      const auto half = [&](std::int64_t f) {
        return static_cast<double>(sparse() ? row[f] : given_value(source_, i, f)) / 2 - static_cast<double>(given(j, f)) / 2;
      };
      double largest = 0, sum = 0;
      for (std::int64_t f = 0; f < n_; ++f) largest = std::max(largest, std::abs(half(f)));
      for (std::int64_t f = 0; f < n_ && largest > 0; ++f) {
        const double part = half(f) / largest;
        sum += part * part;
      }
      if (sparse()) stored.each(i, [&](std::int64_t f, T) { row[f] = 0; });
      return static_cast<T>(2 * (largest * std::sqrt(sum)));
    };
    core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
      const std::int64_t first = block * division_.capacity, end = std::min(first + division_.capacity, m_);
      T* const row = rows_[at(slot)].row.data();
      const auto compute = [&] {
        for (std::int64_t i = first; i < end; ++i) values(i, j) = distance(i, row);
      };
      if (!protect_) return compute();
      run::attempt(what_.seen, what_.how.protection, "kmeans.distance", slot, [&](int) {
        compute();
        what_.seen.checked(at(end - first));
        std::int64_t wrong = -1;
        for (std::int64_t i = end; i-- > first;)
          if (values(i, j) != distance(i, row)) wrong = i;
        return bits_differ(wrong >= 0, wrong);
      });
    });
  }
}

template <class T>
void host_engine<T>::distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                               const matrix_view<T>& values) {
  prepare_workers(true);
  pack_verified_centroids(centroids, packed_);
  const plain_operands differences = make_plain(plain);
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    for (std::int64_t s = 0; s < packed_.sections && !stop(); ++s) {
      const abft::outcome how = distances_block(here, slot, block, packed_, centroids.values().data(), s, true, &differences);
      if (how == abft::outcome::uncorrectable && repairs()) return;
      const point_block<T>& b = here.block;
      const auto store = [&] {
        return kernels_.store_distances(packed_, s, static_cast<double>(source_.scale), protect_,
                                        {&what_.injector, {block, division_.blocks, 2 * s + 1, 2 * packed_.sections}}, b, values);
      };
      if (!protect_) {
        (void)store();
        continue;
      }
      run::attempt(what_.seen, what_.how.protection, "kmeans.distance", slot, [&](int) {
        what_.seen.checked(static_cast<std::uint64_t>(b.count));
        return bits_differ(!store(), b.first);
      });
    }
  });
  if (!stop()) store_far_distances(given, centroids.values(), values);
}

template summed_twice host_engine<float>::label(const sealed_centroids<float>&, const core::vector<float>&);
template void host_engine<float>::store_labels(std::span<std::int32_t>, bool);
template void host_engine<float>::distances(const sealed_centroids<float>&, const core::vector<float>&, matrix_view<const float>,
                                            const matrix_view<float>&);
template summed_twice host_engine<double>::label(const sealed_centroids<double>&, const core::vector<double>&);
template void host_engine<double>::store_labels(std::span<std::int32_t>, bool);
template void host_engine<double>::distances(const sealed_centroids<double>&, const core::vector<double>&, matrix_view<const double>,
                                             const matrix_view<double>&);

}  // namespace ballast::kmeans::host
