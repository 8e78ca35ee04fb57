// Greedy k-means++ over blocks of points: the distance of each point to its nearest centroid, and the potentials that follow from it.
// Layer: backend "host" (engine.hpp).
#include <algorithm>
#include <limits>

#include "core/parallel.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/host/packed_centroids.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

namespace {

// Compares two sums of the same numbers in the same order: their bits differ only if one was corrupted.
abft::finding compare_potentials(double found, double expected, std::int64_t index) {
  abft::finding made;
  made.word = found == expected ? abft::k_pass : abft::k_fail;
  made.residual = found - expected;
  made.index = index;
  return made;
}

}  // namespace

template <class T>
void host_engine<T>::begin_seeding(std::int64_t trials) {
  prepare_workers(true);
  seeding_.trials = trials;
  seeding_.taken.clear();
  seeding_.closest.assign(at(m_), std::numeric_limits<T>::max());
  seeding_.potentials.assign(at(division_.blocks), 0.0);
  seeding_.tried.assign(at(division_.blocks * trials), 0.0);
}

// Returns the first row from `first` on at which the running sum, which starts at `sum`, exceeds `target`; if none does, the last row that
// adds to the sum, or −1.
template <class T>
std::int64_t host_engine<T>::row_from(std::int64_t first, double sum, double target, bool by_weight) const {
  std::int64_t last = -1;
  for (std::int64_t i = first; i < m_; ++i) {
    const double part = static_cast<double>(weight_of(i)) * (by_weight ? 1.0 : static_cast<double>(seeding_.closest[at(i)]));
    if (!(part > 0)) continue;
    last = i;
    sum += part;
    if (sum > target) break;
  }
  return last;
}

template <class T>
std::int64_t host_engine<T>::row_by_weight(double share) {
  double total = 0;
  for (std::int64_t i = 0; i < m_; ++i) total += static_cast<double>(weight_of(i));
  return row_from(0, 0, share * total, true);
}

template <class T>
std::int64_t host_engine<T>::row_by_potential(double target) {
  double sum = 0;
  std::int64_t block = 0;
  while (block + 1 < division_.blocks && sum + seeding_.potentials[at(block)] <= target) sum += seeding_.potentials[at(block++)];
  return row_from(block * division_.capacity, sum, target, false);
}

// Returns Σ weight · closest of a block. `distance`, unless null, holds the distances to one more centroid, which counts as well.
template <class T>
double host_engine<T>::sum_closest(std::int64_t block, const T* distance, const T* weight) const {
  const std::int64_t first = block * division_.capacity;
  const std::int64_t count = std::min(division_.capacity, m_ - first);
  double sum = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    const T closest = seeding_.closest[at(first + p)];
    const T nearest = distance == nullptr ? closest : std::min(closest, distance[p]);
    sum += static_cast<double>(weight[p]) * static_cast<double>(nearest);
  }
  return sum;
}

// Updates the closest distances of a block with the centroid `row`, packed in `one`.
template <class T>
void host_engine<T>::include_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& one, const T* row, bool strike) {
  distances_block(here, slot, block, one, row, 0, strike);
  const point_block<T>& b = here.block;
  for (std::int64_t p = 0; p < b.count; ++p) {
    T& closest = seeding_.closest[at(b.first + p)];
    closest = std::min(closest, b.distance[p]);
  }
  seeding_.potentials[at(block)] = sum_closest(block, nullptr, b.weight.data());
}

// Compares the stored distances of a loaded block with their stored sum. If either was corrupted, computes the distances again from all
// centroids so far; b.distance then holds the distances to the last of these.
template <class T>
abft::outcome host_engine<T>::verify_closest(worker& here, int slot, std::int64_t block) {
  point_block<T>& b = here.block;
  return run::attempt(what_.seen, what_.how.protection, "kmeans.closest", slot, [&](int number) {
    if (number > 0) {
      std::fill_n(seeding_.closest.begin() + b.first, b.count, std::numeric_limits<T>::max());
      for (std::size_t c = 0; c < seeding_.taken.size(); c += at(n_)) {
        packed_centroids<T> one;
        pack(seeding_.taken.data() + c, 1, true, one);
        include_block(here, slot, block, one, seeding_.taken.data() + c, false);
      }
    }
    what_.seen.checked(1);
    return compare_potentials(sum_closest(block, nullptr, b.weight.data()), seeding_.potentials[at(block)], b.first);
  });
}

template <class T>
core::vector<double> host_engine<T>::try_candidates(const T* rows, std::int64_t count) {
  pack(rows, count, protect_, seeding_.candidates);
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    const point_block<T>& b = here.block;
    distances_block(here, slot, block, seeding_.candidates, rows, 0, what_.strike_seeding);
    if (protect_ && verify_closest(here, slot, block) != abft::outcome::clean)
      distances_block(here, slot, block, seeding_.candidates, rows, 0, false);
    for (std::int64_t t = 0; t < count; ++t)
      seeding_.tried[at(block * seeding_.trials + t)] = sum_closest(block, b.distance.data() + t * division_.capacity, b.weight.data());
    if (seeding_.watch) seeding_.watch(b, slot);
  });
  core::vector<double> made(at(count), 0.0);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t block = 0; block < division_.blocks; ++block) made[at(t)] += seeding_.tried[at(block * seeding_.trials + t)];
  }
  return made;
}

template <class T>
double host_engine<T>::take_centroid(const T* row, std::int64_t candidate) {
  const auto position = static_cast<std::ptrdiff_t>(seeding_.taken.size());
  seeding_.taken.insert(seeding_.taken.end(), row, row + n_);
  const T* const kept = seeding_.taken.data() + position;
  pack(kept, 1, protect_, seeding_.last);
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    include_block(workers_[at(slot)], slot, block, seeding_.last, kept, what_.strike_seeding);
  });
  // The update computes the potential of the chosen candidate by another way, so the two must be equal.
  for (std::int64_t block = 0; protect_ && candidate >= 0 && block < division_.blocks; ++block) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.closest", 0, [&](int number) {
      if (number > 0) include_block(workers_[0], 0, block, seeding_.last, kept, false);
      what_.seen.checked(1);
      return compare_potentials(seeding_.potentials[at(block)], seeding_.tried[at(block * seeding_.trials + candidate)],
                                block * division_.capacity);
    });
  }
  double potential = 0;
  for (const double each : seeding_.potentials) potential += each;
  return potential;
}

template void host_engine<float>::begin_seeding(std::int64_t);
template std::int64_t host_engine<float>::row_by_weight(double);
template std::int64_t host_engine<float>::row_by_potential(double);
template core::vector<double> host_engine<float>::try_candidates(const float*, std::int64_t);
template double host_engine<float>::take_centroid(const float*, std::int64_t);
template void host_engine<double>::begin_seeding(std::int64_t);
template std::int64_t host_engine<double>::row_by_weight(double);
template std::int64_t host_engine<double>::row_by_potential(double);
template core::vector<double> host_engine<double>::try_candidates(const double*, std::int64_t);
template double host_engine<double>::take_centroid(const double*, std::int64_t);

}  // namespace ballast::kmeans::host
