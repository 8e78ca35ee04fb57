// The nearest centroid of one point by distances from differences, by a whole warp: what decides where scores do not.
// Layer: backend "cuda" of K-Means, device code.
// Contract: distances are compared in double, from coordinates as they are; the lowest index among equals.
#pragma once

#include <cstdint>

#include "abft/threshold.hpp"
#include "cuda/block/unroll.cuh"
#include "kmeans/cuda/panel.hpp"

namespace ballast::kmeans::cuda {

using ballast::cuda::unrolled;

template <class T>
__device__ __forceinline__ T largest_distance() {
  return sizeof(T) == 4 ? static_cast<T>(3e38) : static_cast<T>(1e308);
}
template <class T>
__device__ __forceinline__ T smallest_normal() {
  return sizeof(T) == 4 ? static_cast<T>(0x1p-126) : static_cast<T>(0x1p-1022);
}
// ‖x − c‖² in double by a whole warp, the same in all lanes.
template <class T>
__device__ __forceinline__ double exact_distance(const T* x, const T* c, int n) {
  double sum = 0;
  for (int f = static_cast<int>(threadIdx.x % 32); f < n; f += 32) {
    const double d = static_cast<double>(x[f]) - static_cast<double>(c[f]);
    sum = fma(d, d, sum);
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

struct nearest {
  double distance;
  int index;
};

// Sums over the lanes of each of 8 rows, of which each lane has Steps: the lanes 4g … 4g + 3 get row g's. With Steps < 8, lanes
// 32 / (8 / Steps) apart have different rows.
template <int Steps, class T>
__device__ __forceinline__ T reduce_rows(T (&part)[Steps]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  unrolled<3>([&](auto level) {
    constexpr int half = 4 >> decltype(level)::value;  // rows that each lane keeps
    constexpr int distance = 16 >> decltype(level)::value;
    if constexpr (Steps > half) {
      const bool upper = (lane & distance) != 0;
#pragma unroll
      for (int r = 0; r < half; ++r) {
        const T keep = upper ? part[r + half] : part[r];
        const T give = upper ? part[r] : part[r + half];
        part[r] = keep + __shfl_xor_sync(0xffffffffu, give, distance);
      }
    }
  });
  T sum = part[0];
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}

// Calls seen(j, ‖x − c_j‖²) for centroids in working precision, 8 at a time, each by the four lanes of a row; j = −1: none is left. Columns
// 2t and 2t + 1 of each tile for the bits t of `which`.
template <class T, class Seen>
__device__ __forceinline__ void for_distances(const T* x, const T* rows, int n, int stride, int k, unsigned which, Seen&& seen) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int each = 2 * __popc(which);  // columns of a tile
  const int count = (k + k_tile_columns - 1) / k_tile_columns * each;
  const auto column = [&](int u) {
    int t = 0;
    for (int left = u % each / 2; t < 3; ++t) {
      if ((which >> t & 1u) == 0) continue;
      if (left == 0) break;
      --left;
    }
    const int j = u / each * k_tile_columns + 2 * t + u % 2;
    return u < count && j < k ? j : -1;
  };
  for (int first = 0; first < count; first += 8) {
    const int own = column(first + lane / 4);
    T part[8];
    const T* c[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      part[i] = 0;
      c[i] = rows + static_cast<std::int64_t>(max(__shfl_sync(0xffffffffu, own, 4 * i), 0)) * stride;
    }
    for (int f = lane; f < n; f += 32) {
      const T value = x[f];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const T d = value - c[i][f];
        part[i] = fma(d, d, part[i]);
      }
    }
    seen(own, reduce_rows(part));
  }
}

// The nearest of all centroids, or of the columns of `which`, by a whole warp, the lowest index among equals; the same in all lanes. Those
// whose distances in working precision are too close to tell are compared in double.
template <class T>
__device__ __noinline__ nearest scan(const T* x, const T* rows, int n, int stride, int k, unsigned which) {
  T least = largest_distance<T>();
  for_distances(x, rows, n, stride, k, which, [&](int j, T distance) {
    if (j >= 0) least = min(least, distance);
  });
  for (int distance = 16; distance > 0; distance /= 2) least = min(least, __shfl_xor_sync(0xffffffffu, least, distance));
  // Roundings of a difference, its square and the sums over the features of a lane and over lanes, all of positive numbers; for two of
  // them.
  const T unit = static_cast<T>(abft::unit_roundoff<T>);
  const T most = least + least * (2 * unit * static_cast<T>(n / 32 + 10)) + static_cast<T>(n) * smallest_normal<T>();
  nearest best{1e308, 0};
  for_distances(x, rows, n, stride, k, which, [&](int j, T distance) {
    unsigned close = __ballot_sync(0xffffffffu, j >= 0 && distance <= most && threadIdx.x % 4 == 0);
    while (close != 0) {
      const int owner = __ffs(static_cast<int>(close)) - 1;
      close &= close - 1;
      const int candidate = __shfl_sync(0xffffffffu, j, owner);
      const double exact = exact_distance(x, rows + static_cast<std::int64_t>(candidate) * stride, n);
      if (exact < best.distance || (exact == best.distance && candidate < best.index)) best = {exact, candidate};
    }
  });
  return best;
}

}  // namespace ballast::kmeans::cuda
