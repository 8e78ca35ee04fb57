// Convolution of blocks of a signal: the kernels around its transforms, and their checks.
// Layer: fft/cuda kernels; convolve.cpp launches them.
//
// A thread block takes a tile of 4096 neighbouring elements of one block of the signal; thread t has the elements t, t + 256, … of a tile.
// Each step has a second kernel that computes the same numbers from other loads and compares bits. Those that read operands and results
// also sum them with the powers of two points on the unit circle, in double, by Horner's scheme over the elements of a thread.
//
// Blocks of several axes are convolved as long lines: a padded block has room for the whole result along each axis, so the number of an
// element in the block is the sum of the numbers of its factors, without carries from one axis to the next. The sums need no axes.
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

// Kernels are compiled for 1 to k_convolve_few_axes axes; Rank 0: for the number of axes in the arguments.
template <int Rank>
inline constexpr int k_axes_of_rank = Rank == 0 ? k_convolve_axes : k_convolve_few_axes;
template <int Rank>
using convolve_blocks_of = convolve_blocks<k_axes_of_rank<Rank>>;
template <int Rank, class Injector>
using convolve_pad_launch = ballast::cuda::kernel_launch<convolve_pad_arguments<k_axes_of_rank<Rank>>, Injector>;
template <class Injector>
using convolve_product_launch = ballast::cuda::kernel_launch<convolve_product_arguments, Injector>;
template <int Rank, class Injector>
using convolve_add_launch = ballast::cuda::kernel_launch<convolve_add_arguments<k_axes_of_rank<Rank>>, Injector>;
template <class Injector>
using convolve_judge_launch = ballast::cuda::kernel_launch<convolve_judge_arguments, Injector>;

template <int Rank>
inline constexpr int k_most_axes = Rank == 0 ? k_convolve_axes : Rank;
template <int Rank>
__device__ __forceinline__ int axes_of(const convolve_blocks_of<Rank>& of) {
  return Rank == 0 ? of.axes : Rank;
}

// Indices along the axes.
template <int Rank>
struct convolve_index {
  std::int64_t at[k_most_axes<Rank>];

  // The index of a number in a dense array of these lengths. The first length has no effect: the number may be one after the last.
  __device__ __forceinline__ convolve_index(std::int64_t number, const std::int64_t* lengths, int axes) {
#pragma unroll
    for (int i = axes - 1; i > 0; --i) {
      const std::int64_t above = number / lengths[i];
      at[i] = number - above * lengths[i];
      number = above;
    }
    at[0] = number;
  }

  // The elements of a block that are k_convolve_threads further or before, by addition with carries: divisions would take longer than the
  // loads.
  __device__ __forceinline__ void advance(const convolve_blocks_of<Rank>& of) {
    std::int64_t carry = 0;
#pragma unroll
    for (int i = axes_of<Rank>(of) - 1; i > 0; --i) {
      at[i] += of.turn[i] + carry;
      carry = at[i] >= of.length[i] ? 1 : 0;
      if (carry != 0) at[i] -= of.length[i];
    }
    at[0] += of.turn[0] + carry;
  }
  __device__ __forceinline__ void retreat(const convolve_blocks_of<Rank>& of) {
    std::int64_t borrow = 0;
#pragma unroll
    for (int i = axes_of<Rank>(of) - 1; i > 0; --i) {
      at[i] -= of.turn[i] + borrow;
      borrow = at[i] < 0 ? 1 : 0;
      if (borrow != 0) at[i] += of.length[i];
    }
    at[0] -= of.turn[0] + borrow;
  }
  __device__ __forceinline__ bool in_block(const convolve_blocks_of<Rank>& of) const { return at[0] < of.length[0]; }
};

// The number of blocks per multiprocessor that registers are kept for: indices of several axes take more of them.
template <int Rank>
inline constexpr int k_resident_blocks = Rank == 1 ? 4 : 2;

// Pads blocks. Check: compares them instead, and sums the operand.
template <class T, bool Complex, int Rank, bool Check, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, k_resident_blocks<Rank>)
    convolve_pad_kernel(const __grid_constant__ convolve_pad_launch<Rank, Injector> given) {
  using element = convolve_element<T, Complex>;
  const auto& a = given.arguments;
  const convolve_blocks_of<Rank>& blocks = a.blocks;
  const int axes = axes_of<Rank>(blocks);
  const std::int64_t block = blockIdx.x / blocks.parts, part = blockIdx.x - block * blocks.parts;
  const std::int64_t begin = part * k_convolve_tile + threadIdx.x;
  const auto* const from = static_cast<const element*>(a.from);
  auto* const to = static_cast<element*>(a.to) + block * blocks.points;
  // The elements of the operand in this block are those up to `limit` along each axis. The first one is number `origin` of the operand.
  std::int64_t limit[k_most_axes<Rank>], origin = 0;
  {
    const convolve_index<Rank> number(block, blocks.extent, axes);
#pragma unroll
    for (int i = 0; i < axes; ++i) {
      const std::int64_t place = (blocks.first[i] + number.at[i]) * blocks.step[i], rest = a.count[i] - place;
      limit[i] = rest < blocks.step[i] ? rest : blocks.step[i];
      origin = origin * a.count[i] + place;
    }
  }
  const auto read = [&](const convolve_index<Rank>& p) {
    bool inside = true;
    std::int64_t j = 0;
#pragma unroll
    for (int i = 0; i < axes; ++i) {
      inside = inside && p.at[i] < limit[i];
      j = j * a.count[i] + p.at[i];
    }
    element v{};
    if (inside) {
      j += origin;
      v = from[a.reversed != 0 ? a.elements - 1 - j : j];
      if constexpr (Complex) v.part[1] = a.reversed != 0 ? -v.part[1] : v.part[1];
    }
    return v;
  };
  constexpr int k_last = k_convolve_tile / k_convolve_threads - 1;
  if constexpr (Check) {
    convolve_sums sums;
    int differing = 0;
    convolve_index<Rank> p(begin + k_last * k_convolve_threads, blocks.length, axes);
#pragma unroll 4
    for (int i = k_last; i >= 0; --i) {
      const element v = read(p);
      if (p.in_block(blocks) && !same_bits(v, to[begin + i * k_convolve_threads])) ++differing;
      sums.take(v, a.stride);
      p.retreat(blocks);
    }
    if (differing != 0) atomicAdd(&a.verdict->differing, 1ull);
    sums.store(a.powers, blocks.parts, part, a.sums + blockIdx.x * k_convolve_sums, reinterpret_cast<double*>(arch::shared_memory()));
  } else {
    convolve_index<Rank> p(begin, blocks.length, axes);
#pragma unroll 4
    for (int i = 0; i <= k_last; ++i) {
      if (!p.in_block(blocks)) break;
      element v = read(p);
      if (i == 0) {
        const inject::device_position here{(blocks.first_tile + blockIdx.x) % blocks.tiles,
                                           blocks.tiles,
                                           a.turn,
                                           a.turns,
                                           static_cast<int>(threadIdx.x),
                                           k_convolve_threads};
        given.strike(ballast::cuda::index < Complex ? 2 : 1 > {}, site::input, here, v.part);
      }
      to[begin + i * k_convolve_threads] = v;
      p.advance(blocks);
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
template <class T, bool Complex, int Rank, bool Check, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, k_resident_blocks<Rank>)
    convolve_add_kernel(const __grid_constant__ convolve_add_launch<Rank, Injector> given) {
  using element = convolve_element<T, Complex>;
  const auto& a = given.arguments;
  const convolve_blocks_of<Rank>& blocks = a.blocks;
  const int axes = axes_of<Rank>(blocks);
  const std::int64_t block = blockIdx.x / blocks.parts, part = blockIdx.x - block * blocks.parts;
  const std::int64_t begin = part * k_convolve_tile + threadIdx.x;
  const auto* const y = static_cast<const element*>(a.y) + block * blocks.points;
  auto* const out = static_cast<element*>(a.out);
  // This block completes the results from `low` to `high` along each axis, at most `step` of them, the last block all. Element 0 would be
  // result number `origin`. `back`: the distance to the element of the block before along an axis, which is added; `shared_axes`: those
  // with such a block.
  std::int64_t low[k_most_axes<Rank>], high[k_most_axes<Rank>], back[k_most_axes<Rank>], origin = 0;
  std::uint64_t shared_axes = 0;
  {
    const convolve_index<Rank> number(block, blocks.extent, axes);
#pragma unroll
    for (int i = 0; i < axes; ++i) {
      const std::int64_t at = blocks.first[i] + number.at[i], place = at * blocks.step[i] - a.out_first[i];
      const std::int64_t completes = number.at[i] < a.lead[i] ? 0 : at + 1 == a.all[i] ? blocks.length[i] : blocks.step[i];
      const std::int64_t rest = a.out_count[i] - place;
      low[i] = place < 0 ? -place : 0;
      high[i] = completes < rest ? completes : rest;
      origin = origin * a.out_count[i] + place;
      if (number.at[i] > 0) shared_axes |= std::uint64_t{1} << i;
    }
    std::int64_t element_step = 1, block_step = 1;
#pragma unroll
    for (int i = axes - 1; i >= 0; --i) {
      back[i] = blocks.step[i] * element_step - block_step * blocks.points;
      element_step *= blocks.length[i];
      block_step *= blocks.extent[i];
    }
  }
  // Returns the place of a result, −1 if this block does not complete it.
  const auto place_of = [&](const convolve_index<Rank>& p) {
    bool inside = true;
    std::int64_t t = 0;
#pragma unroll
    for (int i = 0; i < axes; ++i) {
      inside = inside && p.at[i] >= low[i] && p.at[i] < high[i];
      t = t * a.out_count[i] + p.at[i];
    }
    return inside ? origin + t : -1;
  };
  // Adds the elements of the blocks before along every set of the axes on which p lies in the overlap.
  const auto add_previous = [&](element v, const convolve_index<Rank>& p, const element* at) {
    std::uint64_t overlapping = 0;
#pragma unroll
    for (int i = 0; i < axes; ++i) {
      if (p.at[i] < a.overlap[i]) overlapping |= std::uint64_t{1} << i;
    }
    overlapping &= shared_axes;
    for (std::uint64_t set = 0; set != overlapping;) {
      set = (set - overlapping) & overlapping;  // the next larger one
      std::int64_t distance = 0;
#pragma unroll
      for (int i = 0; i < axes; ++i) {
        if ((set >> i & 1) != 0) distance += back[i];
      }
      const element before = at[distance];
      v.part[0] += before.part[0];
      if constexpr (Complex) v.part[1] += before.part[1];
    }
    return v;
  };
  constexpr int k_last = k_convolve_tile / k_convolve_threads - 1;
  if constexpr (Check) {
    convolve_sums sums;
    std::uint64_t bits[1] = {0};
    int differing = 0;
    convolve_index<Rank> p(begin + k_last * k_convolve_threads, blocks.length, axes);
#pragma unroll 4
    for (int i = k_last; i >= 0; --i) {
      const std::int64_t at = begin + i * k_convolve_threads;
      element v{};
      if (p.in_block(blocks)) {
        v = y[at];
        const std::int64_t t = place_of(p);
        if (t >= 0 && !same_bits(add_previous(v, p, y + at), out[t])) ++differing;
        const auto word = static_cast<std::uint64_t>(2 * (block * blocks.points + at));
        bits[0] += abft::light_hash(v.part[0], word);
        if constexpr (Complex) bits[0] += abft::light_hash(v.part[1], word + 1);
      }
      sums.take(v, a.stride);
      p.retreat(blocks);
    }
    if (differing != 0) atomicAdd(&a.verdict->differing, 1ull);
    auto* const shared = reinterpret_cast<double*>(arch::shared_memory());
    sums.store(a.powers, blocks.parts, part, a.sums + blockIdx.x * k_convolve_sums, shared);
    const std::uint64_t all = ballast::cuda::add_block<k_convolve_threads>(
        bits, reinterpret_cast<std::uint64_t*>(shared + k_convolve_threads / 32 * k_convolve_sums));
    if (threadIdx.x == 0) atomicAdd(&a.verdict->bits, static_cast<unsigned long long>(all));
  } else {
    convolve_index<Rank> p(begin, blocks.length, axes);
#pragma unroll 4
    for (int i = 0; i <= k_last; ++i) {
      const std::int64_t at = begin + i * k_convolve_threads;
      const std::int64_t t = place_of(p);
      element v{};
      if (t >= 0) v = add_previous(y[at], p, y + at);
      if (i == 0) {
        const inject::device_position here{
            (blocks.first_tile + blockIdx.x) % blocks.tiles, blocks.tiles, 0, 1, static_cast<int>(threadIdx.x), k_convolve_threads};
        given.strike(ballast::cuda::index < Complex ? 2 : 1 > {}, site::output, here, v.part);
      }
      if (t >= 0) out[t] = v;
      p.advance(blocks);
    }
  }
}

// Compares Σ y zᵏ with Σ x zʲ · Σ h zˡ. A warp takes a block of the signal; Wide: a thread block does, for blocks of many tiles.
template <bool Wide, class Injector>
__global__ void __launch_bounds__(k_convolve_threads, 2)
    convolve_judge_kernel(const __grid_constant__ convolve_judge_launch<Injector> given) {
  using number = ballast::cuda::complex<double>;
  const convolve_judge_arguments& a = given.arguments;
  constexpr int k_lanes = Wide ? k_convolve_threads : 32, k_all = 3 * k_convolve_sums;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * (k_convolve_threads / k_lanes) + threadIdx.x / k_lanes;
  if (block >= a.blocks) return;
  double all[k_all] = {};
  double *const in = all, *const kernel = all + k_convolve_sums, *const out = all + 2 * k_convolve_sums;
  for (std::int64_t part = threadIdx.x % k_lanes; part < a.parts; part += k_lanes) {
    for (int v = 0; v < k_convolve_sums; ++v) {
      in[v] += a.in[(block * a.parts + part) * k_convolve_sums + v];
      kernel[v] += a.kernel[part * k_convolve_sums + v];
      out[v] += a.out[(block * a.parts + part) * k_convolve_sums + v];
    }
  }
  if constexpr (Wide) {
    auto* const shared = reinterpret_cast<double*>(arch::shared_memory());
    double* const sums = shared + k_convolve_threads / 32 * k_all;
    const double sum = ballast::cuda::add_block<k_convolve_threads>(all, shared);
    if (threadIdx.x < k_all) sums[threadIdx.x] = sum;
    __syncthreads();  // the sums are complete
    for (int v = 0; v < k_all; ++v) all[v] = sums[v];
  } else {
    ballast::cuda::add_lanes_in_loop(all);
  }
  if (threadIdx.x % k_lanes != 0) return;
  const inject::device_position here{(a.first_block + block) % a.all_blocks, a.all_blocks, 0, 1, 0, 1};
  given.strike(ballast::cuda::index<4>{}, site::checksum, here, in);
  const auto valid = [&](const double* of) { return of[4] >= a.low || of[5] == 0; };
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
