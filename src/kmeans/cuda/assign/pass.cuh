// One pass over the points: labels, and the sums of the points of each cluster. docs/design/kmeans-cuda.md has the derivations.
// Layer: backend "cuda" of K-Means, device code.
// Contract: labels[i] is the nearest of the given centroids, the lowest among equals: in f64 by arithmetic in f64; in f32 by f32
// coordinates and distances in double, whatever the tensor cores' rounding. A row whose checks fail is decided anew from other copies of
// its operands. Effects below section_limits on a score can pass its check; they decide nothing where two centroids are farther apart than
// that. Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, for checksums in a fused product; the exact labels, the fixed-point sums
// and the checks per row are ours.
//
// A warp owns 16 rows at a time. A team, four warps that share products of a warpgroup or one warp by itself, has a queue of rows that need
// a second look; a block shares the chunks of a ring, and meets only to hand its sums over.
#pragma once

#include "cuda/block/sums.cuh"
#include "kmeans/cuda/assign/assign_epilogue.cuh"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass : pass_rows<T, P, Injector> {
  using base = pass_rows<T, P, Injector>;
  using base::a, base::counted, base::entries, base::given, base::pitch, base::shared, base::t, base::warp;
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

  // Adds the block's sums to those of all blocks, and clears them if there will be more.
  __device__ __forceinline__ void flush(bool more) const {
    __syncthreads();  // all rows have been added
    if constexpr (Injector::enabled) {
      const int thread = static_cast<int>(threadIdx.x), sums = min(entries(), k_threads), members = min(a.centroids.shape.k, k_threads);
      if (thread < sums)
        given.strike(index<1>{}, inject::site::kmeans_sum, {blockIdx.x, gridDim.x, 0, 1, thread, sums}, shared.limbs + thread);
      if (thread < members)
        given.strike(index<1>{}, inject::site::kmeans_count, {blockIdx.x, gridDim.x, 0, 1, thread, members}, shared.members + thread);
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

  // Before the kernel in front has ended: touches shared memory only.
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
    typename base::stage panel(a.centroids, shared.panel, shared.barriers, sweeps());
    __syncthreads();  // sums, queues and panel are there
    if constexpr (has_loader(P)) {
      if (warp >= P.warps) {
        arch::give_registers<k_loader_registers>();
        if (threadIdx.x == k_threads) {
          const int blocks = static_cast<int>(gridDim.x);
          panel.load(static_cast<int>(blockIdx.x), tiles(), a.points,
                     [&](int tile) { return a.draws ? blocks + draw(true) : tile + blocks; });
        }
        return;
      }
      arch::take_registers<pass_registers(P)>();
    }
    if constexpr (base::stage::k_ring) {
      work_by_ring(panel);
    } else {
      work_by_team(panel);
    }
    this->meet(0);
    if constexpr (base::k_counts) base::move_changes(given, 1);
    finish();
    if constexpr (P.sums == sum_memory::shared) flush(false);
  }

  __device__ __forceinline__ int tiles() const { return (this->points() + k_tile_rows - 1) / k_tile_rows; }
  // How often a block reads the whole panel, where its tiles are as far apart as there are blocks.
  __device__ __forceinline__ int sweeps() const {
    const int blocks = static_cast<int>(gridDim.x);
    return (tiles() - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  }
  __device__ __forceinline__ int draw(bool does) const { return static_cast<int>(arch::draw_global(&a.totals->drawn, does)); }

  // Tiles of a team between two flushes, so that limbs do not overflow: rows that wait in a queue may be added behind the next one.
  static constexpr int k_most = (k_flush_rows - P.warps * (pass_queue_rows(P) / k_team_warps + most_changes(P))) / k_rows_of_block;
  static_assert(k_most > queue_tiles(P));

  // Tiles of all warps of the block together, which read the panel through the ring alike.
  __device__ __forceinline__ void work_by_ring(typename base::stage& panel) {
    const int blocks = static_cast<int>(gridDim.x), tiles = this->tiles();
    [[maybe_unused]] int since = 0;  // tiles that have been added to the sums
    int unmet = 0;                   // tiles since the team has met
    const auto rows_of = [&](int of) { return of * k_tile_rows + warp * k_rows; };
    int tile = static_cast<int>(blockIdx.x);
    typename base::rows_ahead ahead;
    if constexpr (base::k_prefetches) this->load_ahead(rows_of(tile), ahead);
    for (int next = 0; tile < tiles; tile = next) {
      if constexpr (has_loader(P)) {
        next = panel.next_tile();
      } else {
        next = tile + blocks;
      }
      // Behind the last tile its own rows are loaded once more, as any others that are there.
      this->work(panel, rows_of(tile), rows_of(next < tiles ? next : tile), tile, tiles, ahead);
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

  // Tiles of a team, in turns of those between two meetings. Turns are as far apart as there are teams, and where they are drawn, the last
  // ones, which make up for what some teams had more to do. A team knows its next turn when it begins with one, for it asks for its rows
  // meanwhile; so its first thread draws the turn behind that, and says at the meeting which it is.
  __device__ __forceinline__ void work_by_team(typename base::stage& panel) {
    constexpr int together = queue_tiles(P), teams = pass_teams(P);
    const int tiles = this->tiles(), turns = (tiles + together - 1) / together, all = static_cast<int>(gridDim.x) * teams;
    const bool first = threadIdx.x % (32 * k_team_warps) == 0;
    volatile int* const drawn = panel.drawn + 2 * this->team();
    const auto rows_of = [&](int of) { return of * k_tile_rows + warp % k_team_warps * k_rows; };
    int turn = static_cast<int>(blockIdx.x) * teams + this->team(), next = turn + all, place = 0;
    int apart = max(turns / all * 3 / 4 - 2, 0);  // turns of this team, behind these two, that are not drawn
    const int drawn_from = (2 + apart) * all;
    typename base::rows_ahead ahead;
    if constexpr (base::k_prefetches) this->load_ahead(rows_of(turn < turns ? turn * together : 0), ahead);
    for (;;) {
#pragma unroll 1
      for (int since = 0; turn < turns && (P.sums != sum_memory::shared || since + together <= k_most); since += together) {
        const bool draws = a.draws && --apart < 0;
        const int number = draw(draws && first);  // waited for behind the tiles
#pragma unroll 1
        for (int i = 0; i < together; ++i) {
          const int tile = turn * together + i, then = i + 1 < together ? tile + 1 : next * together;
          if (tile >= tiles) break;  // of the last turn
          // Behind the last tile its own rows are loaded once more, as any others that are there.
          this->work(panel, rows_of(tile), rows_of(then < tiles ? then : tile), tile, tiles, ahead);
        }
        const int behind = draws ? drawn_from + number : next + all;
        if (k_team_warps > 1 && first) drawn[place] = behind;
        this->meet(kept_rows(P));
        turn = next;
        if constexpr (k_team_warps > 1) {
          next = drawn[place];
          place ^= 1;
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

  // This thread's part of quantity v.
  __device__ __forceinline__ unsigned long long part_of(int v) const {
    if (v < 4) return t % 2 == v % 2 ? counted.sum[v / 2] : 0;
    return t % 2 == 0 ? static_cast<unsigned long long>(std::int64_t{static_cast<std::int32_t>(counted.changed)}) : 0;
  }
  // Adds what the threads have counted to the totals.
  __device__ __forceinline__ void finish() const {
    // The loader is not there any more.
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
  // In this order: the next kernel may start now, and the one behind it only when this one has ended. So no kernel is there while what it
  // reads as constant is written, but by the one just in front of it.
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  if (given.arguments.state != nullptr && given.arguments.state->reason != 0) return;
  all.run();
}

}  // namespace ballast::kmeans::cuda
