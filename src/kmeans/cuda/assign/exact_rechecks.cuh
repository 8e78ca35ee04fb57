// Exact rechecks of a pass: the queue of rows whose scores do not decide their labels, and the search for their nearest centroids.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
#pragma once

#include "abft/seal.hpp"
#include "kmeans/cuda/assign/row_tally.cuh"
#include "kmeans/cuda/layout/nearest.cuh"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass_rechecks : pass_moves<T, P, Injector> {
  using moves = pass_moves<T, P, Injector>;
  using scores = typename moves::scores;
  using moves::shared, moves::k_team_warps, moves::existing_row, moves::is_cluster;
  using scores::a, scores::g, scores::lane, scores::t, scores::warp;
  using typename moves::postponed, typename moves::listed_index;
  using typename scores::launch;
  static constexpr bool k_checks = scores::k_checks;
  static constexpr int k_groups = scores::k_groups, k_named = moves::k_named, k_listed = moves::k_listed;
  // k-slices of a row, and candidates of a row, that an exact recheck reads at a time; most rows have two candidates.
  static constexpr int k_looked_together = P.slices == 0 ? 8 : P.slices <= 4 ? 1 : P.slices <= 8 ? 2 : 4;
  static constexpr int k_tried = P.slices >= 8 ? 3 : 2;

  int queued = 0;   // rows in the queue before this tile
  int counter = 0;  // number of the next meeting, modulo k_counters

  __device__ __forceinline__ explicit pass_rechecks(const launch& from) : moves(from) {}

  // Puts row i, the own row, into the queue if `put`, with the columns that the lanes list. Called by the whole warp.
  __device__ __forceinline__ void postpone(bool put, double most, int i, std::uint32_t what,
                                           const listed_index (&columns)[k_groups][k_named]) {
    const bool stores = put && t == 2 * this->own_q();
    const unsigned all = __ballot_sync(0xffffffffu, stores);
    std::uint32_t parts[k_groups] = {};
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
#pragma unroll
      for (int e = 0; e < k_named; ++e) parts[q] += abft::short_term(static_cast<std::uint32_t>(columns[q][e]), 4 * e + t);
    }
    std::uint32_t seal = this->own(parts) + __shfl_xor_sync(0xffffffffu, this->given_away(parts), 2);
    seal += __shfl_xor_sync(0xffffffffu, seal, 1) + head_seal(most, i, what);
    seal = __shfl_xor_sync(0xffffffffu, seal, 1);
    auto begin = static_cast<unsigned>(queued);
    if constexpr (k_team_warps == 1) {
      queued += __popc(all);
    } else {
      if (lane == 0) begin += atomicAdd(shared.waiting + counter, static_cast<unsigned>(__popc(all))) % k_together;
      begin = __shfl_sync(0xffffffffu, begin, 0);
    }
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const unsigned at = static_cast<unsigned>(4 * g + 2 * q);
      if ((all >> at & 1u) == 0) continue;
      postponed& to = shared.queue[begin + static_cast<unsigned>(__popc(all & ((1u << at) - 1)))];
#pragma unroll
      for (int e = 0; e < k_named; ++e) to.listed[4 * e + t] = columns[q][e];
      if (t == 2 * q) to.most = most, to.row = i, to.what = what, to.seal = seal;
    }
  }

  // Returns the lanes whose columns are all compared.
  __device__ static __forceinline__ unsigned lanes_of(std::uint32_t what) {
    return (what & k_failed) != 0 ? 15u : what >> k_lanes_shift & 15u;
  }
  // Reads an entry of the queue, from memory in each call.
  __device__ __forceinline__ postponed read_entry(int at) const {
    const volatile postponed& from = shared.queue[at];
    postponed made{from.most, from.row, from.what, from.seal, {}};
#pragma unroll
    for (int l = 0; l < k_listed; ++l) made.listed[l] = from.listed[l];
    return made;
  }

  // Computes the distances to the candidates of row number `at` of the queue by its four lanes, k_tried at a time; returns the smallest,
  // with its column. `next`: the smallest of the others. `fits`: cleared if a candidate is farther than its score allows. `time`: 1 in the
  // lanes that decide the row a second time, concurrently with the first. These begin with the last candidate, and one step later, so that
  // no load of x or of a centroid serves both.
  __device__ __forceinline__ nearest try_candidates(const T* x, const T* rows, int time, int at, const postponed& entry,
                                                    unsigned candidates, double& next, bool& fits) const {
    const int stride = this->stride(), k = a.centroids.shape.k;
    nearest found;
    next = found.distance;
    const volatile listed_index* const listed = shared.queue[at].listed;
#pragma unroll 1
    while (__any_sync(0xffffffffu, candidates != 0)) {
      int j[k_tried], known[k_tried];
      unsigned asked = 0, looked_at = 0;  // bit e
#pragma unroll
      for (int e = 0; e < k_tried; ++e) {
        const int lowest = __ffs(static_cast<int>(candidates)) - 1, highest = 31 - __clz(static_cast<int>(candidates));
        const int position = candidates == 0 ? 0 : time == 0 ? lowest : highest;
        asked |= (candidates != 0 ? 1u : 0u) << e;
        looked_at |= (lanes_of(entry.what) >> position % 4 & 1u) << e;
        candidates &= ~(1u << position);
        j[e] = static_cast<int>(listed[position]);
        known[e] = static_cast<unsigned>(j[e]) < static_cast<unsigned>(k) ? j[e] : 0;
      }
      T distance[k_tried];
      measure<k_looked_together, k_checks>(x, rows, known, stride, distance, time);
#pragma unroll
      for (int e = 0; e < k_tried; ++e) {
        if ((asked >> e & 1u) == 0) continue;
        const bool there = j[e] == known[e];
        const T d = distance[e];
        // A column after the last centroid is near if scores are not finite; then all columns of its lane are compared.
        fits = fits && (there ? static_cast<double>(d - distance_error<T>(d, stride)) <= entry.most : (looked_at >> e & 1u) != 0);
        if (!there) continue;
        next = min(next, max(found.distance, static_cast<double>(d)));
        found.consider(static_cast<double>(d), j[e]);
      }
    }
    return found;
  }

  // Returns the value of `scanned_part::of` for row number `at` of the queue; 0 stands for no row.
  __device__ static __forceinline__ std::uint32_t scan_name(int at, unsigned lanes) { return static_cast<std::uint32_t>(at) << 4 | lanes; }
  // Returns the parts of scan number `ordinal`, of the first or second time.
  __device__ __forceinline__ scanned_part* scan_of(int time, int ordinal) const {
    return shared.scans + (time * k_shared_scans + ordinal) * k_team_warps;
  }
  // Scans many centroids for those of the `count` rows in the queue that need it, as long as there is room for the results. This warp scans
  // one part of the centroids. Each scan is made twice, from separate loads, the second time with another part. A meeting of the team must
  // follow.
  __device__ __forceinline__ void share_scans(int count) const {
    const int own = warp % k_team_warps;
    int ordinal = 0;
#pragma unroll 1
    for (int begin = 0; begin < count; begin += 32) {
      const volatile postponed* const queue = shared.queue + begin;
      const unsigned lanes = begin + lane < count ? lanes_of(queue[lane].what) : 0;
      unsigned left = __ballot_sync(0xffffffffu, lanes != 0);
#pragma unroll 1
      for (; left != 0 && ordinal < k_shared_scans; left &= left - 1, ++ordinal) {
        const int owner = __ffs(static_cast<int>(left)) - 1;
        const unsigned which = __shfl_sync(0xffffffffu, lanes, owner);
#pragma unroll 1
        for (int time = 0; time < (k_checks ? 2 : 1); ++time) {
          const int part = (own + time) % k_team_warps;
          const nearest found = scan<k_looked_together>(this->row(existing_row(queue[owner].row)), a.centroids.rows + arch::opaque(0u),
                                                        this->stride(), a.centroids.shape.k, which, part, k_team_warps);
          if (lane == 0) scan_of(time, ordinal)[part] = {found.distance, found.index, scan_name(begin + owner, which)};
        }
      }
    }
    if (lane < 2 * k_shared_scans && lane % k_shared_scans >= ordinal)
      scan_of(lane / k_shared_scans, lane % k_shared_scans)[(own + lane / k_shared_scans) % k_team_warps].of = 0;
  }
  // Returns the nearest of the columns of `lanes` to row number `at` of the queue: from the team's scans; or by a scan of this warp alone,
  // if those are incomplete or `shared_looks` is false.
  __device__ __forceinline__ nearest scanned(const T* rows, bool shared_looks, int time, int at, int row, unsigned lanes) const {
    if constexpr (shares_scans(P)) {
      const std::uint32_t name = scan_name(at, lanes);
      const bool named = shared_looks && lane < k_shared_scans && scan_of(time, lane % k_shared_scans)->of == name;
      const unsigned which = __ballot_sync(0xffffffffu, named);
      nearest found;
      bool whole = which != 0;
      if (whole) {
        const volatile scanned_part* const parts = scan_of(time, __ffs(static_cast<int>(which)) - 1);
#pragma unroll 1
        for (int part = 0; part < k_team_warps; ++part) {
          whole = whole && parts[part].of == name;
          found.consider(parts[part].distance, parts[part].index);
        }
      }
      if (whole) return found;
    }
    return scan<k_looked_together>(this->row(row), rows, this->stride(), a.centroids.shape.k, lanes);
  }

  // Finds the exact labels of rows of the queue, each by four lanes: row number `at`, with the entry on which two lanes agreed. `rows`: the
  // centroids. `time`: 1 in the lanes that decide the row a second time. `shared_looks`: use the team's scans. Distances in working
  // precision separate most candidates; distances in double separate the rest.
  __device__ __forceinline__ nearest choose(const T* x, const T* rows, bool shared_looks, int time, int at, const postponed& entry,
                                            bool& fits) const {
    const unsigned candidates = (entry.what & k_failed) != 0 ? 0u : entry.what & k_candidates;
    const bool more = lanes_of(entry.what) != 0;
    double next;
    nearest found = try_candidates(x, rows, time, at, entry, candidates, next, fits);
    if constexpr (sizeof(T) == 4) {
      // The error of the larger distance is slightly more than that of the smaller one.
      const bool near = found.distance + 3 * distance_error<T>(found.distance, this->stride()) >= next;
      const bool tells = candidates == 0 || !(near || more);
      if (!tells) found = nearest();
      unsigned rest = __ballot_sync(0xffffffffu, t == 0 && !tells);
#pragma unroll 1
      for (; rest != 0; rest &= rest - 1) {
        const int owner = __ffs(static_cast<int>(rest)) - 1;
        const T* const from = this->row(__shfl_sync(0xffffffffu, entry.row, owner));
        const volatile listed_index* const listed = shared.queue[__shfl_sync(0xffffffffu, at, owner)].listed;
#pragma unroll 1
        for (unsigned left = __shfl_sync(0xffffffffu, candidates, owner); left != 0; left &= left - 1) {
          const int j = __shfl_sync(0xffffffffu, static_cast<int>(listed[__ffs(static_cast<int>(left)) - 1]), 0);
          if (!is_cluster(j)) continue;
          const double exact = exact_distance(from, rows + static_cast<std::int64_t>(j) * this->stride(), this->stride()).high;
          if (lane / 4 == owner / 4) found.consider(exact, j);
        }
      }
    }
    // Rows that need more than their candidates, one after the other.
    unsigned rest = __ballot_sync(0xffffffffu, t == 0 && more);
    while (rest != 0) {
      const int owner = __ffs(static_cast<int>(rest)) - 1;
      rest &= rest - 1;
      const int which = __shfl_sync(0xffffffffu, entry.row, owner);
      const unsigned lanes = lanes_of(__shfl_sync(0xffffffffu, entry.what, owner));
      const nearest other =
          scanned(rows, shared_looks, __shfl_sync(0xffffffffu, time, owner), __shfl_sync(0xffffffffu, at, owner), which, lanes);
      if (lane / 4 == owner / 4) found.template consider<T>(other);
    }
    return found;
  }
};

}  // namespace ballast::kmeans::cuda
