// Householder QR of a panel of many rows without one reflector after the other: Cholesky factors of its Gram matrix make its columns
// orthonormal, LU of Q's first rows makes them reflectors. Every pass over the rows takes the whole device.
// Layer: backend "cuda" of QR, device code. factor_tall in tall.cpp has the order of the launches.
// All arithmetic is in double, and in an order that depends on the shape alone.
// Source: T. Fukaya et al., Shifted Cholesky QR, 2020 (CholeskyQR2, shifts); G. Ballard et al., Reconstructing Householder vectors from
// TSQR, 2014 (Q1 − S = L U).
#pragma once

#include <cmath>
#include <limits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/arguments.hpp"

namespace ballast::qr::cuda {

// Q ← X R⁻¹ by substitution, a row of X by itself, so that ‖row − (row of Q) R‖ is rounding however R is conditioned; and QᵀQ of what is
// stored. Either may be left out.
// Blocks take tiles of k_tall_rows rows in turn. Shared memory: R packed, its diagonal as reciprocals; the tile by columns, k_tall_stride
// apart, with zeros behind its last column and row. For the substitution, warp 0 has a strip of k_tall_strip columns in registers, lane i
// row i; what the strips in front of it take from the next one is a product of all warps. In the Gram matrix, warp i has the strips i and
// 15 − i of 8 columns, each times all strips behind it: 17 products.
template <class S>
__global__ void __launch_bounds__(k_threads, 2) tall_pass_kernel(const __grid_constant__ tall_pass_arguments<S> a) {
  if (a.state->stage < a.needed) return;
  constexpr int warps = k_threads / 32, most = k_most_wide / 8, pairs = most + 1;
  static_assert(most == 2 * warps && k_tall_rows == 32 && k_tall_strip == 16);
  const int w = a.width, strips = (w + 7) / 8;
  const int lane = arch::lane(), warp = arch::warp(), g = lane / 4, t = lane % 4;
  double* const R = reinterpret_cast<double*>(arch::shared_memory());
  double* const X = R + packed(0, w);
  const bool solves = a.R != nullptr, multiplies = a.partial != nullptr;
  if (solves) {
    for (int l = warp; l < w; l += warps) {
      for (int i = lane; i <= l; i += 32) {
        const double r = a.R[packed(i, l)];
        R[packed(i, l)] = i == l ? 1 / r : r;
      }
    }
  }
  double sum[pairs][2] = {};
  const std::int64_t tiles = (a.rows + k_tall_rows - 1) / k_tall_rows;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t row = tile * k_tall_rows + lane;
    const bool there = row < a.rows;
    for (int j = warp; j < 8 * strips; j += warps)
      X[j * k_tall_stride + lane] = there && j < w ? static_cast<double>(a.from[row + j * a.ldf]) : 0;
    __syncthreads();  // the tile and R are there
    for (int first = 0; first < w && solves; first += k_tall_strip) {
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
      if (warp == 0) {
        double x[k_tall_strip];
        ballast::cuda::unrolled<k_tall_strip>([&](auto c) {
          constexpr int at = decltype(c)::value;
          x[at] = first + at < w ? X[(first + at) * k_tall_stride + lane] : 0;
        });
        ballast::cuda::unrolled<k_tall_strip>([&](auto c) {
          constexpr int at = decltype(c)::value;
          if (first + at >= w) return;
          // What is stored is what the columns behind it lose: the row's equation holds for the rounded numbers.
          x[at] = static_cast<double>(static_cast<S>(x[at] * R[packed(first + at, first + at)]));
          ballast::cuda::unrolled<k_tall_strip, at + 1>([&](auto e) {
            constexpr int behind = decltype(e)::value;
            if (first + behind < w) x[behind] -= x[at] * R[packed(first + at, first + behind)];
          });
          X[(first + at) * k_tall_stride + lane] = x[at];
        });
      }
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

// A matrix of one block, by rows: thread i + k_most_wide · q has row i of it, and of its columns every k_tall_parts-th.
inline constexpr int k_tall_parts = k_tall_threads / k_most_wide;

// One block: G = D RᵀR D by Cholesky, D the roots of G's diagonal, so that the scales of the columns do not count; and the product of all
// R so far. If a pivot is lost in rounding, the diagonal is shifted: then Q = X R⁻¹ is not orthonormal yet, but far better conditioned than
// X. ‖G − I‖ says how far the X whose Gram matrix this is was from orthonormal columns: measured, not estimated. Shared memory: the
// triangle, packed.
template <int Threads>
__global__ void __launch_bounds__(Threads) tall_factor_kernel(const __grid_constant__ tall_factor_arguments a) {
  static_assert(Threads == k_tall_threads);
  auto& scale = arch::shared_object<double[k_most_wide], struct tall_scales>();
  auto& several = arch::shared_object<double[Threads], struct tall_deviations>();
  if (!a.first && a.state->stage == k_tall_failed) return;
  const int w = a.width, thread = static_cast<int>(threadIdx.x), i = thread % k_most_wide, part = thread / k_most_wide;
  double* const P = reinterpret_cast<double*>(arch::shared_memory());
  int failed = 0;
  double off = 0;
  if (thread < w) {
    const double square = a.G[packed(thread, thread)];
    // Squares that say what they are.
    failed = square >= 0x1p-900 && square <= 0x1p900 ? 0 : 1;
    scale[thread] = sqrt(square);
  }
  if (__syncthreads_or(failed) != 0) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  const double lost = w * 0x1p-50;  // pivots as small as that are rounding
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int l = part; l < w; l += k_tall_parts) {
      if (i > l) continue;
      const double x = a.G[packed(i, l)];
      P[packed(i, l)] = i == l ? 1 + attempt * 16 * lost : x / (scale[i] * scale[l]);
      const double each = i == l ? x - 1 : x;
      if (attempt == 0) off += (i == l ? 1 : 2) * each * each;
    }
    failed = 0;
    for (int j = 0; j < w; ++j) {
      __syncthreads();  // row j is final
      const double pivot = P[packed(j, j)];
      if (!(pivot > lost)) {
        failed = 1;
        break;
      }
      if (i <= j || i >= w) continue;
      const double factor = P[packed(j, i)] / pivot;
      for (int l = i + part; l < w; l += k_tall_parts) P[packed(i, l)] -= factor * P[packed(j, l)];
    }
    __syncthreads();  // all have left
    if (failed == 0) break;
  }
  if (failed != 0) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  // R itself. The diagonal, of which each row takes the root, is read from a copy.
  several[thread] = off;
  if (thread < w) {
    const double size = scale[thread];
    scale[thread] = sqrt(P[packed(thread, thread)]);
    P[packed(thread, thread)] = size;
  }
  __syncthreads();  // roots are in `scale`, norms of the columns on the diagonal
  for (int l = part; l < w; l += k_tall_parts) {
    if (i > l) continue;
    const double size = P[packed(l, l)];
    a.R[packed(i, l)] = i == l ? scale[i] * size : P[packed(i, l)] / scale[i] * size;
  }
  __syncthreads();  // R is there
  for (int l = part; l < w; l += k_tall_parts) {
    if (i > l) continue;
    double sum = 0;
    for (int q = i; q <= l && !a.first; ++q) sum += a.R[packed(i, q)] * a.before[packed(q, l)];
    a.all[packed(i, l)] = a.first ? a.R[packed(i, l)] : sum;
  }
  if (thread != 0) return;
  double square = 0;
  for (int q = 0; q < Threads; ++q) square += several[q];
  a.state->deviation = sqrt(square);
  a.state->stage = !a.first && square <= k_tall_deviation * k_tall_deviation ? k_tall_orthonormal : k_tall_factored;
}

// One block: the reflectors of Q = X R⁻¹, of which only the first rows are made. Q_1 − S = L U with S = diag(±1) opposite to the pivots, so
// that each is at least 1 in size; V_1 = L; T Lᵀ = −U S; R of the panel is S times the product of all R. Leaves R, V_1, tau and T in their
// places, and U R, by which X becomes the rest of V. Where a reflector has no tail that rounding could not have made, LAPACK's tau is 0,
// not 2: then nothing is written. Shared memory: the matrix by columns of w.
template <class S>
__global__ void __launch_bounds__(k_tall_threads) tall_reflectors_kernel(const __grid_constant__ tall_reflectors_arguments<S> a) {
  auto& sign = arch::shared_object<double[k_most_wide], struct tall_signs>();
  if (a.state->stage < k_tall_orthonormal) return;
  const int w = a.width, thread = static_cast<int>(threadIdx.x), i = thread % k_most_wide, part = thread / k_most_wide;
  double* const M = reinterpret_cast<double*>(arch::shared_memory());
  const bool has_row = i < w;
  for (int l = part; l < w && has_row; l += k_tall_parts) M[i + l * w] = static_cast<double>(a.X[i + l * a.ldx]);
  // What a thread has for column j while others read it: written one step later.
  double kept = 0;
  for (int j = 0; j <= w; ++j) {
    __syncthreads();  // column j has lost what those in front of it take
    if (part == 0 && has_row && j > 0) M[i + (j - 1) * w] = kept;
    if (j == w || !has_row) continue;
    kept = M[i + j * w] / a.R[packed(j, j)];
    for (int l = j + 1 + part; l < w; l += k_tall_parts) M[i + l * w] -= kept * a.R[packed(j, l)];
  }
  for (int j = 0; j <= w; ++j) {
    __syncthreads();  // row and column j are final
    if (part == 0 && has_row && j > 0 && i >= j - 1) M[i + (j - 1) * w] = kept;
    if (j == w) continue;
    const double head = M[j + j * w], s = head > 0 ? -1 : 1, pivot = head - s;
    if (thread == 0) sign[j] = s;
    if (!has_row || i < j) continue;
    kept = i == j ? pivot : M[i + j * w] / pivot;
    for (int l = j + 1 + part; l < w && i > j; l += k_tall_parts) M[i + l * w] -= kept * M[j + l * w];
  }
  __syncthreads();  // L, U and the signs are there
  for (int l = part; l < w; l += k_tall_parts) {
    if (i > l) continue;
    double sum = 0;
    for (int q = i; q <= l; ++q) sum += M[i + q * w] * a.R[packed(q, l)];
    a.product[packed(i, l)] = sum;
  }
  __syncthreads();  // U has been read
  for (int l = part; l < w; l += k_tall_parts) {
    if (i <= l) M[i + l * w] *= -sign[l];
  }
  for (int j = 0; j < w; ++j) {
    __syncthreads();  // column j of T is final
    if (i > j) continue;
    for (int l = j + 1 + part; l < w; l += k_tall_parts) M[i + l * w] -= M[i + j * w] * M[l + j * w];
  }
  __syncthreads();  // T is there
  const double tau = thread < w ? M[thread * (w + 1)] : 1;
  if (__syncthreads_or(tau <= 2 - 0x1p-30 ? 0 : 1) != 0) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  for (int l = part; l < w && has_row; l += k_tall_parts) {
    const double x = M[i + l * w];
    a.T[i + l * w] = i <= l ? static_cast<S>(x) : S(0);
    a.A[i + l * a.lda] = static_cast<S>(i <= l ? sign[i] * a.all[packed(i, l)] : x);
    if (i == l) a.tau[l] = static_cast<S>(x);
  }
}

}  // namespace ballast::qr::cuda
