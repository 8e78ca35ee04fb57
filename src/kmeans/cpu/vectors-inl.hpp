// Vectors of points and of features: types, iteration over a block, and the sums that several kernels share.
// Layer: kernels "cpu" of the host backend.
#include <cstdint>

#include <hwy/highway.h>

#include "kmeans/block.hpp"
#include "kmeans/thresholds.hpp"

// Included once per target, so an ordinary include guard does not work.
#if defined(BALLAST_KMEANS_CPU_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KMEANS_CPU_VECTORS_INL
#undef BALLAST_KMEANS_CPU_VECTORS_INL
#else
#define BALLAST_KMEANS_CPU_VECTORS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// At most 512 bits, for which the register tile is sized.
template <class T>
using lanes_of = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
using vector_of = hn::Vec<lanes_of<T> >;
template <class T>
using integers_of = hn::RebindToSigned<lanes_of<T> >;

template <class T>
constexpr std::int64_t k_lanes = hn::MaxLanes(lanes_of<T>());
template <class T>
constexpr std::int64_t k_width = 2 * k_lanes<T>;

constexpr std::int64_t k_run = thresholds::k_run;

template <class T>
T coordinate(const source<T>& from, std::int64_t i, std::int64_t f) {
  return from.points(i - from.origin, f) * from.scale - from.shift[static_cast<std::size_t>(f)];
}

// Returns the number of points of a block, rounded up to whole widths: the bound of the vector loops.
template <class T>
std::int64_t padded(const point_block<T>& block) {
  return (block.count + k_width<T> - 1) / k_width<T> * k_width<T>;
}

// Computes start + x · c for 2 vectors of points, with two accumulators each.
template <class T>
HWY_INLINE void row_product(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT c, T start, vector_of<T>* out) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  auto sum0 = hn::Set(d, start), sum1 = sum0;
  for (std::int64_t f = 0; f < n;) {
    auto part0 = hn::Zero(d), part1 = part0;
    const std::int64_t span = std::min(f + k_run * k_run, n);
    while (f < span) {
      auto a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
      const std::int64_t end = std::min(f + k_run, n);
      for (; f + 2 <= end; f += 2) {
        const auto even = hn::Set(d, c[f]);
        const auto odd = hn::Set(d, c[f + 1]);
        a0 = hn::MulAdd(even, hn::Load(d, x + f * 2 * lanes), a0);
        a1 = hn::MulAdd(even, hn::Load(d, x + f * 2 * lanes + lanes), a1);
        b0 = hn::MulAdd(odd, hn::Load(d, x + (f + 1) * 2 * lanes), b0);
        b1 = hn::MulAdd(odd, hn::Load(d, x + (f + 1) * 2 * lanes + lanes), b1);
      }
      if (f < end) {
        const auto last = hn::Set(d, c[f]);
        a0 = hn::MulAdd(last, hn::Load(d, x + f * 2 * lanes), a0);
        a1 = hn::MulAdd(last, hn::Load(d, x + f * 2 * lanes + lanes), a1);
        ++f;
      }
      part0 = hn::Add(part0, hn::Add(a0, b0));
      part1 = hn::Add(part1, hn::Add(a1, b1));
    }
    sum0 = hn::Add(sum0, part0);
    sum1 = hn::Add(sum1, part1);
  }
  out[0] = sum0;
  out[1] = sum1;
}

// Computes ‖x‖² for 2 vectors of points.
template <class T>
HWY_INLINE void squared_norms(const T* HWY_RESTRICT x, std::int64_t n, vector_of<T>* out) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  auto a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  std::int64_t f = 0;
  for (; f + 2 <= n; f += 2) {
    const auto x0 = hn::Load(d, x + f * 2 * lanes);
    const auto x1 = hn::Load(d, x + f * 2 * lanes + lanes);
    const auto y0 = hn::Load(d, x + (f + 1) * 2 * lanes);
    const auto y1 = hn::Load(d, x + (f + 1) * 2 * lanes + lanes);
    a0 = hn::MulAdd(x0, x0, a0);
    a1 = hn::MulAdd(x1, x1, a1);
    b0 = hn::MulAdd(y0, y0, b0);
    b1 = hn::MulAdd(y1, y1, b1);
  }
  if (f < n) {
    const auto x0 = hn::Load(d, x + f * 2 * lanes);
    const auto x1 = hn::Load(d, x + f * 2 * lanes + lanes);
    a0 = hn::MulAdd(x0, x0, a0);
    a1 = hn::MulAdd(x1, x1, a1);
  }
  out[0] = hn::Add(a0, b0);
  out[1] = hn::Add(a1, b1);
}

// Returns |residual| where its square exceeds `limit` or is NaN, else `kept`.
template <class V>
HWY_INLINE V compare(V residual, V limit, V kept) {
  return hn::IfThenElse(hn::Le(hn::Mul(residual, residual), limit), kept, hn::Abs(residual));
}

template <class T>
T squared(const abft::guarded_threshold& limit) {
  const T value = static_cast<T>(limit.value);
  return value * value;
}

// Returns row i of the points: its address if its features are contiguous, else a copy in `row`.
template <class T>
HWY_INLINE const T* fetch(const source<T>& from, std::int64_t i, std::int64_t n, T* row) {
  i -= from.origin;
  if (HWY_LIKELY(from.points.column_stride == 1)) return from.points.data + i * from.points.row_stride;
  for (std::int64_t f = 0; f < n; ++f) row[f] = from.points(i, f);
  return row;
}

// Types for sums in double: 8 lanes of f64 fill a register, from 8 features in half a vector of f32.
template <class T>
using wide = lanes_of<double>;
template <class T>
using narrow = hn::Rebind<T, wide<T> >;

template <class T>
HWY_INLINE hn::Vec<wide<T> > promoted(hn::Vec<narrow<T> > v) {
  if constexpr (sizeof(T) == 4) {
    return hn::PromoteTo(wide<T>(), v);
  } else {
    return v;
  }
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
