// A line of reals whose real-to-real transform is one pass: the reals become complex numbers in shared memory, whose transform becomes the
// results. Checked, aᵀy of the results that are stored is compared with bᵀx of another reading of the inputs, b = Lᵀa: so all steps, from
// the first load on, and all their tables are under one checksum.
// Layer: fft/cuda kernels; a part of line.cuh. plan/real_lines.hpp has the tables.
// Source: J. Makhoul, 1980 (II and III); Z. Wang, 1984 (IV); H. Sorensen et al., 1987 (pairs of reals).
//
// Thread t of a line has the reals t, t + threads, … at load and at store. Shared memory has the reals of the tile, then its complex
// numbers, at the beginning of the memory of the exchange: real i of a line at i · lines + line (columns), otherwise at 2 · pitch · line +
// i; complex numbers alike, with half the pitch. Barriers: before a thread reads what others have written there, and before others write
// over it.
#pragma once

#include <cstdint>

#include "cuda/block/vector.cuh"
#include "fft/cuda/kernel/line_transform.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

template <line_policy P, class Injector>
struct real_line : line_transform<P, Injector> {
  using below = line_transform<P, Injector>;
  using below::a;
  using below::barrier;
  using below::encoded;
  using below::forget;
  using below::k_encoded;
  using below::lane;
  using below::line_of;
  using below::outputs;
  using below::position_of;
  using below::shared;
  using below::square;
  using below::strike;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  static_assert(P.cluster == 1 && !P.staged && !P.inverse && P.in_columns == P.out_columns && P.store_factor == factor_form::none);
  static constexpr bool k_columns = P.in_columns;
  static constexpr bool k_halves = P.reals == reals_form::halves || P.reals == reals_form::third;
  static constexpr int k_held = P.reals_held();

  real results[k_held];

  __device__ __forceinline__ real& real_at(int i) const {
    const int line = line_of(k_columns);
    return reinterpret_cast<real*>(shared)[k_columns ? i * P.lines + line : line * 2 * P.real_pitch() + i];
  }
  __device__ __forceinline__ number& number_at(int i) const {
    const int line = line_of(k_columns);
    return reinterpret_cast<number*>(shared)[k_columns ? i * P.lines + line : line * P.real_pitch() + i];
  }
  // Reals 2i and 2i + 1 as a complex number.
  __device__ __forceinline__ number pair_at(int i) const {
    if constexpr (k_columns) return {real_at(2 * i), real_at(2 * i + 1)};
    return number_at(i);
  }

  // Calls body(i, t) for each real t of this thread; i counts them.
  template <class Body>
  __device__ __forceinline__ void each_real(Body&& body) const {
    const int t = position_of(k_columns);
    unrolled<k_held>([&](auto i) {
      constexpr int ahead = decltype(i)::value * P.threads;
      if (P.points % P.threads == 0 || t + ahead < P.points) body(i, t + ahead);
    });
  }

  // The order of II and III: even elements, then odd ones backwards.
  static __device__ __forceinline__ int folded(int t) { return (t & 1) == 0 ? t >> 1 : P.points - 1 - (t >> 1); }
  // The place in that order of this thread's real i, which is t.
  template <int I>
  __device__ __forceinline__ int folded(index<I>, int t) const {
    if constexpr (P.threads % 2 != 0) return folded(t);
    const int first = position_of(k_columns);
    constexpr int ahead = I * P.threads / 2;
    return folded(first) + ((first & 1) == 0 ? ahead : -ahead);
  }
  // Number i of the line of 2 · length reals whose first part is that of a dct1, or of a dst1.
  __device__ __forceinline__ real extended(int i) const {
    const int own = i > P.length ? 2 * P.length - i : i;
    if constexpr (!P.sines) return real_at(own);
    if (own == 0 || own == P.length) return real(0);
    const real value = real_at(own - 1);
    return i > P.length ? -value : value;
  }

  // Computes `value` before what follows, which the assembler would otherwise begin with more table entries than there are registers for.
  static __device__ __forceinline__ void finish_some(real value) {
    if constexpr (k_encoded || P.wide) arch::finish_first(value * value < real(0));
  }

  template <reading For>
  __device__ __forceinline__ real read(const typename below::source_position& here, int t) const {
    const std::int64_t element = P.source_unit ? 1 : a.source.element;
    return below::template load_element<For>(static_cast<const real*>(a.in) + (here.base + t * element));
  }

  // Computes bᵀx for both vectors and ‖x‖² from a second reading.
  __device__ __forceinline__ void encode() {
    forget();
    const auto here = this->source();
    for (real& each : encoded) each = 0;
    square = 0;
    each_real([&](auto, int t) {
      const real value = this->template read<reading::checksums>(here, t);
      const complex_pair<real> weight = cached_pair(static_cast<const real*>(this->a.encode) + 4 * t);
      this->square = multiply_add(value, value, this->square);
      this->encoded[0] = multiply_add(weight.first.re, value, this->encoded[0]);
      this->encoded[1] = multiply_add(weight.first.im, value, this->encoded[1]);
      this->encoded[2] = multiply_add(weight.second.re, value, this->encoded[2]);
      this->encoded[3] = multiply_add(weight.second.im, value, this->encoded[3]);
    });
    arch::finish_first(square < real(0));
  }

  // Complex number k of the line of `halves`: the conjugate of a sum of the reals whose part of the spectrum it has.
  __device__ __forceinline__ number from_spectrum(int k, bool first) const {
    const auto add = [](const number& factor, real value, const number& sum) {
      return number{multiply_add(factor.re, value, sum.re), multiply_add(factor.im, value, sum.im)};
    };
    const real* const table = static_cast<const real*>(a.load_table);
    const int own = P.real_pairs() || 2 * k <= P.points ? k : P.points - k;
    complex_pair<real> factor = cached_pair(table + (P.real_pairs() ? 8 : 4) * k);
    if (first) this->strike_factor(factor.first);
    number z = add(factor.first, real_at(own), number{real(0), real(0)});
    z = add(factor.second, real_at(k == 0 ? 0 : P.points - own), z);
    if constexpr (P.real_pairs()) {
      factor = cached_pair(table + 8 * k + 4);
      z = add(factor.first, real_at(P.length - k), z);
      z = add(factor.second, real_at(P.length + (k == 0 ? 0 : k)), z);
    }
    return z;
  }

  __device__ __forceinline__ number element(int j, bool first) const {
    if constexpr (P.reals == reals_form::first) {
      return {extended(2 * j), extended(2 * j + 1)};
    } else if constexpr (P.reals == reals_form::fourth) {
      number w = cached(static_cast<const number*>(a.load_table) + j);
      if (first) this->strike_factor(w);
      return number{real_at(2 * j), real_at(P.points - 1 - 2 * j)} * w;
    } else if constexpr (k_halves) {
      return from_spectrum(j, first);
    } else if constexpr (P.real_pairs()) {
      return pair_at(j);
    } else {
      return {real_at(j), real(0)};
    }
  }

  __device__ __forceinline__ void load() {
    forget();
    const auto here = this->source();
    real given[k_held] = {};
    if (here.inside) each_real([&](auto i, int t) { given[decltype(i)::value] = this->template read<reading::data>(here, t); });
    if constexpr (k_encoded) encode();
    strike(index<k_held>{}, site::input, a.pass, a.passes, given, lane(), P.lanes());
    each_real([&](auto i, int t) {
      const real value = given[decltype(i)::value];
      if constexpr (P.reals == reals_form::second) {
        this->real_at(this->folded(i, t)) = P.sines && (t & 1) != 0 ? -value : value;
      } else {
        this->real_at(P.sines && P.reals != reals_form::first ? P.points - 1 - t : t) = value;
      }
    });
    barrier();
    constexpr int r = P.radix[0];
    const int t = position_of(k_columns);
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(0) || t + q * P.threads < P.length / r) {
        unrolled<r>([&](auto mi) {
          constexpr int m = decltype(mi)::value;
          this->x[q * r + m] = this->element(t + q * P.threads + m * (P.length / r), q == 0 && m == 0);
          if constexpr (k_halves && m % 2 != 0) finish_some(this->x[q * r + m].re);
        });
      } else {
        unrolled<r>([&](auto mi) { this->x[q * r + decltype(mi)::value] = number{real(0), real(0)}; });
      }
    });
    barrier();
    // Injection counts this step as one more stage.
    strike(index<2 * P.butterflies(0) * r>{}, site::stage, a.first_stage + P.stages, a.stages, &x[0].re, lane(), P.lanes());
  }

  // Writes what the transform has computed to shared memory.
  __device__ __forceinline__ void hand_over() {
    barrier();
    outputs([&](auto at, int o, auto, auto) {
      const number z = this->x[decltype(at)::value];
      if constexpr (P.reals == reals_form::fourth) {
        const number w = cached(static_cast<const number*>(this->a.store_table) + o);
        const number both = z * w;
        this->real_at(2 * o) = both.re;
        this->real_at(P.points - 1 - 2 * o) = -both.im;
      } else if constexpr (!k_halves) {
        this->number_at(o) = z;
      } else if constexpr (!P.real_pairs()) {
        this->real_at(o) = z.re;
      } else if constexpr (k_columns) {
        this->real_at(2 * o) = z.re;
        this->real_at(2 * o + 1) = -z.im;
      } else {
        this->number_at(o) = number{z.re, -z.im};
      }
    });
    barrier();
  }

  // Result t from the numbers in shared memory.
  template <int I>
  __device__ __forceinline__ real result(index<I> i, int t) const {
    constexpr bool first = I == 0;
    if constexpr (k_halves || P.reals == reals_form::fourth) {
      const real value = real_at(P.reals == reals_form::third ? folded(i, t) : t);
      return P.sines && (t & 1) != 0 ? -value : value;
    } else {
      const int row = P.sines && P.reals == reals_form::second ? P.points - 1 - t : t;
      const int k = P.reals == reals_form::first ? (P.sines ? t + 1 : t) : 2 * row <= P.points ? row : P.points - row;
      const real* const table = static_cast<const real*>(a.store_table);
      if constexpr (P.real_pairs()) {
        complex_pair<real> factor = cached_pair(table + 4 * t);
        if (first) this->strike_factor(factor.first);
        const number own = number_at(k == P.length ? 0 : k), image = number_at(k == 0 ? 0 : P.length - k);
        return multiply_add(factor.first.re, own.re, factor.first.im * own.im) +
               multiply_add(factor.second.re, image.re, factor.second.im * image.im);
      } else {
        number factor = cached(static_cast<const number*>(a.store_table) + t);
        if (first) this->strike_factor(factor);
        const number own = number_at(k);
        return multiply_add(factor.re, own.re, factor.im * own.im);
      }
    }
  }

  __device__ __forceinline__ void finish(real (&sum)[4]) {
    hand_over();
    each_real([&](auto i, int t) {
      const real value = this->result(i, t);
      this->results[decltype(i)::value] = P.scaled ? value * static_cast<real>(this->a.scale) : value;
      if constexpr (decltype(i)::value % 4 == 3) finish_some(value);
    });
    strike(index<k_held>{}, site::output, a.pass, a.passes, results, lane(), P.lanes());
    if constexpr (P.sums_outputs()) {
      for (real& each : sum) each = 0;
      each_real([&](auto i, int t) {
        const real value = this->results[decltype(i)::value];
        const real other = t < (P.points + 1) / 2 ? value : -value;
        const number weight = cached(static_cast<const number*>(this->a.verify) + t);
        sum[0] = multiply_add(weight.re, value, sum[0]);
        sum[1] = multiply_add(weight.im, value, sum[1]);
        sum[2] = multiply_add(weight.re, other, sum[2]);
        sum[3] = multiply_add(weight.im, other, sum[3]);
      });
    }
  }

  __device__ __forceinline__ void store() {
    const line_side& s = a.target;
    const std::int64_t element = P.target_unit ? 1 : s.element;
    std::int64_t base = (this->first_column + line_of(k_columns)) * s.column + this->middle * s.middle + this->batch * s.batch;
    if constexpr (P.shared_target) base += this->shared_shift;
    each_real([&](auto i, int t) {
      ballast::cuda::store_data<P.shared_target, P.sums()>(static_cast<real*>(this->a.out) + (base + t * element),
                                                           this->results[decltype(i)::value]);
    });
  }

  __device__ __forceinline__ double squares(double scale) const {
    const auto here = this->source();
    double sum = 0;
    each_real([&](auto, int t) {
      const double value = static_cast<double>(this->template read<reading::data>(here, t)) * scale;
      sum += value * value;
    });
    return sum;
  }

  __device__ __forceinline__ std::uint64_t hash_of_results() const {
    std::uint64_t hash = 0;
    each_real([&](auto i, int t) { hash += light_hash(this->results[decltype(i)::value], static_cast<std::uint64_t>(t)); });
    return hash;
  }
};

}  // namespace ballast::fft::cuda
