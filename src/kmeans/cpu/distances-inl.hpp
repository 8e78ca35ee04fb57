// Computes distances from differences: to the centroid of the label in double, and to a section of centroids with a row check.
// Layer: kernels "cpu" of the host backend.
#include <algorithm>

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
HWY_NOINLINE void exact(const source<T>& from, const T* centroids, double lift, point_block<T>& block) {
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

// Computes ‖x − c‖² from differences for Rows centroids and 2 vectors of points.
template <class T, int Rows>
HWY_INLINE void distance_tile(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT packed, const T* HWY_RESTRICT weights,
                              std::int64_t capacity, T* HWY_RESTRICT distance, vector_of<T>* sum) {
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
    const auto w = hn::Set(d, weights[r]);
    for (int v = 0; v < 2; ++v) {
      hn::Store(acc[r][v], d, distance + r * capacity + v * lanes);
      sum[v] = hn::MulAdd(w, acc[r][v], sum[v]);
    }
  }
}

template <class T>
HWY_NOINLINE void distances(const packed_centroids<T>& centroids, const difference_operands<T>& from, std::int64_t section, bool protect,
                            const product_hook& hook, point_block<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const std::int64_t all = padded(block);
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(section)];
  const std::int64_t last = centroids.first_tile[static_cast<std::size_t>(section) + 1];
  const bool struck = inject::active_injector::enabled && hook.injector->armed(site::product);
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = from.x + p * n;
    vector_of<T> sum[2];
    sum[0] = sum[1] = hn::Zero(d);
    for (std::int64_t t = first; t < last; ++t) {
      for (int r = 0; r < centroids.used[static_cast<std::size_t>(t)]; r += 4) {
        distance_tile<T, 4>(x, n, from.packed + t * n * k_tile + r, centroids.weights.data() + t * k_tile + r, block.capacity,
                            block.distance.data() + ((t - first) * k_tile + r) * block.capacity + p, sum);
      }
    }
    if (!protect) continue;
    for (int v = 0; v < 2; ++v) hn::Store(sum[v], d, block.residual.data() + p + v * lanes);
  }
  if (struck) {
    hook.injector->strike(site::product, hook.position, block.distance.data(), block.count);
    // Sum the check again from the corrupted distances, as if the fault had occurred in the registers.
    for (std::int64_t p = 0; protect && p < all; p += lanes) {
      auto sum = hn::Zero(d);
      for (std::int64_t j = 0; j < (last - first) * k_tile; ++j) {
        const T weight = centroids.weights[first * k_tile + j];
        if (weight != 0) sum = hn::MulAdd(hn::Set(d, weight), hn::Load(d, block.distance.data() + j * block.capacity + p), sum);
      }
      hn::Store(sum, d, block.residual.data() + p);
    }
  }
  if (!protect) return;
  T start = 0;
  for (std::int64_t t = first; t < last; ++t) start -= centroids.start[t];
  const auto slope = hn::Set(d, squared<T>(block.bounds.slope[static_cast<std::size_t>(section)]));
  const auto offset = hn::Set(d, squared<T>(block.bounds.offset[static_cast<std::size_t>(section)]));
  const auto weights = hn::Set(d, centroids.sum_weights[section]);
  const auto level = hn::Set(d, static_cast<T>(block.bounds.level.value));
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = block.x.data() + p * n;
    vector_of<T> norm[2], expected[2];
    squared_norms(x, n, norm);
    row_product(x, n, centroids.checksum.data() + section * n, centroids.rest[section], expected);
    for (int v = 0; v < 2; ++v) {
      const auto residual = hn::Sub(hn::Load(d, block.residual.data() + p + v * lanes),
                                    hn::Add(hn::Add(expected[v], hn::Set(d, start)), hn::Mul(weights, norm[v])));
      const auto own = hn::Mul(level, hn::MulAdd(weights, norm[v], hn::Set(d, start)));
      const auto limit = hn::Mul(hn::Set(d, T(3)), hn::MulAdd(own, own, hn::MulAdd(slope, norm[v], offset)));
      hn::Store(compare(residual, limit, hn::Zero(d)), d, block.residual.data() + p + v * lanes);
    }
  }
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
