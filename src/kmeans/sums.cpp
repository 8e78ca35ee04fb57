// Sums of the update step and their invariants.
#include "kmeans/sums.hpp"

#include <algorithm>
#include <cmath>

#include "abft/weights.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans {

namespace {

constexpr std::uint64_t k_direction_seed = 0x646972656374;

}  // namespace

void cluster_sums::allocate(std::int64_t k, std::int64_t n, bool weighted) {
  sums = core::aligned_buffer<double>(core::checked_product(k, n));
  if (weighted) weights = core::aligned_buffer<double>(k);
  members = core::aligned_buffer<std::int64_t>(k);
}

void cluster_sums::clear() {
  std::fill_n(sums.data(), sums.size(), 0.0);
  std::fill_n(weights.data(), weights.size(), 0.0);
  std::fill_n(members.data(), members.size(), 0);
  labelled_projection = labelled_weight = labelled_members = 0;
  changed = changed_twin = 0;
}

void point_sums::clear(std::int64_t n, bool weighted) {
  first.assign(at(n), 0.0);
  plain.assign(weighted ? at(n) : 0, 0.0);
  squares.assign(at(n), 0.0);
  total_square = weighted_square = largest_square = weight = members = count = 0;
}

void point_sums::add(const point_sums& other) {
  for (std::size_t f = 0; f < first.size(); ++f) {
    first[f] += other.first[f];
    squares[f] += other.squares[f];
  }
  for (std::size_t f = 0; f < plain.size(); ++f) plain[f] += other.plain[f];
  total_square += other.total_square;
  weighted_square += other.weighted_square;
  if (!(other.largest_square <= largest_square)) largest_square = other.largest_square;
  weight += other.weight;
  members += other.members;
  count += other.count;
  part_rows = std::max(part_rows, other.part_rows);
}

core::vector<double> projection_direction(std::int64_t n) {
  core::vector<double> made;
  for (std::uint64_t f = 0; f < static_cast<std::uint64_t>(n); ++f)
    made.push_back(abft::random_weight(k_direction_seed, 1, f) * (core::random_bits(k_direction_seed, 2, f) % 2 == 0 ? 1 : -1));
  return made;
}

namespace {

// `labelled`: also the second invariant, over labels, and the count of changed ones.
abft::finding verify_invariants(const cluster_sums& sums, const point_sums& expected, const core::vector<double>& direction,
                                bool labelled_too) {
  const auto n = static_cast<std::int64_t>(direction.size());
  const std::int64_t k = sums.members.size();
  abft::finding found;
  const auto compare = [&](double residual, double threshold) {
    if (abft::verify(residual, abft::guarded_threshold(threshold)) == abft::k_pass) return;
    found.word = abft::k_fail;
    found.residual = residual;
    found.threshold = threshold;
  };
  core::vector<double> first(at(n), 0.0), second(at(n), 0.0);
  double first_weight = 0, second_weight = 0, first_members = 0, second_members = 0;
  double most = 0;  // the largest number of points of one cluster
  bool in_range = true;
  const bool weighted = sums.weights.size() != 0;
  for (std::int64_t j = 0; j < k; ++j) {
    const double label = static_cast<double>(j);
    const double* row = sums.sums.data() + j * n;
    for (std::int64_t f = 0; f < n; ++f) {
      first[at(f)] += row[f];
      second[at(f)] += label * row[f];
    }
    const double members = static_cast<double>(sums.members[j]);
    in_range = in_range && members >= 0 && members <= expected.count;
    most = std::max(most, members);
    first_members += members;
    second_members += label * members;
    if (weighted) {
      first_weight += sums.weights[j];
      second_weight += label * sums.weights[j];
    }
  }
  const double clusters = static_cast<double>(k);
  const double count = expected.count;
  const double heaviest = weighted ? 2 : 1;  // normalized weights are below 2
  // Squares below the smallest number underflow, so the limit allows for coordinates below its square root.
  const auto root_of = [&](double squares) { return std::sqrt(squares) + 0x1p-537 * std::sqrt(count); };
  const double chain = most + expected.part_rows + count / k_column_stats_rows;
  double labelled = 0;
  for (std::int64_t f = 0; f < n; ++f) {
    compare(first[at(f)] - expected.first[at(f)], thresholds::sum(chain + clusters, count, heaviest * root_of(expected.squares[at(f)])));
    labelled += second[at(f)] * direction[at(f)];
  }
  // Directions are below 2 in magnitude and of random sign. A projection is a chain of n products, and its labels are summed in chains of
  // label_chain; the other side sums over k clusters.
  const double longest = chain + static_cast<double>(n + sums.label_chain + k);
  if (labelled_too)
    compare(labelled - sums.labelled_projection, clusters * thresholds::sum(longest, count, 4 * heaviest * root_of(expected.total_square)));
  if (weighted) {
    compare(first_weight - expected.weight, thresholds::sum(chain + clusters, 1, expected.weight));
    if (labelled_too) compare(second_weight - sums.labelled_weight, clusters * thresholds::sum(longest, 1, expected.weight));
  }
  const bool labels_fit = !labelled_too || (second_members == sums.labelled_members && sums.changed == sums.changed_twin);
  if (!in_range || first_members != expected.members || !labels_fit) {
    found.word = abft::k_fail;
    found.residual = first_members - expected.members;
    found.threshold = 0;
  }
  return found;
}

}  // namespace

abft::finding verify_sums(const cluster_sums& sums, const point_sums& expected, const core::vector<double>& direction) {
  return verify_invariants(sums, expected, direction, true);
}

abft::finding verify_bare_sums(const cluster_sums& sums, const point_sums& expected, const core::vector<double>& direction) {
  return verify_invariants(sums, expected, direction, false);
}

}  // namespace ballast::kmeans
