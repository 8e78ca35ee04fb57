// First centroids: greedy k-means++, random points, or given ones. All random choices are made here.
// Layer: driver of K-Means (driver.hpp).
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's greedy variant.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/counter_rng.hpp"
#include "kmeans/driver.hpp"

namespace ballast::kmeans {

namespace {

// Streams of the counter-based random numbers, for each run of n_init.
enum stream : std::uint64_t { k_stream_pick, k_stream_candidates, k_streams };

}  // namespace

template <class T>
sealed_centroids<T> driver<T>::first_centroids(const options<T>& wanted, std::uint64_t run) {
  switch (wanted.init) {
    case init::given: return into_frame(wanted.centroids);
    case init::random: return sealed_centroids<T>(draw_different_points(wanted.seed, run * k_streams));
    case init::kmeans_plus_plus: break;
  }
  return sealed_centroids<T>(draw_plus_plus(wanted.seed, run * k_streams));
}

// k different points, those of positive weight first: a partial Fisher–Yates shuffle of their list, of which only the touched places are
// kept.
template <class T>
std::vector<T> driver<T>::draw_different_points(std::uint64_t seed, std::uint64_t stream) {
  const auto positive = static_cast<std::int64_t>(whole_.members);
  std::unordered_map<std::int64_t, std::int64_t> moved;
  const auto place = [&](std::int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<std::int64_t> drawn, rest;
  for (std::int64_t j = 0; j < k_; ++j) {
    if (j >= positive) {
      rest.push_back(j - positive);
      continue;
    }
    const std::int64_t other =
        j + static_cast<std::int64_t>(core::random_bits(seed, stream + k_stream_pick, at(j)) % static_cast<std::uint64_t>(positive - j));
    drawn.push_back(place(other));
    moved[other] = place(j);
  }
  std::vector<T> made(at(core::checked_product(k_, n_)));
  engine_->read_points(engine_->rows_at(drawn, true), made.data());
  if (!rest.empty()) engine_->read_points(engine_->rows_at(rest, false), made.data() + static_cast<std::int64_t>(drawn.size()) * n_);
  return made;
}

// Each step draws 2 + ⌊ln k⌋ candidates with probability proportional to weight · (distance to the nearest centroid so far)² and takes the
// one that leaves the least potential Σ weight · distance².
template <class T>
std::vector<T> driver<T>::draw_plus_plus(std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t trials = 2 + static_cast<std::int64_t>(std::log(static_cast<double>(k_)));
  std::vector<T> made(at(core::checked_product(k_, n_)));
  std::vector<T> drawn(at(trials * n_));
  std::vector<std::int64_t> rows(at(trials));
  engine_->begin_seeding(trials);
  const std::int64_t start = std::max<std::int64_t>(engine_->row_by_weight(core::random_uniform(seed, stream + k_stream_pick, 0)), 0);
  engine_->read_points({&start, 1}, made.data());
  double potential = engine_->take_centroid(made.data(), -1);
  for (std::int64_t j = 1; j < k_ && !stop(); ++j) {
    for (std::int64_t t = 0; t < trials; ++t) {
      const double draw = core::random_uniform(seed, stream + k_stream_candidates, at(j * trials + t));
      rows[at(t)] = potential > 0 ? engine_->row_by_potential(draw * potential) : -1;
      // With no potential left every point is a centroid already: any will do.
      if (rows[at(t)] < 0) rows[at(t)] = std::min(m_ - 1, static_cast<std::int64_t>(draw * static_cast<double>(m_)));
    }
    engine_->read_points(rows, drawn.data());
    const std::vector<double> left = engine_->try_candidates(drawn.data(), trials);
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < trials; ++t) {
      if (left[at(t)] < least) {
        least = left[at(t)];
        best = t;
      }
    }
    std::copy_n(drawn.data() + best * n_, n_, made.data() + j * n_);
    potential = engine_->take_centroid(made.data() + j * n_, best);
  }
  return made;
}

template sealed_centroids<float> driver<float>::first_centroids(const options<float>&, std::uint64_t);
template sealed_centroids<double> driver<double>::first_centroids(const options<double>&, std::uint64_t);

}  // namespace ballast::kmeans
