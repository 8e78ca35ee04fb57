// Weighted sums of the lanes of a tile, and their comparison with the thresholds.
// Layer: backend "cpu". Sums run in working precision over k_block rows, then in double (double data: in double with the lost part kept).
#include <cstring>

#include "fft/cpu/kernels.hpp"
#include "fft/cpu/vectors-inl.hpp"

// Included once for each target: no ordinary guard.
#if defined(BALLAST_FFT_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_SUMS_INL
#else
#define BALLAST_FFT_SUMS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
