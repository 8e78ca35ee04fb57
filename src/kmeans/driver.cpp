// One call of K-Means: blocks, groups of blocks, iterations. See driver.hpp.
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include <ballast/error.hpp>

#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "core/counter_rng.hpp"
#include "core/parallel.hpp"

namespace ballast::kmeans {

namespace {

constexpr std::uint64_t k_direction_seed = 0x646972656374;
constexpr std::int64_t k_survey_rows = 64;  // rows whose sum is made by itself, so that chains stay short
constexpr int k_attempts = 3;  // the first, and at most two recomputations

// Streams of the counter-based random numbers, for each run of n_init.
enum stream : std::uint64_t { k_stream_pick, k_stream_candidates, k_streams };

template <class Value>
std::size_t at(Value i) {
  return static_cast<std::size_t>(i);
}

// 2^e as T, kept where T has a normal number.
template <class T>
T power_of_two(int e) {
  return std::ldexp(T(1), std::clamp(e, std::numeric_limits<T>::min_exponent, std::numeric_limits<T>::max_exponent - 2));
}

}  // namespace

template <class T>
engine<T>::engine(matrix_view<const T> points, std::span<const T> weights, std::int64_t clusters, const execution& how, std::string token,
                  ballast::backend backend, std::string_view scheme)
    : points_(points), m_(points.rows), n_(points.columns), k_(clusters), how_(how), token_(std::move(token)), threads_(core::thread_count(how.threads)),
      protect_(how.protection != protection::off), kernels_(backend == ballast::backend::reference ? reference_kernels<T>() : cpu_kernels<T>()),
      injector_(how.faults, "kmeans"), recorder_(token_, backend, std::string(scheme), how, injector_) {
  if (backend == ballast::backend::reference) threads_ = 1;
  source_.points = points;
  source_.weights = weights;
  // A block of points, transposed, stays in the second-level cache with room for centroids. Independent of threads and backend.
  constexpr std::int64_t block_bytes = 96 * 1024;
  capacity_ = std::clamp<std::int64_t>(block_bytes / (static_cast<std::int64_t>(sizeof(T)) * n_) / 64 * 64, 64, 512);
  blocks_ = (m_ + capacity_ - 1) / capacity_;
  // Each group has its own k × n sums: enough groups to occupy the threads, few enough that adding them up costs little beside the points.
  groups_ = std::min(blocks_, std::clamp<std::int64_t>(m_ / (4 * k_), 8, 64));
}

// ---- scratch --------------------------------------------------------------------------------------------------------------------------

template <class T>
void engine<T>::allocate(worker& made, bool with_distances) const {
  tile<T>& block = made.block;
  block.n = n_;
  block.capacity = capacity_;
  block.width = kernels_.width;
  block.x = core::aligned_buffer<T>(core::checked_product(capacity_, n_));
  for (auto* each : {&block.weight, &block.norm, &block.minimum, &block.twin, &block.residual}) {
    *each = core::aligned_buffer<T>(capacity_);
    std::fill_n(each->data(), capacity_, T(0));
  }
  for (auto* each : {&block.index, &block.index_twin, &block.label}) {
    *each = core::aligned_buffer<std::int32_t>(capacity_);
    std::fill_n(each->data(), capacity_, 0);
  }
  block.exact = core::aligned_buffer<double>(capacity_);
  if (with_distances) block.distance = core::aligned_buffer<T>(k_group * capacity_);
  made.labels.resize(at(capacity_));
}

template <class T>
void engine<T>::prepare_workers(bool with_distances) {
  if (workers_.empty()) workers_.resize(at(threads_));
  if (protect_ && facts_.empty()) {
    facts_.resize(at(blocks_));
    block_facts unknown;
    unknown.norms[0] = -1;
    fact_twins_.assign(at(blocks_), unknown);
  }
  for (worker& each : workers_) {
    if (each.block.capacity == 0 || (with_distances && each.block.distance.size() == 0)) allocate(each, with_distances);
  }
}

template <class T>
void engine<T>::load(worker& here, std::int64_t block) {
  here.block.first = block * capacity_;
  here.block.count = std::min(capacity_, m_ - here.block.first);
  kernels_.load(source_, here.block);
}

// ---- survey ---------------------------------------------------------------------------------------------------------------------------

// One group's sums over the points as they are, or over x. Row by row with a chain for each feature.
template <class T>
void engine<T>::survey_group(std::int64_t group, bool centred) {
  group_survey& seen = surveys_[at(group)];
  const std::int64_t begin = first_block(group) * capacity_;
  const std::int64_t end = std::min(first_block(group + 1) * capacity_, m_);
  std::vector<T> row(at(n_));
  const auto fetch = [&](std::int64_t i) -> const T* {
    if (points_.column_stride == 1) return points_.data + i * points_.row_stride;
    for (std::int64_t f = 0; f < n_; ++f) row[at(f)] = points_(i, f);
    return row.data();
  };
  if (!centred) {
    std::vector<T> low(at(n_), std::numeric_limits<T>::infinity()), high(at(n_), -std::numeric_limits<T>::infinity()), poison(at(n_), T(0));
    seen.sum.assign(at(n_), 0.0);
    for (std::int64_t i = begin; i < end; ++i) {
      const T* x = fetch(i);
      for (std::int64_t f = 0; f < n_; ++f) {
        low[at(f)] = x[f] < low[at(f)] ? x[f] : low[at(f)];
        high[at(f)] = x[f] > high[at(f)] ? x[f] : high[at(f)];
        poison[at(f)] += x[f] * 0;  // NaN as soon as one is not finite
        seen.sum[at(f)] += static_cast<double>(x[f]) * 0x1p-64;  // m < 2⁶³: no overflow
      }
    }
    seen.low.assign(low.begin(), low.end());
    seen.high.assign(high.begin(), high.end());
    seen.poison.assign(poison.begin(), poison.end());
    return;
  }
  const bool weighted = !source_.weights.empty();
  seen.first.assign(at(n_), 0.0);
  seen.plain.assign(weighted ? at(n_) : 0, 0.0);
  seen.squares.assign(at(n_), 0.0);
  seen.total_square = seen.weight = seen.members = 0;
  seen.count = static_cast<double>(end - begin);
  const T scale = source_.scale;
  const T* shift = source_.shift.data();
  std::vector<double> some(at(n_)), weighted_some(seen.plain.size());
  for (std::int64_t part = begin; part < end; part += k_survey_rows) {
    std::ranges::fill(some, 0.0);
    std::ranges::fill(weighted_some, 0.0);
    double weight_sum = 0;
    for (std::int64_t i = part; i < std::min(part + k_survey_rows, end); ++i) {
      const T* x = fetch(i);
      double square = 0;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double value = static_cast<double>(x[f] * scale - shift[f]);
        some[at(f)] += value;
        seen.squares[at(f)] += value * value;
        square += value * value;
      }
      seen.total_square += square;
      if (!weighted) continue;
      const double weight = static_cast<double>(source_.weights[at(i)] * source_.weight_scale);
      for (std::int64_t f = 0; f < n_; ++f) weighted_some[at(f)] += weight * static_cast<double>(x[f] * scale - shift[f]);
      weight_sum += weight;
      seen.members += weight > 0 ? 1 : 0;
    }
    for (std::int64_t f = 0; f < n_; ++f) (weighted ? seen.plain : seen.first)[at(f)] += some[at(f)];
    for (std::size_t f = 0; f < weighted_some.size(); ++f) seen.first[f] += weighted_some[f];
    seen.weight += weight_sum;
  }
  if (!weighted) seen.weight = seen.members = seen.count;
}

// whole_ = Σ surveys_.
template <class T>
void engine<T>::add_surveys() {
  whole_ = {};
  whole_.first.assign(at(n_), 0.0);
  whole_.plain.assign(source_.weights.empty() ? 0 : at(n_), 0.0);
  whole_.squares.assign(at(n_), 0.0);
  for (const group_survey& seen : surveys_) {
    for (std::int64_t f = 0; f < n_; ++f) {
      whole_.first[at(f)] += seen.first[at(f)];
      whole_.squares[at(f)] += seen.squares[at(f)];
    }
    for (std::size_t f = 0; f < whole_.plain.size(); ++f) whole_.plain[f] += seen.plain[f];
    whole_.total_square += seen.total_square;
    whole_.weight += seen.weight;
    whole_.members += seen.members;
    whole_.count += seen.count;
  }
}

// Finds scale and shift, and refuses NaN and Inf. `centroids`, if there are any, only widen the range that the scale is made for.
template <class T>
void engine<T>::survey(matrix_view<const T> centroids) {
  surveys_.assign(at(groups_), {});
  core::parallel_for(threads_, groups_, [&](std::int64_t g, int) { survey_group(g, false); });
  source_.shift.assign(at(n_), T(0));
  std::vector<T> mean(at(n_));
  double largest = 0;  // |point|
  double spread = 0;   // |point − mean| / 4, so that it does not overflow
  for (std::int64_t f = 0; f < n_; ++f) {
    double low = std::numeric_limits<double>::infinity(), high = -low, poison = 0, sum = 0;
    for (const group_survey& seen : surveys_) {
      low = std::min(low, seen.low[at(f)]);
      high = std::max(high, seen.high[at(f)]);
      poison += seen.poison[at(f)];
      sum += seen.sum[at(f)];
    }
    if (!(poison == 0)) {
      for (std::int64_t i = 0; i < m_; ++i) {
        if (!std::isfinite(points_(i, f)))
          throw invalid_argument_error(fmt::format("{}: points: expected finite numbers, got {} in row {}, column {}", token_, points_(i, f), i, f));
      }
    }
    // Any shift is right; one outside the data would only be inaccurate.
    mean[at(f)] = static_cast<T>(std::clamp(sum / static_cast<double>(m_) * 0x1p64, low, high));
    largest = std::max({largest, std::abs(low), std::abs(high)});
    spread = std::max({spread, high / 4 - static_cast<double>(mean[at(f)]) / 4, static_cast<double>(mean[at(f)]) / 4 - low / 4});
  }
  double nearest = std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    double far = 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      if (!std::isfinite(centroids(j, f)))
        throw invalid_argument_error(fmt::format("{}: centroids: expected finite numbers, got {} in row {}, column {}", token_, centroids(j, f), j, f));
      far = std::max(far, std::abs(static_cast<double>(centroids(j, f)) / 4 - static_cast<double>(mean[at(f)]) / 4));
    }
    nearest = std::min(nearest, far);
  }
  if (centroids.rows > 0) spread = std::max(spread, nearest);
  int exponent = 0;
  if (spread > 0) exponent = -(std::ilogb(spread) + 2);
  // largest · scale must stay finite, too.
  if (largest > 0) exponent = std::min(exponent, std::numeric_limits<T>::max_exponent - 4 - std::ilogb(largest));
  source_.scale = power_of_two<T>(exponent);
  for (std::int64_t f = 0; f < n_; ++f) source_.shift[at(f)] = mean[at(f)] * source_.scale;
  if (!source_.weights.empty()) {
    const T most = *std::ranges::max_element(source_.weights);
    source_.weight_scale = power_of_two<T>(-std::ilogb(most));
  }
}

// The mean of the features' variances, in the units of x; on the way the sums of squares that thresholds need. Two sums over the same
// numbers, by features and by rows, must agree.
template <class T>
double engine<T>::variance() {
  core::parallel_for(threads_, groups_, [&](std::int64_t g, int slot) {
    bool failed = false;
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      survey_group(g, true);
      const group_survey& seen = surveys_[at(g)];
      const double by_features = std::accumulate(seen.squares.begin(), seen.squares.end(), 0.0);
      const double limit = 1e-12 * std::sqrt(static_cast<double>(m_)) * seen.total_square;
      const double residual = by_features - seen.total_square;
      if (!protect_) return;
      recorder_.checked(1);
      if (abft::verify(residual, abft::guarded_threshold(limit)) == abft::k_pass) {
        if (failed) recorder_.detected("kmeans.variance", g, residual, limit, action::recomputed, slot);
        return;
      }
      failed = true;
      if (!repairs() || attempt + 1 == k_attempts) {
        recorder_.detected("kmeans.variance", g, residual, limit, action::uncorrectable, slot);
        return;
      }
    }
  });
  add_surveys();
  double sum = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    const double mean = (whole_.plain.empty() ? whole_.first : whole_.plain)[at(f)] / static_cast<double>(m_);
    sum += std::max(0.0, whole_.squares[at(f)] / static_cast<double>(m_) - mean * mean);
  }
  return sum / static_cast<double>(n_);
}

template <class T>
void engine<T>::read_point(std::int64_t i, T* to) const {
  for (std::int64_t f = 0; f < n_; ++f) to[f] = points_(i, f) * source_.scale - source_.shift[at(f)];
}

// Centroids in the coordinates of x. One that is a million times as far away as the data can win no point; it is moved nearer, so that its
// fourth power is a number and the limits of the row checks stay useful.
template <class T>
std::vector<T> engine<T>::to_scaled(matrix_view<const T> centroids) const {
  constexpr T far = 0x1p20;
  std::vector<T> made(at(core::checked_product(centroids.rows, n_)));
  for (std::int64_t j = 0; j < centroids.rows; ++j) {
    for (std::int64_t f = 0; f < n_; ++f)
      made[at(j * n_ + f)] = std::clamp(centroids(j, f) * source_.scale - source_.shift[at(f)], -far, far);
  }
  return made;
}

// ---- centroids ------------------------------------------------------------------------------------------------------------------------

// Takes the centroids for a pass: verifies that they are what was sealed, packs them and verifies the checksum centroids.
template <class T>
void engine<T>::make_verified_panel(sealed_centroids<T>& centroids, panel<T>& made) {
  const inject::place here = {0, 1, 1, 2};
  injector_.strike(inject::site::kmeans_centroid, here, centroids.data(), centroids.size());
  if (!protect_) {
    make_panel(centroids.values().data(), k_, n_, false, made);
    return;
  }
  recorder_.checked(1);
  if (repairs()) {
    using state = typename sealed_centroids<T>::state;
    const state found = centroids.verify();
    if (found == state::repaired) recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::corrected, 0);
    if (found == state::lost) recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  } else if (!centroids.intact()) {
    recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  }
  bool failed = false;
  double worst = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    make_panel(centroids.values().data(), k_, n_, true, made);
    injector_.strike(inject::site::kmeans_checksum, {}, made.checksum.data(), made.checksum.size());
    worst = verify_checksum(made);
    recorder_.checked(static_cast<std::uint64_t>(made.groups * n_));
    if (abft::verify(worst, abft::guarded_threshold(1)) == abft::k_pass) {
      if (failed) {
        recorder_.detected("kmeans.checksum", -1, worst, 1, action::recomputed, 0);
        recorder_.false_alarm();
      }
      return;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.checksum", -1, worst, 1, action::uncorrectable, 0);
}

// ---- one block ------------------------------------------------------------------------------------------------------------------------

// Loads a block and verifies that x is what it was at the first load. At the first load it is compared with the points by way of another
// order of summation.
template <class T>
void engine<T>::load_verified(worker& here, int slot, std::int64_t block) {
  tile<T>& b = here.block;
  block_facts& kept = facts_[at(block)];
  block_facts& twin = fact_twins_[at(block)];
  b.cells = kept.norms;
  bool failed = false;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load(here, block);
    injector_.strike(inject::site::kmeans_points, at_block(block), b.x.data(), (b.count + b.width - 1) / b.width * b.width * n_);
    std::uint64_t found[64] = {};
    kernels_.sign(b, found);
    // Both copies are equal once they are known; one that was hit while it waited is made again.
    if (attempt > 0 || !(kept == twin)) {
      kept = {};
      kernels_.sign_source(source_, b, kept.lanes);
      kernels_.measure(b);
      const std::int64_t cell = cell_points(b);
      for (std::int64_t p = 0; p < b.count; ++p) {
        double& largest = kept.norms[p / cell];
        largest = std::max(largest, static_cast<double>(b.norm[p]));
      }
      twin = kept;
    }
    recorder_.checked(1);
    if (std::equal(std::begin(found), std::end(found), kept.lanes)) {
      if (failed) recorder_.detected("kmeans.points", b.first, std::nan(""), 0, action::recomputed, slot);
      return;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.points", b.first, std::nan(""), 0, action::uncorrectable, slot);
}

// Labels a block. On return at.block.label has been verified, or the failure is on record.
template <class T>
void engine<T>::assign_block(worker& here, int slot, std::int64_t block, const panel<T>& centroids, const sealed_centroids<T>& origin, bool keep) {
  using inject::site;
  tile<T>& b = here.block;
  const inject::place place = at_block(block);
  const auto copy_labels = [&] {
    injector_.strike(site::kmeans_index, place, b.index.data(), b.count);
    std::copy_n(b.index.data(), b.count, b.label.data());
    injector_.strike(site::kmeans_label, place, b.label.data(), b.count);
  };
  const auto keep_in_range = [&] {
    for (std::int64_t p = 0; p < b.count; ++p) {
      if (static_cast<std::uint64_t>(static_cast<std::uint32_t>(b.label[p])) >= static_cast<std::uint64_t>(k_))
        b.label[p] = static_cast<std::int32_t>(k_ - 1);
    }
  };
  if (!protect_) {
    load(here, block);
    injector_.strike(site::kmeans_points, place, b.x.data(), (b.count + b.width - 1) / b.width * b.width * n_);
    (void)kernels_.assign(centroids, false, keep, {&injector_, place}, b);
    copy_labels();
    // A label that was hit must not reach beyond the centroids.
    keep_in_range();
    return;
  }
  const panel<T>* use = &centroids;
  finding first;
  double limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load_verified(here, slot, block);
    b.bounds = use->bounds;
    const auto strike = [&](std::int64_t step, std::vector<abft::guarded_threshold>& limits) {
      injector_.strike(site::kmeans_threshold, {block, blocks_, step, 2}, &limits[0].value, 2 * use->groups);
    };
    strike(0, b.bounds.slope);
    strike(1, b.bounds.offset);
    finding found = kernels_.assign(*use, true, keep, {&injector_, place}, b);
    copy_labels();
    if (found.row < 0) found = kernels_.check(b, k_);
    std::uint32_t word = abft::verify(found.residual, abft::guarded_threshold(0));
    for (std::int64_t g = 0; g < use->groups; ++g) {
      if (abft::verify(0, b.bounds.slope[at(g)]) != abft::k_pass || abft::verify(0, b.bounds.offset[at(g)]) != abft::k_pass) word = abft::k_fail;
    }
    injector_.strike(site::kmeans_comparison, place, &word, 1);
    recorder_.checked(static_cast<std::uint64_t>(b.count * (use->groups + 2)));
    if (word == abft::k_pass) {
      if (attempt == 0) return;
      recorder_.detected("kmeans.assignment", first.row, first.residual, limit, action::recomputed, slot);
      if (std::equal(here.labels.begin(), here.labels.begin() + b.count, b.label.data())) recorder_.false_alarm();
      return;
    }
    if (attempt == 0) {
      first = found;
      if (first.row < 0) first.row = b.first;
      limit = use->bounds.offset[0].value;
      std::copy_n(b.label.data(), b.count, here.labels.begin());
    }
    if (!repairs()) break;
    // The shared panel may be what was hit: the next attempt makes its own.
    if (attempt + 1 < k_attempts) {
      make_panel(origin.values().data(), k_, n_, true, here.fresh);
      use = &here.fresh;
    }
  }
  recorder_.detected("kmeans.assignment", first.row, first.residual, limit, action::uncorrectable, slot);
  keep_in_range();
}

// The distances of a block to one group of centroids. False if they could not be verified.
template <class T>
bool engine<T>::distances_block(worker& here, int slot, std::int64_t block, const panel<T>& centroids, const T* origin, std::int64_t group,
                                bool strike) {
  tile<T>& b = here.block;
  const panel<T>* use = &centroids;
  inject::active_injector quiet(nullptr, "kmeans");
  inject::place place = {block, blocks_, group, centroids.groups};
  finding first;
  double limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load(here, block);
    b.bounds = use->bounds;
    kernels_.distances(*use, group, protect_, {strike ? &injector_ : &quiet, place}, b);
    if (!protect_) return true;
    finding found;
    for (std::int64_t p = 0; p < b.count; ++p) {
      if (!(b.residual[p] == 0)) found = {b.residual[p], b.first + p};
    }
    recorder_.checked(static_cast<std::uint64_t>(b.count));
    if (abft::verify(found.residual, abft::guarded_threshold(0)) == abft::k_pass) {
      if (attempt > 0) recorder_.detected("kmeans.distance", first.row, first.residual, limit, action::recomputed, slot);
      return true;
    }
    if (attempt == 0) {
      first = found;
      limit = use->bounds.offset[at(group)].value;
    }
    if (!repairs()) break;
    if (attempt + 1 < k_attempts) {
      make_panel(origin, centroids.k, n_, true, here.fresh);
      use = &here.fresh;
    }
  }
  recorder_.detected("kmeans.distance", first.row, first.residual, limit, action::uncorrectable, slot);
  return false;
}

// ---- first centroids ------------------------------------------------------------------------------------------------------------------

template <class T>
std::vector<T> engine<T>::seed(const options<T>& wanted, std::uint64_t run) {
  switch (wanted.init) {
    case init::given: return to_scaled(wanted.centroids);
    case init::random: return seed_random(wanted.seed, run * k_streams);
    case init::kmeans_plus_plus: break;
  }
  return seed_plus_plus(wanted.seed, run * k_streams);
}

// k different points, those of positive weight first: a partial Fisher–Yates shuffle of which only the touched places are kept.
template <class T>
std::vector<T> engine<T>::seed_random(std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int64_t> order;
  if (!source_.weights.empty()) {
    for (std::int64_t i = 0; i < m_; ++i)
      if (source_.weights[at(i)] > 0) order.push_back(i);
  }
  const std::int64_t count = source_.weights.empty() ? m_ : static_cast<std::int64_t>(order.size());
  std::unordered_map<std::int64_t, std::int64_t> moved;
  const auto place = [&](std::int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<T> made(at(core::checked_product(k_, n_)));
  std::int64_t unweighted = 0;
  for (std::int64_t j = 0; j < k_; ++j) {
    std::int64_t chosen;
    if (j < count) {
      const std::int64_t other = j + static_cast<std::int64_t>(core::random_bits(seed, stream + k_stream_pick, at(j)) % static_cast<std::uint64_t>(count - j));
      chosen = place(other);
      moved[other] = place(j);
      if (!order.empty()) chosen = order[at(chosen)];
    } else {
      while (source_.weights[at(unweighted)] > 0) ++unweighted;
      chosen = unweighted++;
    }
    read_point(chosen, made.data() + j * n_);
  }
  return made;
}

// Greedy k-means++: each step draws 2 + ⌊ln k⌋ candidates with probability proportional to weight · (distance to the nearest centroid so
// far)² and takes the one that leaves the least potential Σ weight · distance². The sums of blocks are kept; each is computed again from
// the distances before they are used, and must be the same bit for bit.
template <class T>
std::vector<T> engine<T>::seed_plus_plus(std::uint64_t seed, std::uint64_t stream) {
  prepare_workers(true);
  const std::int64_t trials = std::min<std::int64_t>(2 + static_cast<std::int64_t>(std::log(static_cast<double>(k_))), k_group);
  std::vector<T> made(at(core::checked_product(k_, n_)));
  std::vector<T> closest(at(m_), std::numeric_limits<T>::max());
  std::vector<double> block_sums(at(blocks_));
  std::vector<double> potentials(at(blocks_ * trials));
  std::vector<T> drawn(at(trials * n_));
  panel<T> probe;

  const auto sum_block = [&](std::int64_t block, const T* distance, const T* weight) {
    const std::int64_t first = block * capacity_;
    const std::int64_t count = std::min(capacity_, m_ - first);
    double sum = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      const T nearest = distance == nullptr ? closest[at(first + p)] : std::min(closest[at(first + p)], distance[p]);
      sum += static_cast<double>(weight[p]) * static_cast<double>(nearest);
    }
    return sum;
  };
  // Adds the centroid `row` to those that `closest` knows, in one block.
  const auto include = [&](worker& here, int slot, std::int64_t block, const panel<T>& one, const T* row, bool strike) {
    distances_block(here, slot, block, one, row, 0, strike);
    const std::int64_t first = block * capacity_;
    for (std::int64_t p = 0; p < here.block.count; ++p) closest[at(first + p)] = std::min(closest[at(first + p)], here.block.distance[p]);
    block_sums[at(block)] = sum_block(block, nullptr, here.block.weight.data());
  };
  const auto take = [&](std::int64_t j, const T* row) {
    if (row != nullptr) std::copy_n(row, n_, made.data() + j * n_);
    make_panel(made.data() + j * n_, 1, n_, protect_, probe);
    core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
      include(workers_[at(slot)], slot, block, probe, made.data() + j * n_, strike_seeding_);
    });
  };
  const auto weight_of = [&](std::int64_t i) {
    return source_.weights.empty() ? T(1) : source_.weights[at(i)] * source_.weight_scale;
  };
  // The point at which the running sum of weight · closest passes `target`; with `closest` not yet known, of weight.
  const auto find_point = [&](double target, bool by_weight) {
    double sum = 0;
    std::int64_t block = 0;
    if (!by_weight) {
      while (block + 1 < blocks_ && sum + block_sums[at(block)] <= target) sum += block_sums[at(block++)];
    }
    std::int64_t last = -1;
    for (std::int64_t i = block * capacity_; i < m_; ++i) {
      const double part = static_cast<double>(weight_of(i)) * (by_weight ? 1.0 : static_cast<double>(closest[at(i)]));
      if (!(part > 0)) continue;
      last = i;
      sum += part;
      if (sum > target) return i;
    }
    return last;
  };

  double total_weight = 0;
  for (std::int64_t i = 0; i < m_; ++i) total_weight += static_cast<double>(weight_of(i));
  std::int64_t start = find_point(core::random_uniform(seed, stream + k_stream_pick, 0) * total_weight, true);
  read_point(std::max<std::int64_t>(start, 0), made.data());
  take(0, nullptr);

  for (std::int64_t j = 1; j < k_ && !stop(); ++j) {
    double potential = 0;
    for (const double each : block_sums) potential += each;
    for (std::int64_t t = 0; t < trials; ++t) {
      const double draw = core::random_uniform(seed, stream + k_stream_candidates, at(j * trials + t));
      // With no potential left every point is a centroid already: any will do.
      std::int64_t chosen = potential > 0 ? find_point(draw * potential, false) : -1;
      if (chosen < 0) chosen = std::min(m_ - 1, static_cast<std::int64_t>(draw * static_cast<double>(m_)));
      read_point(chosen, drawn.data() + t * n_);
    }
    make_panel(drawn.data(), trials, n_, protect_, probe);
    core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
      worker& here = workers_[at(slot)];
      distances_block(here, slot, block, probe, drawn.data(), 0, strike_seeding_);
      tile<T>& b = here.block;
      if (protect_) {
        recorder_.checked(1);
        const double kept = block_sums[at(block)];
        const double again = sum_block(block, nullptr, b.weight.data());
        if (!(again == kept)) {
          // `closest` or its sum was hit while it waited: from all centroids so far, once more.
          std::fill_n(closest.begin() + b.first, b.count, std::numeric_limits<T>::max());
          for (std::int64_t c = 0; c < j; ++c) {
            panel<T> one;
            make_panel(made.data() + c * n_, 1, n_, true, one);
            include(here, slot, block, one, made.data() + c * n_, false);
          }
          recorder_.detected("kmeans.closest", b.first, again - kept, 0, repairs() ? action::recomputed : action::uncorrectable, slot);
          distances_block(here, slot, block, probe, drawn.data(), 0, false);
        }
      }
      for (std::int64_t t = 0; t < trials; ++t) potentials[at(block * trials + t)] = sum_block(block, b.distance.data() + t * capacity_, b.weight.data());
    });
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < trials; ++t) {
      double sum = 0;
      for (std::int64_t block = 0; block < blocks_; ++block) sum += potentials[at(block * trials + t)];
      if (sum < least) {
        least = sum;
        best = t;
      }
    }
    take(j, drawn.data() + best * n_);
    if (!protect_) continue;
    // The update came the other way to the same sums as the candidates did.
    for (std::int64_t block = 0; block < blocks_; ++block) {
      recorder_.checked(1);
      const double expected = potentials[at(block * trials + best)];
      for (int attempt = 1; !(block_sums[at(block)] == expected); ++attempt) {
        const double residual = block_sums[at(block)] - expected;
        if (!repairs() || attempt == k_attempts) {
          recorder_.detected("kmeans.closest", block * capacity_, residual, 0, action::uncorrectable, 0);
          break;
        }
        include(workers_[0], 0, block, probe, made.data() + j * n_, false);
        if (block_sums[at(block)] == expected) recorder_.detected("kmeans.closest", block * capacity_, residual, 0, action::recomputed, 0);
      }
    }
  }
  return made;
}

// ---- Lloyd ----------------------------------------------------------------------------------------------------------------------------

template <class T>
void clear(partial<T>& sums) {
  std::fill_n(sums.sums.data(), sums.sums.size(), 0.0);
  std::fill_n(sums.weights.data(), sums.weights.size(), 0.0);
  std::fill_n(sums.members.data(), sums.members.size(), 0);
  sums.labelled_projection = sums.labelled_weight = sums.labelled_members = 0;
  sums.changed = sums.changed_twin = 0;
}

// The invariants of the sums of one group, or of all. For each feature Σ_c S_c = Σ_i w_i x_i, which never changes; and, so that no point
// is in the sum of a wrong cluster, Σ_c c (S_c · r) = Σ_i label_i w_i (x_i · r) with a random direction r. The same for weights, and
// exactly for members.
template <class T>
auto engine<T>::verify_partial(const partial<T>& sums, const group_survey& expected) const -> failed_sum {
  failed_sum found;
  const auto compare = [&](double residual, double threshold) {
    if (abft::verify(residual, abft::guarded_threshold(threshold)) == abft::k_pass) return;
    found = {residual, threshold, false};
  };
  std::vector<double> first(at(n_), 0.0), second(at(n_), 0.0);
  double first_weight = 0, second_weight = 0, first_members = 0, second_members = 0;
  double most = 0;  // points of one cluster
  bool in_range = true;
  const bool weighted = sums.weights.size() != 0;
  for (std::int64_t j = 0; j < k_; ++j) {
    const double factor = static_cast<double>(j);
    const double* row = sums.sums.data() + j * n_;
    for (std::int64_t f = 0; f < n_; ++f) {
      first[at(f)] += row[f];
      second[at(f)] += factor * row[f];
    }
    const double members = static_cast<double>(sums.members[j]);
    in_range = in_range && members >= 0 && members <= expected.count;
    most = std::max(most, members);
    first_members += members;
    second_members += factor * members;
    if (weighted) {
      first_weight += sums.weights[j];
      second_weight += factor * sums.weights[j];
    }
  }
  const double k = static_cast<double>(k_);
  const double count = expected.count;
  // Weights are below 2 after scaling.
  const double factor = weighted ? 2 : 1;
  const double chain = most + k_survey_rows + count / k_survey_rows;
  double labelled = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    compare(first[at(f)] - expected.first[at(f)], abft::kmeans_sum_limit(chain + k, count, factor * std::sqrt(expected.squares[at(f)])));
    labelled += second[at(f)] * direction_[at(f)];
  }
  // Directions are below 2 in size, of random sign. A projection is a chain of n products, and its labels are summed in chains of a block;
  // the other side sums over k clusters.
  const double longest = chain + static_cast<double>(n_ + capacity_ + k_);
  compare(labelled - sums.labelled_projection, k * abft::kmeans_sum_limit(longest, count, 4 * factor * std::sqrt(expected.total_square)));
  if (weighted) {
    compare(first_weight - expected.weight, abft::kmeans_sum_limit(chain + k, 1, expected.weight));
    compare(second_weight - sums.labelled_weight, k * abft::kmeans_sum_limit(longest, 1, expected.weight));
  }
  if (!in_range || first_members != expected.members || second_members != sums.labelled_members || sums.changed != sums.changed_twin)
    found = {first_members - expected.members, 0, false};
  return found;
}

// Assigns the points of one group of blocks and sums them up by cluster.
template <class T>
void engine<T>::run_group(std::int64_t group, int slot, const panel<T>& centroids, const sealed_centroids<T>& origin, const std::int32_t* old,
                          std::int32_t* labels) {
  using inject::site;
  worker& here = workers_[at(slot)];
  partial<T>& sums = partials_[at(group)];
  const inject::place place = {group, groups_, 0, 1};
  failed_sum worst;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    clear(sums);
    // What is kept from earlier passes may have been hit while it waited.
    if (attempt > 0) survey_group(group, true);
    for (std::int64_t block = first_block(group); block < first_block(group + 1); ++block) {
      // What is streamed from memory after the labels are found is fetched while they are.
      const std::int64_t begin = block * capacity_;
      const std::int64_t end = std::min(begin + capacity_, m_);
      for (std::int64_t i = begin; i < end; i += 16) __builtin_prefetch(old + i);
      for (std::int64_t i = begin; protect_ && i < end; i += 8) __builtin_prefetch(projections_.data() + i);
      assign_block(here, slot, block, centroids, origin);
      tile<T>& b = here.block;
      kernels_.accumulate(source_, b, sums);
      const std::int32_t* before = old + b.first;
      std::int32_t* after = labels + b.first;
      std::int32_t changed = 0;
      for (std::int64_t p = 0; p < b.count; ++p) {
        changed += b.label[p] != before[p] ? 1 : 0;
        after[p] = b.label[p];
      }
      sums.changed += changed;
      if (!protect_) continue;
      double* projection = projections_.data() + b.first;
      if (attempt > 0 || projected_[at(block)] == 0) kernels_.project(b, direction_.data(), projection);
      projected_[at(block)] = 1;
      kernels_.sum_labels(b, projection, sums);
      std::int32_t same = 0;
      for (std::int64_t p = 0; p < b.count; ++p) same += after[p] == before[p] ? 1 : 0;
      sums.changed_twin += b.count - same;
    }
    injector_.strike(site::kmeans_sum, place, sums.sums.data(), sums.sums.size());
    if (sums.weights.size() != 0) {
      injector_.strike(site::kmeans_count, place, sums.weights.data(), sums.weights.size());
    } else {
      injector_.strike(site::kmeans_count, place, sums.members.data(), sums.members.size());
    }
    if (!protect_) return;
    const failed_sum found = verify_partial(sums, surveys_[at(group)]);
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    if (found.ok) {
      if (attempt > 0) recorder_.detected("kmeans.sums", group, worst.residual, worst.threshold, action::recomputed, slot);
      return;
    }
    if (attempt == 0) worst = found;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.sums", group, worst.residual, worst.threshold, action::uncorrectable, slot);
}

// total_ = Σ partials_, in their order.
template <class T>
void engine<T>::add_partials() {
  clear(total_);
  const std::int64_t rows = std::max<std::int64_t>(1, 16384 / n_);
  core::parallel_for(threads_, (k_ + rows - 1) / rows, [&](std::int64_t task, int) {
    const std::int64_t begin = task * rows * n_;
    const std::int64_t end = std::min(begin + rows * n_, k_ * n_);
    for (const partial<T>& each : partials_) {
      for (std::int64_t e = begin; e < end; ++e) total_.sums[e] += each.sums[e];
    }
  });
  for (const partial<T>& each : partials_) {
    for (std::int64_t j = 0; j < k_; ++j)
      total_.members[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(total_.members[j]) + static_cast<std::uint64_t>(each.members[j]));
    for (std::int64_t j = 0; j < total_.weights.size(); ++j) total_.weights[j] += each.weights[j];
    total_.labelled_projection += each.labelled_projection;
    total_.labelled_weight += each.labelled_weight;
    total_.labelled_members += each.labelled_members;
    total_.changed += each.changed;
    total_.changed_twin += each.changed_twin;
  }
}

// Adds up the groups, verifies the whole, and if that fails, finds the group that was hit while it waited.
template <class T>
void engine<T>::combine(const panel<T>& centroids, const sealed_centroids<T>& origin, const std::int32_t* old, std::int32_t* labels) {
  failed_sum worst;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    add_partials();
    if (!protect_) return;
    const failed_sum found = verify_partial(total_, whole_);
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    if (found.ok) {
      if (attempt > 0) recorder_.detected("kmeans.total", -1, worst.residual, worst.threshold, action::recomputed, 0);
      return;
    }
    if (attempt == 0) worst = found;
    if (!repairs() || stop()) break;
    for (std::int64_t g = 0; g < groups_; ++g) {
      if (!verify_partial(partials_[at(g)], surveys_[at(g)]).ok) run_group(g, 0, centroids, origin, old, labels);
    }
    add_surveys();
  }
  if (!stop()) recorder_.detected("kmeans.total", -1, worst.residual, worst.threshold, action::uncorrectable, 0);
}

// Gives each cluster without members the point that is farthest from its centroid, as scikit-learn does: the farthest for the first empty
// cluster, and so on; the lowest index among equals. Rare, so it costs a pass of its own. Distances are computed twice.
template <class T>
void engine<T>::relocate(const sealed_centroids<T>& old, const std::int32_t* labels) {
  std::vector<std::int64_t> empty;
  for (std::int64_t j = 0; j < k_; ++j)
    if (!(total_.members[j] > 0)) empty.push_back(j);
  if (empty.empty()) return;
  std::vector<double> distance(at(m_));
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    load(here, block);
    tile<T>& b = here.block;
    std::copy_n(labels + b.first, b.count, b.label.data());
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      kernels_.exact(source_, old.values().data(), b);
      std::copy_n(b.exact.data(), b.count, distance.begin() + b.first);
      if (!protect_) break;
      kernels_.exact(source_, old.values().data(), b);
      recorder_.checked(1);
      if (std::equal(b.exact.data(), b.exact.data() + b.count, distance.begin() + b.first)) {
        if (attempt > 0) recorder_.detected("kmeans.relocation", b.first, std::nan(""), 0, action::recomputed, slot);
        break;
      }
      if (!repairs() || attempt + 1 == k_attempts) {
        recorder_.detected("kmeans.relocation", b.first, std::nan(""), 0, action::uncorrectable, slot);
        break;
      }
    }
  });
  std::vector<std::int64_t> order;
  order.reserve(at(m_));
  for (std::int64_t i = 0; i < m_; ++i) {
    if (!(distance[at(i)] >= 0)) distance[at(i)] = -1;  // NaN, which only an unprotected fault makes, has no place in an order
    if (source_.weights.empty() || source_.weights[at(i)] > 0) order.push_back(i);
  }
  const std::size_t wanted = std::min(empty.size(), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), order.end(), [&](std::int64_t a, std::int64_t b) {
    return distance[at(a)] != distance[at(b)] ? distance[at(a)] > distance[at(b)] : a < b;
  });
  std::vector<T> x(at(n_));
  for (std::size_t e = 0; e < wanted; ++e) {
    const std::int64_t i = order[e];
    const std::int64_t from = labels[i];
    const std::int64_t to = empty[e];
    const double weight = source_.weights.empty() ? 1.0 : static_cast<double>(source_.weights[at(i)] * source_.weight_scale);
    read_point(i, x.data());
    for (std::int64_t f = 0; f < n_; ++f) {
      total_.sums[from * n_ + f] -= weight * static_cast<double>(x[at(f)]);
      total_.sums[to * n_ + f] = weight * static_cast<double>(x[at(f)]);
    }
    total_.members[to] = 1;
    total_.members[from] -= 1;
    if (total_.weights.size() != 0) {
      total_.weights[to] = weight;
      total_.weights[from] -= weight;
    }
  }
}

// The new centroids: sums over weights. A cluster that is still empty takes the place of the heaviest one.
template <class T>
std::vector<T> engine<T>::divide(const std::vector<T>& old) {
  const auto weight = [&](std::int64_t j) {
    if (!(total_.members[j] > 0)) return 0.0;
    return total_.weights.size() != 0 ? total_.weights[j] : static_cast<double>(total_.members[j]);
  };
  std::int64_t heaviest = 0;
  for (std::int64_t j = 1; j < k_; ++j)
    if (weight(j) > weight(heaviest)) heaviest = j;
  std::vector<T> made(old.size());
  bool failed = false;
  double worst = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      for (std::int64_t f = 0; f < n_; ++f) made[at(j * n_ + f)] = w > 0 ? static_cast<T>(total_.sums[from * n_ + f] / w) : old[at(j * n_ + f)];
    }
    injector_.strike(inject::site::kmeans_centroid, {0, 1, 0, 2}, made.data(), static_cast<std::int64_t>(made.size()));
    if (!protect_) return made;
    // c is the rounded quotient exactly if |c w − S| is at most half a unit in the last place of c, times w.
    worst = 0;
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      if (!(w > 0)) continue;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double sum = total_.sums[from * n_ + f];
        const double residual = std::abs(static_cast<double>(made[at(j * n_ + f)]) * w - sum);
        const double limit = (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>) * std::abs(sum) +
                             w * static_cast<double>(std::numeric_limits<T>::denorm_min()) + std::numeric_limits<double>::denorm_min();
        const double ratio = residual / limit;
        if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
      }
    }
    recorder_.checked(static_cast<std::uint64_t>(made.size()));
    if (abft::verify(worst, abft::guarded_threshold(1)) == abft::k_pass) {
      if (failed) recorder_.detected("kmeans.centroid", -1, std::nan(""), 1, action::recomputed, 0);
      return made;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.centroid", -1, worst, 1, action::uncorrectable, 0);
  return made;
}

// Σ‖a − b‖², summed centroid by centroid, and for verification backwards.
template <class T>
double engine<T>::shift_between(const std::vector<T>& a, const std::vector<T>& b) {
  double shift = 0;
  bool failed = false;
  double residual = 0, limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    shift = 0;
    for (std::size_t e = 0; e < a.size(); ++e) {
      const double d = static_cast<double>(a[e]) - static_cast<double>(b[e]);
      shift += d * d;
    }
    injector_.strike(inject::site::kmeans_shift, {}, &shift, 1);
    if (!protect_) return shift;
    double twin = 0;
    for (std::size_t e = a.size(); e-- > 0;) {
      const double d = static_cast<double>(b[e]) - static_cast<double>(a[e]);
      twin += d * d;
    }
    // Equal terms err alike.
    limit = abft::unit_roundoff<double> * (8 + static_cast<double>(a.size())) * twin;
    const double difference = shift - twin;
    recorder_.checked(1);
    if (abft::verify(difference, abft::guarded_threshold(limit)) == abft::k_pass) {
      if (failed) recorder_.detected("kmeans.shift", -1, residual, limit, action::recomputed, 0);
      return shift;
    }
    if (!failed) residual = difference;
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.shift", -1, residual, limit, action::uncorrectable, 0);
  return shift;
}

// Labels and inertia for centroids in the user's coordinates: exactly what predict does.
template <class T>
double engine<T>::label_all(const std::vector<T>& centroids, std::vector<std::int32_t>& labels) {
  prepare_workers(false);
  sealed_centroids<T> sealed(to_scaled(row_major(centroids.data(), k_, n_)));
  panel<T> shared;
  make_verified_panel(sealed, shared);
  // Inertia is taken from the coordinates as they are, only scaled.
  source<T> plain = source_;
  std::ranges::fill(plain.shift, T(0));
  std::vector<T> scaled(centroids);
  for (T& each : scaled) each *= source_.scale;
  const double limit = 2 * abft::kmeans_distance_limit(abft::unit_roundoff<T>, n_);  // x and c were rounded, too
  std::vector<double> inertia(at(blocks_)), twin(at(blocks_));
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    if (stop()) return;
    tile<T>& b = here.block;
    finding first;
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      // Also what passed the row checks may be what was hit: distances from differences see smaller faults.
      assign_block(here, slot, block, shared, sealed, protect_);
      if (protect_) kernels_.measure(b);
      std::copy_n(b.label.data(), b.count, labels.begin() + b.first);
      kernels_.exact(plain, scaled.data(), b);
      double sum = 0, backwards = 0;
      for (std::int64_t p = 0; p < b.count; ++p) sum += static_cast<double>(b.weight[p]) * b.exact[p];
      inertia[at(block)] = sum;
      if (!protect_) return;
      finding found;
      for (std::int64_t p = b.count; p-- > 0;) {
        backwards += static_cast<double>(b.weight[p]) * b.exact[p];
        const double size = static_cast<double>(b.norm[p]) + static_cast<double>(shared.norms[b.label[p]]);
        const double residual = b.exact[p] - (static_cast<double>(b.minimum[p]) + static_cast<double>(b.norm[p]));
        if (!(std::abs(residual) <= limit * size + std::numeric_limits<T>::min())) found = {std::isnan(residual) ? residual : std::abs(residual), b.first + p};
      }
      if (!(std::abs(sum - backwards) <= 1e-12 * backwards)) found = {std::nan(""), b.first};
      twin[at(block)] = backwards;
      recorder_.checked(static_cast<std::uint64_t>(b.count + 1));
      if (abft::verify(found.residual, abft::guarded_threshold(0)) == abft::k_pass) {
        if (attempt > 0) recorder_.detected("kmeans.inertia", first.row, first.residual, limit, action::recomputed, slot);
        return;
      }
      if (attempt == 0) first = found;
      if (!repairs()) break;
    }
    recorder_.detected("kmeans.inertia", first.row, first.residual, limit, action::uncorrectable, slot);
  });
  double sum = 0, backwards = 0;
  for (std::int64_t block = 0; block < blocks_; ++block) sum += inertia[at(block)];
  if (protect_) {
    for (std::int64_t block = blocks_; block-- > 0;) backwards += twin[at(block)];
    recorder_.checked(1);
    if (!(std::abs(sum - backwards) <= 1e-12 * std::sqrt(static_cast<double>(blocks_)) * backwards) && !recorder_.uncorrectable())
      recorder_.detected("kmeans.inertia", -1, sum - backwards, 0, action::uncorrectable, 0);
  }
  const double unscale = 1 / static_cast<double>(source_.scale);
  return sum * unscale * unscale / static_cast<double>(source_.weight_scale);
}

template <class T>
auto engine<T>::lloyd(std::vector<T> first, const options<T>& wanted, double tolerance) -> outcome {
  prepare_workers(false);
  if (partials_.empty()) {
    partials_.resize(at(groups_));
    const auto allocate_sums = [&](partial<T>& made) {
      made.sums = core::aligned_buffer<double>(core::checked_product(k_, n_));
      if (!source_.weights.empty()) made.weights = core::aligned_buffer<double>(k_);
      made.members = core::aligned_buffer<std::int64_t>(k_);
    };
    for (partial<T>& each : partials_) allocate_sums(each);
    allocate_sums(total_);
    if (protect_) {
      projections_.resize(at(m_));
      projected_.assign(at(blocks_), 0);
      for (std::int64_t f = 0; f < n_; ++f) {
        const auto i = static_cast<std::uint64_t>(f);
        direction_.push_back(abft::random_weight(k_direction_seed, 1, i) * (core::random_bits(k_direction_seed, 2, i) % 2 == 0 ? 1 : -1));
      }
    }
  }
  outcome made;
  std::vector<std::int32_t> labels(at(m_)), old(at(m_), -1);
  sealed_centroids<T> current(std::move(first));
  panel<T> shared;
  for (int i = 0; i < wanted.max_iter && !stop(); ++i) {
    make_verified_panel(current, shared);
    core::parallel_for(threads_, groups_, [&](std::int64_t group, int slot) {
      if (!stop()) run_group(group, slot, shared, current, old.data(), labels.data());
    });
    if (stop()) break;
    combine(shared, current, old.data(), labels.data());
    if (stop()) break;
    relocate(current, labels.data());
    std::vector<T> next = divide(current.values());
    const double shift = shift_between(next, current.values());
    current = sealed_centroids<T>(std::move(next));
    made.iterations = i + 1;
    if (how_.on_progress) how_.on_progress({i + 1, wanted.max_iter, "iteration"});
    if (total_.changed == 0 || shift <= tolerance) {
      made.converged = true;
      break;
    }
    labels.swap(old);
  }
  if (protect_ && !stop()) {
    // The centroids wait a last time.
    if (current.verify() == sealed_centroids<T>::state::lost) recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  }
  made.centroids.resize(at(k_ * n_));
  const double unscale = 1 / static_cast<double>(source_.scale);
  for (std::int64_t j = 0; j < k_; ++j) {
    for (std::int64_t f = 0; f < n_; ++f) {
      const double value = static_cast<double>(current.values()[at(j * n_ + f)]) + static_cast<double>(source_.shift[at(f)]);
      made.centroids[at(j * n_ + f)] = static_cast<T>(value * unscale);
    }
  }
  made.labels = std::move(labels);
  if (!stop()) made.inertia = label_all(made.centroids, made.labels);
  return made;
}

template <class T>
model<T> engine<T>::fit(const options<T>& wanted) {
  survey(wanted.init == init::given ? wanted.centroids : matrix_view<const T>{});
  const double tolerance = wanted.tol * variance();
  const int runs = wanted.init == init::given ? 1 : wanted.n_init;
  outcome best;
  for (int run = 0; run < runs && !(run > 0 && stop()); ++run) {
    outcome made = lloyd(seed(wanted, static_cast<std::uint64_t>(run)), wanted, tolerance);
    if (run == 0 || made.inertia < best.inertia) best = std::move(made);
  }
  model<T> result;
  result.report = recorder_.finish();
  result.centroids = matrix<T>(k_, n_);
  std::ranges::copy(best.centroids, result.centroids.data());
  result.labels = std::move(best.labels);
  result.inertia = best.inertia;
  result.iterations = best.iterations;
  result.converged = best.converged;
  return result;
}

template <class T>
prediction engine<T>::predict(matrix_view<const T> centroids) {
  survey(centroids);
  std::vector<T> rows(at(core::checked_product(k_, n_)));
  for (std::int64_t j = 0; j < k_; ++j)
    for (std::int64_t f = 0; f < n_; ++f) rows[at(j * n_ + f)] = centroids(j, f);
  prediction made;
  made.labels.resize(at(m_));
  made.inertia = label_all(rows, made.labels);
  made.report = recorder_.finish();
  return made;
}

template <class T>
distances<T> engine<T>::transform(matrix_view<const T> centroids) {
  survey(centroids);
  prepare_workers(true);
  sealed_centroids<T> sealed(to_scaled(centroids));
  panel<T> shared;
  make_verified_panel(sealed, shared);
  distances<T> made;
  made.values = matrix<T>(m_, k_);
  const double unscale = 1 / static_cast<double>(source_.scale);
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    for (std::int64_t g = 0; g < shared.groups && !stop(); ++g) {
      distances_block(here, slot, block, shared, sealed.values().data(), g, true);
      const tile<T>& b = here.block;
      const std::int64_t last = std::min((g + 1) * k_group, k_);
      for (std::int64_t p = 0; p < b.count; ++p) {
        T* row = made.values.data() + (b.first + p) * k_;
        for (std::int64_t j = g * k_group; j < last; ++j)
          row[j] = static_cast<T>(std::sqrt(static_cast<double>(b.distance[(j - g * k_group) * capacity_ + p])) * unscale);
      }
    }
  });
  made.report = recorder_.finish();
  return made;
}

template class engine<float>;
template class engine<double>;

}  // namespace ballast::kmeans
