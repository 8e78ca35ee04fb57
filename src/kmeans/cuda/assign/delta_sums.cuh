// Adds rows with a new label to the sums of their clusters.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md.
// The sums are those of the previous pass: only rows with another label are added, and subtracted from their old cluster. With integers
// this gives the same bits as summing all rows. The four lanes of a row each add every fourth vector of its features.
#pragma once

#include <type_traits>

#include "cuda/arch/atomic.cuh"
#include "kmeans/cuda/assign/pass_memory.cuh"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass_moves : pass_memory<T, P, Injector> {
  using memory_of_pass = pass_memory<T, P, Injector>;
  using scores = typename memory_of_pass::scores;
  using memory_of_pass::shared, memory_of_pass::k_counts, memory_of_pass::pitch, memory_of_pass::entries, memory_of_pass::existing_row,
      memory_of_pass::is_cluster;
  using scores::a, scores::g, scores::given, scores::lane, scores::t;
  using typename scores::launch;
  static constexpr int k_slices_together = P.slices > 0 ? 4 : 8;  // k-slices of a row, when it is read again

  __device__ __forceinline__ explicit pass_moves(const launch& from) : memory_of_pass(from) {}

  __device__ __forceinline__ T weight_of(int i) const {
    if constexpr (P.weighted) return arch::load_table(a.points.weight + i);
    return T(1);
  }

  // Returns the start of this lane's sums of cluster j: its first number of a k-slice has offset 0, the next one 4.
  using sum_word = std::conditional_t<P.sums == sum_memory::shared, std::uint32_t, unsigned long long>;
  __device__ __forceinline__ sum_word* sums_of(int j) const {
    if constexpr (P.sums == sum_memory::shared) return shared.limbs + (j * pitch() + t);
    if constexpr (P.sums == sum_memory::global) return a.sums + (static_cast<std::int64_t>(j) * (P.words * pitch()) + t);
    return nullptr;
  }

  // A row that moves from one cluster to another.
  struct move {
    bool leaves, arrives;
    sum_word *from, *to;
    int tile, tiles;  // the tile of the row, for the injector
  };
  // Adds a number to the sums of one cluster and subtracts it from those of another. Subtraction adds the negated words, so lower limbs are
  // never negative.
  __device__ __forceinline__ void add(const move& of, int offset, T value, T rest, T unit) const {
    std::int32_t word[P.words];
    if constexpr (P.weighted) {
      split<P.words>(value, rest, unit, word);
    } else {
      split<P.words>(value, unit, word);
    }
    if constexpr (Injector::enabled && P.sums == sum_memory::global)
      given.strike(index<1>{}, site::sum, this->here(of.tile, of.tiles, offset / 4, pitch() / 4), reinterpret_cast<std::uint32_t*>(word));
    const auto add_word = [&](sum_word* to, int w, std::int32_t each) {
      if constexpr (P.sums == sum_memory::shared) {
        atomicAdd(to + 2 * w * entries() + offset, static_cast<std::uint32_t>(upper_limb(each)));
        atomicAdd(to + (2 * w + 1) * entries() + offset, lower_limb(each));
      } else {
        arch::add_global(to + w * pitch() + offset, static_cast<unsigned long long>(std::int64_t{each}));
      }
    };
#pragma unroll
    for (int w = 0; w < P.words; ++w) {
      if (of.arrives) add_word(of.to, w, word[w]);
      if (of.leaves) add_word(of.from, w, static_cast<std::int32_t>(0 - static_cast<std::uint32_t>(word[w])));
    }
  }
  // Counts a point, or subtracts it from the count. Called by one lane of its row. Points of weight 0 are not counted.
  __device__ __forceinline__ void add_member(const move& of, int j, bool arrives) const {
    if constexpr (P.sums == sum_memory::shared) {
      atomicAdd(shared.members + j, arrives ? 1u : ~0u);
    } else if constexpr (P.sums == sum_memory::global) {
      std::uint64_t one = arrives ? 1ull : ~0ull;
      given.strike(index<1>{}, site::count,
                   {of.tile, of.tiles, 0, 1, static_cast<int>(threadIdx.x) % scores::k_tile_threads / 4, scores::k_tile_threads / 4}, &one);
      arch::add_global(a.members + j, one);
    }
  }

  // Moves rows to their clusters: four lanes move each row, by their own loads.
  __device__ __forceinline__ void move_rows(const changed_row& each) const {
    const int row = existing_row(each.row), stride = this->stride();
    constexpr int rows = pass_rows_of_tile(P);
    const bool leaves = is_cluster(each.from), arrives = is_cluster(each.to);
    const move made{
        leaves, arrives, sums_of(leaves ? each.from : 0), sums_of(arrives ? each.to : 0), row / rows, (this->points() - 1) / rows + 1};
    const T weight = weight_of(row);
    const T *const x = this->row(row) + t * k_vector<T>, *const units = a.points.unit + t * k_vector<T>;
#pragma unroll k_slices_together
    for (int s = 0; s < a.centroids.shape.slices; ++s) {
      const int f = s * k_slice<T>;
      const features<T> value = load_features(x + f), unit = load_features(units + f);
      if (f + t * k_vector<T> >= a.points.n) continue;
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        const int offset = f + v * 4;
        if constexpr (P.weighted) {
          const T product = rounded_product(weight, value.at[v]);
          add(made, offset, product, product_rest(weight, value.at[v], product), unit.at[v]);
        } else {
          add(made, offset, value.at[v], T(0), unit.at[v]);
        }
      }
    }
    if (t != 0 || !(weight > 0)) return;
    if (arrives) add_member(made, each.to, true);
    if (leaves) add_member(made, each.from, false);
    if constexpr (P.weighted) add(made, stride, weight, T(0), a.points.unit[a.points.n]);
  }

  // Returns the number of waiting rows; at most `most`, even if memory was corrupted.
  __device__ __forceinline__ int changes_that_wait(int most) const {
    return static_cast<int>(min(static_cast<unsigned>(*static_cast<const volatile int*>(shared.changed)), static_cast<unsigned>(most)));
  }
  // Moves the changed rows of this warp, eight at a time, until fewer than `least` (at most eight) wait. Called by the whole warp.
  __device__ __noinline__ static void move_changes(const launch& given, int least) { pass_moves(given).move_waiting(least); }
  __device__ __forceinline__ void move_waiting(int least) const {
    const int k = a.centroids.shape.k, count = changes_that_wait(most_changes(P));
    int begin = 0;
#pragma unroll 1
    for (; count - begin >= least; begin += k_changes_together) {
      const bool there = begin + g < count;
      changed_row each = shared.changes[there ? begin + g : begin];
      if (!there) each.from = each.to = k;
      move_rows(each);
    }
    const int left = max(count - begin, 0);
    // Fewer than k_changes_together are left, so a lane has at most one.
    const changed_row rest = shared.changes[lane < left ? begin + lane : 0];
    __syncwarp();
    if (lane < left) shared.changes[lane] = rest;
    if (lane == 0) *shared.changed = left;
    __syncwarp();
  }
  // Queues the rows whose label differs from that of the previous pass, one per lane that `stores` its label, to be moved to their
  // clusters. Called by the whole warp.
  __device__ __forceinline__ void change(bool stores, int row, int before, int label) const {
    if constexpr (!k_counts) return;
    const bool changes = stores && (a.fresh || before != label);
    const unsigned all = __ballot_sync(0xffffffffu, changes);
    if (all == 0) return;
    const int k = a.centroids.shape.k, begin = changes_that_wait(most_changes(P) - k_pass_rows), count = begin + __popc(all);
    __syncwarp();  // all lanes have read the count
    // A label that was corrupted in memory must not index beyond the sums; the signature of its row reveals it.
    const int from = !a.fresh && is_cluster(before) ? before : k;
    if (changes) shared.changes[begin + __popc(all & ((1u << lane) - 1))] = {row, from, label};
    if (lane == 0) *shared.changed = count;
    __syncwarp();
    if (count + k_pass_rows > most_changes(P)) move_changes(given, k_changes_together);  // no room for the rows of another tile
  }
};

}  // namespace ballast::kmeans::cuda
