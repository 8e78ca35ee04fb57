// Calls of a plan on a group of devices of one process: a thread for each device, with its share of the rows.
// Layer: algorithm, over driver/driver.hpp and group/session.hpp. docs/design/distributed.md, "Devices".
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ballast/error.hpp>

#include "cuda/device/device.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "kmeans/api/plan.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/driver/driver.hpp"
#include "run/call_scope.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

namespace {

// Rows `first` and later of the points, of one device.
struct row_share {
  std::int64_t first = 0, count = 0;
};

// Divides the rows at whole segments, as evenly as they allow. Fewer devices have rows if there are fewer segments.
std::vector<row_share> divide_rows(std::int64_t m, std::size_t devices) {
  const std::int64_t unit = cuda::rows_of_segment_of(m), units = (m + unit - 1) / unit;
  const std::int64_t ranks = std::min(static_cast<std::int64_t>(devices), units);
  std::vector<row_share> made;
  for (std::int64_t p = 0; p < ranks; ++p) {
    const std::int64_t first = p * units / ranks * unit, end = std::min(m, (p + 1) * units / ranks * unit);
    made.push_back({first, end - first});
  }
  return made;
}

template <class T>
class devices_call {
 public:
  devices_call(const prepared& plan, const data<T>& from, const run::settings& how)
      : plan_(plan),
        from_(from),
        how_(how),
        shares_(divide_rows(from.points.rows, how.group.internal()->devices.size())),
        threads_(how.group, shares_.size()) {
    wire::check_call_on_devices(how.now(), plan.one_token.view());
    kept_.resize(shares_.size());
    threads_.wait_for({from.points.data, from.weights.data()});
  }

  // Runs work(rank, share, driver) on the thread of each device, and returns the report of all. Throws what says most of what they threw.
  template <class Work>
  report run(const Work& work) {
    std::vector<report> made(shares_.size());
    threads_.run(plan_.one_token.view(), [&](std::size_t p) {
      made[p] = run::in_call(&plan_.memory, threads_.device(p), plan_.one_token, [&] { return run_rank(p, work); });
    });
    return made[0];
  }

 private:
  template <class Work>
  report run_rank(std::size_t p, const Work& work) {
    wire::exchange& over = threads_.over(p);
    const row_share share = shares_[p];
    const run::settings own = threads_.settings_of(how_, p);
    const matrix_view<const T> points = from_.points.block(share.first, 0, share.count, from_.points.columns);
    const std::span<const T> weights =
        from_.weights.empty() ? from_.weights
                              : from_.weights.subspan(static_cast<std::size_t>(share.first), static_cast<std::size_t>(share.count));
    const rank_rows<T> rows{&over, from_.points.rows, !from_.weights.empty(), {{share.first, points, weights}}, 0, &kept_[p]};
    try {
      std::optional<driver<T>> on;
      wire::prepare(over, [&] {
        on.emplace(driver_args<T>{points, weights, plan_.problem.clusters, own, plan_.one_token, backend::cuda, plan_.row_checksum,
                                  plan_.states[p].get(), false, &rows, nullptr});
      });
      return wire::in_group(over, on->recorder(), plan_.one_token, [&] { return work(p, share, *on); });
    } catch (const wire::ranks_lost&) {
      over.regroup();
      throw rank_lost_error(wire::lost_message(over, plan_.one_token), over.lost());
    }
  }

  const prepared& plan_;
  const data<T>& from_;
  const run::settings& how_;
  std::vector<row_share> shares_;
  std::vector<std::vector<std::shared_ptr<void>>> kept_;  // by rank
  wire::device_threads threads_;
};

std::span<std::int32_t> part_of(std::span<std::int32_t> labels, const row_share& share) {
  return labels.empty() ? labels : labels.subspan(static_cast<std::size_t>(share.first), static_cast<std::size_t>(share.count));
}

}  // namespace

template <class T>
report fit_on_devices(const prepared& plan, const data<T>& from, const fit_results<T>& to, const run::settings& how) {
  check_fit(plan.one_token, plan.problem, plan.options, from);
  check_results(plan.one_token, plan.problem, to);
  const ballast::cuda::device_scope first(how.group.internal()->devices[0]);
  run::host_staging staging(nullptr);
  const matrix_view<const T> given = plan.options.init == init::given ? staging.read(from.centroids) : matrix_view<const T>{};
  return devices_call<T>(plan, from, how).run([&](std::size_t rank, const row_share& share, driver<T>& on) {
    fit_results<T> own;
    if (rank == 0) own = to;
    own.labels = part_of(to.labels, share);
    return on.fit(plan.options, given, own);
  });
}

template <class T>
report predict_on_devices(const prepared& plan, const data<T>& from, const prediction_results& to, const run::settings& how) {
  check_points_and_centroids(plan.one_token, plan.problem, from);
  check_span(plan.one_token, "labels", to.labels, plan.problem.points);
  const ballast::cuda::device_scope first(how.group.internal()->devices[0]);
  run::host_staging staging(nullptr);
  const matrix_view<const T> centroids = staging.read(from.centroids);
  return devices_call<T>(plan, from, how).run([&](std::size_t rank, const row_share& share, driver<T>& on) {
    return on.predict(centroids, {part_of(to.labels, share), rank == 0 ? to.inertia : nullptr});
  });
}

template <class T>
report transform_on_devices(const prepared& plan, const data<T>& from, const matrix_view<T>& values, const run::settings& how) {
  check_points_and_centroids(plan.one_token, plan.problem, from);
  check_result(plan.one_token, "values", values, plan.problem.points, plan.problem.clusters);
  const ballast::cuda::device_scope first(how.group.internal()->devices[0]);
  run::host_staging staging(nullptr);
  const matrix_view<const T> centroids = staging.read(from.centroids);
  data<T> points = from;
  points.weights = {};
  return devices_call<T>(plan, points, how).run([&](std::size_t, const row_share& share, driver<T>& on) {
    return on.transform(centroids, values.block(share.first, 0, share.count, values.columns));
  });
}

template report fit_on_devices(const prepared&, const data<float>&, const fit_results<float>&, const run::settings&);
template report fit_on_devices(const prepared&, const data<double>&, const fit_results<double>&, const run::settings&);
template report predict_on_devices(const prepared&, const data<float>&, const prediction_results&, const run::settings&);
template report predict_on_devices(const prepared&, const data<double>&, const prediction_results&, const run::settings&);
template report transform_on_devices(const prepared&, const data<float>&, const matrix_view<float>&, const run::settings&);
template report transform_on_devices(const prepared&, const data<double>&, const matrix_view<double>&, const run::settings&);

}  // namespace ballast::kmeans
