// The epilogue of a pass: decides the labels of the rows from the result of the search, by an exact recheck where scores do not decide.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
// The four lanes of a row decide it together.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "kmeans/cuda/assign/row_tally.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass_rows : pass_moves<T, P, Injector> {
  using moves = pass_moves<T, P, Injector>;
  using scores = typename moves::scores;
  using moves::shared, moves::k_counts, moves::k_slices_together, moves::k_team_warps, moves::team, moves::meet_team, moves::weight_of,
      moves::existing_row, moves::is_cluster, moves::move_changes, moves::change;
  using scores::a, scores::g, scores::given, scores::label_before, scores::lane, scores::signature_of, scores::t, scores::warp;
  using typename moves::postponed, typename moves::listed_index;
  using typename scores::launch, typename scores::row_statistics;
  static constexpr bool k_checks = scores::k_checks;
  static constexpr int k_groups = scores::k_groups, k_named = moves::k_named, k_listed = moves::k_listed;
  static constexpr bool k_measures = k_checks && !k_counts;  // verifies the label of every row by ‖x − c‖²
  // k-slices of a row, and candidates of a row, that an exact recheck reads at a time; most rows have two candidates.
  static constexpr int k_looked_together = P.slices == 0 ? 8 : P.slices <= 4 ? 1 : P.slices <= 8 ? 2 : 4;
  static constexpr int k_tried = P.slices >= 8 ? 3 : 2;

  tally tallied{};
  int queued = 0;   // rows in the queue before this tile
  int counter = 0;  // number of the next meeting, modulo k_counters
  int meeting = 0;  // the same number, not reduced

  __device__ __forceinline__ explicit pass_rows(const launch& from) : moves(from) {}

  // Steps: the label when found; in an exact recheck; when stored.
  __device__ __forceinline__ void strike_label(int i, int step, int& label) const { strike_index(site::label, i, step, label); }
  __device__ __forceinline__ void strike_index(inject::site where, int i, int step, int& at) const {
    if constexpr (Injector::enabled) {
      const int rows = pass_rows_of_tile(P), tiles = (this->points() + rows - 1) / rows;
      given.strike(ballast::cuda::index<1>{}, where, this->here(i / rows, tiles, step, 3), reinterpret_cast<std::uint32_t*>(&at));
    }
  }
  // Shows the injector the search result of the own row, before its two owners compare it.
  __device__ __forceinline__ void strike_found(int i, int& label) const {
    strike_index(site::index, i, 2, label);
    strike_label(i, 0, label);
  }

  // The label of the own row and its expected distance.
  struct decision {
    int label;  // k: the row waits for an exact recheck
    T expected;
    T limit;  // threshold of |distance − expected|
  };
  // The search result of the own row, combined over its four lanes.
  struct verdict {
    T best;  // the largest score
    int index;
    bool near;   // true if another centroid may be the nearest
    bool wrong;  // true if two redundant results differ
  };

  // In f64 the largest score decides, and among equal scores the lowest index.
  __device__ __forceinline__ verdict join(const row_search<double> (&rows)[k_groups], const row_statistics& row_stats) const {
    double values[k_groups], twins[k_groups];
    int indices[k_groups], twin_indices[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      values[q] = rows[q].first, indices[q] = rows[q].first_index;
      twins[q] = rows[q].twin, twin_indices[q] = rows[q].twin_index;
    }
    const auto join_lanes = [&](const double(&of)[k_groups], const int(&index_of)[k_groups], int& index) {
      double best = this->own(of);
      index = this->own(index_of);
      const auto consider = [&](double other, int other_index) {
        if (other > best || (other == best && other_index < index)) index = other_index;
        best = max(best, other);
      };
      consider(__shfl_xor_sync(0xffffffffu, this->given_away(of), 2), __shfl_xor_sync(0xffffffffu, this->given_away(index_of), 2));
      consider(__shfl_xor_sync(0xffffffffu, best, 1), __shfl_xor_sync(0xffffffffu, index, 1));
      return best;
    };
    int index, twin_index;
    const double best = join_lanes(values, indices, index);
    strike_found(row_stats.i, index);
    if constexpr (!k_checks) return {best, index, false, false};
    const double twin = join_lanes(twins, twin_indices, twin_index);
    return {best, index, false, !(best == twin && index == twin_index)};
  }

  // In f32 a label is certain if exactly one lane has near columns, and has exactly one.
  __device__ __forceinline__ verdict join(const row_search<float> (&rows)[k_groups], const row_statistics& row_stats) const {
    const float of_rows[k_groups] = {rows[0].best, rows[1].best};
    const float best = this->own(of_rows);
    unsigned near[k_groups], certain[k_groups], apart[k_groups] = {};
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const row_search<float>& row = rows[q];
      near[q] = __ballot_sync(0xffffffffu, (row.named[0] | row.more) != 0);
      if constexpr (scores::k_follows) apart[q] = __ballot_sync(0xffffffffu, row.best != row.twin || row.wrong != 0);
      certain[q] = __ballot_sync(0xffffffffu, row.named[0] != 0 && (row.named[1] | row.more) == 0);
    }
    const unsigned near_lanes = this->own(near) >> (4 * g) & 15u, certain_lanes = this->own(certain) >> (4 * g) & 15u;
    const bool decided = near_lanes == certain_lanes && (near_lanes & (near_lanes - 1)) == 0;
    const int winner = __ffs(static_cast<int>(near_lanes | 8u)) - 1;
    // Each lane broadcasts the codes of both its rows; the code of the own row's winner is used.
    const std::uint32_t codes[k_groups] = {__shfl_sync(0xffffffffu, rows[0].named[0], winner, 4),
                                           __shfl_sync(0xffffffffu, rows[1].named[0], winner, 4)};
    int index = column_of_code(this->own(codes), winner);
    strike_found(row_stats.i, index);
    const bool same = !k_checks || __shfl_xor_sync(0xffffffffu, index, 1) == index;
    const bool wrong = (this->own(apart) >> (4 * g) & 15u) != 0;  // in any of the row's lanes
    return {best, index, !decided, wrong || (decided && !same)};
  }

  // Decides the label of the own row. A row that needs an exact recheck goes into the queue and gets the label k.
  __device__ __forceinline__ decision decide(const row_search<T> (&rows)[k_groups], const row_statistics& row_stats) {
    const verdict found = join(rows, row_stats);
    const int k = a.centroids.shape.k;
    // Columns after the last centroid have no weight in the row check, and scores that never lead.
    const bool exists = is_cluster(found.index), wrong = row_stats.bad || (k_checks && (found.wrong || (!found.near && !exists)));
    // Bound of the rounding error of a distance.
    const T slack = fma(a.centroids.bound[t % 2].distance, row_stats.norm + abs(found.best), static_cast<T>(1e-37));
    const decision made{exists ? found.index : k - 1, fma(T(-2), found.best, row_stats.norm),
                        (scores::k_own_errors ? 4 : 2) * row_stats.error + slack};
    const bool look = (found.near || wrong) && row_stats.i < this->points();
    if (!__any_sync(0xffffffffu, look)) return made;
    const bool looks = this->any_owner(look);
    listed_index columns[k_groups][k_named] = {};
    std::uint32_t what = list_candidates(rows, columns);
    // If the best score is a number, its column is listed, or belongs to a lane with more near columns than it lists. A row with neither
    // has failed.
    if (this->any_owner(wrong || (looks && what == 0)))
      what = k_failed | static_cast<std::uint32_t>(row_stats.bad ? row_stats.failed : check::minimum) << k_check_shift;
    postpone(looks, most_distance(rows, row_stats, slack), row_stats.i, what, columns);
    return looks ? decision{k, made.expected, made.limit} : made;
  }

  // Bounds the distance of every candidate of the own row: its score is at most a spread below the best score at the time it was recorded.
  __device__ __forceinline__ double most_distance(const row_search<float> (&rows)[k_groups], const row_statistics& row_stats,
                                                  float slack) const {
    const float since[k_groups] = {rows[0].since, rows[1].since};
    // With own errors, the lanes may have recorded their oldest columns at different times.
    const float oldest = scores::k_own_errors ? this->fold(since, [](float x, float y) { return fminf(x, y); }) : this->own(since);
    return static_cast<double>(fma(-2.0f, oldest, row_stats.norm) + 6 * row_stats.error + 3 * k_comparable + slack);
  }
  // Returns which columns of the own row are compared by distances: the listed columns of its lanes, and all columns of a lane that has
  // more. `columns` receives those that this lane lists.
  __device__ __forceinline__ std::uint32_t list_candidates(const row_search<float> (&rows)[k_groups],
                                                           listed_index (&columns)[k_groups][k_named]) const {
    std::uint32_t what[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      const row_search<float>& row = rows[q];
      const auto lanes_where = [&](bool holds) { return __ballot_sync(0xffffffffu, holds) >> (4 * g) & 15u; };
      what[q] = lanes_where(row.more != 0) << k_lanes_shift;
#pragma unroll
      for (int e = 0; e < k_named; ++e) {
        what[q] |= lanes_where(row.named[e] != 0) << 4 * e;
        columns[q][e] = static_cast<listed_index>(column_of_code(row.named[e], t));
      }
    }
    return this->own(what);
  }
  // In f64 there are no candidates.
  __device__ __forceinline__ double most_distance(const row_search<double> (&)[k_groups], const row_statistics&, double) const { return 0; }
  __device__ __forceinline__ std::uint32_t list_candidates(const row_search<double> (&)[k_groups],
                                                           listed_index (&)[k_groups][k_named]) const {
    return 0;
  }

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

  // ---- Exact rechecks ----

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
          const double exact = exact_distance(from, rows + static_cast<std::int64_t>(j) * this->stride(), this->stride());
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
      if (lane / 4 == owner / 4) found.consider(other.distance, other.index);
    }
    return found;
  }

  // Decides this warp's share of the queue and stores the labels. In a pass without sums, the distance of the label is computed again and
  // must equal the distance that was found.
  __device__ __noinline__ static tally decide_queue(const launch& given, int count) {
    pass_rows self(given);
    self.decide_rows(count);
    return self.tallied;
  }
  // Four lanes decide a row. With checks another four lanes decide it concurrently, from their own loads, and both must agree.
  __device__ __forceinline__ void decide_rows(int count) {
    constexpr int together = decided_rows(P);
    const int share = (count + k_team_warps - 1) / k_team_warps, mine = warp % k_team_warps * share, end = min(count, mine + share);
    const int k = a.centroids.shape.k, time = g / together;  // 1: the lanes that decide a second time
    const unsigned row_lanes = (k_checks ? 0x000f000fu : 0xfu) << 4 * (g % together);
    const bool stores = t == 0 && time == 0, counts = k_checks ? t == time : t < 2;
    // Returns the value of the other four lanes of the row.
    const auto twin = [](auto value) { return k_checks ? __shfl_xor_sync(0xffffffffu, value, 16) : value; };
    // Bound of the difference of ‖x − c‖² in working precision by four lanes to that in double: rounding of a difference, its square and
    // the sums.
    constexpr double unit = abft::unit_roundoff<T>;
    const double slack = 2 * unit * (this->stride() / 4 + 8), tiny = this->stride() * static_cast<double>(smallest_normal<T>());
    if constexpr (shares_scans(P)) {
      share_scans(count);
      meet_team();  // the results of the scans are stored
    }
#pragma unroll 1
    for (int begin = mine; begin < end; begin += together) {
      const bool there = begin + g % together < end;
      const int at = there ? begin + g % together : begin;
      std::uint32_t failed = 0;  // k_failed and the check that failed
      bool good = true;
      int row = 0, label = k;
      std::uint32_t what = 0;
      T distance[1] = {};
#pragma unroll 1
      for (int number = 0;; ++number) {
        postponed entry = read_entry(at);
        const bool intact = seal_of(entry) == entry.seal;
        entry.what = there ? entry.what | failed : 0;
        if (!intact) entry.row = existing_row(entry.row);
        if (there && !intact) entry.what |= k_failed;
        bool fits = true;
        const nearest found = choose(this->row(entry.row), a.centroids.rows, number == 0, time, at, entry, fits);
        row = entry.row, what = entry.what, label = found.index;
        strike_label(row, 1, label);
        // A corrupted label must not index beyond the centroids.
        label = !there ? k : is_cluster(label) ? label : k - 1;
        if constexpr (!k_checks) break;
        const bool same_label = twin(label) == label, same_distance = twin(found.distance) == found.distance, same_row = twin(row) == row;
        const std::uint32_t other_kind = twin(what);
        fits = fits && found.distance < 1e308;  // a centroid was found
        fits = fits && same_label && same_distance && same_row && other_kind == what;
        if constexpr (k_measures) {
          const int rows[1] = {row}, of[1] = {label};
          measure_rows(rows, of, distance);
          distance[0] = add_quad(distance[0]);
          fits = fits && fabs(static_cast<double>(distance[0]) - found.distance) <= slack * found.distance + tiny;
        }
        const unsigned all = __ballot_sync(0xffffffffu, fits);
        good = !there || (all & row_lanes) == row_lanes;
        // `failed` is the same in both, even if one of them misread its entry.
        if (!good && (what & other_kind & k_failed) == 0) failed = k_failed | static_cast<std::uint32_t>(check::distance) << k_check_shift;
        if (__all_sync(0xffffffffu, good) || number >= a.repeats) break;
      }
      if (there && stores) {
        what |= failed;
        if (k_checks && (what & k_failed) != 0)
          report(given, static_cast<check>(what >> k_check_shift & k_check_mask), a.points.first + row, good && a.repeats > 0);
        arch::add_global((what & k_failed) != 0 || what >> k_lanes_shift != 0 ? &a.totals->scans : &a.totals->looks, 1);
      }
      const int before = there ? label_before(row) : -1;
      if (there && counts) commit(row, label, distance[0], signature_of(row), before);
      change(there && stores, row, before, label);
    }
  }

  // The warps of a team meet; they move their changed rows if one warp has eight. All warps see the same numbers: a counter is read between
  // two meetings and set to 0 after the next one, so no warp reads it too late. Returns how many rows the queue may keep: `allowed`, or 0
  // if all teams empty their queues.
  __device__ __forceinline__ int count_waiting(int allowed) {
    const bool first = threadIdx.x % (32 * k_team_warps) == 0;
    if constexpr (empties_together(P)) {
      if (first && *shared.together == meeting) atomicAdd(shared.waiting + counter, k_together);
    }
    if constexpr (k_counts) {
      if (lane == 0 && *shared.changed >= k_changes_together) atomicAdd(shared.waiting + counter, k_moves);
    }
    meet_team();  // all rows are stored in the queue
    const std::uint32_t more = shared.waiting[counter];
    queued += static_cast<int>(more % k_together);
    counter = (counter + 1) % k_counters;
    if (first) shared.waiting[(counter + 1) % k_counters] = 0;
    if constexpr (empties_together(P)) {
      // No team is more than one tile ahead of another.
      if (first && queued >= k_queue_asks && *shared.together <= meeting) *shared.together = meeting + 2;
      ++meeting;
      if (more % k_moves >= k_together) allowed = 0;
    }
    if (k_counts && more >= k_moves) move_changes(given, k_least_moved);
    return allowed;
  }

  // Empties the queue of the team if it has more than `allowed` rows. A single warp needs no counters.
  __device__ __forceinline__ void meet(int allowed) {
    if constexpr (k_team_warps == 1) {
      __syncwarp();
      if (k_counts && *static_cast<const volatile int*>(shared.changed) >= k_changes_together) move_changes(given, k_least_moved);
    } else {
      allowed = count_waiting(allowed);
    }
    if (queued <= allowed) return;
    const tally made = decide_queue(given, queued);
    meet_team();  // the queue has been read
    queued = 0;
    tallied.sum[0] += made.sum[0];
    tallied.sum[1] += made.sum[1];
    tallied.changed += made.changed;
  }

  __device__ __noinline__ static void report(const launch& given, check which, std::int64_t i, bool repaired) {
    ballast::cuda::write_outcome(given, *given.arguments.events, repaired ? abft::outcome::recomputed : abft::outcome::uncorrectable,
                                 abft::finding{}, i, 0, static_cast<std::uint32_t>(which));
  }

  // ---- ‖x − c‖² of labels, in working precision ----

  // Computes this lane's part.
  template <int Rows>
  __device__ __forceinline__ void measure_rows(const int (&i)[Rows], const int (&label)[Rows], T (&distance)[Rows]) const {
    [[maybe_unused]] constexpr int together = Rows == k_groups ? k_slices_together : k_looked_together;
    const T *x[Rows], *c[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      x[r] = this->row(i[r]) + t * k_vector<T>;
      c[r] = a.centroids.rows + static_cast<std::int64_t>(label[r]) * this->stride() + t * k_vector<T>;
      distance[r] = 0;
    }
#pragma unroll together
    for (int s = 0; s < a.centroids.shape.slices; ++s) {
      features<T> value[Rows], near[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) value[r] = load_features(x[r] + s * k_slice<T>), near[r] = load_features(c[r] + s * k_slice<T>);
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
#pragma unroll
        for (int v = 0; v < k_vector<T>; ++v) {
          const T d = value[r].at[v] - near[r].at[v];
          distance[r] = fma(d, d, distance[r]);
        }
      }
    }
  }

  // ---- A tile ----

  // Processes one tile of the warp: labels, sums and counts. `ahead`: as in find().
  __device__ __forceinline__ void work(typename scores::stage& centroids, int first, int next, int tile, int tiles,
                                       typename scores::rows_ahead& ahead) {
    if constexpr (!scores::k_prefetches) this->load_ahead(first, ahead);
    row_statistics row_stats;
    typename scores::errors errors{};
    const auto bound_error = [&](T rounding) { return score_error<T>(a.centroids.bound[t % 2], row_stats.norm, rounding); };
    const auto bound_errors = [&] {
      if constexpr (scores::k_row_stats_ahead) row_stats = ahead.row_stats;
      if constexpr (sizeof(T) == 4) {
        row_stats.norm = ahead.norm;
        const score_error<T> own = bound_error(ahead.rounding);
        row_stats.error = own.most();
        T mine = max(2 * row_stats.error, k_comparable);  // the two owners compute it from two copies of the bound
        given.strike(ballast::cuda::index<1>{}, site::threshold,
                     this->here(tile, tiles, a.centroids.shape.sections, a.centroids.shape.sections + 1), &mine);
        if constexpr (k_checks) {
          if (mine != __shfl_xor_sync(0xffffffffu, mine, 1)) row_stats.bad = true, row_stats.failed = check::minimum;
        }
        errors.reach = scores::k_own_errors ? max(own.reach, __shfl_xor_sync(0xffffffffu, own.reach, 2)) : T(0);
#pragma unroll
        for (int q = 0; q < k_groups; ++q) {
          errors.spread[q] = __shfl_sync(0xffffffffu, mine, 2 * q + t % 2, 4);
          if constexpr (scores::k_own_errors) errors.slope[q] = __shfl_sync(0xffffffffu, own.slope, 2 * q + t % 2, 4);
        }
      }
    };
    row_search<T> rows[k_groups];
    this->find(centroids, first, next, tile, tiles, ahead, errors, rows, row_stats, bound_errors);
    if constexpr (sizeof(T) == 8) row_stats.error = bound_error(0).most();
    const decision made = decide(rows, row_stats);
    const bool decided = row_stats.i < this->points() && made.label < a.centroids.shape.k;
    if constexpr (k_measures) {
      measure_and_commit(first, decided, made, row_stats);
    } else {
      if (decided) commit(row_stats.i, made.label, 0, row_stats.signature, row_stats.before);
      change(decided && t % 2 == 0, row_stats.i, row_stats.before, made.label);
    }
  }
  // In passes without sums: commits labels whose distance is the one that their scores imply.
  __device__ __forceinline__ void measure_and_commit(int first, bool decided, const decision& made, const row_statistics& row_stats) {
    const int none = a.centroids.shape.k;
    int i[k_groups], label[k_groups];
    T distance[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      i[q] = first + 8 * q + g;
      label[q] = this->from_owner(decided ? made.label : none, q);
    }
    // The label whose distance is computed is the label that is stored.
    const int measured = this->own(label);
    decided = measured < none;
    measure_rows(i, label, distance);
    const T apart = this->fold(distance, [](T x, T y) { return x + y; });
    const bool fits = abs(apart - made.expected) <= made.limit;  // no other centroid is that near
    if (__any_sync(0xffffffffu, decided && !fits)) {
      const bool fails = this->any_owner(decided && !fits);
      const listed_index columns[k_groups][k_named] = {};
      postpone(fails, 0, row_stats.i, k_failed | static_cast<std::uint32_t>(check::distance) << k_check_shift, columns);
      if (fails) decided = false;
    }
    if (decided) commit(row_stats.i, measured, apart, row_stats.signature, row_stats.before);
  }

  // Adds the quantities of lane t for a row with this label.
  __device__ __forceinline__ void count(int label, unsigned long long signature, int before, T weight, tally& to) const {
    const bool odd = t % 2 != 0;
    to.sum[0] += odd ? static_cast<unsigned>(label) * signature : signature;
    const unsigned low = odd ? (before == label ? 1u : 0u) : (weight > 0 ? 1u : 0u);
    const unsigned high = odd ? 0u : low * static_cast<unsigned>(label);
    to.sum[1] += static_cast<unsigned long long>(high) << 32 | low;
    to.changed += before != label ? 1u : 0u;
  }

  // Stores the label of row i, and its distance if requested. Called by two lanes of the row.
  __device__ __forceinline__ void commit(int i, int label, T distance, unsigned long long signature, int before) {
    strike_label(i, 2, label);
    count(label, signature, before, weight_of(i), tallied);
    if (t % 2 == 0) {
      a.labels[i] = label;
    } else if constexpr (k_checks && !k_counts) {
      if (a.distances != nullptr) a.distances[i] = distance;
    }
  }
};

}  // namespace ballast::kmeans::cuda
