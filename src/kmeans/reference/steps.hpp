// The plain loops over dense points (kernels.cpp) and over compressed rows (sparse.cpp) share this: sums in runs, the search of
// the smallest score, and the decisions about a section, a point and a block.
// Layer: kernels "reference" of the host backend.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kmeans/block.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::reference {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Returns start + Σ term(i) for i from `first` to before `last`, summed in runs of k_run terms and spans of k_run runs. Equal terms have
// equal rounding errors, which would add up in one long chain.
template <class T, class Term>
T sum_in_runs(T start, std::int64_t first, std::int64_t last, Term&& term) {
  for (std::int64_t i = first; i < last;) {
    T part = 0;
    for (const std::int64_t span = std::min(i + thresholds::k_run * thresholds::k_run, last); i < span;) {
      T run = 0;
      for (const std::int64_t end = std::min(i + thresholds::k_run, last); i < end; ++i) run += term(i);
      part += run;
    }
    start += part;
  }
  return start;
}

// Stores a residual that exceeds its limit in `kept`. The comparison is negated, so that NaN exceeds every limit.
template <class T>
void compare(T residual, T limit_squared, T& kept) {
  if (!(residual * residual <= limit_squared)) kept = std::abs(residual);
}

template <class T>
T squared(const abft::guarded_threshold& limit) {
  const T value = static_cast<T>(limit.value);
  return value * value;
}

// The smallest score so far, the index of its centroid, and the second smallest score.
template <class T>
struct least_score {
  T score = std::numeric_limits<T>::infinity();
  std::int32_t index = 0;
  T second = std::numeric_limits<T>::infinity();
  void see(T other, std::int32_t its_index) {
    second = std::min(second, std::max(score, other));
    if (other < score) score = other, index = its_index;
  }
  // Merges the result of another section, which may hold lower indexes.
  void join(const least_score& other) {
    second = std::min({second, other.second, std::max(score, other.score)});
    if (other.score < score || (other.score == score && other.index < index)) score = other.score, index = other.index;
  }
};

// Begins the search of a block. block.spread: the squared residuals in units of their limits of doubt, the largest and the sum of each
// section.
template <class T>
void begin_search(const packed_centroids<T>& centroids, point_block<T>& block) {
  block.undecided.count = 0;
  block.spread.assign(at(2 * centroids.sections), T(0));
}

// Compares the residual of the scores of point p and section g with its limit, which `kept` receives if it is exceeded.
template <class T>
void judge_section(T residual, std::int64_t g, std::int64_t p, point_block<T>& block, T& kept) {
  const T limit = squared<T>(block.bounds.slope[at(g)]) * block.squares[p] + squared<T>(block.bounds.offset[at(g)]);
  compare(residual, limit, kept);
  const double doubt = block.bounds.doubt[at(g)];
  const double ratio = static_cast<double>(residual * residual) /
                       std::max(static_cast<double>(limit) * doubt * doubt, static_cast<double>(std::numeric_limits<T>::min()));
  block.spread[at(2 * g)] = std::max(block.spread[at(2 * g)], static_cast<T>(ratio));
  block.spread[at(2 * g + 1)] += static_cast<T>(ratio);
}

// Stores the label of point p, from two searches if `protect` is true, and lists the point if its two smallest scores do not decide.
// `square`: ‖x‖². `kept`: the residual of a section that failed, else 0.
template <class T>
void decide_point(const packed_centroids<T>& centroids, bool protect, std::int64_t p, T square, const least_score<T>& best,
                  const least_score<T>& twin, T kept, point_block<T>& block, row_failure& found) {
  block.nearest.minimum[p] = best.score;
  const T limit = centroids.order.margin.square * square + centroids.order.margin.least_score * best.score + centroids.order.margin.offset;
  // A second score below the smallest one comes from a fault.
  if (best.second >= best.score && best.second - best.score <= limit)
    block.undecided.points[block.undecided.count++] = static_cast<std::int32_t>(p);
  block.nearest.index[p] = best.index;
  block.twin.index[p] = twin.index;
  if (protect && !(best.score == twin.score)) kept = std::numeric_limits<T>::quiet_NaN();
  if (!(kept == 0) && found.row < 0) found = {kept, block.first + p};
}

// Ends the search of a block: a residual that stands out among those of the other points makes it doubtful.
template <class T>
void end_search(bool protect, point_block<T>& block) {
  block.doubtful = false;
  for (std::size_t g = 0; protect && g < block.spread.size(); g += 2) {
    const double largest = static_cast<double>(block.spread[g]), sum = static_cast<double>(block.spread[g + 1]);
    if (stands_out(largest, sum - largest, block.count - 1)) block.doubtful = true;
  }
}

// Verifies the distances of point p, with ‖x‖² = norm, to the centroids of a section by two weighted sums. sum_of(v): Σ v_c · distance of
// the columns c; dot(rest, checksum): rest + x · checksum. Returns the residual that exceeds its limit, or 0.
template <class T, class SumOf, class Dot>
T verify_distances(const packed_centroids<T>& centroids, std::int64_t section, std::int64_t n, T norm, const point_block<T>& block,
                   SumOf&& sum_of, Dot&& dot) {
  T kept = 0, norms = 0;
  const std::int64_t first = centroids.first_tile[at(section)], last = centroids.first_tile[at(section) + 1];
  for (std::int64_t t = first; t < last; ++t) norms -= centroids.start[t];
  // sizes, size_norms: the sums of the sizes of the weights, and of these times ‖c‖².
  const auto check_sum = [&](const T* v, const T* checksum, T rest, T start, T all, T sizes, T size_norms,
                             const abft::guarded_threshold& slope, const abft::guarded_threshold& offset) {
    const T sum = sum_of(v), product = dot(rest, checksum);
    const T level = static_cast<T>(block.bounds.level.value) * (sizes * norm + size_norms);
    compare(sum - (product + start + all * norm), 3 * (squared<T>(slope) * norm + squared<T>(offset) + level * level), kept);
  };
  const second_checksum<T>& other = centroids.second;
  check_sum(centroids.weights.data() + first * k_tile, centroids.checksum.data() + section * n, centroids.rest[section], norms,
            centroids.sum_weights[section], centroids.sum_weights[section], norms, block.bounds.slope[at(section)],
            block.bounds.offset[at(section)]);
  check_sum(other.weights.data() + first * k_tile, other.checksum.data() + section * n, other.rest[section], other.start[section],
            other.sum[section], other.size[section], other.norms[section], block.bounds.second_slope[at(section)],
            block.bounds.second_offset[at(section)]);
  return kept;
}

}  // namespace ballast::kmeans::reference
