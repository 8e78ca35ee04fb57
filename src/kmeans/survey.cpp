// The first look at the points: range, mean, scale and variance, and the sums that later iterations are verified against.
// Layer: driver of K-Means (driver.hpp).
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ballast/error.hpp>

#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"

namespace ballast::kmeans {

namespace {

// 2^e as T, kept where T has a normal number.
template <class T>
T power_of_two(int e) {
  return std::ldexp(T(1), std::clamp(e, std::numeric_limits<T>::min_exponent, std::numeric_limits<T>::max_exponent - 2));
}

}  // namespace

// One group's sums over the points as they are, or over x. Row by row with a chain for each feature.
template <class T>
void engine<T>::survey_group(std::int64_t group, bool centred) {
  group_survey& seen = surveys_[at(group)];
  const std::int64_t begin = first_block(group) * capacity_;
  const std::int64_t end = std::min(first_block(group + 1) * capacity_, m_);
  std::vector<T> row(at(n_));
  const auto fetch = [&](std::int64_t i) -> const T* {
    if (points_.column_stride == 1) return points_.data + i * points_.row_stride;
    for (std::int64_t f = 0; f < n_; ++f) row[at(f)] = points_(i, f);
    return row.data();
  };
  if (!centred) {
    std::vector<T> low(at(n_), std::numeric_limits<T>::infinity()), high(at(n_), -std::numeric_limits<T>::infinity()), poison(at(n_), T(0));
    seen.sum.assign(at(n_), 0.0);
    for (std::int64_t i = begin; i < end; ++i) {
      const T* x = fetch(i);
      for (std::int64_t f = 0; f < n_; ++f) {
        low[at(f)] = x[f] < low[at(f)] ? x[f] : low[at(f)];
        high[at(f)] = x[f] > high[at(f)] ? x[f] : high[at(f)];
        poison[at(f)] += x[f] * 0;                               // NaN as soon as one is not finite
        seen.sum[at(f)] += static_cast<double>(x[f]) * 0x1p-64;  // m < 2⁶³: no overflow
      }
    }
    seen.low.assign(low.begin(), low.end());
    seen.high.assign(high.begin(), high.end());
    seen.poison.assign(poison.begin(), poison.end());
    return;
  }
  const bool weighted = !source_.weights.empty();
  seen.first.assign(at(n_), 0.0);
  seen.plain.assign(weighted ? at(n_) : 0, 0.0);
  seen.squares.assign(at(n_), 0.0);
  seen.total_square = seen.weight = seen.members = 0;
  seen.count = static_cast<double>(end - begin);
  const T scale = source_.scale;
  const T* shift = source_.shift.data();
  std::vector<double> some(at(n_)), weighted_some(seen.plain.size());
  for (std::int64_t part = begin; part < end; part += k_survey_rows) {
    std::ranges::fill(some, 0.0);
    std::ranges::fill(weighted_some, 0.0);
    double weight_sum = 0;
    for (std::int64_t i = part; i < std::min(part + k_survey_rows, end); ++i) {
      const T* x = fetch(i);
      double square = 0;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double value = static_cast<double>(x[f] * scale - shift[f]);
        some[at(f)] += value;
        seen.squares[at(f)] += value * value;
        square += value * value;
      }
      seen.total_square += square;
      if (!weighted) continue;
      const double weight = static_cast<double>(source_.weights[at(i)] * source_.weight_scale);
      for (std::int64_t f = 0; f < n_; ++f) weighted_some[at(f)] += weight * static_cast<double>(x[f] * scale - shift[f]);
      weight_sum += weight;
      seen.members += weight > 0 ? 1 : 0;
    }
    for (std::int64_t f = 0; f < n_; ++f) (weighted ? seen.plain : seen.first)[at(f)] += some[at(f)];
    for (std::size_t f = 0; f < weighted_some.size(); ++f) seen.first[f] += weighted_some[f];
    seen.weight += weight_sum;
  }
  if (!weighted) seen.weight = seen.members = seen.count;
}

// whole_ = Σ surveys_.
template <class T>
void engine<T>::add_surveys() {
  whole_ = {};
  whole_.first.assign(at(n_), 0.0);
  whole_.plain.assign(source_.weights.empty() ? 0 : at(n_), 0.0);
  whole_.squares.assign(at(n_), 0.0);
  for (const group_survey& seen : surveys_) {
    for (std::int64_t f = 0; f < n_; ++f) {
      whole_.first[at(f)] += seen.first[at(f)];
      whole_.squares[at(f)] += seen.squares[at(f)];
    }
    for (std::size_t f = 0; f < whole_.plain.size(); ++f) whole_.plain[f] += seen.plain[f];
    whole_.total_square += seen.total_square;
    whole_.weight += seen.weight;
    whole_.members += seen.members;
    whole_.count += seen.count;
  }
}

// Finds scale and shift, and refuses NaN and Inf. `centroids`, if there are any, only widen the range that the scale is made for.
template <class T>
void engine<T>::survey(matrix_view<const T> centroids) {
  surveys_.assign(at(groups_), {});
  core::parallel_for(threads_, groups_, [&](std::int64_t g, int) { survey_group(g, false); });
  source_.shift.assign(at(n_), T(0));
  std::vector<T> mean(at(n_));
  double largest = 0;  // |point|
  double spread = 0;   // |point − mean| / 4, so that it does not overflow
  for (std::int64_t f = 0; f < n_; ++f) {
    double low = std::numeric_limits<double>::infinity(), high = -low, poison = 0, sum = 0;
    for (const group_survey& seen : surveys_) {
      low = std::min(low, seen.low[at(f)]);
      high = std::max(high, seen.high[at(f)]);
      poison += seen.poison[at(f)];
      sum += seen.sum[at(f)];
    }
    if (!(poison == 0)) {
      for (std::int64_t i = 0; i < m_; ++i) {
        if (!std::isfinite(points_(i, f)))
          throw invalid_argument_error(
              fmt::format("{}: points: expected finite numbers, got {} in row {}, column {}", token_, points_(i, f), i, f));
      }
    }
    // Any shift is right; one outside the data would only be inaccurate.
    mean[at(f)] = static_cast<T>(std::clamp(sum / static_cast<double>(m_) * 0x1p64, low, high));
    largest = std::max({largest, std::abs(low), std::abs(high)});
    spread = std::max({spread, high / 4 - static_cast<double>(mean[at(f)]) / 4, static_cast<double>(mean[at(f)]) / 4 - low / 4});
  }
  double nearest = std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    double far = 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      if (!std::isfinite(centroids(j, f)))
        throw invalid_argument_error(
            fmt::format("{}: centroids: expected finite numbers, got {} in row {}, column {}", token_, centroids(j, f), j, f));
      far = std::max(far, std::abs(static_cast<double>(centroids(j, f)) / 4 - static_cast<double>(mean[at(f)]) / 4));
    }
    nearest = std::min(nearest, far);
  }
  if (centroids.rows > 0) spread = std::max(spread, nearest);
  int exponent = 0;
  if (spread > 0) exponent = -(std::ilogb(spread) + 2);
  // largest · scale must stay finite, too.
  if (largest > 0) exponent = std::min(exponent, std::numeric_limits<T>::max_exponent - 4 - std::ilogb(largest));
  source_.scale = power_of_two<T>(exponent);
  for (std::int64_t f = 0; f < n_; ++f) source_.shift[at(f)] = mean[at(f)] * source_.scale;
  if (!source_.weights.empty()) {
    const T most = *std::ranges::max_element(source_.weights);
    source_.weight_scale = power_of_two<T>(-std::ilogb(most));
  }
}

// The mean of the features' variances, in the units of x; on the way the sums of squares that thresholds need. Two sums over the same
// numbers, by features and by rows, must agree.
template <class T>
double engine<T>::variance() {
  core::parallel_for(threads_, groups_, [&](std::int64_t g, int slot) {
    bool failed = false;
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      survey_group(g, true);
      const group_survey& seen = surveys_[at(g)];
      const double by_features = std::accumulate(seen.squares.begin(), seen.squares.end(), 0.0);
      const double limit = 1e-12 * std::sqrt(static_cast<double>(m_)) * seen.total_square;
      const double residual = by_features - seen.total_square;
      if (!protect_) return;
      recorder_.checked(1);
      if (abft::verify(residual, abft::guarded_threshold(limit)) == abft::k_pass) {
        if (failed) recorder_.detected("kmeans.variance", g, residual, limit, action::recomputed, slot);
        return;
      }
      failed = true;
      if (!repairs() || attempt + 1 == k_attempts) {
        recorder_.detected("kmeans.variance", g, residual, limit, action::uncorrectable, slot);
        return;
      }
    }
  });
  add_surveys();
  double sum = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    const double mean = (whole_.plain.empty() ? whole_.first : whole_.plain)[at(f)] / static_cast<double>(m_);
    sum += std::max(0.0, whole_.squares[at(f)] / static_cast<double>(m_) - mean * mean);
  }
  return sum / static_cast<double>(n_);
}

template <class T>
void engine<T>::read_point(std::int64_t i, T* to) const {
  for (std::int64_t f = 0; f < n_; ++f) to[f] = points_(i, f) * source_.scale - source_.shift[at(f)];
}

// Centroids in the coordinates of x. One that is a million times as far away as the data can win no point; it is moved nearer, so that its
// fourth power is a number and the limits of the row checks stay useful.
template <class T>
std::vector<T> engine<T>::to_scaled(matrix_view<const T> centroids) const {
  constexpr T far = 0x1p20;
  std::vector<T> made(at(core::checked_product(centroids.rows, n_)));
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    for (std::int64_t f = 0; f < n_; ++f)
      made[at(j * n_ + f)] = std::clamp(centroids(j, f) * source_.scale - source_.shift[at(f)], -far, far);
  }
  return made;
}

template void engine<float>::survey(matrix_view<const float>);
template void engine<double>::survey(matrix_view<const double>);
template double engine<float>::variance();
template double engine<double>::variance();
template void engine<float>::read_point(std::int64_t, float*) const;
template void engine<double>::read_point(std::int64_t, double*) const;
template std::vector<float> engine<float>::to_scaled(matrix_view<const float>) const;
template std::vector<double> engine<double>::to_scaled(matrix_view<const double>) const;

}  // namespace ballast::kmeans
