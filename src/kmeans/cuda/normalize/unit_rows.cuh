// Divides points by their norms, for spherical K-Means: x / ‖x‖.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include <type_traits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/layout/unit_rows.hpp"
#include "kmeans/cuda/normalize/rows.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Writes the unit vector of each row, or with a.check makes it again and compares the bits. A warp has a row, lane l the features l, l +
// 32, …; rows of up to 32 · k_held features are loaded once. The check has the order of blocks, warps and lanes reversed, and sums by the
// same tree, so its sum has the same bits but comes from other registers. Squares of floats are added in double, where none overflows or
// vanishes; doubles are divided by the largest of their row first. A row with NaN or Inf is copied, for the check of the points; a row of
// zeros is flagged.
template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_unit_threads)
    unit_rows_kernel(const __grid_constant__ ballast::cuda::kernel_launch<unit_rows_arguments<T>, Injector> given) {
  constexpr int k_held = 8, span = 32 * k_held;
  const unit_rows_arguments<T>& a = given.arguments;
  const int thread = static_cast<int>(a.check ? k_unit_threads - 1 - threadIdx.x : threadIdx.x), lane = thread % 32;
  const std::int64_t block = a.check ? gridDim.x - 1 - blockIdx.x : blockIdx.x, row = block * k_unit_rows + thread / 32;
  if (row >= a.given.m) return;  // a whole warp
  const int n = a.given.n;
  const bool once = n <= span;
  T x[k_held];
  const auto load = [&](int begin) {
#pragma unroll
    for (int i = 0; i < k_held; ++i) {
      const int f = begin + i * 32 + lane;
      x[i] = f < n ? given_value<Half>(a.given, row, f) : T(0);
    }
  };
  // Calls use() for each part of the row, in x.
  const auto each_part = [&](auto&& use) {
#pragma unroll 1
    for (int begin = 0; begin < n; begin += span) {
      if (!once) load(begin);
      use(begin);
    }
  };
  if (once) load(0);
  double largest = 1, poison = 0;
  if constexpr (std::is_same_v<T, double>) {
    largest = 0;
    each_part([&](int) {
#pragma unroll
      for (int i = 0; i < k_held; ++i) {
        largest = max(largest, fabs(x[i]));
        poison += x[i] * 0;
      }
    });
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      poison += __shfl_xor_sync(0xffffffffu, poison, distance);
    }
  }
  double sum[1] = {0};
  if (largest > 0 && poison == 0) {
    each_part([&](int) {
#pragma unroll
      for (int i = 0; i < k_held; ++i) {
        double value = static_cast<double>(x[i]);
        if constexpr (std::is_same_v<T, double>) value /= largest;
        sum[0] = __fma_rn(value, value, sum[0]);
      }
    });
  }
  // Faults strike a thread of the device, which has another row in the check.
  const auto here = [&](int step) {
    return inject::device_position{blockIdx.x, gridDim.x, step, 2, static_cast<int>(threadIdx.x), k_unit_threads};
  };
  given.strike(ballast::cuda::index<1>{}, site::points, here(0), sum);
  ballast::cuda::add_lanes<32, 32, 1>(sum);
  const bool zero = sum[0] == 0 && poison == 0, divides = !zero && poison == 0 && sum[0] - sum[0] == 0;
  if (zero && lane == 0) flag(a.flags[a.check ? k_zero_row_again : k_zero_row], row);
  const double root = sqrt(sum[0]), inverse = 1 / root;
  bool unlike = false;
  each_part([&](int begin) {
    T made[k_held];
#pragma unroll
    for (int i = 0; i < k_held; ++i) {
      made[i] = x[i];
      if constexpr (std::is_same_v<T, double>) {
        if (divides) made[i] = x[i] / largest / root;
      } else {
        if (divides) made[i] = static_cast<T>(static_cast<double>(x[i]) * inverse);
      }
    }
    given.strike(ballast::cuda::index<k_held>{}, site::points, here(1), made);
#pragma unroll
    for (int i = 0; i < k_held; ++i) {
      const int f = begin + i * 32 + lane;
      if (f >= n) continue;
      T* const at = a.unit + row * n + f;
      if (a.check) {
        unlike = unlike || ballast::cuda::bits(load_again(at)) != ballast::cuda::bits(made[i]);
      } else {
        *at = made[i];
      }
    }
  });
  if (unlike) flag(a.flags[k_unlike_row], row);
}

}  // namespace ballast::kmeans::cuda
