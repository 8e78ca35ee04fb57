// Triangular systems whose diagonal has reciprocals that are not finite, and the check of every triangular solve.
// Layer: backend "cuda" of QR, device code.
// Source: docs/design/qr.md; N. Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5.
#pragma once

#include <cmath>
#include <limits>

#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "cuda/arch/arch.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/matrix.cuh"
#include "qr/cuda/layout/number.cuh"
#include "qr/thresholds.hpp"

namespace ballast::qr::cuda {

// One thread block for each right-hand side. Divides by the diagonal itself.
template <class S>
__global__ void __launch_bounds__(k_threads) solve_kernel(const __grid_constant__ solve_arguments<S> a) {
  S* const x = a.X + blockIdx.x * a.ldx;
  wide_of<S>* const rest = a.rest + blockIdx.x * a.n;
  for (std::int64_t i = threadIdx.x; i < a.n; i += k_threads) rest[i] = widened(x[i]);
  __syncthreads();  // the right-hand side is loaded
  for (std::int64_t step = 0; step < a.n; ++step) {
    const std::int64_t j = a.transposed ? step : a.n - 1 - step;
    const S found = narrowed<S>(quotient(rest[j], conjugated_if(a.transposed, widened(a.U[j + j * a.ldu]))));
    if (threadIdx.x == 0) x[j] = found;
    if (a.transposed) {
      for (std::int64_t i = j + 1 + threadIdx.x; i < a.n; i += k_threads)
        rest[i] = minus_product(rest[i], conjugate_of(widened(a.U[j + i * a.ldu])), widened(found));
    } else {
      for (std::int64_t i = threadIdx.x; i < j; i += k_threads)
        rest[i] = minus_product(rest[i], widened(a.U[i + j * a.ldu]), widened(found));
    }
    __syncthreads();  // the remaining right-hand side is updated
  }
}

// One thread block for k_threads rows of a right-hand side: compares the residual of U x = c, or Uᴴ x = c, with its rounding bound. Scaled
// by powers of two where doubles would overflow.
template <class S>
__global__ void __launch_bounds__(k_threads) solve_check_kernel(const __grid_constant__ solve_check_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct solve_sums_of_warps>();
  auto& residuals = arch::shared_object<double[k_threads], struct solve_residuals>();
  auto& thresholds = arch::shared_object<double[k_threads], struct solve_thresholds>();
  auto& hash = arch::shared_object<unsigned long long, struct solve_hash>();
  const std::int64_t n = a.n, chunks = solve_chunks(n), column = blockIdx.x / chunks, first = blockIdx.x % chunks * k_threads;
  const std::int64_t end = first + k_threads < n ? first + k_threads : n, i = first + threadIdx.x;
  const S* const x = a.X + column * a.ldx;
  const auto c = [&](std::int64_t row) { return a.C[row * a.row_stride + column * a.column_stride]; };
  const auto wider = [](double& most, S value) {
    const double size = largest_component(value);
    if (most == most && !(size <= most)) most = size;
  };
  if (threadIdx.x == 0) hash = 0;
  double most_u = 0, most_x = 0;
  if (a.transposed) {
    for (std::int64_t l = first; l < end; ++l) {
      for (std::int64_t j = threadIdx.x; j <= l; j += k_threads) wider(most_u, a.U[j + l * a.ldu]);
    }
  } else if (i < n) {
#pragma unroll 4
    for (std::int64_t j = i; j < n; ++j) wider(most_u, a.U[i + j * a.ldu]);
  }
  for (std::int64_t l = threadIdx.x; l < n; l += k_threads) {
    wider(most_x, x[l]);
    wider(most_x, c(l));
  }
  const unsigned long long own = i < n ? result_hash_of(x[i], static_cast<std::uint64_t>(i)) : 0;
  const double u_size = over_block<true>(most_u, several), x_size = over_block<true>(most_x, several);
  atomicAdd(&hash, own);
  constexpr double largest = std::numeric_limits<double>::max();
  bool finite = u_size <= largest && x_size <= largest;
  double u_scale = 1, x_scale = 1;
  if (finite && u_size > 0x1p400) u_scale = std::ldexp(1.0, -std::ilogb(u_size));
  if (finite && x_size > 0x1p400) x_scale = std::ldexp(1.0, -std::ilogb(x_size));
  using real = real_of<S>;
  constexpr double tiny = std::numeric_limits<real>::denorm_min();
  const double lost = 4 * static_cast<double>(n) *
                      (std::numeric_limits<double>::min() + static_cast<double>(std::numeric_limits<real>::min()) * x_scale * u_scale);
  double worst = 0, limit = 1;
  if (i < n) {
    wide_of<S> residual = times_real(times_real(widened(c(i)), x_scale), u_scale);
    double drowned = 0, size = size_of_number(residual);
#pragma unroll 4
    for (std::int64_t j = a.transposed ? 0 : i; j < (a.transposed ? i + 1 : n); ++j) {
      const wide_of<S> u =
          times_real(conjugated_if(a.transposed, widened(a.transposed ? a.U[j + i * a.ldu] : a.U[i + j * a.ldu])), u_scale);
      const wide_of<S> term = u * times_real(widened(x[j]), x_scale);
      residual -= term;
      size += size_of_number(term);
      // Underflow may take the smallest number from an element of x, and from a reciprocal of the diagonal that the solve multiplies by.
      drowned += size_of_number(u) * x_scale * tiny;
      if (i == j) drowned += size_of_number(term) * (size_of_number(u) / u_scale * tiny);
    }
    limit = thresholds::solve<real>(size, k_reals<S> * n) + 4 * static_cast<double>(n) * drowned + lost;
    worst = size_of_number(residual);
    if (!(worst <= largest) || !(limit <= largest)) worst = std::numeric_limits<double>::quiet_NaN();
  }
  residuals[threadIdx.x] = worst;
  thresholds[threadIdx.x] = limit;
  __syncthreads();  // the worst residual of each thread is stored
  if (threadIdx.x != 0) return;
  solve_result made{0, 1, 0, 1};
  for (int t = 0; t < k_threads; ++t) {
    if (residuals[t] != residuals[t]) {
      made.residual = residuals[t];
      made.threshold = thresholds[t];
      finite = false;
      break;
    }
    if (residuals[t] / thresholds[t] > made.residual / made.threshold) {
      made.residual = residuals[t];
      made.threshold = thresholds[t];
    }
  }
  made.finite = finite ? 1 : 0;
  made.bits = hash != 0 ? hash : 1;
  a.to[blockIdx.x] = made;
}

}  // namespace ballast::qr::cuda
