// K-Means: plans of both precisions, operands and results.
// Layer: interface.
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "c/handles.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

struct ballast_kmeans_plan : ballast::c::handle<ballast::c::kind::kmeans_plan> {
  using any_plan = std::variant<ballast::kmeans::plan<float>, ballast::kmeans::plan<double>>;
  explicit ballast_kmeans_plan(const ballast_options& with)
      : options(with),
        plan(with.kmeans.precision == ballast::precision::f32
                 ? any_plan(ballast::kmeans::plan<float>(with.kmeans, with.kmeans_wanted, ballast::c::where_of(with)))
                 : any_plan(ballast::kmeans::plan<double>(with.kmeans, with.kmeans_wanted, ballast::c::where_of(with)))),
        token(to_token(with.kmeans)) {}
  ballast_options options;
  any_plan plan;
  std::string token;
};

namespace ballast::c {

namespace {

using kmeans::stop_reason;

// Calls work(plan<T>, T{}).
template <class Work>
void with_plan(const ballast_kmeans_plan& of, Work&& work) {
  if (const auto* const single = std::get_if<kmeans::plan<float>>(&of.plan))
    work(*single, float{});
  else
    work(std::get<kmeans::plan<double>>(of.plan), double{});
}

// Rows of all data sets of a batch, one distance apart.
template <class T>
matrix_view<T> rows_of_all(const tensor& of, const execution& where) {
  const matrix_batch_view<T> each = matrices_of<T>(of, where);
  std::int64_t rows = 0, distance = 0;
  if (__builtin_mul_overflow(each.count, each.rows, &rows) || __builtin_mul_overflow(each.rows, each.row_stride, &distance))
    throw invalid_argument_error(fmt::format("{}: {}: expected less than 2^63 rows, got {}", of.as.problem, of.as.name, lengths_of(of)));
  if (each.count > 1 && each.rows > 1 && each.stride != distance)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected a stride of {} from data set to data set, got {}", of.as.problem, of.as.name, distance, each.stride));
  return {each.data, rows, each.columns, each.rows > 1 ? each.row_stride : each.stride, each.column_stride};
}

// Points in compressed rows.
template <class T, class Index>
csr_view<const T, Index> rows_of(const ballast_kmeans_plan& plan, const ballast_kmeans_data& given) {
  const execution& where = plan.options.where;
  const std::string_view token = plan.token;
  return {plan.options.kmeans.points, plan.options.kmeans.features,
          elements_of<const Index>(tensor(given.row_offsets, {token, "row_offsets"}), 1, where),
          elements_of<const Index>(tensor(given.row_columns, {token, "row_columns"}), 1, where),
          elements_of<const T>(tensor(given.points, {token, "points"}), 1, where)};
}

template <class T>
kmeans::data<T> operands_of(const ballast_kmeans_plan& plan, const ballast_kmeans_data& given) {
  const execution& where = plan.options.where;
  const std::string_view token = plan.token;
  kmeans::data<T> made;
  const tensor points(given.points, {token, "points"});
  switch (plan.options.kmeans.storage) {
    case kmeans::storage::dense: made.points = matrix_of<const T>(points, where); break;
    case kmeans::storage::f16: made.half = matrix_of<const float16>(points, where); break;
    case kmeans::storage::bf16: made.half = matrix_of<const bfloat16>(points, where); break;
    case kmeans::storage::csr:
      if (tensor(given.row_offsets, {token, "row_offsets"}).type == element::i64) {
        made.sparse = rows_of<T, std::int64_t>(plan, given);
      } else {
        made.sparse = rows_of<T, std::int32_t>(plan, given);
      }
      break;
  }
  if (given.weights != nullptr) made.weights = elements_of<const T>(tensor(given.weights, {token, "weights"}).expect_elements(), 1, where);
  if (given.centroids != nullptr)
    made.centroids = matrix_of<const T>(tensor(given.centroids, {token, "centroids"}).expect_elements(), where);
  return made;
}

// Weights and labels have two axes, whose first counts the data sets.
void expect_sets(const tensor& of, std::int64_t count) {
  of.expect_axes(2);
  if (of.length[0] != count)
    throw invalid_argument_error(fmt::format("{}: {}: expected {} data sets, got {}", of.as.problem, of.as.name, count, of.length[0]));
}

template <class T>
kmeans::batch_data<T> batch_operands_of(const ballast_kmeans_plan& plan, const ballast_kmeans_data& given) {
  const execution& where = plan.options.where;
  const std::string_view token = plan.token;
  kmeans::batch_data<T> made;
  made.points = matrices_of<const T>(tensor(given.points, {token, "points"}), where);
  if (given.weights != nullptr) {
    const tensor weights(given.weights, {token, "weights"});
    expect_sets(weights.expect_elements(), made.points.count);
    made.weights = elements_of<const T>(weights, 2, where);
  }
  if (given.centroids != nullptr) {
    const tensor centroids(given.centroids, {token, "centroids"});
    centroids.expect_elements().expect_axes(3);
    made.centroids = rows_of_all<const T>(centroids, where);
  }
  return made;
}

template <class T>
kmeans::batch_results<T> batch_results_of(const ballast_kmeans_plan& plan, const ballast_kmeans_results& given, std::int64_t count,
                                          std::vector<stop_reason>& stopped) {
  const execution& where = plan.options.where;
  const std::string_view token = plan.token;
  const auto size = static_cast<std::size_t>(count);
  kmeans::batch_results<T> made;
  if (given.centroids != nullptr) {
    const tensor centroids(given.centroids, {token, "results: centroids"});
    centroids.expect_elements().expect_axes(3);
    made.centroids = rows_of_all<T>(centroids, where);
  }
  if (given.labels != nullptr) {
    const tensor labels(given.labels, {token, "results: labels"});
    expect_sets(labels.expect_elements(), count);
    made.labels = elements_of<std::int32_t>(labels, 2, where);
  }
  if (given.inertia != nullptr) made.inertia = {given.inertia, size};
  if (given.iterations != nullptr) made.iterations = {given.iterations, size};
  if (given.stopped != nullptr) {
    stopped.assign(size, static_cast<stop_reason>(k_no_stop_reason));
    made.stopped = stopped;
  }
  return made;
}

bool is_batch(const ballast_kmeans_plan& plan, const ballast_kmeans_data& data) {
  const tensor points(data.points, {plan.token, "points"});
  if (plan.options.kmeans.storage == kmeans::storage::csr) return false;
  if (points.axes != 2 && points.axes != 3)
    throw invalid_argument_error(
        fmt::format("{}: points: expected 2 axes, or 3 for a batch, got {} ({})", plan.token, points.axes, lengths_of(points)));
  if (points.axes == 3 && points.length[0] != plan.options.kmeans.batch)
    throw invalid_argument_error(
        fmt::format("{}: points: expected {} data sets, got {}", plan.token, plan.options.kmeans.batch, points.length[0]));
  return points.axes == 3;
}

template <class T>
report fit_one(const kmeans::plan<T>& plan, const ballast_kmeans_plan& of, const ballast_kmeans_data& from,
               const ballast_kmeans_results& to, const ballast::call& now) {
  const execution& where = of.options.where;
  kmeans::fit_results<T> results;
  if (to.centroids != nullptr)
    results.centroids = matrix_of<T>(tensor(to.centroids, {of.token, "results: centroids"}).expect_elements(), where);
  if (to.labels != nullptr)
    results.labels = elements_of<std::int32_t>(tensor(to.labels, {of.token, "results: labels"}).expect_elements(), 1, where);
  results.inertia = to.inertia;
  results.iterations = to.iterations;
  stop_reason stopped{};
  results.stopped = &stopped;
  report seen = plan.fit(operands_of<T>(of, from), results, now);
  if (to.stopped != nullptr) *to.stopped = static_cast<std::int32_t>(stopped);
  return seen;
}

template <class T>
report fit_batch(const kmeans::plan<T>& plan, const ballast_kmeans_plan& of, const ballast_kmeans_data& from,
                 const ballast_kmeans_results& to, const ballast::call& now) {
  const kmeans::batch_data<T> data = batch_operands_of<T>(of, from);
  std::vector<stop_reason> stopped;
  report seen = plan.fit(data, batch_results_of<T>(of, to, data.points.count, stopped), now);
  store_stop_reasons(stopped, to.stopped);
  return seen;
}

// The group of a plan; none where it is null or no plan.
group group_of_plan(const ballast_kmeans_plan* given) noexcept {
  return given != nullptr && given->mark == ballast_kmeans_plan::k_kind ? given->options.where.group : group();
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_kmeans_plan_create(const ballast_options* options, ballast_kmeans_plan** plan, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(plan, "plan") = nullptr;
    const ballast_options& with = options_for(options, algorithm::kmeans);
    here.poses(to_token(with.kmeans));
    *plan = new ballast_kmeans_plan(with);
  });
}

void ballast_kmeans_plan_destroy(ballast_kmeans_plan* plan) { destroy(plan); }

int32_t ballast_kmeans_fit(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const ballast_kmeans_results* results,
                           const ballast_call* call, ballast_report* report, ballast_error* error) {
  return guarded(error, group_of_plan(plan), [&](frame& here) {
    const ballast_kmeans_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast_kmeans_data from = read_struct(data, "data");
    const ballast_kmeans_results to = read_struct(results, "results");
    const bool batch = is_batch(with, from);
    with_plan(with, [&]<class T>(const ballast::kmeans::plan<T>& run, T) {
      fill(report, batch ? fit_batch(run, with, from, to, now) : fit_one(run, with, from, to, now));
    });
  });
}

int32_t ballast_kmeans_predict(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const DLTensor* labels, double* inertia,
                               const ballast_call* call, ballast_report* report, ballast_error* error) {
  return guarded(error, group_of_plan(plan), [&](frame& here) {
    const ballast_kmeans_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast_kmeans_data from = read_struct(data, "data");
    ballast::kmeans::prediction_results to;
    to.inertia = inertia;
    if (labels != nullptr)
      to.labels = elements_of<std::int32_t>(tensor(labels, {with.token, "labels"}).expect_elements(), 1, with.options.where);
    with_plan(with,
              [&]<class T>(const ballast::kmeans::plan<T>& run, T) { fill(report, run.predict(operands_of<T>(with, from), to, now)); });
  });
}

int32_t ballast_kmeans_transform(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const DLTensor* values,
                                 const ballast_call* call, ballast_report* report, ballast_error* error) {
  return guarded(error, group_of_plan(plan), [&](frame& here) {
    const ballast_kmeans_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast_kmeans_data from = read_struct(data, "data");
    with_plan(with, [&]<class T>(const ballast::kmeans::plan<T>& run, T) {
      const auto to = matrix_of<T>(tensor(values, {with.token, "values"}), with.options.where);
      fill(report, run.transform(operands_of<T>(with, from), to, now));
    });
  });
}

int32_t ballast_kmeans_enqueue_fit(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const ballast_kmeans_results* results,
                                   const ballast_call* call, ballast_pending** pending, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(pending, "pending") = nullptr;
    const ballast_kmeans_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    const ballast_kmeans_data from = read_struct(data, "data");
    const ballast_kmeans_results to = read_struct(results, "results");
    if (!is_batch(with, from))
      throw ballast::invalid_argument_error(
          ballast::fmt::format("{}: points: expected 3 axes, those of a batch, to enqueue, got 2", with.token));
    with_plan(with, [&]<class T>(const ballast::kmeans::plan<T>& run, T) {
      const auto operands = batch_operands_of<T>(with, from);
      // The vector's memory stays where it is when the vector moves into the pending work.
      std::vector<ballast::kmeans::stop_reason> stopped;
      const auto places = batch_results_of<T>(with, to, operands.points.count, stopped);
      *pending = new ballast_pending(run.enqueue_fit(operands, places, now), with.token, !now.throw_on_uncorrectable);
      (*pending)->stopped = std::move(stopped);
      (*pending)->stopped_to = to.stopped;
    });
  });
}

int32_t ballast_kmeans_plan_workspace_bytes(const ballast_kmeans_plan* plan, int64_t* bytes, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_kmeans_plan& of = needed(plan, "plan");
    output(bytes, "bytes") = std::visit([](const auto& each) { return each.workspace_bytes(); }, of.plan);
  });
}

int32_t ballast_kmeans_plan_backend(const ballast_kmeans_plan* plan, int32_t* backend, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_kmeans_plan& of = needed(plan, "plan");
    output(backend, "backend") = std::visit([](const auto& each) { return static_cast<std::int32_t>(each.backend()); }, of.plan);
  });
}

int32_t ballast_kmeans_plan_token(const ballast_kmeans_plan* plan, const char** token, ballast_error* error) {
  return guarded(error, [&](frame&) { output(token, "token") = needed(plan, "plan").token.c_str(); });
}

int32_t ballast_kmeans_plan_options(const ballast_kmeans_plan* plan, ballast_options** options, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(options, "options") = nullptr;
    *options = new ballast_options(needed(plan, "plan").options);
  });
}
