// The first read of the points: ranges, the sums that later iterations are verified against, and single points.
// Layer: backend "host" (engine.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/parallel.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

namespace {

// Returns row i of the points: its address if its features are contiguous, else a copy in `row`.
template <class T>
const T* fetch(const matrix_view<const T>& points, std::int64_t i, core::vector<T>& row) {
  if (points.column_stride == 1) return points.data + i * points.row_stride;
  for (std::size_t f = 0; f < row.size(); ++f) row[f] = points(i, static_cast<std::int64_t>(f));
  return row.data();
}

template <class T>
refused_value<T> find_not_finite(const source<T>& from, std::int64_t column) {
  refused_value<T> found;
  for (std::int64_t i = 0; i < from.sparse.rows() && found.row < 0; ++i)
    from.sparse.each(i, [&](std::int64_t f, T value) {
      if (f == column && !std::isfinite(value)) found = {i, column, value};
    });
  if (from.sparse.present()) return found;
  for (std::int64_t i = 0; i < from.points.rows; ++i)
    if (!std::isfinite(given_value(from, i, column))) return {i, column, given_value(from, i, column)};
  return {};
}

}  // namespace

template <class T>
ranges<T> host_engine<T>::column_stats() {
  ranges<T> made;
  T heaviest = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(source_.weights.size()) && made.weight.row < 0; ++i) {
    const T w = source_.weights[at(i)];
    if (!(w >= 0) || !std::isfinite(w)) made.weight = {i, 0, w};
    heaviest = std::max(heaviest, w);
  }
  if (weighted()) made.heaviest = heaviest;

  core::vector<column_ranges<T>> groups(at(division_.groups));
  core::parallel_for(threads_, division_.groups, [&](std::int64_t group, int slot) {
    column_ranges<T> seen;  // not the shared one: neighbours would share cache lines
    seen.clear(n_);
    const std::int64_t begin = first_block(group) * division_.capacity;
    const std::int64_t end = std::min(first_block(group + 1) * division_.capacity, m_);
    const std::int64_t most = half() ? division_.capacity : end - begin;  // a tile has as many rows
    for (std::int64_t first = begin; first < end; first += most) {
      const std::int64_t count = std::min(most, end - first);
      kernels_.add_ranges(tile(rows_[at(slot)], source_, first, count), first, count, seen, rows_[at(slot)].row.data());
    }
    groups[at(group)] = std::move(seen);
  });
  made.low.assign(at(n_), std::numeric_limits<double>::infinity());
  made.high.assign(at(n_), -std::numeric_limits<double>::infinity());
  made.sum.assign(at(n_), 0.0);
  made.exponent.assign(at(n_), 0.0);
  for (std::int64_t f = 0; f < n_; ++f) {
    bool finite = true;
    std::int64_t exponents = 0, others = 0;
    for (const column_ranges<T>& seen : groups) {
      made.low[at(f)] = std::min(made.low[at(f)], static_cast<double>(seen.low[at(f)]));
      made.high[at(f)] = std::max(made.high[at(f)], static_cast<double>(seen.high[at(f)]));
      made.sum[at(f)] += seen.sum[at(f)];
      finite = finite && seen.poison[at(f)] == 0;
      exponents += seen.exponents[at(f)];
      others += seen.others[at(f)];
    }
    const double bias = std::numeric_limits<T>::max_exponent - 1;
    made.exponent[at(f)] = others == 0 ? 0 : static_cast<double>(exponents) / static_cast<double>(others) - bias;
    if (!finite && made.point.row < 0) made.point = find_not_finite(source_, f);
    // No shift: it would make numbers of the zeros.
    if (sparse()) made.exponent[at(f)] = -std::numeric_limits<double>::infinity();
  }
  return made;
}

template <class T>
void host_engine<T>::normalize(const normalization<T>& chosen) {
  normalization_ = sealed<normalization<T>>(chosen);
  static_cast<normalization<T>&>(source_) = normalization_.values();
}

// Sums x over one group row by row, k_column_stats_rows rows at a time, with one accumulator per feature.
template <class T>
void host_engine<T>::measure_group(std::int64_t group, int slot) {
  point_sums& seen = group_sums_.points[at(group)];
  const std::int64_t begin = first_block(group) * division_.capacity;
  const std::int64_t end = std::min(first_block(group + 1) * division_.capacity, m_);
  const bool by_weight = weighted();
  const T scale = source_.scale;
  const T* shift = source_.shift.data();
  seen.clear(n_, by_weight);
  seen.count = static_cast<double>(end - begin);
  auto& row = rows_[at(slot)].row;
  auto &some = rows_[at(slot)].sums, &weighted_some = rows_[at(slot)].weighted_sums;
  seen.part_rows = static_cast<double>(division_.part_rows);
  std::ranges::fill(some, 0.0);
  std::ranges::fill(weighted_some, 0.0);
  double weight_sum = 0;
  const auto add_part = [&] {
    for (std::int64_t f = 0; f < n_; ++f) (by_weight ? seen.plain : seen.first)[at(f)] += some[at(f)];
    for (std::size_t f = 0; f < weighted_some.size(); ++f) seen.first[f] += weighted_some[f];
    seen.weight += weight_sum;
    std::ranges::fill(some, 0.0);
    std::ranges::fill(weighted_some, 0.0);
    weight_sum = 0;
  };
  std::int64_t in_part = 0;
  for (std::int64_t part = begin; part < end; part += k_column_stats_rows) {
    const std::int64_t rows = std::min(k_column_stats_rows, end - part);
    double norms[k_column_stats_rows];
    const source<T>& from = tile(rows_[at(slot)], source_, part, rows);
    kernels_.sum_rows(from, part, rows, some.data(), seen.squares.data(), norms, row.data());
    for (std::int64_t i = part; i < part + rows; ++i) {
      const double square = norms[i - part];
      seen.total_square += square;
      if (!(square <= seen.largest_square)) seen.largest_square = square;
      if (!by_weight) continue;
      const double weight = static_cast<double>(weight_of(i));
      seen.weighted_square += weight * square;
      if (sparse()) {
        source_.sparse.each(i, [&](std::int64_t f, T value) { weighted_some[at(f)] += weight * static_cast<double>(value * scale); });
      } else {
        const T* x = fetch(from.points, i - from.origin, row);
        for (std::int64_t f = 0; f < n_; ++f) weighted_some[at(f)] += weight * static_cast<double>(x[f] * scale - shift[f]);
      }
      weight_sum += weight;
      seen.members += weight > 0 ? 1 : 0;
    }
    in_part += rows;
    if (in_part < division_.part_rows && part + rows < end) continue;
    add_part();
    in_part = 0;
  }
  if (by_weight) return;
  seen.weight = seen.members = seen.count;
  seen.weighted_square = seen.total_square;
}

template <class T>
point_sums host_engine<T>::add_measures() const {
  point_sums made;
  made.clear(n_, weighted());
  for (const point_sums& each : group_sums_.points) made.add(each);
  return made;
}

template <class T>
point_sums host_engine<T>::measure() {
  group_sums_.points.resize(at(division_.groups));
  core::parallel_for(threads_, division_.groups, [&](std::int64_t group, int slot) {
    if (!protect_) return measure_group(group, slot);
    run::attempt(what_.seen, what_.how.protection, "kmeans.variance", slot, [&](int) {
      measure_group(group, slot);
      const point_sums& seen = group_sums_.points[at(group)];
      const double by_features = std::accumulate(seen.squares.begin(), seen.squares.end(), 0.0);
      abft::finding found;
      found.residual = by_features - seen.total_square;
      // Squares may underflow if the normalization was chosen for centroids that are far away.
      found.threshold = thresholds::square(static_cast<double>(m_), static_cast<double>(n_)) * seen.total_square +
                        seen.count * static_cast<double>(n_) * std::numeric_limits<double>::denorm_min();
      found.index = group;
      // If squares overflow, the normalization is wrong; the driver detects that.
      if (std::isfinite(by_features) || std::isfinite(seen.total_square))
        found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
      what_.seen.checked(1);
      return found;
    });
  });
  return add_measures();
}

template <class T>
void host_engine<T>::read_points(std::span<const std::int64_t> rows, T* to) {
  for (const std::int64_t i : rows) {
    if (sparse()) {
      std::fill_n(to, n_, T(0));
      source_.sparse.each(i, [&](std::int64_t f, T value) { to[f] = value * source_.scale; });
    } else {
      for (std::int64_t f = 0; f < n_; ++f) to[f] = given_value(source_, i, f) * source_.scale - source_.shift[at(f)];
    }
    to += n_;
  }
}

template <class T>
core::vector<std::int64_t> host_engine<T>::rows_at(std::span<const std::int64_t> positions, bool positive) {
  core::vector<std::int64_t> made(positions.begin(), positions.end());
  if (!weighted()) return made;
  core::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < m_; ++i)
    if ((source_.weights[at(i)] > 0) == positive) rows.push_back(i);
  for (std::int64_t& each : made) each = rows[at(each)];
  return made;
}

template ranges<float> host_engine<float>::column_stats();
template void host_engine<float>::normalize(const normalization<float>&);
template void host_engine<float>::measure_group(std::int64_t, int);
template point_sums host_engine<float>::add_measures() const;
template point_sums host_engine<float>::measure();
template void host_engine<float>::read_points(std::span<const std::int64_t>, float*);
template core::vector<std::int64_t> host_engine<float>::rows_at(std::span<const std::int64_t>, bool);
template ranges<double> host_engine<double>::column_stats();
template void host_engine<double>::normalize(const normalization<double>&);
template void host_engine<double>::measure_group(std::int64_t, int);
template point_sums host_engine<double>::add_measures() const;
template point_sums host_engine<double>::measure();
template void host_engine<double>::read_points(std::span<const std::int64_t>, double*);
template core::vector<std::int64_t> host_engine<double>::rows_at(std::span<const std::int64_t>, bool);

}  // namespace ballast::kmeans::host
