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
// stored. Either may be left out. For at most `Most` columns.
// A warp takes `Rows` rows by itself and waits for no other, so that the loads of some are under way while others compute: lane i
// substitutes row i, and what the strips of k_strip columns in front take from the next one is a product of the warp. The Gram matrix is
// made in tiles of 8 × 8 on and above the diagonal: up to 64 columns by every warp of its own rows; above that the warps share the tiles,
// of the rows of all of them: warp i has those whose upper strip of 8 columns is i, i + 4, 11 − i or 15 − i, 34 of 136. Shared memory: R
// packed, its diagonal as reciprocals; the rows of all warps by columns, `stride` apart: no bank twice. At the end the sum of the warps'
// Gram matrices, tile by tile.
template <class S, int Most, int Rows>
__global__ void __launch_bounds__(k_pass_threads, pass_resident(Most)) tall_pass_kernel(const __grid_constant__ tall_pass_arguments<S> a) {
  if (a.state->stage < a.needed) return;
  constexpr int warps = k_pass_warps, stride = pass_stride(Rows), strips = Most / 8, halves = 32 / Rows;
  constexpr bool shared_gram = Most > 64;
  constexpr int all_tiles = strips * (strips + 1) / 2, tiles = shared_gram ? all_tiles / warps : all_tiles;
  constexpr int groups = Rows / 8, together = 16;  // loads that wait for memory at the same time
  static_assert((shared_gram || 8 * tiles * 64 <= pass_bytes(Most, Rows)) && k_strip == 16 && Most * Rows / 32 % together == 0);
  const int w = a.width, lane = arch::lane(), warp = arch::warp(), g = lane / 4, t = lane % 4;
  double* const R = reinterpret_cast<double*>(arch::shared_memory());
  double* const all = R + packed(0, Most);
  double* const X = all + Rows * warp;
  const bool solves = a.R != nullptr, multiplies = a.partial != nullptr;
  if (solves) load_factor<k_pass_threads>(a.R, w, R);
  __syncthreads();  // R is there
  double sum[tiles][2] = {};
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * warps * Rows; first_row < a.rows;
       first_row += std::int64_t{gridDim.x} * warps * Rows) {
    const std::int64_t row = first_row + Rows * warp + lane % Rows;
    const bool there = row < a.rows;
    ballast::cuda::unrolled<Most / halves / together>([&](auto part) {
      constexpr int begin = decltype(part)::value * together;
      S x[together];
      ballast::cuda::unrolled<together>([&](auto q) {
        const int j = (begin + decltype(q)::value) * halves + lane / Rows;
        x[decltype(q)::value] = there && j < w ? a.from[row + j * a.ldf] : S(0);
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
    if constexpr (!shared_gram) {
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
    } else if (multiplies) {
      __syncthreads();  // the rows of all warps are there
      for (int k = 0; k < warps * Rows; k += 4) {
        ballast::cuda::unrolled<2>([&](auto turn) {
          constexpr int half = decltype(turn)::value;
          const int near = warp + half * warps, far = strips - 1 - near;
          const double x = all[(8 * near + g) * stride + k + t], y = all[(8 * far + g) * stride + k + t];
          ballast::cuda::unrolled<strips + 1>([&](auto p) {
            constexpr int pair = decltype(p)::value;
            const bool own = pair < strips - near;
            const int right = own ? near + pair : pair - 1;
            if (8 * right < w) arch::mma_m8n8k4_f64(sum[half * (strips + 1) + pair], own ? x : y, all[(8 * right + g) * stride + k + t]);
          });
        });
      }
    }
    if constexpr (shared_gram) {
      __syncthreads();  // the rows have been read
    } else {
      __syncwarp();  // the rows have been read
    }
  }
  if (!multiplies) return;
  double* const to = a.partial + std::int64_t{blockIdx.x} * packed(0, w);
  if constexpr (shared_gram) {
    ballast::cuda::unrolled<tiles>([&](auto e) {
      constexpr int half = decltype(e)::value / (strips + 1), pair = decltype(e)::value % (strips + 1);
      const int near = warp + half * warps;
      const bool own = pair < strips - near;
      const int i = 8 * (own ? near : strips - 1 - near) + g;
      for (int h = 0; h < 2; ++h) {
        const int l = 8 * (own ? near + pair : pair - 1) + 2 * t + h;
        if (i <= l && l < w) to[packed(i, l)] = sum[decltype(e)::value][h];
      }
    });
  } else {
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
}

}  // namespace ballast::qr::cuda
