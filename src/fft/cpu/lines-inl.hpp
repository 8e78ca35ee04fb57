// The steps between two real signals of odd length and the complex line that has them as its real and its imaginary parts, along a signal
// in memory. kernels.hpp describes them. Layer: backend "cpu".
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/pairs-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_LINES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_LINES_INL
#else
#define BALLAST_FFT_LINES_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Takes the results of a step and stores them.
struct line_writer {
  HWY_INLINE void complex(const complex_vector& v, T* to) {
    V low, high;
    interleave(v, low, high);
    reals(low, to);
    reals(high, to + W);
  }
  HWY_INLINE void reals(V v, T* to) { hn::StoreU(v, D(), to); }
  HWY_INLINE void scalar(T x, T* to) { *to = x; }
};

// Takes the results of a step and compares them with those in memory.
struct line_comparer {
  bit_comparison by;
  bool same_rest = true;

  HWY_INLINE line_comparer() {}
  HWY_INLINE void complex(const complex_vector& v, const T* from) {
    V low, high;
    interleave(v, low, high);
    reals(low, from);
    reals(high, from + W);
  }
  HWY_INLINE void reals(V computed, const T* from) { by.vectors(computed, hn::LoadU(D(), from)); }
  HWY_INLINE void scalar(T computed, const T* from) {
    const T found = *from;
    if (!(computed != computed && found != found))
      same_rest = same_rest && std::bit_cast<word_of<T>>(computed) == std::bit_cast<word_of<T>>(found);
  }
};

// Returns W complex numbers from memory.
HWY_INLINE complex_vector load_complex(const T* from) {
  const D d;
  return deinterleave(hn::LoadU(d, from), hn::LoadU(d, from + W));
}

HWY_INLINE complex_vector reversed(const complex_vector& v) {
  const D d;
  return {hn::Reverse(d, v.re), hn::Reverse(d, v.im)};
}

// z_j = (f a_j, g b_j).
template <class Results>
HWY_INLINE void pack_line(const line_call<T>& of, Results& to) {
  const D d;
  const V f = hn::Set(d, of.scale[0]), g = hn::Set(d, of.scale[1]);
  const bool two = of.from[1] != nullptr;
  std::int64_t j = 0;
  for (; j + W <= of.points; j += W) {
    const V a = hn::Mul(hn::LoadU(d, of.from[0] + j), f);
    const V b = two ? hn::Mul(hn::LoadU(d, of.from[1] + j), g) : hn::Zero(d);
    to.complex({a, b}, of.to[0] + 2 * j);
  }
  for (; j < of.points; ++j) {
    to.scalar(of.from[0][j] * of.scale[0], of.to[0] + 2 * j);
    to.scalar(two ? of.from[1][j] * of.scale[1] : T(0), of.to[0] + 2 * j + 1);
  }
}

// (a_j, b_j) = (f Re z_j, g Im z_j).
template <class Results>
HWY_INLINE void unpack_line(const line_call<T>& of, Results& to) {
  const D d;
  const V f = hn::Set(d, of.scale[0]), g = hn::Set(d, of.scale[1]);
  const bool two = of.to[1] != nullptr;
  std::int64_t j = 0;
  for (; j + W <= of.points; j += W) {
    const complex_vector z = load_complex(of.from[0] + 2 * j);
    to.reals(hn::Mul(z.re, f), of.to[0] + j);
    if (two) to.reals(hn::Mul(z.im, g), of.to[1] + j);
  }
  for (; j < of.points; ++j) {
    to.scalar(of.from[0][2 * j] * of.scale[0], of.to[0] + j);
    if (two) to.scalar(of.from[0][2 * j + 1] * of.scale[1], of.to[1] + j);
  }
}

// A_k = f (Z_k + conj Z_{n−k})/2, B_k = g (Z_k − conj Z_{n−k})/2i. Without B: A_k = f Z_k.
template <class Results>
HWY_INLINE void split_line_pair(const line_call<T>& of, Results& to) {
  const D d;
  const std::int64_t n = of.points, half = n / 2;
  const bool two = of.to[1] != nullptr;
  const T size = two ? T(0.5) : T(1);
  const T fs = of.scale[0] * size, gs = of.scale[1] * size;
  const V f = hn::Set(d, fs), g = hn::Set(d, gs);
  const T* const z = of.from[0];
  to.scalar(z[0] * of.scale[0], of.to[0]);
  to.scalar(T(0), of.to[0] + 1);
  if (two) {
    to.scalar(z[1] * of.scale[1], of.to[1]);
    to.scalar(T(0), of.to[1] + 1);
  }
  std::int64_t k = 1;
  for (; k + W <= half + 1; k += W) {
    const complex_vector p = load_complex(z + 2 * k);
    if (!two) {
      to.complex({hn::Mul(p.re, f), hn::Mul(p.im, f)}, of.to[0] + 2 * k);
      continue;
    }
    const complex_vector q = load_reversed(z + 2 * (n - k - W + 1));
    to.complex({hn::Mul(hn::Add(p.re, q.re), f), hn::Mul(hn::Sub(p.im, q.im), f)}, of.to[0] + 2 * k);
    to.complex({hn::Mul(hn::Add(p.im, q.im), g), hn::Mul(hn::Sub(q.re, p.re), g)}, of.to[1] + 2 * k);
  }
  for (; k <= half; ++k) {
    const T* const p = z + 2 * k;
    const T* const q = z + 2 * (n - k);
    to.scalar((two ? p[0] + q[0] : p[0]) * fs, of.to[0] + 2 * k);
    to.scalar((two ? p[1] - q[1] : p[1]) * fs, of.to[0] + 2 * k + 1);
    if (!two) continue;
    to.scalar((p[1] + q[1]) * gs, of.to[1] + 2 * k);
    to.scalar((q[0] - p[0]) * gs, of.to[1] + 2 * k + 1);
  }
}

// Z_k = f A_k + i g B_k, Z_{n−k} = conj(f A_k) + i conj(g B_k). Imaginary parts of A_0 and B_0 are ignored. The scales are powers of two
// that make nothing smaller, so it does not matter whether a compiler joins their products with the sums.
template <class Results>
HWY_INLINE void join_line_pair(const line_call<T>& of, Results& to) {
  const D d;
  const std::int64_t n = of.points, half = n / 2;
  const bool two = of.from[1] != nullptr;
  const V f = hn::Set(d, of.scale[0]), g = hn::Set(d, of.scale[1]);
  T* const z = of.to[0];
  to.scalar(of.from[0][0] * of.scale[0], z);
  to.scalar(two ? of.from[1][0] * of.scale[1] : T(0), z + 1);
  std::int64_t k = 1;
  for (; k + W <= half + 1; k += W) {
    complex_vector a = load_complex(of.from[0] + 2 * k);
    a = {hn::Mul(a.re, f), hn::Mul(a.im, f)};
    complex_vector low = a, high = conjugate(a);
    if (two) {
      complex_vector b = load_complex(of.from[1] + 2 * k);
      b = {hn::Mul(b.re, g), hn::Mul(b.im, g)};
      low = {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
      high = {hn::Add(a.re, b.im), hn::Sub(b.re, a.im)};
    }
    to.complex(low, z + 2 * k);
    to.complex(reversed(high), z + 2 * (n - k - W + 1));
  }
  for (; k <= half; ++k) {
    const T ar = of.from[0][2 * k] * of.scale[0], ai = of.from[0][2 * k + 1] * of.scale[0];
    const T br = two ? of.from[1][2 * k] * of.scale[1] : T(0), bi = two ? of.from[1][2 * k + 1] * of.scale[1] : T(0);
    to.scalar(two ? ar - bi : ar, z + 2 * k);
    to.scalar(two ? ai + br : ai, z + 2 * k + 1);
    to.scalar(two ? ar + bi : ar, z + 2 * (n - k));
    to.scalar(two ? br - ai : -ai, z + 2 * (n - k) + 1);
  }
}

template <class Results>
HWY_INLINE void run_line_step(const line_call<T>& of, Results& to) {
  switch (of.step) {
    case line_step::pack: return pack_line(of, to);
    case line_step::unpack: return unpack_line(of, to);
    case line_step::split: return split_line_pair(of, to);
    case line_step::join: return join_line_pair(of, to);
  }
}

void make_lines(const line_call<T>& of) {
  line_writer to;
  run_line_step(of, to);
}

bool same_lines(const line_call<T>& of) {
  line_comparer to;
  read_again();
  run_line_step(of, to);
  return to.by.same() && to.same_rest;
}

signal_size<T> measure(const T* x, std::int64_t scalars) {
  const D d;
  V largest = hn::Zero(d), squares = largest, special = largest;
  std::int64_t i = 0;
  for (; i + W <= scalars; i += W) {
    const V v = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    squares = hn::MulAdd(v, v, squares);
    special = hn::MulAdd(v, hn::Zero(d), special);  // Inf and NaN make it NaN
  }
  signal_size<T> made;
  HWY_ALIGN T lanes[3][W];
  hn::Store(largest, d, lanes[0]);
  hn::Store(squares, d, lanes[1]);
  hn::Store(special, d, lanes[2]);
  T rest = 0;
  for (int l = 0; l < W; ++l) {
    made.largest = HWY_MAX(made.largest, lanes[0][l]);
    made.squares += lanes[1][l];
    rest += lanes[2][l];
  }
  for (; i < scalars; ++i) {
    made.largest = HWY_MAX(made.largest, x[i] < 0 ? -x[i] : x[i]);
    made.squares += x[i] * x[i];
    rest += x[i] * T(0);
  }
  made.finite = rest == 0;
  return made;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
