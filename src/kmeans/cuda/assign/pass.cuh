// One pass over the points: computes labels, and the sums of the points of each cluster. docs/design/kmeans-cuda.md has the derivations.
// Layer: backend "cuda" of K-Means, device code.
// Contract: labels[i] is the nearest of the given centroids, the lowest index among equals: in f64 by f64 arithmetic; in f32 by distances
// in double between f32 coordinates, independent of the tensor cores' rounding. A row whose checks fail is decided again from other copies
// of its operands. A fault that changes a score by less than section_limits can pass its check; it cannot change a label if two centroids
// differ by more than that.
// Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, for checksums in a fused product; the exact labels, the fixed-point sums and
// the checks per row are ours.
//
// A warp owns 16 rows at a time. A team (four warps that share the products of a warpgroup, or a single warp) has a queue of rows that need
// an exact recheck. A block shares the chunks of a ring; otherwise its warps meet only to add up their sums.
#pragma once

#include "cuda/block/sums.cuh"
#include "kmeans/cuda/assign/assign_epilogue.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass : pass_rows<T, P, Injector> {
  using base = pass_rows<T, P, Injector>;
  using base::a, base::tallied, base::entries, base::given, base::pitch, base::shared, base::t, base::warp;
  using base::k_team_warps;
  using typename base::launch;
  static constexpr int k_rows = base::k_rows;
  static constexpr int k_rows_of_block = pass_rows_of_block(P);
  static constexpr int k_tile_rows = pass_rows_of_tile(P);
  static constexpr int k_threads = base::k_threads;
  static constexpr bool k_checks = base::k_checks;

  __device__ __forceinline__ explicit pass(const launch& from) : base(from) {}

  // ---- Sums in shared memory ----

  __device__ __forceinline__ void clear_sums() const {
    for (int e = static_cast<int>(threadIdx.x); e < 2 * P.words * entries(); e += k_threads) shared.limbs[e] = 0;
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads) shared.members[j] = 0;
  }

  // Adds the block's sums to those of all blocks, and clears them if `more` will follow.
  __device__ __forceinline__ void flush(bool more) const {
    __syncthreads();  // all rows have been added
    if constexpr (Injector::enabled) {
      const int thread = static_cast<int>(threadIdx.x), sums = min(entries(), k_threads), members = min(a.centroids.shape.k, k_threads);
      if (thread < sums) given.strike(index<1>{}, site::sum, {blockIdx.x, gridDim.x, 0, 1, thread, sums}, shared.limbs + thread);
      if (thread < members) given.strike(index<1>{}, site::count, {blockIdx.x, gridDim.x, 0, 1, thread, members}, shared.members + thread);
      __syncthreads();
    }
    for (int e = static_cast<int>(threadIdx.x); e < entries(); e += k_threads) {
      const int j = e / pitch(), at = e % pitch();
      for (int w = 0; w < P.words; ++w) {
        const std::int64_t value =
            word_of(static_cast<std::int32_t>(shared.limbs[2 * w * entries() + e]), shared.limbs[(2 * w + 1) * entries() + e]);
        if (value != 0)
          arch::add_global(a.sums + (static_cast<std::int64_t>(j) * P.words + w) * pitch() + at, static_cast<unsigned long long>(value));
      }
    }
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads) {
      const auto value = std::int64_t{static_cast<std::int32_t>(shared.members[j])};
      if (value != 0) arch::add_global(a.members + j, static_cast<unsigned long long>(value));
    }
    if (!more) return;
    __syncthreads();
    clear_sums();
    __syncthreads();
  }

  // ---- The block ----

  // Runs before the previous kernel has ended, so it touches shared memory only.
  __device__ __forceinline__ void begin() const {
    if constexpr (P.sums == sum_memory::shared) clear_sums();
    if (warp >= P.warps) return;
    if (threadIdx.x % (32 * k_team_warps) < k_counters) shared.waiting[threadIdx.x % (32 * k_team_warps)] = 0;
    if constexpr (empties_together(P)) {
      if (threadIdx.x == 0) *shared.together = -1;
    }
    if constexpr (base::k_counts) {
      if (this->lane == 0) *shared.changed = 0;
    }
  }

  __device__ __forceinline__ void run() {
    typename base::stage centroids(a.centroids, shared.centroids, shared.barriers, sweeps());
    __syncthreads();  // sums, queues and packed centroids are initialized
    if constexpr (has_loader(P)) {
      if (warp >= P.warps) {
        arch::give_registers<k_loader_registers>();
        if (threadIdx.x == k_threads) {
          const int blocks = static_cast<int>(gridDim.x);
          centroids.load(static_cast<int>(blockIdx.x), tiles(), a.points,
                         [&](int tile) { return a.draws ? blocks + draw(true) : tile + blocks; });
        }
        return;
      }
      arch::take_registers<pass_registers(P)>();
    }
    if constexpr (base::stage::k_ring) {
      work_by_ring(centroids);
    } else {
      work_by_team(centroids);
    }
    this->meet(0);
    if constexpr (base::k_counts) base::move_changes(given, 1);
    finish();
    if constexpr (P.sums == sum_memory::shared) flush(false);
  }

  __device__ __forceinline__ int tiles() const { return (this->points() + k_tile_rows - 1) / k_tile_rows; }
  // Returns how often a block reads all packed centroids, if its tiles are strided by the number of blocks.
  __device__ __forceinline__ int sweeps() const {
    const int blocks = static_cast<int>(gridDim.x);
    return (tiles() - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  }
  __device__ __forceinline__ int draw(bool does) const { return static_cast<int>(arch::draw_global(&a.totals->drawn, does)); }

  // Tiles of a team between two flushes, so that limbs do not overflow: rows that wait in a queue may be added after the next flush.
  static constexpr int k_most = (k_flush_rows - P.warps * (pass_queue_rows(P) / k_team_warps + most_changes(P))) / k_rows_of_block;
  static_assert(k_most > queue_tiles(P));

  // Processes the tiles of the block with all its warps, which read the packed centroids through the ring in the same order.
  __device__ __forceinline__ void work_by_ring(typename base::stage& centroids) {
    const int blocks = static_cast<int>(gridDim.x), tiles = this->tiles();
    [[maybe_unused]] int since = 0;  // tiles added to the sums since the last flush
    int unmet = 0;                   // tiles since the last meeting of the team
    const auto rows_of = [&](int of) { return of * k_tile_rows + warp * k_rows; };
    int tile = static_cast<int>(blockIdx.x);
    typename base::rows_ahead ahead;
    if constexpr (base::k_prefetches) this->load_ahead(rows_of(tile), ahead);
    for (int next = 0; tile < tiles; tile = next) {
      if constexpr (has_loader(P)) {
        next = centroids.next_tile();
      } else {
        next = tile + blocks;
      }
      // After the last tile its own rows are loaded once more; any valid rows would do.
      this->work(centroids, rows_of(tile), rows_of(next < tiles ? next : tile), tile, tiles, ahead);
      if (++unmet == queue_tiles(P)) {
        this->meet(kept_rows(P));
        unmet = 0;
      }
      if constexpr (P.sums == sum_memory::shared) {
        if (++since == k_most && next < tiles) {
          flush(true);
          since = 0;
        }
      }
    }
  }

  // Processes the tiles of a team in turns; a turn is the tiles between two meetings. Turns are strided by the number of teams. With
  // a.draws the last ones are drawn from a counter instead, which balances unequal work. A team must know its next turn when it begins one,
  // because it prefetches the rows of that turn. So its first thread draws the turn after the next one, and announces it at the meeting.
  __device__ __forceinline__ void work_by_team(typename base::stage& centroids) {
    constexpr int together = queue_tiles(P), teams = pass_teams(P);
    const int tiles = this->tiles(), turns = (tiles + together - 1) / together, all = static_cast<int>(gridDim.x) * teams;
    const bool first = threadIdx.x % (32 * k_team_warps) == 0;
    volatile int* const drawn = centroids.drawn + 2 * this->team();
    const auto rows_of = [&](int of) { return of * k_tile_rows + warp % k_team_warps * k_rows; };
    int turn = static_cast<int>(blockIdx.x) * teams + this->team(), next = turn + all, half = 0;
    int apart = max(turns / all * 3 / 4 - 2, 0);  // further turns of this team, after these two, that are not drawn
    const int drawn_from = (2 + apart) * all;
    typename base::rows_ahead ahead;
    if constexpr (base::k_prefetches) this->load_ahead(rows_of(turn < turns ? turn * together : 0), ahead);
    for (;;) {
#pragma unroll 1
      for (int since = 0; turn < turns && (P.sums != sum_memory::shared || since + together <= k_most); since += together) {
        const bool draws = a.draws && --apart < 0;
        const int number = draw(draws && first);  // the team waits for the number after the tiles
#pragma unroll 1
        for (int i = 0; i < together; ++i) {
          const int tile = turn * together + i, then = i + 1 < together ? tile + 1 : next * together;
          if (tile >= tiles) break;  // the last turn may be incomplete
          // After the last tile its own rows are loaded once more; any valid rows would do.
          this->work(centroids, rows_of(tile), rows_of(then < tiles ? then : tile), tile, tiles, ahead);
        }
        const int behind = draws ? drawn_from + number : next + all;
        if (k_team_warps > 1 && first) drawn[half] = behind;
        this->meet(kept_rows(P));
        turn = next;
        if constexpr (k_team_warps > 1) {
          next = drawn[half];
          half ^= 1;
        } else {
          next = __shfl_sync(0xffffffffu, behind, 0);
        }
      }
      if constexpr (P.sums != sum_memory::shared) {
        return;
      } else {
        if (__syncthreads_or(turn < turns ? 1 : 0) == 0) return;
        flush(true);
      }
    }
  }

  // Returns this thread's part of quantity v.
  __device__ __forceinline__ unsigned long long part_of(int v) const {
    if (v < 4) return t % 2 == v % 2 ? tallied.sum[v / 2] : 0;
    return t % 2 == 0 ? static_cast<unsigned long long>(std::int64_t{static_cast<std::int32_t>(tallied.changed)}) : 0;
  }
  // Adds the quantities of the threads to the totals.
  __device__ __forceinline__ void finish() const {
    // The loader has already returned.
    const auto meet = [] {
      if constexpr (has_loader(P)) {
        arch::group_barrier(1 + pass_teams(P), k_threads);
      } else {
        __syncthreads();
      }
    };
    unsigned long long sums[k_quantities];
#pragma unroll
    for (int v = 0; v < k_quantities; ++v) sums[v] = part_of(v);
    ballast::cuda::add_lanes_in_loop(sums);
    if (this->lane == 0) {
#pragma unroll
      for (int v = 0; v < k_quantities; ++v) shared.block[warp * k_quantities + v] = sums[v];
    }
    meet();
    if (threadIdx.x >= k_quantities) return;
    unsigned long long total = 0;
#pragma unroll 4
    for (int w = 0; w < P.warps; ++w) total += shared.block[w * k_quantities + static_cast<int>(threadIdx.x)];
    if (total != 0) arch::add_global(a.totals->quantities + threadIdx.x, total);
  }
};

template <class T, pass_policy P, class Injector>
__global__ void __launch_bounds__(pass_threads(P), P.blocks)
    pass_kernel(const __grid_constant__ ballast::cuda::kernel_launch<pass_arguments<T>, Injector> given) {
  pass<T, P, Injector> all(given);
  all.begin();
  // In this order: the next kernel may start now, and the kernel after it only when this one has ended. So data that a kernel reads as
  // constant cannot be written while it runs, except by its direct predecessor.
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  if (given.arguments.state != nullptr && given.arguments.state->reason != 0) return;
  all.run();
}

}  // namespace ballast::kmeans::cuda
