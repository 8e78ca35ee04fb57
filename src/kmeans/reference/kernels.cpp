// The kernels of block.hpp as plain loops. A reader can check them by hand, and the other backends are tested against them.
// Layer: kernels "reference" of the host backend. Serial, one point after another (width 1), no SIMD.
#include <algorithm>
#include <cmath>
#include <limits>

#include "inject/injector.hpp"
#include "kmeans/reference/steps.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans {

namespace {

using namespace reference;

// Returns feature f of point i, scaled and centred. At most two roundings: the product with a power of two is exact.
template <class T>
T coordinate(const source<T>& from, std::int64_t i, std::int64_t f) {
  return from.points(i - from.origin, f) * from.scale - from.shift[at(f)];
}

template <class T>
void load(const source<T>& from, point_block<T>& block) {
  for (std::int64_t p = 0; p < block.capacity; ++p) {
    const bool used = p < block.count;
    for (std::int64_t f = 0; f < block.n; ++f) block.x[p * block.n + f] = used ? coordinate(from, block.first + p, f) : T(0);
    block.weight[p] = !used ? T(0) : from.weights.empty() ? T(1) : from.weights[at(block.first + p)] * from.weight_scale;
  }
}

// Lane e % 64 holds the sum over elements e.
template <class T>
void sign(const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  for (std::int64_t p = 0; p < block.count; ++p)
    for (std::int64_t f = 0; f < block.n; ++f) lanes[(p * block.n + f) % 64] += ordered_bits(block.x[p * block.n + f]);
}

template <class T>
void sign_source(const source<T>& from, const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  for (std::int64_t f = 0; f < block.n; ++f)
    for (std::int64_t p = 0; p < block.count; ++p) lanes[(p * block.n + f) % 64] += ordered_bits(coordinate(from, block.first + p, f));
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
  return sum_in_runs(T(0), 0, block.n, [&](std::int64_t f) { return block.x[p * block.n + f] * block.x[p * block.n + f]; });
}

template <class T>
void measure(point_block<T>& block) {
  for (std::int64_t p = 0; p < block.count; ++p) block.norm[p] = squared_norm(block, p);
}

// Returns x · C of section g plus the rounding errors of its tiles' start values: the expected value of Σ_tiles (start + Σ w D).
template <class T>
T encoded(const packed_centroids<T>& centroids, std::int64_t g, const point_block<T>& block, std::int64_t p) {
  return sum_in_runs(centroids.rest[g], 0, block.n,
                     [&](std::int64_t f) { return centroids.checksum[g * block.n + f] * block.x[p * block.n + f]; });
}

template <class T>
row_failure assign(const packed_centroids<T>& centroids, search_kind what, const product_hook& hook, point_block<T>& block) {
  const bool protect = what != search_kind::plain;
  const std::int64_t n = block.n;
  row_failure found;
  begin_search(centroids, block);
  for (std::int64_t p = 0; p < block.count; ++p) {
    least_score<T> best, twin{.score = std::numeric_limits<T>::max()};
    T kept = 0;
    for (std::int64_t g = 0; g < centroids.sections; ++g) {
      least_score<T> here_best, here_twin{.score = std::numeric_limits<T>::max()};
      T sum = 0;
      for (std::int64_t t = centroids.first_tile[at(g)]; t < centroids.first_tile[at(g) + 1]; ++t) {
        const std::int64_t real = centroids.used[at(t)];
        T product[k_tile];
        const T *const features = &centroids.packed[t * n * k_tile], *const x = &block.x[p * n];
        for (std::int64_t r = 0; r < real; ++r) {
          product[r] = sum_in_runs(centroids.norms[t * k_tile + r], 0, n, [&](std::int64_t f) { return features[f * k_tile + r] * x[f]; });
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
      judge_section(sum - encoded(centroids, g, block, p), g, p, block, kept);
    }
    decide_point(centroids, protect, p, protect ? block.squares[p] : squared_norm(block, p), best, twin, kept, block, found);
  }
  end_search(protect, block);
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
  const std::int64_t first = centroids.first_tile[at(section)], last = centroids.first_tile[at(section) + 1];
  const auto each_column = [&](auto&& use) {
    for (std::int64_t t = first; t < last; ++t)
      for (std::int64_t r = 0; r < centroids.used[at(t)]; ++r) use((t - first) * k_tile + r);
  };
  for (std::int64_t p = 0; p < block.count; ++p) {
    each_column([&](std::int64_t column) {
      const T* twice = from.packed + (first + column / k_tile) * n * k_tile + column % k_tile;  // −2c
      block.distance[column * block.capacity + p] = sum_in_runs(T(0), 0, n, [&](std::int64_t f) {
        const T difference = from.x[p * n + f] + twice[f * k_tile] / 2;
        return difference * difference;
      });
    });
  }
  inject::position here = hook.position;
  hook.injector->strike(site::product, here, block.distance.data(), block.count);
  if (!protect) return;
  for (std::int64_t p = 0; p < block.count; ++p) {
    block.residual[0][p] = verify_distances(
        centroids, section, n, squared_norm(block, p), block,
        [&](const T* v) {
          T sum = 0;
          each_column([&](std::int64_t column) { sum += v[column] * block.distance[column * block.capacity + p]; });
          return sum;
        },
        [&](T rest, const T* checksum) {
          return sum_in_runs(rest, 0, n, [&](std::int64_t f) { return checksum[f] * block.x[p * n + f]; });
        });
  }
}

// Computes each root twice.
template <class T>
bool store_distances(const packed_centroids<T>& centroids, std::int64_t section, double scale, bool protect, const product_hook& hook,
                     const point_block<T>& block, const matrix_view<T>& values) {
  const double unscale = 1 / scale;
  const std::int64_t first = centroids.first_tile[at(section)] * k_tile;
  const std::int64_t last = centroids.first_tile[at(section) + 1] * k_tile;
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
