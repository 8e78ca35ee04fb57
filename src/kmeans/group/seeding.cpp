// Greedy k-means++ over the rows of all ranks: rows by running sums that depend on no division, and the potentials of candidates.
// Layer: K-Means, ranks (engine.hpp).
#include <algorithm>
#include <cmath>
#include <limits>

#include "kmeans/group/engine.hpp"

namespace ballast::kmeans::ranks {

template <class T>
void group_engine<T>::begin_seeding(std::int64_t trials) {
  for (part& each : parts_) {
    each.engine->begin_seeding(trials);
    each.chunks.assign(at((each.count() + k_chunk - 1) / k_chunk), {});
  }
}

// The term of row i of a part in a running sum: its weight, or that times the squared distance to the nearest centroid, scaled below 1.
template <class T>
double group_engine<T>::term(const part& of, std::int64_t i, bool by_weight) const {
  const source<T>& from = of.engine->points();
  const double w = from.weights.empty() ? 1 : static_cast<double>(from.weights[at(i)] * from.weight_scale);
  return by_weight ? w : w * (static_cast<double>(of.engine->closest()[at(i)]) * scales_.potential);
}

// Returns the first row of a part at which the running sum, which starts at `before`, exceeds the target; else the last that adds to it.
template <class T>
std::int64_t group_engine<T>::row_within(const part& of, fixed_sum before, double target, bool by_weight) const {
  std::int64_t begin = 0;
  // Chunks that do not reach the target are skipped, except the last that adds anything.
  for (std::size_t c = 0; !by_weight && c < of.chunks.size(); ++c) {
    if (sums_.value(before + of.chunks[c]) > target) break;
    const bool more = std::any_of(of.chunks.begin() + static_cast<std::ptrdiff_t>(c) + 1, of.chunks.end(),
                                  [&](const fixed_sum& each) { return sums_.value(each) > 0; });
    if (!more) break;
    before = before + of.chunks[c];
    begin += k_chunk;
  }
  std::int64_t last = -1;
  for (std::int64_t i = begin; i < of.count(); ++i) {
    const double one = term(of, i, by_weight);
    if (!(one > 0)) continue;
    last = i;
    sums_.add(one, before);
    if (sums_.value(before) > target) break;
  }
  return last < 0 ? -1 : of.rows.first + last;
}

// Returns for each target the first row of all ranks at which the running sum exceeds it; else the last that adds to the sum; −1 if none
// does. Every rank finds the part that has the row, and its owner the row.
template <class T>
core::vector<std::int64_t> group_engine<T>::rows_from(const std::vector<summed_part>& sums, std::span<const double> targets,
                                                      bool by_weight) {
  words found(targets.size() + 1, 0);
  for (std::size_t e = 0; e < targets.size(); ++e) {
    fixed_sum before, before_last;
    const summed_part* in = nullptr;
    for (const summed_part& each : sums) {
      if (!(sums_.value(each.sum) > 0)) continue;
      in = &each;
      before_last = before;
      before = before + each.sum;
      if (sums_.value(before) > targets[e]) break;
    }
    if (in == nullptr || in->owner != over_.rank()) continue;
    for (const part& each : parts_)
      if (each.rows.first == in->first) found[e] = row_within(each, before_last, targets[e], by_weight) + 1;
  }
  found.back() = flag();
  expect(by_weight ? operation::weight : operation::potential, static_cast<std::uint64_t>(targets.size()));
  over_.add(found);
  failed_ = failed_ || found.back() != 0;
  core::vector<std::int64_t> made;
  for (std::size_t e = 0; e < targets.size(); ++e) made.push_back(found[e] - 1);
  return made;
}

template <class T>
std::int64_t group_engine<T>::row_by_weight(double share) {
  std::vector<fixed_sum> own;
  for (const part& each : parts_) own.push_back({each.constant[at(2 * n_)], each.constant[at(2 * n_ + 1)]});
  expect(operation::weight);
  const std::vector<summed_part> all = gather_parts(own);
  const double target = share * whole_.weight;
  return rows_from(all, {&target, 1}, true)[0];
}

template <class T>
core::vector<std::int64_t> group_engine<T>::rows_by_potential(std::span<const double> targets) {
  core::vector<double> scaled;
  for (const double each : targets) scaled.push_back(each * scales_.potential);
  return rows_from(potentials_, scaled, false);
}

template <class T>
std::int64_t group_engine<T>::row_by_potential(double target) {
  return rows_by_potential({&target, 1})[0];
}

template <class T>
core::vector<double> group_engine<T>::try_candidates(const T* rows, std::int64_t count) {
  words own(at(2 * count + 1), 0);
  for (part& each : parts_) {
    const source<T>& from = each.engine->points();
    const std::span<const T> closest = each.engine->closest();
    std::vector<words> slots;
    core::vector<double> plain;
    const auto once = [&] {
      slots.assign(at(threads_), words(at(2 * count), 0));
      each.engine->watch_candidates([&](const point_block<T>& b, int slot) {
        words& to = slots[at(slot)];
        for (std::int64_t t = 0; t < count; ++t) {
          const T* distance = b.distance.data() + t * b.capacity;
          for (std::int64_t p = 0; p < b.count; ++p) {
            const std::int64_t i = b.first + p;
            const double w = from.weights.empty() ? 1 : static_cast<double>(from.weights[at(i)] * from.weight_scale);
            const double nearest = static_cast<double>(std::min(closest[at(i)], distance[p]));
            sums_.add(w * (nearest * scales_.potential), to[at(2 * t)], to[at(2 * t + 1)]);
          }
        }
      });
      plain = each.engine->try_candidates(rows, count);
      each.engine->watch_candidates({});
      words made(at(2 * count), 0);
      for (const words& slot : slots)
        for (std::size_t i = 0; i < made.size(); ++i) made[i] = wrapping_sum(made[i], slot[i]);
      return made;
    };
    words found = once();
    if (protects()) {
      run::attempt(args_.seen, args_.how.protection, "kmeans.closest", 0, [&](int number) {
        if (number > 0) found = once();
        args_.seen.checked(at(count));
        abft::finding made;
        for (std::int64_t t = 0; t < count; ++t) {
          const double value = sums_.value(found[at(2 * t)], found[at(2 * t + 1)]) / scales_.potential;
          // The double has each term rounded in at most `count` additions; the fixed point cuts off what is below its last bit.
          const double limit = abft::reordered_sum_limit(static_cast<double>(each.count() + 2)) * plain[at(t)] +
                               static_cast<double>(each.count()) * 0x1p-55 / scales_.potential;
          if (std::abs(value - plain[at(t)]) <= limit || !std::isfinite(plain[at(t)])) continue;
          made.word = abft::k_fail;
          made.residual = value - plain[at(t)];
          made.threshold = limit;
        }
        return made;
      });
    }
    for (std::size_t i = 0; i < found.size(); ++i) own[i] = wrapping_sum(own[i], found[i]);
  }
  own.back() = flag();
  expect(operation::candidates, seal_of(rows, count * n_));
  over_.add(own);
  failed_ = failed_ || own.back() != 0;
  core::vector<double> made;
  for (std::int64_t t = 0; t < count; ++t) made.push_back(sums_.value(own[at(2 * t)], own[at(2 * t + 1)]) / scales_.potential);
  return made;
}

template <class T>
double group_engine<T>::take_centroid(const T* row, std::int64_t candidate) {
  std::vector<fixed_sum> own;
  for (part& each : parts_) {
    (void)each.engine->take_centroid(row, candidate);
    const words found = twice("kmeans.closest", [&] {
      words chunks(2 * each.chunks.size(), 0);
      for_chunks(each, [&](std::int64_t chunk, std::int64_t first, std::int64_t end, int) {
        for (std::int64_t i = first; i < end; ++i) sums_.add(term(each, i, false), chunks[at(2 * chunk)], chunks[at(2 * chunk + 1)]);
      });
      return chunks;
    });
    fixed_sum all;
    for (std::size_t c = 0; c < each.chunks.size(); ++c) {
      each.chunks[c] = {found[2 * c], found[2 * c + 1]};
      all = all + each.chunks[c];
    }
    own.push_back(all);
  }
  expect(operation::take, seal_of(row, n_));
  potentials_ = gather_parts(own);
  fixed_sum all;
  for (const summed_part& each : potentials_) all = all + each.sum;
  return sums_.value(all) / scales_.potential;
}

template void group_engine<float>::begin_seeding(std::int64_t);
template std::int64_t group_engine<float>::row_by_weight(double);
template std::int64_t group_engine<float>::row_by_potential(double);
template core::vector<std::int64_t> group_engine<float>::rows_by_potential(std::span<const double>);
template core::vector<double> group_engine<float>::try_candidates(const float*, std::int64_t);
template double group_engine<float>::take_centroid(const float*, std::int64_t);
template void group_engine<double>::begin_seeding(std::int64_t);
template std::int64_t group_engine<double>::row_by_weight(double);
template std::int64_t group_engine<double>::row_by_potential(double);
template core::vector<std::int64_t> group_engine<double>::rows_by_potential(std::span<const double>);
template core::vector<double> group_engine<double>::try_candidates(const double*, std::int64_t);
template double group_engine<double>::take_centroid(const double*, std::int64_t);

}  // namespace ballast::kmeans::ranks
