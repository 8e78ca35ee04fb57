#include "kmeans/host/nearest.hpp"

#include <cmath>
#include <limits>

namespace ballast::kmeans::host {

namespace {

// An unevaluated sum of two doubles, about twice as precise as one.
struct pair_sum {
  double high = 0, low = 0;

  // Adds `value` and keeps the rounding error (Knuth, TwoSum).
  void add(double value) {
    const double sum = high + value, part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  bool less(const pair_sum& other) const {
    pair_sum difference{high, low};
    difference.add(-other.high);
    difference.low -= other.low;
    return difference.high + difference.low < 0;
  }
};

// Returns ‖x − c‖² in double. Four accumulators, so that additions overlap.
template <class T>
double plain_distance(const source<T>& from, std::int64_t row, const T* c) {
  const std::int64_t n = from.points.columns;
  double sum[4] = {};
  for (std::int64_t f = 0; f < n; ++f) {
    const double x = static_cast<double>(from.points(row, f)) * static_cast<double>(from.scale) - static_cast<double>(from.shift[at(f)]);
    const double difference = k_lift<T> * (x - static_cast<double>(c[f]));
    sum[f & 3] += difference * difference;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Returns ‖x − c‖² with the rounding errors of every operation but the last ones.
pair_sum precise_distance(const source<double>& from, std::int64_t row, const double* c) {
  pair_sum sum;
  for (std::int64_t f = 0; f < from.points.columns; ++f) {
    pair_sum difference{from.points(row, f) * from.scale};
    difference.add(-from.shift[at(f)]);
    difference.add(-c[f]);
    const double d = k_lift<double> * (difference.high + difference.low);
    const double rest = k_lift<double> * ((difference.high - (difference.high + difference.low)) + difference.low);
    const double square = d * d;
    sum.add(square);
    sum.low += std::fma(d, d, -square) + 2 * d * rest;
  }
  return sum;
}

}  // namespace

template <class T>
std::int32_t nearest_centroid(const source<T>& from, std::int64_t row, const T* centroids, std::int64_t k) {
  const std::int64_t n = from.points.columns;
  double least = std::numeric_limits<double>::infinity();
  std::int64_t found = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    const double distance = plain_distance(from, row, centroids + j * n);
    if (!(distance < least)) continue;
    least = distance;
    found = j;
  }
  if constexpr (sizeof(T) == 8) {
    const double near = least * (1 + 4 * static_cast<double>(n + 4) * abft::unit_roundoff<double>);
    std::int64_t best = -1;
    pair_sum smallest;
    for (std::int64_t j = 0; j < k; ++j) {
      if (!(plain_distance(from, row, centroids + j * n) <= near)) continue;
      const pair_sum distance = precise_distance(from, row, centroids + j * n);
      if (best >= 0 && !distance.less(smallest)) continue;
      smallest = distance;
      best = j;
    }
    if (best >= 0) found = best;
  }
  return static_cast<std::int32_t>(found);
}

template std::int32_t nearest_centroid(const source<float>&, std::int64_t, const float*, std::int64_t);
template std::int32_t nearest_centroid(const source<double>&, std::int64_t, const double*, std::int64_t);

}  // namespace ballast::kmeans::host
