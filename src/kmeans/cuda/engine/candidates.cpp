// k-means‖: distances to the candidates stay on the device; the host reads which rows were drawn, and sums the candidates' weights.
// Layer: backend "cuda" of K-Means (engine.hpp).
// Source: B. Bahmani, B. Moseley, A. Vattani, R. Kumar, S. Vassilvitskii, Scalable K-Means++, VLDB 2012.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

// The indexes of the row_flags of the kernels.
enum cover_flag : int { k_rows, k_potentials, k_kept };

}  // namespace

template <class T>
void cuda_engine<T>::begin_candidates() {
  reserve_seeding(1);
  if (seeding_.nearest.bytes() == 0) seeding_.nearest = allocate(4 * m_);
}

// Launches the kernel that adds `count` candidates from `first` on. A block that detects a fault keeps its earlier distances.
template <class T>
void cuda_engine<T>::cover(std::int64_t first, std::int64_t count, bool strike) {
  make_group(seeding_.taken.data() + first * n_, count, seeding_.candidates);
  if (protect_) clear_flags();
  cover_arguments<T> given;
  given.candidates = seeding_.candidates.view;
  given.flags = flags();
  given.first = static_cast<int>(first);
  given.fresh = first == 0;
  given.check = protect_;
  each(part::normalized, [&](const point_piece<T>& piece) {
    given.normalized = piece.normalized;
    given.closest = static_cast<T*>(seeding_.closest.data()) + piece.first;
    given.nearest = static_cast<std::int32_t*>(seeding_.nearest.data()) + piece.first;
    given.potentials = static_cast<double*>(seeding_.potential.data()) + piece.first / k_seed_threads;
    launch(k_cover_kernel, names::cover, (piece.normalized.m + k_seed_threads - 1) / k_seed_threads, given, strike);
  });
}

// Computes the distances to the first `candidates` again.
template <class T>
void cuda_engine<T>::cover_again(std::int64_t candidates) {
  for (std::int64_t first = 0; first < candidates; first += k_candidate_group)
    cover(first, std::min(k_candidate_group, candidates - first), false);
}

template <class T>
double cuda_engine<T>::take_candidates(const T* rows, std::int64_t count) {
  const std::int64_t first = static_cast<std::int64_t>(seeding_.taken.size()) / n_;
  seeding_.taken.insert(seeding_.taken.end(), rows, rows + count * n_);
  if (!protect_) {
    cover(first, count, what_.strike_seeding);
  } else {
    bool kept = true;
    run::attempt(what_.seen, what_.how.protection, "kmeans.distance", 0, [&](int) {
      if (!kept) cover_again(first);
      cover(first, count, what_.strike_seeding);
      what_.seen.checked(at(2 * m_ + 2 * seeding_.blocks));
      abft::finding found = read_flags(k_kept);
      kept = found.word == abft::k_pass;
      if (kept) found = read_flags(k_potentials);
      if (found.word == abft::k_pass) return read_flags(k_rows);
      found.check = "kmeans.closest";
      return found;
    });
  }
  download(seeding_.own.data(), seeding_.potential.data(), 8 * seeding_.blocks);
  join_potentials();
  double potential = 0;
  for (const double each : seeding_.potentials) potential += each;
  return potential;
}

template <class T>
core::vector<std::int64_t> cuda_engine<T>::draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t words = seeding_.blocks * (k_seed_threads / 32), all = static_cast<std::int64_t>(seeding_.taken.size()) / n_;
  const buffer drawn = allocate(4 * words), again = allocate(4 * words);
  core::vector<std::uint32_t> bits;
  const auto once = [&] {
    // Those of a group were verified when they were joined.
    if (!ranks_) seeding_.potentials = download<double>(seeding_.potential, seeding_.blocks);
    draw_arguments<T> given;
    given.normalized = points_.normalized;
    given.closest = static_cast<const T*>(seeding_.closest.data());
    given.potentials = static_cast<const double*>(seeding_.potential.data());
    given.potential = 0;
    for (const double each : seeding_.potentials) given.potential += each;
    given.expected = expected;
    given.seed = seed;
    given.stream = stream;
    given.drawn = static_cast<std::uint32_t*>(drawn.data());
    given.again = static_cast<std::uint32_t*>(again.data());
    given.flags = flags();
    given.check = protect_;
    if (protect_) clear_flags();
    launch(k_draw_kernel, names::draw, seeding_.blocks, given, what_.strike_seeding);
    bits = download<std::uint32_t>(drawn, words);
  };
  if (!protect_) {
    once();
  } else {
    bool kept = true;
    run::attempt(what_.seen, what_.how.protection, "kmeans.closest", 0, [&](int) {
      if (!kept) cover_again(all);
      once();
      what_.seen.checked(at(m_ + seeding_.blocks));
      abft::finding found = read_flags(k_kept);
      kept = found.word == abft::k_pass;
      if (!kept || bits == download<std::uint32_t>(again, words)) return found;
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      return found;
    });
  }
  core::vector<std::int64_t> rows;
  for (std::int64_t word = 0; word < words; ++word) {
    for (std::uint32_t left = bits[at(word)]; left != 0; left &= left - 1) {
      const std::int64_t row = 32 * word + std::countr_zero(left);
      if (row < m_) rows.push_back(first_ + row);  // without protection, a fault can set a bit after the last row
    }
  }
  return ranks_ ? ranks_.all(joined::drawn, rows) : rows;
}

template <class T>
core::vector<double> cuda_engine<T>::weigh_candidates() {
  const std::int64_t all = static_cast<std::int64_t>(seeding_.taken.size()) / n_;
  if (protect_) {
    const buffer normalized_centroids = upload(seeding_.taken);
    nearest_arguments<T> given{};
    given.exact.normalized_centroids = static_cast<const T*>(normalized_centroids.data());
    given.exact.limit = thresholds::distance(abft::unit_roundoff<T>, n_);
    given.exact.flags = flags();
    given.exact.k = static_cast<int>(all);
    run::attempt(what_.seen, what_.how.protection, "kmeans.closest", 0, [&](int number) {
      if (number > 0) cover_again(all);
      clear_flags();
      each(part::normalized, [&](const point_piece<T>& piece) {
        given.exact.normalized = piece.normalized;
        given.exact.labels = static_cast<std::int32_t*>(seeding_.nearest.data()) + piece.first;
        given.closest = static_cast<const T*>(seeding_.closest.data()) + piece.first;
        launch(k_nearest_kernel, names::nearest, (piece.normalized.m + k_row_threads - 1) / k_row_threads, given);
      });
      what_.seen.checked(at(m_));
      return read_flags();
    });
  }
  core::vector<double> made, again;
  core::vector<std::int32_t> nearest;
  const auto add = [&](core::vector<double>& to, std::int64_t i) {
    const auto number = static_cast<std::size_t>(static_cast<std::uint32_t>(nearest[at(i)]));
    if (number < to.size()) to[number] += weight_of(i);
  };
  const auto once = [&] {
    nearest = download<std::int32_t>(seeding_.nearest, m_);
    made.assign(at(all), 0.0);
    for (std::int64_t i = 0; i < m_; ++i) add(made, i);
    if (what_.strike_seeding) what_.injector.strike(site::count, {0, 1, 0, 1}, made.data(), all);
  };
  // A group adds the weights of one device after the other, in the order of rows.
  const auto join = [&] {
    core::vector<double> sums(at(all), 0.0);
    for (std::size_t p = 0; ranks_ && p < ranks_.size(); ++p) {
      for (std::int64_t i = 0; p == ranks_.place() && i < m_; ++i) add(sums, i);
      sums = ranks_.parts(joined::weighed, std::span<const double>(sums))[p];
    }
    return ranks_ ? sums : made;
  };
  if (!protect_) {
    once();
    return join();
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.count", 0, [&](int) {
    once();
    nearest = download<std::int32_t>(seeding_.nearest, m_);
    again.assign(at(all), 0.0);
    for (std::int64_t i = m_; i-- > 0;) add(again, i);
    what_.seen.checked(at(all));
    abft::finding found;
    const double limit = abft::reordered_sum_limit(static_cast<double>(m_));
    for (std::int64_t c = 0; c < all; ++c) {
      if (std::abs(made[at(c)] - again[at(c)]) <= limit * again[at(c)]) continue;
      found.word = abft::k_fail;
      found.residual = made[at(c)] - again[at(c)];
      found.index = c;
    }
    return found;
  });
  return join();
}

template void cuda_engine<float>::begin_candidates();
template double cuda_engine<float>::take_candidates(const float*, std::int64_t);
template core::vector<std::int64_t> cuda_engine<float>::draw_candidates(double, std::uint64_t, std::uint64_t);
template core::vector<double> cuda_engine<float>::weigh_candidates();
template void cuda_engine<double>::begin_candidates();
template double cuda_engine<double>::take_candidates(const double*, std::int64_t);
template core::vector<std::int64_t> cuda_engine<double>::draw_candidates(double, std::uint64_t, std::uint64_t);
template core::vector<double> cuda_engine<double>::weigh_candidates();

}  // namespace ballast::kmeans::cuda
