// The kernels of block.hpp as plain loops. A reader can check them by hand, and the other backends are tested against them.
// Layer: kernels "reference" of the host backend. Serial, one point after another (width 1), no SIMD.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "inject/injector.hpp"
#include "kmeans/block.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans {

namespace {

// Returns feature f of point i, scaled and centred. At most two roundings: the product with a power of two is exact.
template <class T>
T coordinate(const source<T>& from, std::int64_t i, std::int64_t f) {
  return from.points(i - from.origin, f) * from.scale - from.shift[static_cast<std::size_t>(f)];
}

// Returns start + Σ_f term(f), summed in runs of k_run features and spans of k_run runs. Equal terms have equal rounding
// errors, which would add up in one long chain.
template <class T, class Term>
T sum_features(T start, std::int64_t n, Term&& term) {
  for (std::int64_t f = 0; f < n;) {
    T part = 0;
    for (const std::int64_t span = std::min(f + thresholds::k_run * thresholds::k_run, n); f < span;) {
      T run = 0;
      for (const std::int64_t end = std::min(f + thresholds::k_run, n); f < end; ++f) run += term(f);
      part += run;
    }
    start += part;
  }
  return start;
}

template <class T>
void load(const source<T>& from, point_block<T>& block) {
  for (std::int64_t p = 0; p < block.capacity; ++p) {
    const bool used = p < block.count;
    for (std::int64_t f = 0; f < block.n; ++f) block.x[p * block.n + f] = used ? coordinate(from, block.first + p, f) : T(0);
    block.weight[p] = !used                  ? T(0)
                      : from.weights.empty() ? T(1)
                                             : from.weights[static_cast<std::size_t>(block.first + p)] * from.weight_scale;
  }
}

template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(value);
  } else {
    return std::bit_cast<std::uint64_t>(value);
  }
}

// Lane e % 64 holds the sum over elements e.
template <class T>
void sign(const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  for (std::int64_t p = 0; p < block.count; ++p)
    for (std::int64_t f = 0; f < block.n; ++f) lanes[(p * block.n + f) % 64] += bits_of(block.x[p * block.n + f]);
}

template <class T>
void sign_source(const source<T>& from, const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  for (std::int64_t f = 0; f < block.n; ++f)
    for (std::int64_t p = 0; p < block.count; ++p) lanes[(p * block.n + f) % 64] += bits_of(coordinate(from, block.first + p, f));
}

template <class T>
void add_ranges(const source<T>& from, std::int64_t first, std::int64_t count, column_ranges<T>& into, T*) {
  const matrix_view<const T>& points = from.points;
  for (std::int64_t f = 0; f < points.columns; ++f) into.add(f, count, [&](std::int64_t i) { return points(first - from.origin + i, f); });
}

template <class T>
void sum_rows(const source<T>& from, std::int64_t first, std::int64_t count, double* sums, double* squares, double* norms, T*) {
  for (std::int64_t p = 0; p < count; ++p) {
    norms[p] = 0;
    for (std::int64_t f = 0; f < from.points.columns; ++f) {
      const double value = static_cast<double>(coordinate(from, first + p, f));
      sums[f] += value;
      squares[f] += value * value;
      norms[p] += value * value;
    }
  }
}

// Returns ‖x‖² of point p.
template <class T>
T squared_norm(const point_block<T>& block, std::int64_t p) {
  return sum_features(T(0), block.n, [&](std::int64_t f) { return block.x[p * block.n + f] * block.x[p * block.n + f]; });
}

template <class T>
void measure(point_block<T>& block) {
  for (std::int64_t p = 0; p < block.count; ++p) block.norm[p] = squared_norm(block, p);
}

// Returns x · C of section g plus the rounding errors of its tiles' start values: the expected value of Σ_tiles (start + Σ w D).
template <class T>
T encoded(const packed_centroids<T>& centroids, std::int64_t g, const point_block<T>& block, std::int64_t p) {
  return sum_features(centroids.rest[g], block.n,
                      [&](std::int64_t f) { return centroids.checksum[g * block.n + f] * block.x[p * block.n + f]; });
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

template <class T>
row_failure assign(const packed_centroids<T>& centroids, search_kind what, const product_hook& hook, point_block<T>& block) {
  const bool protect = what != search_kind::plain;
  const std::int64_t n = block.n;
  row_failure found;
  block.undecided.count = 0;
  // Squared residuals in units of their limits of doubt: the largest and the sum, per section.
  block.spread.assign(static_cast<std::size_t>(2 * centroids.sections), T(0));
  for (std::int64_t p = 0; p < block.count; ++p) {
    least_score<T> best, twin{.score = std::numeric_limits<T>::max()};
    T kept = 0;
    for (std::int64_t g = 0; g < centroids.sections; ++g) {
      least_score<T> here_best, here_twin{.score = std::numeric_limits<T>::max()};
      T sum = 0;
      for (std::int64_t t = centroids.first_tile[static_cast<std::size_t>(g)]; t < centroids.first_tile[static_cast<std::size_t>(g) + 1];
           ++t) {
        const std::int64_t real = centroids.used[static_cast<std::size_t>(t)];
        T product[k_tile];
        const T *const features = &centroids.packed[t * n * k_tile], *const x = &block.x[p * n];
        for (std::int64_t r = 0; r < real; ++r) {
          product[r] = sum_features(centroids.norms[t * k_tile + r], n, [&](std::int64_t f) { return features[f * k_tile + r] * x[f]; });
        }
        inject::position here = hook.position;
        here.step = p * centroids.tiles + t;
        here.steps = block.count * centroids.tiles;
        hook.injector->strike(site::product, here, product, real);
        T tile_sum = protect ? centroids.start[t] : T(0);
        for (std::int64_t r = 0; r < real; ++r) {
          if (r == real / 2) hook.injector->strike(site::minimum, here, &here_best.score, 1);
          here_best.see(product[r], centroids.names[0][t * k_tile + r]);
          if (!protect) continue;
          here_twin.see(product[r], centroids.names[1][t * k_tile + r]);
          tile_sum += centroids.weights[t * k_tile + r] * product[r];
        }
        sum += tile_sum;
      }
      best.join(here_best);
      if (!protect) continue;
      twin.join(here_twin);
      const T limit = squared<T>(block.bounds.slope[static_cast<std::size_t>(g)]) * block.squares[p] +
                      squared<T>(block.bounds.offset[static_cast<std::size_t>(g)]);
      const T residual = sum - encoded(centroids, g, block, p);
      compare(residual, limit, kept);
      const double doubt = block.bounds.doubt[static_cast<std::size_t>(g)];
      const double ratio = static_cast<double>(residual * residual) /
                           std::max(static_cast<double>(limit) * doubt * doubt, static_cast<double>(std::numeric_limits<T>::min()));
      block.spread[static_cast<std::size_t>(2 * g)] = std::max(block.spread[static_cast<std::size_t>(2 * g)], static_cast<T>(ratio));
      block.spread[static_cast<std::size_t>(2 * g + 1)] += static_cast<T>(ratio);
    }
    block.nearest.minimum[p] = best.score;
    // A second score below the smallest one comes from a fault.
    const T square = protect ? block.squares[p] : squared_norm(block, p);
    const T limit =
        centroids.order.margin.square * square + centroids.order.margin.least_score * best.score + centroids.order.margin.offset;
    if (best.second >= best.score && best.second - best.score <= limit)
      block.undecided.points[block.undecided.count++] = static_cast<std::int32_t>(p);
    block.nearest.index[p] = best.index;
    block.twin.index[p] = twin.index;
    if (protect && !(best.score == twin.score)) kept = std::numeric_limits<T>::quiet_NaN();
    if (!(kept == 0) && found.row < 0) found = {kept, block.first + p};
  }
  block.doubtful = false;
  for (std::size_t g = 0; protect && g < block.spread.size(); g += 2) {
    const double largest = static_cast<double>(block.spread[g]), sum = static_cast<double>(block.spread[g + 1]);
    if (stands_out(largest, sum - largest, block.count - 1)) block.doubtful = true;
  }
  return found;
}

template <class T>
void keep_in_range(point_block<T>& block, std::int64_t k) {
  for (std::int64_t p = 0; p < block.count; ++p)
    if (block.label[p] < 0 || block.label[p] >= k) block.label[p] = static_cast<std::int32_t>(k - 1);
}

template <class T>
row_failure check(const point_block<T>& block, std::int64_t k) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    if (block.label[p] != block.twin.index[p] || block.label[p] < 0 || block.label[p] >= k)
      return {std::numeric_limits<double>::quiet_NaN(), block.first + p};
  }
  return {};
}

template <class T>
void accumulate(const source<T>& from, const point_block<T>& block, cluster_sums& into) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    const std::int64_t j = block.label[p];
    const double weight = static_cast<double>(block.weight[p]);
    for (std::int64_t f = 0; f < block.n; ++f)
      into.sums[j * block.n + f] += weight * static_cast<double>(coordinate(from, block.first + p, f));
    if (into.weights.size() != 0) into.weights[j] += weight;
    into.members[j] += weight > 0 ? 1 : 0;
  }
}

template <class T>
void project(const point_block<T>& block, const double* direction, double* projection) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    double sum = 0;
    for (std::int64_t f = 0; f < block.n; ++f) sum += direction[f] * static_cast<double>(block.x[p * block.n + f]);
    projection[p] = static_cast<double>(block.weight[p]) * sum;
  }
}

template <class T>
void sum_labels(const point_block<T>& block, const double* projection, cluster_sums& into) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    const double label = block.label[p];
    into.labelled_projection += label * projection[p];
    into.labelled_weight += label * static_cast<double>(block.weight[p]);
    into.labelled_members += block.weight[p] > 0 ? label : 0;
  }
}

template <class T>
void exact(const source<T>& from, const T* centroids, const double*, double lift, point_block<T>& block) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* c = centroids + block.label[p] * block.n;
    double sum = 0;
    for (std::int64_t f = 0; f < block.n; ++f) {
      const double difference = lift * (static_cast<double>(coordinate(from, block.first + p, f)) - static_cast<double>(c[f]));
      sum += difference * difference;
    }
    block.exact[p] = sum;
  }
}

template <class T>
void section_distances(const packed_centroids<T>& centroids, const difference_operands<T>& from, std::int64_t section, bool protect,
                       const product_hook& hook, point_block<T>& block) {
  const std::int64_t n = block.n;
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(section)];
  const std::int64_t last = centroids.first_tile[static_cast<std::size_t>(section) + 1];
  const auto each_column = [&](auto&& use) {
    for (std::int64_t t = first; t < last; ++t)
      for (std::int64_t r = 0; r < centroids.used[static_cast<std::size_t>(t)]; ++r) use((t - first) * k_tile + r);
  };
  for (std::int64_t p = 0; p < block.count; ++p) {
    each_column([&](std::int64_t column) {
      const T* twice = from.packed + (first + column / k_tile) * n * k_tile + column % k_tile;  // −2c
      block.distance[column * block.capacity + p] = sum_features(T(0), n, [&](std::int64_t f) {
        const T difference = from.x[p * n + f] + twice[f * k_tile] / 2;
        return difference * difference;
      });
    });
  }
  inject::position here = hook.position;
  hook.injector->strike(site::product, here, block.distance.data(), block.count);
  if (!protect) return;
  T norms = 0;
  for (std::int64_t t = first; t < last; ++t) norms -= centroids.start[t];
  const auto at = static_cast<std::size_t>(section);
  const second_checksum<T>& other = centroids.second;
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T norm = squared_norm(block, p);
    T kept = 0;
    // Compares a weighted sum of the distances with start + all ‖x‖² + x · checksum. sizes, size_norms: the sums of the sizes
    // of the weights, and of these times ‖c‖².
    const auto check_sum = [&](const T* v, const core::aligned_buffer<T>& checksum, T rest, T start, T all, T sizes, T size_norms,
                               const abft::guarded_threshold& slope, const abft::guarded_threshold& offset) {
      T sum = 0;
      each_column([&](std::int64_t column) { sum += v[column] * block.distance[column * block.capacity + p]; });
      const T product = sum_features(rest, n, [&](std::int64_t f) { return checksum[section * n + f] * block.x[p * n + f]; });
      const T level = static_cast<T>(block.bounds.level.value) * (sizes * norm + size_norms);
      compare(sum - (product + start + all * norm), 3 * (squared<T>(slope) * norm + squared<T>(offset) + level * level), kept);
    };
    check_sum(centroids.weights.data() + first * k_tile, centroids.checksum, centroids.rest[section], norms, centroids.sum_weights[section],
              centroids.sum_weights[section], norms, block.bounds.slope[at], block.bounds.offset[at]);
    check_sum(other.weights.data() + first * k_tile, other.checksum, other.rest[section], other.start[section], other.sum[section],
              other.size[section], other.norms[section], block.bounds.second_slope[at], block.bounds.second_offset[at]);
    block.residual[0][p] = kept;
  }
}

// Computes each root twice.
template <class T>
bool store_distances(const packed_centroids<T>& centroids, std::int64_t section, double scale, bool protect, const product_hook& hook,
                     const point_block<T>& block, const matrix_view<T>& values) {
  const double unscale = 1 / scale;
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(section)] * k_tile;
  const std::int64_t last = centroids.first_tile[static_cast<std::size_t>(section) + 1] * k_tile;
  bool same = true;
  for (std::int64_t p = 0; p < block.count; ++p) {
    T roots[k_section];
    const auto root = [&](std::int64_t j) {
      return static_cast<T>(std::sqrt(static_cast<double>(block.distance[j * block.capacity + p])) * unscale);
    };
    std::int64_t columns = 0;  // the others are padding
    for (; first + columns < last && centroids.names[0][first + columns] >= 0; ++columns) roots[columns] = root(columns);
    if (p + 1 == block.count) hook.injector->strike(site::product, hook.position, roots, columns);
    for (std::int64_t j = 0; j < columns; ++j) values(block.first + p, centroids.names[0][first + j]) = roots[j];
    for (std::int64_t j = 0; protect && j < columns; ++j)
      same = same && values(block.first + p, centroids.names[1][first + j]) ==
                         static_cast<T>(std::sqrt(static_cast<double>(block.distance[j * block.capacity + p])) / scale);
  }
  return same;
}

}  // namespace

template <class T>
const kernels<T>& reference_kernels() {
  static constexpr kernels<T> all = {1,
                                     load<T>,
                                     sign<T>,
                                     sign_source<T>,
                                     add_ranges<T>,
                                     sum_rows<T>,
                                     measure<T>,
                                     assign<T>,
                                     keep_in_range<T>,
                                     check<T>,
                                     accumulate<T>,
                                     project<T>,
                                     sum_labels<T>,
                                     exact<T>,
                                     section_distances<T>,
                                     store_distances<T>};
  return all;
}

template const kernels<float>& reference_kernels();
template const kernels<double>& reference_kernels();

}  // namespace ballast::kmeans
