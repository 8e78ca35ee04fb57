// The cuda backend of K-Means on the emulator: each operation of contract.hpp beside the reference backend, and faults in its kernels.
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

// One engine of a backend with the call that it belongs to.
template <class T>
struct subject {
  run::settings how;
  inject::active_injector injector;
  run::recorder seen;
  std::unique_ptr<engine<T>> made;

  subject(ballast::backend backend, matrix_view<const T> points, std::span<const T> weights, std::int64_t k,
          protection level = protection::correct, const inject::plan* faults = nullptr, bool strike_seeding = false)
      : how{.backend = backend, .threads = 1, .protection = level, .throw_on_uncorrectable = false, .faults = faults},
        injector(faults, kmeans::site::table()),
        seen("test", backend, "row_checksum", how, injector) {
    const engine_args<T> what{points, weights, k, how, seen, injector, strike_seeding};
    made = backend == backend::cuda ? cuda::make_engine(what) : host::make_engine(what, backend);
  }
  engine<T>* operator->() { return made.get(); }
};

template <class T>
class kmeans_cuda : public testing::Test {
 protected:
  const std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();
  const test::current_device_guard guard_{device_};
};
TYPED_SUITE(kmeans_cuda, reals, test::number_names);

template <class T>
std::vector<T> bands(std::int64_t m, std::int64_t n, unsigned seed, double offset = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> made(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t f = 0; f < n; ++f)
      made[static_cast<std::size_t>(i * n + f)] = static_cast<T>(offset + 3 * static_cast<double>((i * 7 + f) % 5) + normal(random));
  return made;
}

template <class T>
std::vector<T> some_weights(std::int64_t m) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < m; ++i) made.push_back(static_cast<T>(i % 5 == 0 ? 0 : 0.3 * static_cast<double>(i % 7 + 1)));
  return made;
}

template <class T>
normalization<T> normalization_of(std::int64_t n, bool weighted) {
  normalization<T> made{T(0.0625), weighted ? T(0.5) : T(1), {}};
  for (std::int64_t f = 0; f < n; ++f) made.shift.push_back(static_cast<T>(0.3 + 0.01 * static_cast<double>(f)));
  return made;
}

void expect_close(const core::vector<double>& a, const core::vector<double>& b, double slack) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], slack);
}

struct size {
  std::int64_t m, n;
};
const size k_sizes[] = {{1, 1}, {5, 3}, {300, 8}, {1100, 17}, {700, 40}, {2500, 2}};

TYPED_TEST(kmeans_cuda, column_stats_and_measures_are_those_of_the_reference) {
  using T = TypeParam;
  for (const auto [m, n] : k_sizes) {
    for (const bool weighted : {false, true}) {
      if (weighted && m == 1) continue;
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + (weighted ? " weighted" : ""));
      const std::vector<T> x = bands<T>(m, n, 1);
      std::vector<T> transposed(x.size());
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t f = 0; f < n; ++f)
          transposed[static_cast<std::size_t>((n - 1 - f) * m + i)] = x[static_cast<std::size_t>(i * n + f)];
      const std::vector<T> w = weighted ? some_weights<T>(m) : std::vector<T>{};
      const auto dense = row_major(x.data(), m, n);
      const matrix_view<const T> columns{transposed.data() + (n - 1) * m, m, n, 1, -m};
      subject<T> expected(backend::reference, dense, w, 3);
      point_sums first;
      for (const auto& view : {dense, columns}) {
        subject<T> found(backend::cuda, view, w, 3);
        const ranges<T> a = expected->column_stats(), b = found->column_stats();
        EXPECT_EQ(a.low, b.low);
        EXPECT_EQ(a.high, b.high);
        EXPECT_EQ(a.heaviest, b.heaviest);
        EXPECT_EQ(b.point.row, -1);
        EXPECT_EQ(b.weight.row, -1);
        for (std::int64_t f = 0; f < n; ++f) EXPECT_NEAR(a.sum[at(f)] * 0x1p64, b.sum[at(f)] * 0x1p64, 1e-12 * static_cast<double>(m));
        const normalization<T> chosen = normalization_of<T>(n, weighted);
        expected->normalize(chosen);
        found->normalize(chosen);
        const point_sums c = expected->measure(), d = found->measure();
        const double slack = 1e-10 * static_cast<double>(m);
        expect_close(c.first, d.first, slack);
        expect_close(c.plain, d.plain, slack);
        expect_close(c.squares, d.squares, slack);
        EXPECT_NEAR(c.total_square, d.total_square, slack * static_cast<double>(n));
        EXPECT_NEAR(c.weighted_square, d.weighted_square, slack * static_cast<double>(n));
        EXPECT_NEAR(c.largest_square, d.largest_square, 1e-12 * c.largest_square);
        EXPECT_NEAR(c.weight, d.weight, slack);
        EXPECT_EQ(c.members, d.members);
        EXPECT_EQ(c.count, d.count);
        if (&view == &dense) first = d;
        const std::vector<std::int64_t> rows = {0, m - 1, m / 2};
        std::vector<T> p(static_cast<std::size_t>(3 * n)), q(p);
        expected->read_points(rows, p.data());
        found->read_points(rows, q.data());
        EXPECT_EQ(p, q);
        const std::vector<std::int64_t> places = {0, (m - 1) / 8};
        EXPECT_EQ(expected->rows_at(places, true), found->rows_at(places, true));
        EXPECT_EQ(found.seen.finish().verdict, verdict::clean);
      }
    }
  }
}

TYPED_TEST(kmeans_cuda, finds_the_first_value_without_meaning) {
  using T = TypeParam;
  const std::int64_t m = 1500, n = 5;
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    std::vector<T> x = bands<T>(m, n, 2), w = some_weights<T>(m);
    x[1203 * n + 4] = x[1200 * n + 3] = x[700 * n + 4] = static_cast<T>(bad);
    w[1100] = w[801] = static_cast<T>(bad);
    subject<T> found(backend::cuda, row_major(x.data(), m, n), w, 3);
    const ranges<T> seen = found->column_stats();
    EXPECT_EQ(seen.point.row, 1200);
    EXPECT_EQ(seen.point.column, 3);
    EXPECT_EQ(std::isnan(seen.point.value), std::isnan(bad));
    EXPECT_EQ(seen.weight.row, 801);
    EXPECT_EQ(found.seen.finish().verdict, verdict::clean);
  }
  std::vector<T> x = bands<T>(m, n, 2), w = some_weights<T>(m);
  w[1301] = -1;
  subject<T> found(backend::cuda, row_major(x.data(), m, n), w, 3);
  EXPECT_EQ(found->column_stats().weight.row, 1301);
}

template <class T>
std::vector<std::int64_t> seed(subject<T>& on, std::int64_t n, std::int64_t k, std::vector<double>& potentials, bool whole = true) {
  (void)on->column_stats();
  on->normalize(normalization_of<T>(n, false));
  std::vector<std::int64_t> chosen;
  std::vector<T> row(static_cast<std::size_t>(n)), drawn(static_cast<std::size_t>(3 * n));
  on->begin_seeding(3);
  chosen.push_back(on->row_by_weight(0.37));
  on->read_points({&chosen[0], 1}, row.data());
  double potential = on->take_centroid(row.data(), -1);
  for (std::int64_t j = 1; j < k; ++j) {
    std::int64_t rows[3];
    for (int t = 0; t < 3; ++t) rows[t] = on->row_by_potential(potential * std::fmod(0.1234 * static_cast<double>(3 * j + t + 1), 1.0));
    on->read_points(rows, drawn.data());
    const core::vector<double> left = on->try_candidates(drawn.data(), 3);
    const auto best = std::min_element(left.begin(), left.end()) - left.begin();
    potential = on->take_centroid(drawn.data() + best * n, best);
    if (whole && !on.seen.uncorrectable()) {
      EXPECT_EQ(potential, left[static_cast<std::size_t>(best)]);
    }
    chosen.push_back(rows[best]);
    potentials.push_back(potential);
  }
  return chosen;
}

TYPED_TEST(kmeans_cuda, seeding_makes_the_choices_of_the_reference) {
  using T = TypeParam;
  for (const auto [m, n] : {size{60, 2}, {1300, 9}, {600, 33}}) {
    for (const bool weighted : {false, true}) {
      const std::vector<T> x = bands<T>(m, n, 3), w = weighted ? some_weights<T>(m) : std::vector<T>{};
      std::vector<double> a, b;
      subject<T> expected(backend::reference, row_major(x.data(), m, n), w, 12), found(backend::cuda, row_major(x.data(), m, n), w, 12);
      EXPECT_EQ(seed(expected, n, 12, a), seed(found, n, 12, b));
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e2 * k_u<T> * a[i]);
      EXPECT_EQ(found.seen.finish().verdict, verdict::clean);
    }
  }
}

TYPED_TEST(kmeans_cuda, seeding_is_protected) {
  using T = TypeParam;
  const std::int64_t m = 900, n = 4;
  const std::vector<T> x = bands<T>(m, n, 5);
  const auto points = row_major(x.data(), m, n);
  std::vector<double> right;
  subject<T> clean(backend::cuda, points, {}, 6);
  const std::vector<std::int64_t> expected = seed(clean, n, 6, right);
  int changed = 0;
  for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
    for (std::uint64_t number = 0; number < (test::sampled() ? 2u : 5u); ++number) {
      const inject::plan faults(
          {fault_at(kmeans::site::product, static_cast<inject::model>(model), number, static_cast<std::int64_t>(number) * 2)});
      SCOPED_TRACE(std::string(inject::k_model_names[model]) + " " + std::to_string(number));
      std::vector<double> a, b;
      subject<T> found(backend::cuda, points, {}, 6, protection::correct, &faults, true);
      const std::vector<std::int64_t> chosen = seed(found, n, 6, a);
      const report seen = found.seen.finish();
      EXPECT_GT(seen.detected, 0u);
      if (seen.verdict != verdict::uncorrectable) {
        EXPECT_EQ(chosen, expected);
        EXPECT_EQ(a, right);
      }
      subject<T> bare(backend::cuda, points, {}, 6, protection::off, &faults, true);
      changed += seed(bare, n, 6, b, false) != expected || b != right;
    }
  }
  EXPECT_GT(changed, 0);
}

// k-means‖: strikes the number of the candidate that a point is nearest to. The candidates' weights are computed from these numbers.
TYPED_TEST(kmeans_cuda, a_struck_candidate_number_is_seen) {
  using T = TypeParam;
  const std::int64_t m = 700, n = 4, count = 9;
  const std::vector<T> x = bands<T>(m, n, 5);
  const auto weigh = [&](subject<T>& on) {
    (void)on->column_stats();
    on->normalize(normalization_of<T>(n, false));
    std::vector<T> rows(static_cast<std::size_t>(count * n));
    std::vector<std::int64_t> drawn;
    for (std::int64_t c = 0; c < count; ++c) drawn.push_back(c * 77);
    on->read_points(drawn, rows.data());
    on->begin_candidates();
    (void)on->take_candidates(rows.data(), 5);
    (void)on->take_candidates(rows.data() + 5 * n, count - 5);
    return on->weigh_candidates();
  };
  subject<T> clean(backend::cuda, row_major(x.data(), m, n), {}, 6);
  const core::vector<double> expected = weigh(clean);
  int changed = 0, detected = 0;
  for (std::uint64_t number = 0; number < (test::sampled() ? 8u : 40u); ++number) {
    inject::request fault = fault_at(kmeans::site::index, inject::model::bit_flip, number, 0);
    fault.bit = static_cast<int>(number % 3);
    const inject::plan faults({fault});
    subject<T> found(backend::cuda, row_major(x.data(), m, n), {}, 6, protection::correct, &faults, true);
    EXPECT_EQ(weigh(found), expected);
    detected += found.seen.finish().detected > 0;
    subject<T> bare(backend::cuda, row_major(x.data(), m, n), {}, 6, protection::off, &faults, true);
    changed += weigh(bare) != expected;
  }
  EXPECT_GT(detected, 0);
  EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
}

// A fault in any of the kernels that prepare the points: the ranges, the normalized points, the row statistics, the totals.
TYPED_TEST(kmeans_cuda, preparation_is_protected) {
  using T = TypeParam;
  const std::int64_t m = 1500, n = 6;
  const std::vector<T> x = bands<T>(m, n, 7), w = some_weights<T>(m);
  const auto points = row_major(x.data(), m, n);
  int detected = 0, changed = 0;
  for (const bool weighted : {false, true}) {
    const std::vector<T>& weights = weighted ? w : std::vector<T>{};
    const auto prepare = [&](subject<T>& on) {
      (void)on->column_stats();
      std::vector<double> made;
      on->normalize(normalization_of<T>(n, weighted));
      const point_sums sums = on->measure();
      std::vector<T> rows(static_cast<std::size_t>(m * n));
      std::vector<std::int64_t> all;
      for (std::int64_t i = 0; i < m; ++i) all.push_back(i);
      on->read_points(all, rows.data());
      for (const auto* more : {&sums.first, &sums.plain, &sums.squares}) made.insert(made.end(), more->begin(), more->end());
      made.push_back(sums.total_square);
      made.insert(made.end(), rows.begin(), rows.end());
      return made;
    };
    subject<T> clean(backend::cuda, points, weights, 3);
    const std::vector<double> expected = prepare(clean);
    EXPECT_EQ(clean.seen.finish().verdict, verdict::clean);
    for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
      for (std::uint64_t number = 0; number < (test::sampled() ? 3u : 8u); ++number) {
        const auto visit = static_cast<std::int64_t>(number % 5);
        const inject::plan faults({fault_at(kmeans::site::points, static_cast<inject::model>(model), number, visit)});
        SCOPED_TRACE(std::string(inject::k_model_names[model]) + " " + std::to_string(number));
        subject<T> found(backend::cuda, points, weights, 3, protection::correct, &faults);
        const std::vector<double> made = prepare(found);
        const report seen = found.seen.finish();
        detected += seen.detected > 0;
        if (seen.verdict != verdict::uncorrectable) {
          EXPECT_EQ(made, expected);
        }
        subject<T> bare(backend::cuda, points, weights, 3, protection::off, &faults);
        const bool matters = prepare(bare) != expected;
        changed += matters;
        if (seen.detected == 0) {
          EXPECT_FALSE(matters);
        }
      }
    }
  }
  EXPECT_GT(detected, 0);
  EXPECT_GT(changed, 0);
}

// Handwritten digits, 1797 × 64: on a device the host would wait for longer than it computes.
TEST(kmeans_choice, small_problems_of_the_host_stay_there) {
  const test::current_device_guard guard(std::make_shared<simt::emulated_device>());
  const std::vector<float> x = bands<float>(1797, 64, 12);
  const auto digits = row_major(x.data(), 1797, 64);
  for (const init way : {init::kmeans_plus_plus, init::random, init::kmeans_parallel}) {
    for (const int runs : {1, 10}) {
      const auto found = fit(digits, {.clusters = 10, .init = way, .n_init = runs, .max_iter = 1}, {.threads = 8});
      EXPECT_EQ(found.report.backend, backend::cpu) << to_string(way) << " " << runs;
    }
  }
  EXPECT_EQ(predict(digits, row_major(x.data(), 10, 64), {.threads = 8}).report.backend, backend::cpu);
  const std::vector<float> more = bands<float>(8192, 40, 13);
  EXPECT_EQ(predict(row_major(more.data(), 8192, 40), row_major(more.data(), 64, 40), {.threads = 1}).report.backend, backend::cuda);
}

TYPED_TEST(kmeans_cuda, transform_is_that_of_the_reference_and_protected) {
  using T = TypeParam;
  for (const auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {100, 3, 7}, {600, 20, 70}, {65, 33, 150}}) {
    const std::vector<T> x = bands<T>(m, n, 8), c = bands<T>(k, n, 9);
    const auto points = row_major(x.data(), m, n), centroids = row_major(c.data(), k, n);
    const auto expected = transform(points, centroids, {.backend = backend::reference});
    const auto found = transform(points, centroids, {.backend = backend::cuda});
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(found.report.backend, backend::cuda);
    for (std::size_t e = 0; e < found.values.size(); ++e)
      EXPECT_NEAR(found.values.data()[e], expected.values.data()[e], 1e2 * k_u<T> * (1 + expected.values.data()[e]));
    if (m < 600) continue;
    for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
      const inject::plan faults({fault_at(kmeans::site::product, static_cast<inject::model>(model), model, 0)});
      run::settings how{.backend = backend::cuda, .throw_on_uncorrectable = false, .faults = &faults};
      const auto struck = transform(points, centroids, how);
      const auto equal = [&](const matrix<T>& a) { return std::equal(a.data(), a.data() + a.size(), found.values.data()); };
      EXPECT_GT(struck.report.detected, 0u) << inject::k_model_names[model];
      if (struck.report.verdict != verdict::uncorrectable) {
        EXPECT_TRUE(equal(struck.values));
      }
      how.protection = protection::off;
      EXPECT_FALSE(equal(transform(points, centroids, how).values)) << inject::k_model_names[model];
    }
  }
}

// Distances from points to neighbours that rounding of normalized coordinates would spoil, of features that one thread adds and of
// features that a warp adds: each has an error relative to itself.
TYPED_TEST(kmeans_cuda, short_distances_are_those_of_the_coordinates_as_given) {
  using T = TypeParam;
  constexpr std::int64_t m = 140, k = 66;
  for (const std::int64_t n : {5, 63, 70, 130}) {
    const std::vector<T> x = bands<T>(m, n, 8);
    std::vector<T> c(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(k * n));
    for (std::int64_t j = 0; j < k; ++j) c[at(j * n + j % n)] += static_cast<T>(j) * 64 * k_u<T>;  // row 0 is centroid 0
    const auto found = transform(row_major(x.data(), m, n), row_major<const T>(c.data(), k, n), {.backend = backend::cuda});
    EXPECT_EQ(found.report.verdict, verdict::clean);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < k; ++j) {
        long double sum = 0;
        for (std::int64_t f = 0; f < n; ++f) {
          const long double d = static_cast<long double>(x[at(i * n + f)]) - static_cast<long double>(c[at(j * n + f)]);
          sum += d * d;
        }
        const auto expected = static_cast<double>(std::sqrt(sum));
        EXPECT_NEAR(static_cast<double>(found.values(i, j)), expected, (static_cast<double>(n) / 2 + 16) * k_u<T> * expected)
            << n << ": " << i << " " << j;
      }
    }
  }
}

// Most rows lie between two centroids, so that a second look decides them. Labels are struck when they are found, in the second look and
// when they are stored: what is handed out are the nearest centroids, or a report says why not.
TYPED_TEST(kmeans_cuda, a_struck_label_is_not_handed_out) {
  using T = TypeParam;
  const std::int64_t m = 150, n = 6, k = 5;
  std::vector<T> c = bands<T>(k, n, 3), x;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < m; ++i) {
    const std::int64_t a = i % k, b = (i + 1 + i / k % (k - 1)) % k;
    for (std::int64_t f = 0; f < n; ++f) {
      const double middle = (static_cast<double>(c[at(a * n + f)]) + static_cast<double>(c[at(b * n + f)])) / 2;
      x.push_back(static_cast<T>(middle + 1e-5 * normal(random)));
    }
  }
  const auto points = row_major(x.data(), m, n), centroids = row_major(static_cast<const T*>(c.data()), k, n);
  run::settings how{.backend = backend::cuda, .threads = 1, .throw_on_uncorrectable = false};
  const auto squared = [&](std::int64_t i, std::int32_t j) {
    double sum = 0;
    for (std::int64_t f = 0; f < n; ++f) sum += std::pow(static_cast<double>(points(i, f)) - static_cast<double>(centroids(j, f)), 2);
    return sum;
  };
  request<T> wanted{.clusters = k, .init = init::given, .centroids = centroids, .max_iter = 2, .tol = 0};
  const auto right = predict(points, centroids, how);
  const auto model = fit(points, wanted, how);
  ASSERT_EQ(right.report.verdict, verdict::clean);
  int repaired = 0, reached = 0;
  for (std::size_t kind = 0; kind < inject::k_model_names.size(); ++kind) {
    for (std::uint64_t seed = 0; seed < (test::sampled() ? 12u : 36u); ++seed) {
      SCOPED_TRACE(std::string(inject::k_model_names[kind]) + " " + std::to_string(seed));
      const inject::plan faults({fault_at(kmeans::site::label, static_cast<inject::model>(kind), seed, 0)});
      how.faults = &faults;
      how.protection = protection::correct;
      const auto seen = predict(points, centroids, how);
      const auto fitted = fit(points, wanted, how);
      if (seen.report.verdict != verdict::uncorrectable) {
        for (std::int64_t i = 0; i < m; ++i) {
          const double best = squared(i, right.labels[at(i)]);
          ASSERT_LE(squared(i, seen.labels[at(i)]) - best, 64 * k_u<T> * best) << i << " has " << seen.labels[at(i)];
        }
      }
      if (fitted.report.verdict != verdict::uncorrectable) {
        EXPECT_EQ(fitted.labels, model.labels);
        EXPECT_EQ(fitted.inertia, model.inertia);
      }
      repaired += (seen.report.detected > 0) + (fitted.report.detected > 0);
      how.protection = protection::off;
      reached += predict(points, centroids, how).labels != right.labels;
    }
  }
  EXPECT_GT(repaired, sizeof(T) == 4 ? 15 : 1);  // in f64 there are no second looks
  EXPECT_GT(reached, sizeof(T) == 4 ? 5 : 0);
}

}  // namespace
}  // namespace ballast::kmeans
