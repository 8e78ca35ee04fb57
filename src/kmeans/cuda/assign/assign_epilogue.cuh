// The epilogue of a pass: decides the labels of the rows from the result of the search, by an exact recheck where scores do not decide.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
// The four lanes of a row decide it together.
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "kmeans/cuda/assign/exact_rechecks.cuh"
#include "kmeans/cuda/assign/row_tally.cuh"
#include "kmeans/cuda/layout/nearest.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, pass_policy P, class Injector>
struct pass_rows : pass_rechecks<T, P, Injector> {
  using rechecks = pass_rechecks<T, P, Injector>;
  using moves = typename rechecks::moves;
  using scores = typename moves::scores;
  using moves::shared, moves::k_counts, moves::k_slices_together, moves::k_team_warps, moves::team, moves::meet_team, moves::weight_of,
      moves::existing_row, moves::is_cluster, moves::move_changes, moves::change;
  using rechecks::choose, rechecks::counter, rechecks::k_looked_together, rechecks::postpone, rechecks::queued, rechecks::read_entry,
      rechecks::share_scans;
  using scores::a, scores::g, scores::given, scores::label_before, scores::lane, scores::signature_of, scores::t, scores::warp;
  using typename moves::postponed, typename moves::listed_index;
  using typename scores::launch, typename scores::row_statistics;
  static constexpr bool k_checks = scores::k_checks;
  static constexpr int k_groups = scores::k_groups, k_named = moves::k_named;
  static constexpr bool k_measures = k_checks && !k_counts;  // verifies the label of every row by ‖x − c‖²

  tally tallied{};
  int meeting = 0;  // the number of the next meeting; `counter` is the same number modulo k_counters

  __device__ __forceinline__ explicit pass_rows(const launch& from) : rechecks(from) {}

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

  // In f64 the largest score decides, and among equal scores the lowest index; unless looks_close() sends the row to an exact recheck.
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
      if constexpr (k_checks) apart[q] = __ballot_sync(0xffffffffu, (scores::k_follows && row.best != row.twin) || row.wrong != 0);
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
    // Columns after the last centroid have no weight in the row check, and scores that never lead. If one leads, it was struck, and says
    // nothing about the others: all columns are compared.
    const bool near = found.near || looks_close(found.best, row_stats);
    const bool exists = is_cluster(found.index), wrong = row_stats.bad || (k_checks && (found.wrong || (!found.near && !exists)));
    // Bound of the rounding error of a distance.
    const T slack = fma(a.centroids.bound[t % 2].distance, row_stats.norm + abs(found.best), static_cast<T>(1e-37));
    const decision made{exists ? found.index : k - 1, fma(T(-2), found.best, row_stats.norm),
                        (scores::k_own_errors ? 4 : 2) * row_stats.error + slack};
    const bool look = (near || row_stats.doubt || wrong) && row_stats.i < this->points();
    if (!__any_sync(0xffffffffu, look)) return made;
    const bool looks = this->any_owner(look);
    listed_index columns[k_groups][k_named] = {};
    std::uint32_t what = list_candidates(rows, found.best - 2 * row_stats.error, columns);
    if (row_stats.doubt) what |= 15u << k_lanes_shift;
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
  __device__ __forceinline__ std::uint32_t list_candidates(const row_search<float> (&rows)[k_groups], float,
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
  // In f64 all columns are compared of the lanes whose best score is at least `least`. Each owner of a row has its own limit, and one chain
  // of comparisons.
  __device__ __forceinline__ double most_distance(const row_search<double> (&)[k_groups], const row_statistics&, double) const { return 0; }
  __device__ __forceinline__ std::uint32_t list_candidates(const row_search<double> (&rows)[k_groups], double least,
                                                           listed_index (&)[k_groups][k_named]) const {
    std::uint32_t what[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      std::uint32_t lanes[2];
#pragma unroll
      for (int owner = 0; owner < 2; ++owner) {
        const double limit = __shfl_sync(0xffffffffu, least, 2 * q + owner, 4);
        const double best = k_checks && owner == 1 ? rows[q].twin : rows[q].first;
        lanes[owner] = __ballot_sync(0xffffffffu, best >= limit) >> (4 * g) & 15u;
      }
      what[q] = (t % 2 == 0 ? lanes[0] : lanes[1]) << k_lanes_shift;
    }
    return this->own(what);
  }

  // f64: returns whether the errors of two scores could be more than k_share of the row's squared distance to its label. Then distances
  // decide, so that the label is the nearest centroid for any offset of the data. The labels of a pass with sums only decide what the next
  // centroids are.
  static constexpr double k_share = k_counts ? 0x1p-20 : 0x1p-30;
  __device__ __forceinline__ bool looks_close(double best, const row_statistics& row_stats) const {
    constexpr double tiny = 1e-290;  // squares may have vanished
    return !(fma(4.0, row_stats.error, tiny) <= k_share * fma(-2.0, best, row_stats.norm));
  }
  __device__ __forceinline__ bool looks_close(float, const row_statistics&) const { return false; }

  // ---- Exact rechecks ----

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
          const double square = found.distance * (1 / k_lift<T> / k_lift<T>);
          fits = fits && fabs(static_cast<double>(distance[0]) - square) <= slack * square + tiny;
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
                     this->here(tile, tiles, a.centroids.shape.sections, a.centroids.shape.sections + scores::k_other_thresholds), &mine);
        if constexpr (k_checks) {
          if (mine != __shfl_xor_sync(0xffffffffu, mine, 1)) row_stats.bad = true, row_stats.failed = check::minimum;
        }
        errors.reach = scores::k_own_errors ? max(own.reach, __shfl_xor_sync(0xffffffffu, own.reach, 2)) : T(0);
#pragma unroll
        for (int q = 0; q < k_groups; ++q) {
          errors.spread[q] = __shfl_sync(0xffffffffu, mine, 2 * q + t % 2, 4);
          if constexpr (scores::k_own_errors) errors.slope[q] = __shfl_sync(0xffffffffu, own.slope, 2 * q + t % 2, 4);
        }
        if constexpr (!scores::k_own_errors)
          given.strike(ballast::cuda::index<k_groups>{}, site::threshold,
                       this->here(tile, tiles, a.centroids.shape.sections + 2, a.centroids.shape.sections + scores::k_other_thresholds),
                       errors.spread);
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
