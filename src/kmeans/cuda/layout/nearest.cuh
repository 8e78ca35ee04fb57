// Finds the nearest centroid of a point from differences of coordinates, for points whose scores do not decide.
// Layer: backend "cuda" of K-Means, device code.
// Contract: distances are compared in double, in f64 with the rounding errors of differences, squares and sums, from unrounded coordinates;
// among equal distances the lowest index wins. All lanes of the warp call. Rows of points and of centroids are padded with zeros to whole
// k-slices.
#pragma once

#include <cstdint>

#include "abft/threshold.hpp"
#include "cuda/arch/divide.cuh"
#include "cuda/arch/memory.cuh"
#include "kmeans/cuda/layout/packed_centroids.hpp"

namespace ballast::kmeans::cuda {

// Returns √square or slightly more.
__device__ __forceinline__ float norm_above(float square) { return arch::sqrt_fast(square) * (1 + 0x1p-20f); }
__device__ __forceinline__ double norm_above(double square) {
  return static_cast<double>(norm_above(static_cast<float>(square)) * (1 + 0x1p-20f)) + 1e-30;
}

// Returns the sum over the four lanes of a point.
template <class T>
__device__ __forceinline__ T add_quad(T value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// The features in one 16-byte load.
template <class T>
struct features {
  T at[k_vector<T>];
};
__device__ __forceinline__ features<float> unpacked(const float4& v) { return {{v.x, v.y, v.z, v.w}}; }
__device__ __forceinline__ features<double> unpacked(const double2& v) { return {{v.x, v.y}}; }
__device__ __forceinline__ features<float> load_features(const float* from) {
  return unpacked(arch::load_table(reinterpret_cast<const float4*>(from)));
}
__device__ __forceinline__ features<double> load_features(const double* from) {
  return unpacked(arch::load_table(reinterpret_cast<const double2*>(from)));
}

// Computes ‖x − c‖² in working precision for the centroids c = rows + j · stride; every four lanes compute those of their own j. Loads of
// `Together` k-slices of x and all c are in flight at a time. More would help with long rows, but the registers that this rarely called
// function needs must be freed by its caller in every tile. `lag`: 1 in lanes that load each k-slice one step later than the others, and
// therefore by other instructions, when two groups of lanes may compute the same distance; 0 in all lanes if Lagging is false.
template <int Together, bool Lagging = false, int Each, class T>
__device__ __forceinline__ void measure(const T* x, const T* rows, const int (&j)[Each], int stride, T (&distance)[Each],
                                        [[maybe_unused]] int lag = 0) {
  const int own = static_cast<int>(threadIdx.x % 4) * k_vector<T>;
  const T* c[Each];
#pragma unroll
  for (int e = 0; e < Each; ++e) c[e] = rows + static_cast<std::int64_t>(j[e]) * stride + own, distance[e] = 0;
  x += own;
  const auto add = [&](int f) {
    const features<T> from = load_features(x + f);
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const features<T> to = load_features(c[e] + f);
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        const T d = from.at[v] - to.at[v];
        distance[e] = fma(d, d, distance[e]);
      }
    }
  };
  // A branch inside the loop would prevent its loads from being in flight together.
  if (Lagging && lag == 0) add(0);
#pragma unroll Together
  for (int f = Lagging ? k_slice<T> : 0; f < stride; f += k_slice<T>) add(Lagging ? f - lag * k_slice<T> : f);
  if (Lagging && lag != 0) add(stride - k_slice<T>);
#pragma unroll
  for (int e = 0; e < Each; ++e) distance[e] = add_quad(distance[e]);
}

// Bounds the error of such a distance in T's precision: the rounding of a difference, of its square, and of the sums over the features of a
// lane and over lanes, all of positive numbers.
template <class T, class Value>
__device__ __forceinline__ Value distance_error(Value distance, int stride) {
  const auto unit = static_cast<Value>(abft::unit_roundoff<T>);
  const auto tiny = sizeof(T) == 4 ? static_cast<Value>(0x1p-126) : static_cast<Value>(0x1p-1022);
  return distance * (unit * static_cast<Value>(stride / 4 + 8)) + static_cast<Value>(stride) * tiny;
}

// An unevaluated sum of two doubles, about twice as precise as one.
struct pair_sum {
  double high = 0, low = 0;

  // Adds `value` and keeps the rounding error (Knuth, TwoSum).
  __device__ __forceinline__ void add(double value) {
    const double sum = __dadd_rn(high, value), part = __dsub_rn(sum, high);
    low = __dadd_rn(low, __dadd_rn(__dsub_rn(high, __dsub_rn(sum, part)), __dsub_rn(value, part)));
    high = sum;
  }
  // Adds (x − c)², with the rounding errors of the difference and of its square. `lift`: a power of two that multiplies the difference.
  __device__ __forceinline__ void add_square(double x, double c, double lift) {
    pair_sum difference{x, 0};
    difference.add(-c);
    const double d = difference.high * lift, square = __dmul_rn(d, d);
    add(square);
    low = __dadd_rn(low, __dadd_rn(__fma_rn(d, d, -square), 2 * d * (difference.low * lift)));
  }
  // Commutative, so that lanes which exchange their parts get the same bits.
  __device__ __forceinline__ void add(const pair_sum& other) {
    const double both = __dadd_rn(low, other.low);
    low = 0;
    add(other.high);
    low = __dadd_rn(low, both);
  }
  __device__ __forceinline__ double minus(const pair_sum& other) const {
    return __dadd_rn(__dsub_rn(high, other.high), __dsub_rn(low, other.low));
  }
};

struct nearest {
  double distance = 1e308, rest = 0;  // distance + rest is the square of the distance, times k_lift²
  int index = 0;

  // Takes a nearer centroid, among equal ones the lower index. f64 gives pairs, f32 distances with no rest.
  __device__ __forceinline__ void consider(double other, int j) {
    if (other < distance || (other == distance && j < index)) distance = other, index = j;
  }
  __device__ __forceinline__ void consider(const pair_sum& other, int j) {
    const double less = other.minus({distance, rest});
    if (less < 0 || (less == 0 && j < index)) distance = other.high, rest = other.low, index = j;
  }
  template <class T>
  __device__ __forceinline__ void consider(const nearest& other) {
    if constexpr (sizeof(T) == 8) {
      consider(pair_sum{other.distance, other.rest}, other.index);
    } else {
      consider(other.distance, other.index);
    }
  }
};

// Computes k_lift² ‖x − c‖² in double by a whole warp; this distance decides. All such distances are summed in the same order, so equal
// ones have equal bits. In f32 `low` is 0.
template <class T>
__device__ __noinline__ pair_sum exact_distance(const T* x, const T* c, int stride) {
  pair_sum sum;
#pragma unroll 2
  for (int f = static_cast<int>(threadIdx.x % 32) * k_vector<T>; f < stride; f += 32 * k_vector<T>) {
    const features<T> from = load_features(x + f), to = load_features(c + f);
#pragma unroll
    for (int v = 0; v < k_vector<T>; ++v) {
      if constexpr (sizeof(T) == 8) {
        sum.add_square(from.at[v], to.at[v], k_lift<T>);
      } else {
        const double d = static_cast<double>(from.at[v]) - static_cast<double>(to.at[v]);
        sum.high = fma(d, d, sum.high);
      }
    }
  }
  for (int apart = 1; apart < 32; apart *= 2) {
    const double high = __shfl_xor_sync(0xffffffffu, sum.high, apart);
    if constexpr (sizeof(T) == 8) {
      sum.add(pair_sum{high, __shfl_xor_sync(0xffffffffu, sum.low, apart)});
    } else {
      sum.high += high;
    }
  }
  return sum;
}

// Returns column number u in the list of the columns 2t and 2t + 1 of all tiles, over the bits t of `lanes`; −1 if it is no centroid.
__device__ __forceinline__ int listed_column(unsigned lanes, int u, int k) {
  const int each = 2 * __popc(lanes);
  int t = 0;
  for (int left = u % each / 2; t < 3; ++t) {
    if ((lanes >> t & 1u) == 0) continue;
    if (left == 0) break;
    --left;
  }
  const int j = u / each * k_tile_columns + 2 * t + u % 2;
  return j < k ? j : -1;
}

// Finds the nearest of the centroids in the columns of `lanes` for one point, by a whole warp; all lanes return the same. Searches only
// part number `part` of `parts` of these columns, which are about equally large. Distances in working precision select the centroids to
// compare in double.
template <int Together, class T>
__device__ __noinline__ nearest scan(const T* x, const T* rows, int stride, int k, unsigned lanes, int part = 0, int parts = 1) {
  constexpr int k_each = 2;  // centroids per four lanes at a time, selected by e == 0 below
  const int g = static_cast<int>(threadIdx.x % 32 / 4);
  const int count = (k + k_tile_columns - 1) / k_tile_columns * 2 * __popc(lanes);
  int j[k_each];  // −1: no centroid
  T distance[k_each];
  const auto measure_from = [&](int first) {
    int at[k_each];
#pragma unroll
    for (int e = 0; e < k_each; ++e) {
      const int u = first + 8 * e + g;
      j[e] = u < count ? listed_column(lanes, u, k) : -1;
      at[e] = max(j[e], 0);
    }
    measure<Together>(x, rows, at, stride, distance);
  };
  T least = sizeof(T) == 4 ? static_cast<T>(3e38) : static_cast<T>(1e308);
  const auto most = [&] { return least + 2 * distance_error<T>(least, stride); };
  // Steps of the loop that may contain the nearest centroid, as bits modulo 32: only these are computed again.
  unsigned again = 0;
#pragma unroll 1
  for (int first = part * 8 * k_each, step = 0; first < count; first += parts * 8 * k_each, ++step) {
    measure_from(first);
    T own_least = sizeof(T) == 4 ? static_cast<T>(3e38) : static_cast<T>(1e308);
#pragma unroll
    for (int e = 0; e < k_each; ++e) {
      if (j[e] >= 0) own_least = min(own_least, distance[e]);
    }
    for (int apart = 4; apart < 32; apart *= 2) own_least = min(own_least, __shfl_xor_sync(0xffffffffu, own_least, apart));
    if (own_least <= most()) again |= 1u << step % 32;
    least = min(least, own_least);
  }
  nearest best;
#pragma unroll 1
  for (int first = part * 8 * k_each, step = 0; first < count; first += parts * 8 * k_each, ++step) {
    if ((again >> step % 32 & 1u) == 0) continue;
    if (count > parts * 8 * k_each) measure_from(first);  // otherwise j and distance still hold the only step
#pragma unroll 1
    for (int e = 0; e < k_each; ++e) {
      const int mine = e == 0 ? j[0] : j[1];
      const bool close = mine >= 0 && (e == 0 ? distance[0] : distance[1]) <= most();
      unsigned left = __ballot_sync(0xffffffffu, close && threadIdx.x % 4 == 0);
#pragma unroll 1
      for (; left != 0; left &= left - 1) {
        const int which = __shfl_sync(0xffffffffu, mine, __ffs(static_cast<int>(left)) - 1);
        const pair_sum exact = exact_distance(x, rows + static_cast<std::int64_t>(which) * stride, stride);
        best.consider<T>(nearest{exact.high, exact.low, which});
      }
    }
  }
  return best;
}

}  // namespace ballast::kmeans::cuda
