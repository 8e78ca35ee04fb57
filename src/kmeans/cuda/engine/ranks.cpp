// A device of a group: what it joins with the others. Blocks, strips and segments of rows lie on one device each, so that numbers that are
// joined in the order of rows have the same bits for any number of devices.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <limits>
#include <utility>

#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

abft::finding failed_if(bool fails) {
  abft::finding made;
  if (!fails) return made;
  made.word = abft::k_fail;
  made.residual = std::numeric_limits<double>::quiet_NaN();
  return made;
}

// The words of each word number and column, as normalized_points::expected.
core::vector<unsigned long long> words_of(const core::vector<column_sums>& from, int words) {
  core::vector<unsigned long long> made;
  for (int w = 0; w < words; ++w)
    for (const column_sums& each : from) made.push_back(each.word[w]);
  return made;
}

}  // namespace

template <class T>
void cuda_engine<T>::settle() {
  if (ranks_) ranks_.add(joined::settle, {});
}

template <class T>
abft::finding cuda_engine<T>::agreed(const abft::finding& own) {
  return ranks_ && protect_ ? ranks_.agreed(own) : own;
}

// Adds the column statistics of the strips of all devices.
template <class T>
core::vector<column_ranges<T>> cuda_engine<T>::join_ranges(const buffer& parts, std::int64_t columns) {
  using sums = column_ranges<T>;
  const std::int64_t bytes = static_cast<std::int64_t>(sizeof(sums)) * columns;
  const core::vector<sums> strips =
      ranks_.all(joined::ranges, download<sums>(parts, parts.bytes() / static_cast<std::int64_t>(sizeof(sums))));
  core::vector<sums> made;
  const auto once = [&](int) {
    const buffer all = upload(strips), to = allocate(bytes);
    const auto count = static_cast<int>(static_cast<std::int64_t>(strips.size()) / columns);
    launch(k_fold_ranges_kernel, names::fold_ranges, columns,
           fold_arguments{all.data(), to.data(), count, static_cast<int>(columns), false});
    made = download<sums>(to, columns);
    return failed_if(!std::ranges::all_of(made, [&](const sums& each) { return each.agree(all_); }));
  };
  if (protect_) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.range", 0, [&](int number) {
      what_.seen.checked(at(columns));
      return once(number);
    });
  } else {
    (void)once(0);
  }
  return made;
}

// The heaviest weight, and the first values that are refused, of all devices.
template <class T>
void cuda_engine<T>::join_refused(ranges<T>& made) {
  struct part {
    refused_value<T> point, weight;
    T heaviest;
  };
  for (refused_value<T>* each : {&made.point, &made.weight})
    if (each->row >= 0) each->row += first_;
  const core::vector<part> own = {{made.point, made.weight, made.heaviest}};
  const auto earlier = [](refused_value<T>& to, const refused_value<T>& other) {
    if (other.row < 0) return;
    if (to.row < 0 || other.column < to.column || (other.column == to.column && other.row < to.row)) to = other;
  };
  for (const part& each : ranks_.all(joined::refused, own)) {
    earlier(made.point, each.point);
    earlier(made.weight, each.weight);
    made.heaviest = std::max(made.heaviest, each.heaviest);
  }
}

// The sums of columns and the squares of blocks. Words are integers; the other sums are added segment by segment.
template <class T>
void cuda_engine<T>::join_row_stats() {
  const auto fold = [&](const core::vector<column_sums>& segments) {
    core::vector<column_sums> made(at(columns()), column_sums{});
    for (std::size_t e = 0; e < segments.size(); ++e) {
      column_sums& to = made[e % made.size()];
      const column_sums& from = segments[e];
      to.largest = from.largest > to.largest ? from.largest : to.largest;
      to.size += from.size;
      to.squares += from.squares;
      to.plain += from.plain;
      for (int w = 0; w < 2; ++w) to.word[w] += from.word[w];
      to.positive += from.positive;
    }
    return made;
  };
  statistics_.own = fold(statistics_.segments);
  statistics_.sums = fold(ranks_.all(joined::sums, statistics_.segments));
  statistics_.squares = ranks_.all(joined::squares, statistics_.own_squares);
}

template <class T>
void cuda_engine<T>::join_potentials() {
  seeding_.potentials = ranks_ ? ranks_.all(joined::potentials, seeding_.own, seal_of(seeding_.taken)) : seeding_.own;
}

// Returns the rows that any device has found: each is −1 on all others.
template <class T>
core::vector<std::int64_t> cuda_engine<T>::joined_rows(joined what, core::vector<std::int64_t> own) {
  core::vector<unsigned long long> found;
  for (const std::int64_t each : own) found.push_back(static_cast<unsigned long long>(each + 1));
  ranks_.add(what, found);
  for (std::size_t e = 0; e < own.size(); ++e) own[e] = static_cast<std::int64_t>(found[e]) - 1;
  return own;
}

// row_by_weight with weights: the running sum goes from device to device.
template <class T>
std::int64_t cuda_engine<T>::joined_row_by_weight(double share) {
  core::vector<double> before = {0.0};  // the sum before each device, and that of all
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    double sum = before.back();
    for (std::int64_t i = 0; p == ranks_.place() && i < m_; ++i) sum += weight_of(i);
    before.push_back(ranks_.parts(joined::weight, std::span<const double>(&sum, 1))[p][0]);
  }
  const double target = share * before.back();
  std::int64_t own = row_from(0, m_, nullptr, before[ranks_.place()], target);
  if (own >= 0) own += first_;
  const std::vector<core::vector<std::int64_t>> rows = ranks_.parts(joined::weight, std::span<const std::int64_t>(&own, 1));
  std::int64_t last = -1;
  for (std::size_t p = 0; p < rows.size(); ++p) {
    if (rows[p][0] < 0) continue;
    last = rows[p][0];
    if (before[p + 1] > target) break;
  }
  return last;
}

template <class T>
core::vector<std::int64_t> cuda_engine<T>::joined_rows_at(std::span<const std::int64_t> positions, bool positive) {
  const core::vector<T>& weights = host_weights();
  core::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < m_; ++i)
    if ((weights[at(i)] > 0) == positive) rows.push_back(first_ + i);
  const core::vector<std::int64_t> counts =
      ranks_.all(joined::positions, core::vector<std::int64_t>{static_cast<std::int64_t>(rows.size())});
  std::int64_t before = 0;
  for (std::size_t p = 0; p < ranks_.place(); ++p) before += counts[p];
  core::vector<std::int64_t> found;
  for (const std::int64_t each : positions) {
    const std::int64_t place = each - before;
    found.push_back(place >= 0 && place < static_cast<std::int64_t>(rows.size()) ? rows[at(place)] : -1);
  }
  return joined_rows(joined::positions, std::move(found));
}

// Every device sends the rows that it has, in the order in which they are asked for.
template <class T>
void cuda_engine<T>::read_joined_points(std::span<const std::int64_t> rows, T* to) {
  core::vector<std::int64_t> own;
  for (const std::int64_t each : rows)
    if (each >= first_ && each < first_ + m_) own.push_back(each - first_);
  core::vector<T> points(own.size() * at(n_));
  read_own_points(own, points.data());
  for (std::int64_t& each : own) each += first_;
  const std::vector<core::vector<std::int64_t>> lists = ranks_.parts(joined::points, std::span<const std::int64_t>(own));
  const std::vector<core::vector<T>> values = ranks_.parts(joined::points, std::span<const T>(points));
  for (std::size_t p = 0; p < lists.size(); ++p) {
    std::size_t next = 0;
    for (std::size_t e = 0; e < rows.size() && next < lists[p].size(); ++e) {
      if (lists[p][next] != rows[e]) continue;
      std::copy_n(values[p].begin() + static_cast<std::ptrdiff_t>(next * at(n_)), n_, to + e * at(n_));
      ++next;
    }
  }
}

// A pass for the driver. The sums of this device are verified before they are added to those of the others.
template <class T>
void cuda_engine<T>::join_pass(const sealed_centroids<T>& centroids) {
  core::vector<unsigned long long> words;
  const auto once = [&](int number) {
    if (number > 0) {
      verify_own_row_stats();
      iterations().begin_run();
    }
    launch_pass(centroids, true);
    collect();
    words = iterations().read_words();
    const std::uint64_t members = weighted() ? statistics_.own[at(n_)].positive : static_cast<std::uint64_t>(m_);
    return failed_if(!iterations().words_fit(words, words_of(statistics_.own, points_.normalized.words), members, m_));
  };
  if (protect_) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.total", 0, [&](int number) {
      what_.seen.checked(at(columns()) + 4);
      return once(number);
    });
  } else {
    (void)once(0);
  }
  core::vector<double> labelled, sums;
  if (protect_) labelled = labelled_blocks();
  ranks_.add(joined::pass, words, 0, centroids.seal());
  joined_.pass = sealed<core::vector<unsigned long long>>(std::move(words));
  if (protect_) joined_.labelled = ranks_.all(joined::labelled, labelled);
  if (!host_.sums) return;
  sums.assign(at((n_ + 1) * k_), 0.0);
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == ranks_.place()) sums = host_sums(std::move(sums));
    sums = ranks_.parts(joined::host_sums, std::span<const double>(sums))[p];
  }
  joined_.host = std::move(sums);
}

// Converts the sums of all devices, which are kept with their seal. Returns whether they agree with the sums over all points.
template <class T>
bool cuda_engine<T>::convert_joined(cluster_sums& total) {
  if (protect_) {
    using state = typename sealed<core::vector<unsigned long long>>::state;
    what_.seen.checked(1);
    const state found = joined_.pass.verify();
    if (found != state::intact)
      what_.seen.detected("kmeans.total", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                          found == state::repaired && repairs() ? action::corrected : action::uncorrectable, 0);
  }
  iterations().convert(joined_.pass.values(), total);
  if (!protect_) return true;
  return iterations().words_fit(joined_.pass.values(), words_of(statistics_.sums, points_.normalized.words), problem().members, all_);
}

#define BALLAST_JOINED(T)                                                                                  \
  template void cuda_engine<T>::settle();                                                                  \
  template abft::finding cuda_engine<T>::agreed(const abft::finding&);                                     \
  template core::vector<column_ranges<T>> cuda_engine<T>::join_ranges(const buffer&, std::int64_t);        \
  template void cuda_engine<T>::join_refused(ranges<T>&);                                                  \
  template void cuda_engine<T>::join_row_stats();                                                          \
  template void cuda_engine<T>::join_potentials();                                                         \
  template core::vector<std::int64_t> cuda_engine<T>::joined_rows(joined, core::vector<std::int64_t>);     \
  template std::int64_t cuda_engine<T>::joined_row_by_weight(double);                                      \
  template core::vector<std::int64_t> cuda_engine<T>::joined_rows_at(std::span<const std::int64_t>, bool); \
  template void cuda_engine<T>::read_joined_points(std::span<const std::int64_t>, T*);                     \
  template void cuda_engine<T>::join_pass(const sealed_centroids<T>&);                                     \
  template bool cuda_engine<T>::convert_joined(cluster_sums&);
BALLAST_JOINED(float)
BALLAST_JOINED(double)
#undef BALLAST_JOINED

}  // namespace ballast::kmeans::cuda
