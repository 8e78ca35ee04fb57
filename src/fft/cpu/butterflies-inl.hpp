// Butterflies: transforms of a few numbers in registers, with constants of the code.
// Layer: backend "cpu".
// Source: radix-2, 4 and 8 butterflies after J. Cooley, J. Tukey, 1965; odd ones by symmetric pairs.
#include <utility>

#include "fft/cpu/kernels.hpp"
#include "fft/cpu/vectors-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_BUTTERFLIES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_BUTTERFLIES_INL
#else
#define BALLAST_FFT_BUTTERFLIES_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Butterflies take complex_vector or packed_vector.
template <class Z>
HWY_INLINE void butterfly_4(Z& a, Z& b, Z& c, Z& e) {
  const Z s0 = a + c, s1 = b + e, d0 = a - c, d1 = b - e;
  a = s0 + s1;
  c = s0 - s1;
  b = minus_i(d0, d1);
  e = plus_i(d0, d1);
}

template <class Z>
HWY_INLINE void butterfly_3(Z& a, Z& b, Z& c) {
  const Z sum = b + c;
  const Z A = add_product(static_cast<T>(-0.5), sum, a);
  const Z B = times(static_cast<T>(0.86602540378443864676L), b - c);
  a = a + sum;
  b = minus_i(A, B);
  c = plus_i(A, B);
}

// cos(2πk/P) and sin(2πk/P), 1 ≤ k < P/2.
template <int P>
struct roots_of_unity;
template <>
struct roots_of_unity<5> {
  static constexpr long double cosine[] = {0.30901699437494742410L, -0.80901699437494742410L};
  static constexpr long double sine[] = {0.95105651629515357212L, 0.58778525229247312917L};
};
template <>
struct roots_of_unity<7> {
  static constexpr long double cosine[] = {0.62348980185873353053L, -0.22252093395631440429L, -0.90096886790241912624L};
  static constexpr long double sine[] = {0.78183148246802980871L, 0.97492791218182360703L, 0.43388373911755812048L};
};
template <>
struct roots_of_unity<6> {
  static constexpr long double cosine[] = {0.50000000000000000000L, -0.50000000000000000000L};
  static constexpr long double sine[] = {0.86602540378443864676L, 0.86602540378443864676L};
};
template <>
struct roots_of_unity<9> {
  static constexpr long double cosine[] = {0.76604444311897803520L, 0.17364817766693034885L, -0.50000000000000000000L,
                                           -0.93969262078590838405L};
  static constexpr long double sine[] = {0.64278760968653932632L, 0.98480775301220805937L, 0.86602540378443864676L,
                                         0.34202014332566873304L};
};
template <>
struct roots_of_unity<10> {
  static constexpr long double cosine[] = {0.80901699437494742410L, 0.30901699437494742410L, -0.30901699437494742410L,
                                           -0.80901699437494742410L};
  static constexpr long double sine[] = {0.58778525229247312917L, 0.95105651629515357212L, 0.95105651629515357212L,
                                         0.58778525229247312917L};
};
template <>
struct roots_of_unity<12> {
  static constexpr long double cosine[] = {0.86602540378443864676L, 0.50000000000000000000L, 2.0670321098263988236e-43L,
                                           -0.50000000000000000000L, -0.86602540378443864676L};
  static constexpr long double sine[] = {0.50000000000000000000L, 0.86602540378443864676L, 1.0000000000000000000L, 0.86602540378443864676L,
                                         0.50000000000000000000L};
};

// Returns z e^{−2πi J/N}.
template <int J, int N, class Z>
HWY_INLINE Z turned(const Z& z) {
  if constexpr (J == 0) {
    return z;
  } else if constexpr (4 * J == N) {
    return times_minus_i(z);
  } else if constexpr (2 * J == N) {
    return times(T(-1), z);
  } else {
    using roots = roots_of_unity<N>;
    constexpr int i = 2 * J < N ? J - 1 : N - J - 1;
    return times(z, static_cast<T>(roots::cosine[i]), static_cast<T>(2 * J < N ? -roots::sine[i] : roots::sine[i]));
  }
}

// A prime P by the definition, as odd_stage.
template <int P, class Z>
HWY_INLINE void butterfly_of_prime(Z* x) {
  using roots = roots_of_unity<P>;
  constexpr int k_half = P / 2;
  Z sum[k_half], difference[k_half];
#pragma GCC unroll 4
  for (int j = 0; j < k_half; ++j) {
    sum[j] = x[j + 1] + x[P - 1 - j];
    difference[j] = x[j + 1] - x[P - 1 - j];
  }
  const Z x0 = x[0];
#pragma GCC unroll 4
  for (int j = 0; j < k_half; ++j) x[0] = x[0] + sum[j];
#pragma GCC unroll 4
  for (int k = 1; k <= k_half; ++k) {
    Z A = x0, B;
#pragma GCC unroll 4
    for (int j = 0; j < k_half; ++j) {
      const int turn = (j + 1) * k % P, i = (turn <= k_half ? turn : P - turn) - 1;
      const auto sine = static_cast<T>(turn <= k_half ? roots::sine[i] : -roots::sine[i]);
      A = add_product(static_cast<T>(roots::cosine[i]), sum[j], A);
      B = j == 0 ? times(sine, difference[j]) : add_product(sine, difference[j], B);
    }
    x[k] = minus_i(A, B);
    x[P - k] = plus_i(A, B);
  }
}

template <int R, class Z>
HWY_INLINE void butterfly(Z* x);

// Coprime factors A and B without twiddle factors: input number aB + bA, output number k with k mod A and k mod B.
// Source: I. J. Good, The interaction algorithm and practical Fourier analysis, 1958.
template <int A, int B, class Z>
HWY_INLINE void butterfly_of_coprime(Z* x) {
  // Which inputs the B transforms of A points take, one transform after the other, and which outputs the A transforms of B points give.
  struct orders {
    int in[A * B] = {}, out[A * B] = {};
    constexpr orders() {
      for (int a = 0; a < A; ++a) {
        for (int b = 0; b < B; ++b) in[b * A + a] = (a * B + b * A) % (A * B);
      }
      for (int k = 0; k < A * B; ++k) out[k % A * B + k % B] = k;
    }
  };
  static constexpr orders k_orders;
  Z y[A * B];
#pragma GCC unroll 20
  for (int i = 0; i < A * B; ++i) y[i] = x[k_orders.in[i]];
#pragma GCC unroll 9
  for (int b = 0; b < B; ++b) butterfly<A>(y + b * A);
#pragma GCC unroll 9
  for (int a = 0; a < A; ++a) {
    Z z[B];
#pragma GCC unroll 9
    for (int b = 0; b < B; ++b) z[b] = y[b * A + a];
    butterfly<B>(z);
#pragma GCC unroll 9
    for (int b = 0; b < B; ++b) x[k_orders.out[a * B + b]] = z[b];
  }
}

// Columns of a 4 × 4 matrix, factors e^{−2πi jk/16}, rows. Calls load(j) and store(k, z) for each number once: a column is loaded when it
// is computed, since 16 numbers take all registers.
template <class Z, class Load, class Store>
HWY_INLINE void butterfly_16(const Load& load, const Store& store) {
  constexpr auto h = static_cast<T>(0.70710678118654752440L);
  constexpr auto c = static_cast<T>(0.92387953251128675613L), s = static_cast<T>(0.38268343236508977173L);
  Z x[16];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) x[j + 4 * i] = load(j + 4 * i);
    butterfly_4(x[j], x[j + 4], x[j + 8], x[j + 12]);
    if (j == 1) {
      x[5] = times(x[5], c, -s);
      x[9] = times(h, minus_i(x[9], x[9]));
      x[13] = times(x[13], s, -c);
    } else if (j == 2) {
      x[6] = times(h, minus_i(x[6], x[6]));
      x[10] = times_minus_i(x[10]);
      x[14] = times(-h, plus_i(x[14], x[14]));
    } else if (j == 3) {
      x[7] = times(x[7], s, -c);
      x[11] = times(-h, plus_i(x[11], x[11]));
      x[15] = times(x[15], -c, s);
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    butterfly_4(x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(k + 4 * i, x[4 * k + i]);
  }
}

template <int R, class Z>
HWY_INLINE void butterfly(Z* x) {
  [[maybe_unused]] constexpr auto h = static_cast<T>(0.70710678118654752440L);
  if constexpr (R == 2) {
    const Z a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (R == 3) {
    butterfly_3(x[0], x[1], x[2]);
  } else if constexpr (R == 4) {
    butterfly_4(x[0], x[1], x[2], x[3]);
  } else if constexpr (R == 5 || R == 7) {
    butterfly_of_prime<R>(x);
  } else if constexpr (R == 6) {
    butterfly_of_coprime<2, 3>(x);
  } else if constexpr (R == 10) {
    butterfly_of_coprime<2, 5>(x);
  } else if constexpr (R == 14) {
    butterfly_of_coprime<2, 7>(x);
  } else if constexpr (R == 15) {
    butterfly_of_coprime<3, 5>(x);
  } else if constexpr (R == 18) {
    butterfly_of_coprime<2, 9>(x);
  } else if constexpr (R == 20) {
    butterfly_of_coprime<4, 5>(x);
  } else if constexpr (R == 9) {
    // Columns of a 3 × 3 matrix, factors e^{−2πi jk/9}, rows.
    constexpr auto c1 = static_cast<T>(0.76604444311897803520L), s1 = static_cast<T>(0.64278760968653932632L);
    constexpr auto c2 = static_cast<T>(0.17364817766693034885L), s2 = static_cast<T>(0.98480775301220805937L);
    constexpr auto c4 = static_cast<T>(-0.93969262078590838405L), s4 = static_cast<T>(0.34202014332566873304L);
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) butterfly_3(x[j], x[j + 3], x[j + 6]);
    x[4] = times(x[4], c1, -s1);
    x[5] = times(x[5], c2, -s2);
    x[7] = times(x[7], c2, -s2);
    x[8] = times(x[8], c4, -s4);
    Z y[9];
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) {
      butterfly_3(x[3 * k], x[3 * k + 1], x[3 * k + 2]);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) y[k + 3 * i] = x[3 * k + i];
    }
#pragma GCC unroll 9
    for (int k = 0; k < 9; ++k) x[k] = y[k];
  } else if constexpr (R == 12) {
    // Columns of a 4 × 3 matrix, factors e^{−2πi jk/12}, rows.
    constexpr auto c = static_cast<T>(0.86602540378443864676L), s = static_cast<T>(0.5);
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) butterfly_4(x[j], x[j + 3], x[j + 6], x[j + 9]);
    x[4] = times(x[4], c, -s);
    x[5] = times(x[5], s, -c);
    x[7] = times(x[7], s, -c);
    x[8] = times(x[8], -s, -c);
    x[10] = times_minus_i(x[10]);
    x[11] = times(T(-1), x[11]);
    Z y[12];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      butterfly_3(x[3 * k], x[3 * k + 1], x[3 * k + 2]);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) y[k + 4 * i] = x[3 * k + i];
    }
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) x[k] = y[k];
  } else if constexpr (R == 16) {
    Z y[16];
    butterfly_16<Z>([&](int j) HWY_ATTR { return x[j]; }, [&](int k, const Z& z) HWY_ATTR { y[k] = z; });
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) x[k] = y[k];
  } else {
    static_assert(R == 8);
    butterfly_4(x[0], x[2], x[4], x[6]);
    butterfly_4(x[1], x[3], x[5], x[7]);
    // The odd half times e^{−2πi k/8}: k = 1: (1 − i)/√2, 2: −i, 3: −(1 + i)/√2.
    const Z e0 = x[0], e1 = x[2], e2 = x[4], e3 = x[6], o0 = x[1], o2 = x[5];
    const Z o1 = times(h, minus_i(x[3], x[3])), o3 = times(h, plus_i(x[7], x[7]));  // o3: negated
    x[0] = e0 + o0;
    x[4] = e0 - o0;
    x[1] = e1 + o1;
    x[5] = e1 - o1;
    x[2] = minus_i(e2, o2);
    x[6] = plus_i(e2, o2);
    x[3] = e3 - o3;
    x[7] = e3 + o3;
  }
}

// Columns of an A × B matrix, factors e^{−2πi jk/AB}, rows, in the order of the prime factors: those of A, then those of B.
template <int A, int B, class Load, class Store>
HWY_INLINE void butterfly_of_product(const Load& load, const Store& store) {
  complex_vector x[A * B];
  const auto column = [&]<int J, int... K>(std::integer_sequence<int, K...>) HWY_ATTR {
    complex_vector c[A] = {load(J + B * K)...};
    butterfly<A>(c);
    ((x[K * B + J] = turned<J * K, A * B>(c[K])), ...);
  };
  [&]<int... J>(std::integer_sequence<int, J...>) HWY_ATTR { (column.template operator()<J>(std::make_integer_sequence<int, A>()), ...); }
  (std::make_integer_sequence<int, B>());
#pragma GCC unroll 4
  for (int k = 0; k < A; ++k) {
    butterfly<B>(x + k * B);
#pragma GCC unroll 5
    for (int i = 0; i < B; ++i) store(k + A * i, x[k * B + i]);
  }
}

// Calls load(j) for each number of a butterfly and store(k, z) for each result.
template <int R, class Load, class Store>
HWY_INLINE void each_of_butterfly(const Load& load, const Store& store) {
  if constexpr (R == 16) {
    butterfly_16<complex_vector>(load, store);
  } else if constexpr (R % 3 == 0 && R > 3) {
    butterfly_of_product<R / 3, 3>(load, store);
  } else if constexpr (R == 10) {
    butterfly_of_product<2, 5>(load, store);
  } else {
    complex_vector v[R];
#pragma GCC unroll 8
    for (int j = 0; j < R; ++j) v[j] = load(j);
    butterfly<R>(v);
#pragma GCC unroll 8
    for (int k = 0; k < R; ++k) store(k, v[k]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
