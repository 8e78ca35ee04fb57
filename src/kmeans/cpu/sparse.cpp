// The search of sparse points with SIMD: lanes are centroids. An element of a point meets the packed centroids of its feature, which lie
// side by side. All other kernels of sparse points are those of reference/sparse.cpp.
// Layer: kernels "cpu" of the host backend.
// Highway chooses the instruction set at run time; the host backend runs the threads.
#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kmeans/cpu/sparse.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "inject/injector.hpp"
#include "kmeans/block.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::sparse_search::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// Without SIMD the plain loops are as fast.
const kernels<float>* sparse_table_f32() { return &reference_sparse_kernels<float>(); }
const kernels<double>* sparse_table_f64() { return &reference_sparse_kernels<double>(); }
#else

// A tile of k_tile centroids is one vector, or more.
template <class T>
using lanes_of = hn::CappedTag<T, k_tile>;
template <class T>
using vector_of = hn::Vec<lanes_of<T> >;
template <class T>
constexpr std::int64_t k_lanes = hn::MaxLanes(lanes_of<T>());
template <class T>
constexpr std::int64_t k_section_vectors = k_section / k_lanes<T>;
constexpr std::int64_t k_most_vectors = 8;  // accumulators at a time
constexpr std::int64_t k_run = thresholds::k_run;

// The stored elements of one point. `readable`: those of its block from the first one on.
template <class T>
struct elements {
  const T* x;
  const std::int32_t* column;
  std::int64_t count, readable;
};

// Centroids of some elements ahead come into the cache meanwhile: features are read in no order that hardware foresees.
constexpr std::int64_t k_ahead = 16;

// Adds Σ x · packed[column] to `Vectors` vectors at `to`.
template <class T, int Vectors>
HWY_INLINE void add_run(const elements<T>& of, const T* HWY_RESTRICT packed, std::int64_t stride, T* HWY_RESTRICT to) {
  const lanes_of<T> d;
  vector_of<T> acc[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) acc[v] = hn::Zero(d);
  for (std::int64_t e = 0; e < of.count; ++e) {
    const auto x = hn::Set(d, of.x[e]);
    const T* const features = packed + of.column[e] * stride;
    const auto* const ahead = reinterpret_cast<const char*>(packed + of.column[std::min(e + k_ahead, of.readable - 1)] * stride);
#pragma GCC unroll 8
    for (std::int64_t byte = 0; byte < Vectors * k_lanes<T> * static_cast<std::int64_t>(sizeof(T)); byte += 64)
      __builtin_prefetch(ahead + byte);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) acc[v] = hn::MulAdd(x, hn::LoadU(d, features + v * k_lanes<T>), acc[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) hn::Store(hn::Add(hn::Load(d, to + v * k_lanes<T>), acc[v]), d, to + v * k_lanes<T>);
}

// Adds the products of a point with `Vectors` vectors of columns to their scores, in runs and spans of runs.
template <class T, int Vectors>
HWY_NOINLINE void add_products(const elements<T>& of, const T* packed, std::int64_t stride, T* score) {
  if (of.count <= k_run) return add_run<T, Vectors>(of, packed, stride, score);
  const lanes_of<T> d;
  for (std::int64_t e = 0; e < of.count;) {
    HWY_ALIGN T part[Vectors * k_lanes<T>] = {};
    for (const std::int64_t span = std::min(e + k_run * k_run, of.count); e < span;) {
      const std::int64_t count = std::min(k_run, span - e);
      add_run<T, Vectors>({of.x + e, of.column + e, count, of.readable - e}, packed, stride, part);
      e += count;
    }
    for (int v = 0; v < Vectors; ++v)
      hn::Store(hn::Add(hn::Load(d, score + v * k_lanes<T>), hn::Load(d, part + v * k_lanes<T>)), d, score + v * k_lanes<T>);
  }
}

template <class T>
HWY_INLINE void products(const elements<T>& of, const T* packed, std::int64_t columns, T* score) {
  using step = void (*)(const elements<T>&, const T*, std::int64_t, T*);
  static constexpr step steps[] = {add_products<T, 1>, add_products<T, 2>, add_products<T, 3>, add_products<T, 4>,
                                   add_products<T, 5>, add_products<T, 6>, add_products<T, 7>, add_products<T, 8>};
  const std::int64_t vectors = columns / k_lanes<T>;
  for (std::int64_t v = 0; v < vectors; v += k_most_vectors)
    steps[std::min(k_most_vectors, vectors - v) - 1](of, packed + v * k_lanes<T>, columns, score + v * k_lanes<T>);
}

// Returns start + Σ x · checksum over the elements of a point: two sums in each run.
template <class T>
HWY_INLINE T checksum_product(const elements<T>& of, const T* checksum, T start) {
  for (std::int64_t e = 0; e < of.count;) {
    T part = 0;
    for (const std::int64_t span = std::min(e + k_run * k_run, of.count); e < span;) {
      T even = 0, odd = 0;
      const std::int64_t end = std::min(e + k_run, span);
      for (; e + 2 <= end; e += 2) {
        even += of.x[e] * checksum[of.column[e]];
        odd += of.x[e + 1] * checksum[of.column[e + 1]];
      }
      if (e < end) {
        even += of.x[e] * checksum[of.column[e]];
        ++e;
      }
      part += even + odd;
    }
    start += part;
  }
  return start;
}

template <class T>
using word_of = hwy::UnsignedFromSize<sizeof(T)>;
template <class T>
HWY_INLINE word_of<T> bits_of(T value) {
  word_of<T> bits;
  hwy::CopySameSize(&value, &bits);
  return bits;
}

// The result of a search of one point so far. `minimum` and `twin` hold the places of their columns in their low bits; `score` has all bits
// of the smallest score.
template <class T>
struct search {
  T minimum = std::numeric_limits<T>::infinity(), second = minimum, twin = minimum, score = minimum;
  std::int32_t index = 0, index_twin = 0;
};

// Searches one section. Returns Σ (w s − w ‖c‖²).
template <class T, bool Checked>
HWY_INLINE T search_section(const packed_centroids<T>& centroids, std::int64_t g, const T* HWY_RESTRICT score, inject::position here,
                            const product_hook& hook, search<T>& all) {
  const lanes_of<T> d;
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(g)] * k_tile;
  const std::int64_t columns = centroids.stride_of(g), vectors = columns / k_lanes<T>;
  const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  auto best = infinity, second = infinity, twin = infinity, least = infinity, sum = hn::Zero(d);
  const auto score_bits = hn::Set(d, centroids.order.score_bits[0]), twin_bits = hn::Set(d, centroids.order.score_bits[1]);
  for (std::int64_t v = 0; v < vectors; ++v) {
    const std::int64_t column = first + v * k_lanes<T>;
    const auto s = hn::Load(d, score + v * k_lanes<T>);
    const auto placed = hn::Or(hn::And(s, score_bits), hn::LoadU(d, centroids.order.places[0].data() + column));
    second = hn::Min(second, hn::Max(best, placed));
    best = hn::Min(best, placed);
    if constexpr (inject::active_injector::enabled) {
      if (v == vectors / 2 && hook.injector->armed(site::minimum)) {
        HWY_ALIGN T shown[k_lanes<T>];
        hn::Store(best, d, shown);
        std::int64_t real = 0;
        while (real < k_lanes<T> && centroids.names[0][first + real] >= 0) ++real;
        hook.injector->strike(site::minimum, here, shown, real);
        best = hn::Load(d, shown);
      }
    }
    if constexpr (Checked) {
      twin = hn::Min(twin, hn::Or(hn::And(s, twin_bits), hn::LoadU(d, centroids.order.places[1].data() + column)));
      sum = hn::Add(sum,
                    hn::MulAdd(hn::LoadU(d, centroids.weights.data() + column), s, hn::LoadU(d, centroids.sparse.start.data() + column)));
    }
    least = hn::Min(least, s);
  }
  // A place that is none, after a fault, names the last column.
  const auto name_of = [&](int which, T minimum) {
    const auto place = static_cast<std::int64_t>(bits_of(minimum) & static_cast<word_of<T> >(~bits_of(centroids.order.score_bits[which])));
    return centroids.names[which][first + std::min(place, columns - 1)];
  };
  const T smallest = hn::GetLane(hn::MinOfLanes(d, best));
  const T others = hn::GetLane(hn::MinOfLanes(d, hn::Min(second, hn::IfThenElse(hn::Eq(best, hn::Set(d, smallest)), infinity, best))));
  all.second = std::min(std::min(all.second, others), std::max(all.minimum, smallest));
  if (smallest < all.minimum || g == 0) {
    all.minimum = smallest;
    all.index = name_of(0, smallest);
  }
  all.score = std::min(all.score, hn::GetLane(hn::MinOfLanes(d, least)));
  if constexpr (!Checked) return 0;
  const T smallest_twin = hn::GetLane(hn::MinOfLanes(d, twin));
  if (smallest_twin < all.twin || g == 0) {
    all.twin = smallest_twin;
    all.index_twin = name_of(1, smallest_twin);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Compares the residual of a row with its limit, and notes its size beside the limit of doubt.
template <class T>
HWY_INLINE void check_row(T residual, std::int64_t g, std::int64_t p, point_block<T>& block, T& kept) {
  const auto at = static_cast<std::size_t>(g);
  const T slope = static_cast<T>(block.bounds.slope[at].value), offset = static_cast<T>(block.bounds.offset[at].value);
  const T limit = slope * slope * block.squares[p] + offset * offset;
  const T square = residual * residual;
  if (!(square <= limit)) kept = std::abs(residual);
  const T doubt = static_cast<T>(block.bounds.doubt[at]);
  const T ratio = square / std::max(limit * doubt * doubt, std::numeric_limits<T>::min());
  block.spread[2 * at] = std::max(block.spread[2 * at], ratio);
  block.spread[2 * at + 1] += ratio;
}

template <class T, bool Checked>
HWY_NOINLINE row_failure assign_with(const packed_centroids<T>& centroids, const product_hook& hook, point_block<T>& block) {
  row_failure found;
  block.undecided.count = 0;
  if constexpr (Checked) block.spread.assign(static_cast<std::size_t>(2 * centroids.sections), T(0));
  const thresholds::score_margin<T>& margin = centroids.order.margin;
  HWY_ALIGN T score[k_section];
  for (std::int64_t p = 0; p < block.count; ++p) {
    const elements<T> of = {block.x.data() + block.begin[p], block.column.data() + block.begin[p], block.begin[p + 1] - block.begin[p],
                            block.begin[block.count] - block.begin[p]};
    search<T> state;
    T kept = 0;
    for (std::int64_t g = 0; g < centroids.sections; ++g) {
      const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(g)] * k_tile, columns = centroids.stride_of(g);
      std::copy_n(centroids.norms.data() + first, columns, score);
      products(of, centroids.packed.data() + first * block.n, columns, score);
      inject::position here = hook.position;
      here.step = p * centroids.sections + g;
      here.steps = block.count * centroids.sections;
      if constexpr (inject::active_injector::enabled) {
        if (hook.injector->armed(site::product)) {
          std::int64_t real = 0;
          while (real < columns && centroids.names[0][first + real] >= 0) ++real;
          hook.injector->strike(site::product, here, score, real);
        }
      }
      const T sum = search_section<T, Checked>(centroids, g, score, here, hook, state);
      if constexpr (Checked)
        check_row(sum - checksum_product(of, centroids.checksum.data() + g * block.n, centroids.sparse.rest[g]), g, p, block, kept);
    }
    block.nearest.minimum[p] = state.score;
    block.nearest.index[p] = state.index;
    block.twin.index[p] = state.index_twin;
    T square = 0;
    if constexpr (Checked) {
      square = block.squares[p];
    } else {
      for (std::int64_t e = 0; e < of.count; ++e) square += of.x[e] * of.x[e];
    }
    const T limit = margin.square * square + margin.least_score * state.minimum + margin.places * std::abs(state.minimum) + margin.offset;
    // A second score below the smallest one comes from a fault.
    if (state.second >= state.minimum && state.second - state.minimum <= limit)
      block.undecided.points[block.undecided.count++] = static_cast<std::int32_t>(p);
    if constexpr (!Checked) continue;
    const auto cut = [](T value, T bits) { return static_cast<word_of<T> >(bits_of(value) & bits_of(bits)); };
    const T* const bits = centroids.order.score_bits;
    if (cut(state.minimum, bits[0]) != cut(state.twin, bits[1]) || cut(state.score, bits[0]) != cut(state.minimum, bits[0]))
      kept = std::numeric_limits<T>::quiet_NaN();
    if (!(kept == 0) && found.row < 0) found = {static_cast<double>(kept), block.first + p};
  }
  block.doubtful = false;
  if constexpr (Checked) {
    for (std::size_t g = 0; g < block.spread.size(); g += 2) {
      const double largest = static_cast<double>(block.spread[g]), sum = static_cast<double>(block.spread[g + 1]);
      if (stands_out(largest, sum - largest, block.count - 1)) block.doubtful = true;
    }
  }
  return found;
}

template <class T>
row_failure assign(const packed_centroids<T>& centroids, search_kind what, const product_hook& hook, point_block<T>& block) {
  return what == search_kind::plain ? assign_with<T, false>(centroids, hook, block) : assign_with<T, true>(centroids, hook, block);
}

template <class T>
const kernels<T>* sparse_table() {
  static const kernels<T> all = [] {
    kernels<T> made = reference_sparse_kernels<T>();
    made.assign = assign<T>;
    return made;
  }();
  return &all;
}

const kernels<float>* sparse_table_f32() { return sparse_table<float>(); }
const kernels<double>* sparse_table_f64() { return sparse_table<double>(); }

#endif

}  // namespace ballast::kmeans::sparse_search::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kmeans {

namespace sparse_search {

HWY_EXPORT(sparse_table_f32);
HWY_EXPORT(sparse_table_f64);

const kernels<float>& chosen_f32() { return *HWY_DYNAMIC_DISPATCH(sparse_table_f32)(); }
const kernels<double>& chosen_f64() { return *HWY_DYNAMIC_DISPATCH(sparse_table_f64)(); }

}  // namespace sparse_search

template <>
const kernels<float>& cpu_sparse_kernels<float>() {
  return sparse_search::chosen_f32();
}

template <>
const kernels<double>& cpu_sparse_kernels<double>() {
  return sparse_search::chosen_f64();
}

}  // namespace ballast::kmeans
#endif
