// Computes distances from differences: of each point to many centroids, with row checks; and to the centroid of its label, in double.
// Layer: backend "cuda" of K-Means, device code.
// One thread computes a row; another thread of its block verifies it from its own loads.
#pragma once

#include "cuda/arch/arch.cuh"
#include "cuda/block/twice.cuh"
#include "kmeans/cuda/assign/feature_rows.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/cuda/normalize/rows.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }

// Computes squares[j] = ‖x − c_j‖² for the k_group centroids from `first` on; after the last centroid, its distance is repeated. Features
// are summed in chains of k_chain: in a longer chain of equal terms (duplicated features) every step would round alike, and the row check
// would detect the error. `Again`: the point is loaded twice. A wrong coordinate changes all distances of the group, and its shares in
// their weighted sum may cancel.
template <bool Again = false, class T>
__device__ __forceinline__ void group_distances(const T* x, const checked_centroids<T>& from, int stride, int first,
                                                T (&squares)[k_group]) {
  const T* rows[k_group];
#pragma unroll
  for (int j = 0; j < k_group; ++j) {
    squares[j] = 0;
    rows[j] = from.rows + std::int64_t{first + j < from.count ? first + j : from.count - 1} * stride;
  }
  for (int begin = 0; begin < stride; begin += k_chain) {
    T chain[k_group] = {};
    for (int f = begin; f < min(begin + k_chain, stride); f += k_vector<T>) {
      auto own = *reinterpret_cast<const vector<T>*>(x + f);
      if constexpr (Again) {
        const auto again = arch::load_itself(reinterpret_cast<const vector<T>*>(x + f));
#pragma unroll
        for (int i = 0; i < k_vector<T>; ++i) {
          if (ballast::cuda::bits(own.at[i]) != ballast::cuda::bits(again.at[i])) own.at[i] = ballast::cuda::loaded_twice(x[f + i]);
        }
      }
#pragma unroll
      for (int j = 0; j < k_group; ++j) {
        const auto c = *reinterpret_cast<const vector<T>*>(rows[j] + f);
#pragma unroll
        for (int i = 0; i < k_vector<T>; ++i) {
          const T d = own.at[i] - c.at[i];
          chain[j] = multiply_add(d, d, chain[j]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < k_group; ++j) squares[j] += chain[j];
  }
}

// Returns whether `found` = Σ w_j ‖x − c_j‖² over a section agrees with ‖x‖² and x · Σ w_j c_j. Both are 0 from feature n on.
template <class T>
__device__ __forceinline__ bool sum_is_right(const normalized_points<T>& p, const checked_centroids<T>& from, std::int64_t row, int section,
                                             double found) {
  const T* const x = p.x + row * p.stride;
  const double* const checksum = from.checksum + std::int64_t{section} * p.stride;
  double product = 0;
  for (int begin = 0; begin < p.stride; begin += k_chain) {
    double chain = 0;
    for (int f = begin; f < min(begin + k_chain, p.stride); f += k_vector<T>) {
      const auto own = arch::load_itself(reinterpret_cast<const vector<T>*>(x + f));
#pragma unroll
      for (int i = 0; i < k_vector<T>; ++i) chain = __fma_rn(static_cast<double>(own.at[i]), checksum[f + i], chain);
    }
    product += chain;
  }
  const double size = __fma_rn(from.weights[section], static_cast<double>(load_again(p.norm + row)), from.norms[section]);
  const double residual = found - (size - 2 * product);
  return fabs(residual) <= from.limit * size + from.weights[section] * static_cast<double>(std::numeric_limits<T>::min());
}

// The same from the distances. square(j): ‖x − c_j‖².
template <class T, class Square>
__device__ __forceinline__ bool row_is_right(const normalized_points<T>& p, const checked_centroids<T>& from, std::int64_t row, int section,
                                             Square&& square) {
  const int last = min((section + 1) * k_section, from.count);
  double found = 0;
  for (int j = section * k_section; j < last; ++j)
    found = __fma_rn(static_cast<double>(load_again(from.weight + j)), static_cast<double>(square(j)), found);
  return sum_is_right(p, from, row, section, found);
}

// Returns Σ (point · scale − plain)² of a row in double, the coordinates as given; if `Lifted` times k_lift². The sum is over the features
// `first`, `first` + `step`, and so on, below `end`.
template <bool Half, bool Lifted, class T>
__device__ __forceinline__ double given_square(const given_points<T>& from, std::int64_t row, const T* plain, int first, int step,
                                               int end) {
  double sum = 0;
#pragma unroll 4
  for (int f = first; f < end; f += step) {
    const double x = __dmul_rn(static_cast<double>(given_value<Half>(from, row, f)), static_cast<double>(from.scale));
    double d = __dsub_rn(x, static_cast<double>(load_again(plain + f)));
    if constexpr (Lifted && sizeof(T) == 8) d *= k_lift<T>;
    sum = __fma_rn(d, d, sum);
  }
  return sum;
}

// One block processes k_row_threads rows and one section of centroids. Normalized coordinates were rounded once: a distance errs by u(‖x‖ +
// ‖c‖), relative to itself at most 5u if it is at least ‖x‖/2, since ‖c‖ ≤ ‖x‖ + ‖x − c‖. A shorter one is computed from the coordinates as
// given.
template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    distances_kernel(const __grid_constant__ ballast::cuda::kernel_launch<distances_arguments<T>, Injector> given) {
  const distances_arguments<T>& a = given.arguments;
  const int sections = (a.centroids.count + k_section - 1) / k_section;
  const int section = static_cast<int>(blockIdx.x % sections);
  const std::int64_t block = blockIdx.x / sections;
  const std::int64_t first = block * k_row_threads;  // relative to the first row of this call
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = static_cast<int>(min(a.rows - first, static_cast<std::int64_t>(k_row_threads)));
  const int last = min((section + 1) * k_section, a.centroids.count);
  if (thread < rows) {
    const T* const x = a.normalized.x + (a.first + first + thread) * a.normalized.stride;
    T* const to = a.squares + (first + thread) * a.centroids.count;
    const T least = load_again(a.normalized.norm + a.first + first + thread) / 4;
    std::uint64_t near = 0;  // bit j: distance number j of the section is short
    for (int j = section * k_section; j < last; j += k_group) {
      T squares[k_group];
      if (a.check) {
        group_distances<true>(x, a.centroids, a.normalized.stride, j, squares);
      } else {
        group_distances(x, a.centroids, a.normalized.stride, j, squares);
      }
      for (int i = 0; i < k_group && j + i < last; ++i) {
        near |= std::uint64_t{squares[i] > least ? 0u : 1u} << (j + i) % k_section;
        to[j + i] = squares[i];
      }
    }
#pragma unroll 1
    for (; near != 0; near &= near - 1) {
      const int j = section * k_section + __ffsll(static_cast<long long>(near)) - 1;
      to[j] = static_cast<T>(
          given_square<Half, false>(a.given, a.first + first + thread, a.plain + std::int64_t{j} * a.given.n, 0, 1, a.given.n));
    }
    if constexpr (Injector::enabled) {
      for (int j = section * k_section; j < last; ++j)
        given.strike(
            ballast::cuda::index<1>{}, site::product,
            {a.first / k_row_threads + block, (a.normalized.m + k_row_threads - 1) / k_row_threads, j, a.centroids.count, thread, rows},
            to + j);
    }
  }
  __syncthreads();  // the distances are stored
  const int other = k_row_threads - 1 - thread;
  if (!a.check || other >= rows) return;
  const T* const of = a.squares + (first + other) * a.centroids.count;
  const std::int64_t row = a.first + first + other;
  if (!row_is_right(a.normalized, a.centroids, row, section, [&](int j) { return load_again(of + j); }))
    flag(*a.flags, a.normalized.first + row);
}

// Computes distances from their squares, in the units of the points. With `compare`, other threads compute them again and compare.
template <class T>
__global__ void __launch_bounds__(k_row_threads) finish_kernel(const __grid_constant__ finish_arguments<T> a) {
  std::int64_t i = std::int64_t{blockIdx.x} * k_row_threads + threadIdx.x;
  if (i >= a.count) return;
  if (a.compare) i = a.count - 1 - i;
  const T made = static_cast<T>(__dmul_rn(sqrt(static_cast<double>(a.squares[i])), a.unscale));
  if (!a.compare) {
    a.values[i] = made;
  } else if (!(a.values[i] == made)) {
    flag(*a.flags, i);
  }
}

// Computes the distances of rows to centroids that are so far away that they were moved nearer: sums in double, scaled by their largest
// difference.
template <class T, bool Half>
__global__ void __launch_bounds__(k_row_threads) far_kernel(const __grid_constant__ far_arguments<T> a) {
  std::int64_t i = std::int64_t{blockIdx.x} * k_row_threads + threadIdx.x;
  const std::int64_t all = a.rows * a.count;
  if (i >= all) return;
  if (a.compare) i = all - 1 - i;
  const std::int64_t row = i / a.count;
  const int j = a.columns[i % a.count], n = a.given.n;
  const auto halved = [&](int f) {
    return __dsub_rn(static_cast<double>(given_value<Half>(a.given, a.first + row, f)) / 2,
                     static_cast<double>(load_again(a.centroids + std::int64_t{j} * n + f)) / 2);
  };
  double largest = 0, sum = 0;
  for (int f = 0; f < n; ++f) largest = fabs(halved(f)) > largest ? fabs(halved(f)) : largest;
  for (int f = 0; f < n && largest > 0; ++f) {
    const double part = halved(f) / largest;
    sum = __fma_rn(part, part, sum);
  }
  const T made = static_cast<T>(2 * (largest * sqrt(sum)));
  T& to = a.values[row * a.k + j];
  if (!a.compare) {
    to = made;
  } else if (!alike(to, made)) {
    flag(*a.flags, row);
  }
}

// Returns the label of a row; −1 if it is invalid, which only a fault can cause. The distance to an invalid label is NaN.
template <class T>
__device__ __forceinline__ std::int64_t label_of(const exact_arguments<T>& a, std::int64_t row) {
  const std::int32_t label = load_again(a.labels + row);
  return static_cast<unsigned>(label) < static_cast<unsigned>(a.k) ? label : -1;
}

// Computes Σ (x − c)² of a row in double, normalized coordinates.
template <class T>
__device__ __forceinline__ double normalized_square(const exact_arguments<T>& a, std::int64_t row, std::int64_t label) {
  double sum = 0;
  for (int f = 0; f < a.normalized.n; ++f) {
    const double d = __dsub_rn(static_cast<double>(load_again(a.normalized.x + row * a.normalized.stride + f)),
                               static_cast<double>(load_again(a.normalized_centroids + label * a.normalized.n + f)));
    sum = __fma_rn(d, d, sum);
  }
  return sum;
}

inline constexpr int k_distance_lanes = 8;  // threads that compute the distance of a row together: they load 128 bytes of it at once

// The numbers of a row: Σ (x · scale − c)² · lift² and, if `Sizes`, Σ c². c: the centroid of the row's label. Both NaN for an invalid
// label. The rows of a block are divided among groups of k_distance_lanes neighbouring threads, two rows of a group at a time. `mirrored`:
// other groups, and in a group other lanes, load the same numbers; the sums have the same bits. store(r, square, size) is called for each
// row by one thread. Called by the block.
template <bool Sizes, class T, class Rows, class Store>
__device__ __forceinline__ void label_distances(const exact_arguments<T>& a, const Rows& x, const feature_rows<T>& centroids, double scale,
                                                double lift, std::int64_t first, int rows, bool mirrored, Store&& store) {
  constexpr int together = 2, groups = k_row_threads / k_distance_lanes;
  const int thread = static_cast<int>(mirrored ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  const int lane = thread % k_distance_lanes, group = thread / k_distance_lanes;
#pragma unroll 1
  for (int begin = 0; begin < rows; begin += together * groups) {
    std::int64_t label[together];
    int count[together];
#pragma unroll
    for (int j = 0; j < together; ++j) {
      const int r = begin + j * groups + group;
      label[j] = r < rows ? label_of(a, first + r) : -1;
      count[j] = label[j] < 0 ? 0 : a.normalized.n;
    }
    double sum[together] = {}, size[together] = {};
    for (int f = lane * k_vector<T>; f < a.normalized.n; f += k_distance_lanes * k_vector<T>) {
      vector<T> own[together], c[together];
#pragma unroll
      for (int j = 0; j < together; ++j) {
        own[j] = load_features(x, first + min(begin + j * groups + group, rows - 1), f, count[j]);
        c[j] = load_features(centroids, max(label[j], std::int64_t{0}), f, count[j]);
      }
#pragma unroll
      for (int j = 0; j < together; ++j) {
#pragma unroll
        for (int i = 0; i < k_vector<T>; ++i) {
          const double centre = static_cast<double>(c[j].at[i]);
          const double d = __dmul_rn(__dsub_rn(__dmul_rn(static_cast<double>(own[j].at[i]), scale), centre), lift);
          sum[j] = __fma_rn(d, d, sum[j]);
          if constexpr (Sizes) size[j] = __fma_rn(centre, centre, size[j]);
        }
      }
    }
    ballast::cuda::add_lanes<k_row_threads, k_distance_lanes, 1>(sum);
    if constexpr (Sizes) ballast::cuda::add_lanes<k_row_threads, k_distance_lanes, 1>(size);
#pragma unroll
    for (int j = 0; j < together; ++j) {
      const int r = begin + j * groups + group;
      const double none = std::numeric_limits<double>::quiet_NaN();
      if (lane == 0 && r < rows) store(r, count[j] == 0 ? none : sum[j], count[j] == 0 ? none : size[j]);
    }
  }
}

// Computes made[r] = k_lift² ‖point · scale − plain‖² of the rows of a block, in double; without `plain` that of the normalized
// coordinates, not lifted. Called by the block.
template <bool Half, class T>
__device__ __forceinline__ void exact_distances(const exact_arguments<T>& a, std::int64_t first, int rows, bool mirrored, double* made) {
  const bool given = a.plain != nullptr;
  const int n = a.normalized.n;
  const feature_rows<T> centroids = feature_rows_of(given ? a.plain : a.normalized_centroids, std::int64_t{n}, 1);
  const double scale = given ? static_cast<double>(a.given.scale) : 1.0;
  const auto store = [&](int r, double square, double) { made[r] = square; };
  const feature_rows<T> x = feature_rows_of(a.normalized.x, std::int64_t{a.normalized.stride}, 1);
  if constexpr (Half) {
    if (given) return label_distances<false>(a, half_rows_of(a.given), centroids, scale, 1.0, first, rows, mirrored, store);
    label_distances<false>(a, x, centroids, scale, 1.0, first, rows, mirrored, store);
  } else {
    const feature_rows<T> from =
        given ? feature_rows_of(static_cast<const T*>(a.given.points), a.given.row_stride, a.given.column_stride) : x;
    const double lift = given && sizeof(T) == 8 ? static_cast<double>(k_lift<T>) : 1.0;
    label_distances<false>(a, from, centroids, scale, lift, first, rows, mirrored, store);
  }
}

// Computes Σ (x − c)² and Σ c² of the rows of a block, normalized coordinates, in double. Called by the block.
template <class T>
__device__ __forceinline__ void normalized_distances(const exact_arguments<T>& a, std::int64_t first, int rows, bool mirrored,
                                                     double* squares, double* sizes) {
  label_distances<true>(a, feature_rows_of(a.normalized.x, std::int64_t{a.normalized.stride}, 1),
                        feature_rows_of(a.normalized_centroids, std::int64_t{a.normalized.n}, 1), 1.0, 1.0, first, rows, mirrored,
                        [&](int r, double square, double size) { squares[r] = square, sizes[r] = size; });
}

// Returns whether the distance between normalized x and centroid, `square`, agrees with `exact` except for rounding, and with the distance
// found by the pass that assigned the label: a label that was corrupted on its way to memory has another distance. `size`: ‖c‖².
template <class T>
__device__ __forceinline__ bool agrees_normalized(const exact_arguments<T>& a, std::int64_t row, double exact, double square, double size) {
  const double tiny = static_cast<double>(std::numeric_limits<T>::min());
  if (a.passed != nullptr) {
    // Rounding of a difference, its square and the sums over the features of a lane; in f64 also that of `square`.
    const double unit = std::numeric_limits<T>::epsilon(), terms = a.normalized.stride / 4 + 8 + (sizeof(T) == 8 ? a.normalized.n : 0);
    if (!(fabs(square - static_cast<double>(load_again(a.passed + row))) <= unit * terms * square + a.normalized.stride * tiny))
      return false;
  }
  return fabs(exact - square) <= a.limit * (size + static_cast<double>(load_again(a.normalized.norm + row))) + tiny;
}

// Keeps the labels of a run, or compares the two copies.
template <class T, class Injector>
__global__ void __launch_bounds__(k_row_threads)
    keep_kernel(const __grid_constant__ ballast::cuda::kernel_launch<keep_arguments, Injector> given) {
  const keep_arguments& a = given.arguments;
  const std::int64_t i = std::int64_t{blockIdx.x} * k_row_threads + threadIdx.x;
  if (i >= a.m) return;
  if (a.compare) {
    if (load_again(a.kept + i) != load_again(a.twin + i)) flag(*a.flags, i);
    return;
  }
  auto label = static_cast<std::uint32_t>(load_again(a.labels + i));
  given.strike(ballast::cuda::index<1>{}, site::label, {blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), k_row_threads}, &label);
  a.kept[i] = static_cast<std::int32_t>(label);
  a.twin[i] = load_again(a.labels + i);
}

// Computes the other side of the invariants of sums by label: each row's numbers in fixed point, as the sums contain them, projected on the
// direction.
template <class T, int Words>
__global__ void __launch_bounds__(k_row_threads) labelled_kernel(const __grid_constant__ labelled_arguments<T> a) {
  auto* const sums = reinterpret_cast<double*>(arch::shared_memory());  // 3 per row
  const normalized_points<T>& p = a.normalized;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_row_threads;
  const int rows = static_cast<int>(min(p.m - first, static_cast<std::int64_t>(k_row_threads)));
  if (thread < rows) {
    const std::int64_t row = first + thread;
    const bool weighted = p.weight != nullptr;
    const T w = weighted ? p.weight[row] : T(1);
    const double label = static_cast<double>(a.labels[row]);
    const auto value = [&](int column, T product, T rest) {
      std::int32_t word[Words];
      if (weighted) {
        split<Words>(product, rest, p.unit[column], word);
      } else {
        split<Words>(product, p.unit[column], word);
      }
      double sum = 0;
      for (int i = Words; i-- > 0;) sum += static_cast<double>(word[i]) * word_value(i);
      return sum / static_cast<double>(p.unit[column]);
    };
    double projection = 0;
    for (int f = 0; f < p.n; ++f) {
      const T x = p.x[row * p.stride + f];
      const T product = weighted ? rounded_product(w, x) : x;
      projection += value(f, product, weighted ? product_rest(w, x, product) : T(0)) * a.direction[f];
    }
    sums[3 * thread] = label * projection;
    sums[3 * thread + 1] = label * (weighted ? value(p.n, w, T(0)) : 1.0);
    sums[3 * thread + 2] = w > 0 ? label : 0;
  }
  __syncthreads();  // the values of the rows are stored
  const int task = arch::warp();
  if (task >= 3) return;
  const double sum = sum_by_warp(rows, [&](int i) { return sums[3 * i + task]; });
  if (arch::lane() == 0) a.sums[3 * std::int64_t{blockIdx.x} + task] = sum;
}

}  // namespace ballast::kmeans::cuda
