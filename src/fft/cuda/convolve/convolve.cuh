// Convolution of blocks of a signal: the kernels around its transforms, and their checks.
// Layer: fft/cuda kernels; convolve.cpp launches them.
//
// A thread block takes a tile of 4096 neighbouring elements of one block of the signal; thread t has the elements t, t + 256, … of a tile.
// Each step has a second kernel that computes the same numbers from other loads and compares bits. Those that read operands and results
// also sum them with the powers of two points on the unit circle, in double, by Horner's scheme over the elements of a thread.
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "abft/verify.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/complex.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "fft/cuda/convolve/arguments.hpp"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

// An element: a real number, or a complex one.
template <class T, bool Complex>
struct convolve_element {
  T part[Complex ? 2 : 1];
};
template <class T>
struct alignas(2 * sizeof(T)) convolve_element<T, true> {
  T part[2];
};

template <class T, bool Complex>
__device__ __forceinline__ bool same_bits(const convolve_element<T, Complex>& x, const convolve_element<T, Complex>& y) {
  bool same = abft::hashed_word(x.part[0]) == abft::hashed_word(y.part[0]);
  if constexpr (Complex) same = same && abft::hashed_word(x.part[1]) == abft::hashed_word(y.part[1]);
  return same;
}

// The sums of one thread over its elements of a tile, from the last to the first.
struct convolve_sums {
  double re[2] = {}, im[2] = {};
  double square = 0, nonzero = 0;

  template <class T, bool Complex>
  __device__ __forceinline__ void take(const convolve_element<T, Complex>& v, const double (&stride)[4]) {
    const double x = static_cast<double>(v.part[0]);
    const double y = Complex ? static_cast<double>(v.part[Complex ? 1 : 0]) : 0;
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      const double a = re[at], b = im[at];
      re[at] = fma(a, stride[2 * at], fma(-b, stride[2 * at + 1], x));
      im[at] = fma(a, stride[2 * at + 1], fma(b, stride[2 * at], y));
    }
    square = fma(x, x, fma(y, y, square));
    if (x != 0 || y != 0) nonzero += 1;
  }

  // Adds the sums of all threads of this block, times the powers of the first element of each thread, and stores them.
  __device__ __forceinline__ void store(const double* powers, std::int64_t parts, std::int64_t part, double* to, double* shared) {
    double value[k_convolve_sums];
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      const double* const of = powers + at * 2 * (k_convolve_threads + parts);
      const auto* const fine = of + 2 * threadIdx.x;
      const auto* const coarse = of + 2 * (k_convolve_threads + part);
      using number = ballast::cuda::complex<double>;
      const number sum = number{re[at], im[at]} * (number{fine[0], fine[1]} * number{coarse[0], coarse[1]});
      value[2 * at] = sum.re;
      value[2 * at + 1] = sum.im;
    }
    value[4] = square;
    value[5] = nonzero;
    const double all = ballast::cuda::add_block<k_convolve_threads>(value, shared);
    if (threadIdx.x < k_convolve_sums) to[threadIdx.x] = all;
  }
};

template <class Injector>
using convolve_pad_launch = ballast::cuda::kernel_launch<convolve_pad_arguments, Injector>;
template <class Injector>
using convolve_product_launch = ballast::cuda::kernel_launch<convolve_product_arguments, Injector>;
template <class Injector>
using convolve_add_launch = ballast::cuda::kernel_launch<convolve_add_arguments, Injector>;
template <class Injector>
using convolve_judge_launch = ballast::cuda::kernel_launch<convolve_judge_arguments, Injector>;

// Pads blocks. Check: compares them instead, and sums the operand.
template <class T, bool Complex, bool Check, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, 4) convolve_pad_kernel(const __grid_constant__ convolve_pad_launch<Injector> given) {
  using element = convolve_element<T, Complex>;
  const convolve_pad_arguments& a = given.arguments;
  const std::int64_t block = blockIdx.x / a.parts, part = blockIdx.x - block * a.parts;
  const std::int64_t begin = part * k_convolve_tile + threadIdx.x, place = (a.first + block) * a.step;
  const auto* const from = static_cast<const element*>(a.from.data);
  auto* const to = static_cast<element*>(a.to) + block * a.length;
  const auto read = [&](std::int64_t p) {
    const std::int64_t j = place + p;
    element v{};
    if (p < a.step && j >= 0 && j < a.from.count) {
      v = from[a.from.reversed != 0 ? a.from.count - 1 - j : j];
      if constexpr (Complex) v.part[1] = a.from.reversed != 0 ? -v.part[1] : v.part[1];
    }
    return v;
  };
  if constexpr (Check) {
    convolve_sums sums;
    int differing = 0;
#pragma unroll 4
    for (int i = k_convolve_tile / k_convolve_threads - 1; i >= 0; --i) {
      const std::int64_t p = begin + i * k_convolve_threads;
      const element v = read(p);
      if (p < a.length && !same_bits(v, to[p])) ++differing;
      sums.take(v, a.stride);
    }
    if (differing != 0) atomicAdd(&a.verdict->differing, 1ull);
    sums.store(a.powers, a.parts, part, a.sums + blockIdx.x * k_convolve_sums, reinterpret_cast<double*>(arch::shared_memory()));
  } else {
#pragma unroll 4
    for (int i = 0; i < k_convolve_tile / k_convolve_threads; ++i) {
      const std::int64_t p = begin + i * k_convolve_threads;
      if (p >= a.length) break;
      element v = read(p);
      if (i == 0) {
        const inject::device_position here{(a.first_tile + blockIdx.x) % a.tiles, a.tiles,           a.turn, a.turns,
                                           static_cast<int>(threadIdx.x),         k_convolve_threads};
        given.strike(ballast::cuda::index < Complex ? 2 : 1 > {}, site::input, here, v.part);
      }
      to[p] = v;
    }
  }
}

// Multiplies spectra. Check: compares the products instead.
template <class T, bool Check, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, 4)
    convolve_product_kernel(const __grid_constant__ convolve_product_launch<Injector> given) {
  using number = ballast::cuda::complex<T>;
  const convolve_product_arguments& a = given.arguments;
  const std::int64_t block = blockIdx.x / a.parts, part = blockIdx.x - block * a.parts;
  const std::int64_t begin = part * k_convolve_tile + threadIdx.x;
  const auto* const from = static_cast<const number*>(a.from) + block * a.points;
  const auto* const kernel = static_cast<const number*>(a.kernel);
  auto* const to = static_cast<number*>(a.to) + block * a.points;
  int differing = 0;
#pragma unroll 4
  for (int i = 0; i < k_convolve_tile / k_convolve_threads; ++i) {
    const std::int64_t p = begin + i * k_convolve_threads;
    if (p >= a.points) break;
    number z = from[p] * kernel[p];
    if constexpr (Check) {
      const number stored = to[p];
      if (abft::hashed_word(stored.re) != abft::hashed_word(z.re) || abft::hashed_word(stored.im) != abft::hashed_word(z.im)) ++differing;
    } else {
      if (i == 0) {
        const inject::device_position here{(a.first_tile + blockIdx.x) % a.tiles, a.tiles,           0, 1,
                                           static_cast<int>(threadIdx.x),         k_convolve_threads};
        given.strike(ballast::cuda::index<2>{}, site::intermediate, here, &z.re);
      }
      to[p] = z;
    }
  }
  if constexpr (Check) {
    if (differing != 0) atomicAdd(&a.verdict->differing, 1ull);
  }
}

// Adds overlapping results and stores them. Check: compares them instead, and sums the results of each block.
template <class T, bool Complex, bool Check, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, 4) convolve_add_kernel(const __grid_constant__ convolve_add_launch<Injector> given) {
  using element = convolve_element<T, Complex>;
  const convolve_add_arguments& a = given.arguments;
  const std::int64_t block = blockIdx.x / a.parts, part = blockIdx.x - block * a.parts;
  const std::int64_t begin = part * k_convolve_tile + threadIdx.x, number = a.first + block;
  const auto* const y = static_cast<const element*>(a.y) + block * a.length;
  auto* const out = static_cast<element*>(a.out);
  // The results that this block completes: `step`, of the last one all.
  const std::int64_t completes = block < a.lead || number >= a.blocks ? 0 : number + 1 == a.blocks ? a.length : a.step;
  const auto place_of = [&](std::int64_t p) {
    const std::int64_t t = number * a.step + p - a.out_first;
    return p < completes && t >= 0 && t < a.out_count ? t : -1;
  };
  const auto add_previous = [&](element v, std::int64_t p) {
    if (block > 0 && p < a.overlap) {
      const element before = y[p + a.step - a.length];
      v.part[0] += before.part[0];
      if constexpr (Complex) v.part[1] += before.part[1];
    }
    return v;
  };
  if constexpr (Check) {
    convolve_sums sums;
    std::uint64_t bits[1] = {0};
    int differing = 0;
#pragma unroll 4
    for (int i = k_convolve_tile / k_convolve_threads - 1; i >= 0; --i) {
      const std::int64_t p = begin + i * k_convolve_threads;
      element v{};
      if (p < a.length) {
        v = y[p];
        const std::int64_t t = place_of(p);
        if (t >= 0 && !same_bits(add_previous(v, p), out[t])) ++differing;
        const auto word = static_cast<std::uint64_t>(2 * (block * a.length + p));
        bits[0] += abft::light_hash(v.part[0], word);
        if constexpr (Complex) bits[0] += abft::light_hash(v.part[1], word + 1);
      }
      sums.take(v, a.stride);
    }
    if (differing != 0) atomicAdd(&a.verdict->differing, 1ull);
    auto* const shared = reinterpret_cast<double*>(arch::shared_memory());
    sums.store(a.powers, a.parts, part, a.sums + blockIdx.x * k_convolve_sums, shared);
    const std::uint64_t all = ballast::cuda::add_block<k_convolve_threads>(
        bits, reinterpret_cast<std::uint64_t*>(shared + k_convolve_threads / 32 * k_convolve_sums));
    if (threadIdx.x == 0) atomicAdd(&a.verdict->bits, static_cast<unsigned long long>(all));
  } else {
#pragma unroll 4
    for (int i = 0; i < k_convolve_tile / k_convolve_threads; ++i) {
      const std::int64_t p = begin + i * k_convolve_threads;
      const std::int64_t t = place_of(p);
      element v{};
      if (t >= 0) v = add_previous(y[p], p);
      if (i == 0) {
        const inject::device_position here{(a.first_tile + blockIdx.x) % a.tiles, a.tiles,           0, 1,
                                           static_cast<int>(threadIdx.x),         k_convolve_threads};
        given.strike(ballast::cuda::index < Complex ? 2 : 1 > {}, site::output, here, v.part);
      }
      if (t >= 0) out[t] = v;
    }
  }
}

// Compares Σ y zᵏ with Σ x zʲ · Σ h zˡ. A warp takes a block of the signal.
template <class Injector>
__global__ void __launch_bounds__(k_convolve_threads, 4)
    convolve_judge_kernel(const __grid_constant__ convolve_judge_launch<Injector> given) {
  using number = ballast::cuda::complex<double>;
  const convolve_judge_arguments& a = given.arguments;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * (k_convolve_threads / 32) + threadIdx.x / 32;
  if (block >= a.blocks) return;
  double in[k_convolve_sums] = {}, kernel[k_convolve_sums] = {}, out[k_convolve_sums] = {};
  for (std::int64_t part = threadIdx.x % 32; part < a.parts; part += 32) {
    for (int v = 0; v < k_convolve_sums; ++v) {
      in[v] += a.in[(block * a.parts + part) * k_convolve_sums + v];
      kernel[v] += a.kernel[part * k_convolve_sums + v];
      out[v] += a.out[(block * a.parts + part) * k_convolve_sums + v];
    }
  }
  ballast::cuda::add_lanes_in_loop(in);
  ballast::cuda::add_lanes_in_loop(kernel);
  ballast::cuda::add_lanes_in_loop(out);
  if (threadIdx.x % 32 != 0) return;
  const inject::device_position here{(a.first_block + block) % a.all_blocks, a.all_blocks, 0, 1, 0, 1};
  given.strike(ballast::cuda::index<4>{}, site::checksum, here, in);
  const auto valid = [&](const double(&of)[k_convolve_sums]) { return of[4] >= a.low || of[5] == 0; };
  const double norms = sqrt(in[4]) * sqrt(kernel[4]);
  // Comparisons with NaN are false.
  const bool finite = norms < a.largest && valid(in) && valid(kernel);
  double tau = a.relative * (2 * norms + sqrt(out[4])) + a.smallest;
  const double twin = tau;
  given.strike(ballast::cuda::index<1>{}, site::threshold, here, &tau);
  bool fails = false, open = false;
  convolve_judgement made{0, tau, abft::k_pass, 0};
  for (int at = 0; at < 2; ++at) {
    const number product = number{in[2 * at], in[2 * at + 1]} * number{kernel[2 * at], kernel[2 * at + 1]};
    const double residual = hypot(out[2 * at] - product.re, out[2 * at + 1] - product.im);
    abft::guarded_threshold limit(tau * a.root);
    limit.twin = twin * a.root;
    std::uint32_t word = abft::verify(residual, limit);
    given.strike(ballast::cuda::index<1>{}, site::comparison, here, &word);
    const bool wrong = finite && word != abft::k_pass;
    if (wrong && !fails) made = {residual, limit.value, abft::k_fail, 0};
    fails = fails || wrong;
    open = open || !finite || residual > twin;
  }
  made.open = !fails && open ? 1 : 0;
  a.judged[block] = made;
  atomicAdd(fails ? &a.verdict->failed : open ? &a.verdict->unjudged : &a.verdict->passed, 1ull);
}

}  // namespace ballast::fft::cuda
