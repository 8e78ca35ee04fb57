// k-means‖ over blocks of points: the nearest candidate of each point and its distance, the draws of a round, the candidates' weights.
// Layer: backend "host" (engine.hpp).
// Source: B. Bahmani, B. Moseley, A. Vattani, R. Kumar, S. Vassilvitskii, Scalable K-Means++, VLDB 2012.
#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "core/parallel.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/host/packed_centroids.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

template <class T>
void host_engine<T>::begin_candidates() {
  begin_seeding(1);
  seeding_.nearest.assign(at(m_), 0);
}

// Returns Σ weight · closest of a block.
template <class T>
double host_engine<T>::kept_potential(std::int64_t block) const {
  const std::int64_t begin = block * division_.capacity, end = std::min(begin + division_.capacity, m_);
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += static_cast<double>(weight_of(i)) * static_cast<double>(seeding_.closest[at(i)]);
  return sum;
}

// Verifies the stored distances of a block against their stored sum: either may have been corrupted. Repairs from the first `candidates`.
template <class T>
void host_engine<T>::verify_kept(worker& here, int slot, std::int64_t block, std::int64_t candidates) {
  run::attempt(what_.seen, what_.how.protection, "kmeans.closest", slot, [&](int number) {
    if (number > 0) cover_again(here, slot, block, candidates);
    what_.seen.checked(1);
    return bits_differ(!(kept_potential(block) == seeding_.potentials[at(block)]), block * division_.capacity);
  });
}

// Updates the nearest candidates of a block with a group of candidates, the first of which has number `first`.
template <class T>
void host_engine<T>::cover_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& group, std::int64_t first,
                                 bool strike) {
  const auto& b = here.block;
  T* const closest = seeding_.closest.data() + block * division_.capacity;
  std::int32_t* const nearest = seeding_.nearest.data() + block * division_.capacity;
  const auto distance = [&](std::int64_t j, std::int64_t p) { return b.distance[j * division_.capacity + p]; };
  if (protect_ && first > 0) verify_kept(here, slot, block, first);
  const auto once = [&] {
    distances_block(here, slot, block, group, seeding_.taken.data() + first * n_, 0, strike);
    for (std::int64_t j = 0; j < group.k; ++j) {
      for (std::int64_t p = 0; p < b.count; ++p) {
        if (!(distance(j, p) < closest[p])) continue;
        closest[p] = distance(j, p);
        nearest[p] = static_cast<std::int32_t>(first + j);
      }
    }
  };
  if (!protect_) {
    once();
  } else {
    // A wrong comparison leaves a candidate that is nearer than the stored one.
    run::attempt(what_.seen, what_.how.protection, "kmeans.closest", slot, [&](int) {
      once();
      bool nearer = false;
      for (std::int64_t j = group.k; j-- > 0;)
        for (std::int64_t p = b.count; p-- > 0;) nearer = nearer || distance(j, p) < closest[p];
      what_.seen.checked(static_cast<std::uint64_t>(b.count));
      return bits_differ(nearer, b.first);
    });
  }
  seeding_.potentials[at(block)] = kept_potential(block);
  if (!strike) return;
  const inject::position position = at_block(block);
  what_.injector.strike(site::minimum, position, closest, b.count);
  what_.injector.strike(site::index, position, nearest, b.count);
}

// Computes the nearest of the first `candidates` again for a block.
template <class T>
void host_engine<T>::cover_again(worker& here, int slot, std::int64_t block, std::int64_t candidates) {
  const std::int64_t begin = block * division_.capacity, end = std::min(begin + division_.capacity, m_);
  std::fill(seeding_.closest.begin() + begin, seeding_.closest.begin() + end, std::numeric_limits<T>::max());
  std::fill(seeding_.nearest.begin() + begin, seeding_.nearest.begin() + end, 0);
  for (std::int64_t first = 0; first < candidates; first += k_candidate_group) {
    packed_centroids<T> group;
    pack(seeding_.taken.data() + first * n_, std::min(k_candidate_group, candidates - first), true, group);
    cover_block(here, slot, block, group, first, false);
  }
}

template <class T>
double host_engine<T>::take_candidates(const T* rows, std::int64_t count) {
  const std::int64_t first = static_cast<std::int64_t>(seeding_.taken.size()) / n_;
  seeding_.taken.insert(seeding_.taken.end(), rows, rows + count * n_);
  pack(rows, count, protect_, seeding_.candidates);
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    cover_block(workers_[at(slot)], slot, block, seeding_.candidates, first, what_.strike_seeding);
  });
  double potential = 0;
  for (const double each : seeding_.potentials) potential += each;
  return potential;
}

template <class T>
core::vector<std::int64_t> host_engine<T>::draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t all = static_cast<std::int64_t>(seeding_.taken.size()) / n_;
  core::parallel_for(threads_, protect_ ? division_.blocks : 0,
                     [&](std::int64_t block, int slot) { verify_kept(workers_[at(slot)], slot, block, all); });
  const auto draw = [&](bool backwards) {
    double potential = 0;
    for (const double each : seeding_.potentials) potential += each;
    core::vector<std::int64_t> rows;
    for (std::int64_t step = 0; step < m_; ++step) {
      const std::int64_t i = backwards ? m_ - 1 - step : step;
      const double part = static_cast<double>(weight_of(i)) * static_cast<double>(seeding_.closest[at(i)]);
      if (core::random_uniform(seed, stream, static_cast<std::uint64_t>(i)) * potential < expected * part) rows.push_back(i);
    }
    if (backwards) std::ranges::reverse(rows);
    return rows;
  };
  core::vector<std::int64_t> rows;
  const auto once = [&] {
    rows = draw(false);
    if (!what_.strike_seeding) return;
    what_.injector.strike(site::label, at_block(0), rows.data(), static_cast<std::int64_t>(rows.size()));
    for (std::int64_t& each : rows) each = std::clamp<std::int64_t>(each, 0, m_ - 1);
  };
  if (!protect_) {
    once();
    return rows;
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.closest", 0, [&](int) {
    once();
    what_.seen.checked(1);
    return bits_differ(rows != draw(true), -1);
  });
  return rows;
}

// Verifies the stored distance of each point of a block to its candidate by differences in double.
template <class T>
abft::finding host_engine<T>::verify_nearest(worker& here, std::int64_t block, const core::vector<double>& norms) {
  point_block<T>& b = here.block;
  load(here, block);
  kernels_.measure(b);
  const auto all = static_cast<std::int32_t>(norms.size());
  bool known = true;
  for (std::int64_t p = 0; p < b.count; ++p) {
    b.label[p] = seeding_.nearest[at(b.first + p)];
    known = known && b.label[p] >= 0 && b.label[p] < all;
  }
  what_.seen.checked(static_cast<std::uint64_t>(b.count));
  if (!known) return bits_differ(true, b.first);
  kernels_.exact(tile(here), seeding_.taken.data(), norms.data(), 1, b);
  const double limit = thresholds::distance(abft::unit_roundoff<T>, n_);
  for (std::int64_t p = 0; p < b.count; ++p) {
    const double size = static_cast<double>(b.norm[p]) + norms[at(b.label[p])];
    const double off = b.exact[p] - static_cast<double>(seeding_.closest[at(b.first + p)]);
    if (!(std::abs(off) <= limit * size + std::numeric_limits<T>::min())) return bits_differ(true, b.first + p);
  }
  return {};
}

template <class T>
core::vector<double> host_engine<T>::weigh_candidates() {
  const auto norms_of_candidates = [&] {
    core::vector<double> made(seeding_.taken.size() / at(n_), 0.0);  // ‖candidate‖²
    for (std::size_t e = 0; e < seeding_.taken.size(); ++e)
      made[e / at(n_)] += static_cast<double>(seeding_.taken[e]) * static_cast<double>(seeding_.taken[e]);
    return made;
  };
  const core::vector<double> norms = norms_of_candidates();
  core::parallel_for(threads_, protect_ ? division_.blocks : 0, [&](std::int64_t block, int slot) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.closest", slot, [&](int number) {
      worker& here = workers_[at(slot)];
      if (number == 0) return verify_nearest(here, block, norms);
      cover_again(here, slot, block, static_cast<std::int64_t>(norms.size()));
      return verify_nearest(here, block, norms_of_candidates());  // a distance of sparse points starts from these
    });
  });
  core::vector<double> made, again;
  const auto add = [&](core::vector<double>& to, std::int64_t i) {
    const auto number = static_cast<std::size_t>(static_cast<std::uint32_t>(seeding_.nearest[at(i)]));
    if (number < to.size()) to[number] += static_cast<double>(weight_of(i));
  };
  const auto once = [&] {
    made.assign(norms.size(), 0.0);
    for (std::int64_t i = 0; i < m_; ++i) add(made, i);
    if (what_.strike_seeding) what_.injector.strike(site::count, at_block(0), made.data(), static_cast<std::int64_t>(made.size()));
  };
  if (!protect_) {
    once();
    return made;
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.count", 0, [&](int) {
    once();
    again.assign(norms.size(), 0.0);
    for (std::int64_t i = m_; i-- > 0;) add(again, i);
    what_.seen.checked(at(made.size()));
    const double limit = abft::reordered_sum_limit(static_cast<double>(m_));
    for (std::size_t c = 0; c < made.size(); ++c)
      if (!(std::abs(made[c] - again[c]) <= limit * again[c])) return bits_differ(true, static_cast<std::int64_t>(c));
    return abft::finding{};
  });
  return made;
}

template void host_engine<float>::begin_candidates();
template double host_engine<float>::take_candidates(const float*, std::int64_t);
template core::vector<std::int64_t> host_engine<float>::draw_candidates(double, std::uint64_t, std::uint64_t);
template core::vector<double> host_engine<float>::weigh_candidates();
template void host_engine<double>::begin_candidates();
template double host_engine<double>::take_candidates(const double*, std::int64_t);
template core::vector<std::int64_t> host_engine<double>::draw_candidates(double, std::uint64_t, std::uint64_t);
template core::vector<double> host_engine<double>::weigh_candidates();

}  // namespace ballast::kmeans::host
