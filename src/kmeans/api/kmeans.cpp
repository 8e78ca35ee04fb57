// The public calls of K-Means: tokens, validation of arguments, choice of backend and scheme.
// Layer: algorithm, over driver.hpp.
#include <ballast/kmeans.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>

#include <ballast/error.hpp>

#include "core/aligned_buffer.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/residence.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/batch.hpp"
#include "kmeans/driver/driver.hpp"
#include "run/dispatch.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

std::string_view to_string(init value) noexcept {
  switch (value) {
    case init::kmeans_plus_plus: return "k-means++";
    case init::random: return "random";
    case init::given: return "given";
    case init::kmeans_parallel: return "k-means||";
  }
  return "?";
}

std::string_view to_string(ending value) noexcept {
  switch (value) {
    case ending::labels_unchanged: return "labels unchanged";
    case ending::tolerance: return "tolerance";
    case ending::max_iter: return "max_iter";
  }
  return "?";
}

std::string to_token(const problem& value) {
  const std::string one = fmt::format("kmeans_{}_m{}_n{}_k{}", to_string(value.precision), value.m, value.n, value.k);
  return value.batch == 0 ? one : fmt::format("{}_b{}", one, value.batch);
}

problem parse_token(std::string_view text) {
  const auto fail = [&](std::string_view expected) {
    return invalid_argument_error(fmt::format("token: expected {}, got \"{}\"", expected, text));
  };
  constexpr std::string_view form = "kmeans_f32_m131072_n128_k128 or the like";
  std::string_view rest = text;
  const auto skip = [&](std::string_view prefix) {
    if (!rest.starts_with(prefix)) throw fail(form);
    rest.remove_prefix(prefix.size());
  };
  const auto number = [&](std::string_view letter) {
    skip(letter);
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (status == std::errc::result_out_of_range) throw fail("numbers below 2^63");
    if (rest.starts_with('0')) throw fail("numbers of at least 1 without leading zeros");
    if (status != std::errc{} || value < 1) throw fail(form);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
  };
  skip("kmeans_");
  problem made;
  const auto kind = parse_precision(rest.substr(0, 3));
  if (!kind) throw fail(form);
  made.precision = *kind;
  rest.remove_prefix(3);
  made.m = number("_m");
  made.n = number("_n");
  made.k = number("_k");
  if (rest.starts_with("_b")) made.batch = number("_b");
  if (!rest.empty()) throw fail(form);
  if (made.k > made.m) throw fail("k ≤ m");
  return made;
}

namespace {

// What a call does on a device: passes over the points, bytes of results that go to the host, and how often the host waits.
struct device_work {
  double passes = 1;
  double results = 0;
  double waits = 0;
};

// Waits as cuda/ makes them, with protection: docs/design/kmeans-cuda.md, "Small problems".
constexpr double k_waits_of_call = 11;  // survey, frame, facts, totals; labels and inertia
constexpr double k_waits_of_run = 18;   // looks at iterations, centroids; the launches of 20 iterations take as long as 8 waits

template <class T>
device_work work_of(const options<T>& wanted, std::int64_t m) {
  const double k = static_cast<double>(wanted.clusters);
  const double trials = 2 + std::floor(std::log(k));
  const double plus_plus = k * (trials + 9);  // a row for each candidate, candidates, distances, the centroid
  double passes = k_usual_iterations, waits = k_waits_of_run;
  if (wanted.init == init::kmeans_plus_plus) {
    passes += trials + 1;
    waits += plus_plus;
  } else if (wanted.init == init::kmeans_parallel) {
    const double drawn = wanted.oversampling * wanted.rounds;  // candidates, in multiples of k
    passes += drawn;
    waits += 5 * (drawn * k / 64 + wanted.rounds) + plus_plus;
  }
  return {passes * wanted.n_init, 4 * static_cast<double>(m), k_waits_of_call + waits * wanted.n_init};
}

// An automatic choice stays on the host where the call is done before host operands have been copied to a device and the host has waited
// for it as often as it must.
template <class T>
backend choose_backend(const matrix_view<const T>& points, std::int64_t k, const device_work& work, const run::settings& how,
                       const std::string& token) {
  const backend chosen = run::choose_backend(how, token);
#if defined(BALLAST_HAS_CPU)
  if (how.backend != backend::automatic || chosen != backend::cuda || how.faults != nullptr ||
      ballast::cuda::residence_of(points.data) != ballast::cuda::residence::host)
    return chosen;
  constexpr double seconds_of_wait = 25e-6;  // with the launches in front of it; two are 50 µs in run/dispatch
  const double elements = static_cast<double>(points.rows) * static_cast<double>(points.columns);
  if (run::copying_takes_longer({elements * static_cast<double>(sizeof(T)) + work.results,
                                 2 * elements * static_cast<double>(k) * work.passes, precision_of<T>, core::thread_count(how.threads),
                                 work.waits * seconds_of_wait}))
    return backend::cpu;
#else
  static_cast<void>(points), static_cast<void>(k), static_cast<void>(work);
#endif
  return chosen;
}

// The scheme of a call that finds labels. `fits`: fit, which has one more.
std::string_view choose_scheme(const run::settings& how, backend chosen, const std::string& token, bool fits) {
  std::vector<std::string_view> known = {k_scheme};
  if (chosen == backend::cuda) {
    if (fits) known.push_back(k_dmr);
    known.insert(known.end(), cuda::schemes().begin(), cuda::schemes().end());
  }
  const std::string_view scheme = run::choose_scheme(how, k_scheme, known, token);
  if (chosen == backend::cuda) cuda::check_scheme(scheme, how.protection != protection::off);
  return scheme;
}

template <class T>
model<T> fit_any(const matrix_view<const T>& points, const options<T>& wanted, const run::settings& how) {
  const std::string token = token_of(points, wanted.clusters);
  check_options(token, points, wanted, 1);
  const auto backend = choose_backend(points, wanted.clusters, work_of(wanted, points.rows), how, token);
  const auto scheme = choose_scheme(how, backend, token, true);
  if (scheme == k_dmr) return fit_in_block(points, wanted, how);
  // Centroids are a small array, which the driver reads. Points and weights are the backend's.
  run::host_staging staging(how.stream);
  options<T> here = wanted;
  if (wanted.init == init::given) here.centroids = staging.read(wanted.centroids);
  return driver<T>(points, wanted.weights, wanted.clusters, how, token, backend, scheme).fit(here);
}

// predict or transform: use(driver, centroids in host memory). `result_of_row`: bytes. `labels`: by any scheme that finds them.
template <class T, class Use>
auto with_centroids(const matrix_view<const T>& points, const matrix_view<const T>& centroids, std::span<const T> weights,
                    double result_of_row, const run::settings& how, bool labels, Use&& use) {
  const std::string token = token_of(points, centroids.rows);
  check_view(token, "points", points);
  check_view(token, "centroids", centroids);
  check_clusters(token, centroids.rows);
  check_centroids(token, centroids, centroids.rows, points.columns);
  check_weights(token, weights, points.rows);
  const auto backend =
      choose_backend(points, centroids.rows, device_work{1, result_of_row * static_cast<double>(points.rows), k_waits_of_call}, how, token);
  const auto scheme = labels ? choose_scheme(how, backend, token, false) : run::choose_scheme(how, k_scheme, {k_scheme}, token);
  run::host_staging staging(how.stream);
  driver<T> made(points, weights, centroids.rows, how, token, backend, scheme);
  return use(made, staging.read(centroids));
}

template <class T>
prediction predict_any(const matrix_view<const T>& points, const matrix_view<const T>& centroids, std::span<const T> weights,
                       const run::settings& how) {
  return with_centroids(points, centroids, weights, 4, how, true,
                        [](driver<T>& made, const matrix_view<const T>& here) { return made.predict(here); });
}

template <class T>
distances<T> transform_any(const matrix_view<const T>& points, const matrix_view<const T>& centroids, const run::settings& how) {
  return with_centroids(points, centroids, {}, static_cast<double>(sizeof(T)) * static_cast<double>(centroids.rows), how, false,
                        [](driver<T>& made, const matrix_view<const T>& here) { return made.transform(here); });
}

}  // namespace

model<float> fit(matrix_view<const float> points, const options<float>& wanted, const run::settings& how) {
  return fit_any(points, wanted, how);
}
model<double> fit(matrix_view<const double> points, const options<double>& wanted, const run::settings& how) {
  return fit_any(points, wanted, how);
}

prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, const run::settings& how) {
  return predict_any<float>(points, centroids, {}, how);
}
prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, const run::settings& how) {
  return predict_any<double>(points, centroids, {}, how);
}
prediction predict(matrix_view<const float> points, matrix_view<const float> centroids, std::span<const float> weights,
                   const run::settings& how) {
  return predict_any(points, centroids, weights, how);
}
prediction predict(matrix_view<const double> points, matrix_view<const double> centroids, std::span<const double> weights,
                   const run::settings& how) {
  return predict_any(points, centroids, weights, how);
}
distances<float> transform(matrix_view<const float> points, matrix_view<const float> centroids, const run::settings& how) {
  return transform_any(points, centroids, how);
}
distances<double> transform(matrix_view<const double> points, matrix_view<const double> centroids, const run::settings& how) {
  return transform_any(points, centroids, how);
}

}  // namespace ballast::kmeans
