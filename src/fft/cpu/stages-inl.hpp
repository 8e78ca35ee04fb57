// The arithmetic of a transform: stages, products with tables, the split and join of real data.
// Layer: backend "cpu".
// Source: T. Stockham, 1966 (autosort stages); radix-2, 4 and 8 butterflies after J. Cooley, J. Tukey, 1965; odd ones by symmetric pairs.
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

HWY_INLINE void butterfly_4(complex_vector& a, complex_vector& b, complex_vector& c, complex_vector& e) {
  const complex_vector s0 = a + c, s1 = b + e, d0 = a - c, d1 = b - e;
  a = s0 + s1;
  c = s0 - s1;
  b = minus_i(d0, d1);
  e = plus_i(d0, d1);
}

HWY_INLINE void butterfly_3(complex_vector& a, complex_vector& b, complex_vector& c) {
  const D d;
  const V cosine = hn::Set(d, static_cast<T>(-0.5)), sine = hn::Set(d, static_cast<T>(0.86602540378443864676L));
  const complex_vector sum = b + c, difference = b - c;
  const complex_vector A = {hn::MulAdd(cosine, sum.re, a.re), hn::MulAdd(cosine, sum.im, a.im)};
  const complex_vector B = {hn::Mul(sine, difference.re), hn::Mul(sine, difference.im)};
  a = a + sum;
  b = minus_i(A, B);
  c = plus_i(A, B);
}

template <int R>
HWY_INLINE void butterfly(complex_vector* x) {
  if constexpr (R == 2) {
    const complex_vector a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (R == 4) {
    butterfly_4(x[0], x[1], x[2], x[3]);
  } else if constexpr (R == 12) {
    // Columns of a 4 × 3 matrix, factors e^{−2πi jk/12}, rows.
    const D d;
    const V c = hn::Set(d, static_cast<T>(0.86602540378443864676L)), h = hn::Set(d, static_cast<T>(0.5)), n = hn::Neg(c);
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) butterfly_4(x[j], x[j + 3], x[j + 6], x[j + 9]);
    x[4] = times(x[4], c, hn::Neg(h));
    x[5] = times(x[5], h, n);
    x[7] = times(x[7], h, n);
    x[8] = times(x[8], hn::Neg(h), n);
    x[10] = {x[10].im, hn::Neg(x[10].re)};
    x[11] = {hn::Neg(x[11].re), hn::Neg(x[11].im)};
    complex_vector y[12];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      butterfly_3(x[3 * k], x[3 * k + 1], x[3 * k + 2]);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) y[k + 4 * i] = x[3 * k + i];
    }
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) x[k] = y[k];
  } else if constexpr (R == 16) {
    // Columns of a 4 × 4 matrix, factors e^{−2πi jk/16}, rows.
    const D d;
    const V c = hn::Set(d, static_cast<T>(0.92387953251128675613L)), s = hn::Set(d, static_cast<T>(0.38268343236508977173L));
    const V h = hn::Set(d, static_cast<T>(0.70710678118654752440L)), n = hn::Neg(h);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) butterfly_4(x[j], x[j + 4], x[j + 8], x[j + 12]);
    x[5] = times(x[5], c, hn::Neg(s));
    x[6] = {hn::Mul(h, hn::Add(x[6].re, x[6].im)), hn::Mul(h, hn::Sub(x[6].im, x[6].re))};
    x[7] = times(x[7], s, hn::Neg(c));
    x[9] = {hn::Mul(h, hn::Add(x[9].re, x[9].im)), hn::Mul(h, hn::Sub(x[9].im, x[9].re))};
    x[10] = {x[10].im, hn::Neg(x[10].re)};
    x[11] = {hn::Mul(h, hn::Sub(x[11].im, x[11].re)), hn::Mul(n, hn::Add(x[11].re, x[11].im))};
    x[13] = times(x[13], s, hn::Neg(c));
    x[14] = {hn::Mul(h, hn::Sub(x[14].im, x[14].re)), hn::Mul(n, hn::Add(x[14].re, x[14].im))};
    x[15] = times(x[15], hn::Neg(c), s);
    complex_vector y[16];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      butterfly_4(x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) y[k + 4 * i] = x[4 * k + i];
    }
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) x[k] = y[k];
  } else {
    static_assert(R == 8);
    const D d;
    butterfly_4(x[0], x[2], x[4], x[6]);
    butterfly_4(x[1], x[3], x[5], x[7]);
    // The odd half times e^{−2πi k/8}: k = 1: (1 − i)/√2, 2: −i, 3: −(1 + i)/√2.
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

// Swapped is known at compile time, so that NEON loads and stores the two halves of a row by one instruction.
template <int R, bool Twiddle, bool Swapped>
HWY_INLINE void even_stage(const T* HWY_RESTRICT x, T* HWY_RESTRICT y, std::int64_t n, std::int64_t s, std::int64_t tiles,
                           const T* HWY_RESTRICT twiddles, read_ahead& ahead) {
  const D d;
  constexpr std::int64_t re = Swapped ? W : 0, im = W - re;
  const std::int64_t m = n / (s * R);
  const std::int64_t from_step = s * m * k_row;
  const std::int64_t to_step = s * k_row;
  for (std::int64_t i = 0; i < m; ++i) {
    const T* HWY_RESTRICT w = twiddles + 2 * (R - 1) * i;
    // A short line has a butterfly or a few of them for each i, so what begins an i is done for all tiles.
    for (std::int64_t t = 0; t < tiles; ++t) {
      const T* from = x + (t * n + s * i) * k_row;
      T* to = y + (t * n + s * R * i) * k_row;
      for (std::int64_t q = 0; q < s; ++q, from += k_row, to += k_row) {
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
}

template <int R>
void even_stage_of(const T* x, T* y, std::int64_t n, std::int64_t s, std::int64_t tiles, const T* twiddles, bool swapped,
                   read_ahead& ahead) {
  if (twiddles != nullptr)
    return swapped ? even_stage<R, true, true>(x, y, n, s, tiles, twiddles, ahead)
                   : even_stage<R, true, false>(x, y, n, s, tiles, twiddles, ahead);
  return swapped ? even_stage<R, false, true>(x, y, n, s, tiles, twiddles, ahead)
                 : even_stage<R, false, false>(x, y, n, s, tiles, twiddles, ahead);
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
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  switch (radix) {
    case 2: return even_stage_of<2>(x, y, n, s, tiles, twiddles, swapped, ahead);
    case 4: return even_stage_of<4>(x, y, n, s, tiles, twiddles, swapped, ahead);
    case 8: return even_stage_of<8>(x, y, n, s, tiles, twiddles, swapped, ahead);
    default: break;
  }
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

void twiddle_rows(const T* x, T* y, std::int64_t rows, const T* coarse, const T* fine, bool conjugate, bool swapped, int used, T* seals) {
  const D d;
  const std::int64_t re = swapped ? W : 0;
  const std::int64_t im = W - re;
  for (std::int64_t group = 0; group < rows; group += W) {
    const std::int64_t end = HWY_MIN(rows, group + W);
    word_vector seal = hn::Zero(words());
    for (std::int64_t j = group; j < end; ++j) {
      const complex_vector near = {hn::Load(d, fine + j * k_row), hn::Load(d, fine + j * k_row + W)};
      complex_vector w = times(near, hn::Set(d, coarse[2 * j]), hn::Set(d, coarse[2 * j + 1]));
      if (conjugate) w.im = hn::Neg(w.im);
      const complex_vector v = {hn::Load(d, x + j * k_row + re), hn::Load(d, x + j * k_row + im)};
      const complex_vector z = times(v, w.re, w.im);
      hn::Store(z.re, d, y + j * k_row + re);
      hn::Store(z.im, d, y + j * k_row + im);
      if (seals != nullptr) seal = seal_next(seal, swapped ? complex_vector{z.im, z.re} : z);
    }
    if (seals != nullptr) store_seal(seal, end - group, used, seals + group / W);
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
