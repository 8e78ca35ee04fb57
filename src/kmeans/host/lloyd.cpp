// One pass of Lloyd's iteration: labels and sums of each group of blocks with their invariants; the sum of the groups; and the points
// farthest from their centroids.
// Layer: backend "host" (engine.hpp).
#include <algorithm>
#include <limits>

#include "core/parallel.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

template <class T>
void host_engine<T>::begin_run() {
  prepare_workers(false);
  labels_.last.assign(at(m_), 0);
  labels_.previous.assign(at(m_), -1);
  labels_.first_pass = true;
  if (!group_sums_.clusters.empty()) return;
  group_sums_.clusters.resize(at(division_.groups));
  for (cluster_sums& each : group_sums_.clusters) {
    each.allocate(k_, summed_features(), weighted());
    each.label_chain = division_.capacity;
  }
  if (!protect_) return;
  projection_.values.resize(at(m_));
  projection_.done.assign(at(division_.blocks), 0);
  projection_.direction = projection_direction(n_);
}

// Labels the blocks of one group and adds their points to its sums. `again`: data kept from earlier passes may have been corrupted while
// stored, so it is computed again. Returns whether all labels were stored as they were found.
template <class T>
bool host_engine<T>::sum_blocks(std::int64_t group, int slot, const packed_centroids<T>& shared, const sealed_centroids<T>& origin,
                                bool again) {
  worker& here = workers_[at(slot)];
  cluster_sums& sums = group_sums_.clusters[at(group)];
  sums.clear();
  bool stored = true;
  if (again) measure_group(group, slot);
  for (std::int64_t block = first_block(group); block < first_block(group + 1); ++block) {
    // These arrays are read after the search; prefetch them while it runs.
    const std::int64_t begin = block * division_.capacity;
    const std::int64_t end = std::min(begin + division_.capacity, m_);
    for (std::int64_t i = begin; i < end; i += 16) __builtin_prefetch(labels_.previous.data() + i);
    for (std::int64_t i = begin; checks() && i < end; i += 8) __builtin_prefetch(projection_.values.data() + i);
    assign_block(here, slot, block, shared, origin, {&source_, shared.rows.data(), origin.values().data()}, search_kind::checked);
    const point_block<T>& b = here.block;
    add_points(here, sums);
    const std::int32_t* before = labels_.previous.data() + b.first;
    std::int32_t changed = 0;
    for (std::int64_t p = 0; p < b.count; ++p) changed += b.label[p] != before[p] ? 1 : 0;
    sums.changed += changed;
    if (!store_labels(b)) stored = false;
    if (!checks()) continue;
    double* projection = projection_.values.data() + b.first;
    if (again || projection_.done[at(block)] == 0) kernels_.project(b, projection_.direction.data(), projection);
    projection_.done[at(block)] = 1;
    kernels_.sum_labels(b, projection, sums);
    std::int32_t same = 0;
    for (std::int64_t p = 0; p < b.count; ++p) same += b.twin.index[p] == before[p] ? 1 : 0;
    sums.changed_twin += b.count - same;
  }
  const inject::position position = {group, division_.groups, 0, 1};
  if (sums.sums.size() != 0) what_.injector.strike(site::sum, position, sums.sums.data(), sums.sums.size());
  if (weighted()) {
    what_.injector.strike(site::count, position, sums.weights.data(), sums.weights.size());
  } else {
    what_.injector.strike(site::count, position, sums.members.data(), sums.members.size());
  }
  return stored;
}

template <class T>
void host_engine<T>::sum_group(std::int64_t group, int slot, const packed_centroids<T>& shared, const sealed_centroids<T>& origin) {
  if (!checks()) {
    (void)sum_blocks(group, slot, shared, origin, false);
    return;
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.sums", slot, [&](int number) {
    if (!sum_blocks(group, slot, shared, origin, number > 0)) return bits_differ(true, group);
    abft::finding found = verify_sums(group_sums_.clusters[at(group)], group_sums_.points[at(group)], projection_.direction);
    found.index = group;
    what_.seen.checked(static_cast<std::uint64_t>(n_ + 4));
    return found;
  });
}

template <class T>
void host_engine<T>::pass(const sealed_centroids<T>& centroids) {
  if (!labels_.first_pass) labels_.last.swap(labels_.previous);
  labels_.first_pass = false;
  pack_verified_centroids(centroids, packed_);
  core::parallel_for(threads_, division_.groups, [&](std::int64_t group, int slot) {
    if (!stop()) sum_group(group, slot, packed_, centroids);
  });
}

// Adds each element in the order of the groups.
template <class T>
void host_engine<T>::add_sums(cluster_sums& total) {
  total.clear();
  total.label_chain = division_.capacity;
  const std::int64_t rows = std::max<std::int64_t>(1, 16384 / n_);
  core::parallel_for(threads_, (k_ + rows - 1) / rows, [&](std::int64_t task, int) {
    const std::int64_t begin = task * rows * n_;
    const std::int64_t end = std::min(begin + rows * n_, k_ * n_);
    for (const cluster_sums& each : group_sums_.clusters) {
      for (std::int64_t e = begin; e < end; ++e) total.sums[e] += each.sums[e];
    }
  });
  add_counts(total);
}

// Adds all but the sums of points.
template <class T>
void host_engine<T>::add_counts(cluster_sums& total) const {
  for (const cluster_sums& each : group_sums_.clusters) {
    // Unsigned arithmetic: a corrupted number may overflow.
    for (std::int64_t j = 0; j < k_; ++j)
      total.members[j] =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(total.members[j]) + static_cast<std::uint64_t>(each.members[j]));
    for (std::int64_t j = 0; j < total.weights.size(); ++j) total.weights[j] += each.weights[j];
    total.labelled_projection += each.labelled_projection;
    total.labelled_weight += each.labelled_weight;
    total.labelled_members += each.labelled_members;
    total.changed += each.changed;
    total.changed_twin += each.changed_twin;
  }
}

template <class T>
point_sums host_engine<T>::repair_sums(const sealed_centroids<T>& centroids) {
  for (std::int64_t group = 0; group < division_.groups; ++group) {
    if (verify_sums(group_sums_.clusters[at(group)], group_sums_.points[at(group)], projection_.direction).word != abft::k_pass)
      sum_group(group, 0, packed_, centroids);
  }
  return add_measures();
}

template <class T>
core::vector<far_point> host_engine<T>::farthest(const sealed_centroids<T>& centroids, std::int64_t count) {
  core::vector<double> distance(at(m_));
  core::parallel_for(threads_, division_.blocks, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    load(here, block);
    point_block<T>& b = here.block;
    std::copy_n(labels_.last.data() + b.first, b.count, b.label.data());
    kernels_.exact(tile(here), centroids.values().data(), packed_.sparse.squares[1].data(), 1, b);
    std::copy_n(b.exact.data(), b.count, distance.begin() + b.first);
  });
  core::vector<std::int64_t> order;
  order.reserve(at(m_));
  for (std::int64_t i = 0; i < m_; ++i) {
    if (!(distance[at(i)] >= 0)) distance[at(i)] = -1;  // a NaN, which only an unprotected fault can produce, has no order
    if (!weighted() || source_.weights[at(i)] > 0) order.push_back(i);
  }
  const auto wanted = std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + wanted, order.end(), [&](std::int64_t a, std::int64_t b) {
    return distance[at(a)] != distance[at(b)] ? distance[at(a)] > distance[at(b)] : a < b;
  });
  core::vector<far_point> made;
  for (std::int64_t e = 0; e < wanted; ++e) {
    const std::int64_t i = order[at(e)];
    made.push_back({i, labels_.last[at(i)], static_cast<double>(weight_of(i)), distance[at(i)]});
  }
  return made;
}

template void host_engine<float>::begin_run();
template void host_engine<float>::pass(const sealed_centroids<float>&);
template void host_engine<float>::add_sums(cluster_sums&);
template bool host_engine<float>::sum_blocks(std::int64_t, int, const packed_centroids<float>&, const sealed_centroids<float>&, bool);
template bool host_engine<double>::sum_blocks(std::int64_t, int, const packed_centroids<double>&, const sealed_centroids<double>&, bool);
template void host_engine<float>::add_counts(cluster_sums&) const;
template void host_engine<double>::add_counts(cluster_sums&) const;
template point_sums host_engine<float>::repair_sums(const sealed_centroids<float>&);
template core::vector<far_point> host_engine<float>::farthest(const sealed_centroids<float>&, std::int64_t);
template void host_engine<double>::begin_run();
template void host_engine<double>::pass(const sealed_centroids<double>&);
template void host_engine<double>::add_sums(cluster_sums&);
template point_sums host_engine<double>::repair_sums(const sealed_centroids<double>&);
template core::vector<far_point> host_engine<double>::farthest(const sealed_centroids<double>&, std::int64_t);

}  // namespace ballast::kmeans::host
