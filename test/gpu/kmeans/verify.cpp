// Verifies results: labels, sums and distances against the reference backend, no false alarm on clean data, faults at every site.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../../../bench/gpu.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "kmeans_stages.hpp"
#include "support/kmeans_calls.hpp"

namespace ballast::gpu_check::clusters {
namespace {

namespace gpu = bench::gpu;

template <class T>
constexpr double k_u = std::numeric_limits<T>::epsilon() / 2;

run::settings on(backend which, protection level = protection::correct, const inject::plan* faults = nullptr) {
  return {.backend = which,
          .threads = 1,
          .protection = level,
          .throw_on_uncorrectable = false,
          .faults = faults,
          .stream = which == tested ? gpu::stream() : nullptr};
}

// Points on the host and on the device.
template <class T>
struct subject {
  kmeans::problem what;
  std::vector<T> values, weights;
  gpu::buffer there, weights_there;

  subject(const std::string& token, std::int64_t centres, bool weighted = false) : what(kmeans::parse_token(token)) {
    values = points_of<T>(what, centres, 5);
    if (weighted)
      for (std::int64_t i = 0; i < what.points * fits(); ++i)
        weights.push_back(static_cast<T>(i % 4 == 0 ? 0 : 0.25 * static_cast<double>(i % 7 + 1)));
    upload();
  }
  void upload() {
    there = gpu::buffer_of(values);
    weights_there = gpu::buffer_of(weights);
  }
  matrix_view<const T> host() const { return row_major(values.data(), what.points, what.features); }
  matrix_view<const T> device() const { return row_major(static_cast<const T*>(there.data()), what.points, what.features); }
  std::int64_t fits() const { return what.batch; }
  matrix_batch_view<const T> host_batch() const { return batch_of(host(), what.batch); }
  matrix_batch_view<const T> device_batch() const { return batch_of(device(), what.batch); }
  matrix_view<const T> first() const { return {values.data(), what.clusters * fits(), what.features, what.features, 1}; }
  std::span<const T> device_weights() const { return {static_cast<const T*>(weights_there.data()), weights.size()}; }
  kmeans::request<T> options(int iterations, bool given, std::span<const T> w) const {
    kmeans::request<T> made;
    made.clusters = what.clusters;
    made.weights = w;
    made.max_iter = iterations;
    made.tol = 0;
    made.seed = 7;
    if (given) {
      made.init = kmeans::init::given;
      made.centroids = first();
    }
    return made;
  }
};

template <class T>
double square_distance(matrix_view<const T> x, std::int64_t i, matrix_view<const T> c, std::int64_t j) {
  double sum = 0;
  for (std::int64_t f = 0; f < x.columns; ++f) {
    const double d = static_cast<double>(x(i, f)) - static_cast<double>(c(j, f));
    sum += d * d;
  }
  return sum;
}

std::string text(double value) {
  char made[32];
  std::snprintf(made, sizeof made, "%.3g", value);
  return made;
}

void expect_clean(one_case& now, const report& seen) {
  now.expect(seen.backend == tested, "ran on " + std::string(to_string(seen.backend)));
  now.expect(seen.verdict == verdict::clean,
             "verdict " + std::string(to_string(seen.verdict)) + " (" + std::to_string(seen.detected) + " detected)");
}

// Labels may differ from the reference's only if two centroids are equally near up to rounding in the precision of the data.
template <class T>
void compare_labels(one_case& now, const subject<T>& held, const kmeans::prediction& ours, const kmeans::prediction& right) {
  std::int64_t different = 0, wrong = 0;
  for (std::int64_t i = 0; i < held.what.points; ++i) {
    const auto p = static_cast<std::size_t>(i);
    if (ours.labels[p] == right.labels[p]) continue;
    ++different;
    const double a = square_distance(held.host(), i, held.first(), ours.labels[p]),
                 b = square_distance(held.host(), i, held.first(), right.labels[p]);
    wrong +=
        a - b > 16 * k_u<T> * (std::sqrt(static_cast<double>(held.what.features)) + 4) * (a + b + static_cast<double>(held.what.features))
            ? 1
            : 0;
  }
  now.line().add("near_ties", different);
  now.expect(wrong == 0, std::to_string(wrong) + " labels are wrong");
  now.expect(std::abs(ours.inertia - right.inertia) <= 1e-6 * right.inertia + 1e-300,
             "inertia " + text(ours.inertia) + " for " + text(right.inertia));
}

template <class T>
void accuracy(tally& seen, const std::string& token) {
  const subject<T> held(token, 0);
  {
    one_case now(seen, "accuracy", token, "predict");
    now.guarded([&] {
      const auto ours = kmeans::predict(held.device(), held.first(), on(tested));
      expect_clean(now, ours.report);
      compare_labels(now, held, ours, kmeans::predict(held.host(), held.first(), on(backend::reference)));
    });
  }
  {
    one_case now(seen, "accuracy", token, "fit, 3 iterations");
    now.guarded([&] {
      const auto ours = kmeans::fit(held.device(), held.options(3, true, {}), on(tested));
      expect_clean(now, ours.report);
      const auto bare = kmeans::fit(held.device(), held.options(3, true, {}), on(tested, protection::off));
      const auto right = kmeans::fit(held.host(), held.options(3, true, {}), on(backend::reference));
      now.line().add("error", std::abs(ours.inertia / right.inertia - 1));
      now.expect(std::abs(ours.inertia - right.inertia) <= 1e-4 * right.inertia,
                 "inertia " + text(ours.inertia) + " for " + text(right.inertia));
      now.expect(ours.iterations == right.iterations, "iterations " + std::to_string(ours.iterations));
      now.expect(ours.labels == bare.labels && ours.inertia == bare.inertia, "protection changes the result");
    });
  }
  // The reference takes 0.9 ns for each of these, and several times as long to draw centroids.
  if (held.what.points * held.what.features * held.what.clusters > std::int64_t{1} << 29) return;
  {
    one_case now(seen, "accuracy", token, "transform");
    now.guarded([&] {
      const auto ours = kmeans::transform(held.device(), held.first(), on(tested));
      const auto right = kmeans::transform(held.host(), held.first(), on(backend::reference));
      expect_clean(now, ours.report);
      double worst = 0;
      for (std::size_t e = 0; e < right.values.size(); ++e)
        worst = std::max(worst, std::abs(static_cast<double>(ours.values.data()[e]) - static_cast<double>(right.values.data()[e])) /
                                    (1 + static_cast<double>(right.values.data()[e])));
      now.line().add("error", worst);
      now.expect(worst <= 64 * k_u<T> * std::sqrt(static_cast<double>(held.what.features) + 8), "distances differ by " + text(worst));
    });
  }
  for (const kmeans::init way : {kmeans::init::kmeans_plus_plus, kmeans::init::kmeans_parallel}) {
    one_case now(seen, "accuracy", token, way == kmeans::init::kmeans_parallel ? "k-means||" : "k-means++");
    now.guarded([&] {
      kmeans::request<T> wanted = held.options(1, false, {});
      wanted.init = way;
      const auto ours = kmeans::fit(held.device(), wanted, on(tested));
      const auto right = kmeans::fit(held.host(), wanted, on(backend::reference));
      expect_clean(now, ours.report);
      now.expect(std::abs(ours.inertia - right.inertia) <= 1e-3 * right.inertia + 1e-300,
                 "inertia " + text(ours.inertia) + " for " + text(right.inertia) + ": other choices");
    });
  }
  {
    // Strided points in host memory are copied to the device: the same numbers, so the same results.
    one_case now(seen, "accuracy", token, "points of the host, by columns");
    now.guarded([&] {
      std::vector<T> transposed(held.values.size());
      for (std::int64_t i = 0; i < held.what.points; ++i)
        for (std::int64_t f = 0; f < held.what.features; ++f)
          transposed[static_cast<std::size_t>(f * held.what.points + i)] =
              held.values[static_cast<std::size_t>(i * held.what.features + f)];
      const auto by_columns = column_major<const T>(transposed.data(), held.what.points, held.what.features);
      const auto ours = kmeans::fit(by_columns, held.options(3, true, {}), on(tested));
      const auto right = kmeans::fit(held.device(), held.options(3, true, {}), on(tested));
      expect_clean(now, ours.report);
      now.expect(ours.labels == right.labels && ours.inertia == right.inertia, "the results are not those of points on the device");
    });
  }
}

// Compares a batch with single fits of the reference: from given centroids, and with k-means++.
template <class T>
void batch_accuracy(tally& seen, const std::string& token) {
  const subject<T> held(token, 7);
  for (const bool given : {true, false}) {
    one_case now(seen, "accuracy", token, given ? "batch, 3 iterations" : "batch, k-means++");
    now.guarded([&] {
      const auto ours = kmeans::fit(held.device_batch(), held.options(3, given, {}), on(tested));
      const auto bare = kmeans::fit(held.device_batch(), held.options(3, given, {}), on(tested, protection::off));
      const auto right = kmeans::fit(held.host_batch(), held.options(3, given, {}), on(backend::reference));
      expect_clean(now, ours.report);
      now.expect(ours.report.scheme == "dmr", "scheme " + ours.report.scheme.str());
      double worst = 0;
      for (std::size_t b = 0; b < right.inertia.size(); ++b) worst = std::max(worst, std::abs(ours.inertia[b] / right.inertia[b] - 1));
      now.line().add("error", worst);
      now.expect(worst <= 1e-3, "inertia differs by " + text(worst));
      now.expect(ours.labels == bare.labels && ours.centroids == bare.centroids, "protection changes the result");
    });
  }
}

// The results of enqueued fits, in device memory.
template <class T>
struct enqueued {
  gpu::buffer centroids, labels;
  std::vector<double> inertia;

  explicit enqueued(const kmeans::problem& what)
      : centroids(what.batch * what.clusters * what.features * static_cast<std::int64_t>(sizeof(T))),
        labels(4 * what.batch * what.points),
        inertia(static_cast<std::size_t>(what.batch)) {}

  kmeans::batch_results<T> places(const kmeans::problem& what) {
    return {row_major(static_cast<T*>(centroids.data()), what.batch * what.clusters, what.features),
            {static_cast<std::int32_t*>(labels.data()), static_cast<std::size_t>(what.batch * what.points)},
            inertia,
            {},
            {}};
  }
  void poison() {
    gpu::fill(centroids.data(), 0x77, centroids.bytes());
    gpu::fill(labels.data(), 0x77, labels.bytes());
    inertia.assign(inertia.size(), -1);
  }
  bool same(const kmeans::batch_model<T>& right) const {
    std::vector<T> values(right.centroids.size());
    std::vector<std::int32_t> own(right.labels.size());
    gpu::copy(values.data(), centroids.data(), centroids.bytes());
    gpu::copy(own.data(), labels.data(), labels.bytes());
    gpu::synchronize();
    return values == right.centroids && own == right.labels && inertia == right.inertia;
  }
};

// Compares a batch that is enqueued, and captured in a graph, with the same batch with a waiting host.
template <class T>
void batch_enqueued(tally& seen, const std::string& token) {
  const subject<T> held(token, 7);
  one_case now(seen, "accuracy", token, "batch, enqueued");
  now.guarded([&] {
    const auto wanted = held.options(3, false, {});
    const auto right = kmeans::fit(held.device_batch(), wanted, on(tested));
    const kmeans::plan<T> plan(held.what, wanted.how(), on(tested).where());
    const kmeans::batch_data<T> from = wanted.operands(held.device_batch());
    enqueued<T> found(held.what);
    for (int i = 0; i < 2; ++i) {
      found.poison();
      expect_clean(now, plan.enqueue_fit(from, found.places(held.what), on(tested).now()).get());
      now.expect(found.same(right), "the results are not those of a waiting host");
    }
    std::optional<pending_report> waiting;
    const gpu::graph captured([&] { waiting.emplace(plan.enqueue_fit(from, found.places(held.what), on(tested).now())); });
    for (int replay = 0; replay < 2; ++replay) {
      found.poison();
      captured.launch();
      expect_clean(now, waiting->get());
      now.expect(found.same(right), "the results of a graph are others");
    }
  });
}

template <class T>
void batch_faults(tally& seen, const std::string& token, const settings& wanted, const time_limit& limit) {
  const subject<T> held(token, 5);
  const auto run = [&](const inject::plan* plan) {
    return kmeans::fit(held.device_batch(), held.options(3, true, {}), on(tested, protection::correct, plan));
  };
  const auto right = run(nullptr);
  strike_every_site(seen, "kmeans", token, 62, true, wanted, limit, [&](const inject::plan& plan) {
    const auto found = run(&plan);
    return outcome{found.report, found.labels != right.labels || found.centroids != right.centroids || found.inertia != right.inertia};
  });
  if (tested != backend::cuda) return;  // no other backend enqueues
  const auto wanted_fit = held.options(3, true, {});
  const kmeans::plan<T> plan(held.what, wanted_fit.how(), on(tested).where());
  kmeans::batch_data<T> from = wanted_fit.operands(held.device_batch());
  from.centroids.data = static_cast<const T*>(held.there.data());
  enqueued<T> found(held.what);
  strike_every_site(seen, "kmeans", token + " enqueued", 62, true, wanted, limit, [&](const inject::plan& faults) {
    const inject::scope armed(&faults);
    found.poison();
    const report got = plan.enqueue_fit(from, found.places(held.what), on(tested).now()).get();
    return outcome{got, !found.same(right)};
  });
}

// Difficult data must raise no alarm.
template <class T>
void clean(tally& seen, const std::string& token, int kind) {
  static constexpr const char* names[] = {"constant", "large", "small", "outliers", "sorted, far from the origin", "near ties", "weights"};
  subject<T> held(token, kind == 6 ? 5 : 0, kind == 6);
  for (std::size_t e = 0; e < held.values.size(); ++e) {
    T& x = held.values[e];
    switch (kind) {
      case 0: x = T(-7.7); break;
      case 1: x *= T(1e30); break;
      case 2: x *= T(1e-30); break;
      case 3: x *= e % 97 == 0 ? T(1e6) : T(1); break;
      case 4: x = static_cast<T>(static_cast<double>(e) / static_cast<double>(held.values.size()) + 1e4); break;
      case 5:
        x = static_cast<T>(static_cast<double>(e / static_cast<std::size_t>(held.what.features) % 2) + 4 * k_u<T> * static_cast<double>(x));
        break;
      default: break;
    }
  }
  held.upload();
  one_case now(seen, "clean", token, names[kind]);
  now.guarded([&] {
    if (held.what.batch > 1) {
      expect_clean(now, kmeans::fit(held.device_batch(), held.options(12, false, held.device_weights()), on(tested)).report);
      return;
    }
    const auto found = kmeans::fit(held.device(), held.options(12, false, held.device_weights()), on(tested));
    expect_clean(now, found.report);
    now.expect(std::isfinite(found.inertia), "inertia is not finite");
  });
}

template <class T>
void faults(tally& seen, const std::string& token, const settings& wanted, const time_limit& limit) {
  const subject<T> held(token, 5);
  const auto run = [&](const inject::plan* plan, protection level) {
    return kmeans::fit(held.device(), held.options(3, true, {}), on(tested, level, plan));
  };
  const auto right = run(nullptr, protection::correct);
  const auto close = [&](const auto& found) {
    return found.labels == right.labels && std::abs(found.inertia - right.inertia) <= 64 * k_u<T> * right.inertia;
  };
  strike_every_site(seen, "kmeans", token, 62, true, wanted, limit, [&](const inject::plan& plan) {
    const auto found = run(&plan, protection::correct);
    return outcome{found.report, !close(found)};
  });
}

// The second call of a plan takes no more memory of the device.
template <class T>
void second_call(tally& seen, const std::string& token) {
  const subject<T> held(token, 7);
  one_case now(seen, "accuracy", token, "device memory of a second call");
  now.guarded([&] {
    const auto wanted = held.options(3, false, {});
    const kmeans::plan<T> plan(held.what, wanted.how(), on(tested).where());
    std::vector<T> centroids(static_cast<std::size_t>(held.what.clusters * held.what.features));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(held.what.points));
    const auto view = row_major(centroids.data(), held.what.clusters, held.what.features);
    std::int64_t free = 0;
    for (int call = 0; call < 2; ++call) {
      expect_clean(now, plan.fit({held.device()}, {.centroids = view, .labels = labels}, on(tested).now()));
      expect_clean(now, plan.predict({.points = held.device(), .centroids = view}, {.labels = labels}, on(tested).now()));
      if (call == 0) free = gpu::free_bytes();
    }
    now.expect(gpu::free_bytes() == free, "the second call took memory of the device");
  });
}

template <class T>
void check_accuracy(tally& seen, const std::string& token) {
  if (kmeans::parse_token(token).batch == 1) second_call<T>(seen, token);
  if (kmeans::parse_token(token).batch == 1) return accuracy<T>(seen, token);
  batch_accuracy<T>(seen, token);
  if (tested == backend::cuda) batch_enqueued<T>(seen, token);
}

}  // namespace

int verify(const settings& wanted, const time_limit& limit) {
  tally seen;
  const auto each = [&](const std::vector<std::string>& list, const auto& body) {
    each_problem(wanted.tokens.empty() ? list : wanted.tokens, kmeans::parse_token, limit, seen, body);
  };
  const auto accurate = [&](auto zero, const std::string& token) { check_accuracy<decltype(zero)>(seen, token); };
  const bool only_faults = inject::active_injector::enabled && !wanted.groups.empty();
  if (wanted.includes("clean") && !only_faults)
    each(sanitized_set(), [&](auto zero, const std::string& token) {
      for (int kind = 0; kind < 7; ++kind) clean<decltype(zero)>(seen, token, kind);
    });
  if (wanted.includes("accuracy") && !only_faults) each(verified_set(wanted.quick), accurate);
  if (inject::active_injector::enabled && wanted.includes("faults"))
    each(sanitized_set(), [&](auto zero, const std::string& token) {
      kmeans::parse_token(token).batch > 1 ? batch_faults<decltype(zero)>(seen, token, wanted, limit)
                                           : faults<decltype(zero)>(seen, token, wanted, limit);
    });
  return ended(seen, "verify");
}

int sanitize(const settings& wanted, const time_limit& limit) {
  tally seen;
  each_problem(wanted.tokens.empty() ? sanitized_set() : wanted.tokens, kmeans::parse_token, limit, seen,
               [&](auto zero, const std::string& token) { check_accuracy<decltype(zero)>(seen, token); });
  return ended(seen, "sanitize");
}

}  // namespace ballast::gpu_check::clusters
