// The transform of a whole line of prime length p by the definition: its elements lie in shared memory, and each thread computes four pairs
// of outputs of one line.
// Layer: fft/cuda kernels; a part of line.cuh. policy/radices.hpp says which lengths; plan/tables.hpp has the table of factors.
//
// With even_k = x_k + x_{p−k} and odd_k = x_k − x_{p−k}, outputs m and p − m share two sums:
//   y_m = c + s, y_{p−m} = c − s, c = x_0 + Σ_{k ≤ p/2} even_k cos(2πmk/p), s = −i Σ_{k ≤ p/2} odd_k sin(2πmk/p): 2(p − 1) multiply-adds
// an output. Neighbouring threads have neighbouring lines and the same factors, so that a factor is one access for all of them. The sums
// are computed in parts of eight terms, which round less than one running sum.
// Around it the line is one of two stages of radix 1: the first one is encoded, the second one is summed (line_transform.cuh).
#pragma once

#include "cuda/block/vector.cuh"
#include "fft/cuda/kernel/line_exchange.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

template <line_policy P, class Injector>
struct line_definition : line_exchange<P, Injector> {
  using below = line_exchange<P, Injector>;
  using below::a;
  using below::barrier;
  using below::line_of;
  using below::position_of;
  using below::refill;
  using below::shared;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  // Calls body(element, z) for each element t, t + threads, … of this thread.
  template <class Body>
  __device__ __forceinline__ void each_held(int t, Body&& body) {
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(0) || t + q * P.threads < P.length) body(t + q * P.threads, this->x[q]);
    });
  }

  // Replaces the elements of the line by those of its transform.
  __device__ __forceinline__ void transform_by_definition() {
    constexpr int half = P.length / 2;
    constexpr int pairs = k_definition_pairs;
    constexpr int pitch = P.definition_pitch();
    constexpr int part = 8;  // terms of a partial sum
    number* const words = reinterpret_cast<number*>(shared);
    {
      number* const own = words + line_of(P.in_columns);
      each_held(position_of(P.in_columns), [&](int j, const number& z) { own[j * pitch] = z; });
    }
    barrier();
    refill();
    const int line = line_of(true);
    const int group = position_of(true);
    const number* const from = words + line;
    const number* const table = static_cast<const number*>(a.twiddles) + group * half * pairs;
    number c[pairs], s[pairs];
    unrolled<pairs>([&](auto i) {
      c[decltype(i)::value] = from[0];
      s[decltype(i)::value] = {real(0), real(0)};
    });
    const auto add_part = [&](int first, auto terms) {
      const number* const low_end = from + first * pitch;
      const number* const high_end = from + (P.length - first) * pitch;
      number some_c[pairs] = {}, some_s[pairs] = {};
      unrolled<decltype(terms)::value>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        const number low = low_end[k * pitch], high = high_end[-k * pitch];
        const number even = low + high, odd = low - high;
        number w[pairs];
        unrolled<pairs / 2>([&](auto i) {
          constexpr int at = 2 * decltype(i)::value;
          const complex_pair<real> both = cached_pair(reinterpret_cast<const real*>(table + (first + k - 1) * pairs + at));
          w[at] = both.first;
          w[at + 1] = both.second;
        });
        if constexpr (k == 0)
          this->strike(index<2 * pairs>{}, site::twiddle, this->a.first_twiddle, this->a.twiddle_steps, &w[0].re, this->lane(), P.lanes());
        unrolled<pairs>([&](auto ii) {
          constexpr int i = decltype(ii)::value;
          some_c[i] = {multiply_add(w[i].re, even.re, some_c[i].re), multiply_add(w[i].re, even.im, some_c[i].im)};
          some_s[i] = {multiply_add(-w[i].im, odd.im, some_s[i].re), multiply_add(w[i].im, odd.re, some_s[i].im)};
        });
      });
      unrolled<pairs>([&](auto ii) {
        constexpr int i = decltype(ii)::value;
        c[i] = c[i] + some_c[i];
        s[i] = s[i] + some_s[i];
      });
    };
#pragma unroll 1
    for (int first = 1; first + part <= half + 1; first += part) add_part(first, index<part>{});
    if constexpr (half % part != 0) add_part(half / part * part + 1, index<half % part>{});
    barrier();  // all elements have been read
    number* const to = words + line;
    unrolled<pairs>([&](auto ii) {
      constexpr int i = decltype(ii)::value;
      const int m = group * pairs + i;
      if (m == 0) {
        to[0] = c[i];
      } else if (m <= half) {
        to[m * pitch] = c[i] + s[i];
        to[(P.length - m) * pitch] = c[i] - s[i];
      }
    });
    barrier();
    const number* const own = words + line_of(P.out_columns);
    each_held(position_of(P.out_columns), [&](int j, number& z) { z = own[j * pitch]; });
  }
};

}  // namespace ballast::fft::cuda
