// Calls of a plan on a group of devices of one process: a thread for each device, with its share of the rows. And on a rank with a device
// of its own, over NCCL, which has its own rows. Layer: algorithm, over driver/driver.hpp and group/session.hpp.
// docs/design/distributed.md, "Devices".
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "group/device_meeting.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "kmeans/api/plan.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"
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

// Runs work(driver) on one device of a group, and returns the report of all.
template <class T, class Work>
report run_rank(const prepared& plan, const rank_rows<T>& rows, const run::settings& own, const shared_text& token, plan_state* state,
                const Work& work) {
  wire::exchange& over = *rows.over;
  const row_part<T>& part = rows.parts[0];
  try {
    std::optional<driver<T>> on;
    wire::prepare(over, [&] {
      on.emplace(driver_args<T>{part.points, part.weights, plan.problem.clusters, own, token, backend::cuda, plan.row_checksum, state,
                                false, &rows, nullptr});
    });
    return wire::in_group(over, on->recorder(), token, [&] { return work(*on); });
  } catch (const wire::ranks_lost&) {
    over.regroup();
    throw rank_lost_error(wire::lost_message(over, token), over.lost());
  }
}

// Returns whether these devices reach each other's memory.
bool all_reach(const wire::device_threads& threads) {
  std::vector<std::shared_ptr<ballast::cuda::device>> all;
  for (std::size_t p = 0; p < threads.size(); ++p) {
    const ballast::cuda::device_scope on(threads.device(p));
    all.push_back(ballast::cuda::current_device());
  }
  return ballast::cuda::reach_each_other(all);
}

template <class T>
class devices_call {
 public:
  devices_call(const prepared& plan, const data<T>& from, const run::settings& how)
      : plan_(plan),
        from_(from),
        how_(how),
        shares_(divide_rows(from.points.rows, how.group.internal()->devices.size())),
        threads_(how.group, shares_.size()),
        meeting_(shares_.size(), all_reach(threads_)) {
    wire::check_call_on_devices(how.now(), plan.one_token.view());
    kept_.resize(shares_.size());
    threads_.wait_for({from.points.data, from.weights.data()});
    how.group.internal()->road = meeting_.peers() ? wire::road::peers : wire::road::host;
  }

  // Runs work(rank, share, driver) on the thread of each device, and returns the report of all. Throws what says most of what they threw.
  template <class Work>
  report run(const Work& work) {
    std::vector<report> made(shares_.size());
    threads_.run(plan_.one_token.view(), [&](std::size_t p) {
      made[p] = run::in_call(&plan_.memory, threads_.device(p), plan_.one_token, [&] {
        const row_share share = shares_[p];
        const run::settings own = threads_.settings_of(how_, p);
        const auto first = static_cast<std::size_t>(share.first), count = static_cast<std::size_t>(share.count);
        const std::span<const T> weights = from_.weights.empty() ? from_.weights : from_.weights.subspan(first, count);
        const rank_rows<T> rows{.over = &threads_.over(p),
                                .all = from_.points.rows,
                                .weighted = !from_.weights.empty(),
                                .parts = {{share.first, from_.points.block(share.first, 0, share.count, from_.points.columns), weights}},
                                .own = 0,
                                .kept = &kept_[p],
                                .meeting = &meeting_};
        return run_rank(plan_, rows, own, plan_.one_token, plan_.states[p].get(), [&](driver<T>& on) { return work(p, share, on); });
      });
    });
    return made[0];
  }

 private:
  const prepared& plan_;
  const data<T>& from_;
  const run::settings& how_;
  std::vector<row_share> shares_;
  std::vector<std::vector<std::shared_ptr<void>>> kept_;  // by rank
  wire::device_threads threads_;
  wire::device_meeting meeting_;
};

// A call of one rank over NCCL.
template <class T>
class linked_call {
 public:
  linked_call(const prepared& plan, const data<T>& from, const run::settings& how)
      : plan_(plan), from_(from), how_(how), state_(*how.group.internal()), over_(*state_.over) {}

  // Calls check(), which throws for wrong operands, on all ranks before work(driver).
  template <class Check, class Work>
  report run(std::uint64_t digest, const Check& check, const Work& work) {
    wire::nccl_link& link = *state_.link;
    const ballast::cuda::device_scope on(link.device_number());
    run::settings own = how_;
    own.backend = backend::cuda;
    own.device = link.device_number();
    std::vector<std::shared_ptr<void>> kept;
    rank_rows<T> rows{.over = &over_,
                      .weighted = !from_.weights.empty(),
                      .parts = {{0, from_.points, from_.weights}},
                      .own = 0,
                      .kept = &kept,
                      .link = &link};
    const report agreed = agree(rows, digest, check, own);
    link.device()->synchronize(nullptr);  // operands may lie there
    const shared_text token = to_token(problem{precision_of<T>, rows.all, from_.points.columns, plan_.problem.clusters});
    report made = run_rank(plan_, rows, own, token, plan_.states[0].get(), work);
    made.merge(agreed);
    return made;
  }

 private:
  // The ranks exchange how many rows they have, and whether they have a callback for progress: `how` gets one if any has.
  template <class Check>
  report agree(rank_rows<T>& rows, std::uint64_t digest, const Check& check, run::settings& how) {
    const std::string_view token = plan_.one_token.view();
    inject::active_injector quiet(nullptr, site::table());
    run::recorder seen(plan_.one_token, plan_.backend, plan_.row_checksum, how_, quiet);
    return wire::in_group(over_, seen, token, [&] {
      wire::check_call_on_devices(how_.now(), token);
      check();
      over_.expect_alike(abft::chained(digest, rows.weighted ? 1 : 0));
      const std::int64_t own[] = {from_.points.rows, how.on_progress ? 1 : 0};
      const std::vector<std::vector<std::int64_t>> all = over_.gather(std::span<const std::int64_t>(own));
      for (std::size_t p = 0; p < all.size(); ++p) {
        if (p == over_.place()) rows.parts[0].first = rows.all;
        rows.all += all[p][0];
      }
      const bool any = std::ranges::any_of(all, [](const auto& each) { return each[1] != 0; });
      how.on_progress = wire::progress_of_all(how.on_progress, any);
      const std::int64_t unit = cuda::rows_of_segment_of(rows.all);
      for (std::size_t p = 0; p < all.size(); ++p) {
        const std::int64_t count = all[p][0];
        if (count < 1 || (p + 1 < all.size() && count % unit != 0))
          throw invalid_argument_error(fmt::format(
              "{}: points: expected rows on every rank, on all but the last a multiple of {} for {} rows in all, got {} on rank {}", token,
              unit, rows.all, count, p));
      }
      if (plan_.problem.clusters > rows.all)
        throw invalid_argument_error(
            fmt::format("{}: clusters: expected at most the number of points, {}, got {}", token, rows.all, plan_.problem.clusters));
      return wire::joined(over_, seen.collect());
    });
  }

  const prepared& plan_;
  const data<T>& from_;
  const run::settings& how_;
  group::state& state_;
  wire::exchange& over_;
};

// A hash of what all ranks of a call must have alike.
template <class T>
std::uint64_t digest_of(const prepared& plan, matrix_view<const T> centroids, std::int64_t which) {
  abft::result_hash made;
  const options& wanted = plan.options;
  for (const std::int64_t each :
       {which, plan.problem.clusters, plan.problem.features, static_cast<std::int64_t>(wanted.init), std::int64_t{wanted.n_init},
        std::int64_t{wanted.max_iter}, static_cast<std::int64_t>(sizeof(T)), static_cast<std::int64_t>(plan.where.protection)})
    made.add(each);
  made.add(wanted.tol);
  made.add(wanted.seed);
  for (std::int64_t j = 0; j < centroids.rows; ++j)
    for (std::int64_t f = 0; f < centroids.columns; ++f) made.add(centroids(j, f));
  return made.bits();
}

bool over_nccl(const run::settings& how) { return how.group.internal()->link != nullptr; }

// The rows of this rank, and given centroids, have the sizes of the plan.
template <class T>
void check_rows(const prepared& plan, const data<T>& from, bool centroids) {
  check_view(plan.one_token, "points", from.points, plan.problem.points, plan.problem.features);
  check_span(plan.one_token, "weights", from.weights, plan.problem.points);
  if (centroids) check_view(plan.one_token, "centroids", from.centroids, plan.problem.clusters, plan.problem.features);
}

std::span<std::int32_t> part_of(std::span<std::int32_t> labels, const row_share& share) {
  return labels.empty() ? labels : labels.subspan(static_cast<std::size_t>(share.first), static_cast<std::size_t>(share.count));
}

}  // namespace

template <class T>
report fit_on_devices(const prepared& plan, const data<T>& from, const fit_results<T>& to, const run::settings& how) {
  if (over_nccl(how)) {
    run::host_staging staging(nullptr);
    const matrix_view<const T> given = plan.options.init == init::given ? staging.read(from.centroids) : matrix_view<const T>{};
    const auto check = [&] {
      check_rows(plan, from, plan.options.init == init::given);
      check_results(plan.one_token, plan.problem, to);
    };
    return linked_call<T>(plan, from, how).run(digest_of(plan, given, 1), check, [&](driver<T>& on) {
      return on.fit(plan.options, given, to);
    });
  }
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
  if (over_nccl(how)) {
    run::host_staging staging(nullptr);
    const matrix_view<const T> centroids = staging.read(from.centroids);
    const auto check = [&] {
      check_rows(plan, from, true);
      check_span(plan.one_token, "labels", to.labels, plan.problem.points);
    };
    return linked_call<T>(plan, from, how).run(digest_of(plan, centroids, 2), check, [&](driver<T>& on) {
      return on.predict(centroids, to);
    });
  }
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
  if (over_nccl(how)) {
    run::host_staging staging(nullptr);
    const matrix_view<const T> centroids = staging.read(from.centroids);
    data<T> points = from;
    points.weights = {};
    const auto check = [&] {
      check_rows(plan, points, true);
      check_result(plan.one_token, "values", values, plan.problem.points, plan.problem.clusters);
    };
    return linked_call<T>(plan, points, how).run(digest_of(plan, centroids, 3), check, [&](driver<T>& on) {
      return on.transform(centroids, values);
    });
  }
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
