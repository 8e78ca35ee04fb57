// The transform of a tile: load, the stages of its FFT with exchanges between them, then scaling, factors and checksums of the outputs.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "fft/cuda/kernel/butterfly_check.cuh"
#include "fft/cuda/kernel/line_sums.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

using abft::light_hash;

template <line_policy P, class Injector>
struct line_transform : line_sums<P, Injector> {
  using below = line_sums<P, Injector>;
  using below::a;
  using below::encode_inputs;
  using below::encode_results;
  using below::factor;
  using below::fetch_elements;
  using below::from_buffer;
  using below::k_encoded;
  using below::k_last;
  using below::k_linear;
  using below::k_sums_first;
  using below::lane;
  using below::launch;
  using below::line_of;
  using below::make_spectrum;
  using below::multiply_separated;
  using below::number_of;
  using below::outputs;
  using below::position_of;
  using below::rank;
  using below::square;
  using below::start_reading;
  using below::strike;
  using below::strike_factor;
  using below::sum_outputs;
  using below::target_element;
  using below::tile;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  // Loads and encodes the inputs. Calls `loaded` afterwards, before faults strike the inputs.
  __device__ __forceinline__ void load() {
    load([] {});
  }
  template <class Body>
  __device__ __forceinline__ void load(Body&& loaded) {
    start_reading();
    if constexpr (k_sums_first) encode_inputs();
    fetch_elements();
    if constexpr (k_encoded && !k_sums_first) encode_inputs();
    from_buffer = false;
    loaded();
    strike(index<2 * P.butterflies(0) * P.radix[0]>{}, site::input, a.pass, a.passes, &x[0].re, lane(), P.lanes());
  }

  template <int S>
  __device__ __forceinline__ void multiply_by_twiddles(int t) {
    constexpr int r = P.radix[S];
    constexpr int p = P.before(S);
    const number* table = static_cast<const number*>(a.twiddles) + P.twiddle_offset(S);
    unrolled<P.butterflies(S)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const int j = t + q * P.threads;
      constexpr int own = P.before_share(S);
      int row = P.ragged(S) && j >= P.share() / r ? 0 : j % own;
      if constexpr (P.cluster > 1 && S > P.cluster_after)
        row = below::k_linear ? this->target_element(t % own, index<q * P.threads % own>{}) : P.target_element(row, this->rank());
      number w[r];
      unrolled<r - 1>([&](auto ki) {
        constexpr int k = decltype(ki)::value + 1;
        if constexpr (P.squares(S) && (k & (k - 1)) != 0) {
          constexpr int high = k > 8 ? 8 : k > 4 ? 4 : 2;
          w[k] = w[high] * w[k - high];
        } else {
          w[k] = cached(table + row + (k - 1) * p);
        }
      });
      if constexpr (q == 0)
        this->strike(index<2 * (r - 1)>{}, site::twiddle, this->a.first_twiddle + S - 1, this->a.twiddle_steps, &w[1].re, this->lane(),
                     P.lanes());
      unrolled<r - 1>([&](auto ki) {
        constexpr int k = decltype(ki)::value + 1;
        x[q * r + k] = x[q * r + k] * w[k];
      });
    });
  }

  // Computes stage S and all later ones. Calls `encoded` when the inputs are encoded, after the first butterflies.
  template <int S, class Body>
  __device__ __forceinline__ void stage(Body&& encoded) {
    constexpr int r = P.radix[S];
    const int t = position_of(S == 0 ? P.in_columns : P.out_columns);
    if constexpr (P.cluster > 1 && S == P.cluster_after) arch::cluster_arrive();  // this block has read its shared memory
    if constexpr (S > 0 && r > 1) multiply_by_twiddles<S>(t);
    if constexpr (S == k_last) strike(index<2 * P.butterflies(S) * r>{}, site::intermediate, a.pass, a.passes, &x[0].re, lane(), P.lanes());
    if constexpr (P.check == check_form::thread) {
      checked_butterflies<S>();
    } else {
      unrolled<P.butterflies(S)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        butterfly<r>(x + q * r);
      });
      strike(index<2 * P.butterflies(S) * r>{}, site::stage, a.first_stage + S, a.stages, &x[0].re, lane(), P.lanes());
    }
    if constexpr (S == 0 && S < k_last && k_encoded && !P.of_reals()) {
      // The encoding must not overlap the butterflies before it or the exchange after it, as together they need too many registers. If a
      // thread holds many numbers, fewer threads share the registers, and the overlap hides latency.
      constexpr bool crowded =
          P.held() * P.scalar_bytes() <= 64 || (P.store_factor == factor_form::table && P.load_factor == factor_form::none);
      if constexpr (crowded && P.in_columns) arch::finish_first(square < real(0));
      encode_results();
      encoded();
      if constexpr (crowded) arch::finish_first(square < real(0));
    }
    if constexpr (P.by_definition()) {
      if constexpr (S == 0) this->transform_by_definition();
    } else if constexpr (S < k_last || (P.remaps() && P.stages == 1)) {
      this->template exchange<S>();
    }
    if constexpr (S < k_last) stage<S + 1>(encoded);
  }

  __device__ __forceinline__ void transform() {
    stage<0>([] {});
  }

  // check_form::thread: verifies each butterfly of stage S by itself, and computes it again from its inputs until it is good.
  template <int S>
  __device__ __forceinline__ void checked_butterflies() {
    constexpr int r = P.radix[S];
    constexpr int count = P.butterflies(S);
    constexpr double tiny = below::k_tiny_square;
    constexpr double huge = below::k_huge_square;
    constexpr bool columns = S == 0 ? P.in_columns : P.out_columns;
    const int line = line_of(columns);
    number given[count * r];
    std::uint64_t hash[count] = {};
    std::uint32_t open = 0;
    std::uint32_t detected = 0;
    unrolled<count>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(S) || position_of(columns) + q * P.threads < P.share() / r) open |= 1u << q;
    });
    unrolled<count * r>([&](auto i) { given[decltype(i)::value] = x[decltype(i)::value]; });
    for (int attempt = 0; open != 0; ++attempt) {
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        if ((open >> q & 1) == 0) return;
        unrolled<r>([&](auto k) { x[q * r + decltype(k)::value] = given[q * r + decltype(k)::value]; });
        butterfly<r>(x + q * r);
      });
      strike(index<2 * count * r>{}, site::stage, a.first_stage + S, a.stages, &x[0].re, lane(), P.lanes());
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        if ((open >> q & 1) == 0) return;
        const int step = a.first_stage + S;
        const int here = lane();
        auto seen = residual_of<r>(given + q * r, x + q * r);
        const double square = static_cast<double>(seen.square);
        abft::guarded_threshold tau = butterfly_limit<r, real>(square, a.kappa);
        if constexpr (q == 0) this->strike(index<1>{}, site::checksum, step, this->a.stages, &seen.size, here, P.lanes());
        if constexpr (q == 0) this->strike(index<1>{}, site::threshold, step, this->a.stages, &tau.value, here, P.lanes());
        // Squares out of range cannot be judged, except if all numbers are zero.
        const bool judged = (square >= tiny && square <= huge) || (square == 0 && seen.size == 0);
        std::uint32_t word = judged ? abft::verify(seen.size * seen.size, tau) : abft::k_fail;
        if constexpr (q == 0) this->strike(index<1>{}, site::comparison, step, this->a.stages, &word, here, P.lanes());
        if (attempt == 0 && abft::is_good(judged, word, false)) {
          open &= ~(1u << q);
          return;
        }
        std::uint64_t now = 0;
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          now += light_hash(x[q * r + k].re, 2 * k) + light_hash(x[q * r + k].im, 2 * k + 1);
        });
        const bool same = attempt > 0 && now == hash[q];
        hash[q] = now;
        if (abft::is_good(judged, word, same)) {
          open &= ~(1u << q);
          if ((detected >> q & 1) != 0)
            report_butterfly<Injector>(launch, tile, P.lines, line, number_of(line), seen.size, tau.value, event_action::recomputed,
                                       same && judged);
          return;
        }
        // The first computation does not count as a failure if no checksum can judge its data.
        if (judged || attempt > 0) detected |= 1u << q;
        if (abft::is_last(attempt, a.repairs, (detected >> q & 1) != 0)) {
          open &= ~(1u << q);
          report_butterfly<Injector>(launch, tile, P.lines, line, number_of(line), seen.size, tau.value, event_action::uncorrectable,
                                     false);
        }
      });
    }
  }

  // Returns this thread's part of Σ (x · scale)² of the inputs of its line, from another reading.
  __device__ __forceinline__ double squares(double scale) {
    start_reading();
    fetch_elements();
    const auto here = this->source();
    double sum = 0;
    unrolled<P.butterflies(0)>([&](auto q) {
      if (k_sums_first && !this->has_elements(here, q)) return;
      unrolled<P.radix[0]>([&](auto m) {
        const number z = x[decltype(q)::value * P.radix[0] + decltype(m)::value];
        sum += static_cast<double>(z.re) * scale * (static_cast<double>(z.re) * scale);
        sum += static_cast<double>(z.im) * scale * (static_cast<double>(z.im) * scale);
      });
    });
    return sum;
  }

  // Returns this thread's part of a hash of the results of its line.
  __device__ __forceinline__ std::uint64_t hash_of_results() const {
    std::uint64_t hash = 0;
    outputs([&](auto at, int o, auto, auto) {
      const number z = this->x[decltype(at)::value];
      const auto at_output = 2 * static_cast<std::uint64_t>(o);
      hash += light_hash(z.re, at_output) + light_hash(z.im, at_output + 1);
    });
    return hash;
  }

  // After the last stage: applies scaling and factors to the outputs, then computes the checksums of the results.
  __device__ __forceinline__ void finish(real (&sum)[4]) {
    if constexpr (P.scaled) {
      const real scale = static_cast<real>(a.scale);
      unrolled<P.held()>([&](auto i) {
        constexpr int at = decltype(i)::value;
        x[at] = {x[at].re * scale, x[at].im * scale};
      });
    }
    static_assert(!P.twiddles() || P.cluster == 1);
    if constexpr (P.mirrors()) make_spectrum();
    if constexpr (P.store_factor == factor_form::separated) {
      multiply_separated();
    } else if constexpr (P.folds() && P.twiddles() && !P.fallback) {
      const int line = line_of(P.out_columns);
      outputs([&](auto at, int o, auto q, auto k) {
        number w = factor(a.store_table, o, line);
        if constexpr (decltype(q)::value == 0 && decltype(k)::value == 0) this->strike_factor(w);
        this->x[decltype(at)::value] = this->x[decltype(at)::value] * w;
      });
    }
    strike(index<2 * P.butterflies(k_last) * P.radix[k_last]>{}, site::output, a.pass, a.passes, &x[0].re, lane(), P.lanes());
    if constexpr (P.sums_outputs()) {
      // Without this, the factors of the sums are read while those of the outputs are still in registers, which spills.
      if constexpr (P.folds() && !P.wide) arch::finish_first(square < real(0));
      sum_outputs(sum);
    }
  }
};

}  // namespace ballast::fft::cuda
