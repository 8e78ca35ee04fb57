// Greedy k-means++: the distances to the nearest centroids so far stay on the device; the potentials of its blocks are on both sides.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <cmath>

#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

// The indexes of the row_flags of the seeding kernel.
enum seeding_flag : int { k_rows, k_potentials, k_closest };

}  // namespace

// Makes room for a seeding that tries so many candidates at once.
template <class T>
void cuda_engine<T>::reserve_seeding(std::int64_t trials) {
  seeding_.trials = static_cast<int>(trials);
  seeding_.blocks = (m_ + k_seed_threads - 1) / k_seed_threads;
  seeding_.taken.clear();
  seeding_.own.assign(at(seeding_.blocks), 0.0);
  seeding_.potentials.assign(at((all_ + k_seed_threads - 1) / k_seed_threads), 0.0);
  if (seeding_.closest.bytes() == 0) seeding_.closest = allocate(m_ * static_cast<std::int64_t>(sizeof(T)));
  if (seeding_.potential.bytes() == 0) seeding_.potential = allocate(8 * seeding_.blocks);
  if (seeding_.tried.bytes() < 8 * seeding_.blocks * trials) seeding_.tried = allocate(8 * seeding_.blocks * trials);
  constexpr std::int64_t most = std::int64_t{4} << 20;
  const std::int64_t room = 4096 + 8 * seeding_.blocks * (trials + 1) + trials * std::max<std::int64_t>(k_seed_threads, 2 * n_ + 8) * 8;
  if (seeding_.pinned.bytes() < room && room <= most) seeding_.pinned = pinned_room(state_, room, call_.order());
}

template <class T>
void cuda_engine<T>::begin_seeding(std::int64_t trials) {
  reserve_seeding(trials);
  // The distances to the candidates of a step, so that the one that is taken needs no second reading of the points. Not if memory is
  // scarce. Those of an earlier seeding with fewer trials have no room for all.
  const std::int64_t kept = m_ * trials * static_cast<std::int64_t>(sizeof(T));
  if (seeding_.distances.bytes() >= kept) return;
  seeding_.distances = buffer();
  if (point_stream_.kept() == kept_points::all && 2 * kept <= device_->available_memory()) seeding_.distances = allocate(kept);
}

// Tries seeding_.candidates, or takes the only candidate.
template <class T>
void cuda_engine<T>::launch_seeding(int candidate, bool take, bool fresh, bool strike, bool known) {
  seeding_arguments<T> given;
  given.apart = m_;
  given.known = known;
  given.candidates = seeding_.candidates.view;
  given.flags = flags();
  given.trials = seeding_.trials;
  given.candidate = candidate;
  given.take = take;
  given.fresh = fresh;
  given.check = protect_;
  if (protect_) clear_flags();
  const int trials = std::max(seeding_.trials, 8);
  each(part::normalized, [&](const point_piece<T>& piece) {
    const std::int64_t block = piece.first / k_seed_threads;
    given.normalized = piece.normalized;
    given.closest = static_cast<T*>(seeding_.closest.data()) + piece.first;
    given.potentials = static_cast<double*>(seeding_.potential.data()) + block;
    given.tried = static_cast<double*>(seeding_.tried.data()) + block * seeding_.trials;
    given.distances = seeding_.distances.bytes() == 0 ? nullptr : static_cast<T*>(seeding_.distances.data()) + piece.first;
    launch(
        k_seeding_kernel + (trials > 8 ? 1 : 0), [&](bool instrumented) { return names::seeding(trials, instrumented); },
        (piece.normalized.m + k_seed_threads - 1) / k_seed_threads, given, strike);
  });
}

// Takes a centroid, and reads the potentials. `fresh`: it is the first. A candidate is taken by its stored distances; if they fail, or
// there are none, by the points.
template <class T>
void cuda_engine<T>::include(const T* row, int candidate, bool fresh, bool strike) {
  const bool known = candidate >= 0 && seeding_.distances.bytes() > 0;
  if (!known) make_group(row, 1, seeding_.candidates);
  row_flags seen[k_seeding_flags] = {};
  const reading parts[] = {{seeding_.own.data(), seeding_.potential.data(), 8 * seeding_.blocks}, {seen, flags(), sizeof seen}};
  if (!protect_) {
    launch_seeding(candidate, true, fresh, strike, known);
    return read(std::span(parts, 1));
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.distance", 0, [&](int number) {
    if (known && number > 0) make_group(row, 1, seeding_.candidates);
    launch_seeding(candidate, true, fresh, strike, known && number == 0);
    read(parts);
    what_.seen.checked(at(m_ + 2 * seeding_.blocks));
    abft::finding found = finding_of(seen[k_rows]);
    if (found.word != abft::k_pass) return found;
    found = finding_of(seen[k_potentials]);
    found.check = "kmeans.closest";
    return found;
  });
}

// Computes the distances to all centroids so far again.
template <class T>
void cuda_engine<T>::remember_closest() {
  for (std::size_t c = 0; c < seeding_.taken.size(); c += at(n_)) include(seeding_.taken.data() + c, -1, c == 0, false);
}

// Returns the first of `count` rows from `first` on at which the running sum, which starts at `sum`, exceeds `target`; if none does, the
// last row that adds to the sum, or −1. `closest`: distances of these rows; null: the sum is over weights alone.
template <class T>
std::int64_t cuda_engine<T>::row_from(std::int64_t first, std::int64_t count, const T* closest, double sum, double target) {
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const double part = weight_of(first + i) * (closest == nullptr ? 1.0 : static_cast<double>(closest[i]));
    if (!(part > 0)) continue;
    last = first + i;
    sum += part;
    if (sum > target) break;
  }
  return last;
}

template <class T>
std::int64_t cuda_engine<T>::row_by_weight(double share) {
  if (!weighted()) return std::min(all_ - 1, static_cast<std::int64_t>(share * static_cast<double>(all_)));
  if (ranks_) return joined_row_by_weight(share);
  double total = 0;
  for (std::int64_t i = 0; i < m_; ++i) total += weight_of(i);
  return row_from(0, m_, nullptr, 0, share * total);
}

// Returns the block in which the running sum of potentials exceeds `target`, and the sum before it.
template <class T>
std::pair<std::int64_t, double> cuda_engine<T>::block_of(double target) const {
  double sum = 0;
  std::int64_t block = 0;
  while (block + 1 < static_cast<std::int64_t>(seeding_.potentials.size()) && sum + seeding_.potentials[at(block)] <= target)
    sum += seeding_.potentials[at(block++)];
  return {block, sum};
}

template <class T>
core::vector<std::int64_t> cuda_engine<T>::rows_by_potential(std::span<const double> targets) {
  core::vector<T> closest(targets.size() * k_seed_threads);
  core::vector<reading> parts;
  const std::int64_t before = first_ / k_seed_threads;  // blocks of the devices before this one
  const auto count_in = [&](std::int64_t block) { return std::min<std::int64_t>(k_seed_threads, m_ - block * k_seed_threads); };
  const auto here = [&](std::int64_t block) { return block >= before && block < before + seeding_.blocks; };
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const std::int64_t block = block_of(targets[t]).first;
    if (!here(block)) continue;
    parts.push_back({closest.data() + t * k_seed_threads,
                     static_cast<const T*>(seeding_.closest.data()) + (block - before) * k_seed_threads,
                     count_in(block - before) * static_cast<std::int64_t>(sizeof(T))});
  }
  read(parts);
  core::vector<std::int64_t> made(targets.size(), -1);
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const auto [block, sum] = block_of(targets[t]);
    if (!here(block)) continue;
    made[t] = row_from((block - before) * k_seed_threads, count_in(block - before), closest.data() + t * k_seed_threads, sum, targets[t]);
    if (made[t] >= 0) made[t] += first_;
  }
  if (ranks_) made = joined_rows(joined::potential, std::move(made));
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (made[t] < 0) made[t] = row_by_potential(targets[t]);
  return made;
}

// Rounding may leave no row in the block and the blocks after it; then the last row that adds to the sum is returned.
template <class T>
std::int64_t cuda_engine<T>::row_by_potential(double target) {
  const auto [block, sum] = block_of(target);
  const std::int64_t before = first_ / k_seed_threads, blocks = static_cast<std::int64_t>(seeding_.potentials.size());
  std::int64_t found = -1;
  for (std::int64_t b = block; b < std::min(block + 2, blocks) && found < 0; ++b) {
    if (b >= before && b < before + seeding_.blocks) {
      const std::int64_t first = (b - before) * k_seed_threads;
      core::vector<T> closest(at(std::min<std::int64_t>(k_seed_threads, m_ - first)));
      download(closest.data(), static_cast<const T*>(seeding_.closest.data()) + first,
               static_cast<std::int64_t>(closest.size() * sizeof(T)));
      found = row_from(first, static_cast<std::int64_t>(closest.size()), closest.data(), sum, target);
      if (found >= 0) found += first_;
    }
    if (ranks_) found = joined_rows(joined::potential, {found})[0];
  }
  return found;
}

template <class T>
core::vector<double> cuda_engine<T>::try_candidates(const T* rows, std::int64_t count) {
  make_group(rows, count, seeding_.candidates);
  core::vector<double> tried(at(seeding_.blocks * seeding_.trials));
  row_flags seen[k_seeding_flags] = {};
  const reading parts[] = {{tried.data(), seeding_.tried.data(), static_cast<std::int64_t>(8 * tried.size())},
                           {seen, flags(), sizeof seen}};
  if (!protect_) {
    launch_seeding(-1, false, false, what_.strike_seeding);
    read(std::span(parts, 1));
  } else {
    run::attempt(what_.seen, what_.how.protection, "kmeans.distance", 0, [&](int number) {
      launch_seeding(-1, false, false, what_.strike_seeding);
      read(parts);
      what_.seen.checked(at(m_ + (count + 1) * seeding_.blocks));
      abft::finding found = finding_of(seen[k_rows]);
      if (found.word != abft::k_pass) return found;
      found = finding_of(seen[k_closest]);
      if (found.word == abft::k_pass) found = finding_of(seen[k_potentials]);
      if (found.word != abft::k_pass) {
        found.check = "kmeans.closest";
        if (number < run::repeats_of(what_.how.protection)) {
          remember_closest();
          make_group(rows, count, seeding_.candidates);
        }
      }
      return found;
    });
  }
  if (ranks_) tried = ranks_.all(joined::candidates, tried, seal_of(rows, count * n_));
  core::vector<double> made(at(count), 0.0);
  for (std::int64_t block = 0; block < static_cast<std::int64_t>(seeding_.potentials.size()); ++block)
    for (std::int64_t t = 0; t < count; ++t) made[at(t)] += tried[at(block * seeding_.trials + t)];
  return made;
}

template <class T>
double cuda_engine<T>::take_centroid(const T* row, std::int64_t candidate) {
  const bool fresh = seeding_.taken.empty();
  include(row, static_cast<int>(candidate), fresh, what_.strike_seeding);
  seeding_.taken.insert(seeding_.taken.end(), row, row + n_);
  join_potentials();
  double potential = 0;
  for (const double each : seeding_.potentials) potential += each;
  return potential;
}

template void cuda_engine<float>::reserve_seeding(std::int64_t);
template void cuda_engine<float>::begin_seeding(std::int64_t);
template std::int64_t cuda_engine<float>::row_from(std::int64_t, std::int64_t, const float*, double, double);
template std::int64_t cuda_engine<float>::row_by_weight(double);
template std::int64_t cuda_engine<float>::row_by_potential(double);
template core::vector<std::int64_t> cuda_engine<float>::rows_by_potential(std::span<const double>);
template core::vector<double> cuda_engine<float>::try_candidates(const float*, std::int64_t);
template double cuda_engine<float>::take_centroid(const float*, std::int64_t);
template void cuda_engine<double>::reserve_seeding(std::int64_t);
template void cuda_engine<double>::begin_seeding(std::int64_t);
template std::int64_t cuda_engine<double>::row_from(std::int64_t, std::int64_t, const double*, double, double);
template std::int64_t cuda_engine<double>::row_by_weight(double);
template std::int64_t cuda_engine<double>::row_by_potential(double);
template core::vector<std::int64_t> cuda_engine<double>::rows_by_potential(std::span<const double>);
template core::vector<double> cuda_engine<double>::try_candidates(const double*, std::int64_t);
template double cuda_engine<double>::take_centroid(const double*, std::int64_t);

}  // namespace ballast::kmeans::cuda
