// K-Means under faults, on every backend: each site and model, the floor of what is not seen, and no alarm on clean data.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/memory.hpp"
#include "inject/sites.hpp"
#include "kmeans/sealed.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_protection : public kmeans_backend<T> {};
TYPED_SUITE(kmeans_protection, configurations, test::setting_names);

const std::int64_t k_clean_intervals = test::sampled() ? 5'000 : 100'000;

template <class T>
struct result {
  std::vector<T> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int iterations = 0;
  ballast::report report;

  explicit result(const model<T>& made)
      : centroids(made.centroids.data(), made.centroids.data() + made.centroids.size()),
        labels(made.labels),
        inertia(made.inertia),
        iterations(made.iterations),
        report(made.report) {}

  // Bit for bit; a NaN differs from everything.
  bool same(const result& other) const {
    return centroids == other.centroids && labels == other.labels && inertia == other.inertia && iterations == other.iterations;
  }
  // The same labels, and numbers that differ by no more than a few roundings.
  bool close(const result& other, double scale) const {
    if (labels != other.labels || iterations != other.iterations || !(std::abs(inertia - other.inertia) <= 64 * k_u<T> * other.inertia))
      return false;
    for (std::size_t e = 0; e < centroids.size(); ++e)
      if (!(std::abs(static_cast<double>(centroids[e]) - static_cast<double>(other.centroids[e])) <= 16 * k_u<T> * scale)) return false;
    return true;
  }
};

struct scene {
  std::int64_t m, n, k;
  int max_iter;
  double tol;
};

template <class T>
result<T> struck(const data_set<T>& points, const scene& what, const inject::plan* faults, run::settings how) {
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  return result<T>(
      fit(points.view(),
          {.clusters = what.k, .init = init::given, .centroids = points.rows(what.k), .max_iter = what.max_iter, .tol = what.tol}, how));
}

bool visited_once(inject::site where) {
  return where == kmeans::site::shift || where == kmeans::site::tolerance || where == kmeans::site::range ||
         where == kmeans::site::normalization || where == kmeans::site::inertia;
}

TYPED_TEST(kmeans_protection, every_site_and_model_is_repaired_and_matters) {
  using T = typename TestFixture::real;
  const std::uint64_t seeds = test::sampled() ? 1 : this->on_cuda ? 2 : 6;
  // Several groups of several blocks and two tiles of centroids; one small problem; one with two sections of centroids.
  std::vector<scene> scenes = {{4000, 10, 12, 3, 0}, {150, 4, 3, 3, 0}, {1300, 8, 70, 3, 0}};
  // The reference has no blocks.
  if (TestFixture::k_backend == backend::reference && test::sampled())
    scenes = {{1000, 10, 12, 3, 0}, {150, 4, 3, 3, 0}, {400, 8, 70, 3, 0}};
  // On cuda as many centroids as a protected pass has columns for, so that each position that is struck is that of a point and a centroid.
  if (this->on_cuda) scenes = {{512, 10, 8, 3, 0}, {256, 8, 136, 3, 0}};
  if (this->on_cuda && test::sampled()) scenes = {{256, 10, 8, 3, 0}};
  for (const scene& what : scenes) {
    const auto points = clouds<T>(what.m, what.n, what.k, 73, 0.8);
    const auto clean = struck(points, what, nullptr, this->how());
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    for (const inject::site_row& row : inject::sites()) {
      if (!row.operation().empty() && row.operation() != "kmeans") continue;
      // On cuda the host divides sums only if the caller watches the iterations.
      run::settings how = this->how();
      if (this->on_cuda && row.site == kmeans::site::total) how.on_progress = [](const progress&) {};
      const auto with = [&](protection level) {
        run::settings made = how;
        made.protection = level;
        return made;
      };
      int detected = 0, changed = 0;
      // On the host a score that a struck coordinate throws far off is decided by differences, which heals it: few faults matter.
      // On cuda a threshold alarms only if it becomes small, and a pass has many that are far above their residuals.
      const bool seldom = row.site == (this->on_cuda ? kmeans::site::threshold : kmeans::site::points);
      const std::uint64_t tries = seldom ? std::max<std::uint64_t>(seeds, 6) : seeds;
      for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
        for (std::uint64_t seed = 0; seed < tries; ++seed) {
          // On cuda a few kernels before the first pass show the points, too, and there is one seed: places and visits differ by
          // model.
          inject::request fault = fault_at(row.site, static_cast<inject::model>(model), this->on_cuda ? 20 * seed + model : seed);
          // Strikes in the last iteration: none follows that could heal the fault. A shift and a tolerance decide only whether another
          // follows; some places are visited once in a call.
          fault.visit = visited_once(row.site) ? 0 : what.max_iter - 1;
          if (this->on_cuda && row.site == kmeans::site::points) fault.visit = static_cast<std::int64_t>(model) % 6;
          const inject::plan faults({fault});
          SCOPED_TRACE(std::string(row.name) + " " + std::string(inject::k_model_names[model]) + " seed " + std::to_string(seed) + " m " +
                       std::to_string(what.m));
          const auto found = struck(points, what, &faults, how);
          detected += found.report.detected > 0;
          if (found.report.verdict == verdict::uncorrectable) {
            EXPECT_EQ(fault.model, inject::model::stuck_at);
          } else {
            EXPECT_TRUE(found.close(clean, 3)) << to_json(found.report);
          }
          EXPECT_EQ(found.report.detected, found.report.corrected + found.report.recomputed + found.report.uncorrectable);
          if (row.role == inject::site_role::data) {
            const auto bare = struck(points, what, &faults, with(protection::off));
            EXPECT_EQ(bare.report.detected, 0u);
            const bool matters = !bare.same(clean);
            changed += matters;
            // A fault that protection did not see is below the floor: no more than rounding.
            if (found.report.detected == 0) {
              EXPECT_TRUE(bare.close(clean, 3));
            }
            const auto only = struck(points, what, &faults, with(protection::detect));
            EXPECT_EQ(only.report.verdict == verdict::uncorrectable, only.report.detected > 0);
            EXPECT_EQ(only.report.corrected + only.report.recomputed, 0u);
          }
        }
      }
      if (row.role == inject::site_role::data) {
        EXPECT_GT(changed, 0) << row.name << ": with protection off no fault reached the output";
      }
      EXPECT_GT(detected, 0) << row.name << ": no fault was detected";
    }
  }
}

// One data set of each hostile kind.
template <class T>
data_set<T> hostile(int kind, std::int64_t m, std::int64_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::cauchy_distribution<double> cauchy;
  data_set<T> made{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
  const double constant = normal(random);
  const double limit = 1e36;
  for (std::int64_t i = 0; i < m; ++i) {
    const double row = normal(random);
    for (std::int64_t f = 0; f < n; ++f) {
      double x = normal(random);
      switch (kind) {
        case 0: break;
        case 1: x = constant; break;
        case 2: x *= 1e30; break;
        case 3: x *= 1e-30; break;
        case 4: x = cauchy(random) * 1e10; break;
        case 5: x *= std::pow(10.0, 8.0 * static_cast<double>(f % 5) - 16); break;             // mixed scales: ill-conditioned
        case 6: x *= static_cast<double>(std::numeric_limits<T>::denorm_min()) * 1000; break;  // subnormal
        case 7: x = static_cast<double>(i % 2) + 4 * k_u<T> * x; break;                        // near ties
        case 8: x = row; break;                                                                // duplicated features
        case 9: x = static_cast<double>(random() % 2); break;                                  // binary
        case 10: x = static_cast<double>(i) / static_cast<double>(m) + 1e4; break;             // sorted, far from the origin
        default: x = i % 97 == 0 ? 1e6 * x : x; break;                                         // outliers
      }
      made.values[static_cast<std::size_t>(i * n + f)] = static_cast<T>(std::clamp(x, -limit, limit));
    }
  }
  return made;
}

TYPED_TEST(kmeans_protection, no_false_alarm_in_1e5_clean_intervals) {
  using T = typename TestFixture::real;
  // The serial backend is slow: it gets a tenth.
  const std::int64_t wanted = this->on_cuda                                  ? (test::sampled() ? 1 : k_clean_intervals / 100)
                              : TestFixture::k_backend == backend::reference ? k_clean_intervals / 10
                                                                             : k_clean_intervals;
  std::int64_t intervals = 0;
  for (unsigned round = 0; intervals < wanted; ++round) {
    for (int kind = 0; kind < 12; ++kind) {
      for (const auto [n, k] : {std::array{1, 2}, {2, 3}, {3, 9}, {5, 70}, {17, 4}, {40, 20}, {200, 6}}) {
        if (this->on_cuda && !test::taken(static_cast<std::uint64_t>(kind + n), sizeof(T) == 4 ? 2 : 4)) continue;
        const std::int64_t m = this->on_cuda ? 130 : test::sampled() ? 1000 : 3000;
        const auto points = hostile<T>(kind, m, n, round * 1000 + static_cast<unsigned>(kind));
        std::vector<T> weights;
        if (round % 2 == 1)
          for (std::int64_t i = 0; i < m; ++i) weights.push_back(static_cast<T>(std::exp(static_cast<double>(i % 50) - 25)));
        const auto found = fit(points.view(),
                               {.clusters = k,
                                .init = round % 3 == 0 ? init::kmeans_plus_plus : init::random,
                                .weights = weights,
                                .max_iter = this->on_cuda ? 5 : 30,
                                .tol = 0,
                                .seed = round},
                               this->how());
        ASSERT_EQ(found.report.verdict, verdict::clean)
            << "kind " << kind << " round " << round << " " << found.report.problem.view() << to_json(found.report);
        // A block has at most 512 points; seeding and the final labels pass over them as well.
        const std::int64_t passes = found.iterations + 1 + (round % 3 == 0 ? 2 * k - 1 : 0);
        intervals += passes * ((m + 511) / 512);
      }
    }
  }
}

// ‖row − mean of `about`‖.
template <class T>
double centred_norm(const data_set<T>& of, std::int64_t row, const std::vector<double>& mean) {
  return std::sqrt(square_distance(of.view(), row, [&](std::int64_t f) { return mean[static_cast<std::size_t>(f)]; }));
}

template <class T>
std::vector<double> mean_of(const data_set<T>& points) {
  std::vector<double> mean(static_cast<std::size_t>(points.n));
  for (std::size_t e = 0; e < points.values.size(); ++e)
    mean[e % mean.size()] += static_cast<double>(points.values[e]) / static_cast<double>(points.m);
  return mean;
}

// The floor: a fault that protection does not see leaves labels whose squared distance is within k_floor · u · (‖x‖ + ‖c‖)² of the least
// one, x the point and ‖c‖ the largest of the centroids that share a row check; and an inertia that is right for these labels.
constexpr double k_floor = 100;

TYPED_TEST(kmeans_protection, what_is_not_seen_is_below_the_floor) {
  using T = typename TestFixture::real;
  for (const auto& [m, n, k] : this->on_cuda ? std::vector<std::array<int, 3>>{{512, 6, 10}, {256, 40, 64}}
                                             : std::vector<std::array<int, 3>>{{700, 6, 10}, {700, 40, 64}, {300, 128, 64}}) {
    const auto points = clouds<T>(m, n, k, 83, 0.8);
    const auto clean = predict(points.view(), points.rows(k), this->how());
    const std::vector<double> mean = mean_of(points);
    double farthest = 0;
    for (std::int64_t j = 0; j < k; ++j) farthest = std::max(farthest, centred_norm(points, j, mean));
    int detected = 0, unseen = 0;
    double worst = 0;
    for (const auto site : {kmeans::site::product, kmeans::site::minimum, kmeans::site::points, kmeans::site::index}) {
      for (std::uint64_t seed = 0; seed < this->fault_seeds(); ++seed) {
        inject::request fault;  // any bit
        fault.site = site;
        fault.seed = seed;
        fault.model = seed % 3 == 0 ? inject::model::random_bits : inject::model::bit_flip;
        const inject::plan faults({fault});
        run::settings how = this->how();
        how.faults = &faults;
        const auto found = predict(points.view(), points.rows(k), how);
        ASSERT_NE(found.report.verdict, verdict::uncorrectable);
        if (found.report.detected > 0) {
          ++detected;
          EXPECT_EQ(found.labels, clean.labels);
          EXPECT_EQ(found.inertia, clean.inertia);
          continue;
        }
        ++unseen;
        for (std::int64_t i = 0; i < m; ++i) {
          const auto p = static_cast<std::size_t>(i);
          if (found.labels[p] == clean.labels[p]) continue;
          const auto distance = [&](std::int32_t j) {
            return square_distance(points.view(), i, [&](std::int64_t f) { return points.values[static_cast<std::size_t>(j * n + f)]; });
          };
          worst = std::max(worst, (distance(found.labels[p]) - distance(clean.labels[p])) /
                                      (k_u<T> * std::pow(centred_norm(points, i, mean) + farthest, 2)));
        }
      }
    }
    EXPECT_LE(worst, k_floor) << "n " << n << " k " << k;
    EXPECT_GT(detected, 0);
    EXPECT_GT(unseen, 0) << "flips of low bits are below any floor";
  }
}

// Changes of a single product of a known size: all above the floor are seen, and most well below it.
TYPED_TEST(kmeans_protection, the_floor_is_as_low_as_it_is_said_to_be) {
  using T = typename TestFixture::real;
  for (const auto& [m, n, k] : this->on_cuda ? std::vector<std::array<int, 3>>{{256, 6, 10}, {256, 40, 64}}
                                             : std::vector<std::array<int, 3>>{{512, 6, 10}, {512, 40, 64}, {512, 128, 64}}) {
    // Every point lies one step away from half-way between two centroids: a change of the nearer one's product by more makes the label
    // wrong.
    for (const double size : {k_floor, 4 * k_floor}) {
      const auto centroids = clouds<T>(k, n, k, 89, 0.0);
      const std::vector<double> mean = mean_of(centroids);
      double farthest = 0;
      for (std::int64_t j = 0; j < k; ++j) farthest = std::max(farthest, centred_norm(centroids, j, mean));
      data_set<T> points{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
      for (std::int64_t i = 0; i < m; ++i) {
        const std::int64_t a = i % k, b = (i + 1 + i / k) % k;
        const double apart =
            square_distance(centroids.view(), a, [&](std::int64_t f) { return centroids.values[static_cast<std::size_t>(b * n + f)]; });
        const double step = apart > 0 ? size * k_u<T> * std::pow(2 * farthest, 2) / (2 * apart) : 0;
        for (std::int64_t f = 0; f < n; ++f)
          points.values[static_cast<std::size_t>(i * n + f)] =
              static_cast<T>((0.5 + step) * static_cast<double>(centroids.values[static_cast<std::size_t>(a * n + f)]) +
                             (0.5 - step) * static_cast<double>(centroids.values[static_cast<std::size_t>(b * n + f)]));
      }
      const auto clean = predict(points.view(), centroids.view(), this->how());
      EXPECT_EQ(clean.report.verdict, verdict::clean);
      int wrong = 0;
      for (std::uint64_t seed = 0; seed < this->fault_seeds(); ++seed) {
        inject::request fault;
        fault.site = kmeans::site::product;
        fault.seed = seed;
        // Mantissa bits around the size of the step.
        fault.bit = (sizeof(T) == 4 ? 41 : 12) + static_cast<int>(seed % 10);
        const inject::plan faults({fault});
        run::settings how = this->how();
        how.faults = &faults;
        const auto found = predict(points.view(), centroids.view(), how);
        if (found.report.detected > 0) {
          EXPECT_EQ(found.labels, clean.labels);
          continue;
        }
        for (std::int64_t i = 0; i < m; ++i) {
          const auto p = static_cast<std::size_t>(i);
          const auto distance = [&](std::int32_t j) {
            return square_distance(points.view(), i, [&](std::int64_t f) { return centroids.values[static_cast<std::size_t>(j * n + f)]; });
          };
          wrong += distance(found.labels[p]) - distance(clean.labels[p]) >
                   k_floor * k_u<T> * std::pow(centred_norm(points, i, mean) + farthest, 2);
        }
      }
      EXPECT_EQ(wrong, 0) << "n " << n << " k " << k << " size " << size;
    }
  }
}

// A centroid that is far away does not hide what happens to near ones: their floor is that of their own norms.
TYPED_TEST(kmeans_protection, far_centroids_do_not_hide_faults_of_near_ones) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 256 : 600, n = 6, k = 12;
  for (const double far : {1e3, 3e4}) {
    // 8 near clusters and 4 far ones. Every 50th point is at a far one.
    auto points = clouds<T>(m, n, 8, 83, 0.4);
    auto centroids = clouds<T>(k, n, 8, 83, 0.4);
    std::vector<bool> away(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; i += 50) {
      away[static_cast<std::size_t>(i)] = true;
      // Both signs occur, so that the mean stays near.
      for (std::int64_t f = 0; f < n; ++f)
        points.values[static_cast<std::size_t>(i * n + f)] += static_cast<T>((i / 50 % 2 == 0 ? far : -far) * (f == i / 100 % 2 ? 1 : 0.5));
    }
    for (std::int64_t j = 8; j < k; ++j)
      for (std::int64_t f = 0; f < n; ++f)
        centroids.values[static_cast<std::size_t>(j * n + f)] += static_cast<T>((j % 2 == 0 ? far : -far) * (f == j / 2 % 2 ? 1 : 0.5));
    // An order in which near and far ones stand side by side.
    for (const std::int64_t j : {0, 2, 5})
      std::swap_ranges(centroids.values.begin() + j * n, centroids.values.begin() + (j + 1) * n, centroids.values.begin() + (11 - j) * n);
    const auto clean = predict(points.view(), centroids.view(), this->how());
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    expect_nearest(points.view(), matrix_view<const T>(centroids.view()), clean.labels, clean.inertia);
    const auto distance = [&](std::int64_t i, std::int32_t j) {
      return square_distance(points.view(), i, [&](std::int64_t f) { return centroids.values[static_cast<std::size_t>(j * n + f)]; });
    };
    const auto square = [&](const data_set<T>& of, std::int64_t row) {
      return square_distance(of.view(), row, [](std::int64_t) { return 0.0; });
    };
    int detected = 0, harmless = 0;
    for (std::uint64_t seed = 0; seed < 2 * this->fault_seeds(); ++seed) {
      inject::request fault;
      fault.site = kmeans::site::product;
      fault.seed = seed;
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = predict(points.view(), centroids.view(), how);
      ASSERT_NE(found.report.verdict, verdict::uncorrectable);
      (found.report.detected > 0 ? detected : harmless) += 1;
      for (std::int64_t i = 0; i < m; ++i) {
        const auto p = static_cast<std::size_t>(i);
        const double size =
            std::pow(std::sqrt(square(points, i)) + std::sqrt(square(centroids, clean.labels[p])) + (away[p] ? 4 * far : 1), 2);
        ASSERT_LE(distance(i, found.labels[p]) - distance(i, clean.labels[p]), k_floor * k_u<T> * size)
            << "seed " << seed << " point " << i;
      }
    }
    EXPECT_GT(detected, this->on_cuda ? 0 : harmless / 4);  // cuda has columns after the last centroid, too
  }
}

// Equal distances to centroids of different norms, which do not share a row check.
TYPED_TEST(kmeans_protection, ties_between_near_and_far_centroids_go_to_the_lowest_index) {
  using T = typename TestFixture::real;
  const std::vector<T> points = {0, 1, -1, 64, -64, 0};  // their mean is 0: no distance is rounded
  for (const bool reversed : {false, true}) {
    std::vector<T> centroids = {0, 2, 126, 0, 2, -2, 130, -126, 2};
    if (reversed) std::ranges::reverse(centroids);
    const auto found = predict(row_major<const T>(points.data(), 6, 1), row_major<const T>(centroids.data(), 9, 1), this->how());
    const auto bare =
        predict(row_major<const T>(points.data(), 6, 1), row_major<const T>(centroids.data(), 9, 1), this->how(2, protection::off));
    EXPECT_EQ(found.report.verdict, verdict::clean);
    for (std::size_t i = 0; i < points.size(); ++i) {
      std::int32_t nearest = 0;
      for (std::size_t j = 1; j < 9; ++j)
        if (std::abs(points[i] - centroids[j]) < std::abs(points[i] - centroids[static_cast<std::size_t>(nearest)]))
          nearest = static_cast<std::int32_t>(j);
      EXPECT_EQ(found.labels[i], nearest) << points[i];
    }
    EXPECT_EQ(found.labels, bare.labels);
    const auto far = transform(row_major<const T>(points.data(), 6, 1), row_major<const T>(centroids.data(), 9, 1), this->how());
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t j = 0; j < 9; ++j)
        EXPECT_NEAR(far.values(i, j), std::abs(points[static_cast<std::size_t>(i)] - centroids[static_cast<std::size_t>(j)]), 1e-4);
  }
}

TYPED_TEST(kmeans_protection, predict_and_transform_are_protected) {
  using T = typename TestFixture::real;
  // On cuda whole tiles, so that each position is that of a point and a centroid.
  const std::int64_t k = this->on_cuda ? 8 : 9;
  const auto points = clouds<T>(this->on_cuda ? 512 : 900, 7, 9, 89);
  const auto clean = predict(points.view(), points.rows(k), this->how());
  const auto distances = transform(points.view(), points.rows(k), this->how());
  for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
    for (std::uint64_t seed = 0; seed < (this->on_cuda && test::sampled() ? 2 : 5); ++seed) {
      const inject::plan faults({fault_at(kmeans::site::product, static_cast<inject::model>(model), seed)});
      run::settings how = this->how();
      how.faults = &faults;
      const auto labels = predict(points.view(), points.rows(k), how);
      const auto found = transform(points.view(), points.rows(k), how);
      EXPECT_GT(labels.report.detected, 0u);
      EXPECT_GT(found.report.detected, 0u) << inject::k_model_names[model] << seed;
      if (labels.report.verdict != verdict::uncorrectable) {
        EXPECT_EQ(labels.labels, clean.labels);
        EXPECT_EQ(labels.inertia, clean.inertia);
      }
      const auto equal = [&](const matrix<T>& a) { return std::equal(a.data(), a.data() + a.size(), distances.values.data()); };
      if (found.report.verdict != verdict::uncorrectable) {
        EXPECT_TRUE(equal(found.values));
      }
      how.protection = protection::off;
      EXPECT_FALSE(equal(transform(points.view(), points.rows(k), how).values)) << inject::k_model_names[model] << seed;
    }
  }
}

// Labels that were right when they were checked, on their way to the caller.
TYPED_TEST(kmeans_protection, labels_are_stored_as_they_were_found) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(this->on_cuda ? 512 : 900, 7, 9, 89);
  const auto clean = predict(points.view(), points.rows(9), this->how());
  int changed = 0;
  for (const auto model : {inject::model::bit_flip, inject::model::two_bits, inject::model::zero, inject::model::random_value}) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      inject::request fault = fault_at(kmeans::site::label, model, seed);
      fault.bit = static_cast<int>(seed % 3);
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = predict(points.view(), points.rows(9), how);
      EXPECT_EQ(found.labels, clean.labels) << seed << to_json(found.report);
      how.protection = protection::off;
      const auto bare = predict(points.view(), points.rows(9), how);
      changed += bare.labels != clean.labels;
      EXPECT_TRUE(bare.labels == clean.labels || found.report.detected > 0) << seed;
    }
  }
  EXPECT_GT(changed, this->on_cuda ? 0 : 30);  // one lane of four has the label of a row there
}

TYPED_TEST(kmeans_protection, seeding_is_protected) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(this->on_cuda ? 600 : 2000, 4, 12, 97);
  const request<T> wanted{.clusters = 12, .max_iter = 1, .seed = 5};
  const auto run = [&](const inject::plan* faults, protection level) {
    run::settings how = this->how(2, level);
    how.faults = faults;
    return result<T>(fit_with_struck_seeding(points, wanted, how));
  };
  const auto clean = run(nullptr, protection::correct);
  int changed = 0;
  for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
    for (std::uint64_t seed = 0; seed < (this->on_cuda && test::sampled() ? 2 : 5); ++seed) {
      inject::request fault = fault_at(kmeans::site::product, static_cast<inject::model>(model), seed);
      fault.visit = static_cast<std::int64_t>(seed) * 4;
      const inject::plan faults({fault});
      const auto found = run(&faults, protection::correct);
      EXPECT_GT(found.report.detected, 0u) << inject::k_model_names[model] << seed;
      if (found.report.verdict != verdict::uncorrectable) {
        EXPECT_TRUE(found.same(clean)) << inject::k_model_names[model] << seed;
      }
      changed += !run(&faults, protection::off).same(clean);
    }
  }
  EXPECT_GT(changed, 0);
}

// Given centroids as they are normalized, and those of a run as they are scaled back.
TYPED_TEST(kmeans_protection, centroids_come_in_and_go_out_unchanged) {
  using T = typename TestFixture::real;
  const scene what{this->on_cuda ? 256 : 600, 5, 6, 4, 0};
  const auto points = clouds<T>(what.m, what.n, what.k, 149, 0.8, 3);
  const auto clean = struck(points, what, nullptr, this->how());
  const auto labels = predict(points.view(), points.rows(what.k), this->how());
  int detected = 0, fits = 0, predictions = 0;
  for (std::uint64_t seed = 0; seed < (this->on_cuda ? 8 : 40); ++seed) {
    for (const auto model : {inject::model::bit_flip, inject::model::zero, inject::model::nan}) {
      const inject::plan faults({fault_at(kmeans::site::centroid, model, seed)});
      run::settings how = this->how();
      how.faults = &faults;
      const auto found = struck(points, what, &faults, this->how());
      EXPECT_TRUE(found.close(clean, 5)) << to_json(found.report);
      const auto again = predict(points.view(), points.rows(what.k), how);
      EXPECT_EQ(again.labels, labels.labels);
      EXPECT_EQ(again.inertia, labels.inertia);
      detected += found.report.detected > 0 && again.report.detected > 0;
      how.protection = protection::off;
      fits += !struck(points, what, &faults, how).same(clean);
      predictions += predict(points.view(), points.rows(what.k), how).inertia != labels.inertia;
    }
  }
  EXPECT_GT(detected, 0);
  EXPECT_GT(fits, 0);
  EXPECT_GT(predictions, 0);
}

TYPED_TEST(kmeans_protection, a_premature_or_missed_stop_is_prevented) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 400 : 1000;
  const auto points = clouds<T>(m, 3, 8, 101, 1.0);
  const scene what{m, 3, 8, 40, 0.05};
  const auto clean = struck(points, what, nullptr, this->how());
  ASSERT_TRUE(clean.iterations > 2 && clean.iterations < 40);
  for (const auto& [model, visit] : {std::pair{inject::model::zero, std::int64_t{0}},
                                     {inject::model::nan, clean.iterations - 1},
                                     {inject::model::infinity, clean.iterations - 1}}) {
    inject::request fault = fault_at(kmeans::site::shift, model, 1);
    fault.visit = visit;
    const inject::plan faults({fault});
    const auto found = struck(points, what, &faults, this->how());
    EXPECT_TRUE(found.same(clean));
    EXPECT_EQ(found.report.verdict, verdict::recomputed);
    EXPECT_NE(struck(points, what, &faults, this->how(2, protection::off)).iterations, clean.iterations);
  }
}

// A struck seal condemns no value: both copies are there.
TEST(kmeans_sealed, a_struck_copy_or_seal_is_repaired) {
  using state = sealed<core::vector<float>>::state;
  sealed<core::vector<float>> kept({1, 2, 3, 4, 5, 6, 7, 8, 9});
  for (const bool strikes_seal : {false, true}) {
    strikes_seal ? void(kept.exposed_seal() ^= 1024) : void(kept.exposed()[4] = 50);
    EXPECT_EQ(kept.verify(), state::repaired);
    EXPECT_TRUE(kept.values()[4] == 5 && kept.seal() == seal_of(kept.values()));
    EXPECT_EQ(kept.verify(), state::intact);
  }
  kept.exposed()[4] = 50, kept.exposed_seal() ^= 1024;
  EXPECT_EQ(kept.verify(), state::lost);
}

TYPED_TEST(kmeans_protection, several_faults_at_once) {
  using T = typename TestFixture::real;
  const scene what{this->on_cuda ? 512 : 3000, 8, 9, 3, 0};
  const auto points = clouds<T>(what.m, what.n, what.k, 103, 0.8);
  const auto clean = struck(points, what, nullptr, this->how());
  for (const int threads : {1, 2, 3}) {
    std::vector<inject::request> wanted;
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "kmeans") continue;
      wanted.push_back(fault_at(row.site, inject::model::bit_flip, 7));
      wanted.back().count = 2;
    }
    const inject::plan faults(wanted);
    const auto found = struck(points, what, &faults, this->how(threads));
    EXPECT_NE(found.report.verdict, verdict::clean);
    EXPECT_TRUE(found.report.verdict == verdict::uncorrectable || found.close(clean, 3)) << to_json(found.report);
  }
}

TYPED_TEST(kmeans_protection, uncorrectable_is_thrown_or_returned) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(500, 4, 5, 107);
  // On cuda other lanes decide a row whose product is stuck.
  const inject::plan faults({fault_at(this->on_cuda ? kmeans::site::inertia : kmeans::site::product, inject::model::stuck_at, 3)});
  const inject::plan of_distances({fault_at(kmeans::site::product, inject::model::stuck_at, 3)});
  run::settings how = this->how();
  how.faults = &faults;
  EXPECT_EQ(fit(points.view(), {.clusters = 5}, how).report.verdict, verdict::uncorrectable);
  how.throw_on_uncorrectable = true;
  EXPECT_THROW((void)fit(points.view(), {.clusters = 5}, how), uncorrectable_error);
  EXPECT_THROW((void)predict(points.view(), points.rows(5), how), uncorrectable_error);
  how.faults = &of_distances;
  EXPECT_THROW((void)transform(points.view(), points.rows(5), how), uncorrectable_error);
}

}  // namespace
}  // namespace ballast::kmeans
