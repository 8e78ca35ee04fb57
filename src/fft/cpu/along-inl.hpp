// Lines with vectors along the signal: n = R1 · R2 points in two steps, with one transposition in registers between them and none at the
// ends. Short lines as a whole, the middle of longer ones. Also the sums and the store of tiles in this layout, where the W signals of a
// tile lie one after the other, as in memory.
// Layer: backend "cpu".
// Source: D. Bailey, FFTs in external or hierarchical memory, 1990 (n = n₁ · n₂); the butterflies are those of stages-inl.hpp.
#include <numeric>

#include "fft/cpu/across-inl.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/memory-inl.hpp"
#include "fft/cpu/stages-inl.hpp"
#include "fft/cpu/sums-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_ALONG_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_ALONG_INL
#else
#define BALLAST_FFT_ALONG_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
short_shape shape_of_short(std::int64_t) { return {}; }
void short_lines(const short_call<T>&, short_part) {}
bool repeat_lines(const short_call<T>&, const parity_pair&) { return false; }
void turn_rows(const T*, T*, std::int64_t, std::int64_t, const T*, bool) {}
void encode_signals(const signals_of<T>&, const along_weights<T>&, lane_sums&, const write_ahead<T>&) {}
void sum_signals(const signals_of<T>&, const along_weights<T>&, lane_sums&) {}
std::uint64_t store_signals(const signals_of<T>&, T*, std::int64_t, bool) { return 0; }
#else

// ---- Transform ----

// A vector holds L columns of each of S signals. The R1 · R2 matrix of a signal has element j₂ + R2·j₁ in row j₁. Step 1 transforms its
// columns and multiplies by e^{−2πi k₁j₂/n}; step 2 transforms the rows k₁ of the result, R1 outputs apart. R1 is a power of two: so the
// prime factors are in the order of the search for weights.
template <int R1, int R2>
struct along {
  static constexpr int L = HWY_MIN(W, std::gcd(R1, R2));
  static constexpr int S = W / L;
  static constexpr int k_shared = S;  // signals in two vectors of results
  static constexpr bool k_has_halves = false;
  static constexpr bool k_ragged = false;
  static constexpr int k_points = R1 * R2;
  static constexpr int k_chunks = R2 / L;  // vectors in a row of the input
  static constexpr int k_parts = R1 / L;   // vectors in a row of the output
  static constexpr int k_between = k_parts * R2;
  static_assert(R1 % L == 0 && R2 % L == 0 && (S == 1 || S == 2 || S == 4));

  static HWY_INLINE complex_vector load(const inputs_from& from, std::int64_t offset) {
    const D d;
    if constexpr (S == 1) {
      return deinterleave(hn::LoadU(d, from[0] + offset), hn::LoadU(d, from[0] + offset + W));
    } else if constexpr (S == 2) {
      return deinterleave(hn::LoadU(d, from[0] + offset), hn::LoadU(d, from[1] + offset));
    } else {
      const hn::Half<D> half;
      return deinterleave(hn::Combine(d, hn::LoadU(half, from[1] + offset), hn::LoadU(half, from[0] + offset)),
                          hn::Combine(d, hn::LoadU(half, from[3] + offset), hn::LoadU(half, from[2] + offset)));
    }
  }

  template <bool Swapped>
  static HWY_INLINE void first_step(const inputs_from& from, const T* HWY_RESTRICT twiddles, complex_vector* between) {
    const D d;
#pragma GCC unroll 8
    for (int c = 0; c < k_chunks; ++c) {
      complex_vector v[R1];
#pragma GCC unroll 16
      for (int j = 0; j < R1; ++j) {
        const complex_vector x = load(from, 2 * (j * R2 + c * L));
        v[j] = Swapped ? complex_vector{x.im, x.re} : x;
      }
      butterfly<R1>(v);
      const T* HWY_RESTRICT w = twiddles + c * (R1 - 1) * k_row;
#pragma GCC unroll 16
      for (int k = 1; k < R1; ++k) v[k] = times(v[k], hn::Load(d, w + (k - 1) * k_row), hn::Load(d, w + (k - 1) * k_row + W));
#pragma GCC unroll 8
      for (int p = 0; p < k_parts; ++p) {
        V re[L], im[L];
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) {
          re[i] = v[p * L + i].re;
          im[i] = v[p * L + i].im;
        }
        transpose<L>(re);
        transpose<L>(im);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) between[p * R2 + c * L + i] = {re[i], im[i]};
      }
    }
  }

  template <bool Swapped, class Sink>
  static HWY_INLINE void second_step(complex_vector* between, const outputs_to& to, Sink& sink) {
#pragma GCC unroll 8
    for (int p = 0; p < k_parts; ++p) {
      complex_vector* const v = between + p * R2;
      butterfly<R2>(v);
#pragma GCC unroll 16
      for (int k = 0; k < R2; ++k) {
        V low, high;
        interleave(Swapped ? complex_vector{v[k].im, v[k].re} : v[k], low, high);
        sink.pair(low, high, to, 2 * (k * R1 + p * L));
      }
    }
  }

  template <bool Swapped, class Sink>
  static HWY_INLINE void lines(const short_call<T>& call, Sink& sink) {
    const T* const twiddles = call.twiddles;
    for (signal_groups<S, k_points> group(call); group.begin(call); group.next()) {
      complex_vector between[k_between];
      first_step<Swapped>(group.from, twiddles, between);
      second_step<Swapped>(between, group.to, sink);
    }
  }

  // One of two parts of `lines`.
  template <bool Swapped, class Sink>
  static HWY_INLINE void apart(const short_call<T>& call, bool second, Sink& sink) {
    for (signal_groups<S, k_points> group(call); group.begin(call); group.next()) {
      complex_vector between[k_between];
      T* const memory = call.between + group.first / S * k_between * k_row;
      if (!second) {
        first_step<Swapped>(group.from, call.twiddles, between);
        for (int i = 0; i < k_between; ++i) keep(between[i], memory + i * k_row);
        continue;
      }
      for (int i = 0; i < k_between; ++i) fetch(memory + i * k_row, between[i]);
      second_step<Swapped>(between, group.to, sink);
    }
  }

  static constexpr short_shape shape() { return {R1, R2, L, false, false}; }
};

#if BALLAST_FFT_BITS == 64
using short_line_of_16 = std::conditional_t<(k_blocks > 1), packed<16>, along<4, 4> >;
#else
using short_line_of_16 = along<4, 4>;
#endif

// Returns body(line), where line is the kernel for n points, or none(n).
template <class Body, class None>
auto with_short_line(std::int64_t n, Body&& body, None&& none) {
  switch (n) {
    case 4: return body(short_line<4>());
    case 5: return body(short_line<5>());
    case 6: return body(short_line<6>());
    case 7: return body(short_line<7>());
    case 8: return body(short_line<8>());
    case 9: return body(short_line<9>());
    case 10: return body(short_line<10>());
    case 12: return body(short_line<12>());
    case 14: return body(short_line<14>());
    case 15: return body(short_line<15>());
    case 16: return body(short_line_of_16());
    case 18: return body(short_line<18>());
    case 20: return body(short_line<20>());
    case 32: return body(along<8, 4>());
    case 48: return body(along<4, 12>());
    case 64: return body(along<8, 8>());
    case 96: return body(along<8, 12>());
    case 128: return body(along<8, 16>());
    case 192: return body(along<16, 12>());
    case 256: return body(along<16, 16>());
    default: return none();
  }
}

short_shape shape_of_short(std::int64_t n) {
  return with_short_line(
      n, [](auto line) HWY_ATTR { return line.shape(); }, [] { return short_shape(); });
}

void short_lines(const short_call<T>& call, short_part part) {
  with_short_line(
      call.from.points, [&](auto line) HWY_ATTR { run_lines<decltype(line)>(call, part); }, [] {});
}

bool repeat_lines(const short_call<T>& call, const parity_pair& to) {
  return with_short_line(
      call.from.points, [&](auto line) HWY_ATTR { return repeat_lines_of<decltype(line)>(call, to); }, [] { return false; });
}

void turn_rows(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n1, std::int64_t n2, const T* HWY_RESTRICT twiddles, bool swapped) {
  const D d;
  const std::int64_t re = swapped ? W : 0, im = W - re;
  for (std::int64_t k = 0; k < n1; k += W) {
    for (std::int64_t j = 0; j < n2; j += W, twiddles += W * k_row) {
      const T* HWY_RESTRICT from = x + (j / W * n1 + k) * k_row;
      T* HWY_RESTRICT to = y + (k / W * n2 + j) * k_row;
      V a[W], b[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        const complex_vector v = {hn::LoadU(d, from + i * k_row + re), hn::LoadU(d, from + i * k_row + im)};
        const complex_vector z = times(v, hn::Load(d, twiddles + i * k_row), hn::Load(d, twiddles + i * k_row + W));
        a[i] = z.re;
        b[i] = z.im;
      }
      transpose(a);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) hn::StoreU(a[i], d, to + i * k_row + re);
      transpose(b);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) hn::StoreU(b[i], d, to + i * k_row + im);
    }
  }
}

// ---- Sums ----

constexpr int k_chain = 16;           // vectors that are summed before their sum is added to others
constexpr int k_total = 4 * k_chain;  // vectors whose sum is computed in working precision
// Signals that are summed together: they share the loads of weights, and their accumulators fit into the registers.
constexpr int k_together = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM ? k_in_block : 2;

HWY_INLINE V fold(V a, V b) {
  const D d;
  return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
}

// Returns in each block the sums of that block of k_in_block vectors: vector i becomes lane i.
template <class At>
HWY_INLINE V fold_block(At&& at) {
  if constexpr (k_in_block == 4)
    return fold(fold(at(0), at(2)), fold(at(1), at(3)));
  else
    return fold(at(0), at(1));
}

// The sums of W signals on their way from vectors to one lane for each signal.
struct lane_parts {
  HWY_ALIGN T vector[W * W];

  // Takes the vectors of `Together` signals from `first` on.
  template <int Together, class At>
  HWY_INLINE void take(int first, At&& at) {
    const D d;
    if constexpr (k_together == k_in_block && Together == k_together) {
      hn::Store(fold_block(at), d, vector + first * (W / k_in_block));
    } else {
#pragma GCC unroll 16
      for (int l = 0; l < Together; ++l) hn::Store(at(l), d, vector + (first + l) * W);
    }
  }

  // Returns the sums: signal l in lane l.
  HWY_INLINE V lanes() const {
    const D d;
    V block[k_blocks];  // block[g]: in each block, sums of vectors g·k_in_block …
#pragma GCC unroll 4
    for (int g = 0; g < k_blocks; ++g) {
      if constexpr (k_together == k_in_block)
        block[g] = hn::Load(d, vector + g * W);
      else
        block[g] = fold_block([&](int i) HWY_ATTR { return hn::Load(d, vector + (g * k_in_block + i) * W); });
    }
    if constexpr (k_blocks == 1) {
      return block[0];
    } else if constexpr (k_blocks == 2) {
      return hn::Add(hn::ConcatLowerLower(d, block[1], block[0]), hn::ConcatUpperUpper(d, block[1], block[0]));
    } else {
      const auto fold_blocks = [&](V p, V q) HWY_ATTR {
        return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q), p), hn::OddEvenBlocks(q, hn::SwapAdjacentBlocks(p)));
      };
      const V low = fold_blocks(block[0], block[1]), high = fold_blocks(block[2], block[3]);
      return hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
    }
  }
};

// Sums of at most k_total vectors of `Together` signals, with the weights w (along_weights): Sums for each signal, and then with Squares
// that of their squares. With Parity, joins the words of the numbers lane by lane: those of one signal, or those of the signals with even
// and with odd numbers to each of two parities. With Ends, the numbers are those of a half spectrum,
// whose first and last imaginary parts are ignored: the second scalar if `begins`, and the last one if they do not fill vectors.
template <int Together, int Sums, bool Squares, bool Parity, bool Linear, bool Ends = false>
HWY_INLINE void sum_vectors(const T* const* from, std::int64_t scalars, const T* HWY_RESTRICT w,
                            V (&total)[Together][Sums + (Squares ? 1 : 0)], word_vector* HWY_RESTRICT parity, bool begins = false) {
  const D d;
  constexpr int k_sums = Sums + (Squares ? 1 : 0);
  constexpr int k_at_once = Together == 1 ? 2 : 1;  // one signal has two accumulators for each sum, for shorter dependency chains
  const std::int64_t vectors = scalars / W, rest = scalars % W;
  V sum[k_at_once][Together][k_sums];
  const auto add = [&](int which, std::int64_t j, const V(&x)[Together]) HWY_ATTR {
    constexpr int k_weights = Linear ? Sums / 2 : Sums;
    V exchanged[Together];
#pragma GCC unroll 16
    for (int l = 0; l < (Linear ? Together : 0); ++l) exchanged[l] = hn::Reverse2(d, x[l]);
#pragma GCC unroll 16
    for (int i = 0; i < k_weights; ++i) {
      const V weight = hn::Load(d, w + (j * k_weights + i) * W);
#pragma GCC unroll 16
      for (int l = 0; l < Together; ++l) {
        if constexpr (Linear) {
          sum[which][l][2 * i] = hn::MulAdd(weight, x[l], sum[which][l][2 * i]);
          sum[which][l][2 * i + 1] = hn::MulAdd(weight, exchanged[l], sum[which][l][2 * i + 1]);
        } else {
          sum[which][l][i] = hn::MulAdd(weight, x[l], sum[which][l][i]);
        }
      }
    }
    if constexpr (Squares) {
#pragma GCC unroll 16
      for (int l = 0; l < Together; ++l) sum[which][l][Sums] = hn::MulAdd(x[l], x[l], sum[which][l][Sums]);
    }
    if constexpr (Parity) {
      constexpr int k_parities = HWY_MIN(Together, 2);
      static_assert(Together <= 2 || Together % 4 == 0);
#pragma GCC unroll 16
      for (int l = 0; l < Together; ++l) {
        if constexpr (Together <= 2)
          parity[l] = hn::Xor(parity[l], hn::BitCast(words(), x[l]));
        else if (l % 4 >= 2)
          parity[l % k_parities] = join(parity[l % k_parities], x[l - 2], x[l]);
      }
    }
  };
  const auto add_vector = [&](int which, std::int64_t j) HWY_ATTR {
    V x[Together];
#pragma GCC unroll 16
    for (int l = 0; l < Together; ++l) {
      x[l] = hn::LoadU(d, from[l] + j * W);
      if (Ends && j == 0 && begins) x[l] = hn::IfThenZeroElse(hn::Eq(hn::Iota(d, 0), hn::Set(d, T(1))), x[l]);
    }
    add(which, j, x);
  };
  const auto for_all = [&](auto&& body) HWY_ATTR {
#pragma GCC unroll 16
    for (int l = 0; l < Together; ++l)
#pragma GCC unroll 16
      for (int i = 0; i < k_sums; ++i) body(l, i);
  };
  for_all([&](int l, int i) HWY_ATTR { total[l][i] = hn::Zero(d); });
  for (std::int64_t chain = 0; chain < vectors || (rest > 0 && chain == 0); chain += k_chain) {
    const std::int64_t end = HWY_MIN(vectors, chain + k_chain);
#pragma GCC unroll 2
    for (int which = 0; which < k_at_once; ++which) for_all([&](int l, int i) HWY_ATTR { sum[which][l][i] = hn::Zero(d); });
    std::int64_t j = chain;
    for (; j + k_at_once <= end; j += k_at_once) {
#pragma GCC unroll 2
      for (int which = 0; which < k_at_once; ++which) add_vector(which, j + which);
    }
    if (k_at_once > 1 && j < end) add_vector(0, j);
    if (rest > 0 && end == vectors) {
      V x[Together];
#pragma GCC unroll 16
      for (int l = 0; l < Together; ++l)
        x[l] = hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(rest - (Ends ? 1 : 0))), d, from[l] + vectors * W);
      add(k_at_once - 1, vectors, x);
    }
    for_all([&](int l, int i) HWY_ATTR {
      total[l][i] = hn::Add(total[l][i], k_at_once == 1 ? sum[0][l][i] : hn::Add(sum[0][l][i], sum[k_at_once - 1][l][i]));
    });
  }
  if constexpr (Linear) {
#pragma GCC unroll 16
    for (int l = 0; l < Together; ++l)
#pragma GCC unroll 2
      for (int i = 1; i < Sums; i += 2) total[l][i] = hn::OddEven(hn::Neg(total[l][i]), total[l][i]);
  }
}

// The signals of a group; beyond the last one they are zero.
struct signal_group {
  HWY_ALIGN T zero[2 * (k_longest_short + W)];
  signals_of<T> of;

  explicit signal_group(const signals_of<T>& given) : of(given) {
    if (of.used < W) std::memset(zero, 0, static_cast<std::size_t>(2 * of.points) * sizeof(T));
  }
  const T* at(int l) const { return HWY_LIKELY(l < of.used) ? of.base + l * of.stride : zero; }
};

// Returns whether the signals of a tile are summed one by one: few of them, or a part of a tile of longer ones.
HWY_INLINE bool one_by_one(const signals_of<T>& of) { return of.used < W && (2 * of.used <= W || of.points > k_longest_short + 1); }

// Adds the sum of the lanes of x to a lane of the sums.
HWY_INLINE void promote_lanes(double& high, double& low, V x) {
  const auto y = static_cast<double>(hn::GetLane(hn::SumOfLanes(D(), x)));
  if constexpr (sizeof(T) == 8) {
    const double s = high + y, z = s - high;
    low += (high - (s - z)) + (y - z);
    high = s;
  } else {
    high += y;
    static_cast<void>(low);
  }
}

// Re and Im of both sums.
template <bool Linear, bool Ends>
HWY_INLINE void encode(const signals_of<T>& of, const T* w, lane_sums& sums, const write_ahead<T>& later) {
  clear(sums);
  word_vector* const none = nullptr;
  const std::int64_t scalars = 2 * of.points;
  constexpr int k_weights = Linear ? 2 : 4;
  if (one_by_one(of)) {
    for (int l = 0; l < of.used; ++l) {
      later.bring(l, 0);
      for (std::int64_t begin = 0; begin < scalars; begin += k_total * W) {
        const T* const from[1] = {of.base + l * of.stride + begin};
        V sum[1][5];
        sum_vectors<1, 4, true, false, Linear, Ends>(from, HWY_MIN(scalars - begin, static_cast<std::int64_t>(k_total * W)),
                                                     w + k_weights * begin, sum, none, begin == 0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) promote_lanes(sums.high[i][l], sums.low[i][l], sum[0][i]);
        sums.squares[l] += static_cast<double>(hn::GetLane(hn::SumOfLanes(D(), sum[0][4])));
      }
    }
    return;
  }
  lane_parts parts[5];
  const signal_group group(of);
  for (std::int64_t begin = 0; begin < scalars; begin += k_total * W) {
    for (int l = 0; l < W; l += k_together) {
      const T* from[k_together];
      for (int i = 0; i < k_together; ++i) {
        from[i] = group.at(l + i) + begin;
        if (begin == 0 && l + i < of.used) later.bring(l + i, 0);
      }
      V sum[k_together][5];
      sum_vectors<k_together, 4, true, false, Linear, Ends>(from, HWY_MIN(scalars - begin, static_cast<std::int64_t>(k_total * W)),
                                                            w + k_weights * begin, sum, none, begin == 0);
#pragma GCC unroll 5
      for (int i = 0; i < 5; ++i) parts[i].template take<k_together>(l, [&](int s) HWY_ATTR { return sum[s][i]; });
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) promote_into(sums.high[i], sums.low[i], parts[i].lanes());
#if BALLAST_FFT_BITS == 32
    promote_into(sums.squares, nullptr, parts[4].lanes());
#else
    hn::StoreU(hn::Add(hn::LoadU(D(), sums.squares), parts[4].lanes()), D(), sums.squares);
#endif
  }
}

void encode_signals(const signals_of<T>& of, const along_weights<T>& w, lane_sums& sums, const write_ahead<T>& later) {
  if (w.linear)
    encode<true, false>(of, w.vectors, sums, later);
  else
    w.half_spectrum ? encode<false, true>(of, w.vectors, sums, later) : encode<false, false>(of, w.vectors, sums, later);
}

// Re and Im of one sum. Each half of the signal begins with a vector.
template <bool Linear>
HWY_INLINE void sum_halves_along(const signals_of<T>& of, const T* w, lane_sums& sums) {
  clear(sums);
  run_parity run;
  const std::int64_t middle = (of.points + 1) / 2 * 2, scalars = 2 * of.points;
  const bool single = one_by_one(of);
  const int sets = sets_of_run(scalars, W);
  const signal_group group(single ? signals_of<T>{nullptr, 0, W, 0} : of);
  for (int h = 0; h < 2; ++h) {
    const std::int64_t end = h == 0 ? middle : scalars;
    word_vector parity[2] = {hn::Zero(words()), hn::Zero(words())};
    for (std::int64_t begin = h * middle; begin < end; begin += k_total * W) {
      const std::int64_t count = HWY_MIN(end - begin, static_cast<std::int64_t>(k_total * W));
      lane_parts parts[2];
      for (int l = 0; l < (single ? of.used : 0); ++l) {
        const T* const from[1] = {of.base + l * of.stride + begin};
        V sum[1][2];
        word_vector own = hn::Zero(words());
        sum_vectors<1, 2, false, true, Linear>(from, count, w, sum, &own);
        run.add(own, begin, l % sets);
        for (int i = 0; i < 2; ++i) promote_lanes(sums.high[2 * h + i][l], sums.low[2 * h + i][l], sum[0][i]);
      }
      for (int l = 0; l < (single ? 0 : W); l += k_together) {
        const T* from[k_together];
        for (int i = 0; i < k_together; ++i) from[i] = group.at(l + i) + begin;
        V sum[k_together][2];
        sum_vectors<k_together, 2, false, true, Linear>(from, count, w, sum, parity);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) parts[i].template take<k_together>(l, [&](int s) HWY_ATTR { return sum[s][i]; });
      }
      w += (count + W - 1) / W * (Linear ? 1 : 2) * W;
      if (single) continue;
      for (int i = 0; i < 2; ++i) promote_into(sums.high[2 * h + i], sums.low[2 * h + i], parts[i].lanes());
    }
    if (sets == 1) {
      run.add(hn::Xor(parity[0], parity[1]), h * middle);
    } else {
      for (int i = 0; i < 2; ++i) run.add(parity[i], h * middle, i);
    }
  }
  put_parity(run.done(), sums);
  from_halves(sums);
}

void sum_signals(const signals_of<T>& of, const along_weights<T>& w, lane_sums& sums) {
  w.linear ? sum_halves_along<true>(of, w.vectors, sums) : sum_halves_along<false>(of, w.vectors, sums);
}

// ---- Store ----

// Stores one run of signals that are not whole vectors, from scalar `first` of the first one to `end`, past the cache. A register may hold
// the end of a signal and the beginning of the next one; each joins the words of its own places.
HWY_INLINE void stream_signals(const signals_of<T>& of, T* to, std::int64_t first, std::int64_t end, run_parity& run) {
  const words d;
  const std::int64_t scalars = 2 * of.points;
  word_vector none = hn::Zero(d), parity = none;
  std::int64_t place = first, begin = first;  // in the signal: of the next register, and of the first one that joined `parity`
  int set = 0;
  const auto take = [&](V stored) HWY_ATTR {
    const word_vector bits = hn::BitCast(d, stored);
    if (HWY_LIKELY(place + W <= scalars)) {
      parity = hn::Xor(parity, bits);
      place += W;
      return;
    }
    const auto own = hn::FirstN(d, static_cast<std::size_t>(scalars - place));
    run.add(hn::Xor(parity, hn::IfThenElseZero(own, bits)), begin, set);
    set = 1 - set;
    parity = hn::IfThenZeroElse(own, bits);
    begin = W - (scalars - place);  // the next signal begins with lane scalars − place
    place += W - scalars;
    if (place == 0) parity = none, begin = 0;
  };
  for (std::int64_t i = first; i < end; i += 2 * W) {
    V low = hn::LoadU(D(), of.base + i), high = hn::LoadU(D(), of.base + i + W);
    before_stores(low, high);
    hn::Stream(low, D(), to + i);
    hn::Stream(high, D(), to + i + W);
    after_stores(none, low, high);
    take(low);
    take(high);
  }
  run.add(parity, begin, set);
}

// Returns the parity of what was stored, computed from the registers after their store.
std::uint64_t store_signals(const signals_of<T>& of, T* to, std::int64_t stride, bool stream) {
  word_vector parity = hn::Zero(words());
  run_parity run;
  const std::int64_t scalars = 2 * of.points;
  const int sets = of.as_run ? 1 : sets_of_run(scalars, W);
  if ((stream || of.as_run) && stride == scalars && of.stride == scalars) {
    // One run, which may begin anywhere: whole vectors of it are stored past the cache.
    const std::int64_t all = of.used * scalars, unit = of.as_run ? all : scalars;
    const std::int64_t first = stream ? HWY_MIN(scalars_before_vectors(to), all) : 0;
    std::int64_t end = first + (all - first) / (2 * W) * (2 * W);
    if (sets != 1) {
      stream_signals(of, to, first, end, run);
    } else {
      stream ? store_vectors<true>(of.base + first, end - first, to + first, parity)
             : store_vectors<false>(of.base + first, end - first, to + first, parity);
      if (end + W <= all) {
        store_vector(of.base + end, to + end, stream, parity);
        end += W;
      }
      run.add(parity, first);
    }
    store_rest(of.base, first, to, run, 0);
    for (std::int64_t i = end; i < all;) {
      const std::int64_t place = i % unit, count = HWY_MIN(unit - place, all - i);
      store_rest(of.base + i, count, to + i, run, place, static_cast<int>(i / scalars % sets));
      i += count;
    }
    return run.done();
  }
  const std::int64_t pairs = scalars / (2 * W) * (2 * W), whole = scalars / W * W;
  for (int l = 0; l < of.used; ++l) {
    const T* const from = of.base + l * of.stride;
    T* const at = to + l * stride;
    if (stream)
      store_vectors<true>(from, pairs, at, parity);
    else
      store_vectors<false>(from, pairs, at, parity);
    if (pairs < whole) store_vector(from + pairs, at + pairs, stream, parity);
    const std::int64_t before = of.as_run ? l * scalars : 0;
    if (whole < scalars) store_rest(from + whole, scalars - whole, at + whole, run, before + whole, l % sets);
    if (scalars == whole) continue;
    run.add(parity, before, l % sets);
    parity = hn::Zero(words());
  }
  run.add(parity, 0);
  return run.done();
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
