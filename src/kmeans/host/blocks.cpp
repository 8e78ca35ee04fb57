// One block of points: scratch, verified loading, labels and distances, each repeated until its checks pass; and the packed centroids that
// all blocks of a pass share.
// Layer: backend "host" (engine.hpp).
#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/host/nearest.hpp"
#include "kmeans/host/packed_centroids.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::host {

namespace {

template <class T>
void allocate(point_block<T>& made, std::int64_t n, std::int64_t capacity, std::int64_t width, std::int64_t elements, bool sparse) {
  made.n = n;
  made.capacity = capacity;
  made.width = width;
  made.x = core::aligned_buffer<T>(elements);
  if (sparse) {
    made.column = core::aligned_buffer<std::int32_t>(elements);
    made.begin = core::aligned_buffer<std::int64_t>(capacity + 1);
  }
  for (auto* each : {&made.weight, &made.norm, &made.nearest.minimum, &made.twin.minimum, &made.nearest.score, &made.undecided.second,
                     &made.residual[0], &made.residual[1]}) {
    *each = core::aligned_buffer<T>(capacity);
    std::fill_n(each->data(), capacity, T(0));
  }
  for (auto* each : {&made.undecided.points, &made.nearest.index, &made.twin.index, &made.label}) {
    *each = core::aligned_buffer<std::int32_t>(capacity);
    std::fill_n(each->data(), capacity, 0);
  }
  made.exact = core::aligned_buffer<double>(capacity);
}

}  // namespace

template <class T>
void host_engine<T>::prepare_workers(bool with_distances) {
  if (workers_.empty()) {
    workers_.resize(at(threads_));
    for (int slot = 0; slot < threads_; ++slot) {
      workers_[at(slot)].rows = &rows_[at(slot)];
      workers_[at(slot)].block.row = rows_[at(slot)].row.data();
    }
  }
  if (protect_ && loaded_.row_stats.empty()) {
    loaded_.row_stats.resize(at(division_.blocks));
    block_signature unknown;
    unknown.lanes[0] = 1;
    loaded_.fact_twins.assign(at(division_.blocks), unknown);
    loaded_.squares = core::aligned_buffer<T>(core::checked_product(division_.blocks, division_.capacity));
  }
  for (worker& each : workers_) {
    if (each.block.capacity == 0) allocate(each.block, n_, division_.capacity, kernels_.width, division_.elements, sparse());
    if (!with_distances || each.block.distance.size() > 0) continue;
    each.block.distance = core::aligned_buffer<T>(k_section * division_.capacity);
    if (sparse()) continue;
    each.plain.n = n_;
    each.plain.capacity = division_.capacity;
    each.plain.width = kernels_.width;
    each.plain.row = each.block.row;
    each.plain.x = core::aligned_buffer<T>(core::checked_product(division_.capacity, n_));
    each.plain.weight = core::aligned_buffer<T>(division_.capacity);
  }
}

template <class T>
bool host_engine<T>::normalization_intact() const {
  return seal_of(static_cast<const normalization<T>&>(source_)) == normalization_.seal();
}

// Verifies the normalization, which has been stored since normalize().
template <class T>
void host_engine<T>::verify_normalization() {
  what_.seen.checked(1);
  if (normalization_intact()) return;
  static_cast<normalization<T>&>(source_) = normalization_.values();
  what_.seen.detected("kmeans.normalization", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                      repairs() && normalization_intact() ? action::corrected : action::uncorrectable, 0);
}

template <class T>
void host_engine<T>::pack(const T* centroids, std::int64_t k, bool protect, packed_centroids<T>& made,
                          inject::active_injector* injector) const {
  made.longest = division_.longest;
  pack_centroids(centroids, k, n_, protect, made, injector);
}

// Packs the centroids for a pass and verifies the norms and checksum centroids.
template <class T>
void host_engine<T>::pack_verified_centroids(const sealed_centroids<T>& centroids, packed_centroids<T>& made) {
  made.by_norm = true;
  if (!checks()) return pack(centroids.values().data(), k_, false, made, &what_.injector);
  verify_normalization();
  run::attempt(what_.seen, what_.how.protection, "kmeans.checksum", 0, [&](int number) {
    pack(centroids.values().data(), k_, true, made, &what_.injector);
    what_.injector.strike(site::checksum, {}, made.checksum.data(), made.checksum.size());
    abft::finding found;
    found.residual = verify_packed_centroids(made);
    found.threshold = 1;
    found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
    // Equal norms after a failure show that the checksum was corrupted, not the centroids.
    if (number > 0 || found.word != abft::k_pass) found.bits = seal_of(made.norms.data(), made.norms.size()) | 1;
    what_.seen.checked(static_cast<std::uint64_t>(made.sections * n_ + k_));
    return found;
  });
}

template <class T>
void host_engine<T>::load(worker& here, std::int64_t block) const {
  here.block.first = block * division_.capacity;
  here.block.count = std::min(division_.capacity, m_ - here.block.first);
  kernels_.load(tile(here), here.block);
}

template <class T>
void host_engine<T>::strike_points(point_block<T>& b, std::int64_t block) {
  const std::int64_t numbers = sparse() ? b.begin[b.count] : (b.count + b.width - 1) / b.width * b.width * n_;
  what_.injector.strike(site::points, at_block(block), b.x.data(), numbers);
}

// Loads a block and verifies that x equals the x of the first load. The first load is compared with the points themselves, summed in
// another order. `strike`: the injector sees the loaded points.
template <class T>
void host_engine<T>::load_verified(worker& here, int slot, std::int64_t block, bool strike) {
  point_block<T>& b = here.block;
  block_signature& kept = loaded_.row_stats[at(block)];
  block_signature& twin = loaded_.fact_twins[at(block)];
  T* const squares = loaded_.squares.data() + block * division_.capacity;
  b.squares = squares;
  run::attempt(what_.seen, what_.how.protection, "kmeans.points", slot, [&](int number) {
    load(here, block);
    if (strike) strike_points(b, block);
    // If the normalization was corrupted during a pass, all later checks would agree with the wrong x.
    if (number > 0 && !normalization_intact()) return bits_differ(true, b.first);
    std::uint64_t found[64] = {};
    kernels_.sign(b, found);
    // The two copies of the signature differ if it is not yet computed or if one copy was corrupted while stored. After a failure the
    // signature is computed again, too: it may itself be wrong.
    if (number > 0 || !(kept == twin)) {
      kept = {};
      kernels_.sign_source(tile(here), b, kept.lanes);
      kernels_.measure(b);
      std::copy_n(b.norm.data(), division_.capacity, squares);
      twin = kept;
    }
    what_.seen.checked(1);
    return bits_differ(!std::equal(std::begin(found), std::end(found), kept.lanes), b.first);
  });
}

template <class T>
void host_engine<T>::copy_labels(point_block<T>& b, const inject::position& position) const {
  what_.injector.strike(site::index, position, b.nearest.index.data(), b.count);
  std::copy_n(b.nearest.index.data(), b.count, b.label.data());
  what_.injector.strike(site::label, {position.interval, position.intervals, 0, 2}, b.label.data(), b.count);
}

// Copies the labels of a block to the array of all labels. Returns whether the stored labels, read back, equal those of the second search.
template <class T>
bool host_engine<T>::store_labels(const point_block<T>& b) {
  std::int32_t* const to = labels_.last.data() + b.first;
  std::copy_n(b.label.data(), b.count, to);
  what_.injector.strike(site::label, {b.first / division_.capacity, division_.blocks, 1, 2}, to, b.count);
  return !checks() || std::equal(to, to + b.count, b.twin.index.data());
}

template <class T>
row_failure host_engine<T>::search(worker& here, const packed_centroids<T>& centroids, search_kind what) {
  return kernels_.assign(centroids, what, {&what_.injector, at_block(here.block.first / division_.capacity)}, here.block);
}

template <class T>
void host_engine<T>::load_for_search(worker& here, int slot, std::int64_t block, bool) {
  if (checks()) return load_verified(here, slot, block);
  load(here, block);
  strike_points(here.block, block);
}

// Searches the centroids for a loaded block, and decides the points that scores do not decide by exact distances: each of the two searches
// by a computation of its own.
template <class T>
row_failure host_engine<T>::assign(worker& here, const packed_centroids<T>& centroids, search_kind what, const exact_operands& by) {
  point_block<T>& b = here.block;
  const row_failure failure = search(here, centroids, what);
  if (b.undecided.count == 0) return failure;
  const auto decide = [&](search_result<T>& made, const T* exact, const core::vector<double>& squares) {
    const source<T>& points = tile(here, *by.points);
    for (std::int64_t i = 0; i < b.undecided.count; ++i) {
      const std::int64_t p = b.undecided.points[i];
      made.index[p] = nearest_centroid(points, b.first + p, exact, k_, squares.data(), b.row);
    }
  };
  decide(b.nearest, by.centroids, centroids.sparse.squares[0]);
  if (checks()) decide(b.twin, by.twin, centroids.sparse.squares[1]);
  return failure;
}

// Searches the centroids once for a loaded block and checks the result. The caller hashes the labels.
template <class T>
abft::finding host_engine<T>::search_block(worker& here, std::int64_t block, const packed_centroids<T>& centroids, const exact_operands& by,
                                           search_kind what) {
  point_block<T>& b = here.block;
  const inject::position position = at_block(block);
  b.bounds = centroids.bounds;
  const auto strike = [&](std::int64_t step, core::vector<abft::guarded_threshold>& limits) {
    what_.injector.strike(site::threshold, {block, division_.blocks, step, 2}, &limits[0].value, 2 * centroids.sections);
  };
  strike(0, b.bounds.slope);
  strike(1, b.bounds.offset);
  row_failure failure = assign(here, centroids, what, by);
  copy_labels(b, position);
  if (failure.row < 0) failure = kernels_.check(b, k_);
  std::uint32_t word = abft::verify(failure.residual, abft::guarded_threshold(0));
  for (std::int64_t s = 0; s < centroids.sections; ++s) {
    if (abft::verify(0, b.bounds.slope[at(s)]) != abft::k_pass || abft::verify(0, b.bounds.offset[at(s)]) != abft::k_pass)
      word = abft::k_fail;
  }
  what_.injector.strike(site::comparison, position, &word, 1);
  what_.seen.checked(static_cast<std::uint64_t>(b.count * (centroids.sections + 2)));
  abft::finding found;
  found.word = word;
  found.residual = failure.residual;
  found.threshold = centroids.bounds.offset[0].value;
  found.index = failure.row < 0 ? b.first : failure.row;
  return found;
}

// Labels a block. On return the labels are verified, or the failure is recorded and they are in range.
template <class T>
void host_engine<T>::assign_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& shared,
                                  const sealed_centroids<T>& origin, const exact_operands& by, search_kind what) {
  point_block<T>& b = here.block;
  if (!checks()) {
    const inject::position position = at_block(block);
    load_for_search(here, slot, block, false);
    (void)assign(here, shared, search_kind::plain, by);
    copy_labels(b, position);
    kernels_.keep_in_range(b, k_);  // a corrupted label must not index beyond the centroids
    return;
  }
  const abft::outcome how = run::attempt(what_.seen, what_.how.protection, "kmeans.assignment", slot, [&](int number) {
    // The shared packed centroids may be corrupted, so a repetition packs its own.
    here.fresh.by_norm = shared.by_norm;
    if (number > 0) pack(origin.values().data(), k_, true, here.fresh);
    load_for_search(here, slot, block, number > 0);
    abft::finding found = search_block(here, block, number > 0 ? here.fresh : shared, by, what);
    if (found.word == abft::k_pass && b.doubtful) {
      // Rounding is the most likely cause. Then a second search with newly packed centroids finds the same labels.
      here.labels.assign(b.label.data(), b.label.data() + b.count);
      pack(origin.values().data(), k_, true, here.fresh);
      load_verified(here, slot, block);
      found = search_block(here, block, here.fresh, by, what);
      if (!std::equal(here.labels.begin(), here.labels.end(), b.label.data())) found = bits_differ(true, b.first);
    }
    // Equal labels after a failure show that the check was corrupted, not the result. Clean blocks need no hash.
    if (number > 0 || found.word != abft::k_pass) {
      abft::result_hash hash;
      for (std::int64_t p = 0; p < b.count; ++p) hash.add(b.label[p]);
      found.bits = hash.bits();
    }
    return found;
  });
  if (how == abft::outcome::uncorrectable) kernels_.keep_in_range(b, k_);
}

// Computes the distances of a block to one section of centroids, by column. `origin` holds all centroids of `shared`. `strike`: the
// injector sees the points and products. `plain`, unless null: the differences are those of points and centroids as they were given, of
// another copy of dense points than that of the check. Only the signature sees a wrong number in a copy that both read.
template <class T>
abft::outcome host_engine<T>::distances_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& shared,
                                              const T* origin, std::int64_t section, bool strike, const plain_operands* plain) {
  point_block<T>& b = here.block;
  const std::int64_t parts = plain != nullptr ? 2 : 1;  // store_distances() is the other one
  const product_hook hook = {strike ? &what_.injector : &quiet_, {block, division_.blocks, parts * section, parts * shared.sections}};
  const bool one_copy = plain == nullptr || sparse();
  const auto once = [&](const packed_centroids<T>& centroids) {
    if (one_copy && protect_) {
      load_verified(here, slot, block, strike);
    } else {
      load(here, block);
      if (one_copy && strike) strike_points(b, block);
    }
    b.bounds = centroids.bounds;
    if (!one_copy) {
      here.plain.first = b.first;
      here.plain.count = b.count;
      kernels_.load(tile(here, plain->points), here.plain);
    }
    const difference_operands<T> from = {one_copy ? b.x.data() : here.plain.x.data(),
                                         plain != nullptr ? plain->packed.data() : centroids.packed.data()};
    kernels_.distances(centroids, from, section, protect_, hook, b);
  };
  if (!protect_) {
    once(shared);
    return abft::outcome::clean;
  }
  return run::attempt(what_.seen, what_.how.protection, "kmeans.distance", slot, [&](int number) {
    here.fresh.by_norm = shared.by_norm;
    if (number > 0) pack(origin, shared.k, true, here.fresh);
    const packed_centroids<T>& centroids = number > 0 ? here.fresh : shared;
    once(centroids);
    abft::finding found;
    for (std::int64_t p = 0; p < b.count; ++p) {
      if (b.residual[0][p] == 0) continue;
      found.residual = static_cast<double>(b.residual[0][p]);
      found.index = b.first + p;
    }
    found.word = abft::verify(found.residual, abft::guarded_threshold(0));
    found.threshold = centroids.bounds.offset[at(section)].value;
    what_.seen.checked(static_cast<std::uint64_t>(b.count));
    return found;
  });
}

template void host_engine<float>::pack(const float*, std::int64_t, bool, packed_centroids<float>&, inject::active_injector*) const;
template void host_engine<double>::pack(const double*, std::int64_t, bool, packed_centroids<double>&, inject::active_injector*) const;
template void host_engine<float>::prepare_workers(bool);
template void host_engine<float>::pack_verified_centroids(const sealed_centroids<float>&, packed_centroids<float>&);
template void host_engine<float>::load(worker&, std::int64_t) const;
template void host_engine<float>::load_verified(worker&, int, std::int64_t, bool);
template row_failure host_engine<float>::search(worker&, const packed_centroids<float>&, search_kind);
template row_failure host_engine<double>::search(worker&, const packed_centroids<double>&, search_kind);
template void host_engine<float>::load_for_search(worker&, int, std::int64_t, bool);
template void host_engine<double>::load_for_search(worker&, int, std::int64_t, bool);
template bool host_engine<float>::store_labels(const point_block<float>&);
template bool host_engine<double>::store_labels(const point_block<double>&);
template void host_engine<float>::assign_block(worker&, int, std::int64_t, const packed_centroids<float>&, const sealed_centroids<float>&,
                                               const exact_operands&, search_kind);
template abft::outcome host_engine<float>::distances_block(worker&, int, std::int64_t, const packed_centroids<float>&, const float*,
                                                           std::int64_t, bool, const plain_operands*);
template void host_engine<double>::prepare_workers(bool);
template void host_engine<double>::pack_verified_centroids(const sealed_centroids<double>&, packed_centroids<double>&);
template void host_engine<double>::load(worker&, std::int64_t) const;
template void host_engine<double>::load_verified(worker&, int, std::int64_t, bool);
template void host_engine<double>::assign_block(worker&, int, std::int64_t, const packed_centroids<double>&,
                                                const sealed_centroids<double>&, const exact_operands&, search_kind);
template abft::outcome host_engine<double>::distances_block(worker&, int, std::int64_t, const packed_centroids<double>&, const double*,
                                                            std::int64_t, bool, const plain_operands*);

}  // namespace ballast::kmeans::host
