// Weighted sums of the lanes of a tile, and their comparison with the thresholds.
// Layer: backend "cpu". Sums run in working precision over k_block rows, then in double. Double data also keep the rounding error of the
// sum.
#include <cstring>

#include "fft/cpu/kernels.hpp"
#include "fft/cpu/seals-inl.hpp"
#include "fft/tables/checks.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
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

// Adds y to (high, low) without error: s = x + y, and e is the rounding error of s. For double data only.
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

// Adds `rows` ≤ k_block rows to the sums. `y` accumulates the contributions of the imaginary parts separately, for shorter dependency
// chains. With Seal, stores the seal of every W rows to `seals`.
template <bool General, bool Seal>
HWY_INLINE void sum_block(const T* HWY_RESTRICT tile, std::int64_t rows, const T* HWY_RESTRICT w, lane_sums& sums, T* HWY_RESTRICT seals) {
  const D d;
  V x0 = hn::Zero(d), x1 = x0, x2 = x0, x3 = x0, y0 = x0, y1 = x0, y2 = x0, y3 = x0, nr = x0, ni = x0;
  word_vector parity = parity_so_far(sums);
  for (std::int64_t group = 0; group < rows; group += Seal ? W : k_block) {
    const std::int64_t end = HWY_MIN(rows, group + (Seal ? W : k_block));
    word_vector seal = hn::Zero(words());
    for (std::int64_t j = group; j < end; ++j) {
      const complex_vector v = complex_at(tile, j);
      const V re = v.re, im = v.im;
      if constexpr (Seal)
        seal = seal_next(seal, v);
      else
        parity = join_row(parity, re, im);
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
      nr = hn::MulAdd(re, re, nr);
      ni = hn::MulAdd(im, im, ni);
    }
    if constexpr (Seal) store_seal(seal, end - group, W, seals + group / W);
  }
  if constexpr (!Seal) keep_parity(parity, sums);
  promote_into(sums.high[0], sums.low[0], hn::Add(x0, y0));
  promote_into(sums.high[1], sums.low[1], hn::Add(x1, y1));
  promote_into(sums.high[2], sums.low[2], hn::Add(x2, y2));
  promote_into(sums.high[3], sums.low[3], hn::Add(x3, y3));
#if BALLAST_FFT_BITS == 32
  promote_into(sums.squares, nullptr, hn::Add(nr, ni));
#else
  hn::StoreU(hn::Add(hn::LoadU(d, sums.squares), hn::Add(nr, ni)), d, sums.squares);
#endif
}

HWY_INLINE void clear(lane_sums& sums) {
  std::memset(sums.high, 0, sizeof sums.high);
  if constexpr (sizeof(T) == 8) std::memset(sums.low, 0, sizeof sums.low);
  std::memset(sums.squares, 0, sizeof sums.squares);
  std::memset(sums.parity, 0, sizeof sums.parity);
}

HWY_INLINE void begin(const encoder<T>& encode) {
  if (encode.weights != nullptr) clear(*encode.sums);
}

HWY_INLINE void end(const encoder<T>& encode, std::int64_t rows) {
  if (encode.weights != nullptr) end_parity(*encode.sums, rows);
}

// Encodes rows first … first + rows − 1 of a tile. Unless `seals` is null, stores their seals there.
HWY_INLINE void encode_block(const T* tile, std::int64_t first, std::int64_t rows, const encoder<T>& encode, T* seals = nullptr) {
  const bool together = seals != nullptr && encode.weights != nullptr && !encode.general;
  if (seals != nullptr && !together) seal_blocks(tile + first * k_row, rows, W, seals);
  if (encode.weights == nullptr) return;
  const T* w = encode.weights + (encode.general ? 8 : 4) * first;
  if (together)
    sum_block<false, true>(tile + first * k_row, rows, w, *encode.sums, seals);
  else if (encode.general)
    sum_block<true, false>(tile + first * k_row, rows, w, *encode.sums, nullptr);
  else
    sum_block<false, false>(tile + first * k_row, rows, w, *encode.sums, nullptr);
}

void sum_tile(const T* tile, std::int64_t rows, const encoder<T>& encode) {
  clear(*encode.sums);
  for (std::int64_t j = 0; j < rows; j += k_block) encode_block(tile, j, HWY_MIN(static_cast<std::int64_t>(k_block), rows - j), encode);
  end_parity(*encode.sums, rows);
}

// Contributions of the real and imaginary parts of rows to re and im of their sum.
struct row_sums {
  V re_re, re_im, im_re, im_im;

  template <bool General>
  HWY_INLINE void add(const T* HWY_RESTRICT w, const complex_vector& v) {
    const D d;
    const V a = hn::Set(d, w[0]), b = hn::Set(d, w[1]);
    re_re = hn::MulAdd(a, v.re, re_re);
    re_im = hn::MulAdd(b, v.re, re_im);
    im_re = General ? hn::MulAdd(hn::Set(d, w[2]), v.im, im_re) : hn::NegMulAdd(b, v.im, im_re);
    im_im = hn::MulAdd(General ? hn::Set(d, w[3]) : a, v.im, im_im);
  }
};

// The seals of rows that follow each other.
struct sealed_rows {
  T* next;
  int used;
  std::int64_t rows, left;  // rows of the current group: all, and those to come
  word_vector seal = hn::Zero(words());

  HWY_INLINE void add(const complex_vector& v) {
    seal = seal_next(seal, v);
    if (--left == 0) end_group();
  }
  HWY_INLINE void end_group() {
    store_seal(seal, rows - left, used, next++);
    rows = left = W;
    seal = hn::Zero(words());
  }
  HWY_INLINE void end() {
    if (left < rows) end_group();
  }
};

// Adds rows `first` … `last` − 1 to the sums of their half. Odd and even rows have separate accumulators, for shorter dependency chains.
// With Seal, the numbers that join a seal are those that join the sums.
template <bool General, bool Untwiddle, bool Seal>
HWY_INLINE void sum_half(const T* HWY_RESTRICT tile, std::int64_t first, std::int64_t last, const output_sum<T>& of, int half,
                         sealed_rows& sealed) {
  constexpr int k_row_weights = General ? 4 : 2;
  const V zero = hn::Zero(D());
  lane_sums& sums = *of.sums;
  for (std::int64_t block = first; block < last; block += 2 * k_block) {
    const std::int64_t end = HWY_MIN(last, block + 2 * k_block);
    row_sums even = {zero, zero, zero, zero}, odd = even;
    word_vector parity = parity_so_far(sums);
    const auto add = [&](row_sums& to, std::int64_t j) HWY_ATTR {
      complex_vector v = complex_at(tile, j);
      if constexpr (Seal) sealed.add(v);
      if constexpr (Untwiddle) {
        const complex_vector w = factor_of(of.factors, j);
        v = times(v, w.re, of.swapped ? w.im : hn::Neg(w.im));  // swapped data were multiplied by the conjugate factors
      } else {
        parity = join_row(parity, v.re, v.im);
      }
      to.template add<General>(of.weights + k_row_weights * j, v);
    };
    std::int64_t j = block;
    for (; j + 1 < end; j += 2) {
      add(even, j);
      add(odd, j + 1);
    }
    if (j < end) add(even, j);
    if constexpr (!Untwiddle) keep_parity(parity, sums);
    promote_into(sums.high[2 * half], sums.low[2 * half], hn::Add(even.re_re, even.im_re));
    promote_into(sums.high[2 * half + 1], sums.low[2 * half + 1], hn::Add(even.re_im, even.im_im));
    promote_into(sums.high[2 * half], sums.low[2 * half], hn::Add(odd.re_re, odd.im_re));
    promote_into(sums.high[2 * half + 1], sums.low[2 * half + 1], hn::Add(odd.re_im, odd.im_im));
  }
}

// Replaces the sums of the halves by their sum and difference, in place.
HWY_INLINE void from_halves(lane_sums& sums) {
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

template <bool General, bool Untwiddle, bool Seal>
HWY_INLINE void sum_halves(const T* HWY_RESTRICT tile, std::int64_t rows, const output_sum<T>& of) {
  const std::int64_t middle = (rows + 1) / 2;
  const std::int64_t first_sealed = of.first_sealed > 0 ? of.first_sealed : W;
  sealed_rows sealed{of.seals, of.used, first_sealed, first_sealed};
  sum_half<General, Untwiddle, Seal>(tile, 0, middle, of, 0, sealed);
  sum_half<General, Untwiddle, Seal>(tile, middle, rows, of, 1, sealed);
  if constexpr (Seal) sealed.end();
  from_halves(*of.sums);
  if constexpr (!Untwiddle) end_parity(*of.sums, rows);
}

void sum_outputs(const T* tile, std::int64_t rows, const output_sum<T>& of) {
  clear(*of.sums);
  if (of.factors.far != nullptr && of.seals != nullptr)
    sum_halves<false, true, true>(tile, rows, of);
  else if (of.factors.far != nullptr)
    sum_halves<false, true, false>(tile, rows, of);
  else if (of.general)
    sum_halves<true, false, false>(tile, rows, of);
  else
    sum_halves<false, false, false>(tile, rows, of);
}

// ---- Sums of several axes ----

void fold_sums(const lane_sums& sums, const lane_weights& by, folded_sums& to) {
  const hn::CappedTag<double, k_max_lanes> d;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  for (int l = 0; l < W; l += lanes) {
    for (int i = 0; i < 2; ++i) {
      const auto re = hn::Load(d, sums.high[2 * i] + l), im = hn::Load(d, sums.high[2 * i + 1] + l);
      for (int j = 0; j < 2; ++j) {
        const auto wr = by.same ? hn::Set(d, by.re[j][0]) : hn::LoadU(d, by.re[j] + l);
        const auto given = by.same ? hn::Set(d, by.im[j][0]) : hn::LoadU(d, by.im[j] + l);
        const auto wi = by.conjugate ? hn::Neg(given) : given;
        const auto add = [&](int part, auto product, auto rest) HWY_ATTR {
          double* const high = to.high[2 * (2 * i + j) + part] + l;
          const auto x = hn::Load(d, high), s = hn::Add(x, product);
          hn::Store(s, d, high);
          if constexpr (sizeof(T) == 8) {
            const auto z = hn::Sub(s, x), e = hn::Add(hn::Sub(x, hn::Sub(s, z)), hn::Sub(product, z));
            double* const low = to.low[2 * (2 * i + j) + part] + l;
            hn::Store(hn::Add(hn::Load(d, low), hn::Add(e, rest())), d, low);
          }
        };
        const auto rest = [&](int part) HWY_ATTR { return hn::Load(d, sums.low[2 * i + part] + l); };
        add(0, hn::NegMulAdd(wi, im, hn::Mul(wr, re)), [&] HWY_ATTR { return hn::NegMulAdd(wi, rest(1), hn::Mul(wr, rest(0))); });
        add(1, hn::MulAdd(wi, re, hn::Mul(wr, im)), [&] HWY_ATTR { return hn::MulAdd(wi, rest(0), hn::Mul(wr, rest(1))); });
      }
    }
  }
}

// ---- Verdicts ----

bool set_thresholds(const lane_sums& input, int used, const lane_limits& by, double low, double high, lane_verdicts& to) {
  const hn::CappedTag<double, k_max_lanes> d;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  bool plain = true;
  for (int l = 0; l < k_max_lanes; l += lanes) {
    if (l >= used) break;
    const auto squares = hn::Load(d, input.squares + l);
    const auto norm = hn::Sqrt(squares);
    // Not one multiply-add: processors of Intel take more than 100 cycles for one with a subnormal number, as `least` is in f64.
    const auto tau = [&](int copy) HWY_ATTR { return hn::Add(hn::Mul(hn::Set(d, by.factor[copy]), norm), hn::Set(d, by.least[copy])); };
    hn::Store(tau(0), d, to.value + l);
    hn::Store(tau(1), d, to.twin + l);
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
      const auto sound = hn::And(hn::Eq(value, twin), hn::Le(value, hn::Set(d, abft::k_largest<double>)));
      const auto pass = hn::And(hn::And(hn::Le(size, value), hn::Le(size, twin)), sound);  // false for NaN and Inf
      hn::Store(size, d, to.size[v] + l);
      const auto small = hn::And(pass, hn::Le(size, hn::Mul(twin, hn::Set(d, k_repeat_share))));
      const auto word = hn::IfThenElse(hn::RebindMask(du, pass), hn::Set(du, k_lane_repeat), hn::Set(du, ~k_lane_pass));
      hn::Store(hn::IfThenElse(hn::RebindMask(du, small), hn::Set(du, k_lane_pass), word), du, to.word[v] + l);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
