// Protection of a part of the work, on every backend: final_only, whose iterations are bare and whose last step and results are verified;
// and sampled, by which some calls of a plan are protected. Each also with faults that it finds and with faults that it does not.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/sites.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_partial : public kmeans_backend<T> {
 protected:
  using real = typename T::real;

  run::settings final_only(int threads = 2) const {
    run::settings made = this->how(threads);
    made.final_only = true;
    return made;
  }
  // A problem for which the emulator has kernels with checks and without.
  data_set<real> points(double spread = 0.8) const { return clouds<real>(this->on_cuda ? 512 : 3000, 10, 12, 73, spread); }
  static constexpr std::int64_t k = 12;
};
TYPED_SUITE(kmeans_partial, configurations, test::setting_names);

template <class T>
void expect_same(const model<T>& found, const model<T>& wanted) {
  EXPECT_TRUE(std::equal(found.centroids.data(), found.centroids.data() + found.centroids.size(), wanted.centroids.data()));
  EXPECT_EQ(found.labels, wanted.labels);
  EXPECT_EQ(found.inertia, wanted.inertia);
  EXPECT_EQ(found.iterations, wanted.iterations);
  EXPECT_EQ(found.stopped, wanted.stopped);
}

// The result of every fit must be this, also after a fault before its last step.
template <class T>
void expect_consistent(const data_set<T>& points, const model<T>& found) {
  expect_nearest<T>(points.view(), found.centroids.view(), found.labels, found.inertia);
}

// ---- final_only ----

TYPED_TEST(kmeans_partial, final_only_has_the_bits_of_full_protection) {
  using T = typename TestFixture::real;
  const auto points = this->points();
  std::vector<request<T>> wanted;
  for (const int most : {1, 2, 3, 300})
    for (const double tol : {0.0, 0.05}) wanted.push_back({.clusters = this->k, .init = init::given, .max_iter = most, .tol = tol});
  wanted.push_back({.clusters = this->k, .n_init = 2, .seed = 5});
  for (request<T>& each : wanted) {
    SCOPED_TRACE("max_iter " + std::to_string(each.max_iter) + " tol " + std::to_string(each.tol));
    if (each.init == init::given) each.centroids = points.rows(this->k);
    const model<T> full = fit(points.view(), each, this->how());
    const model<T> found = fit(points.view(), each, this->final_only());
    expect_same(found, full);
    EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
    EXPECT_EQ(found.report.protection, protection::final_only);
    EXPECT_GT(found.report.checks, 0U);
    if (each.max_iter > 3) {
      EXPECT_LT(found.report.checks, full.report.checks);
    }
    // Iteration by iteration, as a caller watches them.
    run::settings watched = this->final_only();
    std::int64_t last = 0;
    watched.on_progress = [&](const progress& now) { last = now.done; };
    const model<T> seen = fit(points.view(), each, watched);
    expect_same(seen, full);
    EXPECT_EQ(seen.report.verdict, verdict::clean) << to_json(seen.report);
    if (each.n_init == 1) {
      EXPECT_EQ(last, seen.iterations);
    }
  }
}

TYPED_TEST(kmeans_partial, final_only_of_hostile_data_is_clean) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 256 : 1000;
  for (int kind = 0; kind < 5; ++kind) {
    SCOPED_TRACE(kind);
    auto points = clouds<T>(m, 10, 3, 7, kind == 0 ? 1e-6 : 1.0, kind == 1 ? 1e4 : 0, kind == 2 ? 1e30 : 1);
    // Fewer different points than clusters; points between two centroids.
    if (kind == 3)
      for (std::size_t e = 0; e < points.values.size(); ++e) points.values[e] = static_cast<T>(e / 10 % 4);
    if (kind == 4)
      for (std::size_t e = 0; e < points.values.size(); ++e) points.values[e] = static_cast<T>(e * 7919 % 3);
    request<T> wanted{.clusters = this->k, .init = init::given, .centroids = points.rows(this->k), .max_iter = 40, .tol = 0};
    const model<T> found = fit(points.view(), wanted, this->final_only());
    EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
    const model<T> full = fit(points.view(), wanted, this->how());
    EXPECT_EQ(found.labels, full.labels);
    EXPECT_EQ(found.inertia, full.inertia);
  }
}

TYPED_TEST(kmeans_partial, final_only_repairs_faults_of_the_last_step) {
  using T = typename TestFixture::real;
  const auto points = this->points();
  constexpr int most = 3;
  const request<T> wanted{.clusters = this->k, .init = init::given, .centroids = points.rows(this->k), .max_iter = most, .tol = 0};
  const model<T> clean = fit(points.view(), wanted, this->how());
  int repaired = 0, matters = 0;
  for (const inject::site where : {kmeans::site::product, kmeans::site::minimum, kmeans::site::index, kmeans::site::label,
                                   kmeans::site::sum, kmeans::site::count, kmeans::site::centroid, kmeans::site::inertia}) {
    for (std::uint64_t seed = 0; seed < (this->on_cuda ? 2U : 6U); ++seed) {
      const inject::plan faults({fault_at(where, seed % 2 == 0 ? inject::model::bit_flip : inject::model::random_value, seed,
                                          where == kmeans::site::inertia ? 0 : most - 1)});
      SCOPED_TRACE(std::string(inject::row_of(where).name) + " seed " + std::to_string(seed));
      run::settings how = this->final_only();
      how.faults = &faults;
      const model<T> found = fit(points.view(), wanted, how);
      repaired += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable) << to_json(found.report);
      // On cuda passes with checks visit a place more often than those without: the fault may have struck an iteration before the last.
      expect_consistent(points, found);
      if (!this->on_cuda) {
        EXPECT_EQ(found.labels, clean.labels);
        EXPECT_NEAR(found.inertia, clean.inertia, 64 * k_u<T> * clean.inertia);
      }
      run::settings off = this->how(2, protection::off);
      off.faults = &faults;
      const model<T> bare = fit(points.view(), wanted, off);
      matters += bare.labels != clean.labels || !(std::abs(bare.inertia - clean.inertia) <= 64 * k_u<T> * clean.inertia);
    }
  }
  EXPECT_GT(repaired, 4);
  EXPECT_GT(matters, 4) << "without protection no fault reached the result";
}

// Iterations that end before max_iter: the last one was bare, and is computed again.
TYPED_TEST(kmeans_partial, final_only_repairs_faults_of_a_last_step_that_was_not_known_to_be) {
  using T = typename TestFixture::real;
  const auto points = this->points(1.6);
  for (const double tol : {0.0, 0.02}) {
    const request<T> wanted{.clusters = this->k, .init = init::given, .centroids = points.rows(this->k), .max_iter = 200, .tol = tol};
    const model<T> clean = fit(points.view(), wanted, this->how());
    ASSERT_GT(clean.iterations, 2);
    ASSERT_NE(clean.stopped, stop_reason::max_iter);
    int told = 0;
    for (const inject::site where :
         {kmeans::site::sum, kmeans::site::count, kmeans::site::label, kmeans::site::centroid, kmeans::site::shift}) {
      for (const inject::model model : {inject::model::bit_flip, inject::model::zero, inject::model::nan}) {
        const inject::plan faults({fault_at(where, model, 2, clean.iterations - 1)});
        SCOPED_TRACE(std::string(inject::row_of(where).name) + " " + std::string(inject::k_model_names[static_cast<std::size_t>(model)]) +
                     " tol " + std::to_string(tol));
        run::settings how = this->final_only();
        how.faults = &faults;
        const auto found = fit(points.view(), wanted, how);
        ASSERT_NE(found.report.verdict, verdict::uncorrectable) << to_json(found.report);
        told += found.report.detected > 0;
        expect_consistent(points, found);
        ASSERT_NE(found.stopped, stop_reason::max_iter);
        if (tol > 0) continue;
        EXPECT_EQ(found.labels, clean.labels);
        EXPECT_NEAR(found.inertia, clean.inertia, 64 * k_u<T> * clean.inertia);
      }
    }
    EXPECT_GT(told, 0);
  }
}

// A fault of an iteration may lead to another result, which is one of Lloyd's algorithm all the same: labels of the nearest centroids,
// their inertia, and centroids that an iteration with full protection leaves as they are.
TYPED_TEST(kmeans_partial, final_only_is_consistent_after_faults_of_iterations) {
  using T = typename TestFixture::real;
  const auto points = this->points(1.6);
  const request<T> wanted{.clusters = this->k, .init = init::given, .centroids = points.rows(this->k), .max_iter = 200, .tol = 0};
  const model<T> clean = fit(points.view(), wanted, this->how());
  ASSERT_GT(clean.iterations, 4);
  int silent = 0, told = 0;
  const std::vector<inject::site> sites = {kmeans::site::points, kmeans::site::norm,  kmeans::site::product, kmeans::site::label,
                                           kmeans::site::sum,    kmeans::site::count, kmeans::site::centroid};
  for (const inject::site where : sites) {
    for (const inject::model model : {inject::model::bit_flip, inject::model::random_value, inject::model::nan, inject::model::infinity}) {
      if (this->on_cuda && test::sampled() && model == inject::model::infinity) continue;
      for (const std::int64_t visit : {std::int64_t{1}, std::int64_t{3}}) {
        const inject::plan faults({fault_at(where, model, static_cast<std::uint64_t>(visit), visit)});
        SCOPED_TRACE(std::string(inject::row_of(where).name) + " " + std::string(inject::k_model_names[static_cast<std::size_t>(model)]) +
                     " visit " + std::to_string(visit));
        run::settings how = this->final_only();
        how.faults = &faults;
        const auto found = fit(points.view(), wanted, how);
        ASSERT_NE(found.report.verdict, verdict::uncorrectable) << to_json(found.report);
        expect_consistent(points, found);
        (found.report.detected > 0 ? told : silent) += 1;
        ASSERT_NE(found.stopped, stop_reason::max_iter);
        const request<T> again{.clusters = this->k, .init = init::given, .centroids = found.centroids.view(), .max_iter = 1, .tol = 0};
        const auto fixed = fit(points.view(), again, this->how());
        EXPECT_EQ(fixed.labels, found.labels);
        EXPECT_NEAR(fixed.inertia, found.inertia, 64 * k_u<T> * found.inertia);
      }
    }
  }
  EXPECT_GT(silent, 0) << "the iterations are not bare";
  EXPECT_GT(told, 0);
}

TYPED_TEST(kmeans_partial, final_only_reports_a_last_step_that_stays_wrong) {
  const auto points = this->points();
  const inject::plan faults({fault_at(kmeans::site::inertia, inject::model::stuck_at, 3)});
  run::settings how = this->final_only();
  how.faults = &faults;
  EXPECT_EQ(fit(points.view(), {.clusters = this->k, .max_iter = 3}, how).report.verdict, verdict::uncorrectable);
  how.throw_on_uncorrectable = true;
  EXPECT_THROW((void)fit(points.view(), {.clusters = this->k, .max_iter = 3}, how), uncorrectable_error);
}

TYPED_TEST(kmeans_partial, final_only_protects_predict_and_transform_as_a_whole) {
  const auto points = this->points();
  run::settings whole = this->how(), partial = this->final_only();
  whole.threads = partial.threads = 1;  // several threads divide the rows anew in each call, and so count other checks
  const auto full = predict(points.view(), points.rows(this->k), whole);
  const auto found = predict(points.view(), points.rows(this->k), partial);
  EXPECT_EQ(found.labels, full.labels);
  EXPECT_EQ(found.report.checks, full.report.checks);
  EXPECT_EQ(found.report.protection, protection::final_only);
  EXPECT_EQ(transform(points.view(), points.rows(this->k), partial).report.checks,
            transform(points.view(), points.rows(this->k), whole).report.checks);
}

// ---- sampled ----

template <class T>
struct outcome {
  std::vector<T> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  ballast::report report;
};

template <class T>
outcome<T> call_of(const plan<T>& by, const data_set<T>& points) {
  const std::int64_t k = by.problem().clusters;
  outcome<T> made{
      std::vector<T>(static_cast<std::size_t>(k * points.n)), std::vector<std::int32_t>(static_cast<std::size_t>(points.m)), 0, {}};
  made.report = by.fit({.points = points.view(), .centroids = points.rows(k)},
                       {.centroids = row_major(made.centroids.data(), k, points.n), .labels = made.labels, .inertia = &made.inertia},
                       {.throw_on_uncorrectable = false});
  return made;
}

TYPED_TEST(kmeans_partial, sampled_protects_every_third_call) {
  using T = typename TestFixture::real;
  const auto points = this->points();
  // Seeds tell problems of the tests apart: the plans of one problem begin at different calls.
  const problem size{.points = points.m, .features = points.n, .clusters = this->k};
  const options wanted{.init = init::given, .max_iter = 3, .tol = 0};
  const auto where = [&](protection level, int sampled) {
    return execution{.backend = TestFixture::k_backend, .threads = 2, .protection = level, .sampled = sampled};
  };
  const plan<T> off(size, wanted, where(protection::off, 1)), full(size, wanted, where(protection::correct, 1));
  const outcome<T> bare = call_of(off, points), whole = call_of(full, points);
  EXPECT_EQ(bare.report.sampled, 1);
  for (const protection level : {protection::correct, protection::detect, protection::final_only}) {
    const plan<T> made(size, wanted, where(level, 3));
    std::vector<int> guarded;
    for (int call = 0; call < 9; ++call) {
      const outcome<T> found = call_of(made, points);
      EXPECT_EQ(found.report.sampled, 3);
      EXPECT_EQ(found.report.verdict, verdict::clean);
      const bool is = found.report.protection != protection::off;
      EXPECT_EQ(found.report.protection, is ? level : protection::off);
      EXPECT_EQ(found.report.checks > 0, is);
      if (is) guarded.push_back(call);
      const outcome<T>& same = is ? whole : bare;
      EXPECT_TRUE(found.centroids == same.centroids && found.labels == same.labels && found.inertia == same.inertia);
    }
    ASSERT_EQ(guarded.size(), 3U);
    EXPECT_EQ(guarded[1] - guarded[0], 3);
    EXPECT_EQ(guarded[2] - guarded[1], 3);
    // A fault that stays is found within three calls, and until then reaches the result.
    const inject::plan faults({fault_at(kmeans::site::inertia, inject::model::stuck_at, 3)});
    const inject::scope struck(&faults);
    int found = 0, missed = 0;
    for (int call = 0; call < 3; ++call) {
      const outcome<T> seen = call_of(made, points);
      if (seen.report.verdict == verdict::uncorrectable)
        ++found;
      else
        missed += seen.inertia != bare.inertia;
    }
    EXPECT_EQ(found, 1);
    EXPECT_EQ(missed, 2);
  }
}

TYPED_TEST(kmeans_partial, sampled_counts_each_operation_and_each_plan) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(512, 10, 8, 5);
  const problem size{.points = 512, .features = 10, .clusters = 8};
  const execution where{.backend = TestFixture::k_backend, .threads = 2, .sampled = 2};
  const plan<T> made(size, {.init = init::given, .max_iter = 2}, where);
  std::vector<std::int32_t> labels(512);
  int fits = 0, predictions = 0;
  for (int call = 0; call < 4; ++call) {
    fits += call_of(made, points).report.protection != protection::off;
    predictions += made.predict({.points = points.view(), .centroids = points.rows(8)}, {.labels = labels}).protection != protection::off;
  }
  EXPECT_EQ(fits, 2);
  EXPECT_EQ(predictions, 2);
  // One-line calls make a plan each.
  int lines = 0;
  for (int call = 0; call < 4; ++call)
    lines += predict(data<T>{.points = points.view(), .centroids = points.rows(8)}, where).report.protection != protection::off;
  EXPECT_EQ(lines, 2);
  // Threads share a plan's count. The emulator runs one launch at a time.
  if (this->on_cuda) return;
  std::vector<std::thread> threads;
  std::atomic<int> together{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int call = 0; call < 2; ++call) together += call_of(made, points).report.protection != protection::off;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(together, 4);
}

TYPED_TEST(kmeans_partial, refuses_what_has_no_meaning) {
  using T = typename TestFixture::real;
  const problem size{.points = 100, .features = 3, .clusters = 4};
  const auto message = [&](const execution& where) -> std::string {
    try {
      const plan<T> made(size, {}, where);
    } catch (const error& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_NE(message({.backend = TestFixture::k_backend, .sampled = 0}).find("sampled: expected 1 or more, got 0"), std::string::npos);
  EXPECT_NE(message({.backend = TestFixture::k_backend, .sampled = -3}).find("got -3"), std::string::npos);
  if (this->on_cuda) {
    EXPECT_NE(message({.backend = backend::cuda, .protection = protection::final_only, .scheme = "warp_checksum"})
                  .find("expected row_checksum with protection final_only, got warp_checksum"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ballast::kmeans
