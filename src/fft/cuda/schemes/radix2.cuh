// One stage of radix 2 over whole signals in memory: the simplest transform, as a baseline for the others.
// Layer: fft/cuda kernels; radix2.cpp launches one for each stage.
// Source: TurboFFT (PPoPP 2025) section 5.1.5, version 0; T. Stockham, High-speed convolution and correlation, 1966.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/arch/arch.cuh"
#include "fft/cuda/kernel/butterfly.cuh"
#include "fft/cuda/schemes/radix2.hpp"

namespace ballast::fft::cuda {

// Thread i of the grid has butterfly j = i % half of signal i / half, with the inputs j and j + half.
template <bool Wide>
__global__ void __launch_bounds__(k_radix2_threads) radix2_kernel(const __grid_constant__ radix2_arguments a) {
  using real = std::conditional_t<Wide, double, float>;
  using number = complex<real>;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * k_radix2_threads + threadIdx.x;
  if (at >= a.butterflies) return;
  const std::int64_t signal = at / a.half;
  const std::int64_t j = at - signal * a.half;
  const number* const from = static_cast<const number*>(a.in) + signal * a.in_distance;
  number* const to = static_cast<number*>(a.out) + signal * a.out_distance;
  const auto turned = [&](const number& z, bool turn) { return turn ? number{z.im, z.re} : z; };
  const std::int64_t row = j & (a.before - 1);
  const number first = turned(from[j * a.in_stride], a.turn_in != 0);
  const number second =
      turned(from[(j + a.half) * a.in_stride], a.turn_in != 0) * static_cast<const number*>(a.roots)[row * (a.half / a.before)];
  const real scale = static_cast<real>(a.scale);
  const number sum = first + second;
  const number difference = first - second;
  const std::int64_t base = 2 * (j - row) + row;
  to[base * a.out_stride] = turned({sum.re * scale, sum.im * scale}, a.turn_out != 0);
  to[(base + a.before) * a.out_stride] = turned({difference.re * scale, difference.im * scale}, a.turn_out != 0);
}

}  // namespace ballast::fft::cuda
