// Householder QR of a panel of many rows without one reflector after the other: Cholesky factors of its Gram matrix make its columns
// orthonormal, LU of Q's first rows makes them reflectors (square.cuh). Every pass over the rows takes the whole device.
// Layer: backend "cuda" of QR, device code. tall.cpp has the order of the launches.
// All arithmetic is in double, and in an order that depends on the shape alone.
// Source: T. Fukaya et al., Shifted Cholesky QR, 2020 (CholeskyQR2, shifts); G. Ballard et al., Reconstructing Householder vectors from
// TSQR, 2014 (Q1 − S = L U).
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/arguments.hpp"

namespace ballast::qr::cuda {

// Whether a pass is for a panel in this stage.
template <class S>
__device__ __forceinline__ bool is_due(const tall_pass_arguments<S>& a) {
  return a.needed == k_tall_failed || a.state->stage == a.needed;
}

// R packed into shared memory, its diagonal as reciprocals. The caller's next barrier makes it ready.
template <int Threads>
__device__ __forceinline__ void load_factor(const double* from, int w, double* R) {
  constexpr int together = 8;  // loads that wait for memory at the same time
  const int count = packed(0, w);
  for (int first = static_cast<int>(threadIdx.x); first < count; first += together * Threads) {
    double r[together];
    ballast::cuda::unrolled<together>([&](auto q) {
      const int e = first + decltype(q)::value * Threads;
      r[decltype(q)::value] = e < count ? from[e] : 0;
    });
    ballast::cuda::unrolled<together>([&](auto q) {
      const int e = first + decltype(q)::value * Threads;
      if (e < count) R[e] = r[decltype(q)::value];
    });
  }
  __syncthreads();  // the diagonal is there
  for (int l = static_cast<int>(threadIdx.x); l < w; l += Threads) R[packed(l, l)] = 1 / R[packed(l, l)];
}

// The strip of k_strip columns from `first` on of x R⁻¹, for the row x that this thread has in shared memory, its columns `stride` apart;
// what the strips in front of it take has been subtracted.
template <class S>
__device__ __forceinline__ void substitute_strip(double* row, int stride, const double* R, int first, int w) {
  double x[k_strip];
  ballast::cuda::unrolled<k_strip>([&](auto c) {
    constexpr int at = decltype(c)::value;
    x[at] = first + at < w ? row[(first + at) * stride] : 0;
  });
  ballast::cuda::unrolled<k_strip>([&](auto c) {
    constexpr int at = decltype(c)::value;
    if (first + at >= w) return;
    // What is stored is what the columns behind it lose: the row's equation holds for the rounded numbers.
    x[at] = static_cast<double>(static_cast<S>(x[at] * R[packed(first + at, first + at)]));
    ballast::cuda::unrolled<k_strip, at + 1>([&](auto e) {
      constexpr int behind = decltype(e)::value;
      if (first + behind < w) x[behind] -= x[at] * R[packed(first + at, first + behind)];
    });
    row[(first + at) * stride] = x[at];
  });
}

// Q ← X R⁻¹ by substitution, a row of X by itself, so that ‖row − (row of Q) R‖ is rounding however R is conditioned; and QᵀQ of what is
// stored. Either may be left out. For at most `Most` columns, 32 or 64.
// A warp takes `Rows` rows by itself and waits for no other, so that the loads of some are under way while others compute: lane i
// substitutes row i; what the strips of k_strip columns in front take from the next one, and the Gram matrix of these rows in tiles of 8 ×
// 8 on and above the diagonal, are products of the warp. Shared memory: R packed, its diagonal as reciprocals; the rows of all warps by
// columns, `stride` apart: no bank twice. At the end the sum of the warps' Gram matrices, tile by tile.
template <class S, int Most, int Rows>
__global__ void __launch_bounds__(k_pass_threads, pass_resident(Most)) tall_pass_kernel(const __grid_constant__ tall_pass_arguments<S> a) {
  if (!is_due(a)) return;
  const bool in_place = a.in_place && a.state->direct != 0;
  const S* const from = in_place ? a.to : a.from;
  constexpr int warps = k_pass_warps, stride = pass_stride(Rows), strips = Most / 8, halves = 32 / Rows;
  constexpr int tiles = strips * (strips + 1) / 2, groups = Rows / 8, together = 16;  // loads that wait for memory at the same time
  static_assert(8 * tiles * 64 <= pass_bytes(Most, Rows) && k_strip == 16 && Most * Rows / 32 % together == 0);
  const int w = a.width, lane = arch::lane(), warp = arch::warp(), g = lane / 4, t = lane % 4;
  double* const R = reinterpret_cast<double*>(arch::shared_memory());
  double* const X = R + packed(0, Most) + Rows * warp;
  const bool solves = a.R != nullptr, multiplies = a.partial != nullptr;
  if (solves) load_factor<k_pass_threads>(a.R, w, R);
  __syncthreads();  // R is there
  double sum[tiles][2] = {};
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * warps * Rows; first_row < a.rows;
       first_row += std::int64_t{gridDim.x} * warps * Rows) {
    const std::int64_t row = first_row + Rows * warp + lane % Rows;
    const bool there = row < a.rows;
    const std::int64_t ldf = arch::opaque(in_place ? a.ldt : a.ldf);  // or the places of all columns would be kept in registers
    ballast::cuda::unrolled<Most / halves / together>([&](auto part) {
      constexpr int begin = decltype(part)::value * together;
      S x[together];
      ballast::cuda::unrolled<together>([&](auto q) {
        const int j = (begin + decltype(q)::value) * halves + lane / Rows;
        x[decltype(q)::value] = there && j < w ? from[row + j * ldf] : S(0);
      });
      ballast::cuda::unrolled<together>([&](auto q) {
        const int j = (begin + decltype(q)::value) * halves + lane / Rows;
        X[j * stride + lane % Rows] = static_cast<double>(x[decltype(q)::value]);
      });
    });
    __syncwarp();  // the rows are there
    for (int first = 0; first < w && solves; first += k_strip) {
      if (first > 0) {
        double d[groups][2][2] = {};
        for (int k = 0; k < first; k += 4) {
          double x[groups], r[2];
          ballast::cuda::unrolled<groups>([&](auto i) { x[decltype(i)::value] = X[(k + t) * stride + 8 * decltype(i)::value + g]; });
          ballast::cuda::unrolled<2>([&](auto c) {
            const int column = first + 8 * decltype(c)::value + g;
            r[decltype(c)::value] = column < w ? R[packed(k + t, column)] : 0;
          });
          ballast::cuda::unrolled<groups>([&](auto i) {
            ballast::cuda::unrolled<2>([&](auto c) {
              arch::mma_m8n8k4_f64(d[decltype(i)::value][decltype(c)::value], x[decltype(i)::value], r[decltype(c)::value]);
            });
          });
        }
        ballast::cuda::unrolled<groups>([&](auto i) {
          ballast::cuda::unrolled<2>([&](auto c) {
            constexpr int rows = 8 * decltype(i)::value, column = 8 * decltype(c)::value;
            for (int h = 0; h < 2; ++h) X[(first + column + 2 * t + h) * stride + rows + g] -= d[decltype(i)::value][decltype(c)::value][h];
          });
        });
        __syncwarp();  // the strip has lost what the strips in front of it take
      }
      if (lane < Rows) substitute_strip<S>(X + lane, stride, R, first, w);
      __syncwarp();  // the strip is Q's
    }
    if (solves && there) {
      for (int j = lane / Rows; j < w; j += halves) a.to[row + j * a.ldt] = static_cast<S>(X[j * stride + lane % Rows]);
    }
    for (int k = 0; k < Rows && multiplies; k += 4) {
      double x[strips];
      ballast::cuda::unrolled<strips>([&](auto c) { x[decltype(c)::value] = X[(8 * decltype(c)::value + g) * stride + k + t]; });
      ballast::cuda::unrolled<strips>([&](auto i) {
        constexpr int upper = decltype(i)::value;
        ballast::cuda::unrolled<strips, upper>([&](auto j) {
          constexpr int right = decltype(j)::value;
          arch::mma_m8n8k4_f64(sum[upper_tile(strips, upper, right)], x[upper], x[right]);
        });
      });
    }
    __syncwarp();  // the rows have been read
  }
  if (!multiplies) return;
  double* const to = a.partial + std::int64_t{blockIdx.x} * packed(0, w);
  __syncthreads();  // R and the rows of all warps have been read
  double* const whole = R;
  for (int of = 0; of < warps; ++of) {
    if (warp == of) {
      ballast::cuda::unrolled<tiles>([&](auto e) {
        double* const number = whole + 64 * decltype(e)::value + 2 * lane;
        for (int h = 0; h < 2; ++h) number[h] = of == 0 ? sum[decltype(e)::value][h] : number[h] + sum[decltype(e)::value][h];
      });
    }
    __syncthreads();  // the sums of the warps up to this one are there
  }
  for (int e = static_cast<int>(threadIdx.x); e < Most * Most; e += k_pass_threads) {
    const int i = e % Most, l = e / Most;
    if (i > l || l >= w) continue;
    to[packed(i, l)] = whole[64 * upper_tile(strips, i / 8, l / 8) + i % 8 * 8 + l % 8];
  }
}

// The same for more columns, of which so few rows fit into shared memory that the warps of a block share them.
// Blocks take tiles of k_tall_rows rows in turn. Shared memory: R packed, its diagonal as reciprocals; the tile by columns, k_tall_stride
// apart, with zeros behind its last column and row. For the substitution, warp 0 has a strip of k_strip columns in registers, lane i
// row i; what the strips in front of it take from the next one is a product of all warps. In the Gram matrix, warp i has the strips i and
// 15 − i of 8 columns, each times all strips behind it: 17 products.
template <class S>
__global__ void __launch_bounds__(k_threads, 2) wide_pass_kernel(const __grid_constant__ tall_pass_arguments<S> a) {
  if (!is_due(a)) return;
  const bool in_place = a.in_place && a.state->direct != 0;
  const S* const from = in_place ? a.to : a.from;
  const std::int64_t ldf = in_place ? a.ldt : a.ldf;
  constexpr int warps = k_threads / 32, most = k_most_wide / 8, pairs = most + 1;
  static_assert(most == 2 * warps && k_tall_rows == 32 && k_strip == 16);
  const int w = a.width, strips = (w + 7) / 8;
  const int lane = arch::lane(), warp = arch::warp(), g = lane / 4, t = lane % 4;
  double* const R = reinterpret_cast<double*>(arch::shared_memory());
  double* const X = R + packed(0, w);
  const bool solves = a.R != nullptr, multiplies = a.partial != nullptr;
  constexpr int together = 8;  // loads that wait for memory at the same time
  if (solves) load_factor<k_threads>(a.R, w, R);
  double sum[pairs][2] = {};
  const std::int64_t tiles = (a.rows + k_tall_rows - 1) / k_tall_rows;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t row = tile * k_tall_rows + lane;
    const bool there = row < a.rows;
    for (int first = warp; first < 8 * strips; first += together * warps) {
      S x[together];
      ballast::cuda::unrolled<together>([&](auto q) {
        const int j = first + decltype(q)::value * warps;
        x[decltype(q)::value] = there && j < w ? from[row + j * ldf] : S(0);
      });
      ballast::cuda::unrolled<together>([&](auto q) {
        const int j = first + decltype(q)::value * warps;
        if (j < 8 * strips) X[j * k_tall_stride + lane] = static_cast<double>(x[decltype(q)::value]);
      });
    }
    __syncthreads();  // the tile and R are there
    for (int first = 0; first < w && solves; first += k_strip) {
      const int rows = warp % 4 * 8, column = first + warp / 4 * 8;
      if (first > 0 && column < w) {
        double d[2] = {};
        for (int k = 0; k < first; k += 4) {
          const double r = column + g < w ? R[packed(k + t, column + g)] : 0;
          arch::mma_m8n8k4_f64(d, X[(k + t) * k_tall_stride + rows + g], r);
        }
        for (int h = 0; h < 2; ++h) X[(column + 2 * t + h) * k_tall_stride + rows + g] -= d[h];
      }
      __syncthreads();  // the strip has lost what the strips in front of it take
      if (warp == 0) substitute_strip<S>(X + lane, k_tall_stride, R, first, w);
      __syncthreads();  // the strip is Q's
    }
    if (multiplies) {
      const int last = most - 1 - warp;
      for (int k = 0; k < k_tall_rows; k += 4) {
        const double near = warp < strips ? X[(8 * warp + g) * k_tall_stride + k + t] : 0;
        const double far = last < strips ? X[(8 * last + g) * k_tall_stride + k + t] : 0;
        ballast::cuda::unrolled<pairs>([&](auto p) {
          constexpr int pair = decltype(p)::value;
          const bool own = pair < most - warp;
          const int other = own ? warp + pair : pair - 1;
          if (other < strips) arch::mma_m8n8k4_f64(sum[pair], own ? near : far, X[(8 * other + g) * k_tall_stride + k + t]);
        });
      }
    }
    if (solves && there) {
#pragma unroll 4
      for (int j = warp; j < w; j += warps) a.to[row + j * a.ldt] = static_cast<S>(X[j * k_tall_stride + lane]);
    }
    __syncthreads();  // the tile has been read
  }
  if (!multiplies) return;
  double* const to = a.partial + std::int64_t{blockIdx.x} * packed(0, w);
  ballast::cuda::unrolled<pairs>([&](auto p) {
    constexpr int pair = decltype(p)::value;
    const bool own = pair < most - warp;
    const int i = 8 * (own ? warp : most - 1 - warp) + g;
    for (int h = 0; h < 2; ++h) {
      const int l = 8 * (own ? warp + pair : pair - 1) + 2 * t + h;
      if (i <= l && l < w) to[packed(i, l)] = sum[pair][h];
    }
  });
}

}  // namespace ballast::qr::cuda
