// k-means‖ on every backend: what it chooses, and faults in its choice.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "backend/kmeans_parallel.hpp"
#include "inject/plan.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

template <class T>
class kmeans_parallel : public kmeans_backend<T> {};
TYPED_SUITE(kmeans_parallel, configurations, test::setting_names);

TYPED_TEST(kmeans_parallel, is_better_than_chance_and_takes_different_points) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(1200, 3, 20, 43, 0.02);
  double parallel = 0, chance = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto found = fit(points.view(), {.clusters = 20, .init = init::kmeans_parallel, .max_iter = 1, .seed = seed}, this->how());
    EXPECT_EQ(found.report.verdict, verdict::clean);
    parallel += found.inertia;
    chance += fit(points.view(), {.clusters = 20, .init = init::random, .max_iter = 1, .seed = seed}, this->how()).inertia;
  }
  EXPECT_LT(parallel, chance / 3);
  // k = m: rounds go on until every point is a candidate.
  const auto all = clouds<T>(60, 2, 60, 47);
  const auto found =
      fit(all.view(), {.clusters = 60, .init = init::kmeans_parallel, .seed = 3, .oversampling = 0.01, .rounds = 1}, this->how());
  EXPECT_EQ(std::set<std::int32_t>(found.labels.begin(), found.labels.end()).size(), 60u);
  EXPECT_LE(found.inertia, 60 * 2 * std::pow(4 * k_u<T>, 2));
  // Fewer different points than clusters.
  const data_set<T> five{6, 1, {0, 1, 1, 0, 2, 2}};
  const auto few = fit(five.view(), {.clusters = 5, .init = init::kmeans_parallel}, this->how());
  EXPECT_EQ(few.report.verdict, verdict::clean);
  EXPECT_EQ(few.inertia, 0);
  // Points without weight are not chosen.
  std::vector<T> weights(1200, T(0));
  for (std::size_t i = 0; i < 30; ++i) weights[i * 40] = 1;
  const auto some =
      fit(points.view(), {.clusters = 30, .init = init::kmeans_parallel, .weights = weights, .max_iter = 1, .seed = 3}, this->how());
  EXPECT_LE(some.inertia, 1e-9);
}

TYPED_TEST(kmeans_parallel, makes_the_choice_of_the_reference_for_any_number_of_threads) {
  using T = typename TestFixture::real;
  const std::int64_t m = this->on_cuda ? 700 : 1700;
  const auto points = clouds<T>(m, 5, 9, 17);
  std::vector<T> weights(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(i % 4) / 2;
  run::settings reference = this->how();
  reference.backend = backend::reference;
  for (const bool weighted : {false, true}) {
    for (const double oversampling : {2.0, 8.0}) {
      request<T> wanted{
          .clusters = 11, .init = init::kmeans_parallel, .n_init = 2, .max_iter = 1, .seed = 99, .oversampling = oversampling, .rounds = 3};
      if (weighted) wanted.weights = weights;
      const auto expected = fit(points.view(), wanted, reference);
      for (const int threads : {1, 3}) {
        const auto found = fit(points.view(), wanted, this->how(threads));
        EXPECT_EQ(found.report.verdict, verdict::clean) << to_json(found.report);
        EXPECT_EQ(found.labels, expected.labels);
        EXPECT_NEAR(found.inertia, expected.inertia, 1e3 * k_u<T> * expected.inertia);
      }
      const auto bare = fit(points.view(), wanted, this->how(2, protection::off));
      EXPECT_EQ(bare.labels, expected.labels) << "protection must not change the result";
      EXPECT_EQ(bare.report.checks, 0u);
    }
  }
  request<T> wanted{.clusters = 11, .init = init::kmeans_parallel, .max_iter = 1, .seed = 99};
  const auto one = fit(points.view(), wanted, this->how());
  wanted.rounds = 1;
  EXPECT_NE(fit(points.view(), wanted, this->how()).labels, one.labels);
}

TYPED_TEST(kmeans_parallel, refuses_options_without_meaning) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(20, 3, 2, 67);
  const auto refused = [&](double oversampling, int rounds) -> std::string {
    try {
      (void)fit(points.view(), {.clusters = 2, .init = init::kmeans_parallel, .oversampling = oversampling, .rounds = rounds}, this->how());
    } catch (const invalid_argument_error& e) {
      return e.what();
    }
    return "no invalid_argument_error";
  };
  EXPECT_NE(refused(0, 5).find("oversampling: expected a finite number > 0, got 0"), std::string::npos);
  EXPECT_NE(refused(std::nan(""), 5).find("oversampling: expected"), std::string::npos);
  EXPECT_NE(refused(HUGE_VAL, 5).find("oversampling: expected"), std::string::npos);
  EXPECT_NE(refused(2, 0).find("rounds: expected at least 1, got 0"), std::string::npos);
}

// Distances, what is kept of the candidates, the rows that are drawn, the candidates' weights.
TYPED_TEST(kmeans_parallel, every_step_is_protected_and_matters) {
  using T = typename TestFixture::real;
  const auto points = clouds<T>(this->on_cuda ? 600 : 1300, 4, 12, 97);
  const request<T> wanted{.clusters = 12, .init = init::kmeans_parallel, .max_iter = 1, .seed = 5, .oversampling = 4, .rounds = 3};
  const auto run = [&](const inject::plan* faults, protection level) {
    run::settings how = this->how(2, level);
    how.faults = faults;
    return fit_with_struck_seeding(points, wanted, how);
  };
  expect_steps_protected<T>(run, !test::sampled() ? 6 : TestFixture::k_backend != backend::cpu ? 1 : 4);
}

}  // namespace
}  // namespace ballast::kmeans
