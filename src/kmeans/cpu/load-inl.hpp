// Loads points into a block; computes their signatures and norms.
// Layer: kernels "cpu" of the host backend.
#include <algorithm>
#include <limits>

#include "kmeans/cpu/vectors-inl.hpp"

// Included once per target, so an ordinary include guard does not work.
#if defined(BALLAST_KMEANS_CPU_LOAD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KMEANS_CPU_LOAD_INL
#undef BALLAST_KMEANS_CPU_LOAD_INL
#else
#define BALLAST_KMEANS_CPU_LOAD_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Loads the 16 bytes at p, p + stride, … as the 128-bit parts of one vector.
template <class D>
HWY_INLINE hn::Vec<D> load_parts(D d, const hn::TFromD<D>* p, std::int64_t stride) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) == 16) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    constexpr std::int64_t parts = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) / 16;
    const auto low = load_parts(half, p, stride);
    return hn::Combine(d, load_parts(half, p + parts / 2 * stride, stride), low);
  }
}

// Transposes 16 / sizeof(T) features of k_lanes points into registers: out[t] holds feature t, one point per lane.
template <class T>
HWY_INLINE void load_transposed(const T* p, std::int64_t row_stride, vector_of<T>* out) {
  const lanes_of<T> d;
  if constexpr (sizeof(T) == 4) {
    const auto a = load_parts(d, p, 4 * row_stride);
    const auto b = load_parts(d, p + row_stride, 4 * row_stride);
    const auto c = load_parts(d, p + 2 * row_stride, 4 * row_stride);
    const auto e = load_parts(d, p + 3 * row_stride, 4 * row_stride);
    const auto ac_low = hn::InterleaveLower(d, a, c);
    const auto be_low = hn::InterleaveLower(d, b, e);
    const auto ac_high = hn::InterleaveUpper(d, a, c);
    const auto be_high = hn::InterleaveUpper(d, b, e);
    out[0] = hn::InterleaveLower(d, ac_low, be_low);
    out[1] = hn::InterleaveUpper(d, ac_low, be_low);
    out[2] = hn::InterleaveLower(d, ac_high, be_high);
    out[3] = hn::InterleaveUpper(d, ac_high, be_high);
  } else {
    const auto a = load_parts(d, p, 2 * row_stride);
    const auto b = load_parts(d, p + row_stride, 2 * row_stride);
    out[0] = hn::InterleaveLower(d, a, b);
    out[1] = hn::InterleaveUpper(d, a, b);
  }
}

template <class T>
HWY_NOINLINE void load(const source<T>& from, point_block<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  constexpr std::int64_t features = 16 / sizeof(T);
  const std::int64_t n = block.n;
  const std::int64_t all = padded(block);
  const bool rows = from.points.column_stride == 1;
  const std::int64_t row_stride = from.points.row_stride;
  const auto scale = hn::Set(d, from.scale);
  for (std::int64_t p = 0; p < all; p += lanes) {
    T* x = block.x.data() + p / width * n * width + p % width;
    std::int64_t f = 0;
    if (rows && p + lanes <= block.count) {
      const T* first = from.points.data + (block.first - from.origin + p) * row_stride;
      // Prefetch the next rows: the hardware prefetcher does not follow 16 streams.
      if (row_stride == n) {
        const auto* ahead = reinterpret_cast<const char*>(first + lanes * n);
        for (std::int64_t byte = 0; byte < lanes * n * static_cast<std::int64_t>(sizeof(T)); byte += 64) __builtin_prefetch(ahead + byte);
      }
      for (; f + features <= n; f += features) {
        vector_of<T> v[features];
        load_transposed(first + f, row_stride, v);
        for (std::int64_t t = 0; t < features; ++t)
          hn::StoreU(hn::Sub(hn::Mul(v[t], scale), hn::Set(d, from.shift[static_cast<std::size_t>(f + t)])), d, x + (f + t) * width);
      }
    }
    for (; f < n; ++f) {
      for (std::int64_t l = 0; l < lanes; ++l) x[f * width + l] = p + l < block.count ? coordinate(from, block.first + p + l, f) : T(0);
    }
  }
  if (from.weights.empty()) {
    std::fill_n(block.weight.data(), block.count, T(1));
  } else {
    for (std::int64_t p = 0; p < block.count; ++p)
      block.weight[p] = from.weights[static_cast<std::size_t>(block.first + p)] * from.weight_scale;
  }
  std::fill(block.weight.data() + block.count, block.weight.data() + all, T(0));
}

template <class T>
using words_of = hn::RebindToUnsigned<lanes_of<T> >;

// The bits of numbers as integers in the order of the numbers (block_signature).
template <class T>
HWY_INLINE hn::Vec<words_of<T> > ordered(hn::Vec<lanes_of<T> > x) {
  const words_of<T> du;
  const hn::RebindToSigned<words_of<T> > di;
  const auto negative = hn::BitCast(du, hn::BroadcastSignBit(hn::BitCast(di, x)));
  return hn::Xor(hn::BitCast(du, x), hn::ShiftRight<1>(negative));
}

// Lane p % k_width holds the sum over points p. A sum wraps at the size of T.
template <class T>
HWY_NOINLINE void sign(const point_block<T>& block, std::uint64_t* made) {
  const lanes_of<T> d;
  const words_of<T> du;
  using word = hn::TFromD<words_of<T> >;
  constexpr std::int64_t lanes = k_lanes<T>;
  static_assert(k_width<T> <= 64);
  const T* x = block.x.data();
  const T* end = x + padded(block) * block.n;
  // Two accumulators for each of the two vectors.
  auto a0 = hn::Zero(du), a1 = a0, b0 = a0, b1 = a0;
  for (; x + 4 * lanes <= end; x += 4 * lanes) {
    a0 = hn::Add(a0, ordered<T>(hn::Load(d, x)));
    a1 = hn::Add(a1, ordered<T>(hn::Load(d, x + lanes)));
    b0 = hn::Add(b0, ordered<T>(hn::Load(d, x + 2 * lanes)));
    b1 = hn::Add(b1, ordered<T>(hn::Load(d, x + 3 * lanes)));
  }
  if (x < end) {
    a0 = hn::Add(a0, ordered<T>(hn::Load(d, x)));
    a1 = hn::Add(a1, ordered<T>(hn::Load(d, x + lanes)));
  }
  HWY_ALIGN word sums[2 * lanes];
  hn::Store(hn::Add(a0, b0), du, sums);
  hn::Store(hn::Add(a1, b1), du, sums + lanes);
  for (std::int64_t l = 0; l < 2 * lanes; ++l) made[l] = sums[l];
}

template <class T>
HWY_NOINLINE void sign_source(const source<T>& from, const point_block<T>& block, std::uint64_t* made) {
  const lanes_of<T> d;
  const words_of<T> du;
  using word = hn::TFromD<words_of<T> >;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const auto scale = hn::Set(d, from.scale);
  const T* shift = from.shift.data();
  word sums[width] = {};
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* x = fetch(from, block.first + p, n, block.row);
    auto sum = hn::Zero(du);
    std::int64_t f = 0;
    for (; f + lanes <= n; f += lanes)
      sum = hn::Add(sum, ordered<T>(hn::Sub(hn::Mul(hn::LoadU(d, x + f), scale), hn::LoadU(d, shift + f))));
    // Not SumOfLanes: some compilers' headers implement it with signed numbers, where overflow is undefined.
    HWY_ALIGN word parts[lanes];
    hn::Store(sum, du, parts);
    word total = 0;
    for (const word part : parts) total += part;
    for (; f < n; ++f) {
      total += static_cast<word>(ordered_bits(x[f] * from.scale - shift[f]));
    }
    sums[p % width] += total;
  }
  for (std::int64_t l = 0; l < width; ++l) made[l] = sums[l];
}

// Lanes are features. The sums of a vector of features stay in registers for k_part rows; numbers of 32 bits hold that many exponents.
template <class T>
HWY_NOINLINE void add_ranges(const source<T>& from, std::int64_t first, std::int64_t count, column_ranges<T>& into, T*) {
  const matrix_view<const T>& points = from.points;
  first -= from.origin;
  const wide<T> d;
  const narrow<T> dn;
  const hn::RebindToSigned<narrow<T> > di;
  const hn::RebindToUnsigned<narrow<T> > du;
  const hn::RebindToSigned<wide<T> > dw;
  constexpr std::int64_t lanes = k_lanes<double>;
  constexpr std::int64_t k_part = 64;
  const auto part_of_sum = hn::Set(d, 0x1p-64);
  const auto add_to = [&](std::int64_t* to, auto sum) {
    if constexpr (sizeof(T) == 4) {
      hn::StoreU(hn::Add(hn::LoadU(dw, to), hn::PromoteTo(dw, sum)), dw, to);
    } else {
      hn::StoreU(hn::Add(hn::LoadU(dw, to), sum), dw, to);
    }
  };
  for (std::int64_t part = 0; part < count; part += k_part) {
    const std::int64_t rows = std::min(k_part, count - part);
    std::int64_t f = 0;
    for (; points.column_stride == 1 && f + lanes <= points.columns; f += lanes) {
      const T* x = points.data + (first + part) * points.row_stride + f;
      auto low = hn::LoadU(dn, into.low.data() + f), high = hn::LoadU(dn, into.high.data() + f);
      auto poison = hn::LoadU(dn, into.poison.data() + f);
      auto sum = hn::LoadU(d, into.sum.data() + f);
      auto exponents = hn::Zero(di), others = exponents;
      for (std::int64_t i = 0; i < rows; ++i, x += points.row_stride) {
        const auto value = hn::LoadU(dn, x);
        low = hn::Min(value, low);
        high = hn::Max(value, high);
        poison = hn::Add(poison, hn::Mul(value, hn::Zero(dn)));
        sum = hn::MulAdd(promoted<T>(value), part_of_sum, sum);
        const auto biased = hn::ShiftRight<std::numeric_limits<T>::digits>(hn::ShiftLeft<1>(hn::BitCast(du, value)));
        exponents = hn::Add(exponents, hn::BitCast(di, biased));
        others = hn::Sub(others, hn::BitCast(di, hn::VecFromMask(dn, hn::Ne(value, hn::Zero(dn)))));
      }
      hn::StoreU(low, dn, into.low.data() + f);
      hn::StoreU(high, dn, into.high.data() + f);
      hn::StoreU(poison, dn, into.poison.data() + f);
      hn::StoreU(sum, d, into.sum.data() + f);
      add_to(into.exponents.data() + f, exponents);
      add_to(into.others.data() + f, others);
    }
    for (; f < points.columns; ++f) into.add(f, rows, [&](std::int64_t i) { return points(first + part + i, f); });
  }
}

template <class T>
HWY_NOINLINE void sum_rows(const source<T>& from, std::int64_t first, std::int64_t count, double* HWY_RESTRICT sums,
                           double* HWY_RESTRICT squares, double* HWY_RESTRICT norms, T* row) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t n = from.points.columns;
  const auto scale = hn::Set(dn, from.scale);
  const T* shift = from.shift.data();
  for (std::int64_t p = 0; p < count; ++p) {
    const T* x = fetch(from, first + p, n, row);
    auto norm = hn::Zero(d);
    std::int64_t f = 0;
    for (; f + lanes <= n; f += lanes) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + f), value), d, sums + f);
      hn::StoreU(hn::MulAdd(value, value, hn::LoadU(d, squares + f)), d, squares + f);
      norm = hn::MulAdd(value, value, norm);
    }
    double total = f > 0 ? hn::GetLane(hn::SumOfLanes(d, norm)) : 0.0;
    for (; f < n; ++f) {
      const double value = static_cast<double>(x[f] * from.scale - shift[f]);
      sums[f] += value;
      squares[f] += value * value;
      total += value * value;
    }
    norms[p] = total;
  }
}

template <class T>
HWY_NOINLINE void measure(point_block<T>& block) {
  const lanes_of<T> d;
  for (std::int64_t p = 0; p < padded(block); p += k_width<T>) {
    vector_of<T> norm[2];
    squared_norms(block.x.data() + p * block.n, block.n, norm);
    hn::Store(norm[0], d, block.norm.data() + p);
    hn::Store(norm[1], d, block.norm.data() + p + k_lanes<T>);
  }
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
