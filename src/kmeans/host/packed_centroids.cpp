// Packs centroids into tiles; computes checksum centroids and the thresholds of the row checks.
// Layer: backend "host".
#include "kmeans/host/packed_centroids.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "inject/injector.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::host {

namespace {

constexpr std::uint64_t k_weight_seed = 0x6b6d65616e73;

template <class T>
T check_weight(std::int64_t j) {
  return static_cast<T>(abft::random_weight(k_weight_seed, 0, static_cast<std::uint64_t>(j)));
}

// The weight of a column in second_checksum.
template <class T>
T second_weight(std::int64_t j, std::int64_t column) {
  const T size = static_cast<T>(abft::random_weight(k_weight_seed, 1, static_cast<std::uint64_t>(j)));
  return column % 2 == 0 ? size : -size;
}

// Centroids whose norms differ by more than this factor do not share a row check.
constexpr double k_norm_ratio = 16;

template <class T>
double squared_norm(const T* c, std::int64_t n) {
  double norm = 0;
  for (std::int64_t f = 0; f < n; ++f) norm += static_cast<double>(c[f]) * static_cast<double>(c[f]);
  return norm;
}

// Groups the centroids into classes of similar norms, largest norms first. Returns one class if one is enough.
core::vector<core::vector<std::int32_t>> classes_of(const core::vector<double>& norms) {
  core::vector<std::int32_t> order(norms.size());
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::int32_t j) {  // NaN, which only a fault can produce, has no order
    const double norm = norms[static_cast<std::size_t>(j)];
    return norm >= 0 ? norm : std::numeric_limits<double>::infinity();
  };
  const auto [least, most] = std::ranges::minmax(order, {}, size);
  if (!(size(least) * k_norm_ratio * k_norm_ratio < size(most))) return {order};
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; });
  core::vector<core::vector<std::int32_t>> made;
  double top = 0;
  for (const std::int32_t j : order) {
    if (made.empty() || size(j) * k_norm_ratio * k_norm_ratio < top) {
      made.emplace_back();
      top = size(j);
    }
    made.back().push_back(j);
  }
  for (auto& each : made) std::ranges::sort(each);
  return made;
}

// Returns the number of low bits of a score that hold the place of a column in its section.
template <class T>
int place_bits(const packed_centroids<T>& of) {
  std::int64_t most = 0;
  for (std::int64_t g = 0; g < of.sections; ++g)
    most = std::max(most, of.first_tile[static_cast<std::size_t>(g) + 1] - of.first_tile[static_cast<std::size_t>(g)]);
  return std::bit_width(static_cast<std::uint64_t>(most * k_tile - 1));
}
template <class T>
T score_bits(const packed_centroids<T>& of) {
  return lane_of<T>(~((std::uint64_t{1} << place_bits(of)) - 1));
}
template <class T>
T place_of(const packed_centroids<T>& of, std::int64_t section, std::int64_t column) {
  return lane_of<T>(static_cast<std::uint64_t>(column - of.first_tile[static_cast<std::size_t>(section)] * k_tile));
}

// Assigns centroids to columns: fills packed_centroids::first_tile, used, names and order.
template <class T>
void arrange(const core::vector<core::vector<std::int32_t>>& classes, packed_centroids<T>& made) {
  made.sorted = classes.size() > 1;
  made.first_tile.assign(1, 0);
  made.used.clear();
  for (const auto& members : classes) {
    for (std::size_t begin = 0; begin < members.size(); begin += k_section) {
      const auto end = std::min(members.size(), begin + k_section);
      for (std::size_t j = begin; j < end; j += k_tile)
        made.used.push_back(static_cast<std::int64_t>(std::min<std::size_t>(end - j, k_tile)));
      made.first_tile.push_back(static_cast<std::int64_t>(made.used.size()));
    }
  }
  const auto tiles = static_cast<std::int64_t>(made.used.size());
  const auto sections = static_cast<std::int64_t>(made.first_tile.size()) - 1;
  if (made.for_sparse() && made.sparse.start.size() != tiles * k_tile) made.sparse.start = core::aligned_buffer<T>(tiles * k_tile);
  if (made.for_sparse() && made.sparse.rest.size() != sections) made.sparse.rest = core::aligned_buffer<T>(sections);
  if (made.norms.size() != tiles * k_tile || made.packed.size() != tiles * k_tile * made.n) {
    made.packed = core::aligned_buffer<T>(core::checked_product(core::checked_product(tiles, k_tile), made.n));
    for (auto* each : {&made.norms, &made.weights, &made.second.weights, &made.order.places[0], &made.order.places[1]})
      *each = core::aligned_buffer<T>(tiles * k_tile);
    for (auto& each : made.names) each = core::aligned_buffer<std::int32_t>(tiles * k_tile);
    made.start = core::aligned_buffer<T>(tiles);
  }
  if (made.rest.size() != sections || made.checksum.size() != sections * made.n) {
    made.checksum = core::aligned_buffer<T>(core::checked_product(sections, made.n));
    made.rest = core::aligned_buffer<T>(sections);
    made.sum_weights = core::aligned_buffer<T>(sections);
    made.second.checksum = core::aligned_buffer<T>(core::checked_product(sections, made.n));
    for (auto* each : {&made.second.start, &made.second.rest, &made.second.sum, &made.second.size, &made.second.norms})
      *each = core::aligned_buffer<T>(sections);
  }
  made.tiles = tiles;
  made.sections = sections;
  made.bounds.slope.resize(static_cast<std::size_t>(sections));
  made.bounds.offset.resize(static_cast<std::size_t>(sections));
  made.bounds.doubt.resize(static_cast<std::size_t>(sections));
  made.bounds.second_slope.resize(static_cast<std::size_t>(sections));
  made.bounds.second_offset.resize(static_cast<std::size_t>(sections));
  for (auto& names : made.names) {
    std::fill_n(names.data(), names.size(), -1);
    std::size_t t = 0;
    for (const auto& members : classes) {
      for (std::size_t j = 0; j < members.size(); ++t) {
        for (std::int64_t r = 0; r < made.used[t]; ++r) names[static_cast<std::int64_t>(t) * k_tile + r] = members[j++];
      }
    }
  }
  for (const int search : {0, 1}) {
    made.order.score_bits[search] = score_bits(made);
    for (std::int64_t g = 0; g < sections; ++g)
      for (std::int64_t column = made.first_tile[static_cast<std::size_t>(g)] * k_tile;
           column < made.first_tile[static_cast<std::size_t>(g) + 1] * k_tile; ++column)
        made.order.places[search][column] = place_of(made, g, column);
  }
}

// Fills packed_centroids::sparse, except for the squares.
template <class T>
void add_sparse_columns(packed_centroids<T>& made) {
  for (std::int64_t g = 0; g < made.sections; ++g) {
    double rest = 0;
    for (std::int64_t column = made.first_tile[static_cast<std::size_t>(g)] * k_tile;
         column < made.first_tile[static_cast<std::size_t>(g) + 1] * k_tile; ++column) {
      const double start = static_cast<double>(made.weights[column]) * static_cast<double>(made.norms[column]);
      made.sparse.start[column] = static_cast<T>(-start);
      rest += start + static_cast<double>(made.sparse.start[column]);
    }
    made.sparse.rest[g] = static_cast<T>(rest);
  }
}

// Products of subnormal numbers have an absolute error, not a relative one; and 0 ≤ 0 must hold if the squares of the limits underflow.
template <class T>
double least_limit(std::int64_t n) {
  return 64 * static_cast<double>(n + k_section) * static_cast<double>(std::numeric_limits<T>::denorm_min());
}

// Fills packed_centroids::second and its thresholds, those of thresholds::row for the weights |v|.
template <class T>
void add_second_checksum(const T* centroids, packed_centroids<T>& made) {
  second_checksum<T>& to = made.second;
  core::vector<double> sums(static_cast<std::size_t>(made.n));
  for (std::int64_t g = 0; g < made.sections; ++g) {
    std::ranges::fill(sums, 0.0);
    double start = 0, sum = 0, size = 0, sum_norm = 0, norms = 0, root_norm = 0, root_square = 0;
    for (std::int64_t column = made.first_tile[static_cast<std::size_t>(g)] * k_tile;
         column < made.first_tile[static_cast<std::size_t>(g) + 1] * k_tile; ++column) {
      const std::int64_t j = made.names[0][column];
      to.weights[column] = j >= 0 ? second_weight<T>(j, column) : T(0);
      if (j < 0) continue;
      const double v = static_cast<double>(to.weights[column]), weight = std::abs(v), norm = static_cast<double>(made.norms[column]);
      start += v * norm;
      sum += v;
      size += weight;
      sum_norm += weight * std::sqrt(norm);
      norms += weight * norm;
      root_norm += weight * weight * norm;
      root_square += weight * weight * norm * norm;
      for (std::int64_t f = 0; f < made.n; ++f)
        sums[static_cast<std::size_t>(f)] += -2 * v * static_cast<double>(centroids[j * made.n + f]);
    }
    double checksum_norm = 0;
    for (std::int64_t f = 0; f < made.n; ++f) {
      to.checksum[g * made.n + f] = static_cast<T>(sums[static_cast<std::size_t>(f)]);
      checksum_norm += sums[static_cast<std::size_t>(f)] * sums[static_cast<std::size_t>(f)];
    }
    to.start[g] = static_cast<T>(start);
    to.rest[g] = static_cast<T>(start - static_cast<double>(to.start[g]));
    to.sum[g] = static_cast<T>(sum);
    to.size[g] = static_cast<T>(size);
    to.norms[g] = static_cast<T>(norms);
    const auto found = thresholds::row(abft::unit_roundoff<T>, made.terms(), sum_norm, norms, std::sqrt(root_norm), std::sqrt(root_square),
                                       std::sqrt(checksum_norm));
    made.bounds.second_slope[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.slope);
    made.bounds.second_offset[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.offset + least_limit<T>(made.n));
  }
}

}  // namespace

template <class T>
void pack_centroids(const T* centroids, std::int64_t k, std::int64_t n, bool protect, packed_centroids<T>& made,
                    inject::active_injector* injector) {
  if (made.rows.size() != k * n) made.rows = core::aligned_buffer<T>(core::checked_product(k, n));
  made.n = n;
  made.k = k;
  std::copy_n(centroids, k * n, made.rows.data());
  core::vector<double> own_norms(static_cast<std::size_t>(k), 1.0);
  for (std::int64_t j = 0; j < k; ++j) own_norms[static_cast<std::size_t>(j)] = squared_norm(centroids + j * n, n);
  arrange(classes_of(protect && made.by_norm ? own_norms : core::vector<double>(own_norms.size(), 1.0)), made);
  made.order.margin = thresholds::margin_with_places<T>(made.terms(), place_bits(made));
  for (std::int64_t g = 0; g < made.sections; ++g) {
    const std::int64_t stride = made.stride_of(g);
    for (std::int64_t t = made.first_tile[static_cast<std::size_t>(g)]; t < made.first_tile[static_cast<std::size_t>(g) + 1]; ++t) {
      for (std::int64_t r = 0; r < k_tile; ++r) {
        const std::int64_t j = made.names[0][t * k_tile + std::min(r, made.used[static_cast<std::size_t>(t)] - 1)];
        const T* c = centroids + j * n;
        T* to = made.packed.data() + made.place_of(g, t * k_tile + r);
        for (std::int64_t f = 0; f < n; ++f) to[f * stride] = -2 * c[f];
        made.norms[t * k_tile + r] =
            r < made.used[static_cast<std::size_t>(t)] ? static_cast<T>(own_norms[static_cast<std::size_t>(j)]) : static_cast<T>(k_padding);
      }
    }
  }
  if (made.for_sparse())
    for (auto& each : made.sparse.squares) each = own_norms;
  if (injector != nullptr) injector->strike(site::norm, {}, made.norms.data(), made.sorted ? made.used[0] : k);
  if (!protect) return;

  core::vector<double> sums(static_cast<std::size_t>(n));
  for (std::int64_t g = 0; g < made.sections; ++g) {
    std::ranges::fill(sums, 0.0);
    double sum_norm = 0, sum_square = 0, root_norm = 0, root_square = 0, rest = 0, sum_weights = 0;
    for (std::int64_t t = made.first_tile[static_cast<std::size_t>(g)]; t < made.first_tile[static_cast<std::size_t>(g) + 1]; ++t) {
      double start = 0;
      for (std::int64_t r = 0; r < k_tile; ++r) {
        const std::int64_t column = t * k_tile + r;
        const std::int64_t j = made.names[0][column];
        made.weights[column] = j >= 0 ? check_weight<T>(j) : T(0);
        if (j < 0) continue;
        const double weight = static_cast<double>(made.weights[column]);
        const double norm = static_cast<double>(made.norms[column]);
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
    const auto found = thresholds::row(abft::unit_roundoff<T>, made.terms(), sum_norm, sum_square, std::sqrt(root_norm),
                                       std::sqrt(root_square), std::sqrt(checksum_norm));
    made.bounds.slope[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.slope);
    made.bounds.offset[static_cast<std::size_t>(g)] = abft::guarded_threshold(found.offset + least_limit<T>(n));
    made.bounds.doubt[static_cast<std::size_t>(g)] = found.doubt;
  }
  add_second_checksum(centroids, made);
  if (made.for_sparse()) add_sparse_columns(made);
  made.bounds.level = abft::guarded_threshold(thresholds::distance(abft::unit_roundoff<T>, made.terms()));
}

template <class T>
double verify_packed_centroids(const packed_centroids<T>& made) {
  double worst = 0;
  const auto expect = [&](double found, double expected, double limit) {
    const double ratio = std::abs(found - expected) / limit;
    if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // keeps a NaN
  };
  const double least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  const double length = static_cast<double>(made.n);
  const double rounding = (4 + std::sqrt(length) + length / 8) * abft::unit_roundoff<double>;
  core::vector<bool> seen(static_cast<std::size_t>(made.k));
  const auto same_bits = [](T found, T expected) { return abft::word_of(found) == abft::word_of(expected); };
  for (const T& each : made.order.score_bits)
    if (!same_bits(each, score_bits(made))) return std::numeric_limits<double>::infinity();
  for (std::int64_t g = 0; g < made.sections; ++g) {
    const std::int64_t first = made.first_tile[static_cast<std::size_t>(g)] * k_tile;
    const std::int64_t last = made.first_tile[static_cast<std::size_t>(g) + 1] * k_tile;
    core::vector<std::int64_t> members;
    for (std::int64_t column = first; column < last; ++column) {
      const std::int64_t j = made.names[1][column];
      const bool copy = column % k_tile >= made.used[static_cast<std::size_t>(column / k_tile)];
      for (const auto& places : made.order.places)
        if (!same_bits(places[column], place_of(made, g, column))) return std::numeric_limits<double>::infinity();
      // Each centroid must appear once, with the same index under both names.
      if (j != made.names[0][column] || copy != (j == -1) || j >= made.k || (!copy && (j < 0 || seen[static_cast<std::size_t>(j)])))
        return std::numeric_limits<double>::infinity();
      if (copy) continue;
      seen[static_cast<std::size_t>(j)] = true;
      members.push_back(j);
      const T* packed = made.packed.data() + made.place_of(g, column);
      const std::int64_t stride = made.stride_of(g);
      double norm = 0;
      bool same = true;
      for (std::int64_t f = made.n; f-- > 0;) {
        norm += static_cast<double>(packed[f * stride]) * static_cast<double>(packed[f * stride]) / 4;
        same = same && packed[f * stride] == -2 * made.rows[j * made.n + f];
      }
      if (!same) return std::numeric_limits<double>::infinity();
      expect(static_cast<double>(made.norms[column]), norm, (1.01 * abft::unit_roundoff<T> + rounding) * norm + least);
      if (!made.for_sparse()) continue;
      for (const auto& squares : made.sparse.squares) expect(squares[static_cast<std::size_t>(j)], norm, rounding * norm + least);
      const double start = static_cast<double>(made.weights[column]) * norm;
      expect(static_cast<double>(-made.sparse.start[column]), start, (2.02 * abft::unit_roundoff<T> + rounding) * start + least);
    }
    for (std::int64_t f = 0; f < made.n; ++f) {
      double sum = 0, size = 0;
      for (std::size_t c = members.size(); c-- > 0;) {
        const double term = -2 * static_cast<double>(check_weight<T>(members[c])) * static_cast<double>(made.rows[members[c] * made.n + f]);
        sum += term;
        size += std::abs(term);
      }
      expect(static_cast<double>(made.checksum[g * made.n + f]), sum,
             1.01 * abft::unit_roundoff<T> * std::abs(sum) + 64 * abft::unit_roundoff<double> * size + least);
    }
  }
  if (std::ranges::count(seen, true) != made.k) return std::numeric_limits<double>::infinity();
  return worst;
}

template void pack_centroids(const float*, std::int64_t, std::int64_t, bool, packed_centroids<float>&, inject::active_injector*);
template void pack_centroids(const double*, std::int64_t, std::int64_t, bool, packed_centroids<double>&, inject::active_injector*);
template double verify_packed_centroids(const packed_centroids<float>&);
template double verify_packed_centroids(const packed_centroids<double>&);

}  // namespace ballast::kmeans::host
