// Calls of a plan on a group of devices of one process: a thread for each device, with its share of the rows.
// Layer: algorithm, over driver/driver.hpp and group/session.hpp. docs/design/distributed.md, "Devices".
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "inject/plan.hpp"
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

// How much an exception says: that another rank has left says less than why it left.
int weight_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const wire::rank_ended&) {
    return 1;
  } catch (const wire::left_by_other&) {
    return 2;
  } catch (const rank_lost_error&) {
    return 3;
  } catch (...) {
    return 4;
  }
}

void refuse_unfit(const run::settings& how, const shared_text& token) {
  if (how.stream != nullptr)
    throw invalid_argument_error(fmt::format("{}: stream: expected the default stream for a group of devices, got another", token.view()));
  if (!how.workspace.empty())
    throw invalid_argument_error(
        fmt::format("{}: workspace: expected none for a group of devices, got {} bytes", token.view(), how.workspace.size()));
}

template <class T>
class devices_call {
 public:
  devices_call(const prepared& plan, const data<T>& from, const run::settings& how)
      : plan_(plan), from_(from), how_(how), group_(*how.group.internal()), shares_(divide_rows(from.points.rows, group_.devices.size())) {
    refuse_unfit(how, plan.one_token);
    kept_.resize(shares_.size());
    const auto board = std::make_shared<wire::switchboard>(static_cast<int>(shares_.size()), group_.faults);
    group_options options = group_.how;
    options.patience = 1e15;  // a thread that computes is silent, and none is lost without a word
    for (std::size_t p = 0; p < shares_.size(); ++p)
      exchanges_.push_back(std::make_unique<wire::exchange>(std::make_shared<wire::thread_engine>(board, static_cast<int>(p)), options));
    // The threads use other streams than the caller.
    const auto on_device = [](const void* each) { return ballast::cuda::residence_of(each) != ballast::cuda::residence::host; };
    if (!on_device(from.points.data) && !on_device(from.weights.data())) return;
    for (const int number : group_.devices) {
      const ballast::cuda::device_scope on(number);
      ballast::cuda::current_device()->synchronize(nullptr);
    }
  }

  // Runs work(rank, share, driver) on the thread of each device, and returns the report of all. Throws what says most of what they threw.
  template <class Work>
  report run(const Work& work) {
    std::vector<report> made(shares_.size());
    std::vector<std::exception_ptr> failures(shares_.size());
    const auto one = [&](std::size_t p) {
      try {
        made[p] = run::in_call(&plan_.memory, group_.devices[p], plan_.one_token, [&] { return run_rank(p, work); });
      } catch (...) {
        failures[p] = std::current_exception();
      }
    };
    run_together(one);
    const auto worst =
        std::ranges::max_element(failures, {}, [](const std::exception_ptr& each) { return each == nullptr ? 0 : weight_of(each); });
    if (*worst != nullptr) std::rethrow_exception(*worst);
    return made[0];
  }

 private:
  // Calls one(p) for each rank on a thread of its own, the first on this one. None begins before all have a thread.
  template <class One>
  void run_together(const One& one) {
    enum : int { waits, begins, gives_up };
    std::atomic<int> gate{waits};
    std::vector<std::thread> threads;
    const auto open = [&](int state) {
      gate = state;
      gate.notify_all();
    };
    threads.reserve(shares_.size());
    try {
      for (std::size_t p = 1; p < shares_.size(); ++p) {
        threads.emplace_back([&gate, &one, p] {
          gate.wait(waits);
          if (gate == begins) one(p);
        });
      }
    } catch (const std::exception& failed) {
      open(gives_up);
      for (std::thread& each : threads) each.join();
      throw error(fmt::format("{}: expected a thread for each device, got: {}", plan_.one_token.view(), failed.what()));
    }
    open(begins);
    one(0);
    for (std::thread& each : threads) each.join();
  }

  // The settings of a rank. Callbacks are called from the thread of the caller; injected faults strike one device.
  run::settings settings_of_rank(std::size_t p) const {
    run::settings made = how_;
    made.threads = std::max(1, core::thread_count(how_.threads) / static_cast<int>(shares_.size()));
    const bool struck = how_.faults != nullptr && !how_.faults->requests().empty() && how_.faults->requests()[0].seed % shares_.size() == p;
    if (!struck) made.faults = nullptr;
    if (p == 0) return made;
    made.on_event = {};
    // A rank with a callback goes another way through the iterations than one without.
    if (made.on_progress) made.on_progress = [](const progress&) {};
    return made;
  }

  template <class Work>
  report run_rank(std::size_t p, const Work& work) {
    wire::exchange& over = *exchanges_[p];
    const row_share share = shares_[p];
    const run::settings own = settings_of_rank(p);
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
  const group::state& group_;
  std::vector<row_share> shares_;
  std::vector<std::vector<std::shared_ptr<void>>> kept_;    // by rank
  std::vector<std::unique_ptr<wire::exchange>> exchanges_;  // they outlive all threads, which may still ask each other
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
