// The kernels of block.hpp for points in compressed rows, as plain loops over the stored elements. Those of the cpu backend differ in the
// search (cpu/sparse.cpp).
// Layer: kernels "reference" of the host backend. Serial, one point after another (width 1), no SIMD.
// Sums over features run over stored elements: a zero adds nothing. Distances from differences have the terms of the zeros, too; they are
// ‖c‖² + Σ x (x − 2c) in double where that does not cancel, else the sum over all features.
#include <algorithm>

#include "inject/injector.hpp"
#include "kmeans/reference/steps.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans {

namespace sparse_loops {

using namespace reference;

// Returns start + Σ term(e) over the stored elements of point p.
template <class T, class Term>
T sum_elements(T start, const point_block<T>& block, std::int64_t p, Term&& term) {
  return sum_in_runs(start, block.begin[p], block.begin[p + 1], term);
}

template <class T>
void load(const source<T>& from, point_block<T>& block) {
  const sparse_rows<T>& rows = from.sparse;
  std::int64_t e = 0;
  for (std::int64_t p = 0; p < block.count; ++p) {
    block.begin[p] = e;
    rows.each(block.first + p, [&](std::int64_t column, T value) {
      block.column[e] = static_cast<std::int32_t>(column);
      block.x[e++] = value * from.scale;
    });
    block.weight[p] = from.weights.empty() ? T(1) : from.weights[at(block.first + p)] * from.weight_scale;
  }
  std::fill(block.begin.data() + block.count, block.begin.data() + block.capacity + 1, e);
  std::fill(block.weight.data() + block.count, block.weight.data() + block.capacity, T(0));
}

// Odd factors, so that a changed bit of a column or of the end of a row changes the sum of its lane.
constexpr std::uint64_t k_of_columns = 0x9e3779b97f4a7c15, k_of_ends = 0xc2b2ae3d27d4eb4f;

// Lane e % 64 holds the sum over elements e, and over the ends of points e.
template <class T>
void sign(const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  for (std::int64_t e = 0, all = block.begin[block.count]; e < all; ++e)
    lanes[e % 64] += ordered_bits(block.x[e]) + k_of_columns * static_cast<std::uint64_t>(static_cast<std::uint32_t>(block.column[e]));
  for (std::int64_t p = 0; p < block.count; ++p) lanes[p % 64] += k_of_ends * static_cast<std::uint64_t>(block.begin[p + 1]);
}

template <class T>
void sign_source(const source<T>& from, const point_block<T>& block, std::uint64_t* lanes) {
  std::fill_n(lanes, 64, 0);
  const sparse_rows<T>& rows = from.sparse;
  const std::int64_t origin = rows.first(block.first);
  for (std::int64_t p = block.count; p-- > 0;) {
    const std::int64_t end = rows.first(block.first + p + 1);
    lanes[p % 64] += k_of_ends * static_cast<std::uint64_t>(end - origin);
    for (std::int64_t s = end; s-- > rows.first(block.first + p);) {
      const T value = rows.value(s) * from.scale;
      lanes[(s - origin) % 64] += ordered_bits(value) + k_of_columns * static_cast<std::uint64_t>(rows.column(s));
    }
  }
}

template <class T>
void add_ranges(const source<T>& from, std::int64_t first, std::int64_t count, column_ranges<T>& into, T*) {
  for (std::size_t f = 0; f < into.low.size(); ++f) {  // the zeros that are not stored
    into.low[f] = std::min(into.low[f], T(0));
    into.high[f] = std::max(into.high[f], T(0));
  }
  for (std::int64_t i = first; i < first + count; ++i)
    from.sparse.each(i, [&](std::int64_t f, T value) { into.add(f, 1, [&](std::int64_t) { return value; }); });
}

template <class T>
void sum_rows(const source<T>& from, std::int64_t first, std::int64_t count, double* sums, double* squares, double* norms, T*) {
  for (std::int64_t p = 0; p < count; ++p) {
    norms[p] = 0;
    from.sparse.each(first + p, [&](std::int64_t f, T stored) {
      const double value = static_cast<double>(stored * from.scale);
      sums[f] += value;
      squares[f] += value * value;
      norms[p] += value * value;
    });
  }
}

template <class T>
T squared_norm(const point_block<T>& block, std::int64_t p) {
  return sum_elements(T(0), block, p, [&](std::int64_t e) { return block.x[e] * block.x[e]; });
}

template <class T>
void measure(point_block<T>& block) {
  for (std::int64_t p = 0; p < block.capacity; ++p) block.norm[p] = p < block.count ? squared_norm(block, p) : T(0);
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
      const std::int64_t first = centroids.first_tile[at(g)], stride = centroids.stride_of(g);
      T sum = 0;
      for (std::int64_t t = first; t < centroids.first_tile[at(g) + 1]; ++t) {
        const std::int64_t real = centroids.used[at(t)];
        T product[k_tile];
        for (std::int64_t r = 0; r < real; ++r) {
          const T* const features = centroids.packed.data() + centroids.place_of(g, t * k_tile + r);
          product[r] = sum_elements(centroids.norms[t * k_tile + r], block, p,
                                    [&](std::int64_t e) { return features[block.column[e] * stride] * block.x[e]; });
        }
        inject::position here = hook.position;
        here.step = p * centroids.tiles + t;
        here.steps = block.count * centroids.tiles;
        hook.injector->strike(site::product, here, product, real);
        T tile_sum = 0;
        for (std::int64_t r = 0; r < real; ++r) {
          if (r == real / 2) hook.injector->strike(site::minimum, here, &best.score, 1);
          best.see(product[r], centroids.names[0][t * k_tile + r]);
          if (!protect) continue;
          twin.see(product[r], centroids.names[1][t * k_tile + r]);
          tile_sum += centroids.weights[t * k_tile + r] * product[r] + centroids.sparse.start[t * k_tile + r];
        }
        sum += tile_sum;
      }
      if (!protect) continue;
      const T* const checksum = centroids.checksum.data() + g * n;
      const T residual =
          sum - sum_elements(centroids.sparse.rest[g], block, p, [&](std::int64_t e) { return checksum[block.column[e]] * block.x[e]; });
      judge_section(residual, g, p, block, kept);
    }
    // Points with equal scores are undecided, so any order of theirs serves.
    decide_point(centroids, protect, p, protect ? block.squares[p] : squared_norm(block, p), best, twin, kept, block, found);
  }
  end_search(protect, block);
  return found;
}

template <class T>
void accumulate(const source<T>& from, const point_block<T>& block, cluster_sums& into) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    const std::int64_t j = block.label[p];
    const double weight = static_cast<double>(block.weight[p]);
    double* const sums = into.sums.data() + j * block.n;
    from.sparse.each(block.first + p, [&](std::int64_t f, T value) { sums[f] += weight * static_cast<double>(value * from.scale); });
    if (into.weights.size() != 0) into.weights[j] += weight;
    into.members[j] += weight > 0 ? 1 : 0;
  }
}

template <class T>
void project(const point_block<T>& block, const double* direction, double* projection) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    double sum = 0;
    for (std::int64_t e = block.begin[p]; e < block.begin[p + 1]; ++e) sum += direction[block.column[e]] * static_cast<double>(block.x[e]);
    projection[p] = static_cast<double>(block.weight[p]) * sum;
  }
}

// ‖c‖² + Σ x (x − 2c) that cancels to less than this part of ‖x‖² + ‖c‖² is computed from differences instead. Each of its e + 1 terms
// passes e + 1 additions and up to 3 operations of its own, and their sizes add up to 2 (‖x‖² + ‖c‖²) at most: so the sum errs by 16 (e +
// 4) u of itself at most, in double, and its root by half of that.
constexpr double k_cancelled = 1.0 / 8;

// Returns Σ (lift · (x − c))² over all features; `row` holds zeros before and after. each(use): calls use(f, x_f) for the elements of x.
template <class T, class Each>
double sum_differences(const T* c, std::int64_t n, double lift, T* row, Each&& each) {
  each([&](std::int64_t f, T x) { row[f] = x; });
  double sum = 0;
  for (std::int64_t f = 0; f < n; ++f) {
    const double difference = lift * (static_cast<double>(row[f]) - static_cast<double>(c[f]));
    sum += difference * difference;
  }
  each([&](std::int64_t f, T) { row[f] = 0; });
  return sum;
}

template <class T>
void exact(const source<T>& from, const T* centroids, const double* squares, double lift, point_block<T>& block) {
  for (std::int64_t p = 0; p < block.count; ++p) {
    const std::int64_t j = block.label[p];
    const T* c = centroids + j * block.n;
    const auto each = [&](auto&& use) { from.sparse.each(block.first + p, [&](std::int64_t f, T value) { use(f, value * from.scale); }); };
    double sum = squares[j], size = squares[j];
    each([&](std::int64_t f, T value) {
      const double x = static_cast<double>(value);
      sum += x * (x - 2 * static_cast<double>(c[f]));
      size += x * x;
    });
    block.exact[p] = sum >= k_cancelled * size ? sum * lift * lift : sum_differences(c, block.n, lift, block.row, each);
  }
}

// The search of distances needs no speed of its own: one pass for each section of centroids.
template <class T>
void section_distances(const packed_centroids<T>& centroids, const difference_operands<T>&, std::int64_t section, bool protect,
                       const product_hook& hook, point_block<T>& block) {
  const std::int64_t n = block.n;
  const std::int64_t first = centroids.first_tile[at(section)] * k_tile, last = centroids.first_tile[at(section) + 1] * k_tile;
  const std::int64_t columns = last - first;
  const auto real = [&](std::int64_t column) { return centroids.names[0][first + column] >= 0; };
  for (std::int64_t p = 0; p < block.count; ++p) {
    double products[k_section] = {}, square = 0;
    for (std::int64_t e = block.begin[p]; e < block.begin[p + 1]; ++e) {
      const double x = static_cast<double>(block.x[e]);
      const T* const features = centroids.packed.data() + first * n + block.column[e] * columns;
      for (std::int64_t c = 0; c < columns; ++c) products[c] += x * static_cast<double>(features[c]);
      square += x * x;
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      if (!real(c)) continue;
      const std::int64_t j = centroids.names[0][first + c];
      const double size = square + centroids.sparse.squares[0][at(j)];
      double distance = size + products[c];
      if (!(distance >= k_cancelled * size)) {
        distance = sum_differences(centroids.rows.data() + j * n, n, 1, block.row, [&](auto&& use) {
          for (std::int64_t e = block.begin[p]; e < block.begin[p + 1]; ++e) use(block.column[e], block.x[e]);
        });
      }
      block.distance[c * block.capacity + p] = static_cast<T>(distance);
    }
  }
  hook.injector->strike(site::product, hook.position, block.distance.data(), block.count);
  if (!protect) return;
  for (std::int64_t p = 0; p < block.count; ++p) {
    block.residual[0][p] = verify_distances(
        centroids, section, n, squared_norm(block, p), block,
        [&](const T* v) {
          T sum = 0;
          for (std::int64_t c = 0; c < columns; ++c)
            if (real(c)) sum += v[c] * block.distance[c * block.capacity + p];
          return sum;
        },
        [&](T rest, const T* checksum) {
          return sum_elements(rest, block, p, [&](std::int64_t e) { return checksum[block.column[e]] * block.x[e]; });
        });
  }
}

}  // namespace sparse_loops

template <class T>
const kernels<T>& reference_sparse_kernels() {
  namespace own = sparse_loops;
  static const kernels<T> all = [] {
    kernels<T> made = reference_kernels<T>();
    made.load = own::load<T>;
    made.sign = own::sign<T>;
    made.sign_source = own::sign_source<T>;
    made.add_ranges = own::add_ranges<T>;
    made.sum_rows = own::sum_rows<T>;
    made.measure = own::measure<T>;
    made.assign = own::assign<T>;
    made.accumulate = own::accumulate<T>;
    made.project = own::project<T>;
    made.exact = own::exact<T>;
    made.distances = own::section_distances<T>;
    return made;
  }();
  return all;
}

template const kernels<float>& reference_sparse_kernels();
template const kernels<double>& reference_sparse_kernels();

}  // namespace ballast::kmeans
