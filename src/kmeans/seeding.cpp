// First centroids: greedy k-means++, random points, or given ones.
// Layer: driver of K-Means (driver.hpp).
// Source: D. Arthur, S. Vassilvitskii, k-means++, SODA 2007; scikit-learn's greedy variant.
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "core/parallel.hpp"

namespace ballast::kmeans {

namespace {

// Streams of the counter-based random numbers, for each run of n_init.
enum stream : std::uint64_t { k_stream_pick, k_stream_candidates, k_streams };

}  // namespace

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
      const std::int64_t other =
          j + static_cast<std::int64_t>(core::random_bits(seed, stream + k_stream_pick, at(j)) % static_cast<std::uint64_t>(count - j));
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
  const auto weight_of = [&](std::int64_t i) { return source_.weights.empty() ? T(1) : source_.weights[at(i)] * source_.weight_scale; };
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
      for (std::int64_t t = 0; t < trials; ++t)
        potentials[at(block * trials + t)] = sum_block(block, b.distance.data() + t * capacity_, b.weight.data());
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

template std::vector<float> engine<float>::seed(const options<float>&, std::uint64_t);
template std::vector<double> engine<double>::seed(const options<double>&, std::uint64_t);

}  // namespace ballast::kmeans
