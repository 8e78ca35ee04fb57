// The rows of a pass: their labels from what the search has found, second looks, and the sums of the points of each cluster.
// Layer: backend "cuda" of K-Means, device code. docs/design/kmeans-cuda.md has the derivations.
// The four lanes of a row decide it together, and each adds every fourth vector of its features.
#pragma once

#include <type_traits>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "cuda/arch/atomic.cuh"
#include "kmeans/cuda/fixed.cuh"
#include "kmeans/cuda/nearest.cuh"
#include "kmeans/cuda/pass_scores.cuh"

namespace ballast::kmeans::cuda {

// √square, or a little more.
__device__ __forceinline__ float norm_above(float square) { return arch::sqrt_fast(square) * (1 + 0x1p-20f); }
__device__ __forceinline__ double norm_above(double square) {
  return static_cast<double>(norm_above(static_cast<float>(square)) * (1 + 0x1p-20f)) + 1e-30;
}

template <class T>
__device__ __forceinline__ T score_error(const score_bound<T>& bound, T square, T rounding) {
  const T norm = norm_above(square), reach = min(bound.largest, 2 * norm + bound.smallest);
  return (fma(bound.product, norm + rounding, rounding) + bound.sum * (norm + reach)) * reach;
}

template <class T>
__device__ __forceinline__ T smallest_normal() {
  return sizeof(T) == 4 ? static_cast<T>(0x1p-126) : static_cast<T>(0x1p-1022);
}

// What the threads add up over rows. Two lanes share the work of a row: lane t adds up quantities t % 2 and t % 2 + 2, and an even one the
// last.
enum class quantity : int {
  signature,           // Σ signature
  labelled_signature,  // Σ label · signature
  members,             // points of positive weight, and Σ label over them, modulo 2^32, in the upper half
  same,                // labels that are as before
  changed,             // labels that are not, by another lane's comparison
};
static_assert(static_cast<int>(quantity::changed) + 1 == k_quantities);

struct tally {
  unsigned long long sum[2];  // of the lane's quantities
  std::uint32_t changed;      // of an even lane
};

// A row whose label needs more than the scores of the tensor cores. It waits in shared memory until its team of four warps has enough of
// them or ends, and they share the work. Until then its label is k, a cluster of which nobody asks. Two lanes make the entry, each from
// what it has itself: one stores it with the seal of the other.
inline constexpr int k_listed = 8;  // columns of a row that its four lanes list: the best of each, then the second of each
template <class Index>
struct postponed {
  double most;  // no candidate has a larger distance
  std::int32_t row;
  std::uint32_t what;
  std::uint32_t seal;
  Index listed[k_listed];
};
template <class Index>
__device__ __forceinline__ std::uint32_t seal_of(const postponed<Index>& of) {
  std::uint32_t made = of.what;
  const auto add = [&](std::uint64_t word) { made = made * 0x9e3779b1u + static_cast<std::uint32_t>(word ^ word >> 32); };
  add(static_cast<std::uint32_t>(of.row));
  add(static_cast<std::uint64_t>(__double_as_longlong(of.most)));
#pragma unroll
  for (const Index each : of.listed) add(static_cast<std::uint32_t>(each));
  return made;
}
// postponed::what
inline constexpr std::uint32_t k_candidates = (1u << k_listed) - 1;  // mask: which of the listed columns are near enough
inline constexpr std::uint32_t k_failed = 1u << 8;                   // a check failed: all centroids are looked at
inline constexpr std::uint32_t k_added = 1u << 9;                    // the row has been added to cluster listed[0], and was judged wrong
inline constexpr int k_check_shift = 10;                             // which check failed
inline constexpr std::uint32_t k_check_mask = 15;
inline constexpr int k_lanes_shift = 16;  // lanes whose columns are looked at, all of them,
inline constexpr int k_group_shift = 20;  // or those in one group, by its number as scores carry it, with
inline constexpr std::uint32_t k_one_group = 1u << 25;

template <class T, pass_policy P, class Injector>
struct pass_rows : pass_scores<T, P, Injector> {
  using scores = pass_scores<T, P, Injector>;
  using scores::a, scores::g, scores::given, scores::lane, scores::t, scores::warp;
  using typename scores::launch, typename scores::loaded, typename scores::row_facts;
  static constexpr bool k_checks = scores::k_checks;
  static constexpr int k_groups = scores::k_groups;
  static constexpr int k_queued_rows =
      queue_tiles(P) * k_team_warps * scores::k_rows;  // that tiles may add to a queue between two meetings
  static_assert(P.warps % k_team_warps == 0);
  static constexpr bool k_counts = P.sums != sum_memory::none;              // what the sums must agree with
  static constexpr bool k_adds = k_counts && P.sums != sum_memory::sorted;  // rows to the sums
  using listed_index = std::conditional_t<P.panel == panel_memory::shared, std::uint16_t, std::int32_t>;
  using postponed = cuda::postponed<listed_index>;
  static_assert(sizeof(postponed) == postponed_bytes(P));
  using scores::k_holds;
  // Rows that are not held are read again, so many slabs at a time, and judged when they have been added.
  static constexpr int k_slabs_together = P.slabs > 0 ? 4 : 8;
  static constexpr int k_looked_together = P.slabs == 0 ? 8 : P.slabs <= 4 ? 1 : P.slabs <= 8 ? 2 : 4;  // in second looks

  // Shared memory, in the order of pass_shared_bytes.
  struct memory {
    unsigned char* panel;
    unsigned long long* block;  // k_block_words
    unsigned char* barriers;
    postponed* queue;        // of this team
    std::uint32_t* waiting;  // rows that tiles have added to it, by the number of the meeting modulo k_counters
    std::uint32_t* limbs;    // (word, limb) × (k + 1) × pitch
    std::uint32_t* members;  // k + 1
  };
  memory shared;
  tally counted{};
  int queued = 0;   // rows in the queue before this tile
  int counter = 0;  // number of the next meeting, modulo k_counters

  __device__ __forceinline__ explicit pass_rows(const launch& from) : scores(from) {
    unsigned char* at = arch::shared_memory();
    const auto take = [&](std::int64_t bytes) {
      unsigned char* const begin = at;
      at += bytes;
      return begin;
    };
    constexpr int queue = pass_queue_rows(P);
    shared.panel = take(panel_bytes<T>(P, a.centroids.shape) + column_bytes<T>(P, a.centroids.shape));
    shared.block = reinterpret_cast<unsigned long long*>(take(k_block_words * 8));
    shared.barriers = take(k_barrier_bytes);
    shared.waiting = reinterpret_cast<std::uint32_t*>(shared.barriers + 16 * k_most_slots) + team() * k_counters;
    shared.queue = reinterpret_cast<postponed*>(take(P.warps / k_team_warps * queue * postponed_bytes(P))) + team() * queue;
    if constexpr (P.sums == sum_memory::shared) {
      shared.limbs = reinterpret_cast<std::uint32_t*>(at);
      shared.members = shared.limbs + 2 * P.words * entries();
    }
  }

  __device__ __forceinline__ int team() const { return warp / k_team_warps; }
  __device__ __forceinline__ void meet_team() const { arch::group_barrier(1 + team(), 32 * k_team_warps); }

  __device__ __forceinline__ T weight_of(int i) const {
    if constexpr (P.weighted) return arch::load_table(a.points.weight + i);
    return T(1);
  }

  // Steps: the label when it was found; in a second look; when it is stored.
  __device__ __forceinline__ void strike_label(int i, int step, int& label) const {
    if constexpr (Injector::enabled) {
      const int rows = pass_rows_of_block(P), tiles = (this->points() + rows - 1) / rows;
      given.strike(ballast::cuda::index<1>{}, inject::site::kmeans_label, this->here(i / rows, tiles, step, 3),
                   reinterpret_cast<std::uint32_t*>(&label));
    }
  }

  // What the own row is given, and what its distance must be.
  struct decision {
    int label;  // k: the row waits for a second look
    T expected;
    T limit;    // of |distance − expected|
    T nearest;  // a distance up to here proves that no other centroid is nearer
  };

  // The label of the own row. A row that needs a second look goes into the queue and gets the label k.
  __device__ __forceinline__ decision decide(const row_search<T> (&rows)[k_groups], const row_facts& facts) {
    const score_bound<T> bound = a.centroids.bound[t % 2];  // owners have it from two copies
    // The best score of the row with its column, and the next one: of four lanes.
    T bests[k_groups], runners[k_groups], twins[k_groups];
    int indices[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      bests[q] = rows[q].first;
      runners[q] = max(rows[q].second, rows[q].guard);
      twins[q] = rows[q].twin;
      indices[q] = rows[q].first_index;
    }
    T best = this->own(bests), runner_up = this->own(runners);
    int index = this->own(indices);
    const auto join = [&](T other, T other_runner, int other_index) {
      runner_up = max(max(runner_up, other_runner), min(best, other));
      // Equal scores: the lowest index.
      if (other > best || (other == best && other_index < index)) index = other_index;
      best = max(best, other);
    };
    join(__shfl_xor_sync(0xffffffffu, this->given_away(bests), 2), __shfl_xor_sync(0xffffffffu, this->given_away(runners), 2),
         __shfl_xor_sync(0xffffffffu, this->given_away(indices), 2));
    join(__shfl_xor_sync(0xffffffffu, best, 1), __shfl_xor_sync(0xffffffffu, runner_up, 1), __shfl_xor_sync(0xffffffffu, index, 1));
    strike_label(facts.i, 0, index);

    const T error = score_error(bound, facts.norm, facts.rounding);
    // A score of exactly 0 becomes a number below all normal ones.
    const T twin = k_checks ? this->fold(twins, [](T x, T y) { return max(x, y); }) : best;
    // By the chain of its own: the room that a wrong score has must not grow with it.
    const T carried = sizeof(T) == 4 ? fma(static_cast<T>(k_ordinal_error), abs(twin), smallest_normal<T>()) : T(0);
    bool wrong = facts.bad || (k_checks && !(abs(best - twin) <= carried));
    const T room = fma(bound.distance, facts.norm + abs(twin), static_cast<T>(1e-37));  // what rounding may add to a distance
    const T spread = 2 * (error + carried);
    const bool near = sizeof(T) == 4 && !(runner_up < best - spread);
    const int k = a.centroids.shape.k;
    decision made;
    // A label that was struck must not reach beyond the centroids; the distance tells.
    made.label = static_cast<unsigned>(index) < static_cast<unsigned>(k) ? index : k - 1;
    made.expected = fma(T(-2), best, facts.norm);
    made.limit = 2 * error + 4 * carried + room;
    made.nearest = fma(T(-2), runner_up + error, facts.norm) + room;
    const bool look = (near || wrong) && facts.i < this->points();
    if (__any_sync(0xffffffffu, look)) {
      wrong = this->any_owner(wrong);
      const bool looks = this->any_owner(look);
      // A candidate's score is at most `spread` below the best one; its distance tells whether it is the column of that score.
      postponed entry{static_cast<double>(made.expected + 3 * spread + room), facts.i, 0, 0, {}};
      unsigned candidates = 0, hidden = 0, one_group = 0;
#pragma unroll
      for (int q = 0; q < k_groups; ++q) {
        // Each of the row's two owners has what is near by its own limit.
        const T least[2] = {this->from_owner(best - spread, q), __shfl_sync(0xffffffffu, best - spread, 2 * q + 1, 4)};
        const auto lanes_with = [&](T score) {
          const unsigned near_first = __ballot_sync(0xffffffffu, score >= least[0]),
                         near_second = __ballot_sync(0xffffffffu, score >= least[1]);
          return (t % 2 == 0 ? near_first : near_second) >> (4 * g) & 15u;
        };
        const unsigned listed = lanes_with(rows[q].first) | lanes_with(rows[q].second) << 4, unseen = lanes_with(rows[q].guard);
        const bool owns = q == this->own_q();
        if (owns) candidates = listed, hidden = unseen;
        if constexpr (sizeof(T) == 4 && !P.single) {
          // Lanes agree on the group, and hide nothing that is near in another one.
          const unsigned mine = group_of(rows[q].guard), group = __shfl_sync(0xffffffffu, mine, __ffs(static_cast<int>(unseen)) - 1, 4);
          const unsigned elsewhere = lanes_with(rows[q].beyond) | (__ballot_sync(0xffffffffu, mine != group) >> (4 * g) & unseen);
          if (owns && unseen != 0 && elsewhere == 0) one_group = k_one_group | group << k_group_shift;
        }
#pragma unroll
        for (int l = 0; l < k_listed; ++l) {
          const int j = __shfl_sync(0xffffffffu, l < 4 ? rows[q].first_index : rows[q].second_index, l & 3, 4);
          if (owns) entry.listed[l] = static_cast<listed_index>(j);
        }
      }
      // The best score is one of those, if it is a number.
      wrong = wrong || (looks && candidates == 0);
      const check why = facts.bad ? facts.failed : check::minimum;
      entry.what = wrong ? k_failed | static_cast<std::uint32_t>(why) << k_check_shift : candidates | hidden << k_lanes_shift | one_group;
      postpone(looks, entry);
      if (looks) made.label = k;
    }
    return made;
  }

  // Puts the own row into the queue, if `put`. Called by the whole warp.
  __device__ __forceinline__ void postpone(bool put, const postponed& entry) const {
    const bool stores = put && t == 2 * this->own_q();
    const unsigned all = __ballot_sync(0xffffffffu, stores);
    const std::uint32_t seal = __shfl_xor_sync(0xffffffffu, seal_of(entry), 1);
    unsigned begin = 0;
    if (lane == 0) begin = static_cast<unsigned>(queued) + atomicAdd(shared.waiting + counter, static_cast<unsigned>(__popc(all)));
    begin = __shfl_sync(0xffffffffu, begin, 0);
    if (!stores) return;
    postponed& to = shared.queue[begin + static_cast<unsigned>(__popc(all & ((1u << lane) - 1)))];
    to = entry;
    to.seal = seal;
  }

  // ---- Second looks ----

  // Lanes whose columns are looked at.
  __device__ static __forceinline__ unsigned lanes_of(std::uint32_t what) {
    return (what & k_failed) != 0 ? 15u : what >> k_lanes_shift & 15u;
  }
  // The nearest of the centroids that are looked at because scores do not list them, by a whole warp for one row.
  __device__ __forceinline__ nearest search_unlisted(const T* x, const T* rows, std::uint32_t what) const {
    const panel_shape& shape = a.centroids.shape;
    column_set among = all_columns(shape.k);
    among.lanes = lanes_of(what);
    const auto search = [&] { return scan<k_looked_together>(x, rows, this->stride(), shape.k, among); };
    if (P.single || sizeof(T) == 8 || (what & k_failed) != 0 || (what & k_one_group) == 0) return search();
    nearest found;
    const int groups = shape.section_tiles / P.tiles;
#pragma unroll 1
    for (int group = static_cast<int>(what >> k_group_shift & k_ordinal_mask); group < shape.sections * groups;
         group += k_ordinal_mask + 1) {
      among.first = group / groups * shape.data_tiles + group % groups * P.tiles;
      among.end = min(among.first + P.tiles, (group / groups + 1) * shape.data_tiles);
      const nearest other = search();
      found.consider(other.distance, other.index);
    }
    return found;
  }

  // An entry of the queue, from memory in each call.
  __device__ __forceinline__ postponed read_entry(int at) const {
    const volatile postponed& from = shared.queue[at];
    postponed made{from.most, from.row, from.what, from.seal, {}};
#pragma unroll
    for (int l = 0; l < k_listed; ++l) made.listed[l] = from.listed[l];
    return made;
  }

  // The exact labels of eight rows of the queue, each by four lanes: number `at`, with what two lanes agreed on. `rows`: the centroids.
  // `fits`: all candidates are as near as their scores say.
  __device__ __forceinline__ nearest choose(const T* x, const T* rows, int at, const postponed& entry, bool& fits) const {
    const int stride = this->stride(), k = a.centroids.shape.k;
    nearest found;
    unsigned left = (entry.what & k_failed) != 0 ? 0u : entry.what & k_candidates;
#pragma unroll 1
    while (__any_sync(0xffffffffu, left != 0)) {
      const bool asked = left != 0;
      const volatile listed_index* const listed = shared.queue[at].listed;
      const auto j = static_cast<int>(listed[asked ? __ffs(static_cast<int>(left)) - 1 : 0]);
      left &= left - 1;
      const bool there = asked && static_cast<unsigned>(j) < static_cast<unsigned>(k);
      const double d = exact_distance<k_looked_together>(x, rows + static_cast<std::int64_t>(there ? j : 0) * stride, stride);
      if (!asked) continue;
      fits = fits && there && d <= entry.most;
      if (there) found.consider(d, j);
    }
    // Those that need more, one after the other.
    unsigned rest = __ballot_sync(0xffffffffu, t == 0 && lanes_of(entry.what) != 0);
    while (rest != 0) {
      const int owner = __ffs(static_cast<int>(rest)) - 1;
      rest &= rest - 1;
      const int which = __shfl_sync(0xffffffffu, entry.row, owner);
      const nearest other = search_unlisted(this->row(which), rows, __shfl_sync(0xffffffffu, entry.what, owner));
      if (lane / 4 == owner / 4) found.consider(other.distance, other.index);
    }
    return found;
  }

  // Decides this warp's share of the queue, adds the rows and stores their labels. What is decided must come out twice, and the label that
  // is added must have the distance that was found.
  __device__ __noinline__ static tally decide_queue(const launch& given, int count) {
    pass_rows self(given);
    self.decide_rows(count);
    return self.counted;
  }
  __device__ __forceinline__ void decide_rows(int count) {
    const int share = (count + k_team_warps - 1) / k_team_warps, mine = warp % k_team_warps * share, end = min(count, mine + share);
    const int k = a.centroids.shape.k;
    // ‖x − c‖² in working precision by four lanes, beside that in double: roundings of a difference, its square and the sums.
    constexpr double unit = abft::unit_roundoff<T>;
    const double slack = 2 * unit * (this->stride() / 4 + 8), tiny = this->stride() * static_cast<double>(smallest_normal<T>());
#pragma unroll 1
    for (int begin = mine; begin < end; begin += 8) {
      const bool there = begin + g < end;
      const int at = there ? begin + g : begin;
      std::uint32_t failed = 0;  // k_failed, and why
      const auto read = [&] {
        postponed entry = read_entry(at);
        const bool intact = seal_of(entry) == entry.seal;
        entry.what = there ? entry.what | failed : 0;
        if (there && !intact) entry.what |= k_failed;
        return entry;
      };
      postponed entry = read();
      const T* const x = this->row(entry.row);
      const int rows[1] = {entry.row};
      bool added = (entry.what & k_added) != 0, good = true;
      int from = static_cast<int>(entry.listed[0]), label = k;  // what was added
      T distance[1];
#pragma unroll 1
      for (int number = 0;; ++number) {
        bool fits = true;
        const nearest found = choose(x, a.centroids.rows, at, entry, fits);
        label = found.index;
        strike_label(entry.row, 1, label);
        // A label that was struck must not reach beyond the centroids; the distance tells.
        label = !there ? k : static_cast<unsigned>(label) < static_cast<unsigned>(k) ? label : k - 1;
        fits = fits && found.distance < 1e308;  // of some centroid
        nearest again = found;
        if constexpr (k_checks) {
          const postponed other = read();
          again = choose(x + arch::opaque(0u), a.centroids.rows + arch::opaque(0u), at, other, fits);
          const bool same = again.index == found.index && again.distance == found.distance && other.what == entry.what;
          fits = (__ballot_sync(0xffffffffu, fits && same) >> (4 * g) & 15u) == 15u;
        }
        if constexpr (k_adds) {
          if (__any_sync(0xffffffffu, added)) {
            const int away[1] = {added ? from : k};
            add_rows<1, true>(rows, away, distance);
          }
        }
        const int to[1] = {label};
        if constexpr (k_checks || k_adds) add_rows<1, false>(rows, to, distance);
        if constexpr (!k_checks) break;
        distance[0] = add_quad(distance[0]);
        good = !there || (fits && fabs(static_cast<double>(distance[0]) - again.distance) <= slack * again.distance + tiny);
        if (!good && (entry.what & k_failed) == 0) failed = k_failed | static_cast<std::uint32_t>(check::distance) << k_check_shift;
        if (__all_sync(0xffffffffu, good) || number >= a.repeats) break;
        added = there, from = label;
        entry = read();
      }
      if (there && t == 0) {
        const std::uint32_t what = entry.what | failed;
        if (k_checks && (what & k_failed) != 0)
          report(given, static_cast<check>(what >> k_check_shift & k_check_mask), a.points.first + entry.row, good && a.repeats > 0);
        arch::add_global((what & k_failed) != 0 || what >> k_lanes_shift != 0 ? &a.totals->scans : &a.totals->looks, 1);
      }
      if (there && t < 2) commit(entry.row, label, distance[0], signature_of(entry.row), label_before(entry.row));
    }
  }

  // Empties the queue if it has more than `room` rows. Called by the whole team, which then sees the same number: a counter is
  // read between two meetings and set to 0 behind the next one, so that none is late.
  __device__ __forceinline__ void empty_queue(int room) {
    meet_team();  // all rows are in the queue
    queued += static_cast<int>(shared.waiting[counter]);
    counter = (counter + 1) % k_counters;
    if (threadIdx.x % (32 * k_team_warps) == 0) shared.waiting[(counter + 1) % k_counters] = 0;
    if (queued <= room) return;
    const tally made = decide_queue(given, queued);
    meet_team();  // the queue has been read
    queued = 0;
    counted.sum[0] += made.sum[0];
    counted.sum[1] += made.sum[1];
    counted.changed += made.changed;
  }

  __device__ __noinline__ static void report(const launch& given, check which, std::int64_t i, bool repaired) {
    ballast::cuda::write_outcome(given, *given.arguments.events, repaired ? abft::outcome::recomputed : abft::outcome::uncorrectable,
                                 abft::finding{}, i, 0, static_cast<std::uint32_t>(which));
  }

  // ---- Sums ----

  __device__ __forceinline__ int pitch() const { return sum_pitch(this->stride()); }
  __device__ __forceinline__ int entries() const { return (a.centroids.shape.k + 1) * pitch(); }

  // Where this lane's sums of cluster j begin: its first number of a slab has place 0, the next one 4.
  using sum_word = std::conditional_t<P.sums == sum_memory::shared, std::uint32_t, unsigned long long>;
  __device__ __forceinline__ sum_word* sums_of(int j) const {
    if constexpr (P.sums == sum_memory::shared) return shared.limbs + (j * pitch() + t);
    if constexpr (P.sums == sum_memory::global) return a.sums + (static_cast<std::int64_t>(j) * (P.words * pitch()) + t);
    return nullptr;
  }
  // Adds a number to the sum at `place` of sums_of(j), or takes it away again.
  template <bool Away>
  __device__ __forceinline__ void add(sum_word* to, int place, T value, T rest, T unit) const {
    std::int32_t word[P.words];
    if constexpr (P.weighted) {
      split<P.words>(value, rest, unit, word);
    } else {
      split<P.words>(value, unit, word);
    }
#pragma unroll
    for (int w = 0; w < P.words; ++w) {
      if constexpr (P.sums == sum_memory::shared) {
        const auto upper = static_cast<std::uint32_t>(upper_limb(word[w]));
        const std::uint32_t lower = lower_limb(word[w]);
        atomicAdd(to + 2 * w * entries() + place, Away ? 0 - upper : upper);
        atomicAdd(to + (2 * w + 1) * entries() + place, Away ? 0 - lower : lower);
      } else {
        const auto whole = static_cast<unsigned long long>(std::int64_t{word[w]});
        arch::add_global(to + w * pitch() + place, Away ? 0 - whole : whole);
      }
    }
  }
  // Counts a point, by one lane of its row. Points of weight 0 are not counted.
  template <bool Away>
  __device__ __forceinline__ void add_member(int j, T weight) const {
    if (!(weight > 0)) return;
    if constexpr (P.sums == sum_memory::shared) {
      atomicAdd(shared.members + j, Away ? 0xffffffffu : 1u);
    } else if constexpr (P.sums == sum_memory::global) {
      arch::add_global(a.members + j, Away ? ~0ull : 1ull);
    }
    if constexpr (P.weighted) add<Away>(sums_of(j) - t, this->stride(), weight, T(0), a.points.unit[a.points.n]);
  }

  // Rows of each four lanes on their way to the sums of their clusters.
  template <int Rows>
  struct addition {
    T weight[Rows];
    int label[Rows];
    const T* centroid[Rows];  // from this lane's first number on
    sum_word* sums[Rows];
  };
  template <int Rows>
  __device__ __forceinline__ addition<Rows> begin_addition(const int (&i)[Rows], const int (&label)[Rows]) const {
    addition<Rows> made;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      made.weight[r] = weight_of(i[r]);
      made.label[r] = label[r];
      made.centroid[r] = a.centroids.rows + static_cast<std::int64_t>(label[r]) * this->stride() + t * k_vector<T>;
      made.sums[r] = sums_of(label[r]);
    }
    return made;
  }
  // distance += this lane's part of ‖x − c‖² over slab s, in working precision.
  template <int Rows>
  __device__ __forceinline__ void measure(const addition<Rows>& of, int s, const features<T> (&value)[Rows], T (&distance)[Rows]) const {
    features<T> near[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) near[r] = load_features(of.centroid[r] + s * k_slab<T>);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        const T d = value[r].at[v] - near[r].at[v];
        distance[r] = fma(d, d, distance[r]);
      }
    }
  }
  // Adds slab s of the rows, or takes it away again.
  template <bool Away, int Rows>
  __device__ __forceinline__ void add_slab(const addition<Rows>& of, int s, const features<T> (&value)[Rows]) const {
    if constexpr (!k_adds) return;
    const int f = s * k_slab<T>;
    const features<T> unit = load_features(a.points.unit + f + t * k_vector<T>);
    if (f + t * k_vector<T> >= a.points.n) return;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        const int place = f + v * 4;
        if constexpr (P.weighted) {
          const T product = rounded_product(of.weight[r], value[r].at[v]);
          add<Away>(of.sums[r], place, product, product_rest(of.weight[r], value[r].at[v], product), unit.at[v]);
        } else {
          add<Away>(of.sums[r], place, value[r].at[v], T(0), unit.at[v]);
        }
      }
    }
  }
  template <bool Away, int Rows>
  __device__ __forceinline__ void end_addition(const addition<Rows>& of) const {
    if constexpr (!k_adds) return;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (t == 0) add_member<Away>(of.label[r], of.weight[r]);
    }
  }

  // Adds rows of each four lanes, by loads of their own, to the sums of their clusters, or takes them away again. With checks: distance is
  // this lane's part of ‖x − c‖² of the label.
  template <int Rows, bool Away>
  __device__ __forceinline__ void add_rows(const int (&i)[Rows], const int (&label)[Rows], T (&distance)[Rows]) const {
    [[maybe_unused]] constexpr int together = Rows == k_groups ? k_slabs_together : k_looked_together;
    const addition<Rows> made = begin_addition(i, label);
    const T* x[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      x[r] = this->row(i[r]) + t * k_vector<T>;
      distance[r] = 0;
    }
#pragma unroll together
    for (int s = 0; s < a.centroids.shape.slabs; ++s) {
      features<T> value[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) value[r] = load_features(x[r] + s * k_slab<T>);
      if constexpr (k_checks) measure(made, s, value, distance);
      add_slab<Away>(made, s, value);
    }
    end_addition<Away>(made);
  }
  // The same for the rows of a tile from the registers that were multiplied. judge() is called when the distances are known, before
  // anything is added: a row that fails gets the label k, of which nobody asks.
  template <class Judge>
  __device__ __forceinline__ void add_held_rows(const int (&i)[k_groups], int (&label)[k_groups], T (&distance)[k_groups],
                                                const loaded (&held)[scores::k_held], Judge&& judge) const {
    const auto values = [&](int s, features<T>(&value)[k_groups]) {
#pragma unroll
      for (int q = 0; q < k_groups; ++q) value[q] = unpacked(held[s].at[q]);
    };
    if constexpr (k_checks) {
      const addition<k_groups> found = begin_addition(i, label);
#pragma unroll
      for (int s = 0; s < P.slabs; ++s) {
        features<T> value[k_groups];
        values(s, value);
        measure(found, s, value, distance);
      }
      judge();
    }
    if constexpr (!k_adds) return;
    const addition<k_groups> made = begin_addition(i, label);
#pragma unroll
    for (int s = 0; s < P.slabs; ++s) {
      features<T> value[k_groups];
      values(s, value);
      add_slab<false>(made, s, value);
    }
    end_addition<false>(made);
  }

  // ---- A tile ----

  __device__ __forceinline__ unsigned long long signature_of(int i) const {
    if constexpr (!k_checks || !k_counts) return 0;
    return arch::load_table(a.points.signature + i);
  }
  __device__ __forceinline__ int label_before(int i) const { return a.previous != nullptr ? arch::load_table(a.previous + i) : -1; }

  // One tile of the warp: labels, sums, and what is counted.
  __device__ __forceinline__ void work(typename scores::stage& panel, int first, int tile, int tiles) {
    row_facts facts;
    facts.i = first + 8 * this->own_q() + g;
    facts.norm = arch::load_table(a.points.norm + facts.i);
    facts.rounding = sizeof(T) == 4 ? arch::load_table(a.points.rounding + facts.i) : T(0);
    facts.projection = k_checks ? arch::load_table(a.points.projection + facts.i) : T(0);
    facts.signature = signature_of(facts.i);
    facts.before = facts.i < this->points() ? label_before(facts.i) : -1;
    row_search<T> rows[k_groups];
    loaded held[scores::k_held];
    this->find(panel, first, tile, tiles, held, rows, facts);
    decision made = decide(rows, facts);
    if (facts.i >= this->points()) made.label = a.centroids.shape.k;
    int i[k_groups];
    int label[k_groups];
    T distance[k_groups];
#pragma unroll
    for (int q = 0; q < k_groups; ++q) {
      i[q] = first + 8 * q + g;
      label[q] = this->from_owner(made.label, q);
      distance[q] = 0;
    }
    // The label that is added is the one that its distance judges, so it is the one that is stored.
    const int added = this->own(label), none = a.centroids.shape.k;
    bool decided = added < none;
    T apart = 0;
    const auto judge = [&] {
      if constexpr (k_checks) {
        apart = this->fold(distance, [](T x, T y) { return x + y; });
        // The distance is that of the score; and nearer than any other centroid can be, so no other label has it.
        const bool fits = abs(apart - made.expected) <= made.limit && (sizeof(T) == 8 || apart <= made.nearest);
        if (__any_sync(0xffffffffu, decided && !fits)) {
          const bool fails = this->any_owner(decided && !fits);
          constexpr std::uint32_t what = k_failed | (k_holds ? 0 : k_added);
          constexpr auto why = static_cast<std::uint32_t>(check::distance) << k_check_shift;
          postpone(fails, {0, facts.i, what | why, 0, {static_cast<listed_index>(added)}});
          if (fails) decided = false;
#pragma unroll
          for (int q = 0; q < k_groups; ++q) label[q] = this->from_owner(fails ? none : added, q);
        }
      }
    };
    if constexpr (k_holds) {
      add_held_rows(i, label, distance, held, judge);
    } else if constexpr (k_checks || k_adds) {
      add_rows<k_groups, false>(i, label, distance);
      judge();
    }
    if (decided) commit(facts.i, added, apart, facts.signature, facts.before);
  }

  // What lane t adds up for row i with this label.
  __device__ __forceinline__ void count(int label, unsigned long long signature, int before, T weight, tally& to) const {
    const bool odd = t % 2 != 0;
    to.sum[0] += odd ? static_cast<unsigned>(label) * signature : signature;
    const unsigned low = odd ? (before == label ? 1u : 0u) : (weight > 0 ? 1u : 0u);
    const unsigned high = odd ? 0u : low * static_cast<unsigned>(label);
    to.sum[1] += static_cast<unsigned long long>(high) << 32 | low;
    to.changed += before != label ? 1u : 0u;
  }

  // Stores the label of row i, and its distance if that is asked for; by two lanes of the row.
  __device__ __forceinline__ void commit(int i, int label, T distance, unsigned long long signature, int before) {
    strike_label(i, 2, label);
    count(label, signature, before, weight_of(i), counted);
    if (t % 2 == 0) {
      a.labels[i] = label;
    } else if constexpr (k_checks && !k_counts) {
      if (a.distances != nullptr) a.distances[i] = distance;
    }
  }
};

}  // namespace ballast::kmeans::cuda
