// Checksums of lines: each thread sums its weighted inputs and outputs, then the sums of the threads of a line are added.
// policy/weights.hpp defines the weights and explains which faults they detect.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include "abft/verify.hpp"
#include "cuda/block/sums.cuh"
#include "cuda/block/vector.cuh"
#include "fft/cuda/kernel/line_definition.cuh"
#include "fft/cuda/policy/weights.hpp"
#include "fft/thresholds.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::add_lanes;
using ballast::cuda::four;
using ballast::cuda::warp_mask;

template <line_policy P, class Injector>
struct line_sums : line_definition<P, Injector> {
  using below = line_definition<P, Injector>;
  using below::a;
  using below::barrier;
  using below::constant;
  using below::encoded;
  using below::factor;
  using below::given;
  using below::k_last;
  using below::line_of;
  using below::position_of;
  using below::rank;
  using below::shared;
  using below::source_element;
  using below::square;
  using below::target_element;
  using below::thread;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  // Before the first butterflies: computes ‖x‖² and the encoded inputs of each butterfly.
  __device__ __forceinline__ void encode_inputs() {
    constexpr int r = P.radix[0];
    const auto here = this->source();
    number again[below::k_sums_first ? P.butterflies(0) * r : 1];
    real zero = 0;
    if constexpr (below::k_sums_first) {
      unrolled<P.butterflies(0)>([&](auto q) {
        this->template each_element<reading::checksums>(
            here, q, [&](auto m, const number& z) { again[decltype(q)::value * r + decltype(m)::value] = z; });
      });
      zero = arch::zero_after_loads<real>(a.tiles < 0);
    }
    square = zero;
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      number sum[2] = {{zero, zero}, {zero, zero}};
      const auto add = [&](auto mi, const number& z) {
        constexpr int m = decltype(mi)::value;
        this->square = multiply_add(z.re, z.re, multiply_add(z.im, z.im, this->square));
        constexpr input_weights<r> w(P.mirrors());
        if constexpr (P.stages == 1) {
          sum[0] = multiply_add(this->constant(w.line[0][m]), z, sum[0]);
          sum[1] = multiply_add(this->constant(w.line[1][m]), z, sum[1]);
        } else {
          sum[m % 2] = multiply_add(this->constant(w.butterfly[m]), z, sum[m % 2]);
        }
        if constexpr (((below::k_crowded || below::k_tight) && m == r / 2) || (below::k_tight && m == r - 1))
          arch::finish_first(this->square < real(0));
      };
      if constexpr (below::k_sums_first) {
        const real before = square;
        unrolled<r>([&](auto m) { add(m, again[q * r + decltype(m)::value]); });
        if (!this->has_elements(here, qi)) square = before;
      } else if constexpr (P.reads_twice()) {
        if (this->has_elements(here, qi)) this->template each_element<reading::checksums>(here, qi, add);
      } else {
        unrolled<r>([&](auto m) { add(m, this->x[q * r + decltype(m)::value]); });
      }
      if constexpr (P.stages == 1) {
        const complex_pair<real> own = cached_pair(static_cast<const real*>(this->a.encode));
        add_fused(this->encoded, own.first * sum[0], own.second * sum[1], q == 0);
      } else {
        this->given[q] = sum[0] + sum[1];
      }
    });
  }

  // Return the index of first butterfly j among the weights of first butterflies, and their number. With a check from end to end, each
  // column of the first pass has weights of its own: w_N^p in the place of w_n^j, p = column + j · columns.
  __device__ __forceinline__ std::uint32_t encode_index(int j) const {
    if constexpr (!P.begins()) return static_cast<std::uint32_t>(j);
    const int line = line_of(P.in_columns);
    const auto column = static_cast<std::uint32_t>(this->first_column) + static_cast<std::uint32_t>(this->valid(line) ? line : 0);
    return static_cast<std::uint32_t>(j) * static_cast<std::uint32_t>(a.columns) + column;
  }
  __device__ __forceinline__ std::uint32_t encode_count() const {
    constexpr std::uint32_t all = P.length / P.radix[0];
    if constexpr (!P.begins()) return all;
    return all * static_cast<std::uint32_t>(a.columns);
  }

  // After the first butterflies: sums their results z with the weights of the rest of the transform. Adds the residual of each butterfly, Σ
  // s′ₖ zₖ − Σ ŝₘ xₘ, with the same factor, so that one comparison covers both.
  __device__ __forceinline__ void encode_results() {
    constexpr int r = P.radix[0];
    constexpr int positions = P.share() / r;
    constexpr int centre = weight_centre(r);
    const int t = position_of(P.in_columns);
    for (int v = 0; v < 4; ++v) encoded[v] = 0;
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(0) && t + q * P.threads >= positions) return;
      const int j = source_element(t, index<q * P.threads>{});
      const real* const table = static_cast<const real*>(a.encode);
      const std::uint32_t at = encode_index(j);
      const complex_pair<real> own = cached_pair(table + std::size_t{4} * at);
      const number step = cached(reinterpret_cast<const number*>(table + std::size_t{4} * encode_count()) + at);
      const number* const z = x + q * r;
      number series = upper<r, centre, r - 1>(z, step);
      if constexpr (centre > 0) series = multiply_add(conjugate(step), lower<r, 0, centre>(z, step), series);
      number made{real(0), real(0)};
      unrolled<r>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        constexpr real size = static_cast<real>(butterfly_weight_size(r, k));
        const number one = quarter_turns<butterfly_weight_quarters(r, k)>(z[k]);
        made = {multiply_add(size, one.re, made.re), multiply_add(size, one.im, made.im)};
      });
      const number sum = series + (made - given[q]);
      add_fused(encoded, own.first * sum, own.second * sum, q == 0);
    });
  }

  // Adds one number for each of the two weight vectors.
  static __device__ __forceinline__ void add_fused(real (&to)[4], const number& first, const number& second, bool begins) {
    to[0] = begins ? first.re : to[0] + first.re;
    to[1] = begins ? first.im : to[1] + first.im;
    to[2] = begins ? second.re : to[2] + second.re;
    to[3] = begins ? second.im : to[3] + second.im;
  }

  // Returns z · i^e(k), for k of `Count`.
  template <int Count, int K, bool Mirrored = false>
  static __device__ __forceinline__ number turned(const number& z) {
    return quarter_turns<weight_quarters(Count, K, Mirrored)>(z);
  }

  // Computes aᵀy for both vectors from the numbers that are about to be stored. If the outputs were multiplied by factors f, z = f∘y, it
  // computes aᵀ(f⁻¹∘z). Factors of a table are applied here, element by element: applying all of them before loading their inverses takes
  // too many registers.
  __device__ __forceinline__ void sum_outputs(real (&sum)[4]) {
    if constexpr (P.mirrors()) return sum_spectrum(sum);
    constexpr int r = P.radix[k_last];
    constexpr int half = weight_half(r);
    constexpr int stride = P.length / r;
    const int t = position_of(P.out_columns);
    number step{};
    if constexpr (P.folds() && P.twiddles() && !P.fallback && r > 1) step = conjugate(factor(a.store_twin, stride, line_of(P.out_columns)));
    for (int v = 0; v < 4; ++v) sum[v] = 0;
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(k_last) && t + q * P.threads >= P.share() / r) return;
      const int j = target_element(t, index<q * P.threads>{});
      number* const y = x + q * r;
      number low{real(0), real(0)};
      number high{real(0), real(0)};
      if constexpr (!P.folds()) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          number& to = k < half ? low : high;
          to = to + turned<r, k>(y[k]);
        });
      } else if constexpr (P.store_factor == factor_form::table || P.fallback) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          number& to = k < half ? low : high;
          number inverse{real(1), real(0)};
          if (!P.fallback || this->a.store_table != nullptr) {
            const int line = this->line_of(P.out_columns);
            number w = this->factor_of_stored(this->a.store_table, j + k * stride, line);
            if constexpr (q == 0 && k == 0) this->strike_factor(w);
            y[k] = y[k] * w;
            inverse = this->factor_of_stored(this->a.store_twin, j + k * stride, line);
            if constexpr (P.fallback) inverse.im = this->has(k_form_twiddles) ? -inverse.im : inverse.im;
          }
          to = multiply_add(inverse, turned<r, k>(y[k]), to);
        });
      } else if constexpr (r == 1) {
        low = conjugate(this->factor(this->a.store_twin, j, this->line_of(P.out_columns))) * turned<r, 0>(y[0]);
      } else if constexpr (r <= 8) {
        const number middle = conjugate(this->factor(this->a.store_twin, j + half * stride, this->line_of(P.out_columns)));
        low = middle * (conjugate(step) * lower<r, 0, half>(y, step));
        if constexpr (half < r) high = middle * upper<r, half, r - 1>(y, step);
      } else {
        static_assert(!P.fallback);
        low = unfolded<0, half>(y, j, step);
        high = unfolded<half, r - half>(y, j, step);
      }
      const complex_pair<real> own = cached_pair(static_cast<const real*>(a.verify) + 4 * j);
      add_fused(sum, own.first * (low + high), own.second * (low - high), q == 0);
    });
  }

  // Computes aᵀz for both vectors from the spectrum X of the reals, which has replaced the outputs z of the line (line_real.cuh). With
  // g_o = i e^{πio/N}, 2 z_o = X_o + X*_{N−o} + g_o (X_o − X*_{N−o}). Ordered by X, a term of 2aᵀz is
  //   a_o (X_o + g_o X_o) + a_{N−o} (X_o − g_o X_o)*,
  // so each thread needs only the outputs that it stores, and a second weight for each butterfly. Output N − o is result R − 1 − k of
  // butterfly N/R − j. Its weights are the conjugates of those of results k, up to a common rotation (policy/weights.hpp): the sums over k
  // serve both. In butterfly 0 the results are mirror images of each other, and z is computed from them.
  __device__ __forceinline__ void sum_spectrum(real (&sum)[4]) const {
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    constexpr int middle = r % 2 == 0 ? r : r / 2;  // the result that is its own mirror image
    const int t = position_of(P.out_columns);
    for (int v = 0; v < 4; ++v) sum[v] = 0;  // a thread can have no butterfly
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(k_last) && t + q * P.threads >= P.share() / r) return;
      const int j = target_element(t, index<q * P.threads>{});
      const number* const y = x + q * r;
      // Sums of the results with equal signs in both vectors, and of those with opposite signs.
      number own[2] = {{real(0), real(0)}, {real(0), real(0)}};
      number image[2] = {{real(0), real(0)}, {real(0), real(0)}};
      const bool first = q == 0 && j == 0;
      if (first) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          number z{y[0].re + y[0].im, y[0].re - y[0].im};
          if constexpr (k > 0)
            z = below::template with_image<true>(y[k], y[r - k], quarter_turns<1>(conjugate(this->constant(root_of_unity(k, 2 * r)))));
          number& to = own[weight_negative(r, k, true) ? 1 : 0];
          to = to + turned<r, k, true>(z);
        });
      } else {
        // [2]: the result in the middle, which has the same sign on both sides.
        number plain[3] = {}, multiplied[3] = {};  // Σ i^e X, Σ i^e X e^{πik/R}
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          constexpr int part = k == middle ? 2 : weight_negative(r, k, true) ? 1 : 0;
          const number one = turned<r, k, true>(y[k]);
          plain[part] = plain[part] + one;
          multiplied[part] = multiply_add(conjugate(this->constant(root_of_unity(k, 2 * r))), one, multiplied[part]);
        });
        const number twin = cached(static_cast<const number*>(a.store_twin) + j);  // g_j = 2 twin*
        const number g{2 * twin.re, real(-2) * twin.im};
        for (int part = 0; part < (middle == r ? 2 : 3); ++part) multiplied[part] = g * multiplied[part];
        if constexpr (middle < r) {
          plain[0] = plain[0] + plain[2];
          multiplied[0] = multiplied[0] + multiplied[2];
        }
        own[0] = plain[0] + multiplied[0];
        own[1] = plain[1] + multiplied[1];
        image[0] = plain[1] - multiplied[1];
        image[1] = plain[0] - multiplied[0];
        if constexpr (middle < r) {
          const number shared_part = plain[2] - multiplied[2];
          image[0] = image[0] + shared_part;
          image[1] = image[1] - shared_part;
        }
        for (int part = 0; part < 2; ++part) image[part] = quarter_turns<mirrored_quarters(r)>(conjugate(image[part]));
      }
      const real* const table = static_cast<const real*>(a.verify);
      const complex_pair<real> weight = cached_pair(table + 4 * j);
      const complex_pair<real> other = cached_pair(table + 4 * (first ? 0 : stride - j));
      add_fused(sum, multiply_add(other.first, image[0] + image[1], weight.first * (own[0] + own[1])),
                multiply_add(other.second, image[0] - image[1], weight.second * (own[0] - own[1])), q == 0);
    });
    for (int v = 0; v < 4; ++v) sum[v] *= real(0.5);
  }

  // Evaluate by Horner's scheme, with t_k = i^e(k) z_k of a butterfly of `Radix`: upper = Σ step^(k − One) t_k for k = One … Last, lower =
  // Σ (step*)^(One − 1 − k) t_k for k = First … One − 1.
  template <int Radix, int One, int Last>
  static __device__ __forceinline__ number upper(const number* z, const number& step) {
    number sum = turned<Radix, Last>(z[Last]);
    unrolled<Last - One>([&](auto i) {
      constexpr int k = Last - 1 - decltype(i)::value;
      sum = multiply_add(step, sum, turned<Radix, k>(z[k]));
    });
    return sum;
  }
  template <int Radix, int First, int One>
  static __device__ __forceinline__ number lower(const number* z, const number& step) {
    number sum = turned<Radix, First>(z[First]);
    unrolled<One - First - 1>([&](auto i) {
      constexpr int k = First + 1 + decltype(i)::value;
      sum = multiply_add(conjugate(step), sum, turned<Radix, k>(z[k]));
    });
    return sum;
  }

  // Returns Σ f_k⁻¹ i^e(k) z_k over `Count` results of last butterfly j, from First on. The results are a constant distance apart in the
  // line, so their factors are a geometric sequence. Works on eight results at a time: reads the factor of the middle one from the twin
  // table, and derives the others by Horner's scheme in both directions, with powers of `step` up to the fourth. thresholds::line_growth
  // accounts for the additional rounding.
  template <int First, int Count>
  __device__ __forceinline__ number unfolded(const number* z, int j, const number& step) const {
    constexpr int count = Count < 8 ? Count : 8;
    constexpr int centre = First + count / 2;
    constexpr int r = P.radix[k_last];
    number up = upper<r, centre, First + count - 1>(z, step);
    if constexpr (First < centre) up = multiply_add(conjugate(step), lower<r, First, centre>(z, step), up);
    const number middle = factor(a.store_twin, j + centre * (P.length / r), line_of(P.out_columns));
    number sum = conjugate(middle) * up;
    if constexpr (Count > count) sum = sum + unfolded<First + count, Count - count>(z, j, step);
    return sum;
  }

  __device__ __forceinline__ unsigned char* partials() const { return shared + P.partial_offset(); }

  // Partial sums in shared memory: four values at [slot][line], then ‖x‖² at [slot][line]. If other threads hold the outputs of a line than
  // its inputs (remaps), the encoded inputs have their own slots after those of the outputs, and ‖x‖² goes with them.
  static constexpr int k_out_slots = P.out_slots();
  static constexpr int k_in_slots = P.in_slots();
  template <bool Encoded, class Value>
  __device__ __forceinline__ four<Value>* partial_values(int slot, int line) const {
    return reinterpret_cast<four<Value>*>(partials()) + ((Encoded ? k_out_slots : 0) + slot) * P.lines + line;
  }
  template <class Value>
  __device__ __forceinline__ Value* partial_norm(int slot, int line) const {
    return reinterpret_cast<Value*>(partials()) + 4 * (k_out_slots + k_in_slots) * P.lines + slot * P.lines + line;
  }

  // Returns the number of slots of a line: one for each warp that has threads of it.
  template <bool Columns>
  static __device__ __forceinline__ int slots_of(int line) {
    if constexpr (P.cluster == 1 && P.lines > 1 && P.lanes_of_line(Columns) == 0)
      return ((line + 1) * P.threads - 1) / 32 - line * P.threads / 32 + 1;
    return P.partials(Columns);
  }
  // Returns the slot of this thread.
  template <bool Columns>
  __device__ __forceinline__ int slot_of() const {
    constexpr int lanes = P.lanes_of_line(Columns);
    const int warp = static_cast<int>(thread()) / 32;
    return Columns       ? (lanes > 1 ? warp : position_of(true))
           : lanes == 32 ? position_of(false) / 32
           : lanes > 0   ? 0
                         : warp - line_of(false) * P.threads / 32;
  }

  template <bool Encoded, class Value>
  __device__ __forceinline__ void put(int slot, int line, const Value (&value)[4], Value norm) const {
    *partial_values<Encoded, Value>(slot, line) = four<Value>{{value[0], value[1], value[2], value[3]}};
    if constexpr (Encoded || !P.remaps()) *partial_norm<Value>(slot, line) = norm;
  }

  // Adds `value` and `norm` over the lanes of a warp that share a line, and writes the sums to the slot of the line. Works in working
  // precision, like all sums of a line (thresholds::line_growth).
  template <bool Columns, bool Encoded, class Value>
  __device__ __forceinline__ void deposit(Value (&value)[4], Value norm) const {
    constexpr int lanes = P.lanes_of_line(Columns);
    constexpr int near = Columns ? P.lines : 1;  // distance between neighbouring lanes of a line
    constexpr bool normed = Encoded || !P.remaps();
    const int line = line_of(Columns);
    const int t = position_of(Columns);
    const int slot = slot_of<Columns>();
    if constexpr (lanes == 0) {
      // A line is a run of lanes of any length: each lane adds the value d lanes ahead, if that lane is in the run.
      const int own = static_cast<int>(threadIdx.x % 32);
      const int left = P.threads - t < 32 - own ? P.threads - t : 32 - own;  // lanes from here to the end of the run
      unrolled<5>([&](auto level) {
        constexpr int d = 1 << decltype(level)::value;
        if constexpr (d < P.threads) {
          const bool inside = d < left;
          const int from = inside ? own + d : own;
          for (int v = 0; v < 4; ++v) {
            const Value other = __shfl_sync(warp_mask<P.block()>(), value[v], from);
            if (inside) value[v] += other;
          }
          const Value other = __shfl_sync(warp_mask<P.block()>(), norm, from);
          if (inside) norm += other;
        }
      });
      if (own == 0 || t == 0) put<Encoded>(slot, line, value, norm);
    } else if constexpr (lanes == 1 || !P.whole_warps()) {
      add_lanes<P.block(), lanes, near>(value, norm);
      if (Columns ? threadIdx.x % 32 < P.lines || lanes == 1 : t % lanes == 0) put<Encoded>(slot, line, value, norm);
    } else {
      // Twice, each half of the lanes continues with half of the values; then each lane adds one value.
      Value* const to = partial_values<Encoded, Value>(slot, line)->at;
      const int lane = t % lanes;
      const bool upper = lane >= lanes / 2;
      Value half[2];
      for (int v = 0; v < 2; ++v) {
        const Value other = __shfl_xor_sync(0xffffffffu, upper ? value[v] : value[2 + v], near * lanes / 2);
        half[v] = (upper ? value[2 + v] : value[v]) + other;
      }
      if constexpr (lanes == 2) {
        to[upper ? 2 : 0] = half[0];
        to[upper ? 3 : 1] = half[1];
        if constexpr (normed) {
          norm += __shfl_xor_sync(0xffffffffu, norm, near);
          if (!upper) *partial_norm<Value>(slot, line) = norm;
        }
      } else {
        const bool odd = lane % (lanes / 2) >= lanes / 4;
        Value one = (odd ? half[1] : half[0]) + __shfl_xor_sync(0xffffffffu, odd ? half[0] : half[1], near * lanes / 4);
        if constexpr (!normed || lanes == 4) {
          for (int d = near * lanes / 8; d >= near; d /= 2) one += __shfl_xor_sync(0xffffffffu, one, d);
          if (lane % (lanes / 4) == 0) to[lane / (lanes / 4)] = one;
          if constexpr (normed) {
            for (int d = near * lanes / 2; d >= near; d /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, d);
            if (lane == 0) *partial_norm<Value>(slot, line) = norm;
          }
        } else {
          // A third time: half of the lanes continue with the value, half with the norm.
          for (int d = near * lanes / 2; d >= near * lanes / 4; d /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, d);
          const bool last = lane % (lanes / 4) >= lanes / 8;
          const Value other = __shfl_xor_sync(0xffffffffu, last ? one : norm, near * lanes / 8);
          one = (last ? norm : one) + other;
          for (int d = near * lanes / 16; d >= near; d /= 2) one += __shfl_xor_sync(0xffffffffu, one, d);
          constexpr int values = 4 * (k_out_slots + k_in_slots) * P.lines;
          const int number = slot * P.lines + line;
          const int word = last ? values + number : 4 * number + (Encoded ? 4 * k_out_slots * P.lines : 0) + lane / (lanes / 4);
          Value* const position = reinterpret_cast<Value*>(partials()) + word;
          if (lane % (lanes / 8) == 0 && (!last || lane < lanes / 4)) *position = one;
        }
      }
    }
  }

  // Deposits the encoded inputs of the tile, if other threads hold its outputs.
  template <class Value>
  __device__ __forceinline__ void deposit_encoded(Value (&value)[4], Value norm) const {
    deposit<P.in_columns, true>(value, norm);
  }

  // Adds the slots of a line's outputs and subtracts those of its encoded inputs. First > 0: the slots of the outputs from First on belong
  // to the blocks of a cluster. Without Outputs, `value` already holds the sums of the outputs.
  template <bool Outputs, int First, class Value>
  __device__ __forceinline__ void add_slots(int line, Value (&value)[4], Value& norm) const {
    constexpr int count = !Outputs ? 0 : First > 0 ? P.cluster : P.partials(P.out_columns);
    // If a line has more than a few slots, its lanes share the work.
    constexpr int near = P.out_columns ? P.lines : 1;
    constexpr int lanes = !P.whole_warps() || P.lanes_of_line(P.out_columns) == 0 ? 1 : P.lanes_of_line(P.out_columns);
    constexpr int most = count > k_in_slots ? count : k_in_slots;
    constexpr int few = P.wide ? 2 : 4;
    constexpr int share = [] {
      int n = 1;
      while (n < lanes && n * few < most) n *= 2;
      return n;
    }();
    const int first = share == 1 ? 0 : position_of(P.out_columns) % share;
    Value sum[4] = {};
    Value square = 0;
    if constexpr (k_in_slots > 0) {
      const Value scale = P.scaled ? static_cast<Value>(static_cast<real>(a.check_scale)) : Value(1);
      each_slot<k_in_slots, share>(first, slots_of<P.in_columns>(line), [&](int i) {
        const four<Value> one = *partial_values<true, Value>(i, line);
        for (int v = 0; v < 4; ++v) sum[v] += one.at[v];
        square += *partial_norm<Value>(i, line);
      });
      for (int v = 0; v < 4; ++v) sum[v] *= -scale;
    }
    if constexpr (Outputs) {
      each_slot<count, share>(first, First > 0 ? count : slots_of<P.out_columns>(line), [&](int i) {
        const four<Value> one = *partial_values<false, Value>(First + i, line);
        for (int v = 0; v < 4; ++v) sum[v] += one.at[v];
        if constexpr (!P.remaps()) square += *partial_norm<Value>(First + i, line);
      });
    }
    if constexpr (share > 1) add_lanes<P.block(), share, near>(sum, square);
    for (int v = 0; v < 4; ++v) value[v] = Outputs ? sum[v] : value[v] + sum[v];
    norm = square;
  }

  // Calls body(i) for i = first, first + Share, … < count ≤ Count.
  template <int Count, int Share, class Body>
  static __device__ __forceinline__ void each_slot(int first, int count, Body&& body) {
    if constexpr (Count <= 4 * Share) {
      unrolled<(Count + Share - 1) / Share>([&](auto at) {
        constexpr int ahead = Share * decltype(at)::value;
        if (first + ahead < count) body(first + ahead);
      });
    } else {
#pragma unroll 1
      for (int i = first; i < count; i += Share) body(i);
    }
  }

  // Replaces this thread's part of aᵀy − bᵀx and of ‖x‖² by the sums over its line. All threads of a line get the same bits, since they add
  // the same numbers in the same order. Uses at most one barrier of the block, and in clusters one of the cluster.
  template <class Value>
  __device__ __forceinline__ void add_line(Value (&value)[4], Value& norm) const {
    constexpr int near = P.out_columns ? P.lines : 1;
    const int line = line_of(P.out_columns);
    if constexpr (P.within_warp(P.out_columns)) {
      add_lanes<P.block(), P.lanes_of_line(P.out_columns), near>(value, norm);
      if constexpr (k_in_slots > 0) {
        barrier();
        add_slots<false, 0>(line, value, norm);
      }
    } else {
      deposit<P.out_columns, false>(value, norm);
      barrier();
      constexpr int own = P.partials(P.out_columns);
      if constexpr (P.cluster == 1) {
        add_slots<true, 0>(line, value, norm);
      } else {
        // The first warp sends the sums of this block to all blocks.
        if (threadIdx.x < 32) {
          add_slots<true, 0>(0, value, norm);
          if (threadIdx.x < P.cluster) {
            four<Value>* const to = partial_values<false, Value>(own + rank(), 0);
            if constexpr (P.wide) {
              arch::store_remote(reinterpret_cast<number*>(to), threadIdx.x, number{value[0], value[1]});
              arch::store_remote(reinterpret_cast<number*>(to) + 1, threadIdx.x, number{value[2], value[3]});
            } else {
              arch::store_remote(to, threadIdx.x, four<Value>{{value[0], value[1], value[2], value[3]}});
            }
            arch::store_remote(partial_norm<Value>(own + rank(), 0), threadIdx.x, norm);
          }
          __syncwarp();
        }
        arch::cluster_sync();
        add_slots<true, own>(0, value, norm);
      }
    }
  }

  // The range of ‖x‖² in which squares neither overflow nor underflow. Outside of it a sum says nothing.
  static constexpr double k_tiny_square = P.wide ? 1e-250 : 1e-30;
  static constexpr double k_huge_square = P.wide ? 1e250 : 1e30;

  // Returns the square of the threshold of a line with this ‖x‖², from both copies of its numbers. Squares avoid a root.
  __device__ __forceinline__ abft::guarded_threshold squared_threshold(double square_of_inputs) const {
    abft::guarded_threshold tau;
    tau.value = a.slope[0] * a.slope[0] * square_of_inputs + a.offset[0] * a.offset[0];
    tau.twin = a.slope[1] * a.slope[1] * square_of_inputs + a.offset[1] * a.offset[1];
    return tau;
  }

  // Returns the maximum of |Re ρ| + |Im ρ| over both vectors; NaN if either is NaN.
  template <class Value>
  static __device__ __forceinline__ Value larger_residual(const Value (&value)[4]) {
    const Value first = fabs(value[0]) + fabs(value[1]);
    const Value second = fabs(value[2]) + fabs(value[3]);
    return first <= second ? second : first == first && second != second ? second : first;
  }
};

}  // namespace ballast::fft::cuda
