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
// would detect the error.
template <class T>
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
      const auto own = *reinterpret_cast<const vector<T>*>(x + f);
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

// Returns whether `found` = Σ w_j ‖x − c_j‖² over a section agrees with `norm` = ‖x‖² and `product` = x · Σ w_j c_j.
template <class T>
__device__ __forceinline__ bool sums_agree(T norm, const checked_centroids<T>& from, int section, double found, double product) {
  const double size = __fma_rn(from.weights[section], static_cast<double>(norm), from.norms[section]);
  const double residual = found - (size - 2 * product);
  return fabs(residual) <= from.limit * size + from.weights[section] * static_cast<double>(std::numeric_limits<T>::min());
}

// The same with a product that it computes. x and the sum of centroids are 0 from feature n on.
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
  return sums_agree(load_again(p.norm + row), from, section, found, product);
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

// Returns the distance of a square, rounded once: a root in double that is rounded to float is the root in float. `unscale` is a power of
// two.
__device__ __forceinline__ float distance_of(float square, double unscale) {
  return static_cast<float>(__dmul_rn(static_cast<double>(sqrtf(square)), unscale));
}
__device__ __forceinline__ double distance_of(double square, double unscale) { return __dmul_rn(sqrt(square), unscale); }

// How the threads of distances_kernel divide a distance_tile.
template <class T>
struct distance_threads {
  using tile = distance_tile<T>;
  // A thread computes the distances of neighbouring rows to some centroids.
  static constexpr int k_own_rows = 4;
  static constexpr int k_own_columns = tile::k_rows * k_section / k_row_threads / k_own_rows;
  static constexpr int k_across = k_section / k_own_columns;
  static constexpr int k_vectors = k_own_columns / k_vector<T>;  // a thread has so many of columns, k_across vectors apart
  // A thread checks some columns of a row, and the same part of each slab of features.
  static constexpr int k_parts = k_row_threads / tile::k_rows;
  static constexpr int k_part_columns = k_section / k_parts;
  static constexpr int k_part_features = tile::k_features / k_parts;
  static_assert(k_vectors * k_vector<T> == k_own_columns && k_own_rows % k_vector<T> == 0);
  static_assert(2 * sizeof(double) * k_row_threads <= sizeof(tile::x));
};

// Stores the coordinates of a slab, feature by feature: load(row, feature) returns a vector of the row. `mirrored`: other threads load the
// same. Called by the block.
template <class T, int Rows, int Stride, class Load>
__device__ __forceinline__ void store_slab(T* to, bool mirrored, Load&& load) {
  constexpr int vectors = k_slice<T> / k_vector<T>, each = Rows * vectors / k_row_threads;
  static_assert(each * k_row_threads == Rows * vectors);
  const int thread = static_cast<int>(mirrored ? k_row_threads - 1 - threadIdx.x : threadIdx.x);
  vector<T> own[each];
#pragma unroll
  for (int i = 0; i < each; ++i) own[i] = load((i * k_row_threads + thread) / vectors, thread % vectors * k_vector<T>);
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int row = (i * k_row_threads + thread) / vectors, f = thread % vectors * k_vector<T>;
#pragma unroll
    for (int j = 0; j < k_vector<T>; ++j) to[(f + j) * Stride + row] = own[i].at[j];
  }
}

// Computes the squared distances of a tile: ‖x − c_j‖² of `rows` rows from `first` on to the centroids of a section, whose last one
// repeats. Features are summed in chains of k_chain, as group_distances does, with the same bits. Without `Check` it loads the rows once.
// With it, returns the part of x · Σ w_j c_j that a thread has (distance_threads), and whether all coordinates that it used are the same as
// those of another load: a wrong one changes all distances of a row, and its shares in their weighted sum may cancel. `Given`: the
// coordinates are normalized here, each load with its copy of the shift; `size` is then the same part of ‖x‖². Called by the block; the
// squares are stored for all threads.
template <bool Check, bool Given, bool Half, class T>
__device__ __forceinline__ bool tile_distances(const distances_arguments<T>& a, distance_tile<T>& tile, std::int64_t first, int rows,
                                               int section, double& product, double& size) {
  using threads = distance_threads<T>;
  constexpr int height = threads::k_own_rows, width = threads::k_own_columns;
  constexpr int down = distance_tile<T>::k_row_stride, across = distance_tile<T>::k_column_stride;
  const int stride = a.normalized.stride, thread = static_cast<int>(threadIdx.x);
  const int own_row = thread / threads::k_across * height, own_column = thread % threads::k_across * k_vector<T>;
  const int part_row = thread % distance_tile<T>::k_rows, part = thread / distance_tile<T>::k_rows;
  T chain[height][width] = {};
  double part_chain = 0, size_chain = 0;
  decltype(ballast::cuda::bits(T(0))) differences = 0;
  product = size = 0;
  // Features f and later of a row, by the first or the second load.
  const auto point = [&](bool second, int row, int f) {
    const std::int64_t at_row = first + (row < rows ? row : rows - 1);
    if constexpr (Given) {
      vector<T> made;
      if constexpr (Half) {
        made = load_features(half_rows_of(a.given), at_row, f, a.given.n);
      } else {
        made = load_features(feature_rows_of(static_cast<const T*>(a.given.points), a.given.row_stride, a.given.column_stride), at_row, f,
                             a.given.n);
      }
      const auto shift = arch::load_itself(reinterpret_cast<const vector<T>*>(a.shift[second ? 1 : 0] + f));
#pragma unroll
      for (int i = 0; i < k_vector<T>; ++i) made.at[i] = normalized(made.at[i], a.given.scale, shift.at[i]);
      return made;
    } else {
      const auto* const at = reinterpret_cast<const vector<T>*>(a.normalized.x + at_row * stride + f);
      return second ? arch::load_itself(at) : *at;
    }
  };
  const auto centroid = [&](int column, int f) {
    const int j = section * k_section + column;
    return a.centroids.rows + std::int64_t{j < a.centroids.count ? j : a.centroids.count - 1} * stride + f;
  };
#pragma unroll 1
  for (int begin = 0; begin < stride; begin += distance_tile<T>::k_features) {
    store_slab<T, distance_tile<T>::k_rows, down>(tile.x, false, [&](int row, int f) { return point(false, row, begin + f); });
    if constexpr (Check)
      store_slab<T, distance_tile<T>::k_rows, down>(tile.again, true, [&](int row, int f) { return point(true, row, begin + f); });
    store_slab<T, k_section, across>(tile.c, false,
                                     [&](int column, int f) { return *reinterpret_cast<const vector<T>*>(centroid(column, begin + f)); });
    __syncthreads();  // the slab is stored
#pragma unroll 4
    for (int f = 0; f < distance_tile<T>::k_features; ++f) {
      T own[height], c[width];
#pragma unroll
      for (int i = 0; i < height; i += k_vector<T>) {
        const auto v = *reinterpret_cast<const vector<T>*>(tile.x + f * down + own_row + i);
        [[maybe_unused]] vector<T> w = v;
        if constexpr (Check) w = *reinterpret_cast<const vector<T>*>(tile.again + f * down + own_row + i);
#pragma unroll
        for (int e = 0; e < k_vector<T>; ++e) {
          own[i + e] = v.at[e];
          if constexpr (Check) differences |= ballast::cuda::bits(v.at[e]) ^ ballast::cuda::bits(w.at[e]);
        }
      }
#pragma unroll
      for (int q = 0; q < threads::k_vectors; ++q) {
        const auto v = *reinterpret_cast<const vector<T>*>(tile.c + f * across + q * threads::k_across * k_vector<T> + own_column);
#pragma unroll
        for (int e = 0; e < k_vector<T>; ++e) c[q * k_vector<T> + e] = v.at[e];
      }
#pragma unroll
      for (int i = 0; i < height; ++i) {
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const T d = own[i] - c[j];
          chain[i][j] = multiply_add(d, d, chain[i][j]);
        }
      }
    }
    if constexpr (Check) {
      const double* const checksum = a.centroids.checksum + std::int64_t{section} * stride + begin;
#pragma unroll
      for (int i = 0; i < threads::k_part_features; ++i) {
        const int f = part * threads::k_part_features + i;
        part_chain = __fma_rn(static_cast<double>(tile.again[f * down + part_row]), load_again(checksum + f), part_chain);
      }
    }
    if constexpr (Given) {
#pragma unroll
      for (int i = 0; i < threads::k_part_features; ++i) {
        const T own = (Check ? tile.again : tile.x)[(part * threads::k_part_features + i) * down + part_row];
        size_chain = __fma_rn(static_cast<double>(own), static_cast<double>(own), size_chain);
      }
    }
    const int end = begin + distance_tile<T>::k_features;
    if (end % k_chain == 0 || end >= stride) {
#pragma unroll
      for (int i = 0; i < height; ++i) {
#pragma unroll
        for (int q = 0; q < threads::k_vectors; ++q) {
          auto& to =
              *reinterpret_cast<vector<T>*>(tile.squares + (own_row + i) * across + q * threads::k_across * k_vector<T> + own_column);
          vector<T> sum = {};
          if (end > k_chain) sum = to;
#pragma unroll
          for (int e = 0; e < k_vector<T>; ++e) {
            T& more = chain[i][q * k_vector<T> + e];
            sum.at[e] += more;
            more = 0;
          }
          to = sum;
        }
      }
      product += part_chain, size += size_chain;
      part_chain = size_chain = 0;
    }
    __syncthreads();  // the slab is read, and the squares are stored
  }
  return differences == 0;
}

// Replaces the short distances among those of a row that a thread has, bit by bit of `near`, by those of the coordinates as given. `to`:
// their squares; `number`: of the first centroid. Many features are added by a whole warp. Called by all threads.
template <bool Half, class T>
__device__ __forceinline__ void measure_near(const distances_arguments<T>& a, std::uint64_t near, std::int64_t row, int number, T* to) {
  constexpr int few = 64;
  const int n = a.given.n;
  const auto centroid = [&](int j) { return a.plain + std::int64_t{j} * n; };
  if (n < few) {
#pragma unroll 1
    for (; near != 0; near &= near - 1) {
      const int e = __ffsll(static_cast<long long>(near)) - 1;
      to[e] = static_cast<T>(given_square<Half, false>(a.given, row, centroid(number + e), 0, 1, n));
    }
    return;
  }
#pragma unroll 1
  for (;;) {
    unsigned open = __ballot_sync(0xffffffffu, near != 0);
    if (open == 0) break;
    const int e = near == 0 ? 0 : __ffsll(static_cast<long long>(near)) - 1;
#pragma unroll 1
    for (; open != 0; open &= open - 1) {
      const int lane = __ffs(static_cast<int>(open)) - 1;
      const int j = __shfl_sync(0xffffffffu, number + e, lane);
      const auto of = static_cast<std::int64_t>(__shfl_sync(0xffffffffu, static_cast<long long>(row), lane));
      double sum[1] = {given_square<Half, false>(a.given, of, centroid(j), arch::lane(), 32, n)};
      ballast::cuda::add_lanes<32, 32, 1>(sum);
      if (arch::lane() == lane) to[e] = static_cast<T>(sum[0]);
    }
    near &= near - 1;
  }
}

// One block computes the distances of some rows to one section of centroids, and stores them. Normalized coordinates were rounded once: a
// distance errs by u(‖x‖ + ‖c‖), relative to itself at most 5u if it is at least ‖x‖/2, since ‖c‖ ≤ ‖x‖ + ‖x − c‖. A shorter one is
// computed from the coordinates as given. With `check`, the squares, which other threads made distances of, must pass the row check, and
// the stored distances are computed again. `Given`: as in tile_distances. Shared memory: a distance_tile.
template <class T, bool Half, bool Given, class Injector>
__global__ void __launch_bounds__(k_row_threads, 3)
    distances_kernel(const __grid_constant__ ballast::cuda::kernel_launch<distances_arguments<T>, Injector> given) {
  using threads = distance_threads<T>;
  constexpr int height = distance_tile<T>::k_rows, across = distance_tile<T>::k_column_stride, elements = height * k_section;
  const distances_arguments<T>& a = given.arguments;
  auto& tile = *reinterpret_cast<distance_tile<T>*>(arch::shared_memory());
  const int count = a.centroids.count, sections = (count + k_section - 1) / k_section;
  const int section = static_cast<int>(blockIdx.x % sections), left = section * k_section;
  const std::int64_t block = blockIdx.x / sections;
  const std::int64_t first = a.first + block * height;  // the first row, in the piece
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = static_cast<int>(min(a.rows - block * height, static_cast<std::int64_t>(height)));
  const int columns = min(count - left, k_section);
  double product = 0, size = 0;
  bool same = true;
  if (a.check) {
    same = tile_distances<true, Given, Half>(a, tile, first, rows, section, product, size);
  } else {
    (void)tile_distances<false, Given, Half>(a, tile, first, rows, section, product, size);
  }
  [[maybe_unused]] auto* const sizes = reinterpret_cast<double*>(tile.again);  // by thread
  if constexpr (Given) {
    sizes[thread] = size;
    __syncthreads();  // the parts of ‖x‖² are stored
  }
  const auto norm_of = [&](int r) -> T {
    if constexpr (Given) {
      double all = 0;
      for (int p = 0; p < threads::k_parts; ++p) all += load_again(sizes + p * height + r);
      return static_cast<T>(all);
    } else {
      return load_again(a.normalized.norm + first + r);
    }
  };
  const int row = thread % height, begin = thread / height * threads::k_part_columns;
  const int end = min(begin + threads::k_part_columns, columns);
  T* const own = tile.squares + row * across;
  std::uint64_t near = 0;  // bit e: distance begin + e is short
  if (row < rows) {
    const T least = norm_of(row) / 4;
    for (int j = begin; j < end; ++j) near |= std::uint64_t{own[j] > least ? 0u : 1u} << (j - begin);
  }
  measure_near<Half>(a, near, first + row, left + begin, own + begin);
  [[maybe_unused]] const std::int64_t which = first / height, all = (a.normalized.m + height - 1) / height;
  if constexpr (Injector::enabled) {
    for (int j = begin; row < rows && j < end; ++j)
      given.strike(ballast::cuda::index<1>{}, site::product, {which, all, left + j, 2 * count, row, rows}, own + j);
  }
  __syncthreads();  // the squares are final
  T* const values = a.values + block * height * a.value_stride + left;
  for (int e = thread; e < elements; e += k_row_threads) {
    const int r = e / k_section, j = e % k_section;
    if (r >= rows || j >= columns) continue;
    T made = distance_of(tile.squares[r * across + j], a.unscale);
    given.strike(ballast::cuda::index<1>{}, site::product, {which, all, count + left + j, 2 * count, r, rows}, &made);
    values[r * a.value_stride + j] = made;
  }
  if (!a.check) return;
  double found = 0;
  if (row < rows) {
    for (int j = begin; j < end; ++j)
      found = __fma_rn(static_cast<double>(load_again(a.centroids.weight + left + j)), static_cast<double>(load_again(own + j)), found);
  }
  auto* const sums = reinterpret_cast<double*>(tile.x);  // found and product of each thread
  sums[thread] = found;
  sums[k_row_threads + thread] = product;
  if (!same) flag(*a.flags, a.normalized.first + first + min(thread / threads::k_across * threads::k_own_rows, rows - 1));
  __syncthreads();  // the distances and sums are stored
  for (int e = k_row_threads - 1 - thread; e < elements; e += k_row_threads) {
    const int r = e / k_section, j = e % k_section;
    if (r >= rows || j >= columns) continue;
    const T again = distance_of(load_again(tile.squares + r * across + j), a.unscale);
    if (!(load_again(values + r * a.value_stride + j) == again)) flag(*a.flags, a.normalized.first + first + r);
  }
  if (thread >= rows) return;
  found = product = 0;
  for (int p = 0; p < threads::k_parts; ++p) {
    found += load_again(sums + p * height + thread);
    product += load_again(sums + k_row_threads + p * height + thread);
  }
  if (!sums_agree(norm_of(thread), a.centroids, section, found, product)) flag(*a.flags, a.normalized.first + first + thread);
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
  T& to = a.values[row * a.value_stride + j];
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
