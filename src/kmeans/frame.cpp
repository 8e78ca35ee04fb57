// The frame of a call: values that have no meaning are refused, scale and shift are chosen, centroids are brought in and out; and the
// variance that the tolerance is a part of.
// Layer: driver of K-Means (driver.hpp).
#include <algorithm>
#include <cmath>
#include <limits>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "kmeans/driver.hpp"

namespace ballast::kmeans {

namespace {

// 2^e as T, kept where T has a normal number.
template <class T>
T power_of_two(int e) {
  return std::ldexp(T(1), std::clamp(e, std::numeric_limits<T>::min_exponent, std::numeric_limits<T>::max_exponent - 2));
}

}  // namespace

// `centroids`, if there are any, only widen the range that the scale is made for.
template <class T>
void driver<T>::choose_frame(matrix_view<const T> centroids) {
  const ranges<T> seen = engine_->survey();
  if (seen.weight.row >= 0)
    throw invalid_argument_error(
        fmt::format("{}: weights: expected finite numbers ≥ 0, got {} at {}", token_, seen.weight.value, seen.weight.row));
  if (!(seen.heaviest > 0)) throw invalid_argument_error(fmt::format("{}: weights: expected at least one above 0, got only zeros", token_));
  if (seen.point.row >= 0)
    throw invalid_argument_error(fmt::format("{}: points: expected finite numbers, got {} in row {}, column {}", token_, seen.point.value,
                                             seen.point.row, seen.point.column));
  std::vector<T> mean(at(n_));
  double largest = 0;  // |point|
  double spread = 0;   // |point − mean| / 4, so that it does not overflow
  for (std::int64_t f = 0; f < n_; ++f) {
    const double low = seen.low[at(f)], high = seen.high[at(f)];
    // Any shift is right; one outside the data would only be inaccurate.
    mean[at(f)] = static_cast<T>(std::clamp(seen.sum[at(f)] / static_cast<double>(m_) * 0x1p64, low, high));
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
  frame_.scale = power_of_two<T>(exponent);
  frame_.shift.resize(at(n_));
  for (std::int64_t f = 0; f < n_; ++f) frame_.shift[at(f)] = mean[at(f)] * frame_.scale;
  if (weighted_) frame_.weight_scale = power_of_two<T>(-std::ilogb(seen.heaviest));
  engine_->place(frame_);
}

// The mean of the features' variances, in the units of x.
template <class T>
double driver<T>::mean_variance() {
  whole_ = engine_->measure();
  double sum = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    const double mean = (weighted_ ? whole_.plain : whole_.first)[at(f)] / static_cast<double>(m_);
    sum += std::max(0.0, whole_.squares[at(f)] / static_cast<double>(m_) - mean * mean);
  }
  return sum / static_cast<double>(n_);
}

// A centroid that is a million times as far away as the data can win no point. It is moved nearer, so that its fourth power is a number and
// the limits of the row checks stay useful.
template <class T>
std::vector<T> driver<T>::into_frame(matrix_view<const T> centroids) const {
  constexpr T far = 0x1p20;
  std::vector<T> made(at(core::checked_product(centroids.rows, n_)));
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    for (std::int64_t f = 0; f < n_; ++f)
      made[at(j * n_ + f)] = std::clamp(centroids(j, f) * frame_.scale - frame_.shift[at(f)], -far, far);
  }
  return made;
}

template <class T>
std::vector<T> driver<T>::out_of_frame(const std::vector<T>& centroids) const {
  const double unscale = 1 / static_cast<double>(frame_.scale);
  std::vector<T> made(centroids.size());
  for (std::int64_t e = 0; e < k_ * n_; ++e)
    made[at(e)] = static_cast<T>((static_cast<double>(centroids[at(e)]) + static_cast<double>(frame_.shift[at(e % n_)])) * unscale);
  return made;
}

template void driver<float>::choose_frame(matrix_view<const float>);
template void driver<double>::choose_frame(matrix_view<const double>);
template double driver<float>::mean_variance();
template double driver<double>::mean_variance();
template std::vector<float> driver<float>::into_frame(matrix_view<const float>) const;
template std::vector<double> driver<double>::into_frame(matrix_view<const double>) const;
template std::vector<float> driver<float>::out_of_frame(const std::vector<float>&) const;
template std::vector<double> driver<double>::out_of_frame(const std::vector<double>&) const;

}  // namespace ballast::kmeans
