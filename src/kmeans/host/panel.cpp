// Tiles of centroids, checksum centroids and limits.
// Layer: backend "host".
#include "kmeans/host/panel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "abft/weights.hpp"

namespace ballast::kmeans::host {

namespace {

constexpr std::uint64_t k_weight_seed = 0x6b6d65616e73;

template <class T>
T check_weight(std::int64_t j) {
  return static_cast<T>(abft::random_weight(k_weight_seed, 0, static_cast<std::uint64_t>(j)));
}

}  // namespace

template <class T>
void make_panel(const T* centroids, std::int64_t k, std::int64_t n, bool protect, panel<T>& made, inject::active_injector* injector) {
  const std::int64_t tiles = (k + k_tile - 1) / k_tile;
  const std::int64_t sections = (k + k_section - 1) / k_section;
  if (made.k != k || made.n != n) {
    made.n = n;
    made.k = k;
    made.tiles = tiles;
    made.sections = sections;
    made.rows = core::aligned_buffer<T>(core::checked_product(k, n));
    made.packed = core::aligned_buffer<T>(core::checked_product(core::checked_product(tiles, k_tile), n));
    made.norms = core::aligned_buffer<T>(tiles * k_tile);
    made.weights = core::aligned_buffer<T>(tiles * k_tile);
    made.checksum = core::aligned_buffer<T>(core::checked_product(sections, n));
    made.start = core::aligned_buffer<T>(tiles);
    made.rest = core::aligned_buffer<T>(sections);
    made.sum_weights = core::aligned_buffer<T>(sections);
    made.bounds.slope.resize(static_cast<std::size_t>(sections));
    made.bounds.offset.resize(static_cast<std::size_t>(sections));
  }
  std::copy_n(centroids, k * n, made.rows.data());
  for (std::int64_t t = 0; t < tiles; ++t) {
    for (std::int64_t r = 0; r < k_tile; ++r) {
      const std::int64_t j = std::min(t * k_tile + r, k - 1);
      const T* c = centroids + j * n;
      T* to = made.packed.data() + t * n * k_tile + r;
      double norm = 0;
      for (std::int64_t f = 0; f < n; ++f) {
        to[f * k_tile] = -2 * c[f];
        norm += static_cast<double>(c[f]) * static_cast<double>(c[f]);
      }
      made.norms[t * k_tile + r] = static_cast<T>(norm);
    }
  }
  if (injector != nullptr) injector->strike(inject::site::kmeans_norm, {}, made.norms.data(), k);
  if (!protect) return;

  std::vector<double> sums(static_cast<std::size_t>(n));
  for (std::int64_t g = 0; g < sections; ++g) {
    std::ranges::fill(sums, 0.0);
    double sum_norm = 0, sum_square = 0, root_norm = 0, root_square = 0, rest = 0, sum_weights = 0;
    const std::int64_t last = std::min((g + 1) * k_section / k_tile, tiles);
    for (std::int64_t t = g * k_section / k_tile; t < last; ++t) {
      double start = 0;
      for (std::int64_t r = 0; r < k_tile; ++r) {
        const std::int64_t j = t * k_tile + r;
        const T w = j < k ? check_weight<T>(j) : T(0);
        made.weights[j] = w;
        if (j >= k) continue;
        const double weight = static_cast<double>(w);
        const double norm = static_cast<double>(made.norms[j]);
        start += weight * norm;
        sum_weights += weight;
        sum_norm += weight * std::sqrt(norm);
        sum_square += weight * norm;
        root_norm += weight * weight * norm;
        root_square += weight * weight * norm * norm;
        const T* c = centroids + j * n;
        for (std::int64_t f = 0; f < n; ++f) sums[static_cast<std::size_t>(f)] += -2 * weight * static_cast<double>(c[f]);
      }
      made.start[t] = static_cast<T>(-start);
      rest += start + static_cast<double>(made.start[t]);
    }
    double checksum_norm = 0;
    for (std::int64_t f = 0; f < n; ++f) {
      made.checksum[g * n + f] = static_cast<T>(sums[static_cast<std::size_t>(f)]);
      checksum_norm += sums[static_cast<std::size_t>(f)] * sums[static_cast<std::size_t>(f)];
    }
    made.rest[g] = static_cast<T>(rest);
    made.sum_weights[g] = static_cast<T>(sum_weights);
    const auto found = abft::kmeans_row_limits(abft::unit_roundoff<T>, n, sum_norm, sum_square, std::sqrt(root_norm),
                                               std::sqrt(root_square), std::sqrt(checksum_norm));
    // Products of subnormal numbers err absolutely, not relatively; and 0 ≤ 0 must hold where the squares of the limits underflow.
    const double least = 64 * static_cast<double>(n + k_section) * static_cast<double>(std::numeric_limits<T>::denorm_min());
    made.bounds.slope[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.slope);
    made.bounds.offset[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.offset + least);
  }
  made.bounds.level = abft::guarded_threshold(abft::kmeans_distance_limit(abft::unit_roundoff<T>, n));
}

template <class T>
double verify_panel(const panel<T>& made) {
  double worst = 0;
  const auto expect = [&](double found, double expected, double limit) {
    const double ratio = std::abs(found - expected) / limit;
    if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
  };
  const double least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  const double length = static_cast<double>(made.n);
  for (std::int64_t j = 0; j < made.k; ++j) {
    double norm = 0;
    for (std::int64_t f = made.n; f-- > 0;) {
      const double c = static_cast<double>(made.packed[(j / k_tile * made.n + f) * k_tile + j % k_tile]);  // −2c
      norm += c * c;
    }
    norm /= 4;
    const double rounding = (4 + std::sqrt(length) + length / 8) * abft::unit_roundoff<double>;
    expect(static_cast<double>(made.norms[j]), norm, (1.01 * abft::unit_roundoff<T> + rounding) * norm + least);
  }
  for (std::int64_t g = 0; g < made.sections; ++g) {
    const std::int64_t first = g * k_section;
    const std::int64_t last = std::min(first + k_section, made.k);
    for (std::int64_t f = 0; f < made.n; ++f) {
      double sum = 0, size = 0;
      for (std::int64_t j = last; j-- > first;) {
        const double term = -2 * static_cast<double>(check_weight<T>(j)) * static_cast<double>(made.rows[j * made.n + f]);
        sum += term;
        size += std::abs(term);
      }
      expect(static_cast<double>(made.checksum[g * made.n + f]), sum,
             1.01 * abft::unit_roundoff<T> * std::abs(sum) + 64 * abft::unit_roundoff<double> * size + least);
    }
  }
  return worst;
}

template void make_panel(const float*, std::int64_t, std::int64_t, bool, panel<float>&, inject::active_injector*);
template void make_panel(const double*, std::int64_t, std::int64_t, bool, panel<double>&, inject::active_injector*);
template double verify_panel(const panel<float>&);
template double verify_panel(const panel<double>&);

}  // namespace ballast::kmeans::host
