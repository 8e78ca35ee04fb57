// Memory that the warps of a pass share: shared memory, the queue of rows that need an exact recheck, and the meetings of a team.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md.
#pragma once

#include <type_traits>

#include "abft/seal.hpp"
#include "kmeans/cuda/assign/assign_mainloop.cuh"
#include "kmeans/cuda/layout/nearest.cuh"

namespace ballast::kmeans::cuda {

// A row whose label needs more than the scores of the tensor cores. It waits in shared memory until its team has enough of them or ends;
// then the warps of the team share the work. Until then its label is k, which is no cluster. Each lane of the row stores the columns that
// it lists. Two lanes compute the rest of the entry independently; one stores it, with the seal of the other.
template <class Index, int Listed>
struct postponed {
  double most;  // upper bound of the candidates' distances
  std::int32_t row;
  std::uint32_t what;
  std::uint32_t seal;
  Index listed[Listed];  // the columns that the four lanes of the row list: the newest of each lane, then older ones
};
// The seal of an entry is a sum over its parts (abft::short_term). This is the sum of all parts except the columns; column number l has
// position l.
__device__ __forceinline__ std::uint32_t head_seal(double most, std::int32_t row, std::uint32_t what) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(most));
  return abft::short_term(what, 60) + abft::short_term(static_cast<std::uint32_t>(row), 61) +
         abft::short_term(static_cast<std::uint32_t>(bits), 62) + abft::short_term(static_cast<std::uint32_t>(bits >> 32), 63);
}
template <class Index, int Listed>
__device__ __forceinline__ std::uint32_t seal_of(const postponed<Index, Listed>& of) {
  std::uint32_t made = head_seal(of.most, of.row, of.what);
#pragma unroll
  for (int l = 0; l < Listed; ++l) made += abft::short_term(static_cast<std::uint32_t>(of.listed[l]), l);
  return made;
}
// Flags above the number of rows in a counter. k_together: all teams empty their queues (set by one thread). k_moves: this team moves its
// changed rows (set by up to four warps).
inline constexpr std::uint32_t k_together = 1u << 16, k_moves = 1u << 24;
// Fields of postponed::what.
inline constexpr std::uint32_t k_candidates = (1u << 4 * k_most_named) - 1;  // mask: the listed columns that are in use
inline constexpr std::uint32_t k_failed = 1u << 12;                          // a check failed: all centroids are compared
inline constexpr int k_check_shift = 13;                                     // position of the check that failed
inline constexpr std::uint32_t k_check_mask = 15;
inline constexpr int k_lanes_shift = 20;  // position of the lanes whose columns are all compared
static_assert(k_candidates < k_failed);

template <class T, pass_policy P, class Injector>
struct pass_memory : pass_scores<T, P, Injector> {
  using scores = pass_scores<T, P, Injector>;
  using scores::a, scores::warp;
  using typename scores::launch;
  static_assert(P.warps % team_warps(P) == 0 && P.warps <= k_most_warps);
  static constexpr int k_team_warps = team_warps(P);
  using scores::k_counts;
  using listed_index = std::conditional_t<P.centroids == centroid_memory::shared, std::uint16_t, std::int32_t>;
  static constexpr int k_named = scores::k_named, k_listed = 4 * k_named;
  using postponed = cuda::postponed<listed_index, k_listed>;
  static_assert(sizeof(postponed) == postponed_bytes(P));

  // Shared memory, in the order of pass_shared_bytes.
  struct memory {
    unsigned char* centroids;
    unsigned long long* block;  // k_block_words
    unsigned char* barriers;
    postponed* queue;        // per team
    scanned_part* scans;     // per team: first and second time × k_shared_scans × parts
    std::uint32_t* waiting;  // rows that tiles have added to the queue, by meeting modulo k_counters; with the flags k_together and k_moves
    volatile int* together;  // the meeting at which all teams empty their queues
    changed_row* changes;    // per warp
    int* changed;            // number of `changes`
    std::uint32_t* limbs;    // (word, limb) × k × pitch
    std::uint32_t* members;  // k
  };
  memory shared;

  __device__ __forceinline__ explicit pass_memory(const launch& from) : scores(from) {
    unsigned char* at = arch::shared_memory();
    const auto take = [&](std::int64_t bytes) {
      unsigned char* const begin = at;
      at += bytes;
      return begin;
    };
    constexpr int queue = pass_queue_rows(P);
    shared.centroids = take(centroid_bytes<T>(P, a.centroids.shape) + column_bytes<T>(P, a.centroids.shape));
    shared.block = reinterpret_cast<unsigned long long*>(take(k_block_words * 8));
    shared.barriers = take(k_barrier_bytes);
    shared.waiting = reinterpret_cast<std::uint32_t*>(shared.barriers + 16 * k_most_slots) + team() * k_counters;
    if constexpr (empties_together(P)) shared.together = reinterpret_cast<int*>(shared.barriers + 16 * k_most_slots + k_counter_bytes);
    shared.queue = reinterpret_cast<postponed*>(take(pass_teams(P) * queue * postponed_bytes(P))) + team() * queue;
    constexpr int scans = 2 * k_shared_scans * k_team_warps;  // per team
    shared.scans = reinterpret_cast<scanned_part*>(take(scan_bytes(P))) + team() * scans;
    if constexpr (k_counts) {
      shared.changes = reinterpret_cast<changed_row*>(take(P.warps * most_changes(P) * static_cast<int>(sizeof(changed_row))));
      shared.changes += warp * most_changes(P);
      shared.changed = reinterpret_cast<int*>(take(P.warps * 4)) + warp;
    }
    if constexpr (P.sums == sum_memory::shared) {
      shared.limbs = reinterpret_cast<std::uint32_t*>(at);
      shared.members = shared.limbs + 2 * P.words * entries();
    }
  }

  __device__ __forceinline__ int team() const { return warp / k_team_warps; }
  __device__ __forceinline__ void meet_team() const {
    if constexpr (k_team_warps == 1) {
      __syncwarp();
    } else {
      arch::group_barrier(1 + team(), 32 * k_team_warps);
    }
  }

  __device__ __forceinline__ int pitch() const { return sum_pitch(this->stride()); }
  __device__ __forceinline__ int entries() const { return a.centroids.shape.k * pitch(); }

  // An index that was corrupted in memory must not exceed the bounds. The totals detect the missing row.
  __device__ __forceinline__ int existing_row(int row) const {
    return static_cast<unsigned>(row) < static_cast<unsigned>(this->points()) ? row : 0;
  }
  __device__ __forceinline__ bool is_cluster(int j) const { return static_cast<unsigned>(j) < static_cast<unsigned>(a.centroids.shape.k); }
};

}  // namespace ballast::kmeans::cuda
