// One pass over the points: labels, and the sums of the points of each cluster. docs/design/kmeans-cuda.md has the derivations.
// Layer: backend "cuda" of K-Means, device code.
// Contract: labels[i] is the nearest of the given centroids, the lowest among equals: in f64 by arithmetic in f64; in f32 by f32
// coordinates and distances in double, whatever the tensor cores' rounding. A row whose checks fail is decided anew from other copies of
// its operands. Effects below section_limits on a score can pass its check; they decide nothing where two centroids are farther apart than
// that. Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, for checksums in a fused product; the exact labels, the fixed-point sums
// and the checks per row are ours.
//
// A warp owns 16 rows at a time. Four warps share products of a warpgroup and a queue of rows that need a second look; a block shares
// the chunks of a ring, and meets only to empty its sums.
#pragma once

#include "cuda/block/sums.cuh"
#include "kmeans/cuda/pass_rows.cuh"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass : pass_rows<T, P, Injector> {
  using base = pass_rows<T, P, Injector>;
  using base::a, base::counted, base::entries, base::g, base::given, base::pitch, base::shared, base::t, base::warp;
  using typename base::launch;
  static constexpr int k_rows = base::k_rows;
  static constexpr int k_rows_of_block = base::k_rows_of_block;
  static constexpr int k_threads = base::k_threads;
  static constexpr bool k_checks = base::k_checks;

  __device__ __forceinline__ explicit pass(const launch& from) : base(from) {}

  // ---- Sums in shared memory ----

  __device__ __forceinline__ void clear_sums() const {
    for (int e = static_cast<int>(threadIdx.x); e < 2 * P.words * entries(); e += k_threads) shared.limbs[e] = 0;
    for (int j = static_cast<int>(threadIdx.x); j <= a.centroids.shape.k; j += k_threads) shared.members[j] = 0;
  }
  __device__ __forceinline__ std::int64_t word(int e, int w) const {
    return word_of(static_cast<std::int32_t>(shared.limbs[2 * w * entries() + e]), shared.limbs[(2 * w + 1) * entries() + e]);
  }

  // This thread's part of quantity v.
  __device__ __forceinline__ unsigned long long part_of(int v) const {
    if (v < 4) return t % 2 == v % 2 ? counted.sum[v / 2] : 0;
    return t % 2 == 0 ? static_cast<unsigned long long>(std::int64_t{static_cast<std::int32_t>(counted.changed)}) : 0;
  }
  __device__ __forceinline__ void add_total(int v, unsigned long long total) const {
    if (total != 0) arch::add_global(a.totals->quantities + v, total);
  }

  // Whether the block's sums have the signature of the rows that were added to them, and their numbers. All threads get the answer;
  // `total`: for threads 3 + v, quantity v of the block. Called by all.
  __device__ __forceinline__ bool sums_fit(unsigned long long& total) const {
    unsigned long long parts[3 + k_quantities] = {};
    for (int e = static_cast<int>(threadIdx.x); e < a.centroids.shape.k * pitch(); e += k_threads) {
      const int j = e / pitch(), at = e % pitch();
      unsigned long long sum = 0;
      for (int w = 0; w < P.words; ++w) sum += arch::load_table(a.factors + w * pitch() + at) * static_cast<unsigned long long>(word(e, w));
      parts[0] += sum;
      parts[1] += static_cast<unsigned long long>(j) * sum;
    }
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads)
      parts[2] += shared.members[j] + (static_cast<unsigned long long>(j) * shared.members[j] << 32);
      // In the upper half of the members only the sum modulo 2^32 has a meaning.
#pragma unroll
    for (int v = 0; v < 3; ++v) parts[v] -= part_of(v);
#pragma unroll
    for (int v = 0; v < k_quantities; ++v) parts[3 + v] = part_of(v);
    total = ballast::cuda::add_block<k_threads>(parts, shared.block);
    return __syncthreads_or(threadIdx.x < 3 && total != 0) == 0;
  }

  // Adds the block's sums to those of all blocks, and clears them if there will be more.
  __device__ __forceinline__ void flush(bool more) const {
    for (int e = static_cast<int>(threadIdx.x); e < a.centroids.shape.k * pitch(); e += k_threads) {
      const int j = e / pitch(), at = e % pitch();
      for (int w = 0; w < P.words; ++w) {
        const std::int64_t value = word(e, w);
        if (value != 0)
          arch::add_global(a.sums + (static_cast<std::int64_t>(j) * P.words + w) * pitch() + at, static_cast<unsigned long long>(value));
      }
    }
    for (int j = static_cast<int>(threadIdx.x); j < a.centroids.shape.k; j += k_threads) {
      if (shared.members[j] != 0) arch::add_global(a.members + j, static_cast<unsigned long long>(shared.members[j]));
    }
    if (!more) return;
    __syncthreads();
    clear_sums();
    __syncthreads();
  }

  // Decides and adds the rows of the tiles [from, to) of this block again: the sums, or a label on its way to memory, may have been struck.
  // Returns this thread's part of its quantities over these rows, of the changes the difference that new labels make.
  __device__ __noinline__ static tally add_again(const launch& given, int from, int to) { return pass(given).add_interval(from, to); }
  __device__ __forceinline__ tally add_interval(int from, int to) const {
    clear_sums();
    __syncthreads();
    tally made{};
    for (int tile = from; tile < to; tile += static_cast<int>(gridDim.x)) {
      const int first = tile * k_rows_of_block + warp * k_rows;
#pragma unroll 1
      for (int begin = first; begin < min(first + k_rows, this->points()); begin += 8) {
        const int i[1] = {begin + g};
        nearest found;
#pragma unroll 1
        for (int r = 0; r < 8; ++r) {
          const auto search_all = [&] {
            return scan<base::k_looked_together>(this->row(begin + r), a.centroids.rows, this->stride(), a.centroids.shape.k,
                                                 all_columns(a.centroids.shape.k));
          };
          nearest other = search_all();
#pragma unroll 1
          for (int number = 0; number < a.repeats; ++number) {
            const nearest again = search_all();
            const bool same = again.index == other.index && again.distance == other.distance;
            other = again;
            if (__all_sync(0xffffffffu, same)) break;
          }
          if (g == r) found = other;
        }
        const bool there = i[0] < this->points();
        const int label[1] = {there ? found.index : a.centroids.shape.k};
        T distance[1];
        this->template add_rows<1, false>(i, label, distance);
        const T weight = this->weight_of(i[0]);
        const std::int32_t old = there ? a.labels[i[0]] : label[0];
        __syncwarp();  // all lanes of a row have read its old label
        if (!there || t >= 2) continue;
        const unsigned long long signature = this->signature_of(i[0]);
        const int before = this->label_before(i[0]);
        tally was{};
        this->count(old, signature, before, weight, was);
        this->count(label[0], signature, before, weight, made);
        if (t == 1) made.sum[1] -= was.sum[1];
        made.changed -= was.changed;
        if (t == 0) a.labels[i[0]] = label[0];
      }
    }
    __syncthreads();
    return made;
  }

  // Verifies the sums of the tiles [from, to), adds them and what was counted to those of all blocks, and empties them. Called by all
  // threads.
  __device__ __forceinline__ void close_interval(int from, int to, bool more) {
    __syncthreads();  // all rows have been added
    if constexpr (Injector::enabled) {
      const int thread = static_cast<int>(threadIdx.x), sums = min(entries(), k_threads), members = min(a.centroids.shape.k, k_threads);
      if (thread < sums)
        given.strike(index<1>{}, inject::site::kmeans_sum, {blockIdx.x, gridDim.x, 0, 1, thread, sums}, shared.limbs + thread);
      if (thread < members)
        given.strike(index<1>{}, inject::site::kmeans_count, {blockIdx.x, gridDim.x, 0, 1, thread, members}, shared.members + thread);
      __syncthreads();
    }
    if constexpr (k_checks) {
      unsigned long long total = 0;
      bool fits = sums_fit(total);
      if (!fits) {
        for (int number = 0; number < a.repeats && !fits; ++number) {
          const tally made = add_again(given, from, to);
          // What was counted for these rows may be what was wrong.
          counted.sum[0] = made.sum[0];
          counted.sum[1] = (t % 2 != 0 ? counted.sum[1] : 0) + made.sum[1];
          counted.changed += made.changed;
          fits = sums_fit(total);
        }
        if (threadIdx.x == 0) base::report(given, check::sums, a.points.first + std::int64_t{from} * k_rows_of_block, fits);
      }
      if (threadIdx.x >= 3 && threadIdx.x < 3 + k_quantities) add_total(static_cast<int>(threadIdx.x) - 3, total);
    } else {
      finish();
    }
    counted = {};
    flush(more);
  }

  // Before the kernel in front has ended: touches shared memory only.
  __device__ __forceinline__ void begin() const {
    if constexpr (P.sums == sum_memory::shared) clear_sums();
    if (warp < P.warps && threadIdx.x % (32 * k_team_warps) < k_counters) shared.waiting[threadIdx.x % (32 * k_team_warps)] = 0;
  }

  __device__ __forceinline__ void run() {
    const int tiles = (this->points() + k_rows_of_block - 1) / k_rows_of_block, blocks = static_cast<int>(gridDim.x);
    constexpr int most = k_flush_rows / k_rows_of_block;
    static_assert(most > 0);
    int tile = static_cast<int>(blockIdx.x);
    typename base::stage panel(a.centroids, shared.panel, shared.barriers, (tiles - tile + blocks - 1) / blocks);
    __syncthreads();  // sums, queues and panel are there
    if constexpr (has_loader(P)) {
      if (warp >= P.warps) {
        arch::give_registers<k_loader_registers>();
        if (threadIdx.x == k_threads) panel.load();
        return;
      }
      arch::take_registers<pass_registers(P)>();
    }
    int since = 0;  // tiles that have been added to the sums
    int unmet = 0;  // tiles since the team has met
    for (; tile < tiles; tile += blocks) {
      const int first = tile * k_rows_of_block + warp * k_rows;
      this->work(panel, first, tile, tiles);
      if (++unmet == queue_tiles(P)) {
        this->empty_queue(pass_queue_rows(P) - base::k_queued_rows);
        unmet = 0;
      }
      if constexpr (P.sums == sum_memory::shared) {
        if (++since == most && tile + blocks < tiles) {
          this->empty_queue(0);
          unmet = 0;
          close_interval(tile - (most - 1) * blocks, tile + 1, true);
          since = 0;
        }
      }
    }
    this->empty_queue(0);
    if constexpr (P.sums == sum_memory::shared) {
      if (since > 0) close_interval(tile - since * blocks, tiles, false);
    } else {
      finish();
    }
  }

  // Adds what the threads have counted to the totals.
  __device__ __forceinline__ void finish() const {
    unsigned long long sums[k_quantities];
#pragma unroll
    for (int v = 0; v < k_quantities; ++v) sums[v] = part_of(v);
    // The loader is not there any more.
    const auto meet = [] {
      if constexpr (has_loader(P)) {
        arch::group_barrier(1 + P.warps / k_team_warps, k_threads);
      } else {
        __syncthreads();
      }
    };
    meet();
    const unsigned long long total = ballast::cuda::add_block<k_threads>(sums, shared.block, meet);
    if (threadIdx.x < k_quantities) add_total(static_cast<int>(threadIdx.x), total);
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
