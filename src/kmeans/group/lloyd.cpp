// One pass of Lloyd's iteration over the rows of all ranks: one sum of integers over the ranks.
// Layer: K-Means, ranks (engine.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kmeans/group/engine.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::ranks {

namespace {

// The single numbers of a pass, after the sums.
enum single : std::int64_t { k_projection = 0, k_weight = 2, k_members = 4, k_changed = 5, k_changed_twin = 6, k_flag = 7 };

std::int64_t whole_number(double x) { return std::abs(x) < 0x1p62 ? static_cast<std::int64_t>(x) : 0; }

double projection_factor(std::int64_t m, std::int64_t n, std::int64_t k) {
  // Σ label · w · (x · r): m terms below k · 2 · n · 2 · 2.
  return std::ldexp(1.0, -std::ilogb(8.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k)) - 1);
}

}  // namespace

template <class T>
void group_engine<T>::begin_run() {
  for (part& each : parts_) {
    each.engine->begin_run();
    if (each.total.members.size() == 0) each.total.allocate(k_, n_, weighted_);
  }
}

// The sums of the points of each cluster, of their weights and numbers, in the layout of the message.
template <class T>
words group_engine<T>::clusters_of(const part& of) const {
  const source<T>& from = of.engine->points();
  const std::span<const std::int32_t> labels = of.engine->labels();
  std::vector<words> slots(at(threads_));
  std::vector<std::vector<double>> rows(at(threads_), std::vector<double>(at(n_)));
  for_chunks(of, [&](std::int64_t, std::int64_t first, std::int64_t end, int slot) {
    words& to = slots[at(slot)];
    if (to.empty()) to.assign(at(at_.singles), 0);
    double* x = rows[at(slot)].data();
    for (std::int64_t i = first; i < end; ++i) {
      const double w = read_row(from, i, x);
      const std::int64_t j = labels[at(i)];
      std::int64_t* sums = to.data() + 2 * j * n_;
      for (std::int64_t f = 0; f < n_; ++f) sums_.add(w * (x[f] * scales_.point[at(f)]), sums[2 * f], sums[2 * f + 1]);
      if (weighted_) sums_.add(w, to[at(at_.weights + 2 * j)], to[at(at_.weights + 2 * j + 1)]);
      to[at(at_.members + j)] += w > 0 ? 1 : 0;
    }
  });
  words made(at(at_.singles), 0);
  for (const words& each : slots)
    for (std::size_t i = 0; i < each.size(); ++i) made[i] = wrapping_sum(made[i], each[i]);
  return made;
}

// Verifies the sums of a part. Over the clusters they add up to those of its points, to the bit; and each is that of the host backend,
// which were verified by label, up to the rounding of the latter.
template <class T>
abft::finding group_engine<T>::verify_clusters(const part& of, const words& found) const {
  abft::finding made;
  const auto compare = [&](double residual, double threshold) {
    if (abft::verify(residual, abft::guarded_threshold(threshold)) == abft::k_pass) return;
    made.word = abft::k_fail;
    made.residual = residual;
    made.threshold = threshold;
  };
  words whole(at(2 * n_ + 3), 0);
  double most = 0;
  for (std::int64_t j = 0; j < k_; ++j) {
    for (std::int64_t e = 0; e < 2 * n_; ++e) whole[at(e)] = wrapping_sum(whole[at(e)], found[at(2 * j * n_ + e)]);
    for (std::int64_t e = 0; weighted_ && e < 2; ++e)
      whole[at(2 * n_ + e)] = wrapping_sum(whole[at(2 * n_ + e)], found[at(at_.weights + 2 * j + e)]);
    whole[at(2 * n_ + 2)] += found[at(at_.members + j)];
    if (found[at(at_.members + j)] != of.total.members[j]) compare(std::numeric_limits<double>::quiet_NaN(), 0);
    most = std::max(most, static_cast<double>(of.total.members[j]));
  }
  for (std::size_t e = 0; e < whole.size(); ++e)
    if (whole[e] != of.constant[e] && (weighted_ || e < at(2 * n_) || e == at(2 * n_ + 2)))
      compare(std::numeric_limits<double>::quiet_NaN(), 0);
  const double count = of.whole.count, chain = most + k_column_stats_rows + count / k_column_stats_rows;
  for (std::int64_t f = 0; f < n_; ++f) {
    const double root = std::sqrt(of.whole.squares[at(f)]) + 0x1p-537 * std::sqrt(count);
    const double limit = thresholds::sum(chain, count, (weighted_ ? 2 : 1) * root) + count * 0x1p-60 / scales_.point[at(f)];
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t e = j * n_ + f;
      compare(sums_.value(found[at(2 * e)], found[at(2 * e + 1)]) / scales_.point[at(f)] - of.total.sums[e], limit);
    }
  }
  for (std::int64_t j = 0; weighted_ && j < k_; ++j)
    compare(sums_.value(found[at(at_.weights + 2 * j)], found[at(at_.weights + 2 * j + 1)]) - of.total.weights[j],
            thresholds::sum(chain, 1, of.whole.weight));
  return made;
}

template <class T>
void group_engine<T>::pass(const sealed_centroids<T>& centroids) {
  words own(at(at_.all), 0);
  std::int64_t* const single = own.data() + at_.singles;
  const double factor = projection_factor(m_, n_, k_);
  for (part& each : parts_) {
    each.engine->pass(centroids);
    if (args_.seen.uncorrectable() && repairs()) break;
    each.engine->add_sums(each.total);
    words found;
    if (!protects()) {
      found = clusters_of(each);
    } else {
      run::attempt(args_.seen, args_.how.protection, "kmeans.total", 0, [&](int number) {
        if (number > 0) {
          each.whole = each.engine->repair_sums(centroids);
          each.engine->add_sums(each.total);
        }
        args_.seen.checked(static_cast<std::uint64_t>(n_ + 4 + k_ * n_ + 2 * n_));
        found = clusters_of(each);
        const abft::finding seen = verify_sums(each.total, each.whole, direction_);
        return seen.word == abft::k_pass ? verify_clusters(each, found) : seen;
      });
    }
    for (std::size_t i = 0; i < found.size(); ++i) own[i] = wrapping_sum(own[i], found[i]);
    singles_.add(each.total.labelled_projection * factor, single[k_projection], single[k_projection + 1]);
    singles_.add(each.total.labelled_weight * factor, single[k_weight], single[k_weight + 1]);
    single[k_members] += whole_number(each.total.labelled_members);
    single[k_changed] += each.total.changed;
    single[k_changed_twin] += each.total.changed_twin;
  }
  single[k_flag] = flag();
  expect(operation::pass, centroids.seal());
  over_.add(own);
  failed_ = failed_ || single[k_flag] != 0;
  message_ = sealed<words>(std::move(own));
}

// Converts the sums of all ranks, which are kept with their seal.
template <class T>
void group_engine<T>::add_sums(cluster_sums& total) {
  if (protects()) {
    args_.seen.checked(1);
    using state = typename sealed<words>::state;
    const state found = message_.verify();
    if (found != state::intact)
      args_.seen.detected("kmeans.total", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                          found == state::repaired && repairs() ? action::corrected : action::uncorrectable, 0);
  }
  const words& from = message_.values();
  for (std::int64_t e = 0; e < k_ * n_; ++e) total.sums[e] = sums_.value(from[at(2 * e)], from[at(2 * e + 1)]) / scales_.point[at(e % n_)];
  for (std::int64_t j = 0; j < total.weights.size(); ++j)
    total.weights[j] = sums_.value(from[at(at_.weights + 2 * j)], from[at(at_.weights + 2 * j + 1)]);
  for (std::int64_t j = 0; j < k_; ++j) total.members[j] = from[at(at_.members + j)];
  const std::int64_t* const single = from.data() + at_.singles;
  const double factor = projection_factor(m_, n_, k_);
  total.labelled_projection = singles_.value(single[k_projection], single[k_projection + 1]) / factor;
  total.labelled_weight = singles_.value(single[k_weight], single[k_weight + 1]) / factor;
  total.labelled_members = static_cast<double>(single[k_members]);
  total.changed = single[k_changed];
  total.changed_twin = single[k_changed_twin];
  // Chains of a rank are at most as long as those of a block of the host backend, and a rank or part adds one more.
  total.label_chain = 512 + static_cast<std::int64_t>(over_.size());
}

// The parts were verified before they were sent, and the sums of all ranks when they came.
template <class T>
point_sums group_engine<T>::repair_sums(const sealed_centroids<T>&) {
  return whole_;
}

template <class T>
core::vector<far_point> group_engine<T>::farthest(const sealed_centroids<T>& centroids, std::int64_t count) {
  words own;
  for (part& each : parts_) {
    for (const far_point& one : each.engine->farthest(centroids, count))
      own.insert(own.end(), {one.row + each.rows.first, one.label, std::bit_cast<std::int64_t>(one.weight),
                             std::bit_cast<std::int64_t>(one.distance)});
  }
  expect(operation::farthest, centroids.seal());
  core::vector<far_point> made;
  for (const words& each : over_.gather(std::span<const std::int64_t>(own))) {
    for (std::size_t i = 0; i + 3 < each.size(); i += 4)
      made.push_back({each[i], each[i + 1], std::bit_cast<double>(each[i + 2]), std::bit_cast<double>(each[i + 3])});
  }
  std::ranges::sort(
      made, [](const far_point& a, const far_point& b) { return a.distance != b.distance ? a.distance > b.distance : a.row < b.row; });
  if (static_cast<std::int64_t>(made.size()) > count) made.resize(at(count));
  return made;
}

template class group_engine<float>;
template class group_engine<double>;

}  // namespace ballast::kmeans::ranks
