// Memory and launches of a scheme's pass. See tile_pass.hpp.
#include "kmeans/cuda/engine/tile_pass.hpp"

#include <utility>

#include "core/aligned_buffer.hpp"

namespace ballast::kmeans::cuda {

template <class T>
tile_pass<T>::tile_pass(std::shared_ptr<ballast::cuda::device> on, const ballast::cuda::device_call& call,
                        const normalized_points<T>& points, std::int64_t k, const tile_scheme& scheme, const tile_policy* policy,
                        std::uint64_t flips)
    : device_(std::move(on)), call_(call), points_(points), k_(k), scheme_(scheme), flips_(flips) {
  const tile_problem problem{sizeof(T) == 8, points.n, k, scheme};
  policy_ = policy != nullptr ? *policy : choose_tile(problem, device_->about());
  slack_ = static_cast<T>(tile_slack(problem));
  const auto wanted = tile_kernels(problem, policy_, points.words, points.weight != nullptr, call_.instrumented());
  kernels_ = device_->load_all(wanted);
  const auto allocate = [&](std::int64_t count, std::int64_t bytes) {
    return ballast::cuda::device_buffer(device_, core::checked_product(count, bytes), call_.order());
  };
  const auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t across = (k + policy_.columns - 1) / policy_.columns;
  if (!scheme.naive) {
    norms_ = allocate(k, size);
    switch (scheme.finish) {
      case tile_finish::distances: stored_ = allocate(core::checked_product(points.m, k), size); break;
      case tile_finish::minima: stored_ = allocate(points.m * across, static_cast<std::int64_t>(sizeof(tile_minimum<T>))); break;
      case tile_finish::labels:
        stored_ = allocate(points.m, size);
        locks_ = allocate(points.m, 4);
        break;
    }
  }
  if (!checks()) return;
  twins_ = allocate(k * points.words * sum_pitch(points.stride) + k, 8);
  ticket_ = allocate(1, 4);
  device_->zero(ticket_.data(), 4, call_.order());
}

template <class T>
template <class Arguments>
void tile_pass<T>::launch(const ballast::cuda::kernel& which, std::int64_t blocks, const Arguments& given) const {
  call_.launch(which, blocks, given);
}

template <class T>
void tile_pass<T>::enqueue_labels(const pass_arguments<T>& what) const {
  const auto blocks_of = [](std::int64_t count, std::int64_t each) { return (count + each - 1) / each; };
  const auto k = static_cast<int>(k_);
  tile_search_arguments<T> search{points_, what.centroids.rows, nullptr, nullptr, what.labels, k, 0, what.state};
  if (scheme_.naive) return launch(*kernels_[0], blocks_of(points_.m, k_tile_threads), search);
  launch(*kernels_[0], blocks_of(k, k_tile_threads / 32),
         tile_norm_arguments<T>{what.centroids.rows, static_cast<T*>(norms_.data()), k, points_.stride, what.events, what.state,
                                what.repeats, checks()});
  tile_arguments<T> a{};
  a.points = points_;
  a.centroids = what.centroids.rows;
  a.norms = static_cast<const T*>(norms_.data());
  a.k = k;
  a.labels = what.labels;
  a.events = what.events;
  a.state = what.state;
  a.repeats = what.repeats;
  a.slack = slack_;
  a.flips = flips_;
  search.across = static_cast<int>(blocks_of(k, policy_.columns));
  switch (scheme_.finish) {
    case tile_finish::distances: search.distances = a.distances = static_cast<T*>(stored_.data()); break;
    case tile_finish::minima: search.minima = a.minima = static_cast<tile_minimum<T>*>(stored_.data()); break;
    case tile_finish::labels:
      a.best = static_cast<T*>(stored_.data());
      a.locks = static_cast<std::uint32_t*>(locks_.data());
      device_->zero(locks_.data(), locks_.bytes(), call_.order());
      break;
  }
  launch(*kernels_[1], blocks_of(points_.m, policy_.rows) * search.across, a);
  if (scheme_.finish == tile_finish::distances) launch(*kernels_[2], blocks_of(points_.m, k_tile_threads / 32), search);
  if (scheme_.finish == tile_finish::minima) launch(*kernels_[2], blocks_of(points_.m, k_tile_threads), search);
}

template <class T>
void tile_pass<T>::enqueue(const pass_arguments<T>& what, bool sums) const {
  enqueue_labels(what);
  if (!sums) return;
  tile_update_arguments<T> a{};
  a.points = points_;
  a.labels = what.labels;
  a.previous = what.previous;
  a.sums = what.sums;
  a.members = what.members;
  if (checks()) {
    device_->zero(twins_.data(), twins_.bytes(), call_.order());
    a.sums_twin = static_cast<unsigned long long*>(twins_.data());
    a.members_twin = a.sums_twin + k_ * points_.words * sum_pitch(points_.stride);
  }
  a.totals = what.totals;
  a.ticket = static_cast<std::uint32_t*>(ticket_.data());
  a.events = what.events;
  a.state = what.state;
  a.k = static_cast<int>(k_);
  a.repeats = what.repeats;
  constexpr int rows = k_tile_threads / 8;
  launch(*kernels_.back(), (points_.m + rows - 1) / rows, a);
}

template class tile_pass<float>;
template class tile_pass<double>;

}  // namespace ballast::kmeans::cuda
