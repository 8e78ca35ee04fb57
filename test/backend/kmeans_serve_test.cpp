// predict of points as they are given (serve.cuh): its labels and inertia are those of the final pass of a fit, which prepares the points;
// and faults at every site of the kernel are found.
// Layer: backend tests, on the emulator.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/cuda/layout/serve_args.hpp"
#include "kmeans/sites.hpp"
#include "support/half_precision.hpp"
#include "support/struck_device.hpp"

namespace ballast::kmeans {
namespace {

using T = float;

run::settings how(protection level, const inject::plan* faults = nullptr) {
  return {.backend = backend::cuda, .threads = 1, .protection = level, .throw_on_uncorrectable = false, .faults = faults};
}

// Counts the launches of kernels by name.
struct kernels_counted {
  std::shared_ptr<test::struck_device> device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  test::current_device_guard here{device};

  // Calls use() and returns how often it launched these kernels.
  template <class Use>
  std::pair<std::int64_t, std::int64_t> launches(const char* one, const char* other, Use&& use) {
    const auto nothing = [](const void*) {};
    device->strikes = {{one, 0, nothing}, {other, 0, nothing}};
    use();
    return {device->strikes[0].seen, device->strikes[1].seen};
  }
};

// Points as a call gets them: in float, or cut to half precision; `wide` has the same numbers in float.
enum class stored : std::uint8_t { f32, f16, bf16 };
constexpr stored k_stored[] = {stored::f32, stored::f16, stored::bf16};
constexpr const char* name_of(stored kind) { return kind == stored::f32 ? "f32" : kind == stored::f16 ? "f16" : "bf16"; }

struct stored_points {
  stored kind;
  data_set<T> wide;
  std::vector<float16> halves;
  std::vector<bfloat16> brains;

  stored_points(stored as, data_set<T> from) : kind(as), wide(std::move(from)) {
    if (kind == stored::f32) return;
    for (T& each : wide.values) {
      const test::cut_number kept = test::cut_to_half(each, kind == stored::bf16);
      each = kept.value;
      halves.push_back({kept.bits});
      brains.push_back({kept.bits});
    }
  }
  prediction labelled(const matrix_view<const T>& centroids, const run::settings& where) const {
    data<T> from;
    from.centroids = centroids;
    if (kind == stored::f32) {
      from.points = wide.view();
    } else if (kind == stored::f16) {
      from.half = row_major(halves.data(), wide.m, wide.n);
    } else {
      from.half = row_major(brains.data(), wide.m, wide.n);
    }
    return test_calls::predict_any(from, where);
  }
};

struct kind_of_points {
  const char* name;
  data_set<T> (*make)(std::int64_t m, std::int64_t n, std::int64_t k);
};

data_set<T> changed(data_set<T> of, const auto& change) {
  for (std::size_t e = 0; e < of.values.size(); ++e) of.values[e] = change(of.values[e], static_cast<std::int64_t>(e));
  return of;
}

const kind_of_points k_kinds[] = {
    {"clouds", [](std::int64_t m, std::int64_t n, std::int64_t k) { return clouds<T>(m, n, k, 7, 0.4); }},
    {"noise", [](std::int64_t m, std::int64_t n, std::int64_t) { return clouds<T>(m, n, 1, 8, 1.0); }},
    {"whole numbers", [](std::int64_t m, std::int64_t n,
                         std::int64_t k) { return changed(clouds<T>(m, n, k, 9, 1.0), [](T x, std::int64_t) { return std::round(x); }); }},
    {"far from the origin", [](std::int64_t m, std::int64_t n, std::int64_t k) { return clouds<T>(m, n, k, 10, 0.4, 1e4); }},
    {"narrow clouds far apart", [](std::int64_t m, std::int64_t n, std::int64_t k) { return clouds<T>(m, n, k, 11, 1e-6); }},
    {"tiny", [](std::int64_t m, std::int64_t n, std::int64_t k) { return clouds<T>(m, n, k, 12, 0.4, 0, 1e-30); }},
    {"huge", [](std::int64_t m, std::int64_t n, std::int64_t k) { return clouds<T>(m, n, k, 13, 0.4, 0, 1e30); }},
    {"fill values",
     [](std::int64_t m, std::int64_t n, std::int64_t k) {
       return changed(clouds<T>(m, n, k, 14, 0.4), [&](T x, std::int64_t e) { return e % 97 == 5 ? T(1e20) : x; });
     }},
    {"equal points", [](std::int64_t m, std::int64_t n, std::int64_t k) {
       auto made = clouds<T>(m, n, k, 15, 0.4);
       for (std::int64_t e = n * (m / 2); e < n * m; ++e)
         made.values[static_cast<std::size_t>(e)] = made.values[static_cast<std::size_t>(e % n)];
       return made;
     }}};

// Returns whether to try number `number` of a list whose first is number 0: with the effort smoke one in `every`.
bool tried(std::size_t number, std::size_t every) { return test::chosen_effort() > test::effort::smoke || number % every == 0; }

TEST(kmeans_serve, labels_and_inertia_are_those_of_a_fit) {
  kernels_counted counted;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{700, 6, 5}, {300, 3, 20}, {300, 40, 300}, {400, 2, 128}, {257, 300, 9}, {16, 6, 5}}) {
    for (const kind_of_points& kind : k_kinds) {
      const auto number = static_cast<std::size_t>(&kind - k_kinds);
      if (n * k > 100 && !tried(number + static_cast<std::size_t>(n), 3)) continue;
      for (const protection level : {protection::correct, protection::off}) {
        if (level == protection::off && k > 20) continue;
        SCOPED_TRACE(std::string(kind.name) + ": " + std::to_string(m) + " × " + std::to_string(n) + ", k " + std::to_string(k));
        const data_set<T> points = kind.make(m, n, k);
        const request<T> wanted{.clusters = k, .init = init::given, .centroids = points.rows(std::min(k, m)), .max_iter = 1, .tol = 0};
        if (k > m) continue;
        model<T> expected;
        const auto [none, passes] =
            counted.launches("serve_kernel", "exact_kernel", [&] { expected = fit(points.view(), wanted, how(level)); });
        EXPECT_EQ(none, 0);
        EXPECT_GT(passes, 0);
        prediction found;
        const auto [served, prepared] = counted.launches("serve_kernel", "row_stats_kernel",
                                                         [&] { found = predict(points.view(), expected.centroids.view(), how(level)); });
        EXPECT_EQ(served, 1);
        EXPECT_EQ(prepared, 0);
        EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
        EXPECT_EQ(found.labels, expected.labels);
        EXPECT_EQ(found.inertia, expected.inertia);
      }
    }
  }
}

// Points of 16 bits: the labels and the inertia of a fit of the same numbers in float.
TEST(kmeans_serve, half_precision) {
  kernels_counted counted;
  std::size_t number = 0;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{700, 6, 5}, {300, 40, 300}, {257, 300, 9}}) {
    for (const kind_of_points& kind : {k_kinds[0], k_kinds[1], k_kinds[2], k_kinds[3]}) {
      for (const stored as : {stored::f16, stored::bf16}) {
        if (n * k > 100 && !tried(number++, 3)) continue;
        SCOPED_TRACE(std::string(kind.name) + ": " + name_of(as) + " " + std::to_string(m) + " × " + std::to_string(n));
        const stored_points points(as, kind.make(m, n, k));
        const request<T> wanted{.clusters = k, .init = init::given, .centroids = points.wide.rows(std::min(k, m)), .max_iter = 1, .tol = 0};
        const model<T> expected = fit(points.wide.view(), wanted, how(protection::correct));
        for (const protection level : {protection::correct, protection::off}) {
          if (level == protection::off && k > 20) continue;
          prediction found;
          const auto [served, prepared] =
              counted.launches("serve_kernel", "row_stats_kernel", [&] { found = points.labelled(expected.centroids.view(), how(level)); });
          EXPECT_EQ(served, 1);
          EXPECT_EQ(prepared, 0);
          EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
          EXPECT_EQ(found.labels, expected.labels);
          EXPECT_EQ(found.inertia, expected.inertia);
        }
      }
    }
  }
}

// Centroids at the corners of a cube of three features, in an order of their own, and points between two, four and eight of them, or
// almost. All numbers and their distances are exact, so the label is the lowest index among the nearest.
struct cube {
  static constexpr std::int64_t k_features = 6, k_corners = 8;
  data_set<T> centroids{k_corners, k_features, std::vector<T>(static_cast<std::size_t>(k_corners* k_features))};

  cube() {
    for (std::int64_t j = 0; j < k_corners; ++j)
      for (std::int64_t f = 0; f < k_features; ++f) centroids.values[static_cast<std::size_t>(j * k_features + f)] = corner(j * 5 % 8, f);
  }
  static T corner(std::int64_t j, std::int64_t f) { return f >= 3 ? T(0) : (j >> f) % 2 == 0 ? T(-1) : T(1); }
  // Each point has its mirror image, so the mean is 0.
  static data_set<T> points(std::int64_t m) {
    data_set<T> made{m, k_features, std::vector<T>(static_cast<std::size_t>(m * k_features))};
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t own = i / 2;
      for (std::int64_t f = 0; f < k_features; ++f) {
        const bool between = f < 3 && (own % 8 >> f) % 2 != 0, almost = own % 3 == f;
        const T x = between ? (almost && own % 16 >= 8 ? T(0x1p-12) : T(0)) : corner(own / 8, f) * T(0.5);
        made.values[static_cast<std::size_t>(i * k_features + f)] = i % 2 == 0 ? x : -x;
      }
    }
    return made;
  }
  std::vector<std::int32_t> nearest(const data_set<T>& points) const {
    std::vector<std::int32_t> made;
    for (std::int64_t i = 0; i < points.m; ++i) {
      std::int32_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::int32_t j = 0; j < k_corners; ++j) {
        double distance = 0;
        for (std::int64_t f = 0; f < k_features; ++f) {
          const double d = static_cast<double>(points.view()(i, f)) - static_cast<double>(centroids.view()(j, f));
          distance += d * d;
        }
        if (distance < least) least = distance, best = j;
      }
      made.push_back(best);
    }
    return made;
  }
};

TEST(kmeans_serve, ties_of_two_and_more_centroids) {
  const test::current_device_guard here(std::make_shared<simt::emulated_device>());
  const cube corners;
  for (const stored as : k_stored) {
    SCOPED_TRACE(name_of(as));
    const stored_points points(as, cube::points(600));
    for (const protection level : {protection::correct, protection::off}) {
      const auto found = points.labelled(corners.centroids.view(), how(level));
      EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
      EXPECT_EQ(found.labels, corners.nearest(points.wide));
    }
  }
}

// The same points with other strides: by columns, and rows that do not begin where a whole load can.
TEST(kmeans_serve, strides) {
  const test::current_device_guard here(std::make_shared<simt::emulated_device>());
  const std::int64_t m = 300, n = 6, k = 5;
  const auto points = clouds<T>(m, n, k, 17, 0.8);
  const auto expected = predict(points.view(), points.rows(k), how(protection::correct));
  for (const bool by_columns : {false, true}) {
    for (const std::int64_t gap : {0, 1, 2}) {
      const std::int64_t apart = (by_columns ? m : n) + gap;
      std::vector<T> memory(static_cast<std::size_t>(apart * (by_columns ? n : m) + gap), std::numeric_limits<T>::quiet_NaN());
      matrix_view<T> view{memory.data() + gap, m, n, by_columns ? 1 : apart, by_columns ? apart : 1};
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t f = 0; f < n; ++f) view(i, f) = points.view()(i, f);
      const auto found = predict(matrix_view<const T>(view), points.rows(k), how(protection::correct));
      EXPECT_EQ(found.labels, expected.labels);
      EXPECT_EQ(found.inertia, expected.inertia);
    }
  }
}

// Weighted points are prepared; the labels are the same.
TEST(kmeans_serve, weighted_points_are_prepared) {
  kernels_counted counted;
  const auto points = clouds<T>(300, 6, 5, 18, 0.8);
  const std::vector<T> ones(300, T(1));
  const auto expected = predict(points.view(), points.rows(5), how(protection::correct));
  prediction found;
  const auto [served, prepared] = counted.launches("serve_kernel", "row_stats_kernel", [&] {
    found = predict(points.view(), points.rows(5), std::span<const T>(ones), how(protection::correct));
  });
  EXPECT_EQ(served, 0);
  EXPECT_GT(prepared, 0);
  EXPECT_EQ(found.labels, expected.labels);
  EXPECT_EQ(found.inertia, expected.inertia);
}

// Points that lie half-way between two centroids, or almost: labels that only exact distances decide.
data_set<T> near_ties(const data_set<T>& centroids, std::int64_t m) {
  const std::int64_t n = centroids.n, k = centroids.m;
  data_set<T> made{m, n, std::vector<T>(static_cast<std::size_t>(m * n))};
  for (std::int64_t e = 0; e < m * n; ++e) {
    const std::int64_t i = e / n, f = e % n, a = i % k, b = (i + 1 + i / k % (k - 1)) % k;
    const double step = i % 3 == 0 ? 0.3 : 1e-5 * (static_cast<double>(i % 6) - 2.5);
    const double from = centroids.view()(a, f), to = centroids.view()(b, f);
    made.values[static_cast<std::size_t>(e)] = static_cast<T>(from + (to - from) * (0.5 + step));
  }
  return made;
}

// The same of numbers of 16 bits: rounding moves points by more than near_ties() puts them beside the middle, so these are the points that
// lie there after it.
data_set<T> near_ties_of_16_bits(const data_set<T>& centroids, std::int64_t m, bool brain) {
  const std::int64_t n = centroids.n, k = centroids.m;
  data_set<T> made{m, n, {}};
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> beside(-0.02, 0.02);
  std::vector<T> point(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; std::ssize(made.values) < m * n; ++i) {
    const std::int64_t a = i % k, b = (i + 1 + i / k % (k - 1)) % k;
    double gap = 0, apart = 0;  // the difference of the squared distances, and the squared distance of the centroids
    for (std::int64_t f = 0; f < n; ++f) {
      const double from = centroids.view()(a, f), to = centroids.view()(b, f);
      const T x = test::cut_to_half(static_cast<T>((from + to) / 2 + beside(random)), brain).value;
      point[static_cast<std::size_t>(f)] = x;
      gap +=
          (static_cast<double>(x) - from) * (static_cast<double>(x) - from) - (static_cast<double>(x) - to) * (static_cast<double>(x) - to);
      apart += (to - from) * (to - from);
    }
    if (std::abs(gap) < 5e-5 * apart) made.values.insert(made.values.end(), point.begin(), point.end());
  }
  return made;
}

void strike_every_site(const stored_points& points, const matrix_view<const T>& centroids, std::uint64_t seeds) {
  const test::current_device_guard here(std::make_shared<simt::emulated_device>());
  const auto clean = points.labelled(centroids, how(protection::correct));
  ASSERT_EQ(clean.report.verdict, verdict::clean);
  for (const char* name : {"kmeans.range", "kmeans.normalization", "kmeans.points", "kmeans.norm", "kmeans.product", "kmeans.minimum",
                           "kmeans.index", "kmeans.label", "kmeans.centroid", "kmeans.inertia", "kmeans.threshold"}) {
    const inject::site where = inject::site_of(name);
    int detected = 0, changed = 0;
    for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        // With the effort smoke a third, but all until one was detected and one reached the output.
        if (detected > 0 && changed > 0 && !tried(model + seed, 3)) continue;
        inject::request fault = fault_at(where, static_cast<inject::model>(model), seed);
        // Two sums of the inertia may differ by the rounding of another order of additions.
        if (seed % 2 == 1 && where != site::inertia) fault.bit = -1;
        const inject::plan faults({fault});
        SCOPED_TRACE(std::string(name_of(points.kind)) + ' ' + name + ' ' + std::string(inject::k_model_names[model]) + " seed " +
                     std::to_string(seed));
        const auto found = points.labelled(centroids, how(protection::correct, &faults));
        detected += found.report.detected > 0;
        if (found.report.verdict == verdict::uncorrectable) {
          EXPECT_EQ(fault.model, inject::model::stuck_at);
        } else {
          EXPECT_EQ(found.labels, clean.labels) << to_json(found.report);
          EXPECT_EQ(found.inertia, clean.inertia) << to_json(found.report);
        }
        const auto bare = points.labelled(centroids, how(protection::off, &faults));
        EXPECT_EQ(bare.report.detected, 0u);
        changed += bare.labels != clean.labels || bare.inertia != clean.inertia;
      }
    }
    EXPECT_GT(detected, 0) << name;
    EXPECT_GT(changed, 0) << name << ": with protection off no fault reached the output";
  }
}

TEST(kmeans_serve, faults_at_every_site) {
  const auto centroids = clouds<T>(5, 6, 5, 3, 0.0);
  strike_every_site({stored::f32, near_ties(centroids, 256)}, centroids.view(), test::sampled() ? 3U : 24U);
}

TEST(kmeans_serve, faults_at_every_site_of_half_precision) {
  const auto centroids = clouds<T>(5, 6, 5, 3, 0.0);
  for (const stored as : {stored::f16, stored::bf16})
    strike_every_site({as, near_ties_of_16_bits(centroids, 256, as == stored::bf16)}, centroids.view(), test::sampled() ? 3U : 8U);
}

// Faults in memory between the launches, and a report of what was found without a repair.
TEST(kmeans_serve, faults_between_launches) {
  const auto device = std::make_shared<test::struck_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard here(device);
  const auto points = clouds<T>(300, 6, 5, 21, 0.8);
  const auto clean = predict(points.view(), points.rows(5), how(protection::correct));
  using arguments = cuda::serve_arguments<T>;
  struct change {
    const char* what;
    const char* kernel;
    std::function<void(const arguments&)> make;
  };
  const std::vector<change> changes = {
      {"a packed number", "serve_pack_kernel",
       [&](const arguments& a) { device->set(a.centroids[0].packed + 3, static_cast<std::uint16_t>(0x4800)); }},
      {"a start value", "serve_pack_kernel", [&](const arguments& a) { device->set(a.centroids[0].starts + 1, T(50)); }},
      {"a plain centroid", "serve_pack_kernel", [&](const arguments& a) { device->alter(a.centroids[0].plain + 7, 0.5); }},
      {"the shift", "serve_pack_kernel", [&](const arguments& a) { device->alter(a.centroids[0].shift + 2, 3); }},
      {"a sum", "serve_kernel", [&](const arguments& a) { device->alter(a.sums, 1); }},
  };
  for (const change& each : changes) {
    SCOPED_TRACE(each.what);
    const auto strike = [&] {
      device->strikes = {{each.kernel, 0, [&](const void* of) { each.make(*static_cast<const arguments*>(of)); }}};
    };
    strike();
    const auto found = predict(points.view(), points.rows(5), how(protection::correct));
    EXPECT_TRUE(device->strikes[0].met());
    EXPECT_EQ(found.report.verdict, verdict::recomputed) << to_json(found.report);
    EXPECT_EQ(found.labels, clean.labels);
    EXPECT_EQ(found.inertia, clean.inertia);
    strike();
    EXPECT_EQ(predict(points.view(), points.rows(5), how(protection::detect)).report.verdict, verdict::uncorrectable);
    strike();
    const auto bare = predict(points.view(), points.rows(5), how(protection::off));
    EXPECT_EQ(bare.report.detected, 0u);
    EXPECT_TRUE(bare.labels != clean.labels || bare.inertia != clean.inertia);
  }
  device->strikes.clear();
}

// transform of points as they are given: no prepared copy; and the shift of one of the two loads changes in memory after the columns were
// measured.
template <class Real>
void transforms_without_a_copy() {
  kernels_counted counted;
  const std::int64_t m = 300, n = 6, k = 5;
  const auto points = clouds<Real>(m, n, k, 31, 0.8, 3);
  const plan<Real> made({.precision = sizeof(Real) == 4 ? precision::f32 : precision::f64, .points = m, .features = n, .clusters = k}, {},
                        {.backend = backend::cuda, .threads = 1});
  std::vector<Real> values(static_cast<std::size_t>(m * k)), expected;
  const auto call = [&] {
    return made.transform({.points = points.view(), .centroids = points.rows(k)}, row_major(values.data(), m, k),
                          {.throw_on_uncorrectable = false});
  };
  const Real* shift[2] = {};
  const auto [prepared, computed] = counted.launches("row_stats_kernel", "distances_kernel", [&] { (void)call(); });
  EXPECT_EQ(prepared, 0);
  EXPECT_EQ(computed, 1);
  expected = values;
  for (const int which : {0, 1}) {
    counted.device->strikes = {{"distances_kernel", 0, [&](const void* of) {
                                  for (int s = 0; s < 2; ++s) shift[s] = static_cast<const cuda::distances_arguments<Real>*>(of)->shift[s];
                                }}};
    (void)call();
    counted.device->strikes = {{"fold_kernel", 1, [&](const void*) { counted.device->alter(shift[which] + 2, 1.0); }}};
    const report seen = call();
    EXPECT_TRUE(counted.device->strikes[0].met());
    EXPECT_EQ(seen.verdict, verdict::recomputed) << to_json(seen);
    EXPECT_EQ(values, expected);
  }
  counted.device->strikes.clear();
}
TEST(kmeans_serve, transforms_without_a_copy_in_f32) { transforms_without_a_copy<float>(); }
TEST(kmeans_serve, transforms_without_a_copy_in_f64) { transforms_without_a_copy<double>(); }

}  // namespace
}  // namespace ballast::kmeans
