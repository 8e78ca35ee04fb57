// The normalization of a call: refuses invalid values, chooses scale and shift, converts centroids and inertia to and from normalized
// coordinates; and computes the tolerance, a part of the variance.
// Layer: driver of K-Means (driver.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <ballast/error.hpp>

#include "abft/threshold.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/driver/refusals.hpp"
#include "kmeans/scale.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans {

// Returns the shift of a feature before scaling: its mean, or 0 where the mean belongs to a few points that are far larger than the others,
// such as fill values. There x − mean would round the others at the size of the mean.
template <class T>
T shift_of(const ranges<T>& seen, std::int64_t f, double m) {
  constexpr double most = 10;  // bits that typical points may lose
  // Every shift is correct; one outside of the data would only be inaccurate.
  const T mean = static_cast<T>(std::min(std::max(seen.sum[at(f)] / m * 0x1p64, seen.low[at(f)]), seen.high[at(f)]));
  const bool outlying = !seen.exponent.empty() && mean != 0 && std::ilogb(mean) > seen.exponent[at(f)] + most;
  return outlying ? T(0) : mean;
}

// Measures the columns of the points. An invalid value is refused if a second reading finds one, too.
template <class T>
ranges<T> driver<T>::column_stats() {
  for (int number = 0;; ++number) {
    ranges<T> seen = engine_->column_stats();
    if (seen.zero_row >= 0) refuse_zeros(token_.view(), "points", seen.zero_row);
    // No shift: the norm of a centroid is that from the origin.
    if (spherical_) seen.exponent.assign(at(n_), -std::numeric_limits<double>::infinity());
    if (seen.weight.row < 0 && seen.heaviest > 0 && seen.point.row < 0) {
      if (number > 0)
        recorder_.detected("kmeans.range", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                           repairs() ? action::recomputed : action::uncorrectable, 0);
      std::int64_t step = 0;
      for (core::vector<double>* each : {&seen.low, &seen.high, &seen.sum})
        injector_.strike(site::range, {0, 1, step++, 3}, each->data(), n_);
      return seen;
    }
    if (number == 0 && protects()) continue;
    if (seen.weight.row >= 0)
      throw invalid_argument_error(
          fmt::format("{}: weights: expected finite numbers ≥ 0, got {} at {}", token_.view(), seen.weight.value, seen.weight.row));
    if (!(seen.heaviest > 0))
      throw invalid_argument_error(fmt::format("{}: weights: expected at least one above 0, got only zeros", token_.view()));
    throw invalid_argument_error(fmt::format("{}: points: expected finite numbers, got {} in row {}, column {}", token_.view(),
                                             seen.point.value, seen.point.row, seen.point.column));
  }
}

// Chooses the normalization. `centroids`, if there are any, only widen the range that the scale must cover.
template <class T>
void driver<T>::make_normalization(const ranges<T>& seen, matrix_view<const T> centroids) {
  core::vector<T> centre(at(n_));
  double largest = 0;  // |point|
  double spread = 0;   // |point − centre| / 4, so that it does not overflow
  for (std::int64_t f = 0; f < n_; ++f) {
    const double low = seen.low[at(f)], high = seen.high[at(f)];
    centre[at(f)] = shift_of(seen, f, static_cast<double>(m_));
    largest = std::max({largest, std::abs(low), std::abs(high)});
    spread = std::max({spread, high / 4 - static_cast<double>(centre[at(f)]) / 4, static_cast<double>(centre[at(f)]) / 4 - low / 4});
  }
  if (centroids.rows > 0) {
    core::vector<double> far(at(k_), 0.0);
    each_centroid([&](std::int64_t j) {
      double own = 0;
      for (std::int64_t f = 0; f < n_; ++f)
        own = std::max(own, std::abs(static_cast<double>(centroids(j, f)) / 4 - static_cast<double>(centre[at(f)]) / 4));
      far[at(j)] = own;
    });
    spread = std::max(spread, *std::ranges::min_element(far));
  }
  normalization<T> made;
  made.scale = scale_for<T>(spread, largest);
  made.shift.resize(at(n_));
  for (std::int64_t f = 0; f < n_; ++f) made.shift[at(f)] = centre[at(f)] * made.scale;
  if (weighted_) made.weight_scale = weight_scale_for<T>(static_cast<double>(seen.heaviest));
  const std::int64_t steps = weighted_ ? 3 : 2;
  injector_.strike(site::normalization, {0, 1, 0, steps}, &made.scale, 1);
  injector_.strike(site::normalization, {0, 1, 1, steps}, made.shift.data(), n_);
  if (weighted_) injector_.strike(site::normalization, {0, 1, 2, steps}, &made.weight_scale, 1);
  normalization_ = sealed<normalization<T>>(std::move(made));
}

// Compares the normalization with the backend's measurements, and with itself by another computation. A scale within a factor of √n serves
// as well as any other and changes no bit of a result. So the checks only need to detect harm:
// - the mean of a feature's x, as measured, is the normalized mean of the column statistics: both know the same shift and scale; and it is
// 0 up to
//   the rounding of the shift, unless the shift has to be 0 (shift_of);
// - the largest ‖x‖ fits the normalized ranges of the column statistics;
// - the scale suits the largest |x|, or the nearest centroid if that is farther away;
// - the sum of the weights lies between the largest weight and as much for each point.
template <class T>
abft::finding driver<T>::verify_normalization(const ranges<T>& seen, matrix_view<const T> centroids) const {
  constexpr double slack = 1e-5;
  const normalization<T>& chosen = normalization_.values();
  const double scale = static_cast<double>(chosen.scale);
  const double m = static_cast<double>(m_);
  const double least_shift = static_cast<double>(std::numeric_limits<T>::denorm_min()) * std::max(scale, 1.0);
  double worst = 0, reach = 0, largest = 0;
  const auto expect = [&](double ratio) {
    if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
  };
  const auto expect_true = [&](bool good) { expect(good ? 0.0 : std::numeric_limits<double>::infinity()); };
  for (std::int64_t f = n_; f-- > 0;) {
    const double shift = static_cast<double>(chosen.shift[at(f)]);
    const double own = std::max(std::abs(seen.low[at(f)] * scale - shift), std::abs(seen.high[at(f)] * scale - shift));
    reach = std::max(reach, own);
    largest = std::max({largest, std::abs(seen.low[at(f)]), std::abs(seen.high[at(f)])});
    // x is rounded once; the sum of the column statistics, scaled by 2⁻⁶⁴, m times at most.
    const double limit = 4 * abft::unit_roundoff<T> * own + abft::unit_roundoff<double> * (m + 8) * (std::abs(shift) + own) +
                         std::numeric_limits<double>::denorm_min() * 0x1p64 * std::max(scale, 1.0);
    const double mean = (weighted_ ? whole_.plain : whole_.first)[at(f)] / m;
    expect(std::abs(seen.sum[at(f)] / m * 0x1p64 * scale - shift - mean) / limit);
    if (shift_of(seen, f, m) == 0) {
      expect_true(shift == 0);
    } else {
      expect(std::abs(mean) / (limit + 2 * abft::unit_roundoff<T> * std::abs(shift) + least_shift));
    }
  }
  const double found = std::sqrt(whole_.largest_square);
  const double root_n = std::sqrt(static_cast<double>(n_));
  const double least = 4 * root_n * static_cast<double>(std::numeric_limits<T>::denorm_min()) + 1e-150;  // whose square underflows
  expect_true(found >= reach * (1 - slack) - least && found <= root_n * reach * (1 + slack) + least);
  double top = reach;
  if (centroids.rows > 0) {
    core::vector<double> far(at(k_), 0.0);
    each_centroid([&](std::int64_t j) {
      double own = 0;
      for (std::int64_t f = n_; f-- > 0;)
        own = std::max(own, std::abs(static_cast<double>(centroids(j, f)) * scale - static_cast<double>(chosen.shift[at(f)])));
      far[at(j)] = own;
    });
    top = std::max(reach, *std::ranges::min_element(far));
  }
  const double quarter = top / 4 / scale;  // finite for all data: a distance of two numbers may be beyond the largest
  expect_true(std::isfinite(quarter));
  if (std::isfinite(quarter)) {
    const double again = static_cast<double>(scale_for<T>(quarter, largest));
    expect_true(scale == again || scale == 2 * again || 2 * scale == again);
  }
  if (weighted_) {
    const double heaviest = static_cast<double>(seen.heaviest) * static_cast<double>(chosen.weight_scale);
    expect_true(heaviest < 2 && (heaviest >= 1 || chosen.weight_scale == weight_scale_for<T>(std::numeric_limits<T>::denorm_min())) &&
                whole_.weight >= heaviest * (1 - slack) && whole_.weight <= heaviest * whole_.members * (1 + slack));
  }
  abft::finding made;
  made.residual = worst;
  made.threshold = 1;
  made.word = abft::verify(made.residual, abft::guarded_threshold(made.threshold));
  return made;
}

// Surveys the points and normalizes them. `measured`: measure() also without protection.
template <class T>
void driver<T>::choose_normalization(matrix_view<const T> centroids, bool measured) {
  core::vector<unsigned char> refused(centroids.rows > 0 ? at(k_) : 0, 0);
  if (centroids.rows > 0) {
    each_centroid([&](std::int64_t j) {
      bool finite = true;
      for (std::int64_t f = 0; f < n_; ++f) finite = finite & (std::abs(centroids(j, f)) <= std::numeric_limits<T>::max());
      refused[at(j)] = finite ? 0 : 1;
    });
  }
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    for (std::int64_t f = 0; refused[at(j)] != 0 && f < n_; ++f)
      if (!std::isfinite(centroids(j, f)))
        throw invalid_argument_error(
            fmt::format("{}: centroids: expected finite numbers, got {} in row {}, column {}", token_.view(), centroids(j, f), j, f));
  }
  const auto once = [&] {
    ranges<T> seen = column_stats();
    make_normalization(seen, centroids);
    engine_->normalize(normalization_.values());
    if (measured || protects()) whole_ = engine_->measure();
    return seen;
  };
  if (!protects()) {
    once();
    return;
  }
  run::attempt(recorder_, how_.protection, "kmeans.normalization", 0, [&](int) {
    const ranges<T> seen = once();
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    return engine_->agreed(verify_normalization(seen, centroids));
  });
}

// Returns the mean of the features' variances, in the units of x: from sums by feature, or by row.
template <class T>
double driver<T>::mean_variance(bool by_features) const {
  const double m = static_cast<double>(m_);
  const core::vector<double>& sums = weighted_ ? whole_.plain : whole_.first;
  double sum = 0;
  if (by_features) {
    for (std::int64_t f = 0; f < n_; ++f) sum += std::max(0.0, whole_.squares[at(f)] / m - (sums[at(f)] / m) * (sums[at(f)] / m));
  } else {
    double means = 0;
    for (std::int64_t f = n_; f-- > 0;) means += sums[at(f)] / m * sums[at(f)] / m;
    sum = std::max(0.0, whole_.total_square / m - means);
  }
  return sum / static_cast<double>(n_);
}

// Returns tol · the mean variance: the shift at which a run has converged.
template <class T>
abft::guarded_threshold driver<T>::tolerance_for(double tol) {
  double made = 0;
  const auto compute = [&] {
    made = tol * mean_variance(true);
    injector_.strike(site::tolerance, {0, 1, 0, 2}, &made, 1);
  };
  if (!protects()) {
    compute();
    return abft::guarded_threshold(made);
  }
  abft::guarded_threshold kept;
  run::attempt(recorder_, how_.protection, "kmeans.tolerance", 0, [&](int) {
    compute();
    kept = abft::guarded_threshold(made);
    recorder_.checked(1);
    // In units of tol · total_square / (m n): the sums of squares differ by thresholds::square; each of the two ways adds n variances or
    // means, at most n u, and rounds quotients, squares, the difference and the product with tol, at most 7 u. A variance below its
    // rounding, which is cut off at 0, changes by less.
    const double m = static_cast<double>(m_), n = static_cast<double>(n_), twin = tol * mean_variance(false);
    const double limit = (2 * thresholds::square(m, n) + 16 * abft::unit_roundoff<double>)*tol * (whole_.total_square / m / n);
    abft::finding found;
    // tol may be so large that both are Inf, or NaN.
    const bool same = kept.value == twin || (std::isnan(kept.value) && std::isnan(twin));
    found.residual = same ? 0 : kept.value - twin;
    found.threshold = same ? 0 : limit;
    found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
    return found;
  });
  return kept;
}

// Verifies that `inner` are the centroids `outer` in normalized coordinates, up to the rounding of either conversion.
template <class T>
abft::finding driver<T>::compare_normalized(matrix_view<const T> outer, const core::vector<T>& inner) const {
  const normalization<T>& chosen = normalization_.values();
  const double scale = static_cast<double>(chosen.scale), far = static_cast<double>(k_far<T>);
  const double least = 2 * static_cast<double>(std::numeric_limits<T>::denorm_min()) * std::max(scale, 1.0);
  const T* const shifts = chosen.shift.data();
  // Calls use(difference, limit) for each coordinate of a row, the last first.
  const auto compare_row = [&](std::int64_t j, auto&& use) {
    const T* const from = &outer(j, 0);
    const T* const to = inner.data() + j * n_;
    const std::int64_t apart = outer.column_stride;
    for (std::int64_t f = n_; f-- > 0;) {
      const double shift = static_cast<double>(shifts[f]);
      const double plain = static_cast<double>(from[f * apart]) * scale;
      const double expected = std::clamp(plain - shift, -far, far);
      const double limit = 4 * abft::unit_roundoff<T> * (std::min(std::abs(plain), std::abs(shift) + far) + std::abs(shift)) + least;
      use(std::abs(static_cast<double>(to[f]) - expected), limit);
    }
  };
  // Divides only if there is a number to report.
  core::vector<std::int64_t> counts(at(k_), 0);
  each_centroid([&](std::int64_t j) {
    std::int64_t count = 0;
    compare_row(j, [&](double difference, double limit) { count += difference <= limit ? 0 : 1; });
    counts[at(j)] = count;
  });
  const std::int64_t wrong = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  double worst = 0;
  for (std::int64_t j = k_; wrong > 0 && j-- > 0;) {
    compare_row(j, [&](double difference, double limit) {
      const double ratio = difference / limit;
      if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
    });
  }
  abft::finding found;
  found.residual = worst;
  found.threshold = 1;
  found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
  return found;
}

// Converts centroids between the user's coordinates and normalized ones: convert(j, to) computes row j, compare(made) verifies all. `step`:
// the step of site kmeans.centroid.
template <class T>
template <class Convert, class Compare>
sealed_centroids<T> driver<T>::carry(std::int64_t step, const Convert& convert, const Compare& compare) {
  verify_waiting(normalization_, "kmeans.normalization");
  sealed_centroids<T> made;
  const auto compute = [&] {
    core::vector<T> values(at(core::checked_product(k_, n_)));
    each_centroid([&](std::int64_t j) { convert(j, values.data() + j * n_); });
    injector_.strike(site::centroid, {0, 1, step, k_centroid_steps}, values.data(), k_ * n_);
    made = sealed_centroids<T>(std::move(values));
  };
  if (!protects()) {
    compute();
    return made;
  }
  run::attempt(recorder_, how_.protection, "kmeans.centroid", 0, [&](int) {
    compute();
    recorder_.checked(static_cast<std::uint64_t>(k_ * n_));
    return compare(made.values());
  });
  return made;
}

template <class T>
sealed_centroids<T> driver<T>::normalize(matrix_view<const T> centroids) {
  return carry(
      2,
      [&](std::int64_t j, T* to) {
        const normalization<T>& chosen = normalization_.values();
        const T scale = chosen.scale;
        const T* const shift = chosen.shift.data();
        const T* const from = &centroids(j, 0);
        const std::int64_t apart = centroids.column_stride;
        for (std::int64_t f = 0; f < n_; ++f) to[f] = std::clamp(from[f * apart] * scale - shift[f], -k_far<T>, k_far<T>);
      },
      [&](const core::vector<T>& made) { return compare_normalized(centroids, made); });
}

template <class T>
sealed_centroids<T> driver<T>::denormalize(const core::vector<T>& centroids) {
  return carry(
      3,
      [&](std::int64_t j, T* to) {
        const normalization<T>& chosen = normalization_.values();
        const double unscale = 1 / static_cast<double>(chosen.scale);
        const T* const shift = chosen.shift.data();
        const T* const from = centroids.data() + j * n_;
        for (std::int64_t f = 0; f < n_; ++f)
          to[f] = static_cast<T>((static_cast<double>(from[f]) + static_cast<double>(shift[f])) * unscale);
      },
      [&](const core::vector<T>& made) { return compare_normalized(row_major<const T>(made.data(), k_, n_), centroids); });
}

// Converts an inertia, inertia · 2^exponent in normalized coordinates, to the units of the points and weights.
template <class T>
double driver<T>::denormalize(double inertia, int exponent) const {
  const normalization<T>& chosen = normalization_.values();
  // Scales are powers of two, except after a fault without protection.
  if (!std::isnormal(chosen.scale) || !std::isfinite(chosen.weight_scale) || chosen.weight_scale == 0)
    return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(inertia, exponent - 2 * std::ilogb(chosen.scale) - std::ilogb(chosen.weight_scale));
}

template void driver<float>::choose_normalization(matrix_view<const float>, bool);
template abft::guarded_threshold driver<float>::tolerance_for(double);
template sealed_centroids<float> driver<float>::normalize(matrix_view<const float>);
template sealed_centroids<float> driver<float>::denormalize(const core::vector<float>&);
template double driver<float>::denormalize(double, int) const;
template void driver<double>::choose_normalization(matrix_view<const double>, bool);
template abft::guarded_threshold driver<double>::tolerance_for(double);
template sealed_centroids<double> driver<double>::normalize(matrix_view<const double>);
template sealed_centroids<double> driver<double>::denormalize(const core::vector<double>&);
template double driver<double>::denormalize(double, int) const;

}  // namespace ballast::kmeans
