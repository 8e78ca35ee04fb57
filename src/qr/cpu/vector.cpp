// Highway implementation of cpu/vector.hpp.
// Layer: backend (cpu).
#include "qr/cpu/vector.hpp"

#include <algorithm>
#include <complex>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qr/cpu/vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::qr::vector {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads float or double data as doubles.
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const double* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const float* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), p));
}

// Complex numbers are pairs of lanes, (real, imaginary); a vector holds whole pairs.

// One number z as a factor of vectors of numbers.
template <bool Complex, class D>
class factor_of {
 public:
  HWY_INLINE factor_of(D d, const hn::TFromD<D>* z) : d_(d), real_(hn::Set(d, z[0])), imaginary_(real_) {
    if constexpr (Complex) imaginary_ = hn::OddEven(hn::Set(d, z[1]), hn::Set(d, -z[1]));
  }
  HWY_INLINE hn::Vec<D> times(hn::Vec<D> x) const {
    const auto product = hn::Mul(x, real_);
    if constexpr (Complex) return hn::MulAdd(hn::Reverse2(d_, x), imaginary_, product);
    return product;
  }
  // sum − x z
  HWY_INLINE hn::Vec<D> less(hn::Vec<D> sum, hn::Vec<D> x) const {
    sum = hn::NegMulAdd(x, real_, sum);
    if constexpr (Complex) sum = hn::NegMulAdd(hn::Reverse2(d_, x), imaginary_, sum);
    return sum;
  }

 private:
  D d_;
  hn::Vec<D> real_, imaginary_;
};

// The numbers of one precision, real or complex, as the loops over single numbers after the last whole vector see them.
template <bool Complex, class R>
using number = std::conditional_t<Complex, std::complex<R>, R>;

// Processes rows in chunks that stay in the first-level cache while the columns stream past; four columns at a time share one load and
// store of y. Rows, strides and z are counted in numbers; pointers are to their components.
template <int Count, bool Complex, class R>
HWY_INLINE void subtract_rows(std::int64_t m, std::int64_t w, const R* X, std::int64_t ldx, const double* z, std::int64_t ldz, double* y,
                              std::int64_t ldy) {
  using wide = number<Complex, double>;
  const hn::ScalableTag<double> d;
  constexpr std::int64_t each = Complex ? 2 : 1;
  using factor = factor_of<Complex, decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t chunk = 512;
  ldx *= each;
  ldy *= each;
  const std::int64_t rows = each * m;
  for (std::int64_t top = 0; top < rows; top += chunk) {
    const std::int64_t end = HWY_MIN(top + chunk, rows);
    for (std::int64_t j = 0; j < w; j += 4) {
      const std::int64_t wide_columns = HWY_MIN(std::int64_t{4}, w - j);
      std::int64_t i = top;
      if (wide_columns == 4) {
        for (; i + lanes <= end; i += lanes) {
          const R* const x = X + i + j * ldx;
          const auto x0 = load_wide(d, x), x1 = load_wide(d, x + ldx), x2 = load_wide(d, x + 2 * ldx), x3 = load_wide(d, x + 3 * ldx);
          for (int q = 0; q < Count; ++q) {
            const double* const zq = z + each * (j + q * ldz);
            double* const yq = y + i + q * ldy;
            auto sum = hn::LoadU(d, yq);
            sum = factor(d, zq).less(sum, x0);
            sum = factor(d, zq + each).less(sum, x1);
            sum = factor(d, zq + 2 * each).less(sum, x2);
            sum = factor(d, zq + 3 * each).less(sum, x3);
            hn::StoreU(sum, d, yq);
          }
        }
      }
      for (std::int64_t c = j; c < j + wide_columns; ++c) {
        std::int64_t r = i;
        for (; r + lanes <= end; r += lanes) {
          const auto x = load_wide(d, X + r + c * ldx);
          for (int q = 0; q < Count; ++q) {
            double* const yq = y + r + q * ldy;
            hn::StoreU(factor(d, z + each * (c + q * ldz)).less(hn::LoadU(d, yq), x), d, yq);
          }
        }
        for (; r < end; r += each) {
          const wide x = *reinterpret_cast<const number<Complex, R>*>(X + r + c * ldx);
          for (int q = 0; q < Count; ++q)
            *reinterpret_cast<wide*>(y + r + q * ldy) -= times(x, *reinterpret_cast<const wide*>(z + each * (c + q * ldz)));
        }
      }
    }
  }
}

// Returns Σ conj(x) y from the sums of the products of components, and for complex numbers of those of x with the other component of y.
template <bool Complex, class D>
HWY_INLINE number<Complex, hn::TFromD<D>> joined_sums(D d, hn::Vec<D> straight, [[maybe_unused]] hn::Vec<D> crossed) {
  if constexpr (Complex) {
    // conj(x) y = (x_r y_r + x_i y_i) + i (x_r y_i − x_i y_r)
    return {hn::GetLane(hn::SumOfLanes(d, straight)), hn::GetLane(hn::SumOfLanes(d, hn::OddEven(hn::Neg(crossed), crossed)))};
  } else {
    return hn::GetLane(hn::SumOfLanes(d, straight));
  }
}

// Sums rows top … end − 1, counted in components, of `Columns` columns, starting at a.
template <int Count, int Columns, bool Complex, class R>
HWY_INLINE void dot_chunk(std::int64_t top, std::int64_t end, const R* a, std::int64_t lda, const double* y, std::int64_t ldy, double* z,
                          std::int64_t ldz) {
  using wide = number<Complex, double>;
  const hn::ScalableTag<double> d;
  constexpr std::int64_t each = Complex ? 2 : 1;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[Count][Columns], crossed[Complex ? Count : 1][Columns];
  for (int q = 0; q < Count; ++q) {
    for (int c = 0; c < Columns; ++c) sum[q][c] = crossed[Complex ? q : 0][c] = hn::Zero(d);
  }
  std::int64_t i = top;
  for (; i + lanes <= end; i += lanes) {
    hn::Vec<decltype(d)> x[Columns];
    for (int c = 0; c < Columns; ++c) x[c] = load_wide(d, a + i + c * lda);
    for (int q = 0; q < Count; ++q) {
      const auto p = hn::LoadU(d, y + i + q * ldy);
      for (int c = 0; c < Columns; ++c) sum[q][c] = hn::MulAdd(x[c], p, sum[q][c]);
      if constexpr (Complex) {
        const auto other = hn::Reverse2(d, p);
        for (int c = 0; c < Columns; ++c) crossed[q][c] = hn::MulAdd(x[c], other, crossed[q][c]);
      }
    }
  }
  for (int q = 0; q < Count; ++q) {
    for (int c = 0; c < Columns; ++c) {
      wide total = joined_sums<Complex>(d, sum[q][c], crossed[Complex ? q : 0][c]);
      for (std::int64_t r = i; r < end; r += each)
        total += times(conjugate(static_cast<wide>(*reinterpret_cast<const number<Complex, R>*>(a + r + c * lda))),
                       *reinterpret_cast<const wide*>(y + r + q * ldy));
      *reinterpret_cast<wide*>(z + each * (c + q * ldz)) += total;
    }
  }
}

template <int Count, bool Complex, class R>
HWY_INLINE void dot_rows(std::int64_t m, std::int64_t w, const R* X, std::int64_t ldx, const double* y, std::int64_t ldy, double* z,
                         std::int64_t ldz) {
  constexpr std::int64_t chunk = 512, each = Complex ? 2 : 1;
  ldx *= each;
  ldy *= each;
  for (std::int64_t top = 0; top < each * m; top += chunk) {
    const std::int64_t end = HWY_MIN(top + chunk, each * m);
    std::int64_t j = 0;
    for (; j + 2 <= w; j += 2) dot_chunk<Count, 2, Complex>(top, end, X + j * ldx, ldx, y, ldy, z + each * j, ldz);
    if (j < w) dot_chunk<Count, 1, Complex>(top, end, X + j * ldx, ldx, y, ldy, z + each * j, ldz);
  }
}

template <class S>
void subtract_any(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* z, std::int64_t ldz,
                  wide_of<S>* y, std::int64_t ldy) {
  if (count == 1) subtract_rows<1, is_complex<S>>(m, w, reals(X), ldx, reals(z), ldz, reals(y), ldy);
  if (count == 2) subtract_rows<2, is_complex<S>>(m, w, reals(X), ldx, reals(z), ldz, reals(y), ldy);
  if (count == 3) subtract_rows<3, is_complex<S>>(m, w, reals(X), ldx, reals(z), ldz, reals(y), ldy);
  if (count == 4) subtract_rows<4, is_complex<S>>(m, w, reals(X), ldx, reals(z), ldz, reals(y), ldy);
}

template <class S>
void dot_any(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* y, std::int64_t ldy, wide_of<S>* z,
             std::int64_t ldz) {
  if (count == 1) dot_rows<1, is_complex<S>>(m, w, reals(X), ldx, reals(y), ldy, reals(z), ldz);
  if (count == 2) dot_rows<2, is_complex<S>>(m, w, reals(X), ldx, reals(y), ldy, reals(z), ldz);
  if (count == 3) dot_rows<3, is_complex<S>>(m, w, reals(X), ldx, reals(y), ldy, reals(z), ldz);
  if (count == 4) dot_rows<4, is_complex<S>>(m, w, reals(X), ldx, reals(y), ldy, reals(z), ldz);
}

template <class S>
void squares_any(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, double* z) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < w; ++j) {
    const S* const x = X + j * ldx;
    auto a = hn::Zero(d), b = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + 2 * lanes <= m; i += 2 * lanes) {
      const auto xa = load_wide(d, x + i), xb = load_wide(d, x + i + lanes);
      a = hn::MulAdd(xa, xa, a);
      b = hn::MulAdd(xb, xb, b);
    }
    double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
    for (; i < m; ++i) sum += static_cast<double>(x[i]) * x[i];
    z[j] += sum;
  }
}

template <class S>
void moments_any(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, const double* y, double* z, std::int64_t ldz) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < w; j += 2) {
    const bool pair = j + 1 < w;
    const S* const a = X + j * ldx;
    const S* const b = pair ? a + ldx : a;
    auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    std::int64_t i = 0;
    for (; i + lanes <= m; i += lanes) {
      const auto p = hn::LoadU(d, y + i);
      const auto xa = load_wide(d, a + i), xb = load_wide(d, b + i);
      const auto pa = hn::Mul(xa, p), pb = hn::Mul(xb, p);
      a0 = hn::Add(a0, xa);
      b0 = hn::Add(b0, xb);
      a1 = hn::Add(a1, pa);
      b1 = hn::Add(b1, pb);
      a2 = hn::MulAdd(pa, p, a2);
      b2 = hn::MulAdd(pb, p, b2);
      a3 = hn::MulAdd(xa, xa, a3);
      b3 = hn::MulAdd(xb, xb, b3);
    }
    const auto add = [&](const S* x, std::int64_t column, double s0, double s1, double s2, double s3) {
      for (std::int64_t r = i; r < m; ++r) {
        const double wide = static_cast<double>(x[r]), weighted = wide * y[r];
        s0 += wide;
        s1 += weighted;
        s2 += weighted * y[r];
        s3 += wide * wide;
      }
      double* const to = z + column;
      to[0] += s0;
      to[ldz] += s1;
      to[2 * ldz] += s2;
      to[3 * ldz] += s3;
    };
    const auto sum = [&](auto v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
    add(a, j, sum(a0), sum(a1), sum(a2), sum(a3));
    if (pair) add(b, j + 1, sum(b0), sum(b1), sum(b2), sum(b3));
  }
}

// Sums of long columns: k_run vectors are added plainly; the runs are added with compensation for their rounding errors. Without
// compensation the roundings of equal terms, which all have the same sign, would cost Q its orthogonality: 40 times LAPACK's loss for
// constant columns of 6000 rows.
constexpr std::int64_t k_run = 16;
template <int Columns, class D>
class run_sums {
 public:
  HWY_INLINE explicit run_sums(D d) : d_(d) {
    for (int l = 0; l < Columns; ++l) sum[l] = total_[l] = lost_[l] = hn::Zero(d);
  }
  // Ends a run: adds its sum to the total.
  HWY_INLINE void fold() {
    for (int l = 0; l < Columns; ++l) {
      const auto t = hn::Add(total_[l], sum[l]);
      const auto had = hn::Sub(t, sum[l]);
      lost_[l] = hn::Add(lost_[l], hn::Add(hn::Sub(total_[l], had), hn::Sub(sum[l], hn::Sub(t, had))));
      total_[l] = t;
      sum[l] = hn::Zero(d_);
    }
  }
  // Returns the sum of each lane.
  HWY_INLINE hn::Vec<D> total(int l) const { return hn::Add(total_[l], lost_[l]); }
  hn::Vec<D> sum[Columns];  // the sum of the current run

 private:
  D d_;
  hn::Vec<D> total_[Columns], lost_[Columns];
};

template <int Columns, class S>
HWY_INLINE void dots_of(std::int64_t m, const S* a, std::int64_t lda, S* g) {
  const hn::ScalableTag<real_of<S>> d;
  constexpr bool complex = is_complex<S>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), rows = k_reals<S> * m, ld = k_reals<S> * lda;
  const real_of<S>* const p = reals(a);
  run_sums<Columns, decltype(d)> run(d);
  run_sums<complex ? Columns : 1, decltype(d)> crossed(d);
  std::int64_t i = 0;
  while (i + lanes <= rows) {
    for (const std::int64_t end = HWY_MIN(i + k_run * lanes, rows); i + lanes <= end; i += lanes) {
      const auto first = hn::LoadU(d, p + i);
      for (int l = 0; l < Columns; ++l) {
        const auto other = hn::LoadU(d, p + i + l * ld);
        run.sum[l] = hn::MulAdd(first, other, run.sum[l]);
        if constexpr (complex) crossed.sum[l] = hn::MulAdd(first, hn::Reverse2(d, other), crossed.sum[l]);
      }
    }
    run.fold();
    if constexpr (complex) crossed.fold();
  }
  for (int l = 0; l < Columns; ++l) {
    S total = joined_sums<complex>(d, run.total(l), crossed.total(complex ? l : 0));
    for (std::int64_t r = i / k_reals<S>; r < m; ++r) total += times(conjugate(a[r]), a[r + l * lda]);
    g[l] = total;
  }
}

template <int Right, class S>
HWY_INLINE void step_of(std::int64_t m, S* a, std::int64_t lda, S scale, const S* w, S* g) {
  using real = real_of<S>;
  const hn::ScalableTag<real> d;
  constexpr bool complex = is_complex<S>;
  using factor = factor_of<complex, decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), rows = k_reals<S> * m, ld = k_reals<S> * lda;
  constexpr int Sums = std::max(Right, 1);
  real* const p = reals(a);
  run_sums<Sums, decltype(d)> run(d);
  run_sums<complex ? Sums : 1, decltype(d)> crossed(d);
  const factor by(d, reals(&scale));
  const auto single = [&](std::int64_t i, bool counted) {
    a[i] = times(a[i], scale);
    S first = 0;
    for (int l = 0; l < Right; ++l) {
      S& c = a[i + (l + 1) * lda];
      c -= times(a[i], w[l]);
      if (l == 0) first = conjugate(c);
      if (counted) g[l] += times(first, c);
    }
  };
  for (int l = 0; l < Right; ++l) g[l] = 0;
  if (m > 0) single(0, false);
  std::int64_t i = k_reals<S>;
  while (i + lanes <= rows) {
    for (const std::int64_t end = HWY_MIN(i + k_run * lanes, rows); i + lanes <= end; i += lanes) {
      const auto v = by.times(hn::LoadU(d, p + i));
      hn::StoreU(v, d, p + i);
      auto first = v;
      for (int l = 0; l < Right; ++l) {
        const auto c = factor(d, reals(w + l)).less(hn::LoadU(d, p + i + (l + 1) * ld), v);
        hn::StoreU(c, d, p + i + (l + 1) * ld);
        if (l == 0) first = c;
        run.sum[l] = hn::MulAdd(first, c, run.sum[l]);
        if constexpr (complex) crossed.sum[l] = hn::MulAdd(first, hn::Reverse2(d, c), crossed.sum[l]);
      }
    }
    run.fold();
    if constexpr (complex) crossed.fold();
  }
  for (std::int64_t r = i / k_reals<S>; r < m; ++r) single(r, true);
  for (int l = 0; l < Right; ++l) g[l] += joined_sums<complex>(d, run.total(l), crossed.total(complex ? l : 0));
}

template <class S>
void dots_any(std::int64_t m, int columns, const S* a, std::int64_t lda, S* g) {
  switch (columns) {
    case 1: return dots_of<1>(m, a, lda, g);
    case 2: return dots_of<2>(m, a, lda, g);
    case 3: return dots_of<3>(m, a, lda, g);
    case 4: return dots_of<4>(m, a, lda, g);
    default: break;
  }
  if constexpr (!is_complex<S>) {
    switch (columns) {
      case 5: return dots_of<5>(m, a, lda, g);
      case 6: return dots_of<6>(m, a, lda, g);
      case 7: return dots_of<7>(m, a, lda, g);
      case 8: return dots_of<8>(m, a, lda, g);
      default: return;
    }
  }
}

template <class S>
void step_any(std::int64_t m, int columns, S* a, std::int64_t lda, S scale, const S* w, S* g) {
  switch (columns) {
    case 1: return step_of<0>(m, a, lda, scale, w, g);
    case 2: return step_of<1>(m, a, lda, scale, w, g);
    case 3: return step_of<2>(m, a, lda, scale, w, g);
    case 4: return step_of<3>(m, a, lda, scale, w, g);
    default: break;
  }
  if constexpr (!is_complex<S>) {
    switch (columns) {
      case 5: return step_of<4>(m, a, lda, scale, w, g);
      case 6: return step_of<5>(m, a, lda, scale, w, g);
      case 7: return step_of<6>(m, a, lda, scale, w, g);
      case 8: return step_of<7>(m, a, lda, scale, w, g);
      default: return;
    }
  }
}

#define BALLAST_NAME(S, suffix)                                                                                                          \
  void subtract_##suffix(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* z, std::int64_t ldz, \
                         wide_of<S>* y, std::int64_t ldy) {                                                                              \
    subtract_any(m, w, X, ldx, count, z, ldz, y, ldy);                                                                                   \
  }                                                                                                                                      \
  void dot_##suffix(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* y, std::int64_t ldy,      \
                    wide_of<S>* z, std::int64_t ldz) {                                                                                   \
    dot_any(m, w, X, ldx, count, y, ldy, z, ldz);                                                                                        \
  }                                                                                                                                      \
  void dots_##suffix(std::int64_t m, int columns, const S* a, std::int64_t lda, S* g) { dots_any(m, columns, a, lda, g); }               \
  void step_##suffix(std::int64_t m, int columns, S* a, std::int64_t lda, S scale, const S* w, S* g) {                                   \
    step_any(m, columns, a, lda, scale, w, g);                                                                                           \
  }
#define BALLAST_NAME_REAL(S, suffix)                                                                                                  \
  BALLAST_NAME(S, suffix)                                                                                                             \
  void squares_##suffix(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, double* z) { squares_any(m, w, X, ldx, z); }    \
  void moments_##suffix(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, const double* y, double* z, std::int64_t ldz) { \
    moments_any(m, w, X, ldx, y, z, ldz);                                                                                             \
  }
BALLAST_NAME_REAL(float, f32)
BALLAST_NAME_REAL(double, f64)
BALLAST_NAME(std::complex<float>, c64)
BALLAST_NAME(std::complex<double>, c128)
#undef BALLAST_NAME_REAL
#undef BALLAST_NAME

}  // namespace HWY_NAMESPACE
}  // namespace ballast::qr::vector
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::qr::vector {

#define BALLAST_DISPATCH(S, suffix)                                                                                                \
  HWY_EXPORT(subtract_##suffix);                                                                                                   \
  HWY_EXPORT(dot_##suffix);                                                                                                        \
  HWY_EXPORT(dots_##suffix);                                                                                                       \
  HWY_EXPORT(step_##suffix);                                                                                                       \
  template <>                                                                                                                      \
  void subtract<S>(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* z, std::int64_t ldz, \
                   wide_of<S>* y, std::int64_t ldy) {                                                                              \
    HWY_DYNAMIC_DISPATCH(subtract_##suffix)(m, w, X, ldx, count, z, ldz, y, ldy);                                                  \
  }                                                                                                                                \
  template <>                                                                                                                      \
  void dot<S>(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, int count, const wide_of<S>* y, std::int64_t ldy,      \
              wide_of<S>* z, std::int64_t ldz) {                                                                                   \
    HWY_DYNAMIC_DISPATCH(dot_##suffix)(m, w, X, ldx, count, y, ldy, z, ldz);                                                       \
  }                                                                                                                                \
  template <>                                                                                                                      \
  void first_dots<S>(std::int64_t m, int columns, const S* a, std::int64_t lda, S* g) {                                            \
    HWY_DYNAMIC_DISPATCH(dots_##suffix)(m, columns, a, lda, g);                                                                    \
  }                                                                                                                                \
  template <>                                                                                                                      \
  void panel_step<S>(std::int64_t m, int columns, S* a, std::int64_t lda, S scale, const S* w, S* g) {                             \
    HWY_DYNAMIC_DISPATCH(step_##suffix)(m, columns, a, lda, scale, w, g);                                                          \
  }
#define BALLAST_DISPATCH_REAL(S, suffix)                                                                                        \
  BALLAST_DISPATCH(S, suffix)                                                                                                   \
  HWY_EXPORT(squares_##suffix);                                                                                                 \
  HWY_EXPORT(moments_##suffix);                                                                                                 \
  template <>                                                                                                                   \
  void squares<S>(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, double* z) {                                    \
    HWY_DYNAMIC_DISPATCH(squares_##suffix)(m, w, X, ldx, z);                                                                    \
  }                                                                                                                             \
  template <>                                                                                                                   \
  void moments<S>(std::int64_t m, std::int64_t w, const S* X, std::int64_t ldx, const double* y, double* z, std::int64_t ldz) { \
    HWY_DYNAMIC_DISPATCH(moments_##suffix)(m, w, X, ldx, y, z, ldz);                                                            \
  }
BALLAST_DISPATCH_REAL(float, f32)
BALLAST_DISPATCH_REAL(double, f64)
BALLAST_DISPATCH(std::complex<float>, c64)
BALLAST_DISPATCH(std::complex<double>, c128)
#undef BALLAST_DISPATCH_REAL
#undef BALLAST_DISPATCH

}  // namespace ballast::qr::vector
#endif
