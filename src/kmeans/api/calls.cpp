// The one-line functions of K-Means: each makes a plan and runs it once, with results in host memory.
// Layer: algorithm, over the public plan.
#include <cstdint>
#include <string>

#include <ballast/group.hpp>
#include <ballast/kmeans.hpp>

#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "kmeans/api/validation.hpp"
#include "run/call_scope.hpp"

namespace ballast::kmeans {

namespace {

using core::at;

// Operands are validated before memory for their results is allocated.
template <class T>
model<T> fit_once(const data<T>& from, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return prepare_call(where.group, [&] {
    return run::in_call(nullptr, where.device, "kmeans", [&] {
      const problem size = problem_of(from, clusters);
      const plan<T> plan(size, wanted, where);
      const std::string token = to_token(size);
      if (!where.group) check_fit(token, size, wanted, from);
      model<T> made;
      made.centroids = matrix<T>(clusters, size.features);
      made.labels.resize(at(size.points));
      made.report = plan.fit(from, {made.centroids, made.labels, &made.inertia, &made.iterations, &made.stopped}, now);
      return made;
    });
  });
}

template <class T>
batch_model<T> fit_once(const batch_data<T>& from, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return run::in_call(nullptr, where.device, "kmeans", [&] {
    const problem size{precision_of<T>, from.points.rows, from.points.columns, clusters, from.points.count};
    const plan<T> plan(size, wanted, where);
    const std::string token = to_token(size);
    check_fit(token, size, wanted, from);
    batch_model<T> made;
    made.count = size.batch;
    made.centroids.resize(at(core::checked_product(size.batch * clusters, size.features)));
    made.labels.resize(at(size.batch * size.points));
    made.inertia.resize(at(size.batch));
    made.iterations.resize(at(size.batch));
    made.stopped.resize(at(size.batch));
    made.report = plan.fit(
        from,
        {row_major(made.centroids.data(), size.batch * clusters, size.features), made.labels, made.inertia, made.iterations, made.stopped},
        now);
    return made;
  });
}

// Returns work(plan, size), with a plan for the given centroids and operands that have been validated.
template <class T, class Work>
auto with_centroids(const data<T>& from, const execution& where, Work&& work) {
  return prepare_call(where.group, [&] {
    return run::in_call(nullptr, where.device, "kmeans", [&] {
      const problem size = problem_of(from, from.centroids.rows);
      const plan<T> plan(size, {}, where);
      const std::string token = to_token(size);
      check_points_and_centroids(token, size, from);
      return work(plan, size);
    });
  });
}

template <class T>
prediction predict_once(const data<T>& from, const execution& where, const call& now) {
  return with_centroids(from, where, [&](const plan<T>& plan, const problem& size) {
    prediction made;
    made.labels.resize(at(size.points));
    made.report = plan.predict(from, {made.labels, &made.inertia}, now);
    return made;
  });
}

template <class T>
distances<T> transform_once(const data<T>& from, const execution& where, const call& now) {
  return with_centroids(from, where, [&](const plan<T>& plan, const problem& size) {
    distances<T> made;
    made.values = matrix<T>(size.points, size.clusters);
    made.report = plan.transform(from, made.values, now);
    return made;
  });
}

}  // namespace

inline namespace abi_1 {

model<float> fit(matrix_view<const float> points, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return fit_once(data<float>{.points = points}, clusters, wanted, where, now);
}
model<double> fit(matrix_view<const double> points, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return fit_once(data<double>{.points = points}, clusters, wanted, where, now);
}
model<float> fit(const data<float>& from, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return fit_once(from, clusters, wanted, where, now);
}
model<double> fit(const data<double>& from, std::int64_t clusters, const options& wanted, const execution& where, const call& now) {
  return fit_once(from, clusters, wanted, where, now);
}
batch_model<float> fit(const batch_data<float>& from, std::int64_t clusters, const options& wanted, const execution& where,
                       const call& now) {
  return fit_once(from, clusters, wanted, where, now);
}
batch_model<double> fit(const batch_data<double>& from, std::int64_t clusters, const options& wanted, const execution& where,
                        const call& now) {
  return fit_once(from, clusters, wanted, where, now);
}
prediction predict(const data<float>& from, const execution& where, const call& now) { return predict_once(from, where, now); }
prediction predict(const data<double>& from, const execution& where, const call& now) { return predict_once(from, where, now); }
distances<float> transform(const data<float>& from, const execution& where, const call& now) { return transform_once(from, where, now); }
distances<double> transform(const data<double>& from, const execution& where, const call& now) { return transform_once(from, where, now); }

}  // namespace abi_1
}  // namespace ballast::kmeans
