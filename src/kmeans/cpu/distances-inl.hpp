// Computes distances from differences: to the centroid of the label in double, and to a section of centroids with a row check.
// Layer: kernels "cpu" of the host backend.
#include <algorithm>
#include <cmath>

#include "inject/injector.hpp"
#include "kmeans/cpu/vectors-inl.hpp"
#include "kmeans/sites.hpp"

// Included once per target, so an ordinary include guard does not work.
#if defined(BALLAST_KMEANS_CPU_DISTANCES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KMEANS_CPU_DISTANCES_INL
#undef BALLAST_KMEANS_CPU_DISTANCES_INL
#else
#define BALLAST_KMEANS_CPU_DISTANCES_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class T>
HWY_NOINLINE void exact(const source<T>& from, const T* centroids, const double*, double lift, point_block<T>& block) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t n = block.n;
  const auto scale = hn::Set(dn, from.scale);
  const auto lifted = hn::Set(d, lift);
  const T* shift = from.shift.data();
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* c = centroids + block.label[p] * n;
    const T* x = fetch(from, block.first + p, n, block.row);
    auto sum = hn::Zero(d);
    std::int64_t f = 0;
    for (; f + lanes <= n; f += lanes) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
      const auto difference = hn::Mul(lifted, hn::Sub(value, promoted<T>(hn::LoadU(dn, c + f))));
      sum = hn::MulAdd(difference, difference, sum);
    }
    double total = f > 0 ? hn::GetLane(hn::SumOfLanes(d, sum)) : 0.0;
    for (; f < n; ++f) {
      const double difference = lift * (static_cast<double>(x[f] * from.scale - shift[f]) - static_cast<double>(c[f]));
      total += difference * difference;
    }
    block.exact[p] = total;
  }
}

// Computes ‖x − c‖² from differences for Rows centroids and 2 vectors of points, and adds them to both weighted sums.
template <class T, int Rows>
HWY_INLINE void distance_tile(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT packed, const T* HWY_RESTRICT weights,
                              const T* HWY_RESTRICT second_weights, std::int64_t capacity, T* HWY_RESTRICT distance, vector_of<T>* sum,
                              vector_of<T>* second) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  const auto half = hn::Set(d, T(0.5));
  vector_of<T> acc[Rows][2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) acc[r][0] = acc[r][1] = hn::Zero(d);
  for (std::int64_t f = 0; f < n; ++f) {
    const auto x0 = hn::Load(d, x + f * 2 * lanes);
    const auto x1 = hn::Load(d, x + f * 2 * lanes + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const auto c = hn::Set(d, packed[f * k_tile + r]);  // −2c
      const auto difference0 = hn::MulAdd(half, c, x0);
      const auto difference1 = hn::MulAdd(half, c, x1);
      acc[r][0] = hn::MulAdd(difference0, difference0, acc[r][0]);
      acc[r][1] = hn::MulAdd(difference1, difference1, acc[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const auto w = hn::Set(d, weights[r]), second_w = hn::Set(d, second_weights[r]);
    for (int v = 0; v < 2; ++v) {
      hn::Store(acc[r][v], d, distance + r * capacity + v * lanes);
      sum[v] = hn::MulAdd(w, acc[r][v], sum[v]);
      second[v] = hn::MulAdd(second_w, acc[r][v], second[v]);
    }
  }
}

// Returns Σ_j weight_j distance_j over the columns of a section, for the points of one vector.
template <class T>
HWY_INLINE vector_of<T> sum_columns(const point_block<T>& block, const T* weights, std::int64_t columns, std::int64_t p) {
  const lanes_of<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t j = 0; j < columns; ++j)
    if (weights[j] != 0) sum = hn::MulAdd(hn::Set(d, weights[j]), hn::Load(d, block.distance.data() + j * block.capacity + p), sum);
  return sum;
}

// The limit of Σ v ‖x − c‖² against Σ v ‖c‖² + Σ v ‖x‖² − 2 x·Σ v c, from its parts. sizes: Σ |v|, norms: Σ |v| ‖c‖².
template <class T>
struct distance_limit {
  T level, sizes, norms, slope, offset;
  // (a + b + c)² ≤ 3 (a² + b² + c²).
  HWY_INLINE vector_of<T> of(vector_of<T> norm) const {
    const lanes_of<T> d;
    const auto own = hn::Mul(hn::Set(d, level), hn::MulAdd(hn::Set(d, sizes), norm, hn::Set(d, norms)));
    return hn::Mul(hn::Set(d, T(3)), hn::MulAdd(own, own, hn::MulAdd(hn::Set(d, slope), norm, hn::Set(d, offset))));
  }
};

template <class T>
HWY_NOINLINE void distances(const packed_centroids<T>& centroids, const difference_operands<T>& from, std::int64_t section, bool protect,
                            const product_hook& hook, point_block<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const std::int64_t all = padded(block);
  const auto at = static_cast<std::size_t>(section);
  const std::int64_t first = centroids.first_tile[at], last = centroids.first_tile[at + 1];
  const second_checksum<T>& other = centroids.second;
  const bool struck = inject::active_injector::enabled && hook.injector->armed(site::product);
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = from.x + p * n;
    vector_of<T> sum[2], second[2];
    sum[0] = sum[1] = second[0] = second[1] = hn::Zero(d);
    for (std::int64_t t = first; t < last; ++t) {
      for (int r = 0; r < centroids.used[static_cast<std::size_t>(t)]; r += 4) {
        distance_tile<T, 4>(x, n, from.packed + t * n * k_tile + r, centroids.weights.data() + t * k_tile + r,
                            other.weights.data() + t * k_tile + r, block.capacity,
                            block.distance.data() + ((t - first) * k_tile + r) * block.capacity + p, sum, second);
      }
    }
    if (!protect) continue;
    for (int v = 0; v < 2; ++v) {
      hn::Store(sum[v], d, block.residual[0].data() + p + v * lanes);
      hn::Store(second[v], d, block.residual[1].data() + p + v * lanes);
    }
  }
  if (struck) {
    hook.injector->strike(site::product, hook.position, block.distance.data(), block.count);
    // Sum the checks again from the corrupted distances, as if the fault had occurred in the registers.
    const std::int64_t columns = (last - first) * k_tile;
    for (std::int64_t p = 0; protect && p < all; p += lanes) {
      hn::Store(sum_columns(block, centroids.weights.data() + first * k_tile, columns, p), d, block.residual[0].data() + p);
      hn::Store(sum_columns(block, other.weights.data() + first * k_tile, columns, p), d, block.residual[1].data() + p);
    }
  }
  if (!protect) return;
  T start = 0;
  for (std::int64_t t = first; t < last; ++t) start -= centroids.start[t];
  const T level = static_cast<T>(block.bounds.level.value), weights = centroids.sum_weights[section];
  const distance_limit<T> limit = {level, weights, start, squared<T>(block.bounds.slope[at]), squared<T>(block.bounds.offset[at])};
  const distance_limit<T> second_limit = {level, other.size[section], other.norms[section], squared<T>(block.bounds.second_slope[at]),
                                          squared<T>(block.bounds.second_offset[at])};
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = block.x.data() + p * n;
    vector_of<T> norm[2], expected[2], second[2];
    squared_norms(x, n, norm);
    row_product(x, n, centroids.checksum.data() + section * n, centroids.rest[section], expected);
    row_product(x, n, other.checksum.data() + section * n, other.rest[section], second);
    for (int v = 0; v < 2; ++v) {
      T* const residual = block.residual[0].data() + p + v * lanes;
      const auto by_first =
          hn::Sub(hn::Load(d, residual), hn::Add(hn::Add(expected[v], hn::Set(d, start)), hn::Mul(hn::Set(d, weights), norm[v])));
      const auto by_second =
          hn::Sub(hn::Load(d, block.residual[1].data() + p + v * lanes),
                  hn::Add(hn::Add(second[v], hn::Set(d, other.start[section])), hn::Mul(hn::Set(d, other.sum[section]), norm[v])));
      hn::Store(compare(by_second, second_limit.of(norm[v]), compare(by_first, limit.of(norm[v]), hn::Zero(d))), d, residual);
    }
  }
}

// Returns the bits of a number.
template <class Word, class T>
HWY_INLINE Word bits_of(T value) {
  Word bits;
  hwy::CopySameSize(&value, &bits);
  return bits;
}

// Returns |s² − d| ≤ 4.02 u d for the stored root v = s / scale of d, u the unit roundoff of T. Rounding: √d errs by 2⁻⁵³, v by u or by the
// smallest number; a smaller root is judged by itself.
template <class T>
HWY_INLINE hn::Mask<wide<T> > is_root(hn::Vec<wide<T> > root, hn::Vec<wide<T> > scale, hn::Vec<wide<T> > square) {
  const wide<T> d;
  const auto s = hn::Mul(root, scale);
  return hn::Le(hn::Abs(hn::MulSub(s, s, square)), hn::Mul(hn::Set(d, 4.02 * static_cast<double>(abft::unit_roundoff<T>)), square));
}

template <class T>
HWY_INLINE hn::Vec<narrow<T> > demoted(hn::Vec<wide<T> > v) {
  if constexpr (sizeof(T) == 4) {
    return hn::DemoteTo(narrow<T>(), v);
  } else {
    return v;
  }
}

// Works on a vector of points and all columns at a time: roots into a buffer; their squares; from the buffer to the rows. At last the words
// of all rows are read back; their sum must be that of the words in the buffers.
template <class T>
HWY_NOINLINE bool store_distances(const packed_centroids<T>& centroids, std::int64_t section, double scale, bool protect,
                                  const product_hook& hook, const point_block<T>& block, const matrix_view<T>& values) {
  const wide<T> d;
  const narrow<T> dn;
  const hn::RebindToUnsigned<narrow<T> > du;
  using word = hn::TFromD<decltype(du)>;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(section)] * k_tile;
  std::int64_t columns = 0;  // the others are padding
  for (std::int64_t t = first / k_tile; t < centroids.first_tile[static_cast<std::size_t>(section) + 1]; ++t)
    columns += centroids.used[static_cast<std::size_t>(t)];
  const bool adjacent = !centroids.sorted && values.column_stride == 1;
  const double unscale = 1 / scale;
  // Divides: a wrong `unscale` must not agree with itself.
  const auto expected = [&](std::int64_t j, std::int64_t p) {
    return static_cast<T>(std::sqrt(static_cast<double>(block.distance[j * block.capacity + p])) / scale);
  };
  HWY_ALIGN T roots[k_section * lanes];
  auto words = hn::Zero(du);
  word more = 0, found = 0;
  for (std::int64_t p = 0; p < block.count; p += lanes) {
    const std::int64_t points = std::min(lanes, block.count - p);
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto square = promoted<T>(hn::LoadU(dn, block.distance.data() + j * block.capacity + p));
      hn::StoreU(demoted<T>(hn::Mul(hn::Sqrt(square), hn::Set(d, unscale))), dn, roots + j * lanes);
    }
    if constexpr (inject::active_injector::enabled)
      if (p + lanes >= block.count) hook.injector->strike(site::product, hook.position, roots, points == lanes ? columns * lanes : points);
    if (protect) {
      bool good = true;
      for (std::int64_t j = 0; j < columns; ++j) {
        const auto root = hn::LoadU(dn, roots + j * lanes);
        const auto square = promoted<T>(hn::LoadU(dn, block.distance.data() + j * block.capacity + p));
        good = good && hn::AllTrue(d, is_root<T>(promoted<T>(root), hn::Set(d, scale), square));
        words = hn::Add(words, hn::BitCast(du, root));
      }
      // Numbers near the ends of the range.
      for (std::int64_t j = 0; j < columns && !good; ++j)
        for (std::int64_t l = 0; l < points; ++l)
          if (!(roots[j * lanes + l] == expected(j, p + l))) return false;
      for (std::int64_t l = points; l < lanes; ++l)
        for (std::int64_t j = 0; j < columns; ++j) more -= bits_of<word>(roots[j * lanes + l]);
    }
    for (std::int64_t l = 0; l < points; ++l) {
      T* const row = values.data + (block.first + p + l) * values.row_stride;
      if (adjacent) {
        T* const to = row + centroids.names[0][first];
        for (std::int64_t j = 0; j < columns; ++j) to[j] = roots[j * lanes + l];
      } else {
        for (std::int64_t j = 0; j < columns; ++j) row[centroids.names[0][first + j] * values.column_stride] = roots[j * lanes + l];
      }
    }
  }
  if (!protect) return true;
  auto read = hn::Zero(du);
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* const row = values.data + (block.first + p) * values.row_stride;
    std::int64_t j = 0;
    if (adjacent) {
      const T* const from = row + centroids.names[1][first];
      for (; j + lanes <= columns; j += lanes) read = hn::Add(read, hn::BitCast(du, hn::LoadU(dn, from + j)));
    }
    for (; j < columns; ++j) found += bits_of<word>(row[centroids.names[1][first + j] * values.column_stride]);
  }
  HWY_ALIGN word parts[2][lanes];
  hn::StoreU(words, du, parts[0]);
  hn::StoreU(read, du, parts[1]);
  for (std::int64_t l = 0; l < lanes; ++l) {
    more += parts[0][l];
    found += parts[1][l];
  }
  return more == found;
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
