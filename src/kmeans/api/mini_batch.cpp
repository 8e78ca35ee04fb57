// Mini-batch K-Means: the object, and the validation of its calls.
// Layer: algorithm, over api/mini_batch_call.hpp. See include/ballast/mini_batch.hpp.
#include <ballast/mini_batch.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "kmeans/api/mini_batch_call.hpp"
#include "kmeans/api/validation.hpp"
#include "run/call_scope.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

namespace {

void check_options(std::string_view token, const mini_batch_options& wanted) {
  kmeans::check_options(token, options{.init = wanted.init, .n_init = wanted.n_init, .max_iter = wanted.max_iter, .tol = wanted.tol});
  if (wanted.batch_size < 1)
    throw invalid_argument_error(fmt::format("{}: batch_size: expected at least 1, got {}", token, wanted.batch_size));
  if (wanted.init_size < 0)
    throw invalid_argument_error(fmt::format("{}: init_size: expected at least 0, got {}", token, wanted.init_size));
  if (wanted.max_no_improvement && *wanted.max_no_improvement < 0)
    throw invalid_argument_error(fmt::format("{}: max_no_improvement: expected at least 0, got {}", token, *wanted.max_no_improvement));
  if (!(wanted.reassignment_ratio >= 0) || !std::isfinite(wanted.reassignment_ratio))
    throw invalid_argument_error(
        fmt::format("{}: reassignment_ratio: expected a finite number ≥ 0, got {}", token, wanted.reassignment_ratio));
}

template <class T>
problem problem_of_batch(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  return {.precision = precision_of<T>, .points = m, .features = n, .clusters = k, .mini_batch = batch};
}

}  // namespace

template <class T>
struct mini_batch<T>::implementation {
  std::int64_t k, n;
  mini_batch_options options;
  execution where;
  mini_batch_state<T> state = {};
  bool begun = false;  // there are centroids
  std::int64_t steps = 0;
  std::vector<std::shared_ptr<const prepared>> plans = {};  // those for the last numbers of points

  // The plan of steps, or of other passes over so many points.
  std::shared_ptr<const prepared> plan_for(std::int64_t m) {
    constexpr std::size_t most = 4;
    const auto known = std::ranges::find_if(plans, [&](const auto& each) { return each->problem.points == m; });
    if (known != plans.end()) return *known;
    const problem size = problem_of_batch<T>(m, n, k, std::min(m, options.batch_size));
    auto made = std::make_shared<prepared>(size, kmeans::options{.init = init::given}, where);
    made->choose_schemes(false);
    if (made->backend == ballast::backend::cuda) made->state = cuda::make_plan_state(0);
    if (plans.size() == most) plans.erase(plans.begin() + 1);  // the first is that of the whole object
    plans.push_back(made);
    return made;
  }
};

namespace {

template <class T>
void check_operands(std::string_view token, const data<T>& from, std::int64_t n) {
  if (from.points.data == nullptr && problem_of(from, 1).storage != storage::dense)
    throw unsupported_error(fmt::format("{}: points: expected a matrix, got compressed rows or half precision", token));
  if (from.points.rows < 1)
    throw invalid_argument_error(fmt::format("{}: points: expected at least one row, got {}", token, from.points.rows));
  check_view(token, "points", from.points, from.points.rows, n);
  check_span(token, "weights", from.weights, from.points.rows);
}

}  // namespace

inline namespace abi_1 {

template <class T>
mini_batch<T>::mini_batch(std::int64_t clusters, std::int64_t features, const mini_batch_options& wanted, const execution& where) {
  const problem size = problem_of_batch<T>(std::max(clusters, wanted.batch_size), features, clusters, wanted.batch_size);
  const std::string token = run::in_call(nullptr, -1, "kmeans", [&] { return to_token(size); });
  implementation_ = run::in_call(nullptr, where.device, token, [&] {
    check_options(token, wanted);
    check_problem(token, size);
    if (where.group) throw unsupported_error(fmt::format("{}: group: expected none for mini-batches, got one", token));
    auto made = std::make_unique<implementation>(implementation{clusters, features, wanted, where});
    const auto plan = made->plan_for(size.points);
    if (plan->scheme_of(operation::fit).view() != plan->row_checksum.view())
      throw unsupported_error(fmt::format("{}: scheme: expected {} for mini-batches, got {}", token, plan->row_checksum.view(),
                                          plan->scheme_of(operation::fit).view()));
    return made;
  });
}

template <class T>
mini_batch<T>::~mini_batch() = default;
template <class T>
mini_batch<T>::mini_batch(const mini_batch& other) : implementation_(std::make_unique<implementation>(*other.implementation_)) {}
template <class T>
mini_batch<T>::mini_batch(mini_batch&&) noexcept = default;
template <class T>
mini_batch<T>& mini_batch<T>::operator=(const mini_batch& other) {
  if (this != &other) implementation_ = std::make_unique<implementation>(*other.implementation_);
  return *this;
}
template <class T>
mini_batch<T>& mini_batch<T>::operator=(mini_batch&&) noexcept = default;

template <class T>
report mini_batch<T>::fit(const data<T>& from, const fit_results<T>& to, const call& now) {
  implementation& of = *implementation_;
  const problem size = problem_of_batch<T>(from.points.rows, of.n, of.k, std::min(of.options.batch_size, from.points.rows));
  const shared_text token(to_token(size));
  const std::shared_ptr<const prepared> plan = of.plans.front();
  return run::in_call(&plan->memory, of.where.device, token, [&] {
    check_operands(token.view(), from, of.n);
    check_clusters_of_fit(token.view(), size);
    if (of.options.init == init::given) check_view(token.view(), "centroids", from.centroids, of.k, of.n);
    check_results(token.view(), size, to);
    run::settings how = run::settings_of(of.where, now);
    plan->count(operation::fit, how);
    return mini_batch_call<T, implementation>(of, token, how).fit(from, to);
  });
}

template <class T>
report mini_batch<T>::partial_fit(const data<T>& batch, const call& now) {
  implementation& of = *implementation_;
  const problem size = problem_of_batch<T>(batch.points.rows, of.n, of.k, batch.points.rows);
  const shared_text token(to_token(size));
  const std::shared_ptr<const prepared> plan = of.plans.front();
  return run::in_call(&plan->memory, of.where.device, token, [&] {
    check_operands(token.view(), batch, of.n);
    if (!of.begun && of.options.init == init::given) check_view(token.view(), "centroids", batch.centroids, of.k, of.n);
    if (!of.begun && of.options.init != init::given) check_clusters_of_fit(token.view(), size);
    run::settings how = run::settings_of(of.where, now);
    plan->count(operation::predict, how);
    run::host_staging staging(how.stream);
    return mini_batch_call<T, implementation>(of, token, how).partial_fit({batch.points, batch.weights}, staging.read(batch.centroids));
  });
}

namespace {

// A copy of a sealed array, made again until it has the seal.
template <class To, class Value>
To copied(const sealed<Value>& kept, std::size_t count, const shared_text& token) {
  for (const Value* from : {&kept.values(), &kept.twin(), &kept.values()}) {
    To made(from->begin(), from->begin() + static_cast<std::ptrdiff_t>(count));
    if (seal_of(*from) == kept.seal() && std::ranges::equal(made, To(from->begin(), from->begin() + static_cast<std::ptrdiff_t>(count)),
                                                            [](auto a, auto b) { return abft::word_of(a) == abft::word_of(b); }))
      return made;
  }
  report lost;
  lost.verdict = verdict::uncorrectable;
  lost.detected = lost.uncorrectable = 1;
  lost.problem = token;
  throw uncorrectable_error(std::move(lost));
}

}  // namespace

template <class T>
matrix<T> mini_batch<T>::centroids() const {
  const implementation& of = *implementation_;
  if (!of.begun) return {};
  const auto values = copied<std::vector<T>>(of.state.centroids, at(of.k * of.n), of.plans.front()->token);
  matrix<T> made(of.k, of.n);
  std::ranges::copy(values, made.data());
  return made;
}

template <class T>
std::vector<double> mini_batch<T>::weights() const {
  const implementation& of = *implementation_;
  if (!of.begun) return {};
  return copied<std::vector<double>>(of.state.weights, at(of.k), of.plans.front()->token);
}

template <class T>
std::int64_t mini_batch<T>::steps() const noexcept {
  return implementation_->steps;
}

template <class T>
void mini_batch<T>::resume(matrix_view<const T> centroids, std::span<const double> weights) {
  implementation& of = *implementation_;
  const std::string_view token = of.plans.front()->token.view();
  check_view(token, "centroids", centroids, of.k, of.n);
  if (static_cast<std::int64_t>(weights.size()) != of.k)
    throw invalid_argument_error(fmt::format("{}: weights: expected {}, got {}", token, of.k, weights.size()));
  core::vector<T> values;
  core::vector<double> numbers(weights.begin(), weights.end());
  numbers.push_back(0);
  for (std::int64_t j = 0; j < of.k; ++j)
    for (std::int64_t f = 0; f < of.n; ++f) values.push_back(centroids(j, f));
  if (!std::ranges::all_of(values, [](T each) { return std::isfinite(each); }) ||
      !std::ranges::all_of(numbers, [](double each) { return std::isfinite(each) && each >= 0; }))
    throw invalid_argument_error(fmt::format("{}: resume: expected finite centroids and finite weights ≥ 0, got others", token));
  of.state = {sealed_centroids<T>(std::move(values)), sealed<core::vector<double>>(std::move(numbers))};
  of.begun = true;
}

template <class T>
ballast::backend mini_batch<T>::backend() const {
  return implementation_->plans.front()->backend;
}

template class mini_batch<float>;
template class mini_batch<double>;

}  // namespace abi_1
}  // namespace ballast::kmeans
