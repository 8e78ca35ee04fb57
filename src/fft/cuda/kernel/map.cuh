// Sparse maps of lines of real numbers: the steps before and after the Fourier transforms of a real-to-real transform, and copies between
// split and interleaved complex numbers.
// Layer: fft/cuda kernels; run/line_maps.cpp launches them. fft/tables/real_to_real.hpp has the mathematics.
//
// A thread computes one result. Checked, it computes the result twice, from two readings of the numbers and two copies of the tables, and
// stores it if the bits are the same; otherwise it begins again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "abft/attempt.hpp"
#include "cuda/block/bits.cuh"
#include "cuda/block/complex.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/launch.cuh"
#include "fft/cuda/policy/map.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

template <class Injector>
using map_launch = ballast::cuda::kernel_launch<map_arguments, Injector>;

__device__ __forceinline__ std::int64_t line_begin(const map_side& side, std::int64_t line) {
  std::int64_t at = 0;
  for (int i = side.loops; i-- > 0;) {
    const std::int64_t above = line / side.count[i];
    at += (line - above * side.count[i]) * side.distance[i];
    line = above;
  }
  return at;
}

// One result. Numbers and Words: `const` or `const volatile` types, which say how memory is read.
template <map_policy P, class T, class Number, class Word, class Strike>
__device__ __forceinline__ T map_value(const map_arguments& a, int copy, std::int64_t line, std::int64_t row, T scale, Strike&& strike) {
  Number* const x = static_cast<Number*>(a.in) + line_begin(a.from, line);
  if constexpr (P.copies) return x[row * a.from.scalar] * scale;
  Word* const begin = a.begin[copy];
  Word* const index = a.index[copy];
  Number* const factors = static_cast<Number*>(a.factor[copy]);
  const std::uint32_t first = begin[row], end = begin[row + 1];
  T sum = 0;
  for (std::uint32_t t = first; t < end; ++t) {
    T factor = factors[t];
    if (t == first) strike(&factor);
    sum = ballast::cuda::multiply_add(factor, T(x[static_cast<std::int64_t>(index[t]) * a.from.scalar]), sum);
  }
  return sum * scale;
}

template <map_policy P, class Injector>
__global__ void __launch_bounds__(k_map_threads) map_kernel(const __grid_constant__ map_launch<Injector> given) {
  using real = std::conditional_t<P.wide, double, float>;
  using ballast::cuda::bits;
  using ballast::cuda::index;
  const map_arguments& a = given.arguments;
  struct element {
    std::int64_t line, row;
  };
  const auto find = [&](std::int64_t block, std::int64_t thread) {
    element made;
    if constexpr (P.across) {
      constexpr int rows = k_map_threads / k_map_across;
      const std::int64_t row_blocks = (a.rows + rows - 1) / rows, group = block / row_blocks;
      made.line = group * k_map_across + thread % k_map_across;
      made.row = (block - group * row_blocks) * rows + thread / k_map_across;
    } else {
      const std::int64_t at = block * k_map_threads + thread;
      made.line = at / a.rows;
      made.row = at - made.line * a.rows;
    }
    return made;
  };
  element own = find(blockIdx.x, threadIdx.x);
  if (own.line >= a.lines || own.row >= a.rows) return;
  const inject::device_position here{a.first_block + blockIdx.x,    a.all_blocks, a.step, a.steps,
                                     static_cast<int>(threadIdx.x), k_map_threads};
  // Both computations of an attempt load what they use themselves. Parameters have no volatile loads: the index hides that it is the same.
  const auto again = [](const double& number) { return static_cast<real>((&number)[arch::opaque(std::int64_t{0})]); };
  const auto once = [&] {
    real value =
        map_value<P, real, const real, const std::uint32_t>(a, 0, a.first_line + own.line, own.row, again(a.scale),
                                                            [&](real* factor) { given.strike(index<1>{}, site::twiddle, here, factor); });
    given.strike(index<1>{}, a.site, here, &value);
    return value;
  };
  const auto place = [&](const element& of) {
    return static_cast<real*>(a.out) + line_begin(a.to, a.first_line + of.line) + of.row * a.to.scalar;
  };
  if constexpr (!P.check) {
    *place(own) = once();
    return;
  }
  const auto find_again = [&] { return find(arch::opaque(std::int64_t{blockIdx.x}), arch::opaque(std::int64_t{threadIdx.x})); };
  abft::attempts state(a.repairs);
  abft::outcome how = abft::outcome::open;
  while (how == abft::outcome::open) {
    own = find_again();
    const element other = find_again();
    const real value = once();
    real twin = map_value<P, real, const volatile real, const volatile std::uint32_t>(a, 1, a.first_line + other.line, other.row,
                                                                                      again(a.check_scale), [](real*) {});
    given.strike(index<1>{}, site::checksum, here, &twin);
    abft::finding now;
    // The payloads of NaNs are alike.
    const bool same = bits(value) == bits(twin) || (value != value && twin != twin);
    real* const to = place(own);
    now.word = same && to == place(other) ? abft::k_pass : abft::k_fail;
    given.strike(index<1>{}, site::comparison, here, &now.word);
    now.residual = fabs(static_cast<double>(value) - static_cast<double>(twin));
    now.bits = bits(value) == 0 ? 1 : bits(value);
    now.index = a.first_line + own.line;
    how = state.judge(now);
    if (abft::stands(how)) *to = value;
  }
  if (how == abft::outcome::clean) return;
  ballast::cuda::write_outcome(given, *a.events, how, state.first(), a.first_line + own.line, static_cast<std::uint32_t>(a.step),
                               static_cast<std::uint32_t>(event_check::product));
  if (state.false_alarm()) ballast::cuda::count(a.events->false_alarms);
}

}  // namespace ballast::fft::cuda
