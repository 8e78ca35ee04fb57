// Many fits in one call, on every backend: in one program on those of the host, in the other (BALLAST_TEST_KMEANS_ON_CUDA) on cuda by the
// emulator. Beside single fits of the reference; strides, restarts, weights, empty clusters, hostile data, arguments; faults in the kernel.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/at.hpp"
#include "inject/plan.hpp"
#include "kmeans/sites.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
using core::at;

namespace {

template <class Configuration>
class kmeans_batch : public kmeans_backend<Configuration> {
 protected:
  using T = typename Configuration::real;
  using kmeans_backend<Configuration>::k_backend;
  using kmeans_backend<Configuration>::on_cuda;

  // Contiguous data sets, each with clouds of its own.
  static data_set<T> sets(std::int64_t m, std::int64_t n, std::int64_t clusters, std::int64_t count, double spread = 0.05) {
    data_set<T> made{m, n, {}};
    for (std::int64_t b = 0; b < count; ++b) {
      const data_set<T> one = clouds<T>(m, n, clusters, static_cast<unsigned>(20 + b), spread);
      made.values.insert(made.values.end(), one.values.begin(), one.values.end());
    }
    return made;
  }
  static matrix_batch_view<const T> view(const data_set<T>& from) {
    return batch_of(from.view(), static_cast<std::int64_t>(from.values.size()) / (from.m * from.n));
  }
  static run::settings reference() { return {.backend = backend::reference, .threads = 1}; }

  // The same as single fits of the reference, to rounding.
  void expect_as_single(const matrix_batch_view<const T>& points, const request<T>& wanted, const batch_model<T>& found) {
    const std::int64_t m = points.rows, n = points.columns, k = wanted.clusters;
    ASSERT_EQ(found.count, points.count);
    ASSERT_EQ(static_cast<std::int64_t>(found.centroids.size()), points.count * k * n);
    ASSERT_EQ(static_cast<std::int64_t>(found.labels.size()), points.count * m);
    EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
    EXPECT_EQ(found.report.backend, k_backend);
    EXPECT_EQ(found.report.problem, to_token({precision_of<T>, m, n, k, points.count}));
    for (std::int64_t b = 0; b < points.count; ++b) {
      SCOPED_TRACE("fit " + std::to_string(b));
      request<T> own = wanted;
      own.seed += static_cast<std::uint64_t>(b);
      if (!wanted.weights.empty()) own.weights = wanted.weights.subspan(at(b * m), at(m));
      if (wanted.init == init::given) own.centroids = wanted.centroids.block(b * k, 0, k, n);
      const model<T> right = fit(points[b], own, reference());
      EXPECT_TRUE(std::equal(right.labels.begin(), right.labels.end(), found.labels.begin() + b * m));
      EXPECT_NEAR(found.inertia[at(b)], right.inertia, 64 * k_u<T> * right.inertia + 1000 * k_u<T> * k_u<T> * static_cast<double>(m * n));
      EXPECT_EQ(found.iterations[at(b)], right.iterations);
      EXPECT_EQ(found.stopped[at(b)], right.stopped);
      double size = 0, off = 0;
      for (std::int64_t e = 0; e < k * n; ++e) {
        size = std::max(size, std::abs(static_cast<double>(right.centroids.data()[e])));
        off = std::max(off,
                       std::abs(static_cast<double>(right.centroids.data()[e]) - static_cast<double>(found.centroids[at(b * k * n + e)])));
      }
      EXPECT_LE(off, 8 * k_u<T> * size);
    }
  }
};
TYPED_SUITE(kmeans_batch, configurations, test::setting_names);

TYPED_TEST(kmeans_batch, fits_as_the_reference_does_one_by_one) {
  using T = typename TestFixture::T;
  struct shape {
    std::int64_t m, n, k, count;
  };
  for (const auto [m, n, k, count] :
       {shape{1, 1, 1, 1}, shape{7, 2, 7, 3}, shape{90, 3, 5, 4}, shape{300, 17, 12, 2}, shape{270, 1, 3, 2}}) {
    const data_set<T> points = this->sets(m, n, k, count);
    for (const init first : {init::kmeans_plus_plus, init::random}) {
      SCOPED_TRACE(to_token({precision_of<T>, m, n, k, count}) + " " + std::string(to_string(first)));
      const request<T> wanted{.clusters = k, .init = first, .seed = 3};
      const batch_model<T> found = fit(this->view(points), wanted, this->how());
      this->expect_as_single(this->view(points), wanted, found);
      EXPECT_EQ(found.report.scheme, this->on_cuda ? "dmr" : "row_checksum");
      if (this->on_cuda) {
        EXPECT_EQ(found.report.checks, static_cast<std::uint64_t>(count));
      }
      const batch_model<T> bare = fit(this->view(points), wanted, this->how(1, protection::off));
      EXPECT_EQ(bare.labels, found.labels);
      EXPECT_EQ(bare.centroids, found.centroids);
      EXPECT_EQ(bare.report.checks, 0u);
    }
  }
}

TYPED_TEST(kmeans_batch, takes_given_centroids_weights_strides_and_restarts) {
  using T = typename TestFixture::T;
  const std::int64_t m = 120, n = 4, k = 6, count = 3;
  const data_set<T> points = this->sets(m, n, k, count, 0.3);
  std::vector<T> weights, first, transposed(points.values.size());
  for (std::int64_t i = 0; i < m * count; ++i) weights.push_back(static_cast<T>(i % 7 == 0 ? 0 : 0.5 * static_cast<double>(i % 4 + 1)));
  for (std::int64_t b = 0; b < count; ++b) {
    first.insert(first.end(), points.values.begin() + b * m * n, points.values.begin() + b * m * n + k * n);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t f = 0; f < n; ++f) transposed[at(b * m * n + (n - 1 - f) * m + i)] = points.values[at(b * m * n + i * n + f)];
  }
  const request<T> given{
      .clusters = k, .init = init::given, .centroids = row_major<const T>(first.data(), count * k, n), .weights = weights};
  const batch_model<T> found = fit(this->view(points), given, this->how());
  this->expect_as_single(this->view(points), given, found);
  // Features back to front, column by column.
  const matrix_batch_view<const T> columns{transposed.data() + (n - 1) * m, count, m, n, 1, -m, m * n};
  const batch_model<T> same = fit(columns, given, this->how());
  EXPECT_EQ(same.labels, found.labels);
  EXPECT_EQ(same.centroids, found.centroids);
  EXPECT_EQ(same.inertia, found.inertia);
  // Restarts of one data set, each of several runs, with weights: one set of them for each restart.
  std::vector<T> own;
  for (int r = 0; r < 3; ++r) own.insert(own.end(), weights.begin(), weights.begin() + m);
  for (const init way : {init::random, init::kmeans_plus_plus}) {
    const request<T> runs{.clusters = k, .init = way, .weights = own, .n_init = 3, .seed = 11};
    matrix_batch_view<const T> one = this->view(points);
    one.stride = 0;
    this->expect_as_single(one, runs, fit(one, runs, this->how()));
  }
}

TYPED_TEST(kmeans_batch, relocates_empty_clusters) {
  using T = typename TestFixture::T;
  const std::int64_t m = 60, n = 2, k = 9;
  data_set<T> points = this->sets(m, n, 3, 2, 0.2);
  // All first centroids at one point: all clusters but one are empty. And fewer different points than clusters.
  std::vector<T> first(at(2 * k * n), T(0.1));
  for (std::int64_t e = m * n; e < 2 * m * n; ++e) points.values[at(e)] = static_cast<T>((e / n) % 4);
  const request<T> wanted{.clusters = k, .init = init::given, .centroids = row_major<const T>(first.data(), 2 * k, n)};
  this->expect_as_single(this->view(points), wanted, fit(this->view(points), wanted, this->how()));
  const request<T> drawn{.clusters = k, .seed = 2};
  const batch_model<T> found = fit(this->view(points), drawn, this->how());
  EXPECT_EQ(found.report.verdict, verdict::clean);
  EXPECT_LE(found.inertia[1], 1e-9);  // four points, nine clusters
}

TYPED_TEST(kmeans_batch, hostile_data_raise_no_alarm) {
  using T = typename TestFixture::T;
  const std::int64_t m = 50, n = 3, k = 4;
  const T largest = std::numeric_limits<T>::max(), smallest = std::numeric_limits<T>::denorm_min();
  data_set<T> points = this->sets(m, n, k, 6);
  for (std::int64_t i = 0; i < m * n; ++i) {
    const auto set = [&](std::int64_t b, T value) { points.values[at(b * m * n + i)] = value; };
    const double x = static_cast<double>(points.values[at(i)]);
    set(1, T(-7.7));
    set(2, static_cast<T>(largest * static_cast<T>(std::sin(static_cast<double>(i)))));
    set(3, static_cast<T>(static_cast<double>(i % 9) * static_cast<double>(smallest)));
    set(4, static_cast<T>(1e4 + 1e-3 * x));
    set(5, T(0));
  }
  const batch_model<T> found = fit(this->view(points), {.clusters = k, .seed = 4}, this->how());
  EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
  for (const std::int64_t b : {0, 1, 4, 5}) {
    EXPECT_TRUE(std::isfinite(found.inertia[at(b)])) << b;
    EXPECT_TRUE(std::ranges::all_of(found.labels.begin() + b * m, found.labels.begin() + (b + 1) * m,
                                    [&](std::int32_t each) { return each >= 0 && each < k; }));
  }
}

TYPED_TEST(kmeans_batch, refuses_what_has_no_meaning_and_names_the_fit) {
  using T = typename TestFixture::T;
  data_set<T> points = this->sets(20, 2, 3, 3);
  const auto message = [&](const matrix_batch_view<const T>& view, const request<T>& wanted) -> std::string {
    try {
      (void)fit(view, wanted, this->how());
    } catch (const invalid_argument_error& refused) {
      return refused.what();
    }
    return "nothing was thrown";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  matrix_batch_view<const T> none = this->view(points);
  none.count = 0;
  EXPECT_TRUE(has(message(none, {.clusters = 3}), "expected at least one data set, got 0"));
  EXPECT_TRUE(has(message(this->view(points), {.clusters = 21}), "number of points, 20, got 21"));
  const std::vector<T> few(20, T(1));
  EXPECT_TRUE(has(message(this->view(points), {.clusters = 3, .weights = few}), "weights: expected 60, got 20"));
  EXPECT_TRUE(has(message(this->view(points), {.clusters = 3, .init = init::given, .centroids = points.rows(3)}), "expected 9 × 2"));
  points.values[at(2 * 40 + 7)] = std::numeric_limits<T>::quiet_NaN();
  const std::string refused = message(this->view(points), {.clusters = 3});
  EXPECT_TRUE(has(refused, "fit 2")) << refused;
  EXPECT_TRUE(has(refused, "row 3, column 1")) << refused;
  run::settings other = this->how();
  other.scheme = "magic";
  EXPECT_THROW((void)fit(this->view(points), request<T>{.clusters = 3}, other), unsupported_error);
  EXPECT_EQ(to_token(parse_token("kmeans_f32_m9_n2_k3_b7")), "kmeans_f32_m9_n2_k3_b7");
  EXPECT_EQ(parse_token("kmeans_f32_m9_n2_k3_b7").batch, 7);
  for (const char* bad : {"kmeans_f32_m9_n2_k3_b", "kmeans_f32_m9_n2_k3_b0", "kmeans_f32_m9_n2_k3_b7x"})
    EXPECT_THROW((void)parse_token(bad), invalid_argument_error) << bad;
}

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)

constexpr inject::site k_sites[] = {kmeans::site::normalization, kmeans::site::points,   kmeans::site::tolerance, kmeans::site::product,
                                    kmeans::site::minimum,       kmeans::site::index,    kmeans::site::label,     kmeans::site::sum,
                                    kmeans::site::count,         kmeans::site::centroid, kmeans::site::shift,     kmeans::site::inertia,
                                    kmeans::site::comparison};

// Each fault, where it strikes: repaired, and the results are those of a clean call, or it changed nothing. Without protection each site
// can spoil the output.
TYPED_TEST(kmeans_batch, faults_at_every_site_are_repaired) {
  using T = typename TestFixture::T;
  const std::int64_t m = 40, n = 3, k = 5, count = 2;
  const data_set<T> points = this->sets(m, n, k, count, 0.3);
  const request<T> wanted{.clusters = k, .max_iter = 3, .seed = 5};
  const batch_model<T> clean = fit(this->view(points), wanted, this->how());
  const auto same = [&](const batch_model<T>& found) {
    return found.labels == clean.labels && found.centroids == clean.centroids && found.inertia == clean.inertia &&
           found.iterations == clean.iterations && found.stopped == clean.stopped;
  };
  constexpr std::uint64_t seeds = 5;  // with fewer a site is not met by a strike that matters
  for (const inject::site where : k_sites) {
    int repaired = 0, spoiled = 0;
    for (const auto model : {inject::model::bit_flip, inject::model::random_value, inject::model::nan}) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE(std::to_string(static_cast<int>(where)) + " " + std::to_string(static_cast<int>(model)) + " " + std::to_string(seed));
        const inject::plan faults({fault_at(where, model, seed)});
        run::settings how = this->how();
        how.faults = &faults;
        const batch_model<T> found = fit(this->view(points), wanted, how);
        EXPECT_TRUE(found.report.verdict == verdict::clean || found.report.verdict == verdict::recomputed) << to_json(found.report);
        EXPECT_TRUE(same(found)) << to_json(found.report);
        if (found.report.verdict == verdict::recomputed) {
          ++repaired;
          EXPECT_EQ(found.report.events.at(0).site, "kmeans.fit");
          how.protection = protection::detect;
          EXPECT_EQ(fit(this->view(points), wanted, how).report.verdict, verdict::uncorrectable);
        }
        how.protection = protection::off;
        spoiled += same(fit(this->view(points), wanted, how)) ? 0 : 1;
      }
    }
    EXPECT_GT(repaired, 0) << static_cast<int>(where);
    if (where != kmeans::site::comparison) {
      EXPECT_GT(spoiled, 0) << static_cast<int>(where);
    }
  }
}

// One that stays: the fit that it strikes is given up, and the others are right.
TYPED_TEST(kmeans_batch, a_persistent_fault_is_reported) {
  using T = typename TestFixture::T;
  const std::int64_t m = 40, n = 2, k = 3, count = 3;
  const data_set<T> points = this->sets(m, n, k, count, 0.3);
  const request<T> wanted{.clusters = k, .seed = 1};
  const batch_model<T> clean = fit(this->view(points), wanted, this->how());
  int met = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    inject::request stuck = fault_at(kmeans::site::points, inject::model::stuck_at, seed);
    stuck.bit = sizeof(T) == 4 ? 30 : 62;
    const inject::plan faults({stuck});
    run::settings how = this->how();
    how.faults = &faults;
    const batch_model<T> found = fit(this->view(points), wanted, how);
    if (found.report.verdict != verdict::uncorrectable) continue;
    ++met;
    ASSERT_EQ(found.report.events.size(), 1u);
    const std::int64_t struck = found.report.events[0].index;
    for (std::int64_t b = 0; b < count; ++b) {
      if (b == struck) continue;
      EXPECT_EQ(found.inertia[at(b)], clean.inertia[at(b)]);
      EXPECT_TRUE(std::equal(clean.labels.begin() + b * m, clean.labels.begin() + (b + 1) * m, found.labels.begin() + b * m));
    }
    how.throw_on_uncorrectable = true;
    EXPECT_THROW((void)fit(this->view(points), wanted, how), uncorrectable_error);
  }
  EXPECT_GT(met, 0);
}

// The same kernel for a single fit, by its scheme; what a block cannot hold; what goes one by one.
TYPED_TEST(kmeans_batch, the_scheme_serves_single_fits) {
  using T = typename TestFixture::T;
  const data_set<T> points = this->sets(80, 3, 4, 1);
  run::settings how = this->how();
  how.scheme = "dmr";
  const request<T> wanted{.clusters = 4, .seed = 9};
  const model<T> found = fit(points.view(), wanted, how);
  const batch_model<T> batch = fit(this->view(points), wanted, how);
  EXPECT_EQ(found.report.scheme, "dmr");
  EXPECT_EQ(found.report.problem, to_token({precision_of<T>, 80, 3, 4}));
  EXPECT_EQ(found.labels, batch.labels);
  EXPECT_EQ(found.inertia, batch.inertia[0]);
  expect_nearest<T>(points.view(), found.centroids.view(), found.labels, found.inertia);
  EXPECT_THROW((void)fit(points.view(), request<T>{.clusters = 4, .init = init::kmeans_parallel}, how), unsupported_error);
  EXPECT_THROW((void)predict(points.view(), points.rows(4), how), unsupported_error);
  const std::vector<T> large(at(std::int64_t{1} << 16), T(1));
  EXPECT_THROW((void)fit(row_major(large.data(), 256, 256), request<T>{.clusters = 256}, how).inertia, unsupported_error);
  const request<T> parallel{.clusters = 4, .init = init::kmeans_parallel, .seed = 2};
  EXPECT_EQ(fit(this->view(points), parallel, this->how()).report.scheme, "row_checksum");
}

#endif

}  // namespace
}  // namespace ballast::kmeans
