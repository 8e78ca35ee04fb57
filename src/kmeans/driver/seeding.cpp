// First centroids: greedy k-means++, k-means‖, random points, or given ones. All random choices are made here.
// Layer: driver of K-Means (driver.hpp).
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's greedy variant. B. Bahmani, B. Moseley, A. Vattani, R. Kumar,
// S. Vassilvitskii, Scalable K-Means++, VLDB 2012, algorithm 2.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/counter_rng.hpp"
#include "kmeans/driver/driver.hpp"
#include "run/dispatch.hpp"

namespace ballast::kmeans {

namespace {

// Streams of the counter-based random numbers, for each run of n_init.
enum stream : std::uint64_t { k_stream_pick, k_stream_candidates, k_streams };
// The first of those that the rounds of k-means‖ take, one each, with a number for each point. No run comes near 2³² rounds.
constexpr std::uint64_t k_stream_rounds = std::uint64_t{1} << 32;
constexpr int k_more_rounds = 64;  // the most additional rounds of k-means‖, while there are fewer candidates than clusters

// The elements of a partial shuffle that are not at their own index, by index: a hash table with linear probing for up to `most` of them.
class moved_elements {
 public:
  explicit moved_elements(std::int64_t most) : slots_(std::bit_ceil(at(2 * most + 2)), {-1, 0}) {}

  // Returns the element at an index: the index's own number unless another has been put there.
  std::int64_t operator[](std::int64_t index) const {
    const std::pair<std::int64_t, std::int64_t>& found = slots_[slot_of(index)];
    return found.first < 0 ? index : found.second;
  }
  void put(std::int64_t index, std::int64_t element) { slots_[slot_of(index)] = {index, element}; }

 private:
  std::size_t slot_of(std::int64_t index) const {
    std::size_t slot = core::mix64(static_cast<std::uint64_t>(index)) % slots_.size();
    while (slots_[slot].first >= 0 && slots_[slot].first != index) slot = (slot + 1) % slots_.size();
    return slot;
  }
  core::vector<std::pair<std::int64_t, std::int64_t>> slots_;  // index and element; −1: unused
};

}  // namespace

template <class T>
sealed_centroids<T> driver<T>::first_centroids(const options& wanted, matrix_view<const T> given, std::uint64_t run) {
  switch (wanted.init) {
    case init::given: return normalize(given);
    case init::random: return sealed_centroids<T>(draw_different_points(wanted.seed, run * k_streams));
    case init::kmeans_parallel: return sealed_centroids<T>(draw_parallel(wanted, run));
    case init::kmeans_plus_plus: break;
  }
  return sealed_centroids<T>(draw_plus_plus(*engine_, m_, wanted.seed, run * k_streams));
}

// Draws k different points, those of positive weight first: a partial Fisher–Yates shuffle of their list that stores only the positions it
// changed.
template <class T>
core::vector<T> driver<T>::draw_different_points(std::uint64_t seed, std::uint64_t stream) {
  const auto positive = static_cast<std::int64_t>(whole_.members);
  moved_elements list(std::min(k_, positive));
  core::vector<std::int64_t> drawn, rest;
  for (std::int64_t j = 0; j < k_; ++j) {
    if (j >= positive) {
      rest.push_back(j - positive);
      continue;
    }
    const std::int64_t other =
        j + static_cast<std::int64_t>(core::random_bits(seed, stream + k_stream_pick, at(j)) % static_cast<std::uint64_t>(positive - j));
    drawn.push_back(list[other]);
    list.put(other, list[j]);
  }
  core::vector<T> made(at(core::checked_product(k_, n_)));
  engine_->read_points(engine_->rows_at(drawn, true), made.data());
  if (!rest.empty()) engine_->read_points(engine_->rows_at(rest, false), made.data() + static_cast<std::int64_t>(drawn.size()) * n_);
  return made;
}

// Each step draws 2 + ⌊ln k⌋ candidates with probability proportional to weight · (distance to the nearest centroid so far)² and takes the
// one that leaves the least potential Σ weight · distance². `from` has `count` points.
template <class T>
core::vector<T> driver<T>::draw_plus_plus(engine<T>& from, std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t trials = 2 + static_cast<std::int64_t>(std::log(static_cast<double>(k_)));
  core::vector<T> made(at(core::checked_product(k_, n_)));
  core::vector<T> drawn(at(trials * n_));
  core::vector<std::int64_t> rows(at(trials));
  from.begin_seeding(trials);
  const std::int64_t start = std::max<std::int64_t>(from.row_by_weight(core::random_uniform(seed, stream + k_stream_pick, 0)), 0);
  from.read_points({&start, 1}, made.data());
  double potential = from.take_centroid(made.data(), -1);
  for (std::int64_t j = 1; j < k_ && !stop(); ++j) {
    core::vector<double> targets;
    const auto draw_of = [&](std::int64_t t) { return core::random_uniform(seed, stream + k_stream_candidates, at(j * trials + t)); };
    for (std::int64_t t = 0; t < trials; ++t) targets.push_back(draw_of(t) * potential);
    rows.assign(at(trials), -1);
    if (potential > 0) rows = from.rows_by_potential(targets);
    for (std::int64_t t = 0; t < trials; ++t) {
      // With no potential left every point is a centroid already: any will do.
      if (rows[at(t)] < 0) rows[at(t)] = std::min(count - 1, static_cast<std::int64_t>(draw_of(t) * static_cast<double>(count)));
    }
    from.read_points(rows, drawn.data());
    const core::vector<double> left = from.try_candidates(drawn.data(), trials);
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < trials; ++t) {
      if (left[at(t)] < least) {
        least = left[at(t)];
        best = t;
      }
    }
    std::copy_n(drawn.data() + best * n_, n_, made.data() + j * n_);
    potential = from.take_centroid(made.data() + j * n_, best);
  }
  return made;
}

// Draws the candidates of k-means‖ in rounds: each point with probability min(1, oversampling · k · weight · distance² / Σ weight ·
// distance²), independently of all others; then k of the candidates by k-means++ with the weights of their points. That runs on an engine
// of its own, whose points are the candidates, which are normalized already.
template <class T>
core::vector<T> driver<T>::draw_parallel(const options& wanted, std::uint64_t run) {
  const std::uint64_t stream = run * k_streams;
  core::vector<std::int64_t> drawn = {
      std::max<std::int64_t>(engine_->row_by_weight(core::random_uniform(wanted.seed, stream + k_stream_pick, 0)), 0)};
  core::vector<T> candidates;
  double potential = 0;
  engine_->begin_candidates();
  for (int round = 0;; ++round) {
    const std::size_t before = candidates.size();
    candidates.resize(before + drawn.size() * at(n_));
    engine_->read_points(drawn, candidates.data() + before);
    for (std::size_t first = before; first < candidates.size() && !stop(); first += at(k_candidate_group * n_)) {
      const auto count = std::min(k_candidate_group, static_cast<std::int64_t>(candidates.size() - first) / n_);
      potential = engine_->take_candidates(candidates.data() + first, count);
    }
    drawn.clear();
    // Without a potential every point is a candidate, or equal to one.
    if (!(potential > 0) || !std::isfinite(potential) || stop()) break;
    const bool few = static_cast<std::int64_t>(candidates.size()) < k_ * n_;
    if (round >= wanted.rounds && (!few || round - wanted.rounds >= k_more_rounds)) break;
    const double clusters = static_cast<double>(k_);
    const double expected = round < wanted.rounds ? wanted.oversampling * clusters : std::max(wanted.oversampling, 1.0) * clusters;
    drawn = engine_->draw_candidates(expected, wanted.seed, k_stream_rounds * (run + 1) + static_cast<std::uint64_t>(round));
  }
  const auto count = static_cast<std::int64_t>(candidates.size()) / n_;
  if (stop()) return core::vector<T>(at(core::checked_product(k_, n_)));
  const core::vector<double> weights = engine_->weigh_candidates();
  if (stop()) return core::vector<T>(at(core::checked_product(k_, n_)));
  core::vector<T> weighed;
  for (const double each : weights) weighed.push_back(static_cast<T>(each));
  // The engine of sparse points chooses first centroids on the host.
  const bool here = sparse_ && backend_ == ballast::backend::cuda;
  const engine_args<T> args{row_major<const T>(candidates.data(), count, n_),
                            weighed,
                            k_,
                            how_,
                            recorder_,
                            injector_,
                            strike_seeding_,
                            {},
                            here ? nullptr : kept_};
  const std::unique_ptr<engine<T>> chooser = make_engine(args, here ? run::host_backend() : backend_);
  normalization<T> same;
  same.shift.assign(at(n_), T(0));
  const T heaviest = *std::ranges::max_element(weighed);  // NaN only after a fault without protection
  if (heaviest > 0 && std::isfinite(heaviest)) same.weight_scale = std::ldexp(T(1), -std::ilogb(heaviest));
  chooser->normalize(same);
  return draw_plus_plus(*chooser, count, wanted.seed, stream);
}

template sealed_centroids<float> driver<float>::first_centroids(const options&, matrix_view<const float>, std::uint64_t);
template sealed_centroids<double> driver<double>::first_centroids(const options&, matrix_view<const double>, std::uint64_t);

}  // namespace ballast::kmeans
