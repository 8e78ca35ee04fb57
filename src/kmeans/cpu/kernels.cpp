// The block operations of K-Means with SIMD: lanes are points where distances are computed, features where points are summed.
// Layer: backend "cpu". Highway chooses the instruction set at run time; threads are the driver's.
// Micro-kernel: k_rows centroids × 2 vectors of points in registers; a multiply-add takes one broadcast of −2c and one vector of x. The
// minimum, its index, the twin minimum and the check sum are updated from the registers: no distance is stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kmeans/cpu/kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "abft/threshold.hpp"
#include "kmeans/contract.hpp"

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// Without SIMD (no AVX2, no NEON) the plain loops are as good as any; the driver still runs them on all threads.
const kernels<float>* table_f32() { return &reference_kernels<float>(); }
const kernels<double>* table_f64() { return &reference_kernels<double>(); }
#else

// At most 512 bits: what the register tile is sized for.
template <class T>
using lanes_of = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
using vector_of = hn::Vec<lanes_of<T>>;
template <class T>
using integers_of = hn::RebindToSigned<lanes_of<T>>;

template <class T>
constexpr std::int64_t k_lanes = hn::MaxLanes(lanes_of<T>());
template <class T>
constexpr std::int64_t k_width = 2 * k_lanes<T>;

constexpr std::int64_t k_run = abft::k_kmeans_run;

// 8 × 2 accumulators want 32 registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int k_rows = 8;
#else
constexpr int k_rows = 4;
#endif

template <class T>
T coordinate(const source<T>& from, std::int64_t i, std::int64_t f) {
  return from.points(i, f) * from.scale - from.shift[static_cast<std::size_t>(f)];
}

// The 16 bytes at p, p + stride, … as the 128-bit parts of one vector.
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

// Transposes 16 / sizeof(T) features of k_lanes points into registers: out[t] holds feature t, one point a lane.
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

// How many points of a block the vector loops pass over: whole widths.
template <class T>
std::int64_t padded(const tile<T>& block) {
  return (block.count + k_width<T> - 1) / k_width<T> * k_width<T>;
}

template <class T>
HWY_NOINLINE void load(const source<T>& from, tile<T>& block) {
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
      const T* first = from.points.data + (block.first + p) * row_stride;
      // The rows after these; the hardware follows no 16 streams.
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
    for (std::int64_t p = 0; p < block.count; ++p) block.weight[p] = from.weights[static_cast<std::size_t>(block.first + p)] * from.weight_scale;
  }
  std::fill(block.weight.data() + block.count, block.weight.data() + all, T(0));
}

// An index in a lane of T: as the bits of an integer in f32, so that 2³¹ fit; as a number in f64, which converts to 32 bits.
template <class T>
HWY_INLINE vector_of<T> index_vector(std::int64_t j) {
  const lanes_of<T> d;
  if constexpr (sizeof(T) == 4) {
    return hn::BitCast(d, hn::Set(integers_of<T>(), static_cast<std::int32_t>(j)));
  } else {
    return hn::Set(d, static_cast<T>(j));
  }
}

template <class T>
HWY_INLINE void store_index(vector_of<T> v, std::int32_t* to) {
  if constexpr (sizeof(T) == 4) {
    const integers_of<T> di;
    hn::StoreU(hn::BitCast(di, v), di, to);
  } else {
    const hn::Rebind<std::int32_t, lanes_of<T>> di;
    hn::StoreU(hn::DemoteTo(di, v), di, to);
  }
}

template <class T>
HWY_INLINE vector_of<T> load_index(const std::int32_t* from) {
  const lanes_of<T> d;
  if constexpr (sizeof(T) == 4) {
    return hn::BitCast(d, hn::LoadU(integers_of<T>(), from));
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int32_t, lanes_of<T>>(), from));
  }
}

// What the search carries along for 2 vectors of points.
template <class T>
struct search {
  vector_of<T> minimum[2];
  vector_of<T> twin[2];
  vector_of<T> index[2];  // of minimum, in the form of index_vector
  vector_of<T> index_twin[2];
  vector_of<T> sum[2];  // Σ start + Σ w D over the tiles of a group
};

template <class T>
struct hook_buffer {
  HWY_ALIGN T products[k_tile * k_width<T>];
};

// One tile of Rows centroids against 2 vectors of points. `packed`, `norms` and `weights` point at the first of them.
template <class T, int Rows, bool Protect>
HWY_INLINE void search_tile(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT packed, const T* HWY_RESTRICT norms,
                            const T* HWY_RESTRICT weights, T start, std::int64_t first, std::int64_t real, const product_hook& hook,
                            const inject::place& here, std::int64_t points, search<T>& s) {
  const lanes_of<T> d;
  [[maybe_unused]] const integers_of<T> di;
  constexpr std::int64_t lanes = k_lanes<T>;
  vector_of<T> acc[Rows][2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) acc[r][0] = acc[r][1] = hn::Set(d, norms[r]);
  HWY_ALIGN T total[Rows * 2 * lanes];
  for (std::int64_t f = 0;;) {
    for (const std::int64_t end = std::min(f + k_run, n); f < end; ++f) {
      const auto x0 = hn::Load(d, x + f * 2 * lanes);
      const auto x1 = hn::Load(d, x + f * 2 * lanes + lanes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const auto c = hn::Set(d, packed[f * k_tile + r]);
        acc[r][0] = hn::MulAdd(c, x0, acc[r][0]);
        acc[r][1] = hn::MulAdd(c, x1, acc[r][1]);
      }
    }
    if (f > k_run) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < 2; ++v) acc[r][v] = hn::Add(acc[r][v], hn::Load(d, total + (2 * r + v) * lanes));
    }
    if (f == n) break;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < 2; ++v) {
        hn::Store(acc[r][v], d, total + (2 * r + v) * lanes);
        acc[r][v] = hn::Zero(d);
      }
    }
  }
  [[maybe_unused]] bool strike_minimum = false;
  if constexpr (inject::active_injector::enabled) {
    if (hook.injector->armed(inject::site::kmeans_product)) {
      // Points in use and centroids that are not mere filling, so that every strike meets something that counts.
      hook_buffer<T> shown;
      const std::int64_t rows = std::clamp<std::int64_t>(real, 0, Rows);
      for (int r = 0; r < Rows; ++r) {
        for (int v = 0; v < 2; ++v) {
          hn::StoreU(acc[r][v], d, shown.products + r * 2 * lanes + v * lanes);
        }
      }
      for (std::int64_t r = 1; r < rows; ++r) std::copy_n(shown.products + r * 2 * lanes, points, shown.products + r * points);
      hook.injector->strike(inject::site::kmeans_product, here, shown.products, rows * points);
      for (std::int64_t r = rows; r-- > 1;) std::copy_backward(shown.products + r * points, shown.products + (r + 1) * points, shown.products + r * 2 * lanes + points);
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < 2; ++v) {
          const auto kept = hn::LoadU(d, shown.products + r * 2 * lanes + v * lanes);
          const auto used = hn::RebindMask(d, hn::Lt(hn::Iota(di, 0), hn::Set(di, static_cast<hn::TFromD<decltype(di)>>(points - v * lanes))));
          acc[r][v] = hn::IfThenElse(used, kept, acc[r][v]);
        }
      }
    }
    strike_minimum = hook.injector->armed(inject::site::kmeans_minimum);
  }
  [[maybe_unused]] vector_of<T> sum[2];
  if constexpr (Protect) sum[0] = sum[1] = hn::Set(d, start);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    if constexpr (inject::active_injector::enabled) {
      if (strike_minimum && r == std::min<std::int64_t>(real, Rows) / 2) {
        hook_buffer<T> shown;
        for (int v = 0; v < 2; ++v) hn::StoreU(s.minimum[v], d, shown.products + v * lanes);
        hook.injector->strike(inject::site::kmeans_minimum, here, shown.products, points);
        for (int v = 0; v < 2; ++v) s.minimum[v] = hn::LoadU(d, shown.products + v * lanes);
      }
    }
    const auto j = index_vector<T>(first + r);
    [[maybe_unused]] vector_of<T> w;
    if constexpr (Protect) w = hn::Set(d, weights[r]);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const auto smaller = hn::Lt(acc[r][v], s.minimum[v]);
      s.minimum[v] = hn::Min(acc[r][v], s.minimum[v]);
      s.index[v] = hn::IfThenElse(smaller, j, s.index[v]);
      if constexpr (Protect) {
        s.index_twin[v] = hn::IfThenElse(hn::Lt(acc[r][v], s.twin[v]), j, s.index_twin[v]);
        s.twin[v] = hn::Min(acc[r][v], s.twin[v]);
        sum[v] = hn::MulAdd(w, acc[r][v], sum[v]);
      }
    }
  }
  if constexpr (Protect) {
    s.sum[0] = hn::Add(s.sum[0], sum[0]);
    s.sum[1] = hn::Add(s.sum[1], sum[1]);
  }
}

// start + x · c for 2 vectors of points, in two chains each.
template <class T>
HWY_INLINE void row_product(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT c, T start, vector_of<T>* out) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  auto sum0 = hn::Set(d, start), sum1 = sum0;
  for (std::int64_t f = 0; f < n;) {
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
    sum0 = hn::Add(sum0, hn::Add(a0, b0));
    sum1 = hn::Add(sum1, hn::Add(a1, b1));
  }
  out[0] = sum0;
  out[1] = sum1;
}

// ‖x‖² for 2 vectors of points.
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

// |residual| where its square exceeds `limit` (or is NaN), `kept` elsewhere.
template <class V>
HWY_INLINE V compare(V residual, V limit, V kept) {
  return hn::IfThenElse(hn::Le(hn::Mul(residual, residual), limit), kept, hn::Abs(residual));
}

template <class T>
T squared(const abft::guarded_threshold& limit) {
  const T value = static_cast<T>(limit.value);
  return value * value;
}

template <class T, bool Protect>
HWY_NOINLINE finding assign_with(const panel<T>& centroids, bool keep, const product_hook& hook, tile<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const std::int64_t pairs = padded(block) / width;
  const std::int64_t cell = cell_points(block);
  // Packed centroids that stay in the second-level cache while all points of the block pass by.
  const std::int64_t chunk = std::max<std::int64_t>(1, 384 * 1024 / (static_cast<std::int64_t>(sizeof(T)) * k_group * n)) * (k_group / k_tile);
  finding found;
  for (std::int64_t begin = 0; begin < centroids.tiles; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, centroids.tiles);
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const T* x = block.x.data() + pair * n * width;
      const std::int64_t at = pair * width;
      search<T> s;
      [[maybe_unused]] vector_of<T> kept[2], expected[2];
      [[maybe_unused]] T norm = 0;
      if constexpr (Protect) {
        kept[0] = kept[1] = hn::Zero(d);
        norm = static_cast<T>(block.cells[at / cell]);
      }
      if (begin == 0) {
        for (int v = 0; v < 2; ++v) {
          s.minimum[v] = s.twin[v] = hn::Set(d, std::numeric_limits<T>::infinity());
          s.index[v] = s.index_twin[v] = hn::Zero(d);
        }
      } else {
        for (int v = 0; v < 2; ++v) {
          s.minimum[v] = hn::Load(d, block.minimum.data() + at + v * lanes);
          s.index[v] = load_index<T>(block.index.data() + at + v * lanes);
          if constexpr (Protect) {
            s.twin[v] = hn::Load(d, block.twin.data() + at + v * lanes);
            s.index_twin[v] = load_index<T>(block.index_twin.data() + at + v * lanes);
          }
        }
      }
      inject::place here = hook.place;
      here.steps = pairs * centroids.tiles * (k_tile / k_rows);
      const std::int64_t points = std::min(width, block.count - at);
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t g = t * k_tile / k_group;
        if constexpr (Protect) {
          if (t * k_tile % k_group == 0) {
            row_product(x, n, centroids.checksum.data() + g * n, centroids.rest[g], expected);
            s.sum[0] = s.sum[1] = hn::Zero(d);
          }
        }
        const T* packed = centroids.packed.data() + t * n * k_tile;
        const T* norms = centroids.norms.data() + t * k_tile;
        const T* weights = centroids.weights.data() + t * k_tile;
        const T start = Protect ? centroids.start[t] : T(0);
        const std::int64_t real = centroids.k - t * k_tile;
        if constexpr (k_rows == k_tile) {
          here.step = pair * centroids.tiles + t;
          if (real > k_tile / 2) {
            search_tile<T, k_tile, Protect>(x, n, packed, norms, weights, start, t * k_tile, real, hook, here, points, s);
          } else {
            search_tile<T, k_tile / 2, Protect>(x, n, packed, norms, weights, start, t * k_tile, real, hook, here, points, s);
          }
        } else {
          for (int r = 0; r < k_tile && r < real; r += k_rows) {
            here.step = (pair * centroids.tiles + t) * (k_tile / k_rows) + r / k_rows;
            search_tile<T, k_rows, Protect>(x, n, packed + r, norms + r, weights + r, r == 0 ? start : T(0), t * k_tile + r, real - r, hook, here, points, s);
          }
        }
        if constexpr (Protect) {
          if (t + 1 == centroids.tiles || (t + 1) * k_tile % k_group == 0) {
            const auto limit = hn::Set(d, squared<T>(block.bounds.slope[static_cast<std::size_t>(g)]) * norm +
                                              squared<T>(block.bounds.offset[static_cast<std::size_t>(g)]));
            for (int v = 0; v < 2; ++v) kept[v] = compare(hn::Sub(s.sum[v], expected[v]), limit, kept[v]);
          }
        }
      }
      for (int v = 0; v < 2; ++v) {
        store_index<T>(s.index[v], block.index.data() + at + v * lanes);
        if (keep || end < centroids.tiles) hn::Store(s.minimum[v], d, block.minimum.data() + at + v * lanes);
        if constexpr (Protect) {
          store_index<T>(s.index_twin[v], block.index_twin.data() + at + v * lanes);
          if (end < centroids.tiles) hn::Store(s.twin[v], d, block.twin.data() + at + v * lanes);
          kept[v] = hn::IfThenElse(hn::Eq(s.minimum[v], s.twin[v]), kept[v], hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
          // NaN is not zero either.
          const auto clean = hn::Eq(kept[v], hn::Zero(d));
          if (HWY_UNLIKELY(!hn::AllTrue(d, clean)) && found.row < 0) {
            HWY_ALIGN T shown[lanes];
            hn::Store(kept[v], d, shown);
            for (std::int64_t l = 0; l < lanes; ++l)
              if (!(shown[l] == 0)) found = {static_cast<double>(shown[l]), std::min(block.first + at + v * lanes + l, block.first + block.count - 1)};
          }
        }
      }
    }
  }
  return found;
}

template <class T>
finding assign(const panel<T>& centroids, bool protect, bool keep, const product_hook& hook, tile<T>& block) {
  return protect ? assign_with<T, true>(centroids, keep, hook, block) : assign_with<T, false>(centroids, keep, hook, block);
}

template <class T>
HWY_NOINLINE finding check(const tile<T>& block, std::int64_t k) {
  const hn::CappedTag<std::int32_t, 64 / sizeof(std::int32_t)> di;
  const hn::RebindToUnsigned<decltype(di)> du;
  const std::int64_t labels = static_cast<std::int64_t>(hn::Lanes(di));
  bool good = true;
  std::int64_t p = 0;
  auto largest = hn::Zero(du);
  for (; p + labels <= block.count; p += labels) {
    const auto label = hn::LoadU(di, block.label.data() + p);
    good = good && hn::AllTrue(di, hn::Eq(label, hn::LoadU(di, block.index_twin.data() + p)));
    largest = hn::Max(largest, hn::BitCast(du, label));
  }
  good = good && static_cast<std::int64_t>(hn::GetLane(hn::MaxOfLanes(du, largest))) < k;
  // The rest; or the place of what failed.
  for (p = good ? p : 0; p < block.count; ++p) {
    if (block.label[p] != block.index_twin[p] || block.label[p] < 0 || block.label[p] >= k)
      return {std::numeric_limits<double>::quiet_NaN(), block.first + p};
  }
  // Vector and scalar code must not disagree.
  return good ? finding{} : finding{std::numeric_limits<double>::quiet_NaN(), block.first};
}

template <class T>
HWY_NOINLINE void measure(tile<T>& block) {
  const lanes_of<T> d;
  for (std::int64_t p = 0; p < padded(block); p += k_width<T>) {
    vector_of<T> norm[2];
    squared_norms(block.x.data() + p * block.n, block.n, norm);
    hn::Store(norm[0], d, block.norm.data() + p);
    hn::Store(norm[1], d, block.norm.data() + p + k_lanes<T>);
  }
}

// Row i of the points: its address if its features are contiguous, else a copy in `row`.
template <class T>
HWY_INLINE const T* fetch(const source<T>& from, std::int64_t i, std::int64_t n, T* row) {
  if (HWY_LIKELY(from.points.column_stride == 1)) return from.points.data + i * from.points.row_stride;
  for (std::int64_t f = 0; f < n; ++f) row[f] = from.points(i, f);
  return row;
}

template <class T>
using words_of = hn::RebindToUnsigned<lanes_of<T>>;

// One lane for each point modulo the width. A sum wraps at the size of T.
template <class T>
HWY_NOINLINE void sign(const tile<T>& block, std::uint64_t* made) {
  const lanes_of<T> d;
  const words_of<T> du;
  using word = hn::TFromD<words_of<T>>;
  constexpr std::int64_t lanes = k_lanes<T>;
  static_assert(k_width<T> <= 64);
  const T* x = block.x.data();
  const T* end = x + padded(block) * block.n;
  // Two chains for each of the two vectors.
  auto a0 = hn::Zero(du), a1 = a0, b0 = a0, b1 = a0;
  for (; x + 4 * lanes <= end; x += 4 * lanes) {
    a0 = hn::Add(a0, hn::BitCast(du, hn::Load(d, x)));
    a1 = hn::Add(a1, hn::BitCast(du, hn::Load(d, x + lanes)));
    b0 = hn::Add(b0, hn::BitCast(du, hn::Load(d, x + 2 * lanes)));
    b1 = hn::Add(b1, hn::BitCast(du, hn::Load(d, x + 3 * lanes)));
  }
  if (x < end) {
    a0 = hn::Add(a0, hn::BitCast(du, hn::Load(d, x)));
    a1 = hn::Add(a1, hn::BitCast(du, hn::Load(d, x + lanes)));
  }
  HWY_ALIGN word sums[2 * lanes];
  hn::Store(hn::Add(a0, b0), du, sums);
  hn::Store(hn::Add(a1, b1), du, sums + lanes);
  for (std::int64_t l = 0; l < 2 * lanes; ++l) made[l] = sums[l];
}

template <class T>
HWY_NOINLINE void sign_source(const source<T>& from, const tile<T>& block, std::uint64_t* made) {
  const lanes_of<T> d;
  const words_of<T> du;
  using word = hn::TFromD<words_of<T>>;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  std::vector<T> row(from.points.column_stride == 1 ? 0 : static_cast<std::size_t>(n));
  const auto scale = hn::Set(d, from.scale);
  const T* shift = from.shift.data();
  word sums[width] = {};
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* x = fetch(from, block.first + p, n, row.data());
    auto sum = hn::Zero(du);
    std::int64_t f = 0;
    for (; f + lanes <= n; f += lanes) sum = hn::Add(sum, hn::BitCast(du, hn::Sub(hn::Mul(hn::LoadU(d, x + f), scale), hn::LoadU(d, shift + f))));
    word total = f > 0 ? hn::GetLane(hn::SumOfLanes(du, sum)) : 0;
    for (; f < n; ++f) {
      const T value = x[f] * from.scale - shift[f];
      word bits;
      hwy::CopySameSize(&value, &bits);
      total += bits;
    }
    sums[p % width] += total;
  }
  for (std::int64_t l = 0; l < width; ++l) made[l] = sums[l];
}

// f64 lanes: 8 of them take half a vector of f32, so that the smallest useful number of features fills a register.
template <class T>
using wide = lanes_of<double>;
template <class T>
using narrow = hn::Rebind<T, wide<T>>;

template <class T>
HWY_INLINE hn::Vec<wide<T>> promoted(hn::Vec<narrow<T>> v) {
  if constexpr (sizeof(T) == 4) {
    return hn::PromoteTo(wide<T>(), v);
  } else {
    return v;
  }
}

template <class T>
HWY_NOINLINE void accumulate(const source<T>& from, const tile<T>& block, partial<T>& into) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t n = block.n;
  const bool weighted = into.weights.size() != 0;
  std::vector<T> row(from.points.column_stride == 1 ? 0 : static_cast<std::size_t>(n));
  const auto scale = hn::Set(dn, from.scale);
  const T* shift = from.shift.data();
  for (std::int64_t p = 0; p < block.count; ++p) {
    const std::int64_t j = block.label[p];
    const T* x = fetch(from, block.first + p, n, row.data());
    double* sums = into.sums.data() + j * n;
    std::int64_t f = 0;
    if (!weighted) {
      for (; f + lanes <= n; f += lanes) {
        const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
        hn::StoreU(hn::Add(hn::LoadU(d, sums + f), value), d, sums + f);
      }
      for (; f < n; ++f) sums[f] += static_cast<double>(x[f] * from.scale - shift[f]);
      into.members[j] += 1;
      continue;
    }
    const double w = static_cast<double>(block.weight[p]);
    const auto weight = hn::Set(d, w);
    for (; f + lanes <= n; f += lanes) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + f), hn::Mul(weight, value)), d, sums + f);
    }
    for (; f < n; ++f) sums[f] += w * static_cast<double>(x[f] * from.scale - shift[f]);
    into.weights[j] += w;
    into.members[j] += w > 0 ? 1 : 0;
  }
}

template <class T>
HWY_NOINLINE void project(const tile<T>& block, const double* direction, double* projection) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  constexpr std::int64_t width = k_width<T>;
  for (std::int64_t p = 0; p < block.count; p += lanes) {
    const T* x = block.x.data() + p / width * width * block.n + p % width;
    auto sum = hn::Zero(d);
    for (std::int64_t f = 0; f < block.n; ++f) sum = hn::MulAdd(hn::Set(d, direction[f]), promoted<T>(hn::LoadU(dn, x + f * width)), sum);
    HWY_ALIGN double shown[lanes];
    hn::Store(hn::Mul(sum, promoted<T>(hn::LoadU(dn, block.weight.data() + p))), d, shown);
    std::copy_n(shown, std::min(lanes, block.count - p), projection + p);
  }
}

template <class T>
HWY_NOINLINE void sum_labels(const tile<T>& block, const double* projection, partial<T>& into) {
  const wide<T> d;
  [[maybe_unused]] const narrow<T> dn;
  const hn::Rebind<std::int32_t, wide<T>> di;
  constexpr std::int64_t lanes = k_lanes<double>;
  const bool weighted = into.weights.size() != 0;
  auto projected = hn::Zero(d), more = projected, labels = projected, weights = projected;
  std::int64_t p = 0;
  if (!weighted) {
    for (; p + 2 * lanes <= block.count; p += 2 * lanes) {
      const auto label = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p));
      const auto next = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p + lanes));
      projected = hn::MulAdd(label, hn::LoadU(d, projection + p), projected);
      more = hn::MulAdd(next, hn::LoadU(d, projection + p + lanes), more);
      labels = hn::Add(labels, hn::Add(label, next));
    }
    projected = hn::Add(projected, more);
  }
  for (; p + lanes <= block.count; p += lanes) {
    const auto label = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p));
    projected = hn::MulAdd(label, hn::LoadU(d, projection + p), projected);
    if (!weighted) {
      labels = hn::Add(labels, label);
    } else {
      const auto weight = promoted<T>(hn::LoadU(dn, block.weight.data() + p));
      weights = hn::MulAdd(label, weight, weights);
      labels = hn::Add(labels, hn::IfThenElseZero(hn::Gt(weight, hn::Zero(d)), label));
    }
  }
  into.labelled_projection += hn::GetLane(hn::SumOfLanes(d, projected));
  into.labelled_weight += hn::GetLane(hn::SumOfLanes(d, weights));
  into.labelled_members += hn::GetLane(hn::SumOfLanes(d, labels));
  for (; p < block.count; ++p) {
    const double label = block.label[p];
    into.labelled_projection += label * projection[p];
    into.labelled_weight += label * static_cast<double>(block.weight[p]);
    into.labelled_members += block.weight[p] > 0 ? label : 0;
  }
}

template <class T>
HWY_NOINLINE void exact(const source<T>& from, const T* centroids, tile<T>& block) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t n = block.n;
  std::vector<T> row(from.points.column_stride == 1 ? 0 : static_cast<std::size_t>(n));
  const auto scale = hn::Set(dn, from.scale);
  const T* shift = from.shift.data();
  for (std::int64_t p = 0; p < block.count; ++p) {
    const T* c = centroids + block.label[p] * n;
    const T* x = fetch(from, block.first + p, n, row.data());
    auto sum = hn::Zero(d);
    std::int64_t f = 0;
    for (; f + lanes <= n; f += lanes) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
      const auto difference = hn::Sub(value, promoted<T>(hn::LoadU(dn, c + f)));
      sum = hn::MulAdd(difference, difference, sum);
    }
    double total = f > 0 ? hn::GetLane(hn::SumOfLanes(d, sum)) : 0.0;
    for (; f < n; ++f) {
      const double difference = static_cast<double>(x[f] * from.scale - shift[f]) - static_cast<double>(c[f]);
      total += difference * difference;
    }
    block.exact[p] = total;
  }
}

// ‖x − c‖² of Rows centroids and 2 vectors of points, from differences.
template <class T, int Rows>
HWY_INLINE void distance_tile(const T* HWY_RESTRICT x, std::int64_t n, const T* HWY_RESTRICT packed, const T* HWY_RESTRICT weights, std::int64_t capacity,
                              T* HWY_RESTRICT distance, vector_of<T>* sum) {
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
HWY_NOINLINE void distances(const panel<T>& centroids, std::int64_t group, bool protect, const product_hook& hook, tile<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const std::int64_t all = padded(block);
  const std::int64_t first = group * (k_group / k_tile);
  const std::int64_t last = std::min(first + k_group / k_tile, centroids.tiles);
  const bool struck = inject::active_injector::enabled && hook.injector->armed(inject::site::kmeans_product);
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = block.x.data() + p * n;
    vector_of<T> sum[2];
    sum[0] = sum[1] = hn::Zero(d);
    for (std::int64_t t = first; t < last; ++t) {
      for (int r = 0; r < k_tile && t * k_tile + r < centroids.k; r += 4) {
        distance_tile<T, 4>(x, n, centroids.packed.data() + t * n * k_tile + r, centroids.weights.data() + t * k_tile + r, block.capacity,
                            block.distance.data() + ((t - first) * k_tile + r) * block.capacity + p, sum);
      }
    }
    if (!protect) continue;
    for (int v = 0; v < 2; ++v) hn::Store(sum[v], d, block.residual.data() + p + v * lanes);
  }
  if (struck) {
    hook.injector->strike(inject::site::kmeans_product, hook.place, block.distance.data(), block.count);
    // What was struck is in the sums of the check as it would be had it happened in the registers.
    const std::int64_t count = std::min(k_group, centroids.k - group * k_group);
    for (std::int64_t p = 0; protect && p < all; p += lanes) {
      auto sum = hn::Zero(d);
      for (std::int64_t j = 0; j < count; ++j)
        sum = hn::MulAdd(hn::Set(d, centroids.weights[group * k_group + j]), hn::Load(d, block.distance.data() + j * block.capacity + p), sum);
      hn::Store(sum, d, block.residual.data() + p);
    }
  }
  if (!protect) return;
  T start = 0;
  for (std::int64_t t = first; t < last; ++t) start -= centroids.start[t];
  const auto slope = hn::Set(d, squared<T>(block.bounds.slope[static_cast<std::size_t>(group)]));
  const auto offset = hn::Set(d, squared<T>(block.bounds.offset[static_cast<std::size_t>(group)]));
  const auto weights = hn::Set(d, centroids.sum_weights[group]);
  const auto level = hn::Set(d, static_cast<T>(block.bounds.level.value));
  for (std::int64_t p = 0; p < all; p += width) {
    const T* x = block.x.data() + p * n;
    vector_of<T> norm[2], expected[2];
    squared_norms(x, n, norm);
    row_product(x, n, centroids.checksum.data() + group * n, centroids.rest[group], expected);
    for (int v = 0; v < 2; ++v) {
      const auto residual = hn::Sub(hn::Load(d, block.residual.data() + p + v * lanes),
                                    hn::Add(hn::Add(expected[v], hn::Set(d, start)), hn::Mul(weights, norm[v])));
      const auto own = hn::Mul(level, hn::MulAdd(weights, norm[v], hn::Set(d, start)));
      const auto limit = hn::Mul(hn::Set(d, T(3)), hn::MulAdd(own, own, hn::MulAdd(slope, norm[v], offset)));
      hn::Store(compare(residual, limit, hn::Zero(d)), d, block.residual.data() + p + v * lanes);
    }
  }
}

template <class T>
const kernels<T>* table() {
  static constexpr kernels<T> all = {k_width<T>, load<T>,       sign<T>,    sign_source<T>, measure<T>, assign<T>,   check<T>,
                                       accumulate<T>, project<T>, sum_labels<T>,  exact<T>,    distances<T>};
  return &all;
}

const kernels<float>* table_f32() { return table<float>(); }
const kernels<double>* table_f64() { return table<double>(); }

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kmeans {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);

template <>
const kernels<float>& cpu_kernels<float>() {
  return *HWY_DYNAMIC_DISPATCH(table_f32)();
}

template <>
const kernels<double>& cpu_kernels<double>() {
  return *HWY_DYNAMIC_DISPATCH(table_f64)();
}

}  // namespace ballast::kmeans
#endif
