// Vectors of the CPU kernels: lanes, complex numbers, transposition in registers. For the scalar type BALLAST_FFT_SCALAR and the
// instruction set that Highway compiles for.
// Layer: backend "cpu".
#include "fft/cpu/kernels.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_VECTORS_INL
#else
#define BALLAST_FFT_VECTORS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using T = BALLAST_FFT_SCALAR;
using D = hn::CappedTag<T, k_max_lanes>;
using V = hn::Vec<D>;
constexpr int W = static_cast<int>(hn::MaxLanes(D()));
constexpr std::int64_t k_row = 2 * W;
constexpr int k_in_block = HWY_MIN(W, 16 / static_cast<int>(sizeof(T)));  // lanes of one 128-bit block
constexpr int k_blocks = W / k_in_block;

// ---- Complex numbers, W at a time ----

struct complex_vector {
  V re, im;
};

HWY_INLINE complex_vector operator+(const complex_vector& x, const complex_vector& y) { return {hn::Add(x.re, y.re), hn::Add(x.im, y.im)}; }
HWY_INLINE complex_vector operator-(const complex_vector& x, const complex_vector& y) { return {hn::Sub(x.re, y.re), hn::Sub(x.im, y.im)}; }
// x − i y and x + i y.
HWY_INLINE complex_vector minus_i(const complex_vector& x, const complex_vector& y) { return {hn::Add(x.re, y.im), hn::Sub(x.im, y.re)}; }
HWY_INLINE complex_vector plus_i(const complex_vector& x, const complex_vector& y) { return {hn::Sub(x.re, y.im), hn::Add(x.im, y.re)}; }

HWY_INLINE complex_vector times(const complex_vector& x, V wr, V wi) {
  return {hn::NegMulAdd(x.im, wi, hn::Mul(x.re, wr)), hn::MulAdd(x.im, wr, hn::Mul(x.re, wi))};
}

// With constants.
HWY_INLINE complex_vector times(const complex_vector& x, T re, T im) {
  const D d;
  return times(x, hn::Set(d, re), hn::Set(d, im));
}
HWY_INLINE complex_vector times(T factor, const complex_vector& x) {
  const V f = hn::Set(D(), factor);
  return {hn::Mul(f, x.re), hn::Mul(f, x.im)};
}
HWY_INLINE complex_vector times_minus_i(const complex_vector& x) { return {x.im, hn::Neg(x.re)}; }
HWY_INLINE complex_vector add_product(T factor, const complex_vector& x, const complex_vector& to) {
  const V f = hn::Set(D(), factor);
  return {hn::MulAdd(f, x.re, to.re), hn::MulAdd(f, x.im, to.im)};
}

#if BALLAST_FFT_BITS == 64 && HWY_TARGET != HWY_SCALAR
// ---- Complex numbers, W/2 at a time, as they lie in memory. With Swapped the imaginary parts are first. ----

template <bool Swapped>
struct packed_vector {
  V v;
};

// A constant in the real parts and one in the imaginary parts.
template <bool Swapped>
HWY_INLINE V parts(T re, T im) {
  const D d;
  return Swapped ? hn::OddEven(hn::Set(d, re), hn::Set(d, im)) : hn::OddEven(hn::Set(d, im), hn::Set(d, re));
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> operator+(const packed_vector<Swapped>& x, const packed_vector<Swapped>& y) {
  return {hn::Add(x.v, y.v)};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> operator-(const packed_vector<Swapped>& x, const packed_vector<Swapped>& y) {
  return {hn::Sub(x.v, y.v)};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> minus_i(const packed_vector<Swapped>& x, const packed_vector<Swapped>& y) {
  return {hn::MulAdd(parts<Swapped>(1, -1), hn::Reverse2(D(), y.v), x.v)};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> plus_i(const packed_vector<Swapped>& x, const packed_vector<Swapped>& y) {
  return {hn::NegMulAdd(parts<Swapped>(1, -1), hn::Reverse2(D(), y.v), x.v)};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> times(const packed_vector<Swapped>& x, T re, T im) {
  const D d;
  return {hn::MulAdd(parts<Swapped>(-im, im), hn::Reverse2(d, x.v), hn::Mul(hn::Set(d, re), x.v))};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> times(T factor, const packed_vector<Swapped>& x) {
  return {hn::Mul(hn::Set(D(), factor), x.v)};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> times_minus_i(const packed_vector<Swapped>& x) {
  return {hn::Mul(parts<Swapped>(1, -1), hn::Reverse2(D(), x.v))};
}
template <bool Swapped>
HWY_INLINE packed_vector<Swapped> add_product(T factor, const packed_vector<Swapped>& x, const packed_vector<Swapped>& to) {
  return {hn::MulAdd(hn::Set(D(), factor), x.v, to.v)};
}
#endif

// Returns row `row` of a tile.
HWY_INLINE complex_vector complex_at(const T* HWY_RESTRICT tile, std::int64_t row) {
  const D d;
  return {hn::Load(d, tile + row * k_row), hn::Load(d, tile + row * k_row + W)};
}

// Returns the factors of row j.
HWY_INLINE complex_vector factor_of(const row_factors<T>& factors, std::int64_t j) {
  const std::int64_t far = j >> factors.shift;
  const complex_vector w = complex_at(factors.far, far);
  return times(complex_at(factors.near, j - (far << factors.shift)), w.re, w.im);
}

// ---- Lanes of two vectors ----

// AVX-512 has an instruction for any lanes of two vectors; Highway's exchanges of blocks are two or three.
#undef BALLAST_FFT_PICKS
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define BALLAST_FFT_PICKS 1
// Returns the lanes which(0) … which(W − 1) of x and, from W on, of y.
template <class Which>
HWY_INLINE V pick(V x, V y, Which) {
  using index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  struct table {
    alignas(64) index lane[W];
    constexpr table() : lane{} {
      for (int i = 0; i < W; ++i) lane[i] = static_cast<index>(Which()(i));
    }
  };
  static constexpr table k_table;
  const __m512i lanes = _mm512_load_si512(k_table.lane);
#if BALLAST_FFT_BITS == 32
  return V{_mm512_permutex2var_ps(x.raw, lanes, y.raw)};
#else
  return V{_mm512_permutex2var_pd(x.raw, lanes, y.raw)};
#endif
}
#else
#define BALLAST_FFT_PICKS 0
#endif

// ---- Transposition of L × L scalars in registers: of L vectors, in each group of L lanes ----

#if HWY_TARGET == HWY_SCALAR
template <int L = W>
HWY_INLINE void transpose(V*) {}
#else
// Blocks p0 q0 p2 q2 and p1 q1 p3 q3.
HWY_INLINE V even_blocks(V p, V q) {
#if BALLAST_FFT_PICKS
  return pick(p, q, [](int i) { return i / k_in_block % 2 == 0 ? i : W + i - k_in_block; });
#else
  return hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q), p);
#endif
}
HWY_INLINE V odd_blocks(V p, V q) {
#if BALLAST_FFT_PICKS
  return pick(p, q, [](int i) { return i / k_in_block % 2 == 1 ? W + i : i + k_in_block; });
#else
  return hn::OddEvenBlocks(q, hn::SwapAdjacentBlocks(p));
#endif
}

// Transposes the 128-bit blocks of k_blocks vectors.
HWY_INLINE void transpose_blocks(V* HWY_RESTRICT v) {
  [[maybe_unused]] const D d;
  if constexpr (k_blocks == 2) {
    const V p = v[0], q = v[1];
    v[0] = hn::ConcatLowerLower(d, q, p);
    v[1] = hn::ConcatUpperUpper(d, q, p);
  } else if constexpr (k_blocks == 4) {
    const V p0 = even_blocks(v[0], v[1]), p1 = odd_blocks(v[0], v[1]);
    const V r0 = even_blocks(v[2], v[3]), r1 = odd_blocks(v[2], v[3]);
    v[0] = hn::ConcatLowerLower(d, r0, p0);
    v[1] = hn::ConcatLowerLower(d, r1, p1);
    v[2] = hn::ConcatUpperUpper(d, r0, p0);
    v[3] = hn::ConcatUpperUpper(d, r1, p1);
  }
}

template <int L = W>
HWY_INLINE void transpose(V* HWY_RESTRICT v) {
  constexpr int k_blocks_of_group = L / k_in_block;
  static_assert(L % k_in_block == 0 && (L == W || k_blocks_of_group <= 2));
  const D d;
  V c[L];  // c[i + g·k_in_block]: block b of it holds column b·k_in_block + i of rows g·k_in_block …
#pragma GCC unroll 16
  for (int g = 0; g < L; g += k_in_block) {
#if BALLAST_FFT_BITS == 32
    {
      const hn::Repartition<double, D> dd;
      const auto t0 = hn::BitCast(dd, hn::InterleaveLower(d, v[g], v[g + 1]));
      const auto t1 = hn::BitCast(dd, hn::InterleaveLower(d, v[g + 2], v[g + 3]));
      const auto t2 = hn::BitCast(dd, hn::InterleaveUpper(d, v[g], v[g + 1]));
      const auto t3 = hn::BitCast(dd, hn::InterleaveUpper(d, v[g + 2], v[g + 3]));
      c[g] = hn::BitCast(d, hn::InterleaveLower(dd, t0, t1));
      c[g + 1] = hn::BitCast(d, hn::InterleaveUpper(dd, t0, t1));
      c[g + 2] = hn::BitCast(d, hn::InterleaveLower(dd, t2, t3));
      c[g + 3] = hn::BitCast(d, hn::InterleaveUpper(dd, t2, t3));
    }
#else
    c[g] = hn::InterleaveLower(d, v[g], v[g + 1]);
    c[g + 1] = hn::InterleaveUpper(d, v[g], v[g + 1]);
#endif
  }
#pragma GCC unroll 16
  for (int i = 0; i < k_in_block; ++i) {
    if constexpr (k_blocks_of_group == 1) {
      v[i] = c[i];
    } else if constexpr (L != W) {
      const V p = c[i], q = c[i + k_in_block];
      v[i] = even_blocks(p, q);
      v[i + k_in_block] = odd_blocks(p, q);
    } else {
      V block[k_blocks];
#pragma GCC unroll 4
      for (int b = 0; b < k_blocks; ++b) block[b] = c[i + b * k_in_block];
      transpose_blocks(block);
#pragma GCC unroll 4
      for (int b = 0; b < k_blocks; ++b) v[i + b * k_in_block] = block[b];
    }
  }
}
#endif

// Converts W complex numbers to the order in memory: `low` gets the first half of them.
HWY_INLINE void interleave(const complex_vector& x, V& low, V& high) {
#if HWY_TARGET == HWY_SCALAR
  low = x.re;
  high = x.im;
#else
  const D d;
#if BALLAST_FFT_PICKS
  static_cast<void>(d);
  low = pick(x.re, x.im, [](int i) { return i / 2 + i % 2 * W; });
  high = pick(x.re, x.im, [](int i) { return W / 2 + i / 2 + i % 2 * W; });
#else
  low = hn::InterleaveLower(d, x.re, x.im);  // block b of both: block b of x
  high = hn::InterleaveUpper(d, x.re, x.im);
  if constexpr (k_blocks == 2) {
    const V p = low, q = high;
    low = hn::ConcatLowerLower(d, q, p);
    high = hn::ConcatUpperUpper(d, q, p);
  } else if constexpr (k_blocks == 4) {
    const V even = even_blocks(low, high), odd = odd_blocks(low, high);
    low = hn::ConcatLowerLower(d, odd, even);
    high = hn::ConcatUpperUpper(d, odd, even);
  }
#endif
#endif
}

HWY_INLINE complex_vector deinterleave(V low, V high) {
#if HWY_TARGET == HWY_SCALAR
  return {low, high};
#else
  const D d;
  return {hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)};
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
