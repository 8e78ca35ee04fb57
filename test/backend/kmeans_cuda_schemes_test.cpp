// The schemes of FT K-Means on the emulator: labels against distances in double, with and without injected faults.
// Layer: backend tests.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/kmeans_cuda_schemes.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/sites.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/kmeans_calls.hpp"

namespace {

using namespace ballast;
using scheme_test::scheme_case;

template <class T>
constexpr double k_u = std::numeric_limits<T>::epsilon() / 2;

class kmeans_cuda_schemes : public testing::Test {
 protected:
  const std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>(simt::emulated_capabilities(2));
  const test::current_device_guard guard_{device_};
};

// Points around centres, and the first k of them as centroids.
template <class T>
struct data {
  kmeans::problem shape;
  std::vector<T> points, centroids, weights;

  explicit data(const scheme_case& what) : shape(what.problem()) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < shape.points; ++i)
      for (std::int64_t f = 0; f < shape.features; ++f)
        points.push_back(static_cast<T>(3 * static_cast<double>((i * 7 + f) % 5) + normal(random)));
    centroids.assign(points.begin(), points.begin() + shape.clusters * shape.features);
  }
  matrix_view<const T> x() const { return row_major(points.data(), shape.points, shape.features); }
  matrix_view<const T> c() const { return row_major(centroids.data(), shape.clusters, shape.features); }
  double distance(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t f = 0; f < shape.features; ++f) {
      const double d = static_cast<double>(x()(i, f)) - static_cast<double>(c()(j, f));
      sum += d * d;
    }
    return sum;
  }
  // How much farther than the nearest centroid the chosen one of any point is, in units of ‖x − c‖ · size, size that of the data.
  double worst(const std::vector<std::int32_t>& labels) const {
    double size = 0, most = 0;
    for (const T each : points) size = std::max(size, std::abs(static_cast<double>(each)));
    for (std::int64_t i = 0; i < shape.points; ++i) {
      double nearest = distance(i, 0);
      for (std::int64_t j = 1; j < shape.clusters; ++j) nearest = std::min(nearest, distance(i, j));
      most = std::max(most,
                      (distance(i, labels[static_cast<std::size_t>(i)]) - nearest) / (size * size * static_cast<double>(shape.features)));
    }
    return most;
  }
};

// How far from the nearest a label may be: the rounding of the operands, TF32's 2^-11 in f32 on tensor cores.
template <class T>
double allowed(const scheme_case& what) {
  return what.coarse() ? 0x1p-10 : 8 * k_u<T>;
}

run::settings with(const scheme_case& what, protection level, const inject::plan* faults = nullptr) {
  run::settings how;
  how.backend = backend::cuda;
  how.scheme = what.scheme;
  how.protection = what.protects() ? level : protection::off;
  how.throw_on_uncorrectable = false;
  how.faults = faults;
  return how;
}

// body(case, a value of the type of its data).
template <class Body>
void each_case(Body&& body) {
  for (const scheme_case& each : scheme_test::cases()) {
    SCOPED_TRACE(each.scheme + " " + each.token);
    if (each.wide()) {
      body(each, double());
    } else {
      body(each, float());
    }
  }
}

template <class T>
kmeans::prediction predict(const data<T>& held, const scheme_case& what, protection level = protection::correct,
                           const inject::plan* faults = nullptr) {
  return kmeans::predict(held.x(), held.c(), with(what, level, faults));
}

template <class T>
kmeans::model<T> fit(const data<T>& held, const scheme_case& what, int iterations, const inject::plan* faults = nullptr) {
  kmeans::request<T> wanted;
  wanted.clusters = held.shape.clusters;
  wanted.init = kmeans::init::given;
  wanted.centroids = held.c();
  wanted.weights = held.weights;
  wanted.max_iter = iterations;
  wanted.tol = 0;
  return kmeans::fit(held.x(), wanted, with(what, protection::correct, faults));
}

TEST_F(kmeans_cuda_schemes, find_the_nearest_centroids) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    const data<T> held(what);
    const auto found = predict(held, what);
    EXPECT_EQ(found.report.verdict, verdict::clean);
    EXPECT_EQ(found.report.scheme, what.scheme);
    EXPECT_EQ(found.report.checks > 0, what.protects());
    EXPECT_LE(held.worst(found.labels), allowed<T>(what));
  });
}

TEST_F(kmeans_cuda_schemes, fit_as_the_reference_does) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    data<T> held(what);
    const bool weights = what.token == "kmeans_f32_m300_n17_k7" || what.token == "kmeans_f64_m150_n9_k70";
    for (const bool weighted : {false, true}) {
      if (weighted && !(weights && what.scheme == "warp_checksum")) continue;
      if (weighted)
        for (std::int64_t i = 0; i < held.shape.points; ++i)
          held.weights.push_back(static_cast<T>(i % 5 == 0 ? 0 : 0.25 * static_cast<double>(i % 3 + 1)));
      kmeans::request<T> wanted;
      wanted.clusters = held.shape.clusters;
      wanted.init = kmeans::init::given;
      wanted.centroids = held.c();
      wanted.weights = held.weights;
      wanted.max_iter = 2;
      wanted.tol = 0;
      const auto right = kmeans::fit(held.x(), wanted, {.backend = backend::reference});
      const auto found = fit(held, what, 2);
      EXPECT_EQ(found.report.verdict, verdict::clean);
      EXPECT_EQ(found.iterations, right.iterations);
      EXPECT_NEAR(found.inertia, right.inertia, (what.coarse() ? 2e-2 : 1e-5) * right.inertia);
      // If products are not rounded, labels differ in ties only, and these data have no tie.
      if (!what.coarse()) {
        EXPECT_EQ(found.labels, right.labels);
      }
    }
  });
}

TEST_F(kmeans_cuda_schemes, are_refused_where_they_mean_nothing) {
  const data<float> held(scheme_test::cases()[0]);
  const auto refused = [&](const std::string& scheme, protection level, backend where = backend::cuda) {
    run::settings how;
    how.backend = where;
    how.scheme = scheme;
    how.protection = level;
    try {
      (void)kmeans::predict(held.x(), held.c(), how);
    } catch (const unsupported_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* scheme : {"naive", "gemm", "fused", "broadcast", "tensor"})
    EXPECT_NE(refused(scheme, protection::correct).find("no protection"), std::string::npos) << scheme;
  for (const char* scheme : {"warp_checksum", "detect_recompute", "threadblock_checksum"})
    EXPECT_NE(refused(scheme, protection::off).find("expected protection"), std::string::npos) << scheme;
  const std::string unknown = refused("e3", protection::correct);
  for (const auto name : kmeans::cuda::schemes()) EXPECT_NE(unknown.find(name), std::string::npos) << name;
  EXPECT_NE(refused("naive", protection::off, backend::reference).find("expected one of row_checksum"), std::string::npos);
  run::settings how = {.backend = backend::cuda, .protection = protection::off, .scheme = "naive"};
  EXPECT_THROW((void)kmeans::transform(held.x(), held.c(), how), unsupported_error);
}

inject::plan fault_at(inject::site site, inject::model model, std::uint64_t seed, int bit = 62, std::int64_t visit = 0) {
  inject::request made;
  made.visit = visit;
  made.site = site;
  made.model = model;
  made.seed = seed;
  if (model == inject::model::bit_flip || model == inject::model::two_bits || model == inject::model::vector_mask) made.bit = bit;
  return inject::plan({made});
}

// One wrong product: the schemes that locate it correct it and compute nothing again; the other one computes the tile again.
TEST_F(kmeans_cuda_schemes, repair_a_wrong_product) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (!what.protects()) return;
    const data<T> held(what);
    const auto right = predict(held, what);
    const bool places = what.does().check != kmeans::cuda::tile_check::detect;
    int repaired = 0, corrected = 0;
    for (const auto model : {inject::model::bit_flip, inject::model::random_value, inject::model::infinity, inject::model::nan}) {
      for (std::uint64_t seed = 0; seed < (test::sampled() ? 2u : 4u); ++seed) {
        SCOPED_TRACE(std::string(inject::k_model_names[static_cast<std::size_t>(model)]) + " " + std::to_string(seed));
        const inject::plan faults = fault_at(kmeans::site::product, model, seed);
        const auto found = predict(held, what, protection::correct, &faults);
        EXPECT_LE(held.worst(found.labels), allowed<T>(what));
        if (found.report.detected == 0) {
          EXPECT_TRUE(model == inject::model::random_value || seed > 0) << "a flip of the uppermost exponent bit passed";
          continue;
        }
        EXPECT_EQ(found.report.detected, 1u);
        // A fault that is not far above the rounding of the checksums is detected and cannot be located, above all if a warp's checksums
        // are rounded to TF32.
        if (model == inject::model::infinity || model == inject::model::nan || !places) {
          EXPECT_EQ(found.report.verdict, places ? verdict::corrected : verdict::recomputed) << to_json(found.report);
        }
        ++repaired;
        corrected += found.report.verdict == verdict::corrected;
        const auto seen = predict(held, what, protection::detect, &faults);
        EXPECT_GT(seen.report.detected, 0u);
      }
    }
    EXPECT_GE(repaired, test::sampled() ? 5 : 10);
    EXPECT_GE(corrected, places ? repaired * 3 / 4 : 0);
  });
}

// With the protection off the same faults reach the labels.
TEST_F(kmeans_cuda_schemes, without_protection_a_wrong_product_reaches_the_labels) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (what.protects()) return;
    const data<T> held(what);
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < 60 && wrong == 0; ++seed) {
      const inject::plan faults = fault_at(kmeans::site::product, inject::model::bit_flip, seed);
      const auto found = predict(held, what, protection::off, &faults);
      EXPECT_EQ(found.report.verdict, verdict::clean);
      wrong += held.worst(found.labels) > allowed<T>(what);
    }
    EXPECT_GT(wrong, 0);
  });
}

// Two wrong products at different positions of a tile: what cannot be located is computed again.
TEST_F(kmeans_cuda_schemes, compute_again_what_they_cannot_locate) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (!what.protects()) return;
    const data<T> held(what);
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      inject::request one;
      one.site = kmeans::site::product;
      one.model = inject::model::vector_mask;
      one.seed = seed;
      one.bit = 62;
      const inject::plan faults({one});
      const auto found = predict(held, what, protection::correct, &faults);
      EXPECT_LE(held.worst(found.labels), allowed<T>(what));
      EXPECT_NE(found.report.verdict, verdict::uncorrectable);
      // A warp's check places one fault in each lane.
      if (found.report.detected > 0 && what.does().check != kmeans::cuda::tile_check::warp) {
        EXPECT_EQ(found.report.verdict, verdict::recomputed);
      }
    }
  });
}

// A persistent fault is reported and not passed off as right.
TEST_F(kmeans_cuda_schemes, report_what_stays_wrong) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (what.does().check != kmeans::cuda::tile_check::detect) return;
    const data<T> held(what);
    const inject::plan faults = fault_at(kmeans::site::product, inject::model::stuck_at, 0);
    EXPECT_EQ(predict(held, what, protection::correct, &faults).report.verdict, verdict::uncorrectable);
  });
}

TEST_F(kmeans_cuda_schemes, survive_faults_of_the_check) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (!what.protects()) return;
    const data<T> held(what);
    int seen = 0;
    for (const auto site : {kmeans::site::checksum, kmeans::site::threshold, kmeans::site::comparison}) {
      for (const auto model : {inject::model::bit_flip, inject::model::nan, inject::model::random_value}) {
        SCOPED_TRACE(std::string(inject::row_of(site).name) + " " + std::string(inject::k_model_names[static_cast<std::size_t>(model)]));
        const inject::plan faults = fault_at(site, model, 3);
        const auto found = predict(held, what, protection::correct, &faults);
        EXPECT_NE(found.report.verdict, verdict::uncorrectable);
        EXPECT_LE(held.worst(found.labels), allowed<T>(what));
        seen += found.report.detected > 0;
      }
    }
    EXPECT_GE(seen, 4);
  });
}

// The norms are computed twice, the update too: sums, counts and centroids are verified as in the default scheme.
TEST_F(kmeans_cuda_schemes, repair_norms_and_the_update) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    // The kernels are those of all schemes that protect.
    if (what.scheme != "warp_checksum" || (what.token != "kmeans_f32_m300_n17_k7" && what.token != "kmeans_f64_m150_n9_k70")) return;
    const data<T> held(what);
    const auto right = fit(held, what, 2);
    for (const auto site : {kmeans::site::norm, kmeans::site::sum, kmeans::site::count, kmeans::site::centroid}) {
      SCOPED_TRACE(std::string(inject::row_of(site).name));
      int seen = 0;
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        // The update comes first with the norms of the default's packed centroids, which these schemes do not read.
        const std::int64_t visit = site == kmeans::site::norm ? 1 : 0;
        const inject::plan faults = fault_at(site, inject::model::bit_flip, seed, 28, visit);
        const auto found = fit(held, what, 2, &faults);
        EXPECT_NE(found.report.verdict, verdict::uncorrectable);
        EXPECT_EQ(found.labels, right.labels);
        EXPECT_NEAR(found.inertia, right.inertia, 1e-6 * right.inertia);
        seen += found.report.detected > 0;
      }
      EXPECT_GT(seen, 0);
    }
  });
}

TEST_F(kmeans_cuda_schemes, without_protection_sums_reach_the_centroids) {
  const scheme_case what{"tensor", "kmeans_f64_m150_n17_k70"};
  const data<double> held(what);
  const auto right = fit(held, what, 1);
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const inject::plan faults = fault_at(kmeans::site::sum, inject::model::bit_flip, seed, 28);
    wrong += fit(held, what, 1, &faults).inertia != right.inertia;
  }
  EXPECT_GT(wrong, 0);
}

// The paper does not protect the search after the products. The default scheme does.
TEST_F(kmeans_cuda_schemes, do_not_see_a_wrong_index) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (!what.protects()) return;
    const data<T> held(what);
    int silent = 0;
    for (std::uint64_t seed = 0; seed < 20 && silent == 0; ++seed) {
      const inject::plan faults = fault_at(kmeans::site::index, inject::model::bit_flip, seed, 0);
      const auto found = predict(held, what, protection::correct, &faults);
      silent += found.report.verdict == verdict::clean && held.worst(found.labels) > allowed<T>(what);
    }
    EXPECT_GT(silent, 0);
  });
}

// Points that are alike, large, small, 0.
TEST_F(kmeans_cuda_schemes, raise_no_alarm_for_unusual_data) {
  each_case([](const scheme_case& what, auto zero) {
    using T = decltype(zero);
    if (!what.protects()) return;
    const auto check = [&](const char* name, auto&& element) {
      SCOPED_TRACE(name);
      data<T> held(what);
      for (std::size_t e = 0; e < held.points.size(); ++e) held.points[e] = element(e, held.points[e]);
      held.centroids.assign(held.points.begin(), held.points.begin() + held.shape.clusters * held.shape.features);
      EXPECT_EQ(predict(held, what).report.verdict, verdict::clean);
    };
    check("0", [](std::size_t, T) { return T(0); });
    check("constant", [](std::size_t, T) { return T(-7.7); });
    check("two values", [&](std::size_t e, T) { return e / static_cast<std::size_t>(what.problem().features) % 2 == 0 ? T(0.1) : T(0.7); });
    check("features alike", [&](std::size_t e, T) {
      return static_cast<T>(1.0 / static_cast<double>(e / static_cast<std::size_t>(what.problem().features) % 37 + 3));
    });
    check("large", [](std::size_t, T x) { return x * T(1e30); });
    check("small", [](std::size_t, T x) { return x * T(1e-30); });
    check("outliers", [](std::size_t e, T x) { return e % 97 == 0 ? x * T(1e6) : x; });
  });
}

// The paper's injection: one flipped bit in one product of each block. Every fault above the thresholds is corrected, and labels are
// those of a clean run, except for rounding.
// `seen_all`: corrected, recomputed.
template <class T>
void flip_each_block(const scheme_case& what, std::pair<std::uint64_t, std::uint64_t>& seen_all) {
  const data<T> held(what);
  // Instrumented kernels, struck by nothing else.
  const inject::plan none = fault_at(kmeans::site::tolerance, inject::model::zero, 0);
  const run::settings how = with(what, protection::correct, &none);
  inject::active_injector injector(&none, kmeans::site::table());
  run::recorder seen("test", backend::cuda, what.scheme, how, injector);
  const kmeans::engine_args<T> call{held.x(), {}, held.shape.clusters, how, seen, injector, false, what.scheme};
  kmeans::cuda::cuda_engine<T> made(call, ballast::cuda::current_device());
  (void)made.column_stats();
  kmeans::normalization<T> normalization;
  normalization.scale = T(0.0625);
  normalization.shift.assign(static_cast<std::size_t>(held.shape.features), T(0.4));
  made.normalize(normalization);
  (void)made.measure();
  std::vector<T> centroids;
  for (std::size_t e = 0; e < held.centroids.size(); ++e)
    centroids.push_back(held.centroids[e] * normalization.scale - normalization.shift[0]);
  std::uint64_t repaired = 0, blocks = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    kmeans::cuda::lloyd_problem<T> problem = made.problem();
    problem.flips = seed;
    kmeans::cuda::lloyd<T> runs(ballast::cuda::current_device(), made.launches(), problem);
    runs.set_centroids(centroids, centroids);
    runs.pass(true);
    const auto log = made.launches().collect([](const auto&, auto&) {});
    EXPECT_EQ(log.uncorrectable, 0u);
    seen_all.first += log.corrected;
    seen_all.second += log.recomputed;
    repaired += log.corrected + log.recomputed;
    const auto tile = kmeans::cuda::choose_tile(what.tiles(), ballast::cuda::current_device()->about());
    blocks += static_cast<std::uint64_t>((held.shape.points + tile.rows - 1) / tile.rows *
                                         ((held.shape.clusters + tile.columns - 1) / tile.columns));
    EXPECT_LE(held.worst({runs.labels(), runs.labels() + held.shape.points}), allowed<T>(what));
  }
  EXPECT_GE(10 * repaired, blocks);
  EXPECT_LE(repaired, blocks);
}

TEST_F(kmeans_cuda_schemes, withstand_a_flip_in_each_block) {
  std::pair<std::uint64_t, std::uint64_t> places{}, detects{};
  each_case([&](const scheme_case& what, auto zero) {
    if (what.protects()) flip_each_block<decltype(zero)>(what, what.does().check == kmeans::cuda::tile_check::detect ? detects : places);
  });
  EXPECT_GT(places.first, 2 * places.second);
  EXPECT_EQ(detects.first, 0u);
  EXPECT_GT(detects.second, 0u);
}

}  // namespace
