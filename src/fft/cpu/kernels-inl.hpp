// The kernels of kernels.hpp for the scalar type BALLAST_FFT_SCALAR and the instruction set that Highway compiles for.
// Layer: backend "cpu". Thread-to-data: none here; a tile belongs to one thread.
// Source: T. Stockham, 1966 (autosort stages); radix-2, 4 and 8 butterflies after J. Cooley, J. Tukey, 1965; odd ones by symmetric pairs.
#include "fft/cpu/kernels.hpp"

#include <cstring>

// Included once for each target: no ordinary guard.
#if defined(BALLAST_FFT_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_KERNELS_INL
#else
#define BALLAST_FFT_KERNELS_INL
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

// ---- Transposition of W × W scalars in registers ----

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose(V*) {}
#else
HWY_INLINE void transpose(V* HWY_RESTRICT v) {
  const D d;
  V c[W];  // c[i + g·k_in_block]: block b of it holds column b·k_in_block + i of rows g·k_in_block …
#pragma GCC unroll 16
  for (int g = 0; g < W; g += k_in_block) {
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
    if constexpr (k_blocks == 1) {
      v[i] = c[i];
    } else if constexpr (k_blocks == 2) {
      v[i] = hn::ConcatLowerLower(d, c[i + k_in_block], c[i]);
      v[i + k_in_block] = hn::ConcatUpperUpper(d, c[i + k_in_block], c[i]);
    } else {
      const V p = c[i], q = c[i + k_in_block], r = c[i + 2 * k_in_block], s = c[i + 3 * k_in_block];
      const V p0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q), p);  // p0 q0 p2 q2
      const V p1 = hn::OddEvenBlocks(q, hn::SwapAdjacentBlocks(p));  // p1 q1 p3 q3
      const V r0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(s), r);
      const V r1 = hn::OddEvenBlocks(s, hn::SwapAdjacentBlocks(r));
      v[i] = hn::ConcatLowerLower(d, r0, p0);
      v[i + k_in_block] = hn::ConcatLowerLower(d, r1, p1);
      v[i + 2 * k_in_block] = hn::ConcatUpperUpper(d, r0, p0);
      v[i + 3 * k_in_block] = hn::ConcatUpperUpper(d, r1, p1);
    }
  }
}
#endif

// ---- Sums ----

// s = x + y exactly split: adds y to (high, low). For double data only.
template <class DD, class VV>
HWY_INLINE void add_exactly(DD dd, double* HWY_RESTRICT high, double* HWY_RESTRICT low, VV y) {
  const auto x = hn::LoadU(dd, high);
  const auto s = hn::Add(x, y);
  const auto z = hn::Sub(s, x);
  const auto e = hn::Add(hn::Sub(x, hn::Sub(s, z)), hn::Sub(y, z));
  hn::StoreU(s, dd, high);
  hn::StoreU(hn::Add(hn::LoadU(dd, low), e), dd, low);
}

HWY_INLINE void promote_into(double* HWY_RESTRICT high, double* HWY_RESTRICT low, V x) {
#if BALLAST_FFT_BITS == 64
  add_exactly(D(), high, low, x);
#elif HWY_TARGET == HWY_SCALAR
  high[0] += static_cast<double>(hn::GetLane(x));
  (void)low;
#else
  const hn::Half<D> half;
  const hn::Repartition<double, D> dd;
  hn::StoreU(hn::Add(hn::LoadU(dd, high), hn::PromoteTo(dd, hn::LowerHalf(half, x))), dd, high);
  hn::StoreU(hn::Add(hn::LoadU(dd, high + W / 2), hn::PromoteTo(dd, hn::UpperHalf(half, x))), dd, high + W / 2);
  (void)low;
#endif
}

// Adds `rows` ≤ k_block rows to the sums. `y` is the accumulator of what the imaginary parts give: shorter dependency chains.
template <bool General, bool Squares>
HWY_INLINE void sum_block(const T* HWY_RESTRICT tile, std::int64_t rows, const T* HWY_RESTRICT w, lane_sums& sums) {
  const D d;
  V x0 = hn::Zero(d), x1 = x0, x2 = x0, x3 = x0, y0 = x0, y1 = x0, y2 = x0, y3 = x0, nr = x0, ni = x0;
  for (std::int64_t j = 0; j < rows; ++j) {
    const V re = hn::Load(d, tile + j * k_row);
    const V im = hn::Load(d, tile + j * k_row + W);
    if constexpr (General) {
      x0 = hn::MulAdd(hn::Set(d, w[8 * j]), re, x0);
      x1 = hn::MulAdd(hn::Set(d, w[8 * j + 1]), re, x1);
      y0 = hn::MulAdd(hn::Set(d, w[8 * j + 2]), im, y0);
      y1 = hn::MulAdd(hn::Set(d, w[8 * j + 3]), im, y1);
      x2 = hn::MulAdd(hn::Set(d, w[8 * j + 4]), re, x2);
      x3 = hn::MulAdd(hn::Set(d, w[8 * j + 5]), re, x3);
      y2 = hn::MulAdd(hn::Set(d, w[8 * j + 6]), im, y2);
      y3 = hn::MulAdd(hn::Set(d, w[8 * j + 7]), im, y3);
    } else {
      const V r0 = hn::Set(d, w[4 * j]), i0 = hn::Set(d, w[4 * j + 1]), r1 = hn::Set(d, w[4 * j + 2]), i1 = hn::Set(d, w[4 * j + 3]);
      x0 = hn::MulAdd(r0, re, x0);
      x1 = hn::MulAdd(i0, re, x1);
      y0 = hn::NegMulAdd(i0, im, y0);
      y1 = hn::MulAdd(r0, im, y1);
      x2 = hn::MulAdd(r1, re, x2);
      x3 = hn::MulAdd(i1, re, x3);
      y2 = hn::NegMulAdd(i1, im, y2);
      y3 = hn::MulAdd(r1, im, y3);
    }
    if constexpr (Squares) {
      nr = hn::MulAdd(re, re, nr);
      ni = hn::MulAdd(im, im, ni);
    }
  }
  promote_into(sums.high[0], sums.low[0], hn::Add(x0, y0));
  promote_into(sums.high[1], sums.low[1], hn::Add(x1, y1));
  promote_into(sums.high[2], sums.low[2], hn::Add(x2, y2));
  promote_into(sums.high[3], sums.low[3], hn::Add(x3, y3));
  if constexpr (Squares) {
#if BALLAST_FFT_BITS == 32
    promote_into(sums.squares, nullptr, hn::Add(nr, ni));
#else
    hn::StoreU(hn::Add(hn::LoadU(d, sums.squares), hn::Add(nr, ni)), d, sums.squares);
#endif
  }
}

HWY_INLINE void clear(lane_sums& sums) {
  std::memset(sums.high, 0, sizeof sums.high);
  if constexpr (sizeof(T) == 8) std::memset(sums.low, 0, sizeof sums.low);
  std::memset(sums.squares, 0, sizeof sums.squares);
}

HWY_INLINE void begin(const encoder<T>& encode) {
  if (encode.weights != nullptr) clear(*encode.sums);
}

HWY_INLINE void encode_block(const T* tile, std::int64_t first, std::int64_t rows, const encoder<T>& encode) {
  if (encode.weights == nullptr) return;
  if (encode.general)
    sum_block<true, true>(tile + first * k_row, rows, encode.weights + 8 * first, *encode.sums);
  else
    sum_block<false, true>(tile + first * k_row, rows, encode.weights + 4 * first, *encode.sums);
}

void sum_tile(const T* tile, std::int64_t rows, const encoder<T>& encode, bool with_squares) {
  clear(*encode.sums);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(k_block), rows - j);
    if (with_squares)
      encode_block(tile, j, count, encode);
    else if (encode.general)
      sum_block<true, false>(tile + j * k_row, count, encode.weights + 8 * j, *encode.sums);
    else
      sum_block<false, false>(tile + j * k_row, count, encode.weights + 4 * j, *encode.sums);
  }
}

template <bool Untwiddle>
HWY_INLINE complex_vector row_of(const T* HWY_RESTRICT tile, std::int64_t j, const signed_sum<T>& encode) {
  const D d;
  complex_vector v = {hn::Load(d, tile + j * k_row), hn::Load(d, tile + j * k_row + W)};
  if constexpr (Untwiddle) {
    const complex_vector near = {hn::Load(d, encode.fine + j * k_row), hn::Load(d, encode.fine + j * k_row + W)};
    const complex_vector w = times(near, hn::Set(d, encode.coarse[2 * j]), hn::Set(d, encode.coarse[2 * j + 1]));
    v = times(v, w.re, encode.swapped ? w.im : hn::Neg(w.im));  // swapped data were turned the other way
  }
  return v;
}

template <bool Untwiddle>
HWY_INLINE void sum_pairs(const T* HWY_RESTRICT tile, std::int64_t rows, const signed_sum<T>& encode) {
  const D d;
  lane_sums& sums = *encode.sums;
  for (std::int64_t first = 0; first < rows; first += 2 * k_block) {
    V pr = hn::Zero(d), pi = pr, qr = pr, qi = pr;  // ε = 1: what the real and the imaginary parts give to re and im
    V mr = pr, mi = pr, nr = pr, ni = pr;           // ε = −1
    const std::int64_t end = HWY_MIN(rows, first + 2 * k_block);
    std::int64_t j = first;
    for (; j + 1 < end; j += 2) {
      const T* w = encode.weights + 2 * j;
      const std::int64_t swap = encode.order[j / 2];
      const complex_vector plus = row_of<Untwiddle>(tile, j + swap, encode);
      const complex_vector minus = row_of<Untwiddle>(tile, j + 1 - swap, encode);
      const V a = hn::Set(d, w[0]), b = hn::Set(d, w[1]), c = hn::Set(d, w[2]), e = hn::Set(d, w[3]);
      pr = hn::MulAdd(a, plus.re, pr);
      pi = hn::MulAdd(b, plus.re, pi);
      qr = hn::NegMulAdd(b, plus.im, qr);
      qi = hn::MulAdd(a, plus.im, qi);
      mr = hn::MulAdd(c, minus.re, mr);
      mi = hn::MulAdd(e, minus.re, mi);
      nr = hn::NegMulAdd(e, minus.im, nr);
      ni = hn::MulAdd(c, minus.im, ni);
    }
    if (j < end) {
      const complex_vector plus = row_of<Untwiddle>(tile, j, encode);
      const V a = hn::Set(d, encode.weights[2 * j]), b = hn::Set(d, encode.weights[2 * j + 1]);
      pr = hn::MulAdd(a, plus.re, pr);
      pi = hn::MulAdd(b, plus.re, pi);
      qr = hn::NegMulAdd(b, plus.im, qr);
      qi = hn::MulAdd(a, plus.im, qi);
    }
    promote_into(sums.high[0], sums.low[0], hn::Add(pr, qr));
    promote_into(sums.high[1], sums.low[1], hn::Add(pi, qi));
    promote_into(sums.high[2], sums.low[2], hn::Add(mr, nr));
    promote_into(sums.high[3], sums.low[3], hn::Add(mi, ni));
  }
  // From the sums over each sign to their sum and difference, in place.
  for (int part = 0; part < 2; ++part) {
    for (int l = 0; l < W; ++l) {
      const double p = sums.high[part][l], m = sums.high[2 + part][l];
      sums.high[part][l] = p + m;
      sums.high[2 + part][l] = p - m;
      if constexpr (sizeof(T) == 8) {
        const double low_p = sums.low[part][l], low_m = sums.low[2 + part][l];
        sums.low[part][l] = low_p + low_m + ((p - (p + m)) + m);
        sums.low[2 + part][l] = low_p - low_m + ((p - (p - m)) - m);
      }
    }
  }
}

void sum_signed(const T* tile, std::int64_t rows, const signed_sum<T>& encode) {
  clear(*encode.sums);
  if (encode.coarse != nullptr)
    sum_pairs<true>(tile, rows, encode);
  else
    sum_pairs<false>(tile, rows, encode);
}

// ---- Verdicts ----

bool set_thresholds(const lane_sums& input, int used, double factor, double least, double low, double high, lane_verdicts& to) {
  const hn::CappedTag<double, k_max_lanes> d;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  bool plain = true;
  for (int l = 0; l < k_max_lanes; l += lanes) {
    if (l >= used) break;
    const auto squares = hn::Load(d, input.squares + l);
    const auto tau = hn::MulAdd(hn::Set(d, factor), hn::Sqrt(squares), hn::Set(d, least));
    hn::Store(tau, d, to.value + l);
    hn::Store(tau, d, to.twin + l);
    const auto inside = hn::And(hn::Ge(squares, hn::Set(d, low)), hn::Le(squares, hn::Set(d, high)));
    const auto idle = hn::Not(hn::FirstN(d, static_cast<std::size_t>(used - l)));
    plain = plain && hn::AllTrue(d, hn::Or(inside, idle));
  }
  return plain;
}

void compare(const lane_sums& input, const lane_sums& output, double scale, lane_verdicts& to) {
  const hn::CappedTag<double, k_max_lanes> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  const auto s = hn::Set(d, scale);
  for (int v = 0; v < 2; ++v) {
    for (int l = 0; l < W; l += lanes) {
      auto re = hn::NegMulAdd(s, hn::Load(d, input.high[2 * v] + l), hn::Load(d, output.high[2 * v] + l));
      auto im = hn::NegMulAdd(s, hn::Load(d, input.high[2 * v + 1] + l), hn::Load(d, output.high[2 * v + 1] + l));
      if constexpr (sizeof(T) == 8) {
        re = hn::Add(re, hn::NegMulAdd(s, hn::Load(d, input.low[2 * v] + l), hn::Load(d, output.low[2 * v] + l)));
        im = hn::Add(im, hn::NegMulAdd(s, hn::Load(d, input.low[2 * v + 1] + l), hn::Load(d, output.low[2 * v + 1] + l)));
      }
      const auto size = hn::Add(hn::Abs(re), hn::Abs(im));
      const auto value = hn::Load(d, to.value + l), twin = hn::Load(d, to.twin + l);
      const auto pass = hn::And(hn::And(hn::Le(size, value), hn::Le(size, twin)), hn::Eq(value, twin));  // false for NaN
      hn::Store(size, d, to.size[v] + l);
      hn::Store(hn::IfThenElse(hn::RebindMask(du, pass), hn::Set(du, k_lane_pass), hn::Set(du, ~k_lane_pass)), du, to.word[v] + l);
    }
  }
}

// ---- Loads ----

HWY_INLINE void transpose_in(const T* base, std::int64_t lane_stride, int used, T* HWY_RESTRICT to, std::int64_t to_stride) {
  const D d;
  V v[W];
  if (HWY_LIKELY(used == W)) {
#pragma GCC unroll 16
    for (int l = 0; l < W; ++l) v[l] = hn::LoadU(d, base + l * lane_stride);
  } else {
    for (int l = 0; l < W; ++l) v[l] = l < used ? hn::LoadU(d, base + l * lane_stride) : hn::Zero(d);
  }
  transpose(v);
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) hn::Store(v[l], d, to + l * to_stride);
}

void load_rows(const T* base, std::int64_t lane_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode) {
  const std::int64_t scalars = 2 * rows;
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t end = HWY_MIN(scalars, 2 * (j + k_block));
    std::int64_t f = 2 * j;
    for (; f + W <= end; f += W) transpose_in(base + f, lane_stride, used, tile + f * W, W);
    if (f < end) {
      HWY_ALIGN T part[W * W] = {};
      HWY_ALIGN T turned[W * W];
      for (int l = 0; l < used; ++l) std::memcpy(part + l * W, base + l * lane_stride + f, static_cast<std::size_t>(end - f) * sizeof(T));
      transpose_in(part, W, W, turned, W);
      std::memcpy(tile + f * W, turned, static_cast<std::size_t>((end - f) * W) * sizeof(T));
    }
    encode_block(tile, j, HWY_MIN(static_cast<std::int64_t>(k_block), rows - j), encode);
  }
}

void load_columns(const T* base, std::int64_t row_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode) {
  const D d;
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(k_block), rows - j);
    for (std::int64_t i = j; i < j + count; ++i) {
      const T* from = base + i * row_stride;
      V re, im;
      if (HWY_LIKELY(used == W)) {
        hn::LoadInterleaved2(d, from, re, im);
      } else {
        HWY_ALIGN T part[2 * W] = {};
        std::memcpy(part, from, static_cast<std::size_t>(2 * used) * sizeof(T));
        hn::LoadInterleaved2(d, part, re, im);
      }
      hn::Store(re, d, tile + i * k_row);
      hn::Store(im, d, tile + i * k_row + W);
    }
    encode_block(tile, j, count, encode);
  }
}

// One step of a seal. Each step is a bijection of the seal and of each word, so a single changed word always shows; the rotation keeps
// flips of one bit in several words from cancelling.
template <class VU>
HWY_INLINE VU extend(VU seal, VU re, VU im) {
  return hn::Xor(hn::RotateRight<5>(hn::Add(seal, re)), im);
}

// A whole block: transposes it, and says whether it matches its seal.
HWY_INLINE bool transpose_sealed(const T* HWY_RESTRICT from, T* HWY_RESTRICT to, const T* HWY_RESTRICT expected) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  V v[W];
  auto seal = hn::Zero(du);
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) {
    v[l] = hn::Load(d, from + l * k_row);
    seal = extend(seal, hn::BitCast(du, v[l]), hn::BitCast(du, hn::Load(d, from + l * k_row + W)));
  }
  transpose(v);
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) hn::Store(v[l], d, to + l * k_row);
  transpose_in(from + W, k_row, W, to + W, k_row);
  return hn::AllTrue(du, hn::Eq(seal, hn::BitCast(du, hn::LoadU(d, expected))));
}

std::int64_t load_blocks(const T* base, std::int64_t block_stride, int used, std::int64_t rows, T* tile, const T* seals,
                         std::int64_t seal_stride, const encoder<T>& encode) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  std::int64_t damaged = 0;
  std::int64_t encoded = 0;
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += W) {
    const T* from = base + j / W * block_stride;
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(W), rows - j);
    if (HWY_LIKELY(count == W && used == W && seals != nullptr)) {
      damaged += transpose_sealed(from, tile + j * k_row, seals + j / W * seal_stride) ? 0 : 1;
    } else {
      if (seals != nullptr) {
        auto seal = hn::Zero(du);
        for (int l = 0; l < used; ++l)
          seal = extend(seal, hn::BitCast(du, hn::Load(d, from + l * k_row)), hn::BitCast(du, hn::Load(d, from + l * k_row + W)));
        const auto expected = hn::BitCast(du, hn::LoadU(d, seals + j / W * seal_stride));
        if (!hn::AllTrue(du, hn::Eq(seal, expected))) ++damaged;
      }
      if (HWY_LIKELY(count == W)) {
        transpose_in(from, k_row, used, tile + j * k_row, k_row);
        transpose_in(from + W, k_row, used, tile + j * k_row + W, k_row);
      } else {
        HWY_ALIGN T turned[W * k_row];
        transpose_in(from, k_row, used, turned, k_row);
        transpose_in(from + W, k_row, used, turned + W, k_row);
        std::memcpy(tile + j * k_row, turned, static_cast<std::size_t>(count * k_row) * sizeof(T));
      }
    }
    const std::int64_t ready = j + count;
    while (encoded < ready && (encoded + k_block <= ready || ready == rows)) {
      const std::int64_t part = HWY_MIN(static_cast<std::int64_t>(k_block), ready - encoded);
      encode_block(tile, encoded, part, encode);
      encoded += part;
    }
  }
  return damaged;
}

// ---- Stores ----

void store_rows(const T* tile, std::int64_t scalars, int used, T* base, std::int64_t lane_stride, bool stream) {
  const D d;
  std::int64_t f = 0;
  for (; f + W <= scalars; f += W) {
    V v[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) v[i] = hn::Load(d, tile + (f + i) * W);
    transpose(v);
    if (HWY_LIKELY(used == W)) {
      if (stream) {
#pragma GCC unroll 16
        for (int l = 0; l < W; ++l) hn::Stream(v[l], d, base + l * lane_stride + f);
      } else {
#pragma GCC unroll 16
        for (int l = 0; l < W; ++l) hn::StoreU(v[l], d, base + l * lane_stride + f);
      }
    } else {
      for (int l = 0; l < used; ++l) hn::StoreU(v[l], d, base + l * lane_stride + f);
    }
  }
  for (; f < scalars; ++f) {
    for (int l = 0; l < used; ++l) base[l * lane_stride + f] = tile[f * W + l];
  }
}

void store_columns(const T* tile, std::int64_t rows, int used, T* base, std::int64_t row_stride, bool stream) {
  const D d;
  for (std::int64_t i = 0; i < rows; ++i) {
    const V re = hn::Load(d, tile + i * k_row);
    const V im = hn::Load(d, tile + i * k_row + W);
    T* to = base + i * row_stride;
    if (HWY_LIKELY(used == W)) {
      if (stream) {
        HWY_ALIGN T part[2 * W];
        hn::StoreInterleaved2(re, im, d, part);
        hn::Stream(hn::Load(d, part), d, to);
        hn::Stream(hn::Load(d, part + W), d, to + W);
      } else {
        hn::StoreInterleaved2(re, im, d, to);
      }
    } else {
      for (int l = 0; l < used; ++l) {
        to[2 * l] = tile[i * k_row + l];
        to[2 * l + 1] = tile[i * k_row + W + l];
      }
    }
  }
}

void seal_rows(const T* tile, std::int64_t rows, T* seal) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  auto made = hn::Zero(du);
  for (std::int64_t i = 0; i < rows; ++i)
    made = extend(made, hn::BitCast(du, hn::Load(d, tile + i * k_row)), hn::BitCast(du, hn::Load(d, tile + i * k_row + W)));
  hn::StoreU(hn::BitCast(d, made), d, seal);
}

void extend_seals(const T* tile, std::int64_t rows, T* seals, std::int64_t seal_stride) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  for (std::int64_t i = 0; i < rows; ++i) {
    T* seal = seals + i * seal_stride;
    const auto next = extend(hn::BitCast(du, hn::LoadU(d, seal)), hn::BitCast(du, hn::Load(d, tile + i * k_row)),
                             hn::BitCast(du, hn::Load(d, tile + i * k_row + W)));
    hn::StoreU(hn::BitCast(d, next), d, seal);
  }
}

void store_blocks(const T* tile, std::int64_t rows, T* base, T* seals) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  for (std::int64_t j = 0; j < rows; j += W) {
    auto seal = hn::Zero(du);
    const std::int64_t end = HWY_MIN(rows, j + W);
    for (std::int64_t i = j; i < end; ++i) {
      const V re = hn::Load(d, tile + i * k_row);
      const V im = hn::Load(d, tile + i * k_row + W);
      seal = extend(seal, hn::BitCast(du, re), hn::BitCast(du, im));
      hn::Store(re, d, base + i * k_row);
      hn::Store(im, d, base + i * k_row + W);
    }
    if (seals != nullptr) hn::StoreU(hn::BitCast(d, seal), d, seals + j / W * W);
  }
}

// ---- Stages ----

HWY_INLINE void butterfly_4(complex_vector& a, complex_vector& b, complex_vector& c, complex_vector& e) {
  const complex_vector s0 = a + c, s1 = b + e, d0 = a - c, d1 = b - e;
  a = s0 + s1;
  c = s0 - s1;
  b = minus_i(d0, d1);
  e = plus_i(d0, d1);
}

template <int R>
HWY_INLINE void butterfly(complex_vector* x) {
  if constexpr (R == 2) {
    const complex_vector a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (R == 4) {
    butterfly_4(x[0], x[1], x[2], x[3]);
  } else {
    static_assert(R == 8);
    const D d;
    butterfly_4(x[0], x[2], x[4], x[6]);
    butterfly_4(x[1], x[3], x[5], x[7]);
    // Odd half times e^{−2πi k/8}: k = 1: (1 − i)/√2, 2: −i, 3: −(1 + i)/√2.
    const V h = hn::Set(d, static_cast<T>(0.70710678118654752440L));
    const complex_vector o1 = {hn::Mul(h, hn::Add(x[3].re, x[3].im)), hn::Mul(h, hn::Sub(x[3].im, x[3].re))};
    const complex_vector o3 = {hn::Mul(h, hn::Sub(x[7].im, x[7].re)), hn::Mul(h, hn::Add(x[7].re, x[7].im))};  // negated imaginary part
    const complex_vector e0 = x[0], e1 = x[2], e2 = x[4], e3 = x[6], o0 = x[1], o2 = x[5];
    x[0] = e0 + o0;
    x[4] = e0 - o0;
    x[1] = e1 + o1;
    x[5] = e1 - o1;
    x[2] = minus_i(e2, o2);
    x[6] = plus_i(e2, o2);
    x[3] = {hn::Add(e3.re, o3.re), hn::Sub(e3.im, o3.im)};
    x[7] = {hn::Sub(e3.re, o3.re), hn::Add(e3.im, o3.im)};
  }
}

template <int R, bool Twiddle>
HWY_INLINE void even_stage(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, std::int64_t s, const T* HWY_RESTRICT twiddles,
                           std::int64_t re, std::int64_t im, read_ahead& ahead) {
  const D d;
  const std::int64_t m = n / (s * R);
  const std::int64_t from_step = s * m * k_row;
  const std::int64_t to_step = s * k_row;
  for (std::int64_t i = 0; i < m; ++i) {
    const T* HWY_RESTRICT w = twiddles + 2 * (R - 1) * i;
    for (std::int64_t q = 0; q < s; ++q) {
      const T* from = x + (q + s * i) * k_row;
      T* to = y + (q + s * R * i) * k_row;
      ahead.step();
      complex_vector v[R];
#pragma GCC unroll 8
      for (int j = 0; j < R; ++j) v[j] = {hn::Load(d, from + j * from_step + re), hn::Load(d, from + j * from_step + im)};
      butterfly<R>(v);
#pragma GCC unroll 8
      for (int k = 0; k < R; ++k) {
        if constexpr (Twiddle) {
          if (k > 0) v[k] = times(v[k], hn::Set(d, w[2 * (k - 1)]), hn::Set(d, w[2 * (k - 1) + 1]));
        }
        hn::Store(v[k].re, d, to + k * to_step + re);
        hn::Store(v[k].im, d, to + k * to_step + im);
      }
    }
  }
}

// Odd radix P (0: `p`). y_k = A_k − iB_k, y_{p−k} = A_k + iB_k, A_k = x_0 + Σ_j cos(2πjk/p) (x_j + x_{p−j}), B_k = Σ_j sin(2πjk/p) (x_j −
// x_{p−j}).
template <int P>
HWY_INLINE void odd_stage(int p, const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, std::int64_t s, const T* HWY_RESTRICT twiddles,
                          const T* HWY_RESTRICT roots, std::int64_t re, std::int64_t im, read_ahead& ahead) {
  constexpr int k_most = P == 0 ? 30 : P / 2;
  const D d;
  const int half = P == 0 ? p / 2 : P / 2;
  const int radix = 2 * half + 1;
  const std::int64_t m = n / (s * radix);
  const std::int64_t from_step = s * m * k_row;
  const std::int64_t to_step = s * k_row;
  for (std::int64_t i = 0; i < m; ++i) {
    const T* w = twiddles == nullptr ? nullptr : twiddles + 2 * (radix - 1) * i;
    for (std::int64_t q = 0; q < s; ++q) {
      const T* from = x + (q + s * i) * k_row;
      T* to = y + (q + s * radix * i) * k_row;
      ahead.step();
      const complex_vector x0 = {hn::Load(d, from + re), hn::Load(d, from + im)};
      complex_vector sum[k_most], difference[k_most], total = x0;
#pragma GCC unroll 4
      for (int j = 1; j <= half; ++j) {
        const T* low = from + j * from_step;
        const T* high = from + (radix - j) * from_step;
        const complex_vector a = {hn::Load(d, low + re), hn::Load(d, low + im)};
        const complex_vector b = {hn::Load(d, high + re), hn::Load(d, high + im)};
        sum[j - 1] = a + b;
        difference[j - 1] = a - b;
        total = total + sum[j - 1];
      }
      hn::Store(total.re, d, to + re);
      hn::Store(total.im, d, to + im);
#pragma GCC unroll 4
      for (int k = 1; k <= half; ++k) {
        complex_vector A = x0, B = {hn::Zero(d), hn::Zero(d)};
#pragma GCC unroll 4
        for (int j = 0; j < half; ++j) {
          const V c = hn::Set(d, roots[2 * ((k - 1) * half + j)]);
          const V sine = hn::Set(d, roots[2 * ((k - 1) * half + j) + 1]);
          A = {hn::MulAdd(c, sum[j].re, A.re), hn::MulAdd(c, sum[j].im, A.im)};
          B = {hn::MulAdd(sine, difference[j].re, B.re), hn::MulAdd(sine, difference[j].im, B.im)};
        }
        complex_vector first = minus_i(A, B), second = plus_i(A, B);
        if (w != nullptr) {
          first = times(first, hn::Set(d, w[2 * (k - 1)]), hn::Set(d, w[2 * (k - 1) + 1]));
          second = times(second, hn::Set(d, w[2 * (radix - k - 1)]), hn::Set(d, w[2 * (radix - k - 1) + 1]));
        }
        hn::Store(first.re, d, to + k * to_step + re);
        hn::Store(first.im, d, to + k * to_step + im);
        hn::Store(second.re, d, to + (radix - k) * to_step + re);
        hn::Store(second.im, d, to + (radix - k) * to_step + im);
      }
    }
  }
}

void stage(int radix, const T* x, T* y, std::int64_t n, std::int64_t s, const T* twiddles, const T* roots, bool swapped,
           read_ahead& ahead) {
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  switch (radix) {
    case 2:
      return twiddles != nullptr ? even_stage<2, true>(x, y, n, s, twiddles, re, im, ahead)
                                 : even_stage<2, false>(x, y, n, s, twiddles, re, im, ahead);
    case 4:
      return twiddles != nullptr ? even_stage<4, true>(x, y, n, s, twiddles, re, im, ahead)
                                 : even_stage<4, false>(x, y, n, s, twiddles, re, im, ahead);
    case 8:
      return twiddles != nullptr ? even_stage<8, true>(x, y, n, s, twiddles, re, im, ahead)
                                 : even_stage<8, false>(x, y, n, s, twiddles, re, im, ahead);
    case 3: return odd_stage<3>(radix, x, y, n, s, twiddles, roots, re, im, ahead);
    case 5: return odd_stage<5>(radix, x, y, n, s, twiddles, roots, re, im, ahead);
    case 7: return odd_stage<7>(radix, x, y, n, s, twiddles, roots, re, im, ahead);
    default: return odd_stage<0>(radix, x, y, n, s, twiddles, roots, re, im, ahead);
  }
}

// ---- Products ----

void multiply_rows(const T* x, T* y, std::int64_t rows, std::int64_t padded, const T* w, bool swapped) {
  const D d;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t j = 0; j < rows; ++j) {
    const complex_vector v = {hn::Load(d, x + j * k_row + re), hn::Load(d, x + j * k_row + im)};
    const complex_vector z = times(v, hn::Set(d, w[2 * j]), hn::Set(d, w[2 * j + 1]));
    hn::Store(z.re, d, y + j * k_row + re);
    hn::Store(z.im, d, y + j * k_row + im);
  }
  for (std::int64_t i = rows * k_row; i < padded * k_row; i += W) hn::Store(hn::Zero(d), d, y + i);
}

void twiddle_rows(const T* x, T* y, std::int64_t rows, const T* coarse, const T* fine, bool conjugate, bool swapped) {
  const D d;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t j = 0; j < rows; ++j) {
    const complex_vector near = {hn::Load(d, fine + j * k_row), hn::Load(d, fine + j * k_row + W)};
    complex_vector w = times(near, hn::Set(d, coarse[2 * j]), hn::Set(d, coarse[2 * j + 1]));
    if (conjugate) w.im = hn::Neg(w.im);
    const complex_vector v = {hn::Load(d, x + j * k_row + re), hn::Load(d, x + j * k_row + im)};
    const complex_vector z = times(v, w.re, w.im);
    hn::Store(z.re, d, y + j * k_row + re);
    hn::Store(z.im, d, y + j * k_row + im);
  }
}

void scale_rows(T* tile, std::int64_t rows, T factor) {
  const D d;
  const V f = hn::Set(d, factor);
  for (std::int64_t i = 0; i < rows * k_row; i += W) hn::Store(hn::Mul(hn::Load(d, tile + i), f), d, tile + i);
}

// With S and D the sum and difference of z_k and conj(z_{m−k}): x_k = (S − i w_k D)/2, x_{m−k} = conj(S + i w_k D)/2.
void split_real(const T* z, T* x, std::int64_t m, const T* w) {
  const D d;
  const V half = hn::Set(d, T(0.5));
  const V r = hn::Load(d, z), i = hn::Load(d, z + W);
  hn::Store(hn::Add(r, i), d, x);
  hn::Store(hn::Zero(d), d, x + W);
  hn::Store(hn::Sub(r, i), d, x + m * k_row);
  hn::Store(hn::Zero(d), d, x + m * k_row + W);
  for (std::int64_t k = 1; 2 * k <= m; ++k) {
    const T* low = z + k * k_row;
    const T* high = z + (m - k) * k_row;
    const complex_vector a = {hn::Mul(half, hn::Load(d, low)), hn::Mul(half, hn::Load(d, low + W))};
    const complex_vector b = {hn::Mul(half, hn::Load(d, high)), hn::Neg(hn::Mul(half, hn::Load(d, high + W)))};
    const complex_vector S = a + b;
    const complex_vector P = times(a - b, hn::Set(d, w[2 * k]), hn::Set(d, w[2 * k + 1]));
    const complex_vector first = minus_i(S, P), second = plus_i(S, P);
    hn::Store(first.re, d, x + k * k_row);
    hn::Store(first.im, d, x + k * k_row + W);
    hn::Store(second.re, d, x + (m - k) * k_row);
    hn::Store(hn::Neg(second.im), d, x + (m - k) * k_row + W);
  }
}

// The inverse, times 2: z_k = S + i conj(w_k) D, z_{m−k} = conj(S − i conj(w_k) D). The imaginary parts of x_0 and x_m are ignored.
void join_real(const T* x, T* z, std::int64_t m, const T* w) {
  const D d;
  const V first_re = hn::Load(d, x), last_re = hn::Load(d, x + m * k_row);
  hn::Store(hn::Add(first_re, last_re), d, z);
  hn::Store(hn::Sub(first_re, last_re), d, z + W);
  for (std::int64_t k = 1; 2 * k <= m; ++k) {
    const T* low = x + k * k_row;
    const T* high = x + (m - k) * k_row;
    const complex_vector a = {hn::Load(d, low), hn::Load(d, low + W)};
    const complex_vector b = {hn::Load(d, high), hn::Neg(hn::Load(d, high + W))};
    const complex_vector S = a + b;
    const complex_vector P = times(a - b, hn::Set(d, w[2 * k]), hn::Neg(hn::Set(d, w[2 * k + 1])));
    const complex_vector first = plus_i(S, P), second = minus_i(S, P);
    hn::Store(first.re, d, z + k * k_row);
    hn::Store(first.im, d, z + k * k_row + W);
    hn::Store(second.re, d, z + (m - k) * k_row);
    hn::Store(hn::Neg(second.im), d, z + (m - k) * k_row + W);
  }
}

const kernel_table<T>* table_for_target() {
  static const kernel_table<T> table = {
      W,          load_rows,     load_columns, load_blocks, sum_tile,     sum_signed, set_thresholds, compare,
      store_rows, store_columns, store_blocks, seal_rows,   extend_seals, stage,      multiply_rows,  twiddle_rows,
      scale_rows, split_real,    join_real};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
