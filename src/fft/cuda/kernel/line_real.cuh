// Transforms of real data: 2N reals are transformed as a line of N complex numbers. This file converts between the transform of that
// line and the spectrum of the reals.
// Layer: fft/cuda kernels; a part of line.cuh.
// Source: H. Sorensen, D. Jones, M. Heideman, C. Burrus, Real-valued fast Fourier transform algorithms, 1987.
#pragma once

#include "fft/cuda/kernel/line_factors.cuh"
#include "fft/cuda/policy/roots.hpp"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

template <line_policy P, class Injector>
struct line_real : line_factors<P, Injector> {
  using below = line_factors<P, Injector>;
  using below::a;
  using below::barrier;
  using below::constant;
  using below::forget;
  using below::k_last;
  using below::line_of;
  using below::outputs;
  using below::position_of;
  using below::rank;
  using below::shared;
  using below::strike_factor;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  // z: the transform of the line whose N elements are 2N reals in pairs. X_o, o ≤ N: the spectrum of the reals. With w = e^{−πi/N} and
  // z_N = z_0:
  //   X_o = (z_o + z*_{N−o}) / 2 + t (z_o − z*_{N−o}),  t = −i/2 · w^o
  //   2 z_o = X_o + X*_{N−o} + t (X_o − X*_{N−o}),      t = i w^{−o}   (inverse transforms need 2 z_o)
  // Inwards converts X to 2 z, otherwise z to X. `image` is element N − o.
  template <bool Inwards>
  static __device__ __forceinline__ number with_image(const number& z, const number& image, const number& t) {
    const number sum{z.re + image.re, z.im - image.im};
    const number difference{z.re - image.re, z.im + image.im};
    constexpr real part = Inwards ? real(1) : real(0.5);
    return multiply_add(t, difference, number{part * sum.re, part * sum.im});
  }

  // Converts the outputs from z to X. The mirror image of an output is in another thread. X_N is real like X_0, and is kept as the
  // imaginary part of X_0 until both are stored. The checksum of the outputs is computed from X (line_sums.cuh), so it covers this step.
  __device__ __forceinline__ void make_spectrum() {
    static_assert(!P.in_columns && !P.out_columns && !P.inverse && !P.truncated && P.target_unit && P.store_factor == factor_form::none);
    static_assert(P.cluster == 1 || P.target_run() % 2 == 0);
    constexpr int r = P.radix[k_last];
    forget();
    // Every output is written to the position of its mirror image, so that a thread finds the images of its outputs at its own positions.
    constexpr int apart = P.share() / r;
    const int first = line_of(false) * P.share();
    const int t = position_of(false);
    const auto send = [&](auto word, auto&& part) {
      auto* const to = reinterpret_cast<typename decltype(word)::type*>(shared) + first;
      unrolled<P.butterflies(k_last)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int i = t + q * P.threads;
        if (P.ragged(k_last) && i >= apart) return;
        to[P.image_position(i, rank())] = part(x[q * r]);
        // As the positions of later outputs go up, those of their images go down.
        auto* const next = to + P.image_position(i + apart, rank());
        unrolled<r - 1>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          next[-k * apart] = part(x[q * r + k + 1]);
        });
      });
      barrier();
    };
    number images[P.held()];
    const auto receive = [&](auto word, auto&& put) {
      const auto* const from = reinterpret_cast<const typename decltype(word)::type*>(shared) + first + t;
      outputs([&](auto at, int, auto q, auto k) {
        put(images[decltype(at)::value], from[decltype(q)::value * P.threads + decltype(k)::value * apart]);
      });
    };
    barrier();  // the results of the last exchange have been read
    if constexpr (P.split) {
      send(type_of<real>{}, [](const number& z) { return z.re; });
      receive(type_of<real>{}, [](number& z, real word) { z.re = word; });
      barrier();
      send(type_of<real>{}, [](const number& z) { return z.im; });
      receive(type_of<real>{}, [](number& z, real word) { z.im = word; });
    } else {
      send(type_of<number>{}, [](const number& z) { return z; });
      receive(type_of<number>{}, [](number& z, const number& word) { z = word; });
    }
    // Injection counts this step as one more stage.
    this->strike(index<2 * P.held()>{}, site::stage, this->a.first_stage + P.stages, this->a.stages, &images[0].re, this->lane(),
                 P.lanes());
    number own{};
    outputs([&](auto at, int o, auto q, auto ki) {
      constexpr int k = decltype(ki)::value;
      constexpr unit_root turn = root_of_unity(k, 2 * r);
      if constexpr (k == 0) {
        own = cached(static_cast<const number*>(this->a.store_table) + o);
        if constexpr (decltype(q)::value == 0) this->strike_factor(own);
      }
      number& z = this->x[decltype(at)::value];
      const number made = with_image<false>(z, images[decltype(at)::value], own * constant(turn));
      if constexpr (k == 0) {
        if (o == 0) {
          z = {z.re + z.im, z.re - z.im};
          return;
        }
      }
      z = made;
    });
  }
};

}  // namespace ballast::fft::cuda
