// The public calls of K-Means for many fits: arguments, choice of backend and scheme, fits by the functions for one.
// Layer: algorithm (driver). Backend-free. See include/ballast/kmeans.hpp.
#include "kmeans/batch.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/at.hpp"
#include "core/parallel.hpp"
#include "cuda/device/residence.hpp"
#include "inject/injector.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/contract.hpp"
#include "run/dispatch.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

namespace {

using core::at;

template <class T>
void check_batch(const std::string& token, const matrix_batch_view<const T>& points, const options<T>& wanted) {
  if (points.count < 1)
    throw invalid_argument_error(fmt::format("{}: points: expected at least one data set, got {}", token, points.count));
  std::int64_t reach = 0;
  if (__builtin_mul_overflow(points.count, std::max<std::int64_t>(wanted.clusters, 1), &reach) ||
      __builtin_mul_overflow(points.count, std::max<std::int64_t>(points.rows, 1), &reach) ||
      __builtin_mul_overflow(points.count - 1, points.stride, &reach) ||
      __builtin_mul_overflow(reach, static_cast<std::int64_t>(2 * sizeof(T)), &reach))
    throw invalid_argument_error(fmt::format("{}: points: expected a size below 2^63 bytes, got {} data sets with a stride of {}", token,
                                             points.count, points.stride));
  check_options(token, points[0], wanted, points.count);
}

// The options of fit b.
template <class T>
options<T> options_of(const matrix_batch_view<const T>& points, const options<T>& wanted, std::int64_t b) {
  options<T> own = wanted;
  own.seed = wanted.seed + static_cast<std::uint64_t>(b);
  if (!wanted.weights.empty()) own.weights = wanted.weights.subspan(at(b * points.rows), at(points.rows));
  if (wanted.init == init::given) own.centroids = wanted.centroids.block(b * wanted.clusters, 0, wanted.clusters, points.columns);
  return own;
}

// One fit by the function for one. A message names the fit.
template <class T>
model<T> fit_one(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how, std::int64_t b) {
  try {
    return fit(points[b], options_of(points, wanted, b), how);
  } catch (const invalid_argument_error& refused) {
    throw invalid_argument_error(fmt::format("fit {}: {}", b, refused.what()));
  }
}

template <class T>
void put(const model<T>& from, std::int64_t b, batch_model<T>& to) {
  std::copy_n(from.centroids.data(), from.centroids.size(), to.centroids.begin() + b * static_cast<std::int64_t>(from.centroids.size()));
  std::ranges::copy(from.labels, to.labels.begin() + b * static_cast<std::int64_t>(from.labels.size()));
  to.inertia[at(b)] = from.inertia;
  to.iterations[at(b)] = from.iterations;
  to.ended[at(b)] = from.ended;
}

// Each by the function for one: on the host side by side, if there are as many as threads.
template <class T>
batch_model<T> fit_each(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how, backend which,
                        const std::string& token) {
  const int threads = core::thread_count(how.threads);
  const bool side_by_side = which != backend::cuda && points.count >= threads;
  run::settings each = how;
  each.backend = which;
  each.throw_on_uncorrectable = false;
  each.on_event = {};
  each.on_progress = {};
  if (side_by_side) each.threads = 1;
  batch_model<T> made = empty_models<T>(points.count, points.rows, points.columns, wanted.clusters);
  std::vector<report> reports(at(points.count));
  core::parallel_for(side_by_side ? threads : 1, points.count, [&](std::int64_t b, int) {
    model<T> one = fit_one(points, wanted, each, b);
    put(one, b, made);
    reports[at(b)] = std::move(one.report);
  });
  for (std::int64_t b = 0; b < points.count; ++b) {
    report& seen = reports[at(b)];
    for (event& e : seen.events) {
      if (e.index < 0) e.index = b;
      if (how.on_event) how.on_event(e);
    }
    if (b == 0) {
      made.report = std::move(seen);
    } else {
      made.report.seconds += seen.seconds;
      made.report.merge(seen);
    }
  }
  made.report.problem = token;
  if (made.report.verdict == verdict::uncorrectable && how.throw_on_uncorrectable) throw uncorrectable_error(made.report);
  return made;
}

// Side by side on the device. A fit that was refused says why as a single one.
template <class T>
batch_model<T> fit_in_blocks(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how,
                             const std::string& token) {
  run::host_staging staging(how.stream);
  options<T> here = wanted;
  if (wanted.init == init::given) here.centroids = staging.read(wanted.centroids);
  inject::active_injector injector(how.faults, "kmeans");
  run::recorder seen(token, backend::cuda, std::string(k_dmr), how, injector);
  std::vector<std::int64_t> refused;
  batch_model<T> made = cuda::fit_batch(points, here, how, seen, injector, refused);
  run::settings single = how;
  single.backend = backend::cuda;
  single.scheme = k_scheme;
  for (const std::int64_t b : refused) put(fit_one(points, here, single, b), b, made);
  made.report = seen.finish();
  return made;
}

template <class T>
batch_model<T> fit_any(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how) {
  const std::string token = token_of(points, wanted.clusters);
  check_batch(token, points, wanted);
  backend which = run::choose_backend(how, token);
#if defined(BALLAST_HAS_CPU)
  if (how.backend == backend::automatic && which == backend::cuda && how.faults == nullptr &&
      ballast::cuda::residence_of(points.data) == ballast::cuda::residence::host) {
    const double elements = static_cast<double>(points.count) * static_cast<double>(points.rows) * static_cast<double>(points.columns);
    const double flops = 2 * elements * static_cast<double>(wanted.clusters) * k_usual_iterations * wanted.n_init;
    if (run::copying_takes_longer({elements * static_cast<double>(sizeof(T)), flops, precision_of<T>, core::thread_count(how.threads)}))
      which = backend::cpu;
  }
#endif
  if (which != backend::cuda) {
    const auto scheme = run::choose_scheme(how, k_scheme, {k_scheme}, token);
    static_cast<void>(scheme);
    return fit_each(points, wanted, how, which, token);
  }
  const bool fits = cuda::takes_batch<T>(points.rows, points.columns, wanted.clusters, wanted.init);
  std::vector<std::string_view> known = {k_dmr, k_scheme};
  known.insert(known.end(), cuda::schemes().begin(), cuda::schemes().end());
  const auto scheme = run::choose_scheme(how, fits ? k_dmr : k_scheme, known, token);
  if (scheme != k_dmr) return fit_each(points, wanted, how, which, token);
  if (!fits)
    throw unsupported_error(fmt::format(
        "{}: scheme {}: expected a fit that a block of threads can hold, m·n·k ≤ 2^24, k·n within its shared memory, not k-means||, "
        "got a larger one or k-means||",
        token, k_dmr));
  return fit_in_blocks(points, wanted, how, token);
}

}  // namespace

template <class T>
model<T> fit_in_block(const matrix_view<const T>& points, const options<T>& wanted, const run::settings& how) {
  run::settings here = how;
  here.backend = backend::cuda;
  batch_model<T> all = fit_any(
      matrix_batch_view<const T>{points.data, 1, points.rows, points.columns, points.row_stride, points.column_stride, 0}, wanted, here);
  model<T> made;
  made.centroids = matrix<T>(wanted.clusters, points.columns);
  std::ranges::copy(all.centroids, made.centroids.data());
  made.labels = std::move(all.labels);
  made.inertia = all.inertia[0];
  made.iterations = all.iterations[0];
  made.ended = all.ended[0];
  made.report = std::move(all.report);
  made.report.problem = to_token({precision_of<T>, points.rows, points.columns, wanted.clusters});
  return made;
}

template model<float> fit_in_block(const matrix_view<const float>&, const options<float>&, const run::settings&);
template model<double> fit_in_block(const matrix_view<const double>&, const options<double>&, const run::settings&);

batch_model<float> fit(matrix_batch_view<const float> points, const options<float>& wanted, const run::settings& how) {
  return fit_any(points, wanted, how);
}
batch_model<double> fit(matrix_batch_view<const double> points, const options<double>& wanted, const run::settings& how) {
  return fit_any(points, wanted, how);
}

}  // namespace ballast::kmeans
