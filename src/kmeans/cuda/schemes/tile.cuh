// One tile of distances: products, their check, and the nearest centroid of each row. docs/design/kmeans-cuda.md, "The schemes of the
// paper".
// Layer: backend "cuda" of K-Means, device code.
// A block computes one tile of rows × columns; blocks with the same rows have consecutive indexes. Contract: see tile_finish; among equal
// distances the lowest index wins. A tile that is still wrong after `repeats` repetitions is committed and reported as uncorrectable.
#pragma once

#include "kmeans/cuda/schemes/tile_check.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, tile_policy P, class Injector>
struct tile_kernel_body {
  using product = tile_product<T, P, Injector>;
  using vector = typename product::vector;
  static constexpr int k_threads = product::k_threads;

  product self;
  const tile_arguments<T>& a;

  __device__ __forceinline__ explicit tile_kernel_body(const typename product::launch& from) : self(from), a(self.a) {}

  // Computes the products over all features, with asynchronous copies. Returns false if a check found a fault that it could not correct.
  __device__ __forceinline__ bool multiply(int number) {
    constexpr int ahead = P.stages - 1;
    warp_check<T, P, Injector> sums(self);
    bool right = true;
    self.clear();
#pragma unroll
    for (int s = 0; s < ahead; ++s) self.copy(s, self.stage(s));
#pragma unroll 1
    for (int chunk = 0; chunk < self.chunks; ++chunk) {
      arch::wait_async<ahead - 1>();
      __syncthreads();  // the chunk is stored, and the one before it has been read
      self.copy(chunk + ahead, self.stage((chunk + ahead) % P.stages));
      self.multiply(self.stage(chunk % P.stages), [&](const auto& x, const auto& c) {
        if constexpr (P.check != tile_check::none) sums.see(x, c);
      });
      if (!self.ends_interval(chunk)) continue;
      self.strike_products(chunk, number);
      if constexpr (P.check == tile_check::warp) right = sums.verify(chunk) && right;
      if constexpr (P.check == tile_check::detect) {
        if (chunk + 1 == self.chunks) right = sums.verify(chunk);
      }
    }
    arch::wait_async<0>();
    return right;
  }

  // The same, copied through registers, with the sums of the block's tile.
  __device__ __forceinline__ bool multiply_through_registers(int number) {
    block_check<T, P, Injector> sums(self, arch::shared_memory() + tile_shared_bytes_of_stages());
    features<T> held[product::k_held];
    bool right = true;
    self.clear();
    sums.clear();
    sums.measure();
    sums.load(0, held);
#pragma unroll 1
    for (int chunk = 0; chunk < self.chunks; ++chunk) {
      vector* const stage = self.stage(chunk % 2);
      sums.store(stage, held);
      __syncthreads();  // the stage is stored, and the sums of the chunk before have been read
      if (chunk + 1 < self.chunks) sums.load(chunk + 1, held);
      sums.encode();
      __syncthreads();  // the sums are stored
      sums.add(stage);
      self.multiply(stage, [](const auto&, const auto&) {});
      if (!self.ends_interval(chunk)) continue;
      self.strike_products(chunk, number);
      right = sums.verify(chunk) && right;
    }
    return right;
  }
  __device__ static constexpr std::int64_t tile_shared_bytes_of_stages() {
    tile_policy plain = P;
    plain.check = tile_check::none;
    return tile_shared_bytes<T>(plain);
  }

  __device__ __forceinline__ void compute() {
#pragma unroll 1
    for (int number = 0;; ++number) {
      bool right = true;
      if constexpr (P.check == tile_check::threadblock) {
        right = multiply_through_registers(number);
      } else {
        right = multiply(number);
      }
      const bool wrong = __syncthreads_or(right ? 0 : 1) != 0;
      if constexpr (P.check == tile_check::none) break;
      if (threadIdx.x == 0 && (wrong ? number >= a.repeats : number > 0))
        product::report(self.given, wrong ? abft::outcome::uncorrectable : abft::outcome::recomputed, 0, 0, self.first_row, check::row);
      if (!wrong || number >= a.repeats) break;
    }
  }

  __device__ static __forceinline__ tile_minimum<T> nearer(const tile_minimum<T>& x, const tile_minimum<T>& y) {
    return y.value < x.value || (y.value == x.value && y.centroid < x.centroid) ? y : x;
  }
  __device__ __forceinline__ inject::device_position here() const {
    return {blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), k_threads};
  }

  // Clamps an index that may be corrupted: it is used as an address later.
  __device__ __forceinline__ std::int32_t in_range(std::uint32_t centroid) const {
    return static_cast<std::int32_t>(min(centroid, static_cast<std::uint32_t>(a.k - 1)));
  }

  __device__ __forceinline__ void store_distances() const {
#pragma unroll
    for (int i = 0; i < product::k_down; ++i)
#pragma unroll
      for (int j = 0; j < product::k_across; ++j)
#pragma unroll
        for (int s = 0; s < product::k_scores; ++s) {
          const std::int64_t point = self.first_row + self.row_of(i, s);
          const int centroid = self.first_column + self.column_of(j, s);
          if (point < a.points.m && centroid < a.k)
            a.distances[point * a.k + centroid] = fma(T(-2), self.sums[i][j][s], a.points.norm[point] + a.norms[centroid]);
        }
  }

  // Finds the nearest centroid of the tile, first per thread, then per warp and per block; calls use(point, nearest) in one thread per row.
  template <class Use>
  __device__ __forceinline__ void search(Use&& use) const {
    auto* const minima = reinterpret_cast<tile_minimum<T>*>(arch::shared_memory());
#pragma unroll
    for (int i = 0; i < product::k_down; ++i)
#pragma unroll
      for (int h = 0; h < product::k_halves; ++h) {
        tile_minimum<T> own{std::numeric_limits<T>::infinity(), self.first_column + self.column_of(0, 0)};
        if (own.centroid >= a.k) own.centroid = self.first_column;
#pragma unroll
        for (int j = 0; j < product::k_across; ++j)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int centroid = self.first_column + self.column_of(j, c);
            if (centroid < a.k) own = nearer(own, {fma(T(-2), self.sums[i][j][2 * h + c], a.norms[centroid]), centroid});
          }
        for (int distance = 1; distance <= 2; distance *= 2) {
          const T value = __shfl_xor_sync(0xffffffffu, own.value, distance);
          own = nearer(own, {value, __shfl_xor_sync(0xffffffffu, own.centroid, distance)});
        }
        if (self.t == 0) minima[self.warp % product::k_warps_across * P.rows + self.row_of(i, 2 * h)] = own;
      }
    __syncthreads();  // the minima of the warps are stored
    for (int r = static_cast<int>(threadIdx.x); r < P.rows; r += k_threads) {
      if (self.first_row + r >= a.points.m) break;
      tile_minimum<T> all = minima[r];
      for (int w = 1; w < product::k_warps_across; ++w) all = nearer(all, minima[w * P.rows + r]);
      self.given.strike(index<1>{}, site::minimum, here(), &all.value);
      auto centroid = static_cast<std::uint32_t>(all.centroid);
      self.given.strike(index<1>{}, site::index, here(), &centroid);
      all.centroid = in_range(centroid);
      use(self.first_row + r, all);
    }
  }

  // Updates the nearest centroid so far, under the lock of the row.
  __device__ __forceinline__ void update_label(std::int64_t point, const tile_minimum<T>& nearest) const {
    std::uint32_t* const lock = a.locks + point;
    volatile T* const best = a.best + point;
    volatile std::int32_t* const label = a.labels + point;
    for (bool done = false; !done;) {
      const std::uint32_t seen = arch::load_acquire(lock);
      if (seen == 1 || atomicCAS(lock, seen, 1u) != seen) continue;
      arch::fence_gpu();
      const bool first = seen == 0;
      if (first || nearest.value < *best || (nearest.value == *best && nearest.centroid < *label)) {
        *best = nearest.value;
        auto stored = static_cast<std::uint32_t>(nearest.centroid);
        self.given.strike(index<1>{}, site::label, here(), &stored);
        *label = in_range(stored);
      }
      arch::fence_gpu();
      arch::store_release(lock, 2u);
      done = true;
    }
  }

  __device__ __forceinline__ void run() {
    compute();
    if constexpr (P.finish == tile_finish::distances) {
      store_distances();
    } else if constexpr (P.finish == tile_finish::minima) {
      const int across = self.tiles_across(), tile = self.first_column / P.columns;
      search([&](std::int64_t point, const tile_minimum<T>& nearest) { a.minima[point * across + tile] = nearest; });
    } else {
      search([&](std::int64_t point, const tile_minimum<T>& nearest) { update_label(point, nearest); });
    }
  }
};

template <class T, tile_policy P, class Injector>
__global__ void __launch_bounds__(P.threads(), P.blocks)
    tile_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tile_arguments<T>, Injector> given) {
  if (given.arguments.state != nullptr && given.arguments.state->reason != 0) return;
  tile_kernel_body<T, P, Injector>(given).run();
}

}  // namespace ballast::kmeans::cuda
