// Plans of K-Means: choice of backend and scheme, validation of the operands of each call, the report.
// Layer: algorithm, over driver/driver.hpp.
#include "kmeans/api/plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/call/capture.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "group/device_threads.hpp"
#include "group/state.hpp"
#include "kmeans/api/unit_rows.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/batch.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/start.hpp"
#include "run/call_scope.hpp"
#include "run/dispatch.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

namespace {

// The cost of a call on a device: passes over the points, bytes of results that are copied to the host, and how often the host waits.
struct device_work {
  double passes = 1;
  double results = 0;
  double waits = 0;
};

// The number of waits in cuda/ with protection: docs/design/kmeans-cuda.md, "Small problems".
constexpr double k_waits_of_call = 5;        // column statistics; row statistics; inertia, events of its pass, labels
constexpr double k_waits_of_run = 18;        // reads of the state, centroids; the launches of 20 iterations take as long as 8 waits
constexpr double k_usual_iterations = 20;    // assumed number of iterations of a run
constexpr double k_seconds_of_wait = 25e-6;  // with the launches before it; two are 50 µs in run/dispatch

device_work work_of(operation what, const problem& size, const options& wanted) {
  const double m = static_cast<double>(size.points), k = static_cast<double>(size.clusters);
  if (what == operation::predict) return {1, 4 * m, k_waits_of_call};
  if (what == operation::transform) return {1, (size.precision == precision::f32 ? 4 : 8) * m * k, k_waits_of_call};
  if (what == operation::batch) return {k_usual_iterations * wanted.n_init, 0, 2};
  const double trials = 2 + std::floor(std::log(k));
  const double plus_plus = 4 * k;  // the candidates' blocks, candidates, distances, the centroid
  double passes = k_usual_iterations, waits = k_waits_of_run;
  if (wanted.init == init::kmeans_plus_plus) {
    passes += trials + 1;
    waits += plus_plus;
  } else if (wanted.init == init::kmeans_parallel) {
    const double drawn = wanted.oversampling * wanted.rounds;  // candidates, in multiples of k
    passes += drawn;
    waits += 5 * (drawn * k / 64 + wanted.rounds) + plus_plus;
  }
  return {passes * wanted.n_init, 4 * m, k_waits_of_call + waits * wanted.n_init};
}

// Returns whether one launch computes all fits of a batch.
bool takes_batch(const problem& size, const options& wanted) {
  if (size.storage != storage::dense || size.spherical) return false;
  return size.precision == precision::f32 ? cuda::takes_batch<float>(size.points, size.features, size.clusters, wanted.init)
                                          : cuda::takes_batch<double>(size.points, size.features, size.clusters, wanted.init);
}

// Predicts whether the cpu backend should answer calls with operands on the host.
bool host_answers_first(operation what, const problem& size, const options& wanted, const execution& where, int threads) {
  const device_work work = work_of(what, size, wanted);
  const double elements = static_cast<double>(size.points) * static_cast<double>(size.features) *
                          static_cast<double>(what == operation::batch ? size.batch : 1);
  const bool half = size.storage == storage::f16 || size.storage == storage::bf16;
  const double bytes = elements * (half ? 2 : size.precision == precision::f32 ? 4 : 8) + work.results;
  const double flops = 2 * elements * static_cast<double>(size.clusters) * work.passes;
  return run::host_answers_first({bytes, flops, size.precision, threads, work.waits * k_seconds_of_wait}, [&](bool begin) {
    if (where.group) return 0.0;
    const bool batch = what == operation::batch && where.protection != protection::final_only && takes_batch(size, wanted);
    return cuda::seconds_to_start(size, wanted, where.protection != protection::off, batch, begin);
  });
}

// The shape of the points, and the matrix if they are one; and the compressed rows if they are such.
template <class T>
struct points_of_call {
  matrix_view<const T> shape;
  sparse_rows<T> sparse = {};
  half_points half = {};
};

// The matrix, or one of the shape without an address.
template <class T>
matrix_view<const T> shape_of(const problem& size, const data<T>& from) {
  return size.storage == storage::dense ? from.points : row_major<const T>(nullptr, size.points, size.features);
}

// The operands have been validated. `staging`: makes points of half precision readable for the host; null: they stay where they are.
template <class T>
points_of_call<T> points_of(const problem& size, const data<T>& from, run::host_staging* staging) {
  points_of_call<T> made{shape_of(size, from)};
  const auto halves = [&](const auto& given) { return half_points(staging == nullptr ? given : staging->read(given)); };
  switch (size.storage) {
    case storage::dense: break;
    case storage::csr: std::visit([&](const auto& rows) { made.sparse = sparse_rows<T>(rows); }, from.sparse); break;
    case storage::f16: made.half = halves(std::get<matrix_view<const float16>>(from.half)); break;
    case storage::bf16: made.half = halves(std::get<matrix_view<const bfloat16>>(from.half)); break;
  }
  return made;
}

// Returns the operands with compressed rows where the host reads them, and checks copies that it makes. The host needs them for every
// backend.
template <class T>
data<T> with_rows_on_host(std::string_view token, const problem& size, const data<T>& given, run::host_staging& staging) {
  if (size.storage != storage::csr) return given;
  data<T> made = given;
  std::visit(
      [&](auto& rows) {
        const auto read = [&](auto& array) {
          if (!array.empty()) array = staging.read(array);
        };
        const auto before = rows;
        read(rows.offsets);
        read(rows.indices);
        read(rows.values);
        if (before.offsets.data() != rows.offsets.data() || before.indices.data() != rows.indices.data() ||
            before.values.data() != rows.values.data())
          check_points(token, size, made);
      },
      made.sparse);
  return made;
}

// Returns the address of the points, a matrix or compressed rows.
template <class T>
const void* address_of(const data<T>& from) {
  if (const auto* const half = std::get_if<matrix_view<const float16>>(&from.half)) return half->data;
  if (const auto* const half = std::get_if<matrix_view<const bfloat16>>(&from.half)) return half->data;
  return from.points.data;
}

// Copies of unit length of the points and centroids of a call.
template <class T>
class unit_copies {
 public:
  // Makes `points` and `centroids` those of the copies, which fill() fills. `centroids` may be none. `of_points`: the engine does not make
  // those of the points.
  unit_copies(const problem& size, bool of_points, points_of_call<T>& points, matrix_view<const T>& centroids)
      : m_(size.points), n_(size.features), of_points_(of_points), from_(points), given_(centroids) {
    if (of_points) copy_points(points);
    if (centroids.data == nullptr) return;
    centroids_ = core::aligned_buffer<T>(core::checked_product(centroids.rows, n_));
    centroids = row_major<const T>(centroids_.data(), centroids.rows, n_);
  }
  void fill(run::recorder& seen, inject::active_injector& injector, const run::settings& how, std::string_view token) {
    const auto row = [&](std::int64_t i) { return i * n_; };
    const auto all = [&](std::int64_t) { return n_; };
    const sparse_rows<T>& sparse = from_.sparse;
    if (!of_points_) {  // the engine's
    } else if (sparse.present()) {
      make_unit_rows(
          seen, injector, how, token, "points", m_, numbers_.data(), [&](std::int64_t i) { return sparse.first(i); },
          [&](std::int64_t i) { return sparse.first(i + 1) - sparse.first(i); },
          [&](std::int64_t i, std::int64_t e) { return sparse.value(sparse.first(i) + e); });
    } else {
      make_unit_rows(seen, injector, how, token, "points", m_, numbers_.data(), row, all, [&](std::int64_t i, std::int64_t f) {
        return from_.half.present() ? static_cast<T>(from_.half.at(i, f)) : from_.shape(i, f);
      });
    }
    if (given_.data == nullptr) return;
    make_unit_rows(seen, injector, how, token, "centroids", given_.rows, centroids_.data(), row, all,
                   [&](std::int64_t i, std::int64_t f) { return given_(i, f); });
  }

 private:
  void copy_points(points_of_call<T>& points) {
    const bool sparse = points.sparse.present();
    numbers_ = core::aligned_buffer<T>(sparse ? points.sparse.first(m_) : core::checked_product(m_, n_));
    if (sparse) {
      points.sparse = points.sparse.with_values(numbers_.data());
    } else {
      points = {row_major<const T>(numbers_.data(), m_, n_)};
    }
  }

  std::int64_t m_, n_;
  bool of_points_;
  points_of_call<T> from_;
  matrix_view<const T> given_;
  core::aligned_buffer<T> numbers_, centroids_;
};

// Runs call(driver, centroids) for the points of a call; for spherical K-Means for copies of unit length, which the host makes where the
// engine cannot. `given`: the operands of the caller, of which `from` has copies for the host.
template <class T, class Call>
report run_call(const problem& size, const data<T>& from, const data<T>& given, matrix_view<const T> centroids, driver_args<T> args,
                Call&& call) {
  run::host_staging staging(args.how.stream);
  const bool on_device = args.backend == ballast::backend::cuda;
  args.unit_rows = size.spherical && on_device && size.storage != storage::csr &&
                   cuda::makes_unit_rows(args.points, points_of(size, from, nullptr).half, !args.weights.empty(), size.clusters);
  const bool host_copies = size.spherical && !args.unit_rows;
  points_of_call<T> points = points_of(size, from, !on_device || host_copies ? &staging : nullptr);
  points.shape = host_copies ? staging.read(args.points) : args.points;
  if (points.sparse.present()) points.sparse = points.sparse.with_given(points_of(size, given, nullptr).sparse);
  std::optional<unit_copies<T>> unit;
  if (size.spherical) unit.emplace(size, host_copies, points, centroids);
  args.points = points.shape;
  args.sparse = points.sparse;
  args.half = points.half;
  args.spherical = size.spherical;
  const auto fill = [&](run::recorder& seen, inject::active_injector& injector) {
    unit->fill(seen, injector, args.how, args.token.view());
  };
  if (unit) args.prepare = fill;
  driver<T> by(args);
  return call(by, centroids);
}

bool in_host_memory(const void* memory) { return ballast::cuda::residence_of(memory) == ballast::cuda::residence::host; }

}  // namespace

prepared::prepared(const kmeans::problem& size, const kmeans::options& wanted, const execution& in)
    : problem(size), options(wanted), where(in), token(to_token(size)), row_checksum(k_scheme), sampled(in.sampled, token) {
  run::check_protection(where, token.view(), true);
  kmeans::problem one = size;
  one.batch = 1;
  one_token = to_token(one);
  run::settings how = run::settings_of(where);
  if (how.group && on_devices()) {
    wire::check_execution_on_devices(where, token.view());
    how.group = {};
    how.backend = ballast::backend::cuda;
    if (!how.scheme.empty() && how.scheme != k_scheme)
      throw unsupported_error(fmt::format("{}: scheme: expected {} for a group of devices, got {}", token.view(), k_scheme, how.scheme));
    if (size.batch != 1) throw unsupported_error(fmt::format("{}: group: expected one data set, got {}", token.view(), size.batch));
    if (where.group.internal()->devices.size() > cuda::k_most_devices)
      throw unsupported_error(fmt::format("{}: group: expected at most {} devices of one process, got {}", token.view(),
                                          cuda::k_most_devices, where.group.internal()->devices.size()));
  } else if (how.group) {
    how.group = {};
    if (how.backend == ballast::backend::automatic) how.backend = run::host_backend();
    if (how.backend == ballast::backend::cuda)
      throw unsupported_error(fmt::format("{}: group: expected backend cpu or reference for ranks of an engine, got cuda", token.view()));
    if (wanted.init == init::kmeans_parallel)
      throw unsupported_error(fmt::format("{}: group: expected k-means++, random or given centroids, got k-means||", token.view()));
    if (size.batch != 1) throw unsupported_error(fmt::format("{}: group: expected one data set, got {}", token.view(), size.batch));
  }
  if (size.storage != storage::dense || size.spherical) {
    const bool csr = size.storage == storage::csr;
    if (csr && how.backend == ballast::backend::automatic) how.backend = run::host_backend();  // no GPU has been timed yet
    const auto expect = [&](bool good, std::string_view what) {
      if (good) return;
      const std::string_view points = csr                              ? "points in compressed rows"
                                      : size.storage != storage::dense ? "points in half precision"
                                                                       : "spherical K-Means";
      throw unsupported_error(fmt::format("{}: {}: expected {}", token.view(), points, what));
    };
    expect(!where.group, "a call without a group of ranks, got one on a group");
    expect(size.batch == 1, fmt::format("one data set, got {}", size.batch));
  }
  backend = run::choose_backend(how, token);
  const int threads = core::thread_count(where.threads);
  const bool any_scheme = where.scheme.empty() || where.scheme == k_scheme;
  if (where.backend != ballast::backend::automatic || backend != ballast::backend::cuda || !any_scheme ||
      run::host_backend() == ballast::backend::reference)
    return;
  for (std::size_t i = 0; i < k_operations; ++i)
    host_is_faster[i] = host_answers_first(static_cast<operation>(i), size, wanted, where, threads);
}

bool prepared::on_devices() const { return wire::on_devices(where) || (where.group && where.group.internal()->link != nullptr); }

std::vector<int> prepared::device_numbers() const {
  const group::state& state = *where.group.internal();
  return state.link != nullptr ? std::vector<int>{state.link->device_number()} : state.devices;
}

void prepared::choose_schemes(bool takes_batch) {
  const bool device = backend == ballast::backend::cuda;
  std::vector<std::string_view> known = {k_scheme};
  if (device && problem.storage != storage::csr) {
    known.push_back(k_dmr);
    known.insert(known.end(), cuda::schemes().begin(), cuda::schemes().end());
  }
  const std::string_view scheme = run::choose_scheme(run::settings_of(where), k_scheme, known, token);
  if (device) {
    cuda::check_scheme(scheme, where.protection != protection::off);
    if (where.sampled > 1) cuda::check_scheme(scheme, false);
  }
  const bool final_only = where.protection == protection::final_only;
  if (final_only && scheme != k_scheme)
    throw unsupported_error(fmt::format("{}: scheme: expected {} with protection final_only, got {}", token.view(), k_scheme, scheme));
  if (scheme == k_dmr && !takes_batch)
    throw unsupported_error(fmt::format(
        "{}: scheme {}: expected a fit that a block of threads can hold, m·n·k ≤ 2^24, k·n within its shared memory, of numbers "
        "in f32 or f64, not spherical, not k-means||, got another one",
        token.view(), k_dmr));
  const auto set = [&](operation what, std::string_view name) { schemes[static_cast<std::size_t>(what)] = shared_text(name); };
  set(operation::fit, scheme);
  set(operation::batch, where.scheme.empty() && takes_batch && !final_only ? k_dmr : scheme);
  if (scheme != k_dmr) set(operation::predict, scheme);
  if (scheme == k_scheme) set(operation::transform, scheme);
}

ballast::backend prepared::backend_for(operation what, const run::settings& how, std::initializer_list<const void*> operands) const {
  return host_is_faster[static_cast<std::size_t>(what)] && how.faults == nullptr && std::ranges::all_of(operands, in_host_memory)
             ? run::host_backend()
             : backend;
}

const shared_text& prepared::scheme_of(operation what) const {
  const shared_text& found = schemes[static_cast<std::size_t>(what)];
  if (found.empty())
    throw unsupported_error(fmt::format("{}: scheme: expected one of {} for {}, got {}", token.view(),
                                        what == operation::predict ? "row_checksum and those of FT K-Means" : k_scheme,
                                        what == operation::predict ? "predict" : "transform", where.scheme));
  return found;
}

// ---------------------------------------------------------------- The plan.

template <class T>
plan<T>::plan(const kmeans::problem& size, const options& wanted, const execution& where) {
  kmeans::problem own = size;
  own.precision = precision_of<T>;
  const std::string token = run::in_call(nullptr, -1, "kmeans", [&] { return to_token(own); });
  implementation_ = run::in_call(nullptr, where.device, token, [&] {
    const bool of_engine = where.group && where.group.internal()->over;
    check_problem(token, own, of_engine);
    const bool of_devices = where.group && (!of_engine || where.group.internal()->link != nullptr);
    if (of_devices && (own.storage != storage::dense || own.spherical))
      throw unsupported_error(fmt::format("{}: a group of devices clusters dense points", token));
    if (own.precision == precision::f64 && (own.storage == storage::f16 || own.storage == storage::bf16))
      throw invalid_argument_error(fmt::format("{}: points in half precision: expected plan<float>, got plan<double>", token));
    check_options(token, wanted);
    if (own.mini_batch != 0)
      throw unsupported_error(fmt::format("{}: plan: expected iterations over all points; mini_batch takes steps", token));
    auto made = std::make_shared<implementation>(own, wanted, where);
    if (made->on_devices()) {
      made->choose_schemes(false);
      for (const int number : made->device_numbers()) {
        const ballast::cuda::device_scope on(number);
        made->states.push_back(cuda::make_plan_state(0));
      }
      return made;
    }
    const bool device = made->backend == ballast::backend::cuda;
    made->choose_schemes(device && takes_batch(own, wanted));
    if (device) {
      const bool enqueues = made->scheme_of(operation::batch) == k_dmr;
      made->state = cuda::make_plan_state(
          enqueues ? cuda::enqueued_bytes<T>(own.points, own.features, own.clusters, own.batch, where.protection != protection::off) : 0);
    }
    return made;
  });
}

template <class T>
plan<T>::~plan() = default;
template <class T>
plan<T>::plan(const plan&) = default;
template <class T>
plan<T>::plan(plan&&) noexcept = default;
template <class T>
plan<T>& plan<T>::operator=(const plan&) = default;
template <class T>
plan<T>& plan<T>::operator=(plan&&) noexcept = default;

template <class T>
auto plan<T>::made() const -> const implementation& {
  if (implementation_ == nullptr) throw invalid_argument_error("kmeans::plan: expected a plan, got one that was moved from");
  return *implementation_;
}

template <class T>
const problem& plan<T>::problem() const {
  return made().problem;
}

template <class T>
ballast::backend plan<T>::backend() const {
  return made().backend;
}

template <class T>
std::int64_t plan<T>::workspace_bytes() const {
  const implementation& plan = made();
  return plan.state == nullptr ? 0 : plan.state->workspace_bytes();
}

namespace {

// Returns whether all points have the same weight, a positive number.
template <class T>
bool has_common_weight(std::span<const T> weights) {
  if (weights.empty() || !(weights[0] > 0) || !std::isfinite(weights[0])) return false;
  return std::ranges::all_of(weights, [&](T each) { return each == weights[0]; });
}

// Multiplies an inertia by a weight: two products agree, of numbers that are loaded for each.
template <class T>
void multiply(double& inertia, const T& weight) {
  const volatile double& x = inertia;
  const volatile T& w = weight;
  double made = x * static_cast<double>(w);
  for (int trial = 0; trial < 4; ++trial) {
    const double again = x * static_cast<double>(w);
    if (std::bit_cast<std::uint64_t>(again) == std::bit_cast<std::uint64_t>(made)) break;
    made = again;
  }
  inertia = made;
}

}  // namespace

template <class T>
report plan<T>::fit(const data<T>& from, const fit_results<T>& to, const call& now) const {
  const implementation& plan = made();
  const kmeans::problem& size = plan.problem;
  return run::in_call(&plan.memory, plan.where.device, plan.one_token, [&] {
    if (plan.where.group)
      return prepare_call(plan.where.group, [&] {
        const run::settings how = run::settings_of(plan.where, now);
        return plan.on_devices() ? fit_on_devices<T>(plan, from, to, how) : fit_in_group<T>(plan, from, to, how);
      });
    check_fit(plan.one_token, size, plan.options, from);
    check_results(plan.one_token, size, to);
    run::settings how = run::settings_of(plan.where, now);
    const shared_text& scheme = plan.scheme_of(operation::fit);
    if (scheme == k_dmr) {
      const matrix_view<const T>& points = from.points;
      const auto one = [](auto* value) { return value == nullptr ? std::span(value, 0) : std::span(value, 1); };
      return fit_batch<T>(
          plan, operation::fit,
          {{points.data, 1, points.rows, points.columns, points.row_stride, points.column_stride, 0}, from.weights, from.centroids},
          {to.centroids, to.labels, one(to.inertia), one(to.iterations), one(to.stopped)}, how, plan.one_token, scheme);
    }
    const auto which = plan.backend_for(operation::fit, how, {address_of(from), to.labels.data()});
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.one_token);
    run::host_staging staging(how.stream);
    const data<T> here = with_rows_on_host(plan.one_token.view(), size, from, staging);
    plan.count(operation::fit, how);
    const matrix_view<const T> given = plan.options.init == init::given ? staging.read(from.centroids) : matrix_view<const T>{};
    // Weights that are all the same change nothing but the inertia. Without them sums need no multiplication, and are not rounded for it.
    const bool common = which != backend::cuda && has_common_weight(from.weights);
    const matrix_view<const T> shape = shape_of(size, from);
    const std::span<const T> weights = common ? std::span<const T>{} : from.weights;
    const driver_args<T> args = {shape, weights, size.clusters, how, plan.one_token, which, scheme, plan.state_for(which)};
    report made = run_call(size, here, from, given, args,
                           [&](driver<T>& by, const matrix_view<const T>& first) { return by.fit(plan.options, first, to); });
    if (common && to.inertia != nullptr) multiply(*to.inertia, from.weights[0]);
    return made;
  });
}

template <class T>
report plan<T>::fit(const batch_data<T>& from, const batch_results<T>& to, const call& now) const {
  const implementation& plan = made();
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    check_fit(plan.token, plan.problem, plan.options, from);
    check_results(plan.token, plan.problem, to);
    return fit_batch(plan, operation::batch, from, to, run::settings_of(plan.where, now), plan.token, plan.scheme_of(operation::batch));
  });
}

template <class T>
pending_report plan<T>::enqueue_fit(const batch_data<T>& from, const batch_results<T>& to, const call& now) const {
  const implementation& plan = made();
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    check_fit(plan.token, plan.problem, plan.options, from);
    check_results(plan.token, plan.problem, to);
    return enqueue_batch<T>(implementation_, from, to, now);
  });
}

template <class T>
report plan<T>::predict(const data<T>& from, const prediction_results& to, const call& now) const {
  const implementation& plan = made();
  const kmeans::problem& size = plan.problem;
  return run::in_call(&plan.memory, plan.where.device, plan.one_token, [&] {
    if (plan.where.group)
      return prepare_call(plan.where.group, [&] {
        const run::settings how = run::settings_of(plan.where, now);
        return plan.on_devices() ? predict_on_devices<T>(plan, from, to, how) : predict_in_group<T>(plan, from, to, how);
      });
    check_points_and_centroids(plan.one_token, size, from);
    check_span(plan.one_token, "labels", to.labels, size.points);
    run::settings how = run::settings_of(plan.where, now);
    const shared_text& scheme = plan.scheme_of(operation::predict);
    const auto which = plan.backend_for(operation::predict, how, {address_of(from), to.labels.data()});
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.one_token);
    run::host_staging staging(how.stream);
    const data<T> here = with_rows_on_host(plan.one_token.view(), size, from, staging);
    plan.count(operation::predict, how);
    const matrix_view<const T> centroids = staging.read(from.centroids);
    const matrix_view<const T> shape = shape_of(size, from);
    const driver_args<T> args = {shape, from.weights, size.clusters, how, plan.one_token, which, scheme, plan.state_for(which)};
    return run_call(size, here, from, centroids, args, [&](driver<T>& by, const matrix_view<const T>& all) { return by.predict(all, to); });
  });
}

template <class T>
report plan<T>::transform(const data<T>& from, const matrix_view<T>& values, const call& now) const {
  const implementation& plan = made();
  const kmeans::problem& size = plan.problem;
  return run::in_call(&plan.memory, plan.where.device, plan.one_token, [&] {
    if (plan.where.group)
      return prepare_call(plan.where.group, [&] {
        const run::settings how = run::settings_of(plan.where, now);
        return plan.on_devices() ? transform_on_devices<T>(plan, from, values, how) : transform_in_group<T>(plan, from, values, how);
      });
    check_points_and_centroids(plan.one_token, size, from);
    check_result(plan.one_token, "values", values, size.points, size.clusters);
    run::settings how = run::settings_of(plan.where, now);
    const shared_text& scheme = plan.scheme_of(operation::transform);
    const auto which = plan.backend_for(operation::transform, how, {address_of(from), values.data});
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.one_token);
    run::host_staging staging(how.stream);
    const data<T> here = with_rows_on_host(plan.one_token.view(), size, from, staging);
    plan.count(operation::transform, how);
    const matrix_view<const T> centroids = staging.read(from.centroids);
    const matrix_view<const T> shape = shape_of(size, from);
    const driver_args<T> args = {shape, {}, size.clusters, how, plan.one_token, which, scheme, plan.state_for(which)};
    return run_call(size, here, from, centroids, args,
                    [&](driver<T>& by, const matrix_view<const T>& all) { return by.transform(all, values); });
  });
}

template class plan<float>;
template class plan<double>;

}  // namespace ballast::kmeans
