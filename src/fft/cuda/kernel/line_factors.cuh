// Products of the elements of a line with factors: tables given by the caller, and the roots of unity between two passes.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include <cstdint>

#include "cuda/block/bits.cuh"
#include "cuda/block/vector.cuh"
#include "fft/cuda/kernel/line_position.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::cached;
using ballast::cuda::cached_late;
using ballast::cuda::cached_pair;
using ballast::cuda::complex_pair;

template <line_policy P, class Injector>
struct line_factors : line_position<P, Injector> {
  using below = line_position<P, Injector>;
  using below::a;
  using below::first_column;
  using below::k_last;
  using below::k_verified;
  using below::lane;
  using below::launch;
  using below::line_of;
  using below::middle;
  using below::number_of;
  using below::outputs;
  using below::position_of;
  using below::strike;
  using below::tile;
  using below::valid;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  static __device__ __forceinline__ bool same_bits(const number& once, const number& twice) {
    return ((bits(once.re) ^ bits(twice.re)) | (bits(once.im) ^ bits(twice.im))) == 0;
  }
  // Computes z · w twice, the second time with the factor's second copy, which is elsewhere in memory. If the results differ, a third
  // computation decides immediately. Used where no checksum covers the product.
  template <class Twin>
  __device__ __forceinline__ number checked_product(const number& z, const number& w, int line, Twin&& twin) const {
    const number once = z * w;
    if constexpr (P.check != check_form::none) {
      const number v = twin();
      const number twice = z * v;
      if (!same_bits(once, twice)) return settle_product<Injector>(launch, tile, P.lines, line, number_of(line), once, twice, z * v);
    }
    return once;
  }

  // Returns the position of element i in the whole line. The computation is modulo 2^32, as no whole line is longer.
  __device__ __forceinline__ std::int64_t position_at(const line_side& s, int i, int line) const {
    const auto short_of = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    return std::int64_t{static_cast<std::uint32_t>(i) * short_of(s.position_element) +
                        short_of(first_column + line) * short_of(s.position_column) + middle * short_of(s.position_middle)};
  }
  __device__ __forceinline__ std::int64_t target_position(int o, int line) const { return position_at(a.target, o, line); }

  // Returns the factor of output o at its store, or 1 if the output is not stored, since tables have no entry for such outputs.
  __device__ __forceinline__ number factor_of_stored(const void* table, int o, int line) const {
    if constexpr (P.truncated) {
      if (target_position(o, line) >= a.stored) return {real(1), real(0)};
    }
    return factor(table, o, line);
  }
  // Returns the factor of output o, which must be stored.
  __device__ __forceinline__ number factor(const void* table, int o, int line) const {
    const number* const words = static_cast<const number*>(table);
    if constexpr (P.fallback) {
      return below::has(k_form_twiddles) ? twiddle(words, o, line) : entry(words, o, line);
    } else if constexpr (P.twiddles()) {
      return twiddle(words, o, line);
    } else {
      return entry(words, o, line);
    }
  }
  // Returns the c of the factors w_M^{ck} of a line. Lines beyond the last one have no factors. No whole line has 2^32 points.
  __device__ __forceinline__ std::uint32_t factor_index(int line, bool within) const {
    if constexpr (P.factors_by_middle) return middle;
    return within ? static_cast<std::uint32_t>(first_column) + static_cast<std::uint32_t>(line) : 0;
  }
  __device__ __forceinline__ number twiddle(const number* words, int o, int line) const {
    const std::uint32_t power = factor_index(line, !P.folds() || valid(line)) * static_cast<std::uint32_t>(o);
    const number coarse = cached(words + (power >> a.fine_bits));
    const number fine = cached(words + a.coarse_size + (power & ((1u << a.fine_bits) - 1)));
    return coarse * fine;
  }
  __device__ __forceinline__ number entry(const number* words, int o, int line) const {
    // If lines are verified, lines beyond the last one are multiplied too, but the table has no entries for them.
    const int there = k_verified && !valid(line) ? 0 : line;
    return cached(words + target_position(o, there));
  }

  __device__ __forceinline__ void strike_factor(number& w) const {
    strike(index<2>{}, site::twiddle, a.first_twiddle + P.stages - 1, a.twiddle_steps, &w.re, lane(), P.lanes());
  }

  // Multiplies the outputs by the factors of the next pass (factor_form::separated): each factor is the product of one that belongs to the
  // butterfly and one that belongs to the index of the output in the butterfly.
  __device__ __forceinline__ void multiply_separated() {
    static_assert(P.check == check_form::none || P.folds());
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    const int line = line_of(P.out_columns);
    const int t = position_of(P.out_columns);
    const auto columns = static_cast<std::uint32_t>(P.factors_by_middle ? a.middles : a.columns);
    const std::uint32_t column = factor_index(line, valid(line));
    const number* const of_result = static_cast<const number*>(a.store_table) + r * column;
    const number* const of_butterfly = static_cast<const number*>(a.store_table) + r * columns + column;
    // In double precision a line with checksums has few registers left, so the load is delayed.
    const auto read = [](const number* from) {
      if constexpr (P.wide && P.folds()) {
        return cached_late(from);
      } else {
        return cached(from);
      }
    };
    number first[P.butterflies(k_last)];
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      // A butterfly beyond the line may use any factor.
      const int j = P.ragged(k_last) && t + q * P.threads >= stride ? 0 : t + q * P.threads;
      first[q] = read(of_butterfly + j * columns);
    });
    const auto multiply = [&](auto ki, const number& second) {
      constexpr int k = decltype(ki)::value;
      unrolled<P.butterflies(k_last)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        number w = k == 0 ? first[q] : first[q] * second;
        if constexpr (q == 0 && k == 0) strike_factor(w);
        x[q * r + k] = x[q * r + k] * w;
      });
    };
    // Loads two factors at once if there are registers for them.
    if constexpr (r % 2 == 0 && !P.wide && !(P.folds() && P.butterflies(k_last) != 2)) {
      unrolled<r / 2>([&](auto i) {
        constexpr int k = 2 * decltype(i)::value;
        const complex_pair<real> both = cached_pair(reinterpret_cast<const real*>(of_result + k));
        multiply(index<k>{}, both.first);
        multiply(index<k + 1>{}, both.second);
      });
    } else {
      multiply(index<0>{}, first[0]);
      unrolled<r - 1>([&](auto i) { multiply(index<decltype(i)::value + 1>{}, read(of_result + decltype(i)::value + 1)); });
    }
  }
};

}  // namespace ballast::fft::cuda
