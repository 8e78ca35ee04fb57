// Real lines of odd length n = r · m, side by side: the stage of r points between n real numbers and (r + 1)/2 complex transforms of m
// points, and the order of their numbers. Row j of the reals has number j of each lane, W scalars. Number i of transform k is row
// (r + 1)/2 · i + k. kernels.hpp describes the functions. Layer: backend "cpu".
// Source: H. Sorensen, D. Jones, M. Heideman, C. Burrus, Real-valued fast Fourier transform algorithms, 1987 (symmetry in every stage).
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/stages-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_REAL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_REAL_INL
#else
#define BALLAST_FFT_REAL_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Computes A = x_0 + Σ_j cos_j a_j and B = Σ_j sin_j b_j in parts, as pair_sums does. `roots` holds pairs (cos_j, sin_j).
HWY_INLINE void real_pair_sums(V x0, const V* HWY_RESTRICT a, const V* HWY_RESTRICT b, int half, const T* HWY_RESTRICT roots, V& A, V& B) {
  const D d;
  const auto add_part = [&](int first, V& cosines, V& sines) HWY_ATTR {
    const int last = HWY_MIN(half, first + k_part);
#pragma GCC unroll 4
    for (int j = first; j < last; ++j) {
      cosines = hn::MulAdd(hn::Set(d, roots[2 * j]), a[j], cosines);
      sines = hn::MulAdd(hn::Set(d, roots[2 * j + 1]), b[j], sines);
    }
  };
  A = x0;
  B = hn::Zero(d);
  add_part(0, A, B);
  for (int first = k_part; first < half; first += k_part) {
    V cosines = hn::Zero(d), sines = hn::Zero(d);
    add_part(first, cosines, sines);
    A = hn::Add(A, cosines);
    B = hn::Add(B, sines);
  }
}

// Returns x0 + Σ_j a_j, in the same parts.
HWY_INLINE V real_total(V x0, const V* HWY_RESTRICT a, int half) {
  V total = x0;
  for (int first = 0; first < half; first += k_part) {
    V part = first == 0 ? total : hn::Zero(D());
    for (int j = first; j < HWY_MIN(half, first + k_part); ++j) part = hn::Add(part, a[j]);
    total = first == 0 ? part : hn::Add(total, part);
  }
  return total;
}

// Radix R (R = 0: `radix`), as in odd_stage.
template <int R>
HWY_INLINE void real_stage_of(int radix, const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t m, const T* HWY_RESTRICT twiddles,
                              const T* HWY_RESTRICT roots, read_ahead& ahead) {
  constexpr int k_most = (R == 0 ? static_cast<int>(k_largest_direct_prime) : R) / 2;
  const D d;
  const int half = R == 0 ? radix / 2 : R / 2, points = 2 * half + 1;
  for (std::int64_t i = 0; i < m; ++i, y += (half + 1) * k_row, twiddles += 2 * half) {
    ahead.step();
    const auto from = [&](int j) HWY_ATTR { return hn::Load(d, x + (i + m * j) * W); };
    V sum[k_most], difference[k_most];
#pragma GCC unroll 4
    for (int j = 0; j < half; ++j) {
      const V low = from(j + 1), high = from(points - j - 1);
      sum[j] = hn::Add(low, high);
      difference[j] = hn::Sub(low, high);
    }
    const V x0 = from(0);
    hn::Store(real_total(x0, sum, half), d, y);
    hn::Store(hn::Zero(d), d, y + W);
#pragma GCC unroll 4
    for (int k = 0; k < half; ++k) {
      V A, B;
      real_pair_sums(x0, sum, difference, half, roots + 2 * k * half, A, B);
      const complex_vector z = times(complex_vector{A, hn::Neg(B)}, hn::Set(d, twiddles[2 * k]), hn::Set(d, twiddles[2 * k + 1]));
      hn::Store(z.re, d, y + (k + 1) * k_row);
      hn::Store(z.im, d, y + (k + 1) * k_row + W);
    }
  }
}

template <int R>
HWY_INLINE void real_inverse_of(int radix, const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t m, const T* HWY_RESTRICT twiddles,
                                const T* HWY_RESTRICT roots, read_ahead& ahead) {
  constexpr int k_most = (R == 0 ? static_cast<int>(k_largest_direct_prime) : R) / 2;
  const D d;
  const int half = R == 0 ? radix / 2 : R / 2, points = 2 * half + 1;
  for (std::int64_t i = 0; i < m; ++i, x += (half + 1) * k_row, twiddles += 2 * half) {
    ahead.step();
    const auto to = [&](int j, V v) HWY_ATTR { hn::Store(v, d, y + (i + m * j) * W); };
    V re[k_most], im[k_most];
#pragma GCC unroll 4
    for (int k = 0; k < half; ++k) {
      const complex_vector u = complex_at(x, k + 1);
      const complex_vector z = times(u, hn::Set(d, twiddles[2 * k]), hn::Neg(hn::Set(d, twiddles[2 * k + 1])));
      re[k] = hn::Add(z.re, z.re);
      im[k] = hn::Add(z.im, z.im);
    }
    const V x0 = hn::Load(d, x);
    to(0, real_total(x0, re, half));
#pragma GCC unroll 4
    for (int j = 0; j < half; ++j) {
      V A, B;
      real_pair_sums(x0, re, im, half, roots + 2 * j * half, A, B);
      to(j + 1, hn::Sub(A, B));
      to(points - j - 1, hn::Add(A, B));
    }
  }
  hn::Store(hn::Zero(d), d, y + m * points * W);  // the last row of pairs has one number alone
}

template <int R>
void real_stage_both(int radix, const T* x, T* y, std::int64_t m, const T* twiddles, const T* roots, bool inverse, read_ahead& ahead) {
  return inverse ? real_inverse_of<R>(radix, x, y, m, twiddles, roots, ahead) : real_stage_of<R>(radix, x, y, m, twiddles, roots, ahead);
}

void real_stage(int radix, const T* x, T* y, std::int64_t m, const T* twiddles, const T* roots, bool inverse, read_ahead& ahead) {
  switch (radix) {
    case 3: return real_stage_both<3>(radix, x, y, m, twiddles, roots, inverse, ahead);
    case 5: return real_stage_both<5>(radix, x, y, m, twiddles, roots, inverse, ahead);
    case 7: return real_stage_both<7>(radix, x, y, m, twiddles, roots, inverse, ahead);
    case 9: return real_stage_both<9>(radix, x, y, m, twiddles, roots, inverse, ahead);
    case 11: return real_stage_both<11>(radix, x, y, m, twiddles, roots, inverse, ahead);
    case 13: return real_stage_both<13>(radix, x, y, m, twiddles, roots, inverse, ahead);
    default: return real_stage_both<0>(radix, x, y, m, twiddles, roots, inverse, ahead);
  }
}

void mirror_rows(const T* x, T* y, std::int64_t rows, const std::int64_t* order) {
  const D d;
  for (std::int64_t k = 0; k < rows; ++k, y += k_row) {
    const bool mirrored = order[k] < 0;
    const T* const from = x + (mirrored ? ~order[k] : order[k]) * k_row;
    const V im = hn::Load(d, from + W);
    hn::Store(hn::Load(d, from), d, y);
    hn::Store(k == 0 ? hn::Zero(d) : mirrored ? hn::Neg(im) : im, d, y + W);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
