// Many fits in one call: one by one by the driver, on the host side by side; or by scheme dmr in one launch on a device.
// Layer: algorithm, over driver/driver.hpp. See include/ballast/kmeans.hpp.
#include "kmeans/batch.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/call/capture.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "kmeans/api/plan.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"
#include "run/dispatch.hpp"
#include "run/pending_report.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

namespace {

using core::at;

// Operands and results of one call; for a backend of the host, with host copies of those that lie in device memory.
template <class T>
struct batch_operands {
  batch_data<T> from;
  batch_results<T> to;
};

template <class T>
batch_operands<T> on_host(run::host_staging& staging, const batch_data<T>& from, const batch_results<T>& to) {
  batch_operands<T> made{from, to};
  made.from.points = staging.read(from.points);
  made.from.weights = staging.read(from.weights);
  made.from.centroids = staging.read(from.centroids);
  made.to.centroids = staging.write(to.centroids);
  made.to.labels = staging.write(to.labels);
  return made;
}

// Computes fit b by the driver. The message of an error names the fit. An uncorrectable fault does not throw: the report says so.
template <class T>
report fit_one(const prepared& plan, const batch_operands<T>& all, const run::settings& how, backend which, const shared_text& scheme,
               std::int64_t b) {
  const std::int64_t m = plan.problem.points, n = plan.problem.features, k = plan.problem.clusters;
  options own = plan.options;
  own.seed += static_cast<std::uint64_t>(b);
  const auto weights = all.from.weights.empty() ? all.from.weights : all.from.weights.subspan(at(b * m), at(m));
  const auto given = own.init == init::given ? all.from.centroids.block(b * k, 0, k, n) : matrix_view<const T>{};
  fit_results<T> to;
  if (all.to.centroids.data != nullptr) to.centroids = all.to.centroids.block(b * k, 0, k, n);
  if (!all.to.labels.empty()) to.labels = all.to.labels.subspan(at(b * m), at(m));
  if (!all.to.inertia.empty()) to.inertia = &all.to.inertia[at(b)];
  if (!all.to.iterations.empty()) to.iterations = &all.to.iterations[at(b)];
  if (!all.to.stopped.empty()) to.stopped = &all.to.stopped[at(b)];
  try {
    run::host_staging staging(how.stream);
    return driver<T>({all.from.points[b], weights, k, how, plan.one_token, which, scheme, plan.state_for(which)})
        .fit(own, staging.read(given), to);
  } catch (const invalid_argument_error& refused) {
    throw invalid_argument_error(fmt::format("fit {}: {}", b, refused.what()));
  } catch (const uncorrectable_error& failed) {
    return failed.report();
  }
}

// Throws if a fault persisted and the call asks for it.
report checked(report seen, const run::settings& how) {
  if (seen.verdict == verdict::uncorrectable && how.throw_on_uncorrectable) throw uncorrectable_error(std::move(seen));
  return seen;
}

// Each fit by the driver: on the host side by side, if there are as many as threads.
template <class T>
report fit_each(const prepared& plan, const batch_data<T>& from, const batch_results<T>& to, const run::settings& how,
                const shared_text& token, backend which, const shared_text& scheme) {
  const std::int64_t count = from.points.count;
  const int threads = core::thread_count(how.threads);
  const bool side_by_side = which != backend::cuda && count >= threads;
  run::settings each = how;
  each.on_event = {};
  each.on_progress = {};
  if (side_by_side) each.threads = 1;
  run::host_staging staging(how.stream);
  const batch_operands<T> all = which == backend::cuda ? batch_operands<T>{from, to} : on_host(staging, from, to);
  core::vector<report> reports(at(count));
  core::parallel_for(side_by_side ? threads : 1, count,
                     [&](std::int64_t b, int) { reports[at(b)] = fit_one(plan, all, each, which, scheme, b); });
  report whole;
  for (std::int64_t b = 0; b < count; ++b) {
    report& seen = reports[at(b)];
    for (event& e : seen.events) {
      if (e.index < 0) e.index = b;
      if (how.on_event) how.on_event(e);
    }
    if (b == 0) {
      whole = std::move(seen);
    } else {
      whole.seconds += seen.seconds;
      whole.merge(seen);
    }
  }
  whole.problem = token;
  report made = checked(std::move(whole), how);
  staging.commit();
  return made;
}

// Copies the results of all fits but the refused ones to the caller's memory, and verifies the copies.
template <class T>
void store(const batch_fits<T>& made, const core::vector<std::int64_t>& refused, const prepared& plan, const batch_results<T>& to,
           const run::settings& how, run::recorder& seen) {
  const std::int64_t m = plan.problem.points, n = plan.problem.features, k = plan.problem.clusters;
  const auto count = static_cast<std::int64_t>(made.inertia.size());
  run::host_staging staging(how.stream);
  const matrix_view<T> centroids = staging.write(to.centroids);
  const std::span<std::int32_t> labels = staging.write(to.labels);
  // Calls use(target, source, count) for each run of adjacent numbers of a fit.
  const auto each = [&](std::int64_t b, auto&& use) {
    const bool rows = centroids.column_stride == 1;  // whole rows are adjacent, and all of them if no gap lies between rows
    const std::int64_t run = !rows ? 1 : centroids.row_stride == n ? k * n : n;
    for (std::int64_t e = 0; centroids.data != nullptr && e < k * n; e += run)
      use(&centroids(b * k + e / n, e % n), &made.centroids[at(b * k * n + e)], run);
    if (!labels.empty()) use(&labels[at(b * m)], &made.labels[at(b * m)], m);
    if (!to.inertia.empty()) use(&to.inertia[at(b)], &made.inertia[at(b)], 1);
    if (!to.iterations.empty()) use(&to.iterations[at(b)], &made.iterations[at(b)], 1);
    if (!to.stopped.empty()) use(&to.stopped[at(b)], &made.stopped[at(b)], 1);
  };
  for (std::int64_t b = 0; b < count; ++b) {
    if (std::ranges::find(refused, b) != refused.end()) continue;
    const auto copy = [&] { each(b, [](auto* target, const auto* source, std::int64_t length) { std::copy_n(source, length, target); }); };
    if (how.protection == protection::off) {
      copy();
      continue;
    }
    run::attempt(seen, how.protection, "kmeans.fit", 0, [&](int) {
      copy();
      bool same = true;
      each(b, [&](const auto* target, const auto* source, std::int64_t length) {
        same = same && std::memcmp(target, source, at(length) * sizeof *source) == 0;
      });
      abft::finding found;
      found.word = same ? abft::k_pass : abft::k_fail;
      found.residual = same ? 0 : std::numeric_limits<double>::quiet_NaN();
      found.index = b;
      return found;
    });
  }
  if (!(seen.uncorrectable() && how.throw_on_uncorrectable)) staging.commit();
}

// Side by side on the device. A fit that was refused runs alone, to say why.
template <class T>
report fit_side_by_side(const prepared& plan, const batch_data<T>& from, const batch_results<T>& to, const run::settings& how,
                        const shared_text& token, const shared_text& scheme) {
  inject::active_injector injector(how.faults, site::table());
  run::recorder seen(token, backend::cuda, scheme, how, injector);
  batch_fits<T> made;
  core::vector<std::int64_t> refused;
  cuda::fit_batch<T>(
      {from.points, from.weights, from.centroids, plan.problem.clusters, plan.options, how, seen, injector, *plan.state, token}, made,
      refused);
  core::vector<report> alone;
  for (const std::int64_t b : refused) alone.push_back(fit_one(plan, batch_operands<T>{from, to}, how, backend::cuda, k_scheme, b));
  if (!(seen.uncorrectable() && how.throw_on_uncorrectable)) store(made, refused, plan, to, how, seen);
  report whole = seen.finish();
  for (const report& each : alone) whole.merge(each);
  return checked(std::move(whole), how);
}

}  // namespace

template <class T>
report fit_batch(const prepared& plan, operation what, const batch_data<T>& from, const batch_results<T>& to, run::settings how,
                 const shared_text& token, const shared_text& scheme) {
  const backend which = plan.backend_for(operation::batch, how, {from.points.data, to.labels.data()});
  if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, token);
  plan.count(what, how);
  if (which != backend::cuda) return fit_each(plan, from, to, how, token, which, plan.row_checksum);
  if (scheme == k_dmr) return fit_side_by_side(plan, from, to, how, token, scheme);
  return fit_each(plan, from, to, how, token, which, scheme);
}

template <class T>
pending_report enqueue_batch(const std::shared_ptr<const prepared>& owner, const batch_data<T>& from, const batch_results<T>& to,
                             const call& now) {
  const prepared& plan = *owner;
  if (plan.backend != backend::cuda)
    throw unsupported_error(
        fmt::format("{}: expected the cuda backend for enqueue_fit, got {}", plan.token.view(), to_string(plan.backend)));
  const shared_text& scheme = plan.scheme_of(operation::batch);
  if (scheme != k_dmr)
    throw unsupported_error(fmt::format(
        "{}: enqueue_fit: expected scheme {} and a fit that a block of threads can hold, got scheme {}, whose iterations the host decides",
        plan.token.view(), k_dmr, scheme.view()));
  const auto device = ballast::cuda::current_device();
  for (const void* operand : {static_cast<const void*>(from.points.data), static_cast<const void*>(from.weights.data()),
                              static_cast<const void*>(plan.options.init == init::given ? from.centroids.data : nullptr),
                              static_cast<const void*>(to.centroids.data), static_cast<const void*>(to.labels.data())}) {
    if (operand != nullptr && !device->accessible(operand))
      throw invalid_argument_error(fmt::format(
          "{}: enqueue_fit: expected points, weights, centroids and labels in device memory, got a host pointer", plan.token.view()));
  }
  run::settings how = run::settings_of(plan.where, now);
  plan.count(operation::batch, how);
  auto made = std::unique_ptr<pending_report::implementation>(new pending_report::implementation{
      {}, owner, how, plan.token, plan.backend, scheme, inject::active_injector(how.faults, site::table()), nullptr});
  run::recorder unused(plan.token, plan.backend, scheme, made->how, made->injector);
  made->work = cuda::enqueue_batch<T>({from.points, from.weights, from.centroids, plan.problem.clusters, plan.options, made->how, unused,
                                       made->injector, *plan.state, plan.token},
                                      to);
  return pending_report(std::move(made));
}

template report fit_batch(const prepared&, operation, const batch_data<float>&, const batch_results<float>&, run::settings,
                          const shared_text&, const shared_text&);
template report fit_batch(const prepared&, operation, const batch_data<double>&, const batch_results<double>&, run::settings,
                          const shared_text&, const shared_text&);
template pending_report enqueue_batch(const std::shared_ptr<const prepared>&, const batch_data<float>&, const batch_results<float>&,
                                      const call&);
template pending_report enqueue_batch(const std::shared_ptr<const prepared>&, const batch_data<double>&, const batch_results<double>&,
                                      const call&);

}  // namespace ballast::kmeans
