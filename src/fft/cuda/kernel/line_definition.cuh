// Transforms of a large prime number of points by the definition, in shared memory: each thread computes four pairs of outputs.
// Layer: fft/cuda kernels; a part of line.cuh. policy/radices.hpp says which lengths; plan/tables.hpp has the table of factors.
//
// A line has r · p elements, p a prime: a first stage of radix r, whose result k of butterfly j < p is multiplied by w_{rp}^{jk} and
// becomes element j of transform k, r transforms of p points, and a last stage of radix 1 for output m of transform k as output k + rm of
// the line.
// With even_i = x_i + x_{p−i} and odd_i = x_i − x_{p−i}, outputs m and p − m share two sums:
//   y_m = c + s, y_{p−m} = c − s, c = x_0 + Σ_{i ≤ p/2} even_i cos(2πmi/p), s = −i Σ_{i ≤ p/2} odd_i sin(2πmi/p): 2(p − 1) multiply-adds
// an output. Neighbouring threads have neighbouring lines and the same factors, so that a factor is one access for all of them. The sums
// are computed in parts, which round less than one running sum.
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

  // Replaces the results of the first stage by the outputs of the line.
  __device__ __forceinline__ void transform_by_definition() {
    constexpr int r = P.radix[0];
    constexpr int points = P.definition_points();
    constexpr int half = points / 2;
    constexpr int groups = P.definition_groups();
    constexpr int pairs = k_definition_pairs;
    constexpr int pitch = P.definition_pitch();
    constexpr int part = 4;  // terms of a partial sum
    number* const words = reinterpret_cast<number*>(shared);
    {
      // Element j of transform k lies at k · points + j.
      number* const own = words + line_of(P.in_columns);
      const int t = position_of(P.in_columns);
      const number* const factors = static_cast<const number*>(a.twiddles) + groups * half * pairs;
      unrolled<P.butterflies(0)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int j = t + q * P.threads;
        if (P.ragged(0) && j >= points) return;
        own[j * pitch] = x[q * r];
        unrolled<r - 1>([&](auto ki) {
          constexpr int k = decltype(ki)::value + 1;
          own[(k * points + j) * pitch] = x[q * r + k] * cached(factors + (k - 1) * points + j);
        });
      });
    }
    barrier();
    refill();
    const int line = line_of(true);
    const int group = position_of(true) % groups, which = position_of(true) / groups;
    const number* const from = words + which * points * pitch + line;
    const number* const table = static_cast<const number*>(a.twiddles) + group * half * pairs;
    number c[pairs], s[pairs];
    unrolled<pairs>([&](auto i) {
      c[decltype(i)::value] = from[0];
      s[decltype(i)::value] = {real(0), real(0)};
    });
    const auto add_part = [&](int first, auto terms) {
      const number* const low_end = from + first * pitch;
      const number* const high_end = from + (points - first) * pitch;
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
          this->strike(index<1>{}, site::twiddle, this->a.first_twiddle, this->a.twiddle_steps, &w[0].re, this->lane(), P.lanes());
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
    number* const to = words + which * pitch + line;
    unrolled<pairs>([&](auto ii) {
      constexpr int i = decltype(ii)::value;
      const int m = group * pairs + i;
      if (m == 0) {
        to[0] = c[i];
      } else if (m <= half) {
        to[m * (r * pitch)] = c[i] + s[i];
        to[(points - m) * (r * pitch)] = c[i] - s[i];
      }
    });
    barrier();
    const number* const own = words + line_of(P.out_columns);
    const int t = position_of(P.out_columns);
    unrolled<P.butterflies(1)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const int o = t + q * P.threads;
      if (!P.ragged(1) || o < P.length) x[q] = own[o * pitch];
    });
  }
};

}  // namespace ballast::fft::cuda
