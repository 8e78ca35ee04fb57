// The arithmetic of a transform: stages, products with tables, the split and join of real data.
// Layer: backend "cpu".
// Source: T. Stockham, 1966 (autosort stages); their butterflies are in butterflies-inl.hpp.
#include <cstddef>
#include <iterator>
#include <utility>

#include "fft/cpu/butterflies-inl.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/seals-inl.hpp"
#include "fft/cpu/vectors-inl.hpp"
#include "fft/tables/extended_precision_dft.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_STAGES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_STAGES_INL
#else
#define BALLAST_FFT_STAGES_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// ---- Stages ----

// Rows that are `step` scalars apart. Few registers address them all: the columns of a butterfly begin one row apart, and the rows of a
// column lie k_quarter rows apart.
template <int R>
struct rows_apart {
  static constexpr int k_quarter = R == 16 ? 4 : R == 10 ? 5 : R == 6 || R == 9 || R == 12 ? 3 : R == 7 || R == 8 ? 2 : 1;
  std::int64_t one, quarter, half, three;

  explicit rows_apart(std::int64_t step) : one(step), quarter(k_quarter * step), half(2 * quarter), three(3 * quarter) {}
  template <class P>
  HWY_INLINE P* at(P* first, int j) const {
    P* const column = first + j % k_quarter * one;
    const int part = j / k_quarter;
    return part == 0 ? column : part == 1 ? column + quarter : part == 2 ? column + half : part == 3 ? column + three : column + 2 * half;
  }
};

// Swapped is known at compile time, so that NEON loads and stores the two halves of a row by one instruction.
template <int R, bool Twiddle, bool Swapped>
HWY_INLINE void fixed_stage(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, std::int64_t s, std::int64_t tiles,
                            const T* HWY_RESTRICT twiddles, read_ahead& ahead) {
  const D d;
  constexpr std::int64_t re = Swapped ? W : 0, im = W - re;
  const std::int64_t m = n / (s * R);
  const rows_apart<R> in(s * m * k_row), out(s * k_row);
  for (std::int64_t i = 0; i < m; ++i) {
    const T* HWY_RESTRICT w = twiddles + 2 * (R - 1) * i;
    // A short line has a butterfly or a few of them for each i, so what begins an i is done for all tiles.
    for (std::int64_t t = 0; t < tiles; ++t) {
      const T* from = x + (t * n + s * i) * k_row;
      T* to = y + (t * n + s * R * i) * k_row;
      for (std::int64_t q = 0; q < s; ++q, from += k_row, to += k_row) {
        ahead.step();
        const auto load = [&](int j) HWY_ATTR {
          const T* row = in.at(from, j);
          return complex_vector{hn::Load(d, row + re), hn::Load(d, row + im)};
        };
        const auto store = [&](int k, complex_vector z) HWY_ATTR {
          if constexpr (Twiddle) {
            if (k > 0) z = times(z, hn::Set(d, w[2 * (k - 1)]), hn::Set(d, w[2 * (k - 1) + 1]));
          }
          T* row = out.at(to, k);
          hn::Store(z.re, d, row + re);
          hn::Store(z.im, d, row + im);
        };
        each_of_butterfly<R>(load, store);
      }
    }
  }
}

// Calls run<R>() for the radix R of a stage whose butterflies are known at compile time (k_fixed_radices). Returns whether it is one.
template <class Run>
bool for_radix(int radix, const Run& run) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return ((radix == k_fixed_radices[I] && (run.template operator()<k_fixed_radices[I]>(), true)) || ...);
  }
  (std::make_index_sequence<std::size(k_fixed_radices)>());
}

template <int R, bool Swapped>
void twiddled_stage_of(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, const row_factors<T>& factors, read_ahead& ahead) {
  const D d;
  constexpr std::int64_t re = Swapped ? W : 0, im = W - re;
  const std::int64_t s = n / R, period = std::int64_t{1} << factors.shift;
  const rows_apart<R> rows(s * k_row), far(s / period * k_row);
  const T* far_rows = factors.far;
  for (std::int64_t q = 0; q < s; far_rows += k_row) {
    const T* near_row = factors.near;
    for (const std::int64_t end = q + period; q < end; ++q, x += k_row, y += k_row, near_row += k_row) {
      ahead.step();
      const auto load = [&](int j) HWY_ATTR {
        const T* row = rows.at(x, j);
        return complex_vector{hn::Load(d, row + re), hn::Load(d, row + im)};
      };
      const auto store = [&](int k, const complex_vector& z) HWY_ATTR {
        const T* const w = far.at(far_rows, k);
        const complex_vector f = times(complex_at(near_row, 0), hn::Load(d, w), hn::Load(d, w + W));
        const complex_vector made = times(z, f.re, f.im);
        T* const row = rows.at(y, k);
        hn::Store(made.re, d, row + re);
        hn::Store(made.im, d, row + im);
      };
      each_of_butterfly<R>(load, store);
    }
  }
}

void twiddled_stage(int radix, const T* x, T* y, std::int64_t n, const row_factors<T>& factors, bool swapped, read_ahead& ahead) {
  for_radix(radix, [&]<int R>() {
    return swapped ? twiddled_stage_of<R, true>(x, y, n, factors, ahead) : twiddled_stage_of<R, false>(x, y, n, factors, ahead);
  });
}

template <int R>
void fixed_stage_of(const T* x, T* y, std::int64_t n, std::int64_t s, std::int64_t tiles, const T* twiddles, bool swapped,
                    read_ahead& ahead) {
  if (twiddles != nullptr)
    return swapped ? fixed_stage<R, true, true>(x, y, n, s, tiles, twiddles, ahead)
                   : fixed_stage<R, true, false>(x, y, n, s, tiles, twiddles, ahead);
  return swapped ? fixed_stage<R, false, true>(x, y, n, s, tiles, twiddles, ahead)
                 : fixed_stage<R, false, false>(x, y, n, s, tiles, twiddles, ahead);
}

// Number of terms in a partial sum. Adding h terms one by one has a rounding error of √(h/2); with partial sums it is
// √(k_part/2 + h/(2 k_part)).
constexpr int k_part = 8;

// Computes A = x_0 + Σ_j cos_j sum_j and B = Σ_j sin_j difference_j. `roots` holds pairs (cos_j, sin_j).
HWY_INLINE void pair_sums(const complex_vector& x0, const complex_vector* HWY_RESTRICT sum, const complex_vector* HWY_RESTRICT difference,
                          int half, const T* HWY_RESTRICT roots, complex_vector& A, complex_vector& B) {
  const D d;
  const complex_vector zero = {hn::Zero(d), hn::Zero(d)};
  A = x0;
  B = zero;
  const auto add_term = [&](int j, complex_vector& a, complex_vector& b) HWY_ATTR {
    const V c = hn::Set(d, roots[2 * j]);
    const V sine = hn::Set(d, roots[2 * j + 1]);
    a = {hn::MulAdd(c, sum[j].re, a.re), hn::MulAdd(c, sum[j].im, a.im)};
    b = {hn::MulAdd(sine, difference[j].re, b.re), hn::MulAdd(sine, difference[j].im, b.im)};
  };
  // Adds the terms of the part that begins at `first`.
  const auto add_part = [&](int first, complex_vector& a, complex_vector& b) HWY_ATTR {
    if (first + k_part <= half) {
#pragma GCC unroll 8
      for (int j = first; j < first + k_part; ++j) add_term(j, a, b);
    } else {
#pragma GCC unroll 4
      for (int j = first; j < half; ++j) add_term(j, a, b);
    }
  };
  add_part(0, A, B);
  for (int first = k_part; first < half; first += k_part) {
    complex_vector a = zero, b = zero;
    add_part(first, a, b);
    A = A + a;
    B = B + b;
  }
}

// Odd radix P (P = 0: radix `p`). y_k = A_k − iB_k, y_{p−k} = A_k + iB_k with A_k = x_0 + Σ_j cos(2πjk/p) (x_j + x_{p−j}),
// B_k = Σ_j sin(2πjk/p) (x_j − x_{p−j}).
template <int P>
HWY_INLINE void odd_stage(int p, const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, std::int64_t s, const T* HWY_RESTRICT twiddles,
                          const T* HWY_RESTRICT roots, std::int64_t re, std::int64_t im, read_ahead& ahead) {
  constexpr int k_most = (P == 0 ? static_cast<int>(k_largest_direct_prime) : P) / 2;
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
      complex_vector sum[k_most], difference[k_most];
      const auto add_pairs = [&](int first, int last, complex_vector part) HWY_ATTR {
#pragma GCC unroll 4
        for (int j = first; j < last; ++j) {
          const T* low = from + (j + 1) * from_step;
          const T* high = from + (radix - j - 1) * from_step;
          const complex_vector a = {hn::Load(d, low + re), hn::Load(d, low + im)};
          const complex_vector b = {hn::Load(d, high + re), hn::Load(d, high + im)};
          sum[j] = a + b;
          difference[j] = a - b;
          part = part + sum[j];
        }
        return part;
      };
      complex_vector total = add_pairs(0, HWY_MIN(half, k_part), x0);
      for (int j = k_part; j < half; j += k_part) total = total + add_pairs(j, HWY_MIN(half, j + k_part), {hn::Zero(d), hn::Zero(d)});
      hn::Store(total.re, d, to + re);
      hn::Store(total.im, d, to + im);
#pragma GCC unroll 4
      for (int k = 1; k <= half; ++k) {
        complex_vector A, B;
        pair_sums(x0, sum, difference, half, roots + 2 * (k - 1) * half, A, B);
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

void stage(int radix, const T* x, T* y, std::int64_t n, std::int64_t s, std::int64_t tiles, const T* twiddles, const T* roots, bool swapped,
           read_ahead& ahead) {
  if (roots == nullptr && for_radix(radix, [&]<int R>() { fixed_stage_of<R>(x, y, n, s, tiles, twiddles, swapped, ahead); })) return;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t t = 0; t < tiles; ++t, x += n * k_row, y += n * k_row) {
    switch (radix) {
      case 3: odd_stage<3>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
      case 5: odd_stage<5>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
      case 7: odd_stage<7>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
      case 11: odd_stage<11>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
      case 13: odd_stage<13>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
      default: odd_stage<0>(radix, x, y, n, s, twiddles, roots, re, im, ahead); break;
    }
  }
}

// ---- Products ----

void multiply_rows(const T* x, T* y, std::int64_t rows, std::int64_t padded, const T* w, std::int64_t same, bool swapped) {
  const D d;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t first = 0; first < rows; first += same, w += 2) {
    const V wr = hn::Set(d, w[0]), wi = hn::Set(d, w[1]);
    for (std::int64_t j = first; j < first + same; ++j) {
      const complex_vector v = {hn::Load(d, x + j * k_row + re), hn::Load(d, x + j * k_row + im)};
      const complex_vector z = times(v, wr, wi);
      hn::Store(z.re, d, y + j * k_row + re);
      hn::Store(z.im, d, y + j * k_row + im);
    }
  }
  for (std::int64_t i = rows * k_row; i < padded * k_row; i += W) hn::Store(hn::Zero(d), d, y + i);
}

void twiddle_rows(const T* x, T* y, std::int64_t rows, const row_factors<T>& factors, bool conjugate, bool swapped) {
  const D d;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t j = 0; j < rows; ++j) {
    complex_vector w = factor_of(factors, j);
    if (conjugate) w.im = hn::Neg(w.im);
    const complex_vector z = times({hn::Load(d, x + j * k_row + re), hn::Load(d, x + j * k_row + im)}, w.re, w.im);
    hn::Store(z.re, d, y + j * k_row + re);
    hn::Store(z.im, d, y + j * k_row + im);
  }
}

void scale_rows(T* tile, std::int64_t rows, T factor) {
  const D d;
  const V f = hn::Set(d, factor);
  for (std::int64_t i = 0; i < rows * k_row; i += W) hn::Store(hn::Mul(hn::Load(d, tile + i), f), d, tile + i);
}

void permute_rows(const T* x, T* y, std::int64_t groups, std::int64_t same, const std::int64_t* order) {
  const D d;
  const std::int64_t scalars = same * k_row;
  for (std::int64_t k = 0; k < groups; ++k, y += scalars) {
    const T* from = x + order[k] * scalars;
    for (std::int64_t i = 0; i < scalars; i += W) hn::Store(hn::Load(d, from + i), d, y + i);
  }
}

void mix_rows(T* u, T* v, std::int64_t rows, T factor) {
  const D d;
  const V f = hn::Set(d, factor);
  for (std::int64_t i = 0; i < rows * k_row; i += W) {
    const V a = hn::Load(d, u + i), b = hn::Load(d, v + i);
    hn::Store(hn::MulAdd(f, a, b), d, u + i);
    hn::Store(hn::Add(a, b), d, v + i);
  }
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
