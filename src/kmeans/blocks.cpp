// One block of points: scratch, verified loading, labelling and distances, with repair; and the panel of centroids that blocks use.
// Layer: driver of K-Means (driver.hpp).
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>

#include "abft/threshold.hpp"
#include "abft/verify.hpp"

namespace ballast::kmeans {

template <class T>
void engine<T>::allocate(worker& made, bool with_distances) const {
  tile<T>& block = made.block;
  block.n = n_;
  block.capacity = capacity_;
  block.width = kernels_.width;
  block.x = core::aligned_buffer<T>(core::checked_product(capacity_, n_));
  for (auto* each : {&block.weight, &block.norm, &block.minimum, &block.twin, &block.residual}) {
    *each = core::aligned_buffer<T>(capacity_);
    std::fill_n(each->data(), capacity_, T(0));
  }
  for (auto* each : {&block.index, &block.index_twin, &block.label}) {
    *each = core::aligned_buffer<std::int32_t>(capacity_);
    std::fill_n(each->data(), capacity_, 0);
  }
  block.exact = core::aligned_buffer<double>(capacity_);
  if (with_distances) block.distance = core::aligned_buffer<T>(k_group * capacity_);
  made.labels.resize(at(capacity_));
}

template <class T>
void engine<T>::prepare_workers(bool with_distances) {
  if (workers_.empty()) workers_.resize(at(threads_));
  if (protect_ && facts_.empty()) {
    facts_.resize(at(blocks_));
    block_facts unknown;
    unknown.norms[0] = -1;
    fact_twins_.assign(at(blocks_), unknown);
  }
  for (worker& each : workers_) {
    if (each.block.capacity == 0 || (with_distances && each.block.distance.size() == 0)) allocate(each, with_distances);
  }
}

template <class T>
void engine<T>::load(worker& here, std::int64_t block) {
  here.block.first = block * capacity_;
  here.block.count = std::min(capacity_, m_ - here.block.first);
  kernels_.load(source_, here.block);
}

// Takes the centroids for a pass: verifies that they are what was sealed, packs them and verifies the checksum centroids.
template <class T>
void engine<T>::make_verified_panel(sealed_centroids<T>& centroids, panel<T>& made) {
  const inject::place here = {0, 1, 1, 2};
  injector_.strike(inject::site::kmeans_centroid, here, centroids.data(), centroids.size());
  if (!protect_) {
    make_panel(centroids.values().data(), k_, n_, false, made);
    return;
  }
  recorder_.checked(1);
  if (repairs()) {
    using state = typename sealed_centroids<T>::state;
    const state found = centroids.verify();
    if (found == state::repaired) recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::corrected, 0);
    if (found == state::lost) recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  } else if (!centroids.intact()) {
    recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  }
  bool failed = false;
  double worst = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    make_panel(centroids.values().data(), k_, n_, true, made);
    injector_.strike(inject::site::kmeans_checksum, {}, made.checksum.data(), made.checksum.size());
    worst = verify_checksum(made);
    recorder_.checked(static_cast<std::uint64_t>(made.groups * n_));
    if (abft::verify(worst, abft::guarded_threshold(1)) == abft::k_pass) {
      if (failed) {
        recorder_.detected("kmeans.checksum", -1, worst, 1, action::recomputed, 0);
        recorder_.false_alarm();
      }
      return;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.checksum", -1, worst, 1, action::uncorrectable, 0);
}

// Loads a block and verifies that x is what it was at the first load. At the first load it is compared with the points by way of another
// order of summation.
template <class T>
void engine<T>::load_verified(worker& here, int slot, std::int64_t block) {
  tile<T>& b = here.block;
  block_facts& kept = facts_[at(block)];
  block_facts& twin = fact_twins_[at(block)];
  b.cells = kept.norms;
  bool failed = false;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load(here, block);
    injector_.strike(inject::site::kmeans_points, at_block(block), b.x.data(), (b.count + b.width - 1) / b.width * b.width * n_);
    std::uint64_t found[64] = {};
    kernels_.sign(b, found);
    // Both copies are equal once they are known; one that was hit while it waited is made again.
    if (attempt > 0 || !(kept == twin)) {
      kept = {};
      kernels_.sign_source(source_, b, kept.lanes);
      kernels_.measure(b);
      const std::int64_t cell = cell_points(b);
      for (std::int64_t p = 0; p < b.count; ++p) {
        double& largest = kept.norms[p / cell];
        largest = std::max(largest, static_cast<double>(b.norm[p]));
      }
      twin = kept;
    }
    recorder_.checked(1);
    if (std::equal(std::begin(found), std::end(found), kept.lanes)) {
      if (failed) recorder_.detected("kmeans.points", b.first, std::nan(""), 0, action::recomputed, slot);
      return;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.points", b.first, std::nan(""), 0, action::uncorrectable, slot);
}

// Labels a block. On return at.block.label has been verified, or the failure is on record.
template <class T>
void engine<T>::assign_block(worker& here, int slot, std::int64_t block, const panel<T>& centroids, const sealed_centroids<T>& origin,
                             bool keep) {
  using inject::site;
  tile<T>& b = here.block;
  const inject::place place = at_block(block);
  const auto copy_labels = [&] {
    injector_.strike(site::kmeans_index, place, b.index.data(), b.count);
    std::copy_n(b.index.data(), b.count, b.label.data());
    injector_.strike(site::kmeans_label, place, b.label.data(), b.count);
  };
  const auto keep_in_range = [&] {
    for (std::int64_t p = 0; p < b.count; ++p) {
      if (static_cast<std::uint64_t>(static_cast<std::uint32_t>(b.label[p])) >= static_cast<std::uint64_t>(k_))
        b.label[p] = static_cast<std::int32_t>(k_ - 1);
    }
  };
  if (!protect_) {
    load(here, block);
    injector_.strike(site::kmeans_points, place, b.x.data(), (b.count + b.width - 1) / b.width * b.width * n_);
    (void)kernels_.assign(centroids, false, keep, {&injector_, place}, b);
    copy_labels();
    // A label that was hit must not reach beyond the centroids.
    keep_in_range();
    return;
  }
  const panel<T>* use = &centroids;
  finding first;
  double limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load_verified(here, slot, block);
    b.bounds = use->bounds;
    const auto strike = [&](std::int64_t step, std::vector<abft::guarded_threshold>& limits) {
      injector_.strike(site::kmeans_threshold, {block, blocks_, step, 2}, &limits[0].value, 2 * use->groups);
    };
    strike(0, b.bounds.slope);
    strike(1, b.bounds.offset);
    finding found = kernels_.assign(*use, true, keep, {&injector_, place}, b);
    copy_labels();
    if (found.row < 0) found = kernels_.check(b, k_);
    std::uint32_t word = abft::verify(found.residual, abft::guarded_threshold(0));
    for (std::int64_t g = 0; g < use->groups; ++g) {
      if (abft::verify(0, b.bounds.slope[at(g)]) != abft::k_pass || abft::verify(0, b.bounds.offset[at(g)]) != abft::k_pass)
        word = abft::k_fail;
    }
    injector_.strike(site::kmeans_comparison, place, &word, 1);
    recorder_.checked(static_cast<std::uint64_t>(b.count * (use->groups + 2)));
    if (word == abft::k_pass) {
      if (attempt == 0) return;
      recorder_.detected("kmeans.assignment", first.row, first.residual, limit, action::recomputed, slot);
      if (std::equal(here.labels.begin(), here.labels.begin() + b.count, b.label.data())) recorder_.false_alarm();
      return;
    }
    if (attempt == 0) {
      first = found;
      if (first.row < 0) first.row = b.first;
      limit = use->bounds.offset[0].value;
      std::copy_n(b.label.data(), b.count, here.labels.begin());
    }
    if (!repairs()) break;
    // The shared panel may be what was hit: the next attempt makes its own.
    if (attempt + 1 < k_attempts) {
      make_panel(origin.values().data(), k_, n_, true, here.fresh);
      use = &here.fresh;
    }
  }
  recorder_.detected("kmeans.assignment", first.row, first.residual, limit, action::uncorrectable, slot);
  keep_in_range();
}

// The distances of a block to one group of centroids. False if they could not be verified.
template <class T>
bool engine<T>::distances_block(worker& here, int slot, std::int64_t block, const panel<T>& centroids, const T* origin, std::int64_t group,
                                bool strike) {
  tile<T>& b = here.block;
  const panel<T>* use = &centroids;
  inject::active_injector quiet(nullptr, "kmeans");
  inject::place place = {block, blocks_, group, centroids.groups};
  finding first;
  double limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load(here, block);
    b.bounds = use->bounds;
    kernels_.distances(*use, group, protect_, {strike ? &injector_ : &quiet, place}, b);
    if (!protect_) return true;
    finding found;
    for (std::int64_t p = 0; p < b.count; ++p) {
      if (!(b.residual[p] == 0)) found = {b.residual[p], b.first + p};
    }
    recorder_.checked(static_cast<std::uint64_t>(b.count));
    if (abft::verify(found.residual, abft::guarded_threshold(0)) == abft::k_pass) {
      if (attempt > 0) recorder_.detected("kmeans.distance", first.row, first.residual, limit, action::recomputed, slot);
      return true;
    }
    if (attempt == 0) {
      first = found;
      limit = use->bounds.offset[at(group)].value;
    }
    if (!repairs()) break;
    if (attempt + 1 < k_attempts) {
      make_panel(origin, centroids.k, n_, true, here.fresh);
      use = &here.fresh;
    }
  }
  recorder_.detected("kmeans.distance", first.row, first.residual, limit, action::uncorrectable, slot);
  return false;
}

template void engine<float>::prepare_workers(bool);
template void engine<double>::prepare_workers(bool);
template void engine<float>::load(worker&, std::int64_t);
template void engine<double>::load(worker&, std::int64_t);
template void engine<float>::load_verified(worker&, int, std::int64_t);
template void engine<double>::load_verified(worker&, int, std::int64_t);
template void engine<float>::make_verified_panel(sealed_centroids<float>&, panel<float>&);
template void engine<double>::make_verified_panel(sealed_centroids<double>&, panel<double>&);
template void engine<float>::assign_block(worker&, int, std::int64_t, const panel<float>&, const sealed_centroids<float>&, bool);
template bool engine<float>::distances_block(worker&, int, std::int64_t, const panel<float>&, const float*, std::int64_t, bool);
template void engine<double>::assign_block(worker&, int, std::int64_t, const panel<double>&, const sealed_centroids<double>&, bool);
template bool engine<double>::distances_block(worker&, int, std::int64_t, const panel<double>&, const double*, std::int64_t, bool);

}  // namespace ballast::kmeans
