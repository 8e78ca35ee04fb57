// Groups of W short signals of any length, side by side in tiles: their load and store, by transpositions in registers at both ends. A
// piece of a signal is as wide as a vector or half of one. The last piece ends where the signal does and repeats numbers of the one before
// it, so nothing beyond a signal is read or written and no numbers go one by one. The stages between are those of other tiles. Layer:
// backend "cpu".
#include "fft/cpu/across-inl.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/vectors-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_GROUPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_GROUPS_INL
#else
#define BALLAST_FFT_GROUPS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
void load_groups(const short_call<T>&, T*) {}
void store_groups(const short_call<T>&, const T*) {}
#else

// The signals of a group: W of them from number `first` on. Beyond the last signal, the last one is read again.
struct group_of_signals {
  std::int64_t from_at[W], to_at[W];

  explicit group_of_signals(const short_call<T>& call) {
#pragma GCC unroll 16
    for (int s = 0; s < W; ++s) {
      const int which = call.turned ? W - 1 - s : s;
      from_at[s] = which * call.from.stride;
      to_at[s] = which * call.to_stride;
    }
  }
  HWY_INLINE void point(const short_call<T>& call, int first, const T** from, T** to) const {
    const T* const base = call.from.base + first * call.from.stride;
    T* const results = call.to + first * call.to_stride;
    if (HWY_LIKELY(first + W <= call.from.used)) {
#pragma GCC unroll 16
      for (int s = 0; s < W; ++s) from[s] = base + from_at[s];
    } else {
      const std::int64_t last = (call.from.used - 1 - first) * call.from.stride;
      for (int s = 0; s < W; ++s) from[s] = base + (call.from.stride < 0 ? HWY_MAX(from_at[s], last) : HWY_MIN(from_at[s], last));
    }
#pragma GCC unroll 16
    for (int s = 0; s < W; ++s) to[s] = results + to_at[s];
  }
};

// Scalars from `first` on of W signals, to rows of a tile.
template <int Width>
HWY_INLINE void turn_in(const T* const* from, std::int64_t first, T* HWY_RESTRICT tile) {
  const D d;
  V v[Width];
#pragma GCC unroll 16
  for (int l = 0; l < Width; ++l) v[l] = load_piece<Width>(from, l, first);
  transpose<Width>(v);
#pragma GCC unroll 16
  for (int i = 0; i < Width; ++i) hn::Store(v[i], d, tile + (first + i) * W);
}

template <int Width, bool Stream>
HWY_INLINE void turn_out(const T* HWY_RESTRICT tile, std::int64_t first, T* const* to) {
  const D d;
  V v[Width];
#pragma GCC unroll 16
  for (int i = 0; i < Width; ++i) v[i] = hn::Load(d, tile + (first + i) * W);
  transpose<Width>(v);
#pragma GCC unroll 16
  for (int l = 0; l < Width; ++l) {
    if constexpr (Width != W) {
      const hn::Half<D> half;
      hn::StoreU(hn::LowerHalf(half, v[l]), half, to[l] + first);
      hn::StoreU(hn::UpperHalf(half, v[l]), half, to[l + Width] + first);
    } else if constexpr (Stream) {
      hn::Stream(v[l], d, to[l] + first);
    } else {
      hn::StoreU(v[l], d, to[l] + first);
    }
  }
}

// Calls wide(first) and narrow(first) for the pieces of signals of at least k_narrow scalars.
template <class Wide, class Narrow>
HWY_INLINE void for_pieces(std::int64_t scalars, Wide&& wide, Narrow&& narrow) {
  std::int64_t first = 0;
  for (; first + W <= scalars; first += W) wide(first);
  if (first == scalars) return;
  if (scalars - first <= k_narrow) return narrow(scalars - k_narrow);
  if (scalars >= W) return wide(scalars - W);
  narrow(0);
  narrow(scalars - k_narrow);
}

// Calls body(first, from, to, tile) for each group of signals, which begins with number `first`, and its tile.
template <class Tile, class Body>
HWY_INLINE void for_groups(const short_call<T>& call, Tile* tile, Body&& body) {
  const group_of_signals group(call);
  for (int first = 0; first < call.from.used; first += W, tile += 2 * call.from.points * W) {
    const T* from[W];
    T* to[W];
    group.point(call, first, from, to);
    body(first, from, to, tile);
  }
}

void load_groups(const short_call<T>& call, T* tiles) {
  for_groups(call, tiles, [&](int first, const T* const* from, T* const*, T* tile) HWY_ATTR {
    if (call.ahead != nullptr) call.ahead->step();
    call.later.bring_all(first, HWY_MIN(first + W, call.from.used), call.turned ? 0 : 1);
    for_pieces(
        2 * call.from.points, [&](std::int64_t at) HWY_ATTR { turn_in<W>(from, at, tile); },
        [&](std::int64_t at) HWY_ATTR { turn_in<k_narrow>(from, at, tile); });
  });
}

template <bool Stream>
HWY_INLINE void store_groups_by(const short_call<T>& call, const T* tiles) {
  for_groups(call, tiles, [&](int, const T* const*, T* const* to, const T* tile) HWY_ATTR {
    for_pieces(
        2 * call.from.points, [&](std::int64_t at) HWY_ATTR { turn_out<W, Stream>(tile, at, to); },
        [&](std::int64_t at) HWY_ATTR { turn_out<k_narrow, false>(tile, at, to); });
  });
}

void store_groups(const short_call<T>& call, const T* tiles) {
  call.stream ? store_groups_by<true>(call, tiles) : store_groups_by<false>(call, tiles);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
