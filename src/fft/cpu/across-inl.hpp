// Short lines: the signals of a vector, the destination of results, and the second computation that is compared with them. Also
// signals of at most 20 points in registers: a vector has one part of one number of W of them (across), or a number of W/2 (packed). Both
// ends are transposed, by pieces of a signal that are as wide as a vector, or half of one.
// Layer: backend "cpu".
#include <cstring>

#include "fft/cpu/kernels.hpp"
#include "fft/cpu/stages-inl.hpp"
#include "fft/cpu/sums-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_ACROSS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_ACROSS_INL
#else
#define BALLAST_FFT_ACROSS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
bool same_bits(const T*, const T*, std::int64_t, const parity_pair&) { return false; }
#else

// ---- Signals of a vector, destinations ----

// Signals `step` scalars apart: operator[] returns where a signal begins.
template <class Pointer>
struct signals_from {
  Pointer base;
  std::int64_t step;

  HWY_INLINE Pointer operator[](int s) const { return base + s * step; }
};
using inputs_from = signals_from<const T*>;
using outputs_to = signals_from<T*>;

// The signals of the last group, of which `count` are there; the others are zeros.
template <int Scalars, int S>
HWY_NOINLINE void copy_last_signals(const T* from, std::int64_t stride, int count, T* to) {
  for (int s = 0; s < S; ++s, from += stride, to += Scalars) {
    if (s < count)
      std::memcpy(to, from, Scalars * sizeof(T));
    else
      std::memset(to, 0, Scalars * sizeof(T));
  }
}

// Asks memory for what a call brings meanwhile: the lines of `steps` groups ahead, and the results of signals first … last − 1. Not
// inlined, so that no state of it takes registers in the loops over groups.
HWY_NOINLINE void bring_meanwhile(const short_call<T>& call, int first, int last, int steps) {
  if (call.ahead != nullptr) call.ahead->steps(steps);
  call.later.bring_all(first, last, call.turned ? 0 : 1);
}

// The groups of S signals of Points numbers, one after the other. Lane s of a group has from[s] and to[s]; lanes beyond the last signal
// read zeros.
template <int S, int Points>
struct signal_groups {
  static constexpr int k_scalars = 2 * Points;
  static constexpr int k_bytes = S * k_scalars * static_cast<int>(sizeof(T));
  static constexpr int k_together = HWY_MAX(1, 1024 / k_bytes);  // groups for which memory is asked at once

  inputs_from from;
  outputs_to to;
  int first = 0;  // number of the first signal of the group

  HWY_INLINE explicit signal_groups(const short_call<T>& call)
      : from{call.from.base, call.from.stride},
        to{call.to, call.to_stride},
        from_group_(S * call.from.stride),
        to_group_(S * call.to_stride),
        used_(call.from.used),
        brings_(call.later.to != nullptr || (call.ahead != nullptr && call.ahead->lines() > 0)) {
    if (S > 1 && call.turned) {
      from = {from[S - 1], -from.step};
      to = {to[S - 1], -to.step};
    }
  }
  // Returns whether there is another group, and prepares it.
  HWY_INLINE bool begin(const short_call<T>& call) {
    if (first >= used_) return false;
    if (brings_ && first % (S * k_together) == 0) bring_meanwhile(call, first, HWY_MIN(first + S * k_together, used_), k_together);
    if constexpr (S > 1) {
      if (HWY_UNLIKELY(first + S > used_)) {
        copy_last_signals<k_scalars, S>(call.from.base + first * call.from.stride, call.from.stride, used_ - first, last_);
        from = {last_, k_scalars};
        if (call.turned) from = {from[S - 1], -from.step};
      }
    }
    return true;
  }
  HWY_INLINE void next() {
    first += S;
    from.base += from_group_;
    to.base += to_group_;
  }

 private:
  std::int64_t from_group_, to_group_;
  int used_;
  bool brings_;
  HWY_ALIGN T last_[S == 1 ? 1 : S * k_scalars];
};

// Scalars of the narrower piece of a signal: two signals share a vector.
constexpr int k_narrow = k_blocks > 1 ? W / 2 : W;

// Returns Width scalars of each of W signals, lane by lane, before the transposition: those of signals l and l + Width, if a vector has
// two.
template <int Width, class From>
HWY_INLINE V load_piece(const From& from, int l, std::int64_t first) {
  const D d;
  if constexpr (Width == W) {
    return hn::LoadU(d, from[l] + first);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, from[l + Width] + first), hn::LoadU(half, from[l] + first));
  }
}

// The parities of two computations, as runs: the places of a signal go on where those of the one before it end.
struct run_parities {
  run_parity own, others;

  HWY_INLINE void put(const parity_pair& to) {
    put_parity(own.done(), to.own);
    put_parity(others.done(), to.others);
  }
};

// Stores vectors of one signal, or a pair of vectors: the next ones of one signal, one of each of two, or half a one of each of four.
template <int Shared, bool Stream>
struct to_memory {
  HWY_INLINE void row(V v, T* to) {
    const D d;
    if constexpr (Stream)
      hn::Stream(v, d, to);
    else
      hn::StoreU(v, d, to);
  }
  // Pieces of signal l of a group: a whole vector, or half of one beside as many scalars of signal l + W/2.
  HWY_INLINE void piece(V v, const outputs_to& to, int l, std::int64_t first) { row(v, to[l] + first); }
  HWY_INLINE void narrow_piece(V v, const outputs_to& to, int l, std::int64_t first) {
    const hn::Half<D> half;
    hn::StoreU(hn::LowerHalf(half, v), half, to[l] + first);
    hn::StoreU(hn::UpperHalf(half, v), half, to[l + W / 2] + first);
  }
  HWY_INLINE void pair(V low, V high, const outputs_to& to, std::int64_t offset) {
    if constexpr (Shared == 4) {
      const hn::Half<D> half;
      hn::StoreU(hn::LowerHalf(half, low), half, to[0] + offset);
      hn::StoreU(hn::UpperHalf(half, low), half, to[1] + offset);
      hn::StoreU(hn::LowerHalf(half, high), half, to[2] + offset);
      hn::StoreU(hn::UpperHalf(half, high), half, to[3] + offset);
    } else {
      row(low, to[0] + offset);
      row(high, Shared == 1 ? to[0] + offset + W : to[1] + offset);
    }
  }
};

// Compares with what is there instead, and joins the parities of the numbers that it is given and of those that are there. WithHalves: each
// signal ends with half a vector.
template <int Shared, bool WithHalves = false>
struct with_memory {
  // Half a vector of each of two signals, which begins with an even or with an odd half of theirs: the words of the latter join apart.
  word_vector differs, own, others, own_odd, others_odd;
  // Ends of signals with even and with odd numbers, of two signals in a vector. Both halves have the same places.
  word_vector own_end, others_end, own_end_odd, others_end_odd;

  HWY_INLINE with_memory()
      : differs(hn::Zero(words())),
        own(differs),
        others(differs),
        own_odd(differs),
        others_odd(differs),
        own_end(differs),
        others_end(differs),
        own_end_odd(differs),
        others_end_odd(differs) {}

  HWY_INLINE void compare(V v, V there) { compare(v, there, own, others); }
  HWY_INLINE void compare(V v, V there, word_vector& to_own, word_vector& to_others) {
    const words d;
    const word_vector x = hn::BitCast(d, v), y = hn::BitCast(d, there);
    differs = hn::Or(differs, hn::Xor(x, y));
    to_own = hn::Xor(to_own, x);
    to_others = hn::Xor(to_others, y);
  }
  HWY_INLINE void row(V v, const T* to) { compare(v, hn::LoadU(D(), to)); }
  // Signals are turned: lane l has one with an odd number if l is even. It begins with the second half of the places.
  HWY_INLINE void piece(V v, const outputs_to& to, int l, std::int64_t first) {
    const V there = hn::LoadU(D(), to[l] + first);
    const bool odd = WithHalves && l % 2 == 0;
    compare(v, there, odd ? own_odd : own, odd ? others_odd : others);
  }
  HWY_INLINE void narrow_piece(V v, const outputs_to& to, int l, std::int64_t first) {
    const bool odd = l % 2 == 0;
    compare(v, load_piece<W / 2>(to, l, first), odd ? own_end_odd : own_end, odd ? others_end_odd : others_end);
  }
  HWY_INLINE void pair(V low, V high, const outputs_to& to, std::int64_t offset) {
    const D d;
    if constexpr (Shared == 4) {
      const hn::Half<D> half;
      const V there[2] = {hn::Combine(d, hn::LoadU(half, to[1] + offset), hn::LoadU(half, to[0] + offset)),
                          hn::Combine(d, hn::LoadU(half, to[3] + offset), hn::LoadU(half, to[2] + offset))};
      const bool odd = offset / (W / 2) % 2 == 1;
      compare(low, there[0], odd ? own_odd : own, odd ? others_odd : others);
      compare(high, there[1], odd ? own_odd : own, odd ? others_odd : others);
    } else {
      row(low, to[0] + offset);
      row(high, Shared == 1 ? to[0] + offset + W : to[1] + offset);
    }
  }
  // Adds the parities. The upper half of two half vectors has the places of the lower one.
  HWY_INLINE void add_to(run_parities& to) const {
    if constexpr (Shared == 4) {
      const words d;
      const auto halves = [&](word_vector even, word_vector odd)
                              HWY_ATTR { return hn::Xor(hn::ConcatLowerLower(d, odd, even), hn::ConcatUpperUpper(d, odd, even)); };
      to.own.add(halves(own, own_odd), 0);
      to.others.add(halves(others, others_odd), 0);
    } else {
      to.own.add(own, 0);
      to.others.add(others, 0);
    }
    if constexpr (WithHalves) {
      const words d;
      const hn::Half<words> half;
      const auto both = [&](word_vector x) HWY_ATTR {
        return hn::Xor(hn::ZeroExtendVector(d, hn::LowerHalf(half, x)), hn::ZeroExtendVector(d, hn::UpperHalf(half, x)));
      };
      to.own.add(own_odd, W / 2);
      to.others.add(others_odd, W / 2);
      to.own.add(both(own_end), 0);
      to.others.add(both(others_end), 0);
      to.own.add(both(own_end_odd), W / 2);
      to.others.add(both(others_end_odd), W / 2);
    }
  }
  HWY_INLINE bool same() const { return hn::AllTrue(words(), hn::Eq(differs, hn::Zero(words()))); }
};

// Compares two runs, and adds their parities.
HWY_INLINE bool compare_run(const T* a, const T* b, std::int64_t scalars, run_parities& to) {
  const D d;
  with_memory<1> by;
  std::int64_t i = 0;
  for (; i + W <= scalars; i += W) by.row(hn::LoadU(d, a + i), b + i);
  if (i < scalars) {
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(scalars - i));
    by.compare(hn::MaskedLoad(rest, d, a + i), hn::MaskedLoad(rest, d, b + i));
  }
  by.add_to(to);
  return by.same();
}

bool same_bits(const T* a, const T* b, std::int64_t scalars, const parity_pair& to) {
  run_parities made;
  const bool same = compare_run(a, b, scalars, made);
  made.put(to);
  return same;
}

// Transforms again, by Line::lines(call, sink) for whole groups of Line::S signals, and compares with call.to, one run.
template <class Line, bool Swapped>
HWY_INLINE bool repeat_by(const short_call<T>& call, const parity_pair& to) {
  with_memory<Line::k_shared, Line::k_has_halves> by;
  short_call<T> part = call;
  part.from.used = call.from.used / Line::S * Line::S;
  Line::template lines<Swapped>(part, by);
  run_parities all;
  bool same = true;
  if (const int rest = call.from.used - part.from.used; rest > 0) {
    HWY_ALIGN T made[2 * Line::k_points * Line::S];
    const std::int64_t scalars = 2 * Line::k_points;
    part.from.base += part.from.used * call.from.stride;
    part.from.used = rest;
    part.to = made;
    part.to_stride = scalars;
    to_memory<Line::k_shared, false> store;
    Line::template lines<Swapped>(part, store);
    // Signals before the rest are whole vectors in all.
    same = compare_run(made, call.to + (call.from.used - rest) * call.to_stride, rest * scalars, all);
  }
  by.add_to(all);
  all.put(to);
  return same && by.same();
}

// ---- Lines of so few points that vectors along them would be half empty ----

// Numbers between two parts of a computation.
HWY_INLINE void keep(const complex_vector& z, T* to) {
  hn::Store(z.re, D(), to);
  hn::Store(z.im, D(), to + W);
}
HWY_INLINE void fetch(const T* from, complex_vector& z) { z = complex_at(from, 0); }
#if BALLAST_FFT_BITS == 64
template <bool Swapped>
HWY_INLINE void keep(const packed_vector<Swapped>& z, T* to) {
  hn::Store(z.v, D(), to);
}
template <bool Swapped>
HWY_INLINE void fetch(const T* from, packed_vector<Swapped>& z) {
  z.v = hn::Load(D(), from);
}
#endif

// The loop over groups of signals of Line, whose numbers are in registers from their load to their store.
template <class Line>
struct in_registers {
  template <bool Swapped, class Sink>
  static HWY_INLINE void lines(const short_call<T>& call, Sink& sink) {
    for (signal_groups<Line::S, Line::k_points> group(call); group.begin(call); group.next()) {
      typename Line::template number<Swapped> x[Line::k_points];
      Line::template load<Swapped>(group.from, x);
      butterfly<Line::k_points>(x);
      Line::template store<Swapped>(x, group.to, sink);
    }
  }

  // One of two parts of `lines`.
  template <bool Swapped, class Sink>
  static HWY_INLINE void apart(const short_call<T>& call, bool second, Sink& sink) {
    using Z = typename Line::template number<Swapped>;
    constexpr int N = Line::k_points, k_scalars = sizeof(Z) / sizeof(T);
    for (signal_groups<Line::S, N> group(call); group.begin(call); group.next()) {
      Z x[N];
      T* const memory = call.between + group.first * 2 * N;
      if (!second) {
        Line::template load<Swapped>(group.from, x);
        for (int i = 0; i < N; ++i) keep(x[i], memory + i * k_scalars);
        continue;
      }
      for (int i = 0; i < N; ++i) fetch(memory + i * k_scalars, x[i]);
      butterfly<N>(x);
      Line::template store<Swapped>(x, group.to, sink);
    }
  }
};

template <int N>
struct across : in_registers<across<N> > {
  template <bool Swapped>
  using number = complex_vector;
  static constexpr int S = W;
  static constexpr int k_shared = 1;  // a vector of results is one signal's
  static constexpr int k_points = N;
  static constexpr int k_scalars = 2 * N;
  static constexpr int k_rest = k_scalars % W;
  static constexpr bool k_has_halves = k_rest == k_narrow;
  static constexpr bool k_ragged = k_rest != 0 && !k_has_halves;

  // Calls wide(first) or narrow(first) for the pieces of a signal.
  template <class Wide, class Narrow>
  static HWY_INLINE void for_pieces(Wide&& wide, Narrow&& narrow) {
#pragma GCC unroll 16
    for (int p = 0; p < k_scalars / W; ++p) wide(p * W);
    if constexpr (k_rest != 0 && (k_rest <= k_narrow || k_scalars < W)) {
      if constexpr (k_rest > k_narrow) narrow(0);
      narrow(k_scalars - k_narrow);
    } else if constexpr (k_rest != 0) {
      wide(k_scalars - W);
    }
  }

  template <int Width, bool Swapped>
  static HWY_INLINE void load_numbers(const inputs_from& from, int first, complex_vector* x) {
    V v[Width];
#pragma GCC unroll 16
    for (int l = 0; l < Width; ++l) v[l] = load_piece<Width>(from, l, first);
    transpose<Width>(v);
#pragma GCC unroll 8
    for (int i = 0; i < Width / 2; ++i) {
      const complex_vector z = {v[2 * i], v[2 * i + 1]};
      x[first / 2 + i] = Swapped ? complex_vector{z.im, z.re} : z;
    }
  }

  template <bool Swapped>
  static HWY_INLINE void load(const inputs_from& from, complex_vector* x) {
    for_pieces([&](int first) HWY_ATTR { load_numbers<W, Swapped>(from, first, x); },
               [&](int first) HWY_ATTR { load_numbers<k_narrow, Swapped>(from, first, x); });
  }

  template <int Width, bool Swapped, class Sink>
  static HWY_INLINE void store_numbers(const complex_vector* x, int first, const outputs_to& to, Sink& sink) {
    V v[Width];
#pragma GCC unroll 8
    for (int i = 0; i < Width / 2; ++i) {
      const complex_vector& z = x[first / 2 + i];
      v[2 * i] = Swapped ? z.im : z.re;
      v[2 * i + 1] = Swapped ? z.re : z.im;
    }
    transpose<Width>(v);
#pragma GCC unroll 16
    for (int l = 0; l < Width; ++l) {
      if constexpr (Width == W)
        sink.piece(v[l], to, l, first);
      else
        sink.narrow_piece(v[l], to, l, first);
    }
  }

  template <bool Swapped, class Sink>
  static HWY_INLINE void store(const complex_vector* x, const outputs_to& to, Sink& sink) {
    for_pieces([&](int first) HWY_ATTR { store_numbers<W, Swapped>(x, first, to, sink); },
               [&](int first) HWY_ATTR { store_numbers<k_narrow, Swapped>(x, first, to, sink); });
  }

  static constexpr short_shape shape() { return {N, 1, 1, N != 8 && N != 12, k_ragged}; }
};

#if BALLAST_FFT_BITS == 64
// The same for complex numbers as they lie in memory, of which W/2 signals have one each in a vector: only blocks are exchanged at both
// ends, and numbers are exchanged with (im, re) in the butterflies instead. Reals of 32 bits gain nothing by it: half a block is not
// exchanged faster than a quarter of one.
template <int N>
struct packed : in_registers<packed<N> > {
  template <bool Swapped>
  using number = packed_vector<Swapped>;
  static constexpr int S = k_blocks;
  static constexpr int k_shared = 1;
  static constexpr int k_points = N;
  static constexpr bool k_has_halves = false;
  static constexpr bool k_ragged = N % S != 0;
  static_assert(N >= S);

  // Calls piece(first) for the first number of each piece.
  template <class Piece>
  static HWY_INLINE void for_pieces(Piece&& piece) {
#pragma GCC unroll 16
    for (int first = 0; first + S <= N; first += S) piece(first);
    if constexpr (k_ragged) piece(N - S);
  }

  template <bool Swapped>
  static HWY_INLINE void load(const inputs_from& from, packed_vector<Swapped>* x) {
    for_pieces([&](int first) HWY_ATTR {
      V v[S];
#pragma GCC unroll 4
      for (int l = 0; l < S; ++l) v[l] = hn::LoadU(D(), from[l] + 2 * first);
      transpose_blocks(v);
#pragma GCC unroll 4
      for (int i = 0; i < S; ++i) x[first + i] = {v[i]};
    });
  }

  template <bool Swapped, class Sink>
  static HWY_INLINE void store(const packed_vector<Swapped>* x, const outputs_to& to, Sink& sink) {
    for_pieces([&](int first) HWY_ATTR {
      V v[S];
#pragma GCC unroll 4
      for (int i = 0; i < S; ++i) v[i] = x[first + i].v;
      transpose_blocks(v);
#pragma GCC unroll 4
      for (int l = 0; l < S; ++l) sink.piece(v[l], to, l, 2 * first);
    });
  }

  static constexpr short_shape shape() { return {N, 1, 2, N != 8 && N != 12 && N != 16, k_ragged}; }
};
// A vector with one signal has no other lanes for a second computation.
template <int N>
using short_line = std::conditional_t<(k_blocks > 1), packed<N>, across<N> >;
#else
template <int N>
using short_line = across<N>;
#endif

// Runs short lines.
template <class Line>
void run_lines(const short_call<T>& call, short_part part) {
  to_memory<Line::k_shared, false> sink;
  if (HWY_UNLIKELY(part != short_part::whole)) {
    const bool second = part == short_part::second;
    call.swapped ? Line::template apart<true>(call, second, sink) : Line::template apart<false>(call, second, sink);
  } else if (call.stream && Line::k_shared != 4 && !Line::k_ragged) {
    to_memory<Line::k_shared, true> past_cache;
    call.swapped ? Line::template lines<true>(call, past_cache) : Line::template lines<false>(call, past_cache);
  } else {
    call.swapped ? Line::template lines<true>(call, sink) : Line::template lines<false>(call, sink);
  }
}

template <class Line>
bool repeat_lines_of(const short_call<T>& call, const parity_pair& to) {
  if constexpr (Line::k_ragged || Line::k_points > k_longest_repeated)
    return false;  // along_line compares them in memory, or not at all
  else
    return call.swapped ? repeat_by<Line, true>(call, to) : repeat_by<Line, false>(call, to);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
