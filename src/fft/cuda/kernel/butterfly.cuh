// Transforms of 2 to 32 complex numbers in registers, with all constants known at compile time. A prime radix uses its symmetric form. A
// composite radix uses transforms of its factors: split by Good and Thomas if the factors are coprime, otherwise by Cooley and Tukey.
// Layer: fft/cuda kernels.
// Source: C. Van Loan, Computational frameworks for the fast Fourier transform, 1992, sections 1.2 and 2.1; I. Good, The interaction
// algorithm and practical Fourier analysis, 1958.
#pragma once

#include "cuda/block/complex.cuh"
#include "cuda/block/unroll.cuh"
#include "fft/cuda/policy/roots.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::complex;
using ballast::cuda::conjugate;
using ballast::cuda::index;
using ballast::cuda::multiply_add;
using ballast::cuda::quarter_turns;
using ballast::cuda::type_of;
using ballast::cuda::unrolled;

// Returns x · e^{−2πi K/N}. Multiples of a quarter turn cost no multiplication.
template <int K, int N, class T>
__device__ __forceinline__ complex<T> rotated(const complex<T>& x) {
  constexpr int k = K % N;
  if constexpr (k == 0) {
    return x;
  } else if constexpr (4 * k == N) {
    return {x.im, -x.re};
  } else if constexpr (2 * k == N) {
    return {-x.re, -x.im};
  } else if constexpr (4 * k == 3 * N) {
    return {-x.im, x.re};
  } else if constexpr (8 * k == N) {
    constexpr T h = static_cast<T>(0.70710678118654752440);
    return {h * (x.re + x.im), h * (x.im - x.re)};
  } else if constexpr (8 * k == 3 * N) {
    constexpr T h = static_cast<T>(0.70710678118654752440);
    return {h * (x.im - x.re), -h * (x.re + x.im)};
  } else {
    constexpr unit_root w = root_of_unity(k, N);
    constexpr T re = static_cast<T>(w.re);
    constexpr T im = static_cast<T>(w.im);
    return {multiply_add(x.re, re, -(x.im * im)), multiply_add(x.re, im, x.im * re)};
  }
}

// Computes the forward transform of Radix numbers at x[0], x[Stride], …, in place and in natural order.
template <int Radix, int Stride = 1, class T>
__device__ __forceinline__ void butterfly(complex<T>* x) {
  if constexpr (Radix == 1) {
  } else if constexpr (Radix == 2) {
    const complex<T> a = x[0];
    x[0] = a + x[Stride];
    x[Stride] = a - x[Stride];
  } else if constexpr (Radix == 4) {
    const complex<T> a = x[0] + x[2 * Stride];
    const complex<T> b = x[0] - x[2 * Stride];
    const complex<T> c = x[Stride] + x[3 * Stride];
    const complex<T> d = x[Stride] - x[3 * Stride];
    x[0] = a + c;
    x[2 * Stride] = a - c;
    x[Stride] = {b.re + d.im, b.im - d.re};
    x[3 * Stride] = {b.re - d.im, b.im + d.re};
  } else if constexpr (smallest_factor(Radix) == Radix) {
    // Odd prime: y_m and y_{R−m} share the sums of x_k + x_{R−k} times cosines and of x_k − x_{R−k} times sines.
    constexpr int half = (Radix - 1) / 2;
    complex<T> even[half];
    complex<T> odd[half];
    complex<T> total = x[0];
    unrolled<half>([&](auto i) {
      constexpr int k = decltype(i)::value + 1;
      even[k - 1] = x[k * Stride] + x[(Radix - k) * Stride];
      odd[k - 1] = x[k * Stride] - x[(Radix - k) * Stride];
      total = total + even[k - 1];
    });
    const complex<T> first = x[0];
    x[0] = total;
    if constexpr (half == 1) {  // one rounding less
      constexpr unit_root w = root_of_unity(1, Radix);
      constexpr T re = static_cast<T>(w.re);
      constexpr T im = static_cast<T>(w.im);
      const complex<T> c = {multiply_add(re, even[0].re, first.re), multiply_add(re, even[0].im, first.im)};
      x[Stride] = {multiply_add(-im, odd[0].im, c.re), multiply_add(im, odd[0].re, c.im)};
      x[2 * Stride] = {multiply_add(im, odd[0].im, c.re), multiply_add(-im, odd[0].re, c.im)};
      return;
    }
    // Long sums are split into two partial sums, which round less than one running sum. For radix 11 in single precision the gain is small,
    // and the registers of the second part would spill.
    constexpr int part = half < (sizeof(T) == 8 ? 5 : 6) ? half : half / 2;
    unrolled<half>([&](auto i) {
      constexpr int m = decltype(i)::value + 1;
      complex<T> c = first;
      complex<T> s = {T(0), T(0)};
      complex<T> more_c = s;
      complex<T> more_s = s;
      unrolled<half>([&](auto j) {
        constexpr int k = decltype(j)::value + 1;
        constexpr unit_root w = root_of_unity(m * k, Radix);
        constexpr T re = static_cast<T>(w.re);
        constexpr T im = static_cast<T>(w.im);
        complex<T>& to_c = k <= part ? c : more_c;
        complex<T>& to_s = k <= part ? s : more_s;
        to_c = {multiply_add(re, even[k - 1].re, to_c.re), multiply_add(re, even[k - 1].im, to_c.im)};
        to_s = {multiply_add(-im, odd[k - 1].im, to_s.re), multiply_add(im, odd[k - 1].re, to_s.im)};
      });
      if constexpr (part < half) {
        c = c + more_c;
        s = s + more_s;
      }
      x[m * Stride] = c + s;
      x[(Radix - m) * Stride] = c - s;
    });
  } else if constexpr (coprime(inner_radix(Radix), Radix / inner_radix(Radix))) {
    constexpr int inner = inner_radix(Radix);
    constexpr int outer = Radix / inner;
    // x[outer·a + inner·b mod Radix]: transforms over a and over b without twiddle factors between them; result (p, q) is the number k with
    // remainders p and q.
    complex<T> grid[Radix];
    unrolled<Radix>([&](auto i) {
      constexpr int at = decltype(i)::value;
      grid[at] = x[(at / outer * outer + at % outer * inner) % Radix * Stride];
    });
    unrolled<outer>([&](auto b) { butterfly<inner, outer>(grid + decltype(b)::value); });
    unrolled<inner>([&](auto p) { butterfly<outer>(grid + outer * decltype(p)::value); });
    unrolled<Radix>([&](auto i) {
      constexpr int at = decltype(i)::value;
      x[index_of_remainders(at / outer, inner, at % outer, outer) * Stride] = grid[at];
    });
  } else {
    constexpr int inner = inner_radix(Radix);
    constexpr int outer = Radix / inner;
    // x[outer·a + b]: transforms over a, twiddle factors, transforms over b; result (p, q) belongs at p + inner·q and is stored at outer·p
    // + q.
    unrolled<outer>([&](auto b) {
      constexpr int at = decltype(b)::value;
      butterfly<inner, outer * Stride>(x + at * Stride);
    });
    unrolled<inner>([&](auto p) {
      constexpr int row = decltype(p)::value;
      unrolled<outer>([&](auto b) {
        constexpr int at = decltype(b)::value;
        x[(outer * row + at) * Stride] = rotated<row * at, Radix>(x[(outer * row + at) * Stride]);
      });
      butterfly<outer, Stride>(x + outer * row * Stride);
    });
    complex<T> sorted[Radix];
    unrolled<inner>([&](auto p) {
      unrolled<outer>([&](auto q) {
        constexpr int row = decltype(p)::value;
        constexpr int at = decltype(q)::value;
        sorted[row + inner * at] = x[(outer * row + at) * Stride];
      });
    });
    unrolled<Radix>([&](auto i) { x[decltype(i)::value * Stride] = sorted[decltype(i)::value]; });
  }
}

}  // namespace ballast::fft::cuda
