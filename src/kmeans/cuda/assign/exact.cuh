// Computes the distance of each point to the centroid of its label, in double, and their sum, the inertia. Decides labels that the rounding
// of normalized coordinates leaves open.
// Layer: backend "cuda" of K-Means, device code.
// A row that is open (is_open) is decided by the points as given, and all centroids. Such rows lie together where the first points are the
// first centroids, so a block lists its own (exact_kernel), all blocks of the next launch decide listed rows (settle_kernel), and a third
// launch (exact_kernel with `second`) has the blocks that listed rows once more. No sum is in the order of arrival: the place of a row in
// the list changes no result.
#pragma once

#include "cuda/arch/arch.cuh"
#include "kmeans/cuda/assign/distances.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Returns whether the rounding of normalized coordinates could have hidden a nearer centroid than the one of the label, at the distance r
// with r² k_lift² = `exact`. Rounding moves x by u‖x‖ and a centroid by u‖c‖ ≤ u (‖x‖ + r) at most. So the centroid that is the nearest by
// normalized coordinates is at most 2u (2‖x‖ + r) farther than the nearest, and its squared distance is larger by 4u (2‖x‖ + r) r. That may
// be a share of r²: 2⁻¹⁰, in f64 2⁻³⁰. At r = 0 there is no nearer one.
// norm: ‖x‖².
template <class T>
__device__ __forceinline__ bool is_open_at(double norm, double exact) {
  constexpr double share = sizeof(T) == 4 ? 0x1p-10 : 0x1p-30, u = std::numeric_limits<T>::epsilon() / 2;
  const double r = sqrt(exact) / k_lift<T>;
  return r > 0 && 4 * u * (2 * sqrt(norm) + r) > share * r;
}
template <class T>
__device__ __forceinline__ bool is_open(const exact_arguments<T>& a, std::int64_t row, double exact) {
  return is_open_at<T>(static_cast<double>(load_again(a.normalized.norm + row)), exact);
}

// Returns the slack of a sum of n squares in double in any order of additions, relative to the sum.
__device__ __forceinline__ double order_slack(int n) { return 1 + 4 * static_cast<double>(n + 4) * abft::unit_roundoff<double>; }

// Returns the nearest centroid of a row by the coordinates as given, by a whole warp: distances in double, each by 1, 8 or 32 lanes; in f64
// those within their rounding are compared with the rounding errors of every operation. The lowest index among equals; k if no distance is
// at most `bound`. Searches only part `part` of `parts` of the centroids.
template <bool Half, class T>
__device__ __noinline__ nearest nearest_given(const exact_arguments<T>& a, std::int64_t row, int part, int parts, double bound) {
  // Lanes that disagreed about what they search, after a fault, would wait for each other forever.
  row = __shfl_sync(0xffffffffu, row, 0), part = __shfl_sync(0xffffffffu, part, 0), bound = __shfl_sync(0xffffffffu, bound, 0);
  const int n = a.given.n, lanes = n < 32 ? 1 : n < 128 ? 8 : 32, together = 32 / lanes, group = arch::lane() / lanes;
  constexpr int chunk = 128;  // features after which a whole warp looks whether the sum is above `most` already: then it returns that sum
  const auto square = [&](int j, double most) {
    const T* const c = a.plain + std::int64_t{j} * n;
    double sum = j < a.k ? 0 : std::numeric_limits<double>::infinity();
    for (int begin = 0; begin < n; begin += lanes == 32 ? chunk : n) {
      const int end = lanes == 32 ? min(begin + chunk, n) : n;
      if (j < a.k) sum += given_square<Half, true>(a.given, row, c, begin + arch::lane() % lanes, lanes, end);
      double all = sum;
#pragma unroll 1
      for (int apart = 1; apart < lanes; apart *= 2) all += __shfl_xor_sync(0xffffffffu, all, apart);
      if (end == n || (lanes == 32 && __any_sync(0xffffffffu, all > most))) return all;
    }
    return sum;
  };
  nearest best;
  best.distance = std::numeric_limits<double>::max(), best.index = a.k;
  const int first = part * together, step = parts * together;
  if constexpr (sizeof(T) == 4) {
#pragma unroll 1
    for (int begin = first; begin < a.k; begin += step) {
      const double most = min(bound, best.distance), own = square(begin + group, most);
      if (own <= most && begin + group < a.k) best.consider(own, begin + group);
    }
  } else {
    const double slack = order_slack(n);
    double least = bound;
#pragma unroll 1
    for (int begin = first; begin < a.k; begin += step) least = min(least, square(begin + group, least * slack));
#pragma unroll 1
    for (int apart = 1; apart < 32; apart *= 2) least = min(least, __shfl_xor_sync(0xffffffffu, least, apart));
    const double most = least * slack;
#pragma unroll 1
    for (int begin = first; begin < a.k; begin += step) {
      const int j = begin + group;
      if (!(square(j, most) <= most) || j >= a.k) continue;
      pair_sum exact{};
#pragma unroll 1
      for (int f = 0; f < n; ++f)
        exact.add_square(__dmul_rn(given_value<Half>(a.given, row, f), a.given.scale), load_again(a.plain + std::int64_t{j} * n + f),
                         k_lift<T>);
      best.consider<T>(nearest{exact.high, exact.low, j});
    }
  }
#pragma unroll 1
  for (int apart = 1; apart < 32; apart *= 2) {
    const double high = __shfl_xor_sync(0xffffffffu, best.distance, apart), low = __shfl_xor_sync(0xffffffffu, best.rest, apart);
    best.consider<T>(nearest{high, low, __shfl_xor_sync(0xffffffffu, best.index, apart)});
  }
  return best;
}

// Returns the bound for nearest_given from a row's distance to its label, which was summed in another order.
template <class T>
__device__ __forceinline__ double bound_of(const exact_arguments<T>& a, double distance) {
  return distance * order_slack(a.given.n);
}

// Returns whether bit `r` is set.
__device__ __forceinline__ bool is_marked(const std::uint32_t* marks, int r) { return (marks[r / 32] >> r % 32 & 1u) != 0; }

// Stores the chosen labels of marked rows. Called by the block, after a barrier.
template <class T>
__device__ __forceinline__ void store_chosen(const exact_arguments<T>& a, std::int64_t first, const std::uint32_t* marks,
                                             const std::int32_t* chosen) {
  const int r = static_cast<int>(threadIdx.x);
  if (is_marked(marks, r)) {
    const std::int64_t row = first + r;
    const std::int32_t label = chosen[r];
    if (static_cast<unsigned>(label) >= static_cast<unsigned>(a.k)) {
      if (a.check) flag(*a.flags, a.normalized.first + row);
    } else if (load_again(a.labels + row) != label) {
      a.labels[row] = label;
      if (a.passed != nullptr) a.passed[row] = static_cast<T>(normalized_square(a, row, label));
    }
  }
  __syncthreads();  // the labels are stored
}

// Decides the labels of the marked rows of a block. Warp w decides those of 32 rows, and another warp decides them again. made: distances
// to the labels; chosen: a label for each row. Called by the block.
template <bool Half, class T>
__device__ __noinline__ void settle(const exact_arguments<T>& a, std::int64_t first, const std::uint32_t* marks, const double* made,
                                    std::int32_t* chosen) {
  constexpr int warps = k_row_threads / 32;
  for (int time = 0; time < (a.check ? 2 : 1); ++time) {
    const int w = time == 0 ? arch::warp() : warps - 1 - arch::warp();
    for (std::uint32_t left = marks[w]; left != 0; left &= left - 1) {
      const int r = 32 * w + __ffs(static_cast<int>(left)) - 1;
      const std::int32_t label = nearest_given<Half>(a, first + r, 0, 1, bound_of(a, made[r])).index;
      if (arch::lane() != 0) continue;
      if (time == 0) {
        chosen[r] = label;
      } else if (chosen[r] != label) {
        flag(*a.flags, a.normalized.first + first + r);
      }
    }
    __syncthreads();  // the labels of these rows are chosen, or verified
  }
  store_chosen(a, first, marks, chosen);
}

// Adds the marked rows of a block to the list if it has room for all of them, and returns whether it has. `place`: in shared memory. Called
// by the block.
template <class T>
__device__ __forceinline__ bool list_rows(const exact_arguments<T>& a, std::int64_t first, const std::uint32_t* marks, const double* made,
                                          std::int32_t* place) {
  const int r = static_cast<int>(threadIdx.x);
  const auto marked_before = [&](int end) {
    int count = 0;
    for (int w = 0; w < end / 32; ++w) count += __popc(marks[w]);
    return end % 32 == 0 ? count : count + __popc(marks[end / 32] & ((1u << end % 32) - 1));
  };
  if (r == 0) {
    const auto own = static_cast<std::uint32_t>(marked_before(k_row_threads));
    std::int32_t at = -1;
    for (std::uint32_t seen = load_again(a.open.count); at < 0 && seen <= k_open_rows - own;) {
      const std::uint32_t before = atomicCAS(a.open.count, seen, seen + own);
      if (before == seen) at = static_cast<std::int32_t>(seen);
      seen = before;
    }
    *place = at;
    if (at >= 0) a.open.blocks[blockIdx.x] = {at, static_cast<std::int32_t>(own)};
  }
  __syncthreads();  // the place is known
  if (*place < 0) return false;
  if (is_marked(marks, r)) a.open.rows[*place + marked_before(r)] = {first + r, made[r]};
  return true;
}

// Takes the labels that settle_kernel chose for the listed rows of a block, and marks these rows. before[r]: the distance of row r to its
// label before. Called by the block.
template <class T>
__device__ __forceinline__ void take_rows(const exact_arguments<T>& a, std::int64_t first, int rows, open_block listed,
                                          std::uint32_t* marks, std::int32_t* chosen, double* before) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < listed.count) {
    const int e = listed.first + thread;
    const std::int64_t row = load_again(&a.open.rows[e].row), r = row - first;
    const chosen_label* const one = a.open.chosen + e;
    const chosen_label* const twin = one + (a.check ? k_open_rows : 0);
    const std::int64_t label = load_again(&one->label);
    const bool inside = r >= 0 && r < rows;
    if (inside) {
      atomicOr(marks + r / 32, 1u << r % 32);
      chosen[r] = static_cast<std::int32_t>(label);
      before[r] = load_again(&a.open.rows[e].distance);
    }
    if (a.check && !(inside && load_again(&one->row) == row && load_again(&twin->row) == row && load_again(&twin->label) == label))
      flag(*a.flags, a.normalized.first + first);
  }
  __syncthreads();  // the rows are marked
  store_chosen(a, first, marks, chosen);
}

// Decides the listed rows, each by a block, and again by another block. Shared memory: a nearest centroid per warp.
template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_row_threads, 4)
    settle_kernel(const __grid_constant__ ballast::cuda::kernel_launch<exact_arguments<T>, Injector> given) {
  constexpr int warps = k_row_threads / 32;
  const exact_arguments<T>& a = given.arguments;
  auto* const best = reinterpret_cast<nearest*>(arch::shared_memory());
  const int count = static_cast<int>(min(load_again(a.open.count), static_cast<std::uint32_t>(k_open_rows)));
  for (int task = static_cast<int>(blockIdx.x); task < (a.check ? 2 : 1) * count; task += static_cast<int>(gridDim.x)) {
    const bool again = task >= count;
    const int e = again ? task - count : task;
    const bool listed = static_cast<unsigned>(e) < static_cast<unsigned>(k_open_rows);
    const std::int64_t row = __shfl_sync(0xffffffffu, listed ? load_again(&a.open.rows[e].row) : -1, 0);
    const bool inside = row >= 0 && row < a.given.m;  // false only after a fault
    if (inside) {
      const double bound = bound_of(a, load_again(&a.open.rows[e].distance));
      const nearest own = nearest_given<Half>(a, row, again ? warps - 1 - arch::warp() : arch::warp(), warps, bound);
      if (arch::lane() == 0) best[arch::warp()] = own;
    }
    __syncthreads();  // the nearest centroids of the parts are stored
    if (threadIdx.x == 0) {
      nearest all = best[0];
      for (int w = 1; w < warps; ++w) all.template consider<T>(best[w]);
      auto label = static_cast<std::uint32_t>(inside ? all.index : -1);
      if (!again) given.strike(ballast::cuda::index<1>{}, site::index, {e, count, 0, 1, 0, 1}, &label);
      if (listed) a.open.chosen[e + (again ? k_open_rows : 0)] = {row, static_cast<std::int64_t>(static_cast<std::int32_t>(label))};
    }
    __syncthreads();  // the label is stored
  }
}

// Returns whether the rows of a block that settle_kernel decided are as near to their labels as before or nearer, and whether all rows that
// are open were decided. By the thread of each row.
template <class T>
__device__ __forceinline__ bool settled(const exact_arguments<T>& a, std::int64_t row, bool marked, double distance, double before) {
  return marked ? distance <= bound_of(a, before) : !is_open(a, row, distance);
}

// Computes the distance of each row of a block, and again by other threads; thread t then judges row T − 1 − t. Shared memory: four numbers
// per row, two sums; a label per row, a bit per row, a place.
template <class T, bool Half, class Injector>
__global__ void __launch_bounds__(k_row_threads, 4)
    exact_kernel(const __grid_constant__ ballast::cuda::kernel_launch<exact_arguments<T>, Injector> given) {
  const exact_arguments<T>& a = given.arguments;
  auto* const made = reinterpret_cast<double*>(arch::shared_memory());
  double* const again = made + k_row_threads;
  double* const squares = again + k_row_threads;  // by the normalized coordinates
  double* const sizes = squares + k_row_threads;
  double* const sums = sizes + k_row_threads;
  auto* const chosen = reinterpret_cast<std::int32_t*>(sums + 2);
  auto* const marks = reinterpret_cast<std::uint32_t*>(chosen + k_row_threads);
  auto* const place = reinterpret_cast<std::int32_t*>(marks + k_row_threads / 32);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * k_row_threads;
  const int rows = static_cast<int>(min(a.given.m - first, static_cast<std::int64_t>(k_row_threads)));
  const bool weighted = a.given.weights != nullptr;
  const int other = k_row_threads - 1 - thread;
  const auto compute = [&] {
    exact_distances<Half>(a, first, rows, false, made);
    if (a.check) exact_distances<Half>(a, first, rows, true, again);
    __syncthreads();  // the distances are stored
  };
  if (thread < k_row_threads / 32) marks[thread] = 0;
  open_block listed{0, 0};
  if (a.second) {
    listed.first = load_again(&a.open.blocks[blockIdx.x].first), listed.count = load_again(&a.open.blocks[blockIdx.x].count);
    if (listed.count == 0) return;
    const bool possible =
        listed.count > 0 && listed.count <= k_row_threads && listed.first >= 0 && listed.first <= k_open_rows - listed.count;
    if (!possible) listed.count = 0;  // after a fault: the rows are open below
    __syncthreads();                  // the marks are 0
    take_rows(a, first, rows, listed, marks, chosen, squares);
  }
  compute();
  if (a.distances != nullptr && thread < rows) a.distances[first + thread] = made[thread];
  if (a.second) {
    if (a.check && thread < rows && !settled(a, first + thread, is_marked(marks, thread), made[thread], squares[thread]))
      flag(*a.flags, a.normalized.first + first + thread);
    __syncthreads();  // the distances before are read
  } else if (a.settles) {
    bool opens = false;
    const auto mark = [&](int r, double distance) {
      if (!is_open(a, first + r, distance)) return;
      opens = true;
      atomicOr(marks + r / 32, 1u << r % 32);
    };
    if (thread < rows) mark(thread, made[thread]);
    if (a.check && other < rows) mark(other, again[other]);
    const bool any = __syncthreads_or(opens ? 1 : 0) != 0;
    if (thread == 0) a.open.blocks[blockIdx.x] = {0, 0};
    if (any) {
      if (list_rows(a, first, marks, made, place)) {
        // The launch after the next one has this block again. If it did not, the sums would show it.
        if (thread < 2) a.sums[2 * blockIdx.x + thread] = std::numeric_limits<double>::quiet_NaN();
        return;
      }
      settle<Half>(a, first, marks, made, chosen);
      compute();
    }
  }
  if (a.check && a.plain != nullptr) normalized_distances(a, first, rows, true, squares, sizes);
  __syncthreads();  // the normalized distances, and `distances`, are stored
  if (a.check && other < rows) {
    const double plain = again[other] / k_lift<T> / k_lift<T>;
    const bool same = again[other] == (a.distances != nullptr ? load_again(a.distances + first + other) : made[other]);
    if (!same || (a.plain != nullptr && !agrees_normalized(a, first + other, plain, squares[other], sizes[other])))
      flag(*a.flags, a.normalized.first + first + other);
  }
  if (a.sums == nullptr) return;
  if (thread < 32) {
    double sum = sum_by_warp(
        rows, [&](int i) { return (weighted ? static_cast<double>(load_again(a.normalized.weight + first + i)) : 1.0) * made[i]; });
    if (thread == 0) {
      given.strike(ballast::cuda::index<1>{}, site::inertia, {blockIdx.x, gridDim.x, 0, 1, 0, 1}, &sum);
      a.sums[2 * blockIdx.x] = sums[0] = sum;
    }
  } else if (thread < 64 && a.check) {
    const double sum =
        sum_by_warp(rows, [&](int i) { return (weighted ? static_cast<double>(compute_weight(a.given, first + i)) : 1.0) * again[i]; });
    if (thread == 32) a.sums[2 * blockIdx.x + 1] = sums[1] = sum;
  }
  __syncthreads();  // the sums are stored
  if (thread == 64 && a.check && !(sums[0] == sums[1])) flag(*a.flags, a.normalized.first + first);
}

}  // namespace ballast::kmeans::cuda
