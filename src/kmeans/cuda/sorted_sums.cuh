// Sums of the points of each cluster in the order of their labels. Layer: backend "cuda" of K-Means, device code.
// Three kernels: rows of each label are counted; each row gets a place, labels one after the other, rows of a label in any order; a warp
// adds k_sum_rows rows that follow each other. The sums are integers, so no order changes a bit. What the kernels do wrong shows in the
// update: the sums over all clusters, their signatures by label and the members are compared with what the points and the pass say.
// Launched behind a pass, one after the other. Each waits for the one in front before it lets the next one start.
#pragma once

#include "cuda/arch/arch.cuh"
#include "cuda/arch/atomic.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/fixed.cuh"
#include "kmeans/cuda/nearest.cuh"
#include "kmeans/cuda/panel.hpp"
#include "kmeans/cuda/sorted_sums.hpp"

namespace ballast::kmeans::cuda {

// What both sorting kernels begin with: the rows of this block, and a number of them for each label in `counts`.
template <class T>
struct labelled_chunk {
  const sorted_sums_arguments<T>& a;
  std::int64_t begin, end;

  __device__ __forceinline__ explicit labelled_chunk(const sorted_sums_arguments<T>& of) : a(of) {
    const std::int64_t each = (a.points.m + gridDim.x - 1) / gridDim.x;
    begin = min(each * blockIdx.x, a.points.m);
    end = min(begin + each, a.points.m);
  }
  // The label of a row that is added; −1: of one that is not.
  __device__ __forceinline__ int label_of(std::int64_t i) const {
    const std::int32_t label = a.labels[i];
    const bool counts = static_cast<unsigned>(label) < static_cast<unsigned>(a.k) &&
                        (a.points.weight == nullptr || arch::load_table(a.points.weight + i) > 0);
    return counts ? label : -1;
  }
  __device__ __forceinline__ void count(std::uint32_t* counts) const {
    for (int j = static_cast<int>(threadIdx.x); j < a.k; j += k_sort_threads) counts[j] = 0;
    __syncthreads();
    for (std::int64_t i = begin + threadIdx.x; i < end; i += k_sort_threads) {
      if (const int label = label_of(i); label >= 0) atomicAdd(counts + label, 1u);
    }
    __syncthreads();
  }
};

template <class T, class Injector>
__global__ void __launch_bounds__(k_sort_threads)
    count_labels_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sorted_sums_arguments<T>, Injector> given) {
  const sorted_sums_arguments<T>& a = given.arguments;
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  if (a.stop != nullptr && *a.stop != 0) return;
  auto* const counts = reinterpret_cast<std::uint32_t*>(arch::shared_memory());
  labelled_chunk<T>(a).count(counts);
  if constexpr (Injector::enabled) {
    const int thread = static_cast<int>(threadIdx.x), threads = min(a.k, k_sort_threads);
    if (thread < threads)
      given.strike(ballast::cuda::index<1>{}, inject::site::kmeans_count, {blockIdx.x, gridDim.x, 0, 1, thread, threads}, counts + thread);
  }
  for (int j = static_cast<int>(threadIdx.x); j < a.k; j += k_sort_threads) {
    if (counts[j] == 0) continue;
    atomicAdd(a.counters + j, counts[j]);
    arch::add_global(a.members + j, counts[j]);
  }
}

// Shared memory: the rows of each label in this block, then where their places begin.
template <class T, class Injector>
__global__ void __launch_bounds__(k_sort_threads)
    order_labels_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sorted_sums_arguments<T>, Injector> given) {
  const sorted_sums_arguments<T>& a = given.arguments;
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  if (a.stop != nullptr && *a.stop != 0) return;
  auto* const counts = reinterpret_cast<std::uint32_t*>(arch::shared_memory());
  std::uint32_t* const places = counts + a.k;
  const labelled_chunk<T> chunk(a);
  chunk.count(counts);
  // Where each label begins: sums over those in front of it, of a few labels by each thread, of threads by a warp's shuffles.
  struct memory {
    std::uint32_t of_warps[k_sort_threads / 32];
  };
  auto& of_warps = arch::shared_object<memory, struct order_memory>().of_warps;
  const int thread = static_cast<int>(threadIdx.x), lane = arch::lane(), warp = arch::warp();
  const int each = (a.k + k_sort_threads - 1) / k_sort_threads, first = min(thread * each, a.k), last = min(first + each, a.k);
  std::uint32_t own = 0;
  for (int j = first; j < last; ++j) own += a.counters[j];
  std::uint32_t up_to = own;
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += other;
  }
  if (lane == 31) of_warps[warp] = up_to;
  __syncthreads();
  std::uint32_t place = up_to - own;
  for (int w = 0; w < warp; ++w) place += of_warps[w];
  if (blockIdx.x == 0 && thread == k_sort_threads - 1) *a.ordered = place + own;
  for (int j = first; j < last; ++j) {
    places[j] = place + (counts[j] > 0 ? atomicAdd(a.counters + a.k + j, counts[j]) : 0);
    place += a.counters[j];
  }
  __syncthreads();
  for (std::int64_t i = chunk.begin + thread; i < chunk.end; i += k_sort_threads) {
    const int label = chunk.label_of(i);
    if (label < 0) continue;
    const std::uint32_t at = atomicAdd(places + label, 1u);
    if (at < static_cast<std::uint64_t>(a.points.m)) a.order[at] = static_cast<std::int32_t>(i);  // or a counter was struck
  }
}

// A warp's rows in some columns.
template <class T, int Words, bool Weighted, class Injector>
struct sorted_sums {
  using launch = ballast::cuda::kernel_launch<sorted_sums_arguments<T>, Injector>;
  static constexpr int k_together = 8;  // rows whose loads are under way

  const launch& given;
  const sorted_sums_arguments<T>& a;
  int chunk;  // of columns
  int f;      // the first column of this lane
  bool there, weighs;
  int cluster = -1;
  long long sum[k_vector<T>][Words] = {};
  long long weight[Words] = {};
  features<T> unit;

  __device__ __forceinline__ explicit sorted_sums(const launch& from) : given(from), a(from.arguments) {
    const int chunks = (a.points.stride + k_sum_columns<T> - 1) / k_sum_columns<T>;
    chunk = static_cast<int>(blockIdx.x) % chunks;
    f = chunk * k_sum_columns<T> + arch::lane() * k_vector<T>;
    there = f < a.points.n;
    weighs = Weighted && chunk == 0 && arch::lane() == 0;
    unit = load_features(a.points.unit + (there ? f : 0));
  }

  __device__ __forceinline__ unsigned long long* sums_of(int w) const {
    return a.sums + (static_cast<std::int64_t>(cluster) * Words + w) * sum_pitch(a.points.stride);
  }
  // Adds what the registers hold to memory.
  __device__ __forceinline__ void flush() {
    if (cluster < 0) return;
#pragma unroll
    for (int w = 0; w < Words; ++w) {
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        if (there)
          arch::add_global(sums_of(w) + sum_place<T>(f + v, a.points.n, a.points.stride), static_cast<unsigned long long>(sum[v][w]));
        sum[v][w] = 0;
      }
      if (weighs) arch::add_global(sums_of(w) + a.points.stride, static_cast<unsigned long long>(weight[w]));
      weight[w] = 0;
    }
  }
  __device__ __forceinline__ void add(int label, const features<T>& x, T by) {
    if (label != cluster) flush(), cluster = label;
    std::int32_t word[Words];
#pragma unroll
    for (int v = 0; v < k_vector<T>; ++v) {
      if constexpr (Weighted) {
        const T product = rounded_product(by, x.at[v]);
        split<Words>(product, product_rest(by, x.at[v], product), unit.at[v], word);
      } else {
        split<Words>(x.at[v], unit.at[v], word);
      }
#pragma unroll
      for (int w = 0; w < Words; ++w) sum[v][w] += word[w];
    }
    if constexpr (Weighted) {
      split<Words>(by, T(0), arch::load_table(a.points.unit + a.points.n), word);
#pragma unroll
      for (int w = 0; w < Words; ++w) weight[w] += word[w];
    }
  }

  // The rows at this warp's places of the order, from `begin` on. `rows`: in the order.
  __device__ __forceinline__ void run(std::int64_t begin, std::int64_t rows) {
    const std::int64_t end = min(begin + k_sum_rows, rows);
    const auto all = static_cast<unsigned>(a.points.m);
#pragma unroll 1
    for (std::int64_t from = begin; from < end; from += 32) {
      const std::int64_t at = from + arch::lane();
      const int listed = at < end ? a.order[at] : -1;
      const bool known = static_cast<unsigned>(listed) < all;
      const int read = known ? a.labels[listed] : -1;
      const int label = static_cast<unsigned>(read) < static_cast<unsigned>(a.k) ? read : -1, row = known ? listed : 0;
      const T by = Weighted && known ? arch::load_table(a.points.weight + row) : T(1);
#pragma unroll 1
      for (int e = 0; e < 32; e += k_together) {
        features<T> x[k_together];
#pragma unroll
        for (int r = 0; r < k_together; ++r) {
          const int i = __shfl_sync(0xffffffffu, row, e + r);
          x[r] = load_features(a.points.x + static_cast<std::int64_t>(i) * a.points.stride + (there ? f : 0));
        }
#pragma unroll
        for (int r = 0; r < k_together; ++r) {
          const int to = __shfl_sync(0xffffffffu, label, e + r);
          const T times = Weighted ? __shfl_sync(0xffffffffu, by, e + r) : T(1);
          if (to >= 0) add(to, x[r], times);
        }
      }
    }
    if constexpr (Injector::enabled) {
      // Among the lanes that add.
      const int lanes = min(32, (a.points.n - f + arch::lane() * k_vector<T> + k_vector<T> - 1) / k_vector<T>);
      const std::int64_t first = begin - std::int64_t{arch::warp()} * k_sum_rows, in_block = (rows - first + k_sum_rows - 1) / k_sum_rows;
      const int warps = static_cast<int>(min(std::int64_t{k_sum_threads / 32}, in_block));
      if (there)
        given.strike(ballast::cuda::index<2>{}, inject::site::kmeans_sum,
                     {blockIdx.x, gridDim.x, 0, 1, arch::warp() * lanes + arch::lane(), warps * lanes},
                     reinterpret_cast<std::uint32_t*>(sum[0]));
    }
    flush();
  }
};

template <class T, int Words, bool Weighted, class Injector>
__global__ void __launch_bounds__(k_sum_threads)
    sorted_sums_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sorted_sums_arguments<T>, Injector> given) {
  const sorted_sums_arguments<T>& a = given.arguments;
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  if (a.stop != nullptr && *a.stop != 0) return;
  const std::int64_t rows = min(static_cast<std::int64_t>(*a.ordered), a.points.m);
  // The next pass finds the counters as this one did.
  for (std::int64_t j = std::int64_t{blockIdx.x} * k_sum_threads + threadIdx.x; j < 2 * a.k; j += std::int64_t{gridDim.x} * k_sum_threads)
    a.counters[j] = 0;
  const int chunks = (a.points.stride + k_sum_columns<T> - 1) / k_sum_columns<T>;
  const std::int64_t begin = (std::int64_t{blockIdx.x / static_cast<unsigned>(chunks)} * (k_sum_threads / 32) + arch::warp()) * k_sum_rows;
  if (begin < rows) sorted_sums<T, Words, Weighted, Injector>(given).run(begin, rows);
}

}  // namespace ballast::kmeans::cuda
