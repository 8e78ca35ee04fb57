// The search for the nearest centroid, with its row checks.
// Layer: kernels "cpu" of the host backend.
// Micro-kernel: k_rows centroids × 2 vectors of points in registers. One multiply-add takes a broadcast of −2c and a vector of x. The
// minimum, the second smallest score, the twin minimum and the checksum are updated in registers; no distance is stored. The low bits of a
// score hold the place of its column (score_order::places), so a minimum needs no index beside it.
#include <algorithm>
#include <limits>
#include <utility>

#include "inject/injector.hpp"
#include "kmeans/cpu/vectors-inl.hpp"
#include "kmeans/sites.hpp"

// Included once per target, so an ordinary include guard does not work.
#if defined(BALLAST_KMEANS_CPU_ASSIGN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KMEANS_CPU_ASSIGN_INL
#undef BALLAST_KMEANS_CPU_ASSIGN_INL
#else
#define BALLAST_KMEANS_CPU_ASSIGN_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// 8 × 2 accumulators need 32 vector registers; 4 × 2 fit into 16.
#if HWY_ARCH_ARM_A64 || HWY_TARGET <= HWY_AVX3
constexpr int k_rows = 8;
#else
constexpr int k_rows = 4;
#endif

template <class T>
using index_vector = hn::Vec<integers_of<T> >;

template <class T>
HWY_INLINE void store_index(index_vector<T> v, std::int32_t* to) {
  const hn::Rebind<std::int32_t, lanes_of<T> > di;
  if constexpr (sizeof(T) == 4) {
    hn::StoreU(v, di, to);
  } else {
    const hn::RebindToUnsigned<decltype(di)> du;
    hn::StoreU(hn::BitCast(di, hn::TruncateTo(du, hn::BitCast(hn::RebindToUnsigned<integers_of<T> >(), v))), di, to);
  }
}

template <class T>
HWY_INLINE index_vector<T> load_index(const std::int32_t* from) {
  const hn::Rebind<std::int32_t, lanes_of<T> > di;
  if constexpr (sizeof(T) == 4) {
    return hn::LoadU(di, from);
  } else {
    return hn::PromoteTo(integers_of<T>(), hn::LoadU(di, from));
  }
}

// State of the search of one section for 2 vectors of points.
template <class T>
struct search {
  vector_of<T> minimum[2];
  vector_of<T> second[2];  // the second smallest score
  vector_of<T> twin[2];
  vector_of<T> score[2];  // the minimum with all bits of its score
  vector_of<T> sum[2];    // Σ start + Σ w D over the tiles of the section
};

// The nearest centroids of all sections so far.
template <class T>
struct search_state {
  vector_of<T> minimum[2], second[2], twin[2], score[2];
  index_vector<T> index[2], index_twin[2];
};

template <class T>
struct hook_buffer {
  HWY_ALIGN T products[k_tile * k_width<T>];
};

// The two searches start from different values. A common start value would stay in one register for a whole block, and a fault in that
// register would corrupt both searches alike.
template <class T>
HWY_INLINE void begin_section(search<T>& s) {
  const lanes_of<T> d;
  for (int v = 0; v < 2; ++v) {
    s.minimum[v] = s.second[v] = hn::Set(d, std::numeric_limits<T>::infinity());
    s.twin[v] = s.score[v] = hn::Set(d, std::numeric_limits<T>::max());
    s.sum[v] = hn::Zero(d);
  }
}

// Returns the names of the columns whose places search `number` has found in section g.
template <class T>
HWY_INLINE index_vector<T> names_at(const packed_centroids<T>& centroids, std::int64_t g, int number, vector_of<T> minimum) {
  const lanes_of<T> d;
  const integers_of<T> di;
  const auto place = hn::BitCast(di, hn::AndNot(hn::Set(d, centroids.order.score_bits[number]), minimum));
  const std::int64_t first = centroids.first_tile[static_cast<std::size_t>(g)] * k_tile;
  const std::int32_t* names = centroids.names[number].data() + first;
  if (HWY_LIKELY(!centroids.sorted)) return hn::Add(place, hn::Set(di, static_cast<hn::TFromD<decltype(di)> >(names[0])));
  const std::int64_t last = centroids.first_tile[static_cast<std::size_t>(g) + 1] * k_tile - first - 1;
  HWY_ALIGN hn::TFromD<decltype(di)> shown[k_lanes<T>];
  hn::Store(place, di, shown);
  for (auto& each : shown) each = names[std::min<std::int64_t>(each, last)];  // a fault may have made a place that is none
  return hn::Load(di, shown);
}

// Adds the result of section g to the state. Points with equal minima are undecided, so either may win.
template <class T, search_kind What>
HWY_INLINE void join(const packed_centroids<T>& centroids, std::int64_t g, const search<T>& s, search_state<T>& all) {
  const integers_of<T> di;
  for (int v = 0; v < 2; ++v) {
    const auto index = names_at(centroids, g, 0, s.minimum[v]);
    const auto nearer = hn::RebindMask(di, hn::Lt(s.minimum[v], all.minimum[v]));
    all.second[v] = hn::Min(hn::Min(s.second[v], all.second[v]), hn::Max(s.minimum[v], all.minimum[v]));
    all.minimum[v] = hn::Min(s.minimum[v], all.minimum[v]);
    all.index[v] = hn::IfThenElse(nearer, index, all.index[v]);
    if constexpr (What == search_kind::plain) continue;
    const auto nearer_twin = hn::RebindMask(di, hn::Lt(s.twin[v], all.twin[v]));
    all.twin[v] = hn::Min(s.twin[v], all.twin[v]);
    all.index_twin[v] = hn::IfThenElse(nearer_twin, names_at(centroids, g, 1, s.twin[v]), all.index_twin[v]);
    if constexpr (What == search_kind::checked_scores) all.score[v] = hn::Min(s.score[v], all.score[v]);
  }
}

// Begins the state with the result of the first section.
template <class T, search_kind What>
HWY_INLINE void begin_state(const packed_centroids<T>& centroids, const search<T>& s, search_state<T>& all) {
  for (int v = 0; v < 2; ++v) {
    all.minimum[v] = s.minimum[v];
    all.second[v] = s.second[v];
    all.index[v] = names_at(centroids, 0, 0, s.minimum[v]);
    if constexpr (What == search_kind::plain) continue;
    all.twin[v] = s.twin[v];
    all.index_twin[v] = names_at(centroids, 0, 1, s.twin[v]);
    if constexpr (What == search_kind::checked_scores) all.score[v] = s.score[v];
  }
}

// Returns 1 / v to a few digits.
template <class T>
HWY_INLINE vector_of<T> reciprocal(vector_of<T> v) {
  if constexpr (sizeof(T) == 4) {
    return hn::ApproximateReciprocal(v);
  } else {
    return hn::Div(hn::Set(lanes_of<T>(), T(1)), v);
  }
}

template <class V, int Rows, class T>
HWY_INLINE void add_to(V (&acc)[Rows][2], const T* HWY_RESTRICT sums) {
  const lanes_of<T> d;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < 2; ++v) acc[r][v] = hn::Add(acc[r][v], hn::Load(d, sums + (2 * r + v) * k_lanes<T>));
}

// The first of some adjacent columns of the packed centroids.
template <class T>
struct tile_columns {
  const T* packed;
  const T* norms;
  const T* places;  // for the first search
  const T* twins;   // for the second search
  const T* weights;
  T score_bits, twin_bits;
};

// Searches one tile of Rows centroids for 2 vectors of points. The two searches share no registers except the distances, which the row
// check covers.
template <class T, int Rows, search_kind What>
HWY_INLINE void search_tile(const T* HWY_RESTRICT x, std::int64_t n, const tile_columns<T>& columns, T start, std::int64_t real,
                            const product_hook& hook, const inject::position& here, std::int64_t points, search<T>& s) {
  constexpr bool checked = What != search_kind::plain;
  const lanes_of<T> d;
  [[maybe_unused]] const integers_of<T> di;
  constexpr std::int64_t lanes = k_lanes<T>;
  vector_of<T> acc[Rows][2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) acc[r][0] = acc[r][1] = hn::Set(d, columns.norms[r]);
  // total: sums of the runs of a span. grand: sums of the spans.
  HWY_ALIGN T total[Rows * 2 * lanes];
  HWY_ALIGN T grand[Rows * 2 * lanes];
  const T* HWY_RESTRICT packed = columns.packed;
  for (std::int64_t f = 0, span = 0;;) {
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
    if (f - span > k_run) add_to(acc, total);
    T* to = total;
    if (HWY_UNLIKELY(f == n || f - span == k_run * k_run)) {
      if (HWY_UNLIKELY(span > 0)) add_to(acc, grand);
      if (f == n) break;
      to = grand;
      span = f;
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < 2; ++v) {
        hn::Store(acc[r][v], d, to + (2 * r + v) * lanes);
        acc[r][v] = hn::Zero(d);
      }
    }
  }
  [[maybe_unused]] bool strike_minimum = false;
  if constexpr (inject::active_injector::enabled) {
    if (hook.injector->armed(site::product)) {
      // The injector sees only points in use and real centroids, so that every strike hits a value that matters.
      hook_buffer<T> shown;
      const std::int64_t rows = std::clamp<std::int64_t>(real, 0, Rows);
      for (int r = 0; r < Rows; ++r) {
        for (int v = 0; v < 2; ++v) {
          hn::StoreU(acc[r][v], d, shown.products + r * 2 * lanes + v * lanes);
        }
      }
      for (std::int64_t r = 1; r < rows; ++r) std::copy_n(shown.products + r * 2 * lanes, points, shown.products + r * points);
      hook.injector->strike(site::product, here, shown.products, rows * points);
      for (std::int64_t r = rows; r-- > 1;)
        std::copy_backward(shown.products + r * points, shown.products + (r + 1) * points, shown.products + r * 2 * lanes + points);
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < 2; ++v) {
          const auto kept = hn::LoadU(d, shown.products + r * 2 * lanes + v * lanes);
          const auto used =
              hn::RebindMask(d, hn::Lt(hn::Iota(di, 0), hn::Set(di, static_cast<hn::TFromD<decltype(di)> >(points - v * lanes))));
          acc[r][v] = hn::IfThenElse(used, kept, acc[r][v]);
        }
      }
    }
    strike_minimum = hook.injector->armed(site::minimum);
  }
  [[maybe_unused]] vector_of<T> sum[2];
  if constexpr (checked) sum[0] = sum[1] = hn::Set(d, start);
  const auto score_bits = hn::Set(d, columns.score_bits);
  [[maybe_unused]] vector_of<T> twin_bits;
  if constexpr (checked) twin_bits = hn::Set(d, columns.twin_bits);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    if constexpr (inject::active_injector::enabled) {
      if (strike_minimum && r == std::min<std::int64_t>(real, Rows) / 2) {
        hook_buffer<T> shown;
        for (int v = 0; v < 2; ++v) hn::StoreU(s.minimum[v], d, shown.products + v * lanes);
        hook.injector->strike(site::minimum, here, shown.products, points);
        for (int v = 0; v < 2; ++v) s.minimum[v] = hn::LoadU(d, shown.products + v * lanes);
      }
    }
    const auto place = hn::Set(d, columns.places[r]);
    [[maybe_unused]] vector_of<T> w, twin_place;
    if constexpr (checked) {
      w = hn::Set(d, columns.weights[r]);
      twin_place = hn::Set(d, columns.twins[r]);
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const auto score = hn::OrAnd(place, acc[r][v], score_bits);
      s.second[v] = hn::Min(s.second[v], hn::Max(score, s.minimum[v]));
      s.minimum[v] = hn::Min(score, s.minimum[v]);
      if constexpr (checked) {
        s.twin[v] = hn::Min(hn::OrAnd(twin_place, acc[r][v], twin_bits), s.twin[v]);
        if constexpr (What == search_kind::checked_scores) s.score[v] = hn::Min(acc[r][v], s.score[v]);
        sum[v] = hn::MulAdd(w, acc[r][v], sum[v]);
      }
    }
  }
  if constexpr (checked) {
    s.sum[0] = hn::Add(s.sum[0], sum[0]);
    s.sum[1] = hn::Add(s.sum[1], sum[1]);
  }
}

// Loads the state of a search that earlier sections have begun.
template <class T, search_kind What>
HWY_INLINE void load_state(const point_block<T>& block, std::int64_t at, search_state<T>& s) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  for (int v = 0; v < 2; ++v) {
    s.minimum[v] = hn::Load(d, block.nearest.minimum.data() + at + v * lanes);
    s.second[v] = hn::Load(d, block.undecided.second.data() + at + v * lanes);
    s.index[v] = load_index<T>(block.nearest.index.data() + at + v * lanes);
    if constexpr (What == search_kind::plain) continue;
    s.twin[v] = hn::Load(d, block.twin.minimum.data() + at + v * lanes);
    s.index_twin[v] = load_index<T>(block.twin.index.data() + at + v * lanes);
    if constexpr (What == search_kind::checked_scores) s.score[v] = hn::Load(d, block.nearest.score.data() + at + v * lanes);
  }
}

// Searches section g of the centroids for 2 vectors of points at x. A function of its own: constants of its callers take no registers.
template <class T, search_kind What>
HWY_NOINLINE void search_section(const T* x, std::int64_t n, const packed_centroids<T>& centroids, std::int64_t g, const product_hook& hook,
                                 inject::position& here, std::int64_t points, search<T>& found) {
  search<T> s;
  begin_section(s);
  const std::int64_t last = centroids.first_tile[static_cast<std::size_t>(g) + 1];
  for (std::int64_t t = centroids.first_tile[static_cast<std::size_t>(g)]; t < last; ++t) {
    const T start = What == search_kind::plain ? T(0) : centroids.start[t];
    const std::int64_t real = centroids.used[static_cast<std::size_t>(t)];
    const auto columns = [&](std::int64_t r) {
      const std::int64_t column = t * k_tile + r;
      return tile_columns<T>{centroids.packed.data() + t * n * k_tile + r,
                             centroids.norms.data() + column,
                             centroids.order.places[0].data() + column,
                             centroids.order.places[1].data() + column,
                             centroids.weights.data() + column,
                             centroids.order.score_bits[0],
                             centroids.order.score_bits[1]};
    };
    if constexpr (k_rows == k_tile) {
      if (real > k_tile / 2) {
        search_tile<T, k_tile, What>(x, n, columns(0), start, real, hook, here, points, s);
      } else {
        search_tile<T, k_tile / 2, What>(x, n, columns(0), start, real, hook, here, points, s);
      }
      ++here.step;
    } else {
      for (int r = 0; r < k_tile && r < real; r += k_rows, ++here.step)
        search_tile<T, k_rows, What>(x, n, columns(r), r == 0 ? start : T(0), real - r, hook, here, points, s);
    }
  }
  found = s;
}

// Compares the checksum of section g with the expected one. `kept`: the failures so far, per lane. The residual in units of its limit of
// doubt goes to block.spread.
template <class T>
HWY_INLINE void verify_section(point_block<T>& block, std::int64_t g, std::int64_t at, const search<T>& s,
                               const vector_of<T> (&expected)[2], vector_of<T> (&kept)[2]) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  const auto slope = hn::Set(d, squared<T>(block.bounds.slope[static_cast<std::size_t>(g)]));
  const auto offset = hn::Set(d, squared<T>(block.bounds.offset[static_cast<std::size_t>(g)]));
  const T share = static_cast<T>(block.bounds.doubt[static_cast<std::size_t>(g)]);
  const auto doubt = hn::Set(d, share * share);
  const auto least = hn::Set(d, std::numeric_limits<T>::min());
  for (int v = 0; v < 2; ++v) {
    const auto limit = hn::MulAdd(slope, hn::LoadU(d, block.squares + at + v * lanes), offset);
    const auto residual = hn::Sub(s.sum[v], expected[v]);
    kept[v] = compare(residual, limit, kept[v]);
    const auto ratio = hn::Mul(hn::Mul(residual, residual), reciprocal<T>(hn::Max(hn::Mul(limit, doubt), least)));
    T* const seen = block.spread.data() + (4 * g + 2 * v) * lanes;
    hn::StoreU(hn::Max(hn::LoadU(d, seen), ratio), d, seen);
    hn::StoreU(hn::Add(hn::LoadU(d, seen + lanes), ratio), d, seen + lanes);
  }
}

// Lists the points whose second score is too near to the minimum. A function of its own: within the search it costs registers, and GCC 12
// then keeps the points of the innermost loop in memory.
template <class T, bool Protect>
HWY_NOINLINE void list_undecided(const thresholds::score_margin<T>& margin, point_block<T>& block) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  const auto of_square = hn::Set(d, margin.square), of_score = hn::Set(d, margin.least_score), offset = hn::Set(d, margin.offset);
  const auto of_place = hn::Set(d, margin.places);
  for (std::int64_t pair = 0; pair < block.count; pair += 2 * lanes) {
    vector_of<T> square[2];
    if constexpr (!Protect) squared_norms(block.x.data() + pair * block.n, block.n, square);
    for (int v = 0; v < 2; ++v) {
      const std::int64_t at = pair + v * lanes;
      if constexpr (Protect) square[v] = hn::LoadU(d, block.squares + at);
      const auto minimum = hn::Load(d, block.nearest.minimum.data() + at), second = hn::Load(d, block.undecided.second.data() + at);
      const auto limit = hn::MulAdd(of_square, square[v], hn::MulAdd(of_score, minimum, hn::MulAdd(of_place, hn::Abs(minimum), offset)));
      // A second score below the minimum comes from a fault.
      const auto above = hn::Sub(second, minimum);
      const auto near = hn::And(hn::Le(above, limit), hn::Ge(above, hn::Zero(d)));
      if (HWY_LIKELY(hn::AllFalse(d, near))) continue;
      HWY_ALIGN T shown[lanes];
      hn::Store(hn::IfThenElseZero(near, hn::Set(d, T(1))), d, shown);
      for (std::int64_t l = 0; l < lanes && at + l < block.count; ++l)
        if (shown[l] != 0) block.undecided.points[block.undecided.count++] = static_cast<std::int32_t>(at + l);
    }
  }
}

// Stores the state of the search, and reports the first failure in `found`. `all`: the last section has been searched.
template <class T, search_kind What>
HWY_INLINE void commit_state(const packed_centroids<T>& centroids, point_block<T>& block, std::int64_t at, bool all,
                             const search_state<T>& s, vector_of<T> (&kept)[2], row_failure& found) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  for (int v = 0; v < 2; ++v) {
    store_index<T>(s.index[v], block.nearest.index.data() + at + v * lanes);
    hn::Store(s.minimum[v], d, block.nearest.minimum.data() + at + v * lanes);
    hn::Store(s.second[v], d, block.undecided.second.data() + at + v * lanes);
    if constexpr (What == search_kind::plain) continue;
    store_index<T>(s.index_twin[v], block.twin.index.data() + at + v * lanes);
    if (!all) hn::Store(s.twin[v], d, block.twin.minimum.data() + at + v * lanes);
    auto same = hn::Eq(s.minimum[v], s.twin[v]);
    if constexpr (What == search_kind::checked_scores) {
      hn::Store(s.score[v], d, block.nearest.score.data() + at + v * lanes);
      const auto bits = hn::Set(d, centroids.order.score_bits[0]);
      same = hn::And(same, hn::Eq(hn::And(s.score[v], bits), hn::And(s.twin[v], bits)));
    }
    kept[v] = hn::IfThenElse(same, kept[v], hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
    // A NaN is not equal to 0, so it counts as a failure.
    const auto clean = hn::Eq(kept[v], hn::Zero(d));
    if (HWY_UNLIKELY(!hn::AllTrue(d, clean)) && found.row < 0) {
      HWY_ALIGN T shown[lanes];
      hn::Store(kept[v], d, shown);
      for (std::int64_t l = 0; l < lanes; ++l)
        if (!(shown[l] == 0))
          found = {static_cast<double>(shown[l]), std::min(block.first + at + v * lanes + l, block.first + block.count - 1)};
    }
  }
}

// Returns whether a residual of the block stands out from the rounding error. A corrupted register affects one pair of vectors, so the
// largest residual of every lane may be wrong. The other residuals show the rounding error.
template <class T>
HWY_INLINE bool doubtful(const point_block<T>& block, std::int64_t sections, std::int64_t pairs) {
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  bool made = false;
  for (std::int64_t g = 0; g < sections; ++g) {
    const T* const seen = block.spread.data() + 4 * g * lanes;
    const auto largest0 = hn::LoadU(d, seen), largest1 = hn::LoadU(d, seen + 2 * lanes);
    const auto most = hn::MaxOfLanes(d, hn::Max(largest0, largest1));
    const auto rest =
        hn::SumOfLanes(d, hn::Add(hn::Sub(hn::LoadU(d, seen + lanes), largest0), hn::Sub(hn::LoadU(d, seen + 3 * lanes), largest1)));
    if (stands_out(static_cast<double>(hn::GetLane(most)), static_cast<double>(hn::GetLane(rest)), k_width<T> * (pairs - 1))) made = true;
  }
  return made;
}

template <class T, search_kind What>
HWY_NOINLINE row_failure assign_with(const packed_centroids<T>& centroids, const product_hook& hook, point_block<T>& block) {
  constexpr bool checked = What != search_kind::plain;
  const lanes_of<T> d;
  constexpr std::int64_t lanes = k_lanes<T>;
  constexpr std::int64_t width = k_width<T>;
  const std::int64_t n = block.n;
  const std::int64_t pairs = padded(block) / width;
  // The number of sections that stay in the second-level cache while all points of the block are searched.
  const std::int64_t chunk = std::max<std::int64_t>(1, 384 * 1024 / (static_cast<std::int64_t>(sizeof(T)) * k_section * n));
  row_failure found;
  block.undecided.count = 0;
  // Injection steps: each is one search of a tile, or of half a tile, that holds centroids.
  const auto searches = [&](std::int64_t tiles) {
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < tiles; ++t)
      count += k_rows == k_tile ? 1 : (centroids.used[static_cast<std::size_t>(t)] + k_rows - 1) / k_rows;
    return count;
  };
  const std::int64_t of_pair = searches(centroids.tiles);
  // Squared residuals in units of their limits of doubt: the largest and the sum, per section, vector and lane.
  if constexpr (checked) block.spread.assign(static_cast<std::size_t>(4 * centroids.sections * lanes), T(0));
  for (std::int64_t begin = 0; begin < centroids.sections; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, centroids.sections);
    const bool all = end == centroids.sections;
    const std::int64_t before_these = searches(centroids.first_tile[static_cast<std::size_t>(begin)]);
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const T* x = block.x.data() + pair * n * width;
      const std::int64_t at = pair * width;
      search_state<T> state;
      vector_of<T> kept[2];
      [[maybe_unused]] vector_of<T> expected[2];
      if constexpr (checked) kept[0] = kept[1] = hn::Zero(d);
      if (begin > 0) load_state<T, What>(block, at, state);
      inject::position here = hook.position;
      here.steps = pairs * of_pair;
      here.step = pair * of_pair + before_these;
      const std::int64_t points = std::min(width, block.count - at);
      for (std::int64_t g = begin; g < end; ++g) {
        if constexpr (checked) row_product(x, n, centroids.checksum.data() + g * n, centroids.rest[g], expected);
        search<T> s;
        search_section<T, What>(x, n, centroids, g, hook, here, points, s);
        if constexpr (checked) verify_section(block, g, at, s, expected, kept);
        if (g == 0) {
          begin_state<T, What>(centroids, s, state);
        } else {
          join<T, What>(centroids, g, s, state);
        }
      }
      commit_state<T, What>(centroids, block, at, all, state, kept, found);
    }
  }
  list_undecided<T, checked>(centroids.order.margin, block);
  if constexpr (checked) block.doubtful = doubtful(block, centroids.sections, pairs);
  return found;
}

template <class T>
row_failure assign(const packed_centroids<T>& centroids, search_kind what, const product_hook& hook, point_block<T>& block) {
  if (what == search_kind::plain) return assign_with<T, search_kind::plain>(centroids, hook, block);
  if (what == search_kind::checked) return assign_with<T, search_kind::checked>(centroids, hook, block);
  const row_failure found = assign_with<T, search_kind::checked_scores>(centroids, hook, block);
  std::swap(block.nearest.minimum, block.nearest.score);
  return found;
}

template <class T>
HWY_NOINLINE void keep_in_range(point_block<T>& block, std::int64_t k) {
  const hn::CappedTag<std::uint32_t, 64 / sizeof(std::uint32_t)> du;
  const auto labels = static_cast<std::int64_t>(hn::Lanes(du));
  auto* const label = reinterpret_cast<std::uint32_t*>(block.label.data());
  const auto last = static_cast<std::uint32_t>(k - 1);
  std::int64_t p = 0;
  for (; p + labels <= block.count; p += labels) hn::StoreU(hn::Min(hn::LoadU(du, label + p), hn::Set(du, last)), du, label + p);
  for (; p < block.count; ++p) label[p] = std::min(label[p], last);
}

template <class T>
HWY_NOINLINE row_failure check(const point_block<T>& block, std::int64_t k) {
  const hn::CappedTag<std::int32_t, 64 / sizeof(std::int32_t)> di;
  const hn::RebindToUnsigned<decltype(di)> du;
  const std::int64_t labels = static_cast<std::int64_t>(hn::Lanes(di));
  bool good = true;
  std::int64_t p = 0;
  auto largest = hn::Zero(du);
  for (; p + labels <= block.count; p += labels) {
    const auto label = hn::LoadU(di, block.label.data() + p);
    good = good && hn::AllTrue(di, hn::Eq(label, hn::LoadU(di, block.twin.index.data() + p)));
    largest = hn::Max(largest, hn::BitCast(du, label));
  }
  good = good && static_cast<std::int64_t>(hn::GetLane(hn::MaxOfLanes(du, largest))) < k;
  // Checks the remaining points; after a failure checks all points again to locate it.
  for (p = good ? p : 0; p < block.count; ++p) {
    if (block.label[p] != block.twin.index[p] || block.label[p] < 0 || block.label[p] >= k)
      return {std::numeric_limits<double>::quiet_NaN(), block.first + p};
  }
  // A failure that only the vector comparison detected is reported, too.
  return good ? row_failure{} : row_failure{std::numeric_limits<double>::quiet_NaN(), block.first};
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
