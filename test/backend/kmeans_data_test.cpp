// K-Means on every backend with data that are far from the origin, of any size and kind, with few different points, or hard on rounding and
// range: results are right, and nothing is refused or reported.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

TYPED_SUITE(kmeans_backend, configurations, test::setting_names);

TYPED_TEST(kmeans_backend, far_from_the_origin) {
  using T = typename TestFixture::real;
  for (const double offset : {1e3, 1e4, -3e5}) {
    const auto points = clouds<T>(2000, 5, 8, 29, 0.3, offset);
    const auto found = fit(points.view(), {.clusters = 8, .seed = 1}, this->how());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    expect_nearest(points.view(), found.centroids.view(), found.labels, found.inertia);
    const auto again = predict(points.view(), found.centroids.view(), this->how());
    EXPECT_EQ(again.labels, found.labels);
    EXPECT_EQ(again.inertia, found.inertia);
  }
}

TYPED_TEST(kmeans_backend, data_of_any_size_and_kind) {
  using T = typename TestFixture::real;
  const double most = static_cast<double>(std::numeric_limits<T>::max());
  const double least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  std::mt19937_64 random(31);
  std::cauchy_distribution<double> cauchy;
  std::vector<data_set<T>> sets;
  for (const double scale : {1e30, 1e-30, most / 8, least * 1e4, least * 20}) sets.push_back(clouds<T>(500, 4, 5, 7, 0.3, 0, scale));
  sets.push_back({300, 3, std::vector<T>(900, T(0))});
  sets.push_back({300, 3, std::vector<T>(900, T(-7.7))});
  data_set<T> heavy{500, 6, std::vector<T>(3000)}, mixed{500, 6, std::vector<T>(3000)};
  for (std::size_t e = 0; e < 3000; ++e) {
    heavy.values[e] = static_cast<T>(cauchy(random));
    mixed.values[e] = static_cast<T>(cauchy(random) * std::pow(10.0, 6.0 * (static_cast<double>(e % 6) - 3)));
  }
  data_set<T> few{400, 2, std::vector<T>(800)};
  for (std::size_t e = 0; e < 800; ++e) few.values[e] = static_cast<T>((e / 2) % 3);
  sets.push_back(heavy);
  sets.push_back(mixed);
  sets.push_back(few);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    SCOPED_TRACE(s);
    for (const init way : {init::kmeans_plus_plus, init::random}) {
      const auto found = fit(sets[s].view(), {.clusters = 6, .init = way, .max_iter = 20, .seed = 2}, this->how());
      EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
      for (std::size_t e = 0; e < found.centroids.size(); ++e) ASSERT_TRUE(std::isfinite(found.centroids.data()[e]));
      if (sets[s].values[0] != 0 && std::abs(static_cast<double>(sets[s].values[0])) < 1e100 &&
          std::abs(static_cast<double>(sets[s].values[0])) > 1e-100)
        expect_nearest(sets[s].view(), found.centroids.view(), found.labels, found.inertia);
    }
  }
}

// If a relocation gains nothing, no cluster is relocated, and the run ends.
TYPED_TEST(kmeans_backend, fewer_different_points_than_clusters) {
  using T = typename TestFixture::real;
  const auto run = [&](const data_set<T>& points, std::int64_t k, init way, double tol) {
    request<T> wanted{.clusters = k, .init = way, .tol = tol, .seed = 3};
    if (way == init::given) wanted.centroids = points.rows(k);
    return fit(points.view(), wanted, this->how());
  };
  // A point that occurs twice is two of the first centroids: one iteration, one cluster without points.
  const data_set<T> five{5, 2, {0, 0, 1, 1, 1, 1, 1, 0, 0, 1}};
  const auto one = run(five, 5, init::given, 1e-4);
  EXPECT_EQ(one.report.verdict, verdict::clean);
  EXPECT_EQ(one.iterations, 1);
  EXPECT_EQ(one.stopped, stop_reason::tolerance);
  EXPECT_EQ(one.labels, (std::vector<std::int32_t>{0, 1, 1, 3, 4}));
  EXPECT_EQ(one.inertia, 0);
  // Values whose sums round.
  for (const std::int64_t distinct : {1, 3, 7}) {
    for (const std::int64_t m : {20, 400, 20000}) {
      if (this->on_cuda && m > 400) continue;
      data_set<T> points{m, 3, std::vector<T>(static_cast<std::size_t>(m * 3))};
      for (std::size_t i = 0; i < points.values.size(); ++i)
        points.values[i] = static_cast<T>(0.1 * static_cast<double>((i / 3 * 5) % static_cast<std::size_t>(distinct)) +
                                          1000.3 * static_cast<double>(i % 3));
      for (const init way : {init::given, init::random, init::kmeans_plus_plus}) {
        SCOPED_TRACE(std::to_string(distinct) + " of " + std::to_string(m) + " " + std::string(to_string(way)));
        const auto found = run(points, 12, way, 0);
        EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
        EXPECT_TRUE(found.converged());
        EXPECT_LE(found.iterations, 12);
        EXPECT_EQ(std::set<std::int32_t>(found.labels.begin(), found.labels.end()).size(), static_cast<std::size_t>(distinct));
        EXPECT_LE(found.inertia, static_cast<double>(m) * std::pow(16 * k_u<T> * 3000, 2));
      }
    }
  }
}

// Data that are hard on rounding and range, and no fault.
TYPED_TEST(kmeans_backend, hard_data_are_not_refused) {
  using T = typename TestFixture::real;
  const auto expect_clean = [&](const data_set<T>& points, std::int64_t k, const char* what) {
    for (const init way : {init::given, init::random, init::kmeans_plus_plus}) {
      if (this->on_cuda && test::sampled() && way == init::random) continue;
      SCOPED_TRACE(std::string(what) + " " + std::string(to_string(way)));
      request<T> wanted{.clusters = k, .init = way, .max_iter = 10, .seed = 1};
      if (way == init::given) wanted.centroids = points.rows(k);
      const auto found = fit(points.view(), wanted, this->how());
      EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
      const auto again = predict(points.view(), found.centroids.view(), this->how());
      EXPECT_EQ(again.report.verdict, verdict::clean) << to_json(again.report);
      EXPECT_EQ(again.labels, found.labels);
      EXPECT_EQ(transform(points.view(), found.centroids.view(), this->how()).report.verdict, verdict::clean);
    }
  };
  // Long rows of equal terms.
  for (const std::int64_t n : this->on_cuda ? std::vector<std::int64_t>{300} : std::vector<std::int64_t>{3000, 100000}) {
    for (const double value : {1.0, 0.1, 1e-3, 7.7}) {
      if ((test::sampled() || this->on_cuda) && value != 0.1) continue;
      data_set<T> two{2, n, std::vector<T>(static_cast<std::size_t>(2 * n), T(0))};
      std::fill_n(two.values.begin() + n, n, static_cast<T>(value));
      expect_clean(two, 1, "two rows, one of them 0");
      expect_clean(two, 2, "two rows, one of them 0");
      data_set<T> ten{10, n, std::vector<T>(static_cast<std::size_t>(10 * n))};
      for (std::size_t e = 0; e < ten.values.size(); ++e)
        ten.values[e] = static_cast<T>(value * static_cast<double>(e / static_cast<std::size_t>(n)));
      expect_clean(ten, 3, "ten rows of equal numbers");
    }
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    data_set<T> two{2, n, std::vector<T>(static_cast<std::size_t>(2 * n), T(0))};
    for (std::int64_t f = 0; f < n; ++f) two.values[static_cast<std::size_t>(n + f)] = static_cast<T>(normal(random));
    expect_clean(two, 2, "two rows, one of them 0, one normal");
  }
  // One value of another order of magnitude: the others are the same beside it.
  for (const double outlier : sizeof(T) == 4 ? std::vector{1e15, -1e25, 1e37} : std::vector{1e15, -1e100, 1e170, 1e300}) {
    for (const std::int64_t k : {3, 9, 70}) {
      if ((test::sampled() || this->on_cuda) && k != 9) continue;
      auto points = clouds<T>(this->on_cuda ? 250 : 900, 5, 9, 139);
      points.values[1234] = static_cast<T>(outlier);
      expect_clean(points, k, "one outlier");
    }
  }
}

TYPED_TEST(kmeans_backend, centroids_far_beyond_the_data) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(200, 3, 4, 41);
  std::vector<T> wild(12, std::numeric_limits<T>::max());
  std::copy_n(points.values.begin(), 9, wild.begin());
  const auto found = predict(points.view(), row_major<const T>(wild.data(), 4, 3), this->how());
  EXPECT_EQ(found.report.verdict, verdict::clean);
  const auto three = predict(points.view(), row_major<const T>(wild.data(), 3, 3), this->how());
  EXPECT_EQ(found.labels, three.labels);
}

}  // namespace
}  // namespace ballast::kmeans
