// Lloyd iterations: sums of groups and their invariants, centroids, relocation of empty clusters, convergence, final labels.
// Layer: driver of K-Means (driver.hpp).
#include "kmeans/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "core/parallel.hpp"

namespace ballast::kmeans {

namespace {

constexpr std::uint64_t k_direction_seed = 0x646972656374;

}  // namespace

template <class T>
void clear(partial<T>& sums) {
  std::fill_n(sums.sums.data(), sums.sums.size(), 0.0);
  std::fill_n(sums.weights.data(), sums.weights.size(), 0.0);
  std::fill_n(sums.members.data(), sums.members.size(), 0);
  sums.labelled_projection = sums.labelled_weight = sums.labelled_members = 0;
  sums.changed = sums.changed_twin = 0;
}

// The invariants of the sums of one group, or of all. For each feature Σ_c S_c = Σ_i w_i x_i, which never changes; and, so that no point
// is in the sum of a wrong cluster, Σ_c c (S_c · r) = Σ_i label_i w_i (x_i · r) with a random direction r. The same for weights, and
// exactly for members.
template <class T>
auto engine<T>::verify_partial(const partial<T>& sums, const group_survey& expected) const -> failed_sum {
  failed_sum found;
  const auto compare = [&](double residual, double threshold) {
    if (abft::verify(residual, abft::guarded_threshold(threshold)) == abft::k_pass) return;
    found = {residual, threshold, false};
  };
  std::vector<double> first(at(n_), 0.0), second(at(n_), 0.0);
  double first_weight = 0, second_weight = 0, first_members = 0, second_members = 0;
  double most = 0;  // points of one cluster
  bool in_range = true;
  const bool weighted = sums.weights.size() != 0;
  for (std::int64_t j = 0; j < k_; ++j) {
    const double factor = static_cast<double>(j);
    const double* row = sums.sums.data() + j * n_;
    for (std::int64_t f = 0; f < n_; ++f) {
      first[at(f)] += row[f];
      second[at(f)] += factor * row[f];
    }
    const double members = static_cast<double>(sums.members[j]);
    in_range = in_range && members >= 0 && members <= expected.count;
    most = std::max(most, members);
    first_members += members;
    second_members += factor * members;
    if (weighted) {
      first_weight += sums.weights[j];
      second_weight += factor * sums.weights[j];
    }
  }
  const double k = static_cast<double>(k_);
  const double count = expected.count;
  // Weights are below 2 after scaling.
  const double factor = weighted ? 2 : 1;
  const double chain = most + k_survey_rows + count / k_survey_rows;
  double labelled = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    compare(first[at(f)] - expected.first[at(f)], abft::kmeans_sum_limit(chain + k, count, factor * std::sqrt(expected.squares[at(f)])));
    labelled += second[at(f)] * direction_[at(f)];
  }
  // Directions are below 2 in size, of random sign. A projection is a chain of n products, and its labels are summed in chains of a block;
  // the other side sums over k clusters.
  const double longest = chain + static_cast<double>(n_ + capacity_ + k_);
  compare(labelled - sums.labelled_projection, k * abft::kmeans_sum_limit(longest, count, 4 * factor * std::sqrt(expected.total_square)));
  if (weighted) {
    compare(first_weight - expected.weight, abft::kmeans_sum_limit(chain + k, 1, expected.weight));
    compare(second_weight - sums.labelled_weight, k * abft::kmeans_sum_limit(longest, 1, expected.weight));
  }
  if (!in_range || first_members != expected.members || second_members != sums.labelled_members || sums.changed != sums.changed_twin)
    found = {first_members - expected.members, 0, false};
  return found;
}

// Assigns the points of one group of blocks and sums them up by cluster.
template <class T>
void engine<T>::run_group(std::int64_t group, int slot, const panel<T>& centroids, const sealed_centroids<T>& origin,
                          const std::int32_t* old, std::int32_t* labels) {
  using inject::site;
  worker& here = workers_[at(slot)];
  partial<T>& sums = partials_[at(group)];
  const inject::place place = {group, groups_, 0, 1};
  failed_sum worst;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    clear(sums);
    // What is kept from earlier passes may have been hit while it waited.
    if (attempt > 0) survey_group(group, true);
    for (std::int64_t block = first_block(group); block < first_block(group + 1); ++block) {
      // What is streamed from memory after the labels are found is fetched while they are.
      const std::int64_t begin = block * capacity_;
      const std::int64_t end = std::min(begin + capacity_, m_);
      for (std::int64_t i = begin; i < end; i += 16) __builtin_prefetch(old + i);
      for (std::int64_t i = begin; protect_ && i < end; i += 8) __builtin_prefetch(projections_.data() + i);
      assign_block(here, slot, block, centroids, origin);
      tile<T>& b = here.block;
      kernels_.accumulate(source_, b, sums);
      const std::int32_t* before = old + b.first;
      std::int32_t* after = labels + b.first;
      std::int32_t changed = 0;
      for (std::int64_t p = 0; p < b.count; ++p) {
        changed += b.label[p] != before[p] ? 1 : 0;
        after[p] = b.label[p];
      }
      sums.changed += changed;
      if (!protect_) continue;
      double* projection = projections_.data() + b.first;
      if (attempt > 0 || projected_[at(block)] == 0) kernels_.project(b, direction_.data(), projection);
      projected_[at(block)] = 1;
      kernels_.sum_labels(b, projection, sums);
      std::int32_t same = 0;
      for (std::int64_t p = 0; p < b.count; ++p) same += after[p] == before[p] ? 1 : 0;
      sums.changed_twin += b.count - same;
    }
    injector_.strike(site::kmeans_sum, place, sums.sums.data(), sums.sums.size());
    if (sums.weights.size() != 0) {
      injector_.strike(site::kmeans_count, place, sums.weights.data(), sums.weights.size());
    } else {
      injector_.strike(site::kmeans_count, place, sums.members.data(), sums.members.size());
    }
    if (!protect_) return;
    const failed_sum found = verify_partial(sums, surveys_[at(group)]);
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    if (found.ok) {
      if (attempt > 0) recorder_.detected("kmeans.sums", group, worst.residual, worst.threshold, action::recomputed, slot);
      return;
    }
    if (attempt == 0) worst = found;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.sums", group, worst.residual, worst.threshold, action::uncorrectable, slot);
}

// total_ = Σ partials_, in their order.
template <class T>
void engine<T>::add_partials() {
  clear(total_);
  const std::int64_t rows = std::max<std::int64_t>(1, 16384 / n_);
  core::parallel_for(threads_, (k_ + rows - 1) / rows, [&](std::int64_t task, int) {
    const std::int64_t begin = task * rows * n_;
    const std::int64_t end = std::min(begin + rows * n_, k_ * n_);
    for (const partial<T>& each : partials_) {
      for (std::int64_t e = begin; e < end; ++e) total_.sums[e] += each.sums[e];
    }
  });
  for (const partial<T>& each : partials_) {
    for (std::int64_t j = 0; j < k_; ++j)
      total_.members[j] =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(total_.members[j]) + static_cast<std::uint64_t>(each.members[j]));
    for (std::int64_t j = 0; j < total_.weights.size(); ++j) total_.weights[j] += each.weights[j];
    total_.labelled_projection += each.labelled_projection;
    total_.labelled_weight += each.labelled_weight;
    total_.labelled_members += each.labelled_members;
    total_.changed += each.changed;
    total_.changed_twin += each.changed_twin;
  }
}

// Adds up the groups, verifies the whole, and if that fails, finds the group that was hit while it waited.
template <class T>
void engine<T>::combine(const panel<T>& centroids, const sealed_centroids<T>& origin, const std::int32_t* old, std::int32_t* labels) {
  failed_sum worst;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    add_partials();
    if (!protect_) return;
    const failed_sum found = verify_partial(total_, whole_);
    recorder_.checked(static_cast<std::uint64_t>(n_ + 4));
    if (found.ok) {
      if (attempt > 0) recorder_.detected("kmeans.total", -1, worst.residual, worst.threshold, action::recomputed, 0);
      return;
    }
    if (attempt == 0) worst = found;
    if (!repairs() || stop()) break;
    for (std::int64_t g = 0; g < groups_; ++g) {
      if (!verify_partial(partials_[at(g)], surveys_[at(g)]).ok) run_group(g, 0, centroids, origin, old, labels);
    }
    add_surveys();
  }
  if (!stop()) recorder_.detected("kmeans.total", -1, worst.residual, worst.threshold, action::uncorrectable, 0);
}

// Gives each cluster without members the point that is farthest from its centroid, as scikit-learn does: the farthest for the first empty
// cluster, and so on; the lowest index among equals. Rare, so it costs a pass of its own. Distances are computed twice.
template <class T>
void engine<T>::relocate(const sealed_centroids<T>& old, const std::int32_t* labels) {
  std::vector<std::int64_t> empty;
  for (std::int64_t j = 0; j < k_; ++j)
    if (!(total_.members[j] > 0)) empty.push_back(j);
  if (empty.empty()) return;
  std::vector<double> distance(at(m_));
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    load(here, block);
    tile<T>& b = here.block;
    std::copy_n(labels + b.first, b.count, b.label.data());
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      kernels_.exact(source_, old.values().data(), b);
      std::copy_n(b.exact.data(), b.count, distance.begin() + b.first);
      if (!protect_) break;
      kernels_.exact(source_, old.values().data(), b);
      recorder_.checked(1);
      if (std::equal(b.exact.data(), b.exact.data() + b.count, distance.begin() + b.first)) {
        if (attempt > 0) recorder_.detected("kmeans.relocation", b.first, std::nan(""), 0, action::recomputed, slot);
        break;
      }
      if (!repairs() || attempt + 1 == k_attempts) {
        recorder_.detected("kmeans.relocation", b.first, std::nan(""), 0, action::uncorrectable, slot);
        break;
      }
    }
  });
  std::vector<std::int64_t> order;
  order.reserve(at(m_));
  for (std::int64_t i = 0; i < m_; ++i) {
    if (!(distance[at(i)] >= 0)) distance[at(i)] = -1;  // NaN, which only an unprotected fault makes, has no place in an order
    if (source_.weights.empty() || source_.weights[at(i)] > 0) order.push_back(i);
  }
  const std::size_t wanted = std::min(empty.size(), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), order.end(), [&](std::int64_t a, std::int64_t b) {
    return distance[at(a)] != distance[at(b)] ? distance[at(a)] > distance[at(b)] : a < b;
  });
  std::vector<T> x(at(n_));
  for (std::size_t e = 0; e < wanted; ++e) {
    const std::int64_t i = order[e];
    const std::int64_t from = labels[i];
    const std::int64_t to = empty[e];
    const double weight = source_.weights.empty() ? 1.0 : static_cast<double>(source_.weights[at(i)] * source_.weight_scale);
    read_point(i, x.data());
    for (std::int64_t f = 0; f < n_; ++f) {
      total_.sums[from * n_ + f] -= weight * static_cast<double>(x[at(f)]);
      total_.sums[to * n_ + f] = weight * static_cast<double>(x[at(f)]);
    }
    total_.members[to] = 1;
    total_.members[from] -= 1;
    if (total_.weights.size() != 0) {
      total_.weights[to] = weight;
      total_.weights[from] -= weight;
    }
  }
}

// The new centroids: sums over weights. A cluster that is still empty takes the place of the heaviest one.
template <class T>
std::vector<T> engine<T>::divide(const std::vector<T>& old) {
  const auto weight = [&](std::int64_t j) {
    if (!(total_.members[j] > 0)) return 0.0;
    return total_.weights.size() != 0 ? total_.weights[j] : static_cast<double>(total_.members[j]);
  };
  std::int64_t heaviest = 0;
  for (std::int64_t j = 1; j < k_; ++j)
    if (weight(j) > weight(heaviest)) heaviest = j;
  std::vector<T> made(old.size());
  bool failed = false;
  double worst = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      for (std::int64_t f = 0; f < n_; ++f)
        made[at(j * n_ + f)] = w > 0 ? static_cast<T>(total_.sums[from * n_ + f] / w) : old[at(j * n_ + f)];
    }
    injector_.strike(inject::site::kmeans_centroid, {0, 1, 0, 2}, made.data(), static_cast<std::int64_t>(made.size()));
    if (!protect_) return made;
    // c is the rounded quotient exactly if |c w − S| is at most half a unit in the last place of c, times w.
    worst = 0;
    for (std::int64_t j = 0; j < k_; ++j) {
      const std::int64_t from = weight(j) > 0 ? j : heaviest;
      const double w = weight(from);
      if (!(w > 0)) continue;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double sum = total_.sums[from * n_ + f];
        const double residual = std::abs(static_cast<double>(made[at(j * n_ + f)]) * w - sum);
        const double limit = (abft::unit_roundoff<T> + 4 * abft::unit_roundoff<double>)*std::abs(sum) +
                             w * static_cast<double>(std::numeric_limits<T>::denorm_min()) + std::numeric_limits<double>::denorm_min();
        const double ratio = residual / limit;
        if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;  // a NaN stays
      }
    }
    recorder_.checked(static_cast<std::uint64_t>(made.size()));
    if (abft::verify(worst, abft::guarded_threshold(1)) == abft::k_pass) {
      if (failed) recorder_.detected("kmeans.centroid", -1, std::nan(""), 1, action::recomputed, 0);
      return made;
    }
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.centroid", -1, worst, 1, action::uncorrectable, 0);
  return made;
}

// Σ‖a − b‖², summed centroid by centroid, and for verification backwards.
template <class T>
double engine<T>::shift_between(const std::vector<T>& a, const std::vector<T>& b) {
  double shift = 0;
  bool failed = false;
  double residual = 0, limit = 0;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    shift = 0;
    for (std::size_t e = 0; e < a.size(); ++e) {
      const double d = static_cast<double>(a[e]) - static_cast<double>(b[e]);
      shift += d * d;
    }
    injector_.strike(inject::site::kmeans_shift, {}, &shift, 1);
    if (!protect_) return shift;
    double twin = 0;
    for (std::size_t e = a.size(); e-- > 0;) {
      const double d = static_cast<double>(b[e]) - static_cast<double>(a[e]);
      twin += d * d;
    }
    // Equal terms err alike.
    limit = abft::unit_roundoff<double> * (8 + static_cast<double>(a.size())) * twin;
    const double difference = shift - twin;
    recorder_.checked(1);
    if (abft::verify(difference, abft::guarded_threshold(limit)) == abft::k_pass) {
      if (failed) recorder_.detected("kmeans.shift", -1, residual, limit, action::recomputed, 0);
      return shift;
    }
    if (!failed) residual = difference;
    failed = true;
    if (!repairs()) break;
  }
  recorder_.detected("kmeans.shift", -1, residual, limit, action::uncorrectable, 0);
  return shift;
}

// Labels and inertia for centroids in the user's coordinates: exactly what predict does.
template <class T>
double engine<T>::label_all(const std::vector<T>& centroids, std::vector<std::int32_t>& labels) {
  prepare_workers(false);
  sealed_centroids<T> sealed(to_scaled(row_major(centroids.data(), k_, n_)));
  panel<T> shared;
  make_verified_panel(sealed, shared);
  // Inertia is taken from the coordinates as they are, only scaled.
  source<T> plain = source_;
  std::ranges::fill(plain.shift, T(0));
  std::vector<T> scaled(centroids);
  for (T& each : scaled) each *= source_.scale;
  const double limit = 2 * abft::kmeans_distance_limit(abft::unit_roundoff<T>, n_);  // x and c were rounded, too
  std::vector<double> inertia(at(blocks_)), twin(at(blocks_));
  core::parallel_for(threads_, blocks_, [&](std::int64_t block, int slot) {
    worker& here = workers_[at(slot)];
    if (stop()) return;
    tile<T>& b = here.block;
    finding first;
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      // Also what passed the row checks may be what was hit: distances from differences see smaller faults.
      assign_block(here, slot, block, shared, sealed, protect_);
      if (protect_) kernels_.measure(b);
      std::copy_n(b.label.data(), b.count, labels.begin() + b.first);
      kernels_.exact(plain, scaled.data(), b);
      double sum = 0, backwards = 0;
      for (std::int64_t p = 0; p < b.count; ++p) sum += static_cast<double>(b.weight[p]) * b.exact[p];
      inertia[at(block)] = sum;
      if (!protect_) return;
      finding found;
      for (std::int64_t p = b.count; p-- > 0;) {
        backwards += static_cast<double>(b.weight[p]) * b.exact[p];
        const double size = static_cast<double>(b.norm[p]) + static_cast<double>(shared.norms[b.label[p]]);
        const double residual = b.exact[p] - (static_cast<double>(b.minimum[p]) + static_cast<double>(b.norm[p]));
        if (!(std::abs(residual) <= limit * size + std::numeric_limits<T>::min()))
          found = {std::isnan(residual) ? residual : std::abs(residual), b.first + p};
      }
      if (!(std::abs(sum - backwards) <= 1e-12 * backwards)) found = {std::nan(""), b.first};
      twin[at(block)] = backwards;
      recorder_.checked(static_cast<std::uint64_t>(b.count + 1));
      if (abft::verify(found.residual, abft::guarded_threshold(0)) == abft::k_pass) {
        if (attempt > 0) recorder_.detected("kmeans.inertia", first.row, first.residual, limit, action::recomputed, slot);
        return;
      }
      if (attempt == 0) first = found;
      if (!repairs()) break;
    }
    recorder_.detected("kmeans.inertia", first.row, first.residual, limit, action::uncorrectable, slot);
  });
  double sum = 0, backwards = 0;
  for (std::int64_t block = 0; block < blocks_; ++block) sum += inertia[at(block)];
  if (protect_) {
    for (std::int64_t block = blocks_; block-- > 0;) backwards += twin[at(block)];
    recorder_.checked(1);
    if (!(std::abs(sum - backwards) <= 1e-12 * std::sqrt(static_cast<double>(blocks_)) * backwards) && !recorder_.uncorrectable())
      recorder_.detected("kmeans.inertia", -1, sum - backwards, 0, action::uncorrectable, 0);
  }
  const double unscale = 1 / static_cast<double>(source_.scale);
  return sum * unscale * unscale / static_cast<double>(source_.weight_scale);
}

template <class T>
auto engine<T>::lloyd(std::vector<T> first, const options<T>& wanted, double tolerance) -> outcome {
  prepare_workers(false);
  if (partials_.empty()) {
    partials_.resize(at(groups_));
    const auto allocate_sums = [&](partial<T>& made) {
      made.sums = core::aligned_buffer<double>(core::checked_product(k_, n_));
      if (!source_.weights.empty()) made.weights = core::aligned_buffer<double>(k_);
      made.members = core::aligned_buffer<std::int64_t>(k_);
    };
    for (partial<T>& each : partials_) allocate_sums(each);
    allocate_sums(total_);
    if (protect_) {
      projections_.resize(at(m_));
      projected_.assign(at(blocks_), 0);
      for (std::int64_t f = 0; f < n_; ++f) {
        const auto i = static_cast<std::uint64_t>(f);
        direction_.push_back(abft::random_weight(k_direction_seed, 1, i) * (core::random_bits(k_direction_seed, 2, i) % 2 == 0 ? 1 : -1));
      }
    }
  }
  outcome made;
  std::vector<std::int32_t> labels(at(m_)), old(at(m_), -1);
  sealed_centroids<T> current(std::move(first));
  panel<T> shared;
  for (int i = 0; i < wanted.max_iter && !stop(); ++i) {
    make_verified_panel(current, shared);
    core::parallel_for(threads_, groups_, [&](std::int64_t group, int slot) {
      if (!stop()) run_group(group, slot, shared, current, old.data(), labels.data());
    });
    if (stop()) break;
    combine(shared, current, old.data(), labels.data());
    if (stop()) break;
    relocate(current, labels.data());
    std::vector<T> next = divide(current.values());
    const double shift = shift_between(next, current.values());
    current = sealed_centroids<T>(std::move(next));
    made.iterations = i + 1;
    if (how_.on_progress) how_.on_progress({i + 1, wanted.max_iter, "iteration"});
    if (total_.changed == 0 || shift <= tolerance) {
      made.converged = true;
      break;
    }
    labels.swap(old);
  }
  if (protect_ && !stop()) {
    // The centroids wait a last time.
    if (current.verify() == sealed_centroids<T>::state::lost)
      recorder_.detected("kmeans.centroid", -1, std::nan(""), 0, action::uncorrectable, 0);
  }
  made.centroids.resize(at(k_ * n_));
  const double unscale = 1 / static_cast<double>(source_.scale);
  for (std::int64_t j = 0; j < k_; ++j) {
    for (std::int64_t f = 0; f < n_; ++f) {
      const double value = static_cast<double>(current.values()[at(j * n_ + f)]) + static_cast<double>(source_.shift[at(f)]);
      made.centroids[at(j * n_ + f)] = static_cast<T>(value * unscale);
    }
  }
  made.labels = std::move(labels);
  if (!stop()) made.inertia = label_all(made.centroids, made.labels);
  return made;
}

template engine<float>::outcome engine<float>::lloyd(std::vector<float>, const options<float>&, double);
template engine<double>::outcome engine<double>::lloyd(std::vector<double>, const options<double>&, double);
template double engine<float>::label_all(const std::vector<float>&, std::vector<std::int32_t>&);
template double engine<double>::label_all(const std::vector<double>&, std::vector<std::int32_t>&);

}  // namespace ballast::kmeans
