// The small factors of Cholesky QR. One thread block computes the Cholesky factor of a Gram matrix, or the LU that rounds orthonormal
// columns into reflectors; a few compute T. See cholesky_qr.cuh for the passes over the rows, elimination.cuh for what the threads do.
// Layer: backend "cuda" of QR, device code.
// Complex matrices are real ones of twice the size (real_blocks.cuh), with the same kernels. Their Cholesky factor is the real one. The
// real LU X = L' U' of blocks is L = L' D⁻¹, U = D U', D = [1 0; t 1] by blocks: row 2 i of U' and column 2 j + 1 of L' are those of U and
// of L. Source: as cholesky_qr.cuh.
#pragma once

#include <cmath>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/arithmetic/random.hpp"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/layout/real_blocks.cuh"
#include "qr/cuda/panel/elimination.cuh"

namespace ballast::qr::cuda {

// G = D RᵀR D by Cholesky, D the square roots of G's diagonal, so that the scales of the columns do not matter; and the product of all R so
// far. If a pivot is lost in rounding, the diagonal is shifted: Q = X R⁻¹ is then not orthonormal yet, but far better conditioned than X.
// ‖G − I‖ is the distance of X, whose Gram matrix this is, from orthonormal columns: measured, not estimated. If its square is below
// rounding, R is I + (G − I)'s upper triangle with half its diagonal. With G = L U, R is U with its rows divided by the square roots of the
// pivots.
//
// For the Gram matrix of A, scaled, G = L D Lᵀ, the mean of zᵀG⁻¹z = ‖D^−½ L⁻¹ z‖² over k_small_factor_samples random z estimates tr G⁻¹,
// the sum of 1/λ over G's eigenvalues. The elements of z all differ in size: with signs alone, two nearly equal columns would be missed if
// all z have the same sign for both. Σ 1/D is never more than tr G⁻¹, and always detects a column that nearly depends on some columns
// before it. Rounding in G and R moves QᵀQ, Q = A R⁻¹, by no more than some u times tr G⁻¹: if both estimates are small, Q needs no second
// factor, and the panel is direct. Source: M. Hutchinson, A stochastic estimator of the trace of the influence matrix, 1989.
template <int Threads, int Reals = 1>
__global__ void __launch_bounds__(Threads) small_factor_kernel(const __grid_constant__ small_factor_arguments a) {
  static_assert(Threads == k_small_factor_threads);
  auto& scale = arch::shared_object<double[k_most_wide], struct small_factor_scales>();
  auto& reciprocal = arch::shared_object<double[k_most_wide], struct small_factor_reciprocals>();
  auto& several = arch::shared_object<double[2 * Threads / 32], struct small_factor_deviations>();
  auto& deviation_squared = arch::shared_object<double, struct small_factor_deviation>();
  const int w = Reals * a.width, thread = static_cast<int>(threadIdx.x);
  const packed_blocks<Reals> G{a.G}, before{a.before};
  if (a.first && is_closed(a.gate)) {
    if (thread == 0) a.state->stage = k_cholesky_qr_failed;
    return;
  }
  if (!a.first && a.state->stage != k_cholesky_qr_factored) return;
  small_factor X = small_factor_of(w);
  const auto upper = [&](int i, int l) { return i <= l ? G(i, l) : 0; };
  int failed = 0;
  if (thread < w) {
    const double norm_squared = G(thread, thread);
    // Squares outside this range are inaccurate.
    failed = norm_squared >= 0x1p-900 && norm_squared <= 0x1p900 ? 0 : 1;
    scale[thread] = sqrt(norm_squared);
  }
  if (!a.first) {
    double off[1] = {};
    each_element(w, upper, [&](int i, int l, double x) {
      if (i > l) return;
      const double each = i == l ? x - 1 : x;
      off[0] += (i == l ? 1 : 2) * each * each;
      X(i, l) = i == l ? (1 + x) / 2 : x;
    });
    const double square = ballast::cuda::add_block<Threads>(off, several);
    if (thread == 0) deviation_squared = square;
  }
  if (__syncthreads_or(failed) != 0) {
    if (thread == 0) a.state->stage = k_cholesky_qr_failed;
    return;
  }
  const bool near = !a.first && deviation_squared <= a.near * a.near;
  bool good = near, shifted = false;
  const double lost = w * 0x1p-50;  // smaller pivots are rounding
#pragma unroll 1
  for (int attempt = 0; attempt < 2 && !good; ++attempt) {
    if (thread < w) reciprocal[thread] = 1 / scale[thread];
    __syncthreads();  // `reciprocal` holds the scales; in a later attempt it held the pivots' reciprocals
    each_element(w, upper, [&](int i, int l, double x) {
      if (i > l) return;
      const double scaled = i == l ? attempt * 16 * lost : x * reciprocal[i] * reciprocal[l];
      X(i, l) = scaled;
      if (i / k_small_factor_tile == l / k_small_factor_tile) X(l, i) = scaled;
    });
    X.pad(w, 0);
    X.more = a.first ? k_small_factor_samples : 0;
#pragma unroll 1
    for (int e = thread; e < X.more * X.width; e += Threads) {
      const int i = e % X.width;
      X(i, X.width + e / X.width) = i < w ? random_signed(k_condition_stream, static_cast<std::uint64_t>(e)) : 0;
    }
    shifted = attempt > 0;
    good = eliminate(X, reciprocal, plain_pivots{lost});
  }
  if (!good) {
    if (thread == 0) a.state->stage = k_cholesky_qr_failed;
    return;
  }
  double sums[2] = {};  // over all z, zᵀG⁻¹z; Σ 1 / D
#pragma unroll 1
  for (int e = thread; e < X.more * X.width; e += Threads) {
    const double y = X(e % X.width, X.width + e / X.width);
    sums[0] += y * y * reciprocal[e % X.width];
  }
  if (a.first && thread < w) sums[1] = reciprocal[thread];
  constexpr double mean_square = 7.0 / 3;  // the mean square of numbers in ±[1, 2)
  const double sum = ballast::cuda::add_block<Threads>(sums, several);
  // Thread 0 has the first sum, thread 1 the second.
  const int small = thread > 1 || (thread == 0 ? sum / (k_small_factor_samples * mean_square) : sum) <= a.direct ? 1 : 0;
  const bool estimated = __syncthreads_and(small) != 0;
  // Row i of R is U's divided by the square root of its pivot; column l is multiplied by its scale.
  if (!near) {
    __syncthreads();  // the pivots have been read
    if (thread < w) {
      reciprocal[thread] = sqrt(reciprocal[thread]);
      X(thread, thread) = sqrt(X(thread, thread)) * scale[thread];
    }
  }
  __syncthreads();  // the roots are stored
  constexpr int parts = Threads / k_most_wide;
  const int i = thread % k_most_wide;
#pragma unroll 8
  for (int l = thread / k_most_wide; l < w; l += parts) {
    if (i > l) continue;
    const bool zero = i != l && G.on_diagonal(i, l);  // the diagonal of complex numbers is real
    const double r = near || i == l ? X(i, l) : zero ? 0 : X(i, l) * reciprocal[i] * scale[l];
    store_block_row<Reals>(a.R, i, l, r);
    if (!a.first) X(i, l) = r;
  }
  __syncthreads();  // R is stored
  if (!a.first) {
    const int across = X.width / 8;
#pragma unroll 1
    for (int e = arch::warp(); e < across * across; e += Threads / 32) {
      const int row = e % across * 8, column = e / across * 8;
      if (row > column) continue;
      double d[2] = {};
      tile_product(
          d, row, column, row, column + 8, [&](int k, int l) { return k <= l && l < w ? X(k, l) : 0; },
          [&](int k, int l) { return k <= l && l < w ? before(k, l) : 0; });
      for (int h = 0; h < 2; ++h) {
        const int k = row + arch::lane() / 4, l = column + 2 * (arch::lane() % 4) + h;
        if (k <= l && l < w) store_block_row<Reals>(a.all, k, l, d[h]);
      }
    }
  }
  if (thread != 0) return;
  const bool direct = a.first && !shifted && estimated;
  a.state->direct = direct ? 1 : 0;
  a.state->stage = direct || (!a.first && deviation_squared <= k_cholesky_qr_deviation * k_cholesky_qr_deviation)
                       ? k_cholesky_qr_orthonormal
                       : k_cholesky_qr_factored;
}

// The number at row i and column l of U, and of L: row 2 i of the real U, column 2 l + 1 of the real L.
template <class Wide>
__device__ __forceinline__ Wide upper_number(const small_factor& X, int i, int l) {
  if constexpr (is_complex<Wide>)
    return {X(2 * i, 2 * l), -X(2 * i, 2 * l + 1)};
  else
    return X(i, l);
}
template <class Wide>
__device__ __forceinline__ Wide lower_number(const small_factor& X, int i, int l) {
  if constexpr (is_complex<Wide>)
    return {X(2 * i + 1, 2 * l + 1), -X(2 * i, 2 * l + 1)};
  else
    return X(i, l);
}
template <class Wide>
__device__ __forceinline__ void number_to(double* to, int i, Wide x) {
  if constexpr (is_complex<Wide>) {
    to[2 * i] = x.re;
    to[2 * i + 1] = x.im;
  } else {
    to[i] = x;
  }
}
// Returns whether the tail of a reflector is more than rounding: q = 1 − τ up to its sign is the pivot of orthonormal columns.
template <class Wide>
__device__ __forceinline__ bool has_tail(Wide tau) {
  if constexpr (is_complex<Wide>)
    return (1 - tau.re) * (1 - tau.re) + tau.im * tau.im <= 1 - 0x1p-29;
  else
    return tau <= 2 - 0x1p-30;
}

// Computes the reflectors of Q = X R⁻¹ from X's first rows: Q_1 − S = V_1 U with S = diag(±1) opposite to the pivots, so that each pivot is
// at least 1 in size. Multiplied by R this is X_1 − S R = V_1 (U R): one elimination gives both factors, and the rest of V is X (U R)⁻¹. R
// of the panel is S times the product of all R. If the tail of a reflector may be rounding alone, LAPACK's tau would be 0, not 2: then
// nothing is written. S is real for complex numbers, too, since the diagonals of R and of the Cholesky factors are.
template <class S>
__global__ void __launch_bounds__(k_small_factor_threads) small_reflectors_kernel(const __grid_constant__ small_reflectors_arguments<S> a) {
  auto& signs = arch::shared_object<double[k_most_wide], struct small_factor_signs>();
  auto& reciprocal = arch::shared_object<double[k_most_wide], struct small_factor_pivots>();
  if (a.state->stage < k_cholesky_qr_orthonormal) return;
  constexpr int reals = static_cast<int>(k_reals<S>);
  const int w = reals * a.width, thread = static_cast<int>(threadIdx.x);
  if (is_closed(a.gate)) {
    __syncthreads();  // all threads have read the stage
    if (thread == 0) a.state->stage = k_cholesky_qr_failed;
    return;
  }
  const small_factor X = small_factor_of(w);
  const bool direct = a.state->direct != 0;
  const S* const from = direct ? a.A : a.X;
  const std::int64_t ld = direct ? a.lda : a.ldx;
  const packed_blocks<reals> R{direct ? a.direct : a.R};
  const double* const all = direct ? a.direct : a.all;
  each_element(
      w, [&](int i, int l) { return static_cast<double>(of_block<reals>(components(from + i / reals + l / reals * ld), i, l)); },
      [&](int i, int l, double x) { X(i, l) = x; });
  X.pad(w, 1);
  (void)eliminate(X, reciprocal, reflected_pivots<reals>{R, w, signs});
  // Computed like T's diagonal in small_t_kernel, to the bit.
  wide_of<S> tau = 1.0;
  if (thread < a.width) {
    const int at = reals * thread;
    const double inverse = arch::reciprocal(R(at, at));
    if constexpr (is_complex<S>) {
      tau = {-signs[at] * (X(at, at) * inverse), signs[at] * (X(at, at + 1) * inverse)};
    } else {
      tau = -signs[at] * (X(at, at) * inverse);
    }
  }
  if (__syncthreads_or(has_tail(tau) ? 0 : 1) != 0) {
    if (thread == 0) a.state->stage = k_cholesky_qr_failed;
    return;
  }
  if (thread < a.width) a.tau[thread] = narrowed<S>(tau);
  each_element(
      a.width, [&](int i, int l) { return i <= l ? number_at<wide_of<S>>(all, packed(i, l)) : wide_of<S>(0.0); },
      [&](int i, int l, wide_of<S> r) {
        const wide_of<S> x = i <= l ? upper_number<wide_of<S>>(X, i, l) : lower_number<wide_of<S>>(X, i, l);
        if (i <= l) number_to(a.product, packed(i, l), x);
        a.A[i + l * a.lda] = narrowed<S>(i <= l ? times_real(r, signs[reals * i]) : x);
      });
  // Stored by columns of V_1ᴴ.
  constexpr int parts = k_small_factor_threads / k_most_wide;
  const int j = thread % k_most_wide;
#pragma unroll 8
  for (int l = thread / k_most_wide; l < a.width; l += parts) {
    if (j < l) number_to(a.lower, packed(j, l), conjugate_of(lower_number<wide_of<S>>(X, l, j)));
  }
}

// T V_1ᴴ = −U S: divides U R by R, applies the signs, and divides by V_1ᴴ, all from the right. By k_small_t_blocks thread blocks. T is 0
// if the panel is not computed.
template <class S>
__global__ void __launch_bounds__(k_small_factor_threads) small_t_kernel(const __grid_constant__ small_t_arguments<S> a) {
  auto& negative = arch::shared_object<double[k_most_wide], struct small_factor_negative>();
  if (a.state->stage < k_cholesky_qr_orthonormal) {
    if (threadIdx.x == 0 && blockIdx.x == 0) close(a.gate);
    for (int e = static_cast<int>(blockIdx.x * k_small_factor_threads + threadIdx.x); e < a.width * a.width;
         e += k_small_t_blocks * k_small_factor_threads)
      a.T[e] = S(0);
    return;
  }
  constexpr int parts = k_small_factor_threads / k_most_wide, reals = static_cast<int>(k_reals<S>);
  const int w = reals * a.width, thread = static_cast<int>(threadIdx.x), i = thread % k_most_wide, part = thread / k_most_wide;
  const double* const R = a.state->direct != 0 ? a.direct : a.R;
  const packed_blocks<reals> product{a.product};
  const bool own = i / k_small_factor_tile % static_cast<int>(gridDim.x) == static_cast<int>(blockIdx.x);
  const small_factor X = small_factor_of(w);
  each_element(
      w, [&](int i, int l) { return own && product.has(i, l) ? product(i, l) : 0; }, [&](int i, int l, double x) { X(i, l) = x; });
  X.pad(w, 1);
  // U's pivots have signs opposite to S, and the same signs as the pivots of U R.
  if (thread < w) negative[thread] = product(thread, thread) > 0 ? 1 : -1;
#pragma unroll 1
  for (int factor = 0;; ++factor) {
    __syncthreads();  // X is complete
    substitute(X, packed_blocks<reals>{factor == 0 ? R : a.lower}, w, factor == 1);
    if (factor == 1) break;
#pragma unroll 4
    for (int l = part; l < w && i < w && own; l += parts) X(i, l) *= negative[l];
  }
  const int row = i / reals;
#pragma unroll 4
  for (int l = part; l < a.width && i < w && i % reals == 0 && own; l += parts)
    a.T[row + l * a.width] = row <= l ? narrowed<S>(upper_number<wide_of<S>>(X, row, l)) : S(0);
}

}  // namespace ballast::qr::cuda
